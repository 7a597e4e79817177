"""What is measured of a trained net, and of the same net before training.

Legend: L blocks, U units, C classes, N images, F features: of all blocks together.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

import highway_networks as hn
from experiments.lab.judging import listed
from experiments.nets.probes import (
    BATCH,
    in_total,
    loss_and_error,
    passes,
    prefix,
    reordered,
    total_loss,
)

# What is read off a forward pass: (L, U, B) of it, and for the block outputs the plain
# layer's before them, (L + 1, U, B).
VALUES = {"T": lambda cache: cache.T,
          "outputs": lambda cache: cache.x[:, :cache.net.hidden]}


def correlation(a: np.ndarray, b: np.ndarray) -> float | None:
    """Pearson's correlation of two arrays of one shape; None where one is constant."""
    a, b = np.ravel(a) - np.mean(a), np.ravel(b) - np.mean(b)
    norm = np.sqrt((a @ a) * (b @ b))
    return hn.significant(a @ b / norm) if norm else None


# --------------------------------------------------------------------------------------
# Lesions and shuffles


def use_of_blocks(net: hn.DeepNet, x: np.ndarray, labels: np.ndarray) -> dict:
    """Loss and error of the whole net, of the net with one block closed at a time, and
    the error of the first k blocks alone, k = 0..L."""
    loss, error = loss_and_error(net, x, labels)
    closed = np.array([loss_and_error(net, x, labels, [block])
                       for block in range(net.depth)])
    return {"loss": hn.significant(loss), "error": hn.significant(error),
            "one_closed": {"loss": listed(closed[:, 0]), "error": listed(closed[:, 1])},
            "first_only": {"error": listed(prefix(net, x, labels)[1])}}


def nearby_order(blocks: int, distance: int, rng: np.random.Generator) -> np.ndarray:
    """A random permutation that moves no block by more than `distance`. Blocks are
    sorted by l + u, with u from 0 to distance + 1. Only a block at most `distance` away
    can get to the other side of block l."""
    return np.argsort(np.arange(blocks) + rng.uniform(0, distance + 1, blocks))


def shuffle(net: hn.DeepNet, x: np.ndarray, labels: np.ndarray, how: dict) -> dict:
    """The error of the net, and its error with the blocks shuffled further and further,
    a row for each draw. how: "distances", "draws", "seed"."""
    rng = np.random.default_rng([how["seed"], 2])
    orders = [[nearby_order(net.depth, distance, rng) for distance in how["distances"]]
              for _ in range(how["draws"])]
    return {"before": hn.significant(loss_and_error(net, x, labels)[1]),
            "error": listed([[loss_and_error(reordered(net, order), x, labels)[1]
                              for order in row] for row in orders])}


# --------------------------------------------------------------------------------------
# Blocks as steps of an estimate (Greff et al. 2017)


def estimation_error(net: hn.DeepNet, x: np.ndarray, size: int = BATCH) -> dict:
    """How far block outputs a_k, k = 0..L, are from A = a_L on images x (N, P).

    mean (L + 1,): of a_k - A over images and units, in units of A's standard deviation
        over images (the mean of its units').
    std (L + 1,): its standard deviation over images, mean of units, likewise.
    bias_share (L,): the share of the squared error that is bias, the square of each
        unit's mean error over images.
    """
    shape = (net.depth + 1, net.hidden)
    total, squares, A_total, A_squares = (np.zeros(size) for size in (
        shape, shape, net.hidden, net.hidden))
    for _, _, cache in passes(net, x, size=size):
        a = cache.x[:, :net.hidden].astype("float64")
        error = a - a[-1]
        total += error.sum(axis=2)
        squares += (error ** 2).sum(axis=2)
        A_total += a[-1].sum(axis=1)
        A_squares += (a[-1] ** 2).sum(axis=1)
    mean = total / len(x)                                           # (L + 1, U)
    variance = np.maximum(squares / len(x) - mean ** 2, 0)
    A_std = np.sqrt(np.maximum(A_squares / len(x) - (A_total / len(x)) ** 2, 0)).mean()
    bias = (mean ** 2).sum(axis=1)[:-1]
    return {"mean": listed(mean.mean(axis=1) / A_std),
            "std": listed(np.sqrt(variance).mean(axis=1) / A_std),
            "bias_share": listed(bias / (bias + variance.sum(axis=1)[:-1]))}


def bias_of_steps(net: hn.DeepNet, x: np.ndarray, size: int = BATCH) -> np.ndarray:
    """The share of F = a_k - a_(k-1) that is bias, for each block (L,): sum m^2 / sum
    (m^2 + s^2) over the units, with m and s a unit's mean and deviation over images.
    0 where E[F] = 0 (their Eq. 9)."""
    mean, squares = in_total(
        np.array([step.sum(axis=2), (step ** 2).sum(axis=2)])
        for _, _, cache in passes(net, x, size=size)
        for step in [np.diff(cache.x[:, :net.hidden].astype("float64"), axis=0)]
        ) / len(x)
    return (mean ** 2).sum(axis=1) / squares.sum(axis=1)


