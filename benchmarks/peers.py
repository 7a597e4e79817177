"""This suite's training step against PyTorch's, JAX's and its own matrix products.

    python3 -m benchmarks.peers [--depth 30 --hidden 50 --batch 128 --repeats 15]
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
Writes benchmarks/peers.json and draws benchmarks/peers.png from it.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import subprocess
import sys
import tempfile
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

import highway_networks as hn
from benchmarks.contestants import CONTESTANTS, Task
from experiments.common import load_checked, render
from visualize_highway_networks import LIGHT

RECORD = Path(__file__).with_suffix(".json")
SCHEMA, SCHEMA_VERSION = "highway-networks/peers", 1
IMAGES, STEPS, EPOCHS = 6000, 46, 12        # of the headline, in batches of 128
TOLERANCE = 1e-4                            # of a tensor's largest gradient
PATIENCE = 180                              # seconds until the first epoch is trained
PINNED = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")      # they choose other kernels
NEEDS = {"torch": ("torch",), "torch.compile": ("torch",), "jax": ("jax", "optax"),
         "jax scan": ("jax", "optax")}
PARTS = ("gather", "forward products", "forward element-wise", "loss",
         "backward products", "backward element-wise", "clip", "Adam")

# --------------------------------------------------------------------------------------
# Processes


class Skipped(RuntimeError):
    """A contestant cannot take part; the message says why."""


def available_cores():
    """The numbers of the cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


@contextmanager
def bound_to(cores):
    """Processes started in the body stay on these cores, where the system can do it."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def environment_of(cores, cache):
    """A contestant's environment variables: a thread for each of its cores, this
    machine's own BLAS kernels, and an empty folder for compiled code."""
    threads = str(len(cores))
    variables = {**os.environ, "OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads,
                 "JAX_PLATFORMS": "cpu", "TORCHINDUCTOR_CACHE_DIR": str(cache)}
    if len(cores) == 1:     # without it JAX's pool of one thread waits for itself
        variables["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"
    for pinned in PINNED:
        variables.pop(pinned, None)
    return variables


class Process:
    """One contestant, waiting for commands. Leaving its context ends it."""

    def __init__(self, name, task, cores):
        self.folder = tempfile.TemporaryDirectory()
        self.errors = open(Path(self.folder.name) / "stderr", "w+", encoding="utf-8")
        with bound_to(cores):
            self.process = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.contestants", name, str(task)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors,
                text=True, cwd=hn.HERE, env=environment_of(cores, self.folder.name))

    def wait(self):
        """Until the first epoch is trained: versions and its seconds. Raises Skipped.
        """
        if not select.select([self.process.stdout], [], [], PATIENCE)[0]:
            raise Skipped(f"no epoch trained within {PATIENCE} s")
        ready = self.answer()
        self.versions, self.first_epoch = ready["versions"], ready["first_epoch"]

    def send(self, command):
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()

    def answer(self):
        """The answer to a command sent. Raises Skipped if the process has ended."""
        if line := self.process.stdout.readline():
            return json.loads(line)
        code = self.process.wait()
        self.errors.seek(0)
        last = self.errors.read().strip().rpartition("\n")[2]
        raise Skipped(f"ended with {code}: {last[:200]}")

    def ask(self, command):
        self.send(command)
        return self.answer()

    def arrays(self, what):
        """"gradient" or "weights" -> {name: array}."""
        path = Path(self.folder.name) / "arrays.npz"
        self.ask(f"{what} {path}")
        with np.load(path) as archive:
            return dict(archive)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            self.process.communicate(timeout=10)        # the end of stdin ends it
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()
        self.errors.close()
        self.folder.cleanup()


def load(dataset, data_dir):
    """What --dataset names -> the data set's name, uint8 hn.Data. Raises hn.DataError.
    """
    if dataset == "auto":
        return hn.load_auto(data_dir)
    return dataset, hn.load_dataset(dataset, data_dir)


