"""The command line of highway_networks.py: flags, runs, table, record."""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import math
import os
import shlex
import signal
import sys
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import psutil

import highway_networks as hn
from highway_suite.datasets import obtain, obtain_auto
from highway_suite.files import write_json
from highway_suite.records import make_record, summarize
from highway_suite.workers import starting_workers, train_all

INSTALL = "python3 -m venv .venv && .venv/bin/pip install -e ."
QUICK = {"depth": 10, "epochs": 5, "n_train": 2000, "n_test": 1000}


def in_range(kind: type, low: float, high: float) -> Callable:
    """An argparse type: a number of this kind within the range, both ends allowed."""
    def parse(text):
        try:
            value = kind(text)
        except ValueError:
            value = math.nan
        if not low <= value <= high:
            noun = "a whole number" if kind is int else "a number"
            raise argparse.ArgumentTypeError(
                f"{text!r} is not {noun} from {low} to {high}")
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
    """An argparse type: a kind of BLOCKS."""
    if text not in hn.BLOCKS:
        raise argparse.ArgumentTypeError(f"{text!r} is none of {', '.join(hn.BLOCKS)}")
    return text


def build_parser() -> argparse.ArgumentParser:
    """The command line: one flag for each setting of Config, and the run's own."""
    parser = argparse.ArgumentParser(
        prog="highway_networks.py", allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
        description="Train nets of different blocks side by side, in NumPy: a highway "
                    "net and a plain net, unless told otherwise.",
        epilog="Only the headline (all defaults, on MNIST) writes run.json unasked; "
               "any other run without --out goes to runs/, named by its settings.")
    for item in fields(hn.Config):
        if not item.metadata:
            continue
        flag, meta = "--" + item.name.replace("_", "-"), item.metadata
        text = f"{meta['help']} (default: {item.default})".replace("%", "%%")
        if meta["choices"]:
            parser.add_argument(flag, choices=meta["choices"], help=text)
            continue
        kind = in_range(type(item.default), meta["low"], meta["high"])
        where = parser
        if item.name in ("seed", "depth"):
            where = parser.add_mutually_exclusive_group()
            where.add_argument(flag + "s", type=several(kind), metavar="A,B,...",
                               help=f"several values of {flag}")
        where.add_argument(flag, type=kind, metavar="N", help=text)
    parser.add_argument("--blocks", type=several(block_name), metavar="A,B,...",
                        help=f"kinds of nets, of {', '.join(hn.BLOCKS)} (default: "
                             "highway,plain, the two that the figures need)")
    parser.add_argument("--plain-hidden", type=in_range(int, 1, 10_000), metavar="N",
                        help="units of the plain net (default: --hidden); 71 matches "
                             "the parameters of 50 highway units, as in the paper")
    parser.add_argument("--dataset", choices=("auto", *hn.DATASETS),
                        help="auto: MNIST, or with a warning the shipped digits where "
                             "it cannot be had (default: auto)")
    parser.add_argument("--quick", action="store_true", default=False, help="; ".join(
        f"--{name.replace('_', '-')} {value}" for name, value in QUICK.items())
        + ", each unless given")
    parser.add_argument("--data-dir", metavar="FOLDER", default=None,
                        help="of the four MNIST idx files (default: "
                             "$HIGHWAY_DATA_DIR, or ~/.cache/hinton-mnist)")
    parser.add_argument("--jobs", type=in_range(int, 1, 1024), metavar="N", default=None,
                        help="processes (default: one per core)")
    parser.add_argument("--out", metavar="FILE", default=None, help="the record")
    parser.add_argument("--no-save", action="store_true", default=False,
                        help="write no record")
    return parser


