"""The command line of highway_networks.py: flags, runs, table, record."""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import math
import os
import re
import shlex
import sys
from collections.abc import Callable
from concurrent.futures import BrokenExecutor
from dataclasses import fields, replace
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import psutil

import highway_networks as hn
from highway_suite.datasets import obtain_as_asked
from highway_suite.files import check_target, path_of, write_json
from highway_suite.records import COMMAND, make_record, summarize
from highway_suite.schema import JUST_GUESSING, NAME
from highway_suite.terminal import prepare_streams, say
from highway_suite.workers import (
    ended_by_signals,
    processes_for,
    starting_workers,
    train_all,
)

PROGRAM = "highway_networks.py"         # or, installed, the command of this name:
if Path(sys.argv[0]).stem == "highway-networks":
    PROGRAM = "highway-networks"
OWN_FLAGS = ("quick", "data_dir", "jobs", "out", "no_save", "version")  # no settings
QUICK = {"depth": 10, "epochs": 5, "n_train": 2000, "n_test": 1000}


def in_range(kind: type, low: float, high: float, words: tuple = ()) -> Callable:
    """An argparse type: a number of this kind within the range, both ends allowed, or a
    word for one."""
    def parse(text):
        if text in words:
            return text
        try:
            value = kind(text)
        except ValueError:
            value = math.nan
        if not low <= value <= high:
            noun = "a whole number" if kind is int else "a number"
            raise argparse.ArgumentTypeError(
                f"{text!r} is not {noun} from {low} to {high}"
                + "".join(f", nor {word}" for word in words))
        return value
    return parse


def several(parse: Callable) -> Callable:
    """An argparse type: values separated by commas, each once."""
    def parse_all(text):
        values = [parse(part) for part in text.split(",")]
        if len(set(values)) < len(values):
            raise argparse.ArgumentTypeError(f"{text!r} names a value twice")
        return values
    return parse_all


