"""The plan of `depth`: which nets are trained.

Depth counts blocks. A net's gates are told by what they are to be: {"sum": S}, {"bias":
b} or {"rule": name}; see training.initial_biases.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import highway_networks as hn

TRAINS = math.log(10) / 2       # training loss below which a net trains
ONE = {"sum": 1.0}              # the rule

TO_300, TO_10000 = [10, 30, 100, 300], [10, 30, 100, 300, 1000, 10_000]
BIASES = [1.0, 0.0, -1.0, -2.0, -3.0, -4.0, -5.0, -7.0, -10.0, -15.0, -20.0]
PLAN: dict[str, Any] = {
    "dataset": "mnist", "n_train": 6000, "n_test": 10_000, "epochs": 12, "hidden": 50,
    "batch": 128, "lrs": {"adam": [5e-4, 1e-3, 2e-3], "sgd": [0.025, 0.05, 0.1]},
    "seeds": [0, 1, 2], "one_rate_from": 300,       # blocks, see record.best_rows
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


class Net(NamedTuple):
    """Nets that differ in rate and seed alone."""

    depth: int
    gates: dict
    optimizer: str = "adam"


def net_config(plan: dict, net: Net, lr: float, **changes: Any) -> dict:
    """A trial of `training.train`; it lacks the seed."""
    own = {"adam": {"eps": 1e-8}, "sgd": {"momentum": 0.9}}[net.optimizer]
    return {"block": "highway", "depth": net.depth, "hidden": plan["hidden"],
            "activation": "tanh", "init": "glorot", "dtype": "float32",
            "gates": net.gates, "optimizer": net.optimizer, "lr": lr, "lr_decay": 1.0,
            "epochs": plan["epochs"], "batch": plan["batch"], "clip": 5.0,
            "n_train": plan["n_train"], "n_test": plan["n_test"]} | own | changes


def gates_of(plan: dict, rule: str, depth: int) -> dict:
    """What a rule says of the gates of so many blocks."""
    rules: dict[str, dict] = {
        "S = 1": ONE, "b_T = -2": {"bias": -2.0}, "-L/10": {"rule": "guideline"},
        "chrono": {"rule": "chrono"},
        "shallow": ONE if depth > 1 else {"bias": 0.0},  # T of one may not be 1
        "constant T": {"sum": hn.significant(plan["constant_T"] * depth)}}
    return rules[rule]


def on_all(plan: dict, optimizer: str) -> dict:
    """The settings that all nets on all images share."""
    own = plan["full"][optimizer]
    return {"n_train": plan["full"]["n_train"], "epochs": own["epochs"],
            "lr_decay": own["lr_decay"],
            "measure": {"measured": own["measured"], "kept": []}}
