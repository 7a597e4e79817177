"""Accuracy by the processor's time: Table 2's net, with our gradient and PyTorch's.

    python3 -m benchmarks.accuracy          trains both, in twenty minutes, and writes
                                            benchmarks/accuracy.json and .png
    python3 -m benchmarks.accuracy --plot   draws the record again

Both have the settings that the ladder keeps, the same start and the same batches, on
one core, with one thread. They take turns epoch by epoch. PyTorch gets each batch and
the weights, and gives back the gradient of the loss; images, their crops and the
optimiser are ours in both. The time is what the processor spent on an epoch, without
the test; PyTorch's has the copies that its layout needs, some 1 %.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

import highway_networks as hn
from benchmarks import records
from benchmarks.contests import bind
from benchmarks.convolution import TorchNet
from benchmarks.harness import absent
from experiments.convolution import rows
from experiments.convolution import trials as nets
from experiments.convolution.plan import PLAN
from experiments.lab import drawing
from experiments.lab.experiment import failing_in_a_line, folder_of, load_record
from highway_suite.datasets import load
from highway_suite.figures import TINTS, label_right, label_y
from highway_suite.records import environment, read_with_hash

RECORD = records.RECORD.with_name("accuracy.json")
COMMAND = "python3 -m benchmarks.accuracy"
EPOCHS = 4


class InTorch(TorchNet):
    """What `highway_networks.fit` trains: PyTorch's gradient at a net's parameters."""

    def __init__(self, net: Any):
        self.net, self.params = net, net.params

    def gradient(self, batch: tuple, cache: Any) -> tuple[dict, np.ndarray]:
        """As `ConvNet.gradient`."""
        x, labels, _ = batch
        self.take(self.net, x, labels)
        loss = self.loss(training=True)
        loss.backward()
        return {"train_loss": loss.item()}, self.flat_gradient()


def settings() -> dict:
    """The config of a trial: the ladder's net by its best rung."""
    record, _ = load_record(folder_of("convolution") / "record.json")
    ladder, best = PLAN["ladder"], rows.kept_of(record["ladder"]["rungs"])[-1]
    return ladder["net"] | ladder["blocks"]["highway"] | best["settings"] | {
        "epochs": EPOCHS, "measure": "test", "seed": 0}


def measure(config: dict, data: hn.Data) -> dict:
    """The record: of each program seconds of each epoch, and test accuracy in % after
    it."""
    import torch
    torch.set_num_threads(1)
    bind(1)
    with hn.blas_threads(1):
        programs = take_turns(config, data)
    return {"schema": "highway-networks/accuracy", "schema_version": 1,
            "command": COMMAND, "env": environment() | {"torch": torch.__version__},
            "settings": config, "programs": programs}


def take_turns(config: dict, data: hn.Data) -> dict[str, dict[str, list]]:
    """{program: its "seconds" and "test_acc" by epoch}."""
    learners: dict[str, tuple] = {}
    for name in ("ours", "PyTorch"):
        ready = nets.prepare(config, data)
        learners[name] = ready, ready.net if name == "ours" else InTorch(ready.net)
    found: dict[str, dict[str, list]] = {
        name: {"seconds": [], "test_acc": []} for name in learners}
    for epoch in range(1, config["epochs"] + 1):
        for name in list(learners)[::1 if epoch % 2 else -1]:
            ready, learner = learners[name]
            begin = time.process_time()
            hn.train_epoch(learner, ready.batches, ready.cache, ready.optimizer,
                           nets.learning_rate(config, epoch), 0.0)
            seconds = time.process_time() - begin
            right = nets.right_and_loss(ready.net, data.x_test, data.y_test,
                                        ready.config, ready.cache)
            found[name]["seconds"].append(round(seconds, 1))
            found[name]["test_acc"].append(hn.significant(100 * right["acc"]))
            print(f"epoch {epoch}  {name:<8} {seconds:6.0f} s  "
                  f"{100 * right['acc']:.1f} %", flush=True)
    return found


def draw(record: dict) -> Figure:
    """Test accuracy by minutes of a core."""
    programs = record["programs"]
    minutes = {name: np.cumsum(of["seconds"]) / 60 for name, of in programs.items()}
    last = {name: of["test_acc"][-1] for name, of in programs.items()}
    ours, theirs = (f"{last[name]:.1f} % after {minutes[name][-1]:.0f}"
                    for name in ("ours", "PyTorch"))
    figure, axes = drawing.sheet(
        f"{ours} minutes of one core, with PyTorch's gradient {theirs}",
        "CIFAR-10, 11 layers, n = 1; a dot for each epoch",
        record["env"]["processor"], height=3.4)
    colours = {"ours": drawing.colour_of("highway"), "PyTorch": TINTS.ink}
    for name, colour in colours.items():
        axes.plot(minutes[name], programs[name]["test_acc"], "o-", color=colour)
    axes.set(xlabel="minutes of one core, without the tests", xlim=(0, None))
    label_y(axes, "test accuracy, %")
    label_right(axes, [(last[name], name, colours[name]) for name in colours])
    return figure


def main(argv: Sequence[str] | None = None) -> None:
    """Train, tell and write; or only draw. Exits with 1 and a line where the data or a
    record cannot be read."""
    parser = argparse.ArgumentParser(
        prog=COMMAND, description=__doc__, allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plot", action="store_true", help="draw the record again")
    plot = parser.parse_args(argv).plot
    if not plot and absent(["torch"]):
        sys.exit(f"{COMMAND}: needs PyTorch: pip install -e '.[bench]'")
    with failing_in_a_line(COMMAND):
        if plot:
            record, _ = read_with_hash(RECORD, COMMAND, lambda record: None)
        else:
            record = measure(settings(), load("cifar10"))
        records.write_both(RECORD, record, draw, COMMAND)


if __name__ == "__main__":
    main()
