"""The figures of `convolution`, each with one message."""

from __future__ import annotations

import numpy as np

from experiments.convolution.claims import TRAINS, best_losses, groups_needed
from experiments.convolution.plan import BIASES, GATES
from experiments.lab.experiment import for_figures
from experiments.lab.judging import or_infinite, or_zero
from experiments.lab.papers import TABLE_1, TABLE_1_EPOCHS, TABLE_3_LOG

with for_figures():
    from matplotlib.figure import Figure

    from experiments.lab import drawing
    from highway_suite.figures import SMALL, TINTS, fit_depths, label_right, label_y

    LOOKS = {3: (drawing.colour_of("highway"), "o", -0.12), 1: (TINTS.own[2], "s", 0.0),
             0: (TINTS.own[3], "D", 0.12)}      # by gate; the last is a shift along b_T


def label_of(row: dict) -> str:
    """A net of Table 1: its kind, its width, whose settings."""
    other = "" if row["settings_of"] == row["net"] else (
        "\n(the authors' settings)" if row["settings_of"] == "authors" else
        "\n(settings of width 16)")
    return f"{row['block']}, width {row['width']}{other}"


def draw_table(record: dict) -> Figure:
    """Table 1: every run of each net, their mean, and the paper's."""
    rows = sorted(record["table_1"]["nets"], key=lambda row: -(row["mean"] or 0))
    own = {at: row for at, row in enumerate(rows)
           if row["block"] == "highway" and row["settings_of"] == row["net"]}
    apart = max(abs((row["mean"] or 0) - TABLE_1[row["width"]]["mean"])
                for row in own.values())
    figure, axes = drawing.sheet(
        "With a search for each width, highway nets of Table 1 come within "
        f"{apart:.2f} points of the paper's", f"{record['table_1']['title']}: "
        f"{rows[0]['epochs']} epochs, the authors' file has {TABLE_1_EPOCHS}",
        "dot: a run of ours, bar: our mean, diamond: the paper's mean", height=3.7)
    for at, row in enumerate(rows):
        for value in row["test_percent"]:
            axes.plot(value or np.nan, at, "o", color=drawing.colour_of(row["block"]),
                      markersize=6, alpha=0.7, markeredgewidth=0)
        axes.plot(row["mean"] or np.nan, at, "|", color=TINTS.ink, markersize=16,
                  markeredgewidth=2)
        if at in own and row["width"] in TABLE_1:
            axes.plot(TABLE_1[row["width"]]["mean"], at, "D", color=TINTS.ink,
                      fillstyle="none", markersize=8)
    axes.set_yticks(range(len(rows)), map(label_of, rows))
    axes.set(xlabel="test accuracy, %", ylim=(len(rows) - 0.5, -0.5))
    axes.grid(axis="x")
    return figure


def draw_ladder(record: dict) -> Figure:
    """The test error of every run by rung, and of the plain twins."""
    table, plan = record["ladder"], record["plan"]["ladder"]
    rungs, names = table["rungs"], [rung["rung"] for rung in table["rungs"]]
    means = [100 - np.mean(or_zero(rung["test_percent"])) for rung in rungs
             if rung["kept"]]
    figure, axes = drawing.sheet(
        f"{len(means) - 1} changes bring the test error of 11 layers from "
        f"{means[0]:.1f} to {means[-1]:.1f} %",
        f"{table['title']}: {plan['by_rung']['epochs']} epochs, n = "
        f"{len(plan['seeds'])} each",
        "dot: a run, bar: the mean; grey bar: a change that was not kept; "
        "orange: plain nets, without gates, at both ends",
        height=1.4 + 0.36 * len(rungs))
    for rung in rungs + table["twins"]:
        at, kept = names.index(rung["rung"]), rung.get("kept", True)
        errors = 100 - np.array(or_zero(rung["test_percent"]))
        at += 0.25 * (rung["block"] == "plain")
        axes.plot(errors, [at] * len(errors), "o", markersize=6, alpha=0.7,
                  fillstyle="full" if kept else "none",
                  color=drawing.colour_of(rung["block"]))
        axes.plot(errors.mean(), at, "|", color=TINTS.ink if kept else TINTS.soft,
                  markersize=16, markeredgewidth=2)
    axes.set_yticks(range(len(rungs)), names)
    axes.set(xlabel="test error, %", ylim=(len(rungs) - 0.5, -0.5))
    axes.grid(axis="x")
    return figure


