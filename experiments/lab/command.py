"""The command line of an experiment.

    python3 -m experiments.NAME     runs what is missing and makes record.json, the
                                    figures and trials/ in results/NAME; changes no file
                                    where nothing is left to do
        --fresh                     trains all trials anew, into runs/NAME
        --fresh --only A=B ...      those with such settings, into runs/NAME-A=B...
        --recheck N                 trains N of the finished trials again, the cheapest,
                                    and says what differs
        --plot                      only draws, from the record
        --pack                      only packs the trials that are finished
        --smoke                     all of it in seconds, on what is shipped, into
                                    runs/smoke/NAME

What is packed counts as finished: a fresh clone goes on where the committed trials end.
A run drops packed trials that the plan no longer asks for.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import highway_networks as hn
from experiments.lab.experiment import (
    Experiment,
    Lab,
    Replay,
    Training,
    failing_in_a_line,
    folder_of,
    get,
    load_record,
    write_figures,
)
from experiments.lab.recheck import compare_again
from experiments.lab.trials import Store, StoreError, Trial, read_packed, write_packed
from highway_suite.files import path_of, write_json
from highway_suite.records import RecordError
from highway_suite.terminal import in_range


def build_parser(experiment: Experiment) -> argparse.ArgumentParser:
    """The command line of an experiment."""
    parser = argparse.ArgumentParser(prog=f"python3 -m experiments.{experiment.name}",
                                     allow_abbrev=False,
                                     description=experiment.question)
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--smoke", action="store_true", help="the whole path in seconds, "
                      "on what is shipped; its files go to runs/smoke")
    mode.add_argument("--fresh", action="store_true", help="train anew, beside the "
                      "committed results, into runs; what is interrupted goes on")
    mode.add_argument("--recheck", type=in_range(int, 1, 10**6), metavar="N",
                      help="train N of the finished trials again, the cheapest, and "
                           "compare")
    mode.add_argument("--plot", action="store_true", help="draw the record again")
    mode.add_argument("--pack", action="store_true", help="pack the finished trials")
    parser.add_argument("--only", nargs="+", metavar="A=B", default=[],
                        help="with --fresh: only trials with such settings, as "
                             "block=plain")
    parser.add_argument("--data-dir", metavar="FOLDER", type=path_of,
                        help="of the data set's files")
    parser.add_argument("--jobs", type=in_range(int, 1, 1024), metavar="N",
                        help="processes (default: one per core)")
    parser.add_argument("--cluster", metavar="ADDRESS", help="of a Dask scheduler, "
                        "tcp://HOST:PORT, whose workers run the trials instead")
    return parser


def is_chosen(trial: Trial, only: Sequence[str]) -> bool:
    """Whether a trial has all of these settings, "NAME=VALUE"."""
    return all(is_written(trial.config.get(name), text) for name, _, text in
               (word.partition("=") for word in only))


def is_written(value: Any, text: str) -> bool:
    """Whether a text means a setting's value: 1e-3 is 0.001."""
    if isinstance(value, (int, float)):
        with suppress(ValueError):
            return float(text) == value
    return str(value) == text


@dataclass
class Work:
    """One call of an experiment's command: its options and its places."""

    experiment: Experiment
    options: argparse.Namespace

    @property
    def folder(self) -> Path:
        """Where the record goes."""
        name, runs = self.experiment.name, hn.HERE / "runs"
        only = "".join(f"-{word}" for word in sorted(self.options.only))
        return (runs / "smoke" / name if self.options.smoke else
                runs / f"{name}{only.replace('/', ' ')}"
                if self.options.fresh else folder_of(name))

    @property
    def store(self) -> Store:
        """Where finished trials are kept."""
        return Store((self.folder if self.options.fresh else hn.HERE / "runs")
                     / "trials.sqlite")

    @cached_property
    def packed(self) -> dict[str, Trial]:
        """The committed trials that count as finished."""
        if self.options.smoke:
            return {}
        packed = read_packed(folder_of(self.experiment.name) / "trials")
        only = self.options.only
        if not self.options.fresh:
            return packed
        rest = {name: trial for name, trial in packed.items()
                if only and not is_chosen(trial, only)}
        if only and len(rest) == len(packed):
            raise StoreError(f"no trial has {' '.join(only)}")
        return rest

    def lab(self, source: Training | Replay) -> Lab:
        """The lab of these options."""
        smoke = self.options.smoke
        return Lab(self.experiment, source, smoke=smoke,
                   data_dir=None if smoke else self.options.data_dir)

    def pack(self) -> None:
        """Pack what is finished, whether or not the plan asks for it."""
        there = self.store.of(f"{self.experiment.name}.") | self.packed
        write_packed(self.folder / "trials", there.values())

    def run(self) -> None:
        """Run the experiment; write and name what changed: record, figures, trials."""
        options = self.options
        flags = [f"--{flag}" for flag in ("smoke", "fresh", "only")
                 if getattr(options, flag)]
        command = " ".join([f"python3 -m experiments.{self.experiment.name}", *flags,
                            *options.only])
        self.folder.mkdir(parents=True, exist_ok=True)
        source = Training(None if options.smoke else self.store, self.packed,
                          options.jobs, options.cluster)
        record, changed = self.lab(source).record(command), []
        path = self.folder / "record.json"
        if options.smoke or options.fresh or not is_same(record, path):
            write_json(path, record)
            changed.append(path)
        changed += write_figures(self.experiment, self.folder)
        if write_packed(self.folder / "trials", source.asked.values()):
            changed.append(self.folder / "trials")
        print(", ".join(path.relative_to(hn.HERE).as_posix() for path in changed)
              or "nothing left to do; no file was changed")
        if options.fresh:           # or the next one would have nothing to train
            self.store.path.unlink(missing_ok=True)

    def sample(self, count: int) -> bool:
        """Train the cheapest trials again and compare -> whether nothing differs."""
        replay = Replay(self.packed)
        self.lab(replay).record("")
        chosen = sorted(replay.asked, key=lambda name: self.packed[name].seconds)
        return compare_again(self.lab(replay), chosen[:count], self.options.jobs)


def is_same(record: dict, path: Path) -> bool:
    """Whether the file holds this record already, made from a clean checkout: where
    only the environment differs, the older one stands."""
    try:
        there, _ = load_record(path)
    except RecordError:
        return False
    return (there["env"].get("git_dirty") is False
            and there | {"env": None} == record | {"env": None})


def main(name: str, argv: Sequence[str] | None = None) -> None:
    """Run the command line of the experiment of that name."""
    experiment = get(name)      # by its name: as __main__ its functions would be others
    parser = build_parser(experiment)
    options = parser.parse_args(argv)
    if options.only and not options.fresh:
        parser.error("--only is for --fresh")
    if options.cluster is not None and options.recheck:
        parser.error("--cluster is not for --recheck")
    kept = "" if options.smoke or options.recheck else "; finished trials are kept"
    with failing_in_a_line(f"experiments.{name}", kept):
        work = Work(experiment, options)
        if options.pack:
            work.pack()
        elif options.plot:
            for path in write_figures(experiment, work.folder, anew=True):
                print(path.relative_to(hn.HERE).as_posix())
        elif options.recheck:
            if not work.sample(options.recheck):
                sys.exit(1)
        else:
            work.run()
