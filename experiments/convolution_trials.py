"""One trial of Tables 1 to 3: a convolutional net, its training by `hn.fit`, its gates.

A trial's settings:

    net         of which table; Table 1's unless it is given
    centre      the mean of each channel, taken from the pixels; none unless given
    crop        training images get so many pixels of the mean around them, and a window
                of their own size and one half of the images mirrored; 0 unless given
    schedule    "thirds", the authors' for MNIST: x 0.1 after each third of the epochs;
                or "cosine": an epoch at lr / 10, then half a cosine's wave from lr to 0
    order       of the images in an epoch: "files", the authors', or "shuffled" anew
    widths      of the stages of Tables 2 and 3; theirs unless given
    dropout     all of the authors' rates are multiplied by it
    gate        side of the gates' kernels, 0, 1 or 3; as H's, 3, unless given
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import highway_networks as hn
from experiments.judging import listed
from experiments.nets.convolution.net import Cache, ConvNet, Nesterov
from experiments.store import hash_of
from experiments.trials import reporting
from highway_suite.checkpoints import Checkpoint, data_hash


class Facts(NamedTuple):
    """What differs from one data set to the next."""

    scale: int                  # the pixels are divided by it
    channels: int = 1
    classes: int = 10
    first: tuple = (3, 1)       # Table 1: kernel and zeros of the first layer,
    last: tuple = ()            # and the layers before the outputs


FACTS = {"mnist": Facts(256, first=(5, 0), last=(("pool", 2, 2),)),     # Caffe's 1/256
         "fashion": Facts(256, first=(5, 0), last=(("pool", 2, 2),)),
         "digits": Facts(16), "cifar10": Facts(64, 3), "cifar10-jpeg75": Facts(64, 3),
         "cifar100": Facts(64, 3, 100)}


def table_1(config: dict) -> list[tuple]:
    """The authors' 10 layers, of any width; or more of them."""
    width, facts = config["width"], FACTS[config["dataset"]]
    block = ((config["block"], width, 3, 1) if config.get("gate", 3) == 3 else
             ("narrow", width, 3, 1, config["gate"]))
    first, second, third = ([block] * n for n in config["stages"])
    return [("dropout", 0.2), ("plain", width, *facts.first),
            *first, ("pool", 3, 2), ("dropout", 0.3),
            *second, ("pool", 3, 2), ("dropout", 0.4),
            *third, *facts.last, ("dropout", 0.5),
            ("dense", facts.classes)]


def stages(config: dict, widths: Sequence[int], counts: Sequence[int]) -> list[tuple]:
    """A plain layer of each width, highway layers, and a pooling that halves the image
    but after the last: as Tables 2 and 3 have it."""
    made: list[tuple] = [("dropout", 0.2)]
    for i, (width, count) in enumerate(zip(widths, counts, strict=True)):
        made += [("pool", 2, 2), ("dropout", 0.2)] if i else []
        made += [("plain", width, 3, 1)] + [(config["block"], width, 3, 1)] * count
    return made


def table_2(config: dict) -> list[tuple]:
    """Our reading of the 11 layers with 236 K parameters: Fitnet A's three stages, here
    each of one width, whose first layer has no gates, and a hidden layer of 250 units.
    """
    side = 8 if FACTS[config["dataset"]].channels == 3 else 2
    return [*stages(config, config.get("widths", (16, 32, 64)), (2, 2, 2)),
            ("pool", side, side),
            ("dropout", 0.2), ("plain", 250, 1, 0), ("dropout", 0.2),
            ("dense", FACTS[config["dataset"]].classes)]


def table_3(config: dict) -> list[tuple]:
    """The authors' 19 layers with 2.3 M parameters."""
    return [*stages(config, config.get("widths", (32, 80, 128)), (4, 5, 5)),
            ("plain", 100, 1, 0), ("average",), ("dropout", 0.2),
            ("dense", FACTS[config["dataset"]].classes)]


NETS = {"table 1": table_1, "table 2": table_2, "table 3": table_3}


