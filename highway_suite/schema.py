"""What a record must hold to be drawn: one table of its fields, and what they share.

Errors name the place of the field, as in `runs[0].plain.status`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import Any, NamedTuple

import highway_networks as hn
from highway_suite.datasets import DATASETS

JUST_GUESSING = 0.05        # at most so far above chance in test accuracy
INITS = {"uniform": "U(±1/√fan_in), a third of Glorot's variance",
         "glorot": "Glorot", "he": "He", "orthogonal": "orthogonal"}


class RecordError(ValueError):
    """A record cannot be read: the file, the field, and what is wrong with it."""


class Kind(NamedTuple):
    """What a field may hold, as a test and in words."""

    is_right: Callable[[Any], bool]
    words: str


def whole(low: int, high: int = 10**12) -> Kind:
    """A whole number; True is none."""
    return Kind(lambda value: type(value) is int and low <= value <= high,
                f"a whole number from {low:g} to {high:g}")


def real(low: float, high: float) -> Kind:
    """A number."""
    return Kind(lambda value: type(value) in (int, float) and low <= value <= high,
                f"a number from {low:g} to {high:g}")


def one_of(names: Collection[str]) -> Kind:
    """One of these names."""
    return Kind(lambda value: isinstance(value, str) and value in names,
                "one of " + ", ".join(names))


def or_null(kind: Kind) -> Kind:
    """The same, or null."""
    return Kind(lambda value: value is None or kind.is_right(value), kind.words)


DICT = Kind(lambda value: isinstance(value, dict), "an object")
LIST = Kind(lambda value: isinstance(value, list), "a list")
FILLED = Kind(lambda value: isinstance(value, list) and bool(value), "a filled list")
LINE = Kind(lambda value: isinstance(value, str) and value.isprintable(),
            "a line of text")
# Of a block: a flag, a key of the record and a label of pictures.
NAME = Kind(lambda value: isinstance(value, str) and re.fullmatch(
    r"[A-Za-z0-9_.+-]{1,24}", value) is not None,
    "1 to 24 of the characters A-Z a-z 0-9 _ . + -")
SHARE = real(0, 1)

# Fields whose name ends with ? may be missing; a list of one kind has items of it.
NET = {"history": {"epoch": [whole(0, 10**6)], "train_loss": [or_null(real(0, 1e30))],
                   "train_acc": [or_null(SHARE)], "test_acc": [or_null(SHARE)]},
       "status?": or_null(one_of(("ok", "diverged"))),
       "parameters?": or_null(whole(1)), "chance?": or_null(SHARE),
       "layer_T_history?": or_null(LIST)}
RECORD = {"schema?": one_of([hn.SCHEMA]),
          "schema_version?": whole(1, hn.SCHEMA_VERSION), "seed?": whole(0),
          "runs": [{"depth": whole(1, 10**5), "seed?": whole(0)}],
          "n_train": whole(1), "n_test": whole(1), "command?": LINE}
LATER = {"dataset": LINE, "command": LINE, "config": {      # than the first records
    "init": one_of(INITS), "gate_bias": real(-100, 100)}}


def check(value: Any, kind: Any, place: str = "") -> None:
    """Raise RecordError, naming the place, unless a value is of this kind or has the
    fields or items of this part of the table."""
    here = f"field '{place}'" if place else "a record"
    outer = (DICT if isinstance(kind, dict) else
             FILLED if isinstance(kind, list) else kind)
    if not outer.is_right(value):
        raise RecordError(f"{here} is {value!r:.40}, not {outer.words}")
    if isinstance(kind, list):
        for i, item in enumerate(value):
            check(item, kind[0], f"{place}[{i}]")
    if isinstance(kind, dict):
        for name, inner in kind.items():
            known = name.rstrip("?")
            below = f"{place}.{known}".lstrip(".")
            if known in value:
                check(value[known], inner, below)
            elif known == name:
                raise RecordError(f"field '{below}' is missing")


def check_rising(values: list, place: str) -> None:
    """Raise RecordError unless each number is above the one before."""
    for i, (before, value) in enumerate(zip(values, values[1:], strict=False)):
        if value <= before:
            raise RecordError(f"field '{place}[{i + 1}]' is {value}, after {before}")


def check_gates(rows: list, depth: int, place: str) -> None:
    """Raise RecordError unless these are pairs of an epoch and the mean T of each
    block."""
    for k, row in enumerate(rows):
        if not isinstance(row, list) or len(row) != 2:
            raise RecordError(f"field '{place}[{k}]' is no pair of an epoch and gates")
        check(row[0], whole(0, 10**6), f"{place}[{k}][0]")
        check(row[1], [SHARE], f"{place}[{k}][1]")
        if len(row[1]) != depth:
            raise RecordError(f"field '{place}[{k}][1]' has {len(row[1])} gates, not "
                              f"{depth}")
    check_rising([row[0] for row in rows], f"{place} epoch")


def check_net(net: dict, depth: int, place: str) -> None:
    """Raise RecordError, naming the field, unless one net of a record can be drawn."""
    check(net, NET, place)
    history = net["history"]
    for name in ("train_loss", "train_acc", "test_acc"):
        if len(history[name]) != len(history["epoch"]):
            raise RecordError(f"field '{place}.history.{name}' has "
                              f"{len(history[name])} items, not one for each epoch")
        if net.get("status") == "ok" and None in history[name]:
            raise RecordError(f"field '{place}.status' is 'ok', yet its history has "
                              "null")
    check_rising(history["epoch"], f"{place}.history.epoch")
    check_gates(net.get("layer_T_history") or [], depth, f"{place}.layer_T_history")


def nets_of(run: dict) -> dict[str, dict]:
    """The nets of one run of a record by their blocks: whatever has a history."""
    return {name: net for name, net in run.items()
            if isinstance(net, dict) and "history" in net}


def is_earlier(record: dict) -> bool:
    """Whether the earlier reproduction wrote it, whose settings are known."""
    return "schema" not in record and record.get("config") is None


def check_record(record: Any) -> None:
    """Raise RecordError, naming the field, unless it is a record that can be drawn."""
    check(record, RECORD)
    epochs: dict[tuple, dict] = {}
    for i, run in enumerate(record["runs"]):
        if not nets_of(run):
            raise RecordError(f"field 'runs[{i}]' holds no net")
        for block in hn.BLOCKS.keys() & run.keys() - nets_of(run).keys():
            raise RecordError(f"field 'runs[{i}].{block}' is no net: it has no history")
        depth, seed = run["depth"], run.get("seed", record.get("seed", 0))
        for block, net in nets_of(run).items():
            check(block, NAME, f"runs[{i}]")
            check_net(net, depth, f"runs[{i}].{block}")
            seeds = epochs.setdefault((block, depth), {})
            if seed in seeds:
                raise RecordError(f"field 'runs[{i}]' repeats {block} {depth} of seed "
                                  f"{seed}")
            seeds[seed] = net["history"]["epoch"]
            if seeds[seed] != next(iter(seeds.values())):
                raise RecordError(f"field 'history.epoch' of {block} {depth} differs "
                                  "between seeds")
    if is_earlier(record):
        return
    check(record, LATER)
    if record["dataset"] not in DATASETS:
        raise RecordError(f"field 'dataset' is {record['dataset']!r:.40}, of which "
                          "the table has no row; the script that adds it can draw "
                          "the record, by visualize_highway_networks.main")
