"""Pictures of trained nets, and what all pictures share: colours, labels, lines, axes.

    axes = plot_history("run.json")                 test accuracy after each epoch
    axes = plot_history(history, series="train_loss")       of hn.train
    axes = plot_history(net.history_)               of a HighwayClassifier
    axes = plot_gates("run.json")                   mean T of each block, as bars
    axes = plot_gate_history(layer_T)               the same epoch by epoch, of hn.train
    axes = plot_depth_sweep("run_sweep.json")       test accuracy by depth
    axes.figure.savefig("mine.png")

Each takes what `studies.as_study` takes, draws on the Axes that are given or on a
figure of its own, and returns the Axes. Labels stand right of the lines. Matplotlib's
constrained layout makes room for them: a figure without a layout engine gets it. Block
1, at the input, is left or at the bottom.

Legend: S seeds, E epochs, K epochs whose gates were recorded, L blocks (the depth).
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from textwrap import wrap
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator
from matplotlib.transforms import ScaledTranslation

from highway_suite.studies import Arm, Study, as_study


class TINTS:
    """The colours but those of the blocks."""

    paper, ink, grid = "#FFFFFF", "#1F2328", "#DDE2E7"
    soft = "#59636E"        # captions and reference lines
    own = "#7B3FA0", "#7A6A00", "#A0003C", "#444444"    # of kinds not in the table


COLOURS = {     # of the blocks, on every figure: Okabe and Ito's, for the colour-blind
    "plain": "#D55E00", "residual": "#009E73", "scaled_residual": "#000000",
    "t_only": "#E69F00", "c_only": "#CC79A7", "highway": "#0072B2", "full": "#56B4E9"}
GATE_COLOURS = "viridis"    # even steps of brightness: it survives grey print
MARKERS = {"highway": "o", "plain": "s", "residual": "^", "scaled_residual": "X",
           "t_only": "D", "c_only": "v", "full": "P"}
OWN_MARKERS = "ph*d"
BLOCK_AXIS = "block (1 is at the input)"
NAMES = {"test_acc": "test accuracy", "train_acc": "training accuracy",
         "validation_acc": "validation accuracy", "train_loss": "training loss",
         "validation_loss": "validation loss", "grad_norm": "gradient norm"}
WIDTH = 5.4                 # inches, of all pictures: to be read on a phone, too
EDGE = 0.09                 # inches that texts keep from the sides
OUTSIDE = -0.45             # inches from an axes to the name of its y axis
LINE = 13                   # points from one label to the next below it
TITLE = {"size": 12, "weight": "bold"}
SMALL = 8.5                 # points, of captions
BESIDE = {"linestyle": (0, (3, 1.2)), "linewidth": 1.2, "marker": None}
FORMATS = "png", "svg", "pdf"
DPI = 200


# --------------------------------------------------------------------------------------
# Style, figures, files


@contextmanager
def style() -> Iterator[None]:
    """Matplotlib's own defaults and ours on top, whatever the user's settings are."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update({
            "font.size": 10, "axes.labelsize": 10.5, "svg.hashsalt": "highway",
            "savefig.facecolor": TINTS.paper, "figure.facecolor": TINTS.paper,
            "axes.facecolor": TINTS.paper, "text.color": TINTS.ink,
            "axes.labelcolor": TINTS.ink, "axes.edgecolor": TINTS.soft,
            "xtick.color": TINTS.soft, "ytick.color": TINTS.soft,
            "xtick.labelcolor": TINTS.ink, "ytick.labelcolor": TINTS.ink,
            "axes.spines.top": False, "axes.spines.right": False,
            "axes.axisbelow": True, "grid.color": TINTS.grid, "grid.linewidth": 0.9,
            "lines.linewidth": 2.2, "lines.markersize": 5, "figure.dpi": DPI,
        })
        yield


