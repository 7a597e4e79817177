"""The whole command line of highway_networks.py: that of the machine, and data sets
that are fetched, nets side by side, threads, checkpoints."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import BrokenExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np

import highway_networks as hn
from highway_suite.checkpoints import Checkpoint, CheckpointError, data_hash
from highway_suite.datasets import load_as_asked
from highway_suite.schema import JUST_GUESSING, NAME, check
from highway_suite.terminal import prepare_streams
from highway_suite.workers import (
    ended_by_signals,
    find_joblib,
    processes_for,
    start_workers,
    train_all,
)


def thread_count(text: str) -> int | None:
    """An argparse type: a number of threads, or auto, which is None."""
    return None if text == "auto" else hn.in_range(int, 1, 1024, ("auto",))(text)


def build_parser() -> argparse.ArgumentParser:
    """The machine's command line and what the suite adds."""
    parser = hn.build_parser()
    parser.add_argument("--dataset", choices=("auto", *hn.DATASETS), default="auto",
                        help="auto: MNIST, or with a warning the shipped digits where "
                             "it cannot be had (default: auto)")
    parser.add_argument("--jobs", type=hn.in_range(int, 1, 1024), metavar="N",
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
                        "processor or library, and say so in the record")
    parser.add_argument("--no-save", action="store_true", default=False,
                        help="write no record")
    parser.add_argument("--version", action="version",
                        version=f"highway-networks {hn.__version__}")
    return parser


def memory_of(config: hn.Config, data: hn.Data) -> int:
    """Bytes that training a net takes: its parameters, their gradient, three vectors of
    Adam's, and the cache."""
    L, U = config.depth, config.hidden
    R = U * (1 + len(hn.BLOCKS[config.block].gates))
    weights = hn.DeepNet.shapes(L, U, R, data.x_train.shape[1], data.classes)
    arrays = hn.Cache.shapes(L, U, R, data.classes, config.batch)
    floats = (5 * hn.Parameters(weights).size
              + hn.Parameters(arrays).size)
    return np.dtype(config.dtype).itemsize * floats


def check_memory(configs: list[hn.Config], data: hn.Data, jobs: int) -> None:
    """End before the start where the largest nets, side by side, exceed the machine's
    memory, as far as the system tells it."""
    if not hasattr(os, "sysconf"):
        return
    present = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    needed = jobs * max(memory_of(config, data) for config in configs)
    if needed > present:
        sys.exit(f"{hn.PROGRAM}: such nets, {jobs} at once, need about "
                 f"{needed / 2**30:.0f} GiB; this machine has {present / 2**30:.0f}")


def checkpoint_of(path: Path, config: hn.Config, data: hn.Data,
                  anyway: bool) -> Checkpoint:
    """FILE.npz -> the checkpoint FILE-highway-30-0.npz of a net."""
    name = f"{path.stem}-{config.block}-{config.depth}-{config.seed}.npz"
    return Checkpoint(path.with_name(name), vars(config), data_hash(
        data.x_train, data.y_train, data.x_test, data.y_test), anyway)


def give_advice(record: dict) -> None:
    """Say what to try where a highway net guesses, as the pictures judge that."""
    for run in record["runs"]:
        arm = run.get("highway")
        if not arm or (arm["final_test_acc"] or 0) > arm["chance"] + JUST_GUESSING:
            continue
        bias = arm.get("gate_bias", record["config"]["gate_bias"])
        auto = hn.initial_bias("auto", arm["depth"])
        other = (f"--gate-bias auto ({auto:.3g}) instead of {bias:g}" if bias > auto
                 else f"a more negative --gate-bias than {bias:.3g}")
        hn.say(f"{arm['label']}, seed {arm['seed']}, did not learn: try {other}, or a "
               "smaller --lr")


def jobs_of(configs: list[hn.Config], own: dict) -> int:
    """How many processes: those asked for, or one where threads are, or what is worth
    their start."""
    alone = (own["threads"] or 1) > 1
    return min(own["jobs"] or (1 if alone else processes_for(configs)), len(configs))


def check_flags(settings: dict, own: dict, fail: Callable) -> None:
    """Fail where flags do not go together, or cannot be done here, or a kind of block
    that a script added is none, or has a name that no record can hold."""
    try:
        for block in settings["blocks"]:
            check(block, NAME, "--blocks")
            hn.DeepNet(block, 1, 1, inputs=1, classes=1)
    except ValueError as error:
        fail(str(error))
    hn.check_out(own["checkpoint"], fail, "--checkpoint")
    if own["no_save"] and own["out"]:
        fail("argument --out: not allowed with argument --no-save")
    if (own["jobs"] or 1) > 1 and find_joblib() is None:
        fail("argument --jobs: more than 1 needs joblib")
    if (own["threads"] or 1) > 1 and hn.threadpoolctl is None:
        fail("argument --threads: more than 1 needs threadpoolctl")
    if (own["threads"] or 1) > 1 and (own["jobs"] or 1) > 1:
        fail("argument --threads: not allowed with more than one of --jobs")


class Run:
    """What one run of the command line does otherwise than the machine's alone."""

    def __init__(self, fail: Callable):
        self.fail, self.jobs = fail, 1
        self.starting: Iterable = ()

    def obtain(self, settings: dict, own: dict) -> tuple[str, hn.Data]:
        """The data set's name and Data, fetched if need be while processes start."""
        check_flags(settings, own, self.fail)
        self.jobs = jobs_of(hn.make_configs(settings), own)
        self.starting = start_workers(self.jobs)
        try:
            return load_as_asked(settings["dataset"], own["data_dir"])
        except hn.MissingData as error:
            if settings["dataset"] == "digits":
                raise
            raise hn.MissingData(f"{error}, or use --dataset digits") from error
        finally:
            list(self.starting)

    def train(self, configs: list[hn.Config], data: hn.Data, own: dict
              ) -> tuple[list[dict], int | None]:
        """The arms and their number of BLAS threads."""
        check_memory(configs, data, self.jobs)
        subsets = {seed: hn.take_subset(data, replace(configs[0], seed=seed))
                   for seed in {config.seed for config in configs}}
        tasks = []
        for config in configs:
            subset, file = subsets[config.seed], own["checkpoint"]
            tasks.append((config, subset, file and checkpoint_of(file, config, subset,
                                                                 own["anyway"])))
        widest = max(config.hidden for config in configs)
        threads = 1 if self.jobs > 1 else hn.threads_for(widest, own["threads"])
        try:
            with hn.blas_threads(threads) as threads:
                return train_all(tasks, self.jobs), threads
        except CheckpointError as error:
            sys.exit(f"{hn.PROGRAM}: {error}")
        except BrokenExecutor:
            sys.exit(f"{hn.PROGRAM}: a process was killed, perhaps for its memory; no "
                     "record written. Try --jobs 1")


def main(argv: list[str] | None = None) -> dict:
    """Run the command line -> the record; see `hn.run_command` for how it ends."""
    parser = build_parser()
    run = Run(parser.error)
    record = hn.run_command(parser, argv, run.obtain, run.train)
    give_advice(record)
    return record


def run_as_program() -> None:
    """`main` for a process of its own: a signal to end cleans up behind itself, like
    Ctrl-C, and closed streams do no harm."""
    prepare_streams()
    with ended_by_signals(lambda number: SystemExit(128 + number)):
        main()
