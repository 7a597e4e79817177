"""The mechanism of experiments: trials survive, claims are judged and rechecked."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

import highway_networks as hn
from experiments import claims as all_claims
from experiments.lab import Claim, experiment, main, running, trial_function
from experiments.lab.experiment import Lab, Replay, load_record, state_of
from experiments.lab.judging import ahead, every, judge
from experiments.lab.recheck import apart
from experiments.lab.running import run_trials
from experiments.lab.trials import Request, StoreError, read_packed
from highway_suite import checkpoints
from highway_suite.files import write_json
from highway_suite.records import RecordError
from tests import lab_toys as toys
from tests.contracts import exit_of


def run(requests, store, folder=None, **more):
    return run_trials(requests, store, toys.load, folder, **{"jobs": 1} | more)


def same(trials):
    return [trial._replace(seconds=0, env={}) for trial in trials]


# Trials


def test_the_name_of_a_trial_is_of_all_that_its_result_depends_on():
    def elsewhere(config, data):
        return None
    moved = trial_function("toy.square")(elsewhere)
    data = {"name": "mnist", "content": "a"}
    one = Request(toys.square, data, {"a": 1, "b": 2}).hashes
    assert one == Request(moved, data, {"b": 2, "a": 1}).hashes
    others = [Request(toys.square, data, {"a": 1, "b": 3}),
              Request(toys.square, data | {"content": "b"}, {"a": 1, "b": 2}),
              Request(toys.square, None, {"a": 1, "b": 2}),
              Request(toys.lucky, data, {"a": 1, "b": 2})]
    later = Request(toys.square_of_later, data, {"a": 1, "b": 2})
    assert later.hashes[1:] == one and later.hashes[0] != one[0]
    assert len({*one, *(request.hashes[0] for request in others)}) == 5


@pytest.mark.parametrize("jobs", [1, 2])
def test_only_what_is_missing_is_run_and_the_answer_is_in_order(store, jobs):
    first = run(toys.requests_of(toys.square, 3), store, jobs=jobs)
    assert first[1].config == {"x": 1} and first[1].result == {
        "x2": 1, "odd": [1 / 3, 1e-30, None, "é"]}
    asked = toys.requests_of(toys.square, 5)[::-1]
    again = run(asked, store, jobs=jobs)
    assert [trial.config["x"] for trial in again] == [4, 3, 2, 1, 0]
    assert again[2:] == first[::-1], "not run again: the seconds are the same"
    assert store.save(first[1]._replace(seconds=9.0)) == first[1], "the first is kept"
    assert same(run(asked, None)) == same(again)


@pytest.mark.parametrize("jobs", [1, 2])
def test_no_trial_changes_the_data_of_another(store, jobs):
    trials = run(toys.requests_of(toys.spoiling, 6, "zeros"), store, jobs=jobs)
    assert [trial.result for trial in trials] == [[1, 1]] * 6


def test_a_newer_version_takes_the_trials_that_it_accepts(store):
    run(toys.requests_of(toys.square, 2), store)
    found = run(toys.requests_of(toys.square_of_later, 3), store)
    assert [(t.version, t.result["x2"]) for t in found] == [(1, 0), (1, 1), (2, 5)]


def test_a_failed_trial_is_run_again_and_costs_no_other(store, tmp_path):
    requests = toys.requests_of(toys.lucky, 4, "folder")
    trials = run(requests, store, tmp_path)
    assert [trial.status for trial in trials] == ["ok", "ok", "failed", "ok"]
    assert "no luck" in trials[2].error and trials[2].result is None
    (tmp_path / "luck").touch()
    again = run(requests, store, tmp_path)
    assert [trial.result for trial in again] == [0, 1, 2, 3]
    assert again[:2] == trials[:2], "not run again: the seconds are the same"


def test_a_result_that_is_not_json_fails_its_trial(store):
    for trial in run(toys.requests_of(toys.odd, 4), store):
        assert trial.status == "failed" and trial.error and trial.result is None


def test_a_resumable_trial_goes_on_from_its_checkpoint(store, tmp_path, monkeypatch):
    """And says where else it ran."""
    requests = toys.requests_of(toys.long, 3, "folder")[2:]
    monkeypatch.setattr(checkpoints, "environment", lambda: {"numpy": "old"})
    assert run(requests, store, tmp_path)[0].status == "failed"
    (tmp_path / "luck").touch()
    monkeypatch.setattr(checkpoints, "environment", lambda: {"numpy": "new"})
    trial, = run(requests, store, tmp_path)
    assert trial.result == 2 and trial.env["went_on_from"] == [{"numpy": "old"}]
    assert [path.name for path in store.path.parent.rglob("*.*")] == ["trials.sqlite"]


def test_the_time_left_is_that_of_the_trials_left(monkeypatch, capsys):
    requests, clock = toys.requests_of(toys.square, 4), iter([100, 130, 150])
    trial, = run(requests[:1], None)
    monkeypatch.setattr(running, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    tell = running.progress(requests, 4, 3)
    tell(trial), tell(trial)
    _, one, two = capsys.readouterr().err.splitlines()[-3:]
    assert "60 s left" in one and "25 s left" in two


def test_trials_are_found_by_the_start_of_a_name_and_not_by_a_pattern(store):
    def declared(name):
        return trial_function(name)(lambda config, data: name)
    for name in ("a_b.f", "axb.f", "A_B.f", "a_bc.f"):
        run([Request(declared(name), None, {})], store)
    assert [trial.result for trial in store.of("a_b.").values()] == ["a_b.f"]


def test_a_killed_worker_ends_the_run_and_the_same_call_goes_on(store, tmp_path):
    requests = toys.requests_of(toys.fatal, 6, "folder")
    with pytest.raises(StoreError) as caught:
        run(requests, store, tmp_path, jobs=2)
    assert "\n" not in str(caught.value)
    kept = store.of("toy.fatal")
    assert kept and all(t.result == t.config["x"] != 2 for t in kept.values())
    (tmp_path / "luck").touch()
    trials = run(requests, store, tmp_path, jobs=2)
    assert [trial.result for trial in trials] == [*range(6)]
    assert kept.items() <= {trial.hash: trial for trial in trials}.items()


def start(store, count, **environment):
    """`count` slow trials in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.lab_toys", str(store.path), str(count)],
        cwd=hn.HERE, env=os.environ | environment, start_new_session=True,
        stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("kills", [1, pytest.param(80, marks=pytest.mark.kill)])
