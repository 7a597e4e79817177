"""The command line of an experiment.

    python3 -m experiments.NAME     runs what is missing and makes record.json, the
                                    figures and trials/ in results/NAME; changes no file
                                    where nothing is left to do
        --fresh                     trains all trials anew, into runs/NAME
        --plot                      only draws, from the record
        --pack                      only packs the trials that are finished
        --smoke                     all of it in seconds, on what is shipped, into
                                    runs/smoke/NAME
        and flags of its own, if `Experiment.more` has any

What is packed counts as finished: a fresh clone goes on where the committed trials end.
A run drops packed trials that the plan no longer asks for.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import highway_networks as hn
from experiments.lab.experiment import (
    Experiment,
    Lab,
    Training,
    failing_in_a_line,
    folder_of,
    get,
    load_record,
    write_figures,
)
from experiments.lab.trials import Store, read_packed, write_packed
from highway_suite.files import expanded, write_json
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
    mode.add_argument("--plot", action="store_true", help="draw the record again")
    mode.add_argument("--pack", action="store_true", help="pack the finished trials")
    for flag, (function, words) in experiment.more.items():
        mode.add_argument(flag, dest="more", action="store_const", const=function,
                          help=words)
    parser.set_defaults(more=None)
    parser.add_argument("--data-dir", metavar="FOLDER", type=expanded,
                        help="of the data set's files")
    parser.add_argument("--jobs", type=in_range(int, 1, 1024), metavar="N",
                        help="processes (default: one per core)")
    parser.add_argument("--cluster", metavar="ADDRESS", help="of a Dask scheduler, "
                        "tcp://HOST:PORT, whose workers run the trials instead")
    return parser


def run(experiment: Experiment, options: argparse.Namespace) -> None:
    """Run the experiment; write and name what changed: record, figures, trials. Or only
    pack what is finished, whether or not the plan asks for it."""
    name, smoke, fresh = experiment.name, options.smoke, options.fresh
    runs = hn.HERE / "runs"
    folder = (runs / "smoke" / name if smoke else runs / name if fresh else
              folder_of(name))
    store = Store((folder if fresh else runs) / "trials.sqlite")
    packed = {} if smoke or fresh else read_packed(folder_of(name) / "trials")
    if options.pack:
        write_packed(folder / "trials", (store.of(f"{name}.") | packed).values())
        return
    flags = " --smoke" * smoke + " --fresh" * fresh
    folder.mkdir(parents=True, exist_ok=True)
    source = Training(None if smoke else store, packed, options.jobs, options.cluster)
    lab = Lab(experiment, source, smoke=smoke,
              data_dir=None if smoke else options.data_dir)
    record, changed = lab.record(f"python3 -m experiments.{name}{flags}"), []
    path = folder / "record.json"
    if smoke or fresh or not is_same(record, path):
        write_json(path, record)
        changed.append(path)
    changed += write_figures(experiment, folder)
    if write_packed(folder / "trials", source.asked.values()):
        changed.append(folder / "trials")
    print(", ".join(path.relative_to(hn.HERE).as_posix() for path in changed)
          or "nothing left to do; no file was changed")
    if fresh:               # or the next one would have nothing to train
        store.path.unlink(missing_ok=True)


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
    options = build_parser(experiment).parse_args(argv)
    kept = "" if options.smoke else "; finished trials are kept"
    with failing_in_a_line(f"experiments.{name}", kept):
        if options.plot:
            for path in write_figures(experiment, folder_of(name), anew=True):
                print(path.relative_to(hn.HERE).as_posix())
        elif options.more:
            options.more(options.data_dir)
        else:
            run(experiment, options)
