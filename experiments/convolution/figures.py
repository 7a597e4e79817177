"""The figures of `convolution`, each with one message."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.convolution.claims import TRAINS, best_losses, losses_of
from experiments.convolution.plan import BIASES, GATES
from experiments.lab.drawing import DASHES, colour_of, format_log, pale
from experiments.lab.judging import or_infinite
from experiments.lab.papers import TABLE_1, TABLE_2
from highway_suite.figures import LIGHT, TITLE

STRENGTH, MARKS = {3: 1.0, 1: 0.65, 0: 0.4}, {3: "o", 1: "s", 0: "D"}


def label_of(row: dict) -> str:
    """A net of a table: its kind, its width where there are several, whose settings."""
    width = f", width {row['width']}" if "width" in row else ""
    other = "" if row["settings_of"] == row["net"] else (
        "\n(the authors' settings)" if row["settings_of"] == "authors" else
        "\n(settings of width 16)")
    return f"{row['block']}{width}{other}"


def draw_table(axes: Axes, table: dict, theirs: dict[int, Any], title: str) -> None:
    """A line for each net: its runs, their mean, and the paper's."""
    rows = table["nets"]
    for at, row in enumerate(rows):
        runs = [value for value in row["test_percent"] if value is not None]
        axes.plot(runs, [at] * len(runs), "o", color=colour_of(row["block"]),
                  markersize=6, alpha=0.7, markeredgewidth=0)
        if row["mean"] is not None:
            axes.plot(row["mean"], at, "|", color=LIGHT.ink, markersize=16,
                      markeredgewidth=2)
        if (paper := theirs.get(at)) is not None:
            axes.plot(paper, at, "D", color=LIGHT.ink, fillstyle="none", markersize=8)
    axes.plot([], [], "o", color=LIGHT.soft, label="a run of ours")
    axes.plot([], [], "|", color=LIGHT.ink, markersize=12, markeredgewidth=2,
              label="our mean")
    axes.plot([], [], "D", color=LIGHT.ink, fillstyle="none", label="the paper's mean")
    axes.set_yticks(range(len(rows)), map(label_of, rows), size=9)
    axes.set(xlabel="test accuracy, %", ylim=(len(rows) - 0.5, -0.5), title=title)
    axes.title.set_fontsize(10)
    axes.grid(axis="x")


def draw_tables(record: dict) -> Figure:
    """Tables 1 and 2: ours beside the paper's."""
    one, two = record["table_1"], record["table_2"]
    figure = Figure(figsize=(6.5, 5), layout="constrained")
    upper, lower = figure.subplots(2, 1, height_ratios=(3, 2))
    draw_table(upper, one, {at: TABLE_1[row["width"]]["mean"] for at, row in enumerate(
        one["nets"]) if row["block"] == "highway" and row["settings_of"] == row["net"]
        and row["width"] in TABLE_1}, f"Table 1, {one['title']}: "
        f"{one['nets'][0]['epochs']} epochs (theirs: 300)")
    draw_table(lower, two, {at: TABLE_2["Highway A"] for at, row in enumerate(
        two["nets"]) if row["block"] == "highway"},
        f"Table 2, {two['title']}: {two['nets'][0]['epochs']} epochs")
    figure.legend(*upper.get_legend_handles_labels(), ncols=3, frameon=False,
                  loc="outside lower center", fontsize=9)
    reached = " and ".join("–" if row["mean"] is None else f"{row['mean']:.2f}"
                           for row in one["nets"] if row["block"] == "highway"
                           and row["settings_of"] == row["net"])
    theirs = " and ".join(f"{row['mean']:.2f}" for row in TABLE_1.values())
    figure.suptitle(f"Highway nets of Table 1:\nours {reached} %, theirs {theirs} %",
                    **TITLE)
    return figure


def draw_depths(record: dict) -> Figure:
    """The last training loss by depth, of each kind at its best rate."""
    figure = Figure(figsize=(6.5, 4), layout="constrained")
    axes, deepest = figure.subplots(), {}
    for block in ("highway", "plain"):
        rows = [row for row in record["depths"] if row["block"] == block]
        depths = [row["depth"] for row in rows]
        losses = or_infinite([row["train_loss"] for row in rows])
        medians = np.median(losses, axis=1)
        deepest[block] = medians[-1]
        axes.plot(depths, medians, color=colour_of(block),
                  linestyle=DASHES[block], label=f"{block}, median")
        axes.plot(depths, losses, "o", color=colour_of(block), markersize=5, alpha=0.7)
    axes.axhline(np.log(10), color=LIGHT.soft, linewidth=1, linestyle=":",
                 label="guessing")
    epochs = record["plan"]["depths"]["net"]["epochs"]
    axes.set(yscale="log", xlabel="highway layers (plain net: as many without gates)",
             ylabel="last mean training loss", xticks=depths)
    format_log(axes.yaxis)
    axes.margins(y=0.12)
    axes.legend(frameon=False, fontsize=9, loc="center right")
    axes.set_title(f"{depths[-1]} layers end at a loss of {deepest['highway']:.2g} "
                   f"with gates,\n{deepest['plain']:.2g} without ({epochs} epochs, "
                   f"medians, n = {losses.shape[1]})", **TITLE)
    return figure


def trained(record: dict, depth: int, bias: float) -> str:
    """How many of all runs of one depth and b_T train."""
    losses = np.concatenate([losses_of(row).ravel() for row in record["gates"]
                             if (row["depth"], row["gate_bias"]) == (depth, bias)])
    return f"{np.sum(losses < TRAINS)} of {losses.size}"


def draw_biases(record: dict) -> Figure:
    """The last training loss by b_T and gate, at both depths."""
    depths = record["plan"]["gates"]["depths"]
    figure = Figure(figsize=(7, 4), layout="constrained")
    panels = figure.subplots(1, len(depths), sharey=True)
    for axes, depth in zip(panels, depths, strict=True):
        for gate, name in GATES.items():
            rows = [row for row in record["gates"]
                    if (row["depth"], row["gate"]) == (depth, gate)]
            losses = np.array([best_losses(row) for row in rows])
            at = np.array([row["gate_bias"] for row in rows]) + 0.07 * (1 - gate)
            colour = pale(LIGHT.highway, STRENGTH[gate])
            axes.plot(at, np.median(losses, axis=1), MARKS[gate], color=colour,
                      linestyle="-" if gate == 3 else "--", markersize=7,
                      fillstyle="none", label=name)
            axes.plot(at, losses, MARKS[gate], color=colour, markersize=3)
        axes.axhline(TRAINS, color=LIGHT.soft, linewidth=1, linestyle=":")
        axes.axvline(BIASES[depth], color=LIGHT.grid, linewidth=14, zorder=0)
        axes.set(yscale="log", xlabel="first b_T (grey: the guideline's)",
                 title=f"{depth} highway layers", xticks=record["plan"]["gates"][
                     "biases"])
        axes.title.set_fontsize(10)
        axes.invert_xaxis()
        format_log(axes.yaxis)
    panels[0].set_ylabel("last training loss, best rate")
    panels[0].legend(frameon=False, fontsize=9, title="rings: median",
                     title_fontsize=8)
    figure.suptitle(f"Runs of {depths[-1]} layers that train: " + ", ".join(
        f"{trained(record, depths[-1], bias)} with b_T = {bias:g}"
        for bias in (-1.0, BIASES[depths[-1]])), **TITLE)
    return figure


FIGURES = {"figure": draw_tables, "depth": draw_depths, "gates": draw_biases}
