"""The headline: its nets, and what is concluded from them."""

import pytest

import highway_networks as hn
from experiments import headline
from highway_suite.gradients import WrongGradient, small_batch, small_net
from tests.contracts import check_gradient


@pytest.mark.parametrize("depth", [1, 9])
def test_the_scaled_residual_block_is_under_the_contract(depth, seed):
    """Its gradient against the complex step; without its scale it is wrong."""
    with headline.added_blocks(depth):
        check_gradient(small_net("scaled_residual", depth, seed=seed),
                       *small_batch(seed), seed=seed)
        right = hn.BLOCKS["scaled_residual"]
        hn.BLOCKS["scaled_residual"] = right._replace(
            backward=hn.BLOCKS["residual"].backward)
        if depth > 1:
            with pytest.raises(WrongGradient):
                check_gradient(small_net("scaled_residual", depth, seed=seed),
                               *small_batch(seed), seed=seed)
    assert "scaled_residual" not in hn.BLOCKS


def test_a_trial_is_the_commands_net(digits):
    net = headline.Net("highway", 3, "uniform", 5e-3)
    config = headline.make_config(headline.PLAN | headline.SMOKE, net, 1)
    found = headline.train_net(config, digits)
    settings = hn.Config(**config)
    data = hn.scale_pixels(hn.take_subset(digits, settings))
    history, layer_T, _ = hn.train(hn.make_net(settings, data), data, settings)
    assert found["train_loss"] == history["train_loss"]
    assert found["test_acc"] == history["test_acc"]
    assert found["T"] == layer_T[-1].tolist()
