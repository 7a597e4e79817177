"""The schema of records: what the suite writes, and every reader of it may rely on.

Each check raises RecordError with the place of the field, as in `runs[0].plain.status`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import Any, NamedTuple

from highway_suite.datasets import DATASETS

SCHEMA, SCHEMA_VERSION = "highway-networks/run", 1
JUST_GUESSING = 0.05        # at most so far above chance in test accuracy
VERDICTS = {True: "holds", False: "does not hold", None: "open"}     # on a claim
INITS = {"uniform": "U(±1/√fan_in)", "glorot": "Glorot", "he": "He"}


class RecordError(ValueError):
    """A record cannot be read: the file, the field, and the command that makes it."""


class OtherRecord(RecordError):
    """A record of another schema, or of data that are not in the table, which is not to
    be made anew in its place."""


class Kind(NamedTuple):
    """What a field of a record may hold, as a test and in words."""

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


DICT = Kind(lambda value: isinstance(value, dict), "an object")
LIST = Kind(lambda value: isinstance(value, list) and bool(value), "a filled list")
LINE = Kind(lambda value: isinstance(value, str) and value.isprintable(),
            "a line of text")
# Of a block: a flag, a key of the record and a label of pictures.
NAME = Kind(lambda value: re.fullmatch(r"[A-Za-z0-9_.+-]{1,24}", value) is not None,
            "1 to 24 of the characters A-Z a-z 0-9 _ . + -")


def field(holder: dict, name: str, kind: Kind, place: str = "") -> Any:
    """What a field holds, if it is of this kind. Raises RecordError with its place."""
    value = holder.get(name)
    if not kind.is_right(value):
        found = f"is {value!r:.40}, not" if name in holder else "is missing; it must be"
        raise RecordError(f"field '{place}{name}' {found} {kind.words}")
    return value


def series(holder: dict, name: str, kind: Kind, place: str, length: int | None = None,
           null: bool = False) -> list:
    """The list that a field holds, each item of this kind, or null where that may be.
    Raises RecordError."""
    values = field(holder, name, LIST, place)
    if length is not None and len(values) != length:
        raise RecordError(f"field '{place}{name}' is {len(values)} long, not {length}")
    for i, value in enumerate(values):
        if not (kind.is_right(value) or null and value is None):
            raise RecordError(f"field '{place}{name}[{i}]' is {value!r:.40}, not "
                              f"{kind.words}")
    return values


def check_rising(values: list, place: str) -> None:
    """Raise RecordError unless they are whole numbers, each above the one before."""
    for i, value in enumerate(values):
        kind = whole(values[i - 1] + 1 if i else 0, 10**6)
        if not kind.is_right(value):
            raise RecordError(f"field '{place}[{i}]' is {value!r:.40}, not "
                              f"{kind.words}")


def check_gates(net: dict, depth: int, place: str) -> None:
    """Raise RecordError unless the mean gates of a net can be drawn, if it has any."""
    if not net.get("layer_T_history"):
        return
    pair = Kind(lambda row: isinstance(row, list) and len(row) == 2,
                "a pair of an epoch and its gates")
    rows = series(net, "layer_T_history", pair, place)
    check_rising([row[0] for row in rows], f"{place}layer_T_history epoch")
    for k, row in enumerate(rows):
        series({"[1]": row[1]}, "[1]", real(0, 1), f"{place}layer_T_history[{k}]",
               depth)


def check_net(net: dict, depth: int, place: str) -> None:
    """Raise RecordError, naming the field, unless one net of a record can be drawn."""
    history, inner = field(net, "history", DICT, place), f"{place}history."
    epochs = field(history, "epoch", LIST, inner)
    check_rising(epochs, inner + "epoch")
    gap = False
    for name, kind in (("train_loss", real(0, 1e30)), ("train_acc", real(0, 1)),
                       ("test_acc", real(0, 1))):
        gap |= None in series(history, name, kind, inner, len(epochs), null=True)
    status = net.get("status")      # the earlier reproduction has none
    if status not in (None, "ok", "diverged") or (status == "ok" and gap):
        raise RecordError(f"field '{place}status' is {status!r:.40}"
                          + (", yet its history has null" if status == "ok" else ""))
    if net.get("parameters") is not None:
        field(net, "parameters", whole(1), place)
    check_gates(net, depth, place)


def nets_of(run: dict) -> dict[str, dict]:
    """The nets of one run of a record by their blocks: whatever has a history."""
    return {name: net for name, net in run.items()
            if isinstance(net, dict) and "history" in net}


def check_runs(record: dict) -> None:
    """Raise RecordError, naming the field, unless all nets of a record can be drawn."""
    epochs: dict[tuple, dict] = {}
    for i, run in enumerate(field(record, "runs", LIST)):
        place = f"runs[{i}]"
        if not isinstance(run, dict) or not nets_of(run):
            raise RecordError(f"field '{place}' holds no net")
        depth = field(run, "depth", whole(1, 10**5), f"{place}.")
        # Runs of the earlier reproduction have no seed of their own.
        seed = field({"seed": record.get("seed", 0)} | run, "seed", whole(0),
                     f"{place}.")
        for block, net in nets_of(run).items():
            if not NAME.is_right(block):
                raise RecordError(f"field '{place}' has a net {block!r:.40}; its name "
                                  f"must be {NAME.words}")
            check_net(net, depth, f"{place}.{block}.")
            seeds = epochs.setdefault((block, depth), {})
            if seed in seeds:
                raise RecordError(f"field '{place}' repeats depth {depth} of seed "
                                  f"{seed}")
            seeds[seed] = net["history"]["epoch"]
            if seeds[seed] != next(iter(seeds.values())):
                raise RecordError(f"field 'history.epoch' of {block} {depth} differs "
                                  "between seeds")


def is_earlier(record: dict) -> bool:
    """Whether the earlier reproduction wrote it, whose settings are known."""
    return "schema" not in record and record.get("config") is None


def check_version(record: Any, schema: str, version: int) -> None:
    """Raise RecordError unless this is a record of the schema, no newer than this code.
    """
    if not isinstance(record, dict):
        raise RecordError(f"a record is an object, not {record!r:.40}")
    if record.get("schema", schema) != schema:
        raise OtherRecord(f"field 'schema' is {record['schema']!r:.40}, not {schema!r}")
    if "schema_version" in record:
        field(record, "schema_version", whole(1, version))


def check_record(record: Any) -> None:
    """Raise RecordError, naming the field, unless it is a record that can be drawn."""
    check_version(record, SCHEMA, SCHEMA_VERSION)
    check_runs(record)
    for name in ("n_train", "n_test"):
        field(record, name, whole(1))
    if is_earlier(record):
        return
    name = field(record, "dataset", LINE)
    if name not in DATASETS:     # a script may have added it there
        raise OtherRecord(f"field 'dataset' is {name!r:.40}; hn.DATASETS has rows of "
                          f"{', '.join(DATASETS)} alone")
    config = field(record, "config", DICT)
    field(config, "init", one_of(INITS), "config.")
    field(config, "gate_bias", real(-100, 100), "config.")
    field(record, "command", LINE)
