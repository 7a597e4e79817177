"""From a cold start to a trained pair: this suite's command against PyTorch and JAX.

    python3 -m benchmarks.cold_start [--depth 30 --repeats 3]
    python3 -m benchmarks.cold_start --plot

What somebody waits for who types a command: the interpreter, the imports, compiling
from an empty cache, and the headline's two nets, highway and plain, 12 epochs of 46
batches each. The others are the programs of `contestants`: two processes side by side,
with half of the cores each, that find images and batches ready in a file. This suite is
its whole command, `highway_networks.py --seed 0`, which also reads and checks the data
set, tests both nets after each epoch, measures their gates and writes the record: it
does more. Round after round each starts anew; a ratio is taken within a round.

    start           interpreter and imports, building the net
    first epoch     and compiling
    other epochs    the eleven others

Five minutes on two cores. Writes benchmarks/cold_start.json and draws cold_start.png;
of other settings than the committed record's both go to runs/benchmarks.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

import highway_networks as hn
from benchmarks.contestants import machine
from benchmarks.lab import (
    Benchmark,
    bar_colour,
    build_parser,
    dataset_flag,
    main,
    range_of,
    times_ours,
)
from benchmarks.peers import EPOCHS, STEPS, installed, side_by_side
from benchmarks.processes import (
    Process,
    Skipped,
    available_cores,
    variables_for,
    write_images,
    write_task,
)
from highway_suite.datasets import obtain_as_asked
from highway_suite.figures import LIGHT, TITLE

RECORD = Path(__file__).with_suffix(".json")
SCHEMA = "highway-networks/cold_start"
PARTS = ("start", "first epoch", "other epochs")
HIDDEN, BATCH = 50, 128

# --------------------------------------------------------------------------------------
# Measuring


def time_command(args: argparse.Namespace, dataset: str, cores: Sequence[int],
                 folder: str) -> float:
    """Seconds of this suite's command, from its start to its end. Raises Skipped."""
    words = [sys.executable, str(hn.HERE / "highway_networks.py"), "--seed", "0",
             "--depth", str(args.depth), "--dataset", dataset,
             "--jobs", str(min(2, len(cores))), "--out", f"{folder}/run.json"]
    if args.data_dir:
        words += ["--data-dir", args.data_dir]
    begin = time.perf_counter()
    done = subprocess.run(words, env=variables_for(cores[:1], folder),
                          capture_output=True, text=True)
    seconds = time.perf_counter() - begin
    if done.returncode:
        raise Skipped(done.stderr.strip().rpartition("\n")[2])
    return seconds


def time_parts(name: str, tasks: Sequence[Path], places: Sequence) -> list[float]:
    """Seconds of a contestant's PARTS, both nets side by side: of the slower one.
    Raises Skipped."""
    with ExitStack() as stack:
        begin = time.perf_counter()
        pair = [stack.enter_context(Process(name, task, cores))
                for task, cores in zip(tasks, places, strict=True)]
        for process in pair:
            process.wait()
        ready = time.perf_counter() - begin
        first = max(process.first_epoch for process in pair)
        rest = sum(side_by_side(pair) for _ in range(EPOCHS - 1))
    return [ready - first, first, rest]


