"""The whole command line of highway_networks.py: that of the machine, and data sets
that are fetched, nets side by side, threads, checkpoints, records named by settings."""

from __future__ import annotations

import argparse
import hashlib
import shlex
import sys
from collections.abc import Callable
from concurrent.futures import BrokenExecutor
from dataclasses import fields, replace
from pathlib import Path

import highway_networks as hn
from highway_suite.checkpoints import Checkpoint, CheckpointError, of_training
from highway_suite.datasets import load_as_asked
from highway_suite.files import check_target
from highway_suite.records import COMMAND, environment, write_record
from highway_suite.schema import JUST_GUESSING, NAME, check
from highway_suite.terminal import in_range, prepare_streams, say
from highway_suite.workers import (
    ended_by_signals,
    find_joblib,
    processes_for,
    start_workers,
    train_all,
)

PROGRAM = COMMAND.split()[-1]
PLAN = {item.name for item in fields(hn.Config)} | {    # what makes a run
    "seeds", "depths", "blocks", "plain_hidden", "dataset"}

# --------------------------------------------------------------------------------------
# Flags


def thread_count(text: str) -> int | None:
    """An argparse type: a number of threads, or auto, which is None."""
    return None if text == "auto" else in_range(int, 1, 1024)(text)


def build_parser() -> argparse.ArgumentParser:
    """The machine's command line and what the suite adds."""
    parser = hn.build_parser(PROGRAM)
    parser.add_argument("--dataset", choices=("auto", *hn.DATASETS), default="auto",
                        help="auto: MNIST, or with a warning the shipped digits where "
                             "it cannot be had (default: auto)")
    parser.add_argument("--jobs", type=in_range(int, 1, 1024), metavar="N",
                        default=None, help="processes (default: one per core, if that "
                        "is worth their start)")
    parser.add_argument("--threads", type=thread_count, metavar="N", default=None,
                        help="of BLAS, in one process: a number, or auto, all for one "
                        f"net of {hn.WIDE} units or more, else 1 (default: auto)")
    parser.add_argument("--checkpoint", metavar="FILE", type=hn.path_of, default=None,
                        help="go on from where an interrupted run, or one of fewer "
                        "--epochs, has got to; each net has FILE with its name added")
    parser.add_argument("--anyway", action="store_true", default=False,
                        help="go on also where the checkpoint was made by another "
                        "processor, library or number of threads, and say so in "
                        "the record")
    parser.add_argument("--no-save", action="store_true", default=False,
                        help="write no record")
    parser.add_argument("--version", action="version",
                        version=f"highway-networks {hn.__version__}")
    return parser


def check_flags(settings: dict, own: dict, fail: Callable) -> list[hn.Config]:
    """The nets to train. Fail where a value is not allowed, or flags do not go
    together, or cannot be done here, or a block has a name that no record can hold."""
    try:
        for block in settings["blocks"]:
            check(block, NAME, "--blocks")
        configs = hn.make_configs(settings)
    except ValueError as error:
        fail(str(error))
    check_out(own["checkpoint"], fail, "--checkpoint")
    if own["no_save"] and own["out"]:
        fail("argument --out: not allowed with argument --no-save")
    if (own["jobs"] or 1) > 1 and find_joblib() is None:
        fail("argument --jobs: more than 1 needs joblib")
    if (own["threads"] or 1) > 1 and hn.threadpoolctl is None:
        fail("argument --threads: more than 1 needs threadpoolctl")
    if (own["threads"] or 1) > 1 and (own["jobs"] or 1) > 1:
        fail("argument --threads: not allowed with more than one of --jobs")
    return configs


def fit_to_data(settings: dict, given: dict, fail: Callable) -> dict:
    """`hn.cap_images`, but fail where more were asked for, or a batch takes more."""
    capped = hn.cap_images(settings)
    for name, most in (("n_train", "n_train"), ("n_test", "n_test"),
                       ("batch", "n_train")):
        if (given if name == most else capped).get(name, 0) > capped[most]:
            fail(f"argument --{name.replace('_', '-')}: {settings[name]} is more than "
                 f"the {capped[most]} images of {settings['dataset']}")
    return capped


def flags_of(settings: dict) -> list[tuple[str, str]]:
    """The flags that make this run: the seeds, and what differs from the headline."""
    headline = hn.cap_images(hn.resolve({"dataset": settings["dataset"]}))
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


def check_out(out: Path | None, fail: Callable, flag: str = "--out") -> None:
    """Fail before the start where a file cannot be written, or its folder is missing.
    """
    try:
        if out:
            check_target(out)
            if not out.parent.is_dir() and out.parent != Path("runs"):
                raise OSError(2, f"{out.parent} is not a folder")
    except OSError as error:
        fail(f"argument {flag}: {out}: {error.strerror}")


# --------------------------------------------------------------------------------------
# The run


def obtain(dataset: str, data_dir: Path | None, jobs: int) -> tuple[str, hn.Data]:
    """The data set's name and Data, fetched if need be while processes start."""
    starting = start_workers(jobs)
    try:
        return load_as_asked(dataset, data_dir)
    except hn.MissingData as error:
        raise hn.MissingData(f"{error}, or use --dataset digits") from error
    finally:
        list(starting)


