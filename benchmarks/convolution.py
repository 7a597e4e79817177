"""A convolutional highway net's training step against PyTorch's and its own products.

    python3 -m benchmarks.convolution [--widths 16,32 --tables 2,3 --batch 100]
    python3 -m benchmarks.convolution --plot

The nets are those of Table 1, of ten layers and several widths, of Table 2, eleven
layers in our reading, and of Table 3, nineteen; the last two in colour, on pixels drawn
at random. All contestants start from the same weights and get the same batch; first
PyTorch's gradient, with nothing dropped, is held to ours, in float64. Then one after
the other makes a step in float32, round after round, in one process on one core with
one thread; a ratio is taken within a round, and its median, least and largest over the
rounds are reported. Seconds are those that the processor spent on the step, so that
other programs matter less. A step is all of it: dropout, forward, loss, backward,
Nesterov's momentum with weight decay.

    ours     `hn.train_step`
    floor    its matrix products alone, on the same arrays
    torch    PyTorch, with examples in its "channels last" layout and H and T as two
             convolutions, which is the fastest of the forms we tried: stacked kernels,
             the usual layout and torch.compile take longer

Without PyTorch, which pip install -e '.[bench]' brings, torch is left out. Writes
benchmarks/convolution.json and draws convolution.png from it; of other settings than
the committed record's both go to runs/benchmarks.
"""

from __future__ import annotations

import argparse
import copy
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from threadpoolctl import threadpool_limits

import highway_networks as hn
from benchmarks.lab import (
    Benchmark,
    build_parser,
    dataset_flag,
    draw_bars,
    entitle,
    machine_with,
    main,
    same_gradient,
    step_times,
    with_own_kernels,
    without_absent,
)
from benchmarks.processes import available_cores, bound_to
from experiments import convolution, convolution_trials
from experiments.nets.convolution.layers import Dense, Plain
from experiments.nets.convolution.net import ConvNet
from experiments.nets.convolution.winograd import Convolution
from highway_suite.cli import in_range, several
from highway_suite.datasets import obtain_as_asked

RECORD = Path(__file__).with_suffix(".json")
SCHEMA = "highway-networks/convolution-step"
LR = 0.001              # so small that no net diverges


class Task:
    """A net's configuration, one batch as pixels (P, N) and its labels."""

    def __init__(self, table: int, config: dict, images: np.ndarray,
                 labels: np.ndarray):
        self.table, self.config = table, config
        self.x = convolution_trials.pixels(images, config)
        self.labels = labels.astype(np.intp)

    def in_double(self) -> Task:
        """The same in float64, with biases that are not zero: so no rounding decides
        which side of a kink of relu a number lies on, on blank paper neither."""
        double = copy.copy(self)
        double.x = self.x.astype("float64")
        return double

    def net(self) -> ConvNet:
        """A new one."""
        net = convolution_trials.make_net(self.config, len(self.x), self.x.dtype)
        if net.dtype == "float64":
            for (_, name), tensor in net.views(net.params).items():
                if name == "b":
                    tensor += np.linspace(0.05, 0.15, tensor.size)[:, None]
        return net


def table_1(dataset: str, data: hn.Data, width: int, args: argparse.Namespace) -> Task:
    """The net of Table 1 of this width, on the first training images."""
    plan = convolution.planned("table", "highway", 10, width, 1, 1)
    config = convolution.make_config(convolution.PROTOCOL | {
        "dataset": dataset, "batch": args.batch, "piece": args.piece}, plan, LR, 0)
    return Task(1, config, data.x_train[:args.batch], data.y_train[:args.batch])


def in_colour(table: int, args: argparse.Namespace) -> Task:
    """The net of Table 2 or 3, on an image and a label drawn for each example."""
    rng = np.random.default_rng(0)
    config = {"net": f"table {table}", "dataset": "cifar10", "block": "highway",
              "gate_bias": -1.0, "seed": 0, "centre": [127.5] * 3, "lr": LR,
              "decay": 0.001, "momentum": 0.9, "batch": args.batch, "piece": args.piece}
    return Task(table, config,
                rng.integers(256, size=(args.batch, 3072), dtype=np.uint8),
                rng.integers(10, size=args.batch))


class Ours:
    """This suite's training step."""

    def __init__(self, task: Task):
        self.task = task
        self.net = task.net()
        self.cache = self.net.cache(len(task.labels), task.config["piece"])
        self.optimizer = convolution_trials.make_optimizer(self.net, task.config)
        self.rng = np.random.default_rng(0)

    def gradient(self) -> dict:
        """With nothing dropped, by layer and name."""
        batch = self.task.x, self.task.labels, None
        _, grad = self.net.gradient(batch, self.cache)
        return self.net.views(grad)

    def step(self) -> None:
        hn.train_step(self.net, (self.task.x, self.task.labels, self.rng), self.cache,
                      self.optimizer, self.task.config["lr"], clip=0)


