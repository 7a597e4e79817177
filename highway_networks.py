"""Highway networks, trained by hand: "Training Very Deep Networks" in NumPy.

R. K. Srivastava, K. Greff, J. Schmidhuber, NIPS 2015, arXiv:1507.06228. This module is
the whole machine: blocks, net, loss, optimisers, data, training, record, command line.
Read it from top to bottom. It needs only NumPy and four idx files. With highway_suite
beside it the same command also fetches data and trains several nets at a time.

    python3 highway_networks.py --seed 0       one highway and one plain net -> run.json

Legend: N examples, B batch, P pixels, U units (--hidden), L blocks (--depth), C classes
(but in y = H * T + x * C the carry gate), R rows of a block's weights: U rows for H and
U rows for each gate. Columns are examples: activations are (U, B). * is elementwise, ^T
transposes. T is always the transform gate. d<name> is the derivative of the loss with
respect to <name>; z_H and z_T are pre-activations. Here a block is a whole layer; the
paper calls every unit of a layer a block. Depth counts the blocks after the input
projection. The paper counts the projection too: its 50 layers are depth 49 here.

The trouble with depth. In a plain net each of the L blocks is one layer: its output
is y = tanh(W_H x + b_H). The chain rule takes the gradient through all of them, from
the last to the first:

    dx = W_H^T (dy * (1 - y * y))

A product of L random matrices grows or shrinks. A common default (that of PyTorch's
Linear) draws weights uniformly between -1 / sqrt(U) and 1 / sqrt(U): their variance is
1 / (3 U). Biases start at 0 here. As tanh is nearly linear where its argument is small,
each block divides the length of the signal by about sqrt(3), and on the way back that
of the gradient. Thirty blocks divide both by 10^7. The gradient of a weight is a
product of both: the first blocks have a signal but no gradient, the last ones a
gradient but no signal. Adam rescales small gradients, so the weights move, but at the
default rate this does not help: the output is the same for all images, and the loss
stays at ln 10, that of guessing (results/headline has lower rates).

Glorot's rule (--init glorot; he for relu) triples the variance, so that signal and
gradient keep their length, but only on average. A product of many matrices stretches a
few directions and flattens all others. The signals of a thousand images form a cloud;
its lengths are the singular values of the centred signals. The means of ten classes
span at most nine directions; the eleventh singular value, beyond these, shows what else
survives. After a hundred blocks it is thousands of times smaller than the first
(results/signals). An orthogonal matrix (--init orthogonal) keeps the length in every
direction. tanh still shortens the signal, but almost alike in all directions, and plain
nets then learn at a greater depth.

The gate. A highway block has a second layer beside H, the gate T, a number between 0
and 1 for each unit. It learns where to take H and where to leave the input alone:

    H = tanh(W_H x + b_H)         the transform                                (Eq. 1)
    T = sigmoid(W_T x + b_T)      the transform gate; 1 - T is the carry gate
    y = H * T + x * (1 - T)       the block output                             (Eq. 3)

T depends on the image. Where T = 1, this is a plain block. Where T = 0, the block
copies its input: y = x, whatever its weights are, and the gradient passes unchanged.

Backward. y depends on H, on T and on x itself, so dy goes three ways:

    dH = T * dy      dT = (H - x) * dy      dx = (1 - T) * dy     (Eq. 9, appendix A)

In one unit, for example, x = 0.5, H = -0.3 and T = 0.1 give y = -0.03 + 0.45 = 0.42.
If dy = 1, then dH = 0.1, dT = -0.8 and dx = 0.9: nine tenths of the gradient pass on.
dy = 1 means that a smaller y lowers the loss. H is smaller than x, so that a more open
gate makes y smaller: dT is negative, and a step of gradient descent opens the gate.

From there the gradient goes on through tanh and sigmoid to their arguments, z_H and
z_T. The derivatives are tanh' = 1 - H * H and sigmoid' = T * (1 - T):

    z_H = W_H x + b_H             z_T = W_T x + b_T
    dz_H = dH * (1 - H * H)       dW_H = dz_H x^T      db_H = sum of dz_H over images
    dz_T = dT * T * (1 - T)       dW_T = dz_T x^T      db_T = sum of dz_T over images
    dx += W_H^T dz_H + W_T^T dz_T

W_H, W_T and their biases are stacked, so that a block is one matrix product
[W_H b_H; W_T b_T] [x; 1] forward, and two backward. The code computes (1 - T) * dy
first. This is the direct part of dx; multiplied by T * (H - x) it is dz_T.

The ends. The pixels i of an image become the first x = tanh(W_in i + b_in). The last y
becomes logits = W_out y + b_out and p = softmax(logits). The loss is the mean over the
batch of -log p_label. Its derivative is dlogits = (softmax(logits) - onehot(label)) /
B, and from there the backward pass consists of matrix products. If the gradient of all
weights together is longer than --clip, it is scaled down to that length. Adam or
momentum SGD then changes the weights.

Why b_T starts negative. At first W_T x is small and T is nearly sigmoid(b_T). Each
block then multiplies signal and gradient by about 1 - T. With b_T = -2 this factor is
0.88, and after thirty blocks 0.02 is left, 300,000 times as much as in the plain net
above. With b_T = -4, 0.58 is left. Therefore b_T starts below 0 (section 2.2 of the
paper), and lower in deeper nets. With b_T = logit(1 / L), where logit is the inverse of
sigmoid, T is 1 / L, and (1 - 1 / L)^L is about 1 / e = 0.37 at every depth: more blocks
do not shrink signal and gradient any further. Nets of 10 and of 10,000 blocks then
learn alike with Adam (results/depth).

But b_T must not start too low: H learns only through T, and where T rounds to 0 for
every image, the unit cannot open its gate at all. After the start, dT = (H - x) * dy
decides which gates open: those of the units where a small step from x to H would lower
the loss. The other gates close further, and mostly carry their input.

The family. y = H * T + x * C, with C the carry gate, has seven members here, the rows
of BLOCKS: T and C are constant or learned. They share the net around them. A residual
net has no gate, and each block adds to its signal. In a scaled residual net, before
training, the total variance that the blocks add does not grow with L.

One batch on its way:

    scale_pixels(load_mnist())     pixels in [-1, 1], (N, P)
    -> Batches                     (P, B)
    -> DeepNet.forward             logits (C, B); H, T and x of every block in a Cache
    -> cross_entropy               the loss and dlogits
    -> DeepNet.backward            one flat gradient
    -> clip_norm -> Adam or SGD    in place on one flat vector of weights
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import math
import os
import platform
import shlex
import sys
import time
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, fields, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

if __name__ == "__main__" and find_spec("threadpoolctl") is None:
    os.environ["OPENBLAS_NUM_THREADS"] = "1"    # no other way; read as NumPy loads

import numpy as np

__version__ = "3.0.0"
HERE: Path = Path(__file__).resolve().parent


def blas_threads(threads: int | None) -> AbstractContextManager:
    """While the body runs, BLAS uses so many threads in this process; with None, or
    without threadpoolctl, as many as before. Equal threads give equal bits."""
    try:
        from threadpoolctl import threadpool_limits
    except ImportError:
        return nullcontext()
    return threadpool_limits(threads, "blas")


# Configuration ------------------------------------------------------------------------

INITS = "uniform", "glorot", "he", "orthogonal"


def setting(default: Any, text: str, *allowed: float, words: tuple = ()) -> Any:
    """A Config field that is also a flag: its default, its help, the lowest and the
    highest number allowed, if it is a number, and the words allowed."""
    return field(default=default, metadata={"help": text, "range": allowed,
                                            "words": words})


@dataclass(frozen=True)
class Config:
    """One net and its training, complete: with equal data, library versions, threads
    and processors, equal Configs give equal weights. The command line is generated from
    these fields. Raises ValueError for a value that is not allowed."""

    block: str = "highway"
    seed: int = setting(0, "fixes subset, weights and batches", 0, 2**32 - 1)
    depth: int = setting(30, "blocks after the input projection", 1, 10_000)
    hidden: int = setting(50, "units of every block", 1, 10_000)
    activation: str = setting("tanh", "of H", words=("tanh", "relu"))
    init: str = setting("uniform", "of weights; uniform: +-1/sqrt(fan_in)", words=INITS)
    gate_bias: float | str = setting(
        -2.0, "initial b_T; a learned carry gate has minus it; auto: logit(1 / depth)",
        -100, 100, words=("auto",))
    epochs: int = setting(12, "passes over the training images", 1, 100_000)
    batch: int = setting(128, "images per step", 1, 10**7)
    optimizer: str = setting("adam", "or momentum SGD", words=("adam", "sgd"))
    lr: float = setting(5e-3, "learning rate", 1e-9, 1e3)
    lr_decay: float = setting(1.0, "factor on --lr after each epoch", 1e-6, 1)
    momentum: float = setting(0.9, "of --optimizer sgd", 0, 0.9999)
    clip: float = setting(5.0, "largest gradient norm; 0 is no limit", 0, 1e9)
    n_train: int = setting(6000, "training images, drawn by seed", 1, 10**7)
    n_test: int = setting(2000, "test images, drawn by seed", 1, 10**7)
    dtype: str = setting("float32", "of every array", words=("float32", "float64"))

    def __post_init__(self):
        if self.block not in BLOCKS:
            raise ValueError(f"block is {self.block!r}; allowed: {', '.join(BLOCKS)}")
        for item in fields(self)[1:]:
            value, words = getattr(self, item.name), item.metadata["words"]
            if isinstance(value, np.generic):       # a number of NumPy's is a number
                value = value.item()
                object.__setattr__(self, item.name, value)
            numbers = (int, float) if isinstance(item.default, float) else (int,)
            low, high = item.metadata["range"] or (1, 0)
            if value not in words and not (
                    type(value) in numbers and low <= value <= high):   # never a bool
                allowed = [*words, *([f"{low} to {high}"] if low <= high else [])]
                raise ValueError(f"{item.name} is {value!r}; allowed: "
                                 f"{', '.join(allowed)}")


# Activations and blocks ---------------------------------------------------------------

class Activation(NamedTuple):
    """forward(z): z -> H in place. backward(dH, H): H -> dz_H in place."""

    forward: Callable[[np.ndarray], None]
    backward: Callable[[np.ndarray, np.ndarray], None]


def tanh_forward(z: np.ndarray) -> None:
    np.tanh(z, out=z)


def tanh_backward(dH: np.ndarray, H: np.ndarray) -> None:
    """dz_H = dH (1 - H^2) = dH - dH H^2"""
    np.multiply(H, H, out=H)
    np.multiply(dH, H, out=H)
    np.subtract(dH, H, out=H)


def relu_forward(z: np.ndarray) -> None:
    np.maximum(z, 0, out=z)


def relu_backward(dH: np.ndarray, H: np.ndarray) -> None:
    """dz_H = dH where H > 0, else 0"""
    np.greater(H, 0, out=H)         # np.sign would take thrice as long
    np.multiply(dH, H, out=H)


ACTIVATIONS = {
    "tanh": Activation(tanh_forward, tanh_backward),
    "relu": Activation(relu_forward, relu_backward),
}


def activate(z: np.ndarray, H: np.ndarray, gates: np.ndarray, activation: Activation,
             half: np.ndarray) -> None:
    """z (R, B) -> H and the gates in place; H and gates are the two parts of z's rows.

    half is 0.5 as an array: NumPy converts a Python number on every call.
    """
    if not gates.size:
        activation.forward(H)
        return
    # T = sigmoid(z_T) = 0.5 + 0.5 tanh(z_T / 2), so that one tanh serves H and gates.
    # In float32 T is a multiple of 2^-25, and 0 below about z_T = -20.
    np.multiply(gates, half, out=gates)
    if activation.forward is tanh_forward:
        tanh_forward(z)
    else:
        activation.forward(H)
        tanh_forward(gates)
    np.multiply(gates, half, out=gates)
    np.add(gates, half, out=gates)


Rows = tuple[np.ndarray, ...]


class Block(NamedTuple):
    """One member of the family y = H T + x C, a row of BLOCKS.

    gates: the learned gates, in the order of their rows below H: "", "T", "C" or "TC".
    forward(x, rows, y, scratch) gets x and rows = (H, *gates), and writes y.
    backward(d, x, rows, dH, scratch) gets dy in d, and x and rows as forward left them.
        It leaves the direct part of dx in d (DeepNet adds W^T dz), the derivative by H
        in dH, and the dz of each gate in its row (`gate_backward`).

    Each of them is (U, B); scratch is free to use.
    """

    gates: str
    forward: Callable[[np.ndarray, Rows, np.ndarray, np.ndarray], None]
    backward: Callable[[np.ndarray, np.ndarray, Rows, np.ndarray, np.ndarray], None]


def gate_backward(G: np.ndarray, scaled: np.ndarray, through: np.ndarray) -> None:
    """Gate G -> dz in place, where y has the term scaled * G and through = G dy:

    dz = dG G (1 - G) = scaled dy G (1 - G) = (1 - G) scaled through
    """
    np.subtract(1, G, out=G)
    np.multiply(G, scaled, out=G)
    np.multiply(G, through, out=G)


def plain_forward(x, rows, y, scratch):
    """y = H                                                                  (Eq. 1)"""
    np.copyto(y, rows[0])


def plain_backward(d, x, rows, dH, scratch):
    """dH = dy, dx = 0"""
    np.copyto(dH, d)
    d.fill(0)


def highway_forward(x, rows, y, scratch):
    """y = H T + x (1 - T) = x + T (H - x): exactly x where T = 0             (Eq. 3)"""
    H, T = rows
    np.subtract(H, x, out=y)
    np.multiply(T, y, out=y)
    np.add(x, y, out=y)


def highway_backward(d, x, rows, dH, scratch):
    """dH = T dy, dT = (H - x) dy, dx = (1 - T) dy                            (Eq. 9)

    and dz_T = dT T (1 - T) = T (H - x) times this dx.
    """
    H, T = rows
    np.multiply(T, d, out=dH)
    np.subtract(d, dH, out=d)       # the direct part of dx: dy - T dy
    np.subtract(H, x, out=scratch)
    np.multiply(T, scratch, out=scratch)
    np.multiply(scratch, d, out=T)  # dz_T


def residual_forward(x, rows, y, scratch):
    """y = H + x                                              (He et al. 2015, Eq. 1)"""
    np.add(rows[0], x, out=y)


def residual_backward(d, x, rows, dH, scratch):
    """dH = dy, dx = dy"""
    np.copyto(dH, d)


def scaled_residual_forward(scale, x, rows, y, scratch):
    """y = H scale + x"""
    np.multiply(rows[0], scale, out=y)
    np.add(y, x, out=y)


def scaled_residual_backward(scale, d, x, rows, dH, scratch):
    """dH = scale dy, dx = dy"""
    np.multiply(d, scale, out=dH)


def scaled_residual(L: int) -> Block:
    """The block y = H / sqrt(L) + x of nets of L blocks."""
    scale = 1 / math.sqrt(L)
    return Block("", partial(scaled_residual_forward, scale),
                 partial(scaled_residual_backward, scale))


def t_only_forward(x, rows, y, scratch):
    """y = H T + x"""
    H, T = rows
    np.multiply(H, T, out=y)
    np.add(y, x, out=y)


def t_only_backward(d, x, rows, dH, scratch):
    """dH = T dy, dT = H dy, dx = dy"""
    H, T = rows
    np.multiply(T, d, out=dH)
    gate_backward(T, H, dH)


def c_only_forward(x, rows, y, scratch):
    """y = H + x C"""
    H, C = rows
    np.multiply(x, C, out=y)
    np.add(H, y, out=y)


def c_only_backward(d, x, rows, dH, scratch):
    """dH = dy, dC = x dy, dx = C dy"""
    H, C = rows
    np.copyto(dH, d)
    np.multiply(C, d, out=d)
    gate_backward(C, x, d)


def full_forward(x, rows, y, scratch):
    """y = H T + x C                                                          (Eq. 2)"""
    H, T, C = rows
    np.multiply(H, T, out=y)
    np.multiply(x, C, out=scratch)
    np.add(y, scratch, out=y)


def full_backward(d, x, rows, dH, scratch):
    """dH = T dy, dT = H dy, dC = x dy, dx = C dy"""
    H, T, C = rows
    np.multiply(T, d, out=dH)
    np.multiply(C, d, out=d)
    gate_backward(T, H, dH)
    gate_backward(C, x, d)


# The kinds: their learned gates, and the functions from H and the gates to y and back.
# A kind that depends on the depth is a function of the number of blocks.
BLOCKS: dict[str, Block | Callable[[int], Block]] = {
    "plain": Block("", plain_forward, plain_backward),              # T = 1, C = 0
    "highway": Block("T", highway_forward, highway_backward),       # C = 1 - T, coupled
    "residual": Block("", residual_forward, residual_backward),     # T = C = 1
    "scaled_residual": scaled_residual,                             # T = 1/sqrt(L)
    "t_only": Block("T", t_only_forward, t_only_backward),          # C = 1
    "c_only": Block("C", c_only_forward, c_only_backward),          # T = 1
    "full": Block("TC", full_forward, full_backward),
}


def block_of(kind: str, depth: int) -> Block:
    """The row of BLOCKS for nets of so many blocks."""
    row = BLOCKS[kind]
    return row if isinstance(row, Block) else row(depth)


# Parameters and DeepNet ---------------------------------------------------------------

class Parameters:
    """Named tensors that lie one after the other in one flat vector, so that a step of
    an optimiser is one call. shapes: {name: shape}, in their order."""

    def __init__(self, shapes: Mapping[Any, tuple]):
        self.shapes = dict(shapes)
        self.size = sum(math.prod(shape) for shape in self.shapes.values())

    def views(self, flat: np.ndarray) -> dict[Any, np.ndarray]:
        """(size,) -> {name: view of its part}."""
        views, start = {}, 0
        for name, shape in self.shapes.items():
            stop = start + math.prod(shape)
            views[name] = flat[start:stop].reshape(shape)
            start = stop
        return views


def initial_weights(rng: np.random.Generator, init: str, shape: tuple) -> np.ndarray:
    """Random weights (..., fan_out, fan_in) by the named rule, drawn in float64.
    Orthogonal ones keep the length of the signal or of the gradient in every direction,
    and not only on average; their last bits depend on the threads of BLAS."""
    *_, fan_out, fan_in = shape
    if init == "orthogonal":                            # Saxe et al. 2014
        wide = fan_in > fan_out
        drawn = rng.normal(size=shape)
        q, r = np.linalg.qr(drawn.swapaxes(-1, -2) if wide else drawn)
        q *= np.sign(np.diagonal(r, axis1=-2, axis2=-1))[..., None, :]  # each as likely
        return q.swapaxes(-1, -2) if wide else q
    if init == "he":                                    # He et al. 2015, for relu
        return rng.normal(0, math.sqrt(2 / fan_in), shape)
    bound = {"uniform": math.sqrt(1 / fan_in),
             "glorot": math.sqrt(6 / (fan_in + fan_out))}[init]     # Glorot et al. 2010
    return rng.uniform(-bound, bound, shape)


def initial_bias(gate_bias: float | str, depth: int) -> float:
    """b_T as a number: "auto" is logit(1/L) = -log(L - 1), with which the T of L layers
    start with a sum of 1; a single layer has no such b_T and starts half open."""
    if gate_bias == "auto":
        return 0.0 - math.log(max(depth - 1, 1))        # -log(1) would be -0.0
    return float(gate_bias)


def aligned(shape: tuple, dtype: Any) -> np.ndarray:
    """Zeros that begin at a multiple of 64 bytes, a line of the processor's cache: from
    NumPy's own multiples of 16 a step takes up to 1.15 times as long."""
    dtype = np.dtype(dtype)
    size = math.prod(shape) * dtype.itemsize
    memory = np.zeros(size + 64, np.uint8)
    start = -memory.ctypes.data % 64
    return memory[start:start + size].view(dtype).reshape(shape)


