"""Trials survive kills, broken files, other processes and other protocols."""

import itertools
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import psutil
import pytest

import highway_networks as hn
from experiments import store
from experiments import trials as trials_module
from experiments.store import (
    StoreError,
    hash_of,
    load_trials,
    pack_trials,
)
from experiments.trials import KILLED, run_trials
from highway_networks import environment
from highway_suite import files
from highway_suite.workers import ended_by_signals
from tests import small_search
from tests.contracts import alive

ROOT = Path(hn.__file__).parent
PROTOCOL = {"dataset": "none", "rungs": [1, 2]}
CONFIGS = [{"x": x, "lr": 0.1 / (x + 1)} for x in range(4)]
ONE_MORE = [*CONFIGS, {"x": 9, "lr": 1}]


def square(config, data):
    return {"x2": config["x"] ** 2, "curve": [config["lr"], 1e-30, None, "é"]}


def same(trial):
    """What every run of a trial must give again."""
    return trial._replace(seconds=0, env={})


def content(folder):
    """The finished trials of a folder, wall-clock and environment aside."""
    return {trial.hash: same(trial) for trial in load_trials(folder)[1]}


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def all_bytes(folder):
    return {path: path.read_bytes() for path in folder.iterdir()}


def run(train, configs, folder, **more):
    more = {"protocol": PROTOCOL, "jobs": 1} | more
    return run_trials(train, configs, folder, **more)


@pytest.fixture
def folder(tmp_path):
    """A store in which `square` has run."""
    run(square, CONFIGS, tmp_path / "store")
    return tmp_path / "store"


def trial_file(folder, number=1):
    return folder / f"{hash_of(CONFIGS[number])}.json"


def test_each_trial_is_a_file_and_the_answer_is_in_the_order_asked(folder):
    asked = [CONFIGS[2], CONFIGS[0], {"lr": 0.1, "x": 0}]
    trials = run(square, asked, folder)
    assert [trial.config for trial in trials] == [CONFIGS[2], CONFIGS[0], CONFIGS[0]]
    assert trials[0].result == {"x2": 4, "curve": [0.1 / 3, 1e-30, None, "é"]}
    assert names(folder) == sorted(
        ["protocol.json", *(f"{hash_of(config)}.json" for config in CONFIGS)])


def test_resuming_runs_only_what_is_missing(folder):
    before, calls = all_bytes(folder), []

    def counted(config, data):
        calls.append(config["x"])
        if len(calls) == 1:
            run(square, ONE_MORE, folder)       # another process
        return square(config, data)
    more = [{"x": 7, "lr": 1.0}, *ONE_MORE, {"x": 8, "lr": 1.0}]
    assert [trial.config["x"] for trial in run(counted, more, folder)] == [
        7, 0, 1, 2, 3, 9, 8]
    assert calls == [7, 8] and before.items() <= all_bytes(folder).items()


def test_a_trial_is_the_same_from_memory_and_from_its_file(tmp_path):
    def odd(config, data):
        config["a"] = 99        # of a copy: it is recorded under what was asked
        return {1: (1, 2), "pair": (np.pi, True)}
    first, = run(odd, [{"b": (1, 2), "a": 3}], tmp_path)
    assert first.result == {"1": [1, 2], "pair": [np.pi, True]}
    assert list(first.config.items()) == [("a", 3), ("b", [1, 2])]
    again, = run(None, [{"a": 3, "b": [1, 2]}], tmp_path)
    assert again == first == load_trials(tmp_path)[1][0]


@pytest.mark.parametrize("config", [{"x": np.float32(1)}, {"x": np.nan}, {"x": {1}},
                                    {"x": 1, 1: 2}, {1: 2, None: 3}, [1]])
def test_a_configuration_that_is_not_json_is_refused(tmp_path, config):
    with pytest.raises(StoreError, match=r"configs\[1\] is "):
        run(square, [CONFIGS[0], config], tmp_path)
    assert names(tmp_path) == []


