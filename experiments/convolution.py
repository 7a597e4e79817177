"""Table 1: convolutional highway nets of 10 layers on MNIST, with few parameters.

The claim (P1, section 3.2). As a sanity check of generalization, two nets of nine
convolutional layers and a softmax reach 99.43 % (99.40 +- 0.03 over five runs) on the
test images with 16 filters in each layer, 39 K parameters, and 99.55 % (99.54 +- 0.02)
with 32 filters and 151 K. Section 2.2 suggests b_T of -1, -2 and -3 for convolutional
nets of about 10, 20 and 30 layers.

The protocol is that of the authors' Caffe fork, flukeskywalker/highway-networks on
GitHub, examples/highways/mnist-10layers. The net is `layers` below: a plain 5x5
convolution, eight highway layers of 3x3 on 24x24, 12x12 and 6x6 pixels, ten outputs;
relu, dropout, max pooling. He's weights (the fork's "xavier" is that), N(0, 0.1^2) for
the outputs, initial b_T -1. Pixels are divided by 256. Nesterov's momentum 0.9; the
learning rate falls to a tenth after a third of the epochs and to a hundredth after two
thirds; weight decay 0.001, ten times that for the outputs; biases have twice the rate
and no decay. Batches of 100, in the files' order. All 60,000 training images. The test
images are classified after each epoch, to draw the curve, and choose nothing: the last
epoch counts.

What we add. A plain twin: the same list of layers without gates. Nets of 20 and 30
layers of both kinds, with more layers between the poolings and the guideline's b_T,
beside 10 layers trained as long. And where on the image the trained gates are open: T
averaged over the channels of a layer, apart where there is ink, a pixel above half, and
where the paper is blank; a cell of a pooled map is ink if one of its pixels is.

Deviations: 20 epochs instead of 300, and 3 to compare depths, with the rate dropping
after the same parts of them. The authors' first rate, 0.01, is made for 300 epochs.
Here each kind and depth tries several, that one among them, for three epochs and keeps
the one with the least training loss in the last; the nets of 20 epochs have that of 10
layers of width 16. (The first plan had 0.01 for all. It was changed after 12 epochs of
two runs of width 32, which were given up, for what they and four trials of three
epochs, on 55,000 images, showed; plain nets got smaller rates too when none of the
highway nets' suited those of 20 and 30 layers.) Two runs of each net; with 20 epochs
and width 16 three of highway nets and one of their plain twin. A mean below the paper's
says nothing against it: that claim is left open then. The file of the net of width 16
is not published; we assume the one of width 32 with 16 filters. On the 8x8 digits of
--smoke the first layer is 3x3 with zeros around and there is no last pooling, so that
the maps have 8x8, 4x4 and 2x2 pixels and the outputs see 2x2.

Cost on two cores: three and a quarter hours. An epoch takes 3 minutes at width 32, 1 at
width 16, 2 and 3 with 20 and 30 layers, and two thirds of that without gates. A trial
saves itself after each epoch: what is stopped goes on from there and ends with the same
bits; its seconds and its commit are those of the process that ended it.
"""

from __future__ import annotations

import io
import json
import math
import sys
import zipfile
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullFormatter

import highway_networks as hn
from experiments.common import (DASHES, GUIDELINE, LIGHT, Experiment, claim, compare,
                                format_log, listed, main, or_infinite, pale, spread)
from experiments.convolution_layers import ConvNet, Nesterov, train_step
from experiments.store import environment, hash_of

# By depth, which counts the first convolution and the softmax, as the paper does: the
# highway layers before each pooling.
STAGES = {10: [2, 3, 3], 20: [4, 7, 7], 30: [6, 11, 11]}
FIRST = {"mnist": (5, 0), "digits": (3, 1)}     # kernel and zeros of the first layer
LAST = {"mnist": [("pool", 2, 2)], "digits": []}
SCALE = {"mnist": 256, "digits": 16}            # of the pixels
PAPER = {16: {"best": 99.43, "mean": 99.40, "std": 0.03},       # Table 1, % of 5 runs
         32: {"best": 99.55, "mean": 99.54, "std": 0.02}}
PAPER_EPOCHS = 300
STALLED = 0.9           # a run that ends below this test accuracy has stalled


