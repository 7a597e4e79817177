"""What a computation moves, by two models of the cost of a read, from its own trace.

Both models charge for the bytes that are read; writes and arithmetic are free.

ByteDMD: a byte at depth d of a stack costs ceil(sqrt(d)). What is read or written moves
to the top, and a value that no one will read again vanishes: only live values have a
depth. The operands of one instruction are priced before any of them moves. (github.com/
cybertronai/ByteDMD as vendored in its group's benchmarks, revision 2cc2a62: other
revisions price the same programs otherwise. The idea: Ding and Smith 2022, Beyond Time
Complexity, 2203.02536; Dally, Communications of the ACM, 2022.)

Addresses: a byte at address a costs ceil(sqrt(a)), a cell stays where it is, and what
is written in place stays in its cell (the same group, sutro-problems, 2026). Where the
cells lie is the caller's choice. Here the cells that are read most have the lowest
addresses, which no fixed order betters: the cost depends on how often each is read,
not on when.

The trace is that of the code itself. `Traced` arrays note each NumPy call on a `Tape`,
which numbers the memory cells. A call on whole arrays is a loop over the elements of
its output, in memory's order; a matrix product is the loop i, j, k, row by row and
column by column, with s = a b and then s = s + a b: four reads for a multiplication
and an addition. Constants are free. Every number is four bytes, labels too.

Stack distances are exact and need no stack. A value lies on the stack from one access
to the next read of it. How deep it is when it is read: how many such stays began since
its own did, less those that ended since: pairs of nested intervals, counted bit by bit
as in a radix sort, n log n. Within a matrix product a repeated read has only that
product's own values above it, so these distances are found once for each shape; all
others need the first and the last read of each value there, and not those between.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np

import highway_networks as hn


def price(depth, size=4):
    """Cost of reading numbers of `size` bytes at these depths or addresses, from 1."""
    last = size * np.asarray(depth, np.int64)
    return sum(np.ceil(np.sqrt(last - byte)) for byte in range(size)).astype(np.int64)


def overtakers(order):
    """A permutation -> for each of its values, how many larger ones stand before it."""
    places = np.arange(len(order), dtype=np.int32)
    words = order.astype(np.int64) << 32        # the value, and below it the count
    for bit in reversed(range(max(len(order) - 1, 0).bit_length())):
        # Sorted by the higher bits: what shares them fills a run of 2^(bit + 1) places.
        large = (words >> (32 + bit) & 1).astype(bool)
        run = places >> (bit + 1)
        before = np.cumsum(large, dtype=np.int32) - large - (run << bit)
        words += np.where(large, 0, before)
        target = np.where(large, (run << (bit + 1)) + (1 << bit) + before,
                          places - before)
        moved = np.empty_like(words)
        moved[target] = words
        words = moved
    return words & 0xFFFFFFFF


class Trace(NamedTuple):
    """Accesses in their order, all (n,)."""

    cell: np.ndarray        # int32
    write: np.ndarray       # bool
    first: np.ndarray       # bool, the first access of an instruction
    weight: np.ndarray      # int8, how often its read is charged; 0 of writes
    above: np.ndarray       # int8, values on top of the stack that have no cell


def stays(trace, kept):
    """Which accesses leave their value on the stack, and the access before each.

    A value stays if the next access of its cell reads it, or if there is none and kept
    (cells,) says that the cell outlives the trace.
    """
    n = len(trace.cell)
    keys = np.sort((trace.cell.astype(np.int64) << 32) + np.arange(n))
    access, cell = (keys & 0xFFFFFFFF).astype(np.int32), keys >> 32
    same = cell[1:] == cell[:-1]
    stay = np.empty(n, bool)
    stay[access[-1:]] = kept[cell[-1:]]
    stay[access[:-1]] = np.where(same, ~trace.write[access[1:]], kept[cell[:-1]])
    before = np.full(n, -1, np.int32)
    before[access[1:]] = np.where(same, access[:-1], -1)
    return stay, before


def stack_depths(trace, stay, before):
    """-> the accesses that read, (r,), and the depth of each, (r,)."""
    reads = np.flatnonzero(~trace.write).astype(np.int32)
    begun = np.cumsum(stay, dtype=np.int32)             # stays, up to each access
    starts = np.maximum.accumulate(np.where(
        trace.first, np.arange(len(trace.cell), dtype=np.int32), 0))[reads]
    own = begun[before[reads]] - 1                      # the number of the stay
    since = begun[starts] - stay[starts] - own
    # Of two reads of one instruction the older stay ends first: neither is inside.
    swap = np.flatnonzero((starts[1:] == starts[:-1]) & (own[1:] < own[:-1]))
    ending = own.copy()
    ending[swap], ending[swap + 1] = own[swap + 1], own[swap]
    ended = np.zeros(begun[-1], bool)
    ended[own] = True
    rank = np.cumsum(ended, dtype=np.int32) - 1
    return reads, since - overtakers(rank[ending])[rank[own]]


# --------------------------------------------------------------------------------------
# From NumPy to accesses


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

    def cells_of(self, array):
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
        for axis, (size, stride) in enumerate(zip(array.shape, array.strides)):
            steps = np.arange(size, dtype=np.int32) * (stride // array.itemsize)
            cells += steps.reshape(-1, *(1,) * (array.ndim - axis - 1))
        return cells

    def load(self, *arrays, kept):
        """Arrays that are there before the first step, each on top of those before it;
        kept: they are there after the last one, too. -> the same, traced."""
        for array in arrays:
            self.begin.append(self.cells_of(array).ravel())
            if kept:
                self.kept.append(self.begin[-1])
        return [follow(self, array) for array in arrays]

    def each(self, out, *operands):
        """Cells of one shape, but operands are broadcast."""
        operands = [np.broadcast_to(cells, out.shape).ravel() for cells in operands]
        self.steps.append(Each(out.ravel(), tuple(operands), self.part))

    def product(self, out, a, b):
        self.steps.append(Product(out, a, b, self.part))

    def reduce(self, out, cells, axis):
        """Along one axis: out = cells_0 op cells_1, then out = out op cells_2, ..."""
        cells = np.moveaxis(cells, axis, 0)
        out = out.reshape(cells.shape[1:])
        if len(cells) == 1:
            return self.each(out, cells[0])
        left = np.stack([cells[0], *[out] * (len(cells) - 2)])
        target = np.broadcast_to(out, left.shape)
        # An inner axis is reduced element by element, an outer one row by row.
        left, right, target = (np.moveaxis(part, 0, axis)
                               for part in (left, cells[1:], target))
        return self.each(target, left, right)


class Traced(np.ndarray):
    """An array that notes what NumPy does with it on its tape."""

    def __array_finalize__(self, parent):
        self.tape = getattr(parent, "tape", None)

    def _noted(self, result):
        return follow(self.tape, np.asarray(result))

    def _cells(self, *values):
        """Cells of the arrays among the values: constants have none."""
        return [self.tape.cells_of(value) for value in values
                if isinstance(value, Traced)]

    def __array_ufunc__(self, ufunc, method, *inputs, out=None, **kwargs):
        traced = next(array for array in (*inputs, *(out or ()))
                      if isinstance(array, Traced))
        self.tape = traced.tape
        bare = [bared(value) for value in inputs]
        if out:
            kwargs["out"] = bared(out[0])
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

    def __array_function__(self, function, types, args, kwargs):
        if function is np.copyto:
            np.copyto(*map(bared, args))
            return self.tape.each(*self._cells(*args))
        if function is np.dot:
            a, b = self._cells(*args)
            self.tape.product(self.tape.cells_of(np.empty((1, 1))), a[None], b[:, None])
            return np.dot(*map(bared, args))
        return super().__array_function__(function, types, args, kwargs)

    def fill(self, value):
        np.asarray(self).fill(value)
        self.tape.each(*self._cells(self))

    def __getitem__(self, key):
        if not is_gather(key):
            return super().__getitem__(key)
        key = tuple(map(bared, key)), key
        result = self._noted(np.asarray(self)[key[0]])
        self.tape.each(*self._cells(result, *key[1]),
                       self.tape.cells_of(self)[key[0]])
        return result

    def __setitem__(self, key, value):
        places = tuple(map(bared, key)) if is_gather(key) else key
        np.asarray(self)[places] = bared(value)
        self.tape.each(self.tape.cells_of(self)[places], *self._cells(value),
                       *(self._cells(*key) if is_gather(key) else ()))


def bared(value):
    return np.asarray(value) if isinstance(value, Traced) else value


def is_gather(key):
    return isinstance(key, tuple) and any(isinstance(part, np.ndarray) for part in key)


def follow(tape, thing):
    """The same with its arrays traced, inside lists, tuples, dicts and views too."""
    if isinstance(thing, np.ndarray) and thing.ndim:
        thing = thing.view(Traced)
        thing.tape = tape
    elif isinstance(thing, (list, tuple)):
        thing = type(thing)([follow(tape, part) for part in thing])
    elif isinstance(thing, dict):
        thing = {name: follow(tape, part) for name, part in thing.items()}
    return thing


def follow_attributes(tape, holder):
    for name, value in vars(holder).items():
        setattr(holder, name, follow(tape, value))


# --------------------------------------------------------------------------------------
# From accesses to costs


def each_trace(step):
    """The accesses of a step on elements."""
    reads = list(step.operands)
    twice = len(reads) == 2 and bool(np.array_equal(*reads))
    if len(reads) == 2 and not twice and (reads[0] == reads[1]).any():
        raise ValueError("some elements meet themselves, and some do not")
    cell = np.stack([*reads[:1 if twice else None], step.out], axis=1)
    marks = np.zeros((5, *cell.shape), np.int8)
    marks[0, :, -1] = 1                         # write
    marks[1, :, 0] = 1                          # first
    marks[2, :, :-1] = 2 if twice else 1        # weight
    return Trace(cell.ravel(), *(mark.ravel().astype(kind) for mark, kind in
                                 zip(marks, (bool, bool, np.int8, np.int8))))


def product_order(I, J, K, square, whole):
    """The accesses of a product of (I, K) by (K, J) -> places in the flat cells of a,
    b and out laid end to end, and the other fields of a Trace. whole: all of them, and
    the first read of a cell is free; else the first and the last of each cell, and only
    the first is charged. square: a and b are one vector, read once at double price."""
    i, j, k = np.meshgrid(*(np.arange(size, dtype=np.int32) for size in (I, J, K)),
                          indexing="ij")
    place = np.stack([i * K + k, I * K + k * J + j, I * K + K * J + i * J + j], axis=-1)
    fresh = np.stack([j == 0, i == 0, k < 0], axis=-1)      # out is written, not read
    read = np.broadcast_to([True, not square, False], place.shape)
    use = np.stack([j >= 0, i >= 0, k == K - 1], axis=-1) & (
        read | (np.arange(3) == 2))
    if not whole:
        use[..., 0] &= (j == 0) | (j == J - 1)
        use[..., 1] &= (i == 0) | (i == I - 1)
    weight = np.where(read & (fresh != whole), 2 if square else 1, 0).astype(np.int8)
    number = np.broadcast_to(np.arange(I * J * K).reshape(I, J, K, 1), place.shape)[use]
    above = np.broadcast_to((k > 0)[..., None], place.shape).astype(np.int8)
    write = np.broadcast_to(np.arange(3) == 2, place.shape)
    return place[use], Trace(None, write[use], np.diff(number, prepend=-1) > 0,
                             weight[use], above[use])


@functools.lru_cache(maxsize=256)
def product_edges(I, J, K, square):
    """`product_order` of the first and the last accesses, which are few."""
    return product_order(I, J, K, square, whole=False)


def product_trace(step):
    """The first and the last accesses of every cell of a product."""
    cells = np.concatenate([step.a.ravel(), step.b.ravel(), step.out.ravel()])
    place, marks = product_edges(*sizes(step))
    return marks._replace(cell=cells[place])


def sizes(step):
    """I, J, K, and whether the product is that of a vector by itself."""
    (I, K), J = step.a.shape, step.b.shape[1]
    return I, J, K, I == J == 1 and bool(np.array_equal(step.a[0], step.b[:, 0]))


@functools.lru_cache(maxsize=1024)
def inside_product(I, J, K, square, kept):
    """How many reads of each depth (depths,) a product makes of its own values: a and b
    again, s and the products a b. kept: bytes, 0 or 1 for each cell of a, b, out laid
    end to end: whether its value outlives the product."""
    kept = np.frombuffer(kept, bool)
    place, marks = product_order(I, J, K, square, whole=True)
    given = np.arange(I * K + K * J, dtype=np.int32)
    load = Trace(given, *(np.full(len(given), value, kind) for value, kind in (
        (True, bool), (True, bool), (0, np.int8), (0, np.int8))))
    trace = join([load, marks._replace(cell=place.astype(np.int32))])
    stay, before = stays(trace, kept)
    reads, depth = stack_depths(trace, stay, before)
    counts = np.bincount(depth + trace.above[reads], weights=trace.weight[reads])
    # s = s + a b: the product is on top, then a and b if they stay, then s.
    stay = stay[reads]
    under = 2 + (stay if square else stay[::2].astype(int) + stay[1::2])
    under = under.reshape(I, J, K)[:, :, 1:].ravel()
    return add(counts, np.bincount(under), np.array([0, under.size]))


def add(*counts):
    """Histograms of any lengths -> their sum."""
    total = np.zeros(max(map(len, counts)), np.int64)
    for count in counts:
        total[:len(count)] += count.astype(np.int64)
    return total


def join(traces):
    return Trace(*(np.concatenate(field) for field in zip(*traces)))


def loads(tape, trace):
    """Cells as they lie on the stack at first: those that are read before anything is
    written there are constants of the code, which lie lowest and are kept."""
    _, earliest = np.unique(trace.cell, return_index=True)
    given = trace.cell[earliest[~trace.write[earliest]]]
    known = np.concatenate([np.zeros(0, np.int32), *tape.begin])
    constants = np.setdiff1d(given, known)
    cell = np.concatenate([constants, known]).astype(np.int32)
    kept = np.zeros(tape.cells, bool)
    kept[np.concatenate([constants, *tape.kept])] = True
    flags = np.ones(len(cell), bool)
    none = np.zeros(len(cell), np.int8)
    return Trace(cell, flags, flags, none, none), kept


def depth_counts(tape):
    """-> {part: how many elements are read at each depth, (depths,)}."""
    pieces = [(each_trace if isinstance(step, Each) else product_trace)(step)
              for step in tape.steps]
    ends = np.cumsum([len(piece.cell) for piece in pieces])
    trace = join(pieces)
    load, kept = loads(tape, trace)
    loaded = join([load, trace])
    stay, before = stays(loaded, kept)
    reads, depth = stack_depths(loaded, stay, before)
    stay, reads = stay[len(load.cell):], reads - len(load.cell)
    depth += trace.above[reads]
    found, limits = {}, np.searchsorted(reads, [0, *ends])
    for n, (step, piece) in enumerate(zip(tape.steps, pieces)):
        own = slice(limits[n], limits[n + 1])
        counts = [np.bincount(depth[own], weights=trace.weight[reads[own]])]
        if isinstance(step, Product):
            place, _ = product_edges(*sizes(step))
            last = np.zeros(step.a.size + step.b.size + step.out.size, bool)
            last[place] = stay[ends[n] - len(piece.cell):ends[n]]   # the last one counts
            if sizes(step)[3]:
                last[step.a.size:2 * step.a.size] = False
            counts.append(inside_product(*sizes(step), last.tobytes()))
        found[step.part] = add(*counts, found.get(step.part, np.zeros(1)))
    return found


def read_counts(tape):
    """How often each cell is read, (cells + 2,); the last two hold s and a b of the
    matrix products."""
    counts = np.zeros(tape.cells + 2, np.int64)
    for step in tape.steps:
        if isinstance(step, Each):
            for cells in step.operands:
                counts += np.bincount(cells, minlength=len(counts))
        else:
            I, J, K, _ = sizes(step)
            counts[step.a.ravel()] += J
            counts[step.b.ravel()] += I
            counts[-2:] += I * J * (K - 1)
    return counts


def movement(tape, size=4):
    """Numbers of `size` bytes -> "bytes" read, the costs "bytedmd" and "address", and
    "parts", ByteDMD's by part."""
    parts = {part: int(count[1:] @ price(np.arange(1, len(count)), size))
             for part, count in depth_counts(tape).items()}
    reads = np.sort(read_counts(tape))[::-1]
    return {"bytes": size * int(reads.sum()), "bytedmd": sum(parts.values()),
            "address": int(reads @ price(np.arange(1, len(reads) + 1), size)),
            "parts": parts}


# --------------------------------------------------------------------------------------
# The passes of a net


def trace_forward(net, batch):
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


def trace_steps(net, batch, optimizer, clip, steps=1):
    """-> Tape of training steps as `hn.train_step` makes them, on so many images each;
    optimizer: of net.params. Weights and moments are kept; the images of the first step
    lie on top, then the weights, then the moments, as the step before left them. The
    gradient is not so long that it is clipped."""
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
        hn.clip_norm(grad, clip)
        optimizer.step(net.params, grad, 1e-3)
    return tape


def trace_skipping(net, opened):
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
