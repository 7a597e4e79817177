"""The figures of a record, one message each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import CenteredNorm
from matplotlib.figure import Figure

import highway_networks as hn
from experiments.lab.drawing import colour_of, plain_numbers, title_of
from experiments.lab.papers import spoken
from experiments.trained_nets.claims import factors, matter, nets_at, rises
from highway_suite.figures import LIGHT, TITLE

WAYS = {"as computed": None, "mean over\nall images": "all",
        "mean over the\nimages of its class": "its class"}


def draw_routing(record: dict) -> Figure:
    """Training error of highway nets with T as computed, and held at a mean."""
    figure = Figure(figsize=(7.5, 3.6), layout="constrained")
    axes, nets = figure.subplots(), record["nets"]["highway"]
    errors = 100 * np.array([[net["held"][way][1] if way else net["error"]
                              for net in nets] for way in WAYS.values()])
    middle, colour = np.median(errors, axis=1), colour_of("highway")
    axes.bar(range(len(WAYS)), middle, 0.5, alpha=0.75, color=colour)
    axes.plot(errors, ".", color=LIGHT.ink, markersize=3)
    for place, value, most in zip(range(len(WAYS)), middle, errors.max(axis=1),
                                  strict=True):
        axes.text(place, most + 1.5, f"{value:.1f}", ha="center", size=9)
    axes.set(xticks=range(len(WAYS)), xticklabels=WAYS, ylabel="training error, %",
             xlabel="T of every unit in every block")
    axes.margins(y=0.12)
    figure.suptitle(f"T held at the mean of its class: {middle[2]:.1f} % errors; at "
                    f"the mean of all: {middle[1]:.0f} %", **TITLE)
    figure.supxlabel(f"{title_of(record['plan'])}: bars are medians, dots are the "
                     f"{len(nets)} highway nets", fontsize=8.5)
    return figure


def draw_band(axes: Axes, values: Sequence[Sequence[float]], colour: str, label: str
              ) -> None:
    """Median and range over nets of a number of each block, counted from 1."""
    values = np.array(values)
    blocks = np.arange(1, values.shape[1] + 1)
    axes.plot(blocks, np.median(values, axis=0), color=colour, linewidth=1.5,
              label=label)
    axes.fill_between(blocks, values.min(axis=0), values.max(axis=0), color=colour,
                      alpha=0.2, linewidth=0)


def draw_lesions(record: dict) -> Figure:
    """P1's Figure 4, for each kind of net."""
    figure = Figure(figsize=(7.5, 4), layout="constrained")
    axes, nets = figure.subplots(), record["nets"]
    for block, found in nets.items():
        draw_band(axes, [net["one_closed"]["loss"] for net in found],
                  colour_of(block), spoken(block))
        axes.axhline(np.median([net["loss"] for net in found]), linewidth=1,
                     color=colour_of(block), linestyle=":")
    spared = np.median([(factors(net) < 2).mean() for net in nets["highway"]])
    axes.set(yscale="log", xlabel="closed block", ylabel="training loss, nats")
    axes.legend(frameon=False, loc="upper right", bbox_to_anchor=(1, 0.83))
    figure.suptitle(f"{100 * spared:.0f} % of a highway net's blocks can be closed "
                    "alone without doubling its loss", **TITLE)
    figure.supxlabel(f"{title_of(record['plan'])}: median and range of "
                     f"{len(record['plan']['seeds'])} nets of each kind; dotted: no "
                     "block closed", fontsize=8.5)
    return figure


def heat(figure: Figure, axes: Axes, matrix: list, title: str, **look: Any) -> None:
    """Blocks by units, the first block on top, with a bar of its colours."""
    rows, columns = np.shape(matrix)
    image = axes.imshow(matrix, aspect="auto", interpolation="nearest",
                        extent=(0.5, columns + 0.5, rows + 0.5, 0.5), **look)
    axes.spines[:].set_visible(False)
    axes.tick_params(length=2, labelsize=8)
    axes.set_title(title, fontsize=9.5)
    axes.set_xlabel("unit", fontsize=9)
    figure.colorbar(image, ax=axes, location="bottom", aspect=18, pad=0.02
                    ).ax.tick_params(labelsize=8)


