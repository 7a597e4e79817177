"""What a computation moves, by two models of the cost of a read, from its own trace.

Both models charge for the bytes that are read; writes and arithmetic are free. Every
number has four bytes. experiments/tracing.py has the rules by which code is traced.

ByteDMD: a byte at depth d of a stack costs ceil(sqrt(d)). What is read or written moves
to the top, and a value that no one will read again vanishes: only live values have a
depth. The operands of one instruction are priced before any of them moves. (github.com/
cybertronai/ByteDMD at revision 2cc2a62; others price the same programs otherwise. The
idea: Ding and Smith, Beyond Time Complexity, 2022, arXiv:2203.02536; Dally, On the
Model of Computation, Communications of the ACM, 2022.)

Addresses: a byte at address a costs ceil(sqrt(a)), a cell stays where it is, and what
is written in place stays in its cell (the same group's contest, github.com/cybertronai/
sutro-problems, 2026). Where the cells lie is the caller's choice. Here the cells that
are read most have the lowest addresses, which no fixed order betters: the cost depends
on how often each is read, not on when.

Stack distances are exact and need no stack. A value lies on the stack from one access
to the next read of it. How deep it is when it is read: how many such stays began since
its own did, less those that ended since: pairs of nested intervals, counted bit by bit
as in a radix sort, n log n. Within a matrix product a repeated read has only that
product's own values above it, so these distances are found once for each shape; all
others need the first and the last read of each value there, and not those between.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from experiments.tracing import Each, Product, Tape


def price(depth: Any, size: int = 4) -> np.ndarray:
    """Cost of reading numbers of `size` bytes at these depths or addresses, from 1."""
    last = size * np.asarray(depth, np.int64)
    return np.sum([np.ceil(np.sqrt(last - byte)) for byte in range(size)],
                  axis=0).astype(np.int64)


def overtakers(order: np.ndarray) -> np.ndarray:
    """A permutation of 0, 1, 2, ... -> for each of its values, how many larger ones
    stand before it."""
    values, counts = order.astype(np.int32), np.zeros(len(order), np.int32)
    ranks = np.arange(len(order), dtype=np.int32)
    for bit in reversed(range(max(len(order) - 1, 0).bit_length())):
        # The values are sorted by the higher bits. Those that share them are a run, of
        # `half` with a 0 here and as many with a 1; the last may have less.
        half = 1 << bit
        low = np.flatnonzero(values & half == 0)
        high = np.flatnonzero(values & half)
        passed = counts[low] + (low & 2 * half - 1) - (ranks[:len(low)] & half - 1)
        counts = interleaved(passed, counts[high], half)
        values = interleaved(values[low], values[high], half)
    return counts


def interleaved(low: np.ndarray, high: np.ndarray, half: int) -> np.ndarray:
    """By turns so many of each, and what is left in the end."""
    full = len(high) // half * half
    out = np.empty(len(low) + len(high), np.int32)
    runs = out[:2 * full].reshape(-1, 2, half)
    runs[:, 0], runs[:, 1] = (part[:full].reshape(-1, half) for part in (low, high))
    out[2 * full:] = np.concatenate([low[full:], high[full:]])
    return out


class Trace(NamedTuple):
    """Accesses in their order, all (n,)."""

    cell: np.ndarray        # int32
    write: np.ndarray       # bool
    first: np.ndarray       # bool, the first access of an instruction
    weight: np.ndarray      # int8, how often its read is charged; 0 of writes
    above: np.ndarray       # int8, values on top of the stack that have no cell


def stays(trace: Trace, kept: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
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


def stack_depths(trace: Trace, stay: np.ndarray, before: np.ndarray
                 ) -> tuple[np.ndarray, np.ndarray]:
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
# From accesses to costs


def each_trace(step: Each) -> Trace:
    """The accesses of a step on elements."""
    reads = list(step.operands)
    twice = len(reads) == 2 and bool(np.array_equal(*reads))
    if len(reads) == 2 and not twice and (reads[0] == reads[1]).any():
        raise ValueError("some elements meet themselves, and some do not")
    cell = np.stack([*reads[:1 if twice else None], step.out], axis=1)
    marks = np.zeros((4, *cell.shape), np.int8)
    marks[0, :, -1] = 1                         # write
    marks[1, :, 0] = 1                          # first
    marks[2, :, :-1] = 2 if twice else 1        # weight
    write, first, weight, above = (mark.ravel() for mark in marks)
    return Trace(cell.ravel(), write.astype(bool), first.astype(bool), weight, above)


def product_order(I: int, J: int, K: int, square: bool, whole: bool) -> Trace:
    """The accesses of a product of (I, K) by (K, J); their cells are counted through a,
    b and out laid end to end. whole: all of them, and the first read of a cell is free;
    else the first and the last of each cell, and only the first is charged. square: a
    and b are one vector, read once at double price."""
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
    return Trace(place[use], write[use], np.diff(number, prepend=-1) > 0, weight[use],
                 above[use])


@functools.lru_cache(maxsize=256)
def product_edges(I: int, J: int, K: int, square: bool) -> Trace:
    """`product_order` of the first and the last accesses, which are few."""
    return product_order(I, J, K, square, whole=False)


def product_trace(step: Product) -> Trace:
    """The first and the last accesses of every cell of a product."""
    cells = np.concatenate([step.a.ravel(), step.b.ravel(), step.out.ravel()])
    edges = product_edges(*sizes(step))
    return edges._replace(cell=cells[edges.cell])


class Sizes(NamedTuple):
    """Those of a product (I, K) @ (K, J)."""

    I: int
    J: int
    K: int
    square: bool            # of a vector by itself


def sizes(step: Product) -> Sizes:
    """What the cost of a product hangs on."""
    (I, K), J = step.a.shape, step.b.shape[1]
    return Sizes(I, J, K, I == J == 1 and bool(np.array_equal(step.a[0], step.b[:, 0])))


@functools.lru_cache(maxsize=1024)
def inside_product(I: int, J: int, K: int, square: bool, kept: bytes) -> np.ndarray:
    """How many reads of each depth (depths,) a product makes of its own values: a and b
    again, s and the products a b. kept: bytes, 0 or 1 for each cell of a, b, out laid
    end to end: whether its value outlives the product."""
    whole = product_order(I, J, K, square, whole=True)
    given = np.arange(I * K + K * J, dtype=np.int32)
    load = Trace(given, *(np.full(len(given), value, kind) for value, kind in (
        (True, bool), (True, bool), (0, np.int8), (0, np.int8))))
    trace = join([load, whole])
    stay, before = stays(trace, np.frombuffer(kept, bool))
    reads, depth = stack_depths(trace, stay, before)
    counts = np.bincount(depth + trace.above[reads], weights=trace.weight[reads])
    # s = s + a b: the product is on top, then a and b if they stay, then s.
    stay = stay[reads]
    under = 2 + (stay if square else stay[::2].astype(int) + stay[1::2])
    under = under.reshape(I, J, K)[:, :, 1:].ravel()
    return add(counts, np.bincount(under), np.array([0, under.size]))


def add(*counts: np.ndarray) -> np.ndarray:
    """Histograms of any lengths -> their sum."""
    total = np.zeros(max(map(len, counts)), np.int64)
    for count in counts:
        total[:len(count)] += count.astype(np.int64)
    return total


def join(traces: Iterable[Trace]) -> Trace:
    return Trace(*(np.concatenate(field) for field in zip(*traces, strict=True)))


def loads(tape: Tape, trace: Trace) -> tuple[Trace, np.ndarray]:
    """Cells as they lie on the stack at first: those that are read before anything is
    written there are constants of the code, which lie lowest and are kept."""
    is_read = np.zeros(tape.cells, bool)        # first: the last assignment stays
    is_read[trace.cell[::-1]] = ~trace.write[::-1]
    known = np.concatenate([np.zeros(0, np.int32), *tape.begin])
    is_read[known] = False
    constants = np.flatnonzero(is_read)
    cell = np.concatenate([constants, known]).astype(np.int32)
    kept = np.zeros(tape.cells, bool)
    kept[np.concatenate([constants, *tape.kept])] = True
    flags = np.ones(len(cell), bool)
    none = np.zeros(len(cell), np.int8)
    return Trace(cell, flags, flags, none, none), kept


def depth_counts(tape: Tape) -> dict[str, np.ndarray]:
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
    limits = np.searchsorted(reads, [0, *ends])
    names = list(dict.fromkeys(step.part for step in tape.steps))
    part = np.repeat([names.index(step.part) for step in tape.steps], np.diff(limits))
    found = {name: [np.bincount(depth[part == number],
                                weights=trace.weight[reads[part == number]])]
             for number, name in enumerate(names)}
    for n, (step, piece) in enumerate(zip(tape.steps, pieces, strict=True)):
        if isinstance(step, Product):
            last = np.zeros(step.a.size + step.b.size + step.out.size, bool)
            last[product_edges(*sizes(step)).cell] = (     # of several, the last counts
                stay[ends[n] - len(piece.cell):ends[n]])
            found[step.part].append(inside_product(*sizes(step), last.tobytes()))
    return {name: add(*counts) for name, counts in found.items()}


def read_counts(tape: Tape) -> np.ndarray:
    """How often each cell is read, (cells + 2,); the last two hold s and a b of the
    matrix products."""
    counts = np.zeros(tape.cells + 2, np.int64)
    for step in tape.steps:
        if isinstance(step, Each):
            for cells in step.operands:
                np.add.at(counts, cells, 1)
        else:
            size = sizes(step)
            counts[step.a.ravel()] += size.J
            counts[step.b.ravel()] += size.I
            counts[-2:] += size.I * size.J * (size.K - 1)
    return counts


def movement(tape: Tape, size: int = 4) -> dict:
    """Numbers of `size` bytes -> "bytes" read, the costs "bytedmd" and "address", and
    "parts", ByteDMD's by part."""
    parts = {part: int(count[1:] @ price(np.arange(1, len(count)), size))
             for part, count in depth_counts(tape).items()}
    reads = np.sort(read_counts(tape))[::-1]
    return {"bytes": size * int(reads.sum()), "bytedmd": sum(parts.values()),
            "address": int(reads @ price(np.arange(1, len(reads) + 1), size)),
            "parts": parts}


