"""What is measured of a trained net, and of the same net before training.

Legend: L blocks, U units, C classes, N images.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

import highway_networks as hn
from experiments.lab.judging import listed
from experiments.nets.probes import (
    loss_and_error,
    mean_gates,
    over_images,
    reordered,
    total_loss,
)


def outputs(net: hn.DeepNet, cache: hn.Cache) -> np.ndarray:
    """The outputs a_k of all blocks, a_0 of the plain layer before them, (L + 1, U, B).
    """
    return cache.x[:, :net.hidden]


def correlation(a: np.ndarray, b: np.ndarray) -> float | None:
    """Pearson's correlation of two arrays of one shape; None where one is constant."""
    a, b = np.ravel(a) - np.mean(a), np.ravel(b) - np.mean(b)
    norm = np.sqrt((a @ a) * (b @ b))
    return hn.significant(a @ b / norm) if norm else None


# --------------------------------------------------------------------------------------
# Lesions and shuffles


def use_of_blocks(net: hn.DeepNet, x: np.ndarray, labels: np.ndarray) -> dict:
    """Loss and error of the whole net, and with one block closed at a time."""
    loss, error = loss_and_error(net, x, labels)
    closed = np.array([loss_and_error(net, x, labels, [block])
                       for block in range(net.depth)])
    return {"loss": hn.significant(loss), "error": hn.significant(error),
            "one_closed": {"loss": listed(closed[:, 0]), "error": listed(closed[:, 1])}}


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


def moments(net: hn.DeepNet, x: np.ndarray, of: Callable[[np.ndarray], np.ndarray]
            ) -> np.ndarray:
    """Mean and mean square over images x (N, P) of what `of` makes of the outputs a_k,
    (K, U, B), of every unit, (2, K, U)."""
    def sums(rows, _, cache):
        values = of(outputs(net, cache).astype("float64"))
        return [values.sum(axis=2), (values ** 2).sum(axis=2)]
    return over_images(net, x, sums)


def estimation_error(net: hn.DeepNet, x: np.ndarray) -> dict:
    """How far block outputs a_k, k = 0..L, are from A = a_L on images x (N, P).

    mean (L + 1,): of a_k - A over images and units, in units of A's standard deviation
        over images (the mean of its units').
    std (L + 1,): its standard deviation over images, mean of units, likewise.
    bias_share (L,): the share of the squared error that is bias, the square of each
        unit's mean error over images.
    """
    mean, squares = moments(net, x, lambda a: np.concatenate([a - a[-1], a[-1:]]))
    variance = np.maximum(squares - mean ** 2, 0)           # (L + 2, U), the last of A
    A_std, mean, variance = np.sqrt(variance[-1]).mean(), mean[:-1], variance[:-1]
    bias = (mean ** 2).sum(axis=1)[:-1]
    return {"mean": listed(mean.mean(axis=1) / A_std),
            "std": listed(np.sqrt(variance).mean(axis=1) / A_std),
            "bias_share": listed(bias / (bias + variance.sum(axis=1)[:-1]))}


def bias_of_steps(net: hn.DeepNet, x: np.ndarray) -> list[float]:
    """The share of F = a_k - a_(k-1) that is bias, for each block (L,): sum m^2 / sum
    (m^2 + s^2) over the units, with m and s a unit's mean and deviation over images.
    0 where E[F] = 0 (their Eq. 9)."""
    mean, squares = moments(net, x, lambda a: np.diff(a, axis=0))
    return listed((mean ** 2).sum(axis=1) / squares.sum(axis=1))


def optimal_mixing(net: hn.DeepNet, x: np.ndarray) -> np.ndarray:
    """The constant T of each unit with which a_(k-1) + T (H - a_(k-1)) estimates A =
    a_L with the least variance, (L, U) (their Eqs. 10 and 11):

    T = alpha_1 / (alpha_1 + alpha_2) = Cov[a_(k-1) - A, a_(k-1) - H] / Var[a_(k-1) - H]
    """
    def sums(rows, _, cache):
        a = outputs(net, cache).astype("float64")
        H = np.array([layer.rows[0] for layer in cache.layers], "float64")
        error, apart = a[:-1] - a[-1], a[:-1] - H                       # (L, U, B)
        return [values.sum(axis=2) for values in (error, apart, error * apart,
                                                  apart ** 2)]
    error, apart, product, square = over_images(net, x, sums)
    return (product - error * apart) / (square - apart ** 2)