def test_kills_lose_and_change_nothing(store, seed, kills):
    """At any moment, again and again; then two runs at a time end what is left."""
    rng, count, kept = random.Random(seed), 12, {}
    for _ in range(kills):
        process = start(store, count, TOY_HOLDS="9")
        time.sleep(rng.uniform(0.1, 3))
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        before, kept = kept, store.of("toy.")
        assert before.items() <= kept.items()
    for process in [start(store, count), start(store, count)]:
        assert "Traceback" not in process.communicate(timeout=120)[1]
        assert process.returncode == 0
    found = run(toys.requests_of(toys.slow, count), store)
    assert [trial.result for trial in found] == [[x / 7] for x in range(count)]
    assert kept.items() <= {trial.hash: trial for trial in found}.items()


# Claims


def test_an_order_needs_three_seeds_each_or_two_far_apart():
    assert ahead([3, 4, 5], [0, 1, None]) is True
    assert ahead([0, 1, None], [3, 4, 5]) is False
    assert ahead([3, 4, 5, 6, 7], [0, 1, 3.5]) is None, "one seed is not ahead"
    assert ahead([3, 4, 5], [3, 2, 1]) is None, "equal is not ahead"
    assert ahead([9], [0, 1, 2]) is None, "one seed tells no order"
    assert ahead([4.5, 5], [0, 1]) is True
    assert ahead([0, 1], [4.5, 5]) is False
    assert ahead([4, 5], [0, 1]) is None, "no more than three times the spread"
    assert ahead([4.5, 5], [0, 1], [[3], [7, 9]]) is None, "of another net"
    assert ahead([4.5, 5], [None, 1]) is None
    assert ahead([4.5, 5], [None, None]) is True
    assert ahead([None] * 3, [None] * 3) is None


def test_every_verdict():
    def verdicts(numbers, control=None):
        found = judge(Claim(
            name="c", source="P1 2", text="all are above the limit", ours=numbers,
            rows=[{"trials": ["b"]}, {"trials": ["a", "b"]}], limit=4.0,
            test=lambda limit: every(number and number > limit for number in numbers),
            control=control and (lambda limit: control > limit), why="undecided"))
        assert found["trials"] == ["a", "b"]
        assert found["at"]["4"] == found["verdict"]
        assert ("why" in found) == (found["verdict"] == "open")
        return list(found["at"].values())
    assert verdicts([5, 9]) == ["holds", "holds", "does not hold"]
    assert verdicts([5, 9], control=3) == ["not learned", "holds", "does not hold"]
    assert verdicts([5, None]) == ["open", "open", "does not hold"]
    assert judge(Claim(name="c", source="P1", text="", ours=1, rows=[], test=None,
                       why="needs data"))["verdict"] == "open"


