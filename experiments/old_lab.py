"""What all experiments share: command line, files, trials, record and picture.

An experiment is a module NAME.py that makes an `Experiment` and hands it to `main`:

    python3 -m experiments.NAME     goes on where the trials end, and makes record.json,
                                    figure.png and trials/ in results/NAME; changes no
                                    file where nothing is left to train
        --fresh [--only KEY...]     trains anew, into runs/NAME: all trials, or those of
                                    results/NAME/trials/KEY.jsonl
        --recheck N [--seed S]      trains N of the finished trials again, the cheapest
                                    or drawn, and says what differs
        --plot [--format svg]       only draws, from the record; svg, pdf into runs/NAME
        --pack                      only packs the trials that are finished
        --dataset NAME              asks it of other data, where it can: into runs/NAME
        --smoke                     all of it in seconds, on what is shipped, into
                                    runs/smoke/NAME

Trials lie in runs/NAME/store as they finish, and packed in results/NAME/trials. What is
packed counts as finished: a fresh clone goes on where the committed trials end.
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from PIL import Image

import highway_networks as hn
from experiments.recheck import Planned, cheapest, recheck
from experiments.store import (
    StoreError,
    Trial,
    hash_of,
    merged,
    open_store,
    pack_trials,
    read_packed,
    scratch_in,
)
from experiments.trials import add_flags, run_trials
from highway_suite.datasets import load as obtain
from highway_suite.figures import FORMATS, LIGHT, saved, style
from highway_suite.files import (
    parse_json,
    path_of,
    read_file,
    to_json,
    write_file,
    write_json,
)
from highway_suite.records import environment
from highway_suite.schema import (
    DICT,
    LINE,
    NAME,
    VERDICTS,
    RecordError,
    check_version,
    field,
    whole,
)
from highway_suite.terminal import in_range, prepare_streams, say
from highway_suite.workers import ended_by_signals

SCHEMA, SCHEMA_VERSION = "highway-networks/experiment", 1
CLAIM = {"section", "claim", "paper", "ours", "n", "holds"}     # fields of every one


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """One question: how to answer it and how to draw the answer."""

    name: str           # of its module, "experiments.NAME"
    doc: str | None     # the module's docstring; its first line is the question
    minutes: int        # that a run takes on two cores, with nothing finished
    protocol: dict      # its plan, as JSON: "dataset" and whatever else it goes by
    smoke: dict         # what changes in it for --smoke
    run: Callable       # run(lab) -> the record's fields after `header`
    draw: Callable      # draw(record) -> Figure, in `style`
    pack_by: Callable   # config -> the name of the packed file of its trial
    check: Callable | None = None       # check(record) -> its claims, by `claim`
    besides: float = 0  # seconds that its long trials take after their epochs
    others: Mapping[str, bool] | None = None    # what --dataset may name, and whether
                                                # `check` speaks of that too

    @property
    def question(self) -> str:
        """What it asks, in a line; nothing under python -OO."""
        return (self.doc or "").partition("\n")[0]


class Lab:
    """An experiment at work: its options, protocol, data and files.

    working: where unfinished work lies, runs/ unless it is for this run alone, as that
    of a smoke run and of a recheck is: two may run at a time.
    """

    def __init__(self, experiment: Experiment, options: argparse.Namespace,
                 working: Path | None = None):
        self.experiment, self.options = experiment, options
        self.name = experiment.name.rpartition(".")[2]
        self.protocol = experiment.protocol | (
            experiment.smoke if options.smoke else
            {"dataset": options.dataset} if options.dataset else {})
        runs = hn.HERE / "runs" / ("smoke" if options.smoke else options.dataset or "")
        self.working = working or runs
        self.apart = bool(options.smoke or options.fresh or options.dataset)
        self.folder = (runs if self.apart else hn.HERE / "results") / self.name
        self.record = self.folder / "record.json"
        self.figure = self.folder / "figure.png"
        self.packed = self.folder / "trials"
        self.store = self.working / self.name / ("fresh" if options.fresh else "store")
        self.trials_protocol = {"experiment": self.name,
                                "dataset": self.protocol["dataset"]}
        self.trained: list[Trial] = []          # by this run
        self.planned: list[Planned] = []        # that a recheck may choose from

    def packed_files(self) -> list[Path]:
        """The packed trials that count as finished: none for who trains anew, but for
        those that --only does not name."""
        if self.options.smoke or self.options.dataset:
            return []
        files = sorted((hn.HERE / "results" / self.name / "trials").glob("*.jsonl"))
        if not self.options.fresh:
            return files
        only = set(self.options.only or ())
        if unknown := only - {path.stem for path in files}:
            raise StoreError(f"--only {min(unknown)} is none of "
                             f"{', '.join(path.stem for path in files) or 'ours'}")
        return [path for path in files if only and path.stem not in only]

    @cached_property
    def packed_before(self) -> dict[str, Trial]:
        """The packed trials that count as finished, as this run found them. Raises
        StoreError."""
        return read_packed(self.packed_files(), self.trials_protocol)

    def load_data(self) -> hn.Data:
        """The protocol's data set, as read. Raises hn.DataError."""
        return obtain(self.protocol["dataset"],
                      None if self.options.smoke else self.options.data_dir)

    def trials(self, train: Callable, configs: Mapping[Any, dict],
               data: Any) -> dict[Any, Trial]:
        """`run_trials` with the experiment's store, packed files and flags, {key:
        config} -> {key: Trial}, in this order. Raises StoreError where a trial failed:
        no verdict may rest on what did not run.

        A config says all that its result depends on, but for the data set: so a plan
        that is extended keeps the trials that are finished. A recheck trains nothing
        here, where trials are committed: they must be all there.
        """
        options, there = self.options, self.packed_before
        if options.recheck and there:
            missing = [config for config in configs.values()
                       if hash_of(config) not in there]
            if missing:
                raise StoreError(f"{len(missing)} of {len(configs)} trials are not in "
                                 f"{self.packed}. Make them with: "
                                 f"python3 -m {self.experiment.name}")
            trials = [there[hash_of(config)] for config in configs.values()]
            known = {each.trial.hash for each in self.planned}
            once = {trial.hash: trial for trial in trials if trial.hash not in known}
            self.planned += [Planned(trial, train, data) for trial in once.values()]
        else:
            trials = run_trials(train, configs.values(), self.store,
                                protocol=self.trials_protocol, data=data,
                                packed=there.values(), jobs=options.jobs,
                                cluster=options.cluster, report=self.trained.append,
                                retry_failed=options.retry_failed)
        for trial in trials:
            if trial.status == "failed":
                raise StoreError(f"trial {trial.hash[:8]} failed: {trial.error}. Mend "
                                 "that and run again with --retry-failed")
        return dict(zip(configs, trials, strict=True))

    def pack(self) -> tuple[int, bool]:
        """Pack the trials that are finished, or were packed before, and did not fail,
        one file for each name that pack_by gives -> their number, and whether a file
        was written. Raises StoreError."""
        pack_by = self.experiment.pack_by
        packed = trials = read_packed(self.packed_files(),     # anew: after hours
                                      self.trials_protocol)
        groups: dict[str, list[Trial]] = {}
        if self.store.exists():
            with open_store(self.store, self.trials_protocol) as (_, there):
                trials = merged(packed, there)
        trials = {name: trial for name, trial in trials.items()
                  if trial.status != "failed"}      # which another machine may not
        for name in sorted(trials):
            groups.setdefault(pack_by(trials[name].config), []).append(trials[name])
        changed = [name for name, group in groups.items()
                   if self.apart or not (self.packed / f"{name}.jsonl").exists()
                   or any(packed.get(trial.hash) != trial for trial in group)]
        self.packed.mkdir(parents=True, exist_ok=True)
        if self.apart:
            for old in self.packed.glob("*.jsonl"):
                if old.stem not in groups:
                    old.unlink(missing_ok=True)
        for name in changed:
            pack_trials(self.packed / f"{name}.jsonl", self.trials_protocol,
                        groups[name])
        return len(trials), bool(changed)

    @property
    def command(self) -> str:
        """What makes these results."""
        flags = ["--smoke"] * self.options.smoke + ["--fresh"] * self.options.fresh
        if self.options.dataset:
            flags += ["--dataset", self.options.dataset]
        only = ["--only", *self.options.only] if self.options.only else []
        return " ".join(["python3 -m", self.experiment.name, *flags, *only])

    def header(self) -> dict:
        """The fields that every experiment's record begins with."""
        return {"schema": SCHEMA, "schema_version": SCHEMA_VERSION,
                "experiment": self.name, "command": self.command,
                "dataset": self.protocol["dataset"], "protocol": self.protocol,
                "env": environment()}

    def answer(self) -> dict:
        """Run the experiment -> its record, as its file gives it back."""
        record = self.header() | self.experiment.run(self)
        if self.experiment.check and (self.experiment.others or {}).get(
                self.options.dataset, True):
            record["claims"] = self.experiment.check(record)
        return as_read(record)


