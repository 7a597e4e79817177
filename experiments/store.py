"""Finished trials as files: written whole, checked on every read, never trusted.

A folder, the store, holds the trials of one protocol:

    protocol.json       what all its trials have in common; any other one is refused
    HASH.json           a finished trial, named by the hash of its config
    HASH.json.bad       was not a whole, unedited trial: set aside, the trial run again
    .unfinished-PID-*/  what that process is just writing; it goes with it, or where it
                        was killed when the next one comes

Files appear whole, by renaming, so there is no index to keep and no lock to be left
behind: two processes may run one trial twice and then write the same. All of a file but
`seconds` and `env` is the same on every run on one machine with one set of library
versions, whatever the number of processes; `digest` covers exactly that part.

A packed file holds trials as JSON lines, to be committed beside a figure. This module
runs nothing; experiments/trials.py does.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import platform
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from highway_suite.files import parse_json, read_file, to_json, write_file, write_json
from highway_suite.records import environment
from highway_suite.terminal import say

SCHEMA_VERSION = 1
DAY = 86400             # seconds
UNFINISHED = ".unfinished"
MACHINE = hashlib.sha256(platform.node().encode()).hexdigest()[:8]


class StoreError(ValueError):
    """A store or packed file cannot be used: which file, why, and what to do."""


class Trial(NamedTuple):
    """One finished trial, field by field as in its file."""

    hash: str           # of config
    protocol: str       # hash of the protocol it was run under
    config: dict
    status: str         # "ok" or "failed"
    error: str | None   # why it failed
    result: Any         # what its function returned; None if it failed
    digest: str         # hash of the five fields before it
    seconds: float      # wall-clock, of all processes that worked at it
    env: dict           # records.environment() where it was run


def hash_of(value: Any) -> str:
    """The first 32 hexadecimal digits of the SHA-256 of a value's canonical JSON."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def digest_of(trial: Trial) -> str:
    """The hash of what a rerun of a trial must give again."""
    return hash_of([trial.protocol, trial.config, trial.status, trial.error,
                    trial.result])


def make_trial(protocol: str, config: dict, status: str, error: str | None, result: Any,
               seconds: float) -> Trial:
    """A Trial with its hashes; protocol is the hash of the protocol."""
    trial = Trial(hash_of(config), protocol, config, status, error, result, "",
                  round(seconds, 3), environment())
    return trial._replace(digest=digest_of(trial))


