"""The record of `depth`: results of trials -> rows, fits and borders."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

import highway_networks as hn
from experiments.depth.plan import (
    HALF_OPEN,
    TRAINS,
    Book,
    Net,
    border_config,
    border_sum,
    bracket,
    by_rate,
    deepest_nets,
    final_loss,
    full_configs,
    rescue_nets,
    rule_nets,
    sum_nets,
)
from experiments.depth.training import logit
from experiments.lab import Trial
from experiments.lab.judging import listed, or_infinite

GUESSING = math.log(10)         # the loss that a diverged net is given among others


def of_seeds(trials: Sequence[Trial]) -> dict:
    """The fields of a row that its trials give, seed by seed; None of one that
    diverged. Which blocks are used, where that was measured."""
    row = {"train_loss": [final_loss(trial) for trial in trials],
           "test_acc": [trial.result["test_acc"] for trial in trials],
           "trials": [trial.hash for trial in trials]}
    used = [trial.result.get("used") for trial in trials]
    told = ("layers", "loss", "closed_loss", "open", "prefix", "kept", "lesions")
    return row | ({"used": [each and {name: each[name] for name in told} | {
        "cut_loss": each["curves"]["cut_loss"]} for each in used]} if any(used) else {})


def mean_loss(row: dict) -> float:
    """The mean over seeds of a row's final losses; infinite if one diverged."""
    return float(np.mean(or_infinite(row["train_loss"])))


# --------------------------------------------------------------------------------------
# Rows of nets


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


def describe_sums(book: Book, plan: dict) -> list[dict]:
    """A row for each depth, optimiser and S."""
    return [{"S": net.gates["sum"],
             "b_T": hn.significant(logit(net.gates["sum"] / net.depth))}
            | row_of(book, plan, net) for net in sum_nets(plan)]


def describe_rules(book: Book, plan: dict) -> list[dict]:
    """A row for each depth, rule, block and optimiser."""
    return [{"rule": rule, "block": net.block} | row_of(book, plan, net)
            for rule, net in rule_nets(plan)]


def describe_full(book: Book, plan: dict) -> list[dict]:
    """A row for each kind of net on all images."""
    return [{"rule": rule, "depth": depth, "optimizer": optimizer}
            | best_row(book, {configs[0]["lr"]: configs})
            for (rule, depth, optimizer), configs in full_configs(book, plan).items()]


def describe_rescue(book: Book, plan: dict) -> list[dict]:
    """Half-open gates and the rule: a row for each depth and optimiser, with how many
    of all their trials (rates and seeds) train, and the lowest loss of any."""
    rows = []
    for net in rescue_nets(plan):
        configs = [config for found in by_rate(book, plan, net).values()
                   for config in found]
        losses = np.array([book.loss(config) for config in configs])
        rows.append({"start": "half open" if net.gates == HALF_OPEN else "S = 1"}
                    | row_of(book, plan, net) | {
                        "tried": len(losses), "lowest": listed(min(losses)),
                        "trained": int((losses < TRAINS).sum()),
                        "trials": [book[config].hash for config in configs]})
    return rows


# --------------------------------------------------------------------------------------
# What S explains, and what chance does


def explained(y: np.ndarray, *columns: np.ndarray) -> float | None:
    """The part of the variance of y that a sum of cubics in the columns explains; None
    where there is none."""
    if np.ptp(y) == 0:
        return None
    scaled = [(x - np.mean(x)) / (np.std(x) or 1) for x in columns]
    design = np.column_stack([np.ones(len(y)), *(x ** power for x in scaled
                                                 for power in (1, 2, 3))])
    rest = y - design @ np.linalg.lstsq(design, y, rcond=None)[0]
    return hn.significant(1 - rest @ rest / ((y - y.mean()) @ (y - y.mean())))


def variance(rows: list[dict]) -> dict:
    """The share of the variance of log loss that S explains, b_T, L, and S with L."""
    y = np.log(np.minimum([mean_loss(row) for row in rows], GUESSING))
    S, L = (np.log([row[name] for row in rows]) for name in ("S", "depth"))
    b_T = np.array([row["b_T"] for row in rows])
    return {"S": explained(y, S), "b_T": explained(y, b_T), "L": explained(y, L),
            "S and L": explained(y, S, L)}


def noise(rows: Iterable[dict]) -> float | None:
    """The factor by which the ratio of two means of seeds is off by chance, one
    standard deviation: exp(c sqrt(2 / n)), with c the standard deviation of one seed's
    loss in its row, as a part of the mean, over the rows that train (root of the mean
    square)."""
    losses = [np.array(row["train_loss"]) for row in rows
              if len(row["train_loss"]) > 1 and mean_loss(row) < TRAINS]
    if not losses:
        return None
    square = np.mean([(loss.std(ddof=1) / loss.mean()) ** 2 for loss in losses])
    n = np.mean([len(loss) for loss in losses])
    return round(math.exp(math.sqrt(2 * square / n)), 3)


