"""The trials. Each trains a net and measures it at once; weights are not kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

import highway_networks as hn
from experiments.lab import trial_function
from experiments.lab.judging import listed, or_infinite
from experiments.nets.perceptrons import centred, fold_mean, make_config, mean_image
from experiments.nets.probes import mean_gates, passes
from experiments.trained_nets.measures import (
    VALUES,
    Moments,
    about_bias,
    bias_of_steps,
    estimation_error,
    hoyer,
    mixing,
    moments,
    per_example,
    permuted,
    rerouted,
    shares_of_blocks,
    shuffle,
    still,
    told,
    use_of_blocks,
)
from highway_suite.records import weights_hash
from highway_suite.schema import RecordError

States = Mapping[str, hn.DeepNet]       # a net as it is "trained", and "untrained"

# --------------------------------------------------------------------------------------
# Nets of each kind


def configs(plan: dict) -> dict[tuple[str, int], dict]:
    """{(block, seed): config of its trial}. The gates of one net are kept for the
    figures."""
    return {(block, seed): plan["net"] | {
        "block": block, "seed": seed, "lrs": lrs, "epochs": plan["epochs"],
        "search_epochs": plan["search_epochs"], "measures": plan["measures"],
        "pictured": (block, seed) == ("highway", plan["seeds"][0])}
        for seed in plan["seeds"] for block, lrs in plan["lrs"].items()}


def trained_net(config: dict, data: hn.Data) -> tuple[hn.DeepNet, dict]:
    """A trial's config and scaled Data -> the trained net, which takes scaled images,
    and how it was trained. A search chooses the learning rate. With it, the net is
    trained from the start. Raises RecordError if it diverged."""
    images = centred(data)

    def train(lr, epochs):
        settings = make_config(config, lr=lr, epochs=epochs)
        net = hn.make_net(settings, images)
        history, _, status = hn.train(net, images, settings)
        return net, history, status
    lrs, epochs = config["lrs"], config["epochs"]
    losses = [train(lr, config["search_epochs"])[1]["train_loss"][-1] for lr in lrs]
    lr = lrs[int(np.argmin(or_infinite(losses)))]
    net, history, status = train(lr, epochs)
    if status != "ok":
        raise RecordError(f"the {config['block']} net diverged at lr {lr:g}")
    fold_mean(net, mean_image(data))
    return net, {"block": config["block"], "lr": lr, "epochs": epochs,
                 "parameters": net.params.size,
                 "search": {"lr": lrs, "train_loss": losses},
                 "train_loss": history["train_loss"], "test_acc": history["test_acc"],
                 "sha256": weights_hash(net)}


def untrained_net(config: dict, data: hn.Data) -> hn.DeepNet:
    """The same net before training; it also takes scaled images."""
    net = hn.make_net(make_config(config, lr=1.0, epochs=1), data)
    fold_mean(net, mean_image(data))
    return net


@trial_function("trained_nets.look")
def look_into(config: dict, data: hn.Data) -> dict:
    """Train one net -> all that is measured of it, also before training."""
    scaled, how = hn.scale_pixels(data), config["measures"]
    net, training = trained_net(config, scaled)
    states = {"trained": net, "untrained": untrained_net(config, scaled)}
    x, labels, few = scaled.x_train, scaled.y_train, slice(how["shuffle"]["images"])
    found = {"training": training, **use_of_blocks(net, x, labels),
             "shuffled": shuffle(net, x[few], labels[few], how["shuffle"]),
             "estimation": {state: estimation_error(each, x)
                            for state, each in states.items()},
             "steps_bias": {state: listed(bias_of_steps(each, x))
                            for state, each in states.items()},
             "still": {state: listed(still(each, x, how["apart"], how["within"]))
                       for state, each in states.items()}}
    if "T" in net.block.gates:
        found |= about_gates(states, scaled, config)
        found["rerouted"] = reroute(net, x, labels, config)
    if config["block"] == "highway":
        found["mixing"] = {state: mixing(each, x, mean_gates(each, x))
                           for state, each in states.items()}
    return found


def about_gates(states: States, data: hn.Data, config: dict) -> dict:
    """Biases, sparsity, change of outputs, class differences and readouts, and for one
    net what the figures show."""
    how, x = config["measures"], data.x_train
    T = {state: moments(net, x, data.y_train, "T") for state, net in states.items()}
    T_mean = {state: found.mean.reshape(found.shape) for state, found in T.items()}
    each = {state: per_example(net, x, how["closed"]) for state, net in states.items()}
    apart = {state: np.moveaxis((found.class_means - found.mean[:, None]).reshape(
        *found.shape, -1), 2, 0) for state, found in T.items()}         # (C, L, U)
    net = states["trained"]
    b_T = net.views(net.params)["b_T"].astype(float)
    found = {
        "bias": about_bias(net, config["gate_bias"], T_mean["trained"]) | {
            "mean_change": hn.significant((b_T - config["gate_bias"]).mean())},
        "change": {state: listed(each[state].change) for state in states},
        "differences": {state: shares_of_blocks(apart[state], how["classes"])
                        for state in states},
        "sparsity": {state: {
            "closed_per_example": listed(each[state].closed),
            "closed_of_mean": listed((T_mean[state] < how["closed"]).mean(axis=1)),
            "hoyer_per_example": hn.significant(each[state].hoyer),
            "hoyer_of_mean": hn.significant(hoyer(T_mean[state]))}
            for state in states},
        "told": told_by(states, T, data, how["ridge"])}
    if config["pictured"]:
        found["picture"] = picture(net, data, T_mean["trained"], config["seed"]) | {
            "differences": {str(c): three_decimals(apart["trained"][c])
                            for c in how["classes"]}}
    return found


def told_by(states: States, T: Mapping[str, Moments], data: hn.Data, ridge: float
            ) -> dict:
    """The share of test images whose class a readout finds, for each readout:
    {"T, means": {state: share}, ...}. Readouts are fitted on training images."""
    shares: dict[str, dict] = {}
    for state, net in states.items():
        for values in VALUES:
            fitted = T[state] if values == "T" else moments(
                net, data.x_train, data.y_train, values)
            for how, share in told(net, data.x_test, data.y_test, values, fitted,
                                   ridge).items():
                shares.setdefault(f"{values}, {how}", {})[state] = share
    return shares


def three_decimals(matrix: np.ndarray) -> list:
    """A matrix as lists, rounded for a picture."""
    return [[round(float(value), 3) for value in row] for row in matrix]


def picture(net: hn.DeepNet, data: hn.Data, T_mean: np.ndarray, seed: int) -> dict:
    """P1's Figure 2: biases, mean T, and T and outputs of one training image, which is
    chosen at random."""
    chosen = int(np.random.default_rng(seed).integers(len(data.x_train)))
    _, _, cache = next(passes(net, data.x_train[chosen:chosen + 1]))
    return {"image": chosen, "label": int(data.y_train[chosen]),
            "biases": three_decimals(net.views(net.params)["b_T"]),
            "T_mean": three_decimals(T_mean),
            **{f"{values}_one": three_decimals(VALUES[values](cache)[..., 0])
               for values in VALUES}}


def reroute(net: hn.DeepNet, x: np.ndarray, labels: np.ndarray, config: dict) -> dict:
    """Loss and error with T held or exchanged: {way: {range of blocks: [loss, error]}}.
    """
    rng = np.random.default_rng([config["seed"], 3])
    mean = mean_gates(net, x)[..., None].astype(net.dtype)
    by_class = np.stack([mean_gates(net, x[labels == c])
                         for c in range(net.classes)], axis=2).astype(net.dtype)
    shape = (net.depth, net.hidden, 1)
    ways: dict[str, Any] = {
        "mean of all": lambda rows, T: np.broadcast_to(mean, shape),
        "mean of its class": lambda rows, T: by_class[..., labels[rows]],
        "of another image": lambda rows, T: T[..., permuted(labels[rows], rng, False)],
        "of its class": lambda rows, T: T[..., permuted(labels[rows], rng, True)]}
    ranges = {name: range(first - 1, last) for name, (first, last) in sorted(
        config["measures"]["ranges"].items())}      # the draws go by their order
    found = rerouted(net, x, labels, {
        f"{way}|{name}": (blocks, given) for way, given in ways.items()
        for name, blocks in ranges.items()})
    return {way: {name: listed(found[f"{way}|{name}"]) for name in ranges}
            for way in ways}


# --------------------------------------------------------------------------------------
# Highway nets of other data, at several learning rates


def train_at(config: dict, images: hn.Data) -> tuple[hn.DeepNet, hn.DeepNet, dict]:
    """Train a net on centred Data -> the net, the same net before training, and how it
    was trained: status, rate, and after each epoch the training loss and the accuracy
    on the Data's test images."""
    settings = make_config({"block": "highway", **config})
    net, fresh = (hn.make_net(settings, images) for _ in range(2))
    history, _, status = hn.train(net, images, settings)
    return net, fresh, {"status": status, "parameters": net.params.size, "lr":
                        config["lr"], "epochs": config["epochs"], "train_loss":
                        history["train_loss"], "test_acc": history["test_acc"]}


