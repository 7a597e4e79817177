"""The search of Figure 1: its settings, its rungs, its verdicts."""

import math

import numpy as np
import pytest

import highway_networks as hn
from experiments import optimization
from experiments.optimization import Net
from tests.fake_lab import trial_of, verdicts


def test_smoke_of_the_search(smoke):
    """The whole path; each rung takes the best settings of the one before."""
    record, folder = smoke(optimization.EXPERIMENT)
    assert {path.stem for path in (folder / "trials").iterdir()} == {
        f"{block}_{depth}" for block in ("highway", "plain") for depth in (10, 20)}
    assert len(record["claims"]) == 5
    assert [(net["block"], net["depth"]) for net in record["nets"]] == [
        (block, depth) for depth in (10, 20) for block in ("highway", "plain")]
    for net in record["nets"]:
        rungs, last = [net[name] for name in ("search", "ten", "four")], net["best"]
        assert [len(rung["setting"]) for rung in rungs] == [4, 3, 2]
        chosen = [*(rung["setting"] for rung in rungs[1:]), [last["setting"]]]
        for rung, following in zip(rungs, chosen, strict=True):
            losses = dict(zip(rung["setting"], rung["train_loss"], strict=True))
            assert following == sorted(losses, key=losses.get)[:len(following)]
        assert np.shape(last["train_loss"]) == np.shape(last["test_acc"]) == (2, 3)


def test_a_setting_that_diverges_is_the_worst():
    found = {number: [trial_of({"train_loss": [2.0, loss]})]
             for number, loss in ((7, None), (3, 1.0), (5, 0.5))}
    assert optimization.least(found, 3) == [5, 3, 7]


def test_a_stopped_run_has_tried_as_many_settings_of_every_net():
    chosen = {Net("plain", 10): [4, 2, 6], Net("highway", 10): [1, 3]}
    runs = optimization.plan_rung(chosen, [0, 1])
    assert [run.seed for run in runs] == [0, 0, 1, 1] * 2 + [0, 1]
    assert [run.setting for run in runs] == [1, 4, 1, 4, 3, 2, 3, 2, 6, 6]


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
    """Depth counts the first plain layer; widths 50 and 71; one draw for both kinds."""
    setting = optimization.draw_settings(1, 0)[0]
    config = optimization.make_config(optimization.PROTOCOL, Net(block, 100), setting,
                                      5, 0)
    assert (config["depth"], config["clip"], config["optimizer"]) == (99, 0, "sgd")
    assert config["lr"] == setting["lr"]
    assert ("gate_bias" in config) == (block == "highway")
    assert config["init"] == {"tanh": "glorot", "relu": "he"}[setting["activation"]]
    assert hn.DeepNet(block, 99, config["hidden"]).params.size == count


def fake_net(block, depth, least, epochs_to, final=None):
    return {"block": block, "depth": depth, "best": {
        "least": least, "final": final or least, "epochs_to": {"0.01": epochs_to}}}


GOOD, BAD, NEVER = [9e-5, 1e-5], [9e-5, 2e-4], [None, None]
SHALLOW = [fake_net("highway", 10, GOOD, [3, 5]), fake_net("plain", 10, GOOD, [9, 9])]
DEEP = fake_net("highway", 50, GOOD, [4, 4])
MIXED = [SHALLOW[0], fake_net("plain", 10, BAD, [2, 3]),
         fake_net("highway", 50, [None, 1e-5], [4, 4], final=[1e-5, 1e-5]),
         fake_net("plain", 50, GOOD, NEVER, final=[2e-3, 4e-3])]
LOST = [fake_net(kind, 10, NEVER, NEVER) for kind in ("highway", "plain")]


@pytest.mark.parametrize("nets, epochs, expected", [
    # The seeds of plain 50 do not agree; no seed of it gets there; there is none.
    ([*SHALLOW, DEEP, fake_net("plain", 50, BAD, [4, None])], 400,
     [True, None, True, False, True]),
    ([*SHALLOW, DEEP, fake_net("plain", 50, [2e-4, 3e-4], NEVER)], 400,
     [True, True, True, False, True]),
    ([*SHALLOW, DEEP, fake_net("plain", 50, GOOD, [4, 4]),
      fake_net("highway", 100, GOOD, [4, 4]), fake_net("plain", 100, BAD, NEVER)], 400,
     [True, False, True, False, False]),
    ([*SHALLOW, fake_net("highway", 20, GOOD, [3, 5]),
      fake_net("plain", 20, GOOD, [9, 9])], 400, [True, None, True, False, True]),
    # A miss is open in fewer epochs than the paper's.
    (MIXED, 400, [False, False, False, True, False]),
    (MIXED, 200, [None, False, None, True, False]),
    # Nothing is said of two nets that diverge.
    (LOST, 400, [False, None, False, None, None]),
    ([SHALLOW[0], LOST[1]], 400, [False, None, True, True, True])])
def test_verdicts_follow_the_numbers(nets, epochs, expected):
    claims = optimization.check_claims({"nets": nets, "protocol": {
        "rungs": [[9, 1], [3, 2], [1, epochs]]}})
    assert verdicts(claims) == expected


def test_the_numbers_beside_the_verdicts():
    assert optimization.check_orders(MIXED[2], MIXED[3], 2)["ours"] == pytest.approx(
        math.log10(300), rel=1e-5)
    assert optimization.epochs_to([3, 0.5, None, 0.2], 0.3) == 4