class Layer(NamedTuple):
    """Every view of a cache that the two passes need of one layer."""

    W: np.ndarray           # (R, U + 1) weights of H and gates, biases last
    W_back: np.ndarray      # (U, R) the same without biases, transposed
    dW: np.ndarray          # (R, U + 1)
    x1: np.ndarray          # (U + 1, B) the input, and a row of ones for the biases
    x: np.ndarray           # (U, B) the input
    y: np.ndarray           # (U, B) the output, which is the next one's input
    z: np.ndarray           # (R, B) pre-activations -> H and gates -> dz
    rows: Rows              # its parts, H and each gate (U, B)
    gates: np.ndarray       # (R - U, B) its part below H


class Cache:
    """All memory of one net's forward and backward passes, allocated once.

    It is made by `DeepNet.cache(batch)` and serves every batch of that size. Backward
    overwrites what forward left, so each forward pass serves one backward pass.
    """

    def __init__(self, net: DeepNet, batch: int):
        L, U, R, dtype = net.depth, net.hidden, net.rows, net.dtype
        self.net, self.batch = net, batch
        self.pixels: np.ndarray | None = None   # set by forward, taken by backward
        self.x = aligned((L + 1, U + 1, batch), dtype)  # block inputs
        self.x[:, U] = 1        # stays: it meets the biases, the weights' last column
        self.z = aligned((L, R, batch), dtype)          # z -> H and gates -> dz
        k = net.block.gates.find("T") + 1
        self.T = self.z[:, k * U:(k + 1) * U] if k else None    # (L, U, batch)
        self.logits = aligned((net.classes, batch), dtype)
        self.d = aligned((U, batch), dtype)             # dy -> dx, layer after layer
        self.dH, self.scratch = aligned((U, batch), dtype), aligned((U, batch), dtype)
        self.half = np.array(0.5, dtype)
        self.grad = aligned(net.params.shape, dtype)
        self.weights, self.dW = net.tensors(net.params), net.tensors(self.grad)
        # Made here, once, the views cost nothing in a step.
        H_and_gates = self.z.reshape(L, R // U, U, batch)
        self.layers = [
            Layer(W, W[:, :U].T, dW, x, x[:U], y[:U], z, tuple(rows), z[U:])
            for W, dW, x, y, z, rows in zip(
                self.weights["blocks"], self.dW["blocks"], self.x[:-1], self.x[1:],
                self.z, H_and_gates, strict=True)]


COLUMNS = 500           # examples in the cache at a time, where a net only answers


class DeepNet:
    """P pixels -> projection -> L blocks of U units -> C logits.  (sections 2, 3.1)

    Weights are one flat vector, `params`, to be written into, never replaced;
    `views(flat)` names the parts of it, or of any other vector laid out alike:

        W_in (U, P), b_in (U, 1), W_H (L, U, U), b_H (L, U), W_out (C, U), b_out (C,)
        and for each gate of the block, here T: W_T (L, U, U), b_T (L, U)

    Nets of equal seed, sizes and init share W_in, W_out, and W_H and W_T as far as
    they have them, whatever their block and depth. gate_bias: see `initial_bias`.
    Raises KeyError for an unknown block, activation or init.
    """

    def __init__(self, block: str = "highway", depth: int = 30, hidden: int = 50, *,
                 inputs: int = 784, classes: int = 10, activation: str = "tanh",
                 init: str = "uniform", gate_bias: float | str = -2.0, seed: int = 0,
                 dtype: Any = "float32"):
        self.settings: dict[str, Any] = {
            "block": block, "depth": depth, "hidden": hidden, "inputs": inputs,
            "classes": classes, "activation": activation}
        self.block, self.activation = block_of(block, depth), ACTIVATIONS[activation]
        self.depth, self.hidden = depth, hidden
        self.inputs, self.classes = inputs, classes
        self.rows = hidden * (1 + len(self.block.gates))        # R: H and the gates
        self.dtype = np.dtype(dtype)
        self.layout = Parameters({
            "W_in": (hidden, inputs), "b_in": (hidden, 1),
            "blocks": (depth, self.rows, hidden + 1), "out": (classes, hidden + 1)})
        self.tensors = self.layout.views        # as they lie in memory, by these names
        self.params = np.zeros(self.layout.size, self.dtype)
        self._initialize(init, initial_bias(gate_bias, depth), seed)

    def _initialize(self, init, gate_bias, seed):
        weights = self.views(self.params)
        names = ("W_in", "W_out", "W_H", "W_T", "W_C")
        for name, stream in zip(names, streams(seed)["weights"].spawn(len(names)),
                                strict=True):
            if name in weights:
                shape = weights[name].shape
                weights[name][...] = initial_weights(np.random.default_rng(stream),
                                                     init, shape)
        for gate, bias in (("T", gate_bias), ("C", -gate_bias)):    # both carry alike
            if gate in self.block.gates:
                weights["b_" + gate][...] = bias

    def views(self, flat: np.ndarray) -> dict[str, np.ndarray]:
        """flat -> {name: view}, named as in the paper (class docstring)."""
        U, tensors = self.hidden, self.tensors(flat)
        named = {"W_in": tensors["W_in"], "b_in": tensors["b_in"],
                 "W_out": tensors["out"][:, :U], "b_out": tensors["out"][:, U]}
        for k, name in enumerate("H" + self.block.gates):
            rows = tensors["blocks"][:, k * U:(k + 1) * U]
            named["W_" + name], named["b_" + name] = rows[:, :, :U], rows[:, :, U]
        return named

    def cache(self, batch: int) -> Cache:
        """A Cache for batches of this size."""
        return Cache(self, batch)

    def forward(self, x: np.ndarray, cache: Cache | None = None,
                closed: Collection[int] = ()) -> tuple[np.ndarray, Cache]:
        """(P, B) -> logits (C, B) and the filled cache: a new one, unless one for
        batches of this size is given.

        closed: layers 0..L-1 that copy their input, whatever their block; their gates
        read 0 (lesioning, section 4.2). The logits belong to the cache, which also
        keeps x itself until backward. Raises ValueError for an x or a layer that does
        not fit.
        """
        if x.ndim != 2 or len(x) != self.inputs or x.dtype != self.dtype:
            raise ValueError(f"x is {x.dtype} {x.shape}; the net takes {self.dtype} "
                             f"({self.inputs}, B)")
        closed = frozenset(closed)
        if closed and not closed <= set(range(self.depth)):
            raise ValueError(f"closed is {set(closed)}, not layers from 0 to "
                             f"{self.depth - 1}")
        if cache is None or cache.net is not self or cache.batch != x.shape[1]:
            cache = self.cache(x.shape[1])
        weights, first = cache.weights, cache.x[0, :self.hidden]
        np.matmul(weights["W_in"], x, out=first)
        np.add(first, weights["b_in"], out=first)
        self.activation.forward(first)
        for l, layer in enumerate(cache.layers):
            np.matmul(layer.W, layer.x1, out=layer.z)
            activate(layer.z, layer.rows[0], layer.gates, self.activation, cache.half)
            self.block.forward(layer.x, layer.rows, layer.y, cache.scratch)
            if l in closed:
                layer.gates.fill(0)
                np.copyto(layer.y, layer.x)
        np.matmul(weights["out"], cache.x[-1], out=cache.logits)
        cache.pixels = None if closed else x
        return cache.logits, cache

    def backward(self, dlogits: np.ndarray, cache: Cache) -> np.ndarray:
        """dlogits (C, B) and a filled cache -> the flat gradient, in `params`' layout.

        The vector belongs to the cache: the next backward pass overwrites it. Raises
        ValueError if the cache does not come fresh from this net's forward pass.
        """
        if cache.net is not self or cache.pixels is None:
            raise ValueError("backward needs a cache fresh from forward, none closed")
        pixels, cache.pixels = cache.pixels, None
        weights, grads = cache.weights, cache.dW
        d, dH, scratch = cache.d, cache.dH, cache.scratch
        np.matmul(dlogits, cache.x[-1].T, out=grads["out"])
        np.matmul(weights["out"][:, :self.hidden].T, dlogits, out=d)
        for layer in reversed(cache.layers):
            self.block.backward(d, layer.x, layer.rows, dH, scratch)    # dy -> dH, dx
            self.activation.backward(dH, layer.rows[0])     # z now holds dz
            np.matmul(layer.z, layer.x1.T, out=layer.dW)
            np.matmul(layer.W_back, layer.z, out=dH)
            np.add(d, dH, out=d)                            # dx += W^T dz
        first = cache.x[0, :self.hidden]
        self.activation.backward(d, first)
        np.matmul(first, pixels.T, out=grads["W_in"])
        np.sum(first, axis=1, keepdims=True, out=grads["b_in"])
        return cache.grad

    def gradient(self, batch: tuple, cache: Cache) -> tuple[dict, np.ndarray]:
        """x (P, B) and labels (B,) -> loss and accuracy, and the flat gradient."""
        x, labels = batch
        logits, cache = self.forward(x, cache)
        right = np.count_nonzero(logits.argmax(axis=0) == labels)
        loss, dlogits = cross_entropy(logits, labels)
        measures = {"train_loss": float(loss), "train_acc": right / len(labels)}
        return measures, self.backward(dlogits, cache)

    def _collect(self, x, closed, shape, pick):
        """What pick(logits, cache) gives of x (N, P), batch by batch, as rows (N,
        *shape). A deep net's cache takes much memory, so a batch has `COLUMNS` rows.
        """
        x, closed, cache = np.asarray(x, self.dtype), frozenset(closed), None
        if x.ndim != 2 or x.shape[1] != self.inputs or not np.isfinite(x).all():
            raise ValueError(f"rows of {self.inputs} finite numbers expected, got "
                             f"{x.shape}")
        out = np.empty((len(x), *shape), self.dtype)
        for start in range(0, len(x), COLUMNS):
            some = slice(start, start + COLUMNS)
            logits, cache = self.forward(x[some].T, cache, closed)
            out[some] = np.moveaxis(pick(logits, cache), -1, 0)
        return out

    def _logits(self, x, closed):
        return self._collect(x, closed, (self.classes,), lambda logits, cache: logits)

    def predict(self, x: np.ndarray, closed: Collection[int] = ()) -> np.ndarray:
        """x (N, P) -> the most probable class of each row, (N,). closed: see `forward`.
        Raises ValueError for an x that does not fit."""
        return self._logits(x, closed).argmax(axis=1)

    def predict_proba(self, x: np.ndarray, closed: Collection[int] = ()) -> np.ndarray:
        """x (N, P) -> the probability of each class, (N, C)."""
        return softmax(self._logits(x, closed).T).T

    def gates(self, x: np.ndarray, closed: Collection[int] = ()) -> np.ndarray:
        """x (N, P) -> the transform gates T of every block, (N, L, U): with float32,
        4 N L U bytes. Raises ValueError for blocks that have none."""
        if "T" not in self.block.gates:
            raise ValueError(f"{self.settings['block']} blocks have no transform gate")
        return self._collect(x, closed, (self.depth, self.hidden),
                             lambda logits, cache: cache.T)

    def block_outputs(self, x: np.ndarray, closed: Collection[int] = ()) -> np.ndarray:
        """x (N, P) -> the projection's output and every block's, (N, L + 1, U): with
        float32, 4 N (L + 1) U bytes."""
        return self._collect(x, closed, (self.depth + 1, self.hidden),
                             lambda logits, cache: cache.x[:, :self.hidden])


# Loss ---------------------------------------------------------------------------------

def softmax(logits: np.ndarray) -> np.ndarray:
    """(C, B) -> probabilities (C, B); each column is shifted by its own maximum."""
    p = np.exp(logits - logits.max(axis=0))
    p /= p.sum(axis=0)
    return p


def cross_entropy(logits: np.ndarray, labels: np.ndarray) -> tuple[Any, np.ndarray]:
    """(C, B), (B,) -> mean of -log softmax(logits)[label], and dlogits (C, B).

    By log-sum-exp: exact where the probability of the label underflows. Raises
    ValueError for labels of another shape.
    """
    B = logits.shape[1]
    if labels.shape != (B,):
        raise ValueError(f"labels are {labels.shape}, not {(B,)}")
    examples = np.arange(B)
    shifted = logits - logits.max(axis=0)
    dlogits = np.exp(shifted)
    total = dlogits.sum(axis=0)
    loss = (np.log(total) - shifted[labels, examples]).sum() / B
    dlogits /= total                    # softmax
    dlogits[labels, examples] -= 1
    dlogits /= B
    return loss, dlogits


# Optimisers: in place, on flat vectors; `kept` names what a checkpoint must hold ------

def clip_norm(grad: np.ndarray, limit: float) -> float:
    """Scale grad in place to an L2 norm of at most `limit` (0: no limit); return the
    norm it had. Pascanu et al. 2013."""
    norm = math.sqrt(np.dot(grad, grad))
    if limit and limit < norm < math.inf:
        np.multiply(grad, limit / norm, out=grad)
    return norm


PIECE = 1 << 16     # weights that Adam moves at a time, so that they stay in the cache


class Adam:
    """Kingma, Ba 2015. The moments are kept without their factors (1 - beta), which go
    into the step size instead: the update is the same, with two passes less over the
    vectors.

        m = sum of beta1^i grad,  v = sum of beta2^i grad^2,  i steps ago
        params -= lr * m_hat / (sqrt(v_hat) + eps)
    """

    kept = ("m", "v", "steps")

    def __init__(self, params: np.ndarray, beta1: float = 0.9, beta2: float = 0.999,
                 eps: float = 1e-8):
        self.m, self.v = np.zeros_like(params), np.zeros_like(params)
        self.scratch = np.empty_like(params[:PIECE])
        self.steps = np.zeros(1, int)
        self.beta1, self.beta2, self.eps = beta1, beta2, eps

    def step(self, params: np.ndarray, grad: np.ndarray, lr: float) -> None:
        self.steps += 1
        t = int(self.steps[0])
        first = (1 - self.beta1) / (1 - self.beta1 ** t)        # m_hat = first m
        second = math.sqrt((1 - self.beta2) / (1 - self.beta2 ** t))
        for start in range(0, params.size, PIECE):
            piece = slice(start, start + PIECE)
            m, v, g, p = self.m[piece], self.v[piece], grad[piece], params[piece]
            scratch = self.scratch[:p.size]
            np.multiply(m, self.beta1, out=m)
            np.add(m, g, out=m)
            np.multiply(v, self.beta2, out=v)
            np.multiply(g, g, out=scratch)
            np.add(v, scratch, out=v)
            np.sqrt(v, out=scratch)                 # sqrt(v_hat) = second * scratch
            np.add(scratch, self.eps / second, out=scratch)
            np.divide(m, scratch, out=scratch)
            np.multiply(scratch, lr * first / second, out=scratch)
            np.subtract(p, scratch, out=p)
            if t % 100 == 0:    # or without gradients they end subnormal: slow
                m[np.abs(m) < 1e-30] = v[v < 1e-30] = 0


class SGD:
    """Momentum SGD: v = momentum v - lr grad, params += v.    (paper, section 3.1)"""

    kept = ("v",)

    def __init__(self, params: np.ndarray, momentum: float):
        self.v, self.scratch = np.zeros_like(params), np.empty_like(params)
        self.momentum = momentum

    def step(self, params: np.ndarray, grad: np.ndarray, lr: float) -> None:
        np.multiply(self.v, self.momentum, out=self.v)
        np.multiply(grad, lr, out=self.scratch)
        np.subtract(self.v, self.scratch, out=self.v)
        np.add(params, self.v, out=params)


OPTIMIZERS = {
    "adam": lambda params, config: Adam(params),
    "sgd": lambda params, config: SGD(params, config.momentum),
}

# Data ---------------------------------------------------------------------------------

class DataError(ValueError):
    """Data are missing or wrong: where, and what was expected and found."""


@dataclass(frozen=True, eq=False, repr=False)
class Data:
    """Images and labels: numbers as read, or in [-1, 1] by `scale_pixels`. Raises
    DataError where they do not fit together."""

    x_train: np.ndarray     # (N, P)
    y_train: np.ndarray     # (N,) whole numbers, 0 to classes - 1
    x_test: np.ndarray
    y_test: np.ndarray
    classes: int = 10
    scale: float | None = 255   # the largest value of a pixel; None: scaled already

    def __post_init__(self):
        for name in ("x_train", "y_train", "x_test", "y_test"):
            # A Series of pandas would hand out labels by its index, not by their place.
            object.__setattr__(self, name, np.asarray(getattr(self, name)))
        for x, y in ((self.x_train, self.y_train), (self.x_test, self.y_test)):
            if (x.ndim != 2 or not x.size or y.shape != x.shape[:1]
                    or x.shape[1] != self.x_train.shape[1]):
                raise DataError(f"images {x.shape} and labels {y.shape}: they must be "
                                "(N, P) and (N,), P the same everywhere, and not empty")
            if x.dtype.kind not in "uif" or not np.isfinite(x).all():
                raise DataError(f"images are {x.dtype}, not all finite numbers")
            if y.dtype.kind not in "iu" or y.min() < 0 or y.max() >= self.classes:
                raise DataError(f"labels must be whole numbers from 0 to "
                                f"{self.classes - 1}, as np.unique(labels, "
                                "return_inverse=True)[1] makes them")

    def __repr__(self) -> str:
        return (f"Data(x_train {self.x_train.shape} {self.x_train.dtype}, x_test "
                f"{self.x_test.shape}, {self.classes} classes, scale {self.scale})")


MNIST: dict[str, str] = {   # LeCun, Cortes, Burges 1998: files, SHA-256 of contents
    "train-images-idx3-ubyte":
        "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "train-labels-idx1-ubyte":
        "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "t10k-images-idx3-ubyte":
        "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "t10k-labels-idx1-ubyte":
        "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"}


def read_idx(path: Path, sha256: str) -> np.ndarray:
    """An idx file, or the packed one beside it -> read-only uint8 array. It begins with
    0, 0, 8 for bytes, the number of dimensions, and each size in four bytes; then come
    the numbers. Raises DataError unless its content has this SHA-256."""
    path = path if path.exists() else path.with_name(f"{path.name}.gz")
    try:
        content = path.read_bytes()
        if content[:2] == b"\x1f\x8b":
            content = gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None)
        reason = f"{reason}; --data-dir names its folder" if reason else error
        raise DataError(f"{path}: {reason}") from error
    if (found := hashlib.sha256(content).hexdigest()) != sha256:
        raise DataError(f"{path}: SHA-256 {found}, expected {sha256}")
    shape = np.frombuffer(content, ">u4", count=content[3], offset=4)
    return np.frombuffer(content, np.uint8, offset=4 + 4 * len(shape)).reshape(shape)


