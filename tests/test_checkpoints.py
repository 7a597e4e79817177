"""A training that was killed goes on and ends with the same bits, or begins anew."""

import io
import json
import os
import zipfile
from dataclasses import asdict, replace

import numpy as np
import pytest

import highway_networks as hn
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


@pytest.mark.parametrize("kills", [[1], [2, 3], [4]])
@pytest.mark.parametrize("optimizer", CONFIGS)
def test_killed_and_resumed_is_uninterrupted_to_the_bit(
        optimizer, kills, data, tmp_path, capsys):
    config, path = CONFIGS[optimizer], tmp_path / "run.npz"
    for kill in kills:
        killed(config, data, path, kill)
    resumed = train(config, data, path)
    assert_same(resumed, train(config, data))
    assert capsys.readouterr().err == ""
    assert [entry.name for entry in tmp_path.iterdir()] == ["run.npz"]


def test_a_finished_training_is_not_trained_again(data, tmp_path, monkeypatch):
    config, path = CONFIGS["adam"], tmp_path / "run.npz"
    first = train(config, data, path)
    monkeypatch.setattr(hn, "train_step", None)
    assert_same(train(config, data, path), first)


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


def make(path, arrays, state, sign=True):
    """Write a checkpoint by hand, by default with the digest that fits it."""
    if sign:
        state.pop("sha256", None)
        state["sha256"] = checkpoints.digest_of(state, arrays)
    write(path, arrays, json.dumps(state))


def changed(sign=True, **about):
    """-> forge(path): the file again with these parts of its state replaced."""
    def forge(path):
        arrays, state = members(path)
        make(path, arrays, state | about, sign)
    return forge


def with_array(name, edit, sign=True):
    def forge(path):
        arrays, state = members(path)
        arrays[name] = edit(arrays[name])
        make(path, arrays, state, sign)
    return forge


def with_another_stream(path):
    arrays, state = members(path)
    state["streams"]["dropout"] = state["streams"]["batches"]
    make(path, arrays, state)


def without_array(path):
    arrays, state = members(path)
    del arrays["v"]
    make(path, arrays, state)


def as_single_array(path):
    with path.open("wb") as file:
        np.save(file, np.zeros(3))


def as_fifo(path):
    path.unlink()
    os.mkfifo(path)


def with_a_bomb(path):
    """A small file whose header promises an array that no memory holds."""
    promise = io.BytesIO()
    make(path, {}, members(path)[1])
    np.lib.format.write_array_header_1_0(promise, {
        "shape": (10**14,), "fortran_order": False, "descr": "<f4"})
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("params.npy", promise.getvalue())


def poisoned(array):
    array[3] = np.nan
    return array


def moved(array):
    array[3] += 1
    return array


BROKEN = {
    "empty": lambda path: path.write_bytes(b""),
    "half-written": lambda path: path.write_bytes(path.read_bytes()[:3000]),
    "one byte off": lambda path: path.write_bytes(
        (content := path.read_bytes())[:1500] + bytes([content[1500] ^ 1])
        + content[1501:]),
    "another archive": lambda path: np.savez(path, params=np.zeros(3)),
    "a single array": as_single_array,
    "a FIFO": as_fifo, "a bomb": with_a_bomb,
    "JSON of another kind": lambda path: write(path, members(path)[0], "[1]"),
    "not JSON": lambda path: write(path, members(path)[0], "{"),
    "a pickle": with_array("v", lambda array: array.astype(object)),
    "an array lost": without_array,
    "of another shape": with_array("params", lambda array: array[:-1]),
    "of shape ()": with_array("v", lambda array: array[0]),
    "of two axes": with_array("v", lambda array: array[None]),
    "of another dtype": with_array("params", lambda array: array.astype("float64")),
    "with a NaN": with_array("m", poisoned),
    "a weight edited": with_array("params", moved, sign=False),
    "history edited": changed(history=[{"epoch": 0}, {"epoch": 1}], sign=False),
    "history of another kind": changed(history="abc"),
    "history without epochs": changed(history=[{"loss": 1}]),
    "history with a gap": changed(history=[{"epoch": 0}, {"epoch": 2}]),
    "no history": changed(history=[]),
    "streams of another kind": changed(streams=[1]),
    "a stream of another kind": changed(streams={"batches": {"state": 1}}),
    "a stream lost": changed(streams={}), "a stream too many": with_another_stream,
    "of another configuration": changed(config={"lr": 1}),
    "of another kernel": changed(numerics={"blas_kernel": "Abacus"}),
}


@pytest.fixture(scope="module")
def halfway(data, tmp_path_factory):
    """The bytes of a checkpoint after two epochs, and how the training ends."""
    path = tmp_path_factory.mktemp("halfway") / "run.npz"
    killed(CONFIGS["adam"], data, path, 2)
    return path.read_bytes(), train(CONFIGS["adam"], data)


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_or_foreign_file_is_named_and_the_training_begins_anew(
        kind, data, halfway, tmp_path, capsys):
    path = tmp_path / "run.npz"
    path.write_bytes(halfway[0])
    BROKEN[kind](path)
    assert kind == "a FIFO" or path.read_bytes() != halfway[0]
    net = hn.make_net(CONFIGS["adam"], data)
    optimizer, rng = hn.Adam(net.params), np.random.default_rng(1)
    arrays = {"params": net.params} | {name: getattr(optimizer, name)
                                       for name in optimizer.kept}
    before = {name: array.copy() for name, array in arrays.items()}
    state = rng.bit_generator.state
    checkpoint = Checkpoint(path, asdict(CONFIGS["adam"]))
    assert checkpoint.load(arrays, {"batches": rng}) == []
    error = capsys.readouterr().err
    assert error.startswith(f"{path}: ") and error.count("\n") == 1
    assert error.endswith(". The training begins anew\n")
    assert all(np.array_equal(before[name], arrays[name]) for name in arrays)
    assert rng.bit_generator.state == state


def test_what_begins_anew_replaces_the_broken_file(data, halfway, tmp_path):
    path = tmp_path / "run.npz"
    path.write_bytes(halfway[0][:3000])
    assert_same(train(CONFIGS["adam"], data, path), halfway[1])
    assert members(path)[1]["history"][-1]["epoch"] == CONFIGS["adam"].epochs


def test_settings_that_differ_in_one_value_are_told_apart(data, tmp_path, capsys):
    path, config = tmp_path / "run.npz", CONFIGS["sgd"]
    killed(config, data, path, 1)
    other = replace(config, lr=config.lr * 2)
    assert_same(train(other, data, path), train(other, data))
    assert "config: lr is " in capsys.readouterr().err


def test_the_commit_is_not_among_what_must_agree(data, tmp_path, monkeypatch, capsys):
    path, config = tmp_path / "run.npz", CONFIGS["sgd"]
    killed(config, data, path, 2)
    here = checkpoints.numerics() | {"git": "another", "git_dirty": True}
    monkeypatch.setattr(checkpoints, "environment", lambda: here)
    assert_same(train(config, data, path), train(config, data))
    assert capsys.readouterr().err == ""