def test_a_changed_protocol_is_refused_with_a_diff(folder):
    before = all_bytes(folder)
    with pytest.raises(StoreError) as caught:
        run(None, CONFIGS, folder, protocol={"dataset": "mnist", "rungs": [1, 2]})
    first, *diff = str(caught.value).splitlines()
    assert str(folder / "protocol.json") in first
    assert [line for line in diff[2:] if line[0] in "-+"] == [
        '- "dataset": "none",', '+ "dataset": "mnist",']
    assert all_bytes(folder) == before
    turned = dict(reversed(PROTOCOL.items()))
    assert len(run(None, CONFIGS, folder, protocol=turned)) == 4, "order is no change"


def test_trials_know_their_protocol_when_the_manifest_is_lost_or_broken(folder):
    manifest = folder / "protocol.json"
    for text in ("", manifest.read_text() + "x", "[1]"):
        manifest.write_text(text)
        for use in (load_trials, lambda folder: run(None, CONFIGS, folder)):
            with pytest.raises(StoreError, match="protocol.json: "):
                use(folder)
        assert manifest.read_text() == text
    manifest.unlink()
    with pytest.raises(StoreError, match="of another protocol"):
        run(None, CONFIGS, folder, protocol={"dataset": "mnist"})
    run(None, CONFIGS, folder)
    assert load_trials(folder)[0] == PROTOCOL


def test_a_manifest_written_by_another_process_just_now_counts(tmp_path, monkeypatch):
    def beaten(path, record, write=files.write_json):
        write(path, record)
        if path.name == "protocol.json":
            write(tmp_path / "protocol.json", record | {"protocol": {"other": 1}})
            monkeypatch.setattr(os, "replace", lambda *_: None)
    monkeypatch.setattr(store, "write_json", beaten)
    with pytest.raises(StoreError, match="under another protocol"):
        run(square, CONFIGS, tmp_path)


def edited(old, new):
    return lambda text: text.replace(old, new)


BREAK = {       # beside every change of one character, below
    "not UTF-8": lambda text: "\udcff" + text,
    "a NaN": edited("1e-30", "NaN"),
    "nested": edited("1e-30", "[" * 100_000 + "]" * 100_000),
    "hash edited": edited(hash_of(CONFIGS[1]), hash_of(CONFIGS[2])),
    "a newer version": edited('"schema_version": 1', '"schema_version": 2'),
    "seconds edited": edited('"seconds": ', '"seconds": "long", "n": '),
    "env edited": lambda text: text[:text.index('"env"')] + '"env": 3}',
}


@pytest.mark.parametrize("kind", BREAK)
def test_a_broken_trial_is_set_aside_and_run_again(folder, kind, capfd):
    path, good = trial_file(folder), content(folder)
    broken = BREAK[kind](path.read_text())
    assert broken != path.read_text()
    path.write_text(broken, errors="surrogateescape")
    with pytest.raises(StoreError, match=f"{path}: "):
        load_trials(folder)
    run(square, CONFIGS, folder)
    bad = path.with_name(path.name + ".bad")
    assert bad.read_text(errors="surrogateescape") == broken
    assert capfd.readouterr().err.startswith(f"{path}: ")
    assert content(folder) == good


def test_every_damage_to_one_character_is_noticed_or_harmless(folder):
    text = trial_file(folder).read_text()
    good = same(store.parse_trial(text))
    noticed = 0
    for place in range(len(text)):
        for changed in (text[:place], text[:place] + text[place + 1:],
                        text[:place] + chr(ord(text[place]) ^ 1) + text[place + 1:],
                        text[:place] + "1" + text[place:]):
            try:
                assert same(store.parse_trial(changed)) == good, changed
            except ValueError:
                noticed += 1
    assert noticed > 2 * len(text)


def test_what_is_no_trial_of_that_name_is_set_aside_unopened(folder, capfd):
    """A FIFO, a folder, more than may be read, and another one's good trial."""
    shutil.copy(trial_file(folder, 0), trial_file(folder, 3))
    for number, make in enumerate((os.mkfifo, os.mkdir)):
        trial_file(folder, number).unlink()
        make(trial_file(folder, number))
    os.truncate(trial_file(folder, 2), files.LIMIT + 1)
    good = run(square, CONFIGS, folder)
    assert [trial.result["x2"] for trial in good] == [0, 1, 4, 9]
    assert capfd.readouterr().err.count("Set aside") == 4


