"""The trials of `depth`: how a net starts, trains and is measured.

Which layers a trained net uses is measured on training images, of the net and in part
of the same net untrained:

    open      blocks whose mean T exceeds 1 %, after and before training
    prefix    the least k for which the net with all blocks after the k-th closed keeps
              its loss within 10 % of the whole net's
    moved     blocks whose weights W_H and W_T changed by more than 1 % of their initial
              norm; alone it shows no use: Adam's steps hardly depend on the gradient
    kept      loss with only the m blocks left open that change their input most (rms of
              y - x)
    lesions   loss with so many neighbouring blocks closed, at each place
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

import highway_networks as hn
from experiments.lab import trial_function
from experiments.lab.judging import listed
from experiments.lab.running import epoch_reporter
from experiments.nets.probes import loss_and_error, mean_change, mean_gates, prefix

KEEPS = 1.1             # a net keeps its loss up to this factor
COUNTS = 0.01           # mean T, and relative change of weights, that counts


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


def take_images(config: dict, data: hn.Data) -> hn.Data:
    """A trial's images, drawn by the seed and scaled."""
    subset = hn.take_subset(data, hn.Config(
        **{name: config[name] for name in ("seed", "n_train", "n_test")}))
    return hn.scale_pixels(subset, config["dtype"])


def fit(net: hn.DeepNet, data: hn.Data, config: dict, cache: hn.Cache
        ) -> tuple[list[float], str]:
    """Train as hn.train does, but test nothing on the way, which very deep nets feel ->
    the training loss of each epoch, and the status."""
    optimizer = (hn.Adam(net.params, eps=config["eps"])
                 if config["optimizer"] == "adam"
                 else hn.SGD(net.params, config["momentum"]))
    rng = np.random.default_rng(hn.streams(config["seed"])["batches"])
    history, status = hn.fit(
        net, hn.Batches(data.x_train, data.y_train, config["batch"], rng), optimizer,
        lambda epoch, _: config["lr"] * config["lr_decay"] ** (epoch - 1),
        epoch_reporter(config), epochs=config["epochs"], clip=config["clip"],
        cache=cache)
    return [row["train_loss"] for row in history], status


def open_sum(net: hn.DeepNet, x: np.ndarray, labels: np.ndarray, cache: hn.Cache
             ) -> tuple[float, float]:
    """Images (N, P) -> accuracy, and the sum over the blocks of their mean T."""
    accuracy, T = hn.evaluate(net, x, labels, cache)
    return hn.significant(accuracy), hn.significant(T.sum())


@trial_function("depth.train")
def train(config: dict, data: hn.Data) -> dict:
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
    del cache           # of a net of 10,000 blocks it is a gigabyte
    if measure := config.get("measure"):
        start, few = make_net(config, data), slice(measure["measured"])
        result["used"] = measure_use(net, start, data.x_train[few], data.y_train[few],
                                     measure | {"batch": config["batch"]})
    return result


@trial_function("depth.by_bias")
def by_bias(config: dict, data: hn.Data) -> dict:
    """The same of a highway net with one b_T, by Adam: the config says what else is its
    own. S is not measured."""
    rest = {name: value for name, value in config.items() if name != "gate_bias"}
    result = train({"block": "highway", "activation": "tanh", "dtype": "float32",
                    "optimizer": "adam", "eps": 1e-8, "lr_decay": 1.0, "clip": 5.0,
                    "gates": {"bias": config["gate_bias"]}, **rest}, data)
    return {name: result[name] for name in ("status", "train_loss", "test_acc", "used")
            if name in result}


# --------------------------------------------------------------------------------------
# Which layers a net uses


def thin(curve: np.ndarray, points: int = 100) -> list[float]:
    """A curve over blocks -> at most so many means over neighbouring blocks."""
    parts = np.array_split(curve, min(points, len(curve)))
    return listed([part.mean() for part in parts], 3)


def weight_change(net: hn.DeepNet, start: hn.DeepNet) -> np.ndarray:
    """By how much the weights W_H, W_T of each block differ from the untrained net's,
    as a part of their initial norm (L,)."""
    now, before = (np.concatenate([views["W_H"], views["W_T"]], axis=1)
                   for views in (net.views(net.params), start.views(start.params)))
    return (np.linalg.norm(now - before, axis=(1, 2))
            / np.linalg.norm(before, axis=(1, 2)))


def measure_use(net: hn.DeepNet, start: hn.DeepNet, x: np.ndarray, labels: np.ndarray,
                measure: dict) -> dict:
    """A trained net, the same untrained, images (N, P) -> which blocks it uses, as the
    module's docstring defines it."""
    size, L = measure["batch"], net.depth
    cut, _ = prefix(net, x, labels, size)
    T_before, T = (mean_gates(each, x, size).mean(axis=1) for each in (start, net))
    change, moved = mean_change(net, x, size), weight_change(net, start)
    order = np.argsort(-change, kind="stable")
    kept = [m for m in measure["kept"] if m < L]
    places = range(0, L, measure["lesioned"])

    def loss_without(blocks):
        return loss_and_error(net, x, labels, blocks, size)[0]
    return {
        "layers": L, "loss": hn.significant(cut[-1]),
        "open": int((T > COUNTS).sum()), "open_before": int((T_before > COUNTS).sum()),
        "prefix": int(np.argmax(cut <= KEEPS * cut[-1])),
        "moved": int((moved > COUNTS).sum()),
        "kept": {"layers": kept,
                 "loss": listed([loss_without(order[m:].tolist()) for m in kept], 3)},
        "closed_loss": hn.significant(cut[0]),      # all blocks
        "lesions": {"first": list(places), "loss": listed([
            loss_without(range(first, min(first + measure["lesioned"], L)))
            for first in places], 3)},
        "curves": {"T": thin(T), "change": thin(np.sqrt(change)), "moved": thin(moved),
                   "cut_loss": thin(cut)}}


# --------------------------------------------------------------------------------------
# Before training


def rms(values: np.ndarray) -> float:
    """Root of the mean square over all of an array."""
    return float(np.sqrt(np.mean(np.square(values, dtype="float64"))))


@contextmanager
def watching(net: hn.DeepNet) -> Iterator[list[float]]:
    """Yield a list; until the end each block's backward pass appends the rms of its
    dy, the last block's first. The pass itself is the same."""
    block, found = net.block, []

    def backward(d, *rest):
        found.append(rms(d))
        block.backward(d, *rest)
    net.block = block._replace(backward=backward)
    try:
        yield found
    finally:
        net.block = block


def picked(values: list[float], points: int = 50) -> dict:
    """Values at layers evenly apart, the ends among them."""
    at = np.unique(np.linspace(0, len(values) - 1, points).round().astype(int))
    return {"layer": at.tolist(), "rms": listed([values[i] for i in at])}


@trial_function("depth.start")
def start(config: dict, data: hn.Data) -> dict:
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
