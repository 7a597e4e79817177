"""Mutated records can be drawn or give the one documented error.

A few hundred examples in every run; 70,000 with

    python3 -m pytest -m fuzz
"""

import copy
import json
import math

import pytest

from highway_suite.schema import RecordError
from highway_suite.studies import load
from tests.records_for_figures import make_record

RECORD = make_record((2,), epochs=2)
ODD = [None, True, -1, 0, 0.5, 10**30, math.nan, math.inf, "", "runs", "\x1b", [], {},
       [[]], {"epoch": [1]}]


def edited(content, rng):
    """A few bytes of the content flipped, cut, doubled or inserted; or none."""
    for _ in range(rng.integers(4)):
        at, kind = int(rng.integers(len(content) + 1)), rng.integers(4)
        before, after = content[:at], content[at:]
        if kind == 0 and after:
            content = before + bytes([after[0] ^ rng.integers(1, 256)]) + after[1:]
        elif kind == 1:
            content = before + after[rng.integers(1, 20):]
        elif kind == 2:
            content = before + before + after
        else:
            content = before + rng.bytes(rng.integers(1, 9)) + after
    return content


def items(value):
    """(its container, its key) of every item within a value of JSON."""
    pairs = (value.items() if isinstance(value, dict) else
             enumerate(value) if isinstance(value, list) else ())
    for key, inner in pairs:
        yield value, key
        yield from items(inner)


def changed(value, rng):
    """The value with one of its items gone or replaced by an odd one."""
    value = copy.deepcopy(value)
    places = list(items(value))
    container, key = places[rng.integers(len(places))]
    if rng.random() < 0.2:
        del container[key]
    else:
        container[key] = ODD[rng.integers(len(ODD))]
    return value


@pytest.mark.parametrize("examples", [
    300, pytest.param(70_000, marks=pytest.mark.fuzz)])
def test_a_record_that_is_let_in_can_be_drawn(examples, tmp_path, rng):
    path = tmp_path / "fuzz.json"
    for _ in range(examples):
        content = json.dumps(changed(RECORD, rng) if rng.random() < 0.9 else RECORD)
        path.write_bytes(edited(content.encode(), rng) if rng.random() < 0.2
                         else content.encode())
        try:
            study = load(path)
        except RecordError as error:
            assert str(error).startswith(str(path)) and "\n" not in str(error)
            continue
        for arm in study.deepest:
            for values in arm.history.values():
                assert values.shape[1:] == arm.epoch.shape
            assert arm.T.shape[1:] == (len(arm.T_epoch), arm.depth)
