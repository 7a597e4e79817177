"""The command line: what it accepts, refuses, writes and survives."""

import contextlib
import math
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest

import highway_networks as hn
from highway_suite import cli, workers
from highway_suite.records import numbers_of, read_record

DIGITS = ["--dataset", "digits", "--jobs", "1", "--depth", "2", "--epochs", "1"]


def settings_of(command):
    """The settings that a command line makes, before the data are known."""
    given = vars(cli.build_parser().parse_args(shlex.split(command)[2:]))
    return hn.resolve({k: v for k, v in given.items() if k in cli.PLAN}, given["quick"])


def runs_of(record):
    """What two runs of one command must have in common."""
    return numbers_of(record) | {"command": ""}


def run_script(*words, cwd, **env):
    return subprocess.run([sys.executable, hn.__file__, *words], cwd=cwd, text=True,
                          capture_output=True, env={**os.environ, **env})


@pytest.mark.parametrize("words", [
    "--depth 0", "--depth 2.5", "--lr nan", "--lr inf", "--lr x", "--gate-bias 101",
    "--jobs 0", "--depths 1,,2", "--seeds 1,1", "--blocks no", "--dep 3",
    "--blocks plain,plain", "--depth 3 --depths 4", "--no-save --out r.json",
    "--activation no", "--out /absent/r.json", "--out=", "--data-dir=", "--out a\nb",
    "--out \udcff", "--out " + "n" * 256, "--out .", "--out /dev/null", "--threads 0",
    "--threads 2 --jobs 2", "--checkpoint /absent/c.npz",
    "--dataset digits --n-train 1438", "--dataset digits --n-test 361",
    "--dataset digits --n-train 99 --batch 100"])
def test_wrong_flags_end_with_the_usage_and_exit_code_2(words, capsys):
    with pytest.raises(SystemExit) as caught:
        cli.main((words if "--jobs" in words else f"{words} --jobs 1").split(" "))
    assert caught.value.code == 2
    assert capsys.readouterr().err.startswith("usage:")


@pytest.mark.parametrize("given, quick, expected", [
    ({}, False, {"depths": [30], "epochs": 12, "n_train": 6000, "n_test": 2000}),
    ({}, True, {"depths": [10], "epochs": 5, "n_train": 2000, "n_test": 1000}),
    ({"depth": 50, "epochs": 2}, True, {"depths": [50], "epochs": 2, "n_train": 2000}),
    ({"depths": [3, 4]}, True, {"depths": [3, 4], "epochs": 5}),
    ({"hidden": 60}, False, {"hidden": 60, "plain_hidden": 60}),
    ({"plain_hidden": 71}, False, {"hidden": 50, "plain_hidden": 71})])
def test_a_preset_fills_only_what_was_not_given(given, quick, expected):
    settings = hn.resolve(given, quick)
    assert {name: settings[name] for name in expected} == expected


@pytest.mark.parametrize("given, name", [
    ({}, "run.json"), ({"seed": 1}, "runs/seed=1.json"),
    ({"seeds": [0, 1]}, "runs/seeds=0,1.json"),
    ({"depths": [5, 10]}, "runs/seed=0_depths=5,10.json"),
    ({"depth": 5, "lr": 0.1}, "runs/seed=0_depth=5_lr=0.1.json"),
    ({"plain_hidden": 71}, "runs/seed=0_plain-hidden=71.json"),
    ({"blocks": ["plain", "full"]}, "runs/seed=0_blocks=plain,full.json"),
    ({"dataset": "digits"}, "runs/seed=0_dataset=digits.json")])
def test_only_the_headline_goes_to_run_json(given, name):
    settings = hn.cap_images(hn.resolve(given))
    flags = cli.flags_of(settings)
    assert cli.default_out(flags) == Path(name)
    again = settings_of(cli.command_of(flags, None)) | {"dataset": settings["dataset"]}
    assert hn.cap_images(again) == settings, "it makes another run"


def test_file_names_stay_short_and_apart():
    names = {cli.default_out([("seeds", ",".join(map(str, range(n))))]).name
             for n in (90, 91)}
    assert len(names) == 2 and all(len(name) < 130 for name in names)