def load_mnist(folder: str | Path | None = None) -> Data:
    """MNIST from its four files, packed or not, in a folder, else $HIGHWAY_DATA_DIR,
    else ~/.cache/hinton-mnist. They are checked on every read. Raises DataError."""
    folder = Path(folder or os.environ.get("HIGHWAY_DATA_DIR")
                  or os.path.expanduser("~/.cache/hinton-mnist"))
    x_train, y_train, x_test, y_test = (
        read_idx(folder / name, sha256) for name, sha256 in MNIST.items())
    return Data(x_train.reshape(len(x_train), -1), y_train,
                x_test.reshape(len(x_test), -1), y_test)


def streams(seed: int) -> dict[str, np.random.SeedSequence]:
    """seed -> the independent random streams of one run, by name (SeedSequence)."""
    names = ("subset", "weights", "batches")
    return dict(zip(names, np.random.SeedSequence(seed).spawn(len(names)), strict=True))


def take_subset(data: Data, config: Config) -> Data:
    """n_train training and n_test test images, drawn by the seed for both arms alike,
    so that a mean over seeds estimates the accuracy on the whole test set. Raises
    DataError where there are fewer."""
    if config.n_train > len(data.x_train) or config.n_test > len(data.x_test):
        raise DataError(f"n_train is {config.n_train} and n_test {config.n_test}, of "
                        f"{len(data.x_train)} and {len(data.x_test)} images")
    rng = np.random.default_rng(streams(config.seed)["subset"])
    train = rng.permutation(len(data.x_train))[:config.n_train]
    test = rng.permutation(len(data.x_test))[:config.n_test]
    return replace(data, x_train=data.x_train[train], y_train=data.y_train[train],
                   x_test=data.x_test[test], y_test=data.y_test[test])


