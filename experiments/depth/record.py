"""The record of `depth`: results of trials -> rows."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from experiments.depth.plan import (
    Book,
    Net,
    by_rate,
    final_loss,
    full_configs,
    rule_nets,
    sum_nets,
)
from experiments.lab import Trial
from experiments.lab.judging import or_infinite

GUESSING = math.log(10)         # the loss that a diverged net is given among others


def of_seeds(trials: Sequence[Trial]) -> dict:
    """The fields of a row that its trials give, seed by seed; None of one that
    diverged. Which blocks are used, where that was measured."""
    used = [trial.result.get("used") for trial in trials]
    return {"train_loss": [final_loss(trial) for trial in trials],
            "test_acc": [trial.result["test_acc"] for trial in trials],
            "trials": [trial.hash for trial in trials]
            } | ({"used": used} if any(used) else {})


def mean_loss(row: dict) -> float:
    """The mean over seeds of a row's final losses; infinite if one diverged."""
    return float(np.mean(or_infinite(row["train_loss"])))


def best_row(book: Book, configs: dict[float, list[dict]]) -> dict:
    """{rate: configs, one for each seed} -> what their nets did at the rate of the
    lowest mean loss: of the rates that most seeds ran with, so that none wins by one
    lucky seed."""
    most = max(map(len, configs.values()))
    rows = [{"lr": lr} | of_seeds([book[config] for config in own])
            for lr, own in configs.items() if len(own) == most]
    return min(rows, key=mean_loss)


def row_of(book: Book, plan: dict, net: Net) -> dict:
    """What the nets of a line of the plan did, at the best rate."""
    return ({"depth": net.depth, "optimizer": net.optimizer}
            | best_row(book, by_rate(book, plan, net)))


def by_key(trials: dict[tuple, Trial], length: int) -> dict[tuple, list[Trial]]:
    """Trials by the first elements of their keys."""
    groups: dict[tuple, list[Trial]] = {}
    for key, trial in trials.items():
        groups.setdefault(key[:length], []).append(trial)
    return groups


def describe_map(trials: dict[tuple, Trial]) -> list[dict]:
    """A row for each depth and b_T: its seeds, each with the rate of the lower last
    training loss."""
    best = {key: min(found, key=lambda trial: float(or_infinite(final_loss(trial))))
            for key, found in by_key(trials, 3).items()}
    return [{"depth": depth, "gate_bias": bias} | of_seeds(found)
            for (depth, bias), found in by_key(best, 2).items()]


def describe(book: Book, plan: dict, others: Sequence[dict[tuple, Trial]]) -> dict:
    """The results of the trials -> the record. others: of the map, of the nets of 1000
    layers, of the tutorial."""
    cells, thousand, tutorial = others
    return {
        "sums": [{"S": net.gates["sum"]} | row_of(book, plan, net)
                 for net in sum_nets(plan)],
        "rules": [{"rule": rule} | row_of(book, plan, net)
                  for rule, net in rule_nets(plan)],
        "full": [{"rule": rule, "depth": depth, "optimizer": optimizer}
                 | of_seeds([book[config] for config in configs])
                 for optimizer in ("sgd", "adam") for (rule, depth), configs in
                 full_configs(book, plan, optimizer).items()],
        "map": describe_map(cells),
        "thousand": [{"depth": plan["thousand"]["depth"], "gate_bias": bias}
                     | of_seeds(found) for (bias,), found in by_key(thousand, 1
                                                                    ).items()],
        "tutorial": [{"start": start, "lr": lr,
                      "test_acc": [trial.result["test_acc"] for trial in found],
                      "trials": [trial.hash for trial in found]}
                     for (start, lr), found in by_key(tutorial, 2).items()]}
