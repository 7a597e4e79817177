"""Records, read, checked and written; `highway_networks.make_record` makes them."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

import highway_networks as hn
from highway_suite.files import parse_json, read_file, to_json, write_json

COMMAND = ("highway-networks" if list(hn.HERE.glob("highway_networks-*.dist-info")) else
           "python3 highway_networks.py")       # as pip installs it, or from a folder
CODE = ("highway_networks.py", "highway_suite/*.py", "experiments/*.py",
        "benchmarks/*.py")                      # what results depend on
JUST_GUESSING = 0.05        # at most so far above chance in test accuracy


class RecordError(ValueError):
    """A record cannot be read: the file, the field, and what is wrong with it."""


@lru_cache(maxsize=1)
def git_state() -> tuple[str | None, bool | None]:
    """(revision, whether code differs from it) of the checkout this file lies in; None
    where there is none."""
    def git(*words):
        return os.fsdecode(subprocess.run(      # without locks: it may be killed midway
            ("git", "--no-optional-locks", *words), cwd=hn.HERE, capture_output=True,
            check=True, timeout=10).stdout).strip()
    try:
        if not os.path.samefile(git("rev-parse", "--show-toplevel"), hn.HERE):
            return None, None
        return git("rev-parse", "HEAD"), bool(git("status", "--porcelain", "--", *CODE))
    except (OSError, subprocess.SubprocessError):
        return None, None


@lru_cache(maxsize=1)
def blas_in_use() -> dict:
    """What threadpoolctl knows of NumPy's BLAS; SciPy may bring another one. It is
    asked once, because that takes longer than to train a small net."""
    try:
        from threadpoolctl import threadpool_info
    except ImportError:
        return {}
    known = [library for library in threadpool_info() if library["user_api"] == "blas"]
    return min(known, key=lambda library: "numpy" not in library["filepath"],
               default={})


@lru_cache(maxsize=1)
def processor() -> str:
    """Its name, and which of NumPy's sets of instructions it has, the largest last."""
    name = platform.processor() or platform.machine()
    with suppress(OSError), open("/proc/cpuinfo", encoding="utf-8") as about:   # Linux
        name = next((line.partition(": ")[2].strip() for line in about
                     if line.startswith("model name")), name)
    found = np.show_config(mode="dicts").get("SIMD Extensions", {}).get("found", [])
    return ", ".join([name, *found[-1:]])


def environment(threads: int | None = 1) -> dict:
    """What may change the last bits or the speed of a run; no user, host or path."""
    blas, (revision, dirty) = blas_in_use(), git_state()
    return {
        "python": platform.python_version(), "numpy": np.__version__,
        "platform": f"{platform.system()} {platform.machine()}",
        "processor": processor(), "blas_threads": threads,
        "blas": blas.get("internal_api"), "blas_version": blas.get("version"),
        "blas_kernel": blas.get("architecture"), "git": revision, "git_dirty": dirty}


def numerics(env: Mapping) -> dict:
    """The part of an environment on which the last bits of a training depend. It leaves
    out the commit, so that a corrected sentence costs no new training, and the name of
    the processor, of which only BLAS's kernel counts."""
    return {name: value for name, value in env.items()
            if not name.startswith(("git", "processor"))}


def numbers_of(value: Any) -> Any:
    """A record, or a part of it, without what differs between two runs of a command."""
    if isinstance(value, dict):
        return {name: numbers_of(item) for name, item in value.items()
                if name not in ("env", "seconds", "wallclock_sec")}
    return [*map(numbers_of, value)] if isinstance(value, list) else value


def write_record(path: Path, record: dict) -> bool:
    """Write a record -> whether it was written. A file that differs only in environment
    and seconds stays: whoever only tries a command changes no file. Raises OSError."""
    try:
        there = parse_json(read_file(path).decode())
    except ValueError:
        there = None
    if numbers_of(there) == numbers_of(parse_json(to_json(record))):
        return False
    write_json(path, record)
    return True


# --------------------------------------------------------------------------------------
# Reading


@contextmanager
def sound(name: object) -> Iterator[None]:
    """A body that reads fields of a record: where one is missing or of another kind,
    that becomes a RecordError in one line."""
    try:
        yield
    except RecordError:
        raise
    except (LookupError, TypeError, AttributeError, ArithmeticError, ValueError
            ) as error:
        raise RecordError(f"the record of {name}: a field is missing or wrong "
                          f"({error!r:.80})") from error


def field(value: Any, name: str, kind: Any, place: str = "") -> Any:
    """A field of a record, or of a part of it, whose place has this name. Raises
    RecordError unless it is there and of this kind; True is no number."""
    if not isinstance(value, dict) or name not in value:
        raise RecordError(f"field '{place}{name}' is missing")
    found = value[name]
    if not isinstance(found, kind) or isinstance(found, bool):
        raise RecordError(f"field '{place}{name}' is {found!r:.40}, not of kind "
                          f"{getattr(kind, '__name__', 'number')}")
    return found


def nets_of(run: dict) -> dict[str, dict]:
    """The nets of one run of a record by their blocks: whatever has a history."""
    return {name: net for name, net in run.items()
            if isinstance(net, dict) and "history" in net}


def check_record(record: Any) -> None:
    """Raise RecordError, naming the field, unless it is a record that can be drawn."""
    for name in ("n_train", "n_test"):
        field(record, name, int)
    if not field(record, "runs", list):
        raise RecordError("field 'runs' is empty")
    for i, run in enumerate(record["runs"]):
        depth = field(run, "depth", int, f"runs[{i}].")
        if not nets_of(run):
            raise RecordError(f"field 'runs[{i}]' holds no net")
        for block, net in nets_of(run).items():
            place = f"runs[{i}].{block}."
            history = field(net, "history", dict, place)
            count = len(field(history, "epoch", list, f"{place}history."))
            for name in ("train_loss", "train_acc", "test_acc"):
                values = field(history, name, list, f"{place}history.")
                if len(values) != count or not all(
                        value is None or type(value) in (int, float)
                        for value in values):
                    raise RecordError(f"field '{place}history.{name}' is "
                                      f"{values!r:.40}, not a number for each epoch")
            for _, T in net.get("layer_T_history") or ():
                if len(T) != depth:
                    raise RecordError(f"field '{place}layer_T_history' has a row of "
                                      f"{len(T)}, not {depth} blocks")


def read_with_hash(path: str | Path, command: str = f"{COMMAND} --seed 0",
                   check: Callable[[Any], None] = check_record) -> tuple[dict, str]:
    """A checked record and the SHA-256 of its file. Records without our `schema` key,
    by the earlier reproduction, are read too. Raises RecordError, one line that names
    file and field; where no file is there, also the command that makes one. (It would
    replace a file that is there.)"""
    try:
        content = read_file(path)
        record = parse_json(content.decode("utf-8-sig"))
        with sound(path):
            check(record)
    except ValueError as error:
        remedy = ("Restore the file, or name another" if os.path.lexists(path) else
                  f"Make it with: {command}")
        raise RecordError(f"{path}: {error}. {remedy}") from error
    return record, hashlib.sha256(content).hexdigest()


def read_record(path: str | Path) -> dict:
    """The record of `read_with_hash`."""
    return read_with_hash(path)[0]
