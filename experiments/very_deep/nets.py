"""What the parts of `very_deep` share: highway nets of 50 units, and their training."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import highway_networks as hn
from experiments.trials import reporting

WIDTH = 50
TRAINS = 0.5            # test accuracy from which on we say that a net trains


class Trained(NamedTuple):
    """A trial's result, its net, the same net untrained, and its scaled images."""

    result: dict
    net: hn.DeepNet
    start: hn.DeepNet
    data: hn.Data


def highway_config(protocol: dict, part: str, **rest: Any) -> dict:
    """A trial of `train_highway`; rest: depth in blocks, b_T, rate, epochs, seed."""
    return {"part": part, "init": "glorot", "hidden": WIDTH,
            "n_test": hn.DATASETS[protocol["dataset"]].images[1],
            "dataset": protocol["dataset"], "batch": protocol["batch"],
            "n_train": protocol[part]["n_train"], **rest}


def train_highway(config: dict, data: hn.Data) -> Trained:
    """Fields of hn.Config, uint8 Data -> status, training losses, test accuracy.

    hn.train tests after each epoch, at a cost that very deep nets feel: it gets one
    batch of test images, and the accuracy on all of them is taken at the end.
    """
    settings = hn.Config(**{name: value for name, value in config.items()
                            if name != "dataset"})
    data = hn.scale_pixels(hn.take_subset(data, settings))
    net, start = (hn.make_net(settings, data) for _ in range(2))
    few = slice(settings.batch)
    history, _, status = hn.train(net, replace(
        data, x_test=data.x_test[few], y_test=data.y_test[few]), settings,
        reporting(config))
    result = {"status": status, "train_loss": history["train_loss"], "test_acc": None}
    if status == "ok":
        accuracy, _ = hn.evaluate(net, data.x_test, data.y_test,
                                  net.cache(settings.batch))
        result["test_acc"] = hn.significant(accuracy)
    return Trained(result, net, start, data)