def draw_curves(record: dict) -> Figure:
    """The accuracy on images held out by epoch, of every rung and the plain twins."""
    table = record["ladder"]
    lines = table["rungs"] + table["twins"]
    means = [np.mean([or_zero(curve) for curve in rung["held_out"]], axis=0)
             for rung in lines]
    kept = [mean[-1] for rung, mean in zip(lines, means, strict=True)
            if rung.get("kept")]
    figure, axes = drawing.sheet(
        f"The changes that are kept raise the accuracy on images held out from "
        f"{kept[0]:.0f} to {kept[-1]:.0f} %",
        f"{table['title']}, means of {len(lines[0]['held_out'])} runs",
        "dashed: changes that were not kept, and plain twins", height=4.2)
    labels = []
    for at, (rung, mean) in enumerate(zip(lines, means, strict=True)):
        colour, twin = drawing.colour_of(rung["block"]), rung["block"] == "plain"
        axes.plot(range(1, len(mean) + 1), mean, color=colour, linewidth=1.4,
                  linestyle="-" if rung.get("kept") else drawing.DASHED,
                  alpha=1 if twin else 0.4 + 0.6 * at / len(table["rungs"]))
        labels.append((mean[-1], f"{mean[-1]:.1f} {'plain: ' * twin}{rung['rung']}",
                       colour))
    axes.set(xlabel="epoch")
    label_y(axes, "accuracy on images held out, %")
    label_right(axes, labels)
    return figure


def draw_depths(record: dict) -> Figure:
    """The last training loss by depth, of each kind at its best rate."""
    depths = sorted({row["depth"] for row in record["depths"]})
    losses = {block: or_infinite([row["train_loss"] for row in record["depths"]
                                  if row["block"] == block])
              for block in ("highway", "plain")}
    medians = {block: np.median(values, axis=1) for block, values in losses.items()}
    plan = record["plan"]["depths"]["net"]
    figure, axes = drawing.sheet(
        f"{depths[-1]} blocks end at a training loss of {medians['highway'][-1]:.2g} "
        f"with gates, at {medians['plain'][-1]:.2g} without",
        f"{drawing.data_of(record['plan'])}, {plan['epochs']} epochs; lines are medians"
        f" of {losses['plain'].shape[1]} runs", "plain nets have half the parameters")
    labels = [(np.log(10), "chance", TINTS.soft)]
    for block, values in losses.items():
        axes.plot(depths, medians[block], color=drawing.colour_of(block),
                  linestyle=drawing.DASHED if block == "plain" else "-")
        axes.plot(depths, values, "o", color=drawing.colour_of(block), alpha=0.7)
        labels.append((medians[block][-1], block, drawing.colour_of(block)))
    drawing.draw_level(axes, np.log(10))
    axes.margins(y=0.12)
    fit_depths(axes, depths)
    drawing.log_y(axes, "last training loss")
    label_right(axes, labels)
    return figure


def trained(record: dict, depth: int, bias: float) -> str:
    """How many of all runs of one depth and b_T train."""
    losses = np.concatenate([
        or_infinite(row["train_loss"]).ravel() for row in record["gates"]
        if (row["depth"], row["gate_bias"]) == (depth, bias)])
    train, of = np.sum(losses < TRAINS), losses.size
    many = "no" if not train else "every" if train == of else f"{train} of {of}"
    return f"{many} run trains at $b_T$\xa0=\xa0{drawing.signed(bias)}"


def draw_biases(record: dict) -> Figure:
    """The last training loss by b_T and gate, at both depths."""
    plan = record["plan"]["gates"]
    deepest = plan["depths"][-1]
    figure, panels = drawing.sheet(
        f"With {deepest} blocks, " + ", and ".join(
            trained(record, deepest, bias) for bias in (-1.0, BIASES[deepest])),
        drawing.data_of(record["plan"]),
        "large: median at the best rates, small: each run, moved sideways",
        "below the dotted line nets train; grey: the paper's guideline", columns=2,
        sharey=True)
    for axes, depth in zip(panels, plan["depths"], strict=True):
        for gate, name in GATES.items():
            rows = [row for row in record["gates"]
                    if (row["depth"], row["gate"]) == (depth, gate)]
            losses = np.array([best_losses(row) for row in rows])
            at = np.array([row["gate_bias"] for row in rows])
            colour, mark, shift = LOOKS[gate]
            at += shift
            axes.plot(at, np.median(losses, axis=1), mark, color=colour, linestyle="-",
                      linewidth=1.2, markersize=7, fillstyle="none", label=name)
            axes.plot(at, losses, mark, color=colour, markersize=3)
        drawing.draw_level(axes, TRAINS)
        axes.axvline(BIASES[depth], color=TINTS.grid, linewidth=14, zorder=0)
        axes.set(yscale="log", xlabel="$b_T$ before training", xticks=plan["biases"])
        axes.set_title(f"{depth} blocks", size=10, loc="right")
        axes.invert_xaxis()
        drawing.plain_numbers(axes.yaxis)
    label_y(panels[0], "last training loss")
    panels[0].legend(fontsize=SMALL, loc="upper right", frameon=False)
    return figure


