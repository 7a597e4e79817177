"""The figure of `depth_law`, four panels."""

from __future__ import annotations

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from experiments.depth_law.record import GUESSING, OPTIMIZERS, mean_loss
from experiments.depth_law.verdicts import MOVED, rule_losses
from experiments.lab.drawing import format_log, title_of
from highway_suite.figures import LIGHT, TITLE, label_right


def depth_colours(depths: list[int]) -> dict[int, tuple]:
    """A colour for each depth, the deeper the darker."""
    return {depth: colormaps["viridis_r"](0.1 + 0.9 * place / max(len(depths) - 1, 1))
            for place, depth in enumerate(depths)}


def draw_collapse(axes: Axes, rows: list[dict]) -> None:
    """Loss against S, a line for each depth; Adam's below, SGD's above and dashed."""
    depths = sorted({row["depth"] for row in rows})
    colours = depth_colours(depths)
    for depth in depths:
        for optimizer, dashes in (("adam", "-"), ("sgd", (0, (3, 1.2)))):
            own = [row for row in rows if (row["depth"], row["optimizer"])
                   == (depth, optimizer)]
            axes.plot([row["S"] for row in own], np.minimum(
                [mean_loss(row) for row in own], GUESSING), color=colours[depth],
                linestyle=dashes, linewidth=1.5, marker="o", markersize=3,
                label=f"{depth:,}" if optimizer == "adam" else None)
    axes.set(xscale="log", yscale="log", xlabel="S: sum of T over all blocks, before "
             "training", ylabel="training loss",
             title="The loss follows S more than depth\n(dashed: SGD)")
    axes.axvline(1, color=LIGHT.soft, linewidth=1, linestyle=":")
    for optimizer, level in (("sgd", "bottom"), ("adam", "top")):
        first = [mean_loss(row) for row in rows if row["optimizer"] == optimizer
                 and row["S"] == min(other["S"] for other in rows)]
        high, factor = (max, 1.08) if level == "bottom" else (min, 1 / 1.08)
        axes.text(min(row["S"] for row in rows), factor * high(first),
                  OPTIMIZERS[optimizer], va=level)
    axes.set_ylim(bottom=0.8 * axes.get_ylim()[0])
    axes.legend(title="blocks", frameon=False, fontsize=8,
                loc="upper left")
    axes.set_xticks(ticks := [0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10],
                    [f"{S:g}" for S in ticks])
    axes.xaxis.set_minor_locator(NullLocator())
    format_log(axes.yaxis)


def draw_price(axes: Axes, rows: list[dict]) -> None:
    """For each depth the best S, the S within NEAR of it, and the price of S = 1."""
    depths = sorted({row["depth"] for row in rows})
    for row in rows:
        place = depths.index(row["depth"]) + (-0.14 if row["optimizer"] == "adam"
                                              else 0.14)
        colour = LIGHT.highway if row["optimizer"] == "adam" else LIGHT.plain
        axes.plot([place] * 2, row["near"], color=colour, linewidth=5, alpha=0.3,
                  solid_capstyle="round")
        axes.plot(place, row["best_S"], "o", color=colour, markersize=6)
        axes.text(place, 1.25 * row["near"][1], f"{100 * (row['price'] - 1):.0f}",
                  color=colour, ha="center", va="bottom", size=8)
    axes.axhline(1, color=LIGHT.soft, linewidth=1, linestyle=":")
    axes.set(yscale="log", ylabel="S", ylim=(0.02, 20),
             xlabel="blocks (layers after the projection)",
             title="The best S tried\n(bar: around it, within 20 % of its loss)")
    axes.set_xticks(range(len(depths)), [f"{depth:,}" for depth in depths])
    axes.text(0.02, 0.98, "Adam", color=LIGHT.highway, va="top",
              transform=axes.transAxes)
    axes.text(0.17, 0.98, "SGD", color=LIGHT.plain, va="top", transform=axes.transAxes)
    axes.text(0.98, 0.98, "numbers: what S = 1 costs, %", size=8, color=LIGHT.soft,
              ha="right", va="top", transform=axes.transAxes)
    format_log(axes.yaxis)


