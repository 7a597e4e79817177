"""The figures of `depth`: the law, rules, the map of b_T, the use of the depth."""

from __future__ import annotations

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from experiments.depth.claims import OPTIMIZERS
from experiments.depth.controls import all_losses, shallow_rows
from experiments.depth.plan import TRAINS
from experiments.depth.record import GUESSING, mean_loss
from experiments.depth.training import KEEPS
from experiments.lab.drawing import format_log, plain_numbers, title_of
from experiments.lab.papers import GUIDELINE
from highway_suite.figures import LIGHT, TITLE, label_right

LOW = 2                 # the largest S with which nets of all depths train well


def one_panel(record: dict, title: str, height: float = 4.4) -> tuple[Figure, Axes]:
    """A figure of one panel: its message, and what the nets are."""
    plan = record["plan"]
    figure = Figure(figsize=(7.5, height), layout="constrained")
    figure.suptitle(title, **TITLE)
    figure.supxlabel(f"{title_of(plan)}: {plan['n_train']:,} images, {plan['epochs']} "
                     f"epochs, {len(plan['seeds'])} seeds", size=8.5)
    return figure, figure.subplots()


def shades(names: list) -> dict:
    """A colour for each name, the later the darker."""
    return {name: colormaps["viridis_r"](0.1 + 0.9 * place / max(len(names) - 1, 1))
            for place, name in enumerate(names)}


def draw_law(record: dict) -> Figure:
    """Loss by S, a line for each depth, a panel for each optimiser."""
    low = [mean_loss(row) for row in record["sums"]
           if row["optimizer"] == "adam" and row["S"] <= LOW]
    depths = sorted({row["depth"] for row in record["sums"]})
    figure, first = one_panel(
        record, f"Up to S = {LOW} nets of {depths[0]} to {depths[-1]:,} blocks train,\n"
        f"with Adam to a loss of {min(low):.3f} to {max(low):.3f}")
    first.remove()
    panels = figure.subplots(1, len(OPTIMIZERS), sharey=True)
    colours = shades(depths)
    for axes, (optimizer, name) in zip(panels, OPTIMIZERS.items(), strict=True):
        for depth in depths:
            rows = [row for row in record["sums"]
                    if (row["depth"], row["optimizer"]) == (depth, optimizer)]
            axes.plot([row["S"] for row in rows],
                      np.minimum([mean_loss(row) for row in rows], GUESSING),
                      color=colours[depth], linewidth=1.5, marker="o", markersize=3,
                      label=f"{depth:,}")
        axes.axvline(1, color=LIGHT.soft, linewidth=1, linestyle=":")
        axes.set(xscale="log", yscale="log", title=name, xlabel="S: sum of T over all "
                 "blocks,\nbefore training")
        axes.xaxis.set_major_formatter("{x:g}")
        format_log(axes.yaxis)
    panels[0].set_ylabel("training loss")
    panels[0].legend(title="blocks", frameon=False, fontsize=8, loc="upper left")
    return figure


RULES = {       # rule: its name in the figure and its colour
    "S = 1": ("$b_T$ = logit(1/L)", LIGHT.highway),
    "b_T = -2": ("$b_T$ = −2", LIGHT.plain),
    "-L/10": ("$b_T$ = −L/10", "#CC79A7"), "chrono": ("T by chance", "#009E73"),
    "constant T": ("T = {:g}", "#444444")}


def draw_rules(record: dict) -> Figure:
    """Loss over depth for each rule, highway blocks and Adam; that of the deepest
    shallow net as a line across."""
    lines: dict[str, dict] = {}
    for depth, row in all_losses(record).items():
        for rule, losses in row.items():
            loss = mean_loss({"train_loss": losses})
            lines.setdefault(rule, {})[depth] = min(loss, GUESSING)
    deepest = max(lines["S = 1"])
    shallow = {row["depth"]: mean_loss(row) for row in shallow_rows(record)}
    ten = max(shallow)
    figure, axes = one_panel(record, f"Loss with $b_T$ = logit(1/L): {ten} blocks "
                             f"{shallow[ten]:.3f}, {deepest:,} blocks "
                             f"{lines['S = 1'][deepest]:.3f}")
    labels = []
    for rule, losses in lines.items():
        name, colour = RULES[rule]
        name = name.format(record["plan"]["constant_T"])
        axes.plot([*losses], [*losses.values()], color=colour, linewidth=1.6,
                  marker="o", markersize=4,
                  linestyle="-" if rule != "constant T" else (0, (3, 1.2)))
        labels.append((losses[max(losses)], name, colour))
    axes.axhline(shallow[ten], color=LIGHT.soft, linewidth=1, zorder=0)
    labels.append((shallow[ten], f"{ten} blocks", LIGHT.soft))
    axes.axhline(GUESSING, color=LIGHT.soft, linewidth=1, linestyle=":")
    axes.set(xscale="log", yscale="log", xlabel="blocks",
             ylabel="training loss (dotted: guessing)")
    depths = sorted(lines["S = 1"])
    axes.set_xticks(depths, [f"{depth:,}" for depth in depths])
    axes.minorticks_off()
    format_log(axes.yaxis)
    label_right(axes, labels)
    plan = record["plan"]
    seeds = sorted({len(plan["seeds"]), *(len(row["train_loss"])
                                          for row in record["controls"]["nets"])})
    figure.supxlabel(f"{title_of(plan)}: {plan['n_train']:,} images, {plan['epochs']} "
                     f"epochs, {seeds[0]} to {seeds[-1]} seeds; L blocks", size=8.5)
    return figure


