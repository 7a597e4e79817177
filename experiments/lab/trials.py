"""Trials: what one is, what names it, and where finished ones lie.

A trial is one call of a trial function, f(config, data), whose result is JSON. Its
hash is of all that its result depends on: the declared name and version of the
function, the data set's name and the hash of its content, and the config. Neither the
path of a module nor the name of an experiment is part of it, so code may move and plans
may grow.

Finished trials lie in the store of the working copy, one file of SQLite, until they are
packed into results/NAME/trials/*.jsonl, one trial a line, to be committed. SQLite
writes a trial whole or not at all, whoever is killed, and lets several processes write.
"""

from __future__ import annotations

import copy
import hashlib
import json
import sqlite3
import time
import traceback
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import highway_networks as hn
from highway_suite.checkpoints import Checkpoint
from highway_suite.files import parse_json, read_file, write_file
from highway_suite.records import environment, field


class StoreError(ValueError):
    """Trials cannot be read, written or run: which, why, and what to do."""


class Declared(NamedTuple):
    """What a trial function says of itself."""

    name: str           # "EXPERIMENT.WHAT"
    version: int        # raised when its results change
    accepts: tuple      # older versions whose trials still stand for it
    resumable: bool     # called with a third argument, its checkpoint
    needs_data: bool


def trial_function(name: str, version: int = 1, accepts: Collection[int] = (), *,
                   resumable: bool = False, needs_data: bool = True) -> Callable:
    """Declare a function as one of trials, f(config, data) -> JSON; one that needs no
    data gets None. A resumable one, f(config, data, checkpoint), gets what `hn.fit`
    takes, or None."""
    def declare(function):
        function.declared = Declared(name, version, tuple(accepts), resumable,
                                     needs_data)
        return function
    return declare


def hash_of(value: Any) -> str:
    """The first 16 hexadecimal digits of the SHA-256 of a value's canonical JSON."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class Trial(NamedTuple):
    """One finished trial, field by field as in its line."""

    function: str
    version: int
    dataset: dict | None    # {"name", "content"}; None for a function without data
    config: dict
    status: str             # "ok" or "failed"
    error: str | None       # why it failed
    result: Any             # what the function returned; None if it failed
    seconds: float          # wall-clock, of all processes that worked at it
    env: dict               # records.environment() where it was run

    @property
    def hash(self) -> str:
        """Its name in rows of records and in the store."""
        return hash_of([*self[:4]])

    @property
    def line(self) -> str:
        """Its line in a packed file; numbers of equal trials are equal to the byte."""
        return json.dumps({"trial": self.hash, **self._asdict()}, allow_nan=False)


def parse_trial(line: str) -> Trial:
    """A line -> Trial. Raises ValueError, naming what is wrong."""
    fields = parse_json(line)
    if not isinstance(fields, dict) or set(fields) != {"trial", *Trial._fields}:
        raise ValueError("not the fields of a trial")
    field(fields, "seconds", (int, float))
    name = fields.pop("trial")
    trial = Trial(**fields)
    if trial.hash != name:
        raise ValueError(f"trial {name!r:.20} has the settings of {trial.hash}")
    return trial


class Request(NamedTuple):
    """A trial that is asked for."""

    function: Any           # declared by `trial_function`
    dataset: dict | None
    config: dict

    @property
    def hashes(self) -> list[str]:
        """Of the trials that would do: of the function's own version first."""
        declared = self.function.declared
        return [hash_of([declared.name, version, self.dataset, self.config])
                for version in (declared.version, *declared.accepts)]

    def found_in(self, trials: Mapping[str, Trial]) -> Trial | None:
        """The first finished trial that would do, or None."""
        return next((trials[name] for name in self.hashes if name in trials), None)


def compute(request: Request, data: Any, path: Path | None = None) -> Trial:
    """Run one trial, on one BLAS thread and with a copy of the data, which other trials
    of this process use, too. path: of its checkpoint. What it raises is why it failed.
    """
    declared = request.function.declared
    start, status, error, result = time.perf_counter(), "ok", None, None
    checkpoint = Checkpoint(path, {"trial": request.hashes[0]}, data=""
                            ) if path else None         # data are in the hash
    more = [checkpoint] if declared.resumable else []
    try:
        with hn.blas_threads(1):
            result = request.function(*copy.deepcopy((request.config, data)), *more)
        result = parse_json(json.dumps(result))         # as its line will give it back
    except Exception as caught:         # not SystemExit, as which a SIGTERM may come
        status, result, error = "failed", None, in_a_line(caught)
    seconds, env = time.perf_counter() - start, environment()
    if checkpoint:
        seconds += checkpoint.seconds_before    # that it took before it was interrupted
        if checkpoint.environments[1:]:         # also on another processor
            env = env | {"went_on_from": checkpoint.environments[:-1]}
    return Trial(declared.name, declared.version, request.dataset, request.config,
                 status, error, result, round(seconds, 3), env)


