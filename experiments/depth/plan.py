"""The plan of `depth`: which nets are trained, in which order, which rate goes on.

Depth counts blocks. A net's gates are told by what they are to be: {"sum": S}, {"bias":
b} or {"rule": name}; see training.initial_biases.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import highway_networks as hn
from experiments.lab.judging import name_of_least, or_infinite
from experiments.lab.trials import Trial, hash_of

TRAINS = math.log(10) / 2       # training loss below which a net trains
ONE = {"sum": 1.0}              # the rule

TO_300, TO_10000 = [10, 30, 100, 300], [10, 30, 100, 300, 1000, 10_000]
BIASES = [1.0, 0.0, -1.0, -2.0, -3.0, -4.0, -5.0, -7.0, -10.0, -15.0, -20.0]
PLAN: dict[str, Any] = {
    "dataset": "mnist", "n_train": 6000, "n_test": 10_000, "epochs": 12, "hidden": 50,
    "batch": 128, "lrs": {"adam": [5e-4, 1e-3, 2e-3], "sgd": [0.025, 0.05, 0.1]},
    "seeds": [0, 1, 2], "one_rate_from": 300,       # blocks, see by_rate
    "sums": [0.03, 0.1, 0.3, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0, 20.0], "depths": TO_300,
    "deep": {"depth": 1000, "sums": [0.03, 0.1, 0.3, 1.0, 3.0, 5.0, 10.0]},
    "constant_T": 1e-4, "rules": {      # with Adam
        "S = 1": TO_10000, "b_T = -2": TO_10000, "chrono": TO_10000, "-L/10": TO_300},
    "deepest": {"depth": 10_000, "lr": 1e-3, "failed_epochs": 3},
    "controls": {
        # 1000 blocks cost a quarter of a core hour: 15 nets of 50 s.
        "depths": [*TO_300, 1000], "rules": ["S = 1", "constant T"], "shallow": [1, 3],
        "beyond": [1.25e-4, 2.5e-4, 4e-3, 8e-3, 1.6e-2], "measured": 1280,
        # Others than those that choose; from plan["one_rate_from"] blocks on five.
        "seeds": [3, 4, 5, 6, 7, 8, 9, 10], "deep_seeds": [3, 4, 5, 6, 7],
        "longer": {"depth": 10, "epochs": [36, 120, 360], "lr": 1e-3,
                   "seeds": [3, 4, 5]},
        "schedule": {"depths": [1, 3, 10], "lrs": [1e-3, 2e-3, 4e-3],
                     "seeds": [0, 1, 2, 3, 4]}},
    # The deepest nets take ten minutes each. b_T by itself has one rate for all.
    "stages": {"images": 2000, "shares": [0.9, 0.95, 0.99], "seeds": [0, 1, 2],
               "deepest_seeds": [0], "lr": 1e-3, "depth": 100,
               "biases": [-1.0, -2.0, -3.0, -4.0, -5.0, -7.0]},
    "full": {"n_train": 60_000, "sgd": {
        "nets": [["S = 1", 100], ["S = 1", 1000], ["-L/10", 100]],
        "epochs": 4, "lr_decay": 0.7, "measured": 1280}, "adam": {
        "nets": [["S = 1", 10_000]], "epochs": 5, "lr_decay": 0.6, "measured": 2560}},
    "map": {"lrs": [1e-3, 5e-3], "cells": [
        {"depths": [9, 19, 29, 49, 99, 199, 499, 999], "gate_biases": BIASES,
         "seeds": [0]},
        {"depths": [9, 19, 29], "gate_biases": BIASES[1:7],
         "seeds": [1, 2, 3, 4, 5, 6, 7, 8, 9]},
        {"depths": [49, 99, 199], "gate_biases": BIASES, "seeds": [1, 2]}]},
    "thousand": {"depth": 999, "lr": 1e-3, "lr_decay": 0.9, "n_train": 60_000,
                 "epochs": 12, "measured": 2560, "kept": [50, 100], "shut": -20.0,
                 "nets": [{"gate_biases": [-4.0, -5.0, -6.0], "seeds": [0]},
                          {"gate_biases": [-7.0, -10.0], "seeds": [0, 1]},
                          {"gate_biases": [-20.0], "seeds": [0, 1, 2]}]},
    "tutorial": {"depth": 18, "steps": 5000, "batch": 50, "n_train": 55_000,
                 "starts": ["tutorial", "he"], "lrs": [0.01, 0.001],
                 "seeds": [0, 1, 2, 3, 4]}}
SMOKE: dict[str, Any] = {
    "dataset": "digits", "n_train": 320, "n_test": 180, "epochs": 2, "batch": 64,
    "lrs": {"adam": [2e-3, 5e-3], "sgd": [0.05, 0.1]}, "seeds": [0, 1],
    "one_rate_from": 12, "sums": [0.3, 1.0, 2.0], "depths": [4, 12],
    "deep": {"depth": 16, "sums": [0.3, 1.0]}, "constant_T": 0.025, "rules": {
        "S = 1": [4, 12, 16, 40], "chrono": [4, 12, 16, 40], "-L/10": [12]},
    "deepest": {"depth": 40, "lr": 3e-3, "failed_epochs": 1},
    "controls": {
        "depths": [4, 12, 16], "rules": ["S = 1", "constant T"], "shallow": [1],
        "beyond": [1e-2], "measured": 128, "seeds": [2, 3], "deep_seeds": [2, 3],
        "longer": {"depth": 4, "epochs": [6, 8], "lr": 2e-3, "seeds": [2, 3]},
        "schedule": {"depths": [1, 4], "lrs": [2e-3], "seeds": [0, 1]}},
    "stages": PLAN["stages"] | {"images": 100, "seeds": [0, 1], "lr": 5e-3, "depth": 12,
                                "biases": [-2.0, -5.0]},
    "full": {"n_train": 640, "sgd": PLAN["full"]["sgd"] | {
        "nets": [["S = 1", 4], ["S = 1", 16], ["-L/10", 4]], "epochs": 2}, "adam":
        PLAN["full"]["adam"] | {"nets": [["S = 1", 40]], "epochs": 2}},
    "map": {"lrs": [1e-3, 5e-3], "cells": [
        {"depths": [9, 19, 29], "gate_biases": [1.0, -1.0, -2.0, -3.0],
         "seeds": [0, 1]}]},
    "thousand": PLAN["thousand"] | {
        "depth": 11, "n_train": 1437, "epochs": 2, "kept": [2, 5],
        "nets": [{"gate_biases": [-2.0, -20.0], "seeds": [0]}]},
    "tutorial": PLAN["tutorial"] | {"depth": 4, "steps": 40, "n_train": 1437,
                                    "seeds": [0, 1]}}


class Book:
    """Finished trials, found by their configs. run_trials: {hash: config} -> {hash:
    Trial}."""

    def __init__(self, run_trials: Callable[[dict[str, dict]], dict[str, Trial]]):
        self.run_trials = run_trials
        self.trials: dict[str, Trial] = {}

    def run(self, configs: Iterable[dict]) -> None:
        """Run these trials, in this order, each once."""
        named = {hash_of(config): config for config in configs}
        self.trials |= self.run_trials({name: config for name, config in named.items()
                                        if name not in self.trials})

    def __contains__(self, config: dict) -> bool:
        return hash_of(config) in self.trials

    def __getitem__(self, config: dict) -> Trial:
        return self.trials[hash_of(config)]


def final_loss(trial: Trial) -> float | None:
    """A net's last training loss; None where it diverged."""
    return trial.result["train_loss"][-1] if trial.result["status"] == "ok" else None