class Sheet(Figure):
    """A figure that keeps our style when it is saved under another."""

    def savefig(self, *args: Any, **options: Any) -> None:
        """As that of any Figure."""
        with style():
            super().savefig(*args, **options)


def sheet(title: str, *notes: str, height: float = 3.4, rows: int = 1,
          columns: int = 1, **shared: Any) -> tuple[Figure, Any]:
    """A figure and its axes, as Figure.subplots has them: above, what is found; below,
    in small, of what. It can be read where it is as wide as a phone."""
    figure = Sheet(figsize=(WIDTH, height), layout="constrained")
    FigureCanvasAgg(figure)
    figure.get_layout_engine().set(w_pad=EDGE, h_pad=EDGE)
    width, left = WIDTH - 2 * EDGE, {"x": EDGE / WIDTH, "ha": "left"}
    figure.suptitle(fold([title], width, **TITLE), **left, **TITLE)
    figure.supxlabel(fold(notes, width, size=SMALL), size=SMALL, color=TINTS.soft,
                     **left)
    return figure, figure.subplots(rows, columns, **shared)


def fold(parts: Sequence[str], width: float, **font: Any) -> str:
    """Parts of a text -> lines no wider than so many inches. They break between parts,
    and within one that is too long, evenly."""
    def fits(line):
        points, _, _ = text_to_path.get_text_width_height_descent(
            line, FontProperties(**font), ismath=False)
        return points <= 70 * width     # not 72: on few pixels letters are wider
    lines = [""]
    for part in parts:
        joined = f"{lines[-1]} · {part}" if lines[-1] else part
        if fits(joined):
            lines[-1] = joined
            continue
        ways = [wrap(part, letters, break_on_hyphens=False)
                for letters in range(len(part), 0, -1)]
        fewest = len(next(way for way in ways if all(map(fits, way))))
        lines += [way for way in ways if len(way) == fewest][-1]
    return "\n".join(line for line in lines if line)


@contextmanager
def drawn_on(axes: Axes | None) -> Iterator[Axes]:
    """The axes to draw on: as given, or one of a new figure in our style."""
    if axes is not None:
        yield axes
        return
    with style():
        figure, axes = sheet("")
        yield axes
        figure.draw_without_rendering()     # makes the ticks, while the style holds


def saved(figure: Figure, kind: str, title: str | None, command: str, digest: str
          ) -> bytes:
    """A figure -> the bytes of its file, one of FORMATS, which names the command and
    the SHA-256 of the record, and nothing that changes from day to day.

    Each format has its own keys; None removes the program, version or date that
    Matplotlib would write.
    """
    origin = f"record SHA-256 {digest}"
    metadata: dict[str, str | None] = {"Title": title} | {
        "png": {"Software": None, "Source": command, "Record-SHA-256": digest},
        "svg": {"Date": None, "Creator": None, "Source": command,
                "Description": origin},
        "pdf": {"CreationDate": None, "Creator": None, "Producer": None,
                "Subject": command, "Keywords": origin}}[kind]
    figure.savefig(file := io.BytesIO(), format=kind, metadata=metadata)
    return file.getvalue()


# --------------------------------------------------------------------------------------
# Axes and their labels


def lay_out(axes: Axes) -> None:
    """Let matplotlib place the axes of a figure now, with room for what is around. One
    with axes at places of the user's, or a colour scale, stays as it is."""
    figure = axes.figure.canvas.figure
    if figure.get_layout_engine() is None and all(
            one.get_subplotspec() and not hasattr(one, "_colorbar")
            for one in figure.axes):
        figure.set_layout_engine("constrained")
    if engine := figure.get_layout_engine():
        engine.execute(figure)


def label_y(axes: Axes, text: str) -> None:
    """The name of the y axis, level and above it, where it reads without turning."""
    axes.set_ylabel(text, rotation=0, ha="left", va="bottom")
    axes.yaxis.set_label_coords(0, 1.025, axes.transAxes + ScaledTranslation(
        OUTSIDE, 0, axes.figure.dpi_scale_trans))