def in_a_line(error: Exception) -> str:
    """What an exception says, and where it was raised, for a terminal."""
    where = traceback.extract_tb(error.__traceback__)[-1]
    words = "".join(letter if letter.isprintable() else " "
                    for letter in str(error)[:500])
    return (f"{type(error).__name__}: {words} ({Path(where.filename).name}, line "
            f"{where.lineno})")


# --------------------------------------------------------------------------------------
# The store


class Store:
    """Finished trials in one SQLite file. Picklable; every method may be called by
    several processes at a time. Raises StoreError."""

    def __init__(self, path: Path):
        self.path = path.absolute()

    def execute(self, statement: str, values: Sequence = ()) -> list[tuple]:
        """One statement, in a transaction of its own -> its rows."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with closing(sqlite3.connect(self.path, timeout=60)) as database, database:
                database.execute("CREATE TABLE IF NOT EXISTS trials (hash TEXT PRIMARY "
                                 "KEY, function TEXT, status TEXT, line TEXT)")
                return database.execute(statement, values).fetchall()
        except (sqlite3.Error, OSError) as error:
            raise StoreError(f"{self.path}: {error}. Mend that and run again, which "
                             "keeps all trials in it, or move the file away") from error

    def save(self, trial: Trial) -> Trial:
        """Keep a trial, unless it failed; of two of a hash the first is kept, and
        returned."""
        if trial.status != "ok":
            return trial
        self.execute("INSERT OR IGNORE INTO trials VALUES (?, ?, ?, ?)",
                     (trial.hash, trial.function, trial.status, trial.line))
        return self.find(trial.hash) or trial

    def find(self, name: str) -> Trial | None:
        """The trial of this hash, or None."""
        return self.read("hash = ?", name).get(name)

    def of(self, start: str) -> dict[str, Trial]:
        """All trials of functions whose names start so, {hash: Trial}; "NAME." is every
        one of the experiment NAME."""
        return self.read("instr(function, ?) = 1", start)

    def read(self, where: str, value: str) -> dict[str, Trial]:
        """Trials that were chosen, {hash: Trial}; none where there is no file yet."""
        if not self.path.exists():
            return {}
        rows = self.execute("SELECT hash, line FROM trials WHERE status = 'ok' AND "
                            + where, (value,))
        try:
            return {name: parse_trial(line) for name, line in rows}
        except (ValueError, TypeError) as error:
            raise StoreError(f"{self.path}: {error}. Remove it: what it holds is "
                             "trained again") from error


# --------------------------------------------------------------------------------------
# Packed files


def read_packed(folder: Path) -> dict[str, Trial]:
    """The trials of a folder's packed files, {hash: Trial}. Raises StoreError."""
    trials = {}
    for path in sorted(folder.glob("*.jsonl")):
        number = 0
        try:
            for line in read_file(path).decode().splitlines():
                number += 1
                trial = parse_trial(line)
                trials[trial.hash] = trial
        except (ValueError, TypeError) as error:
            raise StoreError(f"{path}, line {number}: {error}. Restore the file, or "
                             "remove the line to have that trial run again") from error
    return trials


def write_packed(folder: Path, trials: Iterable[Trial]) -> bool:
    """Write the trials of an experiment that did not fail, a file for each function, in
    the place of those that are there -> whether a file changed."""
    files: dict[str, list[Trial]] = {}
    for trial in trials:
        if trial.status == "ok":
            files.setdefault(trial.function.partition(".")[2], []).append(trial)
    changed = False
    for path in folder.glob("*.jsonl"):
        if path.stem not in files:
            path.unlink()
            changed = True
    for name, group in files.items():
        text = "".join(trial.line + "\n"
                       for trial in sorted(group, key=lambda trial: trial.hash))
        path = folder / f"{name}.jsonl"
        if not path.exists() or path.read_bytes() != text.encode():
            folder.mkdir(parents=True, exist_ok=True)
            write_file(path, text.encode())
            changed = True
    return changed
