"""1000 layers: which initial gate bias lets them train, and are they used?

The claims. P1, section 2.2: a negative initial b_T is enough to train very deep nets,
-1, -2, -3 are a guideline for about 10, 20, 30 layers (of convolutional nets), and SGD
did not stall at more than 1000 layers. J. Fleming's "Highway Networks with TensorFlow"
(2015; "the tutorial" here): 20 plain layers stay below 15 % on MNIST; 1000 highway
layers reach about 95 % with b_T near -20, "just learning to carry the last 980".

Everywhere 784 pixels -> one plain layer -> depth - 1 blocks of 50 units -> softmax of
10, so depth counts as P1 counts it. Highway nets: tanh, Glorot's weights, Adam,
gradients clipped at norm 5, batches of 128. Training loss is the mean over an epoch's
steps, each before its update; test accuracy is taken once, after the last epoch, and
chooses nothing.

map        Initial b_T from +1 to -20 by depth from 10 to 1000: 6000 training images, 12
           epochs, learning rates 1e-3 and 5e-3, of which the better by training loss is
           drawn and judged. One seed.
deep       100, 1000 and 2000 layers on all 60,000 images, learning rate 1e-3, times 0.9
           after each epoch; three seeds at 100 layers, one at 2000, one at 1000 and a
           second for the two b_T of the lowest training loss.
           Which layers a trained net uses is measured on 2560 training images:
               open      layers whose mean T exceeds 1 %; beside it, how many did before
                         training, for b_T = -4 opens every gate to 1.8 %
               prefix    the least k for which the net with all layers after the k-th
                         closed keeps its loss within 10 % of the whole net's
               moved     layers whose weights W_H and W_T changed by more than 1 % of
                         their initial norm; alone it shows no use, for Adam's steps
                         hardly depend on the size of the gradient
               kept      loss with only the m layers left open that change their input
                         most (rms of y - x)
               lesions   loss with 50 neighbouring layers closed, at each place
           A net uses more than 50 layers if its prefix exceeds 50 and the 50 layers
           that change their input most do not keep its loss within 10 %.
tutorial   20 layers with input and output, so 18 blocks; width 50, relu, SGD on the
           loss summed over a batch of 50, 5000 steps, pixels in [0, 1], 55,000 training
           images. Its start (weights normal with standard deviation 0.1, cut at two of
           them, biases 0.1) against He's (biases 0), its learning rate 0.01 against
           0.001, plain against highway layers with b_T = -2; five seeds. Did its plain
           net fail for its depth?
norms      Root mean square of block outputs and of dL/dy, per layer, before training:
           all six forms, 100 layers, b_T = -2 or -5 (and b_C = -b_T), one batch of 1000
           images, five seeds.

In float32 T is a multiple of 2^-25, and 0 where z_T is below about -20. At b_T = -20 it
is 0 or a few 3e-8, and a step of Adam moves b_T by hardly more than the learning rate:
such layers copy their input to rounding, and what trains is a net of two layers. The
record holds the test of that, and the map at learning rate 1e-3 the same loss, to five
digits, in all of the row's cells; at 5e-3 a few gates are moved far enough to count.

The sources are silent, we assume: all of map and deep, which are fully connected where
the guideline is convolutional, with pixels in [-1, 1]; the tutorial's 55,000 images,
drawn here by the seed. Deviations: Adam for P1's SGD; log-sum-exp for the tutorial's
bare logarithm.

Cost on two cores, at 0.1 ms a step and layer: map 30 minutes, deep 80, tutorial 2.
Finished trials are kept.
"""

from __future__ import annotations

import itertools
import math
from contextlib import contextmanager

import numpy as np
from matplotlib import colormaps
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

import highway_networks as hn
from experiments.blocks import PAPER
from experiments.common import (COLOURS, GUIDELINE, LIGHT, Experiment, claim, listed,
                                main, or_infinite, plain_numbers)
from visualize_highway_networks import DATASETS

WIDTH = 50
TRAINS = 0.5            # test accuracy from which on we say that a net trains
KEEPS = 1.1             # a net keeps its loss up to this factor
SEEDS = 0.005           # what one seed's test accuracy may be off by
USED = 50               # the layers of which the verdict asks whether there are more
OPEN = MOVED = 0.01     # mean T and relative movement of weights that count

