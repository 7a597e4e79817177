"""What all benchmarks share: gradients held to ours, steps, bars, the command line."""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import highway_networks as hn
from benchmarks.contestants import machine
from benchmarks.processes import PINNED, Skipped
from experiments.old_lab import SCHEMA_VERSION, load_checked, render, sound
from highway_suite.cli import in_range
from highway_suite.figures import LIGHT, TITLE
from highway_suite.files import check_target, path_of, write_file, write_json
from highway_suite.records import RecordError
from highway_suite.terminal import prepare_streams

TOLERANCE = 1e-4                            # of a tensor's largest gradient

# --------------------------------------------------------------------------------------
# Numbers


def gradient_error(ours: dict, theirs: dict) -> float:
    """Largest difference of two gradients, relative to a tensor's largest entry."""
    return float(np.max([abs(ours[n] - theirs[n]).max() / abs(ours[n]).max()
                         for n in ours]))      # Python's max may pass over a NaN


def same_gradient(name: str, ours: dict, theirs: dict) -> float:
    """How far a gradient is from ours, for the record. Exits with 1 and a line for one
    that is not ours."""
    error = gradient_error(ours, theirs)
    if not error <= TOLERANCE:          # a NaN is not
        sys.exit(f"{name} does other work: its gradient is off by {error:.1e}")
    return hn.significant(error)


def range_of(values: Sequence[float] | np.ndarray) -> dict:
    """Numbers -> their median, least and largest, as a record keeps them."""
    return {"median": hn.significant(np.median(values)),
            "least": hn.significant(min(values)),
            "largest": hn.significant(max(values))}


def times_ours(seconds: Sequence[float], ours: Sequence[float]) -> dict:
    """How many times ours the seconds are, each within its round."""
    return range_of(np.array(seconds) / np.array(ours))


# --------------------------------------------------------------------------------------
# Steps of contestants that take turns in one process: kinds, {name: class}, of which
# "ours" is one; an object of each has gradient(), by tensor, and takes steps


def without_absent(kinds: Iterable[str]) -> list[str]:
    """Names, but torch where it is not installed, with a line that says so."""
    if importlib.util.find_spec("torch"):
        return list(kinds)
    print("torch: not installed, skipped (pip install -e '.[bench]')")
    return [name for name in kinds if name != "torch"]


def check_gradient(contestants: Mapping[str, Any]) -> float | None:
    """How far PyTorch's gradient is from ours; None without PyTorch."""
    ours, torch = contestants["ours"], contestants.get("torch")
    return torch and same_gradient("torch", ours.gradient(), torch.gradient())


def step_times(contestants: Mapping[str, Any], work: Callable[[Any], None], steps: int,
               repeats: int, clock: Callable[[], float] = time.perf_counter) -> dict:
    """The record's fields on the contestants' steps, of which work(contestant) makes so
    many, in rounds."""
    seconds: dict[str, list] = {name: [] for name in contestants}
    for number in range(repeats + 1):
        for name, contestant in contestants.items():
            begin = clock()
            work(contestant)
            if number:                          # the first round only warms up
                seconds[name].append((clock() - begin) / steps)
    return {"parameters": contestants["ours"].net.params.size, "contestants": {
        name: {"seconds": [hn.significant(s) for s in rows],
               "median": hn.significant(np.median(rows)),
               "times_ours": times_ours(rows, seconds["ours"])}
        for name, rows in seconds.items()}}


def machine_with(names: Iterable[str]) -> dict:
    """`machine`, and the version of PyTorch if it takes part."""
    return machine() | ({"torch": sys.modules["torch"].__version__}
                        if "torch" in names else {})


def with_own_kernels(module: str) -> None:
    """Start the program anew without the variables that choose other kernels, if they
    are set: NumPy has read them already."""
    free = {name: value for name, value in os.environ.items() if name not in PINNED}
    if len(free) < len(os.environ):
        os.execve(sys.executable, [sys.executable, "-m", module, *sys.argv[1:]], free)


# --------------------------------------------------------------------------------------
# Pictures


def bar_colour(name: str) -> str:
    """Ours, the floor, and a colour for each framework."""
    return {"ours": LIGHT.highway, "floor": "#999999"}.get(
        name, "#E69F00" if name.startswith("torch") else "#009E73")


def draw_bars(axes: Axes, bars: dict, label: str) -> None:
    """{name: (values, note)} -> horizontal bars of medians, the fastest on top, with
    the range of the rounds."""
    names = sorted(bars, key=lambda name: np.median(bars[name][0]))
    for row, name in enumerate(names):
        values, note = np.array(bars[name][0]), bars[name][1]
        axes.barh(row, np.median(values), color=bar_colour(name), height=0.7)
        axes.plot([values.min(), values.max()], [row, row], color=LIGHT.ink, lw=1)
        axes.text(values.max(), row, f"  {np.median(values):.2f}  {note}", va="center",
                  size=8)
    axes.set_yticks(range(len(names)), names)
    axes.tick_params(axis="y", length=0)
    axes.invert_yaxis()
    axes.set_xlim(0, 1.6 * max(max(values) for values, _ in bars.values()))
    axes.set_xlabel(label, size=9)


