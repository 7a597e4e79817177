"""With which initial b_T do highway nets of each depth train?

P1's guideline, and the tutorial's advice to start more negative when in doubt, beside
nets of 10 to 1000 layers at b_T from +1 to -20, each with the better of two learning
rates.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import SubFigure
from matplotlib.patches import Rectangle

import highway_networks as hn
from experiments.lab.drawing import title_of
from experiments.judging import or_infinite
from experiments.lab.papers import GUIDELINE
from experiments.very_deep.nets import TRAINS, highway_config, train_highway
from highway_suite.figures import LIGHT


class Cell(NamedTuple):
    """A trial of the map; depth in layers."""

    lr: float
    gate_bias: float
    depth: int


def configs(protocol: dict) -> dict[Cell, dict]:
    """The trials, a learning rate after the other."""
    own = protocol["map"]
    return {Cell(lr, bias, depth): highway_config(
        protocol, "map", depth=depth - 1, gate_bias=bias, lr=lr, epochs=own["epochs"],
        seed=0) for lr in own["lrs"] for bias in own["gate_biases"]
        for depth in reversed(own["depths"])}


def train(config: dict, data: hn.Data) -> dict:
    """One cell: status, training losses, test accuracy."""
    return train_highway(config, data).result


# --------------------------------------------------------------------------------------
# The record


def as_rows(values: np.ndarray) -> list[list]:
    """(b_T, depth) -> rows of a table, None for what is not finite."""
    return [[value if math.isfinite(value) else None for value in row]
            for row in values.tolist()]


def describe(found: dict[Cell, dict], own: dict) -> dict:
    """Final training loss and test accuracy, (gate biases, depths), for each learning
    rate and for the better one; and where nets stop training."""
    axes = own["lrs"], own["gate_biases"], own["depths"]
    loss, accuracy = np.full((2, *map(len, axes)), np.nan)
    for lr, bias, depth in np.ndindex(loss.shape):
        result = found[Cell(axes[0][lr], axes[1][bias], axes[2][depth])]
        if result["status"] == "ok":
            loss[lr, bias, depth] = result["train_loss"][-1]
            accuracy[lr, bias, depth] = result["test_acc"]
    best = or_infinite(loss).argmin(axis=0)[None]       # of equal ones the first
    tables = {f"lr {lr:g}": {"train_loss": as_rows(loss[i]),
                             "test_acc": as_rows(accuracy[i])}
              for i, lr in enumerate(own["lrs"])}
    loss, accuracy = (np.take_along_axis(values, best, axis=0)[0]
                      for values in (loss, accuracy))
    better = {"lr": as_rows(np.array(own["lrs"])[best[0]]),
              "train_loss": as_rows(loss), "test_acc": as_rows(accuracy)}
    return tables | {"better": better, "border": [
        border(depth, own["gate_biases"], np.nan_to_num(column))
        for depth, column in zip(own["depths"], accuracy.T, strict=True)]}


def border(depth: int, biases: list[float], accuracy: np.ndarray) -> dict:
    """The largest b_T with which nets of a depth train, and the sum over layers of
    sigma(b_T) there; whether all more negative ones train too. accuracy: by b_T, 0 of
    a net that diverged."""
    trains = [bias for bias, value in zip(biases, accuracy, strict=True)
              if value >= TRAINS]
    top = max(trains, default=None)
    return {"depth": depth, "gate_bias": top, "sum_of_T": None if top is None else
            hn.significant((depth - 1) / (1 + math.exp(-top))),
            "all_below_train": None if top is None else
            all(bias in trains for bias in biases if bias < top)}


# --------------------------------------------------------------------------------------
# The figure


def draw_cells(axes: Axes, table: list, own: dict, norm: Normalize, title: str,
               write: Callable[[float], str]) -> None:
    """One number for each b_T and depth as a heat map, written into its cell; a cross
    where the net diverged, a frame where P1's guideline lies. norm: whose high end is
    the better one, or that of a reversed scale."""
    values = np.array(table, float)
    image = axes.imshow(values, cmap="viridis_r" if isinstance(norm, LogNorm) else
                        "viridis", norm=norm, aspect="auto")
    for (row, column), value in np.ndenumerate(values):
        dark = np.isfinite(value) and sum(image.cmap(norm(value))[:3]) < 1.3
        axes.text(column, row, write(value) if np.isfinite(value) else "×", size=6.5,
                  ha="center", va="center", color="white" if dark else "black")
    depths, biases = own["depths"], own["gate_biases"]
    for depth, bias in GUIDELINE.items():
        if depth in depths and bias in biases:
            at = depths.index(depth) - 0.5, biases.index(bias) - 0.5
            axes.add_patch(Rectangle(at, 1, 1, fill=False, edgecolor=LIGHT.plain,
                                     linewidth=2))
    axes.set_xticks(range(len(depths)), depths)
    axes.set_yticks(range(len(biases)), [f"{bias:g}" for bias in biases])
    axes.set(xlabel="depth (layers)", ylabel="initial $b_T$", title=title)
    axes.spines[:].set_visible(False)


def message(border: list[dict], most: float) -> str:
    """The largest b_T that trains at each depth, in a line; of depths with the same,
    the deepest. most: the largest that was tried."""
    deepest = {row["gate_bias"]: row["depth"] for row in border
               if row["gate_bias"] is not None}
    return "Largest $b_T$ that trains: " + ", ".join(
        f"{'at least ' * (bias == most)}{bias:g} at {depth}"
        for bias, depth in deepest.items()) + " layers"


def draw(figure: SubFigure, record: dict) -> None:
    """Two panels: training loss and test accuracy of the better learning rate."""
    own, better = record["protocol"]["map"], record["map"]["better"]
    loss, accuracy = figure.subplots(1, 2, sharey=True)
    losses = np.array(better["train_loss"], float)
    draw_cells(loss, better["train_loss"], own,
               LogNorm(np.nanmin(losses), math.log(10)),
               f"Training loss, {own['n_train']:,} images, {own['epochs']} epochs\n"
               f"({title_of(record)}, highway nets)",
               lambda value: f"{value:.2g}")
    draw_cells(accuracy, better["test_acc"], own, Normalize(0.1, 1),
               f"Test accuracy, % (n = 1; from {100 * TRAINS:g} on it trains)\n"
               "(framed: guideline of P1, for convolutional nets)",
               lambda value: f"{100 * value:.0f}")
    accuracy.set_ylabel("")
