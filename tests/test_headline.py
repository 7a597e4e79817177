"""The headline: its nets, and what is concluded from them."""

from test_training import trained

import highway_networks as hn
from experiments import headline


def test_a_trial_is_the_commands_net(digits):
    net = headline.Net("highway", 3, "uniform", 5e-3)
    config = headline.make_config(headline.PLAN | headline.SMOKE, net) | {"seed": 1}
    found = headline.train_net(config, digits)
    history, layer_T, _ = trained(digits, hn.Config(**config))
    assert found["train_loss"] == history["train_loss"]
    assert found["test_acc"] == history["test_acc"]
    assert found["T"] == layer_T[-1].tolist()