@trial_function("trained_nets.search", version=2)
def search(config: dict, data: hn.Data) -> dict:
    """Hold out some training images, which a seed draws, and train on the others. The
    accuracy is that on the held-out images."""
    images = centred(hn.scale_pixels(data))
    order = np.random.default_rng([config["seed"], 4]).permutation(len(images.x_train))
    held, kept = np.split(order, [config["held_out"]])
    return train_at(config, replace(
        images, x_train=images.x_train[kept], y_train=images.y_train[kept],
        x_test=images.x_train[held], y_test=images.y_train[held]))[2]


@trial_function("trained_nets.other_data", version=2)
def look_at_other_data(config: dict, data: hn.Data) -> dict:
    """Train one net -> what Figures 2 to 4 show of it on the training images, and some
    of this before training. The names are those of `look_into`."""
    images = centred(hn.scale_pixels(data))
    net, fresh, training = train_at(config, images)
    if training["status"] != "ok":
        return {"training": training}
    x, labels = images.x_train, images.y_train
    found = {"training": training, **use_of_blocks(net, x, labels)}
    if "T" not in net.block.gates:
        return found
    states = {"trained": net, "untrained": fresh}
    each = {state: per_example(one, x, config["closed"])
            for state, one in states.items()}
    apart = {state: class_differences(one, x, labels) for state, one in states.items()}
    T_mean = mean_gates(net, x)
    found |= {
        "bias": about_bias(net, config["gate_bias"], T_mean),
        "change": {state: listed(one.change) for state, one in each.items()},
        "sparsity": {state: {"hoyer_per_example": hn.significant(one.hoyer)}
                     for state, one in each.items()},
        "differences": {state: shares_of_blocks(one, config["classes"])
                        for state, one in apart.items()}}
    if config.get("pictured"):
        found["picture"] = picture(net, images, T_mean, config["seed"]) | {
            "differences": {str(c): three_decimals(apart["trained"][c])
                            for c in config["classes"]}}
    return found


def class_differences(net: hn.DeepNet, x: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The classes' mean T less that of all images (C, L, U)."""
    by_class = np.stack([mean_gates(net, x[labels == c]) for c in range(net.classes)])
    weights = np.bincount(labels, minlength=net.classes) / len(labels)
    return by_class - np.tensordot(weights, by_class, 1)
