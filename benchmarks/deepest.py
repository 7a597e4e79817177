"""The README's net of 10,000 highway blocks: seconds and memory of its command."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import highway_networks as hn
from benchmarks.contests import variables_for
from highway_suite.files import parse_json, read_file

COMMAND = ("python3 highway_networks.py --depth 10000 --blocks highway --gate-bias auto"
           " --init glorot --lr 0.001 --epochs 3")


def peak_of_children() -> int | None:
    """The largest resident set of a process that this one started, in bytes; None where
    the system does not say."""
    try:
        import resource
    except ImportError:
        return None
    unit = 1 if sys.platform == "darwin" else 1024
    return unit * resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss


def measure() -> dict:
    """Run it, on one core and thread -> its part of the record. Raises
    CalledProcessError."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run.json"
        begin = time.perf_counter()
        subprocess.run([sys.executable, *COMMAND.split()[1:], "--out", str(out)],
                       check=True, cwd=hn.HERE, env=variables_for(1, folder))
        seconds = time.perf_counter() - begin
        run = parse_json(read_file(out).decode())
    peak = peak_of_children()
    return {"command": COMMAND, "seconds": hn.significant(seconds),
            "peak_mb": peak and hn.significant(peak / 1e6),
            "test_acc": run["runs"][0]["highway"]["final_test_acc"], "env": run["env"]}
