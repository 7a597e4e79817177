"""What a computation moves, by two models of the cost of a read, from its own trace.

Both models charge for the bytes that are read; writes and arithmetic are free. Every
number has four bytes.

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
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from experiments.data_movement.tracing import SUM, TERM, Each, Product, Tape

MODELS = ("bytedmd", "address")


def price(depth: Any, size: int = 4) -> np.ndarray:
    """Cost of reading numbers of `size` bytes at these depths or addresses, from 1."""
    last = size * np.asarray(depth, np.int64)
    return np.sum([np.ceil(np.sqrt(last - byte)) for byte in range(size)],
                  axis=0).astype(np.int64)


def overtakers(order: np.ndarray) -> np.ndarray:
    """A permutation of 0, 1, 2, ... -> for each of its values, how many larger ones
    stand before it."""
    n = len(order)
    values, counts = order.astype(np.int32), np.zeros(n, np.int32)
    for bit in reversed(range(max(n - 1, 0).bit_length())):
        # The values are sorted by the higher bits. Those that share them are a group,
        # of `half` with a 0 here and then as many with a 1; the last may have less.
        half = np.int32(1 << bit)
        is_high = values & half != 0
        start = values & -2 * half                      # place of the group's first
        high = np.cumsum(is_high, dtype=np.int32) - is_high
        high -= high[start]                             # before it, in its group
        counts += np.where(is_high, 0, high)
        place = np.where(is_high, start + half + high,
                         np.arange(n, dtype=np.int32) - high)
        values[place], counts[place] = values.copy(), counts.copy()
    return counts


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
    return reads, since - overtakers(rank[ending])[rank[own]] + trace.above[reads]


# --------------------------------------------------------------------------------------
# From steps to accesses


def join(traces: Iterable[Trace]) -> Trace:
    """One after the other."""
    return Trace(*(np.concatenate(field) for field in zip(*traces, strict=True)))


def placed(cells: np.ndarray) -> Trace:
    """Cells that are there from the beginning, the first at the bottom."""
    flags, none = np.ones(len(cells), bool), np.zeros(len(cells), np.int8)
    return Trace(cells.astype(np.int32), flags, flags, none, none)


def each_trace(step: Each) -> Trace:
    """The accesses of a step on elements. One that meets itself is read once, at double
    price."""
    cell = np.stack([*step.operands, step.out], axis=1)
    write, first, used = np.zeros(cell.shape, bool), np.zeros(cell.shape, bool), (
        np.ones(cell.shape, bool))
    write[:, -1] = first[:, 0] = True
    weight = (~write).astype(np.int8)
    if len(step.operands) == 2:
        twice = cell[:, 0] == cell[:, 1]
        weight[twice, 0], used[twice, 1] = 2, False
    return Trace(cell[used], write[used], first[used], weight[used],
                 np.zeros(np.count_nonzero(used), np.int8))


def product_order(I: int, J: int, K: int, whole: bool) -> Trace:
    """The accesses of a product of (I, K) by (K, J); their cells are counted through a,
    b and out laid end to end. whole: all of them, and the first read of a cell is free;
    else the first and the last of each cell, and only the first is charged."""
    i, j, k = np.meshgrid(*(np.arange(size, dtype=np.int32) for size in (I, J, K)),
                          indexing="ij")
    place = np.stack([i * K + k, I * K + k * J + j, I * K + K * J + i * J + j], axis=-1)
    write = np.broadcast_to([False, False, True], place.shape)
    fresh = np.stack([j == 0, i == 0, k < 0], axis=-1)
    used = np.stack([(j == 0) | (j == J - 1) | whole, (i == 0) | (i == I - 1) | whole,
                     k == K - 1], axis=-1)
    number = np.broadcast_to(np.arange(I * J * K).reshape(I, J, K, 1), place.shape)
    above = np.broadcast_to((k > 0)[..., None], place.shape)        # s
    return Trace(place[used], write[used], np.diff(number[used], prepend=-1) > 0,
                 (~write & (fresh != whole))[used].astype(np.int8),
                 above[used].astype(np.int8))


# Of the first and the last accesses, which are few.
product_edges = functools.lru_cache(256)(functools.partial(product_order, whole=False))


def product_trace(step: Product) -> Trace:
    """The first and the last accesses of every cell of a product."""
    cells = np.concatenate([step.a.ravel(), step.b.ravel(), step.out.ravel()])
    edges = product_edges(*step.sizes)
    return edges._replace(cell=cells[edges.cell])


@functools.lru_cache(maxsize=1024)
def inside_product(I: int, J: int, K: int, kept: bytes) -> np.ndarray:
    """How many reads of each depth (depths,) a product makes of its own values: a and b
    again, s and the products a b. kept: bytes, 0 or 1 for each cell of a, b, out laid
    end to end: whether its value outlives the product."""
    trace = join([placed(np.arange(I * K + K * J)), product_order(I, J, K, whole=True)])
    stay, before = stays(trace, np.frombuffer(kept, bool))
    reads, depth = stack_depths(trace, stay, before)
    # s = s + a b: the product is on top, then a and b if they stay, then s.
    stay = stay[reads]
    under = (2 + stay[::2] + stay[1::2]).reshape(I, J, K)[:, :, 1:].ravel()
    return add([np.bincount(depth, trace.weight[reads]), np.bincount(under),
                np.array([0, under.size])])


# --------------------------------------------------------------------------------------
# From accesses to costs


def add(counts: Sequence[np.ndarray]) -> np.ndarray:
    """Histograms of any lengths -> their sum."""
    total = np.zeros(max(map(len, counts)), np.int64)
    for count in counts:
        total[:len(count)] += count.astype(np.int64)
    return total


def loads(tape: Tape, trace: Trace) -> tuple[Trace, np.ndarray]:
    """Cells as they lie on the stack at first: those that are read before anything is
    written there are constants of the code, which lie lowest and are kept."""
    is_read = np.zeros(tape.cells, bool)        # first: the last assignment stays
    is_read[trace.cell[::-1]] = ~trace.write[::-1]
    known = np.concatenate([np.zeros(0, np.int32), *tape.begin])
    is_read[known] = False
    constants = np.flatnonzero(is_read)
    kept = np.zeros(tape.cells, bool)
    kept[np.concatenate([constants, *tape.kept])] = True
    return placed(np.concatenate([constants, known])), kept


def depth_counts(tape: Tape) -> np.ndarray:
    """-> how many elements are read at each depth, (depths,)."""
    pieces = [(each_trace if isinstance(step, Each) else product_trace)(step)
              for step in tape.steps]
    trace = join(pieces)
    load, kept = loads(tape, trace)
    trace = join([load, trace])
    stay, before = stays(trace, kept)
    reads, depth = stack_depths(trace, stay, before)
    counts, end = [np.bincount(depth, trace.weight[reads])], len(load.cell)
    for step, piece in zip(tape.steps, pieces, strict=True):
        start, end = end, end + len(piece.cell)
        if isinstance(step, Product):
            last = np.zeros(step.a.size + step.b.size + step.out.size, bool)
            # Of a cell's accesses the last counts.
            last[product_edges(*step.sizes).cell] = stay[start:end]
            counts.append(inside_product(*step.sizes, last.tobytes()))
    return add(counts)


def read_counts(tape: Tape) -> np.ndarray:
    """How often each cell is read, (cells,)."""
    counts = np.zeros(tape.cells, np.int64)
    for step in tape.steps:
        if isinstance(step, Each):
            for cells in step.operands:
                np.add.at(counts, cells, 1)
        else:
            I, J, K = step.sizes
            counts[step.a.ravel()] += J
            counts[step.b.ravel()] += I
            counts[[SUM, TERM]] += I * J * (K - 1)
    return counts


def movement(tape: Tape, size: int = 4) -> dict[str, int]:
    """The cost by each model, where numbers have `size` bytes."""
    depths, reads = depth_counts(tape)[1:], np.sort(read_counts(tape))[::-1]
    return {"bytedmd": int(depths @ price(np.arange(1, len(depths) + 1), size)),
            "address": int(reads @ price(np.arange(1, len(reads) + 1), size))}
