"""What holds for every experiment: it runs, and its committed results are its own."""

import json
import subprocess
import sys

import pytest

import highway_networks as hn
from experiments import NAMES
from experiments.lab.experiment import (
    Lab,
    Replay,
    Training,
    as_read,
    draw,
    drawn_of,
    folder_of,
    get,
    load_record,
)
from experiments.lab.trials import Store, read_packed
from highway_suite import figures


@pytest.mark.parametrize("name", NAMES)
def test_the_whole_path_in_seconds(name, tmp_path, monkeypatch):
    """Trials, record, claims, figures, of data that ship; again, nothing is run."""
    monkeypatch.setattr(figures, "DPI", 60)
    experiment = get(name)
    store = Store(tmp_path / "trials.sqlite")
    record = Lab(experiment, Training(store, {}, jobs=1), smoke=True).record("smoke")
    pictures = draw(experiment, record, "0" * 64)
    assert set(pictures) == {f"{figure}.png" for figure in experiment.figures}
    assert all(len(picture) > 2000 for picture in pictures.values())
    finished = store.of(f"{name}.")
    assert finished
    replay = Lab(experiment, Replay(finished), smoke=True).record("smoke")
    assert replay | {"env": None} == record | {"env": None}


@pytest.mark.parametrize("name", NAMES)
def test_the_committed_record_follows_from_the_committed_trials(name):
    """Rows, claims and verdicts come out again, and no trial is there for nothing."""
    experiment, folder = get(name), folder_of(name)
    record, digest = load_record(folder / "record.json")
    assert record["plan"] == as_read(experiment.plan)
    trials = read_packed(folder / "trials")
    replay = Replay(trials)
    again = Lab(experiment, replay).record(record["command"])
    assert json.dumps(again | {"env": None}) == json.dumps(record | {"env": None})
    assert set(replay.asked) == set(trials)
    for claim in record["claims"]:
        assert set(claim["trials"]) <= set(trials)
    for figure in experiment.figures:
        assert drawn_of(folder / f"{figure}.png") == digest


READ_ONLY = """
import os, runpy, sys, tempfile
def refused(*words, **named):
    raise OSError(30, "Read-only file system")
tempfile.mkdtemp = refused
os.environ["MPLCONFIGDIR"] = os.devnull
name, *sys.argv[1:] = sys.argv[1:]
runpy.run_module(name, run_name="__main__", alter_sys=True)
"""


@pytest.mark.parametrize("words, code", [
    (["experiments"], 0), (["experiments.signals", "--plot"], 1)])
def test_on_a_read_only_disk_only_pictures_are_not_to_be_had(words, code):
    ended = subprocess.run([sys.executable, "-c", READ_ONLY, *words], cwd=hn.HERE,
                           text=True, capture_output=True)
    assert ended.returncode == code and "Traceback" not in ended.stderr
    assert ended.stderr.count("\n") == (code == 1)
