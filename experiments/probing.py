"""Looking into a trained DeepNet: what it loses where its layers are tampered with.

Every probe takes images x (N, P), any number of them, and works in batches: sums over
images, not means of batches, so that the last, smaller batch counts as it should. A net
is never changed: `reordered` makes a twin, to be probed like any other net.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

import highway_networks as hn

BATCH = 500


def passes(net: hn.DeepNet, x: np.ndarray, closed: Collection[int] = (),
           size: int = BATCH) -> Iterator[tuple[slice, np.ndarray, hn.Cache]]:
    """Forward passes over images x (N, P) in batches -> (rows, logits, cache), one BLAS
    thread. Logits and cache are overwritten by the next."""
    cache = net.cache(min(size, len(x)))
    with threadpool_limits(1, "blas"):
        for start in range(0, len(x), size):
            rows = slice(start, start + size)
            logits, cache = net.forward(x[rows].T, cache, closed)
            yield rows, logits, cache


def in_total(parts: Iterable[np.ndarray]) -> np.ndarray:
    """The sum of what the passes gave, one by one."""
    return np.sum(list(parts), axis=0)


def total_loss(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Logits (C, B) -> cross-entropy and number of errors, summed over the batch."""
    loss, _ = hn.cross_entropy(logits, labels)
    return np.array([float(loss) * len(labels),
                     np.count_nonzero(logits.argmax(axis=0) != labels)])


def loss_and_error(net: hn.DeepNet, x: np.ndarray, labels: np.ndarray,
                   closed: Collection[int] = (), size: int = BATCH
                   ) -> tuple[float, float]:
    """Mean cross-entropy and error rate on images x (N, P), layers closed."""
    loss, wrong = in_total(
        total_loss(logits, labels[rows])
        for rows, logits, _ in passes(net, x, closed, size)) / len(x)
    return float(loss), float(wrong)


def prefix(net: hn.DeepNet, x: np.ndarray, labels: np.ndarray, size: int = BATCH
           ) -> tuple[np.ndarray, np.ndarray]:
    """Mean cross-entropy and error rate of the first k layers alone, k = 0..L, each
    (L + 1,). The others, closed, would hand on y_k, so it is what the output layer
    makes of y_k, and one pass tells all."""
    out = net.tensors(net.params)["out"]
    loss, wrong = in_total(
        np.array([total_loss(out @ y, labels[rows]) for y in cache.x])
        for rows, _, cache in passes(net, x, size=size)).T / len(x)
    return loss, wrong


def mean_gates(net: hn.DeepNet, x: np.ndarray, size: int = BATCH) -> np.ndarray:
    """Mean T over images x (N, P) of every unit, (L, U). Raises ValueError for a net
    without T."""
    if "T" not in net.block.gates:
        raise ValueError(f"{net.settings['block']} blocks have no transform gate")
    return in_total(np.asarray(cache.T).sum(axis=2, dtype=float)
                    for _, _, cache in passes(net, x, size=size)) / len(x)


def mean_change(net: hn.DeepNet, x: np.ndarray, size: int = BATCH) -> np.ndarray:
    """Mean square of y - x over units and images x (N, P), for each layer (L,)."""
    squares = in_total(
        np.sum(np.diff(cache.x[:, :net.hidden], axis=0) ** 2, axis=(1, 2), dtype=float)
        for _, _, cache in passes(net, x, size=size))
    return squares / (len(x) * net.hidden)


class Estimation(NamedTuple):
    """How far block outputs a_k, k = 0..L, are from A = a_L (Greff et al. 2017)."""

    A_std: float            # A's standard deviation over images, mean of its units
    mean: np.ndarray        # (L + 1,) of a_k - A over images and units, in A_std
    std: np.ndarray         # (L + 1,) its deviation over images, mean of units, too
    bias_share: np.ndarray  # (L,) of the squared error: what each unit is off by on the
                            # mean of all images


def estimation_error(net: hn.DeepNet, x: np.ndarray, size: int = BATCH) -> Estimation:
    """The estimation error of a net on images x (N, P)."""
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
    return Estimation(A_std, mean.mean(axis=1) / A_std,
                      np.sqrt(variance).mean(axis=1) / A_std,
                      bias / (bias + variance.sum(axis=1)[:-1]))


