"""The headline: its nets, and what is concluded from them."""

import highway_networks as hn
from experiments import headline


def test_a_trial_is_the_commands_net(digits):
    net = headline.Net("highway", 3, "uniform", 5e-3)
    config = headline.make_config(headline.PLAN | headline.SMOKE, net) | {"seed": 1}
    found = headline.train_net(config, digits)
    settings = hn.Config(**config)
    data = hn.scale_pixels(hn.take_subset(digits, settings))
    history, layer_T, _ = hn.train(hn.make_net(settings, data), data, settings)
    assert found["train_loss"] == history["train_loss"]
    assert found["test_acc"] == history["test_acc"]
    assert found["T"] == layer_T[-1].tolist()
