"""Files of the suite: read if regular, bounded, JSON as the standard has it; written
whole or not at all."""

from __future__ import annotations

import json
import math
import os
import stat
from pathlib import Path
from typing import Any

from highway_networks import check_target, expanded, path_of, to_json
from highway_networks import write_whole as write_file

__all__ = ("check_target", "parse_json", "path_of", "read_file", "to_json",
           "write_file", "write_json")

LIMIT = 64 * 2**20      # bytes; no record of ours is longer


def write_json(path: str | Path, value: Any) -> None:
    """Write a value as JSON, all of it or nothing."""
    write_file(path, f"{to_json(value)}\n".encode())


def read_file(path: str | Path, most: int = LIMIT) -> bytes:
    """The bytes of a regular file of at most so many. Raises ValueError, also for one
    that cannot be read."""
    path = expanded(path)
    try:
        info = os.stat(path)
        if not stat.S_ISREG(info.st_mode):      # before opening it: a FIFO would block
            raise ValueError("not a regular file")
        if info.st_size > most:
            raise ValueError(f"{info.st_size} bytes, {most} allowed")
        return path.read_bytes()
    except OSError as error:
        raise ValueError(error.strerror or str(error)) from error


def parse_json(text: str) -> Any:
    """JSON as the standard has it -> value. Raises ValueError, also for NaN and for
    numbers too large for a float, which Python lets pass, and where it nests too
    deep."""
    def finite(number):
        if not math.isfinite(float(number)):
            raise ValueError(f"{number[:20]} is not JSON, or too large")
        return float(number)
    try:
        return json.loads(text, parse_constant=finite, parse_float=finite)
    except RecursionError:
        raise ValueError("it nests too deep") from None
