"""An experiment: its plan, its trials, its record, its claims and its figures.

A module experiments/NAME.py, or a package, has an `EXPERIMENT`:

    python3 -m experiments.NAME     runs what is missing and makes record.json, the
                                    figures and trials/ in results/NAME; changes no file
                                    where nothing is left to do
        --fresh [--only A=B ...]    trains anew, into runs/NAME: all trials, or those
                                    with such settings
        --recheck N                 trains N of the finished trials again, the cheapest,
                                    and says what differs
        --plot                      only draws, from the record
        --pack                      only packs the trials that are finished
        --smoke                     all of it in seconds, on what is shipped, into
                                    runs/smoke/NAME

What is packed counts as finished: a fresh clone goes on where the committed trials end.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import signal
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from PIL import Image

import highway_networks as hn
from experiments.lab.judging import Claim, judge
from experiments.lab.running import describer, run_trials
from experiments.lab.trials import (
    Request,
    Store,
    StoreError,
    Trial,
    read_packed,
    write_packed,
)
from highway_suite.datasets import content_hash, load
from highway_suite.figures import LIGHT, saved, style
from highway_suite.files import (
    parse_json,
    path_of,
    read_file,
    to_json,
    write_file,
    write_json,
)
from highway_suite.records import environment
from highway_suite.schema import RecordError
from highway_suite.terminal import in_range, prepare_streams, say
from highway_suite.workers import ended_by_signals

SCHEMA, SCHEMA_VERSION = "highway-networks/experiment", 2
HEADER = {"experiment": str, "command": str, "plan": dict, "env": dict, "claims": list}


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """One question: how to answer it, how to judge and how to draw the answer."""

    name: str               # of its module in experiments/, and of its folder
    doc: str | None         # the module's docstring; its first line is the question
    minutes: int            # that a run takes on two cores, with nothing finished
    plan: dict              # as JSON: "dataset" and all else that it goes by
    smoke: dict             # what changes in the plan for --smoke
    run: Callable[[Lab], dict]              # -> the record's fields after the header
    claims: Callable[[dict], Collection[Claim]] = lambda record: ()
    figures: Mapping[str, Callable] = field(default_factory=dict)
                            # file's name -> draw(record) -> Figure, in `style`
    load: Callable = load                   # (data set's name, folder or None) -> data
    content: Callable = content_hash        # data set's name -> hash of its content

    @property
    def question(self) -> str:
        """What it asks, in a line; nothing under python -OO."""
        return (self.doc or "").partition("\n")[0]


def get(name: str) -> Experiment:
    """The experiment of that name."""
    return importlib.import_module(f"experiments.{name}").EXPERIMENT


# --------------------------------------------------------------------------------------
# Where trials come from


@dataclass
class Training:
    """Trials are run where none is finished."""

    store: Store
    finished: Mapping[str, Trial]           # packed ones
    jobs: int | None = None
    cluster: str | None = None
    retry_failed: bool = False

    def trials(self, requests: Sequence[Request], load: Callable[[], Any]
               ) -> list[Trial]:
        """Raises StoreError, hn.DataError."""
        return run_trials(requests, self.store, load, finished=self.finished,
                          jobs=self.jobs, cluster=self.cluster,
                          retry_failed=self.retry_failed)


@dataclass
class Replay:
    """Trials are finished, or an error; `asked` are the requests, by their trials."""

    finished: Mapping[str, Trial]
    asked: dict[str, Request] = field(default_factory=dict)

    def trials(self, requests: Sequence[Request], load: Callable[[], Any]
               ) -> list[Trial]:
        """Raises StoreError."""
        trials = []
        for request in requests:
            trial = request.found_in(self.finished)
            if trial is None:
                raise StoreError("a trial is not there: " + describer([request.config])(
                    request.config))
            trials.append(trial)
            self.asked[trial.hash] = request
        return trials


class Lab:
    """An experiment at work: its plan and where its trials come from."""

    def __init__(self, experiment: Experiment, source: Training | Replay, *,
                 smoke: bool = False, data_dir: Path | None = None):
        self.experiment, self.source, self.data_dir = experiment, source, data_dir
        self.plan = experiment.plan | (experiment.smoke if smoke else {})
        self.loaded: dict[str, Any] = {}

    def data(self, dataset: str | None = None) -> Any:
        """A data set, as read; the plan's unless named. Raises hn.DataError."""
        name = dataset or self.plan["dataset"]
        if name not in self.loaded:
            self.loaded[name] = self.experiment.load(name, self.data_dir)
        return self.loaded[name]

    def trials(self, function: Callable, configs: Mapping[Any, dict],
               dataset: str | None = "") -> dict[Any, Trial]:
        """{key: config} -> {key: finished Trial} of function(config, data), in order.

        function: declared by `trial_function`; its config says all that its result
            depends on, but for the data set.
        dataset: the plan's unless named; None for a function that needs no data.
        Raises StoreError where a trial failed: no verdict may rest on what did not run.
        """
        name = self.plan["dataset"] if dataset == "" else dataset
        about = {"name": name, "content": self.experiment.content(name)
                 } if name else None
        requests = [Request(function, about, as_read(config))
                    for config in configs.values()]
        trials = self.source.trials(requests, lambda: name and self.data(name))
        for trial in trials:
            if trial.status == "failed":
                raise StoreError(f"trial {trial.hash} failed: {trial.error}. Mend that "
                                 "and run again with --retry-failed")
        return dict(zip(configs, trials, strict=True))

    def record(self, command: str) -> dict:
        """Run the experiment and judge its claims -> its record, as its file gives it
        back."""
        record = {"schema": SCHEMA, "schema_version": SCHEMA_VERSION,
                  "experiment": self.experiment.name, "command": command,
                  "plan": self.plan, "env": environment(), **self.experiment.run(self)}
        record = as_read(record)
        return as_read(record | {"claims": judged(self.experiment, record)})


