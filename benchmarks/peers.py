"""This suite's training step against PyTorch's, JAX's and its own matrix products.

    python3 -m benchmarks.peers [--depth 30 --hidden 50 --batch 128 --repeats 11]
    python3 -m benchmarks.peers --plot

Every contestant lives in a process of its own (`contestants`) and trains the same net
from the same weights on the same batches: 46 steps are an epoch. First its gradient of
the first batch is held to ours, 1e-4 of the largest entry of each tensor, in float32;
how far its weights are from ours after that epoch is recorded, not judged, because
rounding grows along the way. Then one after the other trains one epoch, round after
round, so that a slow minute of the machine meets all alike; a ratio is taken within a
round, and its median, least and largest over the rounds are reported.

    one core     the highway net, every process bound to the same core
    all cores    the headline's pair, highway and plain, for 12 epochs: two processes
                 side by side with half of the cores each, or one after the other with
                 all of them; the record has both, and a contestant is judged by its
                 better one. Of JAX's two programs the one that was faster on one core
                 takes part: the other would compile four times more for nothing.
    profile      where our own step's time goes, on one core

"Preparation" is what the first epoch took longer than the median one: compiling, from
an empty cache. Importing the libraries and building the net are left out. The ratio on
all cores is given without it and with it.

What is not installed, fails or has not trained its first epoch after three minutes is
skipped with a line that says so: pip install -e '.[bench]'. Five minutes on two cores.
Writes benchmarks/peers.json and draws peers.png from it; of other settings than the
committed record's both go to runs/benchmarks.
"""

from __future__ import annotations

import argparse
import importlib.util
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import highway_networks as hn
from benchmarks.contestants import CONTESTANTS, Task
from benchmarks.lab import (
    Benchmark,
    build_parser,
    dataset_flag,
    draw_bars,
    main,
    same_gradient,
    times_ours,
)
from benchmarks.processes import (
    Process,
    available_cores,
    start_all,
    write_images,
    write_task,
)
from highway_suite.datasets import obtain_as_asked
from highway_suite.figures import LIGHT

RECORD = Path(__file__).with_suffix(".json")
SCHEMA = "highway-networks/peers"
STEPS, EPOCHS = 46, 12                     # of the headline, in batches of 128
NEEDS = {"torch": ("torch",), "torch.compile": ("torch",), "jax": ("jax", "optax"),
         "jax scan": ("jax", "optax")}
PARTS = ("gather", "forward products", "forward element-wise", "loss",
         "backward products", "backward element-wise", "clip", "Adam")

# --------------------------------------------------------------------------------------
# Measuring


def distance(ours: dict, theirs: dict, start: dict) -> float:
    """How far their weights are from ours, in parts of ours' way from the start."""
    def length(a, b):
        return np.sqrt(sum(np.square(a[n] - b[n]).sum(dtype=float) for n in ours))
    return float(length(theirs, ours) / length(start, ours))


def check_work(name: str, process: Process, ours: Process, start: dict) -> dict:
    """The record's fields on equal work. Exits as `same_gradient` does."""
    error = same_gradient(name, ours.arrays("gradient"), process.arrays("gradient"))
    apart = distance(ours.arrays("weights"), process.arrays("weights"), start)
    return {"gradient_error": error, "weights_apart": hn.significant(apart)}


def side_by_side(processes: Iterable[Process]) -> float:
    """Seconds of an epoch of each, all at once: of the slowest."""
    for process in processes:
        process.send("epoch")
    return max([process.answer() for process in processes])


def in_turn(processes: Iterable[Process]) -> float:
    """Seconds of an epoch of each, one after the other: their sum."""
    return sum(process.ask("epoch") for process in processes)


WAYS = {"side by side": side_by_side, "in turn": in_turn}


def rounds(groups: Mapping, repeats: int) -> dict:
    """{(name, way): [processes]} -> {(name, way): [seconds of a round]}."""
    seconds: dict[tuple, list] = {key: [] for key in groups}
    for _ in range(repeats):
        for (name, way), processes in groups.items():
            seconds[name, way].append(WAYS[way](processes))
    return seconds


def timing(seconds: Sequence[float], first: float) -> dict:
    """Seconds of the rounds and of the first epoch -> the record's fields on them."""
    median = np.median(seconds)
    return {"seconds": [hn.significant(s) for s in seconds],
            "median": hn.significant(median),
            "preparation": hn.significant(max(first - median, 0.0))}


class OneCore(NamedTuple):
    """What came of the highway net on one core."""

    times: dict             # the record's part
    parts: list             # seconds of the parts of a step, repeat by repeat
    env: dict
    skipped: dict           # who, and why