def checkpoint_of(path: Path, config: hn.Config, data: hn.Data,
                  anyway: bool) -> Checkpoint:
    """FILE.npz -> the checkpoint FILE-highway-30-0.npz of a net."""
    name = path.name.removesuffix(".npz")
    name = f"{name}-{config.block}-{config.depth}-{config.seed}.npz"
    return of_training(path.with_name(name), config, data, anyway)


def train(configs: list[hn.Config], data: hn.Data, own: dict, jobs: int
          ) -> tuple[list[dict], int | None]:
    """The arms and their number of BLAS threads."""
    subsets = {seed: hn.take_subset(data, replace(configs[0], seed=seed))
               for seed in {config.seed for config in configs}}
    file = own["checkpoint"]
    tasks = [(config, subsets[config.seed], file and checkpoint_of(
        file, config, subsets[config.seed], own["anyway"])) for config in configs]
    widest = max(config.hidden for config in configs)
    with hn.blas_threads(1 if jobs > 1 else hn.threads_for(widest, own["threads"])
                         ) as threads:
        return train_all(tasks, jobs), threads


def advice_on(record: dict) -> str:
    """What to try where a highway net guesses, as the pictures judge that; what the
    headline's contrast rests on; or nothing."""
    lines = []
    for run in record["runs"]:
        arm = run.get("highway")
        if not arm or (arm["final_test_acc"] or 0) > arm["chance"] + JUST_GUESSING:
            continue
        bias = arm.get("gate_bias", record["config"]["gate_bias"])
        auto = hn.initial_bias("auto", arm["depth"])
        other = (f"--gate-bias auto ({auto:.3g}) instead of {bias:g}" if bias > auto
                 else f"a more negative --gate-bias than {bias:.3g}")
        lines.append(f"{arm['label']}, seed {arm['seed']}, did not learn: try {other}, "
                     "or a smaller --lr")
    headline = hn.resolve({}) | {"seeds": record["seeds"]}
    if record["config"] == headline:
        lines.append("This plain net fails by its initialisation and learning rate at "
                     "least as much as by its depth: python3 -m experiments.headline "
                     "shows it.")
    return "\n".join(lines)


def finish(record: dict, arms: list[dict], out: Path | None) -> None:
    """Write the record, if it has a place, and only then print what came out: a broken
    stream cannot lose it. Exits with 1 and a line that says why, if nothing could be
    written."""
    error, told = None, ""
    try:
        if out:
            out.parent.mkdir(exist_ok=True)
            told = (f"wrote {out}" if write_record(out, record) else
                    f"{out} has these numbers already and is left as it is")
    except OSError as caught:
        error = caught
    said = say(hn.table_of(arms), sys.stdout)
    if error:
        sys.exit(f"{PROGRAM}: {out}: {error.strerror}; nothing written")
    if out:
        say(told, sys.stdout)
    elif not said:
        sys.exit(1)
    if advice := advice_on(record):
        say(advice)


def main(argv: list[str] | None = None) -> dict:
    """Run the command line -> the record. Exits with 2 for a wrong flag, 1 for wrong
    data or a failed write, 130 after Ctrl-C."""
    parser = build_parser()
    own = vars(parser.parse_args(argv))
    given = {name: own.pop(name) for name in PLAN & set(own)}
    settings = hn.resolve(given, own["quick"])
    check_out(own["out"], parser.error)
    configs = check_flags(settings, own, parser.error)
    alone = (own["threads"] or 1) > 1
    jobs = min(own["jobs"] or (1 if alone else processes_for(configs)), len(configs))
    try:
        settings["dataset"], data = obtain(settings["dataset"], own["data_dir"], jobs)
        settings = fit_to_data(settings, given, parser.error)
        flags = flags_of(settings)
        place = None if own["no_save"] else own["out"] or default_out(flags)
        check_out(place, parser.error)
        arms, threads = train(hn.make_configs(settings), data, own, jobs)
    except (hn.DataError, CheckpointError) as error:
        sys.exit(f"{PROGRAM}: {error}")
    except OSError as error:        # of a checkpoint
        sys.exit(f"{PROGRAM}: {error.filename}: {error.strerror}; no record written")
    except (BrokenExecutor, MemoryError):
        sys.exit(f"{PROGRAM}: a process was killed or lacks memory; no record written. "
                 "Try --jobs 1, or smaller nets")
    except KeyboardInterrupt:
        say(f"\n{PROGRAM}: interrupted; no record written")
        sys.exit(130)
    record = hn.make_record(settings, arms, command_of(flags, own["out"]),
                            environment(threads))
    finish(record, arms, place)
    return record


def run_as_program() -> None:
    """`main` for a process of its own: a signal that ends it cleans up as Ctrl-C does,
    and closed streams do no harm."""
    prepare_streams()
    with ended_by_signals(lambda number: SystemExit(128 + number)):
        main()
