"""Pictures of trained nets, and what all pictures share: colours, labels, lines, axes.

    axes = plot_history("run.json")                 test accuracy after each epoch
    axes = plot_history(history, series="train_loss")       of hn.train
    axes = plot_gates("run.json")                   mean T of each block, as bars
    axes = plot_gate_history(layer_T)               the same epoch by epoch, of hn.train
    axes = plot_depth_sweep("run_sweep.json")       test accuracy by depth
    axes.figure.savefig("mine.png")

Each takes what `studies.as_study` takes, draws on the Axes that are given or on a
figure of its own, and returns the Axes. Labels stand right of the lines: an Axes is
narrowed to make room for them in its figure, unless that has a layout engine; so give a
grid of several `layout="constrained"`. Block 1, at the input, is left or at the bottom.

Legend: S seeds, E epochs, K epochs whose gates were recorded, L blocks (the depth).
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from textwrap import wrap
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, get_font
from matplotlib.patches import StepPatch
from matplotlib.textpath import text_to_path
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator
from matplotlib.transforms import ScaledTranslation

from highway_suite.datasets import DATASETS
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
         "train_loss": "training loss"}
WIDTH = 5.4                 # inches, of all pictures: to be read on a phone, too
EDGE = 0.09                 # inches that texts keep from the sides
LEFT, AXES_WIDTH = 0.1, 0.66      # of WIDTH; right of the axes stand labels
LINE = 13                   # points from one label to the next below it
TITLE = {"size": 12, "weight": "bold"}
SMALL = 8.5                 # points, of captions
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


def new_figure(title: str, notes: Sequence[str], panels: Sequence[float] = (2.4,),
               clock: float = 0.0) -> tuple:
    """A figure on a canvas of its own, and an axes for each panel: their heights in
    inches, the upper first. A long title or many notes make the figure higher; clock:
    inches right of the title that stay free.
    """
    title = fold([title], WIDTH - 2 * EDGE - clock, **TITLE)
    caption = fold(notes, WIDTH - 2 * EDGE, size=SMALL)
    top, between = 0.63 + 0.2 * title.count("\n"), 0.9
    height = top + sum(panels) + between * len(panels) + 0.16 * max(
        caption.count("\n") - 1, 0)
    figure = Figure(figsize=(WIDTH, height))
    FigureCanvasAgg(figure)
    figure.text(EDGE / WIDTH, 1 - 0.1 / height, title, va="top", **TITLE)
    figure.text(EDGE / WIDTH, 0.08 / height, caption, size=SMALL, color=TINTS.soft,
                va="bottom", linespacing=1.35, parse_math=False)
    axes = []
    for panel in panels:
        axes.append(figure.add_axes((LEFT, 1 - (top + panel) / height, AXES_WIDTH,
                                     panel / height)))
        top += panel + between
    return figure, *axes


@contextmanager
def drawn_on(axes: Axes | None) -> Iterator[Axes]:
    """The axes to draw on: as given, or one of a new figure in our style."""
    if axes is not None:
        yield axes
        return
    with style():
        figure, axes = new_figure("", ())
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
    file = io.BytesIO()
    figure.savefig(file, format=kind, metadata=metadata)
    return file.getvalue()


# --------------------------------------------------------------------------------------
# Texts: all of them end inside the figure


def title_of(dataset: str) -> str:
    """A data set as pictures name it: by its title, or where Matplotlib's own font
    lacks one of its letters by its name."""
    title = DATASETS[dataset].title
    known = get_font(findfont("DejaVu Sans")).get_charmap()
    name = title if all(ord(letter) in known for letter in title) else dataset
    return name if len(name) <= 36 else f"{name[:35]}…"


def fold(parts: Sequence[str], width: float, **font: Any) -> str:
    """Parts of a text -> lines no wider than so many inches. They break between parts,
    and within one that is too long, evenly."""
    def fits(line):
        points, _, _ = text_to_path.get_text_width_height_descent(
            line, FontProperties(**font), ismath=False)
        return points <= 70 * width     # not 72: on few pixels letters are wider
    words: Any = {"break_on_hyphens": False}
    lines = [""]
    for part in parts:
        joined = f"{lines[-1]} · {part}" if lines[-1] else part
        if fits(joined):
            lines[-1] = joined
            continue
        letters = len(part)
        while not all(map(fits, broken := wrap(part, letters, **words))):
            letters -= 1
        while len(even := wrap(part, letters, **words)) == len(broken):
            broken, letters = even, letters - 1
        lines += broken
    return "\n".join(line for line in lines if line)


def label_y(axes: Axes, text: str) -> None:
    """The name of the y axis, level and above it, where it reads without turning."""
    axes.set_ylabel(text, rotation=0, ha="left", va="bottom")
    axes.yaxis.set_label_coords(0, 1.025, axes.transAxes + ScaledTranslation(
        EDGE - LEFT * WIDTH, 0, axes.figure.dpi_scale_trans))


def label_right(axes: Axes, labels: list[tuple]) -> None:
    """Write (height in data, text, colour) right of the axes, clear of each other.

    What would overlap moves up, of equal heights the first highest. NaN and what lies
    off the axes stand at its ends. Long lines are broken; more lines than it has room
    for are smaller.
    """
    if not labels:
        return
    labels = [(height, "\n".join(part for line in text.split("\n")
                                 for part in wrap(line, 28)), colour)
              for height, text, colour in labels]
    if engine := axes.figure.get_layout_engine():
        engine.execute(axes.figure.canvas.figure)   # the axes has its height
    low, high = axes.get_ylim()
    at = axes.transData.transform([
        (1, min(max(height, low), high) if height == height else low)
        for height, _, _ in labels])[:, 1]
    lines = [text.count("\n") + 1 for _, text, _ in labels]
    pixels = axes.figure.dpi / 72
    line = min(LINE * pixels, axes.bbox.height / sum(lines))
    order = sorted(range(len(labels)), key=lambda i: (at[i], -i))
    foot = axes.bbox.y0
    for i in order:
        at[i] = max(at[i], foot + line * lines[i] / 2)
        foot = at[i] + line * lines[i] / 2
    top = axes.bbox.y1 + line / 2
    for i in reversed(order):
        at[i] = min(at[i], top - line * lines[i] / 2)
        top = at[i] - line * lines[i] / 2
    make_room(axes, [axes.annotate(
        text, (1, (height - axes.bbox.y0) / axes.bbox.height), (7, 0), color=colour,
        xycoords="axes fraction", textcoords="offset points", va="center",
        size=matplotlib.rcParams["font.size"] * line / (LINE * pixels))
        for height, (_, text, colour) in zip(at, labels, strict=True)])


def make_room(axes: Axes, texts: Sequence) -> None:
    """Narrow the axes until its ticks and these texts beside it end inside the figure.
    Where a layout engine rules the figure, it does that."""
    if axes.figure.get_layout_engine() is not None:
        return
    boxes = [text.get_window_extent() for text in (*texts, *axes.get_yticklabels())]
    edge, whole = EDGE * axes.figure.dpi, axes.figure.bbox
    left = max(whole.x0 + edge - min(box.x0 for box in boxes), 0) / whole.width
    right = max(max(box.x1 for box in boxes) - whole.x1 + edge, 0) / whole.width
    if left or right:
        x, y, wide, high = axes.get_position().bounds
        axes.set_position((x + left, y, wide - left - right, high))


# --------------------------------------------------------------------------------------
# Axes: all values lie on them


def fit_y(axes: Axes, values: np.ndarray, least: float = 0.1, foot: bool = False
          ) -> None:
    """Limits around all finite values, and the lines that are there before, on the
    scale of the axis.

    least: the span they have at least, lest noise fill the axes; foot: whether to leave
    room at the foot for crosses. On a logarithmic axis below 1e-12 is no room.
    """
    there = [line.get_ydata() for one in axes.get_shared_y_axes().get_siblings(axes)
             for line in one.get_lines()]
    values = np.concatenate([np.ravel(found).astype(float)
                             for found in (values, *there)])
    values = values[np.isfinite(values)] if np.isfinite(values).any() else np.zeros(1)
    log = axes.get_yscale() == "log"
    if log:
        values = np.log10(np.maximum(values, 1e-12))
    low, high = values.min(), values.max()
    middle = (low + high) / 2
    span = max(high - low, least, 1e-6 * abs(middle))
    low, high = middle - (0.7 if foot else 0.56) * span, middle + 0.56 * span
    axes.set_ylim((10**low, 10**high) if log else (low, high))
    if not log:
        axes.ticklabel_format(axis="y", useOffset=False, scilimits=(-3, 6),
                              useMathText=True)
        axes.yaxis.get_offset_text().set_x(0.25)    # clear of the axis' name


def whole_ticks(axis: Axis, first: int, last: int) -> None:
    """Ticks at whole numbers from first to last: round ones, at most a dozen, fewer
    where their labels would touch."""
    box = axis.axes.get_window_extent()
    points = 72 / axis.axes.figure.dpi * (
        box.width / (7 * len(str(last)) + 9) if axis.axis_name == "x" else
        box.height / 14)
    most = int(np.clip(points, 2, 13))
    ticks = [tick for tick in MaxNLocator(most, integer=True, steps=[1, 2, 5, 10])
             .tick_values(first, last) if first <= tick <= last] or [first]
    if ticks[0] >= first + 3:
        ticks.insert(0, first)
    axis.set_major_locator(FixedLocator(ticks))


def fit_epochs(axes: Axes, arms: list[Arm]) -> None:
    """The x axis of curves over the epochs of all arms, ticks at whole epochs only."""
    epochs = np.unique(np.concatenate([arm.epoch for arm in arms]))
    margin = 0.02 * (epochs[-1] - epochs[0]) or 0.5
    axes.set_xlim(epochs[0] - margin, epochs[-1] + margin)
    whole_ticks(axes.xaxis, epochs[0], epochs[-1])
    axes.set_xlabel("epoch")


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


def reference(axes: Axes, height: float) -> None:
    """A dashed line across the axes: chance, ln C, where the gates started."""
    axes.axhline(height, color=TINTS.soft, linewidth=1.2, linestyle=(0, (4, 3)),
                 zorder=1.5)


# --------------------------------------------------------------------------------------
# Lines, bands and marks


def mean_and_range(values: np.ndarray) -> Iterator[np.ndarray]:
    """(S, X) -> mean, lowest and highest (X,) of the finite ones; NaN where none is."""
    values = np.ma.masked_invalid(values)
    return (getattr(values, name)(axis=0).filled(math.nan)
            for name in ("mean", "min", "max"))


def arm_colour(arm: Arm) -> str:
    """The colour of a kind of nets."""
    return COLOURS.get(arm.block, TINTS.own[arm.place % len(TINTS.own)])


def draw_line(axes: Axes, x: Any, values: np.ndarray, arm: Arm, marked: bool) -> None:
    """Mean of values (S, X) as a line in the arm's colour, their range as a band."""
    colour = arm_colour(arm)
    marker = MARKERS.get(arm.block, OWN_MARKERS[arm.place % len(OWN_MARKERS)])
    mean, low, high = mean_and_range(values)
    axes.plot(x, mean, color=colour, label=arm.block, clip_on=False, zorder=3,
              marker=marker if marked else None)
    if len(values) > 1:
        axes.fill_between(x, low, high, color=colour, alpha=0.22, linewidth=0,
                          label=f"{arm.block} range")


