"""Trials that price the passes of nets, of trained nets that skip units or blocks, and
of small ones beside them. Of whole passes shapes decide what they move, no seed does.

A unit whose T is nearly 0 hands on its x, whatever H is. So T is computed first, and of
H only the units whose T is above a threshold. Or whole blocks are left out, gates and
all. What each costs in accuracy and in movement; and what nets have and move that were
trained with fewer blocks from the start.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

import highway_networks as hn
from experiments.data_movement.costs import MODELS, movement
from experiments.data_movement.tracing import Tape, trace_pass, trace_skipping
from experiments.lab import Lab, trial_function
from experiments.lab.experiment import folder_of, load_record
from experiments.lab.judging import listed
from experiments.nets.perceptrons import make_config, matched_width, train
from experiments.nets.probes import BATCH, loss_and_error
from highway_suite.datasets import DATASETS
from highway_suite.nets import weights_hash

PASSES = ("forward", "step")


def trace(net: hn.DeepNet, name: str, batch: int, optimizer: Any = hn.Adam) -> Tape:
    """The tape of a "forward" pass or a training "step" of so many images."""
    x = np.zeros((batch, net.inputs), net.dtype)
    if name == "forward":
        return trace_pass(net, x)
    return trace_pass(net, x, np.zeros(batch, np.intp), optimizer(net.params))


@trial_function("data_movement.passes", version=2, needs_data=False)
def price_passes(config: dict, _: Any) -> dict:
    """Both passes of all forms of one size -> rows. The nets are as wide as the highway
    net, or, matched, have as many parameters."""
    depth, width, ends = (config[name] for name in ("depth", "hidden", "ends"))
    nets = [(block, width, False) for block in config["forms"]]
    nets += [(block, matched_width(block, depth, width, **ends), True)
             for block in config["matched"]]
    rows = []
    for block, hidden, matched in nets:
        net = hn.DeepNet(block, depth, hidden, **ends)
        rows += [{"block": block, "hidden": hidden, "matched": matched, "pass": name,
                  "parameters": net.params.size}
                 | movement(trace(net, name, config["batch"])) for name in PASSES]
    return {"rows": rows}


def passes(lab: Lab) -> list[dict]:
    """All forms, sizes and batches -> a row for each size and batch. The largest batch
    is priced for one size only."""
    plan, data = lab.plan, DATASETS[lab.plan["dataset"]]
    ends = {"inputs": math.prod(data.shape), "classes": data.classes}
    sizes = [(plan["depth"], hidden) for hidden in plan["widths"]]
    sizes += [(depth, plan["hidden"]) for depth in plan["depths"]]
    configs = {(depth, hidden, batch): {
        "depth": depth, "hidden": hidden, "batch": batch, "ends": ends,
        "forms": plan["forms"], "matched": plan["matched"]}
        for depth, hidden in dict.fromkeys(sizes) for batch in plan["batches"]
        if batch < max(plan["batches"]) or (depth, hidden) == (
            plan["depth"], plan["hidden"])}
    return [{"depth": depth, "hidden": hidden, "batch": batch, "trials": [trial.hash],
             "nets": trial.result["rows"]} for (depth, hidden, batch), trial
            in lab.trials(price_passes, configs).items()]


@trial_function("data_movement.steps", needs_data=False)
def price_step(config: dict, _: Any) -> dict:
    """A training step of one of Figure 1's nets, with momentum SGD. How large rate and
    momentum are moves nothing."""
    net = hn.DeepNet(config["block"], config["depth"], config["hidden"],
                     activation=config["activation"])
    return movement(trace(net, "step", config["batch"],
                          lambda params: hn.SGD(params, 0.9)))


def until_loss(lab: Lab) -> list[dict]:
    """Figure 1's nets, with the settings that are fastest -> rows: what a step moves,
    and how many epochs each seed needs to the loss, None where it does not get there.
    """
    plan = lab.plan["until"]
    record, _ = load_record(folder_of("optimization") / "record.json")
    nets = [net for net in record["nets"] + record["orthogonal"]
            if net["depth"] in plan["depths"]]
    trials = lab.trials(price_step, {number: {
        "block": net["block"], "depth": net["depth"], "hidden": net["hidden"],
        "activation": net["fastest"]["setting"]["activation"],
        "batch": plan["batch"]} for number, net in enumerate(nets)})
    return [{"block": net["block"], "depth": net["depth"], "hidden": net["hidden"],
             "init": net.get("init", "Glorot or He"), **trial.result,
             "epochs": net["fastest"]["epochs_to"][plan["loss"]],
             "trials": [trial.hash]}
            for net, trial in zip(nets, trials.values(), strict=True)]


# --------------------------------------------------------------------------------------
# What is skipped


def skip(net: hn.DeepNet, x: np.ndarray, threshold: float,
         opened: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Images x (P, B) -> logits (C, B), and which units of H were used, (L, U, B):
    those with T above the threshold, or those given."""
    w, used = net.views(net.params), np.empty((net.depth, net.hidden, x.shape[1]), bool)
    x = np.tanh(w["W_in"] @ x + w["b_in"])
    for l in range(net.depth):
        T = 0.5 + 0.5 * np.tanh(0.5 * (w["W_T"][l] @ x + w["b_T"][l][:, None]))
        H = np.tanh(w["W_H"][l] @ x + w["b_H"][l][:, None])
        used[l] = threshold < T if opened is None else opened[l]
        x = x + np.where(used[l], T * (H - x), 0)
    return w["W_out"] @ x + w["b_out"][:, None], used


