"""What all experiments share: command line, files, trials, record and picture.

An experiment is a module NAME.py that makes an `Experiment` and hands it to `main`:

    python3 -m experiments.NAME             run -> results/NAME/record.json, figure.png
    python3 -m experiments.NAME --plot      only draw, from the committed record
    python3 -m experiments.NAME --pack      only pack the trials that are finished
    python3 -m experiments.NAME --smoke     all of it in seconds, on the shipped digits,
                                            into runs/smoke/NAME

Trials lie in runs/NAME/store as they finish, and packed in results/NAME/trials. What is
packed counts as finished: a fresh clone goes on where the committed trials end.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import math
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axis import Axis
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.ticker import (
    FixedLocator,
    LogLocator,
    MaxNLocator,
    NullFormatter,
    NullLocator,
)

import highway_networks as hn
from experiments.store import (
    StoreError,
    Trial,
    load_trials,
    open_store,
    pack_trials,
    restore,
)
from experiments.trials import add_flags, run_trials
from highway_suite.datasets import obtain
from highway_suite.figures import COLOURS, LIGHT, style
from highway_suite.files import parse_json, read_file, write_file, write_json
from highway_suite.records import RecordError, environment

SCHEMA, SCHEMA_VERSION = "highway-networks/experiment", 1
DASHES = {"highway": "-", "plain": (0, (3, 1.2))}       # where colour is not enough


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """One question: how to answer it and how to draw the answer."""

    name: str           # of its module, "experiments.NAME"
    doc: str            # the module's docstring; its first line is the question
    minutes: int        # that a run takes on two cores, with nothing finished
    protocol: dict      # its plan, as JSON: "dataset" and whatever else it goes by
    smoke: dict         # what changes in it for --smoke
    run: Callable       # run(lab) -> the record's fields after `header`
    draw: Callable      # draw(record) -> Figure, in `style`
    check: Callable | None = None       # check(record) -> its claims, by `claim`
    pack_by: Callable | None = None     # config -> the name of the packed file of its
                                        # trial; None: nothing is made of trials

    @property
    def question(self) -> str:
        """What it asks, in a line; nothing under python -OO."""
        return (self.doc or "").partition("\n")[0]


class Lab:
    """An experiment at work: its options, protocol, data and files."""

    def __init__(self, experiment: Experiment, options: argparse.Namespace):
        self.experiment, self.options = experiment, options
        self.name = experiment.name.rpartition(".")[2]
        self.protocol = experiment.protocol | (
            experiment.smoke if options.smoke else {})
        working = hn.HERE / "runs" / ("smoke" if options.smoke else "") / self.name
        self.folder = working if options.smoke else hn.HERE / "results" / self.name
        self.record = self.folder / "record.json"
        self.figure = self.folder / "figure.png"
        self.packed = self.folder / "trials"
        self.store = working / "store"
        self.trials_protocol = {"experiment": self.name,
                                "dataset": self.protocol["dataset"]}

    def packed_files(self) -> list[Path]:
        """The packed trials that are there."""
        return sorted(self.packed.glob("*.jsonl"))

    def load_data(self) -> hn.Data:
        """The protocol's data set, as read. Raises hn.DataError."""
        return obtain(self.protocol["dataset"], self.options.data_dir)

    def trials(self, train: Callable, configs: Mapping[Any, dict],
               data: Any) -> dict[Any, Trial]:
        """`run_trials` with the experiment's store, packed files and flags, {key:
        config} -> {key: Trial}, in this order. Raises StoreError where a trial failed:
        no verdict may rest on what did not run.

        A config says all that its result depends on, but for the data set: so a plan
        that is extended keeps the trials that are finished.
        """
        trials = run_trials(train, configs.values(), self.store,
                            protocol=self.trials_protocol, data=data,
                            packed=self.packed_files(), jobs=self.options.jobs,
                            cluster=self.options.cluster,
                            retry_failed=self.options.retry_failed)
        for trial in trials:
            if trial.status == "failed":
                raise StoreError(f"trial {trial.hash[:8]} failed: {trial.error}. Mend "
                                 "that and run again with --retry-failed")
        return dict(zip(configs, trials, strict=True))

    def pack(self) -> int:
        """Pack the finished trials and those packed before, one file for each name that
        pack_by gives; return their number. Raises StoreError."""
        pack_by = self.experiment.pack_by
        if pack_by is None:
            return 0
        with open_store(self.store, self.trials_protocol) as (store, there):
            restore(store, self.packed_files(), there)
        protocol, trials = load_trials(self.store)
        groups: dict[str, list[Trial]] = {}
        for trial in trials:
            groups.setdefault(pack_by(trial.config), []).append(trial)
        self.packed.mkdir(parents=True, exist_ok=True)
        for name, group in groups.items():
            pack_trials(self.packed / f"{name}.jsonl", protocol, group)
        return len(trials)

    def header(self) -> dict:
        """The fields that every experiment's record begins with."""
        smoke = " --smoke" if self.options.smoke else ""
        return {"schema": SCHEMA, "schema_version": SCHEMA_VERSION,
                "experiment": self.name,
                "command": f"python3 -m {self.experiment.name}{smoke}",
                "dataset": self.protocol["dataset"], "protocol": self.protocol,
                "env": environment()}