def planned(part, block, depth, width, epochs, seeds, maps=0):
    """One net of the plan; maps: of so many test images its first seed keeps T.

    part: "depth" chooses its learning rate; "table" takes that of the net of its kind
    and depth there.
    """
    return {"part": part, "block": block, "depth": depth, "width": width,
            "epochs": epochs, "seeds": list(range(seeds)), "maps": maps}


PROTOCOL = {
    "dataset": "mnist", "batch": 100, "piece": 25, "momentum": 0.9,
    "lrs": {"highway": [0.01, 0.03, 0.1, 0.3],
            "plain": [0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3]},
    "decay": 0.001,
    "nets": [
        *(planned("depth", block, depth, 16, 3, 3)
          for block, depth in (("highway", 30), ("highway", 20), ("plain", 30),
                               ("plain", 20), ("highway", 10), ("plain", 10))),
        planned("table", "highway", 10, 32, 20, 2),
        planned("table", "highway", 10, 16, 20, 3, maps=3),
        planned("table", "plain", 10, 16, 20, 1)]}
SMOKE = {
    "batch": 60, "piece": 20, "dataset": "digits",
    "lrs": {"highway": [0.01, 0.03], "plain": [0.003, 0.01]}, "nets": [
        *(planned("depth", block, depth, 16, 1, 1)
          for depth in (20, 10) for block in ("highway", "plain")),
        planned("table", "highway", 10, 32, 2, 1),
        planned("table", "highway", 10, 16, 2, 2, maps=2),
        planned("table", "plain", 10, 16, 2, 2)]}

# --------------------------------------------------------------------------------------
# One trial


def layers(config):
    """The list of layers of a trial's net, for ConvNet."""
    width = config["width"]
    first, second, third = ([(config["block"], width, 3, 1)] * n
                            for n in config["stages"])
    return [("dropout", 0.2), ("plain", width, *FIRST[config["dataset"]]),
            *first, ("pool", 3, 2), ("dropout", 0.3),
            *second, ("pool", 3, 2), ("dropout", 0.4),
            *third, *LAST[config["dataset"]], ("dropout", 0.5), ("dense", 10)]


def make_configs(protocol, net, lr):
    """The trials of one net of the plan at a learning rate, one for each seed."""
    shared = {name: protocol[name] for name in (
        "dataset", "batch", "piece", "momentum", "decay")} | {"lr": lr}
    bias = {"gate_bias": GUIDELINE[net["depth"]]} if net["block"] == "highway" else {}
    return [{**shared, **bias, "block": net["block"], "depth": net["depth"],
             "stages": STAGES[net["depth"]], "width": net["width"],
             "epochs": net["epochs"], "seed": seed,
             "maps": net["maps"] if seed == net["seeds"][0] else 0}
            for seed in net["seeds"]]