def as_read(value: Any) -> Any:
    """A value of JSON as its file gives it back. Raises ValueError, TypeError."""
    return parse_json(to_json(value))


def judged(experiment: Experiment, record: dict) -> list[dict]:
    """The claims of a record, with their verdicts. Raises RecordError."""
    with sound(experiment.name):
        return [judge(claim) for claim in experiment.claims(record)]


# --------------------------------------------------------------------------------------
# Records and figures


def folder_of(name: str) -> Path:
    """Where an experiment's committed results lie."""
    return hn.HERE / "results" / name


def load_record(path: Path) -> tuple[dict, str]:
    """An experiment's record, and the SHA-256 of its file. Raises RecordError, one
    line: the file, what is wrong, and the command that makes it."""
    try:
        content = read_file(path)
        record = parse_json(content.decode())
        if not isinstance(record, dict) or record.get("schema") != SCHEMA:
            raise ValueError(f"not a record of schema {SCHEMA}")
        if record.get("schema_version") != SCHEMA_VERSION:
            raise ValueError(f"version {record.get('schema_version')!r:.20} of its "
                             f"schema; this is {SCHEMA_VERSION}")
        for name, kind in HEADER.items():
            if not isinstance(record.get(name), kind):
                raise ValueError(f"field {name!r} is not a {kind.__name__}")
    except ValueError as error:
        raise RecordError(f"{path}: {error}. Make it with: python3 -m experiments."
                          f"{path.parent.name}") from error
    return record, hashlib.sha256(content).hexdigest()


@contextmanager
def sound(name: str) -> Iterator[None]:
    """The body reads a record's own fields, of which each experiment has others: where
    one is missing or of another kind, that is a RecordError in one line."""
    try:
        yield
    except (LookupError, TypeError, AttributeError, ArithmeticError, ValueError
            ) as error:
        if isinstance(error, (RecordError, StoreError, hn.DataError)):
            raise
        raise RecordError(f"the record of {name}: a field is missing or wrong "
                          f"({error!r:.80}). Make it with: python3 -m experiments."
                          f"{name}") from error


def draw(experiment: Experiment, record: dict, digest: str) -> dict[str, bytes]:
    """{name of the file: PNG} of a record's figures, each naming the record's hash."""
    with sound(experiment.name), style(LIGHT):
        return {f"{name}.png": saved(make(record), "png",
                                     f"experiments.{experiment.name}",
                                     record["command"], digest)
                for name, make in experiment.figures.items()}


def drawn_of(path: Path) -> str | None:
    """The SHA-256 of the record that a picture shows; None if there is no such."""
    try:
        if not path.is_file():
            return None
        with Image.open(path) as picture:
            return picture.info.get("Record-SHA-256")
    except Exception:       # of a damaged or a huge one Pillow raises many kinds
        return None


def write_figures(experiment: Experiment, folder: Path, anew: bool = False
                  ) -> list[Path]:
    """Draw the record of a folder, where its figures are not of it -> those written."""
    record, digest = load_record(folder / "record.json")
    if not anew and all(drawn_of(folder / f"{name}.png") == digest
                        for name in experiment.figures):
        return []
    pictures = draw(experiment, record, digest)
    for name, content in pictures.items():
        write_file(folder / name, content)
    return [folder / name for name in pictures]


def changes(there: Any, here: Any, place: str = "") -> list[str]:
    """Where two plans differ, as "epochs: 10, now 12"."""
    if isinstance(there, dict) and isinstance(here, dict):
        return [found for name in {**there, **here} for found in changes(
            there.get(name), here.get(name), f"{place}.{name}" if place else name)]
    return [] if there == here else [f"{place}: {there!r:.40}, now {here!r:.40}"]


def state_of(experiment: Experiment) -> str:
    """What is there of an experiment's results, in a few words."""
    folder = folder_of(experiment.name)
    if not (folder / "record.json").exists():
        return "none"
    try:
        record, digest = load_record(folder / "record.json")
        if found := changes(record["plan"], as_read(experiment.plan)):
            return f"of another plan ({found[0]})"
        if record["claims"] != as_read(judged(experiment, record)):
            return "with other verdicts"
    except RecordError:
        return "damaged"
    return ("complete" if all(drawn_of(folder / f"{name}.png") == digest
                              for name in experiment.figures) else "not drawn")


