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
from experiments import NAMES, judging, lab, recheck
from experiments import __main__ as listing
from experiments.lab import Experiment, Lab
from experiments.store import StoreError, load_trials, make_trial, pack_trials
from highway_suite.files import write_json
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
    return [judging.claim(section="ours", text="means differ", paper=None,
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
    experiment = replace(EXPERIMENT, protocol=EXPERIMENT.protocol | EXPERIMENT.smoke)
    record, _ = lab.load_record(folder / "record.json")
    record["env"]["git_dirty"] = False      # whatever the state of this checkout is
    write_json(folder / "record.json", record | {
        "command": "python3 -m experiments.means"})
    lab.main(experiment, ["--plot"])
    return experiment, folder


def test_a_run_makes_record_picture_and_packed_trials(smoked, calls):
    assert sorted(path.name for path in smoked.iterdir()) == [
        "figure.png", "record.json", "trials"]
    assert sorted(path.name for path in (smoked / "trials").iterdir()) == [
        "digit_0.jsonl", "digit_1.jsonl"]
    digest = hashlib.sha256((smoked / "record.json").read_bytes()).hexdigest()
    with Image.open(smoked / "figure.png") as picture:
        assert picture.info["Record-SHA-256"] == digest
        assert picture.info["Source"] == "python3 -m experiments.means --smoke"
    # --plot draws the same again and runs nothing.
    before = {path: path.read_bytes() for path in smoked.iterdir() if path.is_file()}
    (smoked / "figure.png").unlink()
    lab.main(EXPERIMENT, ["--smoke", "--plot"])
    assert calls == [] and all(path.read_bytes() == content
                               for path, content in before.items())


def test_a_drawing_of_another_format_lies_beside_no_committed_result(committed_run,
                                                                     home):
    experiment, folder = committed_run
    before = {path.name for path in folder.iterdir()}
    lab.main(experiment, ["--plot", "--format", "svg"])
    assert {path.name for path in folder.iterdir()} == before
    digest = hashlib.sha256((folder / "record.json").read_bytes()).hexdigest()
    assert digest in (home / "runs" / "means" / "figure.svg").read_text()
    with pytest.raises(SystemExit, match="2"):
        lab.main(experiment, ["--format", "svg"])


def files_in(folder):
    """Every file below, with what it holds and when it was written."""
    return {path: (path.read_bytes(), path.stat().st_mtime_ns)
            for path in folder.rglob("*") if path.is_file()}


def test_where_nothing_is_left_to_train_no_file_changes(
        committed_run, home, calls, capsys):
    experiment, folder = committed_run
    before = files_in(home)
    again = lab.main(experiment, ["--jobs", "1"])
    assert "nothing left to train; no file was changed" in capsys.readouterr().out
    assert calls == [] and files_in(home) == before
    assert again == lab.load_record(folder / "record.json")[0]
    (folder / "figure.png").unlink()        # what is missing is made
    lab.main(experiment, ["--jobs", "1"])
    assert calls == [] and (folder / "figure.png").exists()


def test_without_its_data_complete_results_are_left_alone(
        committed_run, home, monkeypatch, capsys):
    def absent(lab):
        raise hn.DataError("no data")
    experiment, folder = committed_run
    monkeypatch.setattr(Lab, "load_data", absent)
    before = files_in(home)
    lab.main(experiment, [])
    assert "complete; no file was changed. To train anew: no" in capsys.readouterr().out
    assert files_in(home) == before
    (folder / "figure.png").unlink()
    for flags in ([], ["--fresh"], ["--recheck", "1"]):
        with pytest.raises(SystemExit, match="no data"):
            lab.main(experiment, flags)


def test_fresh_trains_anew_beside_the_committed_results(committed_run, home, calls):
    experiment, folder = committed_run
    before = files_in(folder)
    for _ in range(2):
        fresh = lab.main(experiment, ["--fresh", "--jobs", "1"])
        assert sorted(calls) == [3, 4] and files_in(folder) == before
        calls.clear()
    assert fresh["command"] == "python3 -m experiments.means --fresh"
    assert fresh["means"] == lab.load_record(folder / "record.json")[0]["means"]
    made = home / "runs" / "means"
    assert sorted(path.name for path in made.iterdir()) == [
        "figure.png", "record.json", "trials"]
    lab.main(experiment, ["--fresh", "--only", "digit_1", "--jobs", "1"])
    assert calls == [3] and len(list((made / "trials").iterdir())) == 2
    kept = [load_trials(place / "trials" / "digit_0.jsonl") for place in (made, folder)]
    assert kept[0] == kept[1], "the record beside it is of the committed ones"
    with pytest.raises(SystemExit, match="--only x is none of digit_0, d"):
        lab.main(experiment, ["--fresh", "--only", "x"])


def test_fresh_goes_on_where_it_was_interrupted(committed_run, calls):
    experiment, _ = committed_run

    def interrupted(lab):
        run(lab)
        raise KeyboardInterrupt
    with pytest.raises(SystemExit, match="130"):
        lab.main(replace(experiment, run=interrupted), ["--fresh", "--jobs", "1"])
    lab.main(experiment, ["--fresh", "--jobs", "1"])
    assert sorted(calls) == [3, 4]


def test_two_smoke_runs_leave_each_other_alone(home, calls):
    def beside(config, data):
        if not calls:
            calls.append("beside")
            lab.main(EXPERIMENT, ["--smoke", "--jobs", "1"])
        return train(config, data)

    def run_both(this):
        found = this.trials(beside, {3: {"digit": 3, "times": 1}}, this.load_data())
        return {"means": [found[3].result["mean"]] * 2}
    record = lab.main(replace(EXPERIMENT, run=run_both), ["--smoke", "--jobs", "1"])
    assert calls == ["beside", 3, 4, 3] and len(record["means"]) == 2
    assert not list(home.rglob(".unfinished-*"))


@pytest.mark.parametrize("judged", [True, False])
def test_other_data_are_asked_beside_the_committed_results(committed_run, home, calls,
                                                           judged):
    _, folder = committed_run
    other, before = replace(EXPERIMENT, others={"digits": judged}), files_in(folder)
    for _ in range(2):
        record = lab.main(other, ["--dataset", "digits", "--jobs", "1"])
    assert calls == [0, 1, 2] and len(record["means"]) == 3     # the plan's, once
    assert record["command"] == "python3 -m experiments.means --dataset digits"
    assert record["dataset"] == "digits" and ("claims" in record) == judged
    assert sorted(path.name for path in (home / "runs" / "digits" / "means").iterdir()
                  ) == ["figure.png", "record.json", "store", "trials"]
    assert files_in(folder) == before
    for flags in (["--smoke"], ["--recheck", "1"]):
        with pytest.raises(SystemExit, match="2"):
            lab.main(other, ["--dataset", "digits", *flags])
    with pytest.raises(SystemExit, match="2"):
        lab.main(EXPERIMENT, ["--dataset", "digits"])


# --------------------------------------------------------------------------------------
# Rechecks


def test_a_recheck_trains_again_and_changes_nothing(committed_run, home, calls, capsys):
    experiment, _ = committed_run
    before = files_in(home)
    lab.main(experiment, ["--recheck", "1", "--jobs", "1"])
    assert len(calls) == 1 and "equal to the bit; " in capsys.readouterr().out
    lab.main(experiment, ["--recheck", "9", "--seed", "1", "--jobs", "1"])
    assert sorted(calls[1:]) == [3, 4] and files_in(home) == before
    assert capsys.readouterr().out.count("equal to the bit; ") == 2


@pytest.fixture
def another_number(committed_run):
    """The committed run with another mean of digit 3 in record and trial; -> change(by,
    env): how much larger, and the environment it is said to be of."""
    experiment, folder = committed_run

    def change(by, **env):
        protocol, (trial,) = load_trials(folder / "trials" / "digit_1.jsonl")
        mean = hn.significant(trial.result["mean"] * (1 + by))
        other = make_trial(trial.protocol, trial.config, "ok", None, {"mean": mean}, 1)
        pack_trials(folder / "trials" / "digit_1.jsonl", protocol,
                    [other._replace(env=other.env | env)])
        record, _ = lab.load_record(folder / "record.json")
        record["means"][0] = mean
        write_json(folder / "record.json", record | {"claims": check(record)})
        return experiment
    return change


@pytest.mark.parametrize("by, env, says, good", [
    (0.01, {}, "DIFFERS by up to 0.0099;", False),
    (0.01, {"blas_kernel": "Abacus"}, "within 0.0099 (blas_kernel ", True),
    (3, {"blas_kernel": "Abacus"}, "DIFFERS by up to 0.75 (blas_kernel ", False)])
def test_a_recheck_says_what_differs(another_number, capsys, by, env, says, good):
    experiment, flags = another_number(by, **env), ["--recheck", "2", "--jobs", "1"]
    if good:
        lab.main(experiment, flags)
    else:
        with pytest.raises(SystemExit, match="1"):
            lab.main(experiment, flags)
    said = capsys.readouterr().out
    assert f"digit 3: {says}" in said and "digit 4: equal to the bit" in said
    assert f"{1 + good} of 2 " in said


def test_a_record_that_its_trials_do_not_give_is_found(committed_run, capsys):
    experiment, folder = committed_run
    record, _ = lab.load_record(folder / "record.json")
    record["means"][1] += 1
    write_json(folder / "record.json", record)
    with pytest.raises(SystemExit, match="1"):
        lab.main(experiment, ["--recheck", "1", "--jobs", "1"])
    assert "record.json: DIFFERS" in capsys.readouterr().out


def test_without_trials_all_is_computed_again(committed_run, calls, capsys):
    experiment, folder = committed_run
    shutil.rmtree(folder / "trials")
    lab.main(experiment, ["--recheck", "1", "--jobs", "1"])
    assert calls == [3, 4]
    assert capsys.readouterr().out == "record.json: equal to the bit\n"


def test_missing_trials_are_named_with_their_remedy(committed_run):
    experiment, folder = committed_run
    (folder / "trials" / "digit_0.jsonl").unlink()
    with pytest.raises(SystemExit, match="1 of 2 trials are not in .*trials. Make them "
                                         "with: python3 -m experiments.means$"):
        lab.main(experiment, ["--recheck", "1"])


@pytest.mark.parametrize("one, other, apart", [
    (1, 1, 0), (2, 1, 0.5), ([4, 0.5], [4, 1], 0.125), ([0, 0], [0, 0], 0),
    ({"a": [1, None], "sha256": "x"}, {"a": [1, None], "sha256": "y"}, 0),
    ([1, None], [1, 2], math.inf), ([1], [1, 2], math.inf), ("ok", "no", math.inf),
    ({"a": 1}, {"b": 1}, math.inf), (True, 1, math.inf), ([[1, 2], [4, 4]],
                                                          [[1, 2], [4, 3]], 0.25)])
def test_differences_are_measured(one, other, apart):
    assert recheck.difference(one, other) == apart == recheck.difference(other, one)


def test_what_was_timed_may_differ_and_nothing_else():
    there = {"rows": [{"seconds": {"whole": 1.0}, "bytes": 7}]}
    slower = {"rows": [{"seconds": {"whole": 1.5}, "bytes": 7}]}
    good, how = recheck.judge(there, slower, recheck.numerics())
    assert good and "seconds" in how and "0.33" in how
    slower["rows"][0]["bytes"] = 8
    good, how = recheck.judge(there, slower, recheck.numerics())
    assert not good and "0.12" in how


def timed(seconds, **config):
    trial = make_trial("0" * 32, config, "ok", None, {"train_loss": [1.0, 0.5]}, 0)
    return trial._replace(seconds=seconds)


def test_a_claims_recheck_takes_two_minutes_at_most():
    def chosen(*trials):
        found, epochs, seconds = recheck.affordable(trials, recheck.costs(trials))
        return [trial.seconds for trial in found], epochs, seconds
    assert chosen(timed(90, n=1), timed(20, n=2)) == ([20, 90], None, 90)
    assert chosen(*(timed(100, n=n) for n in range(4))) == ([100, 100], None, 100)
    assert chosen(timed(600, epochs=6), timed(900, n=1)) == ([600], 1, 100)
    measuring = timed(150, epochs=10)
    assert recheck.affordable([measuring], {measuring.hash: 150}, 50)[2] == 60
    # The second went on from a checkpoint: it would take as long as the others.
    assert chosen(*(timed(seconds, lr=0.1 * seconds, epochs=2)
                    for seconds in (200, 3, 200)))[1:] == (1, 100)
    assert chosen(*(timed(seconds, dropout=dropout, epochs=2)
                    for dropout, seconds in ((0.5, 200), (0, 3), (1, 200))))[1] == 1


def test_one_epoch_of_a_trial_is_compared_with_its_first():
    there = {"training": {"train_loss": [2.0, 1.0]}, "T": [3.0, 4.0], "depth": 2}
    here = {"training": {"train_loss": [2.5]}, "T": [5.0, 6.0], "depth": 2}
    assert recheck.by_epoch(there, here, {"epochs": 2}, 1) == [
        ([2.0], [2.5])]


def test_one_epoch_that_lists_nothing_is_not_equal(capsys):
    trial = timed(1, epochs=2)._replace(result={"loss": 1.0})
    assert not recheck.tell(trial, trial, 1, "")
    assert "NOTHING to compare" in capsys.readouterr().out


def test_without_docstrings_all_experiments_start():
    """python -OO leaves none."""
    undocumented = replace(EXPERIMENT, doc=None)
    assert undocumented.question == ""
    assert lab.build_parser(undocumented).format_help()


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


def test_a_run_keeps_what_others_packed_and_began_meanwhile(committed_run):
    """As a pull does, or another process, in the hours that a run may take."""
    experiment, folder = committed_run
    path = folder / "trials" / "digit_1.jsonl"

    def run_beside(this):
        found = run(this)
        protocol, trials = load_trials(path)
        pack_trials(path, protocol, [*trials, make_trial(
            trials[0].protocol, {"digit": 7, "times": 1}, "ok", None, {"mean": 0}, 1)])
        (this.store / "checkpoints").mkdir()
        for name in (*(each.stem for each in this.store.glob("?" * 32 + ".json")),
                     "f" * 32):
            (this.store / "checkpoints" / f"{name}.npz").touch()
        return found
    more = experiment.protocol | {"digits": [3, 4, 5]}
    lab.main(replace(experiment, run=run_beside, protocol=more), ["--jobs", "1"])
    assert {trial.config["digit"] for trial in load_trials(path)[1]} == {3, 5, 7}
    store = lab_of(experiment).store
    assert [each.stem for each in (store / "checkpoints").iterdir()] == ["f" * 32]


@pytest.mark.parametrize("flags", [
    "--pack --fresh", "--pack --smoke", "--plot --pack", "--plot --recheck 3",
    "--pack --recheck 3", "--format svg", "--seed 1", "--only digit_0",
    "--recheck 1 --retry-failed", "--recheck 1 --cluster tcp://localhost:1"])
def test_flags_that_mean_nothing_together_are_refused(committed_run, flags, capsys):
    """`--fresh --pack`, after a finished `--fresh`, would drop what that made."""
    with pytest.raises(SystemExit) as stop:
        lab.main(committed_run[0], flags.split())
    assert stop.value.code == 2 and "error: --" in capsys.readouterr().err


def test_a_trial_that_a_plan_names_twice_is_rechecked_once(committed_run, calls,
                                                           capsys):
    experiment, _ = committed_run

    def run(lab):
        return [experiment.run(lab) for _ in range(2)][0]
    lab.main(replace(experiment, run=run), ["--recheck", "9", "--jobs", "1"])
    assert "training 2 trials again" in capsys.readouterr().out and len(calls) == 2


def test_a_failed_trial_ends_the_run_with_what_to_do(home):
    experiment = replace(EXPERIMENT, smoke=EXPERIMENT.smoke | {"times": "x"})
    with pytest.raises(SystemExit, match="failed: .*run again with --retry-failed"):
        lab.main(experiment, ["--smoke", "--jobs", "1"])
    assert not (home / "runs" / "smoke" / "means" / "record.json").exists()


def test_a_failed_trial_is_not_packed(home, capsys):
    """Or it would have failed in every clone."""
    experiment = replace(EXPERIMENT, protocol=EXPERIMENT.protocol | EXPERIMENT.smoke
                         | {"times": "x"})
    with pytest.raises(SystemExit, match="failed: "):
        lab.main(experiment, ["--jobs", "1"])
    lab.main(experiment, ["--pack"])
    assert "packed 0 trials" in capsys.readouterr().out


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


# --------------------------------------------------------------------------------------
# Numbers


def test_numbers_are_listed_in_their_shape():
    values = np.array([[1.23456789, math.nan], [math.inf, 1e-12]])
    assert judging.listed(values) == [[1.23457, None], [None, 1e-12]]
    assert judging.listed(np.float32(0.1), 3) == 0.1 and judging.listed([]) == []
    json.dumps(judging.listed(values.astype("float32")), allow_nan=False)


def test_what_diverged_is_infinite_or_left_out():
    assert judging.or_infinite([[1, None], [2, 3]]).tolist() == [[1, math.inf], [2, 3]]
    assert judging.mean_and_std([1, None, 3]) == {"mean": 2, "std": 1.41421, "n": 2}
    assert judging.mean_and_std([None]) == {"mean": None, "std": None, "n": 0}


@pytest.mark.parametrize("one, other, relation", [
    ([3, 4], [1, 2], "ahead of"), ([1, 2], [3, 4], "behind"),
    ([1, 3], [2, 4], "level with"), ([2, 3], [1, 2], "level with"),
    ([0.1], [None], "ahead of"), ([None, 5], [1, 2], "level with")])
def test_nets_are_compared_by_all_their_seeds(one, other, relation):
    assert judging.compare(one, other) == relation


def test_what_held_before_training_tells_nothing():
    assert [judging.telling(*pair) for pair in (
        (True, True), (True, False), (False, True), (False, False))] == [
        None, True, False, False]


# --------------------------------------------------------------------------------------
# The list, and the committed records


def test_the_state_of_results_is_what_lies_there(committed_run):
    experiment, folder = committed_run
    assert lab.state_of(experiment, folder) == "complete"
    other = replace(experiment, protocol=experiment.protocol | {"times": 2})
    assert lab.state_of(other, folder) == "of another protocol"
    other = replace(experiment, check=lambda record: [])
    assert lab.state_of(other, folder) == "with other verdicts"
    record = (folder / "record.json").read_text()
    (folder / "record.json").write_text(record + "\n")
    assert lab.state_of(experiment, folder) == "not drawn"
    (folder / "record.json").write_text("{")
    assert lab.state_of(experiment, folder) == "damaged"
    (folder / "record.json").unlink()
    assert lab.state_of(experiment, folder) == "none"


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
    assert lab.state_of(experiment, folder) == "complete"
    record, _ = lab.load_record(folder / "record.json")
    assert record["env"]["git_dirty"] is False
    assert bool(record.get("claims")) is bool(experiment.check)
