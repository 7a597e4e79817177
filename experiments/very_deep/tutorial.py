"""Did the tutorial's plain net of 20 layers fail for its depth?

J. Fleming's "Highway Networks with TensorFlow" (2015): plain SGD on the loss summed
over a batch, relu, weights cut at two of their deviations. Its start against He's, its
learning rate against a tenth, its plain layers against highway layers.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes

import highway_networks as hn
from experiments.judging import Claim, claim, resting_on
from experiments.very_deep.nets import TRAINS
from highway_suite.figures import LIGHT


class Arm(NamedTuple):
    """What the seeds of one row of the figure have in common."""

    block: str
    start: str          # "tutorial" or "he"
    lr: float


def configs(protocol: dict) -> dict[tuple[Arm, int], dict]:
    """The trials by arm and seed."""
    own = protocol["tutorial"]
    shared = {name: own[name] for name in ("steps", "batch", "n_train", "gate_bias")}
    return {(Arm(block, start, lr), seed): {
        "part": "tutorial", "block": block, "start": start, "lr": lr, "seed": seed,
        "depth": own["depth"] - 1, "dataset": protocol["dataset"], **shared}
        for seed in own["seeds"] for block in ("plain", "highway")
        for start in ("tutorial", "he") for lr in own["lrs"]}


# --------------------------------------------------------------------------------------
# One trial


class Steps:
    """So many batches, from one epoch after the other, as a single pass for hn.fit."""

    def __init__(self, batches: hn.Batches, steps: int):
        self.batches, self.steps = batches, steps
        self.size, self.streams = batches.size, batches.streams

    def __iter__(self) -> Iterator:
        epochs = itertools.repeat(self.batches)
        return itertools.islice(itertools.chain.from_iterable(epochs), self.steps)


def truncated_normal(rng: np.random.Generator, shape: tuple, std: float = 0.1
                     ) -> np.ndarray:
    """Normal values; those beyond two standard deviations are drawn again."""
    values = rng.normal(size=shape)
    while (beyond := np.abs(values) > 2).any():
        values[beyond] = rng.normal(size=beyond.sum())
    return std * values


def make_net(config: dict, data: hn.Data) -> hn.DeepNet:
    """The tutorial's net, untrained: its own start, or He's with biases of zero."""
    net = hn.make_net(hn.Config(init="he", activation="relu", **{
        name: config[name] for name in ("block", "depth", "gate_bias", "seed")}), data)
    if config["start"] == "tutorial":
        rng = np.random.default_rng([config["seed"], 2015])
        for name, values in net.views(net.params).items():
            if name != "b_T":
                values[...] = (truncated_normal(rng, values.shape)
                               if name.startswith("W") else 0.1)
    return net


def train(config: dict, data: hn.Data) -> dict:
    """Plain SGD on the summed loss, whose gradient is that of the mean times the size
    of a batch: its status and test accuracy."""
    size, seed = config["batch"], config["seed"]
    data = hn.scale_pixels(hn.take_subset(data, hn.Config(
        seed=seed, n_train=config["n_train"], n_test=len(data.x_test))))
    x_train, x_test = ((x + 1) / 2 for x in (data.x_train, data.x_test))    # in [0, 1]
    net = make_net(config, data)
    rng = np.random.default_rng(hn.streams(seed)["batches"])

    def test(net, cache):
        accuracy, _ = hn.evaluate(net, x_test, data.y_test, cache)
        return {"test_acc": hn.significant(accuracy)}
    history, status = hn.fit(
        net, Steps(hn.Batches(x_train, data.y_train, size, rng), config["steps"]),
        hn.SGD(net.params, momentum=0), lambda epoch, history: size * config["lr"],
        epochs=1, measure=test)
    return {"status": status, "test_acc": history[0]["test_acc"] if history else None}


# --------------------------------------------------------------------------------------
# Record, claims, figure


def describe(found: dict[tuple[Arm, int], dict], own: dict) -> list[dict]:
    """One entry per arm: test accuracies of its seeds, None for one that diverged."""
    arms: dict[Arm, list] = {}
    for (arm, _), result in found.items():
        arms.setdefault(arm, []).append(result["test_acc"])
    return [arm._asdict() | {"test_acc": values} for arm, values in arms.items()]


def check(arms: list[dict]) -> list[Claim]:
    """The tutorial's 20 plain layers, and what made them fail."""
    def worst_as_zero(arm):
        return [value or 0 for value in arm["test_acc"]]
    plain = [arm for arm in arms if arm["block"] == "plain"]
    n = len(plain[0]["test_acc"])
    own = [arm for arm in plain if arm["start"] == "tutorial" and arm["lr"] == 0.01]
    ours = {f"{arm['start']}, lr {arm['lr']:g}": arm["test_acc"] for arm in plain}
    trials = {"part": "tutorial", "block": "plain"}
    return [
        *resting_on([claim(
            section="tutorial", text="20 plain layers stay at or below 15 %",
            paper="<= 15 %", ours=[arm["test_acc"] for arm in own],
            holds=all(max(worst_as_zero(arm)) <= 0.15 for arm in own)
            if own else None, n=n)], trials | {"start": "tutorial", "lr": 0.01}),
        *resting_on([claim(
            section="ours", text="the tutorial's 20 plain layers fail because of "
            "their depth: no start and learning rate tried bring every seed to "
            f"{TRAINS:g}", paper=None, ours=ours,
            holds=all(min(worst_as_zero(arm)) < TRAINS for arm in plain), n=n)],
            trials)]


def draw(axes: Axes, arms: list[dict], own: dict) -> None:
    """A row for each arm, a dot for each seed; a cross for one that diverged."""
    for row, arm in enumerate(arms):
        colour = getattr(LIGHT, arm["block"])
        there = [100 * value for value in arm["test_acc"] if value is not None]
        lost = len(arm["test_acc"]) - len(there)
        axes.plot(there, [row] * len(there), "o", color=colour, alpha=0.6)
        axes.plot([0] * lost, row + np.linspace(-0.2, 0.2, lost), "x", color=colour)
    axes.axvline(15, color=LIGHT.soft, linewidth=1, linestyle=":")
    axes.set_yticks(range(len(arms)), [
        f"{arm['block']}, {arm['start']}, {arm['lr']:g}" for arm in arms], size=7.5)
    axes.invert_yaxis()
    axes.set(xlim=(-4, 100), xlabel="test accuracy, % (× diverged)",
             title=f"{own['depth'] + 1} layers of the tutorial\n(block, start, "
                   f"rate; n = {len(own['seeds'])})")
    axes.grid(axis="y")
