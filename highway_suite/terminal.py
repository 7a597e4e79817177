"""Streams of a program, whatever has become of them, numbers among its flags, and
libraries that are missing. This module itself needs none."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib.util import find_spec
from typing import NoReturn, TextIO

BLAS_THREADS = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS",
                "BLIS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")   # read as NumPy loads


def say(text: str, stream: TextIO | None = None) -> None:
    """Write a line to a stream, stderr unless another is given. It may be closed, full,
    or a pipe that nobody reads any more: no reason to lose what was computed."""
    stream = stream or sys.stderr
    try:
        print(text, file=stream, flush=True)
    except UnicodeEncodeError:
        say(ascii(text), stream)
    except (OSError, ValueError):       # broken or closed; or Python fails again
        with suppress(OSError, ValueError), open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), stream.fileno())      # as it ends


def in_range(kind: type, low: float, high: float) -> Callable:
    """An argparse type: a number of this kind within the range, both ends allowed."""
    def number(text):
        value = kind(text)
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"{text} is not from {low} to {high}")
        return value
    return number


def end_without(program: str, error: ImportError | OSError) -> NoReturn:
    """End a program that lacks a library, or whose library finds no folder that it may
    write, with status 1 and one line."""
    if isinstance(error, OSError):
        raise SystemExit(f"{program}: {error}") from None
    library = str(error.name).split(".")[0]
    raise SystemExit(f"{program} needs {library}. Install: python3 -m venv .venv && "
                     ".venv/bin/pip install -e .") from None


def check_libraries(package: str) -> None:
    """For a package's programs, before they import anything. Where a library is
    missing, which mostly means that the environment is not active, they end with one
    line. Where threadpoolctl is missing, which could limit BLAS later, BLAS gets one
    thread now. Does nothing unless `python3 -m` starts one of them."""
    if sys.argv[0] != "-m":
        return
    os.environ["MPLBACKEND"] = "agg"    # Matplotlib may not know that of a notebook
    for name in ("numpy", "matplotlib", "imageio"):
        if find_spec(name) is None:
            end_without(f"python3 -m {package}", ImportError(name=name))
    if find_spec("threadpoolctl") is None:
        os.environ.update(dict.fromkeys(BLAS_THREADS, "1"))


def prepare_streams() -> None:
    """A standard stream that came closed becomes the null device: otherwise the next
    file to be opened would get its number, and with it what libraries print. Letters
    that stdout does not have are replaced."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            stream = open(os.devnull, mode)     # noqa: SIM115 (it stays open)
            os.set_inheritable(stream.fileno(), True)   # by worker processes
            setattr(sys, name, stream)
