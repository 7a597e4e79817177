"""What all pictures share: theme, labels, captions, lines and marks."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from textwrap import wrap
from typing import Any, NamedTuple

import matplotlib
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, MaxNLocator

import highway_networks as hn
from highway_suite.schema import INITS, JUST_GUESSING
from highway_suite.studies import Arm, Study


class Theme(NamedTuple):
    """Colours. Those of the blocks are Okabe and Ito's, safe for the colour-blind."""

    paper: str
    ink: str
    soft: str       # captions and reference lines
    grid: str
    blocks: dict    # by kind
    own: tuple      # of kinds that are not in the table

    @property
    def highway(self) -> str:
        return self.blocks["highway"]

    @property
    def plain(self) -> str:
        return self.blocks["plain"]

    def colour(self, arm: Arm) -> str:
        """Of an arm's line and label."""
        return self.blocks.get(arm.block, self.own[arm.place % len(self.own)])


COLOURS = {     # of the blocks, on every figure
    "plain": "#D55E00", "residual": "#009E73", "t_only": "#E69F00",
    "c_only": "#CC79A7", "highway": "#0072B2", "full": "#56B4E9"}
LIGHT = Theme("#FFFFFF", "#1F2328", "#59636E", "#DDE2E7", COLOURS,
              ("#7B3FA0", "#7A6A00", "#A0003C", "#444444"))
DARK = Theme("#0D1117", "#F0F6FC", "#9DA5AE", "#2D333B",
             COLOURS | {"highway": "#56B4E9", "full": "#0072B2"},
             ("#B48AE0", "#C9BC4A", "#FF7A9C", "#BBBBBB"))
GATE_COLOURS = "viridis"    # even steps of brightness: it survives grey print
MARKERS = {"highway": "o", "plain": "s", "residual": "^", "t_only": "D", "c_only": "v",
           "full": "P"}
OWN_MARKERS = "ph*d"
GATED_LAYERS = "layer after the input's projection"
LEARNS = f"learns: over {100 * JUST_GUESSING:g} points better than chance"
LINE = 13                   # points from one label to the next below it
TITLE = {"size": 12, "weight": "bold"}
FORMATS = "png", "svg", "pdf"
DPI = 200                   # of a picture 7.5 inches wide


