"""What all pictures share: theme, labels, captions, lines and marks."""

from __future__ import annotations

import math
from contextlib import contextmanager
from textwrap import wrap
from typing import NamedTuple

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, MaxNLocator

import highway_networks as hn
from highway_suite.studies import INITS


class Theme(NamedTuple):
    """Colours. Highway and plain are Okabe and Ito's, safe for the colour-blind."""

    paper: str
    ink: str
    soft: str       # captions and reference lines
    grid: str
    highway: str
    plain: str


LIGHT = Theme("#FFFFFF", "#1F2328", "#59636E", "#DDE2E7", "#0072B2", "#D55E00")
DARK = Theme("#0D1117", "#F0F6FC", "#9DA5AE", "#2D333B", "#56B4E9", "#D55E00")
GATE_COLOURS = "viridis"    # even steps of brightness: it survives grey print
MARKERS = {"highway": "o", "plain": "s"}
LINE = 13                   # points from one label to the next below it
DPI = 200                   # of a picture 7.5 inches wide


@contextmanager
def style(theme):
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


def new_figure(title, caption, theme, panels=(2.77,)):
    """A figure 7.5 inches wide and an axes for each panel: their heights in inches, the
    upper first. Labels have room right of them; a long caption makes the figure higher.
    """
    top, between = 0.63, 0.85
    height = top + sum(panels) + between * len(panels) + 0.16 * max(
        caption.count("\n") - 1, 0)
    figure = Figure(figsize=(7.5, height))
    figure.text(0.012, 1 - 0.1 / height, title, size=12, weight="bold", va="top")
    figure.text(0.012, 0.08 / height, caption, size=8, color=theme.soft, va="bottom",
                linespacing=1.35, parse_math=False)
    axes = []
    for panel in panels:
        axes.append(figure.add_axes((0.085, 1 - (top + panel) / height, 0.71,
                                     panel / height)))
        top += panel + between
    return figure, *axes


def label_y(axes, text):
    """The name of the y axis, level and above it, where it reads without turning."""
    axes.set_ylabel(text, rotation=0, ha="left", va="bottom")
    left = (0.012 - axes.get_position().x0) / axes.get_position().width
    axes.yaxis.set_label_coords(left, 1.025)


def whole_ticks(axis, first, last):
    """Ticks at whole numbers from first to last: at most about a dozen, round ones."""
    ticks = [tick for tick in MaxNLocator(13, integer=True, steps=[1, 2, 5, 10])
             .tick_values(first, last) if first <= tick <= last] or [first]
    if ticks[0] >= first + 3:
        ticks.insert(0, first)
    axis.set_major_locator(FixedLocator(ticks))


def blocks(depth):
    """1 -> "1 block"; 30 -> "30 blocks"."""
    return f"{depth} block" + "s" * (depth != 1)


def plural(values, noun):
    """Several values with their noun; a long row of neighbours is cut short."""
    if len(values) == 1:
        return f"{noun} {values[0]}"
    shown = values if len(values) <= 10 else [*values[:3], "…", values[-1]]
    return f"{len(values)} {noun}s ({', '.join(map(str, shown))})"


def caption(study, arms, note="",
            several="line: mean over seeds; band: lowest to highest"):
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
            parts.append(f"the deepest of {plural(list(study.arms), 'depth')} recorded")
    if len(study.seeds) > 1:
        parts.append(several)
    parts += [note] if note else []
    lost = [f"{arm.block} {arm.depth}, {arm.diverged.sum()} of {len(arm.diverged)}"
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


def spread(heights, gap):
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


def label_right(axes, labels):
    """Write (height in data, text, colour) right of the axes, clear of each other.

    Heights that are NaN stand at the bottom. Returns the texts drawn.
    """
    figure, low = axes.figure, axes.get_ylim()[0]
    line = LINE / (72 * figure.get_figheight() * axes.get_position().height)
    heights = [low if math.isnan(height) else height for height, _, _ in labels]
    at = axes.transData.transform([(1, height) for height in heights])
    at = axes.transAxes.inverted().transform(at)[:, 1]
    at = np.maximum(at, [line * (text.count("\n") + 1) / 2 for _, text, _ in labels])
    return [axes.annotate(text, (1, height), xycoords="axes fraction", xytext=(7, 0),
                          textcoords="offset points", va="center", color=colour)
            for height, (_, text, colour) in zip(spread(at, line), labels)]


def fit_y(axes, values, least=0.1, foot=False):
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


def fit_epochs(axes, epochs):
    """The x axis of a curve over epochs (E,), ticks at whole epochs only."""
    margin = 0.02 * (epochs[-1] - epochs[0]) or 0.5
    axes.set_xlim(epochs[0] - margin, epochs[-1] + margin)
    whole_ticks(axes.xaxis, epochs[0], epochs[-1])
    axes.set_xlabel("epoch")


def reference(axes, height, theme):
    """A dashed line across the axes: chance, ln C, where the gates started."""
    return axes.axhline(height, color=theme.soft, linewidth=1.2, linestyle=(0, (4, 3)),
                        zorder=1.5)


# --------------------------------------------------------------------------------------
# Lines, bands and marks


def summary(values):
    """(S, X) -> mean, lowest and highest (X,) of the finite ones; NaN where none is."""
    values = np.ma.masked_invalid(values)
    return (getattr(values, name)(axis=0).filled(math.nan)
            for name in ("mean", "min", "max"))


def draw_line(axes, x, values, block, theme):
    """Mean of values (S, X) as a line, their range as a band. Returns the artists."""
    colour = getattr(theme, block)
    mean, low, high = summary(values)
    line, = axes.plot(x, mean, color=colour, label=block, clip_on=False, zorder=3,
                      marker=MARKERS[block] if len(x) <= 30 else None)
    if len(values) < 2:
        return [line]
    band = axes.fill_between(x, low, high, color=colour, alpha=0.22, linewidth=0,
                             label=f"{block} range")
    return [line, band]


def draw_cross(axes, x, y, block, theme):
    """The mark of a run that diverged; y NaN stands for the foot of the axes."""
    colour = getattr(theme, block)
    foot = math.isnan(y)
    height = {"highway": 0.08, "plain": 0.03}[block]    # apart where both diverge
    return axes.plot([x], [height if foot else y], linestyle="none", marker="x",
                     markersize=9, markeredgewidth=2.5, color=colour, clip_on=False,
                     transform=axes.get_xaxis_transform() if foot else axes.transData,
                     label=f"{block} diverged", zorder=4)


def draw_curves(axes, arm, values, theme, shown=None):
    """The first `shown` epochs of one arm's values (S, E). Returns the artists.

    A net that diverged is a line of its own, thin beside others, that ends in a cross.
    """
    shown = len(arm.epoch) if shown is None else shown
    x, good = arm.epoch[:shown], values[~arm.diverged]
    artists = draw_line(axes, x, good[:, :shown], arm.block, theme) if len(good) else []
    for row in values[arm.diverged]:
        alive = np.flatnonzero(np.isfinite(row))
        last = alive[-1] if len(alive) else -1
        artists += axes.plot(x, row[:shown], color=getattr(theme, arm.block), zorder=2,
                             linewidth=1.2 if len(good) else 2.2, clip_on=False,
                             label=f"{arm.block} alone")
        if shown > last + 1 or shown == len(row):
            artists += draw_cross(axes, arm.epoch[max(last, 0)], math.nan if last < 0
                                  else row[last], arm.block, theme)
    return artists


def head(arm, values, theme, shown=None):
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
    return height, f"{arm.block} {text}", getattr(theme, arm.block)