def as_read(value: Any) -> Any:
    """A value of JSON as its file gives it back."""
    return parse_json(to_json(value))


# --------------------------------------------------------------------------------------
# Records, pictures and the command line


def load_checked(path: Path, command: str, check: Callable | None = None, *,
                 schema: str, **fields: Any) -> tuple[dict, str]:
    """A record of this schema with these fields that passes check(record), and the
    SHA-256 of its file. Raises RecordError, one line: the file, what is wrong, and the
    command that makes it."""
    try:
        content = read_file(path)
        record = parse_json(content.decode())
        check_version(record, schema, SCHEMA_VERSION)
        for name, value in {"schema": schema, **fields}.items():
            if record.get(name) != value:
                raise ValueError(f"field {name!r} is not {value!r}")
        if check:
            check(record)
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{path}: {error}. Make it with: {command}") from error
    return record, hashlib.sha256(content).hexdigest()


def check_fields(record: dict) -> None:
    """Raise RecordError, naming the field, unless these are the fields that every
    record of an experiment has; what `run` adds to them, `sound` looks after."""
    for key, kind in (("schema_version", whole(1, SCHEMA_VERSION)), ("command", LINE),
                      ("dataset", NAME), ("protocol", DICT), ("env", DICT)):
        field(record, key, kind)
    for key in ("git", "git_dirty", "numpy", "blas_kernel"):
        if key not in record["env"]:
            raise RecordError(f"field 'env.{key}' is missing")
    claims = record.get("claims", [])
    if not isinstance(claims, list) or not all(
            isinstance(item, dict) and set(item) >= CLAIM for item in claims):
        raise RecordError("field 'claims' is not a list of claims with all of "
                          f"{', '.join(sorted(CLAIM))}")
    for i, item in enumerate(claims):
        for key in ("section", "claim"):
            field(item, key, LINE, f"claims[{i}].")
        if item["holds"] is not None and type(item["holds"]) is not bool:
            raise RecordError(f"field 'claims[{i}].holds' is {item['holds']!r:.40}")


