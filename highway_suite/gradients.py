"""The gradient of a block, checked by the complex step.

    from highway_suite.gradients import check_gradient, small_batch, small_net
    print(check_gradient(small_net("highway", depth=4), *small_batch()), "agree")

For an analytic loss f, Im f(w + ih) / h is the derivative to machine precision, because
nothing is subtracted. So every entry of the gradient is held to a relative error; there
is no absolute tolerance that a tiny gradient deep in the net could hide under.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import highway_networks as hn

STEP = 1e-30


class WrongGradient(AssertionError):
    """An entry of the gradient differs from the complex-step derivative."""


def small_net(block: str, depth: int, activation: str = "tanh", seed: int = 0,
              dtype: str = "float64") -> hn.DeepNet:
    """12 pixels, 7 units, 5 classes: small, and no two sizes alike. Biases are drawn,
    because zero ones would hide an error in their use. Where H T adds to all of x, a
    deep relu net would double its signal from layer to layer and press its gates to 0
    and 1; smaller weights keep them open."""
    net = hn.DeepNet(block, depth, 7, inputs=12, classes=5, init="glorot",
                     activation=activation, gate_bias=-1.0, seed=seed, dtype=dtype)
    rng = np.random.default_rng([seed, 1])
    for name, weights in net.views(net.params).items():
        if name.startswith("b_"):
            weights += rng.normal(0, 0.3, weights.shape)
        elif block not in ("plain", "highway"):
            weights /= np.sqrt(depth)
    return net


def small_batch(seed: int = 0, size: int = 6, dtype: str = "float64"
                ) -> tuple[np.ndarray, np.ndarray]:
    """x (12, size) and labels (size,)."""
    rng = np.random.default_rng([seed, 2])
    return rng.normal(size=(12, size)).astype(dtype), rng.integers(5, size=size)


def gradient(net: hn.DeepNet, x: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Flat gradient of the mean cross-entropy, by backward."""
    logits, cache = net.forward(x)
    _, dlogits = hn.cross_entropy(logits, labels)
    return net.backward(dlogits, cache).copy()


def by_complex_step(net: Any, twin: Any, loss: Callable) -> Callable[[int], float]:
    """-> function of an entry of net.params: the derivative of loss(twin), a complex
    net's."""
    def derivative(entry):
        twin.params[...] = net.params
        twin.params[entry] += 1j * STEP
        return loss(twin).imag / STEP
    return derivative


def compare(net: Any, found: np.ndarray, derivative: Callable[[int], float],
            entries: int | None, off: Callable, seed: int = 0) -> int:
    """Compare so many random entries of every named tensor, or all, of found, the net's
    flat gradient, with derivative(entry) -> how many. Raises WrongGradient, with both
    values, for the first that differs by more than off(expected, the tensor's
    gradient)."""
    rng, compared = np.random.default_rng([seed, 3]), 0
    for name, places in net.views(np.arange(found.size)).items():
        for entry in rng.permutation(places.ravel())[:entries]:
            expected = derivative(entry)
            if not abs(found[entry] - expected) <= off(expected, found[places]):
                raise WrongGradient(f"{name}[{entry}]: backward {found[entry]}, "
                                    f"complex step {expected}")
            compared += 1
    return compared


def check_gradient(net: hn.DeepNet, x: np.ndarray, labels: np.ndarray,
                   entries: int | None = None, rtol: float = 1e-9, seed: int = 0
                   ) -> int:
    """Compare all entries of the gradient, or so many of every tensor, with the complex
    step, each to rtol of its own size -> how many. Raises WrongGradient."""
    found = gradient(net, x, labels)
    twin = hn.DeepNet(**net.settings, dtype="complex128")
    twin.block, twin.activation = net.block, net.activation
    x, cache = x.astype("complex128"), twin.cache(len(labels))
    derivative = by_complex_step(net, twin, lambda twin: hn.cross_entropy(
        twin.forward(x, cache)[0], labels)[0])
    return compare(net, found, derivative, entries,
                   lambda expected, tensor: rtol * abs(expected), seed)
