"""Who trains faster: the same training step by several programs.

    python3 -m benchmarks [NAME ...]    measures, 15 rounds of each contest, and puts
                                        the numbers of this kind of processor into
                                        benchmarks/speed.json, and draws speed.png
    python3 -m benchmarks --quick       5 rounds at most, minutes: only prints
    python3 -m benchmarks --plot        draws the record again

NAME is as_users, fully_connected, convolution or language_model; all of them unless
given. Each contest has a process of its own, on one core with one thread, or two
where its name says so. A library that is not installed is left out, with a line:
pip install -e '.[bench]' brings all.

A line for each contest: milliseconds of our step, and for each contestant how many
times as long it takes, and whether ours is ahead, level or behind.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Sequence

import highway_networks as hn
from benchmarks import records
from benchmarks.contests import CONTESTS, GROUPS, variables_for
from highway_suite.terminal import prepare_streams

WHOLE, QUICK = (15, math.inf), (5, 10.0)    # rounds; seconds after which 3 are enough


def ask(name: str, rounds: int, patience: float) -> dict:
    """A contest, measured in a process of its own: {"kind", "contest"}. Exits with 1
    where that failed; it has said why."""
    with tempfile.TemporaryDirectory() as cache:
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.contests", name, str(rounds),
             str(patience)],
            cwd=hn.HERE, stdout=subprocess.PIPE, text=True,
            env=variables_for(CONTESTS[name].threads, cache))
    if done.returncode:
        sys.exit(1)
    return json.loads(done.stdout.strip().rpartition("\n")[2])


def line_of(name: str, contest: dict) -> str:
    """A contest's line."""
    found = contest["contestants"]
    parts = [f"{1e3 * found['ours']['median']:8.2f} ms"]
    for who, part in found.items():
        if who != "ours":
            times = f"{who} {part['times_ours']['median']:.2f}"
            parts.append(f"{times} {part['verdict'] or ''}".rstrip())
    parts += [f"without {who}: needs {' and '.join(lacks)}"
              for who, lacks in contest["skipped"].items()]
    return f"{name:<44}" + ", ".join(parts)


def known(text: str) -> str:
    """An argparse type: one of GROUPS."""
    if text not in GROUPS:
        raise argparse.ArgumentTypeError(f"choose from {', '.join(GROUPS)}")
    return text


def build_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog=records.COMMAND, description=__doc__, allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", type=known, metavar="NAME",
                        help=", ".join(GROUPS))
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--quick", action="store_true", help="few rounds; only print")
    which.add_argument("--plot", action="store_true", help="draw the record again")
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    """Measure, tell, and but for --quick write. Exits with 1 and a line where a record
    or a file is wrong."""
    prepare_streams()
    args = build_parser().parse_args(argv)
    try:
        record = records.read()
        if not args.plot:
            effort, found = QUICK if args.quick else WHOLE, {}
            for group in args.names or GROUPS:
                for name in GROUPS[group]:
                    answer = ask(name, *effort)
                    found[name] = answer["contest"]
                    print(line_of(name, found[name]), flush=True)
            if args.quick:
                return
            record = records.with_entry(record, answer["kind"], found)
        records.write_both(records.RECORD, record, records.draw, records.COMMAND)
    except (ValueError, OSError, subprocess.CalledProcessError) as error:
        sys.exit(f"{records.COMMAND}: {error}")


if __name__ == "__main__":
    main()