def bias_of_steps(net: hn.DeepNet, x: np.ndarray, size: int = BATCH) -> np.ndarray:
    """The share of F = a_k - a_(k-1) that is bias, for each layer (L,): sum m^2 / sum
    (m^2 + s^2) over the units, with m and s a unit's mean and deviation over images.
    0 where E[F] = 0 (Greff et al. 2017, Eq. 9)."""
    mean, squares = in_total(
        np.array([step.sum(axis=2), (step ** 2).sum(axis=2)])
        for _, _, cache in passes(net, x, size=size)
        for step in [np.diff(cache.x[:, :net.hidden].astype("float64"), axis=0)]
        ) / len(x)
    return (mean ** 2).sum(axis=1) / squares.sum(axis=1)


def still(net: hn.DeepNet, x: np.ndarray, apart: int, within: Iterable[float],
          size: int = BATCH) -> list[float]:
    """The share of values a_k of units and images that a_(k + apart) differs from by
    less than each of `within`: stripes, as Srivastava et al. (2015) call them."""
    within = list(within)
    counts = in_total(
        np.array([np.count_nonzero(moved < most) for most in within], float)
        for _, _, cache in passes(net, x, size=size)
        for moved in [np.abs(cache.x[apart:, :net.hidden]
                             - cache.x[:-apart, :net.hidden])])
    return list(counts / (len(x) * net.hidden * (net.depth + 1 - apart)))


def optimal_mixing(net: hn.DeepNet, x: np.ndarray, size: int = BATCH) -> np.ndarray:
    """The constant T of each unit with which a_(k-1) + T (H - a_(k-1)) estimates A =
    a_L with the least variance, (L, U) (Greff et al. 2017, Eqs. 10 and 11):

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


Given = Callable[[slice, np.ndarray], np.ndarray]


def rerouted(net: hn.DeepNet, x: np.ndarray, labels: np.ndarray,
             variants: Mapping[str, tuple[Collection[int], Given]], size: int = BATCH
             ) -> dict[str, tuple[float, float]]:
    """Mean cross-entropy and error rate where layers are given their T instead of
    computing it: {name: (layers, given)} -> {name: (loss, error)}.

    given(rows, T) -> T (L, U, B) for images x[rows], whose own T are (L, U, B). Other
    layers compute theirs, from what they are then given.
    """
    out = net.tensors(net.params)["out"]
    found = dict.fromkeys(variants, np.zeros(2))
    for rows, _, cache in passes(net, x, size=size):
        if cache.T is None:
            raise ValueError("such blocks have no transform gate")
        own = cache.T.copy()
        for name, (layers, given) in variants.items():
            T = given(rows, own)
            for l, layer in enumerate(cache.layers):
                np.matmul(layer.W, layer.x1, out=layer.z)
                hn.activate(layer.z, layer.rows[0], layer.gates, net.activation,
                            cache.half)
                if l in layers:
                    cache.T[l] = T[l]
                net.block.forward(layer.x, layer.rows, layer.y, cache.scratch)
            found[name] = found[name] + total_loss(out @ cache.x[-1], labels[rows])
    return {name: (float(loss), float(wrong))
            for name, (loss, wrong) in ((name, total / len(x))
                                        for name, total in found.items())}


# --------------------------------------------------------------------------------------
# Twins


def twin_of(net: hn.DeepNet) -> hn.DeepNet:
    """A net with the same weights, to be changed."""
    settings: dict[str, Any] = net.settings
    twin = hn.DeepNet(**settings, dtype=net.dtype)
    twin.params[...] = net.params
    return twin


def reordered(net: hn.DeepNet, order: np.ndarray) -> hn.DeepNet:
    """A net with the same layers in another order: layer l is the old order[l]."""
    twin = twin_of(net)
    layers = twin.tensors(twin.params)["blocks"]
    layers[...] = layers[order]
    return twin


def nearby_order(layers: int, distance: int, rng: np.random.Generator) -> np.ndarray:
    """A random permutation that moves no layer by more than `distance`: an l can only
    be overtaken by those whose l + u is smaller, which are at most so far off."""
    return np.argsort(np.arange(layers) + rng.uniform(0, distance + 1, layers))