RULE_COLOURS = {"S = 1": LIGHT.highway, "b_T = -2": LIGHT.plain,
                "guideline": "#CC79A7", "chrono": "#009E73"}
RULE_NAMES = {"S = 1": "S = 1", "b_T = -2": "$b_T$ = −2",
              "guideline": "$b_T$ = −L/10", "chrono": "chrono"}


def draw_rules(axes: Axes, record: dict) -> None:
    """Loss over depth for each rule: highway blocks, and dashed T-only blocks."""
    labels = []
    for block, dashes in (("highway", "-"), ("t_only", (0, (3, 1.2)))):
        losses = rule_losses(record, block)
        for rule, colour in RULE_COLOURS.items():
            line = [(depth, min(row[rule], GUESSING)) for depth, row in losses.items()
                    if rule in row]
            if not line:
                continue
            axes.plot(*zip(*line, strict=True), color=colour, linestyle=dashes,
                      linewidth=1.6, marker="o", markersize=4,
                      fillstyle="full" if block == "highway" else "none")
            if block == "highway":
                labels.append((line[-1][1], RULE_NAMES[rule], colour))
    axes.axhline(GUESSING, color=LIGHT.soft, linewidth=1, linestyle=":")
    axes.set(xscale="log", yscale="log", xlabel="blocks (layers after the projection)",
             ylabel="training loss",
             title="S = 1 and other rules, Adam\n(dashed: T-only blocks)")
    axes.set_xlim(8, 13_000)
    axes.set_xticks([10, 30, 100, 300, 1000, 10_000],
                    ["10", "30", "100", "300", "1000", "10,000"])
    axes.minorticks_off()
    format_log(axes.yaxis)
    label_right(axes, labels)


def draw_border(axes: Axes, rows: list[dict]) -> None:
    """A row for each setting: the largest S that trains, a dot for each seed."""
    rows = sorted((row for row in rows if row["S"]), key=lambda row: row["median"])
    for place, row in enumerate(rows):
        base = not row["change"]
        colour = LIGHT.ink if base else LIGHT.highway
        axes.plot(row["S"], [place] * len(row["S"]), "o", color=colour, alpha=0.5,
                  markersize=4)
        axes.plot(row["median"], place, "|", color=colour, markersize=10)
        if base:
            axes.axvspan(row["median"] / MOVED, row["median"] * MOVED,
                         color=LIGHT.grid, alpha=0.5, linewidth=0)
    axes.set_yticks(range(len(rows)), [row["name"] for row in rows], size=7.5)
    axes.set(xscale="log", xlabel="largest S that trains",
             title="What moves the border\n(bar: a factor 1.25)")
    format_log(axes.xaxis)
    axes.grid(axis="y")


def draw(record: dict) -> Figure:
    """The record -> the figure of four panels."""
    figure = Figure(figsize=(10, 8.4), layout="constrained")
    (rules, collapse), (price, border) = figure.subplots(2, 2)
    draw_rules(rules, record)
    draw_collapse(collapse, sorted([*record["lower"], *record["collapse"]],
                                   key=lambda row: row["S"]))
    draw_price(price, record["price"])
    draw_border(border, record["border"])
    losses = [row["S = 1"] for row in rule_losses(record).values() if "S = 1" in row]
    depths = [f"{depth:,}" for depth in rule_losses(record)]
    figure.suptitle(f"Highway blocks and Adam, T that adds up to 1 before training: "
                    f"from {depths[0]} to {depths[-1]} blocks\nthe loss stays between "
                    f"{min(losses):.3f} and {max(losses):.3f}", **TITLE)
    own = record["protocol"]
    figure.supxlabel(f"{title_of(record)}: {own['n_train']:,} images, {own['epochs']} "
                     f"epochs, {len(own['seeds'])} seeds", fontsize=9)
    return figure
