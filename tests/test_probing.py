"""Probes of trained nets: right for any number of images, exact in what they hold."""

import numpy as np
import pytest

import highway_networks as hn
from experiments import probing
from tests.contracts import frozen
from tests.contracts import probed_net as small_net

BLOCKS = ("highway", "residual", "plain")


@pytest.mark.parametrize("size", [7, 500])      # of 40; no divisor, and more
def test_what_is_measured_does_not_depend_on_the_batches(size, images):
    """Every probe against one pass over all images."""
    net, (x, labels) = small_net(), images
    logits, cache = net.forward(x.T, closed=[1])
    loss, error = probing.loss_and_error(net, x, labels, [1], size)
    assert loss == pytest.approx(hn.cross_entropy(logits, labels)[0])
    assert error == np.mean(logits.argmax(axis=0) != labels)

    T, y = (np.moveaxis(found, 0, 2) for found in
            (net.gates(x), net.block_outputs(x)))
    np.testing.assert_allclose(probing.mean_gates(net, x, size), T.mean(axis=2))
    np.testing.assert_allclose(probing.mean_change(net, x, size),
                               ((y[1:] - y[:-1]) ** 2).mean(axis=(1, 2)))

    off = y - y[-1]
    mean, std, A_std = off.mean(axis=2), off.std(axis=2), y[-1].std(axis=1).mean()
    found = probing.estimation_error(net, x, size)
    assert found.A_std == pytest.approx(A_std)
    np.testing.assert_allclose(found.mean, mean.mean(axis=1) / A_std, atol=1e-12)
    np.testing.assert_allclose(found.std, std.mean(axis=1) / A_std, atol=1e-7)
    share = (mean ** 2).sum(axis=1) / (off ** 2).mean(axis=2).sum(axis=1).clip(1e-9)
    np.testing.assert_allclose(found.bias_share, share[:-1])


@pytest.mark.parametrize("block", BLOCKS)
def test_the_first_layers_alone_are_the_net_with_all_others_closed(block, images):
    net, (x, labels) = small_net(block), images
    loss, error = probing.prefix(net, x, labels, 7)
    assert len(loss) == len(error) == net.depth + 1
    for k in range(net.depth + 1):
        assert (loss[k], error[k]) == pytest.approx(
            probing.loss_and_error(net, x, labels, range(k, net.depth)), rel=1e-12)


def test_reordered_runs_the_layers_in_that_order(images):
    """One layer open at a time: the twin's layer l does what layer order[l] did."""
    net, (x, _) = small_net(), images
    before, order = net.params.copy(), np.array([2, 0, 3, 1])
    twin = probing.reordered(net, order)
    assert np.array_equal(net.params, before)
    for l in range(4):
        shut = [i for i in range(4) if i != l], [i for i in range(4) if i != order[l]]
        assert np.array_equal(twin.forward(x.T, closed=shut[0])[0],
                              net.forward(x.T, closed=shut[1])[0])


def test_nearby_order_moves_no_layer_further_than_allowed(rng):
    furthest = {}
    for distance in (0, 1, 3, 8):
        orders = [probing.nearby_order(20, distance, rng) for _ in range(300)]
        assert all(sorted(order) == list(range(20)) for order in orders)
        furthest[distance] = np.abs(np.array(orders) - np.arange(20)).max()
    assert 3 < furthest.pop(8) <= 8
    assert furthest == {0: 0, 1: 1, 3: 3}


def test_frozen_gates_have_their_values_and_no_others(images, rng):
    """Held layers show the same T for every image; what follows is computed with it."""
    net = hn.DeepNet("full", 4, 5, inputs=6, classes=3, init="glorot")
    x, before = images[0], net.params.copy()
    values = {1: rng.uniform(size=5), 3: 0.25}
    twin = frozen(net, values)
    assert np.array_equal(net.params, before)
    T, free = (np.moveaxis(of.gates(x), 0, 2) for of in (twin, net))
    for layer, value in values.items():
        expected = np.broadcast_to(np.asarray(value)[..., None], T[layer].shape)
        np.testing.assert_allclose(T[layer], expected, rtol=0, atol=2e-7)
    assert np.array_equal(T[0], free[0])
    weights, y = net.views(net.params), net.block_outputs(x)[:, 1].T.astype(float)
    H, C = (weights["W_" + gate][1] @ y + weights["b_" + gate][1][:, None]
            for gate in "HC")
    expected = np.tanh(H) * values[1][:, None] + y / (1 + np.exp(-C))
    np.testing.assert_allclose(twin.block_outputs(x)[:, 2].T, expected, atol=1e-5)


