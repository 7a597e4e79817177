"""The plan of `depth`: which nets are trained, in which order, which rate goes on.

Depth counts blocks. A net's gates are told by what they are to be: {"sum": S}, {"bias":
b} or {"rule": name}; see training.initial_biases.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import highway_networks as hn
from experiments.lab.trials import Trial, hash_of

TRAINS = math.log(10) / 2       # training loss below which a net trains
ONE = {"sum": 1.0}              # the rule
HALF_OPEN = {"bias": 0.0}

TO_300, TO_1000, TO_10000 = ([10, 30, 100, 300, 1000, 10_000][:n] for n in (4, 5, 6))
BIASES = [1.0, 0.0, -1.0, -2.0, -3.0, -4.0, -5.0, -7.0, -10.0, -15.0, -20.0]
PLAN = {
    "dataset": "mnist", "n_train": 6000, "n_test": 10_000, "epochs": 12, "hidden": 50,
    "batch": 128, "lrs": {"adam": [5e-4, 1e-3, 2e-3], "sgd": [0.025, 0.05, 0.1]},
    "seeds": [0, 1, 2], "one_rate_from": 300,       # blocks, see by_rate
    "sums": [0.03, 0.1, 0.3, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0, 20.0],
    "lower_sums": [0.003, 0.01], "depths": TO_300,
    "deep": {"depth": 1000, "sums": [0.03, 0.1, 0.3, 1.0, 3.0, 5.0, 10.0]},
    "constant_T": 1e-4, "rules": [
        {"block": "highway", "optimizer": "adam", "depths": TO_10000,
         "rules": ["S = 1", "b_T = -2", "chrono"]},
        {"block": "highway", "optimizer": "adam", "depths": TO_300,
         "rules": ["-L/10"]},
        {"block": "highway", "optimizer": "adam", "depths": [1000],
         "rules": ["constant T"]},
        {"block": "t_only", "optimizer": "adam", "depths": TO_1000,
         "rules": ["S = 1", "b_T = -2", "chrono"]},
        {"block": "t_only", "optimizer": "adam", "depths": TO_300, "rules": ["-L/10"]},
        {"block": "t_only", "optimizer": "adam", "depths": [10_000], "seeds": [0],
         "rules": ["S = 1", "b_T = -2", "chrono"]},
        {"block": "highway", "optimizer": "sgd", "depths": [100], "rules": ["-L/10"]}],
    "controls": {
        "depths": TO_300, "rules": ["S = 1", "constant T"], "shallow": [1, 3],
        "beyond": [1.25e-4, 2.5e-4, 4e-3, 8e-3, 1.6e-2], "measured": 1280,
        # Others than those that choose; from plan["one_rate_from"] blocks on five.
        "seeds": [3, 4, 5, 6, 7, 8, 9, 10], "deep_seeds": [3, 4, 5, 6, 7],
        "longer": {"depth": 10, "epochs": [36, 120, 360], "lr": 1e-3,
                   "seeds": [3, 4, 5]},
        "schedule": {"depths": [1, 3, 10], "lrs": [1e-3, 2e-3, 4e-3],
                     "seeds": [0, 1, 2, 3, 4]}},
    "mechanism": {"depths": [30, 100, 300, 1000], "images": 500,
                  "sums": [0.1, 0.3, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0],
                  "seeds": [0, 1, 2, 3, 4]},
    "rescue": {"depths": [10, 20, 30, 40, 48], "judged_from": 40,
               "seeds": [0, 1, 2, 3, 4]},
    "border": {"depth": 50, "lr": 1e-3, "rounds": 5, "octaves": 5, "n_test": 1280,
               "seeds": [0, 1, 2, 3, 4], "changes": {
                   "": [{}], "rate": [{"lr": 5e-3}, {"lr": 1e-4}],
                   "optimiser": [{"optimizer": "sgd", "lr": 0.1},
                                 {"optimizer": "sgd", "lr": 0.01}],
                   "eps": [{"eps": 1e-4}, {"eps": 1e-16}],
                   "epochs": [{"epochs": 36}, {"epochs": 60},
                              {"lr": 1e-4, "epochs": 36}, {"lr": 1e-4, "epochs": 60}],
                   "depth": [{"depth": 100}, {"depth": 200}],
                   "width": [{"hidden": 25}, {"hidden": 100}],
                   "dtype": [{"dtype": "float64"}],
                   "initialisation": [{"init": "uniform"}, {"init": "he"}],
                   "relu": [{"activation": "relu", "init": "he"}]}},
    "full": {"n_train": 60_000, "groups": 20, "nets": [
        {"rule": "S = 1", "optimizers": ["adam", "sgd"], "depths": [100, 1000],
         "epochs": 4, "lr_decay": 0.7, "measured": 1280, "kept": [50]},
        {"rule": "-L/10", "optimizers": ["adam", "sgd"], "depths": [100],
         "epochs": 4, "lr_decay": 0.7, "measured": 1280, "kept": [50]},
        {"rule": "S = 1", "optimizers": ["adam"], "depths": [10_000], "lr": 1e-3,
         "epochs": 5, "lr_decay": 0.6, "measured": 2560,
         "kept": [50, 100, 500, 1000, 5000]}]},
    "deepest": {"depth": 10_000, "lr": 1e-3, "failed_epochs": 3, "sums": [0.3, 3.0]},
    "map": {"lrs": [1e-3, 5e-3], "cells": [
        {"depths": [9, 19, 29, 49, 99, 199, 499, 999], "gate_biases": BIASES,
         "seeds": [0]},
        {"depths": [9, 19, 29], "gate_biases": BIASES[1:7],
         "seeds": [1, 2, 3, 4, 5, 6, 7, 8, 9]},
        {"depths": [49, 99, 199], "gate_biases": BIASES, "seeds": [1, 2]}]},
    "deep_nets": {"lr": 1e-3, "lr_decay": 0.9, "n_train": 60_000, "measured": 2560,
                  "lesioned": 50, "kept": [10, 20, 50, 100, 200, 500], "shut": -20.0,
                  "nets": [
                      {"depth": 99, "gate_biases": [-3.0, -4.0, -5.0], "epochs": 15,
                       "seeds": [0, 1, 2]},
                      {"depth": 999, "gate_biases": [-4.0, -5.0, -6.0], "epochs": 12,
                       "seeds": [0]},
                      {"depth": 999, "gate_biases": [-7.0, -10.0], "epochs": 12,
                       "seeds": [0, 1]},
                      {"depth": 999, "gate_biases": [-20.0], "epochs": 12,
                       "seeds": [0, 1, 2]}]},
    "tutorial": {"depth": 18, "steps": 5000, "batch": 50, "n_train": 55_000,
                 "blocks": ["plain", "highway"], "starts": ["tutorial", "he"],
                 "lrs": [0.01, 0.001], "gate_bias": -2.0, "seeds": [0, 1, 2, 3, 4]}}
SMOKE = {
    "dataset": "digits", "n_train": 640, "n_test": 360, "epochs": 2, "batch": 64,
    "lrs": {"adam": [2e-3, 5e-3], "sgd": [0.05, 0.1]}, "seeds": [0, 1],
    "one_rate_from": 12, "sums": [0.3, 1.0, 2.0], "lower_sums": [0.1],
    "depths": [4, 12], "deep": {"depth": 16, "sums": [0.3, 1.0]},
    "constant_T": 0.025, "rules": [
        {"block": "highway", "optimizer": "adam", "depths": [4, 12, 16, 40],
         "rules": ["S = 1", "chrono"]},
        {"block": "highway", "optimizer": "adam", "depths": [12], "rules": ["-L/10"]},
        {"block": "t_only", "optimizer": "adam", "depths": [4], "rules": ["S = 1"]},
        {"block": "highway", "optimizer": "sgd", "depths": [4], "rules": ["-L/10"]}],
    "controls": {
        "depths": [4, 12, 16], "rules": ["S = 1", "constant T"], "shallow": [1],
        "beyond": [1e-2], "measured": 128, "seeds": [2, 3],
        "deep_seeds": [2, 3],
        "longer": {"depth": 4, "epochs": [6, 8], "lr": 2e-3, "seeds": [2, 3]},
        "schedule": {"depths": [1, 4], "lrs": [2e-3], "seeds": [0, 1]}},
    "mechanism": {"depths": [8, 16], "images": 64, "seeds": [0, 1],
                  "sums": [0.3, 1.0, 2.0]},
    "rescue": {"depths": [4, 6], "judged_from": 6, "seeds": [0]},
    "border": {"depth": 50, "lr": 3e-3, "rounds": 2, "octaves": 5, "n_test": 128,
               "seeds": [0, 1], "changes": {"": [{}], "eps": [{"eps": 1e-4}]}},
    "full": {"n_train": 1437, "groups": 4, "nets": [
        {"rule": "S = 1", "optimizers": ["sgd"], "depths": [4, 16],
         "epochs": 2, "lr_decay": 0.7, "measured": 128, "kept": [2]},
        {"rule": "-L/10", "optimizers": ["sgd"], "depths": [4],
         "epochs": 2, "lr_decay": 0.7, "measured": 128, "kept": [2]},
        {"rule": "S = 1", "optimizers": ["adam"], "depths": [40], "lr": 3e-3,
         "epochs": 2, "lr_decay": 0.6, "measured": 128, "kept": [2, 10]}]},
    "deepest": {"depth": 40, "lr": 3e-3, "failed_epochs": 1, "sums": [0.3]},
    "map": {"lrs": [1e-3, 5e-3], "cells": [
        {"depths": [3, 9], "gate_biases": [1.0, -1.0, -20.0], "seeds": [0]},
        {"depths": [9], "gate_biases": [-1.0, -20.0], "seeds": [1]}]},
    "deep_nets": {"lr": 3e-3, "lr_decay": 0.9, "n_train": 1437, "measured": 128,
                  "lesioned": 4, "kept": [1, 2, 5], "shut": -20.0, "nets": [
                      {"depth": 3, "gate_biases": [-1.0], "epochs": 2, "seeds": [0, 1]},
                      {"depth": 11, "gate_biases": [-2.0, -20.0], "epochs": 2,
                       "seeds": [0]}]},
    "tutorial": {"depth": 4, "steps": 40, "batch": 50, "n_train": 1437,
                 "blocks": ["plain", "highway"], "starts": ["tutorial", "he"],
                 "lrs": [0.01, 0.001], "gate_bias": -2.0, "seeds": [0, 1]}}


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

    def loss(self, config: dict) -> float:
        """A trial's last training loss; infinite where it diverged."""
        loss = final_loss(self[config])
        return math.inf if loss is None else loss


