"""Can a highway net of 50 blocks have other starts, activations and shared weights?

The claims. P1, section 2.2: a negative b_T suffices for very deep nets to train, with
various zero-mean initial distributions of W_H and with different activation functions.
P2, section 4.3, speaks of the work of others: residual blocks of one stage can share
their weights, in some cases at hardly any cost, and a highway net whose layers share
their gates stays ahead of plain and residual nets. P2, section 5.1: gates should be as
expressive as H, and 1x1 convolutions as gates seem to make learning unstable.

The plan. 784 pixels -> projection -> 50 blocks of 50 units -> softmax of 10; 6000
training images, 12 epochs of Adam, gradients clipped at norm 5, b_T = -4.

Starts: W_H is drawn from each of six distributions, for tanh and for relu units. All
other weights follow Glorot's rule. Plain nets with the same starts are the control: if
they train as well, b_T was not needed.

Ties: the layers share all their weights, or only those of their gates. Or a layer has
one gate for all its units, the nearest thing to a coarser gate in a fully connected
layer.

Each net tries two learning rates. For each seed, the rate with the lower last training
loss counts. Test images choose nothing.

The papers are silent, and we assume all of the above. Deviations: P2's residual blocks
and 1x1 gates are convolutional, and its net with shared gates is for speech.

Cost: ten minutes on one core. Finished trials are kept.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

import highway_networks as hn
from experiments.lab import Claim, Experiment, Lab, main, trial_function
from experiments.lab.drawing import colour_of, title_of
from experiments.lab.judging import ahead, every, listed, or_infinite
from highway_suite.figures import LIGHT, TITLE

PLAN = {"dataset": "mnist", "depth": 50, "hidden": 50, "n_train": 6000,
            "epochs": 12, "batch": 128, "clip": 5.0, "gate_bias": -4.0,
            "lrs": [1e-3, 3e-3],
            "starts": ["uniform", "glorot", "he", "orthogonal", "signs", "small"],
            "activations": ["tanh", "relu"], "start_seeds": [0, 1, 2],
            "tie_seeds": [0, 1, 2, 3, 4]}
SMOKE = {"dataset": "digits", "depth": 6, "hidden": 16, "n_train": 600, "epochs": 2,
         "gate_bias": -2.0, "lrs": [3e-3], "starts": ["glorot", "orthogonal"],
         "start_seeds": [0], "tie_seeds": [0, 1]}
TRAINS = 0.8            # the least test accuracy of a net that we call trained

# Which weights are one, {name: axis}: 0 over the layers, 1 over the units of a layer.
LAYERS = dict.fromkeys(("W_H", "b_H", "W_T", "b_T"), 0)
GATES = dict.fromkeys(("W_T", "b_T"), 0)
SCALAR = dict.fromkeys(("W_T", "b_T"), 1)
TIES = {"highway": ("highway", {}), "highway, all shared": ("highway", LAYERS),
        "highway, gates shared": ("highway", GATES),
        "highway, one gate a layer": ("highway", SCALAR), "residual": ("residual", {}),
        "residual, all shared": ("residual", dict.fromkeys(("W_H", "b_H"), 0)),
        "plain": ("plain", {})}


def draw_start(name: str, shape: tuple, rng: np.random.Generator) -> np.ndarray:
    """Weights W_H (L, U, U) of a zero-mean distribution."""
    if name == "orthogonal":
        return np.stack([np.linalg.qr(layer)[0] for layer in rng.normal(size=shape)])
    if name == "signs":
        return rng.choice([-1, 1], shape) / np.sqrt(shape[-1])
    if name == "small":
        return rng.normal(0, 0.01, shape)
    return hn.initial_weights(rng, name, shape)


class Tied:
    """A DeepNet some of whose weights are one; it has what hn.fit asks of a net.

    `params` holds each of them once; `expand` writes them into the DeepNet. The
    gradient of a weight that stands in many places is the sum of theirs.
    """

    def __init__(self, net: hn.DeepNet, ties: Mapping[str, int]):
        self.net, self.ties = net, ties
        self.wide = net.views(net.params)
        self.layout = hn.Parameters({name: tuple(
            1 if axis == ties.get(name) else size for axis, size in enumerate(
                view.shape)) for name, view in self.wide.items()})
        self.params = np.zeros(self.layout.size, net.dtype)
        self.grad = np.zeros_like(self.params)
        for name, view in self.layout.views(self.params).items():
            view[...] = self.wide[name][tuple(slice(size) for size in view.shape)]
        self.expand()

    def expand(self) -> None:
        """Write the weights into every place where they stand."""
        for name, view in self.layout.views(self.params).items():
            self.wide[name][...] = view

    def cache(self, size: int) -> hn.Cache:
        """As DeepNet's."""
        return self.net.cache(size)

    def gradient(self, batch: tuple, cache: hn.Cache) -> tuple[dict, np.ndarray]:
        """As DeepNet's."""
        self.expand()
        measures, grad = self.net.gradient(batch, cache)
        wide = self.net.views(grad)
        for name, view in self.layout.views(self.grad).items():
            view[...] = (wide[name].sum(axis=self.ties[name], keepdims=True)
                         if name in self.ties else wide[name])
        return measures, self.grad


