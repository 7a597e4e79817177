"""What all experiments share, with one that takes no time; and the committed ones."""

import hashlib
import importlib
import json
import math
import shutil
from dataclasses import replace

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

import highway_networks as hn
from experiments import NAMES, lab
from experiments import __main__ as listing
from experiments.lab import Experiment, Lab
from experiments.store import StoreError, load_trials
from tests import committed

CALLS = []


def train(config, data):
    """A trial: the mean pixel of one class, and a note that it was run."""
    CALLS.append(config["digit"])
    rows = data.x_train[data.y_train == config["digit"]]
    return {"mean": hn.significant(rows.mean() * config["times"])}


def run(lab):
    data = lab.load_data()
    configs = {digit: {"digit": digit, "times": lab.protocol["times"]}
               for digit in lab.protocol["digits"]}
    found = lab.trials(train, configs, data)
    return {"means": [found[digit].result["mean"] for digit in lab.protocol["digits"]]}


def draw(record):
    figure = Figure(figsize=(3, 2))
    figure.subplots().plot(record["means"])
    return figure


def check(record):
    return [lab.claim(section="ours", text="means differ", paper=None,
                      ours=record["means"], holds=len(set(record["means"])) > 1)]


EXPERIMENT = Experiment(
    name="experiments.means", doc="Do digits differ?\n\nLong story.", minutes=1,
    protocol={"dataset": "mnist", "digits": [0, 1, 2], "times": 1},
    smoke={"dataset": "digits", "digits": [3, 4]}, run=run, draw=draw, check=check,
    pack_by=lambda config: f"digit_{config['digit'] % 2}")


@pytest.fixture(autouse=True)
def calls():
    CALLS.clear()
    return CALLS


def lab_of(experiment, *flags):
    options = lab.build_parser(experiment).parse_args(["--jobs", "1", *flags])
    return Lab(experiment, options)


@pytest.fixture
def smoked(home, smoke, calls):
    """The folder that a smoke run leaves, its calls forgotten."""
    record, folder = smoke(EXPERIMENT)
    found = {trial.config["digit"]: trial.result["mean"]
             for path in sorted((folder / "trials").iterdir())
             for trial in load_trials(path)[1]}
    assert calls == [3, 4] and record["means"] == [found[3], found[4]]
    assert record["claims"][0]["holds"] is True
    calls.clear()
    return folder


@pytest.fixture
def committed_run(smoked, home):
    """The same as if it were the experiment itself, in a clone without a store."""
    folder = home / "results" / "means"
    shutil.copytree(smoked, folder)
    return replace(EXPERIMENT, protocol=EXPERIMENT.protocol | EXPERIMENT.smoke), folder


def test_a_run_makes_record_picture_and_packed_trials(smoked):
    assert sorted(path.name for path in smoked.iterdir()) == [
        "figure.png", "record.json", "trials"]
    assert sorted(path.name for path in (smoked / "trials").iterdir()) == [
        "digit_0.jsonl", "digit_1.jsonl"]
    digest = hashlib.sha256((smoked / "record.json").read_bytes()).hexdigest()
    with Image.open(smoked / "figure.png") as picture:
        assert picture.info["Record-SHA-256"] == digest
        assert picture.info["Source"] == "python3 -m experiments.means --smoke"


def test_plot_draws_the_same_again_and_runs_nothing(smoked, calls):
    before = {path: path.read_bytes() for path in smoked.iterdir() if path.is_file()}
    (smoked / "figure.png").unlink()
    lab.main(EXPERIMENT, ["--smoke", "--plot"])
    assert calls == [] and all(path.read_bytes() == content
                               for path, content in before.items())


def test_a_smoke_run_tries_the_whole_path_each_time(smoked, calls):
    lab.main(EXPERIMENT, ["--smoke", "--jobs", "1"])
    assert calls == [3, 4]


