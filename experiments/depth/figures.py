"""The figures of `depth`: the law, rules, the map of b_T, the use of blocks."""

from __future__ import annotations

import numpy as np

from experiments.depth.claims import OPTIMIZERS
from experiments.depth.controls import all_losses
from experiments.depth.plan import TRAINS
from experiments.depth.record import GUESSING, mean_loss
from experiments.depth.training import KEEPS
from experiments.lab.experiment import for_figures
from experiments.lab.judging import or_infinite
from experiments.lab.papers import GUIDELINE

with for_figures():
    from matplotlib import colormaps
    from matplotlib.colors import LogNorm
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle

    from experiments.lab import drawing
    from highway_suite.figures import SMALL, TINTS, fit_depths, label_right, label_y

    RULES = {       # rule: its name in the figure and its colour
        "S = 1": ("$b_T$ = logit(1/L)", drawing.colour_of("highway")),
        "b_T = -2": ("$b_T$ = −2", TINTS.own[0]),
        "-L/10": ("$b_T$ = −L/10", TINTS.own[1]),
        "chrono": ("T drawn", TINTS.own[2]), "constant T": ("T = {:g}", TINTS.own[3])}

LOW = 1                 # the largest S that all depths tried and trained well with


def trained_on(plan: dict) -> str:
    """The data of most nets, as a note."""
    return (f"{drawing.data_of(plan)}: {plan['n_train']:,} images, {plan['epochs']} "
            "epochs of highway nets")


def draw_law(record: dict) -> Figure:
    """Loss by S, a line for each depth, a panel for each optimiser."""
    depths = sorted({row["depth"] for row in record["sums"]})
    figure, panels = drawing.sheet(
        f"If the T of all blocks add up to {LOW} or less, nets of {depths[0]} to "
        f"{depths[-1]:,} blocks train",
        trained_on(record["plan"]), f"means of {len(record['plan']['seeds'])} seeds",
        "S is the sum of T over all blocks before training, so it is below their "
        f"number; grey: S up to {LOW}", columns=len(OPTIMIZERS), sharey=True)
    for axes, (optimizer, name) in zip(panels, OPTIMIZERS.items(), strict=True):
        for place, depth in enumerate(depths):
            rows = [row for row in record["sums"]
                    if (row["depth"], row["optimizer"]) == (depth, optimizer)]
            axes.plot([row["S"] for row in rows],
                      np.minimum([mean_loss(row) for row in rows], GUESSING),
                      color=colormaps["viridis_r"]((place + 1) / len(depths)),
                      linewidth=1.5, marker="o", markersize=3.5, label=f"{depth:,}")
        axes.set(xscale="log", yscale="log", xlabel="S (log scale)")
        ends = axes.get_xlim()
        axes.axvspan(ends[0], LOW, color=TINTS.grid, alpha=0.5, zorder=0)
        axes.set_xlim(ends)
        axes.set_title(name, size=10, loc="right")
        axes.xaxis.set_major_formatter("{x:g}")
        drawing.plain_numbers(axes.yaxis)
    label_y(panels[0], "training loss (log scale)")
    panels[0].legend(title="blocks", frameon=False, fontsize=SMALL, loc="upper left")
    return figure


def draw_rules(record: dict) -> Figure:
    """Loss over depth for each rule, highway blocks and Adam."""
    lines: dict[str, dict] = {}
    for depth, row in all_losses(record).items():
        for rule, losses in row.items():
            lines.setdefault(rule, {})[depth] = np.minimum(
                [mean_loss({"train_loss": losses}), *or_infinite(losses)], GUESSING)
    plan = record["plan"]
    ours = {depth: losses[0] for depth, losses in lines["S = 1"].items()}
    least, most = min(ours), max(ours)
    near = max(ours.values()) < 2 * min(ours.values())
    alike = "about the same loss" if near else "different losses"
    seeds = sorted({len(plan["seeds"]), *(len(row["train_loss"])
                                          for row in record["controls"]["nets"])})
    figure, axes = drawing.sheet(
        f"With $b_T$\xa0=\xa0logit(1/L) nets of {least} and of {most:,} blocks train "
        f"to {alike}", trained_on(plan),
        f"mean and range of {seeds[0]} to {seeds[-1]} seeds", "L: number of blocks",
        "T drawn: from 1/L to 1/2 for each unit",
        "−L/10 was not tried beyond 300 blocks; at 10,000, T = 0.0001 is 1/L",
        height=3.6)
    labels = [(GUESSING, "chance", TINTS.soft)]
    for rule, losses in lines.items():
        name, colour = RULES[rule]
        axes.plot([*losses], [row[0] for row in losses.values()], color=colour,
                  linewidth=1.6, marker="o", markersize=4,
                  linestyle=drawing.DASHED if rule == "constant T" else "-")
        axes.fill_between([*losses], [row[1:].min() for row in losses.values()],
                          [row[1:].max() for row in losses.values()], color=colour,
                          alpha=0.15, linewidth=0)
        labels.append((losses[max(losses)][0], name.format(plan["constant_T"]), colour))
    drawing.draw_level(axes, GUESSING)
    fit_depths(axes, sorted(ours))
    axes.xaxis.set_major_formatter("{x:,.0f}")
    drawing.log_y(axes, "training loss")
    label_right(axes, labels)
    return figure


