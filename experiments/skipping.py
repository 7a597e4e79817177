"""Trained highway nets that skip what their closed gates do not need.

A unit whose T is nearly 0 hands on its x, whatever H is. So T is computed first, and of
H only the units whose T is above a threshold. Or whole layers are left out, gates and
all. What each costs in accuracy and in movement: for the experiment data_movement,
whose trials of single nets these are. Seconds: experiments/skipping_seconds.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import highway_networks as hn
from experiments import movement, tracing
from experiments.judging import listed
from experiments.nets.perceptrons import (
    EPOCHS,
    SETTINGS,
    centred,
    fold_mean,
    kept_net,
    make_config,
    mean_image,
)
from experiments.nets.probes import BATCH, loss_and_error
from experiments.old_lab import Lab
from highway_suite.records import RecordError, weights_hash

COSTS = ("bytedmd", "address", "bytes")


def skip(net: hn.DeepNet, x: np.ndarray, threshold: float,
         opened: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Images x (P, B) -> logits (C, B), and which units of H were used, (L, U, B):
    those with T above the threshold, or those given."""
    w, used = net.views(net.params), np.empty((net.depth, net.hidden, x.shape[1]), bool)
    x = np.tanh(w["W_in"] @ x + w["b_in"])
    for layer in range(net.depth):
        T = 0.5 + 0.5 * np.tanh(
            0.5 * (w["W_T"][layer] @ x + w["b_T"][layer][:, None]))
        H = np.tanh(w["W_H"][layer] @ x + w["b_H"][layer][:, None])
        used[layer] = threshold < T if opened is None else opened[layer]
        x = x + np.where(used[layer], T * (H - x), 0)
    return w["W_out"] @ x + w["b_out"][:, None], used


def skip_accuracy(net: hn.DeepNet, x: np.ndarray, labels: np.ndarray, threshold: float,
                  rng: np.random.Generator | None = None) -> tuple[float, float]:
    """Images x (N, P) -> accuracy and the share of units used. rng: for the control, of
    each layer and image as many units, but drawn at random."""
    right = used = 0.0
    for start in range(0, len(x), BATCH):
        batch = x[start:start + BATCH].T
        logits, opened = skip(net, batch, threshold)
        if rng is not None:
            logits, opened = skip(net, batch, threshold, rng.permuted(opened, axis=1))
        right += np.count_nonzero(logits.argmax(axis=0) == labels[start:start + BATCH])
        used += opened.mean() * batch.shape[1]
    return hn.significant(right / len(x)), hn.significant(used / len(x))


def subnet(net: hn.DeepNet, layers: list[int]) -> hn.DeepNet:
    """The net of these layers alone."""
    settings: dict[str, Any] = {**net.settings, "depth": len(layers)}
    small = hn.DeepNet(**settings, dtype=net.dtype)
    old = net.views(net.params)
    for name, values in small.views(small.params).items():
        in_layers = name.endswith(("_H", "_T", "_C"))
        values[...] = old[name][layers] if in_layers else old[name]
    return small


def forward_costs(net: hn.DeepNet) -> dict:
    """Movement of the core's own forward pass, one image."""
    settings: dict[str, Any] = net.settings
    costs = movement.movement(tracing.trace_forward(hn.DeepNet(**settings), 1))
    return {name: costs[name] for name in COSTS}


def skip_gates(net: hn.DeepNet, images: dict, config: dict, draws: int) -> list[dict]:
    """A row for each threshold: accuracy, also of the control, and the movement of one
    image, the mean of several that follow each other. images: {name: (x, labels)}."""
    rows = []
    for threshold in config["thresholds"]:
        row: dict = {"threshold": threshold}
        for name, (x, labels) in images.items():
            row[name], row["used"] = skip_accuracy(net, x, labels, threshold)
        rngs = (np.random.default_rng([config["seed"], draw])
                for draw in range(draws))
        x, labels = images["test"]
        row["random"] = [skip_accuracy(net, x, labels, threshold, rng)[0]
                         for rng in rngs]
        few = x[:config["traced"]]
        opened = skip(net, few.T, threshold)[1].transpose(2, 0, 1)
        costs = movement.movement(tracing.trace_skipping(net, opened))
        rows.append(row | {name: hn.significant(costs[name] / len(few))
                           for name in COSTS})
    return rows


def leave_out(net: hn.DeepNet, images: dict, config: dict, order: list[int]
              ) -> list[dict]:
    """A row for each number of layers left out, the first of the order first: accuracy,
    also of the control, which draws the layers at random, and the movement of both."""
    rng = np.random.default_rng([config["seed"], 9])
    drawn = [rng.permutation(net.depth) for _ in range(config["draws"])]

    def right(name, without):
        x, labels = images[name]
        return hn.significant(1 - loss_and_error(net, x, labels, without)[1])
    return [{"left_out": count} | {name: right(name, order[:count]) for name in images}
            | {"random": [right("test", layers[:count]) for layers in drawn]}
            | forward_costs(subnet(net, list(range(net.depth - count))))
            for count in config["left_out"]]