@contextmanager
def style(theme: Theme) -> Iterator[None]:
    """Matplotlib's own defaults and ours on top, whatever the user's settings are."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update({
            "font.size": 10, "axes.labelsize": 10.5, "svg.hashsalt": "highway",
            "savefig.facecolor": theme.paper, "figure.facecolor": theme.paper,
            "axes.facecolor": theme.paper, "text.color": theme.ink,
            "axes.labelcolor": theme.ink, "axes.edgecolor": theme.soft,
            "xtick.color": theme.soft, "ytick.color": theme.soft,
            "xtick.labelcolor": theme.ink, "ytick.labelcolor": theme.ink,
            "axes.spines.top": False, "axes.spines.right": False,
            "axes.axisbelow": True, "grid.color": theme.grid, "grid.linewidth": 0.8,
            "lines.linewidth": 2.2, "lines.markersize": 5, "figure.dpi": DPI,
        })
        yield


def new_figure(title: str, caption: str, theme: Theme,
               panels: Sequence[float] = (2.77,)) -> tuple:
    """A figure 7.5 inches wide and an axes for each panel: their heights in inches, the
    upper first. Labels have room right of them; a long caption makes the figure higher.
    """
    top, between = 0.63, 0.85
    height = top + sum(panels) + between * len(panels) + 0.16 * max(
        caption.count("\n") - 1, 0)
    figure = Figure(figsize=(7.5, height))
    figure.text(0.012, 1 - 0.1 / height, title, va="top", **TITLE)
    figure.text(0.012, 0.08 / height, caption, size=8, color=theme.soft, va="bottom",
                linespacing=1.35, parse_math=False)
    axes = []
    for panel in panels:
        axes.append(figure.add_axes((0.085, 1 - (top + panel) / height, 0.71,
                                     panel / height)))
        top += panel + between
    return figure, *axes


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


def label_y(axes: Axes, text: str) -> None:
    """The name of the y axis, level and above it, where it reads without turning."""
    axes.set_ylabel(text, rotation=0, ha="left", va="bottom")
    left = (0.012 - axes.get_position().x0) / axes.get_position().width
    axes.yaxis.set_label_coords(left, 1.025)


def whole_ticks(axis: Axis, first: int, last: int) -> None:
    """Ticks at whole numbers from first to last: at most about a dozen, round ones."""
    ticks = [tick for tick in MaxNLocator(13, integer=True, steps=[1, 2, 5, 10])
             .tick_values(first, last) if first <= tick <= last] or [first]
    if ticks[0] >= first + 3:
        ticks.insert(0, first)
    axis.set_major_locator(FixedLocator(ticks))


def plural(values: list, noun: str) -> str:
    """Several values with their noun; a long row of neighbours is cut short."""
    if len(values) == 1:
        return f"{noun} {values[0]}"
    shown = values if len(values) <= 10 else [*values[:3], "…", values[-1]]
    return f"{len(values)} {noun}s ({', '.join(map(str, shown))})"


def caption(study: Study, arms: list[Arm], note: str = "",
            several: str = "line: mean over seeds; band: lowest to highest") -> str:
    """What was measured, and on what: data set, images, seeds, weights, parameters.

    note: a part of its own; several: how the picture shows more than one seed.
    """
    parts = [f"{hn.DATASETS[study.dataset].title}: {study.n_train:,} training and "
             f"{study.n_test:,} test images", plural(study.seeds, "seed"),
             f"weights {INITS[study.init]}"]
    if len({arm.depth for arm in arms}) == 1:
        counts = [f"{arm.block} {arm.parameters:,}" for arm in arms if arm.parameters]
        parts += [f"parameters: {', '.join(counts)}"] if counts else []
        if len(study.arms) > 1:
            layers = [depth + 1 for depth in study.arms]
            parts.append(f"the deepest of {plural(layers, 'depth')} recorded")
    if len(study.seeds) > 1:
        parts.append(several)
    parts += [note] if note else []
    lost = [f"{arm.block} {arm.layers}, {arm.diverged.sum()} of {len(arm.diverged)}"
            for arm in arms if arm.diverged.any()]
    if lost:
        left = " and left out of means" if len(study.seeds) > 1 else ""
        parts.append(f"× diverged{left}: {'; '.join(lost)}")
    if study.assumed:
        parts.append("record of the earlier reproduction: MNIST, these weights and "
                     "gate bias −2 assumed")
    lines = [""]
    for part in parts:      # lines break between parts, and within one that is too long
        joined = f"{lines[-1]} · {part}" if lines[-1] else part
        lines[-1:] = [joined] if len(joined) <= 128 else [lines[-1], *wrap(part, 128)]
    return "\n".join(lines)


def fate(arm: Arm, study: Study) -> str:
    """What became of an arm: the mean of its nets that did not diverge decides."""
    acc = arm.test_acc[~arm.diverged, -1]
    return ("diverged" if not len(acc) else "learns" if
            acc.mean() > 1 / study.classes + JUST_GUESSING else "guesses")


def who_learns(study: Study) -> str:
    """What became of the deepest nets, as a title."""
    arms = study.deepest
    fates = [f"{shorten(arm.block)} {fate(arm, study)}" for arm in arms]
    if len(arms) > 3:
        learn = sum(fate(arm, study) == "learns" for arm in arms)
        fates = [f"{learn} of {len(arms)} kinds of nets learn"]
    return f"{arms[0].layers} layers: {', '.join(fates)}"


def push_apart(heights: Any, gap: float) -> np.ndarray:
    """Heights of labels, moved as little as can be to lie `gap` apart, order kept; of
    equal ones the first stands highest.

    Least squares: neighbours that would overlap form a pile around their common mean.
    """
    heights = np.asarray(heights, float)
    order = np.lexsort((-np.arange(len(heights)), heights))
    piles = []      # of wanted heights, each less its place in the row
    for wanted in heights[order] - gap * np.arange(len(heights)):
        piles.append([wanted])
        while len(piles) > 1 and np.mean(piles[-2]) > np.mean(piles[-1]):
            piles[-2:] = [piles[-2] + piles[-1]]
    result = np.empty_like(heights)
    result[order] = np.repeat([np.mean(pile) for pile in piles],
                              [len(pile) for pile in piles])
    result[order] += gap * np.arange(len(heights))
    return result


def label_right(axes: Axes, labels: list[tuple]) -> list[Artist]:
    """Write (height in data, text, colour) right of the axes, clear of each other.

    Heights that are NaN stand at the bottom. Returns the texts drawn.
    """
    low = axes.get_ylim()[0]
    line = LINE * axes.figure.dpi / (72 * axes.bbox.height)
    heights = [low if math.isnan(height) else height for height, _, _ in labels]
    at = axes.transData.transform([(1, height) for height in heights])
    at = axes.transAxes.inverted().transform(at)[:, 1]
    at = np.maximum(at, [line * (text.count("\n") + 1) / 2 for _, text, _ in labels])
    below = np.argsort(np.argsort(-at, kind="stable"), kind="stable")   # 0: the highest
    at = np.minimum(at, 1 + line * (0.5 - below))   # a pile must not reach the title
    return [axes.annotate(text, (1, height), xycoords="axes fraction", xytext=(7, 0),
                          textcoords="offset points", va="center", color=colour)
            for height, (_, text, colour) in zip(push_apart(at, line), labels,
                                                 strict=True)]


def fit_y(axes: Axes, values: Any, least: float = 0.1, foot: bool = False) -> None:
    """Limits around all finite values, on the scale of the axis.

    least: the span they have at least, lest noise fill the axes; foot: whether to leave
    room at the foot for crosses.
    """
    values = np.concatenate([np.ravel(value) for value in values])
    values = values[np.isfinite(values)]
    log = axes.get_yscale() == "log"
    values = np.log10(values[values > 0]) if log else values
    low, high = values.min(), values.max()
    span = max(high - low, least)
    middle = (low + high) / 2
    low, high = middle - (0.7 if foot else 0.56) * span, middle + 0.56 * span
    axes.set_ylim((10**low, 10**high) if log else (low, high))
    if not log:
        axes.ticklabel_format(axis="y", useOffset=False, scilimits=(-3, 6),
                              useMathText=True)
        axes.yaxis.get_offset_text().set_x(0.02)    # clear of the axis' name


def fit_epochs(axes: Axes, arms: list[Arm]) -> None:
    """The x axis of curves over the epochs of all arms, ticks at whole epochs only."""
    epochs = np.unique(np.concatenate([arm.epoch for arm in arms]))
    margin = 0.02 * (epochs[-1] - epochs[0]) or 0.5
    axes.set_xlim(epochs[0] - margin, epochs[-1] + margin)
    whole_ticks(axes.xaxis, epochs[0], epochs[-1])
    axes.set_xlabel("epoch")


def reference(axes: Axes, height: float, theme: Theme) -> Artist:
    """A dashed line across the axes: chance, ln C, where the gates started."""
    return axes.axhline(height, color=theme.soft, linewidth=1.2, linestyle=(0, (4, 3)),
                        zorder=1.5)


# --------------------------------------------------------------------------------------
# Lines, bands and marks


def mean_and_range(values: np.ndarray) -> Iterator[np.ndarray]:
    """(S, X) -> mean, lowest and highest (X,) of the finite ones; NaN where none is."""
    values = np.ma.masked_invalid(values)
    return (getattr(values, name)(axis=0).filled(math.nan)
            for name in ("mean", "min", "max"))


def marker_of(arm: Arm) -> str:
    """The mark of an arm's points, where colour is not enough."""
    return MARKERS.get(arm.block, OWN_MARKERS[arm.place % len(OWN_MARKERS)])