def load_images(folder, dataset, data_dir):
    """Write images.npz, see `contestants.Task` -> the data set's name and (N, P)."""
    dataset, data = load(dataset, data_dir)
    data = hn.take_subset(data, hn.Config(n_train=IMAGES))
    data = hn.scale_pixels(data, dataset)
    np.savez(Path(folder) / "images.npz", x=data.x_train, labels=data.y_train)
    return dataset, data.x_train.shape


def write_task(path, shape, block, depth, hidden, batch, steps):
    """Write one TASK.npz for images of this shape (N, P); return its path."""
    settings = {"block": block, "depth": depth, "hidden": hidden, "inputs": shape[1]}
    order = np.random.default_rng(0).integers(shape[0], size=(steps, batch))
    np.savez(path, settings=json.dumps(settings), order=order)
    return path


# --------------------------------------------------------------------------------------
# Measuring


def start_all(stack, names, tasks, places):
    """Start each contestant's processes, one for each task and its cores, one after the
    other -> {name: [processes]} and, of those that cannot, {name: why}."""
    groups, skipped = {}, {}
    for name in names:
        try:
            group = []
            for task, cores in zip(tasks, places):
                group.append(stack.enter_context(Process(name, task, cores)))
                group[-1].wait()
            groups[name] = group
        except Skipped as reason:
            if name == "ours":
                raise
            print(f"{name}: skipped, {reason}")
            skipped[name] = str(reason)
    return groups, skipped


def gradient_error(ours, theirs):
    """Largest difference of two gradients, relative to a tensor's largest entry."""
    return float(np.max([abs(ours[n] - theirs[n]).max() / abs(ours[n]).max()
                         for n in ours]))      # Python's max may pass over a NaN


def distance(ours, theirs, start):
    """How far their weights are from ours, in parts of ours' way from the start."""
    def length(a, b):
        return np.sqrt(sum(np.square(a[n] - b[n]).sum(dtype=float) for n in ours))
    return float(length(theirs, ours) / length(start, ours))


def same_gradient(name, ours, theirs):
    """How far a gradient is from ours, for the record. Exits with 1 and a line for one
    that is not ours."""
    error = gradient_error(ours, theirs)
    if not error <= TOLERANCE:          # a NaN is not
        sys.exit(f"{name} does other work: its gradient is off by {error:.1e}")
    return hn.significant(error)


def check_work(name, process, ours, start):
    """The record's fields on equal work. Exits as `same_gradient` does."""
    error = same_gradient(name, ours.arrays("gradient"), process.arrays("gradient"))
    apart = distance(ours.arrays("weights"), process.arrays("weights"), start)
    return {"gradient_error": error, "weights_apart": hn.significant(apart)}


def side_by_side(processes):
    """Seconds of an epoch of each, all at once: of the slowest."""
    for process in processes:
        process.send("epoch")
    return max([process.answer() for process in processes])


def in_turn(processes):
    """Seconds of an epoch of each, one after the other: their sum."""
    return sum(process.ask("epoch") for process in processes)


WAYS = {"side by side": side_by_side, "in turn": in_turn}


def rounds(groups, repeats):
    """{(name, way): [processes]} -> {(name, way): [seconds of a round]}."""
    seconds = {key: [] for key in groups}
    for _ in range(repeats):
        for (name, way), processes in groups.items():
            seconds[name, way].append(WAYS[way](processes))
    return seconds


def spread(values):
    """Numbers -> their median, least and largest, as a record keeps them."""
    return {"median": hn.significant(np.median(values)),
            "least": hn.significant(min(values)),
            "largest": hn.significant(max(values))}


def summary(seconds, first):
    """Seconds of the rounds and of the first epoch -> the record's fields on them."""
    median = np.median(seconds)
    return {"seconds": [hn.significant(s) for s in seconds],
            "median": hn.significant(median),
            "preparation": hn.significant(max(first - median, 0.0))}


