"""Can a highway net of 50 blocks have other starts, activations and shared weights?

The claims. P1, section 2.2: a negative b_T suffices for very deep nets to train, with
various zero-mean initial distributions of W_H and with different activation functions.
P2, section 4.3, speaks of the work of others: residual blocks of one stage can share
their weights, in some cases at hardly any cost, and a highway net whose layers share
their gates stays ahead of plain and residual nets.

Plain nets with the same starts are the control: if they train as well, b_T was not
needed. Ties: the layers share all their weights, or only those of their gates. Scaled
residual nets, y = x + H / sqrt(L), were added beside the shared gates when the other
results were known. The protocol stands in results/variants/README.md.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from typing import NamedTuple

import numpy as np

import highway_networks as hn
from experiments.lab import Claim, Experiment, Lab, main, trial_function
from experiments.lab.experiment import for_figures
from experiments.lab.judging import ahead, every, listed, or_infinite, or_zero

with for_figures():
    from matplotlib.figure import Figure

    from experiments.lab.drawing import colour_of, data_of, sheet
    from highway_suite.figures import TINTS

PLAN = {"dataset": "mnist", "depth": 50, "hidden": 50, "n_train": 6000,
        "epochs": 12, "batch": 128, "clip": 5.0, "gate_bias": -4.0,
        "lrs": [1e-4, 3e-4, 1e-3, 3e-3],
        "starts": ["uniform", "glorot", "he", "orthogonal", "signs", "small"],
        "activations": ["tanh", "relu"], "start_seeds": [0, 1, 2],
        "tie_seeds": [0, 1, 2, 3, 4]}
SMOKE = {"dataset": "digits", "depth": 6, "hidden": 16, "n_train": 600, "epochs": 2,
         "gate_bias": -2.0, "lrs": [3e-3], "starts": ["glorot", "orthogonal"],
         "start_seeds": [0], "tie_seeds": [0, 1]}
TRAINS = 0.8            # the least test accuracy of a net that we call trained

# The kind of net, and which weights all of its layers share.
TIES = {"highway": ("highway", []),
        "highway, all shared": ("highway", ["W_H", "W_T", "b_H", "b_T"]),
        "highway, gates shared": ("highway", ["W_T", "b_T"]),
        "residual": ("residual", []),
        "residual, all shared": ("residual", ["W_H", "b_H"]), "plain": ("plain", []),
        "scaled residual": ("scaled_residual", [])}


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
    """A DeepNet whose layers share the weights of these names; it has what hn.fit asks
    of a net.

    `params` holds shared weights once; `expand` writes them into every layer of the
    DeepNet. Their gradient is the sum of those of the layers.
    """

    def __init__(self, net: hn.DeepNet, ties: Collection[str]):
        self.net, self.ties, self.cache = net, ties, net.cache
        self.wide = net.views(net.params)
        self.layout = hn.Parameters({
            name: (1, *view.shape[1:]) if name in ties else view.shape
            for name, view in self.wide.items()})
        self.params = np.zeros(self.layout.size, net.dtype)
        self.grad = np.zeros_like(self.params)
        for name, view in self.layout.views(self.params).items():
            view[...] = self.wide[name][:len(view)]
        self.expand()

    def expand(self) -> None:
        """Write the weights into every layer."""
        for name, view in self.layout.views(self.params).items():
            self.wide[name][...] = view

    def gradient(self, batch: tuple, cache: hn.Cache) -> tuple[dict, np.ndarray]:
        """As DeepNet's."""
        self.expand()
        measures, grad = self.net.gradient(batch, cache)
        wide = self.net.views(grad)
        for name, view in self.layout.views(self.grad).items():
            view[...] = (wide[name].sum(axis=0, keepdims=True)
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
        "depth", "hidden", "n_train", "epochs", "batch", "clip", "gate_bias")}
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
        name: value for name, value in config.items() if name not in ("start", "ties")})
    data = hn.scale_pixels(hn.take_subset(data, settings))
    inner = hn.make_net(settings, data)
    if config["start"] != "glorot":
        W_H = inner.views(inner.params)["W_H"]
        rng = np.random.default_rng([config["seed"], 2])
        W_H[...] = draw_start(config["start"], W_H.shape, rng)
    net = Tied(inner, config.get("ties", ()))
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
    """Of one seed's learning rates the result with the lowest last training loss."""
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
                "parameters": chosen[0]["parameters"],
                "trials": [trial.hash for tried in own for trial in tried]}
    keys = dict.fromkeys(key for key, _, _ in trials)
    return {"starts": [key._asdict() | row(key, plan["start_seeds"])
                       for key in keys if isinstance(key, Start)],
            "ties": {key: row(key, plan["tie_seeds"])
                     for key in keys if not isinstance(key, Start)}}


# --------------------------------------------------------------------------------------
# Claims


def training(nets: list[dict], least: float = TRAINS) -> list[dict]:
    """Those of the nets whose every seed reaches a test accuracy."""
    return [net for net in nets if min(or_zero(net["test_acc"])) >= least]