def label_right(axes: Axes, labels: list[tuple]) -> None:
    """Write (height in data, text, colour) right of the axes, clear of each other. It
    comes last, for it needs the limits of the axes, and its height in the figure.

    Labels that would overlap move up; of equal heights the first stands highest. NaN
    stands at the foot, and what lies off the axes at its ends. Long lines are broken;
    where there are more lines than fit, they are smaller.
    """
    lay_out(axes)
    low, high = axes.get_ylim()
    found = []
    for i, (height, text, colour) in enumerate(labels):
        inside = low if math.isnan(height) else min(max(height, low), high)
        lines = [part for line in text.split("\n") for part in wrap(line, 28)]
        found.append((axes.transData.transform((1, inside))[1], -i, lines, colour))
    found.sort()
    pixels, (foot, top) = axes.figure.dpi / 72, axes.bbox.intervaly
    sizes = np.array([len(lines) for _, _, lines, _ in found])
    line = min(LINE * pixels, (top - foot) / max(sizes.sum(), 1))
    stacked = line * (np.cumsum(sizes) - sizes / 2)     # as if all stood at the foot
    above = np.maximum.accumulate([row[0] for row in found] - stacked)
    at = stacked + np.clip(above, foot, top - line * (sizes.sum() - 0.5))
    for y, (_, _, lines, colour) in zip(at, found, strict=True):
        axes.annotate("\n".join(lines), (1, (y - foot) / (top - foot)), (7, 0),
                      xycoords="axes fraction", textcoords="offset points", va="center",
                      color=colour, size=matplotlib.rcParams["font.size"] * line
                      / (LINE * pixels))


def hold(axes: Axes, x: Any, values: Iterable, least: float = 0.1,
         foot: bool = False) -> None:
    """Let the axes have room for all finite values, whatever part of them is drawn,
    from the first x to the last.

    least: the span they have at least, lest noise fill the axes; foot: whether to leave
    room at the foot for crosses.
    """
    finite = [value for value in values if math.isfinite(value)]
    low, high = min(finite, default=0), max(finite, default=0)
    more = max(least - (high - low), 0) / 2
    below = 0.14 * max(high - low, least) if foot else 0
    axes.update_datalim([(x[0], low - more - below), (x[-1], high + more)])
    axes.margins(0.02, 0.06)


class WholeTicks(MaxNLocator):
    """Ticks at round whole numbers from first to last, and at the first: as many as an
    axis has room for when it is drawn."""

    def __init__(self, first: int, last: int) -> None:
        super().__init__(integer=True, steps=[1, 2, 5, 10])
        self.ends = first, last

    def tick_values(self, *_: float) -> list[float]:
        """The ticks, whatever the limits of the axis are."""
        first, last = self.ends
        most = self.axis.get_tick_space() * (3 if last < 100 else 2) // 2
        self.set_params(nbins=max(most, 1))
        ticks = [tick for tick in super().tick_values(first, last)
                 if first <= tick <= last] or [first]
        return ticks if ticks[0] < first + 3 else [first, *ticks]


