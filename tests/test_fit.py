"""The training loop of every net: what it asks, keeps, reports and survives."""

import math

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

import highway_networks as hn


class Valley:
    """A net of one weight: the loss of a batch t is (w - t)^2 / 2. `wrong` replaces
    what a step finds, by its number: {7: {"train_loss": nan}}."""

    def __init__(self, start=0.0, dtype="float64", wrong=None):
        self.params = np.full(1, start, dtype)
        self.wrong, self.seen, self.sizes = wrong or {}, [], []
        self.weights = []       # before each step

    def cache(self, size):
        self.sizes.append(size)
        return "cache"

    def gradient(self, batch, cache):
        assert cache == "cache"
        self.seen.append(batch)
        self.weights.append(self.params[0])
        found = {"train_loss": 0.5 * (self.params[0] - batch) ** 2, "other": batch,
                 "grad": self.params[0] - batch} | self.wrong.get(len(self.seen), {})
        return found, np.array([found.pop("grad")], self.params.dtype)


class Targets:
    """Three batches an epoch, the numbers 0, 1 and 2 in random order."""

    size = 3

    def __init__(self, seed=0):
        self.streams = {"batches": np.random.default_rng(seed)}

    def __iter__(self):
        yield from self.streams["batches"].permutation(3).astype(float)


def constant(epoch, history):
    return 0.1


def test_a_row_holds_the_means_over_the_steps_of_its_epoch():
    net, batches, w = Valley(5.0), Targets(), 5.0
    history, status = hn.fit(net, batches, hn.SGD(net.params, 0.0), constant, epochs=2)
    assert status == "ok" and net.sizes == [3] and len(net.seen) == 6
    for row, targets in zip(history, (net.seen[:3], net.seen[3:]), strict=True):
        losses, norms = [], []
        for target in targets:
            losses.append(0.5 * (w - target) ** 2)
            norms.append(abs(w - target))
            w -= 0.1 * (w - target)
        assert sorted(targets) == [0, 1, 2]
        assert row == {"epoch": row["epoch"], "other": 1.0,
                       "train_loss": hn.significant(np.mean(losses)),
                       "grad_norm": hn.significant(np.mean(norms))}
    assert net.params[0] == pytest.approx(w) and [r["epoch"] for r in history] == [1, 2]


@pytest.mark.parametrize("wrong", [
    {"train_loss": math.nan}, {"train_loss": math.inf}, {"other": math.nan},
    {"grad": math.nan}, {"grad": math.inf}, {"grad": 1e200}],
    ids=str)
def test_a_step_that_is_not_finite_ends_the_run_and_leaves_the_weights(wrong):
    """Finite or not, a gradient whose norm overflows is no gradient."""
    net, reported = Valley(5.0, wrong={5: wrong}), []
    history, status = hn.fit(net, Targets(), hn.SGD(net.params, 0.9), constant,
                             reported.append, epochs=4, clip=1.0)
    assert status == "diverged" and len(net.seen) == 5
    assert [row["epoch"] for row in history] == [1] and reported == history
    assert net.params[0] == net.weights[-1] != net.weights[-2]


def blas():
    return {library["num_threads"] for library in threadpool_info()
            if library["user_api"] == "blas"}


@pytest.mark.skipif(not blas(), reason="a BLAS that threadpoolctl does not know")
def test_a_training_has_one_thread_unless_asked_and_what_was_comes_back():
    found = []
    with threadpool_limits(2, "blas"):
        for more in ({}, {"threads": 2}):
            net = Valley()
            hn.fit(net, Targets(), hn.SGD(net.params, 0.0), constant, epochs=1,
                   measure=lambda *_: found.append(blas()) or {}, **more)
            assert blas() == {2}
    assert found == [{1}, {2}]