def load_record(path: Path, command: str | None = None) -> tuple[dict, str]:
    """An experiment's NAME/record.json, made by that command, and the SHA-256 of the
    file. Raises RecordError."""
    name = path.parent.name
    return load_checked(path, command or f"python3 -m experiments.{name}",
                        check_fields, schema=SCHEMA, experiment=name)


@contextmanager
def sound(path: Path, command: str) -> Iterator[None]:
    """The body reads a record's own fields, of which each experiment has others: where
    one is missing or of another kind, that is a RecordError in one line."""
    try:
        yield
    except (LookupError, TypeError, AttributeError, ArithmeticError, ValueError
            ) as error:
        if isinstance(error, (RecordError, StoreError, hn.DataError)):
            raise
        raise RecordError(f"{path}: a field is missing or wrong ({error!r:.80}). Make "
                          f"it with: {command}") from error


def build_parser(experiment: Experiment) -> argparse.ArgumentParser:
    """The command line of an experiment."""
    parser = argparse.ArgumentParser(prog=f"python3 -m {experiment.name}",
                                     allow_abbrev=False,
                                     description=experiment.question)
    parser.add_argument("--plot", action="store_true",
                        help="draw the record again, run nothing")
    parser.add_argument("--format", choices=FORMATS, default="png", help="with --plot: "
                        "of the picture; svg and pdf go to runs")
    parser.add_argument("--pack", action="store_true",
                        help="pack the finished trials, run nothing")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--smoke", action="store_true", help="the whole path in "
                       "seconds, on what is shipped; its files go to runs/smoke")
    which.add_argument("--fresh", action="store_true", help="train anew, beside the "
                       "committed results: into runs; what is interrupted goes on")
    which.add_argument("--recheck", type=in_range(int, 1, 10**6), metavar="N",
                       help="train N of the finished trials again, the cheapest, and "
                            "compare")
    parser.add_argument("--seed", type=in_range(int, 0, 2**32), metavar="S",
                        help="with --recheck: draw the N trials by it")
    parser.add_argument("--data-dir", metavar="FOLDER", type=path_of,
                        help="of the data set's files")
    parser.set_defaults(dataset=None)
    if experiment.others:
        parser.add_argument("--dataset", choices=experiment.others, help="ask it of "
                            "another data set; its files go to runs/DATASET")
    parser.add_argument("--only", nargs="+", metavar="KEY", help="with --fresh: "
                        "only the trials of these files of results/NAME/trials")
    add_flags(parser)
    return parser