def optimal_mixing(net: hn.DeepNet, x: np.ndarray, size: int = BATCH) -> np.ndarray:
    """The constant T of each unit with which a_(k-1) + T (H - a_(k-1)) estimates A =
    a_L with the least variance, (L, U) (their Eqs. 10 and 11):

    T = alpha_1 / (alpha_1 + alpha_2) = Cov[a_(k-1) - A, a_(k-1) - H] / Var[a_(k-1) - H]
    """
    sums: Any = 0
    for _, _, cache in passes(net, x, size=size):
        a = cache.x[:, :net.hidden].astype("float64")
        H = np.array([layer.rows[0] for layer in cache.layers], "float64")
        error, apart = a[:-1] - a[-1], a[:-1] - H                       # (L, U, B)
        sums = sums + np.array([values.sum(axis=2) for values in (
            error, apart, error * apart, apart ** 2)])
    error, apart, product, square = sums / len(x)
    return (product - error * apart) / (square - apart ** 2)


def mixing(net: hn.DeepNet, x: np.ndarray, T: np.ndarray) -> dict:
    """How a net's mean T (L, U) correlates with the T that would mix best, over the
    gates of all blocks but the last: what the last block mixes is A itself."""
    best, T = optimal_mixing(net, x)[:-1], T[:-1]
    ranks = [np.argsort(np.argsort(values, axis=None)) for values in (best, T)]
    return {"rank_correlation": correlation(*ranks),
            "median_best": hn.significant(np.median(best)),
            "median_T": hn.significant(np.median(T))}


def still(net: hn.DeepNet, x: np.ndarray, apart: int, within: Iterable[float],
          size: int = BATCH) -> list[float]:
    """The share of values a_k of units and images that differ from a_(k + apart) by
    less than each of `within`. Srivastava et al. (2015) call these stripes."""
    within = list(within)
    counts = in_total(
        np.array([np.count_nonzero(moved < most) for most in within], float)
        for _, _, cache in passes(net, x, size=size)
        for moved in [np.abs(cache.x[apart:, :net.hidden]
                             - cache.x[:-apart, :net.hidden])])
    return list(counts / (len(x) * net.hidden * (net.depth + 1 - apart)))


# --------------------------------------------------------------------------------------
# Gates


def hoyer(values: np.ndarray, axis: int | None = None) -> Any:
    """Hoyer's sparsity: (sqrt n - |v|_1 / |v|_2) / (sqrt n - 1), in [0, 1]."""
    n = np.sqrt(values.size if axis is None else values.shape[axis])
    ratio = np.abs(values).sum(axis) / np.sqrt((values ** 2).sum(axis))
    return (n - ratio) / (n - 1)


class PerExample(NamedTuple):
    """What single images show, as means over images."""

    closed: np.ndarray      # (L,) share of closed gates
    hoyer: float            # sparsity of all gates
    change: np.ndarray      # (L,) |y_l - y_(l-1)|


def per_example(net: hn.DeepNet, x: np.ndarray, closed: float) -> PerExample:
    """What the images x (N, P) show; gates below `closed` count as closed."""
    shut: Any = 0
    sparsity, change = shut, shut
    for _, _, cache in passes(net, x):
        T, y = (VALUES[values](cache) for values in ("T", "outputs"))
        shut += np.less(T, closed).mean(axis=1).sum(axis=1)
        sparsity += hoyer(T.reshape(-1, cache.batch), axis=0).sum(dtype=float)
        change += np.linalg.norm(np.diff(y, axis=0), axis=1).sum(axis=1, dtype=float)
    return PerExample(*(total / len(x) for total in (shut, sparsity, change)))


def about_bias(net: hn.DeepNet, start: float, T: np.ndarray) -> dict:
    """b_T after training: the share that fell, and how the mean b_T of a block
    correlates with depth and with the block's mean T; T is (L, U)."""
    b_T = net.views(net.params)["b_T"].astype(float)                # (L, U)
    blocks = b_T.mean(axis=1)
    return {"fell": hn.significant((b_T < start).mean()),
            "with_depth": correlation(blocks, np.arange(len(blocks))),
            "with_activity": correlation(blocks, T.mean(axis=1))}


def shares_of_blocks(apart: np.ndarray, classes: list[int]) -> dict:
    """The classes' mean T less that of all images (C, L, U) -> the share of each block
    in the squares of these differences: for these two classes, and for all."""
    squares = (apart ** 2).sum(axis=2)
    return {name: listed(rows.sum(axis=0) / rows.sum())
            for name, rows in (("two", squares[classes]), ("all", squares))}


Given = Callable[[slice, np.ndarray], np.ndarray]