# --------------------------------------------------------------------------------------
# Numbers and claims


def listed(values: Any, digits: int = 6) -> Any:
    """Numbers of any shape as JSON keeps them: so many significant digits, None where
    not finite."""
    if np.ndim(values):
        return [listed(value, digits) for value in values]
    return float(f"{values:.{digits}g}") if math.isfinite(values) else None


def or_infinite(values: Any) -> np.ndarray:
    """Losses or epochs, None where a run diverged or never got there -> an array of
    that shape with infinity in their places."""
    values = np.array(values, float)
    return np.where(np.isnan(values), np.inf, values)


def mean_and_std(values: Iterable[float | None]) -> dict:
    """Mean and standard deviation (n - 1) of the values that are not None."""
    there = [value for value in values if value is not None]
    return {"mean": listed(np.mean(there)) if there else None,
            "std": listed(np.std(there, ddof=1)) if len(there) > 1 else None,
            "n": len(there)}


def compare(one: Iterable[float | None], other: Iterable[float | None]) -> str:
    """Test accuracies of two nets' seeds, None where one diverged -> "ahead of" or
    "behind" where every seed of one is above every seed of the other, else "level
    with"."""
    one, other = ([-1 if value is None else value for value in values]
                  for values in (one, other))
    return ("ahead of" if min(one) > max(other) else
            "behind" if max(one) < min(other) else "level with")


def claim(*, section: str, text: str, paper: Any, ours: Any, holds: bool | None,
          n: Any = 1, also: dict[str, bool | None] | None = None,
          why: str | None = None) -> dict:
    """A statement of a paper beside our numbers, as a record keeps it; section names
    the paper too, as in "P1 3.1"; holds is True, False, or None: we cannot tell. n: the
    seeds behind each of our numbers. also: the verdict at other thresholds; why: it is
    open, where that is not because our numbers do not decide it."""
    found = {"section": section, "claim": text, "paper": paper, "ours": ours, "n": n,
             "holds": None if holds is None else bool(holds)}
    return (found | ({"also": also} if also else {})
            | ({"why": why} if why and holds is None else {}))


def agreed(verdicts: Iterable[bool | None]) -> bool | None:
    """The verdict of all nets; None where they differ, or some tell nothing."""
    different = set(verdicts)
    return different.pop() if len(different) == 1 else None


def over_nets(values: Sequence[Any]) -> Any:
    """A number of each net, or dicts of them -> lowest, median and highest."""
    if isinstance(values[0], Mapping):
        return {name: over_nets([value[name] for value in values])
                for name in values[0]}
    return {name: listed(of(values)) for name, of in (
        ("lowest", np.min), ("median", np.median), ("highest", np.max))}


def telling(holds: bool, before: bool) -> bool | None:
    """The verdict on a trained net: None, it tells nothing, where the statement holds
    and did so before training too."""
    return None if holds and before else holds


# --------------------------------------------------------------------------------------
# Pictures


def colour_of(block: str) -> str:
    """The colour of a block on every figure; grey, if it was added to hn.BLOCKS."""
    return COLOURS.get(block, "#8C8C8C")


def pale(colour: str, strength: float) -> tuple:
    """A colour of Matplotlib, mixed with white: strength 1 is the colour itself."""
    return tuple(1 - strength * (1 - np.array(to_rgb(colour))))


def format_log(axis: Axis) -> None:
    """Plain numbers on a log scale, 1, 2 and 5 of each decade."""
    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter(NullFormatter())