def learning_rate(config, epoch):
    """The rate of an epoch, 1 to the last: x 0.1 after each third of them."""
    return config["lr"] * 0.1 ** (3 * (epoch - 1) // config["epochs"])


def make_optimizer(net, config):
    """Caffe's multipliers: weight decay x 10 for the outputs, none for biases; biases
    learn at twice the rate."""
    rates, decays = np.ones_like(net.params), np.zeros_like(net.params)
    for (kind, *_), rate, decay in zip(net.layers, net.views(rates), net.views(decays)):
        if rate:
            rate["b"].fill(2)
            decay["W"].fill(config["decay"] * (10 if kind == "dense" else 1))
    return Nesterov(net.params, rates, decays, config["momentum"])


def pixels(images, config):
    """uint8 (N, P) -> float32 (P, N)."""
    return np.multiply(images.T, 1 / SCALE[config["dataset"]], dtype="float32")


def pieces(count, size):
    """Slices of one size that cover so many images, and how many of each are repeated:
    the last one reaches back."""
    for start in range(0, count, size):
        back = max(start + size - count, 0)
        yield slice(start - back, start - back + size), back


def numerics():
    """What the last bits of a run depend on besides its config; the commit is not
    among it, so that whoever mends a sentence does not lose hours."""
    return {name: value for name, value in environment().items()
            if not name.startswith("git")}


class Run:
    """A training run between two epochs: all that the next one depends on."""

    def __init__(self, config, side):
        self.config = config
        self.net = ConvNet(layers(config), side, seed=config["seed"],
                           gate_bias=config.get("gate_bias", 0.0))
        self.optimizer = make_optimizer(self.net, config)
        self.rng = np.random.default_rng(hn.streams(config["seed"])["batches"])
        self.history = {"train_loss": [], "test_acc": []}

    @property
    def epochs(self):
        """So many are done."""
        return len(self.history["test_acc"])

    def save(self, path):
        """Write all of it or nothing."""
        state = {"config": self.config, "numerics": numerics(),
                 "history": self.history, "rng": self.rng.bit_generator.state}
        file = io.BytesIO()
        np.savez(file, state=json.dumps(state), params=self.net.params,
                 v=self.optimizer.v)
        hn.write_file(path, file.getvalue())

    def load(self, path):
        """Go on where the file's run was, if there is one. A file that cannot be used
        is said to be so, and the run begins anew."""
        try:
            with open(path, "rb") as file, np.load(file) as archive:    # no pickles
                state = json.loads(str(archive["state"]))
                params, v = archive["params"], archive["v"]
            if (state["config"], params.shape, v.shape) != (
                    self.config, self.net.params.shape, self.optimizer.v.shape):
                raise ValueError("it is of another configuration")
            if state["numerics"] != numerics():
                raise ValueError(f"it was made with {state['numerics']}")
            history, rng = state["history"], state["rng"]
        except FileNotFoundError:
            return
        except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile) as error:
            print(f"{path}: {error}. The trial begins anew", file=sys.stderr)
            return
        self.net.params[...], self.optimizer.v[...] = params, v
        self.history, self.rng.bit_generator.state = history, rng

    def epoch(self, images, labels, cache):
        """One pass over the images in their order, the N mod batch last ones left out
        -> mean loss of its steps, each before its update. Raises hn.Diverged."""
        lr, batch = learning_rate(self.config, self.epochs + 1), self.config["batch"]
        return np.mean([
            train_step(self.net, pixels(images[start:start + batch], self.config),
                       labels[start:start + batch], cache, self.optimizer, lr, self.rng)
            for start in range(0, len(images) - batch + 1, batch)])

    def accuracy(self, images, labels, cache):
        """The part of the images that are classified rightly. Raises hn.Diverged."""
        right = 0
        for rows, back in pieces(len(images), cache.batch):
            logits, _ = self.net.forward(pixels(images[rows], self.config), cache)
            if not np.isfinite(logits).all():
                raise hn.Diverged("a logit is not finite")
            right += np.count_nonzero((logits.argmax(axis=0) == labels[rows])[back:])
        return right / len(images)


def train_net(config, x_train, y_train, x_test, y_test, folder):
    """One trial, from its checkpoint in the folder if there is one: per epoch the mean
    training loss and the test accuracy, and of a highway net where its gates are open.
    """
    path = Path(folder) / f"{hash_of(config)}.npz"
    path.parent.mkdir(parents=True, exist_ok=True)
    run = Run(config, math.isqrt(x_train.shape[1]))
    run.load(path)
    y_train, y_test = y_train.astype(np.intp), y_test.astype(np.intp)
    cache, status, gates = run.net.cache(config["piece"]), "ok", {}
    with np.errstate(all="ignore"):
        try:
            while run.epochs < config["epochs"]:
                loss = run.epoch(x_train, y_train, cache)
                accuracy = run.accuracy(x_test, y_test, cache)
                run.history["train_loss"].append(hn.significant(loss))
                run.history["test_acc"].append(hn.significant(accuracy))
                run.save(path)
            if config["block"] == "highway":
                gates = look_at_gates(run, x_test, cache)
        except hn.Diverged:
            status = "diverged"
    missing = [None] * (config["epochs"] - run.epochs)
    return {"status": status, "parameters": run.net.params.size, **gates,
            **{name: values + missing for name, values in run.history.items()}}


# --------------------------------------------------------------------------------------
# Gates


def any_pixel(ink, side, size, stride):
    """(S, S, B) bool -> (side, side, B): whether one of a pooling window's is set."""
    room = np.zeros((side * stride + size,) * 2 + ink.shape[2:], bool)
    room[:len(ink), :len(ink)] = ink
    ends = [slice(i, i + side * stride, stride) for i in range(size)]
    return np.any([room[rows, columns] for rows in ends for columns in ends], axis=0)


