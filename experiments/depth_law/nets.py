"""One trial of `depth_law`: how a net starts, trains and is measured.

A config says all that a trial depends on; its gates by what they are to be: {"sum": S},
{"bias": b} or {"rule": name}, see `initial_biases`.
"""

from __future__ import annotations

import math

import numpy as np

import highway_networks as hn
from experiments.judging import listed
from experiments.trials import reporting
from experiments.very_deep.norms import rms, watching
from experiments.very_deep.use import measure_use


def logit(p: float) -> float:
    return math.log(p / (1 - p))


def initial_biases(gates: dict, depth: int, hidden: int, seed: int) -> np.ndarray:
    """What a trial says of its gates -> initial b_T (L, U).

    {"sum": S}: T sums to S over the layers; {"bias": b}; {"rule": "guideline"}, the
    line through P1's three depths; {"rule": "chrono"}, Tallec and Ollivier 2018 with
    the layers as time: each unit its own, T = 1 / (1 + u), u even from 1 to L - 1.
    """
    if gates == {"rule": "chrono"}:
        rng = np.random.default_rng([seed, 2018])
        return -np.log(rng.uniform(1, depth - 1, (depth, hidden)))
    bias = (gates["bias"] if "bias" in gates else
            logit(gates["sum"] / depth) if "sum" in gates else -depth / 10)
    return np.full((depth, hidden), bias)


def make_net(config: dict, data: hn.Data) -> hn.DeepNet:
    """A trial's untrained net: hn.make_net's, with the b_T of `initial_biases`."""
    names = ("block", "depth", "hidden", "activation", "init", "dtype", "seed")
    net = hn.make_net(hn.Config(**{name: config[name] for name in names}), data)
    net.views(net.params)["b_T"][...] = initial_biases(
        config["gates"], config["depth"], config["hidden"], config["seed"])
    return net


def take_images(config: dict, data: hn.Data) -> hn.Data:
    """A trial's images, drawn by the seed and scaled."""
    subset = hn.take_subset(data, hn.Config(
        **{name: config[name] for name in ("seed", "n_train", "n_test")}))
    return hn.scale_pixels(subset, config["dtype"])


def fit(net: hn.DeepNet, data: hn.Data, config: dict, cache: hn.Cache
        ) -> tuple[list[float], str]:
    """Train as hn.train does, but test nothing on the way -> the training loss of each
    epoch, and the status."""
    optimizer = (hn.Adam(net.params, eps=config["eps"])
                 if config["optimizer"] == "adam"
                 else hn.SGD(net.params, config["momentum"]))
    rng = np.random.default_rng(hn.streams(config["seed"])["batches"])
    history, status = hn.fit(
        net, hn.Batches(data.x_train, data.y_train, config["batch"], rng), optimizer,
        lambda epoch, _: config["lr"] * config["lr_decay"] ** (epoch - 1),
        reporting(config), epochs=config["epochs"], clip=config["clip"], cache=cache)
    return [row["train_loss"] for row in history], status


def open_sum(net: hn.DeepNet, x: np.ndarray, labels: np.ndarray, cache: hn.Cache
             ) -> tuple[float, float]:
    """Images (N, P) -> accuracy, and the sum over the layers of their mean T."""
    accuracy, T = hn.evaluate(net, x, labels, cache)
    return hn.significant(accuracy), hn.significant(T.sum())


def train_net(config: dict, data: hn.Data) -> dict:
    """Train one net: its losses, test accuracy, S before and after; and if the config
    asks for it, which layers it uses."""
    data = take_images(config, data)
    net = make_net(config, data)
    cache, few = net.cache(config["batch"]), slice(10 * config["batch"])
    result: dict = {"test_acc": None, "S_after": None, "S_before": open_sum(
        net, data.x_test[few], data.y_test[few], cache)[1]}
    result["train_loss"], result["status"] = fit(net, data, config, cache)
    if result["status"] != "ok":
        return result
    try:
        result["test_acc"], result["S_after"] = open_sum(net, data.x_test, data.y_test,
                                                         cache)
    except hn.Diverged:
        return result | {"status": "diverged"}
    del cache           # of a net of 10,000 layers it is a gigabyte
    if measure := config.get("measure"):
        start, few = make_net(config, data), slice(measure["measured"])
        result["used"] = measure_use(net, start, data.x_train[few], data.y_train[few],
                                     measure | {"batch": config["batch"]})
    return result


def picked(values: list[float], points: int = 50) -> dict:
    """Values at layers evenly apart, the ends among them."""
    at = np.unique(np.linspace(0, len(values) - 1, points).round().astype(int))
    return {"layer": at.tolist(), "rms": listed([values[i] for i in at])}


def measure_start(config: dict, data: hn.Data) -> dict:
    """An untrained net on one batch: rms of the block outputs (from the projection's
    on) and of dL/dy of each block, S, the norm of dL/dW_in, and which multiple of the
    projection's output the last block's holds (`carried`, by least squares)."""
    data = take_images(config, data)
    net = make_net(config, data)
    logits, cache = net.forward(np.ascontiguousarray(data.x_train.T))
    x, T = cache.x[:, :net.hidden].astype("float64"), cache.z[:, net.hidden:]
    result = {"S": hn.significant(T.mean(axis=(1, 2), dtype="float64").sum()),
              "carried": hn.significant((x[-1] * x[0]).sum() / (x[0] ** 2).sum()),
              "output": picked([rms(y) for y in x])}
    with watching(net) as gradients:
        grad = net.backward(hn.cross_entropy(logits, data.y_train)[1], cache)
    return result | {
        "gradient": picked(gradients[::-1]),
        "W_in": hn.significant(float(np.linalg.norm(net.views(grad)["W_in"])))}


def train(config: dict, data: hn.Data) -> dict:
    """One trial of either kind."""
    return {"train": train_net, "start": measure_start}[config["kind"]](config, data)
