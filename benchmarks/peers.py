"""This suite's training step against PyTorch's, JAX's and its own matrix products.

    python3 -m benchmarks.peers [--depth 30 --hidden 50 --batch 128 --repeats 15]
    python3 -m benchmarks.peers --plot

Every contestant lives in a process of its own (`contestants`) and trains the same net
from the same weights on the same batches; first its gradient of the first batch is held
to ours, 1e-4 of the largest entry of each tensor, in float32. Then one after the other
trains one epoch of 46 steps, round after round, so that a slow minute of the machine
meets all alike; a ratio is taken within a round, and its median, least and largest over
the rounds are reported. Compiling happens before the first round and is reported apart.

    one core     the highway net, every process bound to the same core
    all cores    the headline's pair, highway and plain: two processes on a core each,
                 or one process with all threads that trains them in turn; the record
                 has both, and a contestant is judged by its better one

What is not installed is skipped with a line that says so: pip install -e '.[bench]'.
Writes benchmarks/peers.json and draws benchmarks/peers.png from it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import highway_networks as hn
from benchmarks.contestants import CONTESTANTS

RECORD = Path(__file__).with_suffix(".json")
STEPS, EPOCHS = 46, 12              # of the headline: 6000 images in batches of 128
TOLERANCE = 1e-4
NEEDS = {"torch": "torch", "torch.compile": "torch", "jax": "jax", "jax scan": "jax"}


def make_task(folder, block, args):
    """Write one TASK.npz; see `contestants.Task`. MNIST where it lies, else digits."""
    config = hn.Config(batch=args.batch, n_train=1437)
    name, data = hn.load_auto(args.data_dir)
    data = hn.scale_pixels(data, name)
    settings = {"block": block, "depth": args.depth, "hidden": args.hidden,
                "inputs": data.x_train.shape[1]}
    net = hn.DeepNet(**settings)
    rng = np.random.default_rng(hn.streams(config.seed)["batches"])
    rows = rng.permutation(len(data.x_train))[:6000]
    order = rng.integers(len(rows), size=(STEPS, args.batch))
    path = Path(folder) / f"{block}.npz"
    np.savez(path, settings=json.dumps(settings), x=data.x_train[rows], order=order,
             labels=data.y_train[rows], **net.views(net.params))
    return path, name


class Process:
    """One contestant, waiting to be asked for epochs."""

    def __init__(self, name, task, cores):
        threads = str(len(cores))
        environment = {**os.environ, "OMP_NUM_THREADS": threads,
                       "MKL_NUM_THREADS": threads, "JAX_PLATFORMS": "cpu",
                       "PYTHONPATH": str(hn.HERE)}
        for pinned in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"):
            environment.pop(pinned, None)       # the kernels that this machine has
        if threads == "1":
            environment["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"
        self.process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.contestants", name, task], text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment,
            preexec_fn=lambda: os.sched_setaffinity(0, cores))
        self.ready = json.loads(self.process.stdout.readline())

    def start(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def seconds(self):
        return float(self.process.stdout.readline())

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def gradient_error(ours, theirs):
    """Largest difference of two gradients, relative to a tensor's largest entry."""
    with np.load(ours) as one, np.load(theirs) as two:
        return max(float(abs(one[n] - two[n]).max() / abs(one[n]).max()) for n in one)


def rounds(groups, repeats):
    """{name: [processes]} -> {name: [seconds of a round]}: the processes of a group run
    side by side, the groups one after the other."""
    seconds = {name: [] for name in groups}
    for _ in range(repeats):
        for name, processes in groups.items():
            for process in processes:
                process.start()
            seconds[name].append(max(process.seconds() for process in processes))
    return seconds


def in_turn(groups, repeats):
    """The same, but the processes of a group too run one after the other."""
    seconds = {name: [] for name in groups}
    for _ in range(repeats):
        for name, processes in groups.items():
            total = 0.0
            for process in processes:
                process.start()
                total += process.seconds()
            seconds[name].append(total)
    return seconds


def summary(seconds, ours):
    """Seconds of the rounds -> median, and the ratio to ours within each round."""
    ratios = np.array(seconds) / np.array(ours)
    return {"seconds": [hn.significant(s) for s in seconds],
            "median": hn.significant(np.median(seconds)),
            "ratio": {"median": hn.significant(np.median(ratios)),
                      "least": hn.significant(ratios.min()),
                      "largest": hn.significant(ratios.max())}}


def one_core(names, task, args, cores):
    """The highway net on one core: the record's part, and every gradient checked."""
    groups = {name: [Process(name, task, cores[:1])] for name in names}
    ours = groups["ours"][0].ready["gradient"]
    part, seconds = {}, rounds(groups, args.repeats)
    for name, (process,) in groups.items():
        error = gradient_error(ours, process.ready["gradient"])
        if error > TOLERANCE:
            sys.exit(f"{name} does other work: its gradient is off by {error:.1e}")
        part[name] = {**summary(seconds[name], seconds["ours"]),
                      "steps": STEPS, "gradient_error": hn.significant(error),
                      "first_epoch": hn.significant(process.ready["first_epoch"]),
                      "versions": process.ready["versions"]}
        process.close()
    return part