def ink_maps(net, x):
    """Pixels (P, B) -> for each highway layer where there is ink, (S, S, B) bool."""
    ink, maps = x.reshape(net.side, net.side, -1) > 0.5, []
    for (kind, *numbers), (side, _) in zip(net.layers, net.shapes[1:]):
        if kind == "pool":
            ink = any_pixel(ink, side, *numbers)
        elif kind == "plain":           # the pixel in the middle of each field
            edge = (len(ink) - side) // 2
            ink = ink[edge:edge + side, edge:edge + side]
        elif kind == "highway":
            maps.append(ink)
    return maps


def look_at_gates(run, images, cache):
    """The gates on the test images: the mean T of each highway layer on all cells, on
    those with ink and on blank ones; and T of the first images, averaged over channels.
    """
    sums, counts, maps = [], [], []
    for rows, back in pieces(len(images), cache.batch):
        x = pixels(images[rows], run.config)
        T = [gates.mean(axis=1) for gates in run.net.gates(x, cache)]   # (S, S, B)
        cells = [np.stack([np.ones_like(ink), ink, ~ink])[..., back:]
                 for ink in ink_maps(run.net, x)]                       # (3, S, S, B)
        sums.append([np.sum(kept * mean[..., back:], axis=(1, 2, 3), dtype=float)
                     for kept, mean in zip(cells, T)])
        counts.append([kept.sum(axis=(1, 2, 3)) for kept in cells])
        if not rows.start:
            maps = [{"image": images[i].reshape(run.net.side, -1).tolist()}
                    | {f"T{l}": np.round(mean[..., i].astype(float), 2).tolist()
                       for l, mean in enumerate(T, 1)}
                    for i in range(run.config["maps"])]
    means = np.sum(sums, axis=0) / np.sum(counts, axis=0)               # (layers, 3)
    return {"T": {name: listed(column)
                  for name, column in zip(("all", "ink", "blank"), means.T)},
            "maps": maps}


# --------------------------------------------------------------------------------------
# The record


def statistics(values):
    """Mean, standard deviation, number and largest of the values that are not None."""
    return spread(values) | {"best": max(
        (value for value in values if value is not None), default=None)}


def describe_net(net, trials, losses):
    """One net's part of the record; test accuracies at the end in %. losses: of the
    rates that it tried, {lr: last training loss}."""
    results = [trial.result for trial in trials]
    percent = [None if result["test_acc"][-1] is None else
               hn.significant(100 * result["test_acc"][-1]) for result in results]
    T = [result["T"] for result in results if "T" in result]
    return {
        **{name: net[name] for name in ("part", "block", "depth", "width", "epochs",
                                        "seeds")},
        "gate_bias": GUIDELINE[net["depth"]] if net["block"] == "highway" else None,
        "stages": STAGES[net["depth"]], "parameters": results[0]["parameters"],
        "lr": trials[0].config["lr"], "search": {
            "lr": list(losses), "final_train_loss": list(losses.values())},
        "status": [result["status"] for result in results],
        "final_test_percent": percent, **statistics(percent),
        "final_train_loss": [result["train_loss"][-1] for result in results],
        "train_loss": [result["train_loss"] for result in results],
        "test_acc": [result["test_acc"] for result in results],
        "T": {name: listed(np.mean([t[name] for t in T], axis=0))
              for name in ("all", "ink", "blank")} if T else None}


def reached(net, paper):
    """Whether no run diverged and our mean is not below the paper's by more than two of
    its standard deviations; None where it is, but after fewer epochs than the paper's.
    """
    if (None not in net["final_test_percent"]
            and net["mean"] >= paper["mean"] - 2 * paper["std"]):
        return True
    return None if net["epochs"] < PAPER_EPOCHS else False


def better(one, other):
    """Whether every run of a net is better than every run of another; None where they
    mingle, and where they are worse after fewer epochs than the paper's."""
    relation = compare(*(net["final_test_percent"] for net in (one, other)))
    if relation == "ahead of":
        return True
    return False if relation == "behind" and one["epochs"] >= PAPER_EPOCHS else None