def test_foreign_and_unfinished_files_are_left_alone_for_a_day(folder):
    strangers = ["notes.txt", "other.json", "A" * 32 + ".json", "0" * 32 + ".json.bad"]
    for name in strangers:
        (folder / name).write_text("mine")
    for name, age in (("young", 3600), ("old", 2 * 86400)):     # of killed processes
        (folder / f".unfinished-{name}").mkdir()
        (folder / f".unfinished-{name}" / "half.json").write_text("{")
        then = time.time() - age
        os.utime(folder / f".unfinished-{name}", (then, then))
    assert len(run(None, CONFIGS, folder)) == len(load_trials(folder)[1]) == 4
    assert all((folder / name).read_text() == "mine" for name in strangers)
    assert [name for name in names(folder) if name[0] == "."] == [".unfinished-young"]


def test_a_folder_that_cannot_be_used_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    for place in ("file", "file/below"):
        with pytest.raises(StoreError, match="file"):
            run(square, CONFIGS, tmp_path / place)
    with pytest.raises(StoreError, match="none"):
        load_trials(tmp_path / "none")


def test_a_full_disk_stops_the_run_and_keeps_what_is_there(folder, monkeypatch):
    before, full = all_bytes(folder), OSError(28, "No space left on device")
    monkeypatch.setattr(os, "fsync", Mock(side_effect=full))
    with pytest.raises(StoreError, match="No space left on device"):
        run(square, ONE_MORE, folder)
    assert all_bytes(folder) == before      # nothing half-written beside them


def test_a_failed_trial_is_recorded_and_run_again_only_when_asked(tmp_path, capfd):
    calls = []

    def train(config, lucky):
        calls.append(config["x"])
        if config["x"] == 2 and not lucky:
            raise ArithmeticError("no luck\nat all")
        return config["x"]
    trials = run(train, CONFIGS, tmp_path)
    assert [trial.status for trial in trials] == ["ok", "ok", "failed", "ok"]
    assert trials[2].result is None
    assert trials[2].error.startswith("ArithmeticError: no luck\nat all (test_trials.")
    assert "ArithmeticError: no luck\n" in capfd.readouterr().err
    assert run(train, CONFIGS, tmp_path) == trials and calls == [0, 1, 2, 3]
    again = run(train, CONFIGS, tmp_path, retry_failed=True, data=True)
    assert [trial.result for trial in again] == [0, 1, 2, 3] == calls[:4]
    assert calls[4:] == [2] and load_trials(tmp_path)[1] == sorted(again)


def test_a_result_that_is_not_json_fails_its_trial(tmp_path):
    results = [np.nan, [np.inf], {1, 2}, np.float32(1)]
    for trial in run(lambda config, data: results[config["x"]], CONFIGS, tmp_path):
        assert trial.status == "failed" and trial.error and trial.result is None


def test_a_failure_does_not_replace_another_process_success(folder):
    own, before = store.Store(folder, PROTOCOL, folder / ".unfinished"), content(folder)
    failed = store.make_trial(own.protocol, CONFIGS[0], "failed", KILLED, None, 0)
    assert own.save(failed).status == "ok" and content(folder) == before


def test_different_environments_are_told(folder, monkeypatch, capfd):
    run(square, CONFIGS, folder)
    assert "environment" not in capfd.readouterr().err
    monkeypatch.setattr(store, "environment",
                        lambda: environment() | {"blas_kernel": "other", "git": "old"})
    run(square, ONE_MORE, folder)
    said = capfd.readouterr().err.splitlines()[-1]
    assert "blas_kernel" in said and "git" not in said


def fatal(config, folder):
    """Note the attempt; kill this process if so configured."""
    with open(Path(folder) / str(config["x"]), "a") as attempts:
        attempts.write("x")
    time.sleep(0.1)
    if config["x"] == 2 or config["x"] == 4 and attempts_at(folder, 4) == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return config["x"]


def attempts_at(folder, x):
    return len((Path(folder) / str(x)).read_text())


FATAL = [{"x": x} for x in range(7)]


