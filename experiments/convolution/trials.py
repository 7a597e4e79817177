"""One trial: a convolutional net of Tables 1 to 3, its training, what is measured.

A trial's config:

    net         "table 1", "table 2" or "table 3"
    block       "highway" or "plain"; gate_bias is the first b_T of a highway net
    width       filters of each layer of Table 1
    stages      highway layers of Table 1 before each pooling
    gate        side of the gates' kernels, 0, 1 or 3; as H's, 3, unless given
    dropout     all of the authors' rates are multiplied by it
    scale       pixels are divided by it, after, if `centred`, the mean of their channel
                over all training images was subtracted
    whitened    if true, the three channels then are mixed, so that over the training
                images they are uncorrelated and of variance 1
    start       "unit": orthogonal kernels, scaled to unit variance layer by layer; He's
                unless given
    optimizer   "nesterov" unless given; "adam" or "muon" have decay beside the gradient
                and no other rate for biases
    crop        training images get so many pixels of the mean around them, and a window
                of their own size and one half of the images mirrored; 0 for none
    schedule    "thirds", the authors' for MNIST: x 0.1 after each third of the epochs;
                "eighths", theirs for CIFAR: x 0.1 after 4, 6 and 7 eighths; "cosine":
                an epoch at lr / 10, then half a cosine's wave from lr to 0; or "linear"
                by step: from 0 to lr in a fifth of all steps, then to 0
    sides       of the training images, each for an equal part of the epochs: images are
                shrunk to them, for a net that ends in an average. The whole ones alone
                unless given; what is measured is measured on these
    threads     that share each batch, in equal parts of whole pieces; what is dropped
                depends on their number. One unless given
    order       of the images in an epoch: "files", the authors', or "shuffled" anew
    n_train     how many training images, which the seed draws; all unless given
    measure     what is measured. "held out": at the end, accuracy and loss on
                `held_out` training images, which the seed draws and the training does
                not see; "test": at the end, accuracy on the test images; "curve": the
                former after each epoch and the latter; "test by epoch": accuracy and
                loss on the test images after each epoch; "gates": "test" and where
                gates are open; "nothing": the training loss alone
    look        {"images": n, "draws": d}, with "test" or "test by epoch": also what
                experiments/nets/convolution/probes.py finds of the layers of each
                stage, on the first n test images, a multiple of the batch, with d
                random orders
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

import highway_networks as hn
from experiments.lab import trial_function
from experiments.lab.judging import listed
from experiments.lab.running import epoch_reporter
from experiments.nets.convolution.net import (
    Cache,
    ConvNet,
    Nesterov,
    OfManySides,
    OfThreads,
)
from experiments.nets.convolution.probes import look_at_stages
from experiments.nets.convolution.recipe import ByStep, Muon, scale_to_unit_variance

# --------------------------------------------------------------------------------------
# The nets


def table_1(config: dict, side: int, classes: int) -> list[tuple]:
    """The authors' 10 layers, of any width; or more of them. Small images, those that
    ship, have a smaller first kernel and no last pooling."""
    width = config["width"]
    kernel, last = ((5, 0), [("pool", 2, 2)]) if side >= 28 else ((3, 1), [])
    block = ((config["block"], width, 3, 1) if config.get("gate", 3) == 3 else
             ("narrow", width, 3, 1, config["gate"]))
    first, second, third = ([block] * n for n in config["stages"])
    return [("dropout", 0.2), ("plain", width, *kernel),
            *first, ("pool", 3, 2), ("dropout", 0.3),
            *second, ("pool", 3, 2), ("dropout", 0.4),
            *third, *last, ("dropout", 0.5), ("dense", classes)]


def stages(config: dict, widths: Sequence[int], counts: Sequence[int]) -> list[tuple]:
    """A plain layer of each width, highway layers, and a pooling that halves the image
    but after the last: as Tables 2 and 3 have it."""
    made: list[tuple] = [("dropout", 0.2)]
    for i, (width, count) in enumerate(zip(widths, counts, strict=True)):
        made += [("pool", 2, 2), ("dropout", 0.2)] if i else []
        made += [("plain", width, 3, 1)] + [(config["block"], width, 3, 1)] * count
    return made


def table_2(config: dict, side: int, classes: int) -> list[tuple]:
    """Our reading of the 11 layers with 236 K parameters: Fitnet A's three stages, here
    each of one width, whose first layer has no gates, and a hidden layer of 250 units.
    """
    return [*stages(config, (16, 32, 64), (2, 2, 2)),
            ("pool", side // 4, side // 4), ("dropout", 0.2), ("plain", 250, 1, 0),
            ("dropout", 0.2), ("dense", classes)]


def table_3(config: dict, side: int, classes: int) -> list[tuple]:
    """The authors' 19 layers with 2.3 M parameters."""
    return [*stages(config, (32, 80, 128), (4, 5, 5)),
            ("plain", 100, 1, 0), ("average",), ("dropout", 0.2), ("dense", classes)]


