"""The trials. Each trains a net and measures it at once; weights are not kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

import highway_networks as hn
from experiments.lab import trial_function
from experiments.lab.judging import listed, name_of_least
from experiments.nets import perceptrons, probes
from experiments.trained_nets import measures
from highway_suite import nets
from highway_suite.nets import TRAINED, weights_hash
from highway_suite.records import RecordError

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


def trained_net(config: dict, data: hn.Data, make: Callable = hn.make_net
                ) -> tuple[hn.DeepNet, dict]:
    """A trial's config and scaled Data -> the trained net, which takes scaled images,
    and how it was trained. A search chooses the learning rate, if there are several.
    With it, the net is trained from the start. Raises RecordError if it diverged."""
    images, lrs, losses = perceptrons.centred(data), config["lrs"], []
    for lr in lrs if len(lrs) > 1 else ():
        settings = perceptrons.make_config(config, lr=lr,
                                           epochs=config["search_epochs"])
        history, _, _ = hn.train(make(settings, images), images, settings)
        losses.append(history["train_loss"][-1])
    lr = name_of_least(dict(zip(lrs, losses, strict=True))) if losses else lrs[0]
    net, history = perceptrons.train(perceptrons.make_config(config, lr=lr), data, make)
    return net, {"block": config["block"], "lr": lr, "epochs": config["epochs"],
                 "parameters": net.params.size,
                 "search": {"lr": lrs, "train_loss": losses},
                 "train_loss": history["train_loss"], "test_acc": history["test_acc"],
                 "sha256": weights_hash(net)}


def untrained_net(config: dict, data: hn.Data) -> hn.DeepNet:
    """The same net before training; it also takes scaled images."""
    net = hn.make_net(perceptrons.make_config(config), data)
    perceptrons.fold_mean(net, perceptrons.mean_image(data))
    return net


@trial_function("trained_nets.look", version=2)
def look_into(config: dict, data: hn.Data) -> dict:
    """Train one net -> all that is measured of it, also before training; more of a
    highway net."""
    data, config = hn.scale_pixels(data), config | config["measures"]
    net, training = trained_net(config, data)
    states = {"trained": net, "untrained": untrained_net(config, data)}
    x, labels, few = data.x_train, data.y_train, slice(config["shuffle"]["images"])
    found = {"training": training, **measures.use_of_blocks(net, x, labels),
             "shuffled": measures.shuffle(net, x[few], labels[few], config["shuffle"]),
             "estimation": of_each(states, measures.estimation_error, x),
             "steps_bias": of_each(states, measures.bias_of_steps, x),
             "still": of_each(states, measures.still, x, config["apart"],
                              config["within"])}
    if config["block"] != "highway":
        return found
    b_T = net.views(net.params)["b_T"].astype(float)
    return found | about_gates(states, data, config) | {
        "mean_fall": hn.significant((config["gate_bias"] - b_T).mean()),
        "closed": of_each(states, lambda net: {
            "per_example": listed(measures.closed_gates(net, x, config["closed"])),
            "of_mean": listed((probes.mean_gates(net, x) < config["closed"]).mean(
                axis=1))}),
        "hoyer_of_mean": of_each(states, lambda net: hn.significant(
            measures.hoyer(probes.mean_gates(net, x)))),
        "told": of_each(states, lambda net: measures.nearest_class(
            net, data.x_test, data.y_test, measures.class_gates(net, x, labels))),
        "held": hold_gates(net, x, labels),
        "mixing": of_each(states, measures.mixing, x)}


@trial_function("trained_nets.still")
def look_at_still(config: dict, data: hn.Data) -> dict:
    """Train a highway net whose gates cannot move with the image -> loss and error on
    the training images."""
    scaled = hn.scale_pixels(data)
    net, training = trained_net(config, scaled, perceptrons.make_still)
    loss, error = probes.loss_and_error(net, scaled.x_train, scaled.y_train)
    return {"training": training, "loss": hn.significant(loss), "error": error}


class Staged(NamedTuple):
    """A net that runs in stages, as its row names it."""

    data: str
    block: str
    seed: int
    depth: int          # blocks
    gate_bias: float
    epochs: int


def stage_configs(plan: dict, record: dict) -> dict[Staged, dict]:
    """{net: config of its trial}. Nets that the record already has train at the rate
    that was chosen for them; others search. The nets whose weights are committed are
    not trained anew, where the plan says so."""
    how, net, data = plan["stages"], plan["net"], plan["dataset"]
    base = Staged(data, "highway", plan["seeds"][0], net["depth"], net["gate_bias"],
                  plan["epochs"])
    of: dict[Staged, dict] = {}
    for block, seeds in how["seeds"].items():
        for seed in seeds:
            of[base._replace(block=block, seed=seed)] = {"lrs": (
                [found["training"]["lr"] for found in record["nets"].get(block, ())
                 if found["seed"] == seed] or how["others"][block])}
    for block in how["early"]:
        for epochs in how["epochs"]:
            of[base._replace(block=block, epochs=epochs)] = of[
                base._replace(block=block)]
    for name in how["harder"]:
        for seed in plan["harder"]["seeds"]:
            of[base._replace(data=name, seed=seed, gate_bias=how["gate_bias"])] = {
                "lrs": [record["harder"][name]["fitted"]]}
    of |= {base._replace(data=name, block=block, gate_bias=how["gate_bias"]): {
        "lrs": (plan["lrs"] | how["others"])[block]}
           for name in how["other_kinds"] for block in how["seeds"]
           if block != "highway"}
    of |= {base._replace(depth=depth): {"lrs": plan["lrs"]["highway"]}
           for depth in how["depths"]}
    for block in TRAINED if how["committed"] else ():
        of[base._replace(block=block)] = {
            "lrs": plan["lrs"][block], "weights": weights_hash(nets.trained_net(block))}
    return {staged: net | {
        "block": staged.block, "seed": staged.seed, "depth": staged.depth,
        "gate_bias": staged.gate_bias, "epochs": staged.epochs, "weights": None,
        "search_epochs": plan["search_epochs"], "images": how["images"]} | own
        for staged, own in of.items()}


@trial_function("trained_nets.stages")
def run_in_stages(config: dict, data: hn.Data) -> dict:
    """Answers kept and accuracy of a net that runs in stages, on the first test images,
    and of the same net before training. Raises RecordError for other weights."""
    scaled = hn.scale_pixels(data)
    net = (nets.trained_net(config["block"]) if config["weights"]
           else trained_net(config, scaled)[0])
    if config["weights"] not in (None, weights_hash(net)):
        raise RecordError(f"the weights of the {config['block']} net are others")
    few = slice(config["images"])
    states = {"trained": net, "untrained": untrained_net(config, scaled)}
    return probes.keep_in_stages(states, scaled.x_test[few], scaled.y_test[few])


def quick_configs(plan: dict) -> dict[Staged, dict]:
    """{net: config of its trial} of nets that train in seconds."""
    quick, net = plan["quick"], plan["net"]
    given = {name: value for name, value in quick.items() if name != "lrs"}
    return {Staged(plan["dataset"], block, seed, net["depth"], net["gate_bias"],
                   quick["epochs"]): net | given | {"block": block, "lr": lr,
                                                    "seed": seed}
            for block, lr in quick["lrs"].items() for seed in plan["seeds"]}


@trial_function("trained_nets.quick")
def look_quickly(config: dict, data: hn.Data) -> dict:
    """Train one net in seconds -> its training loss and error, also with T held; its
    test accuracy; and the answers to test images that it keeps in stages."""
    settings = perceptrons.make_config(config)
    data = hn.scale_pixels(hn.take_subset(data, settings))
    net, history = perceptrons.train(settings, data)
    loss, error = probes.loss_and_error(net, data.x_train, data.y_train)
    found = {"loss": hn.significant(loss), "error": hn.significant(error),
             "test_acc": history["test_acc"][-1]}
    if config["block"] == "highway":
        found["held"] = hold_gates(net, data.x_train, data.y_train)
    states = {"trained": net, "untrained": untrained_net(config, data)}
    return found | probes.keep_in_stages(states, data.x_test, data.y_test)


def of_each(states: States, of: Callable, *arguments: Any) -> dict[str, Any]:
    """What is measured of a net after training, and before: of(net, *arguments)."""
    return {state: of(net, *arguments) for state, net in states.items()}


def hold_gates(net: hn.DeepNet, x: np.ndarray, labels: np.ndarray) -> dict:
    """Loss and error with every T held at its mean: {over which images: [loss, error]}.
    """
    mean = probes.mean_gates(net, x)[..., None].astype(net.dtype)
    by_class = np.moveaxis(measures.class_gates(net, x, labels), 0, 2).astype(net.dtype)
    return {"all": listed(measures.held(net, x, labels, lambda rows: mean)),
            "its class": listed(measures.held(
                net, x, labels, lambda rows: by_class[..., labels[rows]]))}


def about_gates(states: States, data: hn.Data, config: dict) -> dict:
    """What Figures 2 and 3 of P1 say of a highway net; of a net that is "pictured",
    also what they show."""
    x, net, classes = data.x_train, states["trained"], config["classes"]
    T_mean = probes.mean_gates(net, x)
    apart = of_each(states, measures.class_differences, x, data.y_train)
    found = {
        "bias": measures.about_bias(net, config["gate_bias"], T_mean),
        "change": of_each(states, measures.change, x),
        "sparsity": of_each(states, measures.sparsity, x),
        "differences": {state: measures.shares_of_blocks(each, classes)
                        for state, each in apart.items()}}
    if config.get("pictured"):
        found["picture"] = picture(net, data, T_mean, config["seed"]) | {
            "differences": {str(c): three_decimals(apart["trained"][c])
                            for c in classes}}
    return found


def three_decimals(matrix: np.ndarray) -> list:
    """A matrix as lists, rounded for a picture."""
    return [[round(float(value), 3) for value in row] for row in matrix]


def picture(net: hn.DeepNet, data: hn.Data, T_mean: np.ndarray, seed: int) -> dict:
    """P1's Figure 2: biases, mean T, and T and outputs of one training image, which is
    chosen at random."""
    chosen = int(np.random.default_rng(seed).integers(len(data.x_train)))
    _, _, cache = next(probes.passes(net, data.x_train[chosen:chosen + 1]))
    return {"image": chosen, "label": int(data.y_train[chosen]),
            "biases": three_decimals(net.views(net.params)["b_T"]),
            "T_mean": three_decimals(T_mean),
            "T_one": three_decimals(np.asarray(cache.T)[..., 0]),
            "outputs_one": three_decimals(measures.outputs(net, cache)[..., 0])}


# --------------------------------------------------------------------------------------
# Highway nets of other data, at several learning rates


def train_at(config: dict, images: hn.Data) -> tuple[hn.DeepNet, hn.DeepNet, dict]:
    """Train a net on centred Data -> the net, the same net before training, and how it
    was trained: status, rate, and after each epoch the training loss and the accuracy
    on the Data's test images."""
    settings = perceptrons.make_config({"block": "highway", **config})
    net, fresh = (hn.make_net(settings, images) for _ in range(2))
    history, _, status = hn.train(net, images, settings)
    return net, fresh, {"status": status, "parameters": net.params.size, "lr":
                        config["lr"], "epochs": config["epochs"], "train_loss":
                        history["train_loss"], "test_acc": history["test_acc"]}


@trial_function("trained_nets.search", version=2)
def search(config: dict, data: hn.Data) -> dict:
    """Hold out some training images, which a seed draws, and train on the others. The
    accuracy is that on the held-out images."""
    images = perceptrons.centred(hn.scale_pixels(data))
    return train_at(config, perceptrons.hold_out(images, config["held_out"],
                                                 [config["seed"], 4]))[2]


@trial_function("trained_nets.other_data", version=3)
def look_at_other_data(config: dict, data: hn.Data) -> dict:
    """Train one net -> what Figures 2 to 4 show of it on the training images, and some
    of this before training. The names are those of `look_into`."""
    images = perceptrons.centred(hn.scale_pixels(data))
    net, fresh, training = train_at(config, images)
    if training["status"] != "ok":
        return {"training": training}
    found = {"training": training,
             **measures.use_of_blocks(net, images.x_train, images.y_train)}
    return found if config.get("block") == "plain" else found | about_gates(
        {"trained": net, "untrained": fresh}, images, config)