# --------------------------------------------------------------------------------------
# The trials


class Start(NamedTuple):
    """A net of the first question."""

    block: str
    activation: str
    start: str


def configs(plan: dict) -> dict[tuple, dict]:
    """{(Start or name of a tie, seed, lr): config}."""
    shared = {name: plan[name] for name in (
        "depth", "hidden", "n_train", "epochs", "batch", "clip",
        "gate_bias")}
    starts = {(Start(block, activation, start), seed, lr): {
        "block": block, "activation": activation, "start": start}
        for seed in plan["start_seeds"] for start in plan["starts"]
        for activation in plan["activations"] for block in ("highway", "plain")
        for lr in plan["lrs"]}
    ties = {(tie, seed, lr): {"block": block, "activation": "tanh", "start": "glorot",
                              "ties": kept}
            for seed in plan["tie_seeds"] for tie, (block, kept) in TIES.items()
            for lr in plan["lrs"]}
    return {key: shared | config | {"seed": key[1], "lr": key[2]}
            for key, config in (starts | ties).items()}


@trial_function("variants.train")
def train(config: dict, data: hn.Data) -> dict:
    """One trial: its status, training losses and test accuracy."""
    settings = hn.Config(init="glorot", n_test=len(data.x_test), **{
        name: value for name, value in config.items()
        if name not in ("start", "ties")})
    data = hn.scale_pixels(hn.take_subset(data, settings))
    inner = hn.make_net(settings, data)
    if config["start"] != "glorot":
        W_H = inner.views(inner.params)["W_H"]
        rng = np.random.default_rng([config["seed"], 2])
        W_H[...] = draw_start(config["start"], W_H.shape, rng)
    net = Tied(inner, config.get("ties", {}))
    rng = np.random.default_rng(hn.streams(config["seed"])["batches"])
    history, status = hn.fit(
        net, hn.Batches(data.x_train, data.y_train, settings.batch, rng),
        hn.Adam(net.params), lambda epoch, history: settings.lr,
        epochs=settings.epochs, clip=settings.clip)
    result = {"status": status, "parameters": net.params.size,
              "train_loss": [row["train_loss"] for row in history], "test_acc": None}
    if status == "ok":
        net.expand()
        accuracy, _ = hn.evaluate(inner, data.x_test, data.y_test,
                                  inner.cache(settings.batch))
        result["test_acc"] = hn.significant(accuracy)
    return result


def better(results: Iterable[dict]) -> dict:
    """Of one seed's learning rates the result with the lower last training loss."""
    return min(results, key=lambda result: float(or_infinite(
        result["train_loss"][-1] if result["status"] == "ok" else None)))