def one_core(names: Iterable[str], task: Path, repeats: int, cores: Sequence[int]
             ) -> OneCore:
    """Time the highway net on one core."""
    part, start = {}, Task(task).initial
    with ExitStack() as stack:
        groups, skipped = start_all(stack, names, [task], [cores[:1]])
        ours = groups["ours"][0]
        checks = {name: check_work(name, process, ours, start)
                  for name, (process,) in groups.items() if name != "floor"}
        seconds = rounds({(name, "in turn"): groups[name] for name in groups}, repeats)
        for name, (process,) in groups.items():
            rows = seconds[name, "in turn"]
            part[name] = {**timing(rows, process.first_epoch),
                          "ms_per_step": hn.significant(1e3 * np.median(rows) / STEPS),
                          "times_ours": times_ours(rows, seconds["ours", "in turn"]),
                          **checks.get(name, {}), "versions": process.versions}
        parts = [groups["floor"][0].ask("parts") for _ in range(repeats)]
        return OneCore(part, parts, ours.ask("environment"), skipped)


def profile(repeats: Sequence[Mapping]) -> dict:
    """Seconds of an epoch's parts, repeat by repeat -> milliseconds of a step, medians.
    """
    def median(name):
        return np.median([seconds[name] for seconds in repeats]) / STEPS
    total = sum(median(name) for name in PARTS)
    return {"step_ms": hn.significant(1e3 * median("step")),
            "sum_ms": hn.significant(1e3 * total),
            "parts": {name: {"ms": hn.significant(1e3 * median(name)),
                             "share": hn.significant(median(name) / total)}
                      for name in PARTS}}


def all_cores(names: Sequence[str], tasks: Sequence[Path], repeats: int,
              cores: Sequence[int]) -> tuple[dict, dict]:
    """The pair on all cores, both ways: the record's part, who was skipped."""
    places = {"side by side": [cores[::2], cores[1::2] or cores],
              "in turn": [cores, cores]}
    groups: dict[tuple, list] = {}
    skipped: dict[str, str] = {}
    with ExitStack() as stack:
        for way in WAYS:
            names = [name for name in names if name not in skipped]
            started, failed = start_all(stack, names, tasks, places[way])
            groups |= {(name, way): started[name] for name in started}
            skipped |= failed
        groups = {key: groups[key] for key in groups if key[0] not in skipped}
        seconds = rounds(groups, repeats)
    first = {(name, way): (sum if way == "in turn" else max)(
        process.first_epoch for process in group)
        for (name, way), group in groups.items()}
    return compare_pairs(seconds, first), skipped


def compare_pairs(seconds: Mapping, first: Mapping) -> dict:
    """{(name, way): seconds of the rounds}, and of the first epochs -> the record's
    part. A contestant is judged by the way with the better median, ours as well."""
    part, rows, prepared = {}, {}, {}
    for name in dict.fromkeys(name for name, _ in seconds):
        ways = {way: timing(seconds[name, way], first[name, way]) for way in WAYS}
        better = min(WAYS, key=lambda way: ways[way]["median"])
        whole = EPOCHS * ways[better]["median"]
        rows[name] = seconds[name, better]
        prepared[name] = whole + ways[better]["preparation"]
        part[name] = {
            **ways, "better": better, "headline_seconds": hn.significant(whole),
            "headline_seconds_prepared": hn.significant(prepared[name]),
            "times_ours": times_ours(rows[name], rows["ours"]),
            "times_ours_prepared": hn.significant(prepared[name] / prepared["ours"])}
    return part


def installed() -> tuple[list[str], dict[str, str]]:
    """The contestants whose libraries are here, and {name of another: why not}."""
    names, skipped = [], {}
    for name in CONTESTANTS:
        absent = [library for library in NEEDS.get(name, ())
                  if importlib.util.find_spec(library) is None]
        if absent:
            skipped[name] = f"{' and '.join(absent)} not installed"
            print(f"{name}: skipped, {skipped[name]}: pip install -e '.[bench]'")
        else:
            names.append(name)
    return names, skipped


def contenders(part: Mapping) -> list[str]:
    """Who of one core goes on to all cores: neither the floor nor JAX's slower one."""
    programs = sorted((name for name in part if name.startswith("jax")),
                      key=lambda name: part[name]["median"])
    return [name for name in part if name not in ("floor", *programs[1:])]


