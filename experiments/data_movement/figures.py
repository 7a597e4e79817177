"""The two figures: what a pass moves, and what a trained net can do without."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator

from experiments.data_movement.claims import as_small, chosen, nets_of, ratios
from experiments.lab.drawing import GREY, colour_of, title_of
from experiments.lab.papers import spoken
from highway_suite.figures import TITLE

MODEL = ("ByteDMD: a byte that is read costs the square root of its depth in a stack, "
         "where what was used last is on top")


def draw_passes(record: dict) -> Figure:
    """ByteDMD of every pass beside the plain net's: a row of marks for each form, one
    for each size and batch, from the least net at its top to the largest."""
    figure = Figure(figsize=(8, 4), layout="constrained")
    axes = figure.subplots()
    forms = [block for block in record["plan"]["forms"] if block != "plain"]
    rows = [(f"{spoken(block)}, same width", block, False) for block in forms]
    rows.append(("highway, same parameters", "highway", True))
    for place, (_, block, matched) in enumerate(rows):
        found = ratios(record, "bytedmd", block, matched)
        for name, marker in (("forward", "o"), ("step", "s")):
            own = [found[key] for key in sorted(found) if key[-1] == name]
            axes.plot(own, place + np.linspace(-0.3, 0.3, len(own)), marker,
                      color=colour_of(block), markersize=3.5, markeredgewidth=0.8,
                      fillstyle="full" if name == "forward" else "none")
    for name, marker, fill in (("forward pass", "o", "full"),
                               ("training step", "s", "none")):
        axes.plot([], [], marker, color=GREY, markersize=4, fillstyle=fill, label=name)
    axes.axvline(1, color=GREY, linewidth=1)
    axes.set(xscale="log", xlabel="ByteDMD of a pass, in units of the plain net's",
             yticks=range(len(rows)), yticklabels=[label for label, _, _ in rows])
    axes.xaxis.set_major_locator(FixedLocator([0.8, 1, 1.5, 2, 3, 4]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter("{x:g}")
    axes.invert_yaxis()
    axes.legend(frameon=False, loc="lower right")
    figure.suptitle("The carry path saves no data movement, and a gate costs its "
                    "matrix", **TITLE)
    figure.supxlabel(f"A mark for each size and batch.\n{MODEL}", size=8.5)
    return figure


def draw_skipping(record: dict) -> Figure:
    """Test accuracy of highway nets without some blocks, over the movement of one
    image's forward pass in units of the whole net's; marks were trained small."""
    figure = Figure(figsize=(8, 4.4), layout="constrained")
    axes, own = figure.subplots(), nets_of(record, "highway")
    unit = own[0]["whole"]["bytedmd"]
    for number, net in enumerate(own):
        axes.plot([row["bytedmd"] / unit for row in net["left_out"]],
                  [100 * row["test"] for row in net["left_out"]],
                  color=colour_of("highway"), linewidth=1, marker=".", markersize=4,
                  label="" if number else "trained with all blocks, some left out")
    depths = [row["depth"] for row in record["small"]]
    label = f"trained with {min(depths)} to {max(depths)} blocks"
    for row in record["small"]:
        axes.plot([row["bytedmd"] / unit] * len(row["test"]),
                  100 * np.array(row["test"]), "D", color="black", markersize=4,
                  fillstyle="none", label=label if row["depth"] == min(depths) else "")
        axes.annotate(f"{row['depth']}", (row["bytedmd"] / unit,
                                          100 * max(row["test"])), (0, 5),
                      textcoords="offset points", ha="center", size=8)
    best = 100 * max(net["whole"]["test"] for net in record["skipping"])
    axes.set(xlabel="ByteDMD of a forward pass, in units of the whole net's",
             ylabel="test accuracy, %", xlim=(0, 1.03), ylim=(best - 9, best + 1))
    axes.legend(frameon=False, loc="lower right", fontsize=10)
    blocks = [chosen(net, "left_out", record["plan"]["lost"]) for net in own]
    small = as_small(record, blocks)
    read = sorted(100 * row["test"] for row in blocks)
    figure.suptitle(f"A highway net pruned to {min(map(kept, blocks, own))} to "
                    f"{max(map(kept, blocks, own))} blocks reads {read[0]:.1f} to "
                    f"{read[-1]:.1f} %,\none trained with {small['depth']} blocks "
                    f"{100 * min(small['test']):.1f} to {100 * max(small['test']):.1f} "
                    "%", **TITLE)
    figure.supxlabel(f"{title_of(record['plan'])}; {len(own)} highway nets of "
                     f"{len(own[0]['closed'])} blocks, least needed blocks left out",
                     size=8.5)
    return figure


def kept(row: dict, net: dict) -> int:
    """How many blocks are not left out."""
    return len(net["closed"]) - row["left_out"]
