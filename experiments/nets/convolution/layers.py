"""The layers of convolutional highway nets, forward and backward by hand.

    H = relu(W_H * x + b_H)     T = sigmoid(W_T * x + b_T)      y = x + T (H - x)

One k x k kernel for H and one for T (* slides it over the image), the same receptive
field for both, stride 1 and zeros around the image, so that H, T, x and y are of one
size (P1, section 2.1). What joins them is the core's: `hn.BLOCKS` and `hn.activate`.

Legend: B examples, S side of a square image, C channels of a layer's input, k side of a
kernel, p zeros around the image, R rows of a kernel matrix: one for each channel of H
and, with a gate, as many for T. An activation is (B, S, S, C): example, row, column,
channel. Convolutions are winograd.py's. What is done pixel by pixel, or to each window,
goes through a batch in blocks of a few examples, so that it finds in the cache what it
left there.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import highway_networks as hn
from experiments.nets.convolution.winograd import Convolution, Sizes, tiles_of

BLOCK = 110_000          # numbers of a block; of a convolution, in its lines


def block_of(B: int, numbers: int) -> int:
    """The most examples, a divisor of B, that have at most BLOCK numbers together, each
    so many; one, where that is too many already."""
    return max(n for n in range(1, B + 1)
               if B % n == 0 and (n == 1 or n * numbers <= BLOCK))


RELU = hn.ACTIVATIONS["relu"]

# --------------------------------------------------------------------------------------
# Layers. Each class is one kind, each instance one layer of one Cache:
#
#   plan(shape, *numbers): (S, C) of the input -> (S, C) of the output and the shapes of
#       the parameters by name.
#   Layer(cache, shape, tensors, grads, *numbers): buffers for batches of cache.batch.
#       The layer below writes its output into x.
#   forward(y): x -> y.
#   backward(d): dy -> dx, in place where it can be; d is used up. Fills grads; a layer
#       with parameters stops there if it is the lowest of them.


class Plain:
    """y = H = relu(z), z = W * x + b; k at most 5, 2 p < k.                     (Eq. 1)

    W (R, k, k, C), a kernel as (row, column, channel), and b (R, 1); R = width. Forward
    z becomes H and gate, backward dz.
    """

    block = hn.block_of("plain", 1)

    @classmethod
    def sizes(cls, shape: tuple, width: int, kernel: int, padding: int) -> Sizes:
        """Of its convolution."""
        S, C = shape
        return Sizes(S, C, kernel, padding, width, 1 + len(cls.block.gates))

    @classmethod
    def plan(cls, shape: tuple, width: int, kernel: int, padding: int
             ) -> tuple[tuple, dict]:
        sizes = cls.sizes(shape, width, kernel, padding)
        rows = width * sizes.parts
        return (sizes.side, width), {"W": (rows, kernel, kernel, shape[1]),
                                     "b": (rows, 1)}

    @classmethod
    def initialize(cls, tensors, stream, gate_bias, init):
        """Weights of H and the gate, each from its own stream, so that a plain and a
        highway layer share W_H; b_T as given."""
        width = len(tensors["b"]) // (1 + len(cls.block.gates))
        matrices = [kernels.reshape(width, -1) for name in ("W", "W_T")
                    if name in tensors for kernels in np.split(
                        tensors[name], len(tensors[name]) // width)]
        for matrix, part in zip(matrices, stream.spawn(len(matrices)), strict=True):
            matrix[...] = hn.initial_weights(np.random.default_rng(part), init,
                                             matrix.shape)
        tensors["b"][width:] = gate_bias

    def __init__(self, cache, shape, tensors, grads, width, kernel, padding):
        sizes, B = self.sizes(shape, width, kernel, padding), cache.batch
        S, C, side, T, m = sizes.S, sizes.C, sizes.side, sizes.tiles, sizes.rows
        b = block_of(B, sizes.points * T * sizes.pitch * max(C, width))
        self.convolution = Convolution(cache, sizes, b)
        self.W, self.dW = (named["W"].reshape(sizes.parts, width, kernel, kernel, C)
                           for named in (tensors, grads))
        self.b, self.db = (named["b"].reshape(sizes.parts, width)
                           for named in (tensors, grads))
        padded = cache.zeros((B, T * m + kernel - 1, S, C))
        z = cache.zeros((sizes.parts, B, T * m, side, width))
        self.x, self.beyond = padded[:, padding:padding + S], z[:, :, side:]
        self.H, self.gates = z[0, :, :side], z[1:, :, :side]
        if self.block.gates:
            self.dH, self.scratch = self.convolution.free[
                :2 * b * side ** 2 * width].reshape(2, b, side, side, width)
        self.dx = (None if (side, width) == shape else      # dy becomes dx in place
                   cache.zeros((B, S, S, C)))
        tiles, by_tile = tiles_of(padded, sizes), z.reshape(*z.shape[:2], T, m, -1)
        some = [slice(start, start + b) for start in range(0, B, b)]
        self.blocks = [(each, self.x[each], tiles[each], by_tile[:, each],
                        tuple(z[:, each, :side])) for each in some]

    def forward(self, y: np.ndarray) -> None:
        self.convolution.load(self.W, self.b)
        for examples, x, tiles, z, rows in self.blocks:
            self.convolution.forward(tiles, z)
            self.activate(x, rows, y[examples])

    def backward(self, d: np.ndarray, lowest: bool = False) -> np.ndarray | None:
        self.beyond.fill(0)
        below = d if self.dx is None else self.dx
        if not lowest:
            self.convolution.load_back(self.W)
        for examples, x, tiles, z, rows in self.blocks:
            self.derive(d[examples], x, rows)
            self.convolution.backward(tiles, z)
            if not lowest:
                by = below[examples] if self.block.gates else 0
                np.add(self.convolution.backward_x(), by, out=below[examples])
        self.convolution.unload(self.dW, self.db)
        return None if lowest else below

    def activate(self, x: np.ndarray, rows: tuple, y: np.ndarray) -> None:
        """z in rows, of a gate z / 2 -> y."""
        np.maximum(rows[0], 0, out=y)       # H > 0 where z > 0: there z can stay

    def derive(self, d: np.ndarray, x: np.ndarray, rows: tuple) -> None:
        """dy in d -> dz in rows; where there is a gate, d keeps what passes by it."""
        RELU.backward(d, rows[0])


class Highway(Plain):
    """y = H T + x (1 - T) with T = sigmoid(z_T).                                (Eq. 3)

    W and b are [H; T] stacked: R = 2 width, and the width is that of x.
    """

    block = hn.block_of("highway", 1)

    def activate(self, x: np.ndarray, rows: tuple, y: np.ndarray) -> None:
        H, T = rows
        RELU.forward(H)
        np.tanh(T, out=T)               # T = (1 + tanh(z_T / 2)) / 2
        np.multiply(T, 0.5, out=T)
        np.add(T, 0.5, out=T)
        self.block.forward(x, rows, y, self.scratch)

    def derive(self, d: np.ndarray, x: np.ndarray, rows: tuple) -> None:
        self.block.backward(d, x, rows, self.dH, self.scratch)
        RELU.backward(self.dH, rows[0])


class Narrow(Highway):
    """The same, whose gate sees less than H: only `gate` x `gate` pixels in the middle
    of the k x k. With 0 it sees nothing, and T is a number of each map, sigmoid(b_T).

    W (width, k, k, C) is H's, W_T (width, gate, gate, C) the gate's, if it sees
    anything. They are written into Highway's stacked kernels, with zeros around W_T,
    and its passes do the rest, at its cost.
    """

    @classmethod
    def plan(cls, shape: tuple, width: int, kernel: int, padding: int, gate: int = 1
             ) -> tuple[tuple, dict]:
        shape, shapes = super().plan(shape, width, kernel, padding)
        own = {"W_T": (width, gate, gate, shape[1])} if gate else {}
        return shape, {"W": (width, *shapes["W"][1:])} | own | {"b": shapes["b"]}

    def __init__(self, cache, shape, tensors, grads, width, kernel, padding, gate=1):
        around = (kernel - gate) // 2
        middle = slice(around, around + gate)
        W, dW = cache.zeros((2, 2 * width, kernel, kernel, shape[1]))
        places = {"W": np.s_[:width], "W_T": np.s_[width:, middle, middle]}
        self.kernels = [(W[places[name]], tensors[name]) for name in places
                        if name in tensors]
        self.dkernels = [(grads[name], dW[places[name]]) for name in places
                         if name in tensors]
        super().__init__(cache, shape, {"W": W, "b": tensors["b"]},
                         {"W": dW, "b": grads["b"]}, width, kernel, padding)

    def forward(self, y: np.ndarray) -> None:
        for place, kernel in self.kernels:
            np.copyto(place, kernel)
        super().forward(y)

    def backward(self, d: np.ndarray, lowest: bool = False) -> np.ndarray | None:
        dx = super().backward(d, lowest)
        for dkernel, place in self.dkernels:
            np.copyto(dkernel, place)
        return dx


def largest(x, y, taps):
    """y: the largest value of each window of x along one axis."""
    (_, first), *others = taps          # every window has its first pixel
    np.copyto(y, x[first])
    for to, of in others:
        np.maximum(y[to], x[of], out=y[to])


def largest_backward(d, x, y, taps, dx, part):
    """dx: what a window got goes to the first of its largest values. d is used up."""
    dx.fill(0)
    *others, (to_last, of_last) = taps
    for to, of in others:
        np.equal(x[of], y[to], out=part[to])
        np.multiply(d[to], part[to], out=part[to])
        np.add(dx[of], part[to], out=dx[of])
        np.subtract(d[to], part[to], out=d[to])     # given once
    np.add(dx[of_last], d[to_last], out=dx[of_last])    # what is left, if any is


class MaxPool:
    """The largest value of each window of size x size pixels: first of its columns,
    then of these.

    Windows start every `stride` pixels and the last may reach over the edge, as in
    Caffe: 24 -> 12 -> 6 by size 3 and stride 2. Of several that are the largest one
    gets the gradient, the uppermost in the leftmost column that has one.
    """

    @staticmethod
    def plan(shape, size, stride):
        return (max(0, math.ceil((shape[0] - size) / stride)) + 1, shape[1]), {}

    def __init__(self, cache, shape, tensors, grads, size, stride):
        (S, C), B = shape, cache.batch
        side = self.plan(shape, size, stride)[0][0]
        b = block_of(B, S * S * C)
        self.blocks = [slice(start, start + b) for start in range(0, B, b)]
        shapes = [(B, S, S, C), (B, side, S, C), (B, side, side, C)]
        self.values = [cache.zeros(each) for each in shapes]
        self.x, self.dx = self.values[0], cache.zeros(shapes[0])
        self.dvalues, self.parts = (
            [cache.zeros((b, *each[1:])) for each in shapes[1:]] for _ in range(2))
        counts = [min(side, math.ceil((S - i) / stride)) for i in range(min(size, S))]
        spans = [(slice(count), slice(i, i + count * stride, stride))
                 for i, count in enumerate(counts)]     # windows with a pixel i: those
        self.taps = [[(np.s_[:, to], np.s_[:, of]) for to, of in spans],
                     [(np.s_[:, :, to], np.s_[:, :, of]) for to, of in spans]]

    def forward(self, y: np.ndarray) -> None:
        for each in self.blocks:
            x, columns, windows = (values[each] for values in self.values)
            largest(x, columns, self.taps[0])
            largest(columns, windows, self.taps[1])
            np.copyto(y[each], windows)

    def backward(self, d: np.ndarray) -> np.ndarray:
        for each in self.blocks:
            values = [values[each] for values in self.values]
            dvalues = [self.dx[each], *self.dvalues]
            np.copyto(dvalues[-1], d[each])
            for i in (1, 0):
                largest_backward(dvalues[i + 1], values[i], values[i + 1], self.taps[i],
                                 dvalues[i], self.parts[i])
        return self.dx


class Dropout:
    """y = x m / (1 - rate) with m = 0 at this rate and 1 otherwise, so that nothing
    is to be scaled where nothing is dropped."""

    @staticmethod
    def plan(shape, rate):
        return shape, {}

    def __init__(self, cache, shape, tensors, grads, rate):
        S, C = shape
        self.x, self.mask = cache.zeros((2, cache.batch, S, S, C))
        self.draws, self.rate = cache.zeros((S, C, S, cache.piece), "float32"), rate

    def draw(self, examples: slice, rng: np.random.Generator | None) -> None:
        """Choose what is dropped of a piece of the batch: a number for each row,
        channel, column and example, in this order. Without rng nothing is."""
        mask = self.mask[examples]
        if rng is None or not self.rate:
            mask.fill(1)
        else:
            rng.random(out=self.draws, dtype="float32")
            np.greater_equal(self.draws.transpose(3, 0, 2, 1), self.rate, out=mask)
            np.multiply(mask, 1 / (1 - self.rate), out=mask)

    def forward(self, y: np.ndarray) -> None:
        np.multiply(self.x, self.mask, out=y)

    def backward(self, d: np.ndarray) -> np.ndarray:
        np.multiply(d, self.mask, out=d)
        return d


class Average:
    """The mean of each channel over the image: one pixel, (B, 1, 1, C). (P1, 3.3.2)"""

    @staticmethod
    def plan(shape):
        return (1, shape[1]), {}

    def __init__(self, cache, shape, tensors, grads):
        S, C = shape
        self.x, self.dx = cache.zeros((2, cache.batch, S, S, C))

    def forward(self, y: np.ndarray) -> None:
        np.mean(self.x, axis=(1, 2), keepdims=True, out=y)

    def backward(self, d: np.ndarray) -> np.ndarray:
        np.divide(d, self.x.shape[1] ** 2, out=self.dx)
        return self.dx


class Dense:
    """y = W x + b over all pixels of all channels: W (classes, S C S), the pixels by
    row, channel and column, and b (classes, 1)."""

    @staticmethod
    def plan(shape, classes):
        inputs = shape[0] * shape[1] * shape[0]
        return (1, classes), {"W": (classes, inputs), "b": (classes, 1)}

    @staticmethod
    def initialize(tensors, stream, gate_bias, init):
        """N(0, 0.1^2), the authors' choice for the layer before the softmax."""
        tensors["W"][...] = np.random.default_rng(stream).normal(0, 0.1,
                                                                 tensors["W"].shape)

    def __init__(self, cache, shape, tensors, grads, classes):
        (S, C), B = shape, cache.batch
        self.x, self.dx = cache.zeros((2, B, S, S, C))
        self.inputs = cache.zeros((B, S, C, S))       # and on the way back dx
        self.flat = self.inputs.reshape(B, -1)
        self.tensors, self.grads = tensors, grads

    def forward(self, y: np.ndarray) -> None:
        np.copyto(self.inputs, self.x.swapaxes(2, 3))
        np.matmul(self.flat, self.tensors["W"].T, out=y[:, 0, 0])
        np.add(y, self.tensors["b"][:, 0], out=y)

    def backward(self, d: np.ndarray, lowest: bool = False) -> np.ndarray | None:
        d = d[:, 0, 0]
        np.matmul(d.T, self.flat, out=self.grads["W"])
        np.sum(d, axis=0, out=self.grads["b"][:, 0])
        if lowest:
            return None
        np.matmul(d, self.tensors["W"], out=self.flat)
        np.copyto(self.dx, self.inputs.swapaxes(2, 3))
        return self.dx


LAYERS: dict[str, Any] = {"plain": Plain, "highway": Highway, "narrow": Narrow,
                          "pool": MaxPool, "dropout": Dropout, "average": Average,
                          "dense": Dense}