def test_frozen_gates_are_closed_at_0_plain_at_1_and_lost_nothing_if_constant(images):
    net, (x, labels) = small_net(), images
    shut = frozen(net, dict.fromkeys(range(1, 4), 0))
    assert np.array_equal(shut.forward(x.T)[0], net.forward(x.T, closed=[1, 2, 3])[0])
    plain = hn.DeepNet("plain", 4, 5, inputs=6, classes=3, dtype="float64")
    for name, weights in plain.views(plain.params).items():
        weights[...] = net.views(net.params)[name]
    twin = frozen(net, dict.fromkeys(range(4), 1.0))
    assert (twin.gates(x) == 1).all()
    np.testing.assert_allclose(twin.forward(x.T)[0], plain.forward(x.T)[0], atol=1e-12)
    net.views(net.params)["W_T"][...] = 0
    held = frozen(net, dict(enumerate(probing.mean_gates(net, x))))
    assert probing.loss_and_error(held, x, labels) == pytest.approx(
        probing.loss_and_error(net, x, labels))


@pytest.mark.parametrize("block", ["highway", "t_only", "full"])
def test_layers_that_are_given_their_own_T_change_nothing(block, images):
    net, (x, labels) = small_net(block), images
    found = probing.rerouted(net, x, labels, {
        "own": (range(4), lambda rows, T: T), "none": ((), lambda rows, T: None)}, 16)
    whole = probing.loss_and_error(net, x, labels, size=16)
    assert found == {"own": whole, "none": whole}


def test_given_T_are_those_of_frozen_gates(images, rng):
    net, (x, labels) = small_net("highway"), images
    held = rng.uniform(0.1, 0.9, (4, 5))
    found = probing.rerouted(net, x, labels, {
        "held": ([1, 2], lambda rows, T: held[..., None]),
        "shut": ([3], lambda rows, T: np.zeros_like(T))}, 16)
    twin = frozen(net, {1: held[1], 2: held[2]})
    assert found["held"] == pytest.approx(probing.loss_and_error(twin, x, labels))
    assert found["shut"] == pytest.approx(
        probing.loss_and_error(net, x, labels, closed=[3]))
    assert found["held"][0] != pytest.approx(
        probing.loss_and_error(net, x, labels)[0], rel=1e-6)


def test_optimal_mixing_has_the_least_variance(images):
    net, (x, _) = small_net("highway"), images
    best = probing.optimal_mixing(net, x, 16)
    cache = net.forward(x.T)[1]
    a, H = cache.x[:, :5].astype(float), np.array([layer.rows[0]
                                                   for layer in cache.layers], float)

    def spread(T):
        return (a[:-1] + T[..., None] * (H - a[:-1]) - a[-1]).var(axis=2)
    for other in (best + 0.01, best - 0.01):
        assert (spread(best) < spread(other)).all()


def test_steps_and_stripes(images):
    net, (x, _) = small_net("residual"), images
    a = np.moveaxis(net.block_outputs(x), 0, 2).astype(float)
    steps = np.diff(a, axis=0)
    share = ((steps.mean(axis=2) ** 2).sum(axis=1)
             / (steps ** 2).mean(axis=2).sum(axis=1))
    np.testing.assert_allclose(probing.bias_of_steps(net, x, 16), share)
    moved = np.abs(a[3:] - a[:-3])
    assert probing.still(net, x, 3, [0.3, 1.0], 16) == pytest.approx(
        [(moved < 0.3).mean(), (moved < 1.0).mean()])