def claim_on_starts(nets: list[dict]) -> Claim:
    """P1's statement, with plain nets of the same starts as its control."""
    kinds = {block: [net for net in nets if net["block"] == block]
             for block in ("highway", "plain")}

    def all_train(block):
        return lambda error: (training(kinds[block], 1 - error / 100) == kinds[block])
    return Claim(
        name="starts-train", source="P1 2.2", text="a negative b_T suffices for very "
        "deep nets to train, with various zero-mean distributions of W_H and different "
        "activations: every highway net, but not every plain net, reaches a test "
        f"accuracy of {TRAINS:g} with every seed. Ours is how many do",
        paper="sufficient", rows=nets, n=len(nets[0]["test_acc"]),
        ours={block: f"{len(training(found))} of {len(found)}"
              for block, found in kinds.items()},
        limit=100 * (1 - TRAINS), after_data=True,      # % of error
        test=all_train("highway"), control=all_train("plain"))


def claims_on_ties(nets: dict[str, dict]) -> list[Claim]:
    """P2's statements about shared weights. "In some cases", as it says of residual
    nets, is not refuted by one; within two standard errors of its limit a difference
    tells nothing."""
    pair = [nets["residual"], nets["residual, all shared"]]
    names = ("highway, gates shared", "plain", "residual", "scaled residual")
    gates, plain, residual, scaled = (nets[name] for name in names)

    def means(names):
        return {name: listed(np.mean(or_zero(nets[name]["test_acc"])))
                for name in names}
    before, after = (or_zero(net["test_acc"]) for net in pair)
    cost = 100 * (np.mean(before) - np.mean(after))
    error = 100 * math.sqrt(sum(np.var(values, ddof=1) / len(values)
                                for values in (before, after)))
    return [
        Claim(name="share-residual", source="P2 4.3", text="sharing the weights of all "
              "residual layers costs less than a point of mean test accuracy",
              paper="in some cases not much", rows=pair, n=len(before), limit=1,
              after_data=True, why="one case does not refute \"in some cases\"",
              ours={"points": listed(cost, 4), "standard error": listed(error, 2)},
              test=lambda points: cost < points - 2 * error or None),
        Claim(name="share-gates", source="P2 4.3", text="highway nets whose layers "
              "share their gates are ahead of plain and of residual nets, all with "
              "Glorot's weights, by test accuracy. Theirs is a net for speech",
              paper="better than both", after_data=True, rows=[gates, plain, residual],
              n=len(before), ours=means(names[:3]),
              test=lambda: every(ahead(gates["test_acc"], other["test_acc"])
                                 for other in (plain, residual))),
        Claim(name="share-gates-scaled", text="highway nets whose layers share their "
              "gates are ahead of scaled residual nets, too, all with Glorot's weights",
              rows=[gates, scaled], n=len(before), ours=means([names[0], names[3]]),
              test=lambda: ahead(gates["test_acc"], scaled["test_acc"]))]


def claims(record: dict) -> list[Claim]:
    """All claims of a record."""
    return [claim_on_starts(record["starts"]), *claims_on_ties(record["ties"])]


# --------------------------------------------------------------------------------------
# The figure


def draw(record: dict) -> Figure:
    """The record -> a row for each start, a dot for each seed, a cross for one that
    diverged."""
    plan, starts = record["plan"], record["starts"]
    found = claim_on_starts(starts).ours
    figure, axes = sheet(
        f"Highway nets train with {found['highway']} pairs of start and activation, "
        f"plain nets with {found['plain']}",
        f"{data_of(plan)}: {plan['depth']} blocks of "
        f"{plan['hidden']} units, {plan['n_train']:,} images, {plan['epochs']} epochs",
        "rows: start of W_H, activation",
        f"a dot for each of {len(plan['start_seeds'])} seeds",
        f"to train: {100 * TRAINS:g} % (dotted) with every seed", height=4)
    rows = list(dict.fromkeys(f"{net['start']}, {net['activation']}" for net in starts))
    for net in starts:
        row = rows.index(f"{net['start']}, {net['activation']}")
        for value in net["test_acc"]:
            axes.plot(100 * (value or 0), row, "x" if value is None else "o",
                      color=colour_of(net["block"]), alpha=0.65, clip_on=False)
    axes.set_yticks(range(len(rows)), rows)
    axes.invert_yaxis()
    axes.set(xlabel="test accuracy, %", xlim=(0, 100))
    axes.grid(axis="y")
    axes.axvline(100 * TRAINS, color=TINTS.soft, linewidth=1.2, linestyle=":")
    for x, block in ((0.1, "plain"), (0.93, "highway")):
        axes.text(x, 1.02, block, color=colour_of(block), weight="bold", ha="center",
                  transform=axes.transAxes)
    return figure


EXPERIMENT = Experiment(
    name="variants", doc=__doc__, plan=PLAN, smoke=SMOKE, run=run,
    claims=claims, figures={"figure": draw})

if __name__ == "__main__":
    main("variants")
