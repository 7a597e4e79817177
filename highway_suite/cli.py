"""The whole command line of highway_networks.py: that of the machine, and data sets
that are fetched, nets side by side, threads, checkpoints, records named by settings."""

from __future__ import annotations

import argparse
import hashlib
import re
import shlex
from collections.abc import Callable
from concurrent.futures import BrokenExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import highway_networks as hn
from highway_suite import workers
from highway_suite.checkpoints import Checkpoint, of_training
from highway_suite.datasets import DATASETS, load_as_asked
from highway_suite.files import check_target, expanded
from highway_suite.records import COMMAND, JUST_GUESSING, environment, write_record
from highway_suite.terminal import in_range, prepare_streams

PROGRAM = COMMAND.split()[-1]
QUICK = {"depths": [10], "epochs": 5, "n_train": 2000, "n_test": 1000}
BLOCK = re.compile(r"(?!(depth|seed|wallclock_sec)$)[A-Za-z0-9_.+-]{1,24}")
                        # a flag, a key of the record and a label of pictures


class Parser(argparse.ArgumentParser):
    """One for all flags: --quick fills in what was not given, and what does not go
    together is refused."""

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        options = super().parse_args(args, namespace)
        options.given = dict(vars(options))
        if options.quick:
            for name, value in QUICK.items():
                setattr(options, name, options.given.get(name, value))
        for block in getattr(options, "blocks", ()):
            if not BLOCK.fullmatch(block):
                self.error(f"argument --blocks: {block!r} is no name of a block")
        if options.no_save and options.out:
            self.error("argument --out: not allowed with argument --no-save")
        if options.threads > 1 and (options.jobs or 1) > 1:
            self.error("argument --threads: not allowed with more than one of --jobs")
        return options


def build_parser() -> Parser:
    """The machine's command line and what the suite adds."""
    parser = hn.build_parser(Parser)
    parser.prog = PROGRAM
    parser.add_argument("--dataset", choices=("auto", *DATASETS), default="auto",
                        help="auto: MNIST, or with a warning the shipped digits where "
                             "it cannot be had (default: auto)")
    parser.add_argument("--plain-hidden", type=int, metavar="N",
                        help="units of the plain net (default: --hidden); 71 matches "
                             "the parameters of 50 highway units, as in the paper")
    parser.add_argument("--quick", action="store_true", default=False,
                        help="ten blocks, five epochs and 2000 images, each unless "
                             "given")
    parser.add_argument("--jobs", type=in_range(int, 1, 1024), metavar="N",
                        default=None, help="processes (default: one per core, if that "
                        "is worth their start)")
    parser.add_argument("--threads", type=in_range(int, 1, 1024), metavar="N",
                        default=1, help="of BLAS, in one process: worth it for one net "
                        "of hundreds of units on an idle machine (default: 1)")
    parser.add_argument("--checkpoint", metavar="FILE", type=expanded, default=None,
                        help="go on from where an interrupted run, or one of fewer "
                        "--epochs, has got to; each net has FILE with its name added")
    parser.add_argument("--no-save", action="store_true", default=False,
                        help="write no record")
    parser.add_argument("--version", action="version",
                        version=f"highway-networks {hn.__version__}")
    return parser


# --------------------------------------------------------------------------------------
# How to load, to train and to write


def load(options: argparse.Namespace) -> tuple[dict, hn.Data]:
    """The settings that the data set decides, its name and no more images than it has,
    unless they were asked for, and its Data. Raises hn.DataError."""
    dataset, data = load_as_asked(options.dataset, options.data_dir)
    decided: dict[str, Any] = {"dataset": dataset}
    for name, most in (("n_train", len(data.x_train)), ("n_test", len(data.x_test))):
        value = getattr(options, name, getattr(hn.Config, name))
        decided[name] = value if name in options.given else min(value, most)
    return decided, data


def checkpoint_of(path: Path | None, config: hn.Config, data: hn.Data
                  ) -> Checkpoint | None:
    """FILE.npz -> the checkpoint FILE-highway-30-0.npz of a net."""
    if path is None:
        return None
    check_target(path)
    name = path.name.removesuffix(".npz")
    name = f"{name}-{config.block}-{config.depth}-{config.seed}.npz"
    return of_training(path.with_name(name), config, data)