PROTOCOL = {
    "dataset": "mnist", "batch": 128,
    "map": {"depths": [10, 20, 30, 50, 100, 200, 500, 1000], "gate_biases": [
                1.0, 0.0, -1.0, -2.0, -3.0, -4.0, -5.0, -7.0, -10.0, -15.0, -20.0],
            "lrs": [1e-3, 5e-3], "n_train": 6000, "epochs": 12},
    "deep": {"lr": 1e-3, "lr_decay": 0.9, "n_train": 60_000, "nets": [
                {"depth": 100, "gate_biases": [-3.0, -4.0, -5.0], "epochs": 15,
                 "seeds": [0, 1, 2]},
                {"depth": 1000, "gate_biases": [-6.0, -7.0, -5.0, -10.0, -20.0, -4.0],
                 "epochs": 12, "seeds": [0]},
                {"depth": 2000, "gate_biases": [-7.0, -10.0], "epochs": 12,
                 "seeds": [0]},
                {"depth": 1000, "gate_biases": [-10.0, -7.0], "epochs": 12,
                 "seeds": [1]}],
             "measured": 2560, "lesioned": 50, "kept": [10, 20, 50, 100, 200, 500]},
    "tutorial": {"depth": 19, "steps": 5000, "batch": 50, "n_train": 55_000,
                 "lrs": [0.01, 0.001], "gate_bias": -2.0, "seeds": [0, 1, 2, 3, 4]},
    "norms": {"depth": 100, "gate_biases": [-2.0, -5.0], "images": 1000,
              "seeds": [0, 1, 2, 3, 4]}}
SMOKE = {
    "dataset": "digits", "batch": 64,
    "map": {"depths": [3, 10], "gate_biases": [1.0, -1.0, -20.0], "lrs": [1e-3, 5e-3],
            "n_train": 640, "epochs": 2},
    "deep": {"lr": 3e-3, "lr_decay": 0.9, "n_train": 1437, "nets": [
                {"depth": 4, "gate_biases": [-1.0], "epochs": 2, "seeds": [0, 1]},
                {"depth": 12, "gate_biases": [-2.0, -20.0], "epochs": 2, "seeds": [0]}],
             "measured": 128, "lesioned": 4, "kept": [1, 2, 5]},
    "tutorial": {"depth": 5, "steps": 40, "batch": 50, "n_train": 1437,
                 "lrs": [0.01, 0.001], "gate_bias": -2.0, "seeds": [0, 1]},
    "norms": {"depth": 8, "gate_biases": [-2.0, -5.0], "images": 100, "seeds": [0]}}


def brief(values):
    """An array -> a list of three significant digits."""
    return listed(values, 3)


def thin(curve, points=100):
    """A curve over layers -> at most so many means over neighbouring layers."""
    parts = np.array_split(curve, min(points, len(curve)))
    return brief([part.mean() for part in parts])


# --------------------------------------------------------------------------------------
# Trials: map and deep


def train_highway(config, arrays):
    """Fields of hn.Config, uint8 arrays -> (result, net, the untrained net, its data).

    hn.train tests after each epoch, at a cost that very deep nets feel: it gets one
    batch of test images, and the accuracy on all of them is taken at the end.
    """
    config = hn.Config(**config)
    data = hn.scale_pixels(hn.take_subset(hn.Data(*arrays), config), config.dataset)
    net, start = (hn.make_net(config, data.x_train.shape[1]) for _ in range(2))
    few = data._replace(x_test=data.x_test[:config.batch],
                        y_test=data.y_test[:config.batch])
    history, _, status = hn.train(net, few, config)
    result = {"status": status, "train_loss": history["train_loss"], "test_acc": None}
    if status == "ok":
        accuracy, _ = hn.evaluate(net, data.x_test, data.y_test,
                                  net.cache(config.batch))
        result["test_acc"] = hn.significant(accuracy)
    return result, net, start, data


def train_map(config, *arrays):
    """A cell of the map: status, training losses, test accuracy."""
    return train_highway(config, arrays)[0]


def train_deep(config, *arrays):
    """A very deep net: the same, and which layers it uses."""
    measure = config.pop("measure")
    result, net, start, data = train_highway(config, arrays)
    if result["status"] == "ok":
        few = slice(measure["measured"])
        result["used"] = measure_use(net, start, data.x_train[few], data.y_train[few],
                                     measure | {"batch": config["batch"]})
    return result


def in_batches(x, labels, size):
    """x (N, P) -> batches (P, size) and their labels; size must divide N."""
    for start in range(0, len(x), size):
        yield x[start:start + size].T, labels[start:start + size]


def probe(net, x, labels, size):
    """x (N, P) -> mean T (L,), the layers' mean square of y - x (L,), and the mean loss
    of the net with all layers after the k-th closed, for k = 0..L (L + 1,).

    Closed layers hand on the k-th one's output, which so meets the softmax layer: one
    forward pass has the outputs of all these nets.
    """
    out, cache, parts = net.tensors(net.params)["out"], net.cache(size), []
    for batch, truth in in_batches(x, labels, size):
        net.forward(batch, cache)
        change = np.diff(cache.x[:, :net.hidden], axis=0)
        parts.append((cache.T.mean(axis=(1, 2)), (change ** 2).mean(axis=(1, 2)),
                      [hn.cross_entropy(out @ y, truth)[0] for y in cache.x]))
    return [np.mean(values, axis=0) for values in zip(*parts)]