NETS = {"table 1": table_1, "table 2": table_2, "table 3": table_3}


def channels_of(size: int) -> int:
    """Of square images of so many numbers: one or three."""
    return 1 if math.isqrt(size) ** 2 == size else 3


def make_net(config: dict, size: int, dtype: Any = "float32", classes: int = 10
             ) -> ConvNet:
    """The untrained net for square images of so many numbers, of one or three channels.
    """
    channels = channels_of(size)
    side = math.isqrt(size // channels)
    layers = [(kind, numbers[0] * config["dropout"]) if kind == "dropout" else
              (kind, *numbers)
              for kind, *numbers in NETS[config["net"]](config, side, classes)]
    return ConvNet(layers, side, channels, seed=config["seed"], dtype=dtype,
                   gate_bias=config.get("gate_bias", 0.0),
                   init="orthogonal" if config.get("start") == "unit" else "he")


def learner_of(net: ConvNet, cache: Cache, config: dict) -> tuple[Any, Any]:
    """What learns, and its cache: the net, or with twins for images of several sides,
    or in several threads."""
    learner: Any = net
    if "sides" in config:
        channels, classes = net.shapes[0][1], net.shapes[-1][1]
        learner = OfManySides(net, [
            make_net(config, channels * side ** 2, classes=classes)
            for side in config["sides"]])
    if "threads" in config:
        learner = OfThreads(learner, config["threads"])
    return learner, cache if learner is net else learner.cache(cache.batch, cache.piece)


def make_optimizer(net: ConvNet, config: dict, steps: int = 1) -> Nesterov | ByStep:
    """For so many steps. Caffe's multipliers: weight decay x 10 for the outputs, none
    for biases; biases learn at twice the rate."""
    rates, decays = np.ones_like(net.params), np.zeros_like(net.params)
    rate, decay = net.views(rates), net.views(decays)
    for i, name in rate:
        if name == "b":
            rate[i, name].fill(2)
        else:
            tenfold = 10 if net.layers[i][0] == "dense" else 1
            decay[i, name].fill(config["decay"] * tenfold)
    kind = config.get("optimizer", "nesterov")
    linear = config.get("schedule") == "linear"
    if kind == "nesterov":
        inner: Any = Nesterov(net.params, rates, decays, config["momentum"])
        if not linear:
            return inner
        decays = np.zeros_like(decays)      # the inner one has it
    else:
        inner = Muon(net) if kind == "muon" else hn.Adam(net.params)
    # Linear: from 0 to 1 in the first fifth of all steps, then back to 0.
    return ByStep(inner, decays, steps, lambda over: (
        min(over / 0.2, (1 - over) / 0.8) if linear else 1))


def learning_rate(config: dict, epoch: int) -> float:
    """The rate of an epoch, 1 to the last; of a "linear" one the largest."""
    over = (epoch - 1) / config["epochs"]
    if config["schedule"] == "linear":
        return config["lr"]
    if config["schedule"] == "eighths":
        return config["lr"] * 0.1 ** sum(over >= part for part in (0.5, 0.75, 0.875))
    if config["schedule"] == "thirds":
        return config["lr"] * 0.1 ** (3 * (epoch - 1) // config["epochs"])
    if epoch == 1:
        return config["lr"] / 10
    return config["lr"] * (1 + math.cos(
        math.pi * (epoch - 2) / (config["epochs"] - 1))) / 2


# --------------------------------------------------------------------------------------
# Images


def channel_means(images: np.ndarray) -> list[float]:
    """(N, P) -> the mean of each channel of square images."""
    N, P = images.shape
    planes = images.reshape(N, channels_of(P), -1)
    return listed([planes[:, i].mean() for i in range(planes.shape[1])], 4)


def whitening(images: np.ndarray, scale: float) -> list:
    """(3, 3), symmetric: what makes the channels of images (N, P), divided by scale,
    uncorrelated and of variance 1."""
    planes = images.reshape(len(images), 3, -1).swapaxes(0, 1).reshape(3, -1)
    values, vectors = np.linalg.eigh(np.cov(planes / scale))
    return listed(vectors / np.sqrt(values) @ vectors.T, 6)


def statistics(images: np.ndarray, config: dict) -> dict:
    """Of the training images, what `pixels` subtracts and mixes: "centre" and "mix"."""
    found: dict = {"centre": channel_means(images)} if config["centred"] else {}
    if config.get("whitened"):          # by one of ten, or it takes much memory
        found["mix"] = whitening(images[::10], config["scale"])
    return found


def pixels(images: np.ndarray, config: dict) -> np.ndarray:
    """uint8 (N, P) -> float32 (P, N); config: "scale", and "centre", the means of the
    channels, where they are to be subtracted, and "mix", how they are to be mixed."""
    x = np.multiply(images.T, 1 / config["scale"], dtype="float32")
    if centre := config.get("centre"):
        planes = x.reshape(len(centre), -1, len(images))        # a view
        np.subtract(planes, np.array(centre, x.dtype)[:, None, None] / config["scale"],
                    out=planes)
        if mix := config.get("mix"):
            x = np.tensordot(np.array(mix, x.dtype), planes, 1).reshape(x.shape)
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


def shrunk(x: np.ndarray, side: int) -> np.ndarray:
    """Square images (P, B) -> smaller ones: each new pixel is the mean of what it
    covers."""
    channels = channels_of(len(x))
    S = math.isqrt(len(x) // channels)
    edges, pixel = np.arange(side + 1) * S / side, np.arange(S)
    covers = (np.minimum(edges[1:, None], pixel + 1)
              - np.maximum(edges[:-1, None], pixel)).clip(0)
    means = (covers * side / S).astype(x.dtype)
    rows = (means @ x.reshape(channels, S, -1)).reshape(channels, side, S, -1)
    return (means @ rows).reshape(-1, x.shape[1])


class Batches:
    """Batches for `ConvNet.gradient`, in the files' order or in one that each epoch
    draws anew: x (P, size), labels (size,) and what dropout draws from. The N mod size
    last images sit out."""

    side: int | None = None         # of images that are to be shrunk

    def __init__(self, images: np.ndarray, labels: np.ndarray, config: dict):
        self.images, self.labels, self.config = images, labels, config
        self.size, stream = config["batch"], hn.streams(config["seed"])["batches"]
        names = ("order", "dropout", "crop")[:3 if config["crop"] else 2]
        streams = {"dropout": stream} if config["order"] == "files" else dict(
            zip(names, stream.spawn(3), strict=False))
        self.streams = {name: np.random.default_rng(of) for name, of in streams.items()}

    def __iter__(self) -> Iterator[tuple]:
        size, order = self.size, self.streams.get("order")
        batches: Iterable[tuple] = (
            hn.Batches(self.images, self.labels, size, order) if order else (
                (self.images[start:start + size].T, self.labels[start:start + size])
                for start in range(0, len(self.images) - size + 1, size)))
        for x, labels in batches:
            images = x.T
            if "crop" in self.streams:
                images = cropped(images, self.config, self.streams["crop"])
            x = pixels(images, self.config)
            yield (shrunk(x, self.side) if self.side else x, labels,
                   self.streams["dropout"])


def split(config: dict, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Which of so many training images a trial trains on, and which it holds out."""
    rng = np.random.default_rng(hn.streams(config["seed"])["subset"])
    if config["measure"] in ("held out", "curve"):
        order = rng.permutation(count)
        return np.sort(order[config["held_out"]:]), order[:config["held_out"]]
    chosen = (rng.permutation(count)[:config["n_train"]] if "n_train" in config else
              np.arange(count))
    return chosen, chosen[:0]


# --------------------------------------------------------------------------------------
# A trial


class Ready(NamedTuple):
    """A net before its training, and what trains it."""

    config: dict            # with what `pixels` needs
    net: ConvNet
    cache: Cache
    batches: Batches
    optimizer: Nesterov | ByStep
    held: np.ndarray        # which training images are held out


def prepare(config: dict, data: hn.Data) -> Ready:
    """Everything of a trial up to its first step."""
    config = config | statistics(data.x_train, config)
    rows, held = split(config, len(data.x_train))
    net = make_net(config, data.x_train.shape[1], classes=data.classes)
    cache = net.cache(config["batch"], config["piece"])
    if config.get("start") == "unit":
        scale_to_unit_variance(net, pixels(data.x_train[rows[:cache.batch]], config),
                               cache)
    batches = Batches(data.x_train[rows], data.y_train[rows].astype(np.intp), config)
    steps = config["epochs"] * (len(rows) // cache.batch)
    return Ready(config, net, cache, batches, make_optimizer(net, config, steps), held)


BY_EPOCH = {"curve": "held_out", "test by epoch": "test"}       # by measure: images


@trial_function("convolution.train", version=5, accepts=(1, 2, 3, 4), resumable=True)
def train(config: dict, data: hn.Data, checkpoint: Any = None) -> dict:
    """One trial: the training loss of each epoch, None after one that diverged, and
    what the config says is measured. Versions 1 to 4 had other convolutions."""
    config, net, cache, batches, optimizer, held = prepare(config, data)

    def look(at):
        images, labels = ((data.x_test, data.y_test) if at == "test" else
                          (data.x_train[held], data.y_train[held]))
        return right_and_loss(net, images, labels, config, cache)
    measure, epochs = config["measure"], config["epochs"]
    by_epoch = BY_EPOCH.get(measure)
    sides = config.get("sides", [None])

    def rate(epoch, _):
        batches.side = sides[(epoch - 1) * len(sides) // epochs]
        return learning_rate(config, epoch)
    learner, buffers = learner_of(net, cache, config)
    history, status = hn.fit(
        learner, batches, optimizer, rate, epoch_reporter(config), epochs=epochs,
        cache=buffers, checkpoint=checkpoint,
        measure=(lambda *_: look(by_epoch)) if by_epoch else None)
    names = {"train_loss": "train_loss"} | ({
        name: f"{by_epoch}_{name}" for name in ("acc", "loss")} if by_epoch else {})
    result = {"status": status, "parameters": net.params.size, **{
        name: [row[key] for row in history] + [None] * (epochs - len(history))
        for key, name in names.items()}}
    if status != "ok" or measure == "nothing":
        return result
    try:
        found = look("held_out" if measure == "held out" else "test")
    except hn.Diverged:
        return result | {"status": "diverged"}
    result |= found if measure == "held out" else {"acc": found["acc"]}
    if measure == "gates":
        result["T"] = look_at_gates(net, data.x_test, config, cache)
    return result | look_at_layers(net, data, config)


def look_at_layers(net: ConvNet, data: hn.Data, config: dict) -> dict:
    """What is found of the layers, where the config asks for it: {"layers": it}."""
    if "look" not in config:
        return {}
    how, size = config["look"], config["batch"]
    batches = ((pixels(data.x_test[rows], config), data.y_test[rows]) for rows in (
        slice(start, start + size) for start in range(0, how["images"], size)))
    found = look_at_stages(net, batches, how["draws"],
                           np.random.default_rng(config["seed"]))
    return {"layers": {"acc": listed(found["acc"]), "stages": [
        {name: listed(values) for name, values in stage.items()}
        for stage in found["stages"]]}}


def right_and_loss(net: ConvNet, images: np.ndarray, labels: np.ndarray, config: dict,
                   cache: Cache) -> dict[str, float]:
    """The part of the images (N, P) that are classified rightly, "acc", and the mean
    loss. Raises hn.Diverged."""
    right, loss, labels = 0, 0.0, labels.astype(np.intp)
    for rows, back in hn.pieces(len(images), cache.batch):
        logits, _ = net.forward(pixels(images[rows], config), cache)
        if not np.isfinite(logits).all():
            raise hn.Diverged("a logit is not finite")
        logits, wanted = logits[:, back:], labels[rows][back:]
        right += np.count_nonzero(logits.argmax(axis=0) == wanted)
        loss += float(hn.cross_entropy(logits, wanted)[0]) * len(wanted)
    return {"acc": hn.significant(right / len(images)),
            "loss": hn.significant(loss / len(images))}


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


def look_at_gates(net: ConvNet, images: np.ndarray, config: dict, cache: Cache
                  ) -> dict[str, list]:
    """The mean T of each highway layer on cells with ink, and on blank ones: (L,) each.
    """
    sums, counts = [], []
    for rows, back in hn.pieces(len(images), cache.batch):
        x = pixels(images[rows], config)
        T = [np.moveaxis(gates.mean(axis=-1), 0, -1)                    # (S, S, B)
             for gates in net.gates(x, cache)]
        cells = [np.stack([ink, ~ink])[..., back:] for ink in ink_maps(net, x)]
        sums.append([np.sum(kept * mean[..., back:], axis=(1, 2, 3), dtype=float)
                     for kept, mean in zip(cells, T, strict=True)])
        counts.append([kept.sum(axis=(1, 2, 3)) for kept in cells])
    with np.errstate(invalid="ignore"):     # where no cell is of a kind
        ink, blank = (np.sum(sums, axis=0) / np.sum(counts, axis=0)).T
    return {"ink": listed(ink), "blank": listed(blank)}
