"""Probes of trained nets: right for any number of images, exact in what they hold."""

import numpy as np
import pytest

import highway_networks as hn
from experiments.nets import probes
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