def final_loss(trial: Trial) -> float | None:
    """A net's last training loss; None where it diverged."""
    return trial.result["train_loss"][-1] if trial.result["status"] == "ok" else None


# --------------------------------------------------------------------------------------
# Nets, by rule and by S


class Net(NamedTuple):
    """Nets that differ in rate and seed alone."""

    depth: int
    gates: dict
    optimizer: str
    block: str = "highway"
    seeds: tuple[int, ...] = ()     # those of the plan, unless told


def net_config(plan: dict, net: Net, lr: float, seed: int, **changes: Any) -> dict:
    """A trial of `training.train`."""
    own = {"adam": {"eps": 1e-8}, "sgd": {"momentum": 0.9}}[net.optimizer]
    return {"block": net.block, "depth": net.depth, "hidden": plan["hidden"],
            "activation": "tanh", "init": "glorot", "dtype": "float32",
            "gates": net.gates, "optimizer": net.optimizer, "lr": lr, "lr_decay": 1.0,
            "seed": seed, "epochs": plan["epochs"], "batch": plan["batch"],
            "clip": 5.0, "n_train": plan["n_train"], "n_test": plan["n_test"]
            } | own | changes


def chosen_lr(book: Book, plan: dict, net: Net) -> float | None:
    """The rate of the lowest loss of the first seed; None where none trains."""
    losses = {lr: book.loss(net_config(plan, net, lr, plan["seeds"][0]))
              for lr in plan["lrs"][net.optimizer]}
    best = min(losses, key=losses.__getitem__)
    return best if losses[best] < TRAINS else None


