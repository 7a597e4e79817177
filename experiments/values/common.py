"""What the modules of this package share: `about`, reading, and how numbers look."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

import highway_networks as hn
from experiments import ledger
from experiments.claims import SWEEPS
from experiments.lab import load_record
from highway_suite.files import parse_json, read_file
from highway_suite.schema import RecordError
from highway_suite.studies import RUN, SWEEP, load

ABOUT: dict[str, tuple] = {}    # function's name -> (function, paths of its records)


def about(*paths: str) -> Callable:
    """Mark a function as that of these records, which it is called with."""
    def mark(function):
        ABOUT[function.__name__] = function, paths
        return function
    return mark


def read(path: Path) -> Any:
    """A record of whatever kind: a Study, an experiment's or benchmark's dict. Raises
    RecordError."""
    if path.name == "record.json":
        return load_record(path)[0]
    if path.parent.name == "benchmarks":
        try:
            return parse_json(read_file(path).decode())
        except ValueError as error:
            raise RecordError(f"{path}: {error}. Make it with: python3 -m benchmarks."
                              f"{path.stem}") from error
    study = load(path, dict((RUN, SWEEP)).get(path.name) or SWEEPS[path.stem])
    if study.dataset != "mnist":        # as without a network
        raise RecordError(f"{path}: of {hn.DATASETS[study.dataset].title}; the texts "
                          "speak of MNIST")
    return study


def percent(fraction: float, digits: int = 0) -> str:
    """0.967 -> "97", or with a digit "96.7"."""
    return f"{100 * fraction:.{digits}f}"


def span(values: Iterable[float], form: str = "g") -> str:
    """Lowest to highest, once if they look alike."""
    values = sorted(values)
    ends = [format(end, form) for end in (values[0], values[-1])]
    return " to ".join(dict.fromkeys(ends))


def in_words(values: Iterable[float | None], digits: int = 1) -> str:
    """Values of the seeds, None where a run diverged."""
    return ", ".join("diverged" if value is None else f"{value:.{digits}f}"
                     for value in values)


def mean_in_words(values: Iterable[float | None], digits: int) -> str:
    """Values of the seeds -> "0.9037 ± 0.0059", or the one there is, without those of
    runs that diverged, None. The ± is the standard deviation with n - 1."""
    there = [value for value in values if value is not None]
    if not there:
        return "diverged"
    std = f" ± {np.std(there, ddof=1):.{digits}f}" if len(there) > 1 else ""
    return f"{np.mean(there):.{digits}f}{std}"


def table(head: str, rows: Iterable[Iterable[str]]) -> str:
    """A Markdown table; in its head, a column that ends in ":" is of numbers."""
    names = head.split("|")
    lines = ledger.table_lines([name.rstrip(":") for name in names], rows)
    lines[1] = "".join("|---:" if name.endswith(":") else "|---" for name in names)
    return "\n".join([lines[0], f"{lines[1]}|", *lines[2:]])


def look_up(record: dict, words: str) -> Any:
    """Our numbers of the one claim of a record with these words."""
    ours, = (claim["ours"] for claim in record["claims"] if words in claim["claim"])
    return ours
