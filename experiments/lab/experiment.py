"""An experiment: its plan, its trials, its record, its claims and its figures.

A module experiments/NAME.py, or a package, has an `EXPERIMENT`; command.py runs it.
"""

from __future__ import annotations

import importlib
import logging
import math
import signal
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from dataclasses import field as default
from pathlib import Path
from typing import Any

from PIL import Image

import highway_networks as hn
from experiments import NAMES
from experiments.lab.judging import Claim, judge
from experiments.lab.running import describer, run_trials, seconds_of
from experiments.lab.trials import Request, Store, StoreError, Trial, read_packed
from highway_suite.datasets import content_hash, load
from highway_suite.files import parse_json, to_json, write_file
from highway_suite.records import RecordError, environment, field, read_with_hash, sound
from highway_suite.terminal import prepare_streams, say
from highway_suite.workers import ended_by_signals

SCHEMA, SCHEMA_VERSION = "highway-networks/experiment", 2
HEADER = {"experiment": str, "command": str, "plan": dict, "env": dict, "claims": list}


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """One question: how to answer it, how to judge and how to draw the answer."""

    name: str               # of its module in experiments/, and of its folder
    doc: str | None         # the module's docstring; its first line is the question
    plan: dict              # as JSON: "dataset" and all else that it goes by
    smoke: dict             # what changes in the plan for --smoke
    run: Callable[[Lab], dict]              # -> the record's fields after the header
    claims: Callable[[dict], Collection[Claim]] = lambda record: ()
    figures: Mapping[str, Callable] = default(default_factory=dict)
                            # file's name -> draw(record) -> Figure, in `style`
    more: Mapping[str, tuple[Callable, str]] = default(default_factory=dict)
                            # its own flags -> (f(data_dir), help)
    load: Callable = load                   # (data set's name, folder or None) -> data
    content: Callable = content_hash        # data set's name -> hash of its content

    @property
    def question(self) -> str:
        """What it asks, in a line; nothing under python -OO."""
        return (self.doc or "").partition("\n")[0]

    @property
    def minutes(self) -> int:
        """That the committed trials take on two cores. Raises StoreError."""
        trials = read_packed(folder_of(self.name) / "trials")
        return math.ceil(seconds_of(trials.values()) / 60)


@contextmanager
def for_figures() -> Iterator[None]:
    """For the imports that only figures need. Matplotlib refuses its own where it finds
    no folder to write to; then lists and rechecks go on without, and `draw` says so."""
    logging.getLogger("matplotlib").setLevel("ERROR")
    with suppress(OSError):
        yield


def get(name: str) -> Experiment:
    """The experiment of that name."""
    return importlib.import_module(f"experiments.{name}").EXPERIMENT


# --------------------------------------------------------------------------------------
# Where trials come from


@dataclass
class Training:
    """Trials are run where none is finished; `asked` are all that were asked for, by
    their hashes."""

    store: Store | None                     # None keeps no trial
    finished: Mapping[str, Trial]           # packed ones
    jobs: int | None = None
    cluster: str | None = None
    asked: dict[str, Trial] = default(default_factory=dict)

    def trials(self, requests: Sequence[Request], *source: Any) -> list[Trial]:
        """source: load and folder of `run_trials`. Raises StoreError, hn.DataError."""
        trials = run_trials(requests, self.store, *source, jobs=self.jobs,
                            cluster=self.cluster, finished={**self.asked,
                                                            **self.finished})
        self.asked |= {trial.hash: trial for trial in trials}
        return trials


@dataclass
class Replay:
    """No trial is run: what is not finished is an error. `asked` are the requests, by
    the hashes of their trials."""

    finished: Mapping[str, Trial]
    asked: dict[str, Request] = default(default_factory=dict)

    def trials(self, requests: Sequence[Request], *source: Any) -> list[Trial]:
        """Raises StoreError."""
        trials = []
        for request in requests:
            trial = request.found_in(self.finished)
            if trial is None:
                name = request.function.declared.name.split(".")[0]
                raise StoreError(
                    f"a trial is not there; python3 -m experiments.{name} trains it: "
                    + describer([request.config])(request.config))
            trials.append(trial)
            self.asked[trial.hash] = request
        return trials