def times_ours(seconds, ours):
    """How many times ours the seconds are, each within its round."""
    return spread(np.array(seconds) / np.array(ours))


def one_core(names, task, repeats, cores):
    """The highway net on one core: the record's part, the profile, who was skipped."""
    part, start = {}, Task(task).initial
    with ExitStack() as stack:
        groups, skipped = start_all(stack, names, [task], [cores[:1]])
        ours = groups["ours"][0]
        checks = {name: check_work(name, process, ours, start)
                  for name, (process,) in groups.items() if name != "floor"}
        seconds = rounds({(name, "in turn"): groups[name] for name in groups}, repeats)
        for name, (process,) in groups.items():
            rows = seconds[name, "in turn"]
            part[name] = {**summary(rows, process.first_epoch),
                          "ms_per_step": hn.significant(1e3 * np.median(rows) / STEPS),
                          "times_ours": times_ours(rows, seconds["ours", "in turn"]),
                          **checks.get(name, {}), "versions": process.versions}
        parts = [groups["floor"][0].ask("parts") for _ in range(repeats)]
        return part, profile(parts), ours.ask("environment"), skipped


def profile(repeats):
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


def all_cores(names, tasks, repeats, cores):
    """The pair on all cores, both ways: the record's part, who was skipped."""
    places = {"side by side": [cores[::2], cores[1::2] or cores],
              "in turn": [cores, cores]}
    groups, skipped = {}, {}
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


def compare_pairs(seconds, first):
    """{(name, way): seconds of the rounds}, and of the first epochs -> the record's
    part. A contestant is judged by the way with the better median, ours as well."""
    part, rows, prepared = {}, {}, {}
    for name in dict.fromkeys(name for name, _ in seconds):
        ways = {way: summary(seconds[name, way], first[name, way]) for way in WAYS}
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


def installed():
    """The contestants whose libraries are here, and {name of another: why not}."""
    names, skipped = [], {}
    for name in CONTESTANTS:
        absent = [library for library in NEEDS.get(name, ())
                  if hn.importlib.util.find_spec(library) is None]
        if absent:
            skipped[name] = f"{' and '.join(absent)} not installed"
            print(f"{name}: skipped, {skipped[name]}: pip install -e '.[bench]'")
        else:
            names.append(name)
    return names, skipped


def contenders(part):
    """Who of one core goes on to all cores: neither the floor nor JAX's slower one."""
    programs = sorted((name for name in part if name.startswith("jax")),
                      key=lambda name: part[name]["median"])
    return [name for name in part if name not in ("floor", *programs[1:])]


def run(args):
    """Measure everything -> the record. Raises hn.DataError, Skipped for ours."""
    (names, skipped), cores = installed(), available_cores()
    with tempfile.TemporaryDirectory() as folder:
        dataset, shape = load_images(folder, args.dataset, args.data_dir)
        tasks = [write_task(Path(folder) / f"{block}.npz", shape, block, args.depth,
                            args.hidden, args.batch, STEPS)
                 for block in ("highway", "plain")]
        single, parts, env, failed = one_core(names, tasks[0], args.repeats, cores)
        pair, failed_pair = all_cores(contenders(single), tasks, args.repeats, cores)
    return {"schema": SCHEMA, "schema_version": SCHEMA_VERSION,
            "command": f"python3 -m benchmarks.peers --depth {args.depth} --hidden "
                       f"{args.hidden} --batch {args.batch} --repeats {args.repeats}"
                       + dataset_flag(args),
            "dataset": dataset, "images": shape[0], "depth": args.depth,
            "hidden": args.hidden, "batch": args.batch, "repeats": args.repeats,
            "steps": STEPS, "epochs": EPOCHS, "cores": len(cores), "env": env,
            "skipped": skipped | failed | failed_pair,
            "one_core": single, "all_cores": pair, "profile": parts}


# --------------------------------------------------------------------------------------
# The record, told and drawn


def report(record):
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


