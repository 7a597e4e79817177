"""Files written whole or not at all and read with a bound; JSON as the standard has it.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import json
import math
import os
import secrets
import stat
import tempfile
from pathlib import Path
from typing import Any

LIMIT = 64 * 2**20      # bytes; no record of ours is longer


def to_json(value: Any, indent: str = "") -> str:
    """JSON with every array of numbers on one line, so that a diff can be read.

    Raises ValueError for NaN and the infinities, which JSON does not have.
    """
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


def path_of(text: str) -> Path:
    """An argparse type: a path that a record can name and a terminal show."""
    if not text or not text.isprintable():
        raise argparse.ArgumentTypeError(f"{text!a} is not the name of a file")
    return Path(text)


def check_regular(path: Path) -> None:
    """Raise OSError where something lies that is no regular file. A link is none: to
    replace it is not what its owner meant, nor to write through it."""
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISREG(os.lstat(path).st_mode):
            raise OSError(errno.EINVAL, "not a regular file, which alone is replaced",
                          str(path))


def check_target(path: Path) -> None:
    """Raise OSError unless a file can be written there; so it is known before the work
    that fills it. Leaves nothing. Missing folders are taken for such as will be made.
    """
    check_regular(path)
    folder = path.parent
    while not os.path.lexists(folder) and folder != folder.parent:  # as of no drive Z:
        folder = folder.parent
    with tempfile.TemporaryFile(dir=folder):
        pass


def write_files(contents: dict[Path, bytes]) -> None:
    """{path: bytes} -> files, once all of them lie complete beside their places.

    Raises OSError; then no file is half-written and no temporary one is left.
    """
    temporaries = {}
    try:
        for path, content in contents.items():
            check_regular(path)
            name = f".{path.name[:40]}.{secrets.token_hex(4)}"
            # Made by open, not by tempfile: so its mode is what the user's umask says.
            with open(path.with_name(name), "xb") as file:
                temporaries[path] = path.with_name(name)
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        for path in contents:
            os.replace(temporaries[path], path)
            del temporaries[path]
    finally:
        for temporary in temporaries.values():
            os.unlink(temporary)


def write_file(path: str | Path, content: bytes) -> None:
    """Write all of the bytes or nothing."""
    write_files({Path(path): content})


def write_json(path: str | Path, value: Any) -> None:
    """Write a value as JSON, all of it or nothing."""
    write_file(path, f"{to_json(value)}\n".encode())


def read_file(path: str | Path, most: int = LIMIT) -> bytes:
    """The bytes of a regular file of at most so many. Raises ValueError, also for one
    that cannot be read."""
    try:
        info = os.stat(path)
        if not stat.S_ISREG(info.st_mode):      # before opening it: a FIFO would block
            raise ValueError("not a regular file")
        if info.st_size > most:
            raise ValueError(f"{info.st_size} bytes, {most} allowed")
        return Path(path).read_bytes()
    except OSError as error:
        raise ValueError(error.strerror or str(error)) from error


def parse_json(text: str) -> Any:
    """JSON as the standard has it -> value. Raises ValueError; also for NaN, numbers
    too large for a float and a key that stands twice, which Python lets pass."""
    def unique(pairs):
        keys = [key for key, _ in pairs]
        if len(set(keys)) < len(keys):
            raise ValueError(f"key {max(keys, key=keys.count)!r} stands there twice")
        return dict(pairs)

    def finite(number):
        if not math.isfinite(float(number)):
            raise ValueError(f"{number[:20]} is not JSON, or too large")
        return float(number)

    def whole(number):
        finite(number)
        return int(number)
    return json.loads(text, object_pairs_hook=unique, parse_constant=finite,
                      parse_float=finite, parse_int=whole)
