"""Which of its 100, 1000 or 2000 layers does a trained highway net use?

Measured on training images, of the net and in part of the same net untrained:

    open      layers whose mean T exceeds 1 %; beside it, how many did before training,
              for b_T = -4 opens every gate to 1.8 %
    prefix    the least k for which the net with all layers after the k-th closed keeps
              its loss within 10 % of the whole net's
    moved     layers whose weights W_H and W_T changed by more than 1 % of their initial
              norm; alone it shows no use: Adam's steps hardly depend on the gradient
    kept      loss with only the m layers left open that change their input most (rms of
              y - x)
    lesions   loss with 50 neighbouring layers closed, at each place

A net uses more than 50 layers if its prefix exceeds 50 and the 50 layers that change
their input most do not keep its loss within 10 %.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from matplotlib import colormaps

import highway_networks as hn
from experiments import probing
from experiments.lab import claim, plain_numbers
from experiments.very_deep.nets import TRAINS, brief, highway_config, train_highway
from highway_suite.figures import LIGHT

KEEPS = 1.1             # a net keeps its loss up to this factor
USED = 50               # the layers of which the verdict asks whether there are more
OPEN = MOVED = 0.01     # mean T and relative movement of weights that count


class Net(NamedTuple):
    """A trial; depth in layers."""

    depth: int
    gate_bias: float
    seed: int


def configs(protocol: dict) -> dict[Net, dict]:
    """The trials in the order of the plan."""
    own = protocol["deep"]
    measure = {name: own[name] for name in ("measured", "lesioned", "kept")}
    return {Net(nets["depth"], bias, seed): highway_config(
        protocol, "deep", depth=nets["depth"] - 1, gate_bias=bias, lr=own["lr"],
        lr_decay=own["lr_decay"], seed=seed, epochs=nets["epochs"], measure=measure)
        for nets in own["nets"] for seed in nets["seeds"]
        for bias in nets["gate_biases"]}


# --------------------------------------------------------------------------------------
# One trial


def train(config: dict, data: hn.Data) -> dict:
    """A very deep net: status, training losses, test accuracy, and which layers it
    uses."""
    measure = config.pop("measure")
    trained = train_highway(config, data)
    if trained.result["status"] == "ok":
        few = slice(measure["measured"])
        trained.result["used"] = measure_use(
            trained.net, trained.start, trained.data.x_train[few],
            trained.data.y_train[few], measure | {"batch": config["batch"]})
    return trained.result


def thin(curve: np.ndarray, points: int = 100) -> list[float]:
    """A curve over layers -> at most so many means over neighbouring layers."""
    parts = np.array_split(curve, min(points, len(curve)))
    return brief([part.mean() for part in parts])


def movement(net: hn.DeepNet, start: hn.DeepNet) -> np.ndarray:
    """By how much the weights W_H, W_T of each layer differ from the untrained net's,
    as a part of their initial norm (L,)."""
    now, before = (np.concatenate([views["W_H"], views["W_T"]], axis=1)
                   for views in (net.views(net.params), start.views(start.params)))
    return (np.linalg.norm(now - before, axis=(1, 2))
            / np.linalg.norm(before, axis=(1, 2)))