def draw_cross(axes: Axes, x: float, y: float, arm: Arm) -> None:
    """The mark of a run that diverged; y NaN stands for the foot of the axes."""
    foot = math.isnan(y)
    height = 0.03 + 0.05 * arm.place        # apart where several diverge
    axes.plot([x], [height if foot else y], linestyle="none", marker="x", markersize=9,
              markeredgewidth=2.5, color=arm_colour(arm), clip_on=False,
              label=f"{arm.block} diverged", zorder=4,
              transform=axes.get_xaxis_transform() if foot else axes.transData)


def draw_curves(axes: Axes, arm: Arm, values: np.ndarray, shown: int) -> None:
    """The first `shown` epochs of one arm's values (S, E), on an axes that has its
    limits. A net that diverged is a line of its own, thin beside others, that ends in a
    cross."""
    if axes.get_yscale() == "log":      # what is too small for it lies at its foot
        values = np.maximum(values, axes.get_ylim()[0])
    x, good = arm.epoch[:shown], values[~arm.diverged]
    if len(good):
        draw_line(axes, x, good[:, :shown], arm, marked=len(arm.epoch) <= 30)
    for row in values[arm.diverged]:
        alive = np.flatnonzero(np.isfinite(row))
        last = alive[-1] if len(alive) else -1
        axes.plot(x, row[:shown], color=arm_colour(arm), zorder=2, clip_on=False,
                  linewidth=1.2 if len(good) else 2.2, label=f"{arm.block} alone")
        if shown > last + 1 or shown == len(row):
            draw_cross(axes, arm.epoch[max(last, 0)], math.nan if last < 0
                       else row[last], arm)


