"""The mechanism of experiments: trials survive, claims are judged and rechecked."""

import gc
import itertools
import json
import math
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import numpy as np
import psutil
import pytest
from matplotlib.figure import Figure

import highway_networks as hn
from experiments import variants
from experiments.lab import Claim, experiment, main, recheck, running, trial_function
from experiments.lab.drawing import plain_numbers
from experiments.lab.experiment import Lab, Replay, load_record, state_of
from experiments.lab.judging import ahead, every, judge, or_infinite, or_zero, rank_p
from experiments.lab.running import KILLED, run_trials
from experiments.lab.trials import Request, Store, StoreError, read_packed
from highway_suite.files import write_json
from highway_suite.schema import RecordError
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
    assert [trial.result["x2"] for trial in first] == [0, 1, 4]
    assert first[1].config == {"x": 1} and first[1].result["odd"][1:] == [1e-30, None,
                                                                        "é"]
    asked = toys.requests_of(toys.square, 5)[::-1]
    again = run(asked, store)
    assert [trial.config["x"] for trial in again] == [4, 3, 2, 1, 0]
    assert again[2:] == first[::-1], "not run again: the seconds are the same"
    assert run(asked, store, data=pytest.fail) == again


def test_a_newer_version_takes_the_trials_that_it_accepts(store):
    run(toys.requests_of(toys.square, 2), store)
    found = run(toys.requests_of(toys.square_of_later, 3), store)
    assert [(t.version, t.result["x2"]) for t in found] == [(1, 0), (1, 1), (2, 5)]


def test_a_failed_trial_is_run_again_and_costs_no_other(store):
    requests = toys.requests_of(toys.lucky, 4)
    trials = run(requests, store)
    assert [trial.status for trial in trials] == ["ok", "ok", "failed", "ok"]
    assert "ArithmeticError: no luck" in trials[2].error and trials[2].result is None
    assert trials[2].error.isprintable()
    again = run(requests, store, True)
    assert [trial.result for trial in again] == [0, 1, 2, 3]
    assert again[:2] == trials[:2], "not run again: the seconds are the same"
    assert store.of("toy.%")[trials[2].hash].status == "ok"


def test_a_result_that_is_not_json_fails_its_trial(store):
    results = [np.nan, [np.inf], {1, 2}, np.float32(1)]
    for trial in run(toys.requests_of(toys.odd_result, 4), store, results):
        assert trial.status == "failed" and trial.error and trial.result is None


def test_a_store_that_cannot_be_written_is_said_before_the_first_trial(tmp_path):
    (tmp_path / "runs").symlink_to("absent")
    store = Store(tmp_path / "runs" / "trials.sqlite")
    with pytest.raises(OSError):
        run(toys.requests_of(toys.square, 2), store, data=pytest.fail)


def test_a_killed_worker_costs_only_the_trial_that_kills(store, tmp_path):
    before = dict(os.environ)
    trials = run(toys.requests_of(toys.fatal, 5), store, str(tmp_path), jobs=2)
    assert dict(os.environ) == before
    # Where another's end took its process before it began, 4 kills when it runs alone.
    fourth = None if toys.attempts_at(tmp_path, 4) == 1 else 4
    assert [trial.result for trial in trials] == [0, 1, None, 3, fourth]
    assert trials[2].error == KILLED


def test_workers_that_end_as_they_start_are_one_line(store, tmp_path):
    """As those of a script that starts them also when it is imported."""
    script = tmp_path / "mine.py"
    script.write_text(
        "from pathlib import Path\n"
        "from experiments.lab.running import run_trials\n"
        "from experiments.lab.trials import Store\n"
        "from tests import lab_toys as toys\n"
        f"store = Store(Path({str(store.path)!r}))\n"
        "run_trials(toys.requests_of(toys.square, 3), store, lambda: None, jobs=2)\n")
    done = subprocess.run([sys.executable, str(script)], stderr=subprocess.PIPE,
                          text=True, env=os.environ | {"PYTHONPATH": str(hn.HERE)})
    last = done.stderr.splitlines()[-1]
    assert "StoreError: worker processes end as they start" in last
    assert done.returncode == 1 and "__main__" in last


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
    monkeypatch.setattr(running, "PATIENCE", 60)
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
        store, tmp_path, cluster, digits, monkeypatch):
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
    with running.connect(running.dask(), address) as client:
        assert client.run_on_scheduler(lambda dask_scheduler: [
            name for name in dask_scheduler.worker_plugins if "highway" in name
            ]) == ["highway-networks"], "the code of one run takes the other's place"
        monkeypatch.setattr(running, "PATIENCE", 2)
        task = client.submit(time.sleep, 30, key="compute-elsewhere")
        while not any(client.processing().values()):
            time.sleep(0.05)
        with pytest.raises(StoreError, match="another desk"):
            run(requests, Store(tmp_path / "second.sqlite"), digits, cluster=address)
        task.cancel()