def seen_of(record: dict) -> dict[str, dict]:
    """{data set: what was kept of one of its highway nets}, MNIST first."""
    (seen,) = (net["picture"] for net in record["nets"]["highway"] if "picture" in net)
    return {record["plan"]["dataset"]: seen} | record["pictures"]


def draw_gates(record: dict) -> Figure:
    """P1's Figure 2, a row for each data set."""
    found = seen_of(record)
    figure = Figure(figsize=(9, 3.7 * len(found)), layout="constrained")
    rows = figure.subplots(len(found), 4, sharex=True, sharey=True, squeeze=False)
    for panels, (data, seen) in zip(rows, found.items(), strict=True):
        kind, start = hn.DATASETS[data], record["harder"][data]["gate_bias"]
        heat(figure, panels[0], seen["biases"], f"$b_T$ after training\n(white: "
             f"{start:g}, before it)", cmap="RdBu_r", norm=CenteredNorm(start))
        heat(figure, panels[1], seen["T_mean"], f"mean $T$ of {kind.images[0]:,}\n"
             "training images", vmin=0)
        heat(figure, panels[2], seen["T_one"], "$T$ of one image\n(of class "
             f"{seen['label']})", vmin=0, vmax=1)
        heat(figure, panels[3], seen["outputs_one"][1:], "block outputs $y$\nof the "
             "same image", cmap="RdBu_r", norm=CenteredNorm())
        panels[0].set_ylabel(f"{kind.title}\nblock", fontsize=9)
    figure.suptitle("Biases, gates and outputs, each row of one highway net", **TITLE)
    return figure


def draw_classes(record: dict) -> Figure:
    """P1's Figure 3. The largest half percent of the differences of a net have one
    colour."""
    found = [(hn.DATASETS[data].title, label, matrix, np.quantile(np.abs(list(
        seen["differences"].values())), 0.995)) for data, seen in
        seen_of(record).items() for label, matrix in seen["differences"].items()]
    figure = Figure(figsize=(9, 4.2), layout="constrained")
    panels = figure.subplots(1, len(found), sharey=True)
    for axes, (title, label, matrix, most) in zip(panels, found, strict=True):
        heat(figure, axes, matrix, f"{title}, class {label}", cmap="RdBu_r",
             vmin=-most, vmax=most)
    panels[0].set_ylabel("block", fontsize=9)
    figure.suptitle("Mean $T$ of a class, less that of all images", **TITLE)
    return figure


def draw_harder(record: dict) -> Figure:
    """What closing one block costs, on MNIST and on harder data. The nets are those at
    the learning rate with the lowest training error."""
    figure = Figure(figsize=(7.5, 4.4), layout="constrained")
    axes = figure.subplots()
    colours = (LIGHT.highway, *LIGHT.own)
    for (data, rates), colour in zip(record["harder"].items(), colours, strict=False):
        nets = nets_at(rates, "fitted")
        found = sorted(matter(net, 0.5) for net in nets)
        count = " to ".join(map(str, dict.fromkeys((found[0], found[-1]))))
        draw_band(axes, [np.maximum(rises(net), 0.01) for net in nets], colour,
                  f"{hn.DATASETS[data].title}: {count} blocks matter")
    axes.axhline(0.5, color=LIGHT.soft, linewidth=1, linestyle="--")
    axes.set(yscale="log", xlabel="closed block", ylabel="rise of training error, "
             "points")
    plain_numbers(axes.yaxis)
    lines, names = axes.get_legend_handles_labels()
    order = np.argsort([-line.get_ydata().mean() for line in lines])
    axes.legend([lines[i] for i in order], [names[i] for i in order], frameon=False,
                fontsize=9)
    figure.suptitle("On harder data more blocks matter", **TITLE)
    figure.supxlabel("median and range of the "
                     f"{len(record['plan']['harder']['seeds'])} nets with the lowest "
                     "training error\nabove the dashed line a block matters; 0.01 and "
                     "less is at the edge", size=8.5)
    return figure


FIGURES: Mapping[str, Callable[[dict], Figure]] = {
    "figure": draw_routing, "lesions": draw_lesions, "harder": draw_harder,
    "gates": draw_gates, "classes": draw_classes}
