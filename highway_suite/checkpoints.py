"""Checkpoints: what `highway_networks.fit` goes on from where it was stopped.

One .npz, written whole after each epoch: the arrays that training changes, the state of
its random streams, the history, and what all of it holds for. A file that holds
anything else is set aside, and the training begins anew; one that cannot be read, or is
no regular file, is left alone and ends the training.
"""

from __future__ import annotations

import copy
import hashlib
import io
import json
import os
import time
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from highway_suite.files import (
    LIMIT,
    check_regular,
    parse_json,
    read_file,
    write_file,
)
from highway_suite.records import environment
from highway_suite.terminal import say

STATE = "state.json"    # the member beside the arrays
# Seconds that the trainings of this trial took before they were stopped.
spent_before: ContextVar[float] = ContextVar("spent_before", default=0.0)


def numerics() -> dict:
    """What the last bits of a training depend on besides its settings. The commit is
    not among it, so that whoever mends a sentence does not lose hours."""
    return {name: value for name, value in environment().items()
            if not name.startswith("git")}


def digest_of(state: dict, arrays: Mapping[str, np.ndarray]) -> str:
    """The SHA-256 of all that a checkpoint holds."""
    digest = hashlib.sha256(json.dumps(state, sort_keys=True).encode())
    for name in sorted(arrays):
        digest.update(arrays[name].tobytes())
    return digest.hexdigest()


def read_state(archive: zipfile.ZipFile) -> dict:
    """The JSON of an open checkpoint."""
    with archive.open(STATE) as file:
        state = parse_json(file.read(LIMIT).decode())
    if not isinstance(state, dict) or set(state) != {
            "config", "numerics", "history", "streams", "seconds", "sha256"}:
        raise ValueError("not a checkpoint")
    return state


def check_equal(name: str, there: Any, here: dict) -> None:
    """Raise ValueError, naming what differs, unless a part of the state is as here."""
    there = there if isinstance(there, dict) else {}
    for key in {**here, **there}:
        if key not in here or key not in there or here[key] != there[key]:
            raise ValueError(f"it is of another {name}: {key} is {there.get(key)!r}, "
                             f"here {here.get(key)!r}")


def read_array(archive: zipfile.ZipFile, name: str, like: np.ndarray) -> np.ndarray:
    """A finite array like this one. Its header is compared before it asks for memory.
    """
    with archive.open(f"{name}.npy") as file:
        if np.lib.format.read_magic(file) != (1, 0):
            raise ValueError(f"array {name!r} is of another format")
        shape, by_columns, dtype = np.lib.format.read_array_header_1_0(file)
        if (shape, by_columns, dtype) != (like.shape, False, like.dtype):
            raise ValueError(f"array {name!r} is {dtype} {shape}, not {like.dtype} "
                             f"{like.shape}")
        content = file.read(like.nbytes + 1)
    if len(content) != like.nbytes:
        raise ValueError(f"array {name!r} is not {like.nbytes} bytes long")
    array = np.frombuffer(content, dtype).reshape(shape)
    if not np.isfinite(array).all():
        raise ValueError(f"array {name!r} is not finite")
    return array


class Found(NamedTuple):
    """What a checkpoint holds."""

    arrays: dict        # by name
    streams: dict       # the state of each, by name
    history: list
    seconds: float      # that it took so far


class Checkpoint:
    """The checkpoint of one training in a file, for `fit`.

    config: a dict of JSON, all that the training depends on but for the libraries: its
    settings, the name of its data. A file of another config is not gone on from.
    """

    def __init__(self, path: str | Path, config: dict):
        self.path, self.start, self.before = Path(path), time.perf_counter(), 0.0
        self.config = parse_json(json.dumps(config, allow_nan=False))

    def save(self, arrays: Mapping[str, np.ndarray],
             streams: Mapping[str, np.random.Generator], history: list[dict]) -> None:
        """Write all of it or nothing. Raises OSError."""
        seconds = self.before + time.perf_counter() - self.start
        state = {"config": self.config, "numerics": numerics(), "history": history,
                 "seconds": round(seconds, 3),
                 "streams": {name: stream.bit_generator.state
                             for name, stream in streams.items()}}
        state = parse_json(json.dumps(state, allow_nan=False))
        text = json.dumps(state | {"sha256": digest_of(state, arrays)})
        file = io.BytesIO()
        members: dict[str, Any] = dict(arrays)      # for mypy: savez has other keywords
        np.savez(file, **members)
        with zipfile.ZipFile(file, "a") as archive:
            archive.writestr(STATE, text)
        write_file(self.path, file.getvalue())

    def load(self, arrays: Mapping[str, np.ndarray],
             streams: Mapping[str, np.random.Generator]) -> list[dict]:
        """Set arrays and streams to where the file's training was -> its history; []
        where there is no file, or none that can be used: then nothing is changed.
        Raises OSError where it cannot be read, for it may be good all the same, or is
        no regular file."""
        if not self.path.exists():
            return []
        check_regular(self.path)
        try:
            found = self.read(arrays, streams)
        except MemoryError:
            raise
        except Exception as error:      # zipfile, zlib, numpy: each its own kind
            if isinstance(error.__cause__, OSError):
                raise error.__cause__ from None
            why = error if isinstance(error, ValueError) else repr(error)
            aside = self.path.with_name(f"{self.path.name}.bad")
            with suppress(OSError):
                os.replace(self.path, aside)
            say(f"{self.path}: {why}. Set aside as {aside.name}; the training begins "
                "anew")
            return []
        self.before = found.seconds
        spent_before.set(spent_before.get() + self.before)
        for name, array in arrays.items():
            array[...] = found.arrays[name]
        for name, stream in streams.items():
            stream.bit_generator.state = found.streams[name]
        return found.history

    def read(self, arrays: Mapping[str, np.ndarray],
             streams: Mapping[str, np.random.Generator]) -> Found:
        """Arrays like these, states of such streams, history, seconds. Raises an
        exception of any kind for a file that does not hold just that."""
        most = sum(array.nbytes for array in arrays.values()) + LIMIT
        with zipfile.ZipFile(io.BytesIO(read_file(self.path, most))) as archive:
            state = read_state(archive)
            check_equal("config", state["config"], self.config)
            check_equal("environment", state["numerics"], numerics())
            found = {name: read_array(archive, name, array)
                     for name, array in arrays.items()}
        if state.pop("sha256") != digest_of(state, found):
            raise ValueError("it was edited")
        history, states = state["history"], state["streams"]
        epochs = [row["epoch"] for row in history]
        if not epochs or epochs != list(range(epochs[0], epochs[0] + len(epochs))):
            raise ValueError(f"its history has the epochs {epochs}")
        if set(states) != set(streams):
            raise ValueError(f"its streams are {sorted(states)}")
        for name, stream in streams.items():        # on copies first: it may raise
            copy.deepcopy(stream.bit_generator).state = states[name]
        return Found(found, states, history, float(state["seconds"]))
