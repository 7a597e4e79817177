"""The trials of `depth`: how a net starts, trains and is measured.

Which blocks a trained net uses is measured on training images:

    prefix         the least k for which the net with all blocks after the k-th closed
                   keeps its loss within 10 % of the whole net's
    kept           loss with only the m blocks left open that change their input most
                   (rms of y - x)
    closed_loss    loss with all blocks closed
"""

from __future__ import annotations

import itertools
import math

import numpy as np

import highway_networks as hn
from experiments.lab import trial_function
from experiments.lab.judging import listed
from experiments.lab.running import epoch_reporter
from experiments.nets import probes

KEEPS = 1.1             # a net keeps its loss up to this factor


def logit(p: float) -> float:
    """The b_T whose sigmoid is p."""
    return math.log(p / (1 - p))


def initial_biases(gates: dict, depth: int, hidden: int, seed: int) -> np.ndarray:
    """What a trial says of its gates -> initial b_T (L, U).

    {"sum": S}: T sums to S over the blocks; {"bias": b}; {"rule": "guideline"}, the
    line -L/10 through P1's three depths; {"rule": "chrono"}, Tallec and Ollivier 2018
    with the blocks as time: each unit its own, T = 1 / (1 + u), u even from 1 to L - 1.
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


@trial_function("depth.train")
def train(config: dict, data: hn.Data) -> dict:
    """Train one net as hn.train does, but without a test after each epoch, which takes
    long in very deep nets -> its losses and test accuracy; and if the config asks for
    it, which blocks it uses, and what it keeps in stages of so many test images."""
    subset = hn.take_subset(data, hn.Config(
        **{name: config[name] for name in ("seed", "n_train", "n_test")}))
    data = hn.scale_pixels(subset, config["dtype"])
    net = make_net(config, data)
    cache = net.cache(config["batch"])
    optimizer = (hn.Adam(net.params, eps=config["eps"]) if config["optimizer"] == "adam"
                 else hn.SGD(net.params, config["momentum"]))
    rng = np.random.default_rng(hn.streams(config["seed"])["batches"])
    history, status = hn.fit(
        net, hn.Batches(data.x_train, data.y_train, config["batch"], rng), optimizer,
        lambda epoch, _: config["lr"] * config["lr_decay"] ** (epoch - 1),
        epoch_reporter(config), epochs=config["epochs"], clip=config["clip"],
        cache=cache)
    losses = [row["train_loss"] for row in history]
    result: dict = {"test_acc": None, "train_loss": losses, "status": status}
    if status != "ok":
        return result
    try:
        accuracy, _ = hn.evaluate(net, data.x_test, data.y_test, cache)
    except hn.Diverged:
        return result | {"status": "diverged"}
    result["test_acc"] = hn.significant(accuracy)
    del cache, optimizer    # of a net of 10,000 blocks they are gigabytes
    if images := config.get("stages"):
        result |= probes.keep_in_stages(
            {"trained": net, "untrained": make_net(config, data)},
            data.x_test[:images], data.y_test[:images], config["batch"])
    if measure := config.get("measure"):
        few = slice(measure["measured"])
        result["used"] = measure_use(net, data.x_train[few], data.y_train[few],
                                     measure["kept"], config["batch"])
    return result


def measure_use(net: hn.DeepNet, x: np.ndarray, labels: np.ndarray, kept: list[int],
                size: int) -> dict:
    """A trained net and images (N, P) -> which blocks it uses, as the module's
    docstring defines it; the loss of its first k blocks as at most 100 means."""
    cut = probes.prefix(net, x, labels, size)
    order = np.argsort(-probes.mean_change(net, x, size), kind="stable")
    parts = np.array_split(cut, min(100, len(cut)))
    return {
        "loss": hn.significant(cut[-1]), "closed_loss": hn.significant(cut[0]),
        "prefix": int(np.argmax(cut <= KEEPS * cut[-1])),
        "kept": {"blocks": kept, "loss": listed([
            probes.loss_and_error(net, x, labels, order[m:].tolist(), size)[0]
            for m in kept], 3)},
        "cut_loss": listed([part.mean() for part in parts], 3)}


# --------------------------------------------------------------------------------------
# The net of a tutorial, J. Fleming's "Highway Networks with TensorFlow" (2015), of 20
# plain layers, here 18 blocks between two layers: plain SGD on the loss summed over a
# batch, relu, weights cut at two of their deviations.


def truncated_normal(rng: np.random.Generator, shape: tuple) -> np.ndarray:
    """N(0, 0.1^2); values beyond two standard deviations are drawn again."""
    values = rng.normal(size=shape)
    while (beyond := np.abs(values) > 2).any():
        values[beyond] = rng.normal(size=beyond.sum())
    return 0.1 * values


def tutorial_net(config: dict, data: hn.Data) -> hn.DeepNet:
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
def train_tutorial(config: dict, data: hn.Data) -> dict:
    """Plain SGD on the summed loss, whose gradient is that of the mean times the size
    of a batch: its status and test accuracy."""
    size, seed = config["batch"], config["seed"]
    data = hn.scale_pixels(hn.take_subset(data, hn.Config(
        seed=seed, n_train=config["n_train"], n_test=len(data.x_test))))
    x_train, x_test = ((x + 1) / 2 for x in (data.x_train, data.x_test))    # in [0, 1]
    net = tutorial_net(config, data)
    rng = np.random.default_rng(hn.streams(seed)["batches"])
    epochs = itertools.repeat(hn.Batches(x_train, data.y_train, size, rng))
    steps = itertools.islice(itertools.chain.from_iterable(epochs), config["steps"])

    def test(net, cache):
        accuracy, _ = hn.evaluate(net, x_test, data.y_test, cache)
        return {"test_acc": hn.significant(accuracy)}
    history, status = hn.fit(
        net, steps, hn.SGD(net.params, momentum=0),
        lambda epoch, history: size * config["lr"], epochs=1, measure=test,
        cache=net.cache(size))
    return {"status": status, "test_acc": history[0]["test_acc"] if history else None}
