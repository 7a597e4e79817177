"""Highway networks, trained by hand: "Training Very Deep Networks" in NumPy.

R. K. Srivastava, K. Greff, J. Schmidhuber, NIPS 2015, arXiv:1507.06228. This module is
the whole machine: data, blocks, net, loss, optimisers, training, record, command line.
Read it from top to bottom. It needs only NumPy and four idx files. If highway_suite
lies beside it, it also downloads data, trains several nets at a time and has more
flags.

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

A product of L random matrices grows or shrinks. In blocks of U units, a common default
(that of PyTorch's Linear) draws weights uniformly between -1 / sqrt(U) and 1 / sqrt(U),
so that their variance is 1 / (3 U). Each block then divides the length of the signal by
about sqrt(3), as tanh is nearly linear where its argument is small. On the way back it
divides the length of the gradient by the same factor. Thirty blocks divide both by
10^7. The gradient of a weight is a product of both: the first blocks have a signal but
no gradient, the last ones have a gradient but no signal. At a learning rate of 0.005,
the default of --lr, the net does not learn: the output is the same for all images, and
the loss stays at ln 10, that of guessing. Adam rescales small gradients, so the weights
do move, but at this rate to no use. At a rate of 0.0001 the net learns slowly: 30
blocks read 21 to 23 % of the digits after 12 epochs, and 50 blocks guess.

Glorot's rule (--init glorot; he for relu) triples the variance. The signal then loses a
quarter of its length in the first block and less in each of the next; from the tenth
on, signal and gradient lose on average only some hundredths in each block. So the
paper's plain nets of 10 and 20 layers train very well. But lengths are kept only on
average. A product of many matrices stretches a few directions and flattens all others.
The signals of a thousand images form a cloud, which is long in some directions and thin
in others; its lengths are the singular values of the centred signals. Sort the
directions by length. The means of ten classes span at most nine directions, so we look
safely beyond them, at the eleventh. Before the first block the eleventh is about half
as long as the first. After a hundred blocks of 50 units it is, in five nets, 1,700 to
8,300 times shorter than the first, and hardly anything but the first few directions is
left to tell images apart. An orthogonal matrix (--init orthogonal) keeps the length in
every direction. tanh still shortens the signal, but almost alike in all directions, and
plain nets then learn at a greater depth.

The gate. A highway block has a second layer beside H, the gate T, a number between 0
and 1 for each unit. It learns where to take H and where to leave the input alone:

    H = tanh(W_H x + b_H)         the transform                                (Eq. 1)
    T = sigmoid(W_T x + b_T)      the transform gate; 1 - T is the carry gate
    y = H * T + x * (1 - T)       the block output                             (Eq. 3)

T depends on the image. Where T = 1, this is a plain block. Where T = 0, the block
copies its input: y = x, and the gradient passes unchanged. If all gates of a block are
nearly closed, it nearly copies x, whatever its weights are, and no direction is lost.

Backward. y depends on H, on T and on x itself, so dy goes three ways:

    dH = T * dy      dT = (H - x) * dy      dx = (1 - T) * dy     (Eq. 9, appendix A)

In one unit, for example, x = 0.5, H = -0.3 and T = 0.1 give y = -0.03 + 0.45 = 0.42.
If dy = 1, then dH = 0.1, dT = -0.8 and dx = 0.9. So nine tenths of the gradient pass
on, and H learns slowly. H is smaller than x, so a more open gate makes y smaller. dy =
1 means that a smaller y lowers the loss. So dT is negative, and a step of gradient
descent opens the gate.

From there the gradient goes on through tanh and sigmoid to their arguments, z_H and
z_T. The derivatives are tanh' = 1 - H * H and sigmoid' = T * (1 - T):

    z_H = W_H x + b_H             z_T = W_T x + b_T
    dz_H = dH * (1 - H * H)       dW_H = dz_H x^T      db_H = sum of dz_H over images
    dz_T = dT * T * (1 - T)       dW_T = dz_T x^T      db_T = sum of dz_T over images
    dx += W_H^T dz_H + W_T^T dz_T

W_H, W_T and their biases are stacked, so that a block is one matrix product
[W_H b_H; W_T b_T] [x; 1] forward, and two backward. Here
dz_T = T * (H - x) * (1 - T) * dy, and (1 - T) * dy is there already: it is the direct
part of dx, before the last line adds to it.

The ends. The pixels i of an image become the first x = tanh(W_in i + b_in). The last y
becomes logits = W_out y + b_out and p = softmax(logits). The loss is the mean over the
batch of -log p_label. Its derivative is dlogits = (softmax(logits) - onehot(label)) /
B, and from there the backward pass consists of matrix products. If the gradient of all
weights together is longer than --clip, it is scaled down to that length. Adam or
momentum SGD then changes the weights.

Why b_T starts negative. At first W_T x is small and T is nearly sigmoid(b_T). Each
block then multiplies signal and gradient by about 1 - T. With b_T = -2 this factor is
0.88, and after thirty blocks 0.02 is left. That is little, but it is 300,000 times as
much as in the plain net above. (With Glorot's weights a plain net keeps more length,
but loses directions.) With b_T = -4, 0.58 is left after thirty blocks. Therefore b_T
starts below 0 (section 2.2 of the paper), and lower in deeper nets. With
b_T = logit(1 / L), where logit is the inverse of sigmoid, T is 1 / L, and (1 - 1 / L)^L
is about 1 / e = 0.37 at every depth. So more blocks do not shrink signal and gradient
any further. Nets of 10 and of 10,000 blocks then learn alike with Adam (results/depth).

But b_T must not start too low. H learns only through T, and a gate that is nearly
closed opens late. If the T of a unit rounds to 0 for every image (as the code computes
it, for z_T below about -20), the gradients of all weights of this unit are 0. Its dy
still passes on to x, but its own weights cannot open the gate. After the start,
dT = (H - x) * dy decides which gates open: those of the units where H would lower the
loss more than x does. The other gates close further, and mostly carry their input.

The family. y = H * T + x * C, with C the carry gate, has seven members here, the rows
of BLOCKS. They share the net around them.

    plain              T = 1             C = 0
    highway            T learned         C = 1 - T
    residual           T = 1             C = 1
    scaled_residual    T = 1 / sqrt(L)   C = 1
    t_only             T learned         C = 1
    c_only             T = 1             C learned
    full               T learned         C learned

A residual net has no gate, and each block adds to its signal. In a scaled residual
net, before training, all blocks together add no more in a deep net than in a shallow
one.

One batch on its way:

    idx bytes -> load_dataset      uint8 images (N, P)
    -> scale_pixels                [-1, 1]
    -> Batches                     (P, B)
    -> DeepNet.forward             logits (C, B); H, T and x of every block in a Cache
    -> cross_entropy               the loss and dlogits
    -> DeepNet.backward            one flat gradient
    -> clip_norm -> Adam or SGD    in place on one flat vector of weights

`fit` repeats it, here and for every other net of this repository.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import json
import math
import operator
import os
import platform
import shlex
import stat
import sys
import tempfile
import threading
import time
import warnings
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

if __name__ == "__main__" and find_spec("threadpoolctl") is None:
    # BLAS reads these once, when NumPy loads it; see `blas_threads`.
    for library in ("OMP", "OPENBLAS", "MKL", "BLIS"):
        os.environ[f"{library}_NUM_THREADS"] = "1"
    os.environ["VECLIB_MAXIMUM_THREADS"] = "1"

try:
    import numpy as np
except ImportError:
    if __name__ != "__main__":
        raise
    raise SystemExit("highway_networks.py needs numpy. Install: python3 -m venv .venv "
                     "&& .venv/bin/pip install numpy") from None
try:
    import threadpoolctl
except ImportError:
    threadpoolctl = None

__version__ = "2.0.0"
__all__ = (     # what others may rely on
    "ACTIVATIONS", "Adam", "BLOCKS", "Batches", "Block", "Cache", "Config",
    "DATASETS", "Data", "DataError", "DataFile", "Dataset", "DeepNet", "Diverged",
    "INITS", "MissingData", "OPTIMIZERS", "Parameters", "Progress", "SGD",
    "blas_threads", "block_of", "clip_norm", "cross_entropy", "evaluate", "fit",
    "gate_backward", "idx_set", "initial_bias", "load_dataset", "main", "make_net",
    "make_record", "pieces", "read_content", "read_idx", "scale_pixels", "softmax",
    "streams", "take_subset", "threads_for", "train", "train_arm", "train_epoch",
    "train_step")
HERE: Path = Path(__file__).resolve().parent


def __dir__() -> list[str]:
    return sorted(__all__)


# --------------------------------------------------------------------------------------
# Configuration


INITS = "uniform", "glorot", "he", "orthogonal"


def setting(default: Any, text: str, *, low: float = 1, high: float = 0,
            choices: tuple | None = None, words: tuple = ()) -> Any:
    """A Config field that is also a flag: its default, help text and allowed values,
    which are choices, or numbers and the words that may stand for one."""
    return field(default=default, metadata={
        "help": text, "low": low, "high": high, "choices": choices, "words": words})


@dataclass(frozen=True)
class Config:
    """One net and its training, complete: two equal Configs give the same weights for
    the same data, on one machine with one set of library versions.

    The command line is generated from these fields, and every record holds them all.
    Raises ValueError for a value that is not allowed.
    """

    block: str = "highway"
    seed: int = setting(0, "fixes subset, weights and batches", low=0, high=2**32 - 1)
    depth: int = setting(30, "blocks after the input projection", low=1, high=10_000)
    hidden: int = setting(50, "units of every block", low=1, high=10_000)
    activation: str = setting("tanh", "of H", choices=("tanh", "relu"))
    init: str = setting("uniform", "of weights; uniform is U(+-1/sqrt(fan_in)), a "
                        "third of glorot's variance",
                        choices=INITS)
    gate_bias: float | str = setting(
        -2.0, "initial b_T; a learned carry gate has minus it; auto: logit(1 / depth), "
        "so that the T of all blocks start with a sum of 1", low=-100, high=100,
        words=("auto",))
    epochs: int = setting(12, "passes over the training images", low=1, high=100_000)
    batch: int = setting(128, "images per step", low=1, high=10**7)
    optimizer: str = setting("adam", "or momentum SGD", choices=("adam", "sgd"))
    lr: float = setting(5e-3, "learning rate", low=1e-9, high=1e3)
    lr_decay: float = setting(1.0, "factor on --lr after each epoch", low=1e-6, high=1)
    momentum: float = setting(0.9, "of --optimizer sgd", low=0, high=0.9999)
    clip: float = setting(5.0, "largest gradient norm; 0 is no limit", low=0, high=1e9)
    n_train: int = setting(6000, "training images, drawn by seed", low=1, high=10**7)
    n_test: int = setting(2000, "test images, drawn by seed", low=1, high=10**7)
    dtype: str = setting("float32", "of every array", choices=("float32", "float64"))

    def __post_init__(self):
        if self.block not in tuple(BLOCKS):
            raise ValueError(f"block is {self.block!r}; allowed: {tuple(BLOCKS)}")
        for item in fields(self)[1:]:
            value, allowed = getattr(self, item.name), item.metadata
            if isinstance(value, np.generic):       # NumPy's integers are integers
                value = value.item()
                object.__setattr__(self, item.name, value)
            kinds = (int, float) if isinstance(item.default, float) else (int,)
            low, high, words = allowed["low"], allowed["high"], allowed["words"]
            if value not in (allowed["choices"] or words) and not (
                    type(value) in kinds and low <= value <= high):     # never a bool
                whole = "whole numbers, " if kinds == (int,) else ""
                among = allowed["choices"] or ", ".join((f"{whole}{low} to {high}",
                                                         *words))
                raise ValueError(f"{item.name} is {value!r}; allowed: {among}")


# --------------------------------------------------------------------------------------
# Activations and blocks


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

    sigmoid(z) = 0.5 + 0.5 tanh(z / 2), so one tanh call can serve H and every gate. In
    float32 T is a multiple of 2^-25, and 0 below about z = -20.
    half is 0.5 as an array: NumPy converts a Python number on every call.
    """
    if not gates.size:
        activation.forward(H)
        return
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
    forward(x, rows, y, scratch): x and rows = (H, *gates) -> y, which is never x.
    backward(d, x, rows, dH, scratch): d holds dy, then the direct part of dx, to which
        DeepNet adds the rest; dH is written; each gate's row becomes its dz, by the
        sigmoid's derivative (`gate_backward`).

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
    np.subtract(d, dH, out=d)       # dx = dy - T dy
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