class Lab:
    """An experiment at work: its plan and where its trials come from."""

    source: Any         # Training, or for a recheck Replay

    def __init__(self, experiment: Experiment, source: Training | Replay, *,
                 smoke: bool = False, data_dir: Path | None = None):
        self.experiment, self.source, self.data_dir = experiment, source, data_dir
        self.plan = experiment.plan | (experiment.smoke if smoke else {})

    def trials(self, function: Callable, configs: Mapping[Any, dict],
               dataset: str | None = None) -> dict[Any, Trial]:
        """{key: config} -> {key: finished Trial} of function(config, data), in order.

        function: declared by `trial_function`; its config says all that its result
            depends on, but for the data set.
        dataset: the plan's unless named.
        Raises StoreError where a trial failed: no verdict may rest on what did not run.
        """
        about = None
        if function.declared.needs_data:        # type: ignore[attr-defined]
            name = dataset or self.plan["dataset"]
            about = {"name": name, "content": self.experiment.content(name)}
        requests = [Request(function, about, as_read(config))
                    for config in configs.values()]
        trials = self.source.trials(requests, self.experiment.load, self.data_dir)
        for trial in trials:
            if trial.status == "failed":
                raise StoreError(f"trial {trial.hash} failed: {trial.error}. Mend that "
                                 "and run again")
        return dict(zip(configs, trials, strict=True))

    def by_seed(self, function: Callable, configs: Mapping[Any, dict],
                seeds: Sequence[int], dataset: str | None = None
                ) -> dict[Any, list[Trial]]:
        """The same of each config with every seed, {key: the trials of the seeds}."""
        trials = self.trials(function, {
            (key, seed): config | {"seed": seed}
            for key, config in configs.items() for seed in seeds}, dataset)
        return {key: [trials[key, seed] for seed in seeds] for key in configs}

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
    return read_with_hash(path, f"python3 -m experiments.{path.parent.name}",
                          check_header)


def check_header(record: Any) -> None:
    """Raise RecordError, naming the field, unless this is an experiment's record."""
    for name, kind in HEADER.items():
        field(record, name, kind)
    if (record.get("schema"), record.get("schema_version")) != (SCHEMA, SCHEMA_VERSION):
        raise RecordError("field 'schema' is not that of an experiment's record, "
                          f"version {SCHEMA_VERSION}")


def all_records() -> dict[str, dict]:
    """The records of all experiments, {name: record}. Raises RecordError."""
    return {name: load_record(folder_of(name) / "record.json")[0] for name in NAMES}


def all_claims(records: Mapping[str, dict]) -> list[dict]:
    """The judged claims of records, each with its "experiment". Raises RecordError
    where two have the same name."""
    found: dict[str, dict] = {}
    for name, record in records.items():
        for claim in record["claims"]:
            if claim["name"] in found:
                raise RecordError(f"two claims are called {claim['name']}: of "
                                  f"{found[claim['name']]['experiment']} and {name}")
            found[claim["name"]] = claim | {"experiment": name}
    return list(found.values())


def draw(experiment: Experiment, record: dict, digest: str) -> dict[str, bytes]:
    """{name of the file: PNG} of a record's figures, each naming the record's hash."""
    from highway_suite.figures import saved, style  # nothing else needs matplotlib
    with sound(experiment.name), style():
        return {f"{name}.png": saved(make(record), "png",
                                     f"experiments.{experiment.name}",
                                     record["command"], digest)
                for name, make in experiment.figures.items()}


def drawn_of(path: Path) -> str | None:
    """The SHA-256 of the record that a picture shows; None if there is no such."""
    try:
        with Image.open(path) as picture:
            return picture.info.get("Record-SHA-256")
    except Exception:       # of one that is damaged Pillow raises many kinds
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


def state_of(experiment: Experiment) -> str:
    """What is there of an experiment's results, in a few words."""
    folder = folder_of(experiment.name)
    if not (folder / "record.json").exists():
        return "none"
    try:
        record, digest = load_record(folder / "record.json")
        if record["plan"] != as_read(experiment.plan):
            return "of another plan"
        if record["claims"] != as_read(judged(experiment, record)):
            return "with other verdicts"
    except RecordError:
        return "damaged"
    return ("complete" if all(drawn_of(folder / f"{name}.png") == digest
                              for name in experiment.figures) else "not drawn")


@contextmanager
def failing_in_a_line(program: str, kept: str = "") -> Iterator[None]:
    """End the process with one line on stderr. Wrong data, records, trials or files
    give status 1. Ctrl-C, or a signal that ends it, gives 128 and its number, and says
    what is kept. Where nobody reads stdout any more, nothing is said."""
    prepare_streams()
    try:
        with ended_by_signals():
            yield
            sys.stdout.flush()
    except BrokenPipeError:
        say("", sys.stdout)     # or Python fails again as it ends
        sys.exit(1)
    except (hn.DataError, RecordError, StoreError, OSError) as error:
        sys.exit(f"{program}: {error}")
    except KeyboardInterrupt as error:
        say(f"\n{program}: interrupted{kept}")
        sys.exit(128 + (error.args or (signal.SIGINT,))[0])