def mixing(net: hn.DeepNet, x: np.ndarray) -> float | None:
    """The rank correlation of a net's mean T with the T that would mix best, over the
    gates of all blocks but the last: what the last block mixes is A itself."""
    ranks = [np.argsort(np.argsort(T[:-1], axis=None))
             for T in (optimal_mixing(net, x), mean_gates(net, x))]
    return correlation(*ranks)


def still(net: hn.DeepNet, x: np.ndarray, apart: int, within: Iterable[float]
          ) -> list[float]:
    """The share of values a_k of units and images that differ from a_(k + apart) by
    less than each of `within`. Srivastava et al. (2015) call these stripes."""
    def counts(rows, _, cache):
        moved = np.abs(outputs(net, cache)[apart:] - outputs(net, cache)[:-apart])
        return [np.count_nonzero(moved < most) for most in within]
    return listed(over_images(net, x, counts) / (net.hidden * (net.depth + 1 - apart)))


def change(net: hn.DeepNet, x: np.ndarray) -> list[float]:
    """Mean length of the step that each block makes, |y_l - y_(l-1)|, (L,)."""
    return listed(over_images(net, x, lambda rows, _, cache: np.linalg.norm(np.diff(
        outputs(net, cache), axis=0), axis=1).sum(axis=1, dtype=float)))


# --------------------------------------------------------------------------------------
# Gates


def hoyer(values: np.ndarray, axis: int | None = None) -> Any:
    """Hoyer's sparsity: (sqrt n - |v|_1 / |v|_2) / (sqrt n - 1), in [0, 1]."""
    n = np.sqrt(values.size if axis is None else values.shape[axis])
    ratio = np.abs(values).sum(axis) / np.sqrt((values ** 2).sum(axis))
    return (n - ratio) / (n - 1)


def sparsity(net: hn.DeepNet, x: np.ndarray) -> float:
    """Hoyer's measure of all T of one image, mean over images."""
    return hn.significant(float(over_images(net, x, lambda rows, _, cache: hoyer(
        cache.T.reshape(-1, cache.batch), axis=0).sum(dtype=float))))


def closed_gates(net: hn.DeepNet, x: np.ndarray, closed: float) -> np.ndarray:
    """The share of T below `closed`, of each block (L,), mean over images."""
    return over_images(net, x, lambda rows, _, cache: np.less(cache.T, closed).mean(
        axis=1).sum(axis=1))


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


def class_gates(net: hn.DeepNet, x: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Mean T of the images of each class (C, L, U)."""
    return np.stack([mean_gates(net, x[labels == c]) for c in range(net.classes)])


def class_differences(net: hn.DeepNet, x: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The classes' mean T less that of all images (C, L, U)."""
    by_class = class_gates(net, x, labels)
    weights = np.bincount(labels, minlength=net.classes) / len(labels)
    return by_class - np.tensordot(weights, by_class, 1)


def nearest_class(net: hn.DeepNet, x: np.ndarray, labels: np.ndarray,
                  by_class: np.ndarray) -> float:
    """The share of images x (N, P) whose T are nearest to the mean T of their own class
    (C, L, U): argmin |T - mean|^2 = argmax T mean - |mean|^2 / 2."""
    means = by_class.reshape(len(by_class), -1)
    half = 0.5 * (means ** 2).sum(axis=1, keepdims=True)
    return float(over_images(net, x, lambda rows, _, cache: np.count_nonzero(
        (means @ cache.T.reshape(-1, cache.batch) - half).argmax(axis=0)
        == labels[rows])))


def held(net: hn.DeepNet, x: np.ndarray, labels: np.ndarray,
         given: Callable[[slice], np.ndarray]) -> tuple[float, float]:
    """Mean cross-entropy and error rate where no block computes its T: given(rows) is
    T (L, U, B) for images x[rows]."""
    out = net.tensors(net.params)["out"]

    def sums(rows, _, cache):
        T = given(rows)
        for l, layer in enumerate(cache.layers):
            np.matmul(layer.W, layer.x1, out=layer.z)
            hn.activate(layer.z, layer.rows[0], layer.gates, net.activation, cache.half)
            cache.T[l] = T[l]
            net.block.forward(layer.x, layer.rows, layer.y, cache.scratch)
        return total_loss(out @ cache.x[-1], labels[rows])
    loss, error = over_images(net, x, sums)
    return float(loss), float(error)