# --------------------------------------------------------------------------------------
# Nets, by rule and by S


class Net(NamedTuple):
    """Nets that differ in rate and seed alone."""

    depth: int
    gates: dict
    optimizer: str = "adam"


def net_config(plan: dict, net: Net, lr: float, seed: int, **changes: Any) -> dict:
    """A trial of `training.train`."""
    own = {"adam": {"eps": 1e-8}, "sgd": {"momentum": 0.9}}[net.optimizer]
    return {"block": "highway", "depth": net.depth, "hidden": plan["hidden"],
            "activation": "tanh", "init": "glorot", "dtype": "float32",
            "gates": net.gates, "optimizer": net.optimizer, "lr": lr, "lr_decay": 1.0,
            "seed": seed, "epochs": plan["epochs"], "batch": plan["batch"],
            "clip": 5.0, "n_train": plan["n_train"], "n_test": plan["n_test"]
            } | own | changes


def of_first_seed(plan: dict, net: Net) -> dict[float, dict]:
    """The trials that choose a net's rate, {rate: config}."""
    return {lr: net_config(plan, net, lr, plan["seeds"][0])
            for lr in plan["lrs"][net.optimizer]}


def chosen_lr(book: Book, plan: dict, net: Net) -> float | None:
    """The rate of the lowest loss of the first seed; None where none trains."""
    losses = {lr: final_loss(book[config])
              for lr, config in of_first_seed(plan, net).items()}
    best = name_of_least(losses)
    return best if or_infinite(losses[best]) < TRAINS else None


def by_rate(book: Book, plan: dict, net: Net) -> dict[float, list[dict]]:
    """The trials of a net, {rate: configs, one for each seed}.

    Shallow nets take every rate with every seed. From plan["one_rate_from"] blocks on
    the first seed takes every rate and, once these have run, the others take the one
    that it chose; the middle one where it trained with none. 10,000 blocks take the
    rate that they chose at plan["deep"], and few epochs where there was none.
    """
    seeds, last = plan["seeds"], plan["deepest"]
    if net.depth == last["depth"]:
        lr = chosen_lr(book, plan, net._replace(depth=plan["deep"]["depth"]))
        changes = {"epochs": last["failed_epochs"]} if lr is None else {}
        lr = last["lr"] if lr is None else lr
        return {lr: [net_config(plan, net, lr, seed, **changes) for seed in seeds]}
    configs = {lr: [config] for lr, config in of_first_seed(plan, net).items()}
    if net.depth < plan["one_rate_from"]:
        chosen = [*configs]
    elif all(config in book for config, in configs.values()):
        chosen = [chosen_lr(book, plan, net) or sorted(configs)[1]]
    else:
        chosen = []
    for lr in chosen:
        configs[lr] += [net_config(plan, net, lr, seed) for seed in seeds[1:]]
    return configs