def draw_line(axes: Axes, x: Any, values: np.ndarray, arm: Arm, theme: Theme
              ) -> list[Artist]:
    """Mean of values (S, X) as a line in the arm's colour, their range as a band.
    Returns the artists."""
    mean, low, high = mean_and_range(values)
    line, = axes.plot(x, mean, color=theme.colour(arm), label=arm.block, clip_on=False,
                      zorder=3, marker=marker_of(arm) if len(x) <= 30 else None)
    if len(values) < 2:
        return [line]
    band = axes.fill_between(x, low, high, color=theme.colour(arm), alpha=0.22,
                             linewidth=0, label=f"{arm.block} range")
    return [line, band]


def draw_cross(axes: Axes, x: float, y: float, arm: Arm, theme: Theme) -> list[Artist]:
    """The mark of a run that diverged; y NaN stands for the foot of the axes."""
    foot = math.isnan(y)
    height = 0.03 + 0.05 * arm.place        # apart where several diverge
    return axes.plot([x], [height if foot else y], linestyle="none", marker="x",
                     markersize=9, markeredgewidth=2.5, color=theme.colour(arm),
                     clip_on=False, label=f"{arm.block} diverged", zorder=4,
                     transform=axes.get_xaxis_transform() if foot else axes.transData)


def draw_curves(axes: Axes, arm: Arm, values: np.ndarray, theme: Theme,
                shown: int | None = None) -> list[Artist]:
    """The first `shown` epochs of one arm's values (S, E). Returns the artists.

    A net that diverged is a line of its own, thin beside others, that ends in a cross.
    """
    shown = len(arm.epoch) if shown is None else shown
    x, good = arm.epoch[:shown], values[~arm.diverged]
    artists = draw_line(axes, x, good[:, :shown], arm, theme) if len(good) else []
    for row in values[arm.diverged]:
        alive = np.flatnonzero(np.isfinite(row))
        last = alive[-1] if len(alive) else -1
        artists += axes.plot(x, row[:shown], color=theme.colour(arm), zorder=2,
                             linewidth=1.2 if len(good) else 2.2, clip_on=False,
                             label=f"{arm.block} alone")
        if shown > last + 1 or shown == len(row):
            artists += draw_cross(axes, arm.epoch[max(last, 0)], math.nan if last < 0
                                  else row[last], arm, theme)
    return artists