def as_json(value: dict, name: str) -> dict:
    """A dict as JSON keeps it, keys sorted. Raises StoreError."""
    try:
        value = parse_json(json.dumps(value, sort_keys=True, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise StoreError(f"{name} is not JSON: {error}. Use str, int, float, bool, "
                         "None and lists and dicts of these") from error
    if not isinstance(value, dict):
        raise StoreError(f"{name} is a {type(value).__name__}, not a dict")
    return value


# --------------------------------------------------------------------------------------
# Reading


def headed(schema: str, **fields: Any) -> dict:
    """The record of this schema and these fields."""
    return {"schema": f"highway-networks/{schema}", "schema_version": SCHEMA_VERSION,
            **fields}


def parse(text: str, schema: str, names: Iterable[str]) -> dict:
    """JSON text of a record -> its fields: these and no others, or ValueError."""
    try:
        record = parse_json(text)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if not isinstance(record, dict):
        raise ValueError("not a JSON object")
    for name, value in headed(schema).items():
        if record.pop(name, None) != value:
            raise ValueError(f"field {name!r} is not {value!r}")
    if odd := set(record) ^ set(names):
        raise ValueError(f"field {min(odd)!r} is missing or unknown")
    return record


def parse_trial(text: str) -> Trial:
    """JSON text of a trial's record -> Trial. ValueError names the wrong field."""
    trial = Trial(**parse(text, "trial", Trial._fields))
    if trial.hash != hash_of(trial.config):
        raise ValueError("field 'hash' is not that of field 'config'")
    if trial.digest != digest_of(trial):
        raise ValueError("field 'digest' is not that of the results: they were edited")
    if not isinstance(trial.seconds, (int, float)) or not isinstance(trial.env, dict):
        raise ValueError("field 'seconds' or 'env' is of another kind")
    return trial


def read(path: Path) -> str:
    """A file's text. ValueError if it cannot be ours, OSError if it is unreadable."""
    try:
        return read_file(path).decode()
    except ValueError as error:
        if isinstance(error.__cause__, OSError):    # it may be good all the same
            raise error.__cause__ from None
        raise


def read_trial(path: Path) -> Trial:
    """A trial's file -> Trial. Raises ValueError, OSError."""
    trial = parse_trial(read(path))
    if path.stem != trial.hash:
        raise ValueError("its name is not its field 'hash'")
    return trial


def read_protocol(folder: Path) -> dict:
    """The protocol of a store. StoreError; FileNotFoundError where there is none."""
    path = folder / "protocol.json"
    try:
        return parse(read(path), "protocol", ["protocol"])["protocol"]
    except ValueError as error:
        raise StoreError(f"{path}: {error}. Restore it, or delete it and run again: "
                         "each trial knows the hash of its protocol") from error


def scan(folder: Path, protocol: dict, broken: Callable) -> dict[str, Trial]:
    """The finished trials of a folder, {hash: Trial}; broken(path, why) gets the other
    files of such names. Raises StoreError for a good trial of another protocol."""
    trials = {}
    for path in sorted(folder.glob("[0-9a-f]" * 32 + ".json")):
        try:
            trial = trials[path.stem] = read_trial(path)
        except FileNotFoundError:       # set aside by another process just now
            continue
        except ValueError as error:
            broken(path, error)
            continue
        if trial.protocol != hash_of(protocol):
            raise StoreError(f"{path}: a good trial of another protocol than this one. "
                             "Go back to that, or name a new folder")
    return trials


def load_trials(path: str | Path) -> tuple[dict, list[Trial]]:
    """A store's folder or a packed file -> its protocol and Trials, sorted by hash or
    as packed. Runs and changes nothing. Raises StoreError, whatever is wrong."""
    path = Path(path)

    def broken(trial, why):
        raise StoreError(f"{trial}: {why}. Run its experiment to have it made again")
    try:
        if not path.is_dir():
            return unpack(path)
        protocol = read_protocol(path)
        return protocol, list(scan(path, protocol, broken).values())
    except OSError as error:
        raise StoreError(f"{error.filename}: {error.strerror}. Name the folder of some "
                         "trials or a packed file") from error


# --------------------------------------------------------------------------------------
# Writing


class Store:
    """A folder of trials of one protocol, as one run writes it. Picklable.

    What is not whole yet lies in `scratch`, which belongs to this run alone and is
    removed with it. Methods that write raise StoreError.
    """

    def __init__(self, folder: Path, protocol: dict, scratch: str | Path):
        self.folder, self.scratch = folder, Path(scratch)
        self.protocol = hash_of(protocol)

    def write(self, name: str, record: dict) -> None:
        """Write a file whole or not at all."""
        try:
            self.scratch.mkdir(exist_ok=True)
            write_json(self.scratch / name, record)
            os.replace(self.scratch / name, self.folder / name)
        except OSError as error:
            raise StoreError(f"{self.folder / name}: {error.strerror}. Mend that and "
                             "run again: all trials before it are kept") from error

    def find(self, name: str) -> Trial | None:
        """The finished trial of this hash and our protocol, or None."""
        with suppress(FileNotFoundError, ValueError):
            trial = read_trial(self.folder / f"{name}.json")
            return trial if trial.protocol == self.protocol else None
        return None

    def save(self, trial: Trial) -> Trial:
        """Write a trial and return it, or the better one that is there."""
        there = self.find(trial.hash) if trial.status == "failed" else None
        if there and there.status == "ok":      # another process had more luck
            return there
        self.write(f"{trial.hash}.json", headed("trial", **trial._asdict()))
        return trial


def is_alive(process: int) -> bool:
    """Whether a process of this machine is there."""
    try:
        return psutil.pid_exists(process)
    except OverflowError:       # no process has such a number
        return False


def remove_leftovers(folder: Path, prefix: str = UNFINISHED) -> None:
    """Remove what killed processes were writing: those of this machine at once, those
    of another, which share its disk, after a day."""
    for old in folder.glob(f"{prefix}-*"):
        process, _, rest = old.name.removeprefix(f"{prefix}-").partition("-")
        here = rest.startswith(f"{MACHINE}-") and process.isdecimal()
        with suppress(OSError):
            if (not is_alive(int(process)) if here else
                    time.time() - old.stat().st_mtime > DAY):
                shutil.rmtree(old)


@contextmanager
def scratch_in(folder: Path, prefix: str = UNFINISHED) -> Iterator[Path]:
    """A folder in this one for the body alone, removed with it. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    remove_leftovers(folder, prefix)
    with tempfile.TemporaryDirectory(
            prefix=f"{prefix}-{os.getpid()}-{MACHINE}-", dir=folder,
            ignore_cleanup_errors=True) as scratch:
        yield Path(scratch)


@contextmanager
def open_store(folder: Path, protocol: dict) -> Iterator[tuple[Store, dict]]:
    """Make or check a folder -> its Store and finished trials. Raises StoreError."""
    with ExitStack() as stack:
        try:
            scratch = stack.enter_context(scratch_in(folder))
            with suppress(FileNotFoundError):
                check_protocol(folder, protocol)
            trials = scan(folder, protocol, set_aside)
        except OSError as error:
            raise StoreError(f"{error.filename or folder}: {error.strerror}. Name a "
                             "folder to read and write in") from error
        store = Store(folder, protocol, scratch)
        if not (folder / "protocol.json").exists():
            store.write("protocol.json", headed("protocol", protocol=protocol))
            check_protocol(folder, protocol)    # another process may have been later
        yield store, trials


def check_protocol(folder: Path, protocol: dict) -> None:
    """Raise StoreError, with the diff, unless this is the protocol of the store."""
    there = read_protocol(folder)
    if there != protocol:
        path = folder / "protocol.json"
        diff = difflib.unified_diff(
            to_json(there).splitlines(), to_json(protocol).splitlines(),
            str(path), "asked for now", lineterm="")
        raise StoreError(f"{path}: the trials here were run under another protocol. Go "
                         "back to that, or name a new folder for the new one.\n"
                         + "\n".join(diff))


def set_aside(path: Path, why: object) -> None:
    """Rename a broken trial's file out of the way, and say so."""
    with suppress(FileNotFoundError):       # another process was first
        os.replace(path, f"{path}.bad")
    say(f"{path}: {why}. Set aside as {path.name}.bad")


# --------------------------------------------------------------------------------------
# Packing


def pack_trials(path: str | Path, protocol: dict, trials: list[Trial]) -> None:
    """Write trials of one protocol into one file of JSON lines: the protocol and their
    number, then one line for each. Raises StoreError, OSError."""
    path, protocol = Path(path), as_json(protocol, "protocol")
    if strangers := [t.hash for t in trials if t.protocol != hash_of(protocol)]:
        raise StoreError(f"{path}: not written; trial {strangers[0]} is of another "
                         "protocol. Pack the trials that load_trials gives")
    records = [headed("trials", protocol=protocol, count=len(trials)),
               *(headed("trial", **trial._asdict()) for trial in trials)]
    write_file(path, "".join(json.dumps(record) + "\n"
                                for record in records).encode())


def unpack(path: Path) -> tuple[dict, list[Trial]]:
    """A packed file -> its protocol and Trials, every hash checked. StoreError."""
    line = 1
    try:
        first, *rest = read(path).split("\n")
        header, trials = parse(first, "trials", ["protocol", "count"]), []
        for text in rest[:-1]:              # the file ends with the end of a line
            line += 1
            trials.append(parse_trial(text))
            if trials[-1].protocol != hash_of(header["protocol"]):
                raise ValueError("a trial of another protocol")
        if len(trials) != header["count"]:
            raise ValueError(f"{len(trials)} whole trials of {header['count']}")
    except ValueError as error:
        raise StoreError(f"{path}, line {line}: {error}. Restore it, or pack it again "
                         "from its store") from error
    return header["protocol"], trials


def read_packed(paths: Iterable[Path], protocol: dict) -> dict[str, Trial]:
    """The trials of packed files, {hash: Trial}. Raises StoreError; also for a file of
    another protocol."""
    trials: dict[str, Trial] = {}
    for path in paths:
        there, packed = load_trials(path)
        if there != protocol:
            raise StoreError(f"{path}: its trials were run under another protocol. Go "
                             "back to that, or move the file away")
        trials |= {trial.hash: trial for trial in packed}
    return trials


def merged(one: dict[str, Trial], other: dict[str, Trial]) -> dict[str, Trial]:
    """Trials from two places; of one that is in both the other's, unless only that
    failed."""
    return one | {name: trial for name, trial in other.items()
                  if trial.status == "ok" or name not in one}