def loss_of(net, x, labels, size, closed):
    """Mean loss on x (N, P) with these layers closed."""
    cache = net.cache(size)
    return np.mean([hn.cross_entropy(net.forward(batch, cache, closed)[0], truth)[0]
                    for batch, truth in in_batches(x, labels, size)])


def movement(net, start):
    """By how much the weights W_H, W_T of each layer differ from the untrained net's,
    as a part of their initial norm (L,)."""
    now, before = (np.concatenate([views["W_H"], views["W_T"]], axis=1)
                   for views in (net.views(net.params), start.views(start.params)))
    return (np.linalg.norm(now - before, axis=(1, 2))
            / np.linalg.norm(before, axis=(1, 2)))


def measure_use(net, start, x, labels, measure):
    """A trained net, the same untrained, images -> which layers it uses, as the
    module's docstring defines it."""
    size, L = measure["batch"], net.depth
    T_before, _, _ = probe(start, x, labels, size)
    T, change, cut = probe(net, x, labels, size)
    moved, order = movement(net, start), np.argsort(-change, kind="stable")
    kept = [m for m in measure["kept"] if m < L]
    places = range(0, L, measure["lesioned"])
    return {
        "layers": L, "loss": hn.significant(cut[-1]),
        "open": int((T > OPEN).sum()), "open_before": int((T_before > OPEN).sum()),
        "prefix": int(np.argmax(cut <= KEEPS * cut[-1])),
        "moved": int((moved > MOVED).sum()), "kept": {"layers": kept, "loss": brief([
            loss_of(net, x, labels, size, order[m:].tolist()) for m in kept])},
        "closed_loss": hn.significant(cut[0]),      # all layers
        "lesions": {"first": list(places), "loss": brief([
            loss_of(net, x, labels, size, range(l, min(l + measure["lesioned"], L)))
            for l in places])},
        "curves": {"T": thin(T), "change": thin(np.sqrt(change)), "moved": thin(moved),
                   "cut_loss": thin(cut)}}


# --------------------------------------------------------------------------------------
# Trials: tutorial and norms


def truncated_normal(rng, shape, std=0.1):
    """Normal values; those beyond two standard deviations are drawn again."""
    values = rng.normal(size=shape)
    while (beyond := np.abs(values) > 2).any():
        values[beyond] = rng.normal(size=beyond.sum())
    return std * values


def tutorial_net(config, inputs):
    """The tutorial's net, untrained: its own start, or He's with biases of zero."""
    net = hn.make_net(hn.Config(init="he", activation="relu", **{
        name: config[name] for name in ("block", "depth", "gate_bias", "seed",
                                        "dataset")}), inputs)
    if config["start"] == "tutorial":
        rng = np.random.default_rng([config["seed"], 2015])
        for name, values in net.views(net.params).items():
            if name != "b_T":
                values[...] = (truncated_normal(rng, values.shape)
                               if name.startswith("W") else 0.1)
    return net


def train_tutorial(config, *arrays):
    """Plain SGD on the summed loss: its status and test accuracy."""
    size = config["batch"]
    subset = hn.take_subset(hn.Data(*arrays), hn.Config(
        seed=config["seed"], n_train=config["n_train"], n_test=len(arrays[2])))
    data = hn.scale_pixels(subset, config["dataset"])
    x_train, x_test = ((x + 1) / 2 for x in (data.x_train, data.x_test))    # in [0, 1]
    net = tutorial_net(config, x_train.shape[1])
    cache, sgd = net.cache(size), hn.SGD(net.params, momentum=0)
    rng = np.random.default_rng(hn.streams(config["seed"])["batches"])
    epochs = (hn.batches(x_train, data.y_train, size, rng) for _ in itertools.count())
    steps = itertools.islice(itertools.chain.from_iterable(epochs), config["steps"])
    try:
        with np.errstate(all="ignore"):
            for batch, labels in steps:     # the gradient of the sum is size times ours
                hn.train_step(net, batch, labels, cache, sgd, size * config["lr"], 0)
            accuracy, _ = hn.evaluate(net, x_test, data.y_test, cache)
    except hn.Diverged:
        return {"status": "diverged", "test_acc": None}
    return {"status": "ok", "test_acc": hn.significant(accuracy)}


def rms(values):
    """Root of the mean square over all of an array."""
    return float(np.sqrt(np.mean(np.square(values, dtype="float64"))))


@contextmanager
def watching(net):
    """Yield a list; until the end each block's backward pass appends the rms of its
    dy, the last layer's first. The pass itself is the same."""
    block, found = net.block, []

    def backward(d, *rest):
        found.append(rms(d))
        block.backward(d, *rest)
    net.block = block._replace(backward=backward)
    try:
        yield found
    finally:
        net.block = block


