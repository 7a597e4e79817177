"""The search of Figure 1: its settings, its rungs, its verdicts."""


import numpy as np
import pytest

import highway_networks as hn
from experiments import optimization, optimization_claims
from experiments.optimization import Net
from tests.fake_lab import trial_of


def test_smoke_of_the_search(smoke):
    """The whole path; each rung takes the best settings of the one before."""
    record, folder = smoke(optimization.EXPERIMENT)
    assert {path.stem for path in (folder / "trials").iterdir()} == {
        f"{block}_{depth}" for block in ("highway", "plain") for depth in (10, 20)}
    assert len(record["claims"]) == 11
    assert [(net["block"], net["depth"]) for net in record["nets"]] == [
        (block, depth) for depth in (10, 20) for block in ("highway", "plain")]
    for net in record["nets"]:
        rungs, last = [net[name] for name in (
            "search", "ten", "four", "two")], net["best"]
        assert [len(rung["setting"]) for rung in rungs] == [4, 3, 2, 2]
        rungs[-1] = rungs[-1] | {"train_loss": list(np.median(
            rungs[-1]["train_loss"], axis=1))}
        chosen = [*(rung["setting"] for rung in rungs[1:]), [last["setting"]]]
        for rung, following in zip(rungs, chosen, strict=True):
            losses = dict(zip(rung["setting"], rung["train_loss"], strict=True))
            assert following == sorted(losses, key=losses.get)[:len(following)]
        assert np.shape(last["train_loss"]) == np.shape(last["test_acc"]) == (2, 3)


def test_a_setting_that_diverges_is_the_worst():
    found = {number: [trial_of({"train_loss": [2.0, loss]})]
             for number, loss in ((7, None), (3, 1.0), (5, 0.5))}
    assert optimization.least(found, 3) == [5, 3, 7]
    found[5] += [trial_of({"train_loss": [loss]}) for loss in (1.5, None)]
    assert optimization.least(found, 2) == [3, 5], "one lucky seed of three"


def test_a_stopped_run_has_tried_as_many_settings_of_every_net():
    chosen = {Net("plain", 10): [4, 2], Net("highway", 10): [1, 3]}
    runs = optimization.plan_rung(chosen, [0, 1])
    assert [run.seed for run in runs] == [0, 0, 1, 1] * 2
    assert [run.setting for run in runs] == [1, 4, 1, 4, 3, 2, 3, 2]


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
    assert config["init"] == {"tanh": "glorot", "relu": "he"}[setting["activation"]]
    assert hn.DeepNet(block, 99, config["hidden"]).params.size == count


def fake_net(block, depth, least, epochs_to=None, final=None, ten=0.01):
    return {"block": block, "depth": depth, "best": {
        "least": least, "final": final or least,
        "epochs_to": {"0.01": epochs_to or [9] * len(least)}},
        "ten": {"mean": [1.0, ten], "train_loss": [ten] * 10}}


def judged(nets, epochs=400):
    claims = optimization_claims.check_claims({"nets": nets, "protocol": {
        "rungs": [[9, 1], [3, 2], [1, epochs]]}})
    return dict(zip(("shallow", "highway", "deep", "shallow, every", "highway, every",
                     "degrades", "similar", "orders", "speed", "ten", "collapses"),
                    claims, strict=True))


GOOD, BAD = [9e-5, 1e-5], [9e-5, 2e-4]
NETS = {("highway", 10): {"least": GOOD, "epochs_to": [3, 5]},
        ("plain", 10): {"least": GOOD}, ("highway", 50): {"least": GOOD},
        ("plain", 50): {"least": [2e-3, 0.5], "final": [2e-3, 2.3],
                        "epochs_to": [None, None], "ten": 0.2}}


def changed(**about):
    """NETS, with other values of some."""
    nets = {**NETS, **{(name.split("_")[0], int(name.split("_")[1])): values
                       for name, values in about.items()}}
    return [fake_net(*net, **values) for net, values in nets.items()]


@pytest.mark.parametrize("about, epochs, expected", [
    ({}, 400, {"shallow": True, "highway": True, "deep": True, "degrades": True,
               "highway, every": True, "orders": True, "speed": True, "ten": True,
               "similar": True, "collapses": True}),
    # A miss is open in fewer epochs than the paper's, whoever misses.
    ({}, 200, {"shallow": True, "deep": None}),
    ({"highway_50": {"least": [2e-4, 3e-4]}}, 200, {"highway": None,
                                                    "highway, every": None}),
    ({"highway_50": {"least": [2e-4, 3e-4]}}, 400, {"highway": False,
                                                    "highway, every": False}),
    # Of one seed: the best run decides for the paper, and every seed stands beside it.
    ({"highway_50": {"least": BAD}}, 400, {"highway": True, "highway, every": False}),
    ({"plain_50": {"least": BAD}}, 200, {"deep": False, "degrades": False}),
    # A run that diverged has missed it for good.
    ({"highway_50": {"least": [0.1, 1e-5], "final": [None, 1e-5]}}, 200,
     {"highway": True, "highway, every": False, "collapses": True}),
    ({"highway_50": {"least": [0.1, 0.1], "final": [None, None]}}, 200,
     {"highway": False, "similar": False, "orders": False}),
    ({"plain_50": {"least": [0.1], "final": [None]}, "highway_50": {
        "least": [0.1], "final": [None]}}, 400, {"orders": None, "collapses": True}),
    ({"plain_50": {"least": [2e-3, 3e-3], "ten": 0.05}}, 400,
     {"collapses": False, "ten": False}),
    ({"plain_50": {"least": [2e-3], "ten": None}}, 400, {"ten": True}),
    ({"highway_10": {"least": GOOD, "epochs_to": [9, 9]}}, 400, {"speed": False})])
def test_verdicts_follow_the_numbers(about, epochs, expected):
    claims = judged(changed(**about), epochs)
    assert {name: claims[name]["holds"] for name in expected} == expected


def test_a_verdict_at_half_and_at_twice_the_threshold():
    claims = judged(changed(plain_50={"least": [1.5e-4], "final": [1.5e-4]}))
    assert claims["degrades"]["holds"] and claims["degrades"]["also"] == {
        "5": True, "20": False}
    assert claims["deep"]["also"] == {"5e-05": True, "0.0002": False}