def check_fatal(tmp_path, **where):
    """2 kills its worker always, 4 at first; no other pays for it."""
    folder = tmp_path / "store"
    trials = run(fatal, FATAL, folder, data=str(tmp_path), **where)
    # Where another's end took its process before it began, 4 kills when it runs alone.
    fourth = None if attempts_at(tmp_path, 4) == 1 else 4
    assert [trial.result for trial in trials] == [0, 1, None, 3, fourth, 5, 6]
    assert trials[2].status == "failed" and trials[2].error == KILLED
    assert content(folder) == {trial.hash: same(trial) for trial in trials}
    assert run(None, FATAL, folder, cluster="not needed") == trials


def kind_of(config, data):
    return type(data.x_train).__name__


def test_local_processes_share_the_arrays_of_the_data(tmp_path):
    x, y = np.zeros((3000, 784), np.uint8), np.zeros(3000, int)
    trials = run(kind_of, CONFIGS, tmp_path, jobs=2, data=hn.Data(x, y, x[:1], y[:1]))
    assert {trial.result for trial in trials} == {"memmap"}


def test_a_killed_worker_is_replaced_and_costs_only_the_trial_that_kills(
        tmp_path, capfd):
    check_fatal(tmp_path, jobs=2)
    assert max(attempts_at(tmp_path, x) for x in range(7)) <= 2
    assert "it runs alone now" in capfd.readouterr().err
    assert len(names(tmp_path / "store")) == 8


FLAGS = ("--trials", "8", "--epochs", "25")


def search(folder, *flags, holds=10**6):
    """Start tests/small_search.py as the head of its own process group."""
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-m", "tests.small_search", folder, *flags],
        cwd=ROOT, text=True, stderr=subprocess.PIPE, start_new_session=True,
        env=os.environ | {"SEARCH_HOLDS": str(holds)})


def finish(process):
    stderr = process.communicate(timeout=120)[1]
    assert process.returncode == 0 and "Set aside" not in stderr, stderr


def wait_for_files(folder, number, process):
    deadline = time.monotonic() + 60
    while len(list(folder.glob("*.json"))) < number:
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.02)


def ignores_ctrl_c(process):
    """As Linux tells it; elsewhere False, half a second later."""
    status = Path(f"/proc/{process.pid}/status")
    if not status.exists():
        time.sleep(0.5)
        return False
    ignored = re.search(r"SigIgn:\s*(\w+)", status.read_text())[1]
    return bool(int(ignored, 16) >> signal.SIGINT - 1 & 1)


def wait_for_workers(process):
    """Until they start, and their parent no longer ignores Ctrl-C for their sake."""
    def started():
        with suppress(psutil.NoSuchProcess):
            return any("loky" in " ".join(child.cmdline())
                       for child in psutil.Process(process.pid).children())
    deadline = time.monotonic() + 60
    while not started() or ignores_ctrl_c(process):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)


def undisturbed(folder, *flags):
    """The trials of a search in this process."""
    small_search.main([str(folder), *flags, "--jobs", "1"])
    return content(folder)


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    return undisturbed(tmp_path_factory.mktemp("undisturbed"), *FLAGS)


def kill(process):
    """And remove what joblib leaves in shared memory when all its processes die."""
    os.killpg(process.pid, signal.SIGKILL)
    for name in (f"joblib_memmapping_folder_{process.pid}_*",
                 f"sem.loky-{process.pid}-*"):
        for path in Path("/dev/shm").glob(name):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert "Set aside" not in process.communicate(timeout=60)[1]
    assert process.returncode == -signal.SIGKILL


@pytest.mark.parametrize("kills", [1, pytest.param(20, marks=pytest.mark.kill)])
def test_the_search_survives_kills_and_two_processes_at_once(tmp_path, kills, seed):
    flags, draw = ("--trials", str(8 * kills), "--epochs", "80"), random.Random(seed)
    expected, folder = undisturbed(tmp_path / "undisturbed", *flags), tmp_path / "store"
    for _ in range(kills):
        there = len(list(folder.glob("*.json"))) or 1       # the protocol
        process = search(folder, *flags, "--jobs", "2", holds=there + 4)
        wait_for_files(folder, there + draw.randrange(1, 4), process)
        time.sleep(draw.uniform(0, 0.1))
        kill(process)
        found = content(folder)
        assert there <= len(found) < 8 * kills and found.items() <= expected.items()
    both = [search(folder, *flags, "--jobs", "1") for _ in range(2)]
    for process in both:
        finish(process)
    assert content(folder) == expected
    assert len(list(folder.glob("[!.]*"))) == 8 * kills + 1