# The command line, and rechecks


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """The toy experiment in a checkout of its own -> call(*words)."""
    monkeypatch.setattr(hn, "HERE", tmp_path)
    monkeypatch.setitem(sys.modules, "experiments.toy",
                        SimpleNamespace(EXPERIMENT=toys.EXPERIMENT))
    monkeypatch.setattr(experiment, "NAMES", ("toy",))
    return lambda *words: main("toy", ["--jobs", "1", *words])


def committed(tmp_path):
    return {path.name: path.read_bytes()
            for path in (tmp_path / "results").rglob("*") if path.is_file()}


def edit(path, **fields):
    write_json(path, json.loads(path.read_text()) | fields)


def edit_trials(tmp_path, x, x2, **env):
    """Give the committed trial of one x another result."""
    packed = tmp_path / "results/toy/trials/square.jsonl"
    lines = [json.loads(line) for line in packed.read_text().splitlines()]
    for fields in lines:
        if x == fields["config"]["x"]:
            fields["result"]["x2"] = x2
            fields["env"] |= env
    packed.write_text("".join(json.dumps(fields) + "\n" for fields in lines))
    (tmp_path / "runs" / "trials.sqlite").unlink(missing_ok=True)


def test_a_run_leaves_record_figure_and_trials_and_then_nothing_to_do(toy, tmp_path,
                                                                      capsys):
    path = tmp_path / "results/toy/record.json"
    assert state_of(toys.EXPERIMENT) == "none"
    toy()
    for dirty in (True, False):     # as if made from a changed, and a clean, checkout
        edit(path, env={"git_dirty": dirty})
        toy("--plot")
        toy()
        assert (load_record(path)[0]["env"] == {"git_dirty": False}) == (not dirty)
    assert state_of(toys.EXPERIMENT) == "complete"
    assert "trials" not in capsys.readouterr().out.splitlines()[-1]
    before = committed(tmp_path)
    assert set(before) == {"record.json", "figure.png", "square.jsonl"}
    (tmp_path / "results/toy/trials/square.jsonl").unlink()
    toy("--pack")
    toy("--fresh")
    toy("--smoke")
    assert committed(tmp_path) == before
    assert load_record(tmp_path / "runs/toy/record.json")[0]["rows"] == (
        load_record(path)[0]["rows"])


def test_a_fresh_clone_goes_on_where_the_committed_trials_end(toy, tmp_path):
    toy()
    packed = tmp_path / "results/toy/trials/square.jsonl"
    whole = read_packed(packed.parent)
    packed.write_text("".join(packed.read_text().splitlines(keepends=True)[:3]))
    left = read_packed(packed.parent)
    (tmp_path / "runs" / "trials.sqlite").unlink()
    toy()
    assert left.items() < read_packed(packed.parent).items()
    assert set(read_packed(packed.parent)) == set(whole)


def test_a_trial_that_is_not_there_or_fails_is_named(toy, monkeypatch):
    with pytest.raises(StoreError, match="x 1"):
        Lab(toys.EXPERIMENT, Replay({})).record("")
    monkeypatch.setattr(toys, "square", toys.lucky)
    with pytest.raises(SystemExit, match="no luck"):
        toy()


@pytest.mark.parametrize("error, code", [
    (hn.DataError("no images"), "experiments.toy: no images"),
    (OSError("no room"), "experiments.toy: no room"), (BrokenPipeError(), 1),
    (KeyboardInterrupt(), 130), (KeyboardInterrupt(signal.SIGTERM), 143)])
def test_what_ends_a_run_is_a_line_or_a_code(toy, monkeypatch, error, code):
    def end(*_):
        raise error
    monkeypatch.setattr(Lab, "record", end)
    assert exit_of(toy) == code


@pytest.mark.parametrize("words", [
    ["--smok"], ["--jobs", "0"], ["--jobs", "1025"], ["--smoke", "--fresh"]])
def test_wrong_flags_are_usage_errors(toy, words):
    assert exit_of(toy, *words) == 2


def test_a_changed_plan_is_seen(toy, tmp_path, monkeypatch):
    toy()
    (tmp_path / "results/toy/trials/lucky.jsonl").write_text("")
    monkeypatch.setitem(toys.EXPERIMENT.plan, "numbers", [1, 2, 3])
    assert state_of(toys.EXPERIMENT) == "of another plan"
    toy()
    assert len(read_packed(tmp_path / "results/toy/trials")) == 3
    assert "lucky.jsonl" not in committed(tmp_path), "nobody asks for it any longer"