def run(lab: Lab) -> dict:
    """All trials -> the record: a row for each net."""
    plan = lab.plan
    trials = lab.trials(train, configs(plan))

    def row(key, seeds):
        own = [[trials[key, seed, lr] for lr in plan["lrs"]] for seed in seeds]
        chosen = [better(trial.result for trial in tried) for tried in own]
        return {"test_acc": [result["test_acc"] for result in chosen],
                "train_loss": [hn.significant(result["train_loss"][-1])
                               if result["status"] == "ok" else None
                               for result in chosen],
                "parameters": chosen[0]["parameters"],
                "trials": [trial.hash for tried in own for trial in tried]}
    keys = dict.fromkeys(key for key, _, _ in trials)
    return {"starts": [key._asdict() | row(key, plan["start_seeds"])
                       for key in keys if isinstance(key, Start)],
            "ties": {key: row(key, plan["tie_seeds"])
                     for key in keys if not isinstance(key, Start)}}


# --------------------------------------------------------------------------------------
# Claims


def all_train(nets: list[dict], limit: float) -> bool:
    """Whether every seed of every net reaches a test accuracy."""
    return all((value or 0) >= limit for net in nets for value in net["test_acc"])


def mean(net: dict) -> float:
    """Mean test accuracy; a run that diverged counts as 0."""
    return float(np.mean([value or 0 for value in net["test_acc"]]))


def standard_error(*nets: dict) -> float:
    """Of the difference of the means of two nets, in points of test accuracy."""
    return 100 * math.sqrt(sum(np.var([value or 0 for value in net["test_acc"]],
                                      ddof=1) / len(net["test_acc"]) for net in nets))


def claims_on_starts(nets: list[dict]) -> list[Claim]:
    """P1's statement, with plain nets of the same starts as its control."""
    kinds = {block: [net for net in nets if net["block"] == block]
             for block in ("highway", "plain")}
    return [Claim(
        name="starts-train", source="P1 2.2", text="a negative b_T suffices for very "
        "deep nets to train, with various zero-mean distributions of W_H and different "
        "activations: every highway net, but not every plain net, reaches a test "
        f"accuracy of {TRAINS:g}. Ours is the seed with the lowest accuracy",
        paper="sufficient", rows=nets, n=len(nets[0]["test_acc"]),
        ours={block: {f"{net['start']}, {net['activation']}": min(
            value or 0 for value in net["test_acc"]) for net in found}
            for block, found in kinds.items()},
        limit=100 * (1 - TRAINS),       # % of error
        test=lambda error: all_train(kinds["highway"], 1 - error / 100),
        control=lambda error: all_train(kinds["plain"], 1 - error / 100))]


def claims_on_ties(nets: dict[str, dict]) -> list[Claim]:
    """P2's statements about shared weights, and ours about coarser gates. "In some
    cases", as P2 says of residual nets, is not refuted by one; within two standard
    errors of its limit a difference tells nothing."""
    def hardly_hurts(block):
        pair = nets[block], nets[f"{block}, all shared"]
        cost, error = 100 * (mean(pair[0]) - mean(pair[1])), standard_error(*pair)

        def test(points):
            if abs(cost - points) <= 2 * error:
                return None
            return cost < points or (None if block == "residual" else False)
        return test

    def about(*names, error=False):
        rows = [nets[name] for name in names]
        ours = {name: hn.significant(mean(nets[name])) for name in names}
        return {"rows": rows, "n": len(rows[0]["test_acc"]), "ours": ours | (
            {"standard error": listed(standard_error(*rows), 2)} if error else {})}
    gates, coarse = "highway, gates shared", "highway, one gate a layer"
    return [
        *(Claim(name=f"share-{block}", source=source, paper=paper, limit=1,
                text=f"sharing the weights of all {block} layers costs less than a "
                "point of mean test accuracy (ours: with the standard error in "
                "points)", test=hardly_hurts(block),
                **about(block, f"{block}, all shared", error=True))
          for block, source, paper in (
              ("residual", "P2 4.3", "in some cases not much"),
              ("highway", "ours", None))),
        Claim(name="share-gates", source="P2 4.3", text="highway nets whose layers "
              "share their gates are ahead of plain and of residual nets, by test "
              "accuracy (theirs: a net for speech)", paper="better than both",
              test=lambda: every(ahead(nets[gates]["test_acc"], nets[other]["test_acc"])
                                 for other in ("plain", "residual")),
              **about(gates, "plain", "residual")),
        Claim(name="gate-each-unit", source="ours", text="highway nets with a gate for "
              "each unit are ahead of nets with one gate for a whole layer, by test "
              "accuracy. P2 (5.1) says of convolutions that gates should be as "
              "expressive as H",
              test=lambda: ahead(nets["highway"]["test_acc"], nets[coarse]["test_acc"]),
              **about("highway", coarse))]


