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
import io
import math
import re
import sys
from pathlib import Path

INSTALL = "python3 -m venv .venv && .venv/bin/pip install -e ."
try:
    import numpy as np
    from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator

    from highway_suite.figures import (
        DARK,
        GATE_COLOURS,
        LIGHT,
        blocks,
        caption,
        draw_cross,
        draw_curves,
        draw_line,
        fit_epochs,
        fit_y,
        head,
        label_right,
        label_y,
        new_figure,
        reference,
        style,
        summary,
        whole_ticks,
    )
    from highway_suite.files import write_files
    from highway_suite.records import RecordError
    from highway_suite.studies import INITS, RUN, SEEDS, SWEEP, load
except ImportError as error:
    if __name__ != "__main__":
        raise
    library = str(error.name).split(".")[0]
    raise SystemExit(
        f"visualize_highway_networks.py needs {library}. Install: {INSTALL}")

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
