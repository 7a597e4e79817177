"""The trials of `depth`, which rate is chosen, and the rows of the record."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from experiments.depth.plan import TRAINS, Net, gates_of, net_config, on_all
from experiments.depth.training import train, train_tutorial
from experiments.lab import Lab, Trial
from experiments.lab.judging import name_of_least, or_infinite

GUESSING = math.log(10)         # the loss that a diverged net is given among others


def final_loss(trial: Trial) -> float | None:
    """A net's last training loss; None where it diverged."""
    return trial.result["train_loss"][-1] if trial.result["status"] == "ok" else None


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


def best_row(found: Mapping[float, Sequence[Trial]]) -> dict:
    """{rate: a trial of each seed} -> what the nets did at the rate of the lowest mean
    loss."""
    return min(({"lr": lr} | of_seeds(trials) for lr, trials in found.items()),
               key=mean_loss)


def first_rates(lab: Lab, nets: Sequence[Net]) -> list[float | None]:
    """Of each net the rate of the lowest loss of the first seed; None where none
    trains."""
    rates, chosen = lab.plan["lrs"], []
    found = lab.by_seed(train, {
        (i, lr): net_config(lab.plan, net, lr) for i, net in enumerate(nets)
        for lr in rates[net.optimizer]}, lab.plan["seeds"][:1])
    for i, net in enumerate(nets):
        losses = {lr: final_loss(found[i, lr][0]) for lr in rates[net.optimizer]}
        best = name_of_least(losses)
        chosen.append(best if or_infinite(losses[best]) < TRAINS else None)
    return chosen


def best_rows(lab: Lab, nets: Sequence[Net]) -> list[dict]:
    """What nets did at the best rate, a row for each.

    Shallow nets take every rate with every seed. From plan["one_rate_from"] blocks on
    the first seed takes every rate, and the others take the one that it chose; the
    middle one where it trained with none. 10,000 blocks take the rate that they chose
    at plan["deep"], and few epochs where there was none.
    """
    plan, last = lab.plan, lab.plan["deepest"]
    chosen = first_rates(lab, [
        net if net.depth < last["depth"] else
        net._replace(depth=plan["deep"]["depth"]) for net in nets])
    configs: dict[tuple, dict] = {}
    for i, (net, lr) in enumerate(zip(nets, chosen, strict=True)):
        rates, changes = sorted(plan["lrs"][net.optimizer]), {}
        if net.depth >= plan["one_rate_from"]:
            rates = [lr or rates[1]]
        if net.depth == last["depth"] and lr is None:
            rates, changes = [last["lr"]], {"epochs": last["failed_epochs"]}
        configs |= {(i, lr): net_config(plan, net, lr, **changes) for lr in rates}
    found = lab.by_seed(train, configs, plan["seeds"])
    return [{"depth": net.depth, "optimizer": net.optimizer} | best_row(
        {lr: trials for (j, lr), trials in found.items() if j == i})
        for i, net in enumerate(nets)]


def rows_of_full(lab: Lab, optimizer: str) -> list[dict]:
    """Nets on all images, at the rate that their rule chose on the few, or the lowest;
    with Adam at that of the deepest nets."""
    plan, own = lab.plan, lab.plan["full"][optimizer]
    nets = [Net(depth, gates_of(plan, rule, depth), optimizer)
            for rule, depth in own["nets"]]
    rates = (first_rates(lab, nets) if optimizer == "sgd" else
             [plan["deepest"]["lr"]] * len(nets))
    trials = lab.by_seed(train, {tuple(about): net_config(
        plan, net, lr or min(plan["lrs"][optimizer]), **on_all(plan, optimizer))
        for about, net, lr in zip(own["nets"], nets, rates, strict=True)},
        plan["seeds"])
    return [{"rule": rule, "depth": depth, "optimizer": optimizer} | of_seeds(found)
            for (rule, depth), found in trials.items()]


def by_key(found: Mapping[tuple, Any], length: int = 1) -> dict[tuple, list]:
    """Values by the first elements of their keys."""
    groups: dict[tuple, list] = {}
    for key, value in found.items():
        groups.setdefault(key[:length], []).append(value)
    return groups


def rows_of_map(lab: Lab) -> list[dict]:
    """A row for each depth and b_T: its seeds, each with the rate of the lower last
    training loss."""
    own = lab.plan["map"]
    found = lab.trials(train, {(depth, bias, seed, lr): net_config(
        lab.plan, Net(depth, {"bias": bias}), lr, seed=seed)
        for cells in own["cells"] for depth in cells["depths"]
        for bias in cells["gate_biases"] for seed in cells["seeds"]
        for lr in own["lrs"]})
    best = {key: min(rates, key=lambda trial: float(or_infinite(final_loss(trial))))
            for key, rates in by_key(found, 3).items()}
    return [{"depth": depth, "gate_bias": bias} | of_seeds(seeds)
            for (depth, bias), seeds in by_key(best, 2).items()]


def rows_of_thousand(lab: Lab) -> list[dict]:
    """Nets of 1000 layers on all images, a row for each b_T."""
    own = lab.plan["thousand"]
    found = lab.trials(train, {(bias, seed): net_config(
        lab.plan, Net(own["depth"], {"bias": bias}), own["lr"], seed=seed,
        lr_decay=own["lr_decay"], epochs=own["epochs"], n_train=own["n_train"],
        measure={name: own[name] for name in ("measured", "kept")})
        for nets in own["nets"] for bias in nets["gate_biases"]
        for seed in nets["seeds"]})
    return [{"depth": own["depth"], "gate_bias": bias} | of_seeds(trials)
            for (bias,), trials in by_key(found).items()]


def rows_of_tutorial(lab: Lab) -> list[dict]:
    """A row for each start and rate of the tutorial's net."""
    own = lab.plan["tutorial"]
    shared = {name: own[name] for name in ("depth", "steps", "batch", "n_train")}
    found = lab.by_seed(train_tutorial, {
        (start, lr): shared | {"start": start, "lr": lr}
        for start in own["starts"] for lr in own["lrs"]}, own["seeds"])
    return [{"start": start, "lr": lr,
             "test_acc": [trial.result["test_acc"] for trial in trials],
             "trials": [trial.hash for trial in trials]}
            for (start, lr), trials in found.items()]


def describe(lab: Lab) -> dict:
    """The plan -> the record, but for controls and stages."""
    plan = lab.plan
    others = {"map": rows_of_map(lab), "thousand": rows_of_thousand(lab),
              "tutorial": rows_of_tutorial(lab)}
    sums = dict.fromkeys(plan["depths"], plan["sums"]) | {
        plan["deep"]["depth"]: plan["deep"]["sums"]}
    nets = [Net(depth, {"sum": S}, optimizer) for depth, own in sums.items()
            for optimizer in plan["lrs"] for S in own if depth > S]
    rules = [(rule, depth) for rule, depths in plan["rules"].items()
             for depth in depths]
    rows = best_rows(lab, nets + [Net(depth, gates_of(plan, rule, depth))
                                  for rule, depth in rules])
    return {
        "sums": [{"S": net.gates["sum"]} | row
                 for net, row in zip(nets, rows[:len(nets)], strict=True)],
        "rules": [{"rule": rule} | row for (rule, _), row
                  in zip(rules, rows[len(nets):], strict=True)],
        "full": rows_of_full(lab, "sgd") + rows_of_full(lab, "adam"), **others}