def draw_epochs(record: dict) -> Figure:
    """Test accuracy by epoch of the nets of Tables 2 and 3, beside the authors' log."""
    two, three, log = record["table_2"], record["table_3"], TABLE_3_LOG
    nets = [(11, net) for net in two["nets"]] + [(19, net) for net in three["nets"]]
    means = [np.mean([or_zero(curve) for curve in net["test_by_epoch"]], axis=0)
             for _, net in nets]
    figure, axes = drawing.sheet(
        ", ".join(f"{layers} layers read {mean[-1]:.1f} % after {len(mean)} epochs"
                  for (layers, net), mean in zip(nets, means, strict=True)
                  if net["block"] == "highway"),
        f"{two['title']}, n = {nets[0][1]['n']} (11 layers), {nets[-1][1]['n']} (19); "
        f"the authors': the points of one log, {log[400]:.1f} % after 400 epochs",
        "our 19 layers first train on smaller images",
        height=3.6)
    labels = [(log[400], "the authors' 19 layers", TINTS.ink)]
    axes.plot([*log], [*log.values()], "D-", color=TINTS.ink, linewidth=1.2,
              fillstyle="none", markersize=5)
    for (layers, net), mean in zip(nets, means, strict=True):
        colour, dashed = drawing.colour_of(net["block"]), layers == 19
        axes.plot(range(1, len(mean) + 1), mean, color=colour,
                  linestyle=drawing.DASHED if dashed else "-")
        labels.append((mean[-1], f"our {layers} layers" + ", dashed" * dashed
                       + ", plain" * (net["block"] == "plain"), colour))
    axes.set(xscale="log", xlabel="epoch (log scale)")
    drawing.plain_numbers(axes.xaxis)
    label_y(axes, "test accuracy, %")
    label_right(axes, labels)
    return figure


def draw_layers(rows: list[dict], title: str) -> Figure:
    """Of each stage what one closed layer costs, and the answers that groups keep."""
    stages = [[row["trained"]["stages"][at] for row in rows]
              for at in range(len(rows[0]["trained"]["stages"]))]
    need, before = ([max(groups_needed(stage) for stage in seeds) for seeds in zip(
        *(row[state]["stages"] for row in rows), strict=True)]
        for state in ("trained", "untrained"))
    layers = [len(seeds[0]["closed"]) for seeds in stages]
    whole = np.array([[row["trained"]["acc"]] for row in rows])
    figure, panels = drawing.sheet(
        f"Stages of {', '.join(map(str, layers))} highway layers need "
        f"{'at most ' * (len(rows) > 1)}{', '.join(map(str, need))} groups "
        "to keep 95\xa0% of a net's answers",
        f"{title}, test images; " + ("one net" if len(rows) == 1 else
                                     f"dot: a net, line: the median of {len(rows)}"),
        "layers of a group read the same input, side by side; "
        f"untrained nets need at most {max(before)}", columns=2)
    ends = np.cumsum(layers)
    for at, (seeds, end) in enumerate(zip(stages, ends, strict=True)):
        colour, numbers = TINTS.own[at], np.arange(1, layers[at] + 1)
        costs = 100 * (whole - [stage["closed"] for stage in seeds])
        kept = 100 * np.array([stage["in_groups"] for stage in seeds])
        for axes, x, values in ((panels[0], numbers + end - layers[at], costs),
                                (panels[1], numbers, kept)):
            axes.plot(x, np.median(values, axis=0), color=colour, linewidth=1.4,
                      label=f"stage {at + 1}")
            axes.plot(x, values.T, "o", color=colour, markersize=3, alpha=0.7)
    drawing.draw_level(panels[1], 95)
    panels[0].set(xlabel="highway layer that is closed")
    panels[1].set(xlabel="groups, one after the other")
    label_y(panels[0], "accuracy lost, points")
    label_y(panels[1], "answers kept, %")
    panels[1].legend(fontsize=SMALL, loc="lower right", framealpha=1, fancybox=False)
    return figure


FIGURES = {"ladder": draw_ladder, "curves": draw_curves, "epochs": draw_epochs,
           "figure": draw_table, "depth": draw_depths, "gates": draw_biases,
           "layers": lambda record: draw_layers(record["layers"],
                                                drawing.data_of(record["plan"])),
           "layers_table_3": lambda record: draw_layers(
               record["table_3"]["layers"], record["table_3"]["title"])}
