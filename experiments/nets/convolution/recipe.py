"""What later years added to the training of such nets.

    ByStep              a rate that changes with every step, decay beside the gradient
    Muon                kernels move by matrices that stretch no direction
    scale_to_unit_variance      of every layer's pre-activations, before training
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import highway_networks as hn
from experiments.nets.convolution.layers import Plain
from experiments.nets.convolution.net import Cache, ConvNet


class ByStep:
    """An optimiser whose rate is multiplied by factor(part of all steps that is over),
    and which first shrinks each parameter by lr times its decay. (Loshchilov, Hutter
    2019)"""

    def __init__(self, inner: Any, decays: np.ndarray, steps: int, factor: Callable):
        self.inner, self.decays, self.total, self.factor = inner, decays, steps, factor
        self.done, self.scratch = np.zeros(1, int), np.empty_like(decays)
        self.kept = (*inner.kept, "done")

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)    # what the inner one keeps

    def step(self, params: np.ndarray, grad: np.ndarray, lr: float) -> None:
        lr *= self.factor((self.done[0] + 0.5) / self.total)
        self.done += 1
        np.multiply(self.decays, params, out=self.scratch)
        np.multiply(self.scratch, lr, out=self.scratch)
        np.subtract(params, self.scratch, out=params)
        self.inner.step(params, grad, lr)


def kernels(net: ConvNet, flat: np.ndarray) -> list[np.ndarray]:
    """Of a flat vector the kernels of each convolution, H's and the gate's apart, as
    matrices (width, k k C)."""
    return [matrix for (i, name), view in net.views(flat).items()
            if name != "b" and net.layers[i][0] != "dense"
            for matrix in view.reshape(-1, net.layers[i][1], view[0].size)]


def orthogonal(matrix: np.ndarray) -> np.ndarray:
    """Nearly the nearest matrix whose singular values are all 1: they become 0.7 to
    1.2, by five steps of Newton and Schulz with K. Jordan's coefficients."""
    tall = len(matrix) > matrix.shape[1]
    X = matrix.T if tall else matrix
    X = X / (np.linalg.norm(X) + 1e-7)
    for _ in range(5):
        A = X @ X.T
        X = 3.4445 * X + (2.0315 * A @ A - 4.7750 * A) @ X
    return X.T if tall else X


class Muon:
    """Kernels move along the orthogonal matrix next to Nesterov's momentum, all other
    parameters by Adam. (Jordan et al. 2024)

        v' = 0.95 v + grad,  W -= 0.2 lr sqrt(max(W.shape)) orthogonal(grad + 0.95 v')

    The factor makes a step about as long as Adam's (Liu et al. 2025), so that both want
    the same rate and decay.
    """

    kept = ("m", "v", "steps", "velocity")

    def __init__(self, net: ConvNet):
        self.net, self.adam = net, hn.Adam(net.params)
        self.m, self.v, self.steps = self.adam.m, self.adam.v, self.adam.steps
        self.velocity = np.zeros_like(net.params)

    def step(self, params: np.ndarray, grad: np.ndarray, lr: float) -> None:
        self.velocity *= 0.95
        self.velocity += grad
        self.velocity[np.abs(self.velocity) < 1e-30] = 0    # as Adam's moments
        ahead, before = grad + 0.95 * self.velocity, params.copy()
        self.adam.step(params, grad, lr)
        for W, old, momentum in zip(*(kernels(self.net, flat) for flat in
                                      (params, before, ahead)), strict=True):
            W[...] = old - 0.2 * lr * max(W.shape) ** 0.5 * orthogonal(momentum)


def scale_to_unit_variance(net: ConvNet, x: np.ndarray, cache: Cache) -> None:
    """Scale the kernels of each convolution, from the lowest up, by one number, so that
    on the batch x the mean of H^2 is 1/2: that of relu(z) if z has mean 0 and variance
    1. (Mishkin, Matas 2016)"""
    for i, layer in enumerate(cache.layers):
        if isinstance(layer, Plain):
            net.forward(x, cache)
            W = net.views(net.params)[i, "W"]
            W /= np.sqrt(2 * np.mean(np.maximum(layer.H, 0) ** 2))