def check_claims(record):
    """The paper's statements with our numbers and whether they hold."""
    nets = record["nets"]
    table = {net["width"]: net for net in nets
             if net["part"] == "table" and net["block"] == "highway"}
    claims = [claim("P1 3.2", f"10 layers of width {width}: test accuracy in %, its "
                    "mean within two of their standard deviations, or above",
                    paper | {"epochs": PAPER_EPOCHS},
                    {name: table[width][name]
                     for name in ("best", "mean", "std", "epochs")},
                    reached(table[width], paper), table[width]["n"])
              for width, paper in PAPER.items()]
    counts = [table[width]["parameters"] for width in PAPER]
    claims.append(claim("P1 3.2", "these nets have 39 K and 151 K parameters, to 1 K",
                        [39_000, 151_000], counts,
                        np.allclose(counts, [39_000, 151_000], rtol=0, atol=1000)))
    claims.append(claim("P1 3.2", "the wider net is the better one, every run of it "
                        "than every run of the other: test accuracy in %",
                        {f"width {width}": paper["mean"]
                         for width, paper in PAPER.items()},
                        {f"width {width}": table[width]["final_test_percent"]
                         for width in PAPER},
                        better(table[32], table[16]),
                        [table[width]["n"] for width in PAPER]))
    return claims + check_depths([net for net in nets if net["part"] == "depth"])


def growth(losses):
    """By depth, final losses of the seeds -> for each seed how many times it grows from
    the least depth to the largest; NaN where nothing can be said."""
    first, last = (or_infinite(losses[depth]) for depth in (min(losses), max(losses)))
    return last / np.where(np.isinf(first), np.nan, first)


def steeper(plain, highway):
    """Whether for each seed one growth is more than twice another, or for none; None
    where the seeds do not agree and where nothing can be said."""
    unknown = (np.isnan(plain) | np.isnan(highway)
               | (np.isinf(plain) & np.isinf(highway)))
    found = {bool(verdict) for verdict in plain > 2 * highway}
    return found.pop() if len(found) == 1 and not unknown.any() else None


def check_depths(nets):
    """The statements about depth."""
    loss = {block: {net["depth"]: net["final_train_loss"] for net in nets
                    if net["block"] == block} for block in ("highway", "plain")}
    accuracy = {net["depth"]: net["final_test_percent"] for net in nets
                if net["block"] == "highway"}

    def labelled(values):
        return {f"{depth} layers": values[depth] for depth in sorted(values)}
    times = {block: growth(losses) for block, losses in loss.items()}
    learnt = [value is not None and value >= 100 * STALLED
              for values in accuracy.values() for value in values]
    n = max(map(len, accuracy.values()))
    return [
        claim("P1 2.2", "highway nets of 10, 20, 30 layers train with b_T of -1, -2, "
              f"-3: test accuracy in %, of each run at least {100 * STALLED:g}",
              "a general guideline", labelled(accuracy), all(learnt), n),
        claim("ours", "depth makes plain convolutional nets much harder to train than "
              "highway nets: each with the best of its learning rates, from the least "
              "depth to the largest, their last training loss grows more than twice as "
              "many times, with every seed", None,
              {block: labelled(losses) | {"growth": listed(times[block])}
               for block, losses in loss.items()},
              steeper(times["plain"], times["highway"]), n)]


def last_loss(trial):
    """The training loss of a trial's last epoch; None where it diverged."""
    return trial.result["train_loss"][-1]


def search(lab, plan, train):
    """Try all rates with the first seed -> for each net {lr: last training loss}."""
    rates = [lab.protocol["lrs"][net["block"]] for net in plan]
    trials = iter(train([make_configs(lab.protocol, net, lr)[0]
                         for net, lrs in zip(plan, rates) for lr in lrs]))
    return [{lr: last_loss(next(trials)) for lr in lrs} for lrs in rates]


def least(losses):
    """The rate with the least loss."""
    return min(losses, key=lambda lr: or_infinite(losses[lr]))