def draw_map(record: dict) -> Figure:
    """Training loss by b_T, the highest first, and depth as a heat map, written into
    its cells, with a frame where P1's guideline lies."""
    plan, rows = record["plan"], record["map"]
    depths, biases = (sorted({row[name] for row in rows}, reverse=name == "gate_bias")
                      for name in ("depth", "gate_bias"))
    values = np.full((len(biases), len(depths)), np.nan)
    for row in rows:
        losses = [GUESSING if loss is None else loss for loss in row["train_loss"]]
        at = biases.index(row["gate_bias"]), depths.index(row["depth"])
        values[at] = np.median(losses)
    tops = {depth: biases[int(np.argmax(column < TRAINS))]
            for depth, column in zip(depths, values.T, strict=True)
            if column[0] >= TRAINS and (column < TRAINS).any()}
    ends = [f"{drawing.signed(tops[depth])} at {depth}" for depth in sorted({
        min(tops), max(tops)})] if tops else []
    seeds = [len(row["train_loss"]) for row in rows]
    figure, axes = drawing.sheet(
        "The largest $b_T$ that trains is "
        f"{', '.join(ends) or 'not found, in nets of any number of'} blocks",
        trained_on(plan), f"training loss at the better of {len(plan['map']['lrs'])} "
        f"rates, median of {min(seeds)} to {max(seeds)} seeds",
        f"framed: the paper's guideline; {GUESSING:.2f}: chance; trains: the loss is "
        f"below {TRAINS:.2f}", height=4.4)
    norm = LogNorm(values.min(), GUESSING)
    image = axes.imshow(values, cmap="viridis_r", norm=norm, aspect="auto")
    for (y, x), value in np.ndenumerate(values):
        dark = sum(image.cmap(norm(value))[:3]) < 1.3
        axes.text(x, y, f"{value:.2f}", size=9, ha="center",
                  va="center", color="white" if dark else "black")
    for layers, bias in GUIDELINE.items():
        if layers - 1 in depths and bias in biases:
            axes.add_patch(Rectangle(
                (depths.index(layers - 1) - 0.5, biases.index(bias) - 0.5), 1, 1,
                fill=False, edgecolor=drawing.colour_of("plain"), linewidth=2.5))
    axes.set_xticks(range(len(depths)), depths)
    axes.set_yticks(range(len(biases)), map(drawing.signed, biases))
    axes.set_xlabel("blocks")
    label_y(axes, "$b_T$ before training")
    axes.spines[:].set_visible(False)
    return figure


def draw_use(record: dict) -> Figure:
    """The loss of nets of which only the first blocks are left open, first seed: those
    of the tutorial's depth, with the best b_T and with the shut one."""
    shut = record["plan"]["thousand"]["shut"]
    rows = [min(record["thousand"], key=mean_loss),
            *(row for row in record["thousand"] if row["gate_bias"] == shut)]
    needs = {drawing.signed(row["gate_bias"]): [used["prefix"] for used in row["used"]]
             for row in rows}
    enough = "; with ".join(
        f"{bias} the loss depends on the first {min(counts)} to {max(counts)} of "
        f"{rows[0]['depth']} blocks" if any(counts) else f"{bias} on none"
        for bias, counts in needs.items())
    figure, axes = drawing.sheet(
        f"With $b_T$\xa0=\xa0{enough}",
        f"{drawing.data_of(record['plan'])}: all images, lines of one seed",
        "the number of first blocks that keep the loss within "
        f"{100 * (KEEPS - 1):.0f} % (dotted); range of the seeds",
        "blocks are counted: they may work side by side")
    for row, colour in zip(rows, TINTS.own, strict=False):
        used = row["used"][0]
        cut = np.array(used["cut_loss"]) / used["loss"]
        blocks = np.linspace(0, row["depth"], len(cut))
        axes.plot(blocks, cut, color=colour)
        axes.annotate(f"$b_T$ = {drawing.signed(row['gate_bias'])}",
                      (blocks[len(cut) // 2], cut[len(cut) // 2]), (0, 10),
                      textcoords="offset points", color=colour)
    drawing.draw_level(axes, KEEPS)
    axes.set_xlabel(f"first blocks that are left open, of {rows[0]['depth']}")
    drawing.log_y(axes, "training loss / that of the whole net")
    return figure


FIGURES = {"figure": draw_law, "rules": draw_rules, "map": draw_map, "use": draw_use}