def head(arm: Arm, values: np.ndarray) -> tuple[float, str, str]:
    """Where the mean of an arm's values (S, E) ends -> (height, label, colour) for
    `label_right`."""
    last = (values if arm.diverged.all() else values[~arm.diverged])[:, -1]
    last = last[np.isfinite(last)]
    height, text = math.nan, "diverged"
    if len(last):
        height = float(last.mean())
        text = f"{height:{'.4f' if 1e-3 <= height < 10 else '.3g'}}"
    name = arm.block.replace("$", r"\$")        # it is no formula
    return height, f"{name} {text}", arm_colour(arm)


def draw_guess(axes: Axes, study: Study, series: str) -> list[tuple]:
    """A line at what a guess has: the accuracy of the best constant answer, the loss
    ln C of a uniform one; none, if it is not known. Returns its label, for
    `label_right`."""
    if series == "train_loss":
        height = math.log(study.classes or math.nan)
        text = f"ln {study.classes} = {height:.4f}"
    else:
        height = study.chance
        exact = height == 1 / (study.classes or math.nan)
        text = f"chance {f'1/{study.classes}' if exact else f'{height:.4f}'}"
    if math.isnan(height):
        return []
    reference(axes, height)
    return [(height, text, TINTS.soft)]


# --------------------------------------------------------------------------------------
# Training