# --------------------------------------------------------------------------------------
# Border and mechanism


def name_change(change: dict, base: dict) -> str:
    """What a row of the border differs in from the base, in words."""
    words = {"lr": "rate {:g}", "eps": "eps {:g}", "epochs": "{} epochs",
             "depth": "{} blocks", "hidden": "{} units", "init": "{}",
             "dtype": "{}", "activation": "{}", "optimizer": "{}"}
    names = {"sgd": "SGD", "he": "He's weights", "uniform": "U(±1/√n)"}
    shown = ", ".join(words[name].format(names.get(value, value))
                      for name, value in change.items())
    return shown or f"{base['depth']} blocks, Adam {base['lr']:g}"


def describe_border(book: Book, plan: dict) -> list[dict]:
    """For each change: the largest S that trains, for each seed the geometric mean of
    the last step that trained and the first that did not."""
    rows, own = [], plan["border"]
    for factor, change in ((factor, change) for factor, changes in
                           own["changes"].items() for change in changes):
        ends = {seed: bracket(book, plan, change, seed) for seed in own["seeds"]}
        borders = [hn.significant(math.sqrt(math.prod(
            border_sum(plan, step) for step in found))) for found in ends.values()]
        configs = [border_config(plan, change, seed, step)
                   for seed, found in ends.items() for step in found]
        rows.append({"factor": factor, "change": change,
                     "name": name_change(change, own), "S": borders,
                     "median": hn.significant(np.median(borders)),
                     "trials": [book[config].hash for config in configs
                                if config in book]})
    return rows


def fit_line(x: np.ndarray, y: np.ndarray) -> dict:
    """Least squares -> slope and R^2."""
    slope, start = np.polyfit(x, y, 1)
    rest = y - slope * x - start
    return {"slope": hn.significant(slope),
            "R2": hn.significant(1 - rest @ rest / ((y - y.mean()) @ (y - y.mean())))}


def by_key(trials: dict[tuple, Trial], length: int) -> dict[tuple, list[Trial]]:
    """Trials by the first elements of their keys."""
    groups: dict[tuple, list[Trial]] = {}
    for key, trial in trials.items():
        groups.setdefault(key[:length], []).append(trial)
    return groups


def describe_mechanism(trials: dict[tuple, Trial], plan: dict) -> list[dict]:
    """For each depth: slopes in S of the three logarithms before training."""
    rows = []
    for (depth,), found in by_key(trials, 1).items():
        starts = [trial.result for trial in found]
        values = {"W_in": [start["W_in"] for start in starts], "gradient": [
            start["gradient"]["rms"][0] / start["gradient"]["rms"][-1]
            for start in starts], "carried": [start["carried"] for start in starts]}
        S = np.array([start["S"] for start in starts])
        # A carried part may be negative by chance where next to nothing is carried.
        rows.append({"depth": depth, "n": len(plan["mechanism"]["seeds"]), "fits": {
            name: fit_line(S, np.log(np.abs(value))) for name, value in values.items()},
            "trials": [trial.hash for trial in found]})
    return rows


# --------------------------------------------------------------------------------------
# Nets by b_T, the tutorial, all


def describe_map(trials: dict[tuple, Trial]) -> list[dict]:
    """A row for each depth and b_T: its seeds, each with the rate of the lower last
    training loss."""
    best = {key: min(found, key=lambda trial: float(or_infinite(final_loss(trial))))
            for key, found in by_key(trials, 3).items()}
    return [{"depth": depth, "gate_bias": bias,
             "lr": [trial.config["lr"] for trial in found]} | of_seeds(found)
            for (depth, bias), found in by_key(best, 2).items()]


def describe_tutorial(trials: dict[tuple, Trial]) -> list[dict]:
    """A row for each block, start and rate: test accuracies of its seeds, None for one
    that diverged."""
    return [{"block": block, "start": start, "lr": lr,
             "test_acc": [trial.result["test_acc"] for trial in found],
             "trials": [trial.hash for trial in found]}
            for (block, start, lr), found in by_key(trials, 3).items()]


def describe(book: Book, plan: dict, others: Sequence[dict[tuple, Trial]]) -> dict:
    """The results of the trials -> the record. others: of `start`, of the map, of the
    deep nets, of the tutorial."""
    starts, cells, deep, tutorial = others
    return {
        "sums": describe_sums(book, plan), "border": describe_border(book, plan),
        "mechanism": describe_mechanism(starts, plan),
        "rules": describe_rules(book, plan), "full": describe_full(book, plan),
        "rescue": describe_rescue(book, plan),
        "deepest_sums": [{"S": net.gates["sum"]} | row_of(book, plan, net)
                         for net in deepest_nets(plan)],
        "map": describe_map(cells), "tutorial": describe_tutorial(tutorial),
        "deep": [{"depth": depth, "gate_bias": bias} | of_seeds(found)
                 for (depth, bias), found in by_key(deep, 2).items()]}