def is_same(record: dict, path: Path) -> bool:
    """Whether the file holds this record already, made from a clean checkout: where
    only the environment differs, the older one stands."""
    try:
        there, _ = load_record(path)
    except RecordError:
        return False
    return (there["env"]["git_dirty"] is False
            and there | {"env": None} == record | {"env": None})


def render(draw: Callable[[dict], Figure], record: dict, digest: str,
           title: str | None = None, kind: str = "png") -> bytes:
    """A record -> the bytes of its picture, which names the record's SHA-256."""
    with style(LIGHT):
        return saved(draw(record), kind, title, record["command"], digest)


def draw_record(lab: Lab, kind: str = "png") -> Path:
    """Draw the record that is there -> the picture's path; beside the record, it is a
    PNG."""
    record, digest = load_record(lab.record, lab.command)
    path = (lab.figure if kind == "png" else
            lab.working / lab.name / f"figure.{kind}")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, render(lab.experiment.draw, record, digest, lab.experiment.name,
                            kind))
    return path


def drawn_of(path: Path) -> str | None:
    """The SHA-256 of the record that a picture shows; None if there is no such."""
    try:
        with Image.open(path) as picture:
            return picture.info.get("Record-SHA-256")
    except OSError:
        return None


def state_of(experiment: Experiment, folder: Path) -> str:
    """What is there of an experiment's results, in a few words."""
    if not (folder / "record.json").exists():
        return "none"
    try:
        record, digest = load_record(folder / "record.json")
        if record["protocol"] != as_read(experiment.protocol):
            return "of another protocol"
        with sound(folder / "record.json", f"python3 -m {experiment.name}"):
            verdicts = experiment.check(record) if experiment.check else []
        if record.get("claims", []) != as_read(verdicts):
            return "with other verdicts"
    except RecordError:
        return "damaged"
    return "complete" if drawn_of(folder / "figure.png") == digest else "not drawn"