def head(arm: Arm, values: np.ndarray, theme: Theme, shown: int | None = None
         ) -> tuple[float, str, str]:
    """Where an arm's curve ends -> (height, label, colour) for `label_right`.

    Of nets that all diverged it is the one that lived longest.
    """
    good = values[~arm.diverged]
    row = (good.mean(axis=0) if len(good) else
           max(values, key=lambda row: np.isfinite(row).sum()))[:shown]
    alive = row[np.isfinite(row)]
    height = alive[-1] if len(alive) else math.nan
    text = "diverged"
    if len(alive) == len(row):
        text = f"{height:{'.4f' if 1e-3 <= height < 10 else '.3g'}}"
    return height, f"{shorten(arm.block)} {text}", theme.colour(arm)


def shorten(name: str) -> str:
    """The name of a block as far as a label right of the axes has room for it."""
    return name if len(name) <= 10 else name[:9] + "…"


def valueless(values: np.ndarray) -> bool:
    """Whether a seed of (S, E) has no value at all: its cross stands at the foot."""
    return bool(np.isnan(values).all(axis=1).any())


def accuracy_axes(axes: Axes, values: list, study: Study, theme: Theme, foot: bool
                  ) -> tuple[float, str, str]:
    """An axis of test accuracy that holds all values, with chance marked; `foot` as in
    `fit_y`.

    Returns the label of chance for `label_right`.
    """
    chance = 1 / study.classes
    fit_y(axes, [*values, [chance]], foot=foot)
    reference(axes, chance, theme)
    label_y(axes, "test accuracy")
    axes.grid(axis="y")
    return chance, f"chance 1/{study.classes}", theme.soft