def test_packed_trials_are_not_run_again(committed_run, calls):
    experiment, folder = committed_run
    before, _ = lab.load_record(folder / "record.json")
    again = lab.main(experiment, ["--jobs", "1"])
    assert calls == [] and again["means"] == before["means"]


def test_an_extended_plan_keeps_the_finished_trials(committed_run, calls):
    experiment, _ = committed_run
    more = replace(experiment, protocol=experiment.protocol | {"digits": [5, 3, 4, 6]})
    assert len(lab.main(more, ["--jobs", "1"])["means"]) == 4
    assert calls == [5, 6]


def test_packed_trials_of_another_experiment_are_refused(committed_run, home):
    experiment, folder = committed_run
    shutil.copytree(folder, home / "results" / "other")
    other = lab_of(replace(experiment, name="experiments.other"))
    with pytest.raises(StoreError, match="another protocol"):
        other.trials(train, {}, None)


def test_pack_keeps_what_was_packed_before(committed_run, capsys):
    """A clone that has run nothing yet drops no trial."""
    experiment, folder = committed_run
    before = {path.name: path.read_bytes() for path in (folder / "trials").iterdir()}
    assert lab.main(experiment, ["--pack"]) is None
    assert "packed 2 trials in results/means/trials" in capsys.readouterr().out
    assert before == {path.name: path.read_bytes()
                      for path in (folder / "trials").iterdir()}


def test_a_failed_trial_ends_the_run_with_what_to_do(home, capsys):
    experiment = replace(EXPERIMENT, smoke=EXPERIMENT.smoke | {"times": "x"})
    with pytest.raises(SystemExit, match="failed: .*run again with --retry-failed"):
        lab.main(experiment, ["--smoke", "--jobs", "1"])
    assert not (home / "runs" / "smoke" / "means" / "record.json").exists()


def test_ctrl_c_says_what_is_kept(home, capsys):
    def interrupted(lab):
        raise KeyboardInterrupt
    with pytest.raises(SystemExit, match="130"):
        lab.main(replace(EXPERIMENT, run=interrupted), [])
    assert "finished trials are kept" in capsys.readouterr().err


MEANS = ('{"schema": "highway-networks/experiment", "schema_version": 1, '
         '"experiment": "means", "command": "x", "dataset": "digits", "protocol": {}, '
         '"env": {"git": null, "git_dirty": false, "numpy": "2", "blas_kernel": "x"}}')


@pytest.mark.parametrize("text, message", [
    (None, "No such file"), ("{", "Expecting"), ("[]", "a record is an object"),
    ('{"schema": "highway-networks/run"}', "field 'schema'"),
    ('{"schema": "highway-networks/experiment", "experiment": "x"}', "'experiment'"),
    (MEANS.replace("1", "99"), "'schema_version' is 99"),
    (MEANS.replace("1", "true"), "'schema_version' is True"),
    (MEANS.replace("digits", "$x_1$"), "'dataset' is '$x_1$'"),
    (MEANS.replace("{}", "null"), "'protocol' is None"),
    (MEANS.replace('"git": null, ', ""), "'env.git' is missing"),
    (MEANS.replace('"x", "d', '"x", "claims": [{"holds": 1}], "d'), "list of claims"),
    (MEANS, "a field is missing or wrong (KeyError('means'))")])
def test_a_bad_record_is_one_line_with_the_command(home, text, message):
    path = home / "runs" / "smoke" / "means" / "record.json"
    if text is not None:
        path.parent.mkdir(parents=True)
        path.write_text(text)
    with pytest.raises(SystemExit) as caught:
        lab.main(EXPERIMENT, ["--smoke", "--plot"])
    error = str(caught.value)
    assert message in error and "\n" not in error
    assert "Make it with: python3 -m experiments.means" in error


def test_only_what_is_made_of_trials_has_flags_for_them(capsys):
    with pytest.raises(SystemExit, match="2"):
        lab.build_parser(replace(EXPERIMENT, pack_by=None)).parse_args(["--jobs", "1"])
    assert "--jobs" in capsys.readouterr().err
    assert lab_of(EXPERIMENT, "--jobs", "3").options.jobs == 3