def fit_depths(axes: Axes, depths: Sequence[int]) -> None:
    """A logarithmic x axis of rising depths, in blocks, with a tick at each that has
    room for its label; the deepest has."""
    logs = np.log10(depths)
    margin = 0.03 * (logs[-1] - logs[0]) or 0.3
    axes.set_xscale("log")
    axes.set_xlim(10**(logs[0] - margin), 10**(logs[-1] + margin))
    gap = (7 * len(str(depths[-1])) + 8) / 72 * axes.figure.dpi
    at = axes.transData.transform([(depth, 1) for depth in depths])[:, 0]
    ticks: list[int] = []
    for i in reversed(range(len(depths))):
        if not ticks or at[ticks[-1]] - at[i] >= gap:
            ticks.append(i)
    axes.xaxis.set_major_locator(FixedLocator([depths[i] for i in ticks[::-1]]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter("{x:.0f}")
    axes.set_xlabel("blocks (log scale)")


def name_y(axes: Axes, text: str) -> None:
    """The name of the y axis, in a place that is kept free, and a grid at its plain
    numbers."""
    label_y(axes, text)
    axes.text(0, 1.025, " ", transform=axes.transAxes, va="bottom",     # layouts heed
              size=matplotlib.rcParams["axes.labelsize"])               # no such label
    axes.grid(True, axis="y")
    if axes.get_yscale() == "linear":
        axes.ticklabel_format(axis="y", style="plain", useOffset=False)


def visible(colour: str) -> str:
    """A colour; on the dark paper of a user a light one in place of a dark one."""
    paper = max(to_rgb(matplotlib.rcParams["axes.facecolor"]))
    return TINTS.grid if max(paper, *to_rgb(colour)) < 0.45 else colour


def reference(axes: Axes, height: float) -> None:
    """A dashed line across the axes: chance, ln C, where the gates started."""
    axes.axhline(height, color=visible(TINTS.soft), linewidth=1.2,
                 linestyle=(0, (4, 3)), zorder=1.5)


# --------------------------------------------------------------------------------------
# Lines, bands and marks


def mean_and_range(values: np.ndarray) -> Iterator[np.ndarray]:
    """(S, X) -> mean, lowest and highest (X,) of the finite ones; NaN where none is."""
    values = np.ma.masked_invalid(values)
    return (getattr(values, name)(axis=0).filled(math.nan)
            for name in ("mean", "min", "max"))


def arm_colour(arm: Arm) -> str:
    """The colour of a kind of nets."""
    return visible(COLOURS.get(arm.block, TINTS.own[arm.place % len(TINTS.own)]))


def draw_line(axes: Axes, x: Any, values: np.ndarray, arm: Arm, **line: Any) -> None:
    """Mean of values (S, X) as a line in the arm's colour, their range as a band."""
    mean, low, high = mean_and_range(values)
    marker = MARKERS.get(arm.block, OWN_MARKERS[arm.place % len(OWN_MARKERS)])
    axes.plot(x, mean, **{
        "color": arm_colour(arm), "label": arm.block, "clip_on": False, "zorder": 3,
        "marker": marker if len(mean) <= 30 else None} | line)
    if len(values) > 1:
        axes.fill_between(x, low, high, color=arm_colour(arm), alpha=0.22, linewidth=0,
                          label=f"{arm.block} range")


def draw_cross(axes: Axes, x: float, y: float, arm: Arm) -> None:
    """The mark of a run that diverged; y NaN stands for the foot of the axes."""
    foot = math.isnan(y)
    height = 0.03 + 0.05 * arm.place        # apart where several diverge
    axes.plot([x], [height if foot else y], linestyle="none", marker="x", markersize=9,
              markeredgewidth=2.5, color=arm_colour(arm), clip_on=False,
              label=f"{arm.block} diverged", zorder=4,
              transform=axes.get_xaxis_transform() if foot else axes.transData)


def draw_curves(axes: Axes, arm: Arm, table: np.ndarray, upto: float, **line: Any
                ) -> None:
    """One arm's values (S, E) up to an epoch. A net that diverged is a line of its own,
    thin beside others, that ends in a cross."""
    values = np.where(arm.epoch <= upto, table, math.nan)
    if not arm.diverged.all():
        draw_line(axes, arm.epoch, values[~arm.diverged], arm, **line)
    for i in np.flatnonzero(arm.diverged):
        axes.plot(arm.epoch, values[i], color=arm_colour(arm), clip_on=False, zorder=2,
                  linewidth=2.2 if arm.diverged.all() else 1.2,
                  label=f"{arm.block} alone")
        lost = int(np.isnan(table[i]).argmax())
        if arm.epoch[lost] <= upto:
            draw_cross(axes, arm.epoch[max(lost - 1, 0)],
                       table[i, lost - 1] if lost else math.nan, arm)


def head(arm: Arm, table: np.ndarray, upto: float = math.inf, word: str = ""
         ) -> list[tuple]:
    """Where the mean of an arm's values (S, E) ends -> its label for `label_right`;
    word: which of several series they are."""
    mean = next(mean_and_range(table[arm.alive][:, arm.epoch <= upto]))
    if not arm.diverged.all():      # a series may end sooner, that was not measured on
        mean = mean[np.isfinite(mean)]
    if not len(mean):
        return []
    height = float(mean[-1])
    text = ("diverged" if math.isnan(height) else
            f"{height:{'.4f' if 1e-3 <= height < 10 else '.3g'}}")
    name = arm.block.replace("$", r"\$")        # it is no formula
    return [(height, " ".join(filter(None, (name, word, text))), arm_colour(arm))]


def draw_guess(axes: Axes, study: Study, series: str) -> list[tuple]:
    """A line at what a guess has: the accuracy of the best constant answer, the loss
    ln C of a uniform one; none, if it is not known. Returns its label, for
    `label_right`."""
    height, text = math.nan, ""
    if series == "train_loss" and study.classes:
        height = math.log(study.classes)
        text = f"ln {study.classes} = {height:.4f}"
    elif series.endswith("_acc") and study.chance == study.chance:
        height = study.chance
        exact = study.classes and height == 1 / study.classes
        text = f"chance {f'1/{study.classes}' if exact else f'{height:.4f}'}"
    if not text:
        return []
    reference(axes, height)
    return [(height, text, visible(TINTS.soft))]


# --------------------------------------------------------------------------------------
# Training


def chosen_series(study: Study, series: str | Sequence[str] | None) -> list[str]:
    """The series to draw. By default the test accuracy, or where it was not measured
    the accuracies of training and, if it was, of validation."""
    there = {name for arm in study.deepest for name in arm.history}
    if series is None:
        series = ("test_acc" if "test_acc" in there else
                  [name for name in ("train_acc", "validation_acc") if name in there])
    names = [series] if isinstance(series, str) else list(series)
    if not names or not there.issuperset(names):
        raise ValueError(f"no net has a history of {series!r}; there are "
                         f"{sorted(there)}")
    return names


def plot_history(source: Any, axes: Axes | None = None, *,
                 series: str | Sequence[str] | None = None,
                 upto: float = math.inf) -> Axes:
    """A line for each kind of the deepest nets, epoch by epoch: the mean over seeds, in
    a band from lowest to highest. A dashed line is what a guess has.

    series: one of NAMES or several of a kind, of which all but the last are thin and
    dashed; by default test_acc, or train_acc with validation_acc. All but accuracies
    have a logarithmic axis where they span more than two orders of magnitude. upto: the
    last epoch whose values are drawn, on axes that hold all of them. Returns the Axes.
    Raises RecordError, ValueError.
    """
    study = as_study(source)
    names = chosen_series(study, series)
    lines = [(arm, arm.history[name], name) for arm in study.deepest for name in names
             if name in arm.history]
    with drawn_on(axes) as axes:
        values = np.concatenate([table.ravel() for _, table, _ in lines])
        positive, name = values[values > 0], NAMES[names[-1]]
        if not name.endswith("accuracy") and positive.size and (
                positive.max() > 100 * positive.min()):
            axes.set_yscale("log")
            name += " (log scale)"
        name_y(axes, name if len(names) == 1 else name.partition(" ")[2])
        labels = draw_guess(axes, study, names[-1])
        epochs = np.unique(np.concatenate([arm.epoch for arm, _, _ in lines]))
        hold(axes, epochs, [*values, *(label[0] for label in labels)], foot=any(
            np.isnan(row).all() for _, table, _ in lines for row in table))
        for arm, table, name in lines:
            word = NAMES[name].split()[0] if len(names) > 1 else ""
            draw_curves(axes, arm, table, upto, label=f"{arm.block} {word}".strip(),
                        **BESIDE if name != names[-1] else {})
            labels += head(arm, table, upto, word)
        axes.xaxis.set_major_locator(WholeTicks(epochs[0], epochs[-1]))
        axes.set_xlabel("epoch")
        label_right(axes, labels)
    return axes


# --------------------------------------------------------------------------------------
# Depth


def final_accuracies(arm: Arm) -> np.ndarray:
    """Test accuracy after the last epoch (S,), NaN for a run that diverged."""
    return np.where(arm.diverged, math.nan, arm.history["test_acc"][:, -1])


def draw_sweep(axes: Axes, arms: list[Arm]) -> None:
    """One kind of nets over depth."""
    end, depths = arms[-1], [arm.depth for arm in arms]
    table = np.full((max(len(arm.diverged) for arm in arms), len(arms)), math.nan)
    for column, arm in zip(table.T, arms, strict=True):
        column[:len(arm.diverged)] = final_accuracies(arm)
        if arm.diverged.any():
            draw_cross(axes, arm.depth, math.nan, arm)
    draw_line(axes, depths, table, end)
    if len(table) > 1:
        axes.plot(depths * len(table), table.ravel(), ".", markersize=4, alpha=0.75,
                  color=arm_colour(end), label=f"{end.block} seeds", clip_on=False)


def plot_depth_sweep(source: Any, axes: Axes | None = None) -> Axes:
    """Test accuracy after the last epoch by depth: a dot for each seed, their mean and
    range; a gap where all seeds diverged, a cross where one did. Returns the Axes.
    Raises RecordError, ValueError."""
    study = as_study(source)
    arms = [arm for found in study.arms.values() for arm in found.values()]
    if not study.dataset or not all("test_acc" in arm.history for arm in arms):
        raise ValueError("a sweep is drawn from a record")
    with drawn_on(axes) as axes:
        labels = draw_guess(axes, study, "test_acc")
        name_y(axes, NAMES["test_acc"])
        hold(axes, list(study.arms),
             [*(height for height, *_ in labels),
              *np.concatenate([*map(final_accuracies, arms)])],
             foot=any(arm.diverged.any() for arm in arms))
        for block in study.blocks:
            kind = [arm for arm in arms if arm.block == block]
            draw_sweep(axes, kind)
            labels += head(kind[-1], kind[-1].history["test_acc"])
        fit_depths(axes, list(study.arms))
        label_right(axes, labels)
    return axes


# --------------------------------------------------------------------------------------
# Gates


def gated_arms(study: Study) -> list[Arm]:
    """The deepest arms whose transform gates were recorded."""
    return [arm for arm in study.deepest if len(arm.T_epoch)]


def chosen_arm(axes: Axes, study: Study, block: str | None) -> Arm | None:
    """The gated arm of this kind, by default the first; where there is none, the axes
    say so."""
    for arm in gated_arms(study):
        if block in (None, arm.block):
            return arm
    axes.set_axis_off()
    axes.text(0.5, 0.5, f"no gate of {block or 'any net'} was recorded",
              ha="center", va="center", transform=axes.transAxes)
    return None


def draw_bars(axes: Axes, T: np.ndarray, arm: Arm, start: float) -> None:
    """Mean over seeds of T (S, L) as bars from where they started, their range as
    whiskers: one artist each, however many blocks there are."""
    mean, low, high = mean_and_range(T)
    blocks, gaps = np.arange(1, len(mean) + 1), np.full(len(mean), math.nan)
    values, edges = mean, np.append(blocks, len(mean) + 1) - 0.5
    if len(mean) <= 100:        # NaN between the bars leaves gaps
        values = np.column_stack([mean, gaps]).ravel()[:-1]
        edges = np.add.outer(blocks, [-0.4, 0.4]).ravel()
    bars = axes.stairs(values, edges, baseline=start, fill=True, linewidth=0,
                       label="T", color=arm_colour(arm), zorder=2)
    bars.sticky_edges.y[:] = 0, 1       # no margin beyond
    if len(T) > 1:
        axes.plot(np.repeat(blocks, 3), np.column_stack([low, high, gaps]).ravel(),
                  color=matplotlib.rcParams["text.color"], alpha=0.6, zorder=3,
                  linewidth=min(1.8, 120 / len(mean)), solid_capstyle="butt",
                  label="T range")


def plot_gates(source: Any, axes: Axes | None = None, *, block: str | None = None,
               upto: float = math.inf) -> Axes:
    """Mean T of each block after the last epoch recorded, as bars, up or down, from
    where the gates started.

    block: the kind of the deepest nets, by default the first with gates; upto: as in
    `plot_history`. Returns the Axes. Raises RecordError, ValueError.
    """
    study = as_study(source)
    with drawn_on(axes) as axes:
        if (arm := chosen_arm(axes, study, block)) is None:
            return axes
        epoch, T, L, start = arm.T_epoch, arm.T, arm.depth, study.T_start
        name_y(axes, "mean T")
        reference(axes, start)
        reach = max(L / 2, 4)       # a bar alone is no wall
        hold(axes, [(L + 1) / 2 - reach, (L + 1) / 2 + reach],
             (T[:, -1] if upto == math.inf else T).ravel(), least=0.1 * start)
        if (epoch <= upto).any():
            draw_bars(axes, T[:, epoch <= upto][:, -1], arm, start)
        axes.xaxis.set_major_locator(WholeTicks(1, L))
        axes.set_xlabel(BLOCK_AXIS)
        name = ("start" if study.gate_bias is None else
                f"$\\sigma({study.gate_bias:.4g})$")
        label_right(axes, [(start, f"↑ above\n{name} = {start:.3g}\n↓ below",
                            visible(TINTS.soft))])
    return axes


def plot_gate_history(source: Any, axes: Axes | None = None, *,
                      block: str | None = None) -> Axes:
    """Mean T of each block over training, as a heat map: a row for each block, the
    first at the bottom, a column for each epoch; on the colour scale a line where the
    gates started. block: as in `plot_gates`. Returns the Axes. Raises RecordError,
    ValueError."""
    study = as_study(source)
    with drawn_on(axes) as axes:
        if (arm := chosen_arm(axes, study, block)) is None:
            return axes
        epoch, start = arm.T_epoch, study.T_start
        mean, _, _ = mean_and_range(arm.T)      # (K, L)
        low, high = min(mean.min(), start), max(mean.max(), start)
        image = axes.imshow(
            mean.T, cmap=GATE_COLOURS, vmin=low, vmax=max(high, low + 1e-3 * start),
            origin="lower", aspect="auto", interpolation_stage="data",
            extent=(epoch[0] - 0.5, epoch[-1] + 0.5, 0.5, arm.depth + 0.5))
        label_y(axes, BLOCK_AXIS)
        scale = axes.figure.colorbar(image, cax=axes.inset_axes((1.028, 0, 0.031, 1)))
        scale.ax.ticklabel_format(style="plain", useOffset=False)
        scale.outline.set_visible(False)
        scale.ax.axhline(start, color=TINTS.paper, linewidth=1.5)
        scale.ax.set_title("mean T", size=10, loc="left")
        axes.xaxis.set_major_locator(WholeTicks(epoch[0], epoch[-1]))
        axes.yaxis.set_major_locator(WholeTicks(1, arm.depth))
        axes.set_xlabel("epoch" + (" (0: before training)" if epoch[0] == 0 else ""))
        lay_out(axes)
    return axes