# --------------------------------------------------------------------------------------
# Gates


def gated_arms(study: Study) -> list[Arm]:
    """The deepest arms whose transform gates were recorded."""
    return [arm for arm in study.deepest if len(arm.T_epoch)]


def chosen_gates(arm: Arm) -> tuple[np.ndarray, np.ndarray]:
    """(epochs (K,), T (S', K, L)) of the seeds that did not diverge, or of all, if all
    did; only the epochs that one of them has."""
    T = arm.T if arm.diverged.all() else arm.T[~arm.diverged]
    there = np.isfinite(T).any(axis=(0, 2))
    return arm.T_epoch[there], T[:, there]


def no_gates(axes: Axes) -> None:
    """What to draw where no net has gates, or diverged before they were measured."""
    axes.set_axis_off()
    axes.text(0.5, 0.5, "no gate was recorded", ha="center", va="center",
              transform=axes.transAxes)


def start_label(study: Study) -> tuple[str, str]:
    """sigma(b_T), as both gate pictures write it, and its value."""
    return f"$\\sigma({study.gate_bias:g})$", f"{study.T_start:.3g}"


def bar_outline(T: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """T (L,) -> the values and edges of `stairs` that draw it as bars, one a layer.

    NaN between the values leaves the gaps between the bars: one artist, not L. More
    than 100 bars have no gaps.
    """
    half = 0.4 if len(T) <= 100 else 0.5
    values = np.full(2 * len(T) - 1, math.nan)
    values[::2] = T
    layers = np.arange(1, len(T) + 1)
    return values, np.ravel(np.column_stack([layers - half, layers + half]))


def fit_gates(axes: Axes, T: np.ndarray, study: Study, theme: Theme) -> None:
    """Axes for bars of mean T that start at sigma(b_T), marked; T: all to come."""
    L = T.shape[-1]
    reach = max(L / 2 + 0.1, 4)     # a bar alone is no wall
    axes.set_xlim((L + 1) / 2 - reach, (L + 1) / 2 + reach)
    fit_y(axes, [T, [study.T_start]], least=0.1 * study.T_start)
    low, high = axes.get_ylim()
    axes.set_ylim(max(low, 0), min(high, 1))
    whole_ticks(axes.xaxis, 1, L)
    axes.set_xlabel(GATED_LAYERS)
    label_y(axes, "mean T")
    axes.grid(axis="y")
    reference(axes, study.T_start, theme)
    label_right(axes, [(study.T_start, "↑ above\n{} = {}\n↓ below".format(
        *start_label(study)), theme.soft)])


def draw_bars(axes: Axes, T: np.ndarray, arm: Arm, study: Study, theme: Theme
              ) -> list[Artist]:
    """Mean over seeds of T (S, L) as bars from sigma(b_T), their range as whiskers.
    Returns the artists."""
    mean, low, high = mean_and_range(T)
    artists: list[Artist] = [axes.stairs(
        *bar_outline(mean), baseline=study.T_start, fill=True, color=theme.colour(arm),
        label="T", zorder=2, linewidth=0)]
    if len(T) > 1:
        width = min(1.8, 120 / len(mean))
        artists.append(axes.vlines(
            np.arange(1, len(mean) + 1), low, high, theme.ink, linewidth=width,
            alpha=0.6, label="T range", zorder=3))
    return artists