def measure_norms(config, *arrays):
    """An untrained net -> rms of the projection's and all blocks' outputs (L + 1,), and
    of dL/dy of each block (L,), L being the loss of one image."""
    images = config.pop("images")
    config = hn.Config(init="glorot", n_train=images, n_test=1, **config)
    data = hn.scale_pixels(hn.take_subset(hn.Data(*arrays), config), config.dataset)
    net = hn.make_net(config, data.x_train.shape[1])
    with np.errstate(all="ignore"):
        logits, cache = net.forward(np.ascontiguousarray(data.x_train.T))
        outputs = [rms(y) for y in cache.x[:, :net.hidden]]
        with watching(net) as gradients:
            net.backward(images * hn.cross_entropy(logits, data.y_train)[1], cache)
    return {"output": brief(outputs), "gradient": brief(gradients[::-1])}


PARTS = {"norms": measure_norms, "tutorial": train_tutorial, "map": train_map,
         "deep": train_deep}


def train(config, *arrays):
    """One trial of any part."""
    return PARTS[config.pop("part")](config, *arrays)


# --------------------------------------------------------------------------------------
# The trials in their order: short parts first, half of the map, the deep nets, the rest


def norms_configs(protocol):
    own = protocol["norms"]
    return [{"part": "norms", "block": block, "depth": own["depth"] - 1, "seed": seed,
             "gate_bias": bias, "images": own["images"], "dataset": protocol["dataset"]}
            for seed in own["seeds"] for block in hn.BLOCKS
            for bias in (own["gate_biases"] if hn.BLOCKS[block].gates else [0.0])]


def tutorial_configs(protocol):
    own = protocol["tutorial"]
    return [{"part": "tutorial", "block": block, "start": start, "lr": lr, "seed": seed,
             "depth": own["depth"] - 1, "dataset": protocol["dataset"],
             **{name: own[name] for name in ("steps", "batch", "n_train", "gate_bias")}}
            for seed in own["seeds"] for block in ("plain", "highway")
            for start in ("tutorial", "he") for lr in own["lrs"]]


def highway_config(protocol, part, **rest):
    """A trial of `train_highway`."""
    return {"part": part, "init": "glorot", "hidden": WIDTH, "n_test":
            hn.DATASETS[protocol["dataset"]].files[2].shape[0],
            "dataset": protocol["dataset"], "batch": protocol["batch"],
            "n_train": protocol[part]["n_train"], **rest}


def map_configs(protocol):
    own = protocol["map"]
    return [highway_config(protocol, "map", depth=depth - 1, gate_bias=bias, lr=lr,
                           epochs=own["epochs"], seed=0)
            for lr in own["lrs"] for bias in own["gate_biases"]
            for depth in reversed(own["depths"])]


def deep_configs(protocol):
    own = protocol["deep"]
    measure = {name: own[name] for name in ("measured", "lesioned", "kept")}
    return [highway_config(protocol, "deep", depth=nets["depth"] - 1, gate_bias=bias,
                           lr=own["lr"], lr_decay=own["lr_decay"], seed=seed,
                           epochs=nets["epochs"], measure=measure)
            for nets in own["nets"] for seed in nets["seeds"]
            for bias in nets["gate_biases"]]


def all_configs(protocol):
    """Every trial, in the order in which they run."""
    cells = map_configs(protocol)
    half = len(cells) // len(protocol["map"]["lrs"])
    return (norms_configs(protocol) + tutorial_configs(protocol) + cells[:half]
            + deep_configs(protocol) + cells[half:])


# --------------------------------------------------------------------------------------
# The record


def describe_map(trials, protocol):
    """Final training loss and test accuracy, (gate biases, depths), for each learning
    rate and of the better one; and where nets stop training."""
    own = protocol["map"]
    cells = {(t.config["lr"], t.config["gate_bias"], t.config["depth"] + 1):
             t.result for t in trials}

    def table(value):
        return [[value(bias, depth) for depth in own["depths"]]
                for bias in own["gate_biases"]]

    def final(lr, bias, depth):
        result = cells[lr, bias, depth]
        return result["train_loss"][-1] if result["status"] == "ok" else None

    def better(bias, depth):
        return min(own["lrs"], key=lambda lr: or_infinite(final(lr, bias, depth)))

    def tables(lr):
        return {"train_loss": table(lambda *cell: final(lr(*cell), *cell)),
                "test_acc": table(lambda *cell:
                                  cells[(lr(*cell), *cell)].get("test_acc"))}
    record = {f"lr {lr:g}": tables(lambda *_, lr=lr: lr) for lr in own["lrs"]}
    record["better"] = {"lr": table(better)} | tables(better)
    record["border"] = [border(record, own, depth) for depth in own["depths"]]
    return record