def run(args: argparse.Namespace) -> dict:
    """Measure everything -> the record. Raises hn.DataError, Skipped for ours."""
    (names, skipped), cores = installed(), available_cores()
    with tempfile.TemporaryDirectory() as folder:
        dataset, data = obtain_as_asked(args.dataset, args.data_dir)
        shape = write_images(folder, data)
        tasks = [write_task(Path(folder) / f"{block}.npz", shape, block, args.depth,
                            args.hidden, args.batch, STEPS)
                 for block in ("highway", "plain")]
        single = one_core(names, tasks[0], args.repeats, cores)
        pair, failed_pair = all_cores(contenders(single.times), tasks, args.repeats,
                                      cores)
    return {"command": f"python3 -m benchmarks.peers --depth {args.depth} --hidden "
                       f"{args.hidden} --batch {args.batch} --repeats {args.repeats}"
                       + dataset_flag(args),
            "dataset": dataset, "images": shape[0], "depth": args.depth,
            "hidden": args.hidden, "batch": args.batch, "repeats": args.repeats,
            "steps": STEPS, "epochs": EPOCHS, "cores": len(cores), "env": single.env,
            "skipped": skipped | single.skipped | failed_pair,
            "one_core": single.times, "all_cores": pair,
            "profile": profile(single.parts)}


# --------------------------------------------------------------------------------------
# The record, told and drawn


def report(record: dict) -> None:
    """The record as three small tables."""
    print("one core          ms/step   times ours (least - largest)   preparation")
    for name, part in record["one_core"].items():
        ratio = part["times_ours"]
        print(f"{name:>13} {part['ms_per_step']:>11.3f}   {ratio['median']:>10.2f} "
              f"({ratio['least']:.2f} - {ratio['largest']:.2f}) "
              f"{part['preparation']:>16.1f} s")
    print("pair, all cores   s/headline   times ours   with preparation")
    for name, part in record["all_cores"].items():
        print(f"{name:>13} {part['headline_seconds']:>14.2f}   "
              f"{part['times_ours']['median']:>10.2f}   "
              f"{part['times_ours_prepared']:>16.2f}   {part['better']}")
    print(f"our step          {record['profile']['step_ms']:.3f} ms")
    for name, part in record["profile"]["parts"].items():
        print(f"{name:>21} {part['ms']:.3f} ms  {part['share']:.0%}")


def draw_profile(axes: Axes, profile: dict) -> None:
    """One stacked bar, its parts named below: products darker than what is beside them.
    """
    colours = ("#999999", "#0072B2", "#56B4E9", "#CC79A7", "#D55E00", "#E69F00",
               "#F0E442", "#009E73")
    left = 0.0
    for colour, (name, part) in zip(colours, profile["parts"].items(), strict=True):
        axes.barh(0, part["ms"], left=left, color=colour, label=f"{name}  "
                  f"{part['ms']:.2f} ms, {part['share']:.0%}")
        left += part["ms"]
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.set_xlim(0, left)
    axes.set_xlabel("milliseconds; the whole step, timed undivided, takes "
                    f"{profile['step_ms']:.2f}", size=9)
    axes.legend(ncols=3, fontsize=8, frameon=False, loc="upper left",
                bbox_to_anchor=(-0.02, -0.85), handlelength=1.2)


def draw(record: dict) -> Figure:
    """The record -> Figure: one core, all cores, and where our step's time goes."""
    figure = Figure(figsize=(9, 5.6))
    left = figure.add_axes((0.125, 0.475, 0.335, 0.385))
    right = figure.add_axes((0.615, 0.475, 0.365, 0.385))
    scale, headline = 1e3 / record["steps"], record["epochs"] * record["steps"]
    draw_bars(left, {name: (scale * np.array(part["seconds"]),
                            f"({part['times_ours']['median']:.2f}×)")
                     for name, part in record["one_core"].items()},
              "milliseconds per step (× ours)")
    left.set_title("Highway net, one core", size=10)
    draw_bars(right, {name: (record["epochs"] * np.array(
        part[part["better"]]["seconds"]), f"({part['times_ours']['median']:.2f}×; "
        f"{part['times_ours_prepared']:.2f}×)")
        for name, part in record["all_cores"].items()},
        f"seconds for {headline} steps of both (× ours; with compiling)")
    right.set_title(f"Highway and plain net, {record['cores']} cores", size=10)
    bottom = figure.add_axes((0.03, 0.215, 0.95, 0.085))
    draw_profile(bottom, record["profile"])
    bottom.set_title("Where one step of ours spends its time, one core", size=10)
    figure.text(0.012, 0.985, f"One training step: {record['depth'] + 1} layers of "
                f"{record['hidden']} units, batch {record['batch']}, float32",
                size=12, weight="bold", va="top")
    figure.text(0.012, 0.94, f"{record['env']['cpu']}; medians and ranges of "
                f"{record['repeats']} rounds; ratios are medians of ratios within a "
                "round; floor: the matrix products alone", size=8, color=LIGHT.soft,
                va="top")
    return figure


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    return build_parser(__doc__ or "", "benchmarks.peers", depth=30, hidden=50,
                        batch=128, repeats=11)


BENCHMARK = Benchmark(make_parser, RECORD, SCHEMA, run, report, draw)

if __name__ == "__main__":
    main(BENCHMARK)
