"""A character-aware LSTM language model by hand: layers, net, gradient.

    a word's characters -> convolutions, the largest over the word -> layers of the
    highway family -> LSTM -> LSTM -> softmax over all words

(Kim, Jernite, Sontag, Rush 2016, arXiv:1508.06615, sections 2 and 3.) The layers in the
middle use `hn.BLOCKS` and `hn.activate`, with relu.

The characters and these layers see one word at a time, without the words around it.
They are therefore computed once for each distinct word of a batch, about 360 of 700.
The same is true of the part of the first LSTM's z that comes from its input. On the way
back, the gradient of a distinct word is the sum over its occurrences.

Legend: B streams of text that are read side by side, S steps of each in a batch, N = S
B words of a batch, D distinct words among them, P places of the longest word, c numbers
of a character, F features of a word = units of the layers in the middle, R rows of such
a layer's weights, M units of an LSTM, V words of the vocabulary.

An activation is (units, words) and lies in memory word after word. The words of one
step, columns t B to (t + 1) B, are therefore one piece of memory, and so are the first
few distinct words. The last column of the weights is the bias; it is multiplied by a
row of ones.

Words are numbered by length, and the longest word is 0. The sorted distinct words of a
batch then come longest first. At each place of the word, those that are long enough to
reach it come first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

import highway_networks as hn

RELU, TANH = hn.ACTIVATIONS["relu"], hn.ACTIVATIONS["tanh"]
PADDING = 0             # the character after the end of a word; its numbers stay 0
SMALL = 20_000          # entries of a matrix that OpenBLAS multiplies without packing
PART = 500              # words of the softmax at a time: they fit a core's cache


def columns(rows: int, count: int, dtype: Any) -> np.ndarray:
    """An array (rows, count) that lies in memory column after column."""
    return np.empty((count, rows), dtype).T


def with_ones(rows: int, count: int, dtype: Any) -> np.ndarray:
    """As `columns`, with a row of ones below, which is multiplied by the biases."""
    array = columns(rows + 1, count, dtype)
    array[rows] = 1
    return array


class Batch(NamedTuple):
    """Words to read and the ones that follow them."""

    words: np.ndarray       # (S, B)
    following: np.ndarray   # (S, B)
    first: bool             # whether nothing was read before
    rng: np.random.Generator | None = None      # what dropout draws from


# --------------------------------------------------------------------------------------
# Layers: buffers for batches of one size, forward and backward. Backward overwrites
# what forward left, fills the gradients, and returns the derivative of its input.


class Characters:
    """Words -> F features each: y = tanh(largest over places of K_k * word + b).

    A kernel of width k looks at a window of k characters, each c numbers of the table
    E. Every word has P places, and padding fills the places after its end with zeros. A
    window of padding alone gives 0; it counts if it fits into the P places. Kernels K_k
    (filters, k c); E (characters, c). If several windows are largest, the first gets
    the gradient.

    The windows are the rows of one matrix, place after place. Each place has a window
    for every word that reaches it.
    """

    def __init__(self, cache: Cache, net: LanguageModel):
        N, dtype = cache.N, cache.net.dtype
        self.tensors, self.grads, self.net = cache.tensors, cache.grads, net
        self.places, self.widest = net.windows.shape[1:]
        c, room = net.numbers, self.places * N
        self.fields = np.empty((room, self.widest * c), dtype)
        self.dfields, self.part = np.empty_like(self.fields), np.empty_like(self.fields)
        self.z = np.empty((room + N, net.features), dtype)      # rows that nobody won
        self.won = np.empty((N, net.features), np.int8)         # place + 1; 0: padding
        self.step, self.larger = np.empty_like(self.won), np.empty(self.won.shape, bool)
        self.kernels = []               # width, W, dW and its features
        start = 0
        for width in net.widths:
            W, dW = (views[f"K_{width}"] for views in (self.tensors, self.grads))
            self.kernels.append((width, W, dW, slice(start, start + len(W))))
            start += len(W)

    def forward(self, words: np.ndarray, y: np.ndarray) -> None:
        """words (D,), longest first -> y (F, D)."""
        places = np.arange(self.places)
        reach = np.count_nonzero(self.net.lengths[words] > places[:, None], axis=1)
        self.starts = np.append(0, np.cumsum(reach))
        C, D = self.starts[-1], len(words)
        place = np.repeat(places, reach)
        self.codes = self.net.windows[words[np.arange(C) - self.starts[place]], place]
        np.take(self.tensors["E"], self.codes, axis=0, mode="clip",
                out=self.fields[:C].reshape(C, self.widest, -1))
        z, y = self.z[:C], y.T
        c = self.fields.shape[1] // self.widest
        for width, W, _, filters in self.kernels:
            np.matmul(self.fields[:C, :width * c], W.T, out=z[:, filters])
            z[self.starts[self.places - width + 1]:, filters] = -np.inf      # no room
            y[:reach[self.places - width], filters] = -np.inf
            y[reach[self.places - width]:, filters] = 0                      # padding
        self.find_largest(reach, y)
        np.add(y, self.tensors["b_K"], out=y)
        TANH.forward(y)
        self.y, self.won_here = y, self.won[:D]

    def find_largest(self, reach: np.ndarray, y: np.ndarray) -> None:
        """Raise y to the largest of its windows, and note in `won` which window it was.
        """
        self.won[:len(y)] = 0
        for place, n in enumerate(reach):
            z = self.z[self.starts[place]:self.starts[place + 1]]
            larger, step, won = self.larger[:n], self.step[:n], self.won[:n]
            np.greater(z, y[:n], out=larger)
            np.maximum(z, y[:n], out=y[:n])
            np.multiply(larger.view(np.int8), np.int8(place + 1), out=step)
            np.maximum(won, step, out=won)

    def backward(self, d: np.ndarray) -> None:
        """dy (F, D), overwritten. Fills the gradients; words have no derivative."""
        C, (D, F) = self.starts[-1], self.y.shape
        TANH.backward(d.T, self.y)                      # y now holds dz
        np.sum(self.y, axis=0, out=self.grads["b_K"])
        dz = self.z[:C]
        dz.fill(0)
        rows = np.append(C, self.starts[:-1])[self.won_here] + np.arange(D)[:, None]
        self.z.ravel()[rows * F + np.arange(F)] = self.y
        fields, dfields = self.fields[:C], self.dfields[:C]
        c = fields.shape[1] // self.widest
        dfields.fill(0)
        for width, W, dW, filters in self.kernels:
            np.matmul(dz[:, filters].T, fields[:, :width * c], out=dW)
            part = self.part.ravel()[:C * width * c].reshape(C, -1)
            np.matmul(dz[:, filters], W, out=part)
            np.add(dfields[:, :width * c], part, out=dfields[:, :width * c])
        E, numbers = self.grads["E"], np.arange(c)
        where = self.codes[:, :, None] * c + numbers
        E[...] = np.bincount(where.ravel(), dfields.ravel(), E.size).reshape(E.shape)
        E[PADDING] = 0


class Family:
    """L layers y = H T + x C of F units, by hn.BLOCKS, with relu; words are columns.

    x (L + 1, F + 1, D): the features are written into x[0], and x[L] is the output.
    held {layer: (R - F, 1)} replaces the gates of a layer by numbers, to measure a
    trained net.
    """

    def __init__(self, cache: Cache, net: LanguageModel):
        N, U, dtype, rows = cache.N, net.features, net.dtype, net.rows
        self.block, self.half = net.block, np.array(0.5, dtype)
        self.W, self.dW = (views.get("layers", ()) for views in (
            cache.tensors, cache.grads))
        self.x = [with_ones(U, N, dtype) for _ in range(net.depth + 1)]
        self.z = [columns(rows, N, dtype) for _ in range(net.depth)]
        self.dH, self.scratch = columns(U, N, dtype), columns(U, N, dtype)
        self.U, self.held = U, dict[int, np.ndarray]()

    def layers(self, D: int) -> list[hn.Layer]:
        """The layers at work on so many words."""
        found, U = [], self.U
        for W, dW, x, y, z in zip(self.W, self.dW, self.x[:-1], self.x[1:], self.z,
                                  strict=True):
            x, z = x[:, :D], z[:, :D]
            rows = tuple(z[i:i + U] for i in range(0, len(z), U))
            found.append(hn.Layer(W, W[:, :U].T, dW, x, x[:U], y[:U, :D], z, rows,
                                  z[U:]))
        return found

    def forward(self, D: int) -> np.ndarray:
        """-> the output with its row of ones, (F + 1, D)."""
        for l, layer in enumerate(self.layers(D)):
            np.matmul(layer.W, layer.x1, out=layer.z)
            hn.activate(layer.z, layer.rows[0], layer.gates, RELU, self.half)
            if l in self.held:
                layer.gates[...] = self.held[l]
            self.block.forward(layer.x, layer.rows, layer.y, self.scratch[:, :D])
        return self.x[-1][:, :D]

    def backward(self, d: np.ndarray) -> np.ndarray:
        """dy (F, D) -> dx, in place."""
        D = d.shape[1]
        dH, scratch = self.dH[:, :D], self.scratch[:, :D]
        for layer in reversed(self.layers(D)):
            self.block.backward(d, layer.x, layer.rows, dH, scratch)
            RELU.backward(dH, layer.rows[0])            # z now holds dz
            np.matmul(layer.z, layer.x1.T, out=layer.dW)
            np.matmul(layer.W_back, layer.z, out=dH)
            np.add(d, dH, out=d)
        return d


class Step(NamedTuple):
    """An LSTM's columns of one step: views into its arrays."""

    z: np.ndarray
    gates: np.ndarray       # i, f and o together
    i: np.ndarray
    f: np.ndarray
    o: np.ndarray
    g: np.ndarray
    c_before: np.ndarray
    c: np.ndarray
    h_before: np.ndarray
    h: np.ndarray
    tanh_c: np.ndarray
    now: slice              # its columns of a (units, N) array


