"""The cost models against their definitions, and what a skipping net leaves alone."""

import itertools
import math

import numpy as np
import pytest

import highway_networks as hn
from experiments.data_movement import costs, passes, skipping, tracing
from experiments.data_movement.costs import movement

# Independent oracles: a stack that is a list, and what the models' authors published


def scalar_program(tape):
    """Every instruction of a tape on single numbers: (cells read, cell written). The
    sums and products of a matrix product are values of their own."""
    fresh = itertools.count(-1, -1)
    for step in tape.steps:
        if isinstance(step, tracing.Each):
            for reads in zip(step.out, *step.operands, strict=True):
                yield [int(cell) for cell in reads[1:]], int(reads[0])
            continue
        (rows, inner), columns = step.a.shape, step.b.shape[1]
        for i, j in itertools.product(range(rows), range(columns)):
            total = next(fresh) if inner > 1 else int(step.out[i, j])
            yield [int(step.a[i, 0]), int(step.b[0, j])], total
            for k in range(1, inner):
                product, before = next(fresh), total
                total = next(fresh) if k < inner - 1 else int(step.out[i, j])
                yield [int(step.a[i, k]), int(step.b[k, j])], product
                yield [before, product], total


def by_the_book(tape):
    """ByteDMD with a stack that is a list, value by value, byte by byte."""
    program, versions, last = list(scalar_program(tape)), {}, {}
    known = [int(cell) for cells in tape.begin for cell in cells]
    written = set(known)
    constants = set()
    for reads, cell in program:
        constants |= {read for read in reads if read not in written}
        written.add(cell)
    named = []
    for time, (reads, cell) in enumerate(program):
        values = [(read, versions.get(read, 0)) for read in reads]
        last.update(dict.fromkeys(values, time))
        versions[cell] = versions.get(cell, 0) + 1
        named.append((values, (cell, versions[cell])))
    for cell in constants | {int(cell) for cells in tape.kept for cell in cells}:
        last[cell, versions.get(cell, 0)] = math.inf
    stack = [(cell, 0) for cell in [*sorted(constants), *known] if (cell, 0) in last]
    cost = 0
    for time, (reads, result) in enumerate(named):
        for value in reads:
            depth = len(stack) - stack.index(value)
            cost += sum(math.isqrt(4 * depth - byte - 1) + 1 for byte in range(4))
        for value in dict.fromkeys(reads):
            stack.remove(value)
            stack.append(value)
        stack = [value for value in [*stack, result] if last.get(value, -1) > time]
    return cost


def small_net(block="highway", activation="tanh", **more):
    return hn.DeepNet(block, 2, 3, inputs=5, classes=3, activation=activation, **more)


@pytest.mark.parametrize("block", hn.BLOCKS)
def test_stack_distances_are_those_of_a_stack(block):
    for name, (batch, activation) in itertools.product(
            passes.PASSES, ((1, "relu"), (3, "tanh"))):
        tape = passes.trace(small_net(block, activation), name, batch)
        assert movement(tape)["bytedmd"] == by_the_book(tape)


def traced(*shapes):
    """A tape, and the cells of arrays of these shapes, the first on top of the stack.
    """
    tape = tracing.Tape()
    arrays = [tape.cells_of(np.empty(shape)) for shape in shapes]
    tape.begin = [cells.ravel() for cells in arrays[::-1]]
    return tape, *arrays


@pytest.mark.parametrize("n, matvec, vecmat, matmul", [
    (2, 26, 25, 57), (4, 157, 150, 720), (8, 896, 832, 8867),
    (16, 5354, 4688, 109_783)])
def test_the_published_numbers_of_bytedmd(n, matvec, vecmat, matmul):
    """Those of its README, of one byte a number."""
    for published, shapes, order in ((matvec, ((n, n), (n, 1)), 1),
                                     (vecmat, ((n, n), (1, n)), -1),
                                     (matmul, ((n, n), (n, n)), 1)):
        tape, *arrays = traced(*shapes)
        a, b = arrays[::order]
        out = tape.cells_of(np.empty((len(a), b.shape[1])))
        tape.product(out, a, b)
        tape.kept = [out.ravel()]
        assert movement(tape, size=1)["bytedmd"] == published


