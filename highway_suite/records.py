"""Records and saved nets, read and checked; `highway_networks.make_record` makes them.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import highway_networks as hn
from highway_networks import COMMAND
from highway_suite.files import parse_json, read_file
from highway_suite.schema import RecordError, check_record


def read_with_hash(path: str | Path, command: str = f"{COMMAND} --seed 0"
                   ) -> tuple[dict, str]:
    """A checked record and the SHA-256 of its file. Records without our `schema` key,
    by the earlier reproduction, are read too. Raises RecordError, one line that names
    file and field; and the command that makes it, where there is no file: what is
    there, whatever it is, no advice may replace."""
    try:
        content = read_file(path)
        record = parse_json(content.decode("utf-8-sig"))
        check_record(record)
    except ValueError as error:
        remedy = "" if os.path.lexists(path) else f". Make it with: {command}"
        raise RecordError(f"{path}: {error}{remedy}") from error
    return record, hashlib.sha256(content).hexdigest()


def read_record(path: str | Path, command: str = f"{COMMAND} --seed 0") -> dict:
    """The record of `read_with_hash`."""
    return read_with_hash(path, command)[0]


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