def plot_history(source: Any, axes: Axes | None = None, *, series: str = "test_acc",
                 upto: int | None = None) -> Axes:
    """A line for each net of the deepest, epoch by epoch: the mean over seeds in a band
    from lowest to highest, and dashed what a guess has.

    series: test_acc, train_acc, or train_loss, whose axis is logarithmic where it spans
    more than two orders of magnitude; upto: the last epoch whose values are drawn, on
    axes that hold all of them. Returns the Axes. Raises RecordError, ValueError.
    """
    study = as_study(source)
    arms = [arm for arm in study.deepest if series in arm.history]
    if not arms:
        there = sorted({name for arm in study.deepest for name in arm.history})
        raise ValueError(f"no net has a history of {series!r}; there are {there}")
    tables = [arm.history[series] for arm in arms]
    with drawn_on(axes) as axes:
        labels = draw_guess(axes, study, series)
        values = np.concatenate([*map(np.ravel, tables), [row[0] for row in labels]])
        positive = values[values > 0]
        log = series == "train_loss" and bool(
            positive.max(initial=0) > 100 * positive.min(initial=math.inf))
        axes.set_yscale("log" if log else "linear")
        label_y(axes, NAMES[series] + " (log scale)" * log)
        axes.grid(True, axis="y")
        fit_y(axes, values, foot=any(np.isnan(row).all() for table in tables
                                     for row in table))
        for arm, table in zip(arms, tables, strict=True):
            shown = len(arm.epoch) if upto is None else int(
                np.searchsorted(arm.epoch, upto, side="right"))
            if shown:
                draw_curves(axes, arm, table, shown)
                labels.append(head(arm, table[:, :shown]))
        label_right(axes, labels)
        fit_epochs(axes, arms)
    return axes