def colour_of(name):
    """Ours, the floor, and a colour for each framework."""
    return {"ours": LIGHT.highway, "floor": "#999999"}.get(
        name, "#E69F00" if name.startswith("torch") else "#009E73")


def draw_bars(axes, bars, label):
    """{name: (values, note)} -> horizontal bars of medians, the fastest on top, with
    the range of the rounds."""
    names = sorted(bars, key=lambda name: np.median(bars[name][0]))
    for row, name in enumerate(names):
        values, note = np.array(bars[name][0]), bars[name][1]
        axes.barh(row, np.median(values), color=colour_of(name), height=0.7)
        axes.plot([values.min(), values.max()], [row, row], color=LIGHT.ink, lw=1)
        axes.text(values.max(), row, f"  {np.median(values):.2f}  {note}", va="center",
                  size=8)
    axes.set_yticks(range(len(names)), names)
    axes.tick_params(axis="y", length=0)
    axes.invert_yaxis()
    axes.set_xlim(0, 1.6 * max(max(values) for values, _ in bars.values()))
    axes.set_xlabel(label, size=9)


def draw_profile(axes, profile):
    """One stacked bar, its parts named below: products darker than what is beside them.
    """
    colours = ("#999999", "#0072B2", "#56B4E9", "#CC79A7", "#D55E00", "#E69F00",
               "#F0E442", "#009E73")
    left = 0.0
    for colour, (name, part) in zip(colours, profile["parts"].items()):
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


def draw(record):
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
    figure.text(0.012, 0.985, f"One training step: {record['depth']} blocks of "
                f"{record['hidden']} units, batch {record['batch']}, float32",
                size=12, weight="bold", va="top")
    figure.text(0.012, 0.94, f"{record['env']['cpu']}; medians and ranges of "
                f"{record['repeats']} rounds; ratios are medians of ratios within a "
                "round; floor: the matrix products alone", size=8, color=LIGHT.soft,
                va="top")
    return figure


def build_parser(doc, prog, record):
    """The flags of all benchmarks."""
    parser = argparse.ArgumentParser(prog=f"python3 -m {prog}", allow_abbrev=False,
                                     description=doc.partition("\n")[0])
    parser.add_argument("--dataset", choices=("auto", *hn.DATASETS), default="auto",
                        help="auto: MNIST, or the shipped digits where it is not")
    parser.add_argument("--data-dir", metavar="FOLDER", type=os.path.abspath,
                        help="of the MNIST files")
    parser.add_argument("--out", type=Path, default=record, help="the record")
    parser.add_argument("--plot", action="store_true",
                        help="draw the record again, measure nothing")
    return parser


def dataset_flag(args):
    """What of --dataset a record's command says."""
    return "" if args.dataset == "auto" else f" --dataset {args.dataset}"


def finish(parser, argv, measure, tell, figure_of, schema):
    """Measure unless --plot, write the record, tell and draw it. Exits with 1 and a
    line where data, record or files are wrong or ours does not run."""
    args = parser.parse_args(argv)
    try:
        if not args.plot:
            hn.write_record(args.out, measure(args))
        record, digest = load_checked(args.out, parser.prog, schema=schema)
        tell(record)
        hn.write_file(args.out.with_suffix(".png"), render(figure_of, record, digest))
    except (Skipped, ValueError, OSError) as error:
        sys.exit(f"{parser.prog}: {error}")
    return record


def main(argv=None):
    """Measure, write the record and draw it; with --plot only draw the record."""
    parser = build_parser(__doc__, "benchmarks.peers", RECORD)
    for name, default in (("depth", 30), ("hidden", 50), ("batch", 128),
                          ("repeats", 15)):
        parser.add_argument(f"--{name}", type=hn.number(int, 1, 10_000), metavar="N",
                            default=default, help=f"(default: {default})")
    return finish(parser, argv, run, report, draw, SCHEMA)


if __name__ == "__main__":
    main()