def layers(config: dict) -> list[tuple]:
    """The list of layers of a trial's net, for ConvNet."""
    factor = config.get("dropout", 1)
    return [(kind, numbers[0] * factor) if kind == "dropout" else (kind, *numbers)
            for kind, *numbers in NETS[config.get("net", "table 1")](config)]


def make_net(config: dict, size: int, dtype: Any = "float32") -> ConvNet:
    """The untrained net for images of so many numbers."""
    channels = FACTS[config["dataset"]].channels
    return ConvNet(layers(config), math.isqrt(size // channels), channels,
                   gate_bias=config.get("gate_bias", 0.0), seed=config["seed"],
                   dtype=dtype)


def make_optimizer(net: ConvNet, config: dict) -> Nesterov:
    """Caffe's multipliers: weight decay x 10 for the outputs, none for biases; biases
    learn at twice the rate."""
    rates, decays = np.ones_like(net.params), np.zeros_like(net.params)
    rate, decay = net.views(rates), net.views(decays)
    for i, name in rate:
        if name == "b":
            rate[i, name].fill(2)
        else:
            tenfold = 10 if net.layers[i][0] == "dense" else 1
            decay[i, name].fill(config["decay"] * tenfold)
    return Nesterov(net.params, rates, decays, config["momentum"])


def learning_rate(config: dict, epoch: int) -> float:
    """The rate of an epoch, 1 to the last."""
    if config.get("schedule", "thirds") == "thirds":
        return config["lr"] * 0.1 ** (3 * (epoch - 1) // config["epochs"])
    if epoch == 1:
        return config["lr"] / 10
    return config["lr"] * (1 + math.cos(
        math.pi * (epoch - 2) / (config["epochs"] - 1))) / 2


def pixels(images: np.ndarray, config: dict) -> np.ndarray:
    """uint8 (N, P) -> float32 (P, N)."""
    scale = FACTS[config["dataset"]].scale
    x = np.multiply(images.T, 1 / scale, dtype="float32")
    if centre := config.get("centre"):
        planes = x.reshape(len(centre), -1, len(images))        # a view
        np.subtract(planes, np.array(centre, x.dtype)[:, None, None] / scale,
                    out=planes)
    return x


def cropped(images: np.ndarray, config: dict, rng: np.random.Generator) -> np.ndarray:
    """uint8 (N, P) -> the same with each image moved by up to `crop` pixels each way,
    and one half of them mirrored."""
    room, centre = config["crop"], np.array(config["centre"])[None, :, None, None]
    N, C = len(images), centre.size
    S = math.isqrt(images.shape[1] // C)
    padded = np.empty((N, C, S + 2 * room, S + 2 * room), np.uint8)
    padded[...] = np.round(centre)
    padded[:, :, room:-room, room:-room] = images.reshape(N, C, S, S)
    moved = np.empty((N, C, S, S), np.uint8)
    corners, mirrored = rng.integers(2 * room + 1, size=(N, 2)), rng.random(N) < 0.5
    for to, of, (top, left), turned in zip(moved, padded, corners, mirrored,
                                           strict=True):
        window = of[:, top:top + S, left:left + S]
        to[...] = window[..., ::-1] if turned else window
    return moved.reshape(N, -1)


class InOrder:
    """Batches for `ConvNet.gradient`, in the files' order: x (P, size), labels (size,)
    and what dropout draws from. The N mod size last images sit out."""

    def __init__(self, images: np.ndarray, labels: np.ndarray, config: dict):
        self.images, self.labels, self.config = images, labels, config
        self.size = config["batch"]
        self.streams = {"dropout": np.random.default_rng(
            hn.streams(config["seed"])["batches"])}

    def __iter__(self) -> Iterator[tuple]:
        for start in range(0, len(self.images) - self.size + 1, self.size):
            rows = slice(start, start + self.size)
            yield (pixels(self.images[rows], self.config), self.labels[rows],
                   self.streams["dropout"])


class Shuffled(InOrder):
    """The same in an order that each epoch draws anew."""

    def __init__(self, images: np.ndarray, labels: np.ndarray, config: dict):
        super().__init__(images, labels, config)
        names = ("order", "dropout", "crop")[:3 if config.get("crop") else 2]
        self.streams = {name: np.random.default_rng(stream) for name, stream in zip(
            names, hn.streams(config["seed"])["batches"].spawn(3), strict=False)}

    def __iter__(self) -> Iterator[tuple]:
        for x, labels in hn.Batches(self.images, self.labels, self.size,
                                    self.streams["order"]):
            images = x.T
            if "crop" in self.streams:
                images = cropped(images, self.config, self.streams["crop"])
            yield pixels(images, self.config), labels, self.streams["dropout"]


ORDERS = {"files": InOrder, "shuffled": Shuffled}


def right_and_loss(net: ConvNet, images: np.ndarray, labels: np.ndarray, config: dict,
                   cache: Cache) -> tuple[float, float]:
    """The part of the images (N, P) that are classified rightly, and the mean loss.
    Raises hn.Diverged."""
    right, loss = 0, 0.0
    for rows, back in hn.pieces(len(images), cache.batch):
        logits, _ = net.forward(pixels(images[rows], config), cache)
        if not np.isfinite(logits).all():
            raise hn.Diverged("a logit is not finite")
        logits, wanted = logits[:, back:], labels[rows][back:]
        right += np.count_nonzero(logits.argmax(axis=0) == wanted)
        loss += float(hn.cross_entropy(logits, wanted)[0]) * len(wanted)
    return right / len(images), loss / len(images)


class Trained(NamedTuple):
    """A net at the end of its training, or where it diverged."""

    net: ConvNet
    cache: Cache
    history: list
    status: str
    before: float = 0.0     # seconds until it was stopped, if it was

    def columns(self, config: dict, *names: str) -> dict:
        """What was measured in each epoch, by name; None in those that never came."""
        missing = [None] * (config["epochs"] - len(self.history))
        return {"seconds_before": self.before} | {
            name: [row[name] for row in self.history] + missing for name in names}


def fit_net(config: dict, images: np.ndarray, labels: np.ndarray, folder: str,
            evaluate: Callable | None = None) -> Trained:
    """Train a net on images (N, P), from its checkpoint in the folder if there is one.
    """
    path = Path(folder) / f"{hash_of(config)}.npz"
    path.parent.mkdir(parents=True, exist_ok=True)
    net = make_net(config, images.shape[1])
    cache = net.cache(config["batch"], config["piece"])
    history, status = hn.fit(
        net, ORDERS[config.get("order", "files")](images, labels, config),
        make_optimizer(net, config),
        lambda epoch, history: learning_rate(config, epoch), reporting(config),
        epochs=config["epochs"], measure=evaluate, cache=cache,
        checkpoint=(kept := Checkpoint(path, config, data_hash(images, labels))))
    return Trained(net, cache, history, status, kept.seconds_before)


def train_net(config: dict, data: hn.Data, folder: str) -> dict:
    """One trial of `convolution`: per epoch the mean training loss and the test
    accuracy, and of a highway net where its gates are open."""
    y_train, y_test = (labels.astype(np.intp) for labels in (data.y_train, data.y_test))

    def test(net, cache):
        return {"test_acc": hn.significant(
            right_and_loss(net, data.x_test, y_test, config, cache)[0])}
    found, gates = fit_net(config, data.x_train, y_train, folder, test), {}
    if config["block"] == "highway" and found.status == "ok":
        gates = look_at_gates(found.net, data.x_test, config, found.cache)
    return {"status": found.status, "parameters": found.net.params.size, **gates,
            **found.columns(config, "train_loss", "test_acc")}


def train_held_out(config: dict, data: hn.Data, folder: str) -> dict:
    """One trial of a search: trained without `held_out` of the training images, which
    its seed draws, and judged by these after each epoch."""
    rng = np.random.default_rng(hn.streams(config["seed"])["subset"])
    order = rng.permutation(len(data.x_train))
    held, rest = order[:config["held_out"]], np.sort(order[config["held_out"]:])
    labels = data.y_train.astype(np.intp)
    held_images, held_labels = data.x_train[held], labels[held]

    def evaluate(net, cache):
        right, loss = right_and_loss(net, held_images, held_labels, config, cache)
        return {"held_out_acc": hn.significant(right),
                "held_out_loss": hn.significant(loss)}
    found = fit_net(config, data.x_train[rest], labels[rest], folder, evaluate)
    return {"status": found.status, "parameters": found.net.params.size,
            **found.columns(config, "train_loss", "held_out_acc", "held_out_loss")}


def train_and_test(config: dict, data: hn.Data, folder: str) -> dict:
    """One run on all training images; the test images are looked at once, at the end.
    """
    found = fit_net(config, data.x_train, data.y_train.astype(np.intp), folder)
    status, measured = found.status, (None, None)
    if status == "ok":
        try:
            measured = tuple(map(hn.significant, right_and_loss(
                found.net, data.x_test, data.y_test.astype(np.intp), config,
                found.cache)))
        except hn.Diverged:
            status = "diverged"
    return {"status": status, "parameters": found.net.params.size,
            "final_test_acc": measured[0], "final_test_loss": measured[1],
            **found.columns(config, "train_loss")}


# --------------------------------------------------------------------------------------
# Gates


def any_pixel(ink: np.ndarray, side: int, size: int, stride: int) -> np.ndarray:
    """(S, S, B) bool -> (side, side, B): whether one of a pooling window's is set."""
    room = np.zeros((side * stride + size,) * 2 + ink.shape[2:], bool)
    room[:len(ink), :len(ink)] = ink
    ends = [slice(i, i + side * stride, stride) for i in range(size)]
    return np.any([room[rows, columns] for rows in ends for columns in ends], axis=0)


def ink_maps(net: ConvNet, x: np.ndarray) -> list[np.ndarray]:
    """Pixels (P, B) -> for each highway layer where there is ink, (S, S, B) bool."""
    ink, maps = x.reshape(net.side, net.side, -1) > 0.5, []
    for (kind, *numbers), (side, _) in zip(net.layers, net.shapes[1:], strict=True):
        if kind == "pool":
            ink = any_pixel(ink, side, *numbers)
        elif kind == "plain":           # the pixel in the middle of each field
            edge = (len(ink) - side) // 2
            ink = ink[edge:edge + side, edge:edge + side]
        elif kind == "highway":
            maps.append(ink)
    return maps


def look_at_gates(net: ConvNet, images: np.ndarray, config: dict, cache: Cache) -> dict:
    """The gates on the test images: the mean T of each highway layer on all cells, on
    those with ink and on blank ones; and T of the first images, averaged over channels.
    """
    sums, counts, maps = [], [], []
    for rows, back in hn.pieces(len(images), cache.batch):
        x = pixels(images[rows], config)
        T = [np.moveaxis(gates.mean(axis=-1), 0, -1)                    # (S, S, B)
             for gates in net.gates(x, cache)]
        cells = [np.stack([np.ones_like(ink), ink, ~ink])[..., back:]
                 for ink in ink_maps(net, x)]                           # (3, S, S, B)
        sums.append([np.sum(kept * mean[..., back:], axis=(1, 2, 3), dtype=float)
                     for kept, mean in zip(cells, T, strict=True)])
        counts.append([kept.sum(axis=(1, 2, 3)) for kept in cells])
        if not rows.start:
            maps = [{"image": images[i].reshape(net.side, -1).tolist()}
                    | {f"T{layer}": np.round(mean[..., i].astype(float), 2).tolist()
                       for layer, mean in enumerate(T, 1)}
                    for i in range(config["maps"])]
    with np.errstate(invalid="ignore"):     # where no cell is of a kind
        means = np.sum(sums, axis=0) / np.sum(counts, axis=0)           # (layers, 3)
    return {"T": {name: listed(column) for name, column in
                  zip(("all", "ink", "blank"), means.T, strict=True)},
            "maps": maps}
