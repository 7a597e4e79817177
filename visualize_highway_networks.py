"""Draw the records: run.json and run_sweep.json -> five pictures in viz/.

Reads records and trains nothing. Every number on a picture, its title and its caption
comes from the record; titles say what is drawn, never what it shows.

    learning_curves        test accuracy after each epoch, highway and plain
    plain_loss_collapse    training loss of each epoch, with ln C, the loss of a guess
    depth_sweep            test accuracy after the last epoch, by depth
    T_gate_evolution       mean transform gate T of each layer, epoch by epoch
    T_gate_final           the same after the last epoch, from where it started

    python3 visualize_highway_networks.py                      five PNGs, in seconds
    python3 visualize_highway_networks.py --dark               beside them, *_dark.png
    python3 visualize_highway_networks.py --readme README.md   and the README's tables

Legend: S seeds, E epochs, K epochs whose gates were recorded, L blocks (the depth), C
classes. Where a run has no value, because it diverged, arrays hold NaN, lines a gap.
The mean and the band are those of the seeds that did not diverge.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import math
import os
import re
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from textwrap import wrap
from typing import NamedTuple

INSTALL = "python3 -m venv .venv && .venv/bin/pip install -e ."
try:
    import matplotlib
    import numpy as np
    from matplotlib.figure import Figure
    from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator

    from highway_networks import RecordError, read_record
except ImportError as error:
    if __name__ != "__main__":
        raise
    library = str(error.name).split(".")[0]
    raise SystemExit(
        f"visualize_highway_networks.py needs {library}. Install: {INSTALL}")

# --------------------------------------------------------------------------------------
# Records


class Arm(NamedTuple):
    """The nets of one kind and one depth: a row for each seed."""

    block: str              # "highway" or "plain"
    depth: int              # L, blocks after the input projection
    parameters: int | None  # None where the record does not say
    epoch: np.ndarray       # (E,) whole numbers
    train_loss: np.ndarray  # (S, E) nats, mean over the steps of the epoch
    test_acc: np.ndarray    # (S, E) fraction, after the epoch
    diverged: np.ndarray    # (S,) bool
    T_epoch: np.ndarray     # (K,) whole numbers; K is 0 where no gate was recorded
    T: np.ndarray           # (S, K, L) mean over units and test images


class Study(NamedTuple):
    """A checked record, ready to be drawn."""

    arms: dict          # depth -> {"highway": Arm, "plain": Arm}, in rising depth
    seeds: list
    dataset: str
    n_train: int
    n_test: int
    init: str
    gate_bias: float    # b_T of every gate before training
    assumed: bool       # init and gate bias stand not in the record, but are known
    command: str        # that made the record; empty where it does not say
    sha256: str         # of the file

    @property
    def depth(self):
        """The deepest one: what is drawn where a picture has room for one depth."""
        return max(self.arms)

    @property
    def classes(self):
        """C: chance is 1/C, and ln C the loss of a uniform guess."""
        return DATASETS[self.dataset][1]

    @property
    def T_start(self):
        """sigma(b_T), where every gate starts but for the spread of W_T x."""
        return 0.5 + 0.5 * math.tanh(self.gate_bias / 2)


DATASETS = {    # their names on a picture, and C
    "mnist": ("MNIST", 10), "digits": ("UCI digits, 8×8 pixels (not MNIST)", 10)}
INITS = {"uniform": "U(±1/√fan_in)", "glorot": "Glorot", "he": "He"}
RUN = ("run.json", "--seed 0")
SWEEP = ("run_sweep.json", "--seed 0 --depths 5,10,20,30,50")
SEEDS = "--seeds 0,1,2,3,4 --depths 5,10,20,30,50"


def number(value, field, low, high):
    """A number of a record, as a float. Raises RecordError."""
    if type(value) not in (int, float) or not low <= value <= high:
        raise RecordError(f"field '{field}' is {value!r:.40}, not a number from "
                          f"{low:g} to {high:g}")
    return float(value)


def numbers(values, field, low, high, null=False):
    """A list of a record -> float array, NaN for null. Raises RecordError."""
    if not isinstance(values, list):
        raise RecordError(f"field '{field}' is missing or not a list")
    return np.array([math.nan if value is None and null else
                     number(value, f"{field}[{i}]", low, high)
                     for i, value in enumerate(values)], float)


def whole(value, field, low, high=10**12):
    """A whole number of a record, itself. Raises RecordError."""
    if type(value) is not int or not low <= value <= high:
        raise RecordError(f"field '{field}' is {value!r:.40}, not a whole number from "
                          f"{low:g} to {high:g}")
    return value


def rising(values, field):
    """Epochs of a record, each later than the one before. Raises RecordError."""
    for i, value in enumerate(values):
        whole(value, f"{field}[{i}]", 0 if i == 0 else values[i - 1] + 1, 10**6)
    return np.array(values, int)


def read_gates(net, depth, field):
    """layer_T_history of one net -> epochs (K,), T (K, L). Raises RecordError."""
    rows = net.get("layer_T_history") or []
    if not isinstance(rows, list):
        raise RecordError(f"field '{field}' is not a list")
    for k, row in enumerate(rows):
        if not isinstance(row, list) or len(row) != 2:
            raise RecordError(f"field '{field}[{k}]' is not a pair of epoch and gates")
        numbers(row[1], f"{field}[{k}][1]", 0, 1)
        if len(row[1]) != depth:
            raise RecordError(f"field '{field}[{k}][1]' has {len(row[1])} layers, the "
                              f"net {depth}")
    epoch = rising([row[0] for row in rows], field + " epoch")
    return epoch, np.array([row[1] for row in rows], float).reshape(len(rows), depth)


def read_net(net, block, depth, place):
    """One net of the record -> Arm with S = 1. Raises RecordError."""
    history, status = net["history"], net.get("status")
    epoch = rising(history["epoch"], f"{place}.history.epoch")
    if not len(epoch):
        raise RecordError(f"field '{place}.history.epoch' is empty")
    loss = numbers(history["train_loss"], f"{place}.history.train_loss", 0, 1e30, True)
    acc = numbers(history["test_acc"], f"{place}.history.test_acc", 0, 1, True)
    gap = bool(np.isnan(loss).any() or np.isnan(acc).any())
    if status not in (None, "ok", "diverged") or (status == "ok" and gap):
        raise RecordError(f"field '{place}.status' is {status!r:.40}"
                          + (", yet its history has null" if status == "ok" else ""))
    parameters = net.get("parameters")
    if parameters is not None:
        whole(parameters, f"{place}.parameters", 1)
    T_epoch, T = read_gates(net, depth, f"{place}.layer_T_history")
    return Arm(block, depth, parameters, epoch, loss[None], acc[None],
               np.array([gap or status == "diverged"]), T_epoch, T[None])


def join_seeds(nets, place):
    """Arms of one seed each -> one Arm. Raises RecordError where epochs differ."""
    first = nets[0]
    if any(not np.array_equal(net.epoch, first.epoch) for net in nets):
        raise RecordError(f"field 'history.epoch' of {place} differs between seeds")
    T_epoch = np.unique(np.concatenate([net.T_epoch for net in nets]))
    T = np.full((len(nets), len(T_epoch), first.depth), math.nan)
    for row, net in zip(T, nets):
        row[np.searchsorted(T_epoch, net.T_epoch)] = net.T[0]
    return first._replace(
        train_loss=np.concatenate([net.train_loss for net in nets]),
        test_acc=np.concatenate([net.test_acc for net in nets]),
        diverged=np.concatenate([net.diverged for net in nets]), T_epoch=T_epoch, T=T)


def read_arms(record):
    """The runs of a record -> (arms by depth, seeds). Raises RecordError."""
    nets, seeds = {}, set()
    for i, run in enumerate(record["runs"]):
        depth = whole(run["depth"], f"runs[{i}].depth", 1, 10**5)
        # Runs of the earlier reproduction have no seed of their own.
        seed = whole(run.get("seed", record.get("seed", 0)), f"runs[{i}].seed", 0)
        seeds.add(seed)
        for block in ("highway", "plain"):
            rows = nets.setdefault(depth, {}).setdefault(block, {})
            if seed in rows:
                raise RecordError(f"field 'runs[{i}]' repeats depth {depth} of seed "
                                  f"{seed}")
            rows[seed] = read_net(run[block], block, depth, f"runs[{i}].{block}")
    arms = {depth: {block: join_seeds(list(rows.values()), f"{block} {depth}")
                    for block, rows in nets[depth].items()} for depth in sorted(nets)}
    return arms, sorted(seeds)


def load(path, flags, gates=False):
    """A record's file and the flags that make it -> Study.

    gates: whether the deepest highway net must have a layer_T_history. Raises
    RecordError, one line that names file, field and command.
    """
    path = Path(path)
    out = "" if flags == RUN[1] and str(path) == RUN[0] else f" --out {path}"
    command = f"python3 highway_networks.py {flags}{out}"
    record = read_record(path, command)
    try:
        study = make_study(record, hashlib.sha256(path.read_bytes()).hexdigest())
        deepest = study.arms[study.depth]["highway"]
        if gates and not len(deepest.T_epoch) and not deepest.diverged.all():
            raise RecordError(f"field 'layer_T_history' of the highway net of depth "
                              f"{study.depth} is missing")
    except RecordError as error:
        raise RecordError(f"{path}: {error}. Make it with: {command}") from error
    return study


def make_study(record, sha256):
    """A record as `read_record` gives it -> Study. Raises RecordError."""
    arms, seeds = read_arms(record)
    config = record.get("config")
    assumed = "schema" not in record and config is None
    if assumed:     # the earlier reproduction: MNIST, b_T = -2, U(+-1/sqrt(fan_in))
        config, dataset = {"gate_bias": -2.0, "init": "uniform"}, "mnist"
    else:
        dataset = record.get("dataset")
    if not isinstance(config, dict):
        raise RecordError("field 'config' is missing or not a dict")
    for field, value, known in (("dataset", dataset, DATASETS),
                                ("config.init", config.get("init"), INITS)):
        if not isinstance(value, str) or value not in known:
            raise RecordError(f"field '{field}' is {value!r:.40}; known: "
                              + ", ".join(known))
    bias = number(config.get("gate_bias"), "config.gate_bias", -100, 100)
    command = record.get("command", "")
    if not isinstance(command, str) or not command.isprintable():
        raise RecordError("field 'command' is not a line of text")
    images = [whole(record.get(name), name, 1) for name in ("n_train", "n_test")]
    return Study(arms, seeds, dataset, *images, config["init"], bias, assumed, command,
                 sha256)


# --------------------------------------------------------------------------------------
# Style


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
    parts = [f"{DATASETS[study.dataset][0]}: {study.n_train:,} training and "
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


# --------------------------------------------------------------------------------------
# The five pictures: (study, theme) -> Figure


def valueless(values):
    """Whether a seed of (S, E) has no value at all: its cross stands at the foot."""
    return bool(np.isnan(values).all(axis=1).any())


def accuracy_axes(axes, values, study, theme, foot):
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


def learning_curves(study, theme):
    """Test accuracy after each epoch, of the deepest highway and plain net."""
    arms = list(study.arms[study.depth].values())
    figure, axes = new_figure(
        f"Test accuracy after each epoch, {blocks(study.depth)} deep",
        caption(study, arms), theme)
    fit_epochs(axes, arms[0].epoch)
    chance = accuracy_axes(axes, [arm.test_acc for arm in arms], study, theme,
                           any(valueless(arm.test_acc) for arm in arms))
    for arm in arms:
        draw_curves(axes, arm, arm.test_acc, theme)
    label_right(axes, [chance] + [head(arm, arm.test_acc, theme) for arm in arms])
    return figure


def plain_loss_collapse(study, theme):
    """Training loss of each epoch, of the same two nets, and ln C.

    The axis is logarithmic where the losses span more than two orders of magnitude.
    """
    arms = list(study.arms[study.depth].values())
    figure, axes = new_figure(
        f"Training loss of each epoch, {blocks(study.depth)} deep",
        caption(study, arms, "loss: mean over the steps of the epoch"), theme)
    guess = math.log(study.classes)
    losses = np.concatenate([arm.train_loss.ravel() for arm in arms] + [[guess]])
    positive = losses[losses > 0]
    log = bool(positive.max() > 100 * positive.min())
    axes.set_yscale("log" if log else "linear")
    label_y(axes, "training loss" + " (log scale)" * log)
    axes.grid(axis="y")
    fit_epochs(axes, arms[0].epoch)
    fit_y(axes, [losses], foot=any(valueless(arm.train_loss) for arm in arms))
    reference(axes, guess, theme)
    for arm in arms:
        draw_curves(axes, arm, arm.train_loss, theme)
    label_right(axes, [(guess, f"ln {study.classes} = {guess:.4f}", theme.soft)]
                + [head(arm, arm.train_loss, theme) for arm in arms])
    return figure


def spaced(positions, gap):
    """Those of the rising positions that lie `gap` apart; the last always does."""
    kept = []
    for position in reversed(positions):
        if not kept or kept[-1] - position >= gap:
            kept.append(position)
    return kept[::-1]


def fit_depths(axes, depths):
    """A logarithmic x axis with a tick at each depth that has room for its label."""
    logs = np.log10(depths)
    margin = 0.03 * (logs[-1] - logs[0]) or 0.3
    axes.set_xscale("log")
    axes.set_xlim(10**(logs[0] - margin), 10**(logs[-1] + margin))
    ticks = spaced(list(logs), 0.06 * (logs[-1] - logs[0]))
    axes.xaxis.set_major_locator(FixedLocator([10**tick for tick in ticks]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:.0f}")
    axes.set_xlabel("depth (blocks after the input projection, log scale)")


def final_accuracies(study, block):
    """Test accuracy after the last epoch: (most seeds, depths), NaN where there is
    none, because the net diverged or the seed was not run at that depth."""
    columns = [np.where(pair[block].diverged, math.nan, pair[block].test_acc[:, -1])
               for pair in study.arms.values()]
    table = np.full((max(map(len, columns)), len(columns)), math.nan)
    for i, column in enumerate(columns):
        table[:len(column), i] = column
    return table


def depth_sweep(study, theme):
    """Test accuracy after the last epoch by depth: a dot for each seed, their mean and
    range; a gap where no seed has a value, a cross where one diverged."""
    depths = list(study.arms)
    arms = [arm for pair in study.arms.values() for arm in pair.values()]
    epochs = sorted({int(arm.epoch[-1]) for arm in arms})
    figure, axes = new_figure(
        f"Test accuracy after {' or '.join(map(str, epochs))} epoch"
        f"{'s' * (epochs != [1])}, by depth", caption(study, arms), theme)
    tables = {block: final_accuracies(study, block) for block in ("highway", "plain")}
    fit_depths(axes, depths)
    labels = [accuracy_axes(axes, list(tables.values()), study, theme,
                            any(arm.diverged.any() for arm in arms))]
    for block, table in tables.items():
        draw_line(axes, depths, table, block, theme)
        if len(table) > 1:
            axes.plot(np.broadcast_to(depths, table.shape).ravel(), table.ravel(), ".",
                      color=getattr(theme, block), markersize=4, alpha=0.75,
                      label=f"{block} seeds", clip_on=False)
        for depth, pair in study.arms.items():
            if pair[block].diverged.any():
                draw_cross(axes, depth, math.nan, block, theme)
        end = study.arms[depths[-1]][block]
        labels.append(head(end, np.where(end.diverged[:, None], math.nan, end.test_acc),
                           theme))
    label_right(axes, labels)
    return figure


def chosen_gates(arm):
    """(epochs (K,), T (S', K, L)) of the seeds that did not diverge, or of all, if all
    did; only the epochs that one of them has."""
    T = arm.T if arm.diverged.all() else arm.T[~arm.diverged]
    there = np.isfinite(T).any(axis=(0, 2))
    return arm.T_epoch[there], T[:, there]


def no_gates(axes):
    """What to draw of a net that diverged before its gates were first measured."""
    axes.set_axis_off()
    axes.text(0.5, 0.5, "diverged: no gate was recorded", ha="center", va="center",
              transform=axes.transAxes)


def edges(centres):
    """Rising centres (K,) -> the borders (K + 1,) of cells around them."""
    middle = (centres[1:] + centres[:-1]) / 2
    first = 2 * centres[0] - middle[0] if len(middle) else centres[0] - 0.5
    last = 2 * centres[-1] - middle[-1] if len(middle) else centres[-1] + 0.5
    return np.concatenate([[first], middle, [last]])


def start_label(study):
    """sigma(b_T), as both gate pictures write it, and its value."""
    return f"$\\sigma({study.gate_bias:g})$", f"{study.T_start:.3g}"


def gate_scale(figure, axes, image, study, theme):
    """The colour scale right of the heat map, with a tick where the gates started."""
    box = axes.get_position()
    scale = figure.colorbar(image, cax=figure.add_axes(
        (box.x1 + 0.02, box.y0, 0.022, box.height)))
    low, high = image.get_clim()
    ticks = [tick for tick in MaxNLocator(6).tick_values(low, high)
             if low <= tick <= high and abs(tick - study.T_start) > 0.1 * (high - low)]
    exact = [n for n in range(2, 6) if np.allclose(np.round(ticks, n), ticks, 0)]
    form = f".{exact[0]}f" if exact else ".3g"      # as many digits for each
    scale.set_ticks([*ticks, study.T_start], labels=[
        *(f"{tick:{form}}" for tick in ticks), "\n".join(start_label(study))])
    scale.ax.axhline(study.T_start, color=theme.paper, linewidth=1.5)
    scale.outline.set_visible(False)
    scale.ax.set_title("mean T", size=10, loc="left")


def T_gate_evolution(study, theme):
    """Mean T of each layer of the deepest highway net over training, a heat map: a row
    for each layer, the input side at the bottom, a column for each epoch."""
    arm = study.arms[study.depth]["highway"]
    figure, axes = new_figure(
        f"Mean transform gate T by layer over training, {blocks(study.depth)} deep",
        caption(study, [arm], several="mean over seeds"), theme)
    epoch, T = chosen_gates(arm)
    if not len(epoch):
        no_gates(axes)
        return figure
    mean, _, _ = summary(T)     # (K, L)
    image = axes.pcolorfast(edges(epoch), edges(np.arange(1, arm.depth + 1)), mean.T,
                            cmap=GATE_COLOURS)
    if hasattr(image, "set_interpolation"):     # even columns, where rows may be many
        image.set_interpolation("antialiased")
    low, high = min(mean.min(), study.T_start), max(mean.max(), study.T_start)
    image.set_clim(low, high if high > low else low + 1e-3)
    gate_scale(figure, axes, image, study, theme)
    axes.set_xlim(edges(epoch)[0], max(edges(epoch)[-1], arm.epoch[-1] + 0.5))
    if epoch[-1] < arm.epoch[-1]:
        axes.text((edges(epoch)[-1] + axes.get_xlim()[1]) / 2, 0.5,
                  "× diverged" if arm.diverged.all() else "not recorded", rotation=90,
                  color=theme.soft, ha="center", va="center",
                  transform=axes.get_xaxis_transform())
    whole_ticks(axes.xaxis, epoch[0], max(epoch[-1], arm.epoch[-1]))
    whole_ticks(axes.yaxis, 1, arm.depth)
    axes.set_xlabel("epoch" + " (0: before training)" * bool(epoch[0] == 0))
    label_y(axes, "layer (1: next to the input)")
    return figure


def bars(T):
    """T (L,) -> the values and edges of `stairs` that draw it as bars, one a layer.

    NaN between the values leaves the gaps between the bars: one artist, not L. More
    than 100 bars have no gaps.
    """
    half = 0.4 if len(T) <= 100 else 0.5
    values = np.full(2 * len(T) - 1, math.nan)
    values[::2] = T
    layers = np.arange(1, len(T) + 1)
    return values, np.ravel(np.column_stack([layers - half, layers + half]))


def fit_gates(axes, T, study, theme):
    """Axes for bars of mean T that start at sigma(b_T), marked; T: all to come."""
    L = T.shape[-1]
    reach = max(L / 2 + 0.1, 4)     # a bar alone is no wall
    axes.set_xlim((L + 1) / 2 - reach, (L + 1) / 2 + reach)
    fit_y(axes, [T, [study.T_start]], least=0.1 * study.T_start)
    low, high = axes.get_ylim()
    axes.set_ylim(max(low, 0), min(high, 1))
    whole_ticks(axes.xaxis, 1, L)
    axes.set_xlabel("layer (1: next to the input)")
    label_y(axes, "mean T")
    axes.grid(axis="y")
    reference(axes, study.T_start, theme)
    label_right(axes, [(study.T_start, "↑ opened\n{} = {}\n↓ closed".format(
        *start_label(study)), theme.soft)])


def draw_bars(axes, T, study, theme):
    """Mean over seeds of T (S, L) as bars from sigma(b_T), their range as whiskers.
    Returns the artists."""
    mean, low, high = summary(T)
    artists = [axes.stairs(*bars(mean), baseline=study.T_start, fill=True,
                           color=theme.highway, label="T", zorder=2, linewidth=0)]
    if len(T) > 1:
        width = min(1.8, 120 / len(mean))
        artists.append(axes.vlines(
            np.arange(1, len(mean) + 1), low, high, theme.ink, linewidth=width,
            alpha=0.6, label="T range", zorder=3))
    return artists


def T_gate_final(study, theme):
    """Mean T of each layer after the last epoch recorded, as bars from sigma(b_T): up
    where the layer's gates opened on the mean, down where they closed."""
    arm = study.arms[study.depth]["highway"]
    epoch, T = chosen_gates(arm)
    after = f"after epoch {epoch[-1]}" if len(epoch) else "after training"
    figure, axes = new_figure(
        f"Mean transform gate T by layer {after}, {blocks(study.depth)} deep",
        caption(study, [arm], "bars start at the initial σ(b_T)",
                "bar: mean over seeds; whisker: lowest to highest"), theme)
    if not len(epoch):
        no_gates(axes)
        return figure
    fit_gates(axes, T[:, -1], study, theme)
    draw_bars(axes, T[:, -1], study, theme)
    return figure


PICTURES = {picture.__name__: picture for picture in (
    learning_curves, plain_loss_collapse, depth_sweep, T_gate_evolution, T_gate_final)}

# --------------------------------------------------------------------------------------
# Tables of the README

TABLES = {      # the records of each, and the flags that make them
    "headline": (RUN,), "sweep": (SWEEP,),
    "depths": (("records/sweep_five_seeds.json", SEEDS),
               ("records/sweep_glorot_five_seeds.json", f"{SEEDS} --init glorot")),
}
MARKER = re.compile(r"^<!-- (?:table: (.+?)|end) -->$", re.MULTILINE)


class TableError(ValueError):
    """The markers of a Markdown file are wrong: which one, and where."""


def mean_and_spread(values, digits):
    """Values of the seeds -> "0.9037 ± 0.0059", or the one there is. The ± is the
    standard deviation with n - 1."""
    spread_of = f" ± {np.std(values, ddof=1):.{digits}f}" if len(values) > 1 else ""
    return f"{np.mean(values):.{digits}f}{spread_of}"


def final(arm, series, digits):
    """The last value of an Arm's series over the seeds that did not diverge, or –."""
    good = ~arm.diverged
    values = getattr(arm, series)[good, -1]
    return mean_and_spread(values, digits) if good.any() else "–"


def render_table(study):
    """A Study -> Markdown: a row for each kind and depth, with n and parameters."""
    rows = ["| net | depth | parameters | n | test accuracy | last training loss |",
            "|---|---:|---:|---:|---:|---:|"]
    for depth, pair in study.arms.items():
        for block, arm in pair.items():
            lost, n = int(arm.diverged.sum()), len(arm.diverged)
            n = f"{n}, of which {lost} diverged" if lost else f"{n}"
            parameters = f"{arm.parameters:,}" if arm.parameters else "–"
            ends = f"{final(arm, 'test_acc', 4)} | {final(arm, 'train_loss', 3)}"
            rows.append(f"| {block} | {depth} | {parameters} | {n} | {ends} |")
    return "\n".join(rows)


def render_depths(*studies):
    """Studies of the same depths -> Markdown: test accuracy, a row for each depth, a
    column for each kind and study."""
    heads = [f"{block}, {INITS[study.init]}, n = {len(study.seeds)}"
             for study in studies for block in study.arms[study.depth]]
    rows = ["| depth | " + " | ".join(heads) + " |", "|---:|" + "---:|" * len(heads)]
    for depth in studies[0].arms:
        cells = [final(arm, "test_acc", 3) + (
                     f", {arm.diverged.sum()} diverged" if arm.diverged.any() else "")
                 for study in studies for arm in study.arms[depth].values()]
        rows.append(f"| {depth} | " + " | ".join(cells) + " |")
    return "\n".join(rows)


def render_tables(root, names=tuple(TABLES)):
    """The folder of the records -> {name: Markdown}. Raises RecordError."""
    def render(name):
        studies = [load(Path(root) / path, flags) for path, flags in TABLES[name]]
        return (render_table if len(studies) == 1 else render_depths)(*studies)
    return {name: render(name) for name in names}


def replace_tables(text, tables):
    """Markdown with `<!-- table: NAME -->` ... `<!-- end -->`, each marker on a line of
    its own -> the same with the tables between them. Raises TableError."""
    pieces, done, name = [], 0, None
    for marker in MARKER.finditer(text):
        line = text.count("\n", 0, marker.start()) + 1
        if name is None and marker[1] is None:
            raise TableError(f"line {line}: an end marker without a table before it")
        if name is not None and marker[1] is not None:
            raise TableError(f"line {line}: table {name!r} has no end before this one")
        if marker[1] is not None and marker[1] not in tables:
            raise TableError(f"line {line}: no table {marker[1]!r}; known: "
                             + ", ".join(tables))
        if name is None:
            pieces.append(f"{text[done:marker.end()]}\n{tables[marker[1]]}\n")
        name, done = marker[1], (marker.end() if name is None else marker.start())
    if name is not None:
        raise TableError(f"table {name!r} has no end marker")
    return "".join(pieces) + text[done:]


def rewrite_readme(path):
    """A Markdown file, its records beside it -> its text with the tables of today.
    Raises TableError, RecordError, OSError."""
    try:
        text = Path(path).read_bytes().decode()
        replace_tables(text, dict.fromkeys(TABLES))     # wrong markers need no record
        names = [marker[1] for marker in MARKER.finditer(text) if marker[1]]
        if not names:
            raise TableError("no line is a marker <!-- table: NAME -->")
        return replace_tables(text, render_tables(Path(path).parent, names))
    except (TableError, UnicodeDecodeError) as error:
        raise TableError(f"{path}: {error}") from error


# --------------------------------------------------------------------------------------
# Files and command line


def metadata(kind, title, study):
    """What a file says of itself: its record, and nothing that changes from day to day.

    Each format has its own keys; None removes the program, version or date that
    Matplotlib would write.
    """
    origin = f"record SHA-256 {study.sha256}"
    if kind == "png":
        return {"Software": None, "Title": title, "Source": study.command,
                "Record-SHA-256": study.sha256}
    if kind == "svg":
        return {"Date": None, "Creator": None, "Title": title, "Source": study.command,
                "Description": origin}
    return {"CreationDate": None, "Creator": None, "Producer": None, "Title": title,
            "Subject": study.command, "Keywords": origin}


def render(name, study, theme=LIGHT, kind="png"):
    """A picture's name and its Study -> the bytes of its file: png, svg or pdf."""
    with style(theme):
        figure = PICTURES[name](study, theme)
        file = io.BytesIO()
        figure.savefig(file, format=kind, metadata=metadata(kind, name, study))
    return file.getvalue()


def write_files(contents):
    """{path: bytes} -> files, once all of them lie complete beside their places.

    Raises OSError; then no file is half-written and no temporary one is left.
    """
    temporaries = {}
    try:
        for path, content in contents.items():
            handle, temporaries[path] = tempfile.mkstemp(prefix=f".{path.name}.",
                                                         dir=path.parent)
            with os.fdopen(handle, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.chmod(temporaries[path], 0o644)
        for path in contents:
            os.replace(temporaries[path], path)
            del temporaries[path]
    finally:
        for temporary in temporaries.values():
            os.unlink(temporary)


def redraw(options):
    """The parsed command line -> the paths written. Raises RecordError, TableError and
    OSError, each before the first file is touched."""
    run = load(options.run, RUN[1], gates=True)
    sweep = load(options.sweep, SWEEP[1])
    contents = {}
    if options.readme:
        contents[Path(options.readme)] = rewrite_readme(options.readme).encode()
    folder = Path(options.out_dir)
    folder.mkdir(parents=True, exist_ok=True)
    theme, suffix = (DARK, "_dark") if options.dark else (LIGHT, "")
    for name in PICTURES:
        contents[folder / f"{name}{suffix}.{options.format}"] = render(
            name, sweep if name == "depth_sweep" else run, theme, options.format)
    write_files(contents)
    return list(contents)


def build_parser():
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="visualize_highway_networks.py", allow_abbrev=False,
        description="Draw five pictures from two records. Nothing is trained.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--run", metavar="FILE", default=RUN[0],
                        help="the record of all pictures but the sweep; of several "
                        "depths, the deepest is drawn")
    parser.add_argument("--sweep", metavar="FILE", default=SWEEP[0],
                        help="the record of depth_sweep")
    parser.add_argument("--out-dir", metavar="FOLDER", default="viz",
                        help="made if it is not there")
    parser.add_argument("--format", choices=("png", "svg", "pdf"), default="png",
                        help="of the pictures")
    parser.add_argument("--dark", action="store_true",
                        help="light on dark, in files named *_dark")
    parser.add_argument("--readme", metavar="FILE", help="also rewrite the tables "
                        "between the markers of this Markdown file, from the records "
                        "beside it: " + ", ".join(TABLES))
    return parser


def main(argv=None):
    """Run the command line; return the paths written. Exits with 1, one line on stderr,
    where a record, a marker or a file is wrong."""
    try:
        paths = redraw(build_parser().parse_args(argv))
    except (RecordError, TableError, OSError) as error:
        sys.exit(f"visualize_highway_networks.py: {error}")
    print("wrote " + ", ".join(map(str, paths)))
    return paths


if __name__ == "__main__":
    main()