# The only place that knows the mathematics of each kind: which of T and C are learned.
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
    """The row of BLOCKS for nets of so many blocks. Raises ValueError for one that is
    no Block, or has other gates than T and C."""
    row = BLOCKS[kind]
    block = row(depth) if callable(row) else row
    if not isinstance(block, Block) or block.gates not in ("", "T", "C", "TC"):
        raise ValueError(f"BLOCKS[{kind!r}] gives {block!r:.99}, no Block with gates "
                         "'', 'T', 'C' or 'TC'")
    return block


# --------------------------------------------------------------------------------------
# Parameters and DeepNet


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
    and not only on average."""
    *_, fan_out, fan_in = shape
    if init == "orthogonal":                            # Saxe et al. 2014
        wide = fan_in > fan_out
        drawn = rng.normal(size=shape)
        with blas_threads(1):
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
    start with a sum of 1; a single layer has no such b_T and starts half open. Raises
    ValueError for another word."""
    if gate_bias == "auto":
        return 0.0 - math.log(max(depth - 1, 1))        # -log(1) would be -0.0
    return float(gate_bias)


def aligned(shape: tuple, dtype: Any) -> np.ndarray:
    """Zeros that begin at a line of the processor's cache, a multiple of 64 bytes.

    NumPy's own begin at any multiple of 16, so that the widest loads reach over two
    lines: a step takes up to 1.15 times as long.
    """
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
    """All that a forward pass of one net leaves for its backward pass, allocated once.

    It is made by `DeepNet.cache(batch)` and serves every batch of that size. Backward
    overwrites what forward left, so each forward pass serves one backward pass.
    """

    def __init__(self, net: DeepNet, batch: int):
        L, U, R, dtype = net.depth, net.hidden, net.rows, net.dtype
        self.net, self.batch = net, batch
        self.pixels: np.ndarray | None = None           # of a pass not yet taken back
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


COLUMNS = 500           # examples that `DeepNet.predict` takes at a time