# --------------------------------------------------------------------------------------
# The command line


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
    parser.add_argument("--retry-failed", action="store_true",
                        help="run failed trials again")
    return parser


def is_chosen(trial: Trial, only: Sequence[str]) -> bool:
    """Whether a trial has all of these settings, "NAME=VALUE"."""
    return all(str(trial.config.get(name)) == value for name, _, value in
               (word.partition("=") for word in only))


@dataclass
class Work:
    """One call of an experiment's command: its options and its places."""

    experiment: Experiment
    options: argparse.Namespace
    scratch: Path           # for this call alone

    @property
    def apart(self) -> bool:
        """Whether the results stay away from the committed ones."""
        return self.options.smoke or self.options.fresh

    @property
    def folder(self) -> Path:
        """Where the record goes."""
        name, runs = self.experiment.name, hn.HERE / "runs"
        return (runs / "smoke" / name if self.options.smoke else runs / name
                if self.options.fresh else folder_of(name))

    @property
    def store(self) -> Store:
        """Where finished trials are kept."""
        return Store((self.scratch if self.options.smoke else
                      self.folder if self.options.fresh else hn.HERE / "runs")
                     / "trials.sqlite")

    @cached_property
    def packed(self) -> dict[str, Trial]:
        """The committed trials that count as finished."""
        if self.options.smoke:
            return {}
        packed = read_packed(folder_of(self.experiment.name) / "trials")
        if self.options.fresh:
            packed = {name: trial for name, trial in packed.items() if self.options.only
                      and not is_chosen(trial, self.options.only)}
        return packed

    def lab(self, source: Training | Replay) -> Lab:
        """The lab of these options."""
        smoke = self.options.smoke
        return Lab(self.experiment, source, smoke=smoke,
                   data_dir=None if smoke else self.options.data_dir)

    def pack(self) -> bool:
        """Pack what is finished -> whether a file changed."""
        there = read_packed(folder_of(self.experiment.name) / "trials"
                            ) if not self.apart else self.packed     # anew: after hours
        there |= self.store.of(f"{self.experiment.name}.%")
        return write_packed(self.folder / "trials", there.values())

    def run(self) -> None:
        """Run the experiment; write and name what changed: record, figures, trials."""
        options = self.options
        command = " ".join(
            [f"python3 -m experiments.{self.experiment.name}"]
            + ["--smoke"] * options.smoke + ["--fresh"] * options.fresh
            + ["--only", *options.only] * bool(options.only))
        self.folder.mkdir(parents=True, exist_ok=True)
        source = Training(self.store, self.packed, options.jobs, options.cluster,
                          options.retry_failed)
        record, changed = self.lab(source).record(command), []
        path = self.folder / "record.json"
        if self.apart or not is_same(record, path):
            write_json(path, record)
            changed.append(path)
        changed += write_figures(self.experiment, self.folder)
        if self.pack():
            changed.append(self.folder / "trials")
        print(", ".join(path.relative_to(hn.HERE).as_posix() for path in changed)
              or "nothing left to do; no file was changed")
        if options.fresh:           # or the next one would have nothing to train
            self.store.path.unlink(missing_ok=True)

    def sample(self, count: int) -> bool:
        """Train the cheapest trials again and compare -> whether nothing differs."""
        from experiments.lab.recheck import compare_again
        replay = Replay(self.packed)
        self.lab(replay).record("")
        chosen = sorted(replay.asked, key=lambda name: self.packed[name].seconds)
        return compare_again(self.lab(replay), chosen[:count],
                             Store(self.scratch / "trials.sqlite"), self.options.jobs)


def is_same(record: dict, path: Path) -> bool:
    """Whether the file holds this record already, made from a clean checkout: where
    only the environment differs, the older one stands."""
    try:
        there, _ = load_record(path)
    except RecordError:
        return False
    return (there["env"].get("git_dirty") is False
            and there | {"env": None} == record | {"env": None})


@contextmanager
def failing_in_a_line(program: str, kept: str = "") -> Iterator[None]:
    """What is wrong with data, records, trials and files ends the process with 1 and
    one line on stderr; Ctrl-C, and a signal that ends it, with their number, and the
    words on what is kept."""
    prepare_streams()
    try:
        with ended_by_signals():
            yield
    except (hn.DataError, RecordError, StoreError, OSError) as error:
        sys.exit(f"{program}: {error}")
    except KeyboardInterrupt as error:
        say(f"\n{program}: interrupted{kept}")
        sys.exit(128 + getattr(error, "number", signal.SIGINT))


def main(name: str, argv: Sequence[str] | None = None) -> None:
    """Run the command line of the experiment of that name."""
    experiment = get(name)      # by its name: as __main__ its functions would be others
    parser = build_parser(experiment)
    options = parser.parse_args(argv)
    if options.only and not options.fresh:
        parser.error("--only is for --fresh")
    kept = "" if options.smoke or options.recheck else "; finished trials are kept"
    with (failing_in_a_line(f"experiments.{name}", kept),
          tempfile.TemporaryDirectory(prefix="highway-networks-") as scratch):
        work = Work(experiment, options, Path(scratch))
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