def test_main_trains_both_arms_and_writes(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    record = cli.main([*DIGITS, "--seeds", "0,1"])
    path = tmp_path / "runs" / "seeds=0,1_depth=2_dataset=digits_epochs=1.json"
    saved = read_record(path)
    assert saved == record and [run["seed"] for run in saved["runs"]] == [0, 1]
    assert saved["config"]["n_train"] == saved["n_train"] == 1437
    out, err = capsys.readouterr()
    assert "highway 2" in out and "plain 2" in out and "over 2 seeds" in out
    assert len([line for line in err.splitlines() if "epoch" in line]) == 4


def test_a_seed_has_its_own_images_whatever_stands_beside_it():
    both, alone = (cli.main([*DIGITS, "--n-train", "500", "--no-save", *seeds])
                   for seeds in (("--seeds", "0,1"), ("--seed", "1")))
    assert numbers_of(both)["runs"][1] == numbers_of(alone)["runs"][0]


def test_plain_hidden_and_a_command_without_paths_of_the_machine(tmp_path):
    record = cli.main([*DIGITS, "--plain-hidden", "71", "--out",
                       str(tmp_path / "name.json")])
    run = record["runs"][0]
    assert run["plain"]["hidden"] == 71 and run["highway"]["hidden"] == 50
    assert run["plain"]["parameters"] == 64 * 71 + 71 + 2 * (71 * 72) + 720
    assert record["command"].endswith("--out name.json")


def test_auto_gate_bias_is_a_number_in_the_record():
    record = cli.main(["--dataset", "digits", "--jobs", "1", "--depths", "3,10",
                       "--epochs", "1", "--gate-bias", "auto", "--no-save"])
    assert record["config"]["gate_bias"] == pytest.approx(-math.log(9))
    assert [run["highway"]["gate_bias"] for run in record["runs"]] == pytest.approx(
        [-math.log(2), -math.log(9)])
    assert "--gate-bias auto" in record["command"]
    for run in record["runs"]:      # before training the T of all blocks sum to 1
        epoch, T = run["highway"]["layer_T_history"][0]
        assert epoch == 0 and sum(T) == pytest.approx(1, abs=0.15)


@pytest.mark.parametrize("accuracy, advised", [(0.15, True), (0.16, False),
                                               (None, True)])
def test_a_highway_net_that_guesses_gets_advice(accuracy, advised):
    """At the accuracy up to which the pictures say so."""
    net = {"depth": 50, "seed": 3, "label": "net 50", "final_test_acc": accuracy,
           "chance": 0.1}
    told = cli.advice_on({"config": {"gate_bias": -2.0}, "seeds": [3],
                          "runs": [{"highway": net, "plain": net}]})
    assert ("--gate-bias auto (-3.89)" in told) is advised
    headline = {"config": hn.resolve({}), "seeds": [0], "runs": []}
    assert "experiments.headline" in cli.advice_on(headline)


def test_divergence_ends_with_a_record(tmp_path, capsys):
    path = tmp_path / "r.json"
    words = "--activation relu --init he --optimizer sgd --lr 1000 --clip 0 --out"
    record = cli.main([*DIGITS, *words.split(), str(path)])
    assert read_record(path) == record
    assert {run["plain"]["status"] for run in record["runs"]} == {"diverged"}
    assert "did not learn" in capsys.readouterr().err


# Without what is not needed


def test_the_file_alone_writes_the_same_record(tmp_path, small_mnist):
    """Without the suite and threadpoolctl, beside four idx files."""
    arguments = ["--data-dir", "data", "--depth", "3", "--epochs", "2", "--batch", "10",
                 "--out", "r.json"]
    hide = "".join(f"sys.modules[{name!r}] = None\n" for name in
                   ("highway_suite", "threadpoolctl"))
    (tmp_path / "alone.py").write_text(
        f"import sys\n{hide}"
        f"sys.path.insert(0, {str(tmp_path / 'copy')!r})\n"
        "import highway_networks as hn\n"
        f"facts = {hn.DATASETS['mnist'].files!r}\n"
        .replace("DataFile", "hn.DataFile") +
        "hn.DATASETS['mnist'] = hn.DATASETS['mnist']._replace("
        "files=facts, images=(20, 20))\n"
        f"hn.main({arguments!r})\n")
    (tmp_path / "copy").mkdir()
    shutil.copy(hn.__file__, tmp_path / "copy")
    ended = subprocess.run([sys.executable, "alone.py"], cwd=tmp_path, text=True,
                           capture_output=True,
                           env=os.environ | {"OPENBLAS_NUM_THREADS": "1"})
    assert ended.returncode == 0, ended.stderr
    assert "highway 3" in ended.stdout and "wrote r.json" in ended.stdout
    alone = read_record(tmp_path / "r.json")
    words = ["--dataset", "mnist", "--data-dir", str(small_mnist), *arguments[2:-2]]
    beside = cli.main([*words, "--jobs", "1", "--no-save"])
    assert numbers_of(alone)["runs"] == numbers_of(beside)["runs"]
    assert alone["config"] == beside["config"]
    assert alone["env"]["blas_threads"] == beside["env"]["blas_threads"] == 1


@pytest.mark.parametrize("out", ["absent/r.json", "."])
def test_the_small_command_trains_nothing_that_it_cannot_write(out, small_mnist):
    with pytest.raises(SystemExit) as caught:
        hn.main(["--data-dir", str(small_mnist), "--out", out])
    assert caught.value.code == 2


@pytest.mark.parametrize("library", ["joblib", "threadpoolctl"])
def test_what_is_not_installed_is_done_without(tmp_path, library):
    (tmp_path / f"{library}.py").write_text("raise ModuleNotFoundError("
                                            f"'no', name='{library}')")
    words = ["--dataset", "digits", "--depth", "2", "--epochs", "1"]
    ended = run_script(*words, "--out", "r.json", cwd=tmp_path,
                       PYTHONPATH=str(tmp_path))
    assert ended.returncode == 0, ended.stderr
    there = runs_of(read_record(tmp_path / "r.json"))
    assert there == runs_of(cli.main([*words, "--jobs", "1", "--no-save"]))


@pytest.mark.parametrize("program", [
    [hn.__file__], ["-m", "experiments"], ["-m", "benchmarks"]])
def test_without_numpy_a_line_says_what_to_install(program):
    ended = subprocess.run([sys.executable, "-S", *program], cwd=hn.HERE,
                           capture_output=True, text=True)     # -S: no site-packages
    assert ended.returncode == 1 and "Traceback" not in ended.stderr
    assert "needs numpy" in ended.stderr and "install" in ended.stderr


def test_what_the_environment_says_to_others_breaks_nothing(tmp_path):
    ended = run_script(*DIGITS, "--jobs", "2", "--out", "r.json", cwd=tmp_path,
                       MPLBACKEND="module://no", JOBLIB_START_METHOD="fork",
                       TMPDIR="/no", OPENBLAS_NUM_THREADS="no", OMP_NUM_THREADS="7",
                       COLUMNS="1", PYTHONOPTIMIZE="2", LC_ALL="C")
    assert ended.returncode == 0, ended.stderr
    read_record(tmp_path / "r.json")


# Data and files that are wrong


def test_a_failed_write_is_one_line_after_the_table(tmp_path, monkeypatch, capsys):
    def full(*_):
        raise OSError(28, "No space left on device")
    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(SystemExit) as caught:
        cli.main([*DIGITS, "--out", str(tmp_path / "r.json")])
    assert "No space left on device" in str(caught.value)
    assert list(tmp_path.iterdir()) == [] and "highway 2" in capsys.readouterr().out


def test_a_place_for_the_record_is_looked_for_first(tmp_path, monkeypatch, capsys):
    """Whatever keeps a record from being written is told before the training."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cli, "train_all", lambda *_: pytest.fail("it trained first"))
    for name, make in (("file", Path.touch),
                       ("runs", lambda path: path.symlink_to("absent")),
                       ("link", lambda path: path.symlink_to("file"))):
        make(tmp_path / name)
    for words in (["--out", "file/r.json"], ["--out", "link"], []):
        with pytest.raises(SystemExit) as caught:
            cli.main([*DIGITS, *words])
        assert caught.value.code == 2
        assert "argument --out: " in capsys.readouterr().err
    assert (tmp_path / "link").is_symlink()


@pytest.mark.parametrize("jobs, streams", [
    (1, ">/dev/full 2>/dev/full"), (1, "2>&1 | head -1"), (2, ">&- 2>&- <&-")])
def test_a_finished_training_outlives_its_streams(tmp_path, jobs, streams):
    words = shlex.join([sys.executable, "-u", hn.__file__, *DIGITS, "--jobs", str(jobs),
                        "--out", "r.json"])
    ended = subprocess.run(["bash", "-c", f"set -o pipefail; {words} {streams}"],
                           cwd=tmp_path, text=True, capture_output=True)
    assert ended.returncode == 0 and "Traceback" not in ended.stdout + ended.stderr
    assert len(read_record(tmp_path / "r.json")["runs"]) == 1


def test_without_a_record_a_lost_table_is_an_error(tmp_path):
    with open("/dev/full", "w") as full:
        ended = subprocess.run([sys.executable, hn.__file__, *DIGITS, "--no-save"],
                               cwd=tmp_path, stdout=full, stderr=subprocess.DEVNULL)
    assert ended.returncode == 1


# Processes and threads


def test_main_in_another_thread_may_start_processes():
    """As a window or a notebook server calls it."""
    made = []
    thread = threading.Thread(target=lambda: made.append(cli.main(
        [*DIGITS[:2], *DIGITS[4:], "--jobs", "2", "--no-save"])))
    thread.start()
    thread.join()
    assert made and len(made[0]["runs"]) == 1


@pytest.mark.parametrize("count, change, processes", [
    (8, {}, 4), (2, {}, 2), (1, {}, 1), (8, {"depth": 2, "epochs": 1}, 1),
    (2, {"depth": 8}, 1)], ids=str)
def test_processes_start_where_they_save_more_than_they_take(count, change, processes,
                                                            monkeypatch):
    """On four cores; starting them takes 0.6 s, and the last two nets a second."""
    joblib = pytest.importorskip("joblib")
    monkeypatch.setattr(joblib, "cpu_count", lambda: 4)
    assert workers.processes_for([hn.Config(**change)] * count) == processes


OWN_BLOCK = """
import numpy as np
import highway_networks as hn
from highway_suite.cli import main

def forward(x, rows, y, scratch):
    np.add(rows[0], x, out=y)

def backward(d, x, rows, dH, scratch):
    np.copyto(dH, d)

hn.BLOCKS["own"] = hn.Block("", forward, backward)
if __name__ == "__main__":
    for record in ("residual.json", "plain.json"):
        main("--dataset digits --jobs 2 --depth 2 --epochs 2 "
             f"--blocks own,residual,plain --out {record}".split())
        hn.BLOCKS["own"] = hn.BLOCKS["plain"]
"""


def test_a_block_of_a_script_trains_in_worker_processes(tmp_path):
    """The same mathematics as residual, then as plain, and so the same numbers, also in
    processes that have trained an earlier block of the name."""
    (tmp_path / "own.py").write_text(OWN_BLOCK)
    subprocess.run([sys.executable, "own.py"], cwd=tmp_path, check=True,
                   env={**os.environ, "PYTHONPATH": str(hn.HERE)}, capture_output=True)
    for block in ("residual", "plain"):
        run = read_record(tmp_path / f"{block}.json")["runs"][0]
        assert run["own"]["history"] == run[block]["history"]
        assert run["own"]["label"] == "own 2"
    assert run["residual"]["history"] != run["plain"]["history"]


def test_a_block_whose_name_no_record_can_hold_is_refused(monkeypatch):
    monkeypatch.setitem(hn.BLOCKS, "half $way$", hn.BLOCKS["plain"])
    with pytest.raises(SystemExit):
        cli.main([*DIGITS, "--blocks", "half $way$"])


ELSEWHERE = ("fork", "sysconf", "uname", "mkfifo", "killpg", "getuid", "fchmod",
             "geteuid", "sched_getaffinity", "setsid", "statvfs", "mknod", "getpgid")


def test_nothing_is_called_that_other_systems_lack(tmp_path, monkeypatch):
    """Windows has none of these; a training with its record and pictures needs none."""
    import make_highway_networks_gif as gif
    import visualize_highway_networks as viz
    for name in ELSEWHERE:
        monkeypatch.delattr(os, name, raising=False)
    monkeypatch.delattr(signal, "SIGHUP")
    monkeypatch.delattr(signal, "SIGKILL")
    for name in ("resource", "fcntl", "pwd", "grp", "termios"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["hn.py", *DIGITS, "--out", "r.json"])
    handler = signal.getsignal(signal.SIGTERM)
    try:
        cli.run_as_program()
    finally:
        signal.signal(signal.SIGTERM, handler)
    assert len(viz.main(["--run", "r.json"])) == 5 and gif.main(["--run", "r.json"])


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGHUP")
@pytest.mark.parametrize("handler", [signal.SIG_IGN, signal.SIG_DFL])
def test_what_nohup_ignores_stays_ignored(handler):
    before = {name: signal.signal(name, handler)
              for name in (signal.SIGTERM, signal.SIGHUP)}
    try:
        with workers.ended_by_signals():
            ignored = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        for name, old in before.items():
            signal.signal(name, old)
    assert ignored == (handler == signal.SIG_IGN)


@pytest.fixture
def training(tmp_path):
    """A run of two processes that takes long, after its first epoch."""
    words = [sys.executable, hn.__file__, "--dataset", "digits", "--epochs", "5000",
             "--jobs", "2", "--out", "r.json"]
    with subprocess.Popen(words, cwd=tmp_path, text=True, stderr=subprocess.PIPE,
                          start_new_session=True) as process:
        process.stderr.readline()
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    assert list(tmp_path.iterdir()) == [], "there is a record"


@pytest.mark.parametrize("sent, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143),
                                        (signal.SIGKILL, -signal.SIGKILL)])
def test_an_interrupt_leaves_no_process(training, sent, code):
    children = psutil.Process(training.pid).children(recursive=True)
    if sent == signal.SIGINT:       # a terminal sends it to all
        os.killpg(training.pid, sent)
    else:
        training.send_signal(sent)
    error = training.communicate(timeout=60)[1]
    assert training.returncode == code and "Traceback" not in error
    assert len(children) >= 2 and not psutil.wait_procs(children, timeout=20)[1]


def test_a_killed_worker_is_one_line(training):
    worker, *_ = [child for child in psutil.Process(training.pid).children()
                  if "popen_loky" in " ".join(child.cmdline())]
    worker.kill()
    error = training.communicate(timeout=60)[1]
    assert training.returncode == 1 and "Traceback" not in error
    assert "a process was killed" in error
