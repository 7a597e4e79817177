"""A training that was killed goes on and ends with the same bits, or begins anew."""

import errno
import io
import itertools
import json
import os
import zipfile
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import highway_networks as hn
from experiments.trials import compute
from highway_suite import checkpoints
from highway_suite.checkpoints import Checkpoint

CONFIGS = {name: hn.Config(depth=3, hidden=8, epochs=4, batch=50, n_train=200,
                           n_test=60, optimizer=name, lr_decay=0.7)
           for name in ("adam", "sgd")}


class Killed(Exception):
    """The process dies."""


@pytest.fixture(scope="module")
def data():
    return hn.scale_pixels(hn.take_subset(hn.load_dataset("digits"), CONFIGS["sgd"]))


def train(config, data, path=None, kill=None):
    """-> weights and history; killed after so many epochs, if so."""
    net = hn.make_net(config, data)

    def report(row):
        if row["epoch"] == kill:
            raise Killed
    checkpoint = Checkpoint(path, asdict(config)) if path else None
    return net.params, hn.train(net, data, config, report, checkpoint)


def killed(config, data, path, kill):
    with pytest.raises(Killed):
        train(config, data, path, kill)


def assert_same(one, other):
    assert np.array_equal(one[0], other[0]) and one[1] == other[1]


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_killed_and_resumed_is_uninterrupted_to_the_bit(
        config, data, tmp_path, capsys, monkeypatch):
    """Killed twice, the second time under another commit."""
    path, whole = tmp_path / "run.npz", train(config, data)
    killed(config, data, path, 2)
    here = checkpoints.numerics() | {"git": "another", "git_dirty": True}
    monkeypatch.setattr(checkpoints, "environment", lambda: here)
    killed(config, data, path, 3)
    assert_same(train(config, data, path), whole)
    assert [entry.name for entry in tmp_path.iterdir()] == ["run.npz"]
    monkeypatch.setattr(hn, "train_step", None)     # nothing is left to be trained
    assert_same(train(config, data, path), whole)
    assert capsys.readouterr().err == ""


def members(path):
    """The archive's arrays by name, and its state."""
    with np.load(path) as archive:
        arrays = {name: archive[name] for name in archive.files}
    return arrays, json.loads(arrays.pop("state.json"))


def write(path, arrays, text):
    """Arrays and the text of the state as an archive."""
    np.savez(path, **arrays)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("state.json", text)


def forge(edit, sign=True):
    """-> break_it(path): the file again after edit(arrays, state), by default with the
    digest that fits it."""
    def break_it(path):
        arrays, state = members(path)
        edit(arrays, state)
        if sign:
            del state["sha256"]
            state["sha256"] = checkpoints.digest_of(state, arrays)
        write(path, arrays, json.dumps(state))
    return break_it


def state_with(sign=True, **about):
    return forge(lambda arrays, state: state.update(about), sign)


def array_with(name, edit, sign=True):
    return forge(lambda arrays, state: arrays.update({name: edit(arrays[name])}), sign)


def with_another_stream(arrays, state):
    state["streams"]["dropout"] = state["streams"]["batches"]


def as_fifo(path):
    path.unlink()
    os.mkfifo(path)


def with_a_bomb(path):
    """A small file whose header promises an array that no memory holds."""
    promise = io.BytesIO()
    forge(lambda arrays, state: arrays.clear())(path)
    np.lib.format.write_array_header_1_0(promise, {
        "shape": (10**14,), "fortran_order": False, "descr": "<f4"})
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("params.npy", promise.getvalue())


def fourth_plus(number):
    def edit(array):
        array[3] += number
        return array
    return edit