def test_an_experiment_and_a_claim_are_made_by_name():
    with pytest.raises(TypeError):
        Experiment("experiments.x", "doc", 1, {}, {}, run, draw)
    with pytest.raises(TypeError):
        lab.claim("P1 1", "text", None, 1, True)
    assert lab.claim(section="P1 1", text="t", paper="< 1", ours=0.5,
                     holds=np.bool_(True)) == {
        "section": "P1 1", "claim": "t", "paper": "< 1", "ours": 0.5, "n": 1,
        "holds": True}


# --------------------------------------------------------------------------------------
# Numbers


def test_numbers_are_listed_in_their_shape():
    values = np.array([[1.23456789, math.nan], [math.inf, 1e-12]])
    assert lab.listed(values) == [[1.23457, None], [None, 1e-12]]
    assert lab.listed(np.float32(0.1), 3) == 0.1 and lab.listed([]) == []
    json.dumps(lab.listed(values.astype("float32")), allow_nan=False)


def test_what_diverged_is_infinite_or_left_out():
    assert lab.or_infinite([[1, None], [2, 3]]).tolist() == [[1, math.inf], [2, 3]]
    assert lab.mean_and_std([1, None, 3]) == {"mean": 2, "std": 1.41421, "n": 2}
    assert lab.mean_and_std([None]) == {"mean": None, "std": None, "n": 0}


@pytest.mark.parametrize("one, other, relation", [
    ([3, 4], [1, 2], "ahead of"), ([1, 2], [3, 4], "behind"),
    ([1, 3], [2, 4], "level with"), ([2, 3], [1, 2], "level with"),
    ([0.1], [None], "ahead of"), ([None, 5], [1, 2], "level with")])
def test_nets_are_compared_by_all_their_seeds(one, other, relation):
    assert lab.compare(one, other) == relation


def test_what_held_before_training_tells_nothing():
    assert [lab.telling(*pair) for pair in (
        (True, True), (True, False), (False, True), (False, False))] == [
        None, True, False, False]


# --------------------------------------------------------------------------------------
# The list, and the committed records


def test_the_state_of_results_is_what_lies_there(committed_run):
    experiment, folder = committed_run
    assert listing.state_of(experiment, folder) == "complete"
    other = replace(experiment, protocol=experiment.protocol | {"times": 2})
    assert listing.state_of(other, folder) == "of another protocol"
    other = replace(experiment, check=lambda record: [])
    assert listing.state_of(other, folder) == "with other verdicts"
    record = (folder / "record.json").read_text()
    (folder / "record.json").write_text(record + "\n")
    assert listing.state_of(experiment, folder) == "not drawn"
    (folder / "record.json").write_text("{")
    assert listing.state_of(experiment, folder) == "damaged"
    (folder / "record.json").unlink()
    assert listing.state_of(experiment, folder) == "none"


def test_the_list_has_every_experiment_and_its_question(home, capsys):
    listing.main([])
    printed = capsys.readouterr().out
    for name in NAMES:
        experiment = importlib.import_module(f"experiments.{name}").EXPERIMENT
        assert experiment.name == f"experiments.{name}"
        assert f"{name}: {experiment.minutes} minutes, results none" in printed
        assert experiment.question.split()[0] in printed


@pytest.mark.parametrize("name", NAMES)
def test_committed_results_are_what_the_code_would_make(name):
    """Of the module's protocol, with its verdicts, drawn, from a clean checkout.
    Whoever changes a verdict makes the record again."""
    experiment = importlib.import_module(f"experiments.{name}").EXPERIMENT
    folder = committed.tree() / "results" / name
    assert listing.state_of(experiment, folder) == "complete"
    record, _ = lab.load_record(folder / "record.json")
    assert record["env"]["git_dirty"] is False
    assert bool(record.get("claims")) is bool(experiment.check)
