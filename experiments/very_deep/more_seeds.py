"""What the map shows with one seed, with several: the guideline, and both extremes.

P1's guideline of b_T beside other values, at its three depths; the tutorial's advice to
start more negative when in doubt, at 50, 100 and 200 layers; and the largest b_T at the
largest depth. Seed 0 is the map's own, and so are settings and training.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

import highway_networks as hn
from experiments.judging import (
    Claim,
    agreed,
    claim,
    every,
    or_infinite,
    over_nets,
    resting_on,
)
from experiments.lab.papers import GUIDELINE
from experiments.very_deep.gate_bias_map import border
from experiments.very_deep.nets import TRAINS, highway_config


class Cell(NamedTuple):
    """A trial; depth in layers."""

    depth: int
    gate_bias: float
    lr: float
    seed: int


def configs(protocol: dict) -> dict[Cell, dict]:
    """The trials, all of them the map's: those of seed 0 it has already."""
    lrs = protocol["map"]["lrs"]
    cells = [Cell(depth, bias, lr, seed) for part in protocol["more_seeds"].values()
             for seed in part["seeds"] for depth in part["depths"]
             for bias in part["gate_biases"] for lr in lrs]
    return {cell: highway_config(
        protocol, "map", depth=cell.depth - 1, gate_bias=cell.gate_bias, lr=cell.lr,
        epochs=protocol["map"]["epochs"], seed=cell.seed) for cell in cells}


def better(found: dict[Cell, dict], depth: int, bias: float, seed: int) -> dict:
    """Of a seed's learning rates the result with the lower last training loss."""
    return min((result for cell, result in found.items()
                if (cell.depth, cell.gate_bias, cell.seed) == (depth, bias, seed)),
               key=lambda result: float(or_infinite(result["train_loss"][-1])))


def describe(found: dict[Cell, dict], own: dict) -> dict:
    """For each part the training loss and test accuracy of each seed, with the better
    learning rate: {part: [{"depth", "gate_bias", "train_loss", "test_acc"}]}."""
    record: dict[str, list] = {}
    for name, part in own.items():
        for depth in part["depths"]:
            for bias in part["gate_biases"]:
                chosen = [better(found, depth, bias, seed) for seed in part["seeds"]]
                record.setdefault(name, []).append({
                    "depth": depth, "gate_bias": bias,
                    "train_loss": [result["train_loss"][-1] for result in chosen],
                    "test_acc": [result["test_acc"] for result in chosen]})
    return record


# --------------------------------------------------------------------------------------
# Claims


def accuracies(row: dict) -> np.ndarray:
    """Test accuracy of each seed, 0 of one that diverged."""
    return np.array([value or 0 for value in row["test_acc"]])


def behind(rows: list[dict], depth: int, bias: float) -> np.ndarray:
    """By how much each seed is better, in test accuracy, with the b_T of the lowest
    median training loss at a depth than with another b_T."""
    own = [row for row in rows if row["depth"] == depth]
    best = min(own, key=lambda row: float(np.median(or_infinite(row["train_loss"]))))
    (given,) = (row for row in own if row["gate_bias"] == bias)
    return accuracies(best) - accuracies(given)


def check_guideline(rows: list[dict]) -> dict:
    """P1's guideline beside other b_T. A mean over seeds tells nothing within two
    standard errors of the limit."""
    depths = [depth for depth in GUIDELINE if any(
        (row["depth"], row["gate_bias"]) == (depth, GUIDELINE[depth]) for row in rows)]

    def verdict(limit):
        found: list[bool | None] = []
        for depth in depths:
            lost = behind(rows, depth, GUIDELINE[depth])
            error = 2 * lost.std(ddof=1) / math.sqrt(len(lost)) if len(lost) > 1 else 1
            apart = lost.mean() - limit
            found.append(None if abs(apart) <= error else bool(apart < 0))
        return every(found)
    return claim(
        section="ours", text="P1's guideline for convolutional nets, b_T of -1, -2, -3 "
        "for 10, 20, 30 layers, suits fully connected ones: mean test accuracy within "
        "a point of that with the b_T of the lowest training loss", paper=None,
        ours={f"{depth} layers": {
            f"b_T {row['gate_bias']:g}": hn.significant(accuracies(row).mean())
            for row in rows if row["depth"] == depth} for depth in depths},
        n=len(rows[0]["test_acc"]), holds=verdict(0.01) if len(depths) == len(GUIDELINE)
        else None, also={"0.5 points": verdict(0.005), "2 points": verdict(0.02)})


def check_advice(rows: list[dict]) -> dict:
    """The tutorial's "when in doubt": all below the largest b_T that trains do too."""
    depths, n = sorted({row["depth"] for row in rows}), len(rows[0]["test_acc"])
    borders = {depth: [border(
        depth, [row["gate_bias"] for row in rows if row["depth"] == depth],
        np.array([accuracies(row)[seed] for row in rows if row["depth"] == depth]))
        for seed in range(n)] for depth in depths}
    below = [row["all_below_train"] for found in borders.values() for row in found]
    return claim(
        section="tutorial", text="when in doubt, more negative: at each depth and with "
        "each seed, all b_T below the largest that trains train, too (beyond -20 "
        "nothing was tried)", paper="start with more negative", ours={
            f"{depth} layers, the largest that trains": [
                row["gate_bias"] for row in found] for depth, found in borders.items()},
        n=n, holds=None if None in below else all(below))


def check_largest(rows: list[dict]) -> dict:
    """The tutorial's "in either extreme": the largest b_T at the largest depth. The
    other extreme cannot be judged, as the tutorial names -20 among those that train.
    """
    (row,) = rows

    def fails(limit):
        return agreed(value < limit for value in accuracies(row))
    return claim(
        section="tutorial", text="either extreme of b_T fails: the high one, here "
        f"{row['gate_bias']:g}, with {row['depth']} layers (the low one, beyond the "
        "-20 that the tutorial recommends, was not tried): test accuracy below "
        f"{TRAINS:g}", paper="in "
        "either extreme fails to converge in a reasonable amount of time",
        younger=True,
        ours=over_nets([float(value) for value in accuracies(row)]),
        n=len(row["test_acc"]), holds=fails(TRAINS),
        also={"0.25": fails(0.25), "0.75": fails(0.75)})


def check(record: dict) -> list[Claim]:
    """All of them."""
    parts = {"guideline": check_guideline, "advice": check_advice,
             "largest": check_largest}
    return [item for name, check_part in parts.items()
            for item in resting_on([check_part(record[name])], {
                "part": "map", "depth": [row["depth"] - 1 for row in record[name]],
                "gate_bias": [row["gate_bias"] for row in record[name]]})]
