"""The layers of convolutional highway nets, forward and backward by hand.

    H = relu(W_H * x + b_H)     T = sigmoid(W_T * x + b_T)      y = x + T (H - x)

One k x k kernel for H and one for T (* slides it over the image), the same receptive
field for both, stride 1 and zeros around the image, so that H, T, x and y are of one
size (P1, section 2.1). What joins them is the core's: `hn.BLOCKS` and `hn.activate`.

Legend: B examples, S side of a square image, C channels of a layer's input, k side of a
kernel, p zeros around the image, R rows of a kernel matrix: one for each channel of H
and, with a gate, as many for T. An activation is (S, C, S B): for each row of the image
a matrix with a row for each channel, and in that pixel after pixel, each with its B
examples. Two things follow.

A convolution is one matrix product for each row of the image, and copies a value k
times, not k^2 times. `shifted` (S + 2p, k C, S B) holds the image in k versions, moved
by a pixel each; k rows of it lie in memory as one (k k C, S B) matrix, that of all the
receptive fields of one row of z. One version is where the layer below writes. For 100
examples of 24x24 pixels and 3x3 kernels, copies and products take 6 ms at width 16, 27
at width 32; with every field copied k^2 times 11 and 35, and as k^2 products of moved
images that are added up 10 and 33 (float32, one thread, AVX-512 kernels).

OpenBLAS multiplies without packing what takes at most SMALL multiplications: products
are cut into such, unless they would be narrower than NARROW columns: of width 64 and
more they would be slower.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

import highway_networks as hn

SMALL, NARROW = 10**6, 50


def windows(rows: np.ndarray, size: int, parts: int) -> np.ndarray:
    """Each `size` consecutive ones of rows (N, K, n), cut into so many equal parts of
    columns: a view (N - size + 1, parts, size K, n / parts)."""
    N, K, n = rows.shape
    row, line, item = rows.strides
    return np.lib.stride_tricks.as_strided(
        rows, (N - size + 1, parts, size * K, n // parts),
        (row, n // parts * item, line, item))


def cut(columns: int, entries: int) -> int:
    """The least number of equal parts of so many columns that makes each product with
    a matrix of so many entries small; 1 if they would be too narrow."""
    parts = next(parts for parts in range(1, columns + 1) if columns % parts == 0
                 and (columns // parts * entries <= SMALL or parts == columns))
    return parts if columns // parts >= NARROW else 1


RELU = hn.ACTIVATIONS["relu"]

# --------------------------------------------------------------------------------------
# Layers. Each class is one kind, each instance one layer of one Cache:
#
#   plan(shape, *numbers): (S, C) of the input -> (S, C) of the output and the shapes of
#       the parameters by name. Raises ValueError.
#   Layer(cache, shape, tensors, grads, *numbers): buffers for batches of cache.batch.
#       The layer below writes its output into x.
#   forward(y, rng): x -> y. rng draws what is dropped; None drops nothing.
#   backward(d): dy -> dx, in place where it can be; d is used up. Fills grads; a layer
#       with parameters stops there if it is the lowest of them.


class Sizes(NamedTuple):
    """Of one convolution; see the legend above."""

    S: int
    C: int
    B: int
    k: int
    p: int
    side: int       # of z


class Plain:
    """z = W * x + b, y = H = relu(z); any size and width.                       (Eq. 1)

    W (R, k, k, C), a kernel as (row, column, channel), and b (R, 1); R = width. In
    memory, for S = 4, k = 3, p = 1, where a letter is a pixel, C channels of B images:

    shifted (S + 2p, k C, n)
     version 0  version 1  version 2      A matrix for each row of the image and of
      . . . .    . . . .    . . . .       zeros, in which the versions lie under one
      . a b c    a b c d    b c d .       another, and n = side B columns. Version p is
      . e f g    e f g h    f g h .       x, if z has the size of the image. `fields`,
      . i j k    i j k l    j k l .       the receptive fields of one row of z, are k
      . m n o    m n o p    n o p .       such matrices: k lines of this picture.
      . . . .    . . . .    . . . .

    padded (side + 2q, R, n), q = k - 1 - p: q rows of zeros, z, q rows of zeros

    Forward z becomes H and gate, backward dz; k rows of padded make one of `spread` (S,
    k, C, S, B): dx in k versions, which `add_below` moves back and adds.
    """

    block = hn.BLOCKS["plain"]

    @staticmethod
    def side_of(side: int, kernel: int, padding: int) -> int:
        """The side of the output, of an input's."""
        return side + 2 * padding - kernel + 1

    @classmethod
    def plan(cls, shape: tuple, width: int, kernel: int, padding: int
             ) -> tuple[tuple, dict]:
        side = cls.side_of(shape[0], kernel, padding)
        if side < 1 or not 0 <= 2 * padding < kernel:
            raise ValueError(f"kernel {kernel}, padding {padding}: not for side "
                             f"{shape[0]}, or the image would grow")
        if cls.block.gates and (side, width) != shape:
            raise ValueError(f"a gated layer cannot turn {shape} into {(side, width)}: "
                             "its output has the size of its input")
        rows = width * (1 + len(cls.block.gates))
        return (side, width), {"W": (rows, kernel, kernel, shape[1]), "b": (rows, 1)}

    @classmethod
    def initialize(cls, tensors, stream, gate_bias):
        """He's weights for H and the gate, each from its own stream, so that a plain
        and a highway layer share W_H; b_T as given."""
        R, k, _, C = tensors["W"].shape
        matrices = tensors["W"].reshape(1 + len(cls.block.gates), -1, k * k * C)
        for matrix, part in zip(matrices, stream.spawn(len(matrices)), strict=True):
            matrix[...] = hn.initial_weights(np.random.default_rng(part), "he",
                                             matrix.shape)
        tensors["b"][R // len(matrices):] = gate_bias

    def __init__(self, cache, shape, tensors, grads, width, kernel, padding):
        (S, C), B, k, p = shape, cache.batch, kernel, padding
        self.size = Sizes(S, C, B, k, p, self.side_of(S, k, p))
        self.tensors, self.grads, self.half = tensors, grads, np.array(0.5, cache.dtype)
        self.lay_out_forward(cache, width, len(tensors["b"]))
        self.lay_out_backward(cache, width, len(tensors["b"]))

    def lay_out_forward(self, cache, width, R):
        """The image in k versions, z, and the views that join them."""
        S, C, B, k, p, side = self.size
        n, dtype = side * B, cache.dtype
        self.shifted = np.zeros((S + 2 * p, k * C, n), dtype)
        versions = self.shifted.reshape(S + 2 * p, k, C, side, B)[p:p + S]
        x = versions[:, p] if side == S else np.empty((S, C, S, B), dtype)
        self.x = x.reshape(S, C, S * B)
        spans = [(j, max(0, p - j), min(side, S + p - j)) for j in range(k)]
        self.copies = [(versions[:, j, :, low:high], x[:, :, low + j - p:high + j - p])
                       for j, low, high in spans if side != S or j != p]
        q = k - 1 - p
        self.padded = np.zeros((side + 2 * q, R, n), dtype)
        self.z = self.padded[q:q + side]
        self.rows = tuple(self.z[:, i:i + width] for i in range(0, R, width))
        self.gates = self.z[:, width:]
        self.scratch = cache.shared("scratch", (side, width, n))
        parts = cut(n, R * k * k * C)
        self.fields = windows(self.shifted, k, parts)
        self.z_parts = windows(self.z, 1, parts)

    def lay_out_backward(self, cache, width, R):
        """Products for dW and dx, and what they leave: shared, for it is used at once.
        """
        S, C, B, k, p, side = self.size
        n = side * B
        parts = cut(n, R * k * k * C)
        self.dH = cache.shared("dH", (side, width, n))
        self.all_fields = windows(self.shifted, k, 1)[:, 0]
        self.dW = cache.shared("dW", (side, k * k * C, R))
        self.dW_sum = cache.shared("dW", (k * k * C, R))
        self.dz_fields = windows(self.padded, k, parts)
        self.W_back = cache.shared("W", (k, C, k, R))
        self.spread = cache.shared("spread", (S, k, C, S, B))
        self.spread_parts = windows(self.spread.reshape(S, k * C, -1)[:, :, :n], 1,
                                    parts)
        self.dx = (None if (side, width) == (S, C) else     # dy becomes dx in place
                   np.empty((S, C, S * B), cache.dtype))

    def forward(self, y: np.ndarray, rng: np.random.Generator | None) -> None:
        for version, image in self.copies:
            np.copyto(version, image)
        W, b = self.tensors["W"], self.tensors["b"]
        np.matmul(W.reshape(len(W), -1), self.fields, out=self.z_parts)
        np.add(self.z, b, out=self.z)
        hn.activate(self.z, self.rows[0], self.gates, RELU, self.half)
        self.block.forward(self.x, self.rows, y, self.scratch)

    def backward(self, d: np.ndarray, lowest: bool = False) -> np.ndarray | None:
        self.block.backward(d, self.x, self.rows, self.dH, self.scratch)
        RELU.backward(self.dH, self.rows[0])        # z now holds dz
        np.matmul(self.all_fields, self.z.transpose(0, 2, 1), out=self.dW)
        np.sum(self.dW, axis=0, out=self.dW_sum)
        np.copyto(self.grads["W"].reshape(-1, len(self.dW_sum)), self.dW_sum.T)
        np.einsum("srn->r", self.z, out=self.grads["b"][:, 0])
        if lowest:
            return None
        if self.dx is not None:         # else d holds the direct part of dx
            d = self.dx
            d.fill(0)
        self.add_below(d)
        return d

    def add_below(self, d):
        """dx += W^T dz, of which what version j of the image got belongs j - p pixels
        further. Whole rows are added at once: what leaves the image would enter the
        next channel's, so it is set to 0 before."""
        S, C, B, k, p, side = self.size
        np.copyto(self.W_back, self.tensors["W"][:, ::-1].transpose(2, 3, 1, 0))
        np.matmul(self.W_back.reshape(k * C, -1), self.dz_fields, out=self.spread_parts)
        self.spread[:, :, :, side:] = 0
        image, n = d.reshape(S, -1), C * S * B
        for j in range(k):
            by = j - p
            self.spread[:, j, :, slice(S - by, S) if by > 0 else slice(0, -by)] = 0
            low, high = max(0, by * B), n + min(0, by * B)
            part = self.spread[:, j].reshape(S, n)[:, low - by * B:high - by * B]
            np.add(image[:, low:high], part, out=image[:, low:high])


class Highway(Plain):
    """y = H T + x (1 - T) with T = sigmoid(z_T).                                (Eq. 3)

    W and b are [H; T] stacked: R = 2 width, and the width is that of x.
    """

    block = hn.BLOCKS["highway"]


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
        if not 0 <= gate <= kernel or gate and (kernel - gate) % 2:
            raise ValueError(f"gate {gate} has no middle place in kernel {kernel}")
        shape, shapes = super().plan(shape, width, kernel, padding)
        own = {"W_T": (width, gate, gate, shape[1])} if gate else {}
        return shape, {"W": (width, *shapes["W"][1:])} | own | {"b": shapes["b"]}

    @classmethod
    def initialize(cls, tensors, stream, gate_bias):
        """As Highway's; the weights of the gate go by the number that it sees."""
        for name, part in zip(("W", "W_T"), stream.spawn(2), strict=True):
            if name in tensors:
                matrix = tensors[name].reshape(len(tensors["W"]), -1)
                matrix[...] = hn.initial_weights(np.random.default_rng(part), "he",
                                                 matrix.shape)
        tensors["b"][len(tensors["W"]):] = gate_bias

    def __init__(self, cache, shape, tensors, grads, width, kernel, padding, gate=1):
        around = (kernel - gate) // 2
        middle = slice(around, around + gate)
        W, dW = np.zeros((2, 2 * width, kernel, kernel, shape[1]), cache.dtype)
        places = {"W": np.s_[:width], "W_T": np.s_[width:, middle, middle]}
        self.kernels = [(W[places[name]], tensors[name]) for name in places
                        if name in tensors]
        self.dkernels = [(grads[name], dW[places[name]]) for name in places
                         if name in tensors]
        super().__init__(cache, shape, {"W": W, "b": tensors["b"]},
                         {"W": dW, "b": grads["b"]}, width, kernel, padding)

    def forward(self, y: np.ndarray, rng: np.random.Generator | None) -> None:
        for place, kernel in self.kernels:
            np.copyto(place, kernel)
        super().forward(y, rng)

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


def largest_backward(d, x, y, taps, dx, part, mask):
    """dx: what a window got goes to the first of its largest values. d is used up."""
    dx.fill(0)
    for to, of in taps:
        np.equal(x[of], y[to], out=mask[to])
        np.multiply(d[to], mask[to], out=part[to])
        np.add(dx[of], part[to], out=dx[of])
        np.subtract(d[to], part[to], out=d[to])     # given once


class MaxPool:
    """The largest value of each window of size x size pixels: first of its columns,
    then of these.

    Windows start every `stride` pixels and the last may reach over the edge, as in
    Caffe: 24 -> 12 -> 6 by size 3 and stride 2. Of several that are the largest one
    gets the gradient, the uppermost in the leftmost column that has one.
    """

    @staticmethod
    def plan(shape, size, stride):
        if not 1 <= stride <= size:
            raise ValueError(f"size {size}, stride {stride}: pixels would be left out")
        return (max(0, math.ceil((shape[0] - size) / stride)) + 1, shape[1]), {}

    def __init__(self, cache, shape, tensors, grads, size, stride):
        (S, C), B = shape, cache.batch
        side = self.plan(shape, size, stride)[0][0]
        shapes = [(S, C, S, B), (side, C, S, B), (side, C, side, B)]
        self.values = [np.empty(each, cache.dtype) for each in shapes]
        self.dvalues = [np.empty(each, cache.dtype) for each in shapes]
        self.parts = [np.empty(each, cache.dtype) for each in shapes[1:]]
        self.masks = [np.empty(each, bool) for each in shapes[1:]]
        self.x, _, self.y = (a.reshape(*a.shape[:2], -1) for a in self.values)
        self.dx, _, self.dy = (a.reshape(*a.shape[:2], -1) for a in self.dvalues)
        counts = [min(side, math.ceil((S - i) / stride)) for i in range(min(size, S))]
        spans = [(slice(count), slice(i, i + count * stride, stride))
                 for i, count in enumerate(counts)]     # windows with a pixel i: those
        self.taps = [spans, [(np.s_[:, :, to], np.s_[:, :, of]) for to, of in spans]]

    def forward(self, y: np.ndarray, rng: np.random.Generator | None) -> None:
        for x, over, taps in zip(self.values[:-1], self.values[1:], self.taps,
                                 strict=True):
            largest(x, over, taps)
        np.copyto(y, self.y)

    def backward(self, d: np.ndarray) -> np.ndarray:
        np.copyto(self.dy, d)
        for i in (1, 0):
            largest_backward(
                self.dvalues[i + 1], self.values[i], self.values[i + 1], self.taps[i],
                self.dvalues[i], self.parts[i], self.masks[i])
        return self.dx


class Dropout:
    """y = x m / (1 - rate) with m = 0 at this rate and 1 otherwise, so that nothing
    is to be scaled where nothing is dropped."""

    @staticmethod
    def plan(shape, rate):
        if not 0 <= rate < 1:
            raise ValueError(f"rate {rate} is not from 0 to below 1")
        return shape, {}

    def __init__(self, cache, shape, tensors, grads, rate):
        self.x = np.empty((shape[0], shape[1], shape[0] * cache.batch), cache.dtype)
        self.draws, self.mask = np.empty(self.x.shape, "float32"), np.empty_like(self.x)
        self.rate = rate

    def forward(self, y: np.ndarray, rng: np.random.Generator | None) -> None:
        if rng is None or not self.rate:
            self.mask.fill(1)
        else:
            rng.random(out=self.draws, dtype="float32")
            np.greater_equal(self.draws, self.rate, out=self.mask)
            np.multiply(self.mask, 1 / (1 - self.rate), out=self.mask)
        np.multiply(self.x, self.mask, out=y)

    def backward(self, d: np.ndarray) -> np.ndarray:
        np.multiply(d, self.mask, out=d)
        return d


class Average:
    """The mean of each channel over the image: one pixel, (1, C, B). (P1, 3.3.2)"""

    @staticmethod
    def plan(shape):
        return (1, shape[1]), {}

    def __init__(self, cache, shape, tensors, grads):
        self.x, self.dx = np.empty((2, *shape, shape[0] * cache.batch), cache.dtype)

    def forward(self, y: np.ndarray, rng: np.random.Generator | None) -> None:
        S, C, _ = self.x.shape
        np.mean(self.x.reshape(S, C, S, -1), axis=(0, 2), out=y[0])

    def backward(self, d: np.ndarray) -> np.ndarray:
        S, C, _ = self.x.shape
        self.dx.reshape(S, C, S, -1)[...] = d.reshape(1, C, 1, -1) / S ** 2
        return self.dx


class Dense:
    """y = W x + b over all pixels of all channels: W (classes, S C S), b (classes, 1).
    """

    @staticmethod
    def plan(shape, classes):
        inputs = shape[0] * shape[1] * shape[0]
        return (1, classes), {"W": (classes, inputs), "b": (classes, 1)}

    @staticmethod
    def initialize(tensors, stream, gate_bias):
        """N(0, 0.1^2), the authors' choice for the layer before the softmax."""
        tensors["W"][...] = np.random.default_rng(stream).normal(0, 0.1,
                                                                 tensors["W"].shape)

    def __init__(self, cache, shape, tensors, grads, classes):
        self.x, self.dx = np.empty((2, *shape, shape[0] * cache.batch), cache.dtype)
        self.columns = self.x.reshape(-1, cache.batch)
        self.dcolumns = self.dx.reshape(-1, cache.batch)
        self.tensors, self.grads = tensors, grads

    def forward(self, y: np.ndarray, rng: np.random.Generator | None) -> None:
        np.matmul(self.tensors["W"], self.columns, out=y[0])
        np.add(y[0], self.tensors["b"], out=y[0])

    def backward(self, d: np.ndarray, lowest: bool = False) -> np.ndarray | None:
        np.matmul(d[0], self.columns.T, out=self.grads["W"])
        np.sum(d[0], axis=1, keepdims=True, out=self.grads["b"])
        if lowest:
            return None
        np.matmul(self.tensors["W"].T, d[0], out=self.dcolumns)
        return self.dx


LAYERS: dict[str, Any] = {"plain": Plain, "highway": Highway, "narrow": Narrow,
                          "pool": MaxPool, "dropout": Dropout, "average": Average,
                          "dense": Dense}
