"""The mechanism of experiments: trials survive, claims are judged and rechecked."""

import gc
import itertools
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import psutil
import pytest

import highway_networks as hn
from experiments import claims as all_claims
from experiments import variants
from experiments.lab import Claim, experiment, main, running, trial_function
from experiments.lab import cluster as cluster_of
from experiments.lab.experiment import Lab, Replay, load_record, state_of
from experiments.lab.judging import ahead, every, judge, rank_p
from experiments.lab.running import KILLED, run_trials
from experiments.lab.trials import Request, Store, StoreError, read_packed
from highway_suite import checkpoints
from highway_suite.files import write_json
from highway_suite.records import RecordError
from tests import lab_toys as toys


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store" / "trials.sqlite")


def run(requests, store, data=None, **more):
    return run_trials(requests, store, lambda: data, **{"jobs": 1} | more)


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


def test_only_what_is_missing_is_run_and_the_answer_is_in_order(store):
    first = run(toys.requests_of(toys.square, 3), store)
    assert all(0 < trial.seconds < 60 for trial in first)
    assert [trial.result["x2"] for trial in first] == [0, 1, 4]
    assert first[1].config == {"x": 1} and first[1].result["odd"][1:] == [1e-30, None,
                                                                        "é"]
    asked = toys.requests_of(toys.square, 5)[::-1]
    again = run(asked, store)
    assert [trial.config["x"] for trial in again] == [4, 3, 2, 1, 0]
    assert again[2:] == first[::-1], "not run again: the seconds are the same"
    assert run(asked, store, data=pytest.fail) == again
    assert store.save(first[1]._replace(seconds=9.0)) == first[1], "the first is kept"


@pytest.mark.parametrize("jobs", [1, 2])
def test_no_trial_changes_the_data_of_another(store, jobs):
    trials = run(toys.requests_of(toys.spoiling, 6), store, np.zeros(2), jobs=jobs)
    assert [trial.result for trial in trials] == [[1, 1]] * 6


def test_a_newer_version_takes_the_trials_that_it_accepts(store):
    run(toys.requests_of(toys.square, 2), store)
    found = run(toys.requests_of(toys.square_of_later, 3), store)
    assert [(t.version, t.result["x2"]) for t in found] == [(1, 0), (1, 1), (2, 5)]


def test_a_failed_trial_is_run_again_and_costs_no_other(store):
    requests = toys.requests_of(toys.lucky, 4)
    trials = run(requests, store)
    assert [trial.status for trial in trials] == ["ok", "ok", "failed", "ok"]
    assert re.fullmatch(r"ArithmeticError: no luck \[31m  \(lab_toys.py, line \d+\)",
                        trials[2].error) and trials[2].result is None
    again = run(requests, store, True)
    assert [trial.result for trial in again] == [0, 1, 2, 3]
    assert again[:2] == trials[:2], "not run again: the seconds are the same"
    assert store.of("toy.%")[trials[2].hash].status == "ok"


def test_a_result_that_is_not_json_fails_its_trial(store):
    results = [np.nan, [np.inf], {1, 2}, np.float32(1)]
    for trial in run(toys.requests_of(toys.odd_result, 4), store, results):
        assert trial.status == "failed" and trial.error and trial.result is None


def test_a_resumable_trial_goes_on_from_its_checkpoint(store, monkeypatch):
    """Its time is that of all attempts, and it says where else it ran."""
    requests, folder = toys.requests_of(toys.long, 3)[2:], store.path.parent
    monkeypatch.setattr(checkpoints, "this_process", lambda: {"numpy": "old"})
    assert run(requests, store)[0].status == "failed"
    assert [path.suffix for path in (folder / "checkpoints").iterdir()] == [".npz"]
    monkeypatch.setattr(checkpoints, "this_process", lambda: {"numpy": "new"})
    trial, = run(requests, store, True)
    assert trial.result == 2 and 0.3 <= trial.seconds < 60
    assert trial.env["went_on_from"] == [{"numpy": "old"}]
    assert not any((folder / "checkpoints").iterdir())