def map_of(rows: list[dict]) -> tuple[list, list, np.ndarray]:
    """Depths, b_T from the highest on, and the median loss over the seeds at each."""
    depths, biases = (sorted({row[name] for row in rows})
                      for name in ("depth", "gate_bias"))
    biases.reverse()
    values = np.full((len(biases), len(depths)), np.nan)
    for row in rows:
        losses = [GUESSING if loss is None else loss for loss in row["train_loss"]]
        values[biases.index(row["gate_bias"]), depths.index(row["depth"])] = np.median(
            losses)
    return depths, biases, values


def draw_map(record: dict) -> Figure:
    """Training loss by b_T and depth as a heat map, written into its cells, with a
    frame where P1's guideline lies."""
    plan = record["plan"]
    depths, biases, values = map_of(record["map"])
    tops = {depth: biases[int(np.argmax(column < TRAINS))]
            for depth, column in zip(depths, values.T, strict=True)
            if column[0] >= TRAINS and (column < TRAINS).any()}
    ends = [f"{tops[depth]:g} at {depth}" for depth in sorted({min(tops), max(tops)})
            ] if tops else []
    figure, axes = one_panel(record, "Largest $b_T$ that trains: " + (
        ", ".join(ends) or "not found, in nets of any number of") + " blocks", 5)
    norm = LogNorm(values.min(), GUESSING)
    image = axes.imshow(values, cmap="viridis_r", norm=norm, aspect="auto")
    for (row, column), value in np.ndenumerate(values):
        dark = sum(image.cmap(norm(value))[:3]) < 1.3
        axes.text(column, row, f"{value:.2g}", size=8, ha="center", va="center",
                  color="white" if dark else "black")
    for layers, bias in GUIDELINE.items():
        if layers - 1 in depths and bias in biases:
            at = depths.index(layers - 1) - 0.5, biases.index(bias) - 0.5
            axes.add_patch(Rectangle(at, 1, 1, fill=False, edgecolor=LIGHT.plain,
                                     linewidth=2))
    axes.set_xticks(range(len(depths)), depths)
    axes.set_yticks(range(len(biases)), [f"{bias:g}" for bias in biases])
    axes.set(xlabel="blocks", ylabel="initial $b_T$",
             title="training loss of highway nets (framed: P1's guideline)")
    axes.spines[:].set_visible(False)
    seeds = [len(row["train_loss"]) for row in record["map"]]
    figure.supxlabel(f"{title_of(plan)}: {plan['n_train']:,} images, {plan['epochs']} "
                     f"epochs, the better of {len(plan['map']['lrs'])} rates; median "
                     f"of {min(seeds)} to {max(seeds)} seeds", size=8.5)
    return figure


def draw_use(record: dict) -> Figure:
    """The loss of nets of which only the first blocks are left open, first seed: 1000
    layers with the best b_T and with the shut one, and the deepest."""
    shut = record["plan"]["thousand"]["shut"]
    rows = [min(record["thousand"], key=mean_loss),
            *(row for row in record["thousand"] if row["gate_bias"] == shut)]
    lines = {f"{row['depth']:,} blocks, $b_T$ = {row['gate_bias']:g}": row["used"][0]
             for row in rows}
    deepest = max(record["full"], key=lambda row: row["depth"])
    depth, last = deepest["depth"], deepest["used"][0]
    lines[f"{depth:,} blocks, $b_T$ = logit(1/L)"] = last
    figure, axes = one_panel(record, "First blocks needed: " + ", ".join(
        f"{row['used'][0]['prefix']} with $b_T$ = {row['gate_bias']:g}"
        for row in rows))
    for (name, used), colour in zip(lines.items(), shades([*lines]).values(),
                                    strict=True):
        cut = np.array(used["cut_loss"]) / used["loss"]
        axes.plot(np.linspace(0, 100, len(cut)), cut, color=colour, linewidth=1.8,
                  label=name)
    axes.axhline(KEEPS, color=LIGHT.soft, linewidth=1, linestyle=":")
    axes.set(yscale="log", ylabel="loss / loss of the whole net",
             xlabel="blocks left open from the input on, %")
    plain_numbers(axes.yaxis)
    axes.legend(frameon=False, fontsize=8)
    figure.supxlabel(f"{title_of(record['plan'])}: all images, one seed", size=8.5)
    return figure


FIGURES = {"figure": draw_law, "rules": draw_rules, "map": draw_map, "use": draw_use}
