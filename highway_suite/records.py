"""Records and saved nets, read, checked and written; `highway_networks.make_record`
makes them."""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import highway_networks as hn
from highway_suite.files import parse_json, read_file, to_json, write_json
from highway_suite.schema import RecordError, check_record

COMMAND = ("highway-networks" if list(hn.HERE.glob("highway_networks-*.dist-info")) else
           "python3 highway_networks.py")       # as pip installs it, or from a folder
CODE = ("highway_networks.py", "highway_suite/*.py", "experiments/*.py",
        "benchmarks/*.py")                      # what results depend on


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
    known = hn.threadpoolctl.threadpool_info() if hn.threadpoolctl else ()
    return min((library for library in known if library["user_api"] == "blas"),
               key=lambda library: "numpy" not in library["filepath"], default={})


def environment(threads: int | None = 1) -> dict:
    """What may change the last bits or the speed of a run; no user, host or path."""
    blas, (revision, dirty) = blas_in_use(), git_state()
    return hn.environment(threads) | {
        "blas": blas.get("internal_api"), "blas_version": blas.get("version"),
        "blas_kernel": blas.get("architecture"), "git": revision, "git_dirty": dirty}


def numerics(env: Mapping) -> dict:
    """What the last bits of a training depend on, of an environment. The commit is not
    among it, so that whoever mends a sentence does not lose hours."""
    return {name: value for name, value in env.items() if not name.startswith("git")}


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


def read_with_hash(path: str | Path, command: str = f"{COMMAND} --seed 0",
                   check: Callable[[Any], None] = check_record) -> tuple[dict, str]:
    """A checked record and the SHA-256 of its file. Records without our `schema` key,
    by the earlier reproduction, are read too. Raises RecordError, one line that names
    file and field. It names the command that makes the record only where no file is
    there, so that no advice replaces one."""
    try:
        content = read_file(path)
        record = parse_json(content.decode("utf-8-sig"))
        check(record)
    except ValueError as error:
        remedy = ("Restore the file, or name another" if os.path.lexists(path) else
                  f"Make it with: {command}")
        raise RecordError(f"{path}: {error}. {remedy}") from error
    return record, hashlib.sha256(content).hexdigest()


def read_record(path: str | Path) -> dict:
    """The record of `read_with_hash`."""
    return read_with_hash(path)[0]


def weights_hash(net: hn.DeepNet) -> str:
    """SHA-256 of a net's weights."""
    return hashlib.sha256(net.params.tobytes()).hexdigest()


def load_net(path: Path, digest: str) -> hn.DeepNet:
    """The net of a file whose weights have that hash. Raises RecordError."""
    try:
        net = hn.DeepNet.load(path)
    except (ValueError, OSError) as error:
        raise RecordError(str(error)) from error    # it names the file
    if weights_hash(net) != digest:
        raise RecordError(f"{path}: not the weights of its record")
    return net