def test_a_damaged_line_is_named(toy, tmp_path):
    toy()
    packed = tmp_path / "results/toy/trials/square.jsonl"
    text = packed.read_text()
    third = 1 + next(i for i, line in enumerate(text.splitlines()) if '"x": 3}' in line)
    for old, new, line in (('"x": 3}', '"x": 5}', third),
                           ('"version": 1', '"version": "one"', 1), (text, "{}\n", 1)):
        packed.write_text(text.replace(old, new))
        with pytest.raises(StoreError, match=rf"square.jsonl, line {line}\b"):
            read_packed(packed.parent)


def test_a_record_that_is_wrong_is_named(toy, tmp_path):
    toy()
    path = tmp_path / "results/toy/record.json"
    good = path.read_text()
    for change in ({"schema": "other"}, {"schema_version": 1}, {"claims": 3}):
        edit(path, **change)
        with pytest.raises(RecordError, match="record.json"):
            load_record(path)
        path.write_text(good)
    edit(path, rows=[])
    assert state_of(toys.EXPERIMENT) == "damaged"
    path.write_text(good.replace('"holds"', '"open"'))
    assert state_of(toys.EXPERIMENT) == "with other verdicts"
    path.write_text(good)
    path.with_name("figure.png").write_bytes(b"")
    assert state_of(toys.EXPERIMENT) == "not drawn"
    with pytest.raises(RecordError, match="toy-last"):      # two claims of one name
        experiment.all_claims({"a": json.loads(good), "b": json.loads(good)})


def rechecked(*words):
    """The exit code of a recheck, or the line that ends it."""
    return exit_of(all_claims.main, ["--jobs", "1", "--recheck", *words])


def test_a_recheck_says_when_a_claim_no_longer_holds(toy, tmp_path, capsys, monkeypatch
                                                     ):
    monkeypatch.setitem(toys.EXPERIMENT.plan, "numbers", [1, 2, 3])
    toy()
    with monkeypatch.context() as patch:    # by the plan of the record
        patch.setitem(toys.EXPERIMENT.plan, "numbers", [1, 2, 3, 4])
        assert rechecked("toy-last") == 0
    edit_trials(tmp_path, 3, 99)
    assert "toy-last" in rechecked("toy-last"), "the record is not of these trials"
    toy()
    assert rechecked("toy-last") == 1
    assert "1 4 99 committed, 1 4 9 now" in capsys.readouterr().out
    assert not (tmp_path / "runs/trials.sqlite").exists(), "a recheck keeps nothing"


@pytest.mark.parametrize("numbers, x2, env, code", [
    ([1, 2, 3, 4], 16, {}, 0), ([1, 2, 3, 4], 17, {}, 3),
    ([1, 2, 3, 4], 17, {"numpy": "1.0"}, 0), ([4.5, 4], 20.3, {"numpy": "1.0"}, 3),
    ([4], 99, {"numpy": "1.0"}, 0)])                # one number: nothing can be said
def test_a_recheck_says_when_only_the_verdict_comes_out(toy, tmp_path, monkeypatch,
                                                        numbers, x2, env, code):
    """The committed trial of 4, whose square is 16, was tampered with."""
    monkeypatch.setitem(toys.EXPERIMENT.plan, "numbers", numbers)
    toy()
    edit_trials(tmp_path, 4, x2, **env)
    toy()
    assert rechecked("toy-last") == code


def test_a_claim_too_dear_gets_no_verdict(toy, monkeypatch):
    toy()
    assert rechecked("toy-last", "--sample", "1") == 0
    assert rechecked("toy-of-none") == 0
    assert "toy-last" in rechecked("toy-lost"), "what is near"
    monkeypatch.setattr(running, "START", 60)
    assert rechecked("toy-last", "--minutes", "1") == 2


def test_a_sample_of_a_claims_trials_is_compared(toy, tmp_path, capsys, monkeypatch):
    """Trials that differ are no failure where they were made by another version, or
    elsewhere."""
    toy()
    assert rechecked("toy-all", "--sample", "2") == 0
    assert capsys.readouterr().out.count("equal") == 2
    with monkeypatch.context() as patch:
        patch.setattr(toys, "square", toys.square_of_later)
        assert rechecked("toy-last", "--sample", "1") == rechecked("toy-last") == 0
    edit_trials(tmp_path, 4, 17)
    toy()
    assert rechecked("toy-last", "--sample", "1") == 1
    edit_trials(tmp_path, 4, 17, numpy="1.0")
    toy()
    assert rechecked("toy-last", "--sample", "1") == 0
    assert apart({"a": 1}, {"a": "b"}) == "differs in more than numbers"


@pytest.mark.parametrize("words", [["--sample", "1"], ["--five", "--minutes", "1"]])
def test_flags_of_a_recheck_alone_are_usage_errors(words):
    assert exit_of(all_claims.main, words) == 2
