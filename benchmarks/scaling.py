"""What a training step costs: seconds and memory by depth, width and batch.

    python3 -m benchmarks.scaling [--depths 5,10,20,50,100,200,500,1000 --repeats 9]
    python3 -m benchmarks.scaling --plot

Steps. A highway net of 30 blocks of 50 units, batches of 128, and from there one of the
three changed at a time. Each point is a process of its own, bound to the same core,
with one BLAS thread, that trains on 6000 images in memory: the true `train_step` and
the gathering of its batch (`contestants.Ours`). All processes stand ready before the
first repeat; each repeat asks one after the other, so that a slow minute of the machine
meets all alike. Recorded: every repeat, the median, the least.

The law in depth. From 10 to 1000 blocks a straight line, a + b depth, is fitted so that
the sum of squared relative errors is smallest; time is called linear in depth if no
point is further than 10 % from it. The exponent is the slope of log seconds against log
depth, by least squares. It is below 1 where a, the input layer and what else does not
depend on depth, counts. Both are given for the medians and for the least, which other
work on the machine disturbs less.

Memory. The largest resident set of a process, Python, NumPy and all: of each point,
with the 6000 images (19 MB as float32 for MNIST); and of a whole run, `python3
highway_networks.py --depth 1000 --epochs 1 --jobs 1`, which also reads the full data
set and trains the plain net, and is to stay under 700 MB.

The deepest. The README's command for 10,000 highway blocks, whole, once: its seconds,
its memory and what it reads of the test images.

Searches. Runs per second of `experiments.trials.run_trials` for 20 runs of the
headline's highway net, 3 epochs each, with 1, 2, 4, ... processes up to one per core,
from the call to the last trial: starting the processes counts.

Six minutes on two cores. Writes benchmarks/scaling.json and draws scaling.png from it;
of other settings than the committed record's both go to runs/benchmarks.
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, LogLocator, NullLocator

import highway_networks as hn
from benchmarks.lab import Benchmark, build_parser, dataset_flag, main
from benchmarks.processes import (
    Process,
    available_cores,
    bound_to,
    variables_for,
    write_images,
    write_task,
)
from experiments.trials import run_trials
from highway_suite.cli import in_range, several
from highway_suite.datasets import obtain_as_asked
from highway_suite.figures import LIGHT
from highway_suite.records import read_record, train_arm

RECORD = Path(__file__).with_suffix(".json")
SCHEMA = "highway-networks/scaling"
CENTRE = {"depth": 30, "hidden": 50, "batch": 128}
STEPS = 100                         # of a repeat at the centre
LAW = (10, 1000)                    # depths that the law is about
LINEAR = 0.1                        # largest relative deviation from a line
LIMIT = 700                         # megabytes of a whole run
DEEPEST = ("--blocks", "highway", "--gate-bias", "auto", "--init", "glorot",
           "--lr", 0.001, "--epochs", 3)
SEARCH = {"block": "highway", "epochs": 3}
SEARCH_REPEATS = 3
MEGABYTE = 10**6

# --------------------------------------------------------------------------------------
# Steps


def points_of(args: argparse.Namespace) -> list[dict]:
    """The points to measure: the centre with one of its three values changed."""
    points = [{**CENTRE, name: value} for name, values in (
        ("depth", args.depths), ("hidden", args.widths), ("batch", args.batches))
        for value in values]
    return [point for i, point in enumerate(points) if point not in points[:i]]


def steps_of(point: dict) -> int:
    """How many steps make a repeat, so that all points take about as long."""
    def cost(depth, hidden, batch):
        return (depth + 8) * hidden * (hidden + 50) * batch    # 8: the input layer's
    return max(3, round(STEPS * cost(**CENTRE) / cost(**point)))


def measure_points(points: list[dict], folder: str, shape: tuple, repeats: int,
                   core: Sequence[int]) -> tuple[list[dict], dict]:
    """-> the record's "points" and the environment of their processes."""
    with ExitStack() as stack:
        processes = []
        for i, point in enumerate(points):
            task = write_task(Path(folder) / f"{i}.npz", shape, "highway", **point,
                              steps=steps_of(point))
            processes.append(stack.enter_context(Process("ours", task, core)))
            processes[-1].wait()
        rows = [[process.ask("epoch") / steps_of(point)
                 for point, process in zip(points, processes, strict=True)]
                for _ in range(repeats)]
        memory = [process.ask("memory") for process in processes]
        env = processes[0].ask("environment")
    return [{**point, "steps": steps_of(point),
             "seconds_per_step": [hn.significant(s) for s in seconds],
             "median": hn.significant(np.median(seconds)),
             "least": hn.significant(min(seconds)), "peak_mb": megabytes(peak)}
            for point, seconds, peak in zip(points, zip(*rows, strict=True), memory,
                                            strict=True)], env