class Floor(Ours):
    """The matrix products of `Ours` alone."""

    def __init__(self, task):
        super().__init__(task)
        super().step()          # puts numbers into the arrays
        self.d = np.ones_like(self.cache.logits[:, 0, 0])

    def step(self):
        for i, layer in enumerate(self.cache.layers):
            if isinstance(layer, Plain):
                for _ in layer.blocks:
                    self.multiply(layer.convolution, lowest=i == 1)
            elif isinstance(layer, Dense):
                np.matmul(layer.flat, layer.tensors["W"].T, out=self.d)
                np.matmul(self.d.T, layer.flat, out=layer.grads["W"])
                np.matmul(self.d, layer.tensors["W"], out=layer.flat)

    def multiply(self, convolution: Convolution, lowest: bool) -> None:
        np.matmul(convolution.fields, convolution.kernels,
                  out=convolution.M.by_column)
        np.matmul(convolution.moved, convolution.dM,
                  out=convolution.part.transpose(2, 0, 1, 3, 4))
        if not lowest:
            np.matmul(convolution.dfields, convolution.turned,
                      out=convolution.dx_by_column)


class Torch:
    """PyTorch, operation by operation."""

    def __init__(self, task):
        import torch
        torch.set_num_threads(1)
        self.torch, self.task, self.net = torch, task, task.net()
        side, channels = self.net.shapes[0]
        images = np.ascontiguousarray(task.x.T).reshape(-1, channels, side, side)
        self.x = torch.tensor(images).contiguous(memory_format=torch.channels_last)
        self.labels = torch.tensor(task.labels)
        self.weights = [self.parts(kind, tensors) for (kind, *_), tensors in zip(
            self.net.layers, self.net.by_layer(self.net.params), strict=True)]
        lr, decay = task.config["lr"], task.config["decay"]
        pairs: list = sum(self.weights, [])     # (W, b); those of the outputs are last
        self.optimizer = torch.optim.SGD(
            [{"params": [W for W, _ in pairs[:-1]], "weight_decay": decay},
             {"params": [pairs[-1][0]], "weight_decay": 10 * decay},
             {"params": [b for _, b in pairs], "lr": 2 * lr}],
            lr=lr, momentum=task.config["momentum"], nesterov=True, foreach=True)

    def parts(self, kind: str, tensors: dict) -> list[tuple]:
        """A layer's parameters as PyTorch has them: (W, b) of H, of the gate if there
        is one; or of the outputs, in its order of pixels, which is channel first."""
        if not tensors:
            return []
        W, b = tensors["W"], tensors["b"][:, 0]
        if kind == "dense":
            side = self.net.shapes[-2][0]
            stacked = [(W.reshape(len(W), side, -1, side).transpose(0, 2, 1, 3)
                        .reshape(len(W), -1), b)]
        else:
            gates = 2 if kind == "highway" else 1
            stacked = list(zip(np.split(W.transpose(0, 3, 1, 2), gates),
                               np.split(b, gates), strict=True))
        torch = self.torch

        def own(array):
            tensor = torch.tensor(np.ascontiguousarray(array))
            if array.ndim == 4:
                tensor = tensor.contiguous(memory_format=torch.channels_last)
            return tensor.requires_grad_()
        return [(own(W), own(b)) for W, b in stacked]

    def loss(self, training: bool) -> Any:
        F, h = self.torch.nn.functional, self.x
        for (kind, *numbers), parts in zip(self.net.layers, self.weights, strict=True):
            if kind == "dropout":
                h = F.dropout(h, numbers[0], training)
            elif kind == "pool":
                h = F.max_pool2d(h, *numbers, ceil_mode=True)
            elif kind == "average":
                h = h.mean((2, 3), keepdim=True)
            elif kind == "dense":
                h = F.linear(h.flatten(1), *parts[0])
            else:
                z = [F.conv2d(h, W, b, padding=numbers[2]) for W, b in parts]
                H = self.torch.relu(z[0])
                T = [self.torch.sigmoid(gate) for gate in z[1:]]
                h = self.torch.lerp(h, H, T[0]) if T else H
        return F.cross_entropy(h, self.labels)

    def gradient(self) -> dict:
        """As `Ours.gradient` gives it."""
        self.optimizer.zero_grad()
        self.loss(training=False).backward()
        flat = np.zeros_like(self.net.params)
        for (kind, *_), parts, view in zip(self.net.layers, self.weights,
                                           self.net.by_layer(flat), strict=True):
            if parts:
                W = np.concatenate([W.grad.numpy() for W, _ in parts])
                if kind == "dense":
                    side = self.net.shapes[-2][0]
                    W = W.reshape(len(W), -1, side, side).transpose(0, 2, 1, 3)
                else:
                    W = W.transpose(0, 2, 3, 1)
                view["W"][...] = W.reshape(view["W"].shape)
                view["b"][:, 0] = np.concatenate([b.grad.numpy() for _, b in parts])
        return self.net.views(flat)

    def step(self):
        self.optimizer.zero_grad()
        self.loss(training=True).backward()
        self.optimizer.step()


