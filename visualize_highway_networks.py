"""Draw the records: run.json and run_sweep.json -> five pictures in viz/.

Reads records and trains nothing. Every number on a picture, its title and its caption
comes from the record; so do the titles, which say what it shows. Whatever blocks a
record holds are drawn.

    learning_curves        test accuracy after each epoch
    plain_loss_collapse    training loss of each epoch, with ln C, the loss of a guess
    depth_sweep            test accuracy after the last epoch, by depth
    T_gate_evolution       mean transform gate T of each layer, epoch by epoch
    T_gate_final           the same after the last epoch, as bars from sigma(b_T)

    python3 visualize_highway_networks.py                      five PNGs, in seconds
    python3 visualize_highway_networks.py --dark               beside them, *_dark.png
    python3 visualize_highway_networks.py --run runs/mine.json

Legend: S seeds, E epochs, K epochs whose gates were recorded, L blocks (the depth), C
classes. Where a run has no value, because it diverged, arrays hold NaN, lines a gap.
The mean and the band are those of the seeds that did not diverge.
"""

from __future__ import annotations

import argparse
import math
import os
from pathlib import Path
from typing import Any

from highway_suite.terminal import end_without

try:
    import numpy as np
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator

    from highway_suite.figures import (
        DARK,
        FORMATS,
        GATE_COLOURS,
        GATED_LAYERS,
        LEARNS,
        LIGHT,
        Theme,
        accuracy_axes,
        caption,
        chosen_gates,
        draw_bars,
        draw_cross,
        draw_curves,
        draw_line,
        fate,
        fit_epochs,
        fit_gates,
        fit_y,
        gated_arms,
        head,
        label_right,
        label_y,
        mean_and_range,
        new_figure,
        no_gates,
        reference,
        saved,
        start_label,
        style,
        valueless,
        who_learns,
        whole_ticks,
    )
    from highway_suite.files import path_of
    from highway_suite.studies import (
        RUN,
        SWEEP,
        Arm,
        Study,
        load,
        picture_home,
        record_home,
        write_pictures,
    )
except ImportError as error:
    if __name__ != "__main__":
        raise
    end_without("visualize_highway_networks.py", error)

# --------------------------------------------------------------------------------------
# The five pictures: (study, theme) -> Figure


def learning_curves(study: Study, theme: Theme) -> Figure:
    """Test accuracy after each epoch, of the deepest net of each kind."""
    arms = study.deepest
    figure, axes = new_figure(who_learns(study), caption(study, arms, LEARNS), theme)
    fit_epochs(axes, arms)
    chance = accuracy_axes(axes, [arm.test_acc for arm in arms], study, theme,
                           any(valueless(arm.test_acc) for arm in arms))
    for arm in arms:
        draw_curves(axes, arm, arm.test_acc, theme)
    label_right(axes, [chance] + [head(arm, arm.test_acc, theme) for arm in arms])
    return figure


def plain_loss_collapse(study: Study, theme: Theme) -> Figure:
    """Training loss of each epoch, of the same nets, and ln C.

    The axis is logarithmic where the losses span more than two orders of magnitude.
    """
    arms = study.deepest
    figure, axes = new_figure(who_learns(study), caption(
        study, arms, f"{LEARNS} · loss: mean over the steps of the epoch"), theme)
    guess = math.log(study.classes)
    losses = np.concatenate([arm.train_loss.ravel() for arm in arms] + [[guess]])
    positive = losses[losses > 0]
    log = bool(positive.max() > 100 * positive.min())
    axes.set_yscale("log" if log else "linear")
    label_y(axes, "training loss" + " (log scale)" * log)
    axes.grid(axis="y")
    fit_epochs(axes, arms)
    fit_y(axes, [losses], foot=any(valueless(arm.train_loss) for arm in arms))
    reference(axes, guess, theme)
    for arm in arms:
        draw_curves(axes, arm, arm.train_loss, theme)
    label_right(axes, [(guess, f"ln {study.classes} = {guess:.4f}", theme.soft)]
                + [head(arm, arm.train_loss, theme) for arm in arms])
    return figure


def spaced(positions: list[float], gap: float) -> list[float]:
    """Those of the rising positions that lie `gap` apart; the last always does."""
    kept: list[float] = []
    for position in reversed(positions):
        if not kept or kept[-1] - position >= gap:
            kept.append(position)
    return kept[::-1]


