"""What NumPy reads and writes, call by call: the trace that costs.py prices.

`Traced` arrays note each NumPy call on a `Tape`, which numbers the memory cells, so
that the trace is that of the machine's own code. A call on whole arrays is a loop over
the elements of its output, in memory's order. A matrix product is the loop i, j, k, row
by row and column by column, with s = a b and then s = s + a b: four reads for each
multiplication and addition. A sum along an axis adds to its own result in the same way.
Constants and numbers that are no array are free; a label counts as any number.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided

import highway_networks as hn

SUM, TERM = 0, 1        # cells of s and a b; those of arrays follow


class Each(NamedTuple):
    """For every element: read one cell of each operand, write one cell."""

    out: np.ndarray         # (n,)
    operands: tuple         # of (n,)


class Product(NamedTuple):
    """out = a @ b, by the loop i, j, k."""

    out: np.ndarray         # (I, J)
    a: np.ndarray           # (I, K)
    b: np.ndarray           # (K, J)

    @property
    def sizes(self) -> tuple[int, int, int]:
        """I, J, K."""
        return (*self.out.shape, len(self.b))


class Tape:
    """The steps of a computation on numbered cells."""

    def __init__(self):
        self.steps, self.cells = [], 2
        self.begin, self.kept = [], []          # cells, bottom of the stack first
        self.roots = {}     # address: (array, its cells); no memory is used twice

    def cells_of(self, array: np.ndarray) -> np.ndarray:
        """The numbers of an array's cells, of its shape."""
        root = array
        while isinstance(root.base, np.ndarray):
            root = root.base
        start = root.__array_interface__["data"][0]
        if start not in self.roots:
            self.roots[start] = root, np.arange(root.size, dtype=np.int32) + self.cells
            self.cells += root.size
        _, cells = self.roots[start]
        first = (array.__array_interface__["data"][0] - start) // array.itemsize
        return as_strided(cells[first:], array.shape, [
            stride // array.itemsize * cells.itemsize for stride in array.strides])

    def load(self, *arrays: np.ndarray, kept: bool) -> list[np.ndarray]:
        """Arrays that are there before the first step, each on top of those before it;
        kept: they are there after the last one, too. -> the same, traced."""
        for array in arrays:
            self.begin.append(self.cells_of(array).ravel())
            if kept:
                self.kept.append(self.begin[-1])
        return [follow(self, array) for array in arrays]

    def each(self, out: np.ndarray, *operands: np.ndarray) -> None:
        """Cells of one shape, but operands are broadcast."""
        self.steps.append(Each(out.ravel(), tuple(
            np.broadcast_to(cells, out.shape).ravel() for cells in operands)))

    def product(self, out: np.ndarray, a: np.ndarray, b: np.ndarray) -> None:
        """out (I, J) = a (I, K) @ b (K, J)."""
        self.steps.append(Product(out, a, b))

    def dot(self, out: int, a: np.ndarray, b: np.ndarray) -> None:
        """The same of two vectors (K,), which may be one: the loop, step by step."""
        target = np.arange(2 * len(a) - 1, dtype=np.int32) % 2  # s, a b, s, a b, ...
        left, right = np.full_like(target, SUM), np.full_like(target, TERM)
        for side, cells in ((left, a), (right, b)):
            side[0], side[1::2] = cells[0], cells[1:]
        target[-1] = out
        self.each(target, left, right)

    def reduce(self, out: np.ndarray, cells: np.ndarray, axis: int) -> None:
        """Along one axis: out = cells_0 op cells_1, then out = out op cells_2, ..."""
        cells = np.moveaxis(cells, axis, 0)
        out = out.reshape(cells.shape[1:])
        if len(cells) == 1:
            self.each(out, cells[0])
            return
        left = np.stack([cells[0], *[out] * (len(cells) - 2)])
        target = np.broadcast_to(out, left.shape)
        # An inner axis is reduced element by element, an outer one row by row.
        left, right, target = (np.moveaxis(part, 0, axis)
                               for part in (left, cells[1:], target))
        self.each(target, left, right)


class Traced(np.ndarray):
    """An array that notes what NumPy does with it on its tape."""

    tape: Any

    def __array_finalize__(self, parent: Any) -> None:
        self.tape = getattr(parent, "tape", None)

    def _cells(self, *values):
        """Cells of the arrays among the values: constants have none."""
        return [self.tape.cells_of(value) for value in values
                if isinstance(value, Traced)]

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, out: Any = None,
                        **kwargs: Any) -> Any:
        traced = next(array for array in (*inputs, *(out or ()))
                      if isinstance(array, Traced))
        self.tape = traced.tape
        if out:
            kwargs["out"] = bared(out[0])
        with np.errstate(all="ignore"):     # what is moved counts, not what it is
            result = getattr(ufunc, method)(*map(bared, inputs), **kwargs)
        result = out[0] if out else follow(self.tape, np.asarray(result))
        target = self.tape.cells_of(result)
        if method == "reduce":
            self.tape.reduce(target, *self._cells(*inputs), kwargs.get("axis", 0) or 0)
        elif method != "__call__":
            raise NotImplementedError(f"{ufunc.__name__}.{method} is not traced")
        elif ufunc is np.matmul:
            self.tape.product(target, *self._cells(*inputs))
        else:
            self.tape.each(target, *self._cells(*inputs))
        return result

    def __array_function__(self, function: Any, types: Any, args: Any,
                           kwargs: Any) -> Any:
        if function is np.copyto:
            np.copyto(*map(bared, args))
            return self.tape.each(*self._cells(*args))
        if function is np.dot:
            self.tape.dot(int(self.tape.cells_of(np.empty(1))[0]), *self._cells(*args))
            return np.dot(*map(bared, args))
        return super().__array_function__(function, types, args, kwargs)

    def fill(self, value: Any) -> None:
        np.asarray(self).fill(value)
        self.tape.each(*self._cells(self))

    def __getitem__(self, key: Any) -> Any:
        if not is_gather(key):
            return super().__getitem__(key)
        places = tuple(map(bared, key))
        result = follow(self.tape, np.asarray(self)[places])
        self.tape.each(*self._cells(result, *key), self.tape.cells_of(self)[places])
        return result

    def __setitem__(self, key: Any, value: Any) -> None:
        places = tuple(map(bared, key)) if is_gather(key) else key
        np.asarray(self)[places] = bared(value)
        self.tape.each(self.tape.cells_of(self)[places], *self._cells(value),
                       *(self._cells(*key) if is_gather(key) else ()))


def bared(value: Any) -> Any:
    """The same, not traced."""
    return np.asarray(value) if isinstance(value, Traced) else value


def is_gather(key: Any) -> bool:
    """Whether an index names single elements, by arrays."""
    return isinstance(key, tuple) and any(isinstance(part, np.ndarray) for part in key)


def follow(tape: Tape, thing: Any) -> Any:
    """The same with its arrays traced, inside lists, tuples, dicts and views too."""
    if isinstance(thing, np.ndarray) and thing.ndim:
        traced = thing.view(Traced)
        traced.tape = tape
        return traced
    if isinstance(thing, (list, tuple)):
        make = getattr(thing, "_make", type(thing))         # of a NamedTuple
        thing = make([follow(tape, part) for part in thing])
    elif isinstance(thing, dict):
        thing = {name: follow(tape, part) for name, part in thing.items()}
    return thing


def follow_attributes(tape: Tape, holder: Any) -> None:
    """Trace the arrays that an object holds, but for counters."""
    for name, value in vars(holder).items():
        if not (isinstance(value, np.ndarray) and value.dtype.kind in "iu"):
            setattr(holder, name, follow(tape, value))


# --------------------------------------------------------------------------------------
# The passes of a net


def trace_pass(net: hn.DeepNet, x: np.ndarray, labels: np.ndarray | None = None,
               optimizer: Any = None) -> Tape:
    """-> Tape of `DeepNet.forward` on images x (N, P); with labels (N,) and an
    optimizer of net.params, of a training step as `hn.train_step` makes it.

    Weights and moments are kept, for the net is used again. The images lie on top of
    the weights, and these on the moments, as a step before left them. The norm of the
    gradient is taken, but nothing clipped: that would depend on the images.
    """
    tape, params = Tape(), net.params
    tape.load(*(getattr(optimizer, name) for name in ("v", "m")
                if hasattr(optimizer, name)), kept=True)
    net.params, = tape.load(params, kept=True)
    if labels is not None:
        labels, = tape.load(labels, kept=False)
    x, = tape.load(x, kept=False)
    cache = net.cache(len(x))
    follow_attributes(tape, cache)
    logits, _ = net.forward(x.T, cache)
    if labels is None:
        tape.kept.append(tape.cells_of(logits).ravel())
    else:
        follow_attributes(tape, optimizer)
        _, dlogits = hn.cross_entropy(logits, labels)
        grad = net.backward(dlogits, cache)
        hn.clip_norm(grad, math.inf)
        optimizer.step(net.params, grad, 1e-3)
    net.params = params
    return tape


def trace_skipping(net: hn.DeepNet, opened: np.ndarray) -> Tape:
    """-> Tape of the way of images, one after the other, through a highway net that
    reads W_H only where a gate is open, opened (images, L, U): T first, then H of the
    open units, whose x change in place. The other x stay where they are."""
    tape, U = Tape(), net.hidden
    tape.load(net.params, kept=True)
    cells = {name: tape.cells_of(view) for name, view in net.views(net.params).items()}
    pixels = tape.cells_of(np.empty((net.inputs, 1)))
    x1, T, H, is_open = (tape.cells_of(np.empty((U + 1, 1))) for _ in range(4))
    x, T, H, is_open = x1[:U], T[:U], H[:U], is_open[:U]
    # Weights with their biases, which meet the 1 below x.
    rows = {name: np.concatenate([cells["W_" + name], cells["b_" + name][..., None]],
                                 axis=-1) for name in ("T", "H", "out")}
    logits = tape.cells_of(np.empty((net.classes, 1)))
    for image in opened:
        tape.each(pixels)
        tape.product(x, cells["W_in"], pixels)
        tape.each(x, x, cells["b_in"])
        tape.each(x, x)
        for W_T, W_H, gates in zip(rows["T"], rows["H"], image, strict=True):
            tape.product(T, W_T, x1)
            for _ in range(4):              # the sigmoid: half, tanh, half, add
                tape.each(T, T)
            tape.each(is_open, T)
            units = np.flatnonzero(gates)
            if len(units):
                tape.product(H[units], W_H[units], x1)
                tape.each(H[units], H[units])
                tape.each(H[units], H[units], x[units])
                tape.each(H[units], T[units], H[units])
                tape.each(x[units], x[units], H[units])
        tape.product(logits, rows["out"], x1)
    return tape
