"""The convolutional training step: ours against PyTorch.

The nets are those of the paper's Table 1, of ten layers and two widths, of Table 2,
eleven layers in our reading, and of Table 3, nineteen, on pixels and labels drawn at
random. A step is all of it: dropout, forward, loss, backward, Nesterov's momentum with
weight decay; ours takes the batch in pieces. For the comparison of gradients nothing is
dropped, and in float64 no rounding decides on which side of a kink of relu a number
lies.

PyTorch has the fastest of the forms that we tried: examples in its "channels last"
layout, H and T as two convolutions. Stacked kernels, the usual layout and torch.compile
took longer.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import highway_networks as hn
from benchmarks.harness import Contest, Contestant
from experiments.convolution import trials as nets
from experiments.nets.convolution.net import OfThreads

NETS: dict[str, dict[str, Any]] = {
    "Table 1": {"scale": 256, "stages": [2, 3, 3]},
    "Table 2": {"scale": 64, "centre": [127.5] * 3},
    "Table 3": {"scale": 64, "centre": [127.5] * 3}}
BATCH, PIECE = 100, 25          # of the experiments


class Task:
    """A net's configuration, one batch as pixels (P, N) and its labels."""

    def __init__(self, net: str, dtype: str = "float32", *, batch: int = BATCH,
                 piece: int = PIECE, **settings: Any):
        rng = np.random.default_rng(0)
        self.config: dict[str, Any] = {
            "net": net.lower(), "block": "highway", "gate_bias": -1.0, "seed": 0,
            "lr": 0.001, "decay": 0.001, "momentum": 0.9,    # lr: none diverges
            "dropout": 1, **NETS[net], **settings}
        size = 784 if net == "Table 1" else 3072
        images = rng.integers(256, size=(batch, size), dtype=np.uint8)
        self.x = nets.pixels(images, self.config).astype(dtype)
        self.labels = rng.integers(10, size=batch)
        self.piece = piece

    def make_net(self) -> Any:
        """The net to start from. Its biases are drawn: zero ones would hide an error in
        their use."""
        net = nets.make_net(self.config, len(self.x), self.x.dtype)
        rng = np.random.default_rng(1)
        for (_, name), tensor in net.views(net.params).items():
            if name == "b":
                tensor += rng.normal(0, 0.1, tensor.shape)
        return net


class Ours:
    """This suite's training step."""

    def __init__(self, task: Task):
        self.task, self.net = task, task.make_net()
        self.learner: Any = self.net
        self.cache: Any = self.net.cache(len(task.labels), task.piece)
        self.optimizer = nets.make_optimizer(self.net, task.config)
        self.rng = np.random.default_rng(0)

    def gradient(self) -> dict:
        batch = self.task.x, self.task.labels, None
        _, grad = self.learner.gradient(batch, self.cache)
        return self.net.views(grad)

    def work(self) -> None:
        batch = self.task.x, self.task.labels, self.rng
        hn.train_step(self.learner, batch, self.cache, self.optimizer,
                      self.task.config["lr"], clip=0)


class OneThread(Ours):
    """The same step with one BLAS thread."""

    def work(self) -> None:
        with hn.blas_threads(1):
            super().work()


class TwoThreads(OneThread):
    """The same step by two Python threads, each with half of the batch."""

    def __init__(self, task: Task):
        super().__init__(task)
        self.learner = OfThreads(self.net, 2)
        self.cache = self.learner.cache(len(task.labels), task.piece)


class TorchNet:
    """A net of ours in PyTorch, operation by operation."""

    def take(self, net: Any, x: np.ndarray, labels: np.ndarray) -> None:
        """Have the parameters of a net of ours, pixels (P, N) and their labels."""
        import torch
        self.torch, self.net = torch, net
        side, channels = net.shapes[0]
        images = np.ascontiguousarray(x.T).reshape(-1, channels, side, side)
        self.x = torch.tensor(images).contiguous(memory_format=torch.channels_last)
        self.labels = torch.tensor(labels)
        self.tensors = [self.parts(kind, tensors) for (kind, *_), tensors in zip(
            net.layers, net.by_layer(net.params), strict=True)]

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
        for (kind, *numbers), parts in zip(self.net.layers, self.tensors, strict=True):
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

    def flat_gradient(self) -> np.ndarray:
        """That of the last loss, in the order of ours."""
        flat = np.zeros_like(self.net.params)
        for (kind, *_), parts, view in zip(self.net.layers, self.tensors,
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
        return flat


class Torch(TorchNet):
    """PyTorch's training step."""

    def __init__(self, task: Task):
        self.take(task.make_net(), task.x, task.labels)
        torch, lr, decay = self.torch, task.config["lr"], task.config["decay"]
        pairs: list = sum(self.tensors, [])     # (W, b); those of the outputs are last
        self.optimizer = torch.optim.SGD(
            [{"params": [W for W, _ in pairs[:-1]], "weight_decay": decay},
             {"params": [pairs[-1][0]], "weight_decay": 10 * decay},
             {"params": [b for _, b in pairs], "lr": 2 * lr}],
            lr=lr, momentum=task.config["momentum"], nesterov=True, foreach=True)

    def gradient(self) -> dict:
        """As `Ours.gradient` gives it."""
        self.optimizer.zero_grad()
        self.loss(training=False).backward()
        return self.net.views(self.flat_gradient())

    def work(self) -> None:
        self.optimizer.zero_grad()
        self.loss(training=True).backward()
        self.optimizer.step()


def contest(net: str, threads: int = 1, **settings: Any) -> Contest:
    """The contest on one of NETS."""
    return Contest(lambda dtype: Task(net, dtype, **settings),
                   {"ours": Contestant(Ours), "PyTorch": Contestant(Torch, ("torch",))},
                   {"net": net, "batch": BATCH, "piece": PIECE, **settings},
                   threads=threads)


CONTESTS = {
    "convolution, Table 1, width 16": contest("Table 1", width=16),
    "convolution, Table 1, width 32": contest("Table 1", width=32),
    "convolution, Table 2": contest("Table 2"),
    "convolution, Table 3": contest("Table 3"),
    "convolution, Table 1, width 32, two threads": contest("Table 1", 2, width=32),
    "convolution, Table 2, two threads": contest("Table 2", 2)._replace(
        contestants={"ours": Contestant(TwoThreads),
                     "PyTorch": Contestant(Torch, ("torch",)),
                     "one thread": Contestant(OneThread, rival=False)})}