def gates_of(plan: dict, rule: str, depth: int) -> dict:
    """What a rule says of the gates of so many blocks."""
    rules: dict[str, dict] = {
        "S = 1": ONE, "b_T = -2": {"bias": -2.0}, "-L/10": {"rule": "guideline"},
        "chrono": {"rule": "chrono"},
        "constant T": {"sum": hn.significant(plan["constant_T"] * depth)}}
    return rules[rule]


def sum_nets(plan: dict) -> list[Net]:
    """Nets with a given S."""
    sums = dict.fromkeys(plan["depths"], plan["sums"]) | {
        plan["deep"]["depth"]: plan["deep"]["sums"]}
    return [Net(depth, {"sum": S}, optimizer) for depth, own in sums.items()
            for optimizer in plan["lrs"] for S in own if depth > S]


def rule_nets(plan: dict) -> list[tuple[str, Net]]:
    """(rule, nets) of every rule and depth."""
    return [(rule, Net(depth, gates_of(plan, rule, depth)))
            for rule, depths in plan["rules"].items() for depth in depths]


def full_nets(plan: dict, optimizer: str) -> list[tuple[str, Net]]:
    """(rule, nets) of an optimiser on all images."""
    return [(rule, Net(depth, gates_of(plan, rule, depth), optimizer))
            for rule, depth in plan["full"][optimizer]["nets"]]


def full_configs(book: Book, plan: dict, optimizer: str) -> dict[tuple, list[dict]]:
    """Nets on all images, at the rate that their rule chose on the few, or the lowest;
    with Adam at that of the deepest nets. {(rule, depth): configs, one for each seed}.
    """
    own, found = plan["full"][optimizer], {}
    for rule, net in full_nets(plan, optimizer):
        lr = (plan["deepest"]["lr"] if optimizer == "adam" else
              chosen_lr(book, plan, net) or min(plan["lrs"][optimizer]))
        found[rule, net.depth] = [net_config(
            plan, net, lr, seed, n_train=plan["full"]["n_train"], epochs=own["epochs"],
            lr_decay=own["lr_decay"], measure={"measured": own["measured"], "kept": []})
            for seed in plan["seeds"]]
    return found


def conduct(book: Book, plan: dict) -> None:
    """Run these nets: first those whose rates others need."""
    book.run(config for _, net in full_nets(plan, "sgd")
             for config in of_first_seed(plan, net).values())
    nets = [*sum_nets(plan), *(net for _, net in rule_nets(plan))]
    for which in ([net for net in nets if net.depth < plan["deepest"]["depth"]], nets):
        book.run(config for net in which
                 for configs in by_rate(book, plan, net).values() for config in configs)
    for optimizer in ("sgd", "adam"):
        book.run(config for configs in full_configs(book, plan, optimizer).values()
                 for config in configs)


# --------------------------------------------------------------------------------------
# Nets by b_T, and the tutorial's


def map_configs(plan: dict) -> dict[tuple[int, float, int, float], dict]:
    """The map, {(depth, b_T, seed, rate): config}."""
    own = plan["map"]
    return {(depth, bias, seed, lr): net_config(
        plan, Net(depth, {"bias": bias}), lr, seed)
        for cells in own["cells"] for depth in cells["depths"]
        for bias in cells["gate_biases"] for seed in cells["seeds"]
        for lr in own["lrs"]}


def thousand_configs(plan: dict) -> dict[tuple[float, int], dict]:
    """Nets of 1000 layers on all images, {(b_T, seed): config}."""
    own = plan["thousand"]
    return {(bias, seed): net_config(
        plan, Net(own["depth"], {"bias": bias}), own["lr"], seed,
        lr_decay=own["lr_decay"], epochs=own["epochs"], n_train=own["n_train"],
        measure={name: own[name] for name in ("measured", "kept")})
        for nets in own["nets"] for bias in nets["gate_biases"]
        for seed in nets["seeds"]}


def tutorial_configs(plan: dict) -> dict[tuple[str, float, int], dict]:
    """Trials of `tutorial.train`, {(start, rate, seed): config}."""
    own = plan["tutorial"]
    shared = {name: own[name] for name in ("depth", "steps", "batch", "n_train")}
    return {(start, lr, seed): shared | {"start": start, "lr": lr, "seed": seed}
            for start in own["starts"] for lr in own["lrs"] for seed in own["seeds"]}
