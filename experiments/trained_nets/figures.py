"""The figures of a record, one message each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import CenteredNorm
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

import highway_networks as hn
from experiments.lab.drawing import colour_of, plain_numbers, title_of
from experiments.lab.papers import spoken
from experiments.trained_nets.verdicts import factors, matter, nets_at, rises
from highway_suite.figures import LIGHT, TITLE

WAYS = {"its own": None, "mean over\nall images": "mean of all",
        "mean over its\nclass": "mean of its class",
        "another\nimage's": "of another image"}


def draw_routing(record: dict) -> Figure:
    """Training error with T as computed, held at a mean, or of another image."""
    figure = Figure(figsize=(7.5, 4), layout="constrained")
    axes = figure.subplots()
    gated = {block: nets for block, nets in record["nets"].items()
             if "rerouted" in nets[0]}
    width = 0.8 / len(gated)
    for shift, (block, nets) in enumerate(gated.items()):
        errors = 100 * np.array([[net["rerouted"][way]["all"][1] if way else
                                  net["error"] for net in nets]
                                 for way in WAYS.values()])         # (way, net)
        places = np.arange(len(WAYS)) + (shift - (len(gated) - 1) / 2) * width
        middle = np.median(errors, axis=1)
        axes.bar(places, middle, width, alpha=0.75, color=colour_of(block),
                 label=spoken(block))
        axes.plot(places, errors, ".", color=LIGHT.ink, markersize=3)
        for place, value, most in zip(places, middle, errors.max(axis=1), strict=True):
            axes.text(place, most + 1.5, f"{value:.1f}", ha="center", size=9)
    axes.set(xticks=range(len(WAYS)), xticklabels=WAYS, ylabel="training error, %",
             xlabel="T of every unit in every block")
    axes.margins(y=0.12)
    axes.legend(frameon=False, loc="upper left")
    figure.suptitle("A highway net needs gates that follow the image", **TITLE)
    figure.supxlabel(f"{title_of(record['plan'])}: bars are medians, dots are the "
                     f"{len(record['plan']['seeds'])} nets of each kind", fontsize=8.5)
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


def heat(figure: Figure, axes: Axes, matrix: list, title: str, **look: Any
         ) -> AxesImage:
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
    return image


def draw_picture(seen: dict, start: float, n_train: int, title: str, foot: str
                 ) -> Figure:
    """P1's Figure 2 of a net."""
    figure = Figure(figsize=(9, 4.6), layout="constrained")
    panels = figure.subplots(1, 4, sharey=True)
    diverging = {"cmap": "RdBu_r", "norm": CenteredNorm()}
    heat(figure, panels[0], seen["biases"], f"$b_T$ after training\n(white: {start:g}, "
         "before it)", cmap="RdBu_r", norm=CenteredNorm(start))
    heat(figure, panels[1], seen["T_mean"], f"mean $T$ of {n_train:,}\n"
         "training images", vmin=0)
    heat(figure, panels[2], seen["T_one"], "$T$ of one image\n(of class "
         f"{seen['label']})", vmin=0, vmax=1)
    heat(figure, panels[3], seen["outputs_one"][1:], "block outputs $y$\nof the same "
         "image", **diverging)
    panels[0].set_ylabel("block", fontsize=9)
    figure.suptitle(title, **TITLE)
    figure.supxlabel(foot, fontsize=8.5)
    return figure


def draw_gates(record: dict) -> Figure:
    """P1's Figure 2, MNIST."""
    return draw_picture(
        seen_of(record), record["plan"]["net"]["gate_bias"], record["n_train"],
        "Gates open most in the first blocks, and differently for each image",
        f"{title_of(record['plan'])}: one highway net")


def seen_of(record: dict) -> dict:
    """What was kept of one of MNIST's highway nets."""
    (seen,) = (net["picture"] for net in record["nets"]["highway"] if "picture" in net)
    return seen


def draw_harder_gates(record: dict) -> Figure:
    """P1's Figure 2, CIFAR-100."""
    (data, seen), = record["pictures"].items()
    kind = hn.DATASETS[data]
    return draw_picture(
        seen, record["harder"][data]["gate_bias"], kind.images[0],
        f"{kind.title}: biases, gates and outputs of one net",
        "one of the highway nets with the lowest training error")


def draw_differences(seen: dict, foot: str) -> Figure:
    """P1's Figure 3. The largest half percent of the differences have one colour."""
    apart = seen["differences"]
    most = np.quantile(np.abs(list(apart.values())), 0.995)
    figure = Figure(figsize=(6, 4.6), layout="constrained")
    panels = figure.subplots(1, len(apart), sharey=True)
    for axes, (label, matrix) in zip(panels, apart.items(), strict=True):
        heat(figure, axes, matrix, f"images of class {label}", cmap="RdBu_r",
             vmin=-most, vmax=most)
    panels[0].set_ylabel("block", fontsize=9)
    figure.suptitle("Mean $T$ of a class, less that of all images", **TITLE)
    figure.supxlabel(foot, fontsize=8.5)
    return figure


def draw_classes(record: dict) -> Figure:
    """P1's Figure 3, MNIST."""
    return draw_differences(seen_of(record), f"{title_of(record['plan'])}: the same "
                            "net; classes of P1's Figure 3")


def draw_harder_classes(record: dict) -> Figure:
    """P1's Figure 3, CIFAR-100."""
    (data, seen), = record["pictures"].items()
    return draw_differences(seen, f"{hn.DATASETS[data].title}: the same net; classes "
                            "of P1's Figure 3")


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
        draw_band(axes, [np.maximum(100 * rises(net), 0.01) for net in nets], colour,
                  f"{hn.DATASETS[data].title}: {count} blocks matter")
    axes.axhline(0.5, color=LIGHT.soft, linewidth=1, linestyle="--")
    axes.set(yscale="log", xlabel="closed block", ylabel="rise of training error, "
             "points")
    plain_numbers(axes.yaxis)
    axes.legend(frameon=False, fontsize=9)
    figure.suptitle("What closing one block costs, by data set", **TITLE)
    figure.supxlabel("median and range of the "
                     f"{len(record['plan']['harder']['seeds'])} nets with the lowest "
                     "training error\nabove the dashed line a block matters; 0.01 and "
                     "less is at the edge", size=8.5)
    return figure


FIGURES: Mapping[str, Callable[[dict], Figure]] = {
    "figure": draw_routing, "lesions": draw_lesions, "gates": draw_gates,
    "classes": draw_classes, "harder": draw_harder,
    "harder_gates": draw_harder_gates, "harder_classes": draw_harder_classes}
