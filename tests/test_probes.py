"""Probes of trained nets: right for any number of images, exact in what they hold."""

import numpy as np
import pytest

import highway_networks as hn
from experiments.nets import probes
from tests.contracts import frozen
from tests.contracts import probed_net as small_net


@pytest.mark.parametrize("size", [7, 500])      # of 40; no divisor, and more
def test_what_is_measured_does_not_depend_on_the_batches(size, images):
    net, (x, labels) = small_net(), images
    logits, _ = net.forward(x.T, closed=[1])
    loss, error = probes.loss_and_error(net, x, labels, [1], size)
    assert loss == pytest.approx(hn.cross_entropy(logits, labels)[0])
    assert error == np.mean(logits.argmax(axis=0) != labels)
    cache = net.forward(x.T)[1]
    y = cache.x[:, :5].astype(float)
    np.testing.assert_allclose(probes.mean_gates(net, x, size), cache.T.mean(axis=2))
    np.testing.assert_allclose(probes.mean_change(net, x, size),
                               (np.diff(y, axis=0) ** 2).mean(axis=(1, 2)))


@pytest.mark.parametrize("block", ["highway", "residual", "plain"])
def test_the_first_blocks_alone_are_the_net_with_all_others_closed(block, images):
    net, (x, labels) = small_net(block), images
    assert probes.prefix(net, x, labels, 7) == pytest.approx([
        probes.loss_and_error(net, x, labels, range(k, net.depth))[0]
        for k in range(net.depth + 1)], rel=1e-12)


def test_reordered_runs_the_blocks_in_that_order(images):
    """One block open at a time: the twin's block l does what block order[l] did."""
    net, (x, _) = small_net(), images
    before, order = net.params.copy(), np.array([2, 0, 3, 1])
    twin = probes.reordered(net, order)
    assert np.array_equal(net.params, before)
    for l in range(4):
        shut = [i for i in range(4) if i != l], [i for i in range(4) if i != order[l]]
        assert np.array_equal(twin.forward(x.T, closed=shut[0])[0],
                              net.forward(x.T, closed=shut[1])[0])


def depth_of(net, x):
    tried = probes.stages_of(net.depth)
    kept, _ = probes.kept_in_stages(net, x, np.zeros(len(x), int), tried)
    return probes.sequential_depth(dict(zip(tried, kept, strict=True)))


@pytest.mark.parametrize("block", hn.BLOCKS)
def test_as_many_stages_as_blocks_are_the_net_itself(block, images):
    net, (x, labels) = small_net(block), images
    logits = net.forward(x.T)[0].copy()
    assert np.array_equal(probes.in_stages(net, net.forward(x.T)[1], 4), logits)
    assert not np.allclose(probes.in_stages(net, net.forward(x.T)[1], 3), logits)
    _, error = probes.loss_and_error(net, x, labels)
    for size in (7, 500):
        kept, right = probes.kept_in_stages(net, x, labels, [2, 4], size)
        assert kept[1] == 1 and right[1] == pytest.approx(1 - error)
        assert kept[0] == np.mean(logits.argmax(axis=0) == probes.in_stages(
            net, net.forward(x.T)[1], 2).argmax(axis=0))


def test_identical_blocks_in_a_stage_are_one_block_that_opens_further(images):
    """L steps from x towards the same H: y = H + (1 - T)^L (x - H)."""
    net, (x, _) = small_net(), images
    blocks = net.tensors(net.params)["blocks"]
    blocks[...] = blocks[0]
    cache = net.forward(x.T)[1]
    (H, T), first = cache.layers[0].rows, cache.layers[0].x
    y = H + (1 - T) ** 4 * (first - H)
    weights = net.views(net.params)
    expected = weights["W_out"] @ y + weights["b_out"][:, None]
    np.testing.assert_allclose(probes.in_stages(net, cache, 1), expected)


def test_one_useful_block_among_closed_ones_is_one_stage(images):
    net, (x, _) = small_net(depth=9), images
    for useful in (0, 4, 8):
        twin = frozen(net, {l: 0 for l in range(9) if l != useful})
        assert depth_of(twin, x) == 1


@pytest.mark.parametrize("k, every", [(1, 1), (2, 1), (6, 1), (11, 1), (6, 3), (10, 2)])
def test_blocks_that_must_follow_each_other_are_counted(k, every):
    """A net that hands a pattern on to the next unit, k times: each of its `every`-th
    blocks does, the others are closed."""
    units = 12
    net = hn.DeepNet("highway", k * every, units, inputs=units, classes=units,
                     activation="relu", dtype="float64")
    net.params[...] = 0
    parts = net.views(net.params)
    parts["W_in"][...] = parts["W_out"][...] = np.eye(units)
    parts["W_H"][...] = np.roll(np.eye(units), 1, axis=0)
    moves = np.arange(net.depth) % every == 0
    net = frozen(net, dict(enumerate(moves)))
    x = np.eye(units)
    assert np.array_equal(net.predict(x), (np.arange(units) + k) % units)
    assert depth_of(net, x) == k


def test_a_larger_number_of_stages_must_keep_the_answers_too():
    kept = {1: 0.96, 2: 0.9, 4: 0.95, 7: 0.94, 10: 0.97, 12: 1.0}
    assert probes.sequential_depth(kept) == 10
    assert probes.sequential_depth(kept, 0.9) == 1
    assert probes.sequential_depth(kept, 0.99) == 12
