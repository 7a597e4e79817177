"""The two figures: what a pass moves, and what a trained net can do without."""

from __future__ import annotations

import numpy as np

from experiments.data_movement.claims import chosen, nets_of, ratios
from experiments.lab.experiment import for_figures
from experiments.lab.papers import spoken

with for_figures():
    from matplotlib.figure import Figure

    from experiments.lab.drawing import colour_of, data_of, plain_numbers, sheet
    from highway_suite.figures import SMALL, TINTS, label_y

MODEL = ("ByteDMD: a byte that is read costs the square root of its depth in a stack, "
         "where what was used last is on top")


def draw_passes(record: dict) -> Figure:
    """ByteDMD of every pass beside the plain net's: for each form a line over all sizes
    and batches, with its median."""
    carried, gated = (np.median([value for key, value in ratios(
        record, "bytedmd", block, False).items() if key[-1] == "forward"])
        for block in ("residual", "highway"))
    figure, axes = sheet(
        f"At equal width a highway net moves {gated:.2f} times a plain net's data, a "
        f"residual net {carried:.2f} times", "least, median and most of "
        "all sizes and batches", "the title: medians of forward passes", MODEL)
    forms = [block for block in record["plan"]["forms"] if block != "plain"]
    rows = [(f"{spoken(block)}, same width", block, False) for block in forms]
    rows.append(("highway, same parameters", "highway", True))
    for place, (_, block, matched) in enumerate(rows):
        found = ratios(record, "bytedmd", block, matched)
        for name, fill, row in (("forward", "full", place - 0.15),
                                ("step", "none", place + 0.15)):
            own = [value for key, value in found.items() if key[-1] == name]
            axes.plot([min(own), max(own)], [row, row], color=colour_of(block))
            axes.plot(np.median(own), row, "o", color=colour_of(block), markersize=7,
                      fillstyle=fill, markerfacecoloralt=TINTS.paper)
    for name, fill in (("forward pass", "full"), ("training step", "none")):
        axes.plot([], [], "o", color=TINTS.soft, markersize=7, fillstyle=fill,
                  label=name)
    axes.axvline(1, color=TINTS.soft, linewidth=1.2, linestyle=":")
    axes.set(xscale="log", xlabel="ByteDMD of a pass / the plain net's")
    axes.set_yticks(range(len(rows)), [label for label, _, _ in rows])
    axes.invert_yaxis()
    plain_numbers(axes.xaxis)
    axes.legend(frameon=False, fontsize=SMALL, loc="lower left",
                bbox_to_anchor=(-0.02, 0.98), ncols=2)
    return figure


def draw_skipping(record: dict) -> Figure:
    """Test accuracy of highway nets without some blocks, over the movement of one
    image's forward pass in units of the whole net's; marks were trained small."""
    own = nets_of(record, "highway")
    blocks = [chosen(net, "left_out", record["plan"]["lost"]) for net in own]
    left = [len(net["closed"]) - row["left_out"]
            for net, row in zip(own, blocks, strict=True)]
    small = record["small"][0]
    figure, axes = sheet(
        f"New nets of {small['depth']} blocks are "
        + ("more" if min(small["test"]) > max(row["test"] for row in blocks) else
           "not more") + f" accurate than nets of {len(own[0]['closed'])} that are "
        f"pruned to {min(left)}–{max(left)}",
        f"{data_of(record['plan'])}; {len(own)} nets of "
        f"{len(own[0]['closed'])} blocks", "pruned: without the least needed blocks",
        MODEL, height=3.9)
    unit = own[0]["whole"]["bytedmd"]
    for net in own:
        axes.plot([row["bytedmd"] / unit for row in net["left_out"]],
                  [100 * row["test"] for row in net["left_out"]],
                  color=colour_of("highway"), linewidth=1, marker=".", markersize=4)
    axes.plot([row["bytedmd"] / unit for row in blocks],
              [100 * row["test"] for row in blocks], "o", color=colour_of("highway"),
              markersize=8)
    for row in record["small"]:
        axes.plot([row["bytedmd"] / unit] * len(row["test"]),
                  100 * np.array(row["test"]), "D", color=TINTS.ink, markersize=4,
                  fillstyle="none")
        axes.annotate(f"{row['depth']}", (row["bytedmd"] / unit,
                                          100 * max(row["test"])), (0, 5),
                      textcoords="offset points", ha="center")
    best = 100 * max(net["whole"]["test"] for net in record["skipping"])
    axes.set(xlabel="ByteDMD of a forward pass / the whole net's", xlim=(0, 1.03),
             ylim=(best - 9, best + 1.3))
    label_y(axes, "test accuracy, %")
    for height, colour, told in (
            (0.28, TINTS.ink, "◇ trained with as many blocks\nas stand above"),
            (0.05, colour_of("highway"), "pruned from the whole net;\n"
             f"● {min(left)} to {max(left)} blocks are left")):
        axes.text(0.98, height, told, color=colour, ha="right",
                  transform=axes.transAxes)
    return figure