def resolve(given: dict, quick: bool) -> dict:
    """Defaults, preset, flags given, the last one wins -> the settings of the run."""
    values = {"dataset": "auto"} | {item.name: item.default for item in fields(hn.Config)
                                    if item.metadata}
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
        fail(f"argument --depth: {max(settings['depths'])} blocks on {jobs} processes "
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
    words = (f"--{k}={v}" if v.startswith("-") else f"--{k} {shlex.quote(v)}"
             for k, v in flags)
    return " ".join(["python3 highway_networks.py", *words])


def make_configs(settings: dict) -> list[hn.Config]:
    """One Config for each seed, depth and block of the run, in the record's order."""
    shared = {name: settings[name] for name in settings
              if name not in ("dataset", "seeds", "depths", "blocks", "plain_hidden")}
    common = hn.Config(**shared)
    return [replace(common, block=block, depth=depth, seed=seed,
                    hidden=width(settings, block))
            for depth in settings["depths"] for seed in settings["seeds"]
            for block in settings["blocks"]]


def print_table(arms: list[dict], gate_bias: float) -> None:
    """The small table at the end, and advice where a highway net did not start."""
    print("         net   seed  parameters  test acc  train loss  seconds")
    for arm in arms:
        shown = "diverged           -"
        if arm["status"] == "ok":
            shown = f"{arm['final_test_acc']:8.4f}  {arm['final_train_loss']:10.4f}"
        print(f"{arm['label']:>12}  {arm['seed']:>5}  {arm['parameters']:>10,}  {shown}"
              f"  {arm['wallclock_sec']:7.2f}")
    for row in summarize(arms):
        if row["test_acc_std"] is not None:
            print(f"{row['block']} {row['depth']}: test accuracy "
                  f"{row['test_acc_mean']:.4f} +- {row['test_acc_std']:.4f} "
                  f"over {row['n'] - row['diverged']} seeds")
    for arm in arms:
        if arm["block"] == "highway" and (arm["final_train_acc"] or 0) < 0.2:
            print(f"{arm['label']}, seed {arm['seed']}, did not learn: try a more "
                  f"negative --gate-bias than {gate_bias:g}, or a smaller --lr",
                  file=sys.stderr)


def save(record: dict, out: Path) -> None:
    """Write the record, or exit with 1 and a line that says why not."""
    try:
        out.parent.mkdir(exist_ok=True)
        write_json(out, record)
    except OSError as error:
        sys.exit(f"highway_networks.py: {out}: {error.strerror}; nothing written")
    print(f"wrote {out}")


def run(settings: dict, given: dict, own: dict, fail: Callable) -> tuple[dict, list]:
    """Load the data while the processes start, train every net -> settings, arms."""
    from joblib import cpu_count
    nets = math.prod(len(settings[name]) for name in ("depths", "seeds", "blocks"))
    jobs = min(own["jobs"] or cpu_count(), nets)
    with starting_workers(jobs):
        if settings["dataset"] == "auto":
            settings["dataset"], data = obtain_auto(own["data_dir"])
        else:
            data = obtain(settings["dataset"], own["data_dir"])
        settings = fit_to_data(settings, given, fail)
        check_memory(settings, jobs, fail)
    return settings, train_all(make_configs(settings), data, jobs)


def main(argv: list[str] | None = None) -> dict:
    """Run the command line; return the record. Exits with 2 for a wrong flag, 1 for
    wrong data or a failed write, 130 after Ctrl-C."""
    for library in ("joblib", "pooch"):
        if importlib.util.find_spec(library) is None:
            sys.exit(f"highway_networks.py needs {library}. Install: {INSTALL}")
    parser = build_parser()
    given = vars(parser.parse_args(argv))
    own = {name: given.pop(name)
           for name in ("quick", "data_dir", "jobs", "out", "no_save")}
    out = Path(own["out"]) if own["out"] else None
    folder = out.parent if out else Path()
    if not own["no_save"] and ((out and out.is_dir()) or not folder.is_dir()
                               or not os.access(folder, os.W_OK)):
        parser.error(f"argument --out: {out or folder.resolve()} is not a file in a "
                     "folder to write to")
    try:
        settings, arms = run(resolve(given, own["quick"]), given, own, parser.error)
    except hn.DataError as error:
        sys.exit(f"highway_networks.py: {error}")
    except KeyboardInterrupt:
        print("\nhighway_networks.py: interrupted; no record written", file=sys.stderr)
        sys.exit(130)
    flags = flags_of(settings)
    record = make_record(settings, arms, command_of(flags, out))
    print_table(arms, settings["gate_bias"])
    if not own["no_save"]:
        save(record, out or default_out(flags))
    return record


def run_as_program() -> None:
    """`main` for a process of its own: a SIGTERM cleans up behind itself, like Ctrl-C.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    main()