def run(lab):
    """All trials -> the record."""
    data, plan = lab.load_data(), lab.protocol["nets"]

    def train(configs):
        return lab.trials(train_net, configs, (*data, str(lab.store / "checkpoints")))
    tried = [net for net in plan if net["part"] == "depth"]
    losses = search(lab, tried, train)
    best = {(net["block"], net["depth"]): least(each)
            for net, each in zip(tried, losses)}
    configs = [make_configs(lab.protocol, net, best[net["block"], net["depth"]])
               for net in plan]
    trials = iter(train(sum(configs, [])))
    trials = [[next(trials) for _ in group] for group in configs]
    losses = iter(losses)
    nets = [describe_net(net, group, next(losses) if net["part"] == "depth" else {})
            for net, group in zip(plan, trials)]
    maps = [{"width": trial.config["width"], "seed": trial.config["seed"], **kept}
            for trial in sum(trials, []) for kept in trial.result.get("maps", [])]
    return {"nets": nets, "paper": PAPER, "maps": maps}


# --------------------------------------------------------------------------------------
# The figure


def colour_of(net):
    """By kind, the wider the darker."""
    return pale(getattr(LIGHT, net["block"]), 0.5 if net["width"] == min(PAPER) else 1)


def label_of(net):
    """Kind, width and learning rate."""
    return f"{net['block']}, width {net['width']}, rate {net['lr']:g}"


def median_and_range(values):
    """Values (seeds, epochs), NaN where a run diverged -> three rows over epochs."""
    values = or_infinite(values)
    return np.median(values, axis=0), values.min(axis=0), values.max(axis=0)


def draw_curves(axes, nets):
    """Test error, median and range over the seeds, epoch by epoch."""
    for net in nets:
        median, *band = median_and_range(100 - 100 * np.array(net["test_acc"], float))
        epochs = np.arange(1, net["epochs"] + 1)
        axes.plot(epochs, median, color=colour_of(net), linewidth=1.5,
                  linestyle=DASHES[net["block"]], marker="o", markersize=3,
                  label=label_of(net))
        axes.fill_between(epochs, *band, color=colour_of(net), alpha=0.15, linewidth=0)
    for third in (1, 2):
        axes.axvline(math.ceil(third * nets[0]["epochs"] / 3) + 0.5, color=LIGHT.soft,
                     linewidth=0.8, linestyle=":")
    axes.set(yscale="log", xlabel="epoch (dotted: learning rate x 0.1)",
             ylabel="test error, %", title="10 layers: test error\n(median and range "
             "of the seeds)")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    format_log(axes.yaxis)
    axes.legend(frameon=False, fontsize=7.5)


def draw_rates(axes, nets):
    """Of each kind and depth the last training loss by learning rate, and that of the
    other seeds at the one that was chosen."""
    for net in nets:
        colour = pale(getattr(LIGHT, net["block"]),
                      0.3 + 0.7 * net["depth"] / max(STAGES))
        losses = np.array(net["search"]["final_train_loss"], float)
        axes.plot(net["search"]["lr"], losses, "o", color=colour, markersize=4,
                  linestyle=DASHES[net["block"]], linewidth=1.5,
                  label=f"{net['block']} {net['depth']}")
        others = np.array(net["final_train_loss"][1:], float)
        axes.plot([net["lr"]] * len(others), others, "o", color=colour, markersize=6,
                  fillstyle="none")
    axes.set(xscale="log", yscale="log", xlabel="first learning rate (rings: another "
             "seed at the chosen one)", ylabel="last mean cross-entropy",
             title=f"Width {nets[0]['width']}, {nets[0]['epochs']} epochs:\ntraining "
                   "loss by depth and learning rate")
    axes.set_xticks(max((net["search"]["lr"] for net in nets), key=len))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter(NullFormatter())
    format_log(axes.yaxis)
    axes.legend(frameon=False, fontsize=7.5)