def by_rate(book: Book, plan: dict, net: Net) -> dict[float, list[dict]]:
    """The trials of a net, {rate: configs, one for each seed}.

    Shallow nets take every rate with every seed. From plan["one_rate_from"] blocks on
    the first seed takes every rate and, once these have run, the others take the one
    that it chose; the middle one where it trained with none. 10,000 blocks take the
    rate that they chose at plan["deep"], and few epochs where there was none.
    """
    seeds, lrs = net.seeds or plan["seeds"], plan["lrs"][net.optimizer]
    last = plan["deepest"]
    if net.depth == last["depth"]:
        lr = chosen_lr(book, plan, net._replace(depth=plan["deep"]["depth"]))
        changes = {"epochs": last["failed_epochs"]} if lr is None else {}
        lr = last["lr"] if lr is None else lr
        return {lr: [net_config(plan, net, lr, seed, **changes) for seed in seeds]}
    few = seeds if net.depth < plan["one_rate_from"] else seeds[:1]
    configs = {lr: [net_config(plan, net, lr, seed) for seed in few] for lr in lrs}
    if len(few) < len(seeds) and all(found in book for found, in configs.values()):
        lr = chosen_lr(book, plan, net) or sorted(lrs)[1]
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
    deep = plan["deep"]
    return [Net(depth, {"sum": S}, optimizer)
            for depth in (*plan["depths"], deep["depth"]) for optimizer in plan["lrs"]
            for S in (*plan["lower_sums"], *(deep["sums"] if depth == deep["depth"]
                                             else plan["sums"])) if depth > S]


