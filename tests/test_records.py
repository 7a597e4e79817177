"""Records are valid, whole or absent; one schema holds what is written and read."""

import json
import math
import os
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
from test_cli import DIGITS, settings_of

import highway_networks as hn
import visualize_highway_networks as viz
from highway_suite import cli, records, studies
from highway_suite.records import (
    RecordError,
    check_record,
    environment,
    nets_of,
    numbers_of,
    read_record,
)
from tests.committed import tree
from tests.contracts import exit_of
from tests.records_for_figures import make_record

ROOT = Path(hn.__file__).parent


@pytest.fixture
def record(tmp_path):
    path = tmp_path / "r.json"
    cli.main([*DIGITS, "--out", str(path)])
    return path


def test_a_record_with_the_same_numbers_is_left_as_it_is(record):
    """Who only tries a command changes no file; whatever else is there is replaced."""
    before = record.read_bytes()
    cli.main([*DIGITS, "--out", str(record)])
    assert record.read_bytes() == before
    record.write_bytes(b"{}")
    cli.main([*DIGITS, "--out", str(record)])
    assert numbers_of(read_record(record)) == numbers_of(json.loads(before))


def test_keys_and_nothing_private(record):
    value, text = read_record(record), record.read_text()
    assert value["env"]["numpy"] == np.__version__ and value["env"]["blas_threads"] == 1
    for private in map(str, (ROOT, record.parent, Path.home(), os.uname().nodename)):
        assert private not in text or len(private) < 4      # HOME=/ in a container
    headline, arm = read_record(tree() / "run.json"), value["runs"][0]["highway"]
    assert headline.keys() <= value.keys()
    assert headline["runs"][0]["highway"].keys() <= arm.keys()
    assert arm["final_test_acc"] == arm["history"]["test_acc"][-1]
    assert arm["final_T_per_layer"] == arm["layer_T_history"][-1][1]


def test_a_record_says_whether_code_was_changed(tmp_path, monkeypatch):
    """In a checkout whose name the locale may lack; data and records are no code."""
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)     # who signs commits would
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")          # here, too
    folder = tmp_path / "Ángel"
    folder.mkdir()
    code, record = folder / "highway_networks.py", folder / "run.json"
    code.write_text("one")
    record.write_text("{}")

    def git(*words):
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words],
                       cwd=folder, check=True, capture_output=True)
    monkeypatch.setattr(hn, "HERE", folder)
    git_state = records.git_state.__wrapped__        # not what it found before
    git("init")
    git("add", ".")
    git("commit", "-m", "One")
    revision, dirty = git_state()
    assert len(revision) == 40 and dirty is False
    record.write_text("[]")
    assert git_state() == (revision, False), "no run reads what a run writes"
    code.write_text("two")
    assert git_state() == (revision, True)


@pytest.mark.parametrize("keys, value, field", [
    (["runs"], 3, "runs"), (["runs", 0], {"depth": 6}, "runs[0]"),
    (["runs", 0, "depth"], "6", "runs[0].depth"),
    (["runs", 0, "highway", "history", "test_acc"], [0.5, "x", 0.5, 0.5],
     "highway.history.test_acc"),
    (["runs", 0, "highway", "history", "train_loss"], [0.5],
     "highway.history.train_loss"),
    (["runs", 0, "highway", "layer_T_history", 2, 1], [0.1],
     "highway.layer_T_history"), (["config"], {}, "init"),
    (["config", "gate_bias"], "auto", "auto")])
def test_a_bad_field_is_one_line_that_names_it(tmp_path, keys, value, field):
    record, path = make_record(), tmp_path / "r.json"
    check_record(record)
    place = record
    for key in keys[:-1]:
        place = place[key]
    place[keys[-1]] = value
    path.write_text(json.dumps(record))
    with pytest.raises(RecordError, match=re.escape(field)) as caught:
        studies.load(path)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [
    b"", b'{"runs": [', b"[]", b'{"a": NaN}', b"\xff",
    b'{"schema": "highway-networks/experiment"}'])
def test_a_file_that_is_no_record_is_one_line(tmp_path, content):
    """And nothing is drawn."""
    path = tmp_path / "r.json"
    path.write_bytes(content)
    for flag in ("--run", "--sweep"):
        line = exit_of(viz.main, [flag, str(path), "--out-dir", str(tmp_path)])
        assert str(path) in line and "\n" not in line
    assert list(tmp_path.iterdir()) == [path]


def test_whatever_blocks_are_written_the_schema_holds(tmp_path):
    """Each kind alone and all together: every record that the writer makes is read, and
    no net depends on those beside it."""
    nets = {}
    for blocks in (*hn.BLOCKS, ",".join(hn.BLOCKS)):
        path = tmp_path / "r.json"
        made = cli.main(["--dataset", "digits", "--depths", "1,2", "--epochs", "1",
                         "--n-train", "200", "--jobs", "1", "--blocks", blocks,
                         "--out", str(path)])
        assert read_record(path) == made
        assert {row["block"] for row in made["summary"]} == set(blocks.split(","))
        for run in made["runs"]:
            for block, net in nets_of(run).items():
                net |= {"wallclock_sec": 0}
                assert nets.setdefault((block, run["depth"]), net) == net


def test_summary_is_the_mean_over_seeds():
    arms = [{"depth": 3, "block": "highway", "status": status, "final_test_acc": acc,
             "final_train_loss": loss} for status, acc, loss in
            (("ok", 0.9, 0.2), ("ok", 0.8, 0.4), ("diverged", None, None))]
    row, = hn.summarize(arms)
    assert row["n"] == 3 and row["diverged"] == 1
    assert row["test_acc_mean"] == 0.85
    assert row["test_acc_std"] == pytest.approx(0.1 / math.sqrt(2), rel=1e-5)
    lonely, = hn.summarize(arms[:1])
    assert lonely["test_acc_std"] is None
    lost, = hn.summarize(arms[2:])
    assert lost["test_acc_mean"] is lost["train_loss_mean"] is None


# The committed records


@pytest.mark.parametrize("name", ["run.json", "run_sweep.json"])
def test_committed_record(name):
    """Valid, from a commit, with the command that makes its settings and file."""
    value = read_record(tree() / name)
    assert value["schema"] == hn.SCHEMA and value["dataset"] == "mnist"
    assert value["env"]["git_dirty"] is False and len(value["env"]["git"]) == 40
    assert settings_of(value["command"]) | {"dataset": "mnist"} == value["config"]
    _, _, out = value["command"].partition(" --out ")
    assert name == (out or "run.json")
    assert value["summary"] == hn.summarize(
        [run[block] for run in value["runs"] for block in value["config"]["blocks"]])
    deepest = max(value["runs"], key=lambda run: run["depth"])
    assert len(deepest["highway"]["layer_T_history"]) == value["epochs"] + 1


def test_the_headline_runs_again_to_the_same_numbers(mnist):
    """Where NumPy, BLAS and its kernel are those of the record."""
    old = read_record(tree() / "run.json")
    same = ("numpy", "platform", "blas", "blas_version", "blas_kernel")
    env = environment()
    for name in same:
        if old["env"][name] != env[name]:
            pytest.skip(f"{name} is not that of the record")
    new = cli.main(["--seed", "0", "--no-save"])
    assert numbers_of(old)["runs"] == numbers_of(new)["runs"]


def test_the_home_folder_is_meant_wherever_a_path_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    cli.main([*DIGITS, "--out=~/r.json", "--checkpoint=~/c.npz"])
    assert len(list(tmp_path.glob("c*npz"))) == 2
    assert studies.load("~/r.json").dataset == read_record("~/r.json")["dataset"]
