"""The search of Figure 1."""

import hashlib
import io
import json
import math
import shutil

import numpy as np
import pytest

import highway_networks as hn
from experiments import lab, optimization


def run_smoke(experiment, *words):
    return lab.main(experiment, ["--smoke", "--jobs", "1", *words])


@pytest.fixture(scope="module")
def smoked(tmp_path_factory):
    """The folder that one smoke run of the search leaves."""
    folder = tmp_path_factory.mktemp("smoked")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hn, "HERE", folder)
        run_smoke(optimization.EXPERIMENT)
    return folder


def test_smoke_of_the_search_and_its_figure_again(home, smoked):
    """The whole path on the digits; --plot then gives the same picture."""
    shutil.copytree(smoked, home, dirs_exist_ok=True)
    runs = home / "runs" / "smoke" / "optimization"
    record, _ = lab.load_record(runs / "record.json")
    digest = hashlib.sha256((runs / "record.json").read_bytes()).hexdigest()
    assert record["dataset"] == "digits"
    assert record["command"] == "python3 -m experiments.optimization --smoke"
    picture = (runs / "figure.png").read_bytes()
    assert digest.encode() in picture
    assert [(net["block"], net["depth"]) for net in record["nets"]] == [
        (block, depth) for depth in (10, 20) for block in ("highway", "plain")]
    for net in record["nets"]:
        best, rungs = net["best"], [net[name] for name in ("search", "ten", "four")]
        assert [len(rung["setting"]) for rung in rungs] == [4, 3, 2]
        for rung, following in zip(rungs, rungs[1:] + [{"setting": [best["setting"]]}]):
            losses = dict(zip(rung["setting"], rung["train_loss"]))
            assert max(losses.pop(n) for n in following["setting"]) <= min(
                losses.values())
        assert np.shape(best["train_loss"]) == np.shape(best["test_acc"]) == (2, 4)
    again = lab.main(optimization.EXPERIMENT, ["--smoke", "--plot"])
    assert again == record and (runs / "figure.png").read_bytes() == picture
    assert not (home / "results").exists()


def test_figure_1_with_a_run_that_diverged(smoked):
    record, _ = lab.load_record(smoked / "runs" / "smoke" / "optimization" / "record.json")
    best = record["nets"][0]["best"]
    for name in ("train_loss", "test_acc"):
        best[name][1][2:] = [None] * 2
    figure = optimization.draw(record)
    figure.savefig(io.BytesIO(), format="png")
    line = figure.axes[0].lines[0].get_ydata()
    assert np.isfinite(line[:2]).all() and np.isinf(line[2:]).all()


def test_settings_are_drawn_from_the_stated_ranges():
    settings = optimization.draw_settings(2000, 5)
    assert settings == optimization.draw_settings(2000, 5)
    assert settings[:7] == optimization.draw_settings(7, 5)
    assert settings != optimization.draw_settings(2000, 6)
    for name, low, high, of in (("lr", 1e-5, 1, lambda v: v),
                                ("momentum", 0.01, 0.5, lambda v: 1 - v),
                                ("lr_decay", 0.001, 0.1, lambda v: 1 - v)):
        values = np.log10([of(setting[name]) for setting in settings])
        assert math.log10(low) - 1e-3 <= values.min()
        assert values.max() <= math.log10(high) + 1e-9
        assert values.mean() == pytest.approx(math.log10(low * high) / 2, abs=0.1)
    assert {s["activation"] for s in settings} == {"tanh", "relu"}
    assert {s["gate_bias"] for s in settings} == {-float(n) for n in range(1, 11)}
    json.dumps(settings)


def test_nets_of_the_search_are_the_papers():
    """Depth counts the first plain layer; widths 50 and 71; one draw for both kinds."""
    setting = optimization.draw_settings(1, 0)[0]
    counts = []
    for block in ("highway", "plain"):
        config = optimization.make_config(optimization.PROTOCOL, (block, 100), setting,
                                          5, 0)
        assert config["depth"] == 99 and config["clip"] == 0
        assert config["optimizer"] == "sgd"
        assert config["lr"] == setting["lr"]
        assert config["init"] == {"tanh": "glorot", "relu": "he"}[setting["activation"]]
        counts.append(hn.make_net(hn.Config(**config), 784).params.size)
    assert counts == [544_660, 562_543]


def fake_net(block, depth, least, epochs_to, final=None):
    return {"block": block, "depth": depth, "best": {
        "least": least, "final": final or least, "epochs_to": {"0.01": epochs_to}}}


def claims_of(nets, epochs=400):
    return optimization.check_claims({"nets": nets, "protocol": {
        "rungs": [[9, 1], [3, 2], [1, epochs]]}})


def verdicts(*about):
    return [claim["holds"] for claim in claims_of(*about)]


def test_verdicts_follow_the_numbers():
    good, bad, lost = [9e-5, 1e-5], [9e-5, 2e-4], [None, 1e-5]
    nets = [fake_net("highway", 10, good, [3, 5]), fake_net("plain", 10, good, [9, 9]),
            fake_net("highway", 50, good, [4, 4]),
            fake_net("plain", 50, bad, [4, None])]
    assert verdicts(nets) == [True, None, True, False, True], "the seeds do not agree"
    nets[3] = fake_net("plain", 50, [2e-4, 3e-4], [None, None])
    assert verdicts(nets)[1] is True and verdicts(nets[:2])[1] is None
    slow = [fake_net(kind, 10, good, [None, None]) for kind in ("highway", "plain")]
    assert verdicts(slow)[4] is None
    nets[1] = fake_net("plain", 10, bad, [2, 3])
    nets[2] = fake_net("highway", 50, lost, [4, 4], final=[1e-5, 1e-5])
    nets[3] = fake_net("plain", 50, good, [None, None], final=[2e-3, 4e-3])
    assert verdicts(nets) == [False, False, False, True, False]
    assert verdicts(nets, 200) == [None, False, None, True, False], "fewer epochs"
    claims = claims_of(nets)
    assert claims[3]["ours"] == pytest.approx(math.log10(300), rel=1e-5)
    assert claims[4]["ours"] == {"10 layers": {"highway": 4, "plain": 2.5},
                                 "50 layers": {"highway": 4, "plain": None}}


def test_nothing_is_said_of_nets_that_diverge():
    both = [fake_net(kind, 10, [None] * 3, [None] * 3) for kind in ("highway", "plain")]
    assert verdicts(both)[3:] == [None, None]
    assert claims_of(both)[2]["ours"] == {"10 layers": ["diverged"] * 3}
    both[0] = fake_net("highway", 10, [1e-5] * 3, [4, 4, 4])
    assert verdicts(both)[3:] == [True, True]


def test_epochs_to():
    assert optimization.epochs_to([3, 0.5, None, 0.2], 0.3) == 4
    assert optimization.epochs_to([3, 0.5], 0.3) is None


def test_a_setting_that_diverges_is_the_worst(home):
    options = lab.build_parser(optimization.EXPERIMENT).parse_args(["--smoke"])
    lab = lab.Lab(optimization.EXPERIMENT, options)
    lab.options.jobs = 1
    setting = {"lr": 1e3, "momentum": 0.99, "lr_decay": 1.0, "activation": "relu",
               "gate_bias": -1.0}
    trial, = lab.trials(optimization.train_net, [optimization.make_config(
        lab.protocol, ("plain", 10), setting, 2, 0)], lab.load_data())
    assert trial.result["status"] == "diverged"
    assert optimization.final_loss(trial) == math.inf