def megabytes(size: int | None) -> float | None:
    """Bytes, or None where the system does not say -> megabytes of a million bytes."""
    return None if size is None else hn.significant(size / MEGABYTE)


def along(points: list[dict], name: str) -> list[dict]:
    """The points that differ from the centre in `name` at most, in its order."""
    others = CENTRE.keys() - {name}
    return sorted((point for point in points
                   if all(point[other] == CENTRE[other] for other in others)),
                  key=lambda point: point[name])


def depth_law(depths: list[int], seconds: Sequence[float]) -> dict:
    """Exponent and straight line of seconds against depth, see the docstring above."""
    d, s = np.array(depths, float), np.array(seconds)
    exponent = np.polyfit(np.log(d), np.log(s), 1)[0]
    b, a = np.polyfit(d, s, 1, w=1 / s)
    deviation = s / (a + b * d) - 1
    largest = np.abs(deviation).max()
    return {"depths": depths, "exponent": hn.significant(exponent),
            "line": {"seconds": hn.significant(a),
                     "seconds_per_block": hn.significant(b)},
            "deviation": [hn.significant(value) for value in deviation],
            "largest_deviation": hn.significant(largest),
            "limit": LINEAR, "linear": bool(largest <= LINEAR)}


def depth_laws(points: list[dict]) -> dict | None:
    """The laws of the medians and of the least, over LAW; None for fewer than three."""
    points = [p for p in along(points, "depth") if LAW[0] <= p["depth"] <= LAW[1]]
    if len(points) < 3:
        return None
    depths = [point["depth"] for point in points]
    return {name: depth_law(depths, [point[name] for point in points])
            for name in ("median", "least")}


# --------------------------------------------------------------------------------------
# Whole runs


def ask_python(code: str, arguments: Sequence, cores: Sequence[int]) -> Any:
    """Run code in a fresh process -> the last line that it prints, as JSON. Raises
    ValueError with the last line of its errors."""
    with tempfile.TemporaryDirectory() as folder, bound_to(cores):
        done = subprocess.run(
            [sys.executable, "-c", code, *map(str, arguments)], cwd=hn.HERE, text=True,
            capture_output=True, env=variables_for(cores[:1], folder))
    if done.returncode:
        raise ValueError(done.stderr.strip().rpartition("\n")[2])
    return json.loads(done.stdout.strip().rpartition("\n")[2])


def whole_run(depth: int, dataset: str, data_dir: str | None, core: Sequence[int]
              ) -> dict:
    """The command line's own training at one epoch -> its peak memory."""
    flags = ["--depth", depth, "--epochs", 1, "--jobs", 1, "--no-save",
             "--dataset", dataset]
    peak = peak_of(flags, data_dir, core)
    return {"command": command_of(flags),
            "depth": depth, "peak_mb": megabytes(peak), "limit_mb": LIMIT,
            "under_limit": None if peak is None else peak < LIMIT * MEGABYTE}


def deepest_run(depth: int, dataset: str, data_dir: str | None, core: Sequence[int]
                ) -> dict:
    """The training of a very deep highway net by the command line -> what it took, and
    the share of the test images that it reads right."""
    flags = ["--depth", depth, *DEEPEST]
    if dataset != "mnist":
        flags += ["--dataset", dataset]
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run.json"
        begin = time.perf_counter()
        peak = peak_of([*flags, "--jobs", 1, "--out", out], data_dir, core)
        seconds = time.perf_counter() - begin
        pair, = read_record(out)["runs"]
    return {"command": command_of(flags), "depth": depth,
            "seconds": hn.significant(seconds), "peak_mb": megabytes(peak),
            "test_acc": pair["highway"]["final_test_acc"]}


def command_of(flags: Sequence) -> str:
    """What to type."""
    return shlex.join(["python3", "highway_networks.py", *map(str, flags)])


