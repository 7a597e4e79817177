"""The search of Figure 1: its settings, its rungs, its verdicts."""

import numpy as np
import pytest

import highway_networks as hn
from experiments import optimization
from experiments.lab import Trial
from experiments.optimization import Net


def trial_of(result):
    return Trial("optimization.train", 1, None, {}, "ok", None, result, 0, {})


def test_a_setting_that_diverges_is_the_worst():
    found = {number: [trial_of({"train_loss": [2.0, loss]})]
             for number, loss in ((7, None), (3, 1.0), (5, 0.5))}
    assert optimization.least(found, 3) == [5, 3, 7]
    found[5] += [trial_of({"train_loss": [loss]}) for loss in (1.5, None)]
    assert optimization.least(found, 2) == [3, 5], "one lucky seed of three"


def is_log_uniform(values, low, high):
    """Whether so many values fill the range evenly, as far as logarithms go."""
    logs = np.log10(values)
    return (np.log10(low) - 1e-3 <= logs.min() and logs.max() <= np.log10(high) + 1e-9
            and abs(logs.mean() - np.log10(low * high) / 2) < 0.1)


def test_settings_are_drawn_from_the_stated_ranges():
    settings = optimization.draw_settings(2000, 5)
    assert settings[:7] == optimization.draw_settings(7, 5)
    assert settings != optimization.draw_settings(2000, 6)
    found = {name: np.array([setting[name] for setting in settings])
             for name in settings[0]}
    assert is_log_uniform(found["lr"], 1e-5, 1)
    assert is_log_uniform(1 - found["momentum"], 0.01, 0.5)
    assert is_log_uniform(1 - found["lr_decay"], 0.001, 0.1)
    assert set(found["activation"]) == {"tanh", "relu"}
    assert set(found["gate_bias"]) == {-float(n) for n in range(1, 11)}


@pytest.mark.parametrize("block, count", [("highway", 544_660), ("plain", 562_543)])
def test_nets_of_the_search_are_the_papers(block, count):
    """99 blocks are the paper's 100 layers; widths 50 and 71; one draw for both."""
    setting = optimization.draw_settings(1, 0)[0]
    config = optimization.make_config(optimization.PLAN, Net(block, 99), setting, 5, 0)
    assert (config["depth"], config["clip"], config["optimizer"]) == (99, 0, "sgd")
    assert config["lr"] == setting["lr"]
    assert config["init"] == {"tanh": "glorot", "relu": "he"}[setting["activation"]]
    assert hn.DeepNet(block, 99, config["hidden"]).params.size == count


@pytest.mark.parametrize("least, final, epochs, reached, missed", [
    ([0.1, 1e-5], [None, 1e-5], 200, True, False),      # the best run decides
    ([2e-4, 3e-4], [2e-4, 3e-4], 200, None, None),
    ([2e-4, 3e-4], [2e-4, 3e-4], 400, False, True),
    ([0.1, 0.1], [None, None], 200, False, True)])      # there is no more to hope for
def test_a_miss_is_open_in_fewer_epochs_than_the_papers(least, final, epochs, reached,
                                                        missed):
    nets = [{"best": {"least": least, "final": final}}]
    assert optimization.reached(nets, epochs, 1e-4) is reached
    assert optimization.missed(nets, epochs, 1e-4) is missed