BROKEN = {
    "empty": lambda path: path.write_bytes(b""),
    "half-written": lambda path: path.write_bytes(path.read_bytes()[:3000]),
    "one byte off": lambda path: path.write_bytes(
        (content := path.read_bytes())[:1500] + bytes([content[1500] ^ 1])
        + content[1501:]),
    "another archive": lambda path: np.savez(path, params=np.zeros(3)),
    "a FIFO": as_fifo, "a bomb": with_a_bomb,
    "JSON of another kind": lambda path: write(path, members(path)[0], "[1]"),
    "not JSON": lambda path: write(path, members(path)[0], "{"),
    "a pickle": array_with("v", lambda array: array.astype(object)),
    "an array lost": forge(lambda arrays, state: arrays.pop("v")),
    "of another shape": array_with("params", lambda array: array[:-1]),
    "of two axes": array_with("v", lambda array: array[None]),
    "of another dtype": array_with("params", lambda array: array.view("int32")),
    "with a NaN": array_with("m", fourth_plus(np.nan)),
    "a weight edited": array_with("params", fourth_plus(1), sign=False),
    "history edited": state_with(history=[{"epoch": 0}, {"epoch": 1}], sign=False),
    "history of another kind": state_with(history="abc"),
    "history with a gap": state_with(history=[{"epoch": 0}, {"epoch": 2}]),
    "no history": state_with(history=[]),
    "a stream of another kind": state_with(streams={"batches": {"state": 1}}),
    "a stream lost": state_with(streams={}),
    "a stream too many": forge(with_another_stream),
    "of another kernel": state_with(numerics={"blas_kernel": "Abacus"}),
}


@pytest.fixture(scope="module")
def halfway(data, tmp_path_factory):
    """The bytes of a checkpoint after two epochs."""
    path = tmp_path_factory.mktemp("halfway") / "run.npz"
    killed(CONFIGS["adam"], data, path, 2)
    return path.read_bytes()


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_or_foreign_file_is_named_and_changes_nothing(
        kind, data, halfway, tmp_path, capsys):
    path = tmp_path / "run.npz"
    path.write_bytes(halfway)
    BROKEN[kind](path)
    assert kind == "a FIFO" or path.read_bytes() != halfway
    net = hn.make_net(CONFIGS["adam"], data)
    optimizer, rng = hn.Adam(net.params), np.random.default_rng(1)
    arrays = {"params": net.params} | {name: getattr(optimizer, name)
                                       for name in optimizer.kept}
    before = {name: array.copy() for name, array in arrays.items()}
    state = rng.bit_generator.state
    checkpoint = Checkpoint(path, asdict(CONFIGS["adam"]))
    if kind == "a FIFO":        # not ours to set aside
        with pytest.raises(OSError, match="not a regular file"):
            checkpoint.load(arrays, {"batches": rng})
    else:
        assert checkpoint.load(arrays, {"batches": rng}) == []
        error = capsys.readouterr().err
        assert error.startswith(f"{path}: ") and error.count("\n") == 1
    assert all(np.array_equal(before[name], arrays[name]) for name in arrays)
    assert rng.bit_generator.state == state


def test_a_checkpoint_that_cannot_be_read_is_left_alone(data, halfway, tmp_path,
                                                        monkeypatch):
    path = tmp_path / "run.npz"
    path.write_bytes(halfway)

    def fail(_):
        raise OSError(errno.EIO, "Input/output error")
    with monkeypatch.context() as patched, pytest.raises(OSError, match="output error"):
        patched.setattr(Path, "read_bytes", fail)
        train(CONFIGS["adam"], data, path)
    assert path.read_bytes() == halfway and os.listdir(tmp_path) == ["run.npz"]


def test_a_training_of_other_settings_begins_anew_and_keeps_the_file(
        data, tmp_path, capsys):
    path, config = tmp_path / "run.npz", CONFIGS["sgd"]
    killed(config, data, path, 1)
    before, other = path.read_bytes(), replace(config, lr=config.lr * 2)
    assert_same(train(other, data, path), train(other, data))
    assert "config: lr is " in capsys.readouterr().err
    assert (tmp_path / "run.npz.bad").read_bytes() == before
    assert members(path)[1]["history"][-1]["epoch"] == config.epochs


def test_a_trial_counts_the_seconds_before_it_was_stopped(data, tmp_path, monkeypatch):
    """By a clock that goes on by 100 at each look: the start, then every epoch."""
    monkeypatch.setattr(checkpoints, "time", SimpleNamespace(
        perf_counter=itertools.count(0, 100).__next__))
    config, path = CONFIGS["sgd"], tmp_path / "run.npz"
    killed(config, data, path, 2)
    killed(config, data, path, 3)

    def finish(_, data):
        return train(config, data, path)[1][2]
    for before in (400, 0):     # none of another trial
        trial = compute("protocol", finish, {}, data)
        assert trial.result == "ok" and before <= trial.seconds < before + 50
        path.unlink()