def all_cores(names, tasks, args, cores):
    """The pair on all cores, in both ways; the better median counts."""
    part = {name: {} for name in names}
    for way, measure in (("side by side", rounds), ("in turn", in_turn)):
        groups = {name: [Process(name, task, cores[k::2] if way == "side by side"
                                 else cores) for k, task in enumerate(tasks)]
                  for name in names}
        seconds = measure(groups, args.repeats)
        for name, processes in groups.items():
            first = [process.ready["first_epoch"] for process in processes]
            part[name][way] = {
                "seconds": [hn.significant(s) for s in seconds[name]],
                "first_epochs": hn.significant(
                    (max if measure is rounds else sum)(first))}
            for process in processes:
                process.close()
    ours = part["ours"]["side by side"]["seconds"]
    for ways in part.values():
        better = min(ways, key=lambda way: np.median(ways[way]["seconds"]))
        ways.update(better=better, **summary(ways[better]["seconds"], ours))
        ways["epochs"] = EPOCHS
        extra = ways[better]["first_epochs"] - ways["median"]
        ways["preparation"] = hn.significant(max(extra, 0.0))
    return part


def installed():
    """The contestants that can run here; one line for each that cannot."""
    names = []
    for name in CONTESTANTS:
        if name in NEEDS and hn.importlib.util.find_spec(NEEDS[name]) is None:
            print(f"{name}: not installed, skipped (pip install -e '.[bench]')")
        else:
            names.append(name)
    return names


def run(args):
    """Measure everything -> the record."""
    names, cores = installed(), sorted(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as folder:
        tasks = [make_task(folder, block, args) for block in ("highway", "plain")]
        paths = [path for path, _ in tasks]
        single = one_core(names, paths[0], args, cores)
        pair = all_cores([n for n in names if n != "floor"], paths, args, cores)
    return {"schema": "highway-networks/peers", "schema_version": 1,
            "command": f"python3 -m benchmarks.peers --depth {args.depth} --hidden "
                       f"{args.hidden} --batch {args.batch} --repeats {args.repeats}",
            "depth": args.depth, "hidden": args.hidden, "batch": args.batch,
            "dataset": tasks[0][1], "cores": len(cores), "env": hn.environment(),
            "one_core": single, "all_cores": pair}


def report(record):
    """The record as two small tables."""
    print("one core             ms/step   times ours (least - largest)")
    for name, part in record["one_core"].items():
        ratio = part["ratio"]
        print(f"{name:>16} {1e3 * part['median'] / part['steps']:>11.3f}   "
              f"{ratio['median']:.2f} ({ratio['least']:.2f} - {ratio['largest']:.2f})")
    print("pair, all cores    s/headline   times ours   with preparation")
    ours = record["all_cores"]["ours"]
    for name, part in record["all_cores"].items():
        total = part["median"] * part["epochs"]
        whole = ((total + part["preparation"])
                 / (ours["median"] * ours["epochs"] + ours["preparation"]))
        print(f"{name:>16} {total:>13.2f}   {part['ratio']['median']:>10.2f}   "
              f"{whole:>10.2f}   {part['better']}")


def plot(record, path):
    """Two panels of horizontal bars, ours on top."""
    from matplotlib.figure import Figure
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    axes = figure.subplots(1, 2)
    panels = ((axes[0], record["one_core"], 1e3 / STEPS,
               "milliseconds per step, one core"),
              (axes[1], record["all_cores"], EPOCHS,
               f"seconds for the pair, {record['cores']} cores, compiling left out"))
    for axis, part, scale, label in panels:
        names = sorted(part, key=lambda name: part[name]["median"])
        for row, name in enumerate(names):
            seconds = np.array(part[name]["seconds"]) * scale
            axis.barh(row, np.median(seconds), color={
                "ours": "#0072B2", "floor": "#999999"}.get(name, "#D55E00"))
            axis.plot([seconds.min(), seconds.max()], [row, row], color="black", lw=1)
            axis.text(seconds.max(), row, f"  {np.median(seconds):.2f}  "
                      f"({part[name]['ratio']['median']:.2f}x)", va="center",
                      fontsize=8)
        axis.set_yticks(range(len(names)), names)
        axis.invert_yaxis()
        axis.set_xlim(0, 1.25 * max(max(part[n]["seconds"]) for n in names) * scale)
        axis.set_xlabel(label)
        axis.spines[["top", "right"]].set_visible(False)
    figure.suptitle(f"{record['depth']} blocks of {record['hidden']} units, batch "
                    f"{record['batch']}, float32: median, range and ratio to ours",
                    fontsize=10)
    figure.savefig(path, dpi=150, metadata={"Software": None})


def main(argv=None):
    """Measure, write the record and draw it; with --plot only draw the record."""
    parser = argparse.ArgumentParser(prog="python3 -m benchmarks.peers",
                                     description=__doc__.splitlines()[0])
    for name, default in (("depth", 30), ("hidden", 50), ("batch", 128),
                          ("repeats", 15)):
        parser.add_argument(f"--{name}", type=hn.number(int, 1, 10_000),
                            default=default)
    parser.add_argument("--data-dir")
    parser.add_argument("--out", type=Path, default=RECORD)
    parser.add_argument("--plot", action="store_true", help="draw the record again")
    args = parser.parse_args(argv)
    if not args.plot:
        hn.write_record(args.out, run(args))
    record = hn.parse_json(args.out.read_text(encoding="utf-8"))
    report(record)
    plot(record, args.out.with_suffix(".png"))
    return record


if __name__ == "__main__":
    main()