def run(args: argparse.Namespace) -> dict:
    """Measure everything -> the record. Raises hn.DataError, Skipped for ours."""
    (names, skipped), cores = installed(), available_cores()
    names = [name for name in names if name not in ("ours", "floor")]
    seconds: dict[str, list] = {"ours": [], **{name: [] for name in names}}
    with tempfile.TemporaryDirectory() as folder:
        dataset, data = obtain_as_asked(args.dataset, args.data_dir)
        if hn.DATASETS[dataset].folder:     # --dataset auto found no MNIST there
            args.data_dir = None
        shape = write_images(folder, data)
        tasks = [write_task(Path(folder) / f"{block}.npz", shape, block, args.depth,
                            HIDDEN, BATCH, STEPS) for block in ("highway", "plain")]
        for _ in range(args.repeats):
            seconds["ours"].append([time_command(args, dataset, cores, folder)])
            for name in [name for name in names if name not in skipped]:
                try:
                    seconds[name].append(time_parts(
                        name, tasks, [cores[::2], cores[1::2] or cores]))
                except Skipped as reason:
                    print(f"{name}: skipped, {reason}")
                    skipped[name] = str(reason)
    return {"command": f"python3 -m benchmarks.cold_start --depth {args.depth} "
                       f"--repeats {args.repeats}" + dataset_flag(args),
            "dataset": dataset, "depth": args.depth, "epochs": EPOCHS, "steps": STEPS,
            "repeats": args.repeats, "cores": len(cores), "env": machine(),
            "skipped": skipped, "contestants": describe(
                {name: rows for name, rows in seconds.items() if name not in skipped})}


def describe(seconds: dict[str, list]) -> dict:
    """{name: seconds of the parts of each round} -> the record's fields; ours is one
    part."""
    whole = {name: [sum(parts) for parts in rows] for name, rows in seconds.items()}
    return {name: {
        "seconds": range_of(whole[name]), "times_ours": times_ours(
            whole[name], whole["ours"]),
        "parts": [hn.significant(part) for part in np.median(rows, axis=0)]}
        for name, rows in seconds.items()}


# --------------------------------------------------------------------------------------
# The record, told and drawn


def report(record: dict) -> None:
    """The record as a table."""
    print("from a cold start     seconds   times ours (least - largest)   "
          + ", ".join(PARTS))
    for name, part in record["contestants"].items():
        ratio, parts = part["times_ours"], part["parts"] * (name != "ours")
        print(f"{name:>17} {part['seconds']['median']:>11.2f} "
              f"{ratio['median']:>12.2f} ({ratio['least']:.2f} - "
              f"{ratio['largest']:.2f})   " + ", ".join(f"{p:.2f}" for p in parts))


def draw(record: dict) -> Figure:
    """The record -> Figure: a bar for each, its median, shaded by the share that each
    part's median has of their sum."""
    figure = Figure(figsize=(8, 2.9), layout="constrained")
    axes = figure.add_subplot()
    found = sorted(record["contestants"].items(),
                   key=lambda item: item[1]["seconds"]["median"])
    for row, (name, part) in enumerate(found):
        left, median = 0.0, part["seconds"]["median"]
        for alpha, own in zip((0.35, 0.65, 1.0), part["parts"], strict=False):
            seconds = own / sum(part["parts"]) * median
            axes.barh(row, seconds, left=left, height=0.65, color=bar_colour(name),
                      alpha=alpha if name != "ours" else 1)
            left += seconds
        axes.text(left, row, f"  {median:.1f} s"
                  f"  ({part['times_ours']['median']:.1f}×)", va="center", size=9)
    axes.set_yticks(range(len(found)), [
        "this suite,\nits whole command" if name == "ours" else name
        for name, _ in found])
    axes.invert_yaxis()
    axes.set_xlim(0, 1.25 * max(part["seconds"]["median"] for _, part in found))
    axes.set(xlabel="seconds; from pale to full: imports, the first epoch with "
             "compiling, the eleven others",
             title="A trained pair from a cold start: " + ", ".join(
                 f"{name} {part['seconds']['median']:.1f} s"
                 for name, part in found[:2]))
    axes.title.set(**TITLE)
    axes.xaxis.label.set_fontsize(9)
    figure.supxlabel(f"a highway and a plain net of {record['depth'] + 1} layers; "
                     f"{record['cores']} cores, {record['env']['cpu']}; medians of "
                     f"{record['repeats']} rounds; in brackets, of their ratios to "
                     "ours", fontsize=8, color=LIGHT.soft)
    return figure


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    return build_parser(__doc__ or "", "benchmarks.cold_start", depth=30, repeats=3)


BENCHMARK = Benchmark(make_parser, RECORD, SCHEMA, run, report, draw)

if __name__ == "__main__":
    main(BENCHMARK)