# --------------------------------------------------------------------------------------
# Depth


def final_accuracies(arm: Arm) -> np.ndarray:
    """Test accuracy after the last epoch (S,), NaN for a run that diverged."""
    return np.where(arm.diverged, math.nan, arm.history["test_acc"][:, -1])


def draw_sweep(axes: Axes, study: Study, block: str) -> tuple:
    """One kind of nets over depth -> its label for `label_right`."""
    arms = [found[block] for found in study.arms.values() if block in found]
    table = np.full((max(len(arm.diverged) for arm in arms), len(arms)), math.nan)
    for column, arm in zip(table.T, arms, strict=True):
        column[:len(arm.diverged)] = final_accuracies(arm)
    depths, end = [arm.depth for arm in arms], arms[-1]
    draw_line(axes, depths, table, end, marked=len(depths) <= 30)
    if len(table) > 1:
        axes.plot(depths * len(table), table.ravel(), ".", markersize=4, alpha=0.75,
                  color=arm_colour(end), label=f"{block} seeds", clip_on=False)
    for arm in arms:
        if arm.diverged.any():
            draw_cross(axes, arm.depth, math.nan, arm)
    return head(end, final_accuracies(end)[:, None])


def plot_depth_sweep(source: Any, axes: Axes | None = None) -> Axes:
    """Test accuracy after the last epoch by depth: a dot for each seed, their mean and
    range; a gap where all seeds diverged, a cross where one did. Returns the Axes.
    Raises RecordError, ValueError."""
    study = as_study(source)
    arms = [arm for found in study.arms.values() for arm in found.values()]
    if not all("test_acc" in arm.history for arm in arms):
        raise ValueError("a sweep is drawn from a record")
    with drawn_on(axes) as axes:
        labels = draw_guess(axes, study, "test_acc")
        fit_y(axes, np.concatenate([*map(final_accuracies, arms),
                                    [row[0] for row in labels]]),
              foot=any(arm.diverged.any() for arm in arms))
        label_y(axes, NAMES["test_acc"])
        axes.grid(True, axis="y")
        labels += [draw_sweep(axes, study, block) for block in study.blocks]
        label_right(axes, labels)
        fit_depths(axes, list(study.arms))
    return axes


# --------------------------------------------------------------------------------------
# Gates


def gated_arms(study: Study) -> list[Arm]:
    """The deepest arms whose transform gates were recorded."""
    return [arm for arm in study.deepest if np.isfinite(arm.T).any()]


def chosen_gates(arm: Arm) -> tuple[np.ndarray, np.ndarray]:
    """(epochs (K,), T (S', K, L)) of the seeds that did not diverge, or of all, if all
    did; only the epochs that one of them has."""
    T = arm.T if arm.diverged.all() else arm.T[~arm.diverged]
    there = np.isfinite(T).any(axis=(0, 2))
    return arm.T_epoch[there], T[:, there]


def chosen_arm(axes: Axes, study: Study, block: str | None) -> Arm | None:
    """The gated arm of this kind, by default the first; where there is none, the axes
    say so."""
    for arm in gated_arms(study):
        if block in (None, arm.block):
            return arm
    axes.set_axis_off()
    axes.text(0.5, 0.5, "no gate was recorded", ha="center", va="center",
              transform=axes.transAxes)
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
    axes.add_artist(StepPatch(values, edges, baseline=start, fill=True, linewidth=0,
                              color=arm_colour(arm), label="T", zorder=2))
    if len(T) > 1:
        axes.plot(np.repeat(blocks, 3), np.column_stack([low, high, gaps]).ravel(),
                  color=TINTS.ink, linewidth=min(1.8, 120 / len(mean)), alpha=0.6,
                  solid_capstyle="butt", label="T range", zorder=3)