def fit_depths(axes: Axes, study: Study) -> None:
    """A logarithmic x axis with a tick at each depth that has room for its label."""
    logs = np.log10(np.array(list(study.arms)) + 1)
    margin = 0.03 * (logs[-1] - logs[0]) or 0.3
    axes.set_xscale("log")
    axes.set_xlim(10**(logs[0] - margin), 10**(logs[-1] + margin))
    ticks = spaced(list(logs), 0.06 * (logs[-1] - logs[0]))
    axes.xaxis.set_major_locator(FixedLocator([10**tick for tick in ticks]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:.0f}")
    axes.set_xlabel("layers, the input's projection included (log scale)")


def final_accuracies(study: Study, block: str) -> np.ndarray:
    """Test accuracy after the last epoch: (most seeds, depths), NaN where there is
    none, because the net diverged or was not trained."""
    columns: list = [
        np.where(arms[block].diverged, math.nan, arms[block].test_acc[:, -1])
        if block in arms else [] for arms in study.arms.values()]
    table = np.full((max(map(len, columns)), len(columns)), math.nan)
    for i, column in enumerate(columns):
        table[:len(column), i] = column
    return table


def draw_sweep(axes: Axes, study: Study, block: str, theme: Theme) -> tuple:
    """One kind of nets over depth -> its label for `label_right`."""
    layers, table = [depth + 1 for depth in study.arms], final_accuracies(study, block)
    arms = [found[block] for found in study.arms.values() if block in found]
    end = arms[-1]
    draw_line(axes, layers, table, end, theme)
    if len(table) > 1:
        axes.plot(np.broadcast_to(layers, table.shape).ravel(), table.ravel(), ".",
                  color=theme.colour(end), markersize=4, alpha=0.75,
                  label=f"{block} seeds", clip_on=False)
    for arm in arms:
        if arm.diverged.any():
            draw_cross(axes, arm.layers, math.nan, arm, theme)
    return head(end, np.where(end.diverged[:, None], math.nan, end.test_acc), theme)


def where_it_learns(study: Study, ran: str) -> str:
    """At which depths the nets learn, as a title; ran: what is shown of them."""
    found = []
    for block in study.blocks:
        arms = [arms[block] for arms in study.arms.values() if block in arms]
        learn = [arm.layers for arm in arms if fate(arm, study) == "learns"]
        found.append(f"{block} at " + (
            "every depth" if len(learn) == len(arms) else
            f"{', '.join(map(str, learn)) or 'no'} layers"))
    text = f"Who learns: {', '.join(found)}"
    return text if len(text) <= 70 else f"Test {ran}, by depth"


def depth_sweep(study: Study, theme: Theme) -> Figure:
    """Test accuracy after the last epoch by depth: a dot for each seed, their mean and
    range; a gap where no seed has a value, a cross where one diverged."""
    arms = [arm for found in study.arms.values() for arm in found.values()]
    epochs = sorted({int(arm.epoch[-1]) for arm in arms})
    ran = f"accuracy after {' or '.join(map(str, epochs))} epoch{'s' * (epochs != [1])}"
    figure, axes = new_figure(where_it_learns(study, ran),
                              caption(study, arms, f"{ran} · {LEARNS}"), theme)
    fit_depths(axes, study)
    tables = [final_accuracies(study, block) for block in study.blocks]
    chance = accuracy_axes(axes, tables, study, theme,
                           any(arm.diverged.any() for arm in arms))
    label_right(axes, [chance] + [draw_sweep(axes, study, block, theme)
                                  for block in study.blocks])
    return figure


def edges(centres: np.ndarray) -> np.ndarray:
    """Rising centres (K,) -> the borders (K + 1,) of cells around them."""
    middle = (centres[1:] + centres[:-1]) / 2
    first = 2 * centres[0] - middle[0] if len(middle) else centres[0] - 0.5
    last = 2 * centres[-1] - middle[-1] if len(middle) else centres[-1] + 0.5
    return np.concatenate([[first], middle, [last]])


def gate_scale(axes: Axes, image: Any, study: Study, theme: Theme) -> None:
    """The colour scale right of the heat map, with a tick where the gates started."""
    figure, box = axes.figure, axes.get_position()
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


def gate_figure(study: Study, title: str, theme: Theme, *notes: str, **more: str
                ) -> tuple[Figure, list[tuple[Arm, Axes]]]:
    """A figure with a panel for each of the deepest nets with gates, named by it unless
    it is a highway net alone; notes and more: of `caption`."""
    arms = gated_arms(study)
    title = f"{title}, {study.deepest[0].layers} layers"
    if len(arms) == 1:
        last = next(mean_and_range(chosen_gates(arms[0])[1][:, -1]))
        below = (last < study.T_start).sum()
        title += f": it ends below σ(b_T) in {below} of {len(last)}"
    figure, *panels = new_figure(
        title,
        caption(study, arms or study.deepest, *notes, **more), theme,
        (2.77,) if len(arms) < 2 else (1.9,) * len(arms))
    if not arms:
        no_gates(panels[0])
    elif [arm.block for arm in arms] != ["highway"]:
        for arm, axes in zip(arms, panels, strict=True):
            axes.text(1, 1.025, arm.block, ha="right", va="bottom", weight="bold",
                      color=theme.colour(arm), transform=axes.transAxes)
    return figure, list(zip(arms, panels, strict=False))


def draw_evolution(axes: Axes, arm: Arm, study: Study, theme: Theme) -> None:
    """Mean T of each layer of one kind of nets over training, as a heat map."""
    epoch, T = chosen_gates(arm)
    mean, _, _ = mean_and_range(T)      # (K, L)
    image = axes.pcolorfast(edges(epoch), edges(np.arange(1, arm.depth + 1)), mean.T,
                            cmap=GATE_COLOURS)
    if hasattr(image, "set_interpolation"):     # even columns, where rows may be many
        image.set_interpolation("antialiased")
    low, high = min(mean.min(), study.T_start), max(mean.max(), study.T_start)
    image.set_clim(low, high if high > low else low + 1e-3)
    gate_scale(axes, image, study, theme)
    axes.set_xlim(edges(epoch)[0], max(edges(epoch)[-1], arm.epoch[-1] + 0.5))
    if epoch[-1] < arm.epoch[-1]:
        axes.text((edges(epoch)[-1] + axes.get_xlim()[1]) / 2, 0.5,
                  "× diverged" if arm.diverged.all() else "not recorded", rotation=90,
                  color=theme.soft, ha="center", va="center",
                  transform=axes.get_xaxis_transform())
    whole_ticks(axes.xaxis, epoch[0], max(epoch[-1], arm.epoch[-1]))
    whole_ticks(axes.yaxis, 1, arm.depth)
    axes.set_xlabel("epoch" + " (0: before training)" * bool(epoch[0] == 0))
    label_y(axes, GATED_LAYERS)


def T_gate_evolution(study: Study, theme: Theme) -> Figure:
    """Mean T of each layer over training, a heat map for each kind of nets with gates:
    a row for each layer, the input side at the bottom, a column for each epoch."""
    figure, panels = gate_figure(study, "Mean T over training",
                                 theme, several="mean over seeds")
    for arm, axes in panels:
        draw_evolution(axes, arm, study, theme)
    return figure


def T_gate_final(study: Study, theme: Theme) -> Figure:
    """Mean T of each layer after the last epoch recorded, as bars from sigma(b_T), up
    or down."""
    ends = sorted({int(chosen_gates(arm)[0][-1]) for arm in gated_arms(study)})
    after = f"after epoch {' or '.join(map(str, ends))}" if ends else "after training"
    figure, panels = gate_figure(
        study, f"Mean T {after}", theme,
        "bars start at the initial σ(b_T)",
        several="bar: mean over seeds; whisker: lowest to highest")
    for arm, axes in panels:
        _, T = chosen_gates(arm)
        fit_gates(axes, T[:, -1], study, theme)
        draw_bars(axes, T[:, -1], arm, study, theme)
    return figure


PICTURES = {picture.__name__: picture for picture in (
    learning_curves, plain_loss_collapse, depth_sweep, T_gate_evolution, T_gate_final)}

# --------------------------------------------------------------------------------------
# Files and command line


def render(name: str, study: Study, theme: Theme = LIGHT, kind: str = "png") -> bytes:
    """A picture's name and its Study -> the bytes of its file."""
    with style(theme):
        return saved(PICTURES[name](study, theme), kind, name, study.command,
                     study.sha256)


def redraw(options: argparse.Namespace) -> dict[Path, bytes]:
    """The parsed command line -> {path: bytes}. Raises RecordError and OSError."""
    home = record_home()
    run = load(options.run or home / RUN[0])
    sweep = run
    if options.sweep or (not options.run and os.path.exists(home / SWEEP[0])):
        sweep = load(options.sweep or home / SWEEP[0], SWEEP[1])
    own = bool(options.run or options.sweep)
    folder = Path(options.out_dir or picture_home(own) / "viz")
    folder.mkdir(parents=True, exist_ok=True)
    theme, suffix = (DARK, "_dark") if options.dark else (LIGHT, "")
    return {folder / f"{name}{suffix}.{options.format}": render(
        name, sweep if name == "depth_sweep" else run, theme, options.format)
        for name in PICTURES}


def build_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="visualize_highway_networks.py", allow_abbrev=False,
        description="Draw five pictures from two records. Nothing is trained.",
        epilog="Unasked it reads run.json and run_sweep.json and writes to viz/ beside "
               "them: in the current folder, if that has a run.json, else beside this "
               "script.")
    parser.add_argument("--run", metavar="FILE", type=path_of,
                        help="a record of your own, drawn into viz/ in the current "
                        "folder, or in runs/ of the checkout; of several "
                        "depths, the deepest is drawn")
    parser.add_argument("--sweep", metavar="FILE", type=path_of,
                        help="the record of depth_sweep (default: that of --run)")
    parser.add_argument("--out-dir", metavar="FOLDER", type=path_of,
                        help="made if it is not there")
    parser.add_argument("--format", choices=FORMATS, default="png",
                        help="of the pictures (default: png)")
    parser.add_argument("--dark", action="store_true",
                        help="light on dark, in files named *_dark")
    return parser


def main(argv: list[str] | None = None) -> list[Path]:
    """Run the command line; return the paths written. Exits with 1, one line on stderr,
    where a record or a file is wrong."""
    parser = build_parser()
    options = parser.parse_args(argv)
    return write_pictures(parser.prog, lambda: redraw(options), "pictures")


if __name__ == "__main__":
    main()
