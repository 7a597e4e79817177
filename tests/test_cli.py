"""The command line: what it accepts, refuses, writes and survives."""

import math
import os
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import psutil
import pytest

import highway_networks as hn
from highway_suite import cli
from highway_suite.records import numbers_of, read_record
from tests.contracts import exit_of

DIGITS = ["--dataset", "digits", "--jobs", "1", "--depth", "2", "--epochs", "1"]


def settings_of(command):
    """The settings that a command line makes, before the data are known."""
    return hn.resolve(vars(cli.build_parser().parse_args(shlex.split(command)[2:])))


@pytest.mark.parametrize("words", [
    "--depth 0", "--lr nan", "--gate-bias 101", "--gate-bias foo", "--depths 1,,2",
    "--depths 5,x", "--depths 2,2", "--seeds 1,1", "--blocks no",
    "--dep 3", "--no-save --out r.json", "--threads 2 --jobs 2"])
def test_wrong_flags_end_with_two_lines_and_exit_code_2(words, capsys):
    assert exit_of(cli.main, words.split(" ")) == 2
    assert len(capsys.readouterr().err.splitlines()) == 2


@pytest.mark.parametrize("words", [
    "--out /absent/r.json", "--out .", "--checkpoint /tmp", "--out=", "--out /dev/null",
    "--n-train 1438", "--n-train 99 --batch 100"])
def test_what_cannot_be_done_ends_before_the_training(words, capsys):
    assert exit_of(cli.main, [*DIGITS, *words.split(" ")]) == 1
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_block_may_not_be_called_as_a_field_of_its_record(monkeypatch):
    for name in ("seed", "depth", "wallclock_sec"):
        monkeypatch.setitem(hn.BLOCKS, name, hn.BLOCKS["plain"])
        assert exit_of(cli.main, [*DIGITS, "--blocks", name, "--no-save"]) == 2


@pytest.mark.parametrize("words, expected", [
    ("", {"depths": [30], "epochs": 12, "n_train": 6000, "n_test": 2000}),
    ("--quick --depth 50 --epochs 2", {"depths": [50], "epochs": 2, "n_train": 2000}),
    ("--hidden 60", {"hidden": 60, "plain_hidden": 60}),
    ("--plain-hidden 71", {"hidden": 50, "plain_hidden": 71})])
def test_a_preset_fills_only_what_was_not_given(words, expected):
    settings = settings_of(f"python3 highway_networks.py {words}")
    assert {name: settings[name] for name in expected} == expected
    assert words or hn.make_configs(settings)[0] == hn.Config()


@pytest.mark.parametrize("words, name", [
    ("--seed 0", "run.json"), ("--seeds 0,1", "runs/seeds=0,1.json"),
    ("--depth 5 --lr 0.1", "runs/seed=0_depth=5_lr=0.1.json"),
    ("--plain-hidden 71", "runs/seed=0_plain-hidden=71.json"),
    ("--blocks plain,full", "runs/seed=0_blocks=plain,full.json")])
def test_only_the_headline_goes_to_run_json(words, name):
    settings = settings_of(f"python3 highway_networks.py {words}")
    flags = cli.flags_of(settings | {"dataset": "mnist"})
    assert cli.default_out(flags) == Path(name)
    assert settings_of(cli.command_of(flags, None)) == settings, "another run"


