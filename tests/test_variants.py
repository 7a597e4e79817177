"""Tied weights, other starts, and what is said of them."""

import numpy as np
import pytest
from test_training import trained

import highway_networks as hn
from experiments import variants


def small(block="highway"):
    return hn.DeepNet(block, 3, 4, inputs=5, classes=3, init="glorot", gate_bias=-1.0,
                      dtype="float64")


@pytest.mark.parametrize("tie", variants.TIES)
def test_the_gradient_of_tied_weights(tie, rng):
    """Central differences along 40 weights; ties leave fewer of them."""
    block, ties = variants.TIES[tie]
    net = variants.Tied(small(block), ties)
    batch = rng.normal(size=(5, 7)), rng.integers(3, size=7)
    cache = net.cache(7)
    grad = net.gradient(batch, cache)[1].copy()
    chosen = rng.permutation(len(net.params))[:40]

    def loss(place, step):
        before = net.params[place]
        net.params[place] = before + step
        found = net.gradient(batch, cache)[0]["train_loss"]
        net.params[place] = before
        return found
    slopes = [(loss(at, 1e-6) - loss(at, -1e-6)) / 2e-6 for at in chosen]
    np.testing.assert_allclose(grad[chosen], slopes, rtol=1e-5, atol=1e-8)
    whole = net.net.params.size
    assert (len(net.params) < whole) == bool(ties)


def test_without_ties_it_is_the_same_training(digits):
    config = next(config for key, config in variants.configs(
        variants.PLAN | variants.SMOKE).items() if key[0] == "highway")
    found = variants.train(config, digits)
    settings = hn.Config(init="glorot", n_test=len(digits.x_test), **{
        name: value for name, value in config.items()
        if name not in ("start", "ties")})
    history, _, _ = trained(digits, settings)
    assert found["train_loss"] == pytest.approx(history["train_loss"], rel=1e-6)
    assert found["test_acc"] == pytest.approx(history["test_acc"][-1], abs=2e-3)