def run_and_write(lab: Lab) -> None:
    """Run the experiment; write and name what changed: record, picture, trials."""
    anew = lab.options.smoke or lab.options.fresh
    lab.folder.mkdir(parents=True, exist_ok=True)
    try:
        record, changed = lab.answer(), []
    except hn.DataError as error:       # which to train anew would take
        if lab.apart or state_of(lab.experiment, lab.folder) != "complete":
            raise
        print(f"the results are complete; no file was changed. To train anew: {error}")
        return
    if anew or not is_same(record, lab.record):
        write_json(lab.record, record)
        changed.append(lab.record)
    if drawn_of(lab.figure) != load_record(lab.record)[1]:
        draw_record(lab)
        changed.append(lab.figure)
    if lab.pack()[1]:
        changed.append(lab.packed)
    if lab.options.fresh:       # or the next one would have nothing to train
        shutil.rmtree(lab.store, ignore_errors=True)
    for checkpoint in (lab.store / "checkpoints").glob("*.npz"):
        if (lab.store / f"{checkpoint.stem}.json").exists():
            checkpoint.unlink(missing_ok=True)
    if lab.options.dataset:         # whose claims no ledger collects
        for item in record.get("claims", []):
            print(f"{VERDICTS[item['holds']]}: {item['section']}, {item['claim']}")
    if not lab.trained and not anew:
        print("nothing left to train" + "; no file was changed" * (not changed))
    if changed:
        print(", ".join(str(path.relative_to(hn.HERE)) for path in changed))


def work(lab: Lab) -> None:
    """What the options ask for."""
    options = lab.options
    if options.pack:
        print(f"packed {lab.pack()[0]} trials in {lab.packed.relative_to(hn.HERE)}")
    elif options.recheck:
        record, _ = load_record(lab.record)
        if not recheck(lab, record, lambda planned: cheapest(
                planned, options.recheck, options.seed)):
            sys.exit(1)
    elif options.plot:
        with sound(lab.record, lab.command):
            path = draw_record(lab, options.format)
        print(path.relative_to(hn.HERE))
    else:
        run_and_write(lab)


def parse_options(experiment: Experiment, argv: Sequence[str] | None
                  ) -> argparse.Namespace:
    """The options, those refused that mean nothing together."""
    parser = build_parser(experiment)
    options = parser.parse_args(argv)
    if options.only and (options.dataset or not options.fresh):
        parser.error("--only is for --fresh, without --dataset")
    if options.recheck and (options.cluster or options.retry_failed):
        parser.error("--cluster and --retry-failed are not for --recheck")
    if options.format != "png" and not options.plot:
        parser.error("--format is for --plot")
    if options.seed is not None and not options.recheck:
        parser.error("--seed is for --recheck")
    if options.dataset and (options.smoke or options.recheck):
        parser.error("--dataset is neither for --smoke nor for --recheck")
    if options.pack and (options.smoke or options.fresh):
        parser.error("--pack is neither for --smoke nor for --fresh")
    modes = [name for name in ("plot", "pack", "recheck") if getattr(options, name)]
    if len(modes) > 1:
        parser.error(f"--{modes[0]} and --{modes[1]}: one at a time")
    return options


@contextmanager
def failing_in_a_line(name: str, kept: str = "") -> Iterator[None]:
    """What is wrong with data, records, trials and files ends the process with 1 and
    one line on stderr; Ctrl-C, and a signal that ends it, with their number, and the
    words on what is kept."""
    prepare_streams()
    try:
        with ended_by_signals():
            yield
    except (hn.DataError, RecordError, StoreError, OSError) as error:
        sys.exit(f"{name}: {error}")
    except KeyboardInterrupt as error:
        say(f"\n{name}: interrupted{kept}")
        sys.exit(128 + getattr(error, "number", signal.SIGINT))


def main(experiment: Experiment, argv: Sequence[str] | None = None) -> dict | None:
    """Run the command line; return the record, if there is one."""
    options = parse_options(experiment, argv)
    alone = options.recheck or options.smoke and not options.plot
    kept = "" if alone else "; finished trials are kept"
    with failing_in_a_line(experiment.name, kept), ExitStack() as stack:
        lab = Lab(experiment, options, stack.enter_context(
            scratch_in(hn.HERE / "runs" / "smoke")) if alone else None)
        work(lab)
        return None if options.pack else load_record(lab.record)[0]