def skip_accuracy(net: hn.DeepNet, x: np.ndarray, labels: np.ndarray, threshold: float,
                  rng: np.random.Generator | None = None) -> tuple[float, float]:
    """Images x (N, P) -> accuracy and the share of units used. rng: for the control, of
    each block and image as many units, but drawn at random."""
    right = used = 0.0
    for start in range(0, len(x), BATCH):
        batch = x[start:start + BATCH].T
        logits, opened = skip(net, batch, threshold)
        if rng is not None:
            logits, opened = skip(net, batch, threshold, rng.permuted(opened, axis=1))
        right += np.count_nonzero(logits.argmax(axis=0) == labels[start:start + BATCH])
        used += opened.mean() * batch.shape[1]
    return hn.significant(right / len(x)), hn.significant(used / len(x))


def skip_gates(net: hn.DeepNet, images: dict, config: dict) -> list[dict]:
    """A row for each threshold: accuracy, also of the control, and the movement of one
    image, the mean of several that follow each other. images: {name: (x, labels)}."""
    rows = []
    for threshold in config["thresholds"]:
        row: dict = {"threshold": threshold}
        for name, (x, labels) in images.items():
            row[name], row["used"] = skip_accuracy(net, x, labels, threshold)
        rngs = (np.random.default_rng([config["seed"], draw])
                for draw in range(config["draws"]))
        x, labels = images["test"]
        row["random"] = [skip_accuracy(net, x, labels, threshold, rng)[0]
                         for rng in rngs]
        few = x[:config["traced"]]
        opened = skip(net, few.T, threshold)[1].transpose(2, 0, 1)
        rows.append(row | {model: hn.significant(cost / len(few)) for model, cost in
                           movement(trace_skipping(net, opened)).items()})
    return rows


def accuracy(net: hn.DeepNet, images: tuple, closed: Collection[int] = ()) -> float:
    """On (x (N, P), labels), with these blocks closed."""
    x, labels = images
    return hn.significant(1 - loss_and_error(net, x, labels, closed)[1])


def forward_costs(net: hn.DeepNet, blocks: int) -> dict:
    """Movement of one image's forward pass, were the net so many blocks deep."""
    settings: dict[str, Any] = net.settings | {"depth": blocks}
    return movement(trace(hn.DeepNet(**settings), "forward", 1))


def leave_out(net: hn.DeepNet, images: dict, config: dict, order: Sequence[int]
              ) -> list[dict]:
    """A row for each number of blocks left out, the first of the order first: accuracy,
    also of the control, which draws the blocks at random, and the movement of both. A
    block that is closed hands on its input, as if it were not there."""
    rng = np.random.default_rng([config["seed"], 9])
    drawn = [list(rng.permutation(net.depth)) for _ in range(config["draws"])]
    return [{"left_out": count}
            | {name: accuracy(net, own, order[:count]) for name, own in images.items()}
            | {"random": [accuracy(net, images["test"], blocks[:count])
                          for blocks in drawn]}
            | forward_costs(net, net.depth - count) for count in config["left_out"]]


@trial_function("data_movement.small")
def train_small(config: dict, data: hn.Data) -> dict:
    """Train one net -> its accuracy and movement, nothing left out."""
    data, few = hn.scale_pixels(data), slice(config["images"])
    net, _ = train(make_config(config), data)
    return {"sha256": weights_hash(net),
            "train": accuracy(net, (data.x_train[few], data.y_train[few])),
            "test": accuracy(net, (data.x_test[few], data.y_test[few]))
            } | forward_costs(net, net.depth)


@trial_function("data_movement.skip")
def skip_all(config: dict, data: hn.Data) -> dict:
    """Train one net -> all that it may skip, in test and training images: blocks, and
    units where the config has thresholds. `closed` is the loss on all training images
    with each block closed alone."""
    data, few = hn.scale_pixels(data), slice(config["images"])
    net, _ = train(make_config(config), data)
    images = {"train": (data.x_train[few], data.y_train[few]),
              "test": (data.x_test[few], data.y_test[few])}
    closed = listed([loss_and_error(net, data.x_train, data.y_train, [l])[0]
                     for l in range(net.depth)])
    order = [int(l) for l in np.argsort(closed, kind="stable")]
    return {"sha256": weights_hash(net), "closed": closed,
            "whole": {name: accuracy(net, own) for name, own in images.items()}
            | forward_costs(net, net.depth),
            "left_out": leave_out(net, images, config, order)} | (
                {"gates": skip_gates(net, images, config)}
                if "thresholds" in config else {})


def small_nets(lab: Lab) -> list[dict]:
    """Highway nets of fewer blocks -> a row for each depth: its seeds."""
    plan = lab.plan
    nets = lab.by_seed(train_small, {depth: plan["net"] | {
        "block": "highway", "lr": plan["lrs"]["highway"], "depth": depth,
        "images": plan["skip"]["images"]} for depth in plan["small"]}, plan["seeds"])
    return [{"depth": depth, "trials": [trial.hash for trial in trials],
             "test": [trial.result["test"] for trial in trials]}
            | {model: trials[0].result[model] for model in MODELS}
            for depth, trials in nets.items()]


def nets(lab: Lab) -> list[dict]:
    """The nets of each block and seed -> rows."""
    plan = lab.plan
    trials = lab.trials(skip_all, {(block, seed): plan["net"] | {
        "block": block, "lr": lr, "seed": seed} | plan[
            "skip" if block == "highway" else "leave_out"]
        for block, lr in plan["lrs"].items() for seed in plan["seeds"]})
    return [{"block": block, "seed": seed, "trials": [trial.hash], **trial.result}
            for (block, seed), trial in trials.items()]