def test_main_trains_both_arms_and_writes(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    record = cli.main([*DIGITS, "--seeds", "0,1"])
    path = tmp_path / "runs" / "seeds=0,1_depth=2_dataset=digits_epochs=1.json"
    saved = read_record(path)
    assert saved == record and [run["seed"] for run in saved["runs"]] == [0, 1]
    assert saved["config"]["n_train"] == saved["n_train"] == 1437
    out, err = capsys.readouterr()
    for row in saved["summary"]:
        assert f"{row['test_acc_mean']:.4f}" in out
    assert len(err.splitlines()) == 4           # one for each epoch


def test_a_seed_has_its_own_images_whatever_stands_beside_it():
    both, alone = (cli.main([*DIGITS, "--n-train", "500", "--no-save", *seeds])
                   for seeds in (("--seeds", "0,1"), ("--seed", "1")))
    assert numbers_of(both)["runs"][1] == numbers_of(alone)["runs"][0]


def test_what_each_net_was_made_with_is_in_the_record():
    record = cli.main([*DIGITS[:4], "--depths", "3,10", "--epochs", "1",
                       "--plain-hidden", "71", "--gate-bias", "auto", "--no-save"])
    biases = -math.log(2), -math.log(9)
    assert record["config"]["gate_bias"] == pytest.approx(biases[-1])
    assert "--gate-bias auto" in record["command"]
    for run, bias in zip(record["runs"], biases, strict=True):
        assert run["highway"]["gate_bias"] == pytest.approx(bias)
        assert run["highway"]["hidden"] == 50 and run["plain"]["hidden"] == 71


def test_divergence_ends_with_a_record(tmp_path):
    path = tmp_path / "r.json"
    words = "--activation relu --init he --optimizer sgd --lr 1000 --clip 0 --out"
    record = cli.main([*DIGITS, *words.split(), str(path)])
    assert read_record(path) == record
    assert {run["plain"]["status"] for run in record["runs"]} == {"diverged"}


# Without what is not needed


def test_the_file_alone_writes_the_same_record(tmp_path, small_mnist):
    """Without the suite and threadpoolctl, beside four idx files."""
    arguments = ["--data-dir", "data", "--depths", "3,2", "--epochs", "2", "--batch",
                 "10", "--n-train", "20", "--n-test", "20", "--out", "r.json"]
    hide = "".join(f"sys.modules[{name!r}] = None\n" for name in
                   ("highway_suite", "threadpoolctl"))
    (tmp_path / "alone.py").write_text(
        f"import sys\n{hide}"
        f"sys.path.insert(0, {str(tmp_path / 'copy')!r})\n"
        "import highway_networks as hn\n"
        f"hn.MNIST = {hn.MNIST!r}\n"
        f"hn.main({arguments!r})\n")
    (tmp_path / "copy").mkdir()
    shutil.copy(hn.__file__, tmp_path / "copy")
    ended = subprocess.run([sys.executable, "alone.py"], cwd=tmp_path, text=True,
                           capture_output=True,
                           env=os.environ | {"OPENBLAS_NUM_THREADS": "1"})
    assert ended.returncode == 0, ended.stderr
    assert len(ended.stderr.splitlines()) == 2 * 2 * 2      # a line for each epoch
    alone = read_record(tmp_path / "r.json")
    words = ["--dataset", "mnist", "--data-dir", str(small_mnist), *arguments[2:-2]]
    beside = cli.main([*words, "--jobs", "1", "--no-save"])
    assert numbers_of(alone)["runs"] == numbers_of(beside)["runs"]
    assert alone["config"] == beside["config"]


@pytest.mark.parametrize("out", ["absent/r.json", "."])
def test_the_small_command_trains_nothing_that_it_cannot_write(out, small_mnist):
    assert exit_of(hn.main, ["--data-dir", str(small_mnist), "--out", out, "--n-train",
                             "20", "--n-test", "20", "--batch", "10"]) == 1


@pytest.mark.parametrize("library", ["joblib", "threadpoolctl"])
def test_what_is_not_installed_is_done_without(tmp_path, library):
    """Without threadpoolctl OpenBLAS is told before NumPy loads."""
    code = (f"import atexit, os, runpy, sys; sys.modules[{library!r}] = None\n"
            "atexit.register(lambda: print(os.environ.get('OPENBLAS_NUM_THREADS')))\n"
            f"runpy.run_path({hn.__file__!r}, run_name='__main__')")
    words = ["--dataset", "digits", "--depth", "2", "--epochs", "1"]
    ended = subprocess.run([sys.executable, "-c", code, *words, "--out", "r.json"],
                           cwd=tmp_path, text=True, capture_output=True,
                           env=os.environ | {"PYTHONPATH": str(hn.HERE),
                                             "OPENBLAS_NUM_THREADS": ""})
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.endswith("1\n") == (library == "threadpoolctl")
    there = numbers_of(read_record(tmp_path / "r.json"))
    here = numbers_of(cli.main([*words, "--jobs", "1", "--no-save"]))
    assert there | {"command": here["command"]} == here


# Data and files that are wrong


def test_a_failed_write_loses_no_numbers(tmp_path, monkeypatch, capsys):
    """They are said, and the old file stays."""
    path = tmp_path / "r.json"
    path.write_text("old")

    def full(*_):
        raise OSError(28, "No space left on device")
    monkeypatch.setattr(os, "replace", full)
    assert exit_of(cli.main, [*DIGITS, "--out", str(path)]) == 1
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]
    assert "highway 2" in capsys.readouterr().err


def test_a_finished_training_outlives_its_streams(tmp_path):
    words = shlex.join([sys.executable, "-u", hn.__file__, *DIGITS, "--out", "r.json"])
    ended = subprocess.run(["bash", "-c", f"set -o pipefail; {words} 2>&1 | head -1"],
                           cwd=tmp_path, text=True, capture_output=True)
    assert "Traceback" not in ended.stdout + ended.stderr
    assert len(read_record(tmp_path / "r.json")["runs"]) == 1


# Processes and threads


def test_a_block_of_ones_own_trains_in_worker_processes(monkeypatch):
    """The same mathematics as residual, and so the same numbers."""
    def forward(x, rows, y, scratch):
        np.add(rows[0], x, out=y)

    def backward(d, x, rows, dH, scratch):
        np.copyto(dH, d)
    monkeypatch.setitem(hn.BLOCKS, "own", hn.Block("", forward, backward))
    words = "--dataset digits --jobs 2 --depth 2 --epochs 2 --no-save --blocks"
    run = cli.main([*words.split(), "own,residual"])["runs"][0]
    assert run["own"]["history"] == run["residual"]["history"]


ELSEWHERE = ("fork", "sysconf", "uname", "killpg", "getuid", "fchmod", "geteuid",
             "sched_getaffinity", "setsid", "statvfs", "getpgid")


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


@pytest.mark.parametrize("sent, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143),
                                        (signal.SIGKILL, -signal.SIGKILL)])
def test_an_interrupt_leaves_no_process(tmp_path, sent, code):
    words = [sys.executable, hn.__file__, "--dataset", "digits", "--epochs", "5000",
             "--jobs", "2", "--out", "r.json"]
    training = subprocess.Popen(words, cwd=tmp_path, text=True, stderr=subprocess.PIPE,
                                start_new_session=True)
    training.stderr.readline()      # of the first epoch
    children = psutil.Process(training.pid).children(recursive=True)
    if sent == signal.SIGINT:       # a terminal sends it to all
        os.killpg(training.pid, sent)
    else:
        training.send_signal(sent)
    error = training.communicate(timeout=60)[1]
    assert training.returncode == code and "Traceback" not in error
    assert len(children) >= 2 and not psutil.wait_procs(children, timeout=60)[1]
    assert list(tmp_path.iterdir()) == [], "there is a record"