def column_of(record, own, depth, name):
    """{b_T: a result of the better learning rate, None if it diverged} at a depth."""
    column = own["depths"].index(depth)
    return {bias: row[column] for bias, row in
            zip(own["gate_biases"], record["better"][name])}


def accuracies(record, own, depth):
    """{b_T: test accuracy of the better learning rate, 0 if it diverged} at a depth."""
    return {bias: value or 0 for bias, value in
            column_of(record, own, depth, "test_acc").items()}


def border(record, own, depth):
    """The largest b_T with which nets of this depth train, and the sum over layers of
    sigma(b_T) there; whether all more negative ones train too."""
    column = accuracies(record, own, depth)
    trains = [bias for bias, accuracy in column.items() if accuracy >= TRAINS]
    top = max(trains, default=None)
    return {"depth": depth, "gate_bias": top, "sum_of_T": None if top is None else
            hn.significant((depth - 1) / (1 + math.exp(-top))),
            "all_below_train": None if top is None else
            all(bias in trains for bias in column if bias < top)}


def describe_deep(trials):
    """One entry per net, in the order of the protocol."""
    return [{"depth": t.config["depth"] + 1, "gate_bias": t.config["gate_bias"],
             "seed": t.config["seed"], "status": t.result["status"],
             "train_loss": t.result["train_loss"], "test_acc": t.result["test_acc"],
             "used": t.result.get("used")} for t in trials]


def describe_tutorial(trials):
    """One entry per arm: test accuracies of its seeds, None for one that diverged."""
    arms = {}
    for t in trials:
        key = {name: t.config[name] for name in ("block", "start", "lr")}
        arm = arms.setdefault(tuple(key.values()), key | {"test_acc": []})
        arm["test_acc"].append(t.result["test_acc"])
    return list(arms.values())


def describe_norms(trials):
    """One entry per form and b_T, None where it has no gate: medians over seeds, per
    layer."""
    forms = {}
    for t in trials:
        block = t.config["block"]
        bias = t.config["gate_bias"] if hn.BLOCKS[block].gates else None
        forms.setdefault((block, bias), []).append(t.result)
    return [{"block": block, "gate_bias": bias, **{name: brief(np.median(np.array(
        [result[name] for result in results], float), axis=0))
        for name in ("output", "gradient")}}
        for (block, bias), results in forms.items()]


def left_with(used, layers):
    """How many times its loss a net has with only so many layers open, those that
    change their input most. None where that was not measured."""
    kept = dict(zip(used["kept"]["layers"], used["kept"]["loss"]))
    return hn.significant(kept[layers] / used["loss"]) if layers in kept else None


def uses_more(used, layers):
    """Whether a net uses more than so many layers, as the docstring defines it; None
    where that was not measured."""
    times = left_with(used, layers)
    return None if times is None else used["prefix"] > layers and times > KEEPS


def best_bias(nets, depth):
    """The trained nets of a depth with the b_T of the lowest mean training loss; those
    of which a seed diverged do not count."""
    groups = {}
    for net in nets:
        if net["depth"] == depth:
            groups.setdefault(net["gate_bias"], []).append(net)
    good = [group for group in groups.values()
            if all(net["status"] == "ok" for net in group)]
    return min(good, default=[], key=lambda group: np.mean(
        [net["train_loss"][-1] for net in group]))


def by_bias(nets, depth, value):
    """{"b_T -5": [value(net) for each seed]} of the nets of a depth."""
    found = {}
    for net in nets:
        if net["depth"] == depth:
            found.setdefault(f"b_T {net['gate_bias']:g}", []).append(value(net))
    return found


def check_use(nets):
    """Whether with one b_T all nets of 1000 layers use more than USED of them."""
    used = [net for net in nets if net["depth"] == 1000 and net["used"]]
    found = by_bias(nets, 1000, lambda net: bool(net["used"])
                    and net["test_acc"] >= TRAINS and uses_more(net["used"], USED))
    verdicts = [None if None in values else all(values) for values in found.values()]
    return claim(
        "ours", "there is a b_T with which all our nets of 1000 layers train and use "
        f"more than {USED} of them: to keep the loss within {100 * KEEPS - 100:.0f} % "
        f"takes more than their first {USED} layers (needed), and with only the {USED} "
        "that change their input most it is more than that many times as large (times)",
        None,
        {"needed": by_bias(used, 1000, lambda net: net["used"]["prefix"]),
         "times": by_bias(used, 1000, lambda net: left_with(net["used"], USED))},
        True if True in verdicts else None if None in verdicts or not verdicts
        else False, max(map(len, found.values()), default=0))