def test_a_cluster_that_is_lost_is_one_line_and_trials_are_kept(
        tmp_path, cluster, digits, monkeypatch, capsys):
    """Its workers first, and then, where there is another one, its scheduler."""
    address, processes, start_worker = cluster
    monkeypatch.setattr(running, "LOOK", 0.5)
    monkeypatch.setattr(running, "ALONE", 1)
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
            start_worker()


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:9", "tls://127.0.0.1:9", "tcp:/x",
                                     "x"])
def test_no_cluster_is_one_line(store, monkeypatch, address):
    pytest.importorskip("distributed")
    monkeypatch.setattr(running, "PATIENCE", 1)
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


def test_a_net_that_diverged_has_the_worst_of_all_numbers():
    assert or_zero([0.5, None]) == [0.5, 0]
    assert or_infinite([0.5, None]).tolist() == [0.5, math.inf]


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


def mark_clean(tmp_path):
    """As if the record had been made from a clean checkout."""
    path = tmp_path / "results" / "toy" / "record.json"
    record = json.loads(path.read_text())
    record["env"]["git_dirty"] = False
    write_json(path, record)


def test_a_run_leaves_record_figure_and_trials_and_then_nothing_to_do(toy, tmp_path,
                                                                      capsys):
    assert state_of(toys.EXPERIMENT) == "none"
    toy()
    assert capsys.readouterr().out.strip() == ", ".join(
        f"results/toy/{name}" for name in ("record.json", "figure.png", "trials"))
    mark_clean(tmp_path)
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
    assert load_record(tmp_path / "runs/toy/record.json")[0]["rows"] == record["rows"]


def test_only_what_no_trial_has_is_no_fresh_run(toy, tmp_path, capsys):
    toy()
    with pytest.raises(SystemExit, match="x=77"):
        toy("--fresh", "--only", "x=77")
    assert not (tmp_path / "runs/toy/record.json").exists()


def test_a_replay_names_the_trial_that_is_not_there(toy):
    with pytest.raises(StoreError, match="not there.*x 1"):
        Lab(toys.EXPERIMENT, Replay({})).record("")


@pytest.mark.parametrize("words", [["--smok"], ["--only", "x=2"], ["--jobs", "0"],
                                   ["--smoke", "--fresh"], ["--recheck", "0"]])
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


def test_what_is_no_picture_of_the_record_is_drawn_again(toy, tmp_path):
    toy()
    mark_clean(tmp_path)
    path = tmp_path / "results/toy/figure.png"
    good = path.read_bytes()
    for content in (b"", good[:20]):
        path.write_bytes(content)
        assert state_of(toys.EXPERIMENT) == "not drawn"


def test_a_changed_plan_is_seen(toy, monkeypatch):
    toy()
    folder = hn.HERE / "results/toy/trials"
    (folder / "lucky.jsonl").write_text("")
    monkeypatch.setitem(toys.EXPERIMENT.plan, "numbers", [1, 2, 3])
    assert "numbers" in state_of(toys.EXPERIMENT) and len(read_packed(folder)) == 4
    toy()
    assert len(read_packed(folder)) == 3, "what the plan no longer asks for is dropped"
    assert [path.name for path in folder.iterdir()] == ["square.jsonl"]


def test_a_damaged_line_of_the_store_is_an_error_that_names_the_file(store):
    run(toys.requests_of(toys.square, 1), store)
    store.execute("UPDATE trials SET line = substr(line, 1, 50)")
    with pytest.raises(StoreError, match="trials.sqlite"):
        store.of("toy.%")


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
    path.write_text(good.replace('"holds"', '"open"'))
    assert state_of(toys.EXPERIMENT) == "with other verdicts"