def peak_of(flags: Sequence, data_dir: str | None, core: Sequence[int]) -> int | None:
    """Run the command line in a process of its own -> its peak memory, bytes."""
    where = ["--data-dir", data_dir] if data_dir else []
    return ask_python("import sys\n"
                      "from highway_suite.cli import main\n"
                      "from benchmarks.contestants import peak_memory\n"
                      "main(sys.argv[1:]); print(peak_memory() or 'null')",
                      [*flags, *where], core)


def train_small(config: dict, data: hn.Data) -> dict:
    """One run of the search -> the training loss of its last epoch."""
    arm = train_arm(hn.Config(**config, n_train=len(data.x_train)), data)
    return {"train_loss": arm["final_train_loss"]}


def search(runs: str, jobs: str, dataset: str, data_dir: str) -> None:
    """Print the seconds of a search: what one process of `searches` does."""
    data = hn.take_subset(hn.load_dataset(dataset, data_dir or None), hn.Config())
    configs = [{**SEARCH, "seed": seed} for seed in range(int(runs))]
    with tempfile.TemporaryDirectory() as folder:
        begin = time.perf_counter()
        trials = run_trials(train_small, configs, Path(folder) / "trials",
                            protocol={"dataset": dataset}, data=data, jobs=int(jobs))
        seconds = time.perf_counter() - begin
    failed = [trial.error for trial in trials if trial.status != "ok"]
    if failed:
        raise ValueError(f"{len(failed)} runs failed: {failed[0]}")
    print(seconds)


def searches(runs: int, dataset: str, data_dir: str | None, cores: Sequence[int]
             ) -> list[dict]:
    """The record's "search": runs per second for 1, 2, 4, ... processes."""
    jobs = sorted({min(2**k, len(cores)) for k in range(len(cores).bit_length() + 1)})
    seconds: dict[int, list] = {n: [] for n in jobs}
    for _ in range(SEARCH_REPEATS):
        for n in jobs:
            seconds[n].append(ask_python(
                "import sys; from benchmarks.scaling import search\n"
                "search(*sys.argv[1:])", [runs, n, dataset, data_dir or ""], cores))
    median = {n: np.median(seconds[n]) for n in jobs}
    return [{"jobs": n, "runs": runs,
             "seconds": [hn.significant(s) for s in seconds[n]],
             "runs_per_second": hn.significant(runs / median[n]),
             "times_one": hn.significant(median[1] / median[n])} for n in jobs]


def run(args: argparse.Namespace) -> dict:
    """Measure everything -> the record. Raises hn.DataError, Skipped, ValueError."""
    cores, points = available_cores(), points_of(args)
    with tempfile.TemporaryDirectory() as folder:
        dataset, data = obtain_as_asked(args.dataset, args.data_dir)
        if hn.DATASETS[dataset].folder:     # --dataset auto found no MNIST there
            args.data_dir = None
        shape = write_images(folder, data)
        points, env = measure_points(points, folder, shape, args.repeats, cores[:1])
    return {"command": "python3 -m benchmarks.scaling" + "".join(
                f" --{name} {','.join(map(str, getattr(args, name)))}"
                for name in LISTS) + f" --repeats {args.repeats} --runs {args.runs}"
            + f" --deepest {args.deepest}" + dataset_flag(args),
            "dataset": dataset, "images": shape[0], "centre": CENTRE,
            "repeats": args.repeats, "cores": len(cores), "env": env, "points": points,
            "depth_law": depth_laws(points),
            "whole_run": whole_run(max(args.depths), dataset, args.data_dir, cores[:1]),
            "deepest": deepest_run(args.deepest, dataset, args.data_dir, cores[:1]),
            "search": searches(args.runs, dataset, args.data_dir, cores)}


# --------------------------------------------------------------------------------------
# The record, told and drawn