CONTESTANTS = {"ours": Ours, "floor": Floor, "torch": Torch}


def check_gradient(task: Task) -> float:
    """How far PyTorch's gradient is from ours, in float64."""
    ours, theirs = (made(task.in_double()).gradient() for made in (Ours, Torch))
    return same_gradient("torch", ours, theirs)


def measure(task: Task, names: Sequence[str], repeats: int) -> dict:
    """One task -> its part of the record."""
    contestants: dict[str, Any] = {name: CONTESTANTS[name](task) for name in names}
    error = check_gradient(task) if "torch" in names else None
    return {"table": task.table, "width": task.config.get("width"),
            "gradient_error": error, **step_times(
                contestants, lambda contestant: contestant.step(), 1, repeats,
                time.process_time)}


def run(args: argparse.Namespace) -> dict:
    """Measure every width -> the record. Raises hn.DataError."""
    names = without_absent(CONTESTANTS)
    dataset, data = obtain_as_asked(args.dataset, args.data_dir)
    with bound_to(available_cores()[:1]), threadpool_limits(1, "blas"):
        tasks = [*(table_1(dataset, data, width, args) for width in args.widths),
                 *(in_colour(table, args) for table in args.tables)]
        nets = [measure(task, names, args.repeats) for task in tasks]
        env = machine_with(names)
    return {"command": "python3 -m benchmarks.convolution --widths "
                       f"{','.join(map(str, args.widths))} --tables "
                       f"{','.join(map(str, args.tables))} --batch {args.batch} "
                       f"--piece {args.piece} --repeats {args.repeats}"
                       + dataset_flag(args),
            "dataset": dataset, "batch": args.batch, "piece": args.piece,
            "repeats": args.repeats, "env": env, "nets": nets}


def title_of(net: dict) -> str:
    """Its table and, where there are several, its width."""
    return f"Table {net['table']}" + (
        f", width {net['width']}" if net["width"] else "")


def report(record: dict) -> None:
    """The record as a small table."""
    print("net                          ms/step   times ours (least - largest)")
    for net in record["nets"]:
        for name, part in net["contestants"].items():
            times = part["times_ours"]
            print(f"{title_of(net):<17} {name:>8} {1e3 * part['median']:>9.1f}"
                  f"   {times['median']:.2f} ({times['least']:.2f} - "
                  f"{times['largest']:.2f})")


def draw(record: dict) -> Figure:
    """The record -> Figure: a panel for each net."""
    nets = record["nets"]
    rows = math.ceil(len(nets) / 2)
    figure = Figure(figsize=(9, 1.0 + 1.8 * rows), layout="constrained")
    panels = figure.subplots(rows, 2, squeeze=False).ravel()
    for axes, net in zip(panels, nets, strict=False):
        draw_bars(axes, {name: (1e3 * np.array(part["seconds"]),
                                f"({part['times_ours']['median']:.2f}×)")
                         for name, part in net["contestants"].items()},
                  "milliseconds per step (× ours)")
        axes.set_title(f"{title_of(net)}, {net['parameters']:,} parameters", size=10)
    for axes in panels[len(nets):]:
        axes.remove()
    entitle(figure, [net["contestants"] for net in nets],
            f"Convolutional highway nets, batch {record['batch']}, float32, one core; "
            f"{record['env']['cpu']}", record["repeats"])
    return figure


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = build_parser(__doc__ or "", "benchmarks.convolution", batch=100, piece=25,
                          repeats=15)
    parser.add_argument("--widths", type=several(in_range(int, 1, 1024)),
                        metavar="A,B,...", default=[16, 32], help="(default: 16,32)")
    parser.add_argument("--tables", type=several(in_range(int, 2, 3)),
                        metavar="A,B,...", default=[2, 3], help="(default: 2,3)")
    return parser


BENCHMARK = Benchmark(make_parser, RECORD, SCHEMA, run, report, draw)

if __name__ == "__main__":
    with_own_kernels("benchmarks.convolution")
    main(BENCHMARK)