def draw_table(axes, nets, paper):
    """Final test accuracy of every run, ours and the paper's mean and deviation."""
    for at, net in enumerate(nets):
        runs = [value for value in net["final_test_percent"] if value is not None]
        axes.plot([at - 0.16] * len(runs), runs, "o", markersize=4, markeredgewidth=0,
                  color=colour_of(net))
        if net["std"] is not None:
            axes.errorbar(at, net["mean"], net["std"], color=LIGHT.ink, fmt="_",
                          capsize=3, linewidth=1.2)
        if net["block"] == "highway":
            theirs = paper[str(net["width"])]
            axes.errorbar(at + 0.16, theirs["mean"], theirs["std"], color=LIGHT.soft,
                          fmt="D", markersize=4, capsize=3, linewidth=1.2)
    axes.set_xticks(range(len(nets)), [
        f"{net['block']}\nwidth {net['width']}\n{net['parameters']:,}\n"
        f"rate {net['lr']:g}" for net in nets])
    axes.tick_params(axis="x", labelsize=8)
    axes.set(xlim=(-0.5, len(nets) - 0.5), ylabel="test accuracy, %",
             title=f"Table 1: runs, mean and deviation, {nets[0]['epochs']} epochs\n"
                   f"(diamonds: the paper's, {PAPER_EPOCHS} epochs, rate 0.01)")


def draw_gates(axes, net):
    """Mean T of each layer on ink, on blank paper and on all cells."""
    layers = np.arange(1, len(net["T"]["all"]) + 1)
    for name, colour, label in (("ink", LIGHT.ink, "on ink"),
                                ("all", LIGHT.highway, "everywhere"),
                                ("blank", LIGHT.soft, "on blank paper")):
        axes.plot(layers, net["T"][name], "o-", color=colour, linewidth=1.4,
                  markersize=4, label=label)
    axes.axhline(0.5 + 0.5 * math.tanh(net["gate_bias"] / 2), color=LIGHT.soft,
                 linewidth=0.8, linestyle=":", label="sigmoid($b_T$) at the start")
    for pooled in np.cumsum(net["stages"])[:2]:
        axes.axvline(pooled + 0.5, color=LIGHT.grid, linewidth=1)
    axes.set(xlabel="highway layer (between lines: max pooling)", ylabel="mean T",
             ylim=(0, None), title=f"Gates after training, width {net['width']}\n"
                                   f"(test images, mean of {net['n']} seeds)")
    axes.legend(frameon=False, fontsize=7.5)


def draw_maps(figure, maps):
    """The first test images and T of each highway layer, averaged over its channels."""
    names = [name for name in maps[0] if name.startswith("T")]
    every = np.concatenate([np.ravel(each[name]) for each in maps for name in names])
    panels = figure.subplots(len(maps), 1 + len(names), squeeze=False)
    for row, each in zip(panels, maps):
        row[0].imshow(each["image"], cmap="gray_r")
        for axes, name in zip(row[1:], names):
            shown = axes.imshow(each[name], cmap="viridis", vmin=every.min(),
                                vmax=every.max())
    for axes, name in zip(panels[0], ["image", *names]):
        axes.set_title(name.replace("T", "layer "), fontsize=8.5)
    for axes in panels.ravel():
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set_visible(False)
    figure.colorbar(shown, ax=panels, fraction=0.02, pad=0.01, label="T")
    figure.suptitle(f"T of the net of width {maps[0]['width']}, seed "
                    f"{maps[0]['seed']}: mean over channels, first test images",
                    fontsize=10)


def draw(record):
    """The record -> the figure: curves, Table 1, rates, gates, and maps of T."""
    table, depths = (
        sorted((net for net in record["nets"] if net["part"] == part),
               key=lambda net: (net["depth"], net["block"], net["width"]))
        for part in ("table", "depth"))
    figure = Figure(figsize=(9, 10.8), layout="constrained")
    upper, lower = figure.subfigures(2, 1, height_ratios=(7, 0.3 + len(record["maps"])))
    panels = upper.subplots(2, 2)
    draw_curves(panels[0, 0], table)
    draw_table(panels[0, 1], table, record["paper"])
    draw_rates(panels[1, 0], depths)
    if record["maps"]:      # else the net that keeps them diverged
        mapped = record["maps"][0]["width"]
        draw_gates(panels[1, 1], next(net for net in table if net["T"]
                                      and net["width"] == mapped))
        draw_maps(lower, record["maps"])
    for axes in panels.ravel():
        axes.title.set_fontsize(10)
    return figure


EXPERIMENT = Experiment(
    "experiments.convolution", __doc__, PROTOCOL, SMOKE, run, draw, check_claims,
    lambda config: f"{config['block']}_{config['depth']}_width_{config['width']}")

if __name__ == "__main__":
    main(EXPERIMENT)
