"""The figures of a record, one message each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from experiments.lab.experiment import for_figures
from experiments.lab.papers import spoken
from experiments.lab.texts import span
from experiments.trained_nets import claims
from highway_suite.datasets import DATASETS

with for_figures():
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from experiments.lab import drawing
    from highway_suite.figures import BLOCK_AXIS, SMALL, TINTS, label_right, label_y

WAYS = {"as computed": None, "mean over\nall images": "all",
        "mean over\nits class": "its class"}


def draw_routing(record: dict) -> Figure:
    """Training error of highway nets with T as computed, and held at a mean."""
    nets = record["nets"]["highway"]
    errors = 100 * np.array([
        [net["held"][way][1] if way else net["error"] for net in nets]
        for way in WAYS.values()] + [[net["error"] for net in record["still_gates"]]])
    ways = [*WAYS, "trained with T\nequal for all"]
    middle = np.median(errors, axis=1)
    figure, axes = drawing.sheet(
        f"T held at the mean of all images: {middle[1]:.0f} % errors; nets trained with"
        f" T equal for all images: {middle[3]:.1f} %",
        f"{drawing.data_of(record['plan'])}: bars are medians, dots {len(nets)} "
        "highway nets", "the mean of the class tells the net the class")
    axes.bar(range(len(ways)), middle, 0.5, color=drawing.colour_of("highway"))
    axes.plot(errors, ".", color=TINTS.ink, markersize=4)
    for place, value in enumerate(middle):
        axes.text(place + 0.28, value, f"{value:.1f}", va="bottom")
    axes.set(xticks=range(len(ways)), xticklabels=ways,
             xlabel="T of every unit in every block")
    label_y(axes, "training error, %")
    axes.margins(y=0.12)
    return figure


def at_least(least: float) -> Callable[[float, int], str]:
    """Numbers of an axis on which smaller ones lie at the least."""
    return lambda value, _: ("≤ " if value <= least else "") + f"{value:g}"


def draw_lesions(record: dict) -> Figure:
    """P1's Figure 4, for each kind of net, by training error."""
    nets, labels = record["nets"], []
    errors = {block: [np.maximum(100 * np.array(net["one_closed"]["error"]), 0.05)
                      for net in found] for block, found in nets.items()}
    figure, axes = drawing.sheet(
        f"With any one block closed, highway nets misread at most "
        f"{np.max(errors['highway']):.0f} %, plain nets at least "
        f"{np.min(errors['plain']):.0f} %",
        f"{drawing.data_of(record['plan'])}: median and range of "
        f"{len(record['plan']['seeds'])} nets of each kind")
    for block, values in errors.items():
        colour = drawing.colour_of(block)       # T-only's line lies over highway's
        drawing.draw_band(axes, range(1, len(values[0]) + 1), values, colour,
                          linestyle=drawing.DASHED if block == "t_only" else "-")
        labels.append((np.median(values, axis=0)[-1], spoken(block), colour))
    drawing.log_y(axes, "training error, %")
    axes.yaxis.set_major_formatter(at_least(0.05))
    axes.set_xlabel(f"closed {BLOCK_AXIS}")
    label_right(axes, labels)
    return figure


def heat(figure: Figure, axes: Axes, matrix: list, title: str, **look: Any) -> None:
    """Blocks by units, the first block at the bottom, with a bar of its colours."""
    rows, columns = np.shape(matrix)
    image = axes.imshow(matrix, aspect="auto", interpolation="nearest", origin="lower",
                        extent=(0.5, columns + 0.5, 0.5, rows + 0.5), **look)
    axes.spines[:].set_visible(False)
    axes.set_title(title, size=10, loc="left")
    figure.colorbar(image, ax=axes, aspect=12, pad=0.02).outline.set_visible(False)


def draw_gates(record: dict) -> Figure:
    """From P1's Figure 2: mean T and T of one image, a column for each data set."""
    (seen,) = (net["picture"] for net in record["nets"]["highway"] if "picture" in net)
    plan = record["plan"]
    found = {plan["dataset"]: seen} | record["pictures"]
    starts = {plan["dataset"]: plan["net"]["gate_bias"]} | {
        data: record["harder"][data]["gate_bias"] for data in record["pictures"]}
    figure, panels = drawing.sheet(
        "One image opens a few gates far; averaged over all images, none is far open",
        "one highway net of each data set, after training; b_T: at its start",
        "mean: over all images; mind its scale", "block 1 is at the input",
        height=4.6, rows=2, columns=len(found), sharex=True, sharey=True, squeeze=False)
    largest = max(np.max(seen["T_mean"]) for seen in found.values())
    for axes, (data, seen) in zip(panels.T, found.items(), strict=True):
        title = f"{DATASETS[data].title}, b_T {drawing.signed(starts[data])}"
        heat(figure, axes[0], seen["T_mean"], f"{title}: mean T", vmin=0,
             vmax=np.ceil(20 * largest) / 20)
        heat(figure, axes[1], seen["T_one"], f"T of one image, class {seen['label']}",
             vmin=0, vmax=1)
        axes[1].set_xlabel("unit")
    for axes in panels[:, 0]:
        axes.set_ylabel("block")
    return figure


