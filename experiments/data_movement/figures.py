"""The two figures: what a pass moves, and what a trained net can do without."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator

from experiments.data_movement.claims import chosen, ratios
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
    """Test accuracy over the movement of one image's forward pass, for every net."""
    figure = Figure(figsize=(8, 4.2), layout="constrained")
    axes, nets = figure.subplots(), record["skipping"]
    colours = {"left_out": colour_of("highway"), "gates": GREY}
    labels = {"left_out": "blocks left out", "gates": "units of closed gates skipped"}
    for what, colour in colours.items():
        for number, net in enumerate(nets):
            x = [row["bytedmd"] / net["whole"]["bytedmd"] for row in net[what]]
            for dashes, values, label in (
                    ("-", [row["test"] for row in net[what]], labels[what]),
                    (":", [np.median(row["random"]) for row in net[what]],
                     "as many at random")):
                axes.plot(x, 100 * np.array(values), dashes, color=colour, linewidth=1,
                          marker="." if dashes == "-" else "", markersize=4, alpha=0.7,
                          label="" if number else label)
    best = 100 * max(net["whole"]["test"] for net in nets)
    axes.set(xlabel="ByteDMD of one image's forward pass, in units of the whole net's",
             ylabel="test accuracy, %", xlim=(0, 1.03), ylim=(best - 17, best + 1))
    axes.legend(frameon=False, loc="lower right")
    blocks = [chosen(net, "left_out", record["plan"]["lost"]) for net in nets]
    counts = sorted(row["left_out"] for row in blocks)
    figure.suptitle(f"{counts[0]} to {counts[-1]} of {record['plan']['net']['depth']} "
                    "trained blocks can be left out for "
                    f"{np.median([row['lost'] for row in blocks]):.1f} points of "
                    "accuracy", **TITLE)
    figure.supxlabel(f"{title_of(record['plan'])}; {len(nets)} highway nets, of each "
                     "the blocks whose closing costs least", size=8.5)
    return figure