def check_deep(nets):
    """Verdicts on 100 and 1000 layers. None where the run has no such net."""
    claims = []
    for depth, target, section, paper in ((1000, 0.95, "P1 2.2", "SGD did not stall"),
                                          (100, 0.97, "ours", None)):
        best = best_bias(nets, depth)
        claims.append(claim(
            section, f"{depth} highway layers train, with Adam: with the b_T of the "
            f"lowest training loss, {100 * target:g} % test accuracy (our threshold)",
            paper,
            by_bias(nets, depth, lambda net: net["test_acc"]),
            np.mean([net["test_acc"] for net in best]) >= target if best else None,
            len(best)))
    return [*claims, check_use(nets)]


def check_carrying(nets):
    """The tutorial's 1000 layers with b_T = -20."""
    found = [net for net in nets if (net["depth"], net["gate_bias"]) == (1000, -20.0)]
    used = found[0]["used"] if found else None
    return [
        claim("tutorial", "1000 layers with b_T = -20 reach about 95 % on MNIST, here "
              "with Adam 94 % or more", "around 95 %",
              found[0]["test_acc"] if found else None,
              (found[0]["test_acc"] or 0) >= 0.94 if found else None),
        claim("tutorial", "1000 layers with b_T = -20 only learn to carry: with all "
              "blocks closed the loss is within 0.1 % of the whole net's",
              "just learning to carry the last 980 layers",
              {name: used[name] for name in ("loss", "closed_loss")}
              if used else None, abs(used["closed_loss"] / used["loss"] - 1) < 1e-3
              if used else None)]


def check_guideline(record, own):
    """P1's guideline beside the b_T of the lowest training loss. A difference of one
    seed's test accuracies tells nothing within SEEDS of the limit."""
    behind, ours = [], {}
    for depth, bias in GUIDELINE.items():
        if depth not in own["depths"] or bias not in own["gate_biases"]:
            continue
        losses = column_of(record, own, depth, "train_loss")
        column = accuracies(record, own, depth)
        best = min(losses, key=lambda each: or_infinite(losses[each]))
        ours[f"{depth} layers"] = {f"b_T {each:g}": column[each]
                                   for each in dict.fromkeys((bias, best))}
        behind.append(column[best] - column[bias])
    return claim(
        "P1 2.2", "b_T of -1, -2, -3 suits 10, 20, 30 layers: test accuracy within a "
        "point of that with the b_T of the lowest training loss (theirs: convolutional "
        f"nets, ours: fully connected; open within {100 * SEEDS:g} points of that)",
        "a general guideline", ours, None if len(behind) < len(GUIDELINE) else
        True if max(behind) <= 0.01 - SEEDS else
        False if max(behind) > 0.01 + SEEDS else None)


def check_map(record, own):
    """P1's guideline, and what the tutorial says of b_T."""
    deepest = accuracies(record, own, max(own["depths"]))
    below = [row["all_below_train"] for row in record["border"]]
    return [
        check_guideline(record, own),
        claim("tutorial", "when in doubt, more negative: at each depth where any b_T "
              "trains, all below the largest that does train too",
              "start with more negative", {
                  f"{row['depth']} layers": row["gate_bias"]
                  for row in record["border"]},
              False not in below if set(below) != {None} else None),
        claim("tutorial", f"the largest b_T fails, here with {max(own['depths'])} "
              f"layers, test accuracy below {TRAINS:g} (of the other extreme, beyond "
              "the -20 that it recommends, nothing was tried)", "in the case of low "
              "biases (more positive) it simply fails to converge",
              {f"b_T {max(deepest):g}": deepest[max(deepest)]},
              deepest[max(deepest)] < TRAINS)]


def check_tutorial(arms):
    """The tutorial's 20 plain layers, and what made them fail."""
    def worst_as_zero(arm):
        return [value or 0 for value in arm["test_acc"]]
    plain = [arm for arm in arms if arm["block"] == "plain"]
    n = len(plain[0]["test_acc"])
    own = [arm for arm in plain if arm["start"] == "tutorial" and arm["lr"] == 0.01]
    ours = {f"{arm['start']}, lr {arm['lr']:g}": arm["test_acc"] for arm in plain}
    return [
        claim("tutorial", "20 plain layers stay at or below 15 %", "<= 15 %",
              [arm["test_acc"] for arm in own],
              all(max(worst_as_zero(arm)) <= 0.15 for arm in own) if own else None, n),
        claim("ours", "the tutorial's 20 plain layers fail because of their depth: no "
              f"start and learning rate tried bring every seed to {TRAINS:g}", None,
              ours, all(min(worst_as_zero(arm)) < TRAINS for arm in plain), n)]


def check_claims(record):
    """All claims of a record."""
    return [*check_map(record["map"], record["protocol"]["map"]),
            *check_deep(record["deep"]), *check_carrying(record["deep"]),
            *check_tutorial(record["tutorial"])]