def draw_classes(record: dict) -> Figure:
    """Of P1's Figure 3: how the differences lie in the blocks, summed from block 1."""
    early, found = record["plan"]["early"], {}
    for state in ("trained", "untrained"):
        found[state] = 100 * np.cumsum([net["differences"][state]["all"] for net in
                                        record["nets"]["highway"]], axis=1)
    first = {state: np.median(shares[:, early - 1]) for state, shares in found.items()}
    where = "later" if first["trained"] < first["untrained"] else "earlier"
    figure, axes = drawing.sheet(
        f"Training moves the differences of T between classes to {where} blocks",
        f"{drawing.data_of(record['plan'])}: highway nets, median and range",
        "squared differences of a class's mean T from that of all images",
        f"line: P1 finds most of them in the first {early} blocks")
    for (state, shares), line in zip(found.items(), ("-", drawing.DASHED), strict=True):
        drawing.draw_band(axes, range(1, shares.shape[1] + 1), shares,
                          drawing.colour_of("highway"), linestyle=line, label=state)
    axes.axvline(early, color=TINTS.soft, linewidth=1.2, linestyle=":")
    axes.set(xlabel=BLOCK_AXIS, ylim=(0, 101))
    label_y(axes, "share of the differences up to a block, %")
    axes.legend(frameon=False, fontsize=SMALL, loc="lower right")
    return figure


def draw_stages(record: dict) -> Figure:
    """Answers that nets keep whose blocks work in stages."""
    found = {block: claims.staged(record, block=block)
             for block in record["plan"]["stages"]["seeds"]}
    least = {block: span(claims.least_stages(rows)) for block, rows in found.items()}
    figure, axes = drawing.sheet(
        f"To keep 95 % of its answers, a highway net of {found['highway'][0]['depth']} "
        f"blocks needs {least['highway']} stages, a residual net {least['residual']}",
        f"{drawing.data_of(record['plan'])}, test images: median and range of "
        f"{len(found['highway'])} trained nets of a kind, thin lines: one",
        "blocks of a stage read the same input, side by side")
    labels = []
    for block, rows in found.items():
        kept, tried = 100 * np.array([row["trained"]["kept"] for row in rows]), rows[
            0]["tried"]
        if len(rows) > 1:
            drawing.draw_band(axes, tried, kept, drawing.colour_of(block))
        else:
            axes.plot(tried, kept[0], color=drawing.colour_of(block), linewidth=0.8)
        labels.append((np.median(kept, axis=0)[0], f"{spoken(block)}: {least[block]}",
                       drawing.colour_of(block)))
    drawing.draw_level(axes, 95)
    axes.set(xscale="log", xlabel="stages, one after the other (log scale)",
             ylim=(0, 102))
    drawing.plain_numbers(axes.xaxis)
    label_y(axes, "answers as those of the whole net, %")
    label_right(axes, labels)
    return figure


MEASURES = (        # what closing one block costs: least drawn, level, count of a net
    ("rise of training error, points", claims.rises, 0.01, 0.5, claims.matter, 0.5),
    ("training loss, times that of the whole net", claims.factors, 1.0, 2,
     claims.doubling, 1))


def draw_harder(record: dict) -> Figure:
    """What closing one block costs, by two measures, on MNIST and on harder data. The
    nets are those at the learning rate with the lowest training error."""
    plan = record["plan"]
    nets = {DATASETS[data].title: claims.nets_at(rates, "fitted")
            for data, rates in record["harder"].items()}
    nets[DATASETS[plan["harder"]["easy"]].title] = claims.easy_nets(record)
    first, last = next(iter(nets)), DATASETS[plan["harder"]["easy"]].title
    counts = {name: [span([count(net, limit) for net in found])
                     for _, _, _, _, count, limit in MEASURES]
              for name, found in nets.items()}
    hard, easy = counts[first], counts[last]
    figure, panels = drawing.sheet(
        f"By training error, {hard[0]} blocks matter on {first} and {easy[0]} on "
        f"{last}; by loss, {hard[1]} and {easy[1]}",
        f"median and range of the {len(plan['harder']['seeds'])} seeds, at the rate of "
        "least training error", "all with the same b_T at first",
        "a block above the dotted line matters; beside the names: how many",
        height=5.2, rows=2, sharex=True)
    labels: list[list[tuple]] = [[], []]
    for axes, (title, of, least, level, *_), k in zip(panels, MEASURES, (0, 1),
                                                      strict=True):
        for (name, found), colour in zip(nets.items(), TINTS.own, strict=False):
            values = [np.maximum(of(net), least) for net in found]
            drawing.draw_band(axes, range(1, len(values[0]) + 1), values, colour)
            labels[k].append((np.median(values, axis=0)[-1],
                              f"{name}:\n{counts[name][k]}", colour))
        drawing.draw_level(axes, level)
        drawing.log_y(axes, title)
    panels[0].yaxis.set_major_formatter(at_least(0.01))
    panels[1].set_xlabel(f"closed {BLOCK_AXIS}")
    for axes, found in zip(panels, labels, strict=True):
        label_right(axes, found)
    return figure


FIGURES: Mapping[str, Callable[[dict], Figure]] = {
    "figure": draw_routing, "lesions": draw_lesions, "stages": draw_stages,
    "harder": draw_harder, "gates": draw_gates, "classes": draw_classes}
