"""The cost models against their definitions, and what a skipping net leaves alone."""

import numpy as np
import pytest

import highway_networks as hn
from experiments.data_movement import tracing, trials
from experiments.data_movement.costs import movement


def traced(*shapes):
    """A tape, and the cells of arrays of these shapes, the first on top of the stack.
    """
    tape = tracing.Tape()
    arrays = [tape.cells_of(np.empty(shape)) for shape in shapes]
    tape.begin = [cells.ravel() for cells in arrays[::-1]]
    return tape, *arrays


@pytest.mark.parametrize("n, matvec, vecmat, matmul", [
    (2, 26, 25, 57), (4, 157, 150, 720), (16, 5354, 4688, 109_783)])
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
    start, traced, net = (hn.DeepNet("highway", 2, 3, inputs=5, classes=3)
                          for _ in range(3))
    tape = tracing.trace_pass(traced, x, labels, optimizer(traced.params))
    hn.train_step(net, (x.T, labels), net.cache(4), optimizer(net.params), 1e-3, 0.0)
    assert len(tape.steps) > 40
    assert np.array_equal(traced.params, net.params)
    assert not np.array_equal(net.params, start.params)


# Skipping


def trained_like(rng):
    net = hn.DeepNet("highway", 4, 6, inputs=5, classes=3, gate_bias=0.0)
    net.params += rng.normal(0, 0.5, net.params.size).astype("float32")
    return net, rng.uniform(-1, 1, (5, 7)).astype("float32")


def test_a_skipping_net_is_the_net_where_nothing_is_skipped(rng):
    net, x = trained_like(rng)
    whole, _ = net.forward(x)
    logits, used = trials.skip(net, x, -1.0)
    assert used.all() and np.allclose(logits, whole, atol=1e-5)
    shut, used = trials.skip(net, x, 2.0)     # no T is as large: every x is carried
    assert not used.any()
    assert np.allclose(shut, net.forward(x, closed=range(4))[0], atol=1e-5)
    half, used = trials.skip(net, x, float(np.median(net.gates(x.T))))
    assert 0 < used.mean() < 1 and not np.allclose(half, whole, atol=1e-3)
