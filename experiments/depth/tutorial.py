"""The trial of a tutorial's plain net of 20 layers, here 18 blocks between two layers.

J. Fleming's "Highway Networks with TensorFlow" (2015): plain SGD on the loss summed
over a batch, relu, weights cut at two of their deviations.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

import highway_networks as hn
from experiments.lab import trial_function


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
    net = hn.make_net(hn.Config(block="plain", init="he", activation="relu", **{
        name: config[name] for name in ("depth", "seed")}), data)
    if config["start"] == "tutorial":
        rng = np.random.default_rng([config["seed"], 2015])
        for name, values in net.views(net.params).items():
            values[...] = (truncated_normal(rng, values.shape)
                           if name.startswith("W") else 0.1)
    return net


@trial_function("depth.tutorial")
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