def test_a_store_that_cannot_be_written_is_said_before_the_first_trial(tmp_path):
    (tmp_path / "runs").symlink_to("absent")
    store = Store(tmp_path / "runs" / "trials.sqlite")
    with pytest.raises(OSError):
        run(toys.requests_of(toys.square, 2), store, data=pytest.fail)


def test_a_killed_worker_costs_only_the_trial_that_kills(store, tmp_path, capfd):
    before = dict(os.environ)
    trials = run(toys.requests_of(toys.fatal, 8), store, str(tmp_path), jobs=2)
    assert dict(os.environ) == before
    # Where another's end took its process before it began, 4 kills when it runs alone.
    fourth = None if toys.attempts_at(tmp_path, 4) == 1 else 4
    assert [trial.result for trial in trials] == [0, 1, None, 3, fourth, 5, 6, 7]
    assert trials[2].error == KILLED
    assert 2 <= capfd.readouterr().err.count("runs alone now") <= 4, "two at a time"


def start(store, count, **environment):
    """`count` slow trials in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.lab_toys", str(store.path), str(count)],
        cwd=hn.HERE, env=os.environ | environment, start_new_session=True,
        stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("kills", [1, pytest.param(80, marks=pytest.mark.kill)])
def test_kills_lose_and_change_nothing(store, seed, kills):
    """At any moment, again and again; then two runs at a time end what is left."""
    rng, count = random.Random(seed), 12
    for _ in range(kills):
        process = start(store, count, TOY_HOLDS="9")
        time.sleep(rng.uniform(0.1, 1.5))
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        for trial in store.of("toy.%").values():
            assert trial.result == [trial.config["x"] / 7]
    for process in [start(store, count), start(store, count)]:
        assert process.communicate(timeout=60)[1].count("Traceback") == 0
        assert process.returncode == 0
    found = run(toys.requests_of(toys.slow, count), store)
    assert [trial.result for trial in found] == [[x / 7] for x in range(count)]


def test_workers_end_with_their_caller(store):
    process = start(store, 4, TOY_HOLDS="0")
    children, deadline = [], time.monotonic() + 20
    while len(children) < 2 and time.monotonic() < deadline:
        children = psutil.Process(process.pid).children()
        time.sleep(0.1)
    process.kill()
    process.communicate()
    assert len(children) >= 2 and not psutil.wait_procs(children, timeout=20)[1]


# A cluster


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    """A scheduler and two workers, started as the documentation says, elsewhere; but
    without nannies, which would start killed workers anew -> its address, its
    processes, and a function that starts a worker."""
    pytest.importorskip("distributed")
    monkeypatch.setattr(cluster_of, "PATIENCE", 60)
    started, port = [], random.randrange(20000, 40000)
    address = f"tcp://127.0.0.1:{port}"
    with open(tmp_path / "cluster.log", "w") as log:
        def start_dask(name, *words):
            started.append(subprocess.Popen(
                [sys.executable, "-m", f"distributed.cli.dask_{name}", *words,
                 "--no-dashboard"], cwd=tmp_path, stdout=log, stderr=log,
                env=os.environ | {"OPENBLAS_NUM_THREADS": "1"}))

        def start_worker():
            start_dask("worker", address, "--nthreads", "1", "--no-nanny",
                       "--local-directory", str(tmp_path))
        start_dask("scheduler", "--host", "127.0.0.1", "--port", str(port))
        start_worker()
        start_worker()
        deadline = time.monotonic() + 60
        with socket.socket() as there:
            while there.connect_ex(("127.0.0.1", port)) and time.monotonic() < deadline:
                time.sleep(0.1)
        yield address, started, start_worker
        for process in started:
            process.kill()
            process.wait()


def requests_of_variants():
    return [Request(variants.train, None, config) for config in variants.configs(
        variants.PLAN | variants.SMOKE).values()]


def test_a_cluster_gives_the_same_trials_and_bears_a_killed_worker(
        store, tmp_path, cluster, digits, monkeypatch, capsys):
    """Its processes were started elsewhere and have none of our code; nor do they get
    that of the tests. A second desk is refused."""
    address, processes, _ = cluster
    with pytest.raises(StoreError, match="cannot run trials: .*tests") as caught:
        run(toys.requests_of(toys.square, 2), store, cluster=address)
    assert "\n" not in str(caught.value)
    requests = requests_of_variants()

    def kill_one_at_work():
        while not store.of("variants.%"):
            time.sleep(0.05)
        processes[1].kill()
    killer = threading.Thread(target=kill_one_at_work, daemon=True)
    killer.start()
    found = run(requests, store, digits, cluster=address)
    killer.join()
    assert same(found) == same(run(requests, Store(tmp_path / "other.sqlite"), digits))
    run(requests[:1], Store(tmp_path / "again.sqlite"), digits, cluster=address)
    with cluster_of.connect(cluster_of.dask(), address) as client:
        assert client.run_on_scheduler(lambda dask_scheduler: [
            name for name in dask_scheduler.worker_plugins if "highway" in name
            ]) == ["highway-networks"], "the code of one run takes the other's place"
        monkeypatch.setattr(cluster_of, "PATIENCE", 2)
        task = client.submit(time.sleep, 30, key="compute-elsewhere")
        while not any(client.processing().values()):
            time.sleep(0.05)
        with pytest.raises(StoreError, match="another desk"):
            run(requests, Store(tmp_path / "second.sqlite"), digits, cluster=address)
        task.cancel()
        with monkeypatch.context() as patch, pytest.raises(
                StoreError, match="lost the Dask scheduler.* got our code"):
            patch.setattr(type(client), "get_versions", other_versions)
            patch.setattr(type(client), "register_plugin", lose)
            run(requests, Store(tmp_path / "third.sqlite"), digits, cluster=address)
    assert ("workers have numpy 2.2, 2.3, and this machine 2.4: last bits of their "
            "trials may differ\n") in capsys.readouterr().err


def lose(*_, **more):
    raise OSError("a socket was closed")


def other_versions(client):
    here = {"python": "3.13", "numpy": "2.4", "distributed": "2026"}
    return {"client": {"packages": here}, "workers": {
        name: {"packages": here | {"numpy": version}}
        for name, version in zip("abc", ("2.4", "2.3", "2.2"), strict=True)}}


def test_a_cluster_that_is_lost_is_one_line_and_trials_are_kept(
        store, tmp_path, cluster, digits, monkeypatch, capsys):
    """Its workers first, and then, where there is another one, its scheduler."""
    address, processes, start_worker = cluster
    monkeypatch.setattr(cluster_of, "LOOK", 0.5)
    monkeypatch.setattr(cluster_of, "ALONE", 1)
    for lost, words, name in ((processes[1:], "no worker at", "trials"),
                              (processes[:1], "lost the Dask scheduler", "others")):
        def kill_after_two(*given, lost=lost):
            told = itertools.count(1)

            def tell(trial):
                if next(told) == 2:
                    for process in lost:
                        process.kill()
            return tell
        monkeypatch.setattr(running, "progress", kill_after_two)
        kept = Store(tmp_path / f"{name}.sqlite")
        with pytest.raises(StoreError, match=words) as caught:
            run(requests_of_variants(), kept, digits, cluster=address)
        assert "\n" not in str(caught.value) and len(kept.of("variants.%")) >= 2
        if name == "trials":
            assert "no worker is left" in capsys.readouterr().err
            with monkeypatch.context() as patch, pytest.raises(
                    StoreError, match="has no worker"):
                patch.setattr(cluster_of, "PATIENCE", 0.3)
                run(requests_of_variants(), store, digits, cluster=address)
            start_worker()


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:9", "tls://127.0.0.1:9", "x",
                                     "http://x"])
def test_no_cluster_is_one_line(store, monkeypatch, address):
    pytest.importorskip("distributed")
    monkeypatch.setattr(cluster_of, "PATIENCE", 1)
    with pytest.raises(StoreError, match=f"answers at '{address}'"):
        run(toys.requests_of(toys.square, 2), store, cluster=address)
    gc.collect()        # a client that never began would fail here


# Claims


def test_rank_p_is_the_share_of_all_orders(rng):
    for one, other in ((3, 3), (2, 5), (4, 4), (1, 3)):
        pooled = rng.integers(0, 6, one + other).astype(float)      # with ties
        ranks = [np.mean(np.flatnonzero(np.sort(pooled) == value)) for value in pooled]
        sums = [sum(chosen) for chosen in itertools.combinations(ranks, one)]
        share = np.mean(np.array(sums) >= sum(ranks[:one]) - 1e-9)
        assert rank_p(pooled[:one], pooled[one:]) == pytest.approx(share)


def test_ahead_needs_enough_seeds_and_an_order():
    assert ahead([3, 4, 5], [0, 1, None]) is True
    assert ahead([0, 1, None], [3, 4, 5]) is False
    assert ahead([3, 4, 5], [0, 1, 3.5]) is None
    assert ahead([3, 4], [0, 1]) is None, "two seeds each cannot tell"


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
    return {path.relative_to(tmp_path): path.read_bytes()
            for path in (tmp_path / "results").rglob("*") if path.is_file()}


def mark(tmp_path, dirty):
    """As if the record had been made from a clean or from a changed checkout."""
    path = tmp_path / "results" / "toy" / "record.json"
    record = json.loads(path.read_text())
    record["env"]["git_dirty"] = dirty
    write_json(path, record)


def test_a_run_leaves_record_figure_and_trials_and_then_nothing_to_do(toy, tmp_path,
                                                                      capsys):
    assert state_of(toys.EXPERIMENT) == "none"
    toy()
    assert capsys.readouterr().out.strip() == ", ".join(
        f"results/toy/{name}" for name in ("record.json", "figure.png", "trials"))
    mark(tmp_path, dirty=True)
    toy()
    assert "record.json" in capsys.readouterr().out, "it is made anew"
    toy("--plot")
    assert capsys.readouterr().out == "results/toy/figure.png\n"
    mark(tmp_path, dirty=False)
    toy()
    record, _ = load_record(tmp_path / "results/toy/record.json")
    assert state_of(toys.EXPERIMENT) == "complete"
    assert record["env"]["git_dirty"] is False, "the older record stands"
    before = committed(tmp_path)
    assert {path.name for path in before} == {"record.json", "figure.png",
                                              "square.jsonl"}
    capsys.readouterr()
    toy()
    assert "results/" not in capsys.readouterr().out
    (tmp_path / "results/toy/trials/square.jsonl").unlink()
    toy("--pack")
    toy("--fresh", "--only", "x=2e0")       # as numbers
    toy("--smoke")
    assert committed(tmp_path) == before
    assert load_record(tmp_path / "runs/toy-x=2e0/record.json")[0]["rows"] == record[
        "rows"]


def mark_seconds(tmp_path):
    """Let the committed trials have taken 77 seconds -> them."""
    packed = tmp_path / "results/toy/trials/square.jsonl"
    packed.write_text(re.sub(r'"seconds": [0-9.e-]+', '"seconds": 77',
                             packed.read_text()))
    return read_packed(packed.parent)


def test_only_leaves_a_fresh_run_alone(toy, tmp_path):
    """Its results, and what an interrupted one has kept."""
    toy()
    with pytest.raises(SystemExit, match="x=77"):       # which no trial has
        toy("--fresh", "--only", "x=77")
    assert not [*(tmp_path / "runs").glob("toy*/record.json")]
    trials = mark_seconds(tmp_path)
    interrupted = Store(tmp_path / "runs/toy/trials.sqlite")
    for trial in trials.values():
        interrupted.save(trial)
    toy("--fresh", "--only", "x=2")
    assert interrupted.of("toy.%") == trials
    assert not (tmp_path / "runs/toy/record.json").exists()
    made = read_packed(tmp_path / "runs/toy-x=2/trials")
    assert {trial.config["x"]: trial.seconds == 77 for trial in made.values()} == {
        1: True, 2: False, 3: True, 4: True}


def test_an_experiment_may_have_no_claims(toy, monkeypatch):
    bare = replace(toys.EXPERIMENT, claims=lambda record: ())
    monkeypatch.setattr(sys.modules["experiments.toy"], "EXPERIMENT", bare)
    toy()
    assert state_of(bare) == "complete"


def test_a_committed_trial_stays_though_the_store_has_another(toy, tmp_path):
    toy()
    marked = mark_seconds(tmp_path)
    toy()
    assert read_packed(tmp_path / "results/toy/trials") == marked


def test_a_trial_that_is_not_there_or_fails_is_named(toy, monkeypatch):
    with pytest.raises(StoreError, match="experiments.toy trains it: x 1$"):
        Lab(toys.EXPERIMENT, Replay({})).record("")
    monkeypatch.setattr(toys, "square", toys.lucky)
    with pytest.raises(SystemExit, match="toy: trial .* failed: .*no luck"):
        toy()


@pytest.mark.parametrize("error, code, told", [
    (hn.DataError("no images"), "experiments.toy: no images", ""),
    (OSError("no room"), "experiments.toy: no room", ""), (BrokenPipeError(), 1, ""),
    *((KeyboardInterrupt(*sent), code,
       "\nexperiments.toy: interrupted; finished trials are kept\n")
      for sent, code in (((), 130), ((signal.SIGTERM,), 143)))])
def test_what_ends_a_run_is_one_line(toy, monkeypatch, capsys, error, code, told):
    def end(*_):
        raise error
    monkeypatch.setattr(Lab, "record", end)
    with pytest.raises(SystemExit) as caught:
        toy()
    assert caught.value.code == code and capsys.readouterr().err == told


@pytest.mark.parametrize("words", [["--smok"], ["--only", "x=2"], ["--jobs", "0"],
                                   ["--smoke", "--fresh"], ["--recheck", "0"],
                                   ["--cluster", "x", "--recheck", "1"]])
def test_wrong_flags_are_usage_errors(toy, words, capsys):
    with pytest.raises(SystemExit) as caught:
        toy(*words)
    assert caught.value.code == 2 and words[0] in capsys.readouterr().err


def test_a_fresh_clone_goes_on_where_the_committed_trials_end(toy, tmp_path, monkeypatch
                                                              ):
    toy()
    (tmp_path / "runs" / "trials.sqlite").unlink()
    packed = tmp_path / "results/toy/trials/square.jsonl"
    lines = packed.read_text().splitlines(keepends=True)
    packed.write_text("".join(lines[:3]))
    toy()
    assert sorted(read_packed(packed.parent)) == sorted(
        json.loads(line)["trial"] for line in lines)
    assert set(lines[:3]) <= set(packed.read_text().splitlines(keepends=True))


def test_a_changed_plan_is_seen(toy, monkeypatch):
    toy()
    folder = hn.HERE / "results/toy/trials"
    (folder / "lucky.jsonl").write_text("")
    monkeypatch.setitem(toys.EXPERIMENT.plan, "numbers", [1, 2, 3])
    assert state_of(toys.EXPERIMENT) == "of another plan"
    assert len(read_packed(folder)) == 4
    toy()
    assert len(read_packed(folder)) == 3, "what the plan no longer asks for is dropped"
    assert [path.name for path in folder.iterdir()] == ["square.jsonl"]


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


def test_a_record_of_another_kind_is_one_line(toy, tmp_path):
    toy()
    path = tmp_path / "results/toy/record.json"
    good = path.read_text()
    for change in ({"schema": "other"}, {"schema_version": 1}, {"claims": 3}):
        write_json(path, json.loads(good) | change)
        with pytest.raises(RecordError, match="record.json") as caught:
            load_record(path)
        assert "Make it" not in str(caught.value), "a file that is there"
        assert state_of(toys.EXPERIMENT) == "damaged"
    path.write_text(good)
    path.with_name("figure.png").write_bytes(b"")
    assert state_of(toys.EXPERIMENT) == "not drawn"
    write_json(path, json.loads(good) | {"rows": []})
    assert state_of(toys.EXPERIMENT) == "damaged"
    path.write_text(good.replace('"holds"', '"open"'))
    assert state_of(toys.EXPERIMENT) == "with other verdicts"
    record = json.loads(good)
    with pytest.raises(RecordError, match="two claims are called toy-last: of a and b"):
        experiment.all_claims({"a": record, "b": record})


def tamper(tmp_path, x, x2, **env):
    packed = tmp_path / "results/toy/trials/square.jsonl"
    lines = [json.loads(line) for line in packed.read_text().splitlines()]
    for fields in lines:
        if fields["config"]["x"] == x:
            fields["result"]["x2"] = x2
            fields["seconds"] = 0.01
            fields["env"] |= env
    packed.write_text("".join(json.dumps(fields) + "\n" for fields in lines))
    (tmp_path / "runs" / "trials.sqlite").unlink(missing_ok=True)


def rechecked(*words):
    """The exit code of a recheck, or the line that ends it."""
    with pytest.raises(SystemExit) as caught:
        all_claims.main(["--jobs", "1", "--recheck", *words])
    return caught.value.code


def test_an_interrupted_recheck_keeps_nothing(toy, tmp_path, capsys, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt
    toy()
    capsys.readouterr()
    monkeypatch.setattr(all_claims, "recheck_claim", interrupted)
    assert rechecked("toy-last") == 130
    assert "begins anew" in capsys.readouterr().err


def test_a_recheck_says_when_a_claim_no_longer_holds(toy, tmp_path, capsys, monkeypatch
                                                     ):
    monkeypatch.setitem(toys.EXPERIMENT.plan, "numbers", [1, 2, 3])
    toy()
    with monkeypatch.context() as patch:    # by the plan of the record
        patch.setitem(toys.EXPERIMENT.plan, "numbers", [1, 2, 3, 4])
        assert rechecked("toy-last") == 0
    tamper(tmp_path, 3, 99)
    assert "do not give the committed claim toy-last" in rechecked("toy-last")
    toy()
    capsys.readouterr()
    assert rechecked("toy-last") == 1
    told = capsys.readouterr().out
    assert "5 s" in told
    assert " x 3  0 s\n" in told and " x2: 1 4 99 committed, 1 4 9 now\n" in told
    assert "holds committed, does not hold now; it no longer holds" in told
    tamper(tmp_path, 1, 99)                 # one that decides nothing
    toy()
    assert rechecked("toy-last") == 1


def test_a_claim_too_dear_gets_no_verdict(toy, capsys, monkeypatch):
    monkeypatch.setitem(toys.EXPERIMENT.plan, "numbers", list(range(1, 15)))
    toy()
    with monkeypatch.context() as patch:
        patch.setattr(running, "START", 60)
        assert rechecked("toy-last", "--minutes", "1") == 2
    assert rechecked("toy-last", "--sample", "1") == 0
    told = capsys.readouterr().out
    assert "--minutes 2 gives the verdict" in told
    assert "verdict: " not in told and "x 14: equal to the bit" in told
    assert rechecked("toy-of-none") == 0
    all_claims.main([])
    told = capsys.readouterr().out
    assert "no trial decides it" in told and "\ntoy-last: holds. ours: " in told
    said = rechecked("toy-first")
    assert "no claim 'toy-first'" in said and "toy-last" in said


def test_a_sample_of_an_experiment_is_compared(toy, tmp_path, capsys):
    """Trials that differ are no failure where they were made elsewhere."""
    toy()
    toy("--recheck", "2")
    assert capsys.readouterr().out.count("equal to the bit") == 2
    for x2, told in ((7, "differs by up to 0.86 of a number;"),     # 7, now 1
                     (None, "differs in more than numbers;")):
        tamper(tmp_path, 1, x2)
        toy()
        with pytest.raises(SystemExit):
            toy("--recheck", "4")
        assert told in capsys.readouterr().out
    tamper(tmp_path, 1, 2, numpy="1.0")
    toy()
    toy("--recheck", "4")
    assert f"0.5 of a number (numpy {np.__version__} here, 1.0 there); 0.0 s, " in (
        capsys.readouterr().out)


def test_trials_of_an_older_version_are_compared_as_such(toy, tmp_path, capsys,
                                                         monkeypatch):
    """Their numbers may differ, and it is said; so it is of those made elsewhere."""
    toy()
    monkeypatch.setattr(toys, "square", toys.square_of_later)
    toy("--recheck", "1")
    assert "version 2 of its function, not 1" in capsys.readouterr().out
    assert rechecked("toy-last") == 0
    out, err = capsys.readouterr()
    assert "16 committed, 1 4 9 17 now" in out and "of version 1" in err
    assert "these of version 2" in err and "numpy" not in out
    tamper(tmp_path, 4, 16, numpy="1.0")
    assert rechecked("toy-last") == 0
    assert "numpy" in capsys.readouterr().out
