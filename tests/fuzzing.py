"""Arbitrary and mutated bytes, and what must hold of them, for test_fuzz.py."""

import gzip
import hashlib
import json
import zlib
from pathlib import Path

import numpy as np
from conftest import encode_idx
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import highway_networks as hn
from highway_suite.schema import RecordError
from highway_suite.studies import load
from tests.records_for_figures import make_record

FILE = Path("fuzz.bin")

arrays = st.lists(st.integers(0, 6), min_size=1, max_size=3).flatmap(
    lambda shape: st.binary(min_size=(size := int(np.prod(shape))), max_size=size).map(
        lambda data: np.frombuffer(data, np.uint8).reshape(shape)))
LABELS = np.array([3, 1, 4, 1, 5, 9], np.uint8)
EXPECTED = hn.DataFile("fuzz", LABELS.shape,
                      hashlib.sha256(encode_idx(LABELS)).hexdigest())
RECORD = json.dumps(make_record((2,), epochs=2)).encode()


def edits(draw, content):
    """A few bytes of `content` flipped, cut, doubled or inserted."""
    content = bytearray(content)
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(content)))
        kind = draw(st.sampled_from("fcdi"))
        if kind == "f" and at < len(content):
            content[at] ^= draw(st.integers(1, 255))
        elif kind == "c":
            del content[at:at + draw(st.integers(1, 20))]
        elif kind == "d":
            content[at:at] = content[:at]
        else:
            content[at:at] = draw(st.binary(min_size=1, max_size=8))
    return bytes(content)


mutated_idx = st.composite(lambda draw: edits(draw, encode_idx(draw(arrays))))()
packs = st.sampled_from([bytes, gzip.compress, lambda b: gzip.compress(b) + bytes(9),
                         lambda b: zlib.compress(b), lambda b: gzip.compress(b) * 2])
mutated_file = st.composite(lambda draw: edits(
    draw, draw(packs)(draw(mutated_idx | st.just(encode_idx(LABELS))))))()
json_text = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
    | st.sampled_from(["runs", "highway", "plain", "history", "epoch", "depth"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["runs", "highway", "plain", "history", "epoch", "depth",
                         "schema", "schema_version", "test_acc"]), inner, max_size=4),
    max_leaves=8).map(lambda value: json.dumps(value).encode())
mutated_record = st.composite(lambda draw: edits(draw, RECORD))()


def property_of(**strategies):
    """A check of one example -> of so many."""
    def wrap(check):
        def run(examples):
            settings(max_examples=examples, deadline=None, database=None,
                     suppress_health_check=list(HealthCheck))(
                given(**strategies)(check))()
        run.__name__ = check.__name__
        return run
    return wrap


@property_of(content=mutated_file)
def check_file(content):
    FILE.write_bytes(content)
    try:
        array = hn.find_idx(FILE.parent, EXPECTED)
    except hn.DataError as error:
        assert str(FILE) in str(error) and "\n" not in str(error)
        return
    assert np.array_equal(array, LABELS), "wrong labels were let in"


@property_of(content=st.binary(max_size=60) | json_text | mutated_record)
def check_record_reader(content):
    """What is let in can be drawn: it makes a Study."""
    FILE.write_bytes(content)
    try:
        study = load(FILE)
    except RecordError as error:
        assert str(error).startswith(str(FILE)) and "\n" not in str(error)
        return
    for arm in study.deepest:
        assert arm.history["test_acc"].shape[1:] == arm.epoch.shape
        assert arm.T.shape[1:] == (len(arm.T_epoch), arm.depth)
