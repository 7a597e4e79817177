"""What NumPy reads and writes, call by call: the trace behind experiments/movement.py.

`Traced` arrays note each NumPy call on a `Tape`, which numbers the memory cells, so
that the trace is that of the core's own code. A call on whole arrays is a loop over the
elements of its output, in memory's order. A matrix product is the loop i, j, k, row by
row and column by column, with s = a b and then s = s + a b: four reads for each
multiplication and addition. A sum along an axis adds to its own result in the same way.
Constants and numbers that are no array are free; a label counts as any number.
"""

from __future__ import annotations

import copy
import math
from typing import Any, NamedTuple

import numpy as np

import highway_networks as hn


class Each(NamedTuple):
    """For every element: read one cell of each operand, write one cell."""

    out: np.ndarray         # (n,)
    operands: tuple         # of (n,)
    part: str


class Product(NamedTuple):
    """out = a @ b, by the loop i, j, k."""

    out: np.ndarray         # (I, J)
    a: np.ndarray           # (I, K)
    b: np.ndarray           # (K, J)
    part: str


class Tape:
    """The steps of a computation on numbered cells."""

    def __init__(self):
        self.steps, self.cells, self.part = [], 0, ""
        self.begin, self.kept = [], []          # cells, bottom of the stack first
        self.roots, self.offsets = [], {}       # roots: no memory is used twice

    def cells_of(self, array: np.ndarray) -> np.ndarray:
        """The numbers of an array's cells, of its shape."""
        root = array
        while isinstance(root.base, np.ndarray):
            root = root.base
        start = root.__array_interface__["data"][0]
        if start not in self.offsets:
            self.offsets[start] = self.cells
            self.roots.append(root)
            self.cells += root.size
        first = (array.__array_interface__["data"][0] - start) // array.itemsize
        cells = np.full(array.shape, self.offsets[start] + first, np.int32)
        for axis, (size, stride) in enumerate(zip(array.shape, array.strides,
                                                   strict=True)):
            steps = np.arange(size, dtype=np.int32) * (stride // array.itemsize)
            cells += steps.reshape(-1, *(1,) * (array.ndim - axis - 1))
        return cells

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
        flat = (np.broadcast_to(cells, out.shape).ravel() for cells in operands)
        self.steps.append(Each(out.ravel(), tuple(flat), self.part))

    def product(self, out: np.ndarray, a: np.ndarray, b: np.ndarray) -> None:
        """out (I, J) = a (I, K) @ b (K, J)."""
        self.steps.append(Product(out, a, b, self.part))

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


def by_columns(tape: Tape) -> Tape:
    """The same with the loops of every matrix product in the order j, i, k: image after
    image, where columns are images."""
    twin = copy.copy(tape)
    twin.steps = [Product(step.out.T, step.b.T, step.a.T, step.part)
                  if isinstance(step, Product) else step for step in tape.steps]
    return twin


def by_kind(tape: Tape) -> Tape:
    """The same in two parts: "products" of matrices and steps on "elements"."""
    twin = copy.copy(tape)
    twin.steps = [step._replace(part="products" if isinstance(step, Product) else
                                "elements") for step in tape.steps]
    return twin


def forgotten(tape: Tape) -> Tape:
    """The same, but nothing outlives it: weights vanish with their last read."""
    twin = copy.copy(tape)
    twin.kept = []
    return twin


class Traced(np.ndarray):
    """An array that notes what NumPy does with it on its tape."""

    tape: Any

    def __array_finalize__(self, parent: Any) -> None:
        self.tape = getattr(parent, "tape", None)

    def _noted(self, result):
        return follow(self.tape, np.asarray(result))

    def _cells(self, *values):
        """Cells of the arrays among the values: constants have none."""
        return [self.tape.cells_of(value) for value in values
                if isinstance(value, Traced)]

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, out: Any = None,
                        **kwargs: Any) -> Any:
        traced = next(array for array in (*inputs, *(out or ()))
                      if isinstance(array, Traced))
        self.tape = traced.tape
        bare = [bared(value) for value in inputs]
        if out:
            kwargs["out"] = bared(out[0])
        with np.errstate(all="ignore"):     # what is moved counts, not what it is
            result = getattr(ufunc, method)(*bare, **kwargs)
        result = out[0] if out else self._noted(result)
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
            a, b = self._cells(*args)
            self.tape.product(self.tape.cells_of(np.empty((1, 1))), a[None], b[:, None])
            return np.dot(*map(bared, args))
        return super().__array_function__(function, types, args, kwargs)

    def fill(self, value: Any) -> None:
        np.asarray(self).fill(value)
        self.tape.each(*self._cells(self))

    def __getitem__(self, key: Any) -> Any:
        if not is_gather(key):
            return super().__getitem__(key)
        key = tuple(map(bared, key)), key
        result = self._noted(np.asarray(self)[key[0]])
        self.tape.each(*self._cells(result, *key[1]),
                       self.tape.cells_of(self)[key[0]])
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


