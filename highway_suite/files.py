"""Files of the suite: paths as they are meant, JSON as the standard has it; written
whole or not at all."""

from __future__ import annotations

import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any


def expanded(path: str | Path) -> Path:
    """A path as it is meant: ~ is the home folder, also after a = or in a script, where
    no shell sees it. Every path that a user names comes through here."""
    return Path(os.path.expanduser(path))


def check_target(path: str | Path) -> None:
    """Raise OSError unless a file can be written there. It is called before the work
    whose result the file will hold. Only a regular file is replaced; a link is not, for
    nobody expects that. A missing folder is taken for one that will be made."""
    path = expanded(path)
    if path.is_symlink() or path.exists() and not path.is_file():
        raise OSError(22, "not a regular file, which alone is replaced", str(path))
    there = next(filter(os.path.lexists, path.parents), path.parent)
    try:
        tempfile.TemporaryFile(dir=there).close()
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def write_file(path: str | Path, content: bytes) -> None:
    """Write all of the bytes, or nothing: then the file stays as it was. Raises
    OSError, which names the file."""
    path = expanded(path)
    check_target(path)
    part = path.with_name(f".{path.name[:40]}.{os.getpid()}-{time.time_ns()}.part")
    try:
        part.write_bytes(content)
        os.replace(part, path)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        part.unlink(missing_ok=True)


def read_file(path: str | Path) -> bytes:
    """The bytes of a file. Raises ValueError where it cannot be read."""
    try:
        return expanded(path).read_bytes()
    except OSError as error:
        raise ValueError(error.strerror or str(error)) from error


def to_json(value: Any, indent: str = "") -> str:
    """JSON with every array of numbers on one line, so that a diff can be read. Raises
    ValueError for NaN and the infinities, which JSON does not have."""
    deeper = indent + " "
    if isinstance(value, dict) and value:
        inner = [f"{json.dumps(str(key))}: {to_json(item, deeper)}"
                 for key, item in value.items()]
    elif isinstance(value, list) and value and isinstance(value[0], (dict, list)):
        inner = [to_json(item, deeper) if isinstance(item, dict)
                 else json.dumps(item, allow_nan=False) for item in value]
    else:
        return json.dumps(value, allow_nan=False)
    left, right = "{}" if isinstance(value, dict) else "[]"
    return f"{left}\n{deeper}" + f",\n{deeper}".join(inner) + f"\n{indent}{right}"


def write_json(path: str | Path, value: Any) -> None:
    """Write a value as JSON, all of it or nothing."""
    write_file(path, f"{to_json(value)}\n".encode())


def parse_json(text: str) -> Any:
    """JSON as the standard has it -> value. Raises ValueError, also for the words NaN
    and Infinity, which Python lets pass."""
    def refuse(number):
        raise ValueError(f"{number} is not JSON")
    return json.loads(text, parse_constant=refuse)