def block_name(text: str) -> str:
    """An argparse type: a kind of BLOCKS, by a name that a record can hold and of which
    a net can be made."""
    if text in hn.BLOCKS and not NAME.is_right(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not {NAME.words}")
    if text not in hn.BLOCKS:
        raise argparse.ArgumentTypeError(f"{text!r} is none of {', '.join(hn.BLOCKS)}")
    try:
        hn.DeepNet(text, 1, 1, inputs=1, classes=1)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return text


def add_settings(parser: argparse.ArgumentParser) -> None:
    """One flag for each setting of Config, two for those that may have several values.
    """
    for item in fields(hn.Config):
        if not item.metadata:
            continue
        flag, meta = "--" + item.name.replace("_", "-"), item.metadata
        text = f"{meta['help']} (default: {item.default})".replace("%", "%%")
        if meta["choices"]:
            parser.add_argument(flag, choices=meta["choices"], help=text)
            continue
        kind = in_range(type(item.default), meta["low"], meta["high"], meta["words"])
        where: Any = parser
        if item.name in ("seed", "depth"):
            where = parser.add_mutually_exclusive_group()
            where.add_argument(flag + "s", type=several(kind), metavar="A,B,...",
                               help=f"several values of {flag}")
        where.add_argument(flag, type=kind, metavar="N", help=text)


def build_parser() -> argparse.ArgumentParser:
    """The command line: the settings of Config, and the run's own flags."""
    parser = argparse.ArgumentParser(
        prog=PROGRAM, allow_abbrev=False, argument_default=argparse.SUPPRESS,
        description="Train nets of different blocks side by side, in NumPy: a highway "
                    "net and a plain net, unless told otherwise.",
        epilog="Only the headline (all defaults, on MNIST) writes run.json unasked; "
               "any other run without --out goes to runs/, named by its settings. A "
               "negative number with an exponent needs a =, as in --gate-bias=-1e-1.")
    add_settings(parser)
    parser.add_argument("--blocks", type=several(block_name), metavar="A,B,...",
                        help=f"kinds of nets, of {', '.join(hn.BLOCKS)} (default: "
                             "highway,plain)")
    parser.add_argument("--plain-hidden", type=in_range(int, 1, 10_000), metavar="N",
                        help="units of the plain net (default: --hidden); 71 matches "
                             "the parameters of 50 highway units, as in the paper")
    parser.add_argument("--dataset", choices=("auto", *hn.DATASETS),
                        help="auto: MNIST, or with a warning the shipped digits where "
                             "it cannot be had (default: auto)")
    parser.add_argument("--quick", action="store_true", default=False, help="; ".join(
        f"--{name.replace('_', '-')} {value}" for name, value in QUICK.items())
        + ", each unless given")
    parser.add_argument("--data-dir", metavar="FOLDER", default=None, type=path_of,
                        help="of the data set's files (default: "
                             "$HIGHWAY_DATA_DIR, or one of its own in ~/.cache)")
    parser.add_argument("--jobs", type=in_range(int, 1, 1024), metavar="N",
                        default=None, help="processes (default: one per core, if that "
                        "is worth their start)")
    record = parser.add_mutually_exclusive_group()
    record.add_argument("--out", metavar="FILE", default=None, type=path_of,
                        help="the record; a file of that name is replaced")
    record.add_argument("--no-save", action="store_true", default=False,
                        help="write no record")
    parser.add_argument("--version", action="store_true", default=False)
    return parser


def resolve(given: dict, quick: bool) -> dict:
    """Defaults, preset, flags given, the last one wins -> the settings of the run."""
    values = {"dataset": "auto"} | {
        item.name: item.default for item in fields(hn.Config) if item.metadata}
    values |= (QUICK if quick else {}) | given
    values.setdefault("plain_hidden", values["hidden"])
    return {"seeds": [values.pop("seed")], "depths": [values.pop("depth")],
            "blocks": ["highway", "plain"]} | values


def cap_images(settings: dict) -> dict:
    """The settings with no more images than the data set has."""
    n_train, n_test = hn.DATASETS[settings["dataset"]].images
    return settings | {"n_train": min(settings["n_train"], n_train),
                       "n_test": min(settings["n_test"], n_test)}


def fit_to_data(settings: dict, given: dict, fail: Callable) -> dict:
    """`cap_images`, but fail where the number was given; and a batch must fit."""
    def check(name, most, of):
        if settings[name] > most:
            fail(f"argument --{name.replace('_', '-')}: {settings[name]} is not a "
                 f"whole number from 1 to {most}, the {of}")
    capped = cap_images(settings)
    for name in ("n_train", "n_test"):
        if name in given:
            check(name, capped[name], f"images of {settings['dataset']}")
    check("batch", capped["n_train"], "training images")
    return capped


def width(settings: dict, block: str) -> int:
    """Units of a block of this kind."""
    return settings["plain_hidden" if block == "plain" else "hidden"]


def memory_of(settings: dict, block: str) -> int:
    """Bytes that training the deepest net of this kind takes: its parameters, their
    gradient, three vectors of Adam's, and the cache."""
    dataset = hn.DATASETS[settings["dataset"]]
    L, U = max(settings["depths"]), width(settings, block)
    R, C = U * (1 + len(hn.BLOCKS[block].gates)), dataset.classes
    weights = hn.DeepNet.shapes(L, U, R, math.prod(dataset.shape), C)
    arrays = hn.Cache.shapes(L, U, R, C, settings["batch"])
    floats = (5 * hn.Parameters(weights).size
              + sum(math.prod(shape) for shape in arrays.values()))
    return np.dtype(settings["dtype"]).itemsize * floats


def check_memory(settings: dict, jobs: int, fail: Callable) -> None:
    """Fail before the start where the largest nets, side by side, exceed the machine's
    memory."""
    needed = jobs * max(memory_of(settings, block) for block in settings["blocks"])
    present = psutil.virtual_memory().total
    if needed > present:
        fail(f"argument --depth: {max(settings['depths'])} blocks, {jobs} at once, "
             f"need about {needed / 2**30:.0f} GiB; this machine has "
             f"{present / 2**30:.0f} GiB")


def flags_of(settings: dict) -> list[tuple[str, str]]:
    """The flags that make this run: the seeds, and what differs from the headline."""
    headline = cap_images(resolve({"dataset": settings["dataset"]}, quick=False))
    headline |= {"dataset": "mnist", "plain_hidden": settings["hidden"]}
    flags = []
    for name, value in settings.items():
        if name != "seeds" and value == headline[name]:
            continue
        if name in ("seeds", "depths") and len(value) == 1:
            name = name[:-1]
        if isinstance(value, list):
            value = ",".join(map(str, value))
        flags.append((name.replace("_", "-"), str(value)))
    return flags


def default_out(flags: list[tuple[str, str]]) -> Path:
    """run.json for the headline on MNIST, else runs/<its flags>.json."""
    if flags == [("seed", "0")]:
        return Path("run.json")
    name = "_".join("=".join(flag) for flag in flags)
    if len(name) > 120:     # a file name holds 255 bytes; keep it legible and unique
        name = name[:100] + "_" + hashlib.sha256(name.encode()).hexdigest()[:16]
    return Path("runs") / f"{name}.json"


def command_of(flags: list[tuple[str, str]], out: Path | None) -> str:
    """The command that makes this record again, without paths of this machine."""
    if out is not None and out != default_out(flags):
        flags = [*flags, ("out", out.name if out.is_absolute() else out.as_posix())]
    words = (f"--{k}{'=' if v.startswith('-') else ' '}{shlex.quote(v)}"
             for k, v in flags)
    return " ".join([COMMAND, *words])


def make_configs(settings: dict) -> list[hn.Config]:
    """One Config for each seed, depth and block of the run, in the record's order."""
    shared = {name: settings[name] for name in settings
              if name not in ("dataset", "seeds", "depths", "blocks", "plain_hidden")}
    common = hn.Config(**shared)
    return [replace(common, block=block, depth=depth, seed=seed,
                    hidden=width(settings, block))
            for depth in settings["depths"] for seed in settings["seeds"]
            for block in settings["blocks"]]


def table_of(arms: list[dict]) -> str:
    """The small table at the end."""
    lines = [" net, blocks   seed  parameters  test acc  train loss  seconds"]
    for arm in arms:
        shown = "diverged           -"
        if arm["status"] == "ok":
            shown = f"{arm['final_test_acc']:8.4f}  {arm['final_train_loss']:10.4f}"
        lines.append(f"{arm['label']:>12}  {arm['seed']:>5}  {arm['parameters']:>10,}  "
                     f"{shown}  {arm['wallclock_sec']:7.2f}")
    for row in summarize(arms):
        if row["test_acc_std"] is not None:
            lines.append(f"{row['block']} {row['depth']}: test accuracy "
                         f"{row['test_acc_mean']:.4f} +- {row['test_acc_std']:.4f} "
                         f"over {row['n'] - row['diverged']} seeds")
    return "\n".join(lines)


def give_advice(arms: list[dict], gate_bias: float, classes: int) -> None:
    """Say what to try where a highway net guesses, as the pictures judge that."""
    for arm in arms:
        if arm["block"] != "highway" or (
                arm["final_test_acc"] or 0) > 1 / classes + JUST_GUESSING:
            continue
        bias, auto = arm.get("gate_bias", gate_bias), hn.initial_bias("auto",
                                                                      arm["depth"])
        other = (f"--gate-bias auto ({auto:.3g}) instead of {bias:g}" if bias > auto
                 else f"a more negative --gate-bias than {bias:.3g}")
        say(f"{arm['label']}, seed {arm['seed']}, did not learn: try {other}, or a "
            "smaller --lr")


def finish(record: dict, arms: list[dict], out: Path | None) -> None:
    """Write the record, if it has a place, then say what came out: so no stream can
    lose it. Exits with 1 and a line that says why, if nothing could be written."""
    error = None
    try:
        if out:
            out.parent.mkdir(exist_ok=True)
            write_json(out, record)
    except OSError as caught:
        error = caught
    said = say(table_of(arms), sys.stdout)
    give_advice(arms, record["config"]["gate_bias"],
                hn.DATASETS[record["dataset"]].classes)
    if error:
        sys.exit(f"{PROGRAM}: {out}: {error.strerror}; nothing written")
    if out:
        say(f"wrote {out}", sys.stdout)
    elif not said:
        sys.exit(1)


def run(settings: dict, given: dict, own: dict, fail: Callable) -> tuple[dict, list]:
    """Load the data while the processes start, train every net -> settings, arms."""
    jobs = own["jobs"] or processes_for(make_configs(settings))
    jobs = min(jobs, math.prod(len(settings[name])
                               for name in ("depths", "seeds", "blocks")))
    with starting_workers(jobs):
        settings["dataset"], data = obtain_as_asked(settings["dataset"],
                                                    own["data_dir"])
        settings = fit_to_data(settings, given, fail)
        check_memory(settings, jobs, fail)
        check_out(None if own["no_save"] else
                  own["out"] or default_out(flags_of(settings)), fail)
    return settings, train_all(make_configs(settings), data, jobs)


def check_out(out: Path | None, fail: Callable) -> None:
    """Fail before the start where the record cannot be written."""
    try:
        if out:
            check_target(out)
    except OSError as error:
        fail(f"argument --out: {out}: {error.strerror}")


def version() -> str:
    """That of pyproject.toml, which stands in the checkout or in the installed
    package's metadata."""
    with contextlib.suppress(OSError):
        project = (hn.HERE / "pyproject.toml").read_text(encoding="utf-8")
        return re.findall(r'^version = "(.+)"$', project, re.MULTILINE)[0]
    return metadata.version("highway-networks")


def main(argv: list[str] | None = None) -> dict:
    """Run the command line; return the record. Exits with 2 for a wrong flag, 1 for
    wrong data or a failed write, 130 after Ctrl-C."""
    parser = build_parser()
    given = vars(parser.parse_args(argv))
    own = {name: given.pop(name) for name in OWN_FLAGS}
    if own["version"]:
        say(f"highway-networks {version()}", sys.stdout)
        sys.exit(0)
    out = own["out"]
    if out and not os.path.isdir(out.parent):
        parser.error(f"argument --out: {out.parent} is not a folder")
    check_out(None if own["no_save"] else out, parser.error)
    try:
        settings, arms = run(resolve(given, own["quick"]), given, own, parser.error)
    except hn.DataError as error:
        other = (isinstance(error, hn.MissingData)
                 and given.get("dataset") != "digits")
        sys.exit(f"{PROGRAM}: {error}" + ", or use --dataset digits" * other)
    except BrokenExecutor:
        sys.exit(f"{PROGRAM}: a process was killed, perhaps for its memory; no record "
                 "written. Try --jobs 1")
    except KeyboardInterrupt:
        say(f"\n{PROGRAM}: interrupted; no record written")
        sys.exit(130)
    flags = flags_of(settings)
    record = make_record(settings, arms, command_of(flags, out))
    finish(record, arms, None if own["no_save"] else out or default_out(flags))
    return record


def run_as_program() -> None:
    """`main` for a process of its own: a signal to end cleans up behind itself, like
    Ctrl-C, and closed streams do no harm."""
    prepare_streams()
    with ended_by_signals(lambda number: SystemExit(128 + number)):
        main()
