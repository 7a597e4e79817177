"""The experiments: what all of them share, and the search of Figure 1."""

import hashlib
import importlib
import io
import json
import math
import shutil

import numpy as np
import pytest

import highway_networks as hn
from experiments import common, optimization
from experiments.store import StoreError, load_trials


def run_smoke(experiment, *words):
    return common.main(experiment, ["--smoke", "--jobs", "1", *words])


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
    runs = home / "runs" / "smoke"
    record, _ = common.load_record(runs / "optimization.json")
    digest = hashlib.sha256((runs / "optimization.json").read_bytes()).hexdigest()
    assert record["dataset"] == "digits"
    assert record["command"] == "python3 -m experiments.optimization --smoke"
    picture = (runs / "optimization.png").read_bytes()
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
    again = common.main(optimization.EXPERIMENT, ["--smoke", "--plot"])
    assert again == record and (runs / "optimization.png").read_bytes() == picture
    assert not (home / "experiments" / "optimization.json").exists()


def test_packed_trials_are_not_run_again(home, smoked, monkeypatch):
    """A fresh clone has the packed files and no store."""
    shutil.copytree(smoked, home, dirs_exist_ok=True)
    lab = home / "runs" / "smoke"
    record, _ = common.load_record(lab / "optimization.json")
    names = sorted(path.name for path in (lab / "optimization").glob("*"))
    assert names == [f"{block}_{depth}.jsonl" for block in ("highway", "plain")
                     for depth in (10, 20)]
    shutil.rmtree(lab / "optimization.trials")
    monkeypatch.setattr(common.shutil, "rmtree", lambda *_, **__: None)
    monkeypatch.setattr(hn, "train", None)      # whoever trains now fails
    again = run_smoke(optimization.EXPERIMENT)
    assert again["nets"] == record["nets"]


def test_an_extended_plan_keeps_the_finished_trials(home, smoked, monkeypatch):
    """Only the trials that the longer plan adds are run."""
    shutil.copytree(smoked, home, dirs_exist_ok=True)
    more = optimization.SMOKE | {"seeds": [0, 1, 2]}
    trained = []
    monkeypatch.setattr(common.shutil, "rmtree", lambda *_, **__: None)
    monkeypatch.setattr(hn, "train", lambda net, data, config, train=hn.train:
                        trained.append(config) or train(net, data, config))
    record = run_smoke(optimization.EXPERIMENT._replace(smoke=more))
    assert [config.seed for config in trained] == [2, 2, 2, 2]
    assert all(len(net["best"]["train_loss"]) == 3 for net in record["nets"])


def test_packed_trials_of_another_experiment_are_refused(home, smoked):
    shutil.copytree(smoked, home, dirs_exist_ok=True)
    runs = home / "runs" / "smoke"
    (runs / "optimization").rename(runs / "other")
    options = common.build_parser(optimization.EXPERIMENT).parse_args(["--smoke"])
    other = optimization.EXPERIMENT._replace(name="experiments.other")
    lab = common.Lab(other, options)
    with pytest.raises(StoreError, match="another protocol"):
        lab.trials(optimization.train_net, [], ())


def test_pack_takes_what_is_finished(home, capsys):
    options = common.build_parser(optimization.EXPERIMENT).parse_args(["--smoke"])
    lab = common.Lab(optimization.EXPERIMENT, options)
    setting = optimization.draw_settings(1, 0)[0]
    configs = [optimization.make_config(lab.protocol, ("plain", depth), setting, 1, 0)
               for depth in (2, 3)]
    lab.options.jobs = 1
    lab.trials(optimization.train_net, configs, lab.load_data())
    run_smoke(optimization.EXPERIMENT, "--pack")
    assert "packed 2 trials" in capsys.readouterr().out
    for config, name in zip(configs, ("plain_2", "plain_3")):
        _, (trial,) = load_trials(lab.packed / f"{name}.jsonl")
        assert trial.config == config and trial.result["status"] == "ok"


def test_pack_keeps_what_was_packed_before(home, smoked, capsys):
    """A clone that has run nothing yet, or only some of it, drops no trial."""
    shutil.copytree(smoked, home, dirs_exist_ok=True)
    lab = home / "runs" / "smoke"
    before = {path.name: path.read_bytes()
              for path in (lab / "optimization").iterdir()}
    trials = sorted((lab / "optimization.trials").glob("[0-9a-f]*.json"))
    for path in trials[1:]:
        path.unlink()
    run_smoke(optimization.EXPERIMENT, "--pack")
    assert f"packed {len(trials)} trials" in capsys.readouterr().out
    assert before == {path.name: path.read_bytes()
                      for path in (lab / "optimization").iterdir()}


def test_figure_1_with_a_run_that_diverged(smoked):
    record, _ = common.load_record(smoked / "runs" / "smoke" / "optimization.json")
    best = record["nets"][0]["best"]
    for name in ("train_loss", "test_acc"):
        best[name][1][2:] = [None] * 2
    figure = optimization.draw(record)
    figure.savefig(io.BytesIO(), format="png")
    line = figure.axes[0].lines[0].get_ydata()
    assert np.isfinite(line[:2]).all() and np.isinf(line[2:]).all()


@pytest.mark.parametrize("text, message", [
    (None, "No such file"), ("{", "Expecting"), ("[]", "field 'schema'"),
    ('{"schema": "highway-networks/run"}', "field 'schema'"),
    ('{"schema": "highway-networks/experiment", "experiment": "x"}', "'experiment'")])
def test_a_bad_record_is_one_line_with_the_command(home, text, message):
    path = home / "runs" / "smoke" / "optimization.json"
    if text is not None:
        path.parent.mkdir(parents=True)
        path.write_text(text)
    with pytest.raises(SystemExit) as caught:
        run_smoke(optimization.EXPERIMENT, "--plot")
    error = str(caught.value)
    assert message in error and "\n" not in error
    assert "Make it with: python3 -m experiments.optimization" in error


def test_only_what_is_made_of_trials_has_flags_for_them(capsys):
    from experiments import gates
    with pytest.raises(SystemExit, match="2"):
        common.build_parser(gates.EXPERIMENT).parse_args(["--jobs", "1"])
    assert "--jobs" in capsys.readouterr().err
    assert common.build_parser(optimization.EXPERIMENT).parse_args(
        ["--jobs", "1"]).jobs == 1


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


@pytest.mark.parametrize("path", sorted((hn.HERE / "experiments").glob("*.json")),
                         ids=lambda path: path.stem)
def test_committed_claims_are_those_of_the_code(path):
    """Whoever changes a verdict makes the record again."""
    module = importlib.import_module(f"experiments.{path.stem}")
    record = json.loads(path.read_text())
    check = module.EXPERIMENT.check
    claims = check(record) if check else None
    assert json.loads(json.dumps(claims)) == record.get("claims")


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
    options = common.build_parser(optimization.EXPERIMENT).parse_args(["--smoke"])
    lab = common.Lab(optimization.EXPERIMENT, options)
    lab.options.jobs = 1
    setting = {"lr": 1e3, "momentum": 0.99, "lr_decay": 1.0, "activation": "relu",
               "gate_bias": -1.0}
    trial, = lab.trials(optimization.train_net, [optimization.make_config(
        lab.protocol, ("plain", 10), setting, 2, 0)], lab.load_data())
    assert trial.result["status"] == "diverged"
    assert optimization.final_loss(trial) == math.inf
