"""Records are valid, whole or absent, and say what the committed tables need."""

import json
import math
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
from committed import tree

import highway_networks as hn
from test_cli import settings_of

ROOT = Path(hn.__file__).parent
COMMITTED = sorted([*tree().glob("*.json"), *tree().glob("records/*.json")])


@pytest.fixture
def record(tmp_path):
    path = tmp_path / "r.json"
    hn.main(["--dataset", "digits", "--depth", "2", "--epochs", "2", "--jobs", "1",
             "--out", str(path)])
    return path


def test_round_trip_and_keys(record):
    value = hn.read_record(record)
    assert hn.to_json(value) + "\n" == record.read_text()
    for key in ("schema", "schema_version", "command", "dataset", "seed", "seeds",
                "hidden", "depth", "epochs", "batch_size", "lr", "n_train", "n_test",
                "config", "env", "summary", "runs"):
        assert key in value
    arm = value["runs"][0]["highway"]
    for key in ("label", "block", "depth", "hidden", "epochs", "batch_size", "lr",
                "seed", "history", "final_train_acc", "final_test_acc",
                "final_train_loss", "wallclock_sec", "layer_T_history",
                "final_T_per_layer", "parameters", "status"):
        assert key in arm
    assert arm["final_test_acc"] == arm["history"]["test_acc"][-1]
    assert arm["final_T_per_layer"] == arm["layer_T_history"][-1][1]
    assert value["runs"][0]["plain"]["layer_T_history"] == []


def test_arrays_of_numbers_are_on_one_line(record):
    for line in record.read_text().splitlines():
        assert not line.strip().rstrip(",").replace(".", "").isdigit()


def test_environment_names_no_user_host_or_path(record):
    env = hn.read_record(record)["env"]
    assert env["numpy"] == np.__version__ and env["blas_threads"] == 1
    text = json.dumps(hn.read_record(record))
    for private in map(str, (ROOT, record.parent, Path.home(), os.uname().nodename)):
        assert private not in text or len(private) < 4      # HOME=/ in a container


def test_a_record_says_whether_the_checkout_was_changed(tmp_path, monkeypatch):
    def git(*words):
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words],
                       cwd=tmp_path, check=True, capture_output=True)
    monkeypatch.setattr(hn, "HERE", tmp_path)
    assert hn.git_state() == (None, None)
    (tmp_path / "code.py").write_text("one")
    git("init")
    git("add", "code.py")
    git("commit", "-m", "One")
    revision, dirty = hn.git_state()
    assert len(revision) == 40 and dirty is False
    (tmp_path / "code.py").write_text("two")
    assert hn.git_state() == (revision, True)


@pytest.mark.parametrize("value", [math.nan, math.inf, [1.0, -math.inf], [[math.nan]]])
def test_what_json_does_not_have_is_never_written(tmp_path, value):
    path = tmp_path / "r.json"
    path.write_text("old")
    with pytest.raises(ValueError):
        hn.write_record(path, {"a": value})
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


def test_a_failed_write_leaves_the_old_record(tmp_path, monkeypatch):
    path = tmp_path / "r.json"
    hn.write_record(path, {"a": 1})
    assert path.stat().st_mode & 0o777 == 0o644

    def full(*_):
        raise OSError(28, "No space left on device")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError):
        hn.write_record(path, {"a": 2})
    assert json.loads(path.read_text()) == {"a": 1}
    assert list(tmp_path.iterdir()) == [path]


HISTORY = '"history": {"epoch": [1], "train_loss": [1], "train_acc": [1], "test_acc": '


@pytest.mark.parametrize("text, message", [
    ("", "Expecting value"), ('{"runs": [', "Expecting value"), ("[]", "'record'"),
    ("{}", "'runs' is missing"), ('{"runs": []}', "'runs' is empty"),
    ('{"runs": {}}', "'runs' is missing or not a list"),
    ('{"schema": "other", "runs": [1]}', "'schema' is 'other'"),
    ('{"schema_version": 99, "runs": [1]}', "'schema_version' is 99"),
    ('{"runs": [], "runs": []}', "'runs' stands there twice"),
    ('{"a": NaN}', "NaN is not JSON"), ('{"a": 1e999}', "1e999 is not JSON"),
    ('{"runs": [{"depth": 3, "highway": {' + HISTORY + '["x"]}}}]}', "no numbers"),
    ('{"a": -Infinity}', "Infinity is not JSON"),
    ('{"a": 1' + "0" * 400 + "}", "is not JSON, or too large"),
    ("[" * 100_000, "decoding a JSON array"), ("\ud800", None),
    ('{"runs": [3]}', "runs[0].depth"),
    ('{"runs": [{"depth": 3}]}', "'runs[0].highway' is missing"),
    ('{"runs": [{"depth": 3, "highway": {' + HISTORY + '[1, 2]}}}]}',
     "'runs[0].highway.history.test_acc' is not 1 long"),
    ('{"runs": [{"depth": 3, "highway": {' + HISTORY + '[1]}}}]}',
     "'runs[0].plain' is missing")])
def test_bad_records_are_one_line_with_file_field_and_command(tmp_path, text, message):
    path = tmp_path / "r.json"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(hn.RecordError) as caught:
        hn.read_record(path, "make it")
    line = str(caught.value)
    assert line.startswith(str(path)) and line.endswith("Make it with: make it")
    assert "\n" not in line and (message is None or message in line)