def published() -> list[dict]:
    """The reference's own programs: what they published and what we find. ByteDMD's are
    its README's, one byte a number; the others' are of fixed addresses."""
    found = []

    def note(program, size, published, cost):
        found.append({"program": program, "size": size, "published": published,
                      "ours": int(cost)})
    for n, matvec, vecmat, matmul in ((2, 26, 25, 57), (4, 157, 150, 720),
                                      (8, 896, 832, 8867), (16, 5354, 4688, 109_783)):
        for program, published, shapes in (
                ("matrix by vector", matvec, ((n, n), (n, 1))),
                ("vector by matrix", vecmat, ((1, n), (n, n))),
                ("matrix by matrix", matmul, ((n, n), (n, n)))):
            tape = Tape()
            a, b = (tape.cells_of(np.empty(shape)) for shape in shapes)
            # The first argument is on top, and the matrix is the first of two.
            order = (a, b) if program == "vector by matrix" else (b, a)
            tape.begin = [cells.ravel() for cells in order]
            out = tape.cells_of(np.empty((len(a), b.shape[1])))
            tape.product(out, a, b)
            tape.kept = [out.ravel()]
            note(f"ByteDMD, {program}", n, published,
                 movement(tape, size=1)["bytedmd"])
    tape = Tape()
    a, b, (p, s) = (tape.cells_of(np.empty((2, 1))) for _ in range(3))
    tape.begin = [b.ravel(), a.ravel()]
    for k, operands in enumerate(((p,), (s, p))):       # Python's sum begins with 0 + p
        tape.each(p, a[k], b[k])
        tape.each(s, *operands)
    note("ByteDMD, dot product", 2, 12, movement(tape, size=1)["bytedmd"])
    for n, published in ((4, 1316), (16, 340_704)):
        # A, B, C and one more number follow each other; C is summed in place and read
        # once more in the end.
        reads = np.repeat([n, n, n, n * n * (n - 1)], [n * n, n * n, n * n, 1])
        note("addresses, matrix by matrix", n, published,
             reads @ price(np.arange(1, len(reads) + 1), size=1))
    return found