def run(lab):
    """All trials -> the record."""
    protocol = lab.protocol
    trials = lab.trials(train, all_configs(protocol), lab.load_data())
    parts = {part: [t for t in trials if t.config["part"] == part] for part in PARTS}
    return {"map": describe_map(parts["map"], protocol),
            "deep": describe_deep(parts["deep"]),
            "tutorial": describe_tutorial(parts["tutorial"]),
            "norms": describe_norms(parts["norms"])}


# --------------------------------------------------------------------------------------
# The figure


def draw_map(axes, table, own, norm, title, write):
    """One number for each b_T and depth as a heat map, written into its cell; a cross
    where the net diverged, a frame where P1's guideline lies. norm: whose high end is
    the better one, or that of a reversed scale."""
    values = np.array(table, float)
    image = axes.imshow(values, cmap="viridis_r" if isinstance(norm, LogNorm) else
                        "viridis", norm=norm, aspect="auto")
    for (row, column), value in np.ndenumerate(values):
        dark = np.isfinite(value) and sum(image.cmap(norm(value))[:3]) < 1.3
        axes.text(column, row, write(value) if np.isfinite(value) else "×", size=6.5,
                  ha="center", va="center", color="white" if dark else "black")
    depths, biases = own["depths"], own["gate_biases"]
    for depth, bias in GUIDELINE.items():
        if depth in depths and bias in biases:
            at = depths.index(depth) - 0.5, biases.index(bias) - 0.5
            axes.add_patch(Rectangle(at, 1, 1, fill=False, edgecolor=LIGHT.plain,
                                     linewidth=2))
    axes.set_xticks(range(len(depths)), depths)
    axes.set_yticks(range(len(biases)), [f"{bias:g}" for bias in biases])
    axes.set(xlabel="depth (layers)", ylabel="initial $b_T$", title=title)
    axes.spines[:].set_visible(False)


def shown_deep(nets):
    """The nets whose use of layers is drawn: all but the shallowest ones, of the first
    seed, by depth and b_T."""
    least = min(net["depth"] for net in nets)
    there = [net for net in nets if net["used"] and net["seed"] == 0
             and net["depth"] > least]
    return sorted(there, key=lambda net: (net["depth"], net["gate_bias"]))


def shade(net, nets):
    """The colour of a net: by its b_T."""
    biases = sorted({other["gate_bias"] for other in nets})
    return colormaps["viridis"](0.9 * biases.index(net["gate_bias"])
                                / max(len(biases) - 1, 1))


def draw_losses(axes, nets, lines, title, xlabel):
    """Losses of trained nets over layers; lines(net) -> x, y, the whole net's loss."""
    for net in nets:
        x, y, whole = lines(net)
        dashes = "-" if net["depth"] == nets[0]["depth"] else (0, (3, 1.2))
        axes.plot(x, np.array(y, float) / whole, color=shade(net, nets), linewidth=1.4,
                  linestyle=dashes, label=f"{net['depth']}, $b_T$ {net['gate_bias']:g}")
    axes.axhline(KEEPS, color=LIGHT.soft, linewidth=1, linestyle=":")
    axes.set(yscale="log", xlabel=xlabel, title=title,
             ylabel="loss / loss of the whole net")
    plain_numbers(axes.yaxis)


def cut_line(net):
    """Layers left open from the input on, and the loss with the rest closed."""
    curve = net["used"]["curves"]["cut_loss"]
    return np.linspace(0, net["used"]["layers"], len(curve)), curve, net["used"]["loss"]


def lesion_line(net):
    """Middles of the lesioned groups, and the loss without each."""
    first = np.array(net["used"]["lesions"]["first"] + [net["used"]["layers"]])
    return ((first[1:] + first[:-1]) / 2, net["used"]["lesions"]["loss"],
            net["used"]["loss"])


def draw_use(axes, nets):
    """A row for each net: three counts of layers; its depth, b_T and test accuracy."""
    marks = (("open", "o", "layers with mean T > 1 %"),
             ("moved", "s", "layers with weights moved > 1 %"),
             ("prefix", "D", "layers needed from the input on"))
    for name, marker, label in marks:
        axes.plot([net["used"][name] for net in nets], range(len(nets)), marker,
                  label=label, markersize=5, fillstyle="none", markeredgewidth=1.6)
    axes.axvline(USED, color=LIGHT.soft, linewidth=1, linestyle=":")
    axes.set_xscale("symlog", linthresh=1)
    axes.set_yticks(range(len(nets)), [
        f"{net['depth']}, {net['gate_bias']:g}: {100 * net['test_acc']:.1f} %"
        for net in nets], size=7.5)
    axes.set(xlabel="layers", title="Layers in use\n(depth, $b_T$: test accuracy)",
             ylim=(-0.6, len(nets) - 0.4), xlim=(-0.4, 1.6 * nets[-1]["depth"]))
    axes.grid(axis="y")