def report(record: dict) -> None:
    """The record as lines of text."""
    print("depth  width  batch   ms/step (least)   peak MB")
    for p in record["points"]:
        print(f"{p['depth']:>5} {p['hidden']:>6} {p['batch']:>6} "
              f"{1e3 * p['median']:>9.3f} ({1e3 * p['least']:.3f}) "
              f"{p['peak_mb'] or '–':>9}")
    for name, law in (record["depth_law"] or {}).items():
        print(f"{name}, depth {law['depths'][0]} to {law['depths'][-1]}: seconds ~ "
              f"depth^{law['exponent']:.3f}; largest deviation from a line "
              f"{law['largest_deviation']:.1%}, limit {law['limit']:.0%}")
    whole = record["whole_run"]
    print(f"{whole['command']}: {whole['peak_mb']} MB, limit {whole['limit_mb']}")
    deepest = record["deepest"]
    print(f"{deepest['command']}: {deepest['seconds']:.0f} s, {deepest['peak_mb']} MB, "
          f"{deepest['test_acc']:.1%} of the test images")
    for row in record["search"]:
        print(f"search of {row['runs']} runs, {row['jobs']} processes: "
              f"{row['runs_per_second']:.2f} runs/s, {row['times_one']:.2f} times one")


def log_axis(axis: Axis, values: Sequence[float]) -> None:
    """A logarithmic axis with a tick at each value that has room."""
    axis.axes.set_xscale("log")
    axis.set_major_locator(FixedLocator(values))
    axis.set_major_formatter("{x:g}")
    axis.set_minor_locator(NullLocator())
    axis.set_tick_params(labelsize=8)


def draw_seconds(axes: Axes, points: list[dict], name: str) -> None:
    """Milliseconds along one of depth, width and batch, and the range of the repeats.
    """
    x = [point[name] for point in points]
    repeats = 1e3 * np.array([point["seconds_per_step"] for point in points])
    axes.fill_between(x, repeats.min(axis=1), repeats.max(axis=1), lw=0, alpha=0.25,
                      color=LIGHT.highway)
    axes.plot(x, np.median(repeats, axis=1), "o-", color=LIGHT.highway, lw=1.5, ms=4)
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_locator(NullLocator())


def draw_memory(axes: Axes, points: list[dict], name: str) -> None:
    """Peak memory along one of depth, width and batch."""
    axes.plot([point[name] for point in points],
              [np.nan if point["peak_mb"] is None else point["peak_mb"]
               for point in points], "o-", color=LIGHT.highway, lw=1.5, ms=4)
    axes.set_ylim(0, 1.1 * axes.get_ylim()[1])


def draw_laws(axes: Axes, laws: dict | None) -> None:
    """How far each depth's time is from the straight line, in per cent."""
    axes.set_title("Deviation from the line, %", size=10, loc="left")
    if laws is None:
        axes.text(0.5, 0.5, f"fewer than three depths from {LAW[0]} to {LAW[1]}",
                  ha="center", va="center", transform=axes.transAxes, size=9)
        axes.set_axis_off()
        return
    limit = 100 * laws["median"]["limit"]
    axes.axhspan(-limit, limit, color=LIGHT.grid, alpha=0.6, lw=0)
    axes.axhline(0, color=LIGHT.soft, lw=1)
    for name, colour, dashes in (("median", LIGHT.highway, "o-"),
                                 ("least", LIGHT.soft, "s--")):
        law = laws[name]
        axes.plot(law["depths"], 100 * np.array(law["deviation"]), dashes, lw=1.5,
                  ms=4, color=colour, label=f"{name} of the repeats, exponent "
                  f"{law['exponent']:.3f}")
    log_axis(axes.xaxis, law["depths"])
    axes.margins(y=0.1)
    axes.legend(fontsize=8, frameon=False)
    axes.set_xlabel("highway layers", size=9)
    axes.tick_params(axis="y", labelsize=8)


def draw_search(axes: Axes, rows: list[dict]) -> None:
    """Runs per second for each number of processes."""
    names = [str(row["jobs"]) for row in rows]
    rates = [row["runs_per_second"] for row in rows]
    axes.bar(names, rates, color=LIGHT.highway, width=0.5)
    for i, row in enumerate(rows):
        axes.text(i, rates[i], f"{rates[i]:.2f} ({row['times_one']:.2f}×)", size=8,
                  ha="center", va="bottom")
    axes.set_ylim(0, 1.15 * max(rates))
    axes.set_xlim(-0.75, len(rows) - 0.25)
    axes.set_xlabel("processes", size=9)
    axes.set_title(f"Runs per second of a {rows[0]['runs']}-run search", size=10,
                   loc="left")
    axes.tick_params(axis="both", labelsize=8)