def scale_pixels(data: Data, dtype: str = "float32") -> Data:
    """Data with pixels from 0 to data.scale -> in [-1, 1], and labels as indices; its
    scale is None. Raises DataError for pixels out of that range, or scaled before."""
    if (scale := data.scale) is None:
        raise DataError("these pixels are scaled already, and that is done once")

    def scaled(x):
        if x.min() < 0 or x.max() > scale or 0 < x.max() <= 1 < scale:
            raise DataError(f"pixels go from {x.min():g} to {x.max():g}: is the "
                            f"largest possible really data.scale={scale:g}?")
        x = x.astype(dtype)
        x *= 2 / scale
        x -= 1
        return x
    return replace(data, x_train=scaled(data.x_train), x_test=scaled(data.x_test),
                   y_train=data.y_train.astype(np.intp),
                   y_test=data.y_test.astype(np.intp), scale=None)


# Training -----------------------------------------------------------------------------

def significant(value: float) -> float:
    """Six significant digits: what a record keeps of a measured number."""
    return float(f"{value:.6g}")


class Diverged(ArithmeticError):
    """The loss, a logit, a weight or the gradient's norm is no longer finite."""


class Batches:
    """Shuffled batches of `size` images x (N, P), or of some rows of x, and their
    labels; each pass over them is an epoch, drawn from rng, and leaves out those that
    fill no batch. Each batch is x (P, size), which the next one overwrites, and labels
    (size,)."""

    def __init__(self, x: np.ndarray, labels: np.ndarray, size: int,
                 rng: np.random.Generator, rows: np.ndarray | None = None):
        self.x = np.ascontiguousarray(x)    # of other arrays np.take copies all of it
        self.labels, self.size = labels, size
        self.rows = np.arange(len(x)) if rows is None else rows
        self.streams = {"batches": rng}
        self.images = np.empty((size, x.shape[1]), x.dtype)

    def __len__(self) -> int:
        return len(self.rows) // self.size

    def __iter__(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        order = self.streams["batches"].permutation(self.rows)
        for start in range(0, len(order) - self.size + 1, self.size):
            chosen = order[start:start + self.size]
            np.take(self.x, chosen, 0, self.images, "clip")     # "raise" copies twice
            yield self.images.T, self.labels[chosen]


def train_step(net: Any, batch: Any, cache: Any, optimizer: Any, lr: float,
               clip: float) -> dict[str, float]:
    """One update -> what the net measured on the batch before it, and the gradient's
    norm. If one of these is not finite, raises Diverged and changes no weight."""
    measures, grad = net.gradient(batch, cache)
    measures["grad_norm"] = clip_norm(grad, clip)
    if not all(map(math.isfinite, measures.values())):
        raise Diverged(str(measures))
    optimizer.step(net.params, grad, lr)
    return measures


def train_epoch(net: Any, batches: Iterable, cache: Any, optimizer: Any, lr: float,
                clip: float) -> dict[str, float]:
    """One pass over the batches -> means over its steps. Raises Diverged; ValueError if
    there is no batch."""
    steps = [train_step(net, batch, cache, optimizer, lr, clip) for batch in batches]
    if not steps:
        raise ValueError("there is no batch: it takes more examples than there are")
    if not np.isfinite(net.params).all():       # the last update is no step's loss yet
        raise Diverged("a weight is not finite")
    means = np.mean([list(step.values()) for step in steps], axis=0)
    return {name: significant(mean) for name, mean in zip(steps[0], means, strict=True)}


def fit(net: Any, batches: Any, optimizer: Any, schedule: Callable,
        report: Callable | None = None, *, epochs: int, clip: float = 0.0,
        measure: Callable | None = None, untrained: bool = False, cache: Any = None,
        checkpoint: Any = None, threads: int | None = 1) -> tuple[list[dict], str]:
    """The training loop of every net here -> history, a row {"epoch": ...} for each
    epoch, and status: "diverged" where a number is no longer finite, else "ok".

    net: has `params`, a flat vector that is written in place, cache(size), and
        gradient(batch, cache) -> measures {name: number} and the flat gradient.
    batches: each pass over it is an epoch, in batches of `size`; all random numbers
        come from its `streams`, {name: Generator}.
    optimizer: step(params, grad, lr); the arrays named by `kept` are its state.
    schedule(epoch, history) -> the learning rate of an epoch; they count from 1.
    report(row), after each epoch, may return true: the training ends there for good.
    measure(net, cache) -> {name: JSON} after each epoch; if `untrained`, also before
        the first one, as epoch 0.
    checkpoint: load(arrays, streams) -> the history kept, or [], with arrays and
        streams set to where it ends; save(arrays, streams, history), after each epoch.
    """
    cache = net.cache(batches.size) if cache is None else cache
    arrays = {"params": net.params} | {
        name: getattr(optimizer, name) for name in optimizer.kept}
    history = checkpoint.load(arrays, batches.streams) if checkpoint else []
    last = history[-1] if history else {"epoch": -1 if untrained else 0}
    epochs = last["epoch"] if "stopped" in last else epochs
    with blas_threads(threads), np.errstate(all="ignore"):      # Diverged says it
        for epoch in range(last["epoch"] + 1, epochs + 1):
            row: dict[str, Any] = {"epoch": epoch}
            try:
                if epoch:
                    row |= train_epoch(net, batches, cache, optimizer,
                                       schedule(epoch, history), clip)
                if measure:
                    row |= measure(net, cache)
            except Diverged:
                return history, "diverged"
            history.append(row)
            if epoch and report and report(row):
                row["stopped"] = True
            if checkpoint:
                checkpoint.save(arrays, batches.streams, history)
            if "stopped" in row:
                break
    return history, "ok"


def pieces(count: int, size: int) -> Iterator[tuple[slice, int]]:
    """Slices of `size` images that cover `count`, each with how many of its first ones
    an earlier slice had: the last may overlap. Raises ValueError for too few images."""
    if count < size:
        raise ValueError(f"{count} images, fewer than a piece of {size}")
    for start in range(0, count, size):
        back = max(start + size - count, 0)
        yield slice(start - back, start - back + size), back


def evaluate(net: DeepNet, x: np.ndarray, labels: np.ndarray, cache: Cache
             ) -> tuple[float, np.ndarray]:
    """x (N, P), labels (N,) -> accuracy, and the mean T of each layer (L,), empty
    without T. Raises Diverged if a logit is not finite."""
    right, T_sum = 0, np.zeros(0 if cache.T is None else net.depth)
    for rows, back in pieces(len(x), min(cache.batch, len(x))):
        logits, cache = net.forward(x[rows].T, cache)
        if not np.isfinite(logits).all():
            raise Diverged("a logit is not finite")
        right += np.count_nonzero((logits.argmax(axis=0) == labels[rows])[back:])
        if cache.T is not None:
            T_sum += cache.T[:, :, back:].sum(axis=(1, 2))
    return right / len(x), T_sum / (net.hidden * len(x))


def make_net(config: Config, data: Data) -> DeepNet:
    """The untrained DeepNet of a configuration for such images."""
    names = ("block", "depth", "hidden", "activation", "init", "gate_bias", "seed",
             "dtype")
    with blas_threads(1):       # orthogonal weights differ by their number
        return DeepNet(**{name: getattr(config, name) for name in names},
                       inputs=data.x_train.shape[1], classes=data.classes)


def train(net: DeepNet, data: Data, config: Config, report: Callable | None = None, *,
          watch: Callable | None = None, checkpoint: Any = None, threads: int | None = 1
          ) -> tuple[dict[str, list], np.ndarray, str]:
    """Train on all of scaled Data -> (history, layer_T, status), by `fit`. A second
    call goes on from the weights that the net has, with a new optimiser. watch(batches)
    -> the same batches, and shows how far an epoch is.

    history: a list for each name, with an item for each epoch. `train_loss`,
    `train_acc` and `grad_norm` are means over the epoch's steps, each taken before its
    update; `test_acc` is taken after the epoch. layer_T (epochs + 1, L): row e is the
    mean T of each block on the test images after epoch e; L is 0 for a block without T.
    From the epoch on in which a run diverged, history has None and layer_T NaN. Raises
    ValueError for Data that are not scaled, or too few for a batch.
    """
    if data.scale is not None:
        raise ValueError("the pixels are not scaled: train takes scale_pixels(data)")
    if config.batch > len(data.x_train):
        raise ValueError(f"batch is {config.batch}, but there are {len(data.x_train)} "
                         "training images")
    x_train, x_test = (np.asarray(x, net.dtype) for x in (data.x_train, data.x_test))

    def test(net, cache):
        accuracy, mean_T = evaluate(net, x_test, data.y_test, cache)
        return {"test_acc": significant(accuracy),
                "layer_T": [significant(T) for T in mean_T]}
    batches = Batches(x_train, data.y_train, config.batch,
                      np.random.default_rng(streams(config.seed)["batches"]))
    rows, status = fit(
        net, watch(batches) if watch else batches,
        OPTIMIZERS[config.optimizer](net.params, config),
        lambda epoch, history: config.lr * config.lr_decay ** (epoch - 1), report,
        epochs=config.epochs, clip=config.clip, measure=test, untrained=True,
        checkpoint=checkpoint, threads=threads)
    if status == "diverged":
        rows += [{"epoch": epoch} for epoch in range(len(rows), config.epochs + 1)]
    unknown = [math.nan] * (net.depth if "T" in net.block.gates else 0)
    layer_T = np.array([row.get("layer_T", unknown) for row in rows])
    history = {name: [row.get(name) for row in rows[1:]] for name in (
        "epoch", "train_loss", "train_acc", "grad_norm", "test_acc")}
    return history, layer_T, status


# Record: what a run keeps as JSON -----------------------------------------------------

SCHEMA = "highway-networks/run"


def train_arm(config: Config, data: Data, report: Callable | None = None,
              **how: Any) -> dict:
    """Configuration and unscaled subset -> a net of the record; how: more of `train`.
    """
    start = time.perf_counter()
    net = make_net(config, data)
    history, layer_T, status = train(net, scale_pixels(data, config.dtype), config,
                                     report, **how)
    seconds = time.perf_counter() - start
    own_bias = config.gate_bias == "auto"       # else it is the record's
    return {
        "label": f"{config.block} {config.depth}", "block": config.block,
        "depth": config.depth, "hidden": config.hidden, "epochs": config.epochs,
        "batch_size": config.batch, "lr": config.lr, "seed": config.seed,
        "parameters": net.params.size, "status": status,
        # What the best constant answer would get.
        "chance": significant(np.unique(data.y_test, return_counts=True)[1].max()
                              / len(data.y_test)),
        "history": history,
        **{"final_" + name: history[name][-1]
           for name in ("train_acc", "test_acc", "train_loss")},
        "wallclock_sec": round(seconds, 3),
        "layer_T_history": [[epoch, row.tolist()] for epoch, row in enumerate(layer_T)
                            if row.size and np.isfinite(row).all()],
        "final_T_per_layer": layer_T[-1].tolist() if status == "ok" else [],
        **({"gate_bias": initial_bias("auto", config.depth)} if own_bias else {})}


def summarize(arms: list[dict]) -> list[dict]:
    """Mean and standard deviation (n - 1) over the seeds, per depth and block."""
    groups: dict[tuple, list] = {}
    for arm in arms:
        groups.setdefault((arm["depth"], arm["block"]), []).append(arm)
    rows = []
    for (depth, block), group in groups.items():
        ended = [arm for arm in group if arm["status"] == "ok"]
        row = {"depth": depth, "block": block, "n": len(group),
               "diverged": len(group) - len(ended)}
        for name in ("test_acc", "train_loss"):
            values = [arm["final_" + name] for arm in ended]
            row[name + "_mean"] = significant(np.mean(values)) if values else None
            row[name + "_std"] = (significant(np.std(values, ddof=1))
                                  if len(values) > 1 else None)
        rows.append(row)
    return rows


def make_record(settings: dict, arms: list[dict], command: str, env: dict) -> dict:
    """Settings of the command line and its arms -> the record of the run. Where each
    depth has its own b_T, it names that of the deepest, and every arm its own."""
    settings = settings | {"gate_bias": initial_bias(settings["gate_bias"],
                                                     max(settings["depths"]))}
    pairs: dict[tuple, dict] = {}
    for arm in arms:
        pairs.setdefault((arm["depth"], arm["seed"]), {})[arm["block"]] = arm
    runs = [{"depth": depth, "seed": seed, **pair, "wallclock_sec":
             round(sum(arm["wallclock_sec"] for arm in pair.values()), 3)}
            for (depth, seed), pair in pairs.items()]
    return {"schema": SCHEMA, "schema_version": 1, "command": command,
            "dataset": settings["dataset"],
            "seed": settings["seeds"][0], "seeds": settings["seeds"],
            "hidden": settings["hidden"], "depth": max(settings["depths"]),
            "epochs": settings["epochs"], "batch_size": settings["batch"],
            "lr": settings["lr"], "n_train": settings["n_train"],
            "n_test": settings["n_test"], "config": settings,
            "env": env, "summary": summarize(arms), "runs": runs}


# Command line -------------------------------------------------------------------------

def one_of(kind: type, words: tuple = ()) -> Callable:
    """An argparse type: one of the words, or a value of a kind."""
    def parse(text):
        try:
            return text if text in words else kind(text)
        except ValueError:
            wanted = " or ".join([kind.__name__, *words])
            raise argparse.ArgumentTypeError(f"{text!r}: expected {wanted}") from None
    return parse


def several(kind: type) -> Callable:
    """An argparse type: values of a kind, separated by commas, each once."""
    def parse(text):
        found = [*map(one_of(kind), text.split(","))]
        if len(set(found)) < len(found):
            raise argparse.ArgumentTypeError(f"{text!r} names a value twice")
        return found
    return parse


def build_parser(kind: type = argparse.ArgumentParser) -> Any:
    """A flag for each setting of Config, which checks the values; seed and depth may
    have several."""
    parser = kind(
        prog="highway_networks.py", allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
        usage="%(prog)s [FLAG ...]; --help lists the flags",
        description="Train nets of different blocks, in NumPy: a highway net and a "
                    "plain net, unless told otherwise.")
    for item in fields(Config)[1:]:
        flag, words = "--" + item.name.replace("_", "-"), item.metadata["words"]
        text = f"{item.metadata['help']} (default: {item.default})"
        if item.name in ("seed", "depth"):
            parser.add_argument(flag, flag + "s", dest=item.name + "s", metavar="N,...",
                                type=several(int), help=text)
        else:
            shown = ["N", *words] if item.metadata["range"] else words
            parser.add_argument(flag, type=one_of(type(item.default), words), help=text,
                                metavar="|".join(shown))
    parser.add_argument("--blocks", type=several(str), metavar="A,...",
                        help=f"kinds of nets: {', '.join(BLOCKS)} (default: "
                             "highway,plain)")
    parser.add_argument("--data-dir", metavar="FOLDER", type=Path, default=None,
                        help="of the data set's files (default: $HIGHWAY_DATA_DIR, or "
                             "one of its own in ~/.cache)")
    parser.add_argument("--out", metavar="FILE", type=Path, default=None,
                        help="the record; a file of that name is replaced")
    return parser


def resolve(given: Mapping) -> dict:
    """The defaults, or what is given -> the settings of a run."""
    values: dict[str, Any] = {"seeds": [0], "depths": [30],
                              "blocks": ["highway", "plain"], "dataset": "mnist"}
    values |= {item.name: item.default for item in fields(Config)
               if item.name not in ("block", "seed", "depth")}
    values |= {name: given[name] for name in values if name in given}
    return values | {"plain_hidden": given.get("plain_hidden", values["hidden"])}


def make_configs(settings: Mapping) -> list[Config]:
    """One Config for each depth, seed and block of a run, in the record's order. Raises
    ValueError for a setting that is not allowed."""
    shared = {item.name: settings[item.name] for item in fields(Config)
              if item.name in settings}
    return [Config(**shared | {
                "block": block, "depth": depth, "seed": seed, "hidden":
                settings["plain_hidden" if block == "plain" else "hidden"]})
            for depth in settings["depths"] for seed in settings["seeds"]
            for block in settings["blocks"]]


def train_alone(configs: list[Config], data: Data, options: argparse.Namespace
                ) -> list[dict]:
    """The arms of the record, one net after the other, with a line for each epoch."""
    def show(config, row):
        print(f"{config.block:>7} {config.depth} seed {config.seed}  epoch "
              f"{row['epoch']}/{config.epochs}  train loss {row['train_loss']:.4f}  "
              f"test accuracy {row['test_acc']:.4f}", file=sys.stderr, flush=True)
    return [train_arm(config, take_subset(data, config), partial(show, config))
            for config in configs]


def write_alone(settings: dict, options: argparse.Namespace) -> Callable:
    """-> save(record), which writes run.json for the headline, else last_run.json, or
    --out, and returns what there is to say. Raises OSError at once if it cannot."""
    out = options.out or Path("run.json" if settings == resolve({}) else
                              "last_run.json")
    part = out.with_name(f".{out.name}.part")
    if out.is_dir():
        raise IsADirectoryError(f"{out} is a folder")
    part.touch()
    part.unlink()

    def save(record):
        part.write_text(json.dumps(record, indent=1, allow_nan=False))
        part.replace(out)
        return f"wrote {out}"
    return save


def main(argv: list[str] | None = None, parser: Any = None,
         load: Callable = lambda options: ({}, load_mnist(options.data_dir)),
         train_all: Callable = train_alone, write: Callable = write_alone) -> dict:
    """The command line -> the record. Exits with 2 for a wrong flag, 1 for wrong data
    or a failed write, 130 after Ctrl-C. highway_suite passes a parser with more flags,
    and how to load (the settings that the data decide, and Data), to train, to write.
    """
    parser = parser or build_parser()
    options = parser.parse_args(argv)
    settings = resolve(vars(options))
    argv = sys.argv[1:] if argv is None else argv
    command = f"python3 {parser.prog} {shlex.join(argv)}".strip()
    env = {"python": platform.python_version(), "numpy": np.__version__}
    try:
        make_configs(settings)      # before any file is read
    except ValueError as error:
        parser.error(str(error))
    try:
        decided, data = load(options)
        settings |= decided
        save = write(settings, options)
        arms = train_all(make_configs(settings), data, options)
        record = make_record(settings, arms, command, env)
        print(save(record))
    except (OSError, ValueError, MemoryError) as error:
        parser.exit(1, f"{parser.prog}: {error}\n")
    except KeyboardInterrupt:
        parser.exit(130, f"\n{parser.prog}: interrupted; no record written\n")
    return record


if __name__ == "__main__":
    if find_spec("highway_suite"):
        from highway_suite.cli import run_as_program
        run_as_program()
    else:
        main()