def plot_gates(source: Any, axes: Axes | None = None, *, block: str | None = None,
               upto: int | None = None) -> Axes:
    """Mean T of each block after the last epoch recorded, as bars, up or down, from
    where the gates started.

    block: the kind of the deepest nets, by default the first with gates; upto: as in
    `plot_history`. Returns the Axes. Raises RecordError, ValueError.
    """
    study = as_study(source)
    with drawn_on(axes) as axes:
        if (arm := chosen_arm(axes, study, block)) is None:
            return axes
        (epoch, T), start = chosen_gates(arm), study.T_start
        L = T.shape[-1]
        reach = max(L / 2 + 0.1, 4)     # a bar alone is no wall
        axes.set_xlim((L + 1) / 2 - reach, (L + 1) / 2 + reach)
        shown = T[:, -1] if upto is None else T
        fit_y(axes, np.append(shown, start), least=0.1 * start or 0.1)
        low, high = axes.get_ylim()
        axes.set_ylim(max(low, 0), min(high, 1))
        label_y(axes, "mean T")
        axes.grid(True, axis="y")
        reference(axes, start)
        name = ("start" if study.gate_bias is None else
                f"$\\sigma({study.gate_bias:.4g})$")
        label_right(axes, [(start, f"↑ above\n{name} = {start:.3g}\n↓ below",
                            TINTS.soft)])
        whole_ticks(axes.xaxis, 1, L)
        axes.set_xlabel(BLOCK_AXIS)
        k = len(epoch) if upto is None else np.searchsorted(epoch, upto, side="right")
        over = upto is not None and arm.diverged.all() and upto > epoch[-1]
        if k and not over:      # no gates where no net is left
            draw_bars(axes, T[:, k - 1], arm, start)
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
        (epoch, T), start = chosen_gates(arm), study.T_start
        mean, _, _ = mean_and_range(T)      # (K, L)
        x, last = np.append(epoch, epoch[-1] + 1) - 0.5, max([*epoch, *arm.epoch])
        image = axes.pcolorfast(x, np.arange(arm.depth + 1) + 0.5, mean.T,
                                cmap=GATE_COLOURS)
        if hasattr(image, "set_interpolation"):     # even columns, rows may be many
            image.set_interpolation("antialiased")
        low, high = min(mean.min(), start), max(mean.max(), start)
        image.set_clim(low, max(high, low + (1e-4 * low or 1e-3)))
        label_y(axes, BLOCK_AXIS)
        digits = 3 if high > 1.1 * low else 6
        scale = axes.figure.colorbar(image, format=f"{{x:.{digits}g}}",
                                     cax=axes.inset_axes((1.028, 0, 0.031, 1)))
        scale.outline.set_visible(False)
        scale.ax.axhline(start, color=TINTS.paper, linewidth=1.5)
        scale.ax.set_title("mean T", size=10, loc="left")
        axes.set_xlim(x[0], max(x[-1], last + 0.5))
        if epoch[-1] < last:
            axes.text((x[-1] + axes.get_xlim()[1]) / 2, 0.5, rotation=90, ha="center",
                      s="× diverged" if arm.diverged.all() else "not recorded",
                      va="center", color=TINTS.soft,
                      transform=axes.get_xaxis_transform())
        whole_ticks(axes.xaxis, epoch[0], last)
        whole_ticks(axes.yaxis, 1, arm.depth)
        make_room(axes, scale.ax.get_yticklabels())
        axes.set_xlabel("epoch" + " (0: before training)" * bool(epoch[0] == 0))
    return axes