def best_within(rows: list[dict], lost: float) -> dict:
    """The row of least movement that loses at most so much accuracy in training."""
    allowed = [row for row in rows if row["train"] >= rows[0]["train"] - lost]
    return min(allowed, key=lambda row: row["bytedmd"])


# --------------------------------------------------------------------------------------
# A trial: one net, and all that it may skip


def how_trained(nets: dict, block: str) -> dict:
    """Settings of a net's training; of the committed one of trained_nets its hash."""
    lr, epochs = nets["lrs"][block], nets["epochs"][block]
    n_train, n_test = hn.DATASETS[nets["dataset"]].images
    settings = {"block": block, "lr": lr, "epochs": epochs, "optimizer": "sgd",
                "clip": 0.0, "n_train": n_train, "n_test": n_test,
                "seed": nets["seed"], **{name: nets[name] for name in SETTINGS}}
    if nets["dataset"] == "mnist" and settings == settings | SETTINGS | {
            "seed": 0, "epochs": EPOCHS}:
        _, fields = kept_net(block)
        if (fields["lr"], fields["epochs"]) == (lr, epochs):
            return {"sha256": fields["sha256"]}
    return {"training": settings}


def configs(protocol: dict) -> dict[tuple[str, int], dict]:
    """{(block, seed): config of its trial}: highway nets of all seeds, of the other
    blocks that of the first."""
    how = {name: protocol[name] for name in (
        "thresholds", "left_out", "images", "traced", "draws", "lost")}
    nets = protocol["nets"] | {"dataset": protocol["dataset"]}
    return {(block, seed): {"part": "net", "block": block, "seed": seed,
                            **how_trained(nets | {"seed": seed}, block), **how}
            for block in nets["lrs"]
            for seed in protocol["seeds"][:None if block == "highway" else 1]}


def trained_net(config: dict, data: hn.Data) -> tuple[hn.DeepNet, dict]:
    """A trial's config and scaled Data -> its net and how its training went. Raises
    RecordError."""
    block, kept = config["block"], ("parameters", "train_loss", "test_acc", "sha256")
    if "sha256" in config:
        net, fields = kept_net(block)
        return net, {name: fields[name] for name in kept}
    settings, images = make_config(config["training"]), centred(data)
    net = hn.make_net(settings, images)
    history, _, status = hn.train(net, images, settings)
    if status != "ok":
        raise RecordError(f"the {block} net of seed {config['seed']} diverged")
    fold_mean(net, mean_image(data))
    return net, dict(zip(kept, (
        net.params.size, history["train_loss"], history["test_acc"],
        weights_hash(net)), strict=True))


def losses_closed(net: hn.DeepNet, data: hn.Data) -> list[float]:
    """The loss on all training images with each layer closed alone, as
    trained_nets has it."""
    return listed([loss_and_error(net, data.x_train, data.y_train, [layer])[0]
                   for layer in range(net.depth)])


def spared_order(losses: Sequence[float]) -> list[int]:
    """Layers, from the one whose closing raises the training loss least."""
    return [int(layer) for layer in np.argsort(losses, kind="stable")]


def look(config: dict, data: hn.Data) -> dict:
    """One net and Data as read -> all that it may skip. Both: the gates of what is left
    when as many layers are left out as may be for `lost` on training images. A plain
    net can do without no layer."""
    data, few = hn.scale_pixels(data), slice(config["images"])
    net, training = trained_net(config, data)
    images = {"train": (data.x_train[few], data.y_train[few]),
              "test": (data.x_test[few], data.y_test[few])}
    found: dict = {"training": training, "whole": {
        name: hn.significant(1 - loss_and_error(net, *where)[1])
        for name, where in images.items()} | forward_costs(net)}
    if config["block"] == "plain":
        return found
    found["closed"] = losses_closed(net, data)
    order = spared_order(found["closed"])
    found["left_out"] = leave_out(net, images, config, order)
    if "T" in net.block.gates:
        found["gates"] = skip_gates(net, images, config, config["draws"])
        count = best_within(found["left_out"], config["lost"])["left_out"]
        small = subnet(net, sorted(order[count:]))
        found["both"] = skip_gates(small, images, config, draws=0)
    return found


def look_at_all(lab: Lab, data: hn.Data) -> dict[str, list[dict]]:
    """All nets, {block: [net of each seed]}."""
    nets: dict[str, list[dict]] = {}
    for (block, seed), trial in lab.trials(look, configs(lab.protocol), data).items():
        nets.setdefault(block, []).append({"seed": seed} | trial.result)
    return nets