def rule_nets(plan: dict) -> list[tuple[str, Net]]:
    """(rule, nets) of every rule, block, optimiser and depth."""
    return [(rule, Net(depth, gates_of(plan, rule, depth), kind["optimizer"],
                       kind["block"], tuple(kind.get("seeds", ()))))
            for kind in plan["rules"] for depth in kind["depths"]
            for rule in kind["rules"]]


def rescue_nets(plan: dict) -> list[Net]:
    """Half-open gates and S = 1, by depth and optimiser."""
    own = plan["rescue"]
    return [Net(depth, gates, optimizer, seeds=tuple(own["seeds"]))
            for depth in own["depths"] for gates in (HALF_OPEN, ONE)
            for optimizer in plan["lrs"]]


def deepest_nets(plan: dict) -> list[Net]:
    """10,000 blocks with other S, by the first seed."""
    own = plan["deepest"]
    return [Net(own["depth"], {"sum": S}, "adam", seeds=tuple(plan["seeds"][:1]))
            for S in own["sums"]]


def full_configs(book: Book, plan: dict) -> dict[tuple[str, int, str], list[dict]]:
    """Nets on all images, at the rate that their rule chose on the few, unless told,
    {(rule, depth, optimiser): configs, one for each seed}."""
    own, found = plan["full"], {}
    for kind in own["nets"]:
        for depth in kind["depths"]:
            measure = {"measured": kind["measured"], "kept": kind["kept"],
                       "lesioned": depth // own["groups"]}
            for optimizer in kind["optimizers"]:
                net = Net(depth, gates_of(plan, kind["rule"], depth), optimizer)
                lr = (kind.get("lr") or chosen_lr(book, plan, net)
                      or min(plan["lrs"][optimizer]))
                found[kind["rule"], depth, optimizer] = [net_config(
                    plan, net, lr, seed, n_train=own["n_train"], epochs=kind["epochs"],
                    lr_decay=kind["lr_decay"], measure=measure)
                    for seed in plan["seeds"]]
    return found


# --------------------------------------------------------------------------------------
# The largest S that trains, by bisection


def border_sum(plan: dict, step: int) -> float:
    """The S of a step of the bisection: a power of two in even parts of octaves."""
    own = plan["border"]
    return hn.significant(2 ** (own["octaves"] * step / 2 ** own["rounds"]))


def border_config(plan: dict, change: dict, seed: int, step: int) -> dict:
    """A trial of the bisection."""
    own = plan["border"]
    rest = {"depth": own["depth"], "lr": own["lr"], "optimizer": "adam",
            "n_test": own["n_test"]} | change
    net = Net(rest.pop("depth"), {"sum": border_sum(plan, step)}, rest.pop("optimizer"))
    return net_config(plan, net, rest.pop("lr"), seed, **rest)


def bracket(book: Book, plan: dict, change: dict, seed: int) -> tuple[int, int] | dict:
    """The last step of the bisection that trains and the first that does not; or the
    trial that has to run next. The first and the last step are taken to do so."""
    low, high = 0, 2 ** plan["border"]["rounds"]
    while high - low > 1:
        middle = (low + high) // 2
        config = border_config(plan, change, seed, middle)
        if config not in book:
            return config
        low, high = (middle, high) if book.loss(config) < TRAINS else (low, middle)
    return low, high


def border_round(book: Book, plan: dict) -> list[dict]:
    """The next trials of every bisection that is not finished."""
    own = plan["border"]
    found = [bracket(book, plan, change, seed)
             for changes in own["changes"].values() for change in changes
             for seed in own["seeds"]]
    return [config for config in found if isinstance(config, dict)]


def conduct(book: Book, plan: dict) -> None:
    """Run the trials of `training.train`: first the nets whose rates others need."""
    def run(nets):
        book.run(config for net in nets
                 for configs in by_rate(book, plan, net).values() for config in configs)
    nets = [*rescue_nets(plan), *sum_nets(plan),
            *(net for _, net in rule_nets(plan)), *deepest_nets(plan)]
    run(net for net in nets if net.depth < plan["deepest"]["depth"])
    while configs := border_round(book, plan):
        book.run(configs)
    run(nets)
    book.run(config for configs in full_configs(book, plan).values()
             for config in configs)


# --------------------------------------------------------------------------------------
# The other trials


def start_configs(plan: dict) -> dict[tuple[int, float, int], dict]:
    """Trials of `training.start`, {(depth, S, seed): config}."""
    own = plan["mechanism"]
    return {(depth, S, seed): {
        "block": "highway", "depth": depth, "hidden": plan["hidden"],
        "activation": "tanh", "init": "glorot", "dtype": "float32",
        "gates": {"sum": S}, "seed": seed, "n_train": own["images"], "n_test": 1}
        for depth in own["depths"] for S in own["sums"] if depth > S
        for seed in own["seeds"]}


def bias_config(plan: dict, **rest: Any) -> dict:
    """A trial of `training.by_bias`; rest: depth, b_T, rate, epochs, seed."""
    return {"init": "glorot", "hidden": plan["hidden"], "n_test": plan["n_test"],
            "batch": plan["batch"], "n_train": plan["n_train"], **rest}


def map_configs(plan: dict) -> dict[tuple[int, float, int, float], dict]:
    """The map, {(depth, b_T, seed, rate): config}."""
    own = plan["map"]
    return {(depth, bias, seed, lr): bias_config(
        plan, depth=depth, gate_bias=bias, lr=lr, epochs=plan["epochs"], seed=seed)
        for cells in own["cells"] for depth in cells["depths"]
        for bias in cells["gate_biases"] for seed in cells["seeds"]
        for lr in own["lrs"]}


def deep_configs(plan: dict) -> dict[tuple[int, float, int], dict]:
    """Deep nets on all images, {(depth, b_T, seed): config}."""
    own = plan["deep_nets"]
    return {(nets["depth"], bias, seed): bias_config(
        plan, depth=nets["depth"], gate_bias=bias, lr=own["lr"],
        lr_decay=own["lr_decay"], seed=seed, epochs=nets["epochs"],
        n_train=own["n_train"], measure={name: own[name] for name in (
            "measured", "lesioned", "kept")})
        for nets in own["nets"] for bias in nets["gate_biases"]
        for seed in nets["seeds"]}


def tutorial_configs(plan: dict) -> dict[tuple[str, str, float, int], dict]:
    """Trials of `tutorial.train`, {(block, start, rate, seed): config}."""
    own = plan["tutorial"]
    shared = {name: own[name] for name in (
        "depth", "steps", "batch", "n_train", "gate_bias")}
    return {(block, start, lr, seed): shared | {
        "block": block, "start": start, "lr": lr, "seed": seed}
        for block in own["blocks"] for start in own["starts"] for lr in own["lrs"]
        for seed in own["seeds"]}
