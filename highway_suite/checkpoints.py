"""Checkpoints: what `highway_networks.fit` goes on from where it was stopped.

    history, layer_T, status = highway_suite.train(net, data, config,
                                                   checkpoint="training.npz")

One .npz, written whole after each epoch, has the arrays that training changes, the
state of its random streams, and which settings and data it belongs to; beside it is
NAME.history, a line for each epoch. A training that is killed and continued gives the
same bits as one in one piece, on the same processor and libraries. With more epochs
than the file has, it goes on to those. A file of other settings or data is refused in
one sentence.
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
from highway_suite.files import check_target, expanded, parse_json, write_file
from highway_suite.records import environment, numerics

STATE = "state.json"    # the member beside the arrays


class CheckpointError(ValueError):
    """A checkpoint cannot be gone on from: the file, and why."""


def data_hash(*arrays: np.ndarray) -> str:
    """The SHA-256 of arrays, their shapes and types: what a training learns from."""
    digest = hashlib.sha256()
    for array in map(np.ascontiguousarray, arrays):
        digest.update(f"{array.dtype.str} {array.shape}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def log_of(path: Path) -> Path:
    """Where the history of a checkpoint lies."""
    return path.with_name(f"{path.name}.history")


def discard(path: Path) -> None:
    """Remove a checkpoint, if there is one, and its history."""
    for file in (path, log_of(path)):
        file.unlink(missing_ok=True)


class Checkpoint:
    """The checkpoint of one training in a file, for `fit`.

    config: a dict of JSON, all settings that the training depends on; `epochs` alone
        may be raised later.
    data: `data_hash` what it learns from.

    After load: `seconds_before`, that the training took before it was stopped, and
    `environments`, the different ones it ran in, this one last.
    """

    def __init__(self, path: str | Path, config: Mapping[str, Any], data: str):
        self.path, self.data = expanded(path), data
        self.log = log_of(self.path)
        self.config = parse_json(json.dumps(dict(config), allow_nan=False))
        self.seconds_before = 0.0
        self.environments = [numerics(environment())]
        self.logged = 0     # rows of the history that its file has

    def save(self, arrays: Mapping[str, np.ndarray],
             streams: Mapping[str, np.random.Generator], history: list[dict]) -> None:
        """Add the new rows of the history to its file, and write the rest whole. Raises
        OSError, which names the file."""
        with open(self.log, "a") as log:
            for row in history[self.logged:]:
                log.write(json.dumps(row, allow_nan=False) + "\n")
        self.logged = len(history)
        seconds = self.seconds_before + time.perf_counter() - self.began
        state = {"config": self.config, "data": self.data, "rows": len(history),
                 "last": history[-1],       # which the history must have there
                 "environments": self.environments, "seconds": round(seconds, 3),
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
        self.began = time.perf_counter()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        check_target(self.path)
        if not self.path.exists():
            discard(self.path)
            return []
        try:
            state, found, history = self.read(arrays)
            for name, stream in streams.items():
                stream.bit_generator.state = state["streams"][name]
            self.seconds_before = float(state["seconds"])
        except Exception as error:      # zipfile, zlib, numpy: each its own kind
            why = error if isinstance(error, (ValueError, OSError)) else repr(error)
            raise CheckpointError(f"{self.path}: {why}. Name another file, or move "
                                  f"this one and {self.log.name} away to begin anew"
                                  ) from error
        for name, array in arrays.items():
            array[...] = found[name]
        lines = [json.dumps(row) for row in history]    # without what a kill left
        write_file(self.log, "".join(f"{line}\n" for line in lines).encode())
        here = self.environments[-1]
        self.environments = [there for there in state["environments"] if there != here]
        self.environments.append(here)
        self.logged = len(history)
        return history

    def read(self, arrays: Mapping[str, np.ndarray]
             ) -> tuple[dict, dict[str, np.ndarray], list[dict]]:
        """The file's state, checked, its arrays, shaped like these, and its history.
        Raises errors of many kinds."""
        with zipfile.ZipFile(self.path) as archive:
            state = parse_json(archive.read(STATE).decode())
        kept, here = state["config"], self.config
        for key in {**here, **kept}:
            if key != "epochs" and kept.get(key) != here.get(key):
                raise ValueError(f"it is of another training: {key} is "
                                 f"{kept.get(key)!r}, here {here.get(key)!r}")
        if state["data"] != self.data:
            raise ValueError("it learned from other data")
        lines = self.log.read_text().splitlines()[:state["rows"]]
        history = [*map(parse_json, lines)]
        if len(history) < state["rows"] or history[-1] != state["last"]:
            raise ValueError(f"{self.log.name} is cut, or of another training")
        done = history[state["rows"] - 1]["epoch"]
        if done > here.get("epochs", done):
            raise ValueError(f"it has {done} epochs, here {here['epochs']} are wanted")
        with np.load(self.path) as members:       # no pickles
            found = {name: members[name] for name in arrays}
        for name, array in arrays.items():
            there = found[name]
            if (there.shape, there.dtype) != (array.shape, array.dtype):
                raise ValueError(f"its array {name!r} is {there.dtype} {there.shape}, "
                                 f"not {array.dtype} {array.shape}")
        return state, found, history


def of_training(path: str | Path, config: hn.Config, data: hn.Data) -> Checkpoint:
    """The checkpoint of `highway_suite.train` with these settings and data."""
    return Checkpoint(path, vars(config), data_hash(
        data.x_train, data.y_train, data.x_test, data.y_test))