def claims(record: dict) -> list[Claim]:
    """All claims of a record."""
    return [*claims_on_starts(record["starts"]), *claims_on_ties(record["ties"])]


# --------------------------------------------------------------------------------------
# The figure


def draw_rows(axes: Any, rows: dict[str, list[tuple[str, list]]], title: str) -> None:
    """A row for each label, a dot for each seed of each (block, accuracies) in it; a
    cross where one diverged."""
    for row, found in enumerate(rows.values()):
        for block, values in found:
            there = [100 * value for value in values if value is not None]
            axes.plot(there, [row] * len(there), "o", color=colour_of(block),
                      alpha=0.65, markersize=5)
            axes.plot([0] * (len(values) - len(there)),
                      [row] * (len(values) - len(there)), "x", color=colour_of(block))
    axes.set_yticks(range(len(rows)), rows, size=8)
    axes.invert_yaxis()
    axes.set(xlabel="test accuracy, %", title=title)
    axes.title.set_fontsize(10)
    axes.grid(axis="y")


def message(nets: list[dict]) -> str:
    """From how many starts the nets train, in a line."""
    found = {}
    for block in ("highway", "plain"):
        own = [min(value or 0 for value in net["test_acc"]) >= TRAINS
               for net in nets if net["block"] == block]
        found[block] = f"{block} nets from {sum(own)} of {len(own)} starts"
    return f"These train: {found['highway']}, {found['plain']}"


def draw(record: dict) -> Figure:
    """The record -> a panel for the starts and one for the ties."""
    plan = record["plan"]
    figure = Figure(figsize=(9, 4.2), layout="constrained")
    starts, ties = figure.subplots(1, 2, sharex=True)
    rows: dict[str, list] = {}
    for net in record["starts"]:
        rows.setdefault(f"{net['start']}, {net['activation']}", []).append(
            (net["block"], net["test_acc"]))
    draw_rows(starts, rows, f"Start of $W_H$, activation\n(n = "
              f"{len(plan['start_seeds'])})")
    starts.axvline(100 * TRAINS, color=LIGHT.soft, linewidth=1, linestyle=":")
    draw_rows(ties, {name: [(TIES[name][0], net["test_acc"])]
                     for name, net in record["ties"].items()},
              f"Shared weights and gates\n(n = {len(plan['tie_seeds'])})")
    for block in ("highway", "residual", "plain"):
        starts.plot([], [], "o", color=colour_of(block), label=block)
    figure.legend(*starts.get_legend_handles_labels(), ncols=3, frameon=False,
                  loc="outside upper center", title=message(record["starts"]),
                  title_fontproperties=TITLE)
    figure.supxlabel(
        f"{title_of(plan)}: {plan['depth']} blocks of {plan['hidden']} "
        f"units, {plan['n_train']:,} images, {plan['epochs']} epochs. To "
        f"train: {100 * TRAINS:g} % (dotted) with every seed", size=8.5)
    return figure


EXPERIMENT = Experiment(
    name="variants", doc=__doc__, minutes=5, plan=PLAN, smoke=SMOKE, run=run,
    claims=claims, figures={"figure": draw})

if __name__ == "__main__":
    main("variants")