def trace_forward(net: hn.DeepNet, batch: int) -> Tape:
    """-> Tape of `DeepNet.forward` on so many images, by a net that is used again: its
    weights are kept, the images lie on top of them."""
    tape = Tape()
    tape.part = "forward"
    net.params, = tape.load(net.params, kept=True)
    x, = tape.load(np.zeros((batch, net.inputs), net.dtype), kept=False)
    cache = net.cache(batch)
    follow_attributes(tape, cache)
    logits, _ = net.forward(x.T, cache)
    tape.kept.append(tape.cells_of(logits).ravel())
    return tape


def trace_steps(net: hn.DeepNet, batch: int, optimizer: Any, steps: int = 1) -> Tape:
    """-> Tape of training steps as `hn.train_step` makes them, on so many images each;
    optimizer: of net.params. Weights and moments are kept; the images of the first step
    lie on top, then the weights, then the moments, as the step before left them. The
    norm of the gradient is taken, but nothing clipped: that depends on the images."""
    tape = Tape()
    tape.part = "forward"
    tape.load(*(getattr(optimizer, name) for name in ("v", "m")
                if hasattr(optimizer, name)), kept=True)
    images = [tape.load(np.zeros(batch, np.intp), np.ones((batch, net.inputs),
                                                          net.dtype), kept=False)
              for _ in range(steps - 1)]
    net.params, = tape.load(net.params, kept=True)
    images.append(tape.load(np.zeros(batch, np.intp),
                            np.ones((batch, net.inputs), net.dtype), kept=False))
    cache = net.cache(batch)
    follow_attributes(tape, cache)
    follow_attributes(tape, optimizer)
    for number, (labels, x) in enumerate(reversed(images), 1):
        name = f", step {number}" if steps > 1 else ""
        tape.part = "forward" + name
        logits, _ = net.forward(x.T, cache)
        _, dlogits = hn.cross_entropy(logits, labels)
        tape.part = "backward" + name
        grad = net.backward(dlogits, cache)
        tape.part = "update" + name
        hn.clip_norm(grad, math.inf)
        optimizer.step(net.params, grad, 1e-3)
    return tape


def trace_skipping(net: hn.DeepNet, opened: np.ndarray) -> Tape:
    """-> Tape of the way of images, one after the other, through a highway net that
    reads W_H only where a gate is open, opened (images, L, U): T first, then H of the
    open units, whose x change in place. The other x stay where they are."""
    tape, U = Tape(), net.hidden
    tape.load(net.params, kept=True)
    cells = {name: tape.cells_of(view) for name, view in
             net.views(net.params).items()}
    pixels = tape.cells_of(np.empty((net.inputs, 1)))
    x1, T, H, is_open = (tape.cells_of(np.empty((U + 1, 1))) for _ in range(4))
    x, T, H, is_open = x1[:U], T[:U], H[:U], is_open[:U]

    def rows(name, layer=Ellipsis):
        """Weights with their biases, which meet the 1 below x."""
        return np.concatenate([cells["W_" + name][layer],
                               cells["b_" + name][layer][..., None]], axis=-1)
    logits = tape.cells_of(np.empty((net.classes, 1)))
    for image in opened:
        tape.each(pixels)
        tape.product(x, cells["W_in"], pixels)
        tape.each(x, x, cells["b_in"])
        tape.each(x, x)
        for layer, gates in enumerate(image):
            tape.product(T, rows("T", layer), x1)
            for _ in range(4):              # the core's sigmoid: half, tanh, half, add
                tape.each(T, T)
            tape.each(is_open, T)
            units = np.flatnonzero(gates)
            if len(units):
                tape.product(H[units], rows("H", layer)[units], x1)
                tape.each(H[units], H[units])
                tape.each(H[units], H[units], x[units])
                tape.each(H[units], T[units], H[units])
                tape.each(x[units], x[units], H[units])
        tape.product(logits, rows("out"), x1)
    return tape