def test_absent_and_oversized_records(tmp_path, monkeypatch):
    with pytest.raises(hn.RecordError, match="No such file"):
        hn.read_record(tmp_path / "absent.json")
    (tmp_path / "r.json").write_text("{}" + " " * 100)
    monkeypatch.setattr(hn, "RECORD_LIMIT", 50)
    with pytest.raises(hn.RecordError, match="102 bytes, 50 allowed"):
        hn.read_record(tmp_path / "r.json")
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(hn.RecordError, match="not a regular file"):
        hn.read_record(tmp_path / "fifo")


def test_a_record_of_the_earlier_reproduction_is_read(tmp_path, record):
    value = json.loads(record.read_text())
    for ours in ("schema", "schema_version", "command", "dataset", "config", "seeds",
                 "summary"):
        del value[ours]
    (tmp_path / "old.json").write_text(json.dumps(value))
    assert hn.read_record(tmp_path / "old.json") == value


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


def test_no_git_is_no_error(monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert hn.git_state() == (None, None)


def test_somebody_elses_checkout_is_not_ours(monkeypatch):
    monkeypatch.setattr(hn, "HERE", ROOT / "tests")
    assert hn.git_state() == (None, None)


# --------------------------------------------------------------------------------------
# The committed records


@pytest.mark.parametrize("path", COMMITTED, ids=lambda path: path.name)
def test_committed_record(path):
    """Valid, from a commit, with the command that makes its settings and file."""
    value = hn.read_record(path)
    assert value["schema"] == hn.SCHEMA and value["dataset"] == "mnist"
    assert value["env"]["git_dirty"] is False and len(value["env"]["git"]) == 40
    assert settings_of(value["command"]) | {"dataset": "mnist"} == value["config"]
    _, _, out = value["command"].partition(" --out ")
    assert path == tree() / (out or "run.json")
    assert value["summary"] == hn.summarize(
        [run[block] for run in value["runs"] for block in ("highway", "plain")])
    deepest = max(value["runs"], key=lambda run: run["depth"])
    assert len(deepest["highway"]["layer_T_history"]) == value["epochs"] + 1


def test_the_named_records_are_there():
    names = {path.relative_to(tree()).as_posix() for path in COMMITTED}
    assert names == {"run.json", "run_sweep.json", "records/headline_five_seeds.json",
                     "records/sweep_five_seeds.json",
                     "records/sweep_glorot_five_seeds.json"}


def test_headline_on_five_seeds():
    """What the front page says of the headline, from its five-seed record."""
    value = hn.read_record(tree() / "records" / "headline_five_seeds.json")
    assert len(value["seeds"]) == 5
    highway, plain = value["summary"]
    assert highway["test_acc_mean"] >= 0.90
    for run in value["runs"]:
        assert run["highway"]["final_test_acc"] >= 0.87
        assert run["plain"]["final_test_acc"] <= 0.20
        assert abs(run["plain"]["final_train_loss"] - math.log(10)) < 0.01


def test_sweep_on_five_seeds():
    """Highway nets hold over depth; plain ones fall to chance."""
    value = hn.read_record(tree() / "records" / "sweep_five_seeds.json")
    mean = {(row["block"], row["depth"]): row["test_acc_mean"]
            for row in value["summary"]}
    highway = [mean["highway", depth] for depth in (5, 10, 20, 30, 50)]
    assert max(highway) - min(highway) < 0.04
    assert mean["plain", 5] >= 0.80 and 0.2 < mean["plain", 10] < 0.80
    assert all(mean["plain", depth] <= 0.20 for depth in (20, 30, 50))


def test_sentences_beside_the_pictures():
    """Each sentence under a picture of the README, from the record it is drawn from."""
    value = hn.read_record(tree() / "run.json")
    run, start = value["runs"][0], 1 / (1 + math.exp(-value["config"]["gate_bias"]))
    highway, plain = (np.array(run[block]["history"]["test_acc"])
                      for block in ("highway", "plain"))
    assert (highway > 0.5).all() and (highway[-3:] > highway[:3]).all()
    assert (abs(plain - 0.1) < 0.03).all()
    losses = np.array(run["plain"]["history"]["train_loss"])
    assert (abs(losses - math.log(10)) < 0.01).all()
    T = np.array([row for _, row in run["highway"]["layer_T_history"]])
    assert abs(T[0] - start).max() < 0.01
    assert abs(T[3] - T[0]).mean() > 3 * abs(T[-1] - T[3]).mean()
    opened = T[-1] > start
    assert 0 < opened.sum() < 10 and opened[-opened.sum():].all()
    sweep = hn.read_record(tree() / "run_sweep.json")
    for one in sweep["runs"]:
        assert one["highway"]["final_test_acc"] > 0.8
        if one["depth"] == 5:
            assert one["plain"]["final_test_acc"] > 0.8
        if one["depth"] >= 20:
            assert abs(one["plain"]["final_test_acc"] - 0.1) < 0.03


def test_the_headline_runs_again_to_the_same_bytes(tmp_path, mnist):
    """Where NumPy, BLAS and its kernel are those of the record."""
    old = hn.read_record(tree() / "run.json")
    same = ("numpy", "platform", "blas", "blas_version", "blas_kernel")
    env = hn.environment()
    for name in same:
        if old["env"][name] != env[name]:
            pytest.skip(f"{name} is not that of the record")
    hn.main(["--seed", "0", "--out", str(tmp_path / "run.json")])
    new = hn.read_record(tmp_path / "run.json")
    for value in (old, new):
        for run in value["runs"]:
            for holder in (run, run["highway"], run["plain"]):
                del holder["wallclock_sec"]
    assert old["runs"] == new["runs"]