@pytest.mark.parametrize("trials", [0, 1])
def test_ctrl_c_leaves_finished_trials_and_nothing_else(tmp_path, trials, expected):
    process = search(tmp_path, *FLAGS, "--jobs", "2", holds=trials + 4)
    wait_for_files(tmp_path, trials + 1, process)
    if not trials:
        wait_for_workers(process)
    os.killpg(process.pid, signal.SIGINT)
    stderr = process.communicate(timeout=60)[1]
    assert process.returncode == 130 and "Traceback" not in stderr, stderr
    found = content(tmp_path)
    assert trials <= len(found) < 8 and found.items() <= expected.items()
    assert len(names(tmp_path)) == len(found) + 1


def test_a_closed_terminal_ends_a_run_unless_it_is_told_not_to():
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)   # nohup has it ignored
    try:
        with pytest.raises(KeyboardInterrupt), ended_by_signals():
            os.kill(os.getpid(), signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_DFL
        signal.signal(signal.SIGHUP, signal.SIG_IGN)        # as nohup does
        with ended_by_signals():
            os.kill(os.getpid(), signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_what_ends_the_trainer_ends_its_workers(tmp_path, number):
    """Within seconds, and nothing of it stays; of a kill until the next start."""
    process = search(tmp_path, "--epochs", "150", "--jobs", "2", holds=6)
    wait_for_files(tmp_path, 2, process)
    os.kill(process.pid, number)
    process.communicate(timeout=20)         # the workers have its stderr
    assert process.returncode == (-number if number == signal.SIGKILL else 130)
    deadline = time.monotonic() + 30
    while alive(process.pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not alive(process.pid), "a process is left over"
    if number == signal.SIGKILL:
        assert list(tmp_path.glob(".unfinished-*"))
        store.remove_leftovers(tmp_path)
        trials_module.folder_for_arrays.__wrapped__()
    assert not list(tmp_path.glob(".unfinished-*"))
    assert not list(Path(tempfile.gettempdir()).glob(
        f".highway-networks-{process.pid}-*"))


def test_trials_outlive_the_terminal(tmp_path, monkeypatch):
    """stderr is a pipe that from the first trial on nobody reads any more."""
    reader, writer = os.pipe()

    def train(config, data):
        if config == CONFIGS[0]:
            os.close(reader)
        return square(config, data)
    with open(writer, "w") as stderr:
        monkeypatch.setattr(sys, "stderr", stderr)
        trials = run(train, CONFIGS, tmp_path, jobs=1)
    assert [trial.status for trial in trials] == ["ok"] * 4


def test_progress_names_settings_and_loss(tmp_path, capfd):
    def train(config, data):
        return {"status": "ok", "train_loss": [1.0, 0.12345]}
    configs = [{"block": "plain", "depth": 9, "lr": 10.0 ** -n} for n in range(6)]
    run(train, configs, tmp_path)
    line = capfd.readouterr().err.splitlines()[1]
    assert "1/6" in line and "lr 1 " in line and "0.1235" in line
    assert trials_module.describer(configs[:1])(configs[0]) == "plain, depth 9, lr 1"


class Killed(BaseException):
    """The process ends here."""


def test_a_kill_before_any_step_of_a_write_loses_nothing(tmp_path, monkeypatch):
    """Before each of the calls that change a folder; the dead do not tidy up."""
    for step in itertools.count():
        left, place = itertools.count(step, -1), tmp_path / str(step)

        def deadly(call, left=left):
            def counted(*args, **more):
                if next(left) <= 0:
                    raise Killed
                return call(*args, **more)
            return counted
        with monkeypatch.context() as patch, suppress(Killed):
            for name in ("fsync", "replace", "mkdir", "rmdir", "chmod", "unlink"):
                patch.setattr(os, name, deadly(getattr(os, name)))
            run(square, CONFIGS[:2], place)
            break
        run(square, CONFIGS[:2], place)
        assert {path.suffix for path in place.iterdir()} <= {"", ".json"}
        assert len(content(place)) == 2, f"step {step} left {names(place)}"
    assert step > 9                     # 3 files, 3 calls and more for each


CLUSTER = """
import sys, distributed
with distributed.LocalCluster(n_workers=2, threads_per_worker=1, host="127.0.0.1",
                              dashboard_address=None, silence_logs=50) as cluster:
    print(cluster.scheduler_address, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def cluster():
    """The address of a scheduler on the loopback interface with two workers."""
    pytest.importorskip("distributed", reason="needs the extra `cluster`")
    env = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}",
                        # Dask gives up what has outlived a worker, not four.
                        "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "0"}
    with subprocess.Popen([sys.executable, "-c", CLUSTER], env=env, text=True,
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL) as process:
        address = process.stdout.readline().strip()
        assert address.startswith("tcp://127.0.0.1:")
        yield address
        process.communicate("the end", timeout=30)


def test_a_killed_cluster_worker_costs_only_the_trial_that_kills(
        tmp_path, cluster, expected):
    small_search.main([str(tmp_path / "search"), *FLAGS, "--cluster", cluster])
    assert content(tmp_path / "search") == expected
    check_fatal(tmp_path, cluster=cluster)


def test_a_cluster_that_is_not_there_is_one_line(tmp_path, monkeypatch):
    pytest.importorskip("distributed", reason="needs the extra `cluster`")
    with pytest.raises(StoreError, match="nonsense://1"):
        run(square, CONFIGS, tmp_path, cluster="nonsense://1")
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(StoreError, match="pip install"):
        run(square, CONFIGS, tmp_path, cluster="tcp://127.0.0.1:1")
    assert names(tmp_path) == ["protocol.json"]


@pytest.fixture
def packed(folder, tmp_path):
    pack_trials(tmp_path / "packed.jsonl", *load_trials(folder))
    return tmp_path / "packed.jsonl"


def test_packed_trials_are_the_same_trials(folder, packed, tmp_path):
    protocol, trials = load_trials(packed)
    assert (protocol, trials) == load_trials(folder)
    assert len(packed.read_text().splitlines()) == 5
    some = [trials[2], trials[0]]
    pack_trials(packed, protocol, some)
    assert load_trials(packed) == (PROTOCOL, some)
    with pytest.raises(StoreError, match="not written"):
        pack_trials(packed, {"dataset": "mnist"}, trials)
    assert load_trials(packed) == (PROTOCOL, some)
    assert names(tmp_path) == ["packed.jsonl", "store"]


@pytest.mark.parametrize("line, old, new", [
    (3, '"x2": ', '"x2": 7'), (3, '"lr": ', '"lr": 1'), (2, '"status"', '"state"'),
    (1, '"count": 4', '"count": 5'), (1, '"none"', '"mnist"'), (1, "trials", "trial")])
def test_an_edited_packed_file_is_refused(packed, line, old, new):
    lines = packed.read_text().split("\n")
    lines[line - 1] = lines[line - 1].replace(old, new, 1)
    packed.write_text("\n".join(lines))
    with pytest.raises(StoreError, match=r"packed.jsonl, line \d: "):
        load_trials(packed)


def test_a_packed_file_that_ends_early_is_refused(packed):
    text = packed.read_text()
    for end in (*range(0, len(text), 23), text.rindex("{"), len(text) - 1):
        packed.write_text(text[:end])
        with pytest.raises(StoreError, match="packed.jsonl, line"):
            load_trials(packed)


def test_a_trial_of_long_epochs_says_how_far_it_is(monkeypatch, capsys):
    report = trials_module.reporting({"depth": 999, "seed": 1, "batch": 128,
                                      "epochs": 5})
    report({"epoch": 1, "train_loss": 0.5})
    monkeypatch.setattr(trials_module, "SLOW", 0)
    report({"epoch": 2, "train_loss": 0.25})
    assert re.fullmatch(r"depth 999, seed 1: epoch 2/5  loss 0.25  after \d+ s\n",
                        capsys.readouterr().err)