def entitle(figure: Figure, contestants: Sequence[dict], what: str, rounds: int
            ) -> None:
    """Above, how long PyTorch's steps take by ours; below, what of, and how timed."""
    times = [f"{found['torch']['times_ours']['median']:.2f}" for found in contestants
             if "torch" in found]
    figure.suptitle(f"A step takes PyTorch {', '.join(times)} times as long" if times
                    else "One training step, without PyTorch", **TITLE)
    figure.supxlabel(f"{what};\nmedians and ranges of {rounds} rounds; ratios are "
                     "medians of ratios within a round; floor: the matrix products "
                     "alone", size=8, color=LIGHT.soft)


# --------------------------------------------------------------------------------------
# The command line


def folder_of(text: str) -> str:
    """An argparse type: a folder, as another process in another folder finds it; one
    of an unknown user as it is, for `hn.data_folder` to refuse."""
    folder = os.path.expanduser(path_of(text))
    return folder if folder.startswith("~") else os.path.abspath(folder)


def build_parser(doc: str, prog: str, *, data: bool = True, **numbers: int
                 ) -> argparse.ArgumentParser:
    """The flags of all benchmarks, those of a data set where it needs one, and one for
    each of these whole numbers."""
    parser = argparse.ArgumentParser(prog=f"python3 -m {prog}", allow_abbrev=False,
                                     description=doc.partition("\n")[0])
    if data:
        parser.add_argument("--dataset", choices=("auto", *hn.DATASETS), default="auto",
                            help="auto: MNIST, or the shipped digits where it is not")
        parser.add_argument("--data-dir", metavar="FOLDER", type=folder_of,
                            help="of the data set's files")
    parser.add_argument("--out", type=path_of, metavar="FILE",
                        help="the record (default: beside this program, or in runs/ "
                             "for other settings than the committed)")
    parser.add_argument("--plot", action="store_true",
                        help="draw the record again, measure nothing")
    for name, default in numbers.items():
        parser.add_argument(f"--{name}", type=in_range(int, 1, 10_000), metavar="N",
                            default=default, help=f"(default: {default})")
    return parser


def dataset_flag(args: argparse.Namespace) -> str:
    """What of --dataset a record's command says."""
    return "" if args.dataset == "auto" else f" --dataset {args.dataset}"


def place_of(record: dict, committed: Path) -> Path:
    """Where a new record goes: over the committed one if it is of the same command and
    data set, else into runs/."""
    try:
        there, _ = load_checked(committed, "", schema=record["schema"])
    except RecordError:
        return committed
    if all(there[name] == record[name] for name in ("command", "dataset")):
        return committed
    return hn.HERE / "runs" / "benchmarks" / committed.name


class Benchmark(NamedTuple):
    """What `main` needs of one."""

    parser: Callable[[], argparse.ArgumentParser]
    committed: Path         # its record
    schema: str
    measure: Callable[[argparse.Namespace], dict]       # -> the record, but its schema
    tell: Callable[[dict], None]                        # prints it as a table
    draw: Callable[[dict], Figure]


def main(benchmark: Benchmark, argv: Sequence[str] | None = None) -> dict:
    """Measure unless --plot, write the record, tell and draw it. Exits with 1 and a
    line where data, record or files are wrong or ours does not run."""
    prepare_streams()
    make_parser, committed, schema, measure, tell, draw = benchmark
    parser = make_parser()
    args = parser.parse_args(argv)
    if args.out and args.out.suffix == ".png":
        parser.error(f"argument --out: {args.out} is the name of a picture, which is "
                     "written beside the record")
    out = args.out or committed
    try:
        if not args.plot:
            check_target(out)       # before minutes of measuring
            record = {"schema": schema, "schema_version": SCHEMA_VERSION,
                      **measure(args)}
            out = args.out or place_of(record, committed)
            out.parent.mkdir(parents=True, exist_ok=True)
            write_json(out, record)
        record, digest = load_checked(out, parser.prog, schema=schema)
        with sound(out, parser.prog):
            tell(record)
            write_file(out.with_suffix(".png"), render(draw, record, digest))
    except (Skipped, ValueError, OSError) as error:
        sys.exit(f"{parser.prog}: {error}")
    print(out.relative_to(hn.HERE) if out.is_relative_to(hn.HERE) else out)
    return record