def tamper(tmp_path, x, x2):
    packed = tmp_path / "results/toy/trials/square.jsonl"
    lines = [json.loads(line) for line in packed.read_text().splitlines()]
    for fields in lines:
        if fields["config"]["x"] == x:
            fields["result"]["x2"] = x2
            fields["seconds"] = 0.01
    packed.write_text("".join(json.dumps(fields) + "\n" for fields in lines))
    (tmp_path / "runs" / "trials.sqlite").unlink(missing_ok=True)


def test_a_recheck_says_when_a_claim_no_longer_holds(toy, tmp_path, store, capsys,
                                                     monkeypatch):
    monkeypatch.setitem(toys.EXPERIMENT.plan, "numbers", [1, 2, 3])
    toy()
    with monkeypatch.context() as patch:    # by the plan of the record
        patch.setitem(toys.EXPERIMENT.plan, "numbers", [1, 2, 3, 4])
        assert recheck.recheck_claim("toy-last", store, jobs=1) == 0
    tamper(tmp_path, 3, 99)
    with pytest.raises(RecordError):        # the record is not of these trials
        recheck.recheck_claim("toy-last", store, jobs=1)
    toy()
    record, _ = load_record(tmp_path / "results/toy/record.json")
    assert record["claims"][0]["verdict"] == "holds"
    store.path.unlink(missing_ok=True)
    assert recheck.recheck_claim("toy-last", store, jobs=1) == 1
    told = capsys.readouterr().out
    assert "1 4 99 committed, 1 4 9 now" in told
    tamper(tmp_path, 1, 99)                 # one that decides nothing
    toy()
    assert recheck.recheck_claim("toy-last", store, jobs=1) == 1


def test_a_claim_too_dear_gets_no_verdict(toy, tmp_path, store, capsys):
    toy()
    assert recheck.recheck_claim("toy-last", store, minutes=0.01) == 2
    assert store.of("toy.%") == {}
    assert recheck.recheck_claim("toy-last", store, minutes=0.01, jobs=1, sample=1) == 0
    told = capsys.readouterr().out
    assert "1 trials decide it" in told and "square x 4" in told
    assert "verdict: " not in told and "equal to the bit" in told
    assert recheck.recheck_claim("toy-of-none", store) == 0
    assert "no trial decides it" in capsys.readouterr().out
    with pytest.raises(RecordError, match="toy-last"):
        recheck.recheck_claim("toy-first", store)


def test_a_sample_of_an_experiment_is_compared(toy, tmp_path, capsys):
    toy()
    toy("--recheck", "2")
    assert capsys.readouterr().out.count("equal to the bit") == 2
    tamper(tmp_path, 1, 7)
    toy()
    with pytest.raises(SystemExit):
        toy("--recheck", "4")
    assert "differs by up to 0.86 of a number" in capsys.readouterr().out   # 7, now 1


def test_trials_of_an_older_version_are_compared_as_such(toy, store, capsys,
                                                         monkeypatch):
    """Their numbers may differ, and it is said."""
    toy()
    monkeypatch.setattr(toys, "square", toys.square_of_later)
    toy("--recheck", "1")
    assert "version 2 of its function, not 1" in capsys.readouterr().out
    assert recheck.recheck_claim("toy-last", store, jobs=1) == 0
    out, err = capsys.readouterr()
    assert "16 committed, 1 4 9 17 now" in out and "version 2" in err
    assert "elsewhere" not in out, "it is the same machine"


def test_the_time_of_a_recheck_is_that_of_its_cores_or_of_the_longest_trial():
    trials = [SimpleNamespace(seconds=seconds) for seconds in (10, 10, 10, 30)]
    one, two, many = (recheck.seconds_of(trials, jobs) for jobs in (1, 2, 8))
    assert one - two == pytest.approx(30) and two == many > 30


@pytest.mark.parametrize("limits", [(0.02, 0.7), (1.1, 4), (1.1, 1.5)])
def test_a_logarithmic_axis_has_plain_numbers(limits):
    figure = Figure()
    axes = figure.subplots()
    axes.set(yscale="log", ylim=limits)
    plain_numbers(axes.yaxis)
    figure.canvas.draw()
    labels = [label.get_text() for label in axes.get_yticklabels(which="both")]
    assert len(list(map(float, filter(None, labels)))) > 2