class DeepNet:
    """P pixels -> projection -> L blocks of U units -> C logits.  (sections 2, 3.1)

    Weights are one flat vector, `params`, to be written into, never replaced;
    `views(flat)` names the parts of it, or of any other vector laid out alike:

        W_in (U, P), b_in (U, 1), W_H (L, U, U), b_H (L, U), W_out (C, U), b_out (C,)
        and for each gate of the block, here T: W_T (L, U, U), b_T (L, U)

    Nets of equal seed, hidden and init share W_in, W_out, and W_H and W_T as far as
    they have them, whatever their block and depth. gate_bias: see `initial_bias`.
    Raises ValueError for an unknown block, activation or init.
    """

    def __init__(self, block: str = "highway", depth: int = 30, hidden: int = 50, *,
                 inputs: int = 784, classes: int = 10, activation: str = "tanh",
                 init: str = "uniform", gate_bias: float | str = -2.0, seed: int = 0,
                 dtype: Any = "float32"):
        for name, value, table in (("block", block, BLOCKS),
                                   ("activation", activation, ACTIVATIONS),
                                   ("init", init, INITS)):
            if value not in table:
                raise ValueError(f"{name} {value!r}: choose from {', '.join(table)}")
        self.settings: dict[str, Any] = {
            "block": block, "depth": depth, "hidden": hidden, "inputs": inputs,
            "classes": classes, "activation": activation}
        self.block, self.activation = block_of(block, depth), ACTIVATIONS[activation]
        self.depth, self.hidden = depth, hidden
        self.inputs, self.classes = inputs, classes
        self.rows = hidden * (1 + len(self.block.gates))        # R: H and the gates
        self.dtype = np.dtype(dtype)
        self.layout = Parameters(self.shapes(depth, hidden, self.rows, inputs, classes))
        self.tensors = self.layout.views        # as they lie in memory, by these names
        self.params = np.zeros(self.layout.size, self.dtype)
        self._initialize(init, initial_bias(gate_bias, depth), seed)

    @staticmethod
    def shapes(L: int, U: int, R: int, P: int, C: int) -> dict[str, tuple]:
        """Its tensors, as they lie in memory."""
        return {"W_in": (U, P), "b_in": (U, 1), "blocks": (L, R, U + 1),
                "out": (C, U + 1)}

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
        """(P, B) -> logits (C, B) and the cache, filled.

        closed: layers 0..L-1 that copy their input, whatever their block; their gates
        read 0 (lesioning, section 4.2). The logits belong to the cache, which also
        keeps x itself until backward. Raises ValueError for an x or a layer that does
        not fit.
        """
        if x.ndim != 2 or len(x) != self.inputs or x.dtype != self.dtype:
            raise ValueError(f"x is {x.dtype} {x.shape}; the net takes {self.dtype} "
                             f"({self.inputs}, B)")
        closed = frozenset(closed)
        if any(isinstance(l, (bool, np.bool_)) or l not in range(self.depth)
               for l in closed):        # a mask's True is no 1
            raise ValueError(f"closed is {set(closed)}, not layers, each from 0 to "
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

    def _columns(self, x):
        """Rows (N, P) -> columns (P, N) in the net's dtype: the one place where what
        users have is turned into what the machine takes."""
        x = np.asarray(x, self.dtype)
        if x.ndim != 2 or x.shape[1] != self.inputs:
            turned = x.ndim == 2 and len(x) == self.inputs
            raise ValueError(f"(N, {self.inputs}) expected, got {x.shape}"
                             + ": transpose?" * turned)
        if not np.isfinite(x).all():
            raise ValueError("x has a NaN or an infinity")
        return x.T

    def _collect(self, x, closed, shape, pick):
        """pick(logits, cache), (*shape, B), of all rows: (N, *shape). `COLUMNS` rows at
        a time, as the cache of a deep net takes much memory."""
        columns, closed = self._columns(x), frozenset(closed)
        cuts = range(COLUMNS, len(x), COLUMNS)
        out = np.empty((len(x), *shape), self.dtype)
        for part, rows in zip(np.split(columns, cuts, axis=1), np.split(out, cuts),
                              strict=True):
            rows[:] = np.moveaxis(pick(*self.forward(part, closed=closed)), -1, 0)
        return out

    def _logits(self, x, closed):
        return self._collect(x, closed, (self.classes,), lambda logits, cache: logits)

    def predict(self, x: np.ndarray, closed: Collection[int] = ()) -> np.ndarray:
        """x (N, P), any floats or whole numbers -> the most probable class of each row,
        (N,). closed: see `forward`. Raises ValueError for an x that does not fit."""
        return self._logits(x, closed).argmax(axis=1)

    def predict_proba(self, x: np.ndarray, closed: Collection[int] = ()) -> np.ndarray:
        """x (N, P) -> the probability of each class, (N, C): softmax of the logits."""
        return softmax(self._logits(x, closed).T).T

    def gates(self, x: np.ndarray, closed: Collection[int] = ()) -> np.ndarray:
        """x (N, P) -> the transform gates T of every block, (N, L, U): with float32,
        4 N L U bytes. ValueError if the block has none."""
        if "T" not in self.block.gates:
            raise ValueError(f"{self.settings['block']} blocks have no transform gate")
        return self._collect(x, closed, (self.depth, self.hidden),
                             lambda logits, cache: cache.T)

    def block_outputs(self, x: np.ndarray, closed: Collection[int] = ()) -> np.ndarray:
        """x (N, P) -> the projection's output and every block's, (N, L + 1, U): with
        float32, 4 N (L + 1) U bytes."""
        return self._collect(x, closed, (self.depth + 1, self.hidden),
                             lambda logits, cache: cache.x[:, :self.hidden])

    def __repr__(self) -> str:
        """Such as DeepNet(highway, depth=30, hidden=50, 784 -> 10, 192,760 parameters)
        """
        return (f"DeepNet({self.settings['block']}, depth={self.depth}, "
                f"hidden={self.hidden}, {self.inputs} -> {self.classes}, "
                f"{self.params.size:,} parameters)")

    def save(self, file: Any) -> None:
        """Write settings and weights as one .npz, without pickles, to a binary file or,
        whole or not at all, to a path. Raises OSError."""
        if not isinstance(file, (str, Path)):
            np.savez_compressed(file, params=self.params, **self.settings)
            return
        content = io.BytesIO()
        self.save(content)
        write_whole(file, content.getvalue())

    @classmethod
    def load(cls, path: str | Path) -> DeepNet:
        """The net that `save` wrote. Raises OSError for a file that cannot be opened,
        ValueError for one that is something else. Its block must be in BLOCKS, with
        the functions that it was trained with: they are not in the file."""
        names = "block", "depth", "hidden", "inputs", "classes", "activation"
        with open(expanded(path), "rb") as file:
            try:
                if file.read(2) != b"PK":
                    raise ValueError("it is no .npz file")
                file.seek(0)
                with np.load(file) as archive:          # no pickles
                    params = archive["params"]
                    settings = {name: archive[name].item() for name in names}
                block, L, U = (settings[name] for name in names[:3])
                if block in BLOCKS:
                    R = U * (1 + len(block_of(block, L).gates))
                    size = sum(map(math.prod, cls.shapes(
                        L, U, R, settings["inputs"], settings["classes"]).values()))
                    if params.shape != (size,) or not np.isfinite(params).all():
                        raise ValueError(f"{params.shape} weights, not {size}, each a "
                                         "finite number")
                    net = cls(**settings, dtype=params.dtype)
            except Exception as error:      # zipfile, zlib, numpy: each its own kind
                raise ValueError(f"{path} is not a saved DeepNet: {error}") from error
        if block not in BLOCKS:
            raise ValueError(f"{path}: its block is {block!r}, which BLOCKS lacks; run "
                             "the code that adds it first")
        net.params[...] = params
        return net


# --------------------------------------------------------------------------------------
# Loss


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


# --------------------------------------------------------------------------------------
# Optimisers: in place, on flat vectors; `kept` names what a checkpoint must hold


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

# --------------------------------------------------------------------------------------
# Data

NAMED = "--data-dir, data_dir= or $HIGHWAY_DATA_DIR"     # for commands, scripts, both


class DataError(ValueError):
    """Data are missing or wrong: where, what was expected and found, and what to do."""


class MissingData(DataError):
    """No file of the data set is there."""


class DataFile(NamedTuple):
    """One file of a data set: what must be in it, once it is unpacked."""

    name: str       # the official one; unpackers give others
    shape: tuple    # (N, height, width) of images, (N,) of labels
    sha256: str


class Dataset(NamedTuple):
    """A row of the table of data sets; `read` tells how its files are read."""

    title: str          # on pictures
    files: tuple        # of DataFile
    images: tuple       # how many: training, test
    shape: tuple        # of one image: height, width; of colour: 3, height, width
    scale: float        # the largest pixel value
    classes: int
    read: Callable      # (folder, Dataset) -> training images, their labels, test
                        # images, theirs, all checked; raises DataError
    cache: str = ""     # its own folder, in ~/.cache or in another that holds several


@dataclass(frozen=True, repr=False)
class Data:
    """Images and labels: numbers as read, or in [-1, 1] by `scale_pixels`.

    Raises DataError where they do not fit together.
    """

    x_train: np.ndarray     # (N, P)
    y_train: np.ndarray     # (N,) whole numbers, 0 to classes - 1
    x_test: np.ndarray
    y_test: np.ndarray
    classes: int = 10
    scale: float | None = 255   # the largest value of a pixel; None: scaled already

    def __post_init__(self):
        try:        # classes of uint8, as y.max() + 1 may be, would overflow
            object.__setattr__(self, "classes", operator.index(self.classes))
            fits = self.scale is None or 0 < self.scale < math.inf
        except TypeError:
            fits = False
        if not fits:
            raise DataError(f"classes={self.classes!r}, scale={self.scale!r}: one "
                            "is a whole number, the other above 0, or None")
        for part, x, y in (("training", self.x_train, self.y_train),
                           ("test", self.x_test, self.y_test)):
            for array in (x, y):
                if not isinstance(array, np.ndarray) or np.ma.isMA(array):
                    raise DataError(
                        f"{part} data have a {type(array).__name__}: they must be "
                        "NumPy arrays. np.asarray makes them of lists and tables, "
                        ".filled(value) of masked arrays, .toarray() of sparse ones")
            if (x.ndim != 2 or not x.size or y.shape != x.shape[:1]
                    or x.shape[1] != self.x_train.shape[1]):
                P = "P" if part == "training" else self.x_train.shape[1]
                raise DataError(f"{part} images {x.shape} and labels {y.shape}: they "
                                f"must be (N, {P}) and (N,), and not empty")
            if x.dtype.kind not in "uif":
                raise DataError(f"pixels are {x.dtype}: they must be integers or "
                                "floats, as x.astype('float32') makes them")
            if x.dtype.kind == "f" and not np.isfinite(x).all():
                bad = np.isfinite(x).all(axis=1).argmin()
                raise DataError(f"x must be finite, and row {bad} is not: leave it "
                                "out, or use np.nan_to_num(x)")
            if y.dtype.kind not in "iu" or y.min() < 0 or y.max() >= self.classes:
                found = (f"{y.min()} to {y.max()}. Where they start at 1, use y - 1; "
                         "or is `classes` wrong?" if y.dtype.kind in "iu" else
                         f"{y.dtype}, which np.unique(y, return_inverse=True)[1] "
                         "turns into them")
                raise DataError("labels must be whole numbers from 0 to "
                                f"{self.classes - 1}; these are {found}")

    def __repr__(self) -> str:
        return (f"Data(x_train {self.x_train.shape} {self.x_train.dtype}, x_test "
                f"{self.x_test.shape}, {self.classes} classes, scale {self.scale})")


def decode_idx(content: bytes) -> np.ndarray:
    """The bytes of an idx file -> read-only uint8 array. They are 0, 0, 8 for unsigned
    bytes, the number of dimensions, each size in four bytes, then the numbers. Raises
    ValueError where there are not so many, and DataError for another type."""
    if content[2] != 8:
        raise DataError(f"idx of type 0x{content[2]:02x}; only 0x08 is read")
    ndim = content[3]
    shape = np.frombuffer(content, ">u4", ndim, 4)
    return np.frombuffer(content, np.uint8, offset=4 + 4 * ndim).reshape(shape)


def read_content(path: Path, most: int) -> bytes:
    """The bytes of a file of at most so many, unpacked if they are gzip. Raises
    DataError."""
    packed = False
    try:
        with open(path, "rb") as file:
            content = file.read(2 * most + 999)     # a gzip may end in many zeros
        packed = content[:2] == b"\x1f\x8b"
        if packed:
            content = gzip.GzipFile(fileobj=io.BytesIO(content)).read(most + 1)
    except (OSError, EOFError, zlib.error) as error:
        why = getattr(error, "strerror", "") or str(error).rstrip(".")
        raise DataError(f"{path}: {'broken gzip: ' * packed}{why}") from error
    if len(content) > most:
        idx = f"; its idx type is 0x{content[2:3].hex()}, and 0x08 is read"
        raise DataError(f"{path}: more than the {most} bytes expected"
                        f"{idx * (content[:2] == bytes(2))}")
    return content


def listing(folder: Path) -> str:
    """What lies in a folder, in a few words."""
    names = sorted(os.listdir(folder)) if folder.is_dir() else ["no such folder"]
    return f"found there: {', '.join(names[:6]) or 'nothing'}{'...' * (len(names) > 6)}"


def find_idx(folder: Path, file: DataFile) -> np.ndarray:
    """The array of one idx file, in the folder or up to two below it, packed or not,
    with the official letters in its name, as unpackers and other libraries leave them:
    its SHA-256 decides. Raises DataError where another has its very name, else
    MissingData."""
    def letters(name):
        return "".join(filter(str.isalnum, name.lower()))
    known = {other.sha256: f"{other.name} of {row.title}"
             for row in DATASETS.values() for other in row.files}
    faults = {}
    for path in (path for level in ("*", "*/*", "*/*/*")
                 for path in sorted(folder.glob(level))):
        if letters(file.name) not in letters(path.name) or not path.is_file():
            continue
        try:
            content = read_content(path, 64 + math.prod(file.shape))
            found = hashlib.sha256(content).hexdigest()
            if found == file.sha256:
                return decode_idx(content)
            wanted = (known.get(file.sha256, file.sha256) if file.sha256 else
                      "its hash, which its row of DATASETS must state")
            faults[path] = (f"{path}: this is {known.get(found, f'SHA-256 {found}')}, "
                            f"expected {wanted}")
        except DataError as error:
            faults[path] = str(error)
    for name in (file.name, f"{file.name}.gz"):
        if folder / name in faults:
            raise DataError(faults[folder / name])
    raise MissingData("; ".join([f"{folder}: no {file.name}, packed or not, "
                                 f"{listing(folder)}", *faults.values()][:2]))


def read_idx(folder: Path, dataset: Dataset) -> list[np.ndarray]:
    """The idx files of a data set -> their arrays. Raises DataError."""
    return [find_idx(folder, file) for file in dataset.files]


def idx_set(title: str, train: int, test: int, side: int, scale: int, hashes: tuple,
            cache: str) -> Dataset:
    """The row of a set of square images, ten classes, in four idx files of the usual
    names, with the SHA-256 of each."""
    names = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte",
             "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
    shapes = ((train, side, side), (train,), (test, side, side), (test,))
    return Dataset(title, tuple(map(DataFile, names, shapes, hashes)), (train, test),
                   (side, side), scale, 10, read_idx, cache)


DATASETS: dict[str, Dataset] = {    # highway_suite.datasets adds more
    # LeCun, Cortes, Burges; the hashes are those of the files of 1998.
    "mnist": idx_set("MNIST", 60000, 10000, 28, 255, (
        "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"),
        "hinton-mnist"),
}


def expanded(path: str | Path) -> Path:
    """A path as it is meant: ~ is the home folder, also after a = or in a script, where
    no shell sees it. It is asked for every path that a user names."""
    return Path(os.path.expanduser(path))


def check_target(path: Path) -> None:
    """Raise OSError unless a file can be written there: this is asked before the work
    that fills it. Only a regular file is replaced, and no link, whose owner would not
    expect it. A missing folder is taken for one that will be made."""
    path = expanded(path)
    with suppress(FileNotFoundError):
        if not stat.S_ISREG(os.lstat(path).st_mode):
            raise OSError(22, "not a regular file, which alone is replaced", str(path))
    there = next(filter(os.path.lexists, path.parents), path.parent)
    with tempfile.TemporaryFile(dir=there):
        pass


def write_whole(path: str | Path, content: bytes) -> None:
    """Write all of the bytes, or nothing: then the file stays as it was. Raises
    OSError, which names the file."""
    path = expanded(path)
    check_target(path)
    beside = path.with_name(f".{path.name[:40]}.{os.getpid()}-{time.time_ns()}.part")
    try:
        with open(beside, "wb") as file:
            with suppress(OSError):         # a new file has the mode of the umask
                os.chmod(beside, stat.S_IMODE(os.stat(path).st_mode))
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        beside.unlink(missing_ok=True)


def data_folder(dataset: Dataset, data_dir: str | Path | None = None) -> Path:
    """Where a data set lies: in data_dir, $HIGHWAY_DATA_DIR or ~/.cache, the first that
    is named; there in a folder of its own, if there is one. Raises DataError."""
    named = data_dir or os.environ.get("HIGHWAY_DATA_DIR")
    folder = expanded(named or "~/.cache")
    if str(folder).startswith("~") or not str(folder).isprintable():
        raise DataError(f"{str(folder)!a}: there is no such home, or it is no name")
    own = folder / dataset.cache
    return own if os.path.isdir(own) or not named else folder


def load_dataset(name: str, data_dir: str | Path | None = None) -> Data:
    """A row of DATASETS -> Data as it lies in the files. Raises DataError; MissingData
    where nothing of it is there.

    Every file is checked on every read, down to the SHA-256 of its content. The arrays
    are read-only. `highway_suite.load` knows more sets and fetches what is missing.
    """
    if name not in DATASETS:
        raise DataError(f"no data set {name!r}, only {', '.join(DATASETS)}")
    dataset = DATASETS[name]
    try:
        arrays = dataset.read(data_folder(dataset, data_dir), dataset)
    except (DataError, OSError) as error:       # a folder that one may not look into
        kind = type(error) if isinstance(error, DataError) else MissingData
        raise kind(f"{error}. Put the files of {dataset.title} there, or name "
                   f"another folder with {NAMED}") from error
    x_train, y_train, x_test, y_test = arrays = [
        array[:] if array.ndim == 1 else array.reshape(len(array), -1)
        for array in arrays]
    for array in arrays:
        array.flags.writeable = False
    there = (len(x_train), len(x_test)), x_train.shape[1]
    if there != (told := (tuple(dataset.images), math.prod(dataset.shape))):
        raise DataError(f"images and pixels of {name!r} are {there}; its row of "
                        f"DATASETS says {told}")
    return Data(x_train, y_train, x_test, y_test, dataset.classes, dataset.scale)


def streams(seed: int) -> dict[str, np.random.SeedSequence]:
    """seed -> the independent random streams of one run, by name (SeedSequence)."""
    names = ("subset", "weights", "batches")
    return dict(zip(names, np.random.SeedSequence(seed).spawn(len(names)), strict=True))


def take_subset(data: Data, config: Config) -> Data:
    """n_train training and n_test test images, drawn by the seed for both arms alike,
    so that a mean over seeds estimates the accuracy on the whole test set."""
    rng = np.random.default_rng(streams(config.seed)["subset"])
    train = rng.permutation(len(data.x_train))[:config.n_train]
    test = rng.permutation(len(data.x_test))[:config.n_test]
    return replace(data, x_train=data.x_train[train], y_train=data.y_train[train],
                   x_test=data.x_test[test], y_test=data.y_test[test])


def scale_pixels(data: Data, dtype: str = "float32") -> Data:
    """Data with pixels from 0 to data.scale -> in [-1, 1], and labels as indices; its
    scale is None.

    Raises DataError for pixels out of that range, or scaled before. Warns where none is
    above 1 and the scale is: floats from 0 to 1 have scale=1.
    """
    if data.scale is None:
        raise DataError("these pixels are scaled already, and that is done once")
    low = min(data.x_train.min(), data.x_test.min())
    high = max(data.x_train.max(), data.x_test.max())
    if low < 0 or high > data.scale:
        raise DataError(f"pixels go from {low:g} to {high:g}: to be scaled they must "
                        f"lie between 0 and the largest possible, {data.scale=:g}")
    for top in data.x_train.max(), data.x_test.max():
        if 0 < top <= 1 < data.scale:
            warnings.warn(f"no pixel is above {top:g}, and scale={data.scale:g}: for "
                          "pixels from 0 to 1 set scale=1", stacklevel=2)
            break

    def scaled(x, factor=2 / data.scale):
        x = x.astype(dtype)
        x *= factor
        x -= 1
        return x
    return replace(data, x_train=scaled(data.x_train), x_test=scaled(data.x_test),
                   y_train=data.y_train.astype(np.intp),
                   y_test=data.y_test.astype(np.intp), scale=None)


# --------------------------------------------------------------------------------------
# Threads of BLAS: one number for the whole process

WIDE = 200          # units of a block from which one training gains by more threads
SETTING = threading.Lock()      # for the moment in which the number is set or restored
HELD: list[tuple] = []          # for each body that runs: the limit and its number
if hasattr(os, "register_at_fork"):     # a child has none of the threads of its parent
    os.register_at_fork(before=SETTING.acquire, after_in_parent=SETTING.release,
                        after_in_child=SETTING.release)
    os.register_at_fork(after_in_child=HELD.clear)


def threads_in_use() -> int | None:
    """The threads that BLAS uses now. None where only threadpoolctl would know."""
    if threadpoolctl is None:
        told = os.environ.get("OPENBLAS_NUM_THREADS", "")
        return int(told) if told.isdecimal() else None
    return max((library["num_threads"] for library in threadpoolctl.threadpool_info()
                if library["user_api"] == "blas"), default=1)


@contextmanager
def blas_threads(threads: int | None) -> Iterator[int | None]:
    """BLAS uses so many threads while the body runs, with None as many as before;
    yields the number. It is one for the whole process: while a body runs, here or in
    another thread, its number holds in every other body, too. The last one that ends
    restores what was before.

    Without threadpoolctl nothing is limited. Run as the program this module has set the
    number to 1 before. A script of your own should, too, by $OPENBLAS_NUM_THREADS,
    before it imports NumPy: on all cores the products of narrow nets take no less time,
    and the last bits may differ.
    """
    if threadpoolctl is None:
        yield threads_in_use()
        return
    with SETTING:
        if HELD:
            limit, number = HELD[0]
        else:
            free_blas()
            limit = threadpoolctl.threadpool_limits(threads, "blas")
            number = threads_in_use()
        HELD.append((limit, number))
    try:
        yield number
    finally:
        with SETTING:
            del HELD[-1:]       # in a forked child there is none
            if not HELD:
                free_blas()
                limit.restore_original_limits()
                free_blas()


def free_blas() -> None:
    """threadpoolctl lets only the thread that set the number last set it again: from
    now on any thread may."""
    assert threadpoolctl is not None
    with suppress(AttributeError):      # earlier versions do not know it
        threadpoolctl.OpenBLASController.clear_controlling_thread(force=True)


def threads_for(hidden: int, asked: int | None = None) -> int | None:
    """The rule: the threads asked for; else one for a narrow net, and for a wide one,
    trained alone, all that BLAS uses by default, which is None. Two cores were 1.0 to
    1.1 times as fast as one at 50 units, 1.2 to 1.7 at 200, 1.4 to 1.9 at 1000. Raises
    ValueError below one."""
    if asked is not None and not (isinstance(asked, (int, np.integer)) and asked >= 1):
        raise ValueError(f"threads is {asked!r}; allowed: 1 and more, or None")
    return int(asked) if asked else None if hidden >= WIDE else 1


# --------------------------------------------------------------------------------------
# Training


def significant(value: float) -> float:
    """Six significant digits: what a record keeps of a measured number."""
    return float(f"{value:.6g}")


class Progress:
    """What a training shows on stderr: a bar, where tqdm is installed and somebody
    looks on, else a line after each epoch, and one every ten seconds within it."""

    def __init__(self, config: Config):
        self.config, self.told, self.bar = config, time.monotonic(), None
        self.label = f"{config.block:>7} {config.depth} seed {config.seed}"
        if sys.stderr.isatty() or "ipykernel" in sys.modules:
            with suppress(ImportError):
                import tqdm
                self.bar = tqdm.tqdm(total=config.epochs, ncols=88, bar_format=(
                    self.label + "  {bar}| {n:.1f} of {total} epochs, {remaining} left"
                    "{postfix}"))

    def watch(self, batches: Batches) -> Iterator[tuple]:
        """The batches of an epoch, each counted when it has been learned from."""
        for i, batch in enumerate(batches, 1):
            yield batch
            if self.bar is not None:
                self.bar.update(1 / len(batches))
            elif time.monotonic() > self.told + 10:
                self.say(f"{i / len(batches):.0%} of an epoch")

    def say(self, text: str) -> None:
        """Write a line."""
        self.told = time.monotonic()
        print(f"{self.label}  {text}", file=sys.stderr, flush=True)

    def report(self, row: dict) -> None:
        """Called after each epoch."""
        epoch, last = row["epoch"], self.config.epochs
        names = [name for name in ("train_loss", "test_acc", "validation_acc",
                                   "train_acc") if name in row][:2]
        told = "  ".join(f"{name.replace('_', ' ').replace('acc', 'accuracy')} "
                         f"{row[name]:.4f}" for name in names)
        if self.bar is None:
            self.say(f"epoch {epoch:{len(str(last))}}/{last}  {told}")
            return
        self.bar.set_postfix_str(told.removeprefix("train "), refresh=False)
        self.bar.update(epoch - self.bar.n)
        if epoch == last:
            self.bar.close()


class Diverged(ArithmeticError):
    """The loss, a weight or the norm of the gradient is no longer finite."""


class Batches:
    """Shuffled batches of `size` images x (N, P) and their labels; each pass over them
    is an epoch, drawn from rng. The N mod size last images sit out. Each batch, x (P,
    size) and labels (size,), overwrites the one before."""

    def __init__(self, x: np.ndarray, labels: np.ndarray, size: int,
                 rng: np.random.Generator):
        self.x = np.ascontiguousarray(x)    # of other arrays np.take copies all of it
        self.labels, self.size = labels, size
        self.streams = {"batches": rng}
        self.chosen = np.empty((size, x.shape[1]), x.dtype)

    def __len__(self) -> int:
        return len(self.x) // self.size

    def __iter__(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        order = self.streams["batches"].permutation(len(self.x))
        for start in range(0, len(order) - self.size + 1, self.size):
            rows = order[start:start + self.size]
            np.take(self.x, rows, axis=0, out=self.chosen, mode="clip")   # no buffer
            yield self.chosen.T, self.labels[rows]


def train_step(net: Any, batch: Any, cache: Any, optimizer: Any, lr: float,
               clip: float) -> dict[str, float]:
    """One update -> what the net measured on the batch, and the gradient's norm, before
    it. Raises Diverged and leaves the weights alone if one is not finite."""
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
        checkpoint: Any = None, threads: int | None = 1, progress: Any = None
        ) -> tuple[list[dict], str]:
    """The training loop of every net here -> history and status.

    net: has `params`, a flat vector that is written in place, cache(size), and
        gradient(batch, cache) -> measures {name: number} and the flat gradient.
    batches: an epoch per iteration, of `size`; `streams`, {name: Generator}, draw all.
    optimizer: step(params, grad, lr); the arrays named by `kept` are its state.
    schedule(epoch, history) -> the learning rate of an epoch; they count from 1.
    measure(net, cache) -> {name: JSON} after each epoch, if untrained before all too.
    checkpoint: load(arrays, streams) -> the history kept, or [], with arrays and
        streams set to where it ends; save(arrays, streams, history), after each epoch.
    threads: of BLAS. progress: a `Progress`, for batches that have a length.

    history has a row {"epoch": ..., ...} for each epoch; report(row) may return true to
    end the training. A run that stops being finite ends with status "diverged", else
    "ok". Killed and resumed it gives the same bits, unless it is report that ends it.
    """
    cache = net.cache(batches.size) if cache is None else cache
    arrays = {"params": net.params} | {
        name: getattr(optimizer, name) for name in optimizer.kept}
    reports = [tell for tell in (getattr(progress, "report", None), report) if tell]
    with blas_threads(threads), np.errstate(all="ignore"):
        history = checkpoint.load(arrays, batches.streams) if checkpoint else []
        done = history[-1]["epoch"] if history else -1 if untrained else 0
        for epoch in range(done + 1, epochs + 1):
            row: dict[str, Any] = {"epoch": epoch}
            try:
                if epoch:
                    seen = progress.watch(batches) if progress else batches
                    row |= train_epoch(net, seen, cache, optimizer,
                                       schedule(epoch, history), clip)
                if measure:
                    row |= measure(net, cache)
            except Diverged:
                return history, "diverged"
            history.append(row)
            if checkpoint:
                checkpoint.save(arrays, batches.streams, history)
            if epoch and any([tell(row) for tell in reports]):  # noqa: C419 (all of them)
                break
    return history, "ok"


def pieces(count: int, size: int) -> Iterator[tuple[slice, int]]:
    """Slices of one size that cover so many images, and how many of each are repeated:
    the last one reaches back. Raises ValueError for fewer images than one takes."""
    if count < size:
        raise ValueError(f"{count} images, fewer than a piece of {size}")
    for start in range(0, count, size):
        back = max(start + size - count, 0)
        yield slice(start - back, start - back + size), back


def evaluate(net: DeepNet, x: np.ndarray, labels: np.ndarray, cache: Cache
             ) -> tuple[float, np.ndarray]:
    """x (N, P) -> accuracy, and the mean T of each layer (L,), empty without gates.

    Raises Diverged if a logit is not finite, ValueError if labels are not (N,).
    """
    if np.shape(labels) != (len(x),):
        raise ValueError(f"labels are {np.shape(labels)}, not {(len(x),)}")
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
    return DeepNet(**{name: getattr(config, name) for name in names},
                   inputs=data.x_train.shape[1], classes=data.classes)


def check_fit(net: DeepNet, data: Data, config: Config) -> None:
    """Raise ValueError where the sizes, the block or the activation of a net are not
    those of this Config or of these Data, or a batch takes more images than there are.
    Warns where x_train is far from scaled."""
    of_data = {"inputs": data.x_train.shape[1], "classes": data.classes}
    for name, made in (net.settings | {"dtype": net.dtype.name}).items():
        if made != (told := of_data.get(name, getattr(config, name, made))):
            whose = "Data" if name in of_data else "Config"
            raise ValueError(f"{name} of the net is {made!r}, of the {whose} {told!r}")
    if data.scale is not None and any(
            x.dtype.kind in "iu" or x.min() >= 0 and x.max() > max(1, data.scale / 4)
            for x in (data.x_train, data.x_test)):
        raise ValueError("the pixels are not scaled: train takes hn.scale_pixels(data)")
    if (spread := float(data.x_train[:1000].std(dtype=np.float64))) > 10:
        warnings.warn(f"the spread of x_train is {spread:.3g}; nets learn well where "
                      "it is about 1, so scale the columns", stacklevel=3)
    if config.batch > len(data.x_train):
        raise ValueError(f"batch is {config.batch}, but there are "
                         f"{len(data.x_train)} training images")


def as_checkpoint(file: Any, config: Config, data: Data) -> Any:
    """The checkpoint of a training by its path, which needs highway_suite, or the one
    given, or None. Raises ValueError for one of other settings."""
    if isinstance(file, (str, Path)):
        if find_spec("highway_suite") is None:
            raise ValueError("a checkpoint file needs highway_suite beside "
                             "highway_networks.py")
        from highway_suite.checkpoints import of_training
        return of_training(file, config, data)
    kept = getattr(file, "config", {})
    for name, value in vars(config).items():
        if name != "epochs" and kept.get(name, value) != value:
            raise ValueError(f"the checkpoint is for {name} {kept[name]!r}, and the "
                             f"Config has {value!r}")
    return file


def train(net: DeepNet, data: Data, config: Config, report: Callable | None = None,
          checkpoint: Any = None, *, threads: int | None = None, progress: Any = None
          ) -> tuple[dict[str, list], np.ndarray, str]:
    """Train on all of scaled Data -> (history, layer_T, status), by `fit`. n_train and
    n_test of the Config are for `take_subset`. A second call goes on from the weights
    that the net has, with a new optimiser.

    threads: of BLAS; None is the rule of `threads_for`. Equal threads give equal bits.
    progress: True, or a `Progress`, shows the training on stderr.

    history: a list for each name, with an item for each epoch. `train_loss`,
    `train_acc` and `grad_norm` are means over the epoch's steps, each taken before its
    update; `test_acc` is taken after the epoch. layer_T (epochs + 1, L): row e is the
    mean T of each block on the test images after epoch e; L is 0 for a block without T.
    From the epoch on in which a run diverged, history has None and layer_T NaN. Raises
    ValueError: see `check_fit`.

    checkpoint: a file, with which an interrupted training goes on; see `as_checkpoint`.
    What a report remembers is not kept in it.
    """
    check_fit(net, data, config)
    x_train, x_test = (np.asarray(x, net.dtype) for x in (data.x_train, data.x_test))

    def test(net, cache):
        accuracy, mean_T = evaluate(net, x_test, data.y_test, cache)
        return {"test_acc": significant(accuracy),
                "layer_T": [significant(T) for T in mean_T]}
    rng = np.random.default_rng(streams(config.seed)["batches"])
    rows, status = fit(
        net, Batches(x_train, data.y_train, config.batch, rng),
        OPTIMIZERS[config.optimizer](net.params, config),
        lambda epoch, history: config.lr * config.lr_decay ** (epoch - 1), report,
        epochs=config.epochs, clip=config.clip, measure=test, untrained=True,
        checkpoint=as_checkpoint(checkpoint, config, data),
        threads=threads_for(net.hidden, threads),
        progress=Progress(config) if progress is True else progress)
    last = config.epochs if status == "diverged" else rows[-1]["epoch"]
    layer_T = np.full((last + 1, net.depth if "T" in net.block.gates else 0), math.nan)
    for row in rows:
        layer_T[row["epoch"]] = row["layer_T"]
    missing = [None] * (last + 1 - max(len(rows), 1))
    history = {"epoch": list(range(1, last + 1))} | {
        name: [row[name] for row in rows[1:]] + missing
        for name in ("train_loss", "train_acc", "grad_norm", "test_acc")}
    return history, layer_T, status


# --------------------------------------------------------------------------------------
# Record: what a run keeps as JSON

SCHEMA: str = "highway-networks/run"
SCHEMA_VERSION: int = 1


def environment(threads: int | None) -> dict:
    """What may change the last bits or the speed of a run; no user, host or path.
    `highway_suite.records.environment` knows more."""
    return {"python": platform.python_version(), "numpy": np.__version__,
            "platform": f"{platform.system()} {platform.machine()}",
            "blas_threads": threads}


def train_arm(config: Config, data: Data, progress: Any = None,
              checkpoint: Any = None) -> dict:
    """Configuration and unscaled subset -> one arm of the record."""
    start = time.perf_counter()
    net = make_net(config, data)
    history, layer_T, status = train(net, scale_pixels(data, config.dtype), config,
                                     checkpoint=checkpoint, progress=progress)
    seconds = (time.perf_counter() - start
               + getattr(checkpoint, "seconds_before", 0.0))
    own = {}
    if isinstance(config.gate_bias, str):       # else it is that of the record's config
        own["gate_bias"] = initial_bias(config.gate_bias, config.depth)
    if len(getattr(checkpoint, "environments", ())) > 1:
        own["environments"] = checkpoint.environments
    return {
        "label": f"{config.block} {config.depth}", "block": config.block,
        "depth": config.depth, "hidden": config.hidden, "epochs": config.epochs,
        "batch_size": config.batch, "lr": config.lr, "seed": config.seed,
        "parameters": net.params.size, "status": status,
        # What the best constant answer would get.
        "chance": significant(np.bincount(data.y_test).max() / len(data.y_test)),
        "history": history,
        **{"final_" + name: history[name][-1]
           for name in ("train_acc", "test_acc", "train_loss")},
        "wallclock_sec": round(seconds, 3),
        "layer_T_history": [[epoch, row.tolist()] for epoch, row in enumerate(layer_T)
                            if row.size and np.isfinite(row).all()],
        "final_T_per_layer": layer_T[-1].tolist() if status == "ok" else [],
        **own,
    }


def summarize(arms: list[dict]) -> list[dict]:
    """Mean and standard deviation (n - 1) over the seeds, per depth and block."""
    groups: dict[tuple, list] = {}
    for arm in arms:
        groups.setdefault((arm["depth"], arm["block"]), []).append(arm)
    rows = []
    for (depth, block), group in groups.items():
        row = {"depth": depth, "block": block, "n": len(group),
               "diverged": sum(arm["status"] != "ok" for arm in group)}
        for name in ("test_acc", "train_loss"):
            values = [arm["final_" + name] for arm in group if arm["status"] == "ok"]
            row[name + "_mean"] = significant(np.mean(values)) if values else None
            row[name + "_std"] = (significant(np.std(values, ddof=1))
                                  if len(values) > 1 else None)
        rows.append(row)
    return rows


def make_record(settings: dict, arms: list[dict], command: str, env: dict) -> dict:
    """Settings of the command line and its arms -> the record of the run. Of depths
    that have each their own b_T it names the deepest one's; every arm names its own."""
    settings = settings | {"gate_bias": initial_bias(settings["gate_bias"],
                                                     max(settings["depths"]))}
    pairs: dict[tuple, dict] = {}
    for arm in arms:
        pairs.setdefault((arm["depth"], arm["seed"]), {})[arm["block"]] = arm
    runs = [{"depth": depth, "seed": seed, **pair, "wallclock_sec":
             round(sum(arm["wallclock_sec"] for arm in pair.values()), 3)}
            for (depth, seed), pair in pairs.items()]
    return {"schema": SCHEMA, "schema_version": SCHEMA_VERSION, "command": command,
            "dataset": settings["dataset"],
            "seed": settings["seeds"][0], "seeds": settings["seeds"],
            "hidden": settings["hidden"], "depth": max(settings["depths"]),
            "epochs": settings["epochs"], "batch_size": settings["batch"],
            "lr": settings["lr"], "n_train": settings["n_train"],
            "n_test": settings["n_test"], "config": settings,
            "env": env, "summary": summarize(arms), "runs": runs}


def to_json(value: Any, indent: str = "") -> str:
    """JSON with every array of numbers on one line, so that a diff can be read.

    Raises ValueError for NaN and the infinities, which JSON does not have.
    """
    deeper = indent + " "
    if isinstance(value, dict) and value:
        inner = [f"{json.dumps(str(key))}: {to_json(item, deeper)}"
                 for key, item in value.items()]
    elif isinstance(value, list) and value and isinstance(value[0], (dict, list)):
        inner = [to_json(item, deeper) if isinstance(item, dict)
                 else json.dumps(item, allow_nan=False) for item in value]
    else:
        return json.dumps(value, allow_nan=False)
    left, right = "{}" if isinstance(value, dict) else "[]"
    return f"{left}\n{deeper}" + f",\n{deeper}".join(inner) + f"\n{indent}{right}"


# --------------------------------------------------------------------------------------
# Command line; highway_suite.cli is the whole one

QUICK = {"depth": 10, "epochs": 5, "n_train": 2000, "n_test": 1000}


def several(parse: Callable) -> Callable:
    """An argparse type: values separated by commas, each once."""
    def comma_separated(text):
        found = [parse(part) for part in text.split(",")]
        if len(set(found)) < len(found):
            raise argparse.ArgumentTypeError(f"{text!r} names a value twice")
        return found
    return comma_separated


def path_of(text: str) -> Path:
    """An argparse type: a path that a record can name and a terminal show."""
    if not text or not text.isprintable():
        raise argparse.ArgumentTypeError(f"{text!a} is not the name of a file")
    return expanded(text)


def add_settings(parser: argparse.ArgumentParser) -> None:
    """One flag for each setting of Config, which checks the values; two for those that
    may have several."""
    for item in fields(Config)[1:]:
        flag, meta = "--" + item.name.replace("_", "-"), item.metadata
        number: Any = type(item.default)
        if meta["words"]:
            def number(text, words=meta["words"]):
                return text if text in words else float(text)
        where: Any = parser
        if item.name in ("seed", "depth"):
            where = parser.add_mutually_exclusive_group()
            where.add_argument(flag + "s", type=several(number), metavar="A,B,...",
                               help=f"several values of {flag}")
        where.add_argument(flag, type=number, choices=meta["choices"],
                           metavar=None if meta["choices"] else "|".join((
                               "N", *meta["words"])),
                           help=f"{meta['help']} (default: {item.default})")


def build_parser(program: str = "highway_networks.py") -> argparse.ArgumentParser:
    """The command line; what is no setting of the run has a default."""
    parser = argparse.ArgumentParser(
        prog=program, allow_abbrev=False, argument_default=argparse.SUPPRESS,
        description="Train nets of different blocks, in NumPy: a highway net and a "
                    "plain net, unless told otherwise.",
        epilog="Only the headline (all defaults, on MNIST) writes run.json unasked. A "
               "negative number with an exponent needs a =, as in --gate-bias=-1e-1.")
    add_settings(parser)
    parser.add_argument("--blocks", type=several(str), metavar="A,B,...",
                        help=f"kinds of nets, of {', '.join(BLOCKS)} (default: "
                             "highway,plain)")
    parser.add_argument("--plain-hidden", type=int, metavar="N",
                        help="units of the plain net (default: --hidden); 71 matches "
                             "the parameters of 50 highway units, as in the paper")
    parser.add_argument("--quick", action="store_true", default=False, help="; ".join(
        f"--{name.replace('_', '-')} {value}" for name, value in QUICK.items())
        + ", each unless given")
    parser.add_argument("--data-dir", metavar="FOLDER", default=None, type=path_of,
                        help="of the data set's files (default: "
                             "$HIGHWAY_DATA_DIR, or one of its own in ~/.cache)")
    parser.add_argument("--out", metavar="FILE", default=None, type=path_of,
                        help="the record; a file of that name is replaced")
    return parser


def resolve(given: dict, quick: bool = False) -> dict:
    """Defaults, preset, flags given, the last one wins -> the settings of the run."""
    values = {"dataset": "mnist"} | {
        item.name: item.default for item in fields(Config)[1:]}
    values |= (QUICK if quick else {}) | given
    values.setdefault("plain_hidden", values["hidden"])
    return {"seeds": [values.pop("seed")], "depths": [values.pop("depth")],
            "blocks": ["highway", "plain"]} | values


def cap_images(settings: dict) -> dict:
    """The settings with no more images than the data set has."""
    n_train, n_test = DATASETS[settings["dataset"]].images
    return settings | {"n_train": min(settings["n_train"], n_train),
                       "n_test": min(settings["n_test"], n_test)}


def make_configs(settings: dict) -> list[Config]:
    """One Config for each seed, depth and block of the run, in the record's order.
    Raises ValueError for a setting that is not allowed."""
    shared = {name: settings[name] for name in settings
              if name not in ("dataset", "seeds", "depths", "blocks", "plain_hidden")}
    common = Config(**shared)
    return [replace(common, block=block, depth=depth, seed=seed, hidden=settings[
                "plain_hidden" if block == "plain" else "hidden"])
            for depth in settings["depths"] for seed in settings["seeds"]
            for block in settings["blocks"]]


def table_of(arms: list[dict]) -> str:
    """The small table at the end."""
    lines = [" net, blocks   seed  parameters  test acc  train loss  seconds"]
    for arm in arms:
        shown = "diverged           -"
        if arm["status"] == "ok":
            shown = f"{arm['final_test_acc']:8.4f}  {arm['final_train_loss']:10.4f}"
        lines.append(f"{arm['label']:>12}  {arm['seed']:>5}  {arm['parameters']:>10,}  "
                     f"{shown}  {arm['wallclock_sec']:7.2f}")
    for row in summarize(arms):
        if row["test_acc_std"] is not None:
            lines.append(f"{row['block']} {row['depth']}: test accuracy "
                         f"{row['test_acc_mean']:.4f} +- {row['test_acc_std']:.4f} "
                         f"over {row['n'] - row['diverged']} seeds")
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> dict:
    """The command line without highway_suite: MNIST from its files, one net after the
    other -> the record, in run.json for the headline, else in last_run.json."""
    parser = build_parser()
    given = vars(parser.parse_args(argv))
    quick, data_dir, out = (given.pop(name) for name in ("quick", "data_dir", "out"))
    settings = cap_images(resolve(given, quick))
    out = out or Path("run.json" if settings == resolve({}) else "last_run.json")
    try:
        out.parent.resolve(strict=True)
        check_target(out)       # before any training begins
    except OSError as error:
        parser.error(f"argument --out: {error}")
    try:
        configs = make_configs(settings)
    except ValueError as error:
        parser.error(str(error))
    words = ["python3", parser.prog, *(sys.argv[1:] if argv is None else argv)]
    try:
        data = load_dataset("mnist", data_dir)
        with blas_threads(threads_for(max(config.hidden for config in configs))
                          ) as threads:
            arms = [train_arm(config, take_subset(data, config), True)
                    for config in configs]
        record = make_record(settings, arms, shlex.join(words), environment(threads))
        try:
            write_whole(out, f"{to_json(record)}\n".encode())
        finally:        # a full disk loses no numbers, a closed pipe no record
            print(table_of(arms), flush=True)
    except (OSError, ValueError, MemoryError) as error:
        parser.exit(1, f"{parser.prog}: {error}\n")
    except KeyboardInterrupt:
        parser.exit(130, f"\n{parser.prog}: interrupted; no record written\n")
    print(f"wrote {out}")
    return record


if __name__ == "__main__":
    if find_spec("highway_suite"):
        from highway_suite.cli import run_as_program
        run_as_program()
    else:
        main()