def rerouted(net: hn.DeepNet, x: np.ndarray, labels: np.ndarray,
             variants: Mapping[str, tuple[Collection[int], Given]], size: int = BATCH
             ) -> dict[str, tuple[float, float]]:
    """Mean cross-entropy and error rate where blocks are given their T instead of
    computing it: {name: (blocks, given)} -> {name: (loss, error)}. Raises ValueError
    if the blocks have no T.

    given(rows, T) -> T (L, U, B) for images x[rows], whose own T are (L, U, B). Other
    blocks compute their T from the input that they then get.
    """
    out = net.tensors(net.params)["out"]
    found = dict.fromkeys(variants, np.zeros(2))
    for rows, _, cache in passes(net, x, size=size):
        if cache.T is None:
            raise ValueError("such blocks have no transform gate")
        own = cache.T.copy()
        for name, (blocks, given) in variants.items():
            T = given(rows, own)
            for l, layer in enumerate(cache.layers):
                np.matmul(layer.W, layer.x1, out=layer.z)
                hn.activate(layer.z, layer.rows[0], layer.gates, net.activation,
                            cache.half)
                if l in blocks:
                    cache.T[l] = T[l]
                net.block.forward(layer.x, layer.rows, layer.y, cache.scratch)
            found[name] = found[name] + total_loss(out @ cache.x[-1], labels[rows])
    return {name: (float(loss), float(wrong))
            for name, (loss, wrong) in ((name, total / len(x))
                                        for name, total in found.items())}


def permuted(labels: np.ndarray, rng: np.random.Generator, within: bool) -> np.ndarray:
    """A permutation of a batch; within: only images of one class change places."""
    if not within:
        return rng.permutation(len(labels))
    order = np.arange(len(labels))
    for label in np.unique(labels):
        own = np.flatnonzero(labels == label)
        order[own] = own[rng.permutation(len(own))]
    return order


# --------------------------------------------------------------------------------------
# What features of images, such as gates, tell of their classes


class Moments:
    """First and second moments of F features over images, and their means by class.

    They are taken about an origin (L, U) near the mean. About 0, the variance of gates
    that hardly move would be lost in float32.
    """

    def __init__(self, origin: np.ndarray, classes: int):
        self.shape, self.origin = origin.shape, origin.reshape(-1, 1)
        size = origin.size
        self.count = np.zeros(classes)
        self.sums = np.zeros((size, classes))
        self.gram = np.zeros((size, size))

    def add(self, values: np.ndarray, labels: np.ndarray) -> None:
        """Take in values (L, U, B) and labels (B,)."""
        flat = values.reshape(-1, len(labels)) - self.origin
        chosen = np.eye(len(self.count), dtype=flat.dtype)[labels]      # (B, C)
        self.count += chosen.sum(axis=0)
        self.sums += flat @ chosen
        self.gram += flat @ flat.T

    @property
    def mean(self) -> np.ndarray:
        """(F,)"""
        return self.origin[:, 0] + self.sums.sum(axis=1) / self.count.sum()

    @property
    def class_means(self) -> np.ndarray:
        """(F, C)"""
        return self.origin + self.sums / self.count

    @property
    def covariance(self) -> np.ndarray:
        """(F, F)"""
        mean = self.mean - self.origin[:, 0]
        return self.gram / self.count.sum() - np.outer(mean, mean)

    def nearest_mean(self) -> tuple[np.ndarray, np.ndarray]:
        """argmin |f - mean_c|^2 = argmax mean_c f - |mean_c|^2 / 2, as (W, b)."""
        W = self.class_means
        return W, -0.5 * (W ** 2).sum(axis=0)

    def regression(self, ridge: float) -> tuple[np.ndarray, np.ndarray]:
        """Ridge regression to one-hot labels, as (W, b); the penalty is `ridge` times
        the mean variance of the features."""
        share, mean, own = self.count / self.count.sum(), self.mean, self.covariance
        with_labels = (self.class_means - mean[:, None]) * share
        penalty = ridge * np.trace(own) / len(own) * np.eye(len(own))
        W = np.linalg.solve(own + penalty, with_labels)
        return W, share - mean @ W


def moments(net: hn.DeepNet, x: np.ndarray, labels: np.ndarray, values: str) -> Moments:
    """The Moments of one of VALUES over images x (N, P)."""
    found: Any = None
    for rows, _, cache in passes(net, x):
        batch = VALUES[values](cache)
        found = found or Moments(batch.mean(axis=2), net.classes)
        found.add(batch, labels[rows])
    return found


def told(net: hn.DeepNet, x: np.ndarray, labels: np.ndarray, values: str,
         found: Moments, ridge: float) -> dict[str, float]:
    """Share of images x (N, P) whose class each linear readout of one of VALUES, W^T f
    + b, finds: the nearest class mean, and ridge regression."""
    readouts = {"means": found.nearest_mean(), "ridge": found.regression(ridge)}
    right = dict.fromkeys(readouts, 0)
    for rows, _, cache in passes(net, x):
        features = VALUES[values](cache).reshape(-1, cache.batch)
        for how, (W, b) in readouts.items():
            scores = W.T @ features + b[:, None]
            right[how] += np.count_nonzero(scores.argmax(axis=0) == labels[rows])
    return {how: hn.significant(count / len(x)) for how, count in right.items()}
