"""Convolutional highway nets for `hn.fit`, and their optimiser.

A net is a list of layers of layers.py, for example

    [("dropout", 0.2), ("plain", 16, 5, 0), ("highway", 16, 3, 1), ("pool", 3, 2),
     ("dense", 10)]

Legend, beside that of the layers: P = C S S numbers of an image, whose C channels (one,
or red, green and blue) are planes, row by row.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

import highway_networks as hn
from experiments.nets.convolution.layers import LAYERS, Dropout, Highway

PIECE, LINE = 1 << 25, 64       # bytes: of memory at once; of a processor's cache


class Cache:
    """A net's layers at work on batches of one size: all arrays, allocated once.

    Backward overwrites what forward left, so each forward pass serves one backward.
    piece: all dropouts draw for so many examples at a time; it divides the batch.
    """

    def __init__(self, net: ConvNet, batch: int, piece: int | None = None):
        self.net, self.batch, self.dtype = net, batch, net.dtype
        self.piece = piece or batch
        self.buffers: dict[tuple, np.ndarray] = {}
        self.free = np.empty(0, np.uint8)
        self.grad = self.zeros(net.params.shape)
        self.layers = [
            LAYERS[kind](self, shape, tensors, grads, *numbers)
            for (kind, *numbers), shape, tensors, grads in zip(
                net.layers, net.shapes[:-1], net.by_layer(net.params),
                net.by_layer(self.grad), strict=True)]
        self.logits = self.zeros((batch, 1, 1, net.shapes[-1][1]))

    def zeros(self, shape: tuple, dtype: Any = None) -> np.ndarray:
        """An array at a line of the cache (`hn.aligned`), in one piece of memory with
        others, so that it lies in large pages, whose addresses are found sooner."""
        dtype = np.dtype(dtype or self.dtype)
        size = math.prod(shape) * dtype.itemsize
        if size > len(self.free):
            self.free = hn.aligned((max(size, PIECE),), np.uint8)
        array, self.free = self.free[:size], self.free[size + -size % LINE:]
        return array.view(dtype).reshape(shape)

    def shared(self, name: Hashable, shape: tuple) -> np.ndarray:
        """A buffer in which no layer expects to find what it left, but zeros where none
        writes."""
        if (name, shape) not in self.buffers:
            self.buffers[name, shape] = self.zeros(shape)
        return self.buffers[name, shape]

    def draw(self, rng: np.random.Generator | None) -> None:
        """Choose what is dropped; without rng nothing is."""
        for start in range(0, self.batch, self.piece):
            for layer in self.layers:
                if isinstance(layer, Dropout):
                    layer.draw(slice(start, start + self.piece), rng)


class ConvNet:
    """Square images -> layers -> logits.

    layers: a list of (kind, *numbers), kind of LAYERS; the last leaves one pixel.
    params is one flat vector; views(flat) names the parts of it by layer, counted from
    0, and W or b, or W_T of narrow gates. Nets of one seed whose lists differ only in
    "plain" for "highway" share all weights but W_T.
    """

    def __init__(self, layers: Sequence[tuple], side: int, channels: int = 1, *,
                 gate_bias: float = -1.0, seed: int = 0, dtype: Any = "float32",
                 init: str = "he"):
        self.layers, self.side, self.dtype = layers, side, np.dtype(dtype)
        self.shapes, shapes = [(side, channels)], dict[tuple, tuple]()
        for i, (kind, *numbers) in enumerate(layers):
            shape, named = LAYERS[kind].plan(self.shapes[-1], *numbers)
            self.shapes.append(shape)
            shapes |= {(i, name): tensor for name, tensor in named.items()}
        self.layout = hn.Parameters(shapes)
        self.views = self.layout.views      # flat -> {(layer, name): view}
        self.lowest = min(i for i, _ in shapes)     # with parameters: dx ends there
        self.params = np.zeros(self.layout.size, self.dtype)
        streams = hn.streams(seed)["weights"].spawn(len(layers))
        for (kind, *_), tensors, stream in zip(layers, self.by_layer(self.params),
                                               streams, strict=True):
            if tensors:
                LAYERS[kind].initialize(tensors, stream, gate_bias, init)

    def by_layer(self, flat: np.ndarray) -> list[dict[str, np.ndarray]]:
        """flat -> for each layer {name: view}."""
        layers: list[dict] = [{} for _ in self.layers]
        for (i, name), view in self.views(flat).items():
            layers[i][name] = view
        return layers

    def cache(self, batch: int, piece: int | None = None) -> Cache:
        """A Cache for batches of this size."""
        return Cache(self, batch, piece)

    def forward(self, x: np.ndarray, cache: Cache | None = None,
                rng: np.random.Generator | None = None) -> tuple[np.ndarray, Cache]:
        """(P, B) -> logits (classes, B) and the cache, filled. rng: what dropout draws
        from; without it nothing is dropped."""
        S, C = self.shapes[0]
        if cache is None or cache.net is not self or cache.batch != x.shape[1]:
            cache = self.cache(x.shape[1])
        layers = cache.layers
        np.copyto(layers[0].x, x.reshape(C, S, S, -1).transpose(3, 1, 2, 0))
        outputs = [layer.x for layer in layers[1:]] + [cache.logits]
        cache.draw(rng)
        for layer, y in zip(layers, outputs, strict=True):
            layer.forward(y)
        return cache.logits[:, 0, 0].T, cache

    def gates(self, x: np.ndarray, cache: Cache | None = None) -> list[np.ndarray]:
        """(P, B) -> T of every highway layer, each (B, S, S, C)."""
        _, cache = self.forward(x, cache)
        return [layer.gates[0] for layer in cache.layers if isinstance(layer, Highway)]

    def backward(self, dlogits: np.ndarray, cache: Cache) -> np.ndarray:
        """dlogits (classes, B) and a cache fresh from forward -> the flat gradient,
        which belongs to the cache."""
        d = dlogits.T[:, None, None]
        for layer in cache.layers[:self.lowest:-1]:
            d = layer.backward(d)
        cache.layers[self.lowest].backward(d, lowest=True)
        return cache.grad

    def gradient(self, batch: tuple, cache: Cache) -> tuple[dict, np.ndarray]:
        """x (P, B), labels (B,) and what dropout draws from -> the mean loss with what
        was dropped, and its flat gradient."""
        x, labels, rng = batch
        logits, cache = self.forward(x, cache, rng)
        loss, dlogits = hn.cross_entropy(logits, labels)
        return {"train_loss": float(loss)}, self.backward(dlogits, cache)


class OfManySides:
    """A net that learns from images of several sizes: it and twins of the same layers
    for these share all parameters, which an average over the image allows."""

    def __init__(self, net: ConvNet, twins: Sequence[ConvNet]):
        self.params, self.nets = net.params, {}
        for twin in twins:
            twin.params = net.params
            side, channels = twin.shapes[0]
            self.nets[channels * side * side] = twin

    def cache(self, batch: int, piece: int | None = None) -> dict[int, Cache]:
        """Of each size its own."""
        return {size: net.cache(batch, piece) for size, net in self.nets.items()}

    def gradient(self, batch: tuple, caches: dict[int, Cache]
                 ) -> tuple[dict, np.ndarray]:
        """As `ConvNet.gradient`."""
        size = len(batch[0])
        return self.nets[size].gradient(batch, caches[size])


class OfThreads:
    """A net, each of whose threads has a part of the batch, a cache and a random stream
    of its own. The gradients are added in the order of the parts, so that it does not
    matter which thread is faster."""

    def __init__(self, net: Any, threads: int):
        self.net, self.params, self.threads = net, net.params, threads

    def cache(self, batch: int, piece: int | None = None) -> list:
        """Of each thread its own. Raises ValueError where parts were not equal."""
        part, rest = divmod(batch, self.threads)
        if rest or part % (piece or part):
            raise ValueError(f"{batch} examples in pieces of {piece} are not to be "
                             f"shared by {self.threads} threads")
        return [self.net.cache(part, piece) for _ in range(self.threads)]

    def gradient(self, batch: tuple, caches: list) -> tuple[dict, np.ndarray]:
        """As `ConvNet.gradient`."""
        x, labels, rng = batch
        streams = [rng and np.random.default_rng(rng.integers(1 << 63)) for _ in caches]
        size = len(labels) // self.threads

        def work(i):
            part = slice(i * size, (i + 1) * size)
            with np.errstate(all="ignore"):     # as in `hn.fit`; a thread has its own
                return self.net.gradient((x[:, part], labels[part], streams[i]),
                                         caches[i])
        with ThreadPoolExecutor(self.threads) as pool:
            measures, grads = zip(*pool.map(work, range(self.threads)), strict=True)
        return {name: sum(each[name] for each in measures) / self.threads
                for name in measures[0]}, sum(grads[1:], grads[0]) / self.threads


# --------------------------------------------------------------------------------------
# Optimiser


class Nesterov:
    """Nesterov's momentum as Caffe has it, with a rate and a weight decay of its own
    for each parameter.

        g = grad + decays params,  v' = momentum v + lr rates g
        params -= (1 + momentum) v' - momentum v
    """

    kept = ("v",)

    def __init__(self, params: np.ndarray, rates: np.ndarray, decays: np.ndarray,
                 momentum: float = 0.9):
        self.v, self.scratch = np.zeros_like(params), np.empty_like(params)
        self.rates, self.decays, self.momentum = rates, decays, momentum

    def step(self, params: np.ndarray, grad: np.ndarray, lr: float) -> None:
        v, g = self.v, self.scratch
        np.multiply(self.decays, params, out=g)
        np.add(g, grad, out=g)
        np.multiply(g, self.rates, out=g)
        np.multiply(g, lr, out=g)
        np.multiply(v, self.momentum, out=v)
        np.add(params, v, out=params)
        np.add(v, g, out=v)                         # v'
        np.multiply(v, 1 + self.momentum, out=g)
        np.subtract(params, g, out=params)