def plain_numbers(axis: Axis) -> None:
    """A logarithmic axis with its numbers written out, the more the shorter it is."""
    low, high = axis.get_view_interval()
    digits = (1, 2, 5) if high > 8 * low else (1, 1.5, 2, 2.5, 3, 4, 5, 6, 8)
    ticks = [digit * 10.0 ** power for power in range(-6, 3) for digit in digits]
    axis.set_major_locator(FixedLocator([v for v in ticks if low <= v <= high])
                           if high > 1.6 * low else MaxNLocator(5))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(lambda value, _: f"{value:g}")


def render(draw: Callable[[dict], Figure], record: dict, digest: str,
           title: str | None = None) -> bytes:
    """A record -> the bytes of its PNG, which names the record's SHA-256."""
    with style(LIGHT):
        figure, file = draw(record), io.BytesIO()
        figure.savefig(file, format="png", metadata={
            "Software": None, "Title": title, "Source": record["command"],
            "Record-SHA-256": digest})
    return file.getvalue()


# --------------------------------------------------------------------------------------
# Records and the command line


def load_checked(path: Path, command: str, **fields: Any) -> tuple[dict, str]:
    """A record with these fields and the SHA-256 of its file. Raises RecordError, one
    line: the file, what is wrong, and the command that makes it."""
    try:
        content = read_file(path)
        record = parse_json(content.decode())
        for name, value in fields.items():
            if not isinstance(record, dict) or record.get(name) != value:
                raise ValueError(f"field {name!r} is not {value!r}")
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{path}: {error}. Make it with: {command}") from error
    return record, hashlib.sha256(content).hexdigest()


def load_record(path: Path) -> tuple[dict, str]:
    """An experiment's NAME/record.json and the SHA-256 of that file. Raises
    RecordError."""
    name = path.parent.name
    return load_checked(path, f"python3 -m experiments.{name}", schema=SCHEMA,
                        experiment=name)


def build_parser(experiment: Experiment) -> argparse.ArgumentParser:
    """The command line of an experiment."""
    parser = argparse.ArgumentParser(prog=f"python3 -m {experiment.name}",
                                     allow_abbrev=False,
                                     description=experiment.question)
    parser.add_argument("--plot", action="store_true",
                        help="draw the record again, run nothing")
    if experiment.pack_by:
        parser.add_argument("--pack", action="store_true",
                            help="pack the finished trials, run nothing")
    parser.add_argument("--smoke", action="store_true", help="the whole path in "
                        "seconds, on the shipped digits; its files go to runs/smoke")
    parser.add_argument("--data-dir", metavar="FOLDER", help="of the data set's files")
    if experiment.pack_by:
        add_flags(parser)
    return parser


def make_record(lab: Lab) -> None:
    """Run the experiment, write its record and pack its trials."""
    experiment = lab.experiment
    if lab.options.smoke:       # a smoke run tries the whole path, each time
        shutil.rmtree(lab.folder, ignore_errors=True)
    lab.folder.mkdir(parents=True, exist_ok=True)
    record = lab.header() | experiment.run(lab)
    if experiment.check:
        record["claims"] = experiment.check(record)
    write_json(lab.record, record)
    if experiment.pack_by:
        lab.pack()


def main(experiment: Experiment, argv: Sequence[str] | None = None) -> dict | None:
    """Run the command line; return the record. Exits with 1 and one line on stderr
    where data, record, trials or files are wrong, 130 after Ctrl-C."""
    options = build_parser(experiment).parse_args(argv)
    lab = Lab(experiment, options)
    try:
        if experiment.pack_by and options.pack:
            print(f"packed {lab.pack()} trials in {lab.packed.relative_to(hn.HERE)}")
            return None
        if not options.plot:
            make_record(lab)
        record, digest = load_record(lab.record)
        write_file(lab.figure, render(experiment.draw, record, digest, experiment.name))
    except (hn.DataError, RecordError, StoreError, OSError) as error:
        sys.exit(f"{experiment.name}: {error}")
    except KeyboardInterrupt:
        kept = "; finished trials are kept" if experiment.pack_by else ""
        print(f"\n{experiment.name}: interrupted{kept}", file=sys.stderr)
        sys.exit(130)
    print(f"{lab.record.relative_to(hn.HERE)}, {lab.figure.relative_to(hn.HERE)}")
    return record