def train(configs: list[hn.Config], data: hn.Data, options: argparse.Namespace
          ) -> list[dict]:
    """The arms of the record. Raises ValueError."""
    subsets = {seed: hn.take_subset(data, replace(configs[0], seed=seed))
               for seed in {config.seed for config in configs}}
    tasks = [(config, subsets[config.seed], checkpoint_of(
        options.checkpoint, config, subsets[config.seed])) for config in configs]
    jobs = options.jobs or (1 if options.threads > 1 else
                            workers.processes_for(configs))
    try:
        return workers.train_all(tasks, min(jobs, len(configs)), options.threads)
    except BrokenExecutor:
        raise OSError("a process was killed or lacks memory; no record written. Try "
                      "--jobs 1, or smaller nets") from None


def flags_of(settings: dict) -> list[tuple[str, str]]:
    """The flags that make this run: the seeds, and what differs from the headline."""
    headline = hn.resolve({}) | {"plain_hidden": settings["hidden"]}
    for name, most in zip(("n_train", "n_test"), DATASETS[settings["dataset"]].images,
                          strict=True):
        headline[name] = min(headline[name], most)
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
    words = (f"--{name}{'=' if value.startswith('-') else ' '}{shlex.quote(value)}"
             for name, value in flags)
    return " ".join([COMMAND, *words])


def write(settings: dict, options: argparse.Namespace) -> Callable:
    """-> save(record), which writes it, if it has a place, and returns what there is to
    say. Raises OSError at once if it could not be written."""
    flags = flags_of(settings)
    out = None if options.no_save else expanded(options.out or default_out(flags))
    if out:
        check_target(out)
        if not out.parent.is_dir() and out.parent != Path("runs"):
            raise OSError(2, "no such folder", str(out.parent))

    def save(record):
        record |= {"command": command_of(flags, out),
                   "env": environment(options.threads)}
        told = [table_of(record)]
        try:
            if out:
                out.parent.mkdir(exist_ok=True)
                told.append(f"wrote {out}" if write_record(out, record) else
                            f"{out} has these numbers already and is left as it is")
        except OSError as error:        # a full disk: the numbers are said all the same
            raise OSError(f"{out}: {error.strerror}; nothing written\n{told[0]}"
                          ) from error
        return "\n".join([*told, *advice_on(record)])
    return save


def table_of(record: dict) -> str:
    """The small table at the end."""
    lines = [" net, blocks   seed  parameters  test acc  train loss  seconds"]
    for run in record["runs"]:
        for block in record["config"]["blocks"]:
            arm = run[block]
            shown = (f"{arm['final_test_acc']:8.4f}  {arm['final_train_loss']:10.4f}"
                     if arm["status"] == "ok" else "diverged           -")
            lines.append(f"{arm['label']:>12}  {arm['seed']:>5}  "
                         f"{arm['parameters']:>10,}  {shown}  "
                         f"{arm['wallclock_sec']:7.2f}")
    for row in record["summary"]:
        if row["test_acc_std"] is not None:
            lines.append(f"{row['block']} {row['depth']}: test accuracy "
                         f"{row['test_acc_mean']:.4f} +- {row['test_acc_std']:.4f} "
                         f"over {row['n'] - row['diverged']} seeds")
    return "\n".join(lines)


def advice_on(record: dict) -> list[str]:
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
    if record["config"] == hn.resolve({}) | {"seeds": record["seeds"]}:
        lines.append("This plain net fails by its initialisation and learning rate at "
                     "least as much as by its depth: python3 -m experiments.headline "
                     "shows it.")
    return lines


def main(argv: list[str] | None = None) -> dict:
    """Run the command line -> the record; it ends as `highway_networks.main`."""
    return hn.main(argv, build_parser(), load, train, write)


def run_as_program() -> None:
    """`main` for a process of its own: a signal that ends it cleans up as Ctrl-C does,
    and closed streams do no harm."""
    prepare_streams()
    with workers.ended_by_signals(lambda number: SystemExit(128 + number)):
        main()