def draw_tutorial(axes, arms, own):
    """A row for each arm, a dot for each seed; a cross for one that diverged."""
    for row, arm in enumerate(arms):
        colour = getattr(LIGHT, arm["block"])
        there = [100 * value for value in arm["test_acc"] if value is not None]
        lost = len(arm["test_acc"]) - len(there)
        axes.plot(there, [row] * len(there), "o", color=colour, alpha=0.6)
        axes.plot([0] * lost, row + np.linspace(-0.2, 0.2, lost), "x", color=colour)
    axes.axvline(15, color=LIGHT.soft, linewidth=1, linestyle=":")
    axes.set_yticks(range(len(arms)), [
        f"{arm['block']}, {arm['start']}, {arm['lr']:g}" for arm in arms], size=7.5)
    axes.invert_yaxis()
    axes.set(xlim=(-4, 100), xlabel="test accuracy, % (× diverged)",
             title=f"{own['depth'] + 1} layers of the tutorial\n(block, start, "
                   f"rate; n = {len(own['seeds'])})")
    axes.grid(axis="y")


def draw_norms(axes, forms, name, title):
    """A line for each form over its layers, dashed for all b_T but the first; full is
    drawn thick, for it hides behind coupled."""
    first = min((form["gate_bias"] for form in forms if form["gate_bias"] is not None),
                key=abs)
    for form in forms:
        layers = len(form["gradient"])
        main = form["gate_bias"] in (None, first)
        axes.plot(np.arange(layers + 1)[-len(form[name]):], np.array(form[name], float),
                  color=COLOURS[form["block"]],
                  linewidth=3.5 if form["block"] == "full" else 1.4,
                  zorder=1 if form["block"] == "full" else 2,
                  linestyle="-" if main else (0, (3, 1.2)),
                  label=PAPER[form["block"]][0] + ("" if form["gate_bias"] is None else
                                                   f" {form['gate_bias']:g}"))
    axes.set(yscale="log", xlabel="block (1: next to the input)", title=title)


def draw(record):
    """The record -> the figure: the map, the use of layers, the tutorial, the norms."""
    protocol, own = record["protocol"], record["protocol"]["map"]
    figure = Figure(figsize=(9, 11), layout="constrained")
    upper, middle, lower = figure.subfigures(3, 1, height_ratios=(1.15, 1.15, 1))
    better = record["map"]["better"]
    loss, accuracy = upper.subplots(1, 2, sharey=True)
    losses = np.array(better["train_loss"], float)
    draw_map(loss, better["train_loss"], own, LogNorm(np.nanmin(losses), math.log(10)),
             f"Training loss, {own['n_train']:,} images, {own['epochs']} epochs\n"
             f"({DATASETS[record['dataset']][0]})",
             lambda value: f"{value:.2g}")
    draw_map(accuracy, better["test_acc"], own, Normalize(0.1, 1),
             "Test accuracy, %, of the same nets (n = 1)\n(framed: guideline of P1, "
             "for convolutional nets)", lambda value: f"{100 * value:.0f}")
    accuracy.set_ylabel("")
    nets = shown_deep(record["deep"])
    cut, lesions, use = middle.subplots(1, 3)
    draw_losses(cut, nets, cut_line, "Layers left open from\nthe input on",
                "layers left open")
    draw_losses(lesions, nets, lesion_line, f"{protocol['deep']['lesioned']} layers "
                "closed\nat a time", "middle of the closed layers")
    lesions.set_ylabel("")
    draw_use(use, nets)
    middle.legend(*cut.get_legend_handles_labels(), ncols=3, frameon=False, fontsize=8,
                  loc="outside lower left")
    middle.legend(*use.get_legend_handles_labels(), frameon=False, fontsize=8,
                  loc="outside lower right")
    tutorial, output, gradient = lower.subplots(1, 3)
    draw_tutorial(tutorial, record["tutorial"], protocol["tutorial"])
    n = len(protocol["norms"]["seeds"])
    draw_norms(output, record["norms"], "output", "rms of block outputs\n"
               f"before training (n = {n})")
    draw_norms(gradient, record["norms"], "gradient", "rms of dL/dy\n"
               f"before training (n = {n})")
    lower.legend(*output.get_legend_handles_labels(), ncols=5, frameon=False,
                 fontsize=8, loc="outside lower center")
    return figure


def pack_by(config):
    """The packed file of a trial."""
    return (f"deep_{config['depth'] + 1}" if config["part"] == "deep"
            else config["part"])


EXPERIMENT = Experiment("experiments.very_deep", __doc__, PROTOCOL, SMOKE, run, draw,
                        check_claims, pack_by)

if __name__ == "__main__":
    main(EXPERIMENT)