def draw_whole_run(axes: Axes, whole: dict) -> None:
    """The whole run's peak memory among the points, and its limit."""
    axes.axhline(whole["limit_mb"], color=LIGHT.soft, lw=1, ls="--")
    axes.text(0.03, whole["limit_mb"], "limit of a whole run", size=8, va="bottom",
              color=LIGHT.soft, transform=axes.get_yaxis_transform())
    if whole["peak_mb"] is not None:
        axes.plot(whole["depth"], whole["peak_mb"], "D", color=LIGHT.plain, ms=5)
        axes.annotate(f"whole run: {whole['peak_mb']:.0f}", size=8, ha="right",
                      xy=(whole["depth"], whole["peak_mb"]), xytext=(-6, 3),
                      textcoords="offset points")
    axes.set_ylim(0, 1.15 * max(whole["limit_mb"], axes.get_ylim()[1]))


def draw_line(axes: Axes, law: dict) -> None:
    """The straight line of the law among the points."""
    depths = np.geomspace(law["depths"][0], law["depths"][-1])
    line = law["line"]
    axes.plot(depths, 1e3 * (line["seconds"] + line["seconds_per_block"] * depths),
              color=LIGHT.plain, lw=1.2, ls="--")
    axes.text(0.04, 0.97, f"dashed: {1e3 * line['seconds']:.2f} + "
              f"{1e3 * line['seconds_per_block']:.4f} a layer", size=8, va="top",
              transform=axes.transAxes)


def draw(record: dict) -> Figure:
    """The record -> Figure: seconds above, memory in the middle, law and searches."""
    figure = Figure(figsize=(9, 7.6), layout="constrained")
    grid = figure.subplot_mosaic([["t0", "t1", "t2"], ["m0", "m1", "m2"],
                                  ["law", "law", "search"]])
    for column, (name, label) in enumerate((
            ("depth", "highway layers"), ("hidden", "width, units"),
            ("batch", "batch, examples"))):
        points = along(record["points"], name)
        for row, draw_row in (("t", draw_seconds), ("m", draw_memory)):
            axes = grid[f"{row}{column}"]
            draw_row(axes, points, name)
            log_axis(axes.xaxis, [point[name] for point in points])
            axes.set_xlabel(label, size=9)
            axes.grid(axis="y")
            axes.tick_params(axis="y", labelsize=8)
    grid["t0"].set_title("Milliseconds per step", size=10, loc="left")
    grid["m0"].set_title("Peak memory of the process, MB", size=10, loc="left")
    if record["depth_law"]:
        draw_line(grid["t0"], record["depth_law"]["median"])
    draw_whole_run(grid["m0"], record["whole_run"])
    draw_laws(grid["law"], record["depth_law"])
    draw_search(grid["search"], record["search"])
    centre, env = record["centre"], record["env"]
    figure.suptitle(
        f"Net of {centre['depth']} highway layers of {centre['hidden']} units, batch "
        f"{centre['batch']}, one of them changed\n", size=12, weight="bold")
    figure.text(0.5, 0.955, f"one core and thread ({env['cpu']}, {env['blas']} "
                f"{env['blas_kernel']}), {record['images']} images of "
                f"{hn.DATASETS[record['dataset']].title}; medians and ranges of "
                f"{record['repeats']} repeats", size=8, color=LIGHT.soft, ha="center",
                va="top")
    return figure


LISTS = {   # flag: default, least and largest value, help
    "depths": ([5, 10, 20, 50, 100, 200, 500, 1000], 1, 10_000, "blocks"),
    "widths": ([10, 20, 50, 100, 200, 500], 1, 10_000, "units of every block"),
    "batches": ([16, 32, 64, 128, 256, 512, 1024], 1, 60_000, "examples of a step")}


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = build_parser(__doc__ or "", "benchmarks.scaling")
    for name, (values, low, high, text) in LISTS.items():
        parser.add_argument(f"--{name}", metavar="A,B,...", default=values,
                            type=several(in_range(int, low, high)),
                            help=f"{text} (default: {','.join(map(str, values))})")
    for name, value, text in (("repeats", 9, "of each point"),
                              ("runs", 20, "of the search"),
                              ("deepest", 10_000, "blocks of the deepest net")):
        parser.add_argument(f"--{name}", type=in_range(int, 1, 10_000), metavar="N",
                            default=value, help=f"{text} (default: {value})")
    return parser


BENCHMARK = Benchmark(make_parser, RECORD, SCHEMA, run, report, draw)

if __name__ == "__main__":
    main(BENCHMARK)