class LSTM:
    """M units with gates i, f, o and the proposal g, no peepholes:

        z = [i; f; o; g] = W x + W_h h_before        c = f c_before + i g
        i, f, o = sigmoid(z)    g = tanh(z)          h = o tanh(c)

    W (4 M, inputs + 1), W_h (4 M, M). The first B columns of h and c are the state
    before the first step. Hochreiter, Schmidhuber 1997; Gers et al. 2000.
    """

    def __init__(self, cache: Cache, name: str):
        B, N, dtype = cache.B, cache.N, cache.net.dtype
        self.W, self.W_h = (cache.tensors[part + name] for part in ("W", "W_h"))
        self.dW, self.dW_h = (cache.grads[part + name] for part in ("W", "W_h"))
        M = self.W_h.shape[1]
        self.B, self.M, self.half = B, M, np.array(0.5, dtype)
        self.h, self.c = columns(M, N + B, dtype), columns(M, N + B, dtype)
        self.z, self.tanh_c = columns(4 * M, N, dtype), columns(M, N, dtype)
        self.u, self.du = columns(4 * M, N, dtype), columns(4 * M, N, dtype)
        self.dh, self.dc, self.scratch = (columns(M, B, dtype) for _ in range(3))
        self.slope = columns(3 * M, B, dtype)
        parts = next(n for n in range(1, 4 * M + 1)
                     if 4 * M % n == 0 and (4 * M // n * M <= SMALL or n == 4 * M))
        self.W_parts = self.W_h.reshape(parts, -1, M)
        self.back = columns(4 * M, B, dtype)            # W_h h_before
        self.back_parts = self.back.T.reshape(B, parts, -1).transpose(1, 2, 0)
        self.steps = [self.views(slice(t, t + B)) for t in range(0, N, B)]

    def views(self, now: slice) -> Step:
        """The arrays of one step; `now` are its columns."""
        M, z = self.M, self.z[:, now]
        after = slice(now.start + self.B, now.stop + self.B)
        i, f, o, g = (z[row:row + M] for row in range(0, 4 * M, M))
        return Step(z, z[:3 * M], i, f, o, g, self.c[:, now], self.c[:, after],
                    self.h[:, now], self.h[:, after], self.tanh_c[:, now], now)

    def begin(self, first: bool) -> None:
        """Go on where the last batch ended, or from zeros."""
        for array in (self.h, self.c):
            array[:, :self.B] = 0 if first else array[:, -self.B:]

    def forward(self, x: np.ndarray, where: np.ndarray | None = None) -> np.ndarray:
        """x (inputs + 1, N) -> h (M, N); or x (inputs + 1, D), of which word n of the
        batch is column where[n]."""
        self.x, self.where = x, where
        if where is None:
            np.matmul(self.W, x, out=self.z)
        else:
            u = self.u[:, :x.shape[1]]
            np.matmul(self.W, x, out=u)
            np.take(u.T, where, axis=0, out=self.z.T, mode="clip")
        half = self.half
        for at in self.steps:
            np.matmul(self.W_parts, at.h_before, out=self.back_parts)
            np.add(at.z, self.back, out=at.z)
            np.multiply(at.gates, half, out=at.gates)   # sigmoid by tanh, as in hn
            np.tanh(at.z, out=at.z)
            np.multiply(at.gates, half, out=at.gates)
            np.add(at.gates, half, out=at.gates)
            np.multiply(at.i, at.g, out=self.scratch)
            np.multiply(at.f, at.c_before, out=at.c)
            np.add(at.c, self.scratch, out=at.c)
            np.tanh(at.c, out=at.tanh_c)
            np.multiply(at.o, at.tanh_c, out=at.h)
        return self.h[:, self.B:]

    def backward(self, d: np.ndarray, dx: np.ndarray) -> None:
        """dh (M, N), overwritten -> dx (inputs, as many as x). The gradient stops at
        the end of the batch."""
        dh, dc, scratch, slope = self.dh, self.dc, self.scratch, self.slope
        dh.fill(0)
        dc.fill(0)
        for at in reversed(self.steps):
            i, f, o, g, tanh_c = at.i, at.f, at.o, at.g, at.tanh_c
            np.add(dh, d[:, at.now], out=dh)
            np.multiply(at.gates, at.gates, out=slope)  # of sigmoids s: s - s^2
            np.subtract(at.gates, slope, out=slope)
            np.multiply(o, dh, out=scratch)             # dtanh_c
            np.multiply(dh, tanh_c, out=o)              # do
            np.multiply(tanh_c, tanh_c, out=tanh_c)
            np.multiply(tanh_c, scratch, out=tanh_c)
            np.subtract(scratch, tanh_c, out=scratch)
            np.add(dc, scratch, out=dc)                 # dc += dtanh_c (1 - tanh_c^2)
            np.multiply(dc, i, out=scratch)             # dg
            np.multiply(dc, g, out=i)                   # di
            np.multiply(g, g, out=g)
            np.multiply(g, scratch, out=g)
            np.subtract(scratch, g, out=g)              # dz_g = dg (1 - g^2)
            np.multiply(dc, f, out=scratch)             # dc of the step before
            np.multiply(dc, at.c_before, out=f)         # df
            np.multiply(at.gates, slope, out=at.gates)  # z now holds dz
            np.copyto(dc, scratch)
            np.matmul(self.W_h.T, at.z, out=dh)
        np.matmul(self.z, self.h[:, :-self.B].T, out=self.dW_h)
        dz = self.z if self.where is None else self.gather(self.where)
        np.matmul(dz, self.x.T, out=self.dW)
        np.matmul(self.W[:, :-1].T, dz, out=dx)

    def gather(self, where: np.ndarray) -> np.ndarray:
        """dz (4 M, N) -> its sum over the occurrences of each word, (4 M, D)."""
        order = np.argsort(where, kind="stable")
        starts = np.flatnonzero(np.diff(where[order], prepend=-1))
        np.take(self.z.T, order, axis=0, out=self.u.T, mode="clip")
        du = self.du[:, :len(starts)]
        np.add.reduceat(self.u.T, starts, axis=0, out=du.T)
        return du


class Dropout:
    """y = x m / (1 - rate), m = 0 at this rate and 1 otherwise; a row of ones below."""

    def __init__(self, cache: Cache, rate: float):
        M, N, dtype = cache.net.units, cache.N, cache.net.dtype
        self.y, self.mask = with_ones(M, N, dtype), columns(M, N, dtype)
        self.draws, self.rate = np.empty((N, M), "float32"), rate

    def forward(self, x: np.ndarray, rng: np.random.Generator | None) -> np.ndarray:
        """x (M, N) -> y (M + 1, N); nothing is dropped without rng."""
        y = self.y[:-1]
        if rng is None:
            self.mask.fill(1)
            np.copyto(y, x)
            return self.y
        rng.random(out=self.draws, dtype="float32")
        np.greater_equal(self.draws.T, self.rate, out=self.mask)
        np.multiply(self.mask, 1 / (1 - self.rate), out=self.mask)
        np.multiply(x, self.mask, out=y)
        return self.y

    def backward(self, d: np.ndarray) -> None:
        """dy (M, N) -> dx, in place."""
        np.multiply(d, self.mask, out=d)


class Softmax:
    """logits = W x, p = softmax(logits), the loss -log p of the word that follows.

    W (V, M + 1). Only e = exp(logits - shift) is computed of p, for one part of the
    vocabulary after the other. The division by the sum is applied to the much smaller x
    and dx:

        dlogits = (p - one-hot) / B = (e - one-hot total) scale, scale = 1 / (total B)
        dW = dlogits x^T = (e - one-hot total) (scale x)^T,    dx likewise

    The shift is the largest logit of each word. It is used only if exp would overflow
    or underflow without it.
    """

    def __init__(self, cache: Cache):
        V, N, dtype = cache.net.words, cache.N, cache.net.dtype
        self.W, self.dW, self.B = cache.tensors["W_out"], cache.grads["W_out"], cache.B
        self.e, self.d = np.empty((V, N), dtype), columns(len(self.W[0]) - 1, N, dtype)
        self.scaled = columns(self.W.shape[1], N, dtype)
        self.part = np.empty_like(self.d)
        self.parts = [slice(i, i + PART) for i in range(0, V, PART)]

    def exponentials(self, x: np.ndarray, shift: np.ndarray | None = None
                     ) -> np.ndarray:
        """e, and its sum over the vocabulary (N,)."""
        total = np.zeros(x.shape[1], x.dtype)
        for part in self.parts:
            e = self.e[part]
            np.matmul(self.W[part], x, out=e)
            if shift is not None:
                np.subtract(e, shift, out=e)
            np.exp(e, out=e)
            total += e.sum(axis=0)
        return total

    def forward(self, x: np.ndarray, following: np.ndarray) -> np.ndarray:
        """x (M + 1, N), following (N,) -> -log p of each, (N,)."""
        self.x, self.following, shift = x, following, 0
        with np.errstate(over="ignore"):
            self.total = self.exponentials(x)
        if not (self.total.real.min() > 1e-30 and self.total.real.max() < 1e30):
            shift = np.max([np.matmul(self.W[part], x).real.max(axis=0)
                            for part in self.parts], axis=0)
            self.total = self.exponentials(x, shift)
        logits = np.einsum("nk,kn->n", self.W[following], x)
        return np.log(self.total) - (logits - shift)

    def backward(self) -> np.ndarray:
        """-> dx (M, N) of the sum over steps of the means over streams."""
        x, e, d = self.x, self.e, self.d
        e[self.following, np.arange(len(self.following))] -= self.total
        scale = 1 / (self.total * self.B)
        np.multiply(x, scale, out=self.scaled)
        d.fill(0)
        for part in self.parts:
            np.matmul(e[part], self.scaled.T, out=self.dW[part])
            np.matmul(self.W[part, :-1].T, e[part], out=self.part)
            np.add(d, self.part, out=d)
        np.multiply(d, scale, out=d)
        return d


# --------------------------------------------------------------------------------------
# Net


class Cache:
    """The arrays of a net for batches of B streams and S steps, allocated once. The
    state of the LSTMs stays here from batch to batch."""

    def __init__(self, net: LanguageModel, streams: int, steps: int):
        self.net, self.B, self.N = net, streams, streams * steps
        self.grad = np.zeros_like(net.params)
        self.tensors, self.grads = net.views(net.params), net.views(self.grad)
        self.characters, self.family = Characters(self, net), Family(self, net)
        self.lstms = [LSTM(self, "_1"), LSTM(self, "_2")]
        self.dropouts = [Dropout(self, net.dropout) for _ in self.lstms]
        self.softmax = Softmax(self)
        self.dx = columns(net.features, self.N, net.dtype)
        self.dh = columns(net.units, self.N, net.dtype)


class LanguageModel:
    """Words, read one after the other -> the word that follows.

    spelling (V, P): the characters of each word as numbers, the longest word first;
    PADDING after its end. block: a name of hn.BLOCKS, for `depth` layers between the
    characters and the LSTMs. Kernels of width k have k times `maps` filters.

    All parameters are drawn uniformly between -scale and scale. gate_bias is added to
    b_T and subtracted from b_C. (Kim et al. add gate_bias in the forward pass. This
    trains alike, because nothing pulls a bias to 0.) params is one flat vector; write
    into it, but never replace it. views(flat) names its parts. Nets of one seed share
    the parameters that both have.
    """

    def __init__(self, spelling: np.ndarray, block: str = "highway", depth: int = 1, *,
                 units: int = 300, numbers: int = 15,
                 widths: Sequence[int] = (1, 2, 3, 4, 5, 6), maps: int = 25,
                 dropout: float = 0.5, gate_bias: float = -2.0, scale: float = 0.05,
                 seed: int = 0, dtype: str = "float32"):
        self.words, self.places = spelling.shape
        self.lengths = np.count_nonzero(spelling, axis=1)
        padded = np.pad(spelling.astype(np.intp), ((0, 0), (0, max(widths) - 1)))
        self.windows = np.lib.stride_tricks.sliding_window_view(padded, max(widths), 1)
        self.block, self.depth, self.dropout = hn.block_of(block, depth), depth, dropout
        self.units, self.numbers, self.widths = units, numbers, tuple(widths)
        self.features, self.dtype = maps * sum(widths), np.dtype(dtype)
        self.rows = self.features * (1 + len(self.block.gates))         # R
        F, M = self.features, units
        self.parameters = hn.Parameters({
            "E": (int(spelling.max()) + 1, numbers),
            **{f"K_{k}": (maps * k, k * numbers) for k in widths}, "b_K": (F,),
            "layers": (depth, self.rows, F + 1),
            "W_1": (4 * M, F + 1), "W_h_1": (4 * M, M),
            "W_2": (4 * M, M + 1), "W_h_2": (4 * M, M),
            "W_out": (self.words, M + 1)})
        self.views = self.parameters.views      # flat -> {name: view}
        self.params = np.zeros(self.parameters.size, self.dtype)
        self._initialize(scale, gate_bias, seed)

    def _initialize(self, scale: float, gate_bias: float, seed: int) -> None:
        """Draw each tensor, and H and each gate, from its own random stream."""
        F, tensors = self.features, self.views(self.params)
        layers = tensors.pop("layers")
        names = ["H", "T", "C", *tensors]
        for k, name in enumerate("H" + self.block.gates):
            tensors[name] = layers[:, k * F:(k + 1) * F]
        streams = hn.streams(seed)["weights"].spawn(len(names))
        for name, stream in zip(names, streams, strict=True):
            if name in tensors:
                tensors[name][...] = np.random.default_rng(stream).uniform(
                    -scale, scale, tensors[name].shape)
        for name, bias in (("T", gate_bias), ("C", -gate_bias)):    # both carry alike
            if name in tensors:
                tensors[name][..., F] += bias
        tensors["E"][PADDING] = 0

    def cache(self, streams: int, steps: int) -> Cache:
        """A Cache for batches of so many streams and steps."""
        return Cache(self, streams, steps)

    def read(self, words: np.ndarray, cache: Cache) -> np.ndarray:
        """Distinct words (D,), sorted -> the input of the first LSTM, with a row of
        ones, (F + 1, D)."""
        cache.characters.forward(words, cache.family.x[0][:-1, :len(words)])
        return cache.family.forward(len(words))

    def forward(self, batch: Batch, cache: Cache) -> np.ndarray:
        """Batch -> -log p of each word that follows, (N,), in the order of `words`
        flattened. The state of the LSTMs goes on from the cache's last batch."""
        distinct, where = np.unique(batch.words, return_inverse=True)
        first, second = cache.lstms
        for lstm in cache.lstms:
            lstm.begin(batch.first)
        h = first.forward(self.read(distinct, cache), where.reshape(-1))
        h = cache.dropouts[0].forward(h, batch.rng)
        h = cache.dropouts[1].forward(second.forward(h), batch.rng)
        return cache.softmax.forward(h, batch.following.reshape(-1))

    def backward(self, cache: Cache) -> np.ndarray:
        """The cache that forward has just filled -> the flat gradient, of the sum over
        steps of the mean loss over streams. The array belongs to the cache."""
        first, second = cache.lstms
        d = cache.softmax.backward()
        cache.dropouts[1].backward(d)
        second.backward(d, cache.dh)
        cache.dropouts[0].backward(cache.dh)
        dx = cache.dx[:, :first.x.shape[1]]
        first.backward(cache.dh, dx)
        cache.characters.backward(cache.family.backward(dx))
        return cache.grad

    def gradient(self, batch: Batch, cache: Cache) -> tuple[dict, np.ndarray]:
        """Batch -> its mean loss per word by name, and the flat gradient."""
        loss = self.forward(batch, cache).sum() / cache.N
        return {"train_loss": loss}, self.backward(cache)