@pytest.mark.parametrize("steps, published", [
    (["aab", "ccd", "aac", "aae", "aa"], 15), (["cab", "cc"], 5)],
    ids=["(a b + c d) + e in place, then its exit", "a b alone"])
def test_the_published_numbers_of_addresses(steps, published):
    """Five cells, of which a's and c's are read again."""
    tape = tracing.Tape()
    cells = dict(zip("abcde", tape.cells_of(np.empty((5, 1))), strict=True))
    for out, *operands in steps:
        tape.each(cells[out], *(cells[name] for name in operands))
    assert movement(tape, size=1)["address"] == published


# The trace


@pytest.mark.parametrize("optimizer", [hn.Adam, lambda params: hn.SGD(params, 0.9)],
                         ids=["Adam", "SGD"])
def test_tracing_changes_no_number(optimizer, rng):
    x, labels = rng.normal(size=(4, 5)).astype("float32"), rng.integers(3, size=4)
    traced, net = small_net(), small_net()
    tape = tracing.trace_pass(traced, x, labels, optimizer(traced.params))
    hn.train_step(net, (x.T, labels), net.cache(4), optimizer(net.params), 1e-3, 0.0)
    assert len(tape.steps) > 40
    assert np.array_equal(traced.params, net.params)
    assert not np.array_equal(net.params, small_net().params)


@pytest.mark.parametrize("block", hn.BLOCKS)
def test_shapes_alone_decide_what_a_pass_moves(block, rng):
    """Whatever weights and images are: no seed plays a part. Which logit a label picks
    is a place in memory, and moves the last digits of a step."""
    forward, step = (movement(passes.trace(small_net(block), name, 2))["bytedmd"]
                     for name in passes.PASSES)
    for seed, scale in ((0, 100), (1, 0.01), (2, 1)):   # of the gradient, too
        net = small_net(block, seed=seed)
        net.params *= scale
        x = scale * rng.normal(size=(2, 5)).astype("float32")
        assert movement(tracing.trace_pass(net, x))["bytedmd"] == forward
        for labels in (np.zeros(2, np.intp), np.array([1, 2])):
            tape = tracing.trace_pass(net, x, labels, hn.Adam(net.params))
            assert movement(tape)["bytedmd"] == pytest.approx(
                step, rel=1e-3 * labels.any())
    assert movement(passes.trace(small_net(block), "step", 3))["bytedmd"] != step


# Skipping


def trained_like(rng):
    net = hn.DeepNet("highway", 4, 6, inputs=5, classes=3, gate_bias=0.0)
    net.params += rng.normal(0, 0.5, net.params.size).astype("float32")
    return net, rng.uniform(-1, 1, (5, 7)).astype("float32")


def test_a_skipping_net_is_the_net_where_nothing_is_skipped(rng):
    net, x = trained_like(rng)
    whole, _ = net.forward(x)
    logits, used = skipping.skip(net, x, -1.0)
    assert used.all() and np.allclose(logits, whole, atol=1e-5)
    shut, used = skipping.skip(net, x, 2.0)     # no T is as large: every x is carried
    assert not used.any()
    assert np.allclose(shut, net.forward(x, closed=range(4))[0], atol=1e-5)
    half, used = skipping.skip(net, x, float(np.median(net.gates(x.T))))
    assert 0 < used.mean() < 1 and not np.allclose(half, whole, atol=1e-3)


def test_fewer_open_gates_move_less(rng):
    net, _ = trained_like(rng)
    found = []
    for open_gates in (6, 3, 0):
        opened = np.zeros((2, 4, 6), bool)
        opened[..., :open_gates] = True
        tape = tracing.trace_skipping(net, opened)
        found.append(movement(tape))
        assert found[-1]["bytedmd"] == by_the_book(tape)
    for model in costs.MODELS:
        assert found[0][model] > found[1][model] > found[2][model]
