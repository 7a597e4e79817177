"""Checkpoints: what `highway_networks.fit` goes on from where it was stopped.

    history, layer_T, status = hn.train(net, data, config, checkpoint="training.npz")

One .npz, written whole after each epoch: the arrays that training changes, the state of
its random streams, the history, and what all of it holds for. A file that holds
anything else is refused in one sentence and left as it is. Killed and gone on with, a
training gives the same bits as in one piece; one that asks for more epochs than the
file has goes on to them.
"""

from __future__ import annotations

import hashlib
import io
import json
import time
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import highway_networks as hn
from highway_suite.files import LIMIT, check_target, parse_json, read_file, write_file
from highway_suite.records import environment, numerics

STATE = "state.json"    # the member beside the arrays
KEYS = {"config", "data", "environments", "history", "seconds", "start", "streams"}


class CheckpointError(ValueError):
    """A checkpoint cannot be gone on from: the file, and why."""


def this_process() -> dict:
    """What the last bits of a training depend on besides its settings."""
    return numerics(environment(hn.threads_in_use()))


def data_hash(*arrays: np.ndarray) -> str:
    """The SHA-256 of arrays, their shapes and types: what a training learns from."""
    digest = hashlib.sha256()
    for array in map(np.ascontiguousarray, arrays):
        digest.update(f"{array.dtype.str} {array.shape}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def weighed(*arrays: np.ndarray) -> list[float]:
    """A number for each array that tells it from others, up to rounding."""
    return [float(array.ravel() @ np.cos(np.arange(array.size, dtype=np.float64)))
            for array in arrays]


def computed_by(config: hn.Config) -> str:
    """What a block makes of some fixed numbers, forward and backward: a block of the
    caller's may change while its name stays."""
    block = hn.block_of(config.block, config.depth)
    rng, shape = np.random.default_rng(0), (config.hidden, 4)
    x, dy, y, dH, scratch, H = rng.uniform(-4, 4, (6, *shape))
    rows = H, *rng.uniform(0, 1, (len(block.gates), *shape))
    block.forward(x, rows, y, scratch)
    block.backward(dy, x, rows, dH, scratch)
    return " ".join(f"{value:.6g}" for value in weighed(y, dy, dH, *rows[1:]))


class Checkpoint:
    """The checkpoint of one training in a file, for `fit`.

    config: a dict of JSON, all settings that the training depends on; `epochs` alone
        may be raised later.
    data: `data_hash` what it learns from. A file of other data is refused.
    anyway: go on also where the file was made by another processor, Python, library or
        number of threads; the last bits may then differ from a training in one piece.

    After load: `seconds_before`, that the training took before it was stopped, and
    `environments`, the different ones it ran in, this one last.
    """

    def __init__(self, path: str | Path, config: Mapping[str, Any], data: str,
                 anyway: bool = False):
        self.path, self.data, self.anyway = hn.expanded(path), data, anyway
        self.config = parse_json(json.dumps(dict(config), allow_nan=False))
        self.began, self.seconds_before = time.perf_counter(), 0.0
        self.start: list[float] = []        # of the weights before training, by `load`
        self.environments = [this_process()]

    def save(self, arrays: Mapping[str, np.ndarray],
             streams: Mapping[str, np.random.Generator], history: list[dict]) -> None:
        """Write all of it or nothing. Raises OSError, which names the file."""
        seconds = self.seconds_before + time.perf_counter() - self.began
        state = {"config": self.config, "data": self.data, "history": history,
                 "start": self.start, "environments": self.environments,
                 "seconds": round(seconds, 3),
                 "streams": {name: stream.bit_generator.state
                             for name, stream in streams.items()}}
        file = io.BytesIO()
        members: dict[str, Any] = dict(arrays)      # for mypy: savez has other keywords
        np.savez(file, **members)
        with zipfile.ZipFile(file, "a") as archive:
            archive.writestr(STATE, json.dumps(state, allow_nan=False))
        write_file(self.path, file.getvalue())

    def load(self, arrays: Mapping[str, np.ndarray],
             streams: Mapping[str, np.random.Generator]) -> list[dict]:
        """Set arrays and streams to where the file's training was -> its history; []
        where there is no file, whose folder is then made. Raises CheckpointError, with
        no array changed, for a file that holds anything else."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        check_target(self.path)
        self.environments = [this_process()]    # threads are as `fit` limits them
        self.start = weighed(*arrays.values())
        if not self.path.exists():
            return []
        try:
            state, found = self.read(arrays)
            self.seconds_before = float(state["seconds"])
            for name, stream in streams.items():
                stream.bit_generator.state = state["streams"][name]
        except Exception as error:      # zipfile, zlib, numpy: each its own kind
            why = error if isinstance(error, ValueError) else repr(error)
            raise CheckpointError(f"{self.path}: {why}. Name another file, or move "
                                  "this one away to begin anew") from error
        for name, array in arrays.items():
            array[...] = found[name]
        self.environments = [there for there in state["environments"]
                             if there != this_process()] + [this_process()]
        return state["history"]

    def read(self, arrays: Mapping[str, np.ndarray]) -> tuple[dict, dict]:
        """The file's state, checked, and its arrays, shaped like these. Raises errors
        of many kinds."""
        most = sum(array.nbytes for array in arrays.values()) + LIMIT
        content = io.BytesIO(read_file(self.path, most))
        with zipfile.ZipFile(content) as archive:
            state = parse_json(archive.read(STATE).decode())
        if not isinstance(state, dict) or not set(state) >= KEYS:
            raise ValueError("it is no checkpoint of this version")
        self.check(state)
        content.seek(0)
        with np.load(content) as members:       # no pickles
            found = {name: members[name] for name in arrays}
        for name, array in arrays.items():
            there = found[name]
            if (there.shape, there.dtype) != (array.shape, array.dtype):
                raise ValueError(f"its array {name!r} is {there.dtype} {there.shape}, "
                                 f"not {array.dtype} {array.shape}")
        return state, found

    def check(self, state: dict) -> None:
        """Raise ValueError, saying what differs, unless this training can go on."""
        there, here = state["config"], self.config
        for key in {**here, **there}:
            if key != "epochs" and there.get(key) != here.get(key):
                raise ValueError(f"it is of another training: {key} is "
                                 f"{there.get(key)!r}, here {here.get(key)!r}")
        done = state["history"][-1]["epoch"]
        if done > here.get("epochs", done):
            raise ValueError(f"it has {done} epochs, here {here['epochs']} are wanted")
        if state["data"] != self.data:
            raise ValueError("it learned from other data")
        if not np.allclose(state["start"], self.start, rtol=1e-5):
            raise ValueError("it began with other weights than this net has now. To go "
                             "on, give it the net as it was before training, such as a "
                             "new one of make_net")
        last = state["environments"][-1]
        for key, value in this_process().items():
            if last.get(key) != value and not self.anyway:
                raise ValueError(f"it was made where {key} is {last.get(key)!r}, here "
                                 f"{value!r}. --anyway goes on, or in Python "
                                 "checkpoint=of_training(FILE, config, data, "
                                 "anyway=True) of highway_suite.checkpoints")


def of_training(path: str | Path, config: hn.Config, data: hn.Data,
                anyway: bool = False) -> Checkpoint:
    """The checkpoint of `highway_networks.train` with these settings and data."""
    settings = {**vars(config), "what its block computes": computed_by(config)}
    return Checkpoint(path, settings, data_hash(
        data.x_train, data.y_train, data.x_test, data.y_test), anyway)
