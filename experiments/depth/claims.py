"""What `depth` claims: of S, of b_T, and of the nets that use many blocks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

import highway_networks as hn
from experiments.depth.plan import TRAINS
from experiments.depth.record import mean_loss
from experiments.depth.training import KEEPS
from experiments.lab import Claim
from experiments.lab.judging import every, listed, or_infinite, or_zero
from experiments.lab.papers import GUIDELINE

FAR = 50                # %: far from a loss
LAWFUL = (0.1, 3)       # the S at which the depths' losses are compared
READS = 0.5             # test accuracy from which on a net of the map trains
COUNTED = "This counts blocks, also those that may work side by side"
OPTIMIZERS = {"adam": "Adam", "sgd": "SGD"}


def seeds_of(rows: Iterable[dict]) -> int | list[int]:
    """How many seeds stand behind rows' numbers; where they differ, each."""
    found = sorted({len(row["trials"]) for row in rows}, reverse=True)
    return found if len(found) > 1 else sum(found)


def accuracies(row: dict) -> np.ndarray:
    """Test accuracy of each seed, 0 of one that diverged."""
    return np.array(or_zero(row["test_acc"]))


def own(name: str, text: str, rows: Sequence[dict], ours: Any, limit: float | None,
        test: Callable, **more: Any) -> Claim:
    """A claim, of ours unless more, what else it has, names its source."""
    return Claim(name=name, text=text, rows=rows, ours=ours, limit=limit, test=test,
                 **{"n": seeds_of(rows)} | more)


def by_depth(values: dict[int, Any]) -> dict[str, Any]:
    """Values by depth, as a claim keeps them."""
    return {f"{depth} block{'s' * (depth > 1)}": value
            for depth, value in values.items()}


def grouped(rows: Iterable[dict], *names: str) -> dict[tuple, list[dict]]:
    """Rows by the values of some of their fields."""
    groups: dict[tuple, list[dict]] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in names), []).append(row)
    return groups


# --------------------------------------------------------------------------------------
# S


def noise(rows: Iterable[dict]) -> float | None:
    """The factor by which the ratio of two means of seeds is off by chance, one
    standard deviation: exp(c sqrt(2 / n)), with c the standard deviation of one seed's
    loss in its row, as a part of the mean, over the rows that train (root of the mean
    square)."""
    losses = [np.array(row["train_loss"]) for row in rows if mean_loss(row) < TRAINS]
    if not losses:
        return None
    square = np.mean([(loss.std(ddof=1) / loss.mean()) ** 2 for loss in losses])
    n = np.mean([len(loss) for loss in losses])
    return round(math.exp(math.sqrt(2 * square / n)), 3)


def claim_on_sums(record: dict) -> Claim:
    """Losses of all depths at equal S."""
    rows = [row for row in record["sums"] if LAWFUL[0] <= row["S"] <= LAWFUL[1]]
    factors: dict[str, float] = {}
    for (optimizer, _), found in sorted(grouped(rows, "optimizer", "S").items()):
        losses, name = [mean_loss(row) for row in found], OPTIMIZERS[optimizer]
        factors[name] = max(factors.get(name, 1), max(losses) / min(losses))
    return own(
        "equal-sum-equal-loss", "at the same S, the mean losses of all depths lie "
        f"within {FAR} % of each other, for S from {LAWFUL[0]:g} to {LAWFUL[1]:g} "
        "(1000 blocks: S = 0.5 and 2 were not tried). Ours is the largest ratio of two "
        "such losses, and \"by chance\" what the seeds alone give", rows,
        {name: listed(factor) for name, factor in factors.items()
         } | {"by chance": noise(rows)}, FAR,
        lambda limit: all(factor <= 1 + limit / 100 for factor in factors.values()))


# --------------------------------------------------------------------------------------
# All of MNIST


def claim_on_sgd(rows: list[dict]) -> Claim:
    """P1's "SGD did not stall", beside a net that needs none of its blocks."""
    shallow, deep, shut = rows
    losses = or_infinite(shallow["train_loss"])

    def near(row):
        return lambda limit: bool(np.all(
            or_infinite(row["train_loss"]) <= (1 + limit / 100) * losses))
    return own(
        "sgd-1000-blocks", "1000 highway blocks train with momentum SGD (all of MNIST, "
        f"S = 1, four epochs): in every seed, the loss is at most {FAR} % above that "
        "of 100 blocks. These nets use their blocks, but a net that uses none "
        "reaches the same loss: the control, 100 blocks with b_T = -10",
        [shallow, deep, shut], {
            name: {"loss": listed(row["train_loss"], 3), "needed": prefixes(row)}
            for name, row in (
                    (f"{shallow['depth']} blocks", shallow),
                    (f"{deep['depth']} blocks", deep), ("control", shut))},
        FAR, near(deep), control=near(shut), source="P1 2.2", paper="SGD did not stall")


def prefixes(row: dict) -> list[int]:
    """How many of its first blocks the net of each seed needs; 0 if it diverged."""
    return [used["prefix"] if used else 0 for used in row["used"]]


def claims_on_deepest(record: dict) -> list[Claim]:
    """10,000 blocks: that they train, and that they are used."""
    row = max(record["full"], key=lambda row: row["depth"])
    few = [row for row in record["controls"]["schedule"] if row["depth"] != 3]
    return [
        own("ten-thousand-train", "10,000 highway blocks train: with S = 1, their "
            "test error is at most 4 % after five epochs of Adam on all of MNIST. "
            "Beside them are one and ten blocks with the same schedule. Ours is the "
            "test accuracy", [row, *few], by_depth({
                net["depth"]: net["test_acc"] for net in (row, *few)}), 4,
            lambda error: min(accuracies(row)) >= 1 - error / 100, n=seeds_of([row])),
        own("ten-thousand-used", "the loss of nets of 10,000 highway blocks depends on "
            "more than their first 50 blocks: with only these, the training loss of "
            f"each net rises by more than 10 %. {COUNTED}. Ours is how many of the "
            "first blocks a net must keep", [row], prefixes(row), 50,
            lambda blocks: min(prefixes(row)) > blocks)]


def left_with(used: dict, blocks: float) -> float | None:
    """How many times its loss a net has with only its blocks open that change their
    input most, so many or the next number that was measured; None beyond those."""
    kept = dict(zip(used["kept"]["blocks"], used["kept"]["loss"], strict=True))
    there = [m for m in kept if m >= blocks]
    return hn.significant(kept[min(there)] / used["loss"]) if there else None


def uses_more(row: dict, blocks: float) -> bool | None:
    """Whether all nets of a row train and use more than so many blocks: their prefix
    exceeds these, and those that change their input most do not keep their loss."""
    found: list[bool | None] = []
    for used, accuracy in zip(row["used"], row["test_acc"], strict=True):
        if not used or accuracy < READS or used["prefix"] <= blocks:
            return False
        times = left_with(used, blocks)
        found.append(None if times is None else times > KEEPS)
    return every(found)


def claims_on_thousand(rows: list[dict], shut: float) -> list[Claim]:
    """Nets of 1000 layers with given b_T. shut: the b_T whose gates are shut."""
    best = min(rows, key=mean_loss)
    (closed,) = (row for row in rows if row["gate_bias"] == shut)

    def by_bias(rows, value):
        return {f"b_T {row['gate_bias']:g}": value(row) for row in rows}

    def reaches(row):
        return lambda error: bool(np.mean(accuracies(row)) >= 1 - error / 100)

    def used(blocks):
        found = [uses_more(row, blocks) for row in rows]
        return True if True in found else None if None in found else False
    good = [row for row in rows if uses_more(row, 50)]
    return [
        own("thousand-layers-train", "1000 highway layers (999 blocks) train with Adam:"
            " with the b_T of the lowest training loss their test error is at most "
            f"5 %. The control is the same net with b_T = {shut:g}: its gates are "
            "closed. Ours is the test accuracy",
            [best, closed], by_bias([best, closed], lambda row: row["test_acc"]), 5,
            reaches(best), control=reaches(closed), n=len(best["trials"])),
        own("thousand-layers-used", "there is a b_T with which all our nets of 999 "
            "blocks train, and their loss depends on more than 50 blocks: it rises by "
            "more than 10 % when only 50 blocks are kept, the first 50, or the 50 that "
            f"change their input most. {COUNTED}. Ours is how many of the first blocks "
            "a net must keep", rows, {
                "needed": by_bias(rows, lambda row: prefixes(row) if mean_loss(row)
                                  < TRAINS else "they do not train")}, 50, used,
            n=max((len(row["trials"]) for row in good), default=0)),
        *claims_on_carrying(closed)]


def claims_on_carrying(row: dict) -> list[Claim]:
    """The tutorial's 1000 layers: all seeds."""
    name = f"1000 layers with b_T = {row['gate_bias']:g}"
    return [
        own("tutorial-1000-accuracy", f"{name} reach about 95 % on MNIST; here their "
            "error is at most 6 % in every seed, with Adam. Ours is the test accuracy",
            [row], row["test_acc"], 6,
            lambda error: min(accuracies(row)) >= 1 - error / 100, source="tutorial",
            paper="around 95 %"),
        own("tutorial-1000-carry", f"of {name}, the last 980 only learn to carry. Here "
            "all blocks do: with all closed, the loss is within 0.1 % of that of the "
            "whole net", [row], {name: [each and each[name] for each in row["used"]]
                             for name in ("loss", "closed_loss")}, 0.1,
            lambda limit: all(each and abs(each["closed_loss"] / each["loss"] - 1)
                              < limit / 100 for each in row["used"]),
            source="tutorial", paper="just learning to carry the last 980 layers")]


# --------------------------------------------------------------------------------------
# The map and the tutorial


def behind(rows: list[dict], bias: float) -> np.ndarray:
    """By how much each seed is better, in test accuracy, with the b_T of the lowest
    median training loss than with a given one."""
    (given,) = (row for row in rows if row["gate_bias"] == bias)
    best = min(rows, key=lambda row: float(np.median(or_infinite(row["train_loss"]))))
    return accuracies(best) - accuracies(given)


def claim_on_guideline(rows: list[dict]) -> Claim:
    """P1's guideline beside the b_T of which there are as many seeds. A mean over seeds
    tells nothing within two standard errors of the limit."""
    depths = {depth: [row for row in rows if row["depth"] == depth - 1]
              for depth in GUIDELINE}
    n = max(len(row["test_acc"]) for found in depths.values() for row in found)
    depths = {depth: [row for row in found if len(row["test_acc"]) == n]
              for depth, found in depths.items()}
    lost = {depth: behind(found, GUIDELINE[depth]) for depth, found in depths.items()}

    def suits(points):
        found: list[bool | None] = []
        for each in lost.values():
            apart = each.mean() - points / 100
            error = 2 * each.std(ddof=1) / math.sqrt(n)
            found.append(None if abs(apart) <= error else bool(apart < 0))
        return every(found)
    return own(
        "guideline-suits", "P1's guideline for convolutional nets suits fully "
        "connected nets: b_T of -1, -2, -3 for 10, 20, 30 layers gives a mean test "
        "accuracy less than one point below that of the b_T with the lowest training "
        "loss", [row for found in depths.values() for row in found],
        {f"{depth} layers, points behind": listed(100 * each.mean(), 2)
         for depth, each in lost.items()}, 1, suits, n=n)


def claim_on_advice(rows: list[dict]) -> Claim:
    """The tutorial's "when in doubt": all below the largest b_T that trains do too."""
    tops: dict[str, list] = {}
    below = []
    for (depth,), found in grouped(rows, "depth").items():
        for seed in range(max(len(row["test_acc"]) for row in found)):
            trains = {row["gate_bias"]: bool(accuracies(row)[seed] >= READS)
                      for row in found if seed < len(row["test_acc"])}
            top = max((bias for bias, fine in trains.items() if fine), default=None)
            tops.setdefault(f"{depth} blocks", []).append(top)
            below.append(None if top is None else all(
                fine for bias, fine in trains.items() if bias < top))
    return own(
        "more-negative-trains", "when in doubt, start with a more negative b_T: if "
        "nets of a depth and seed train with one b_T, they train with every lower b_T "
        "that was tried. Ours is the largest b_T that trains; none above 1 or below "
        "-20 was tried", rows, tops, None, lambda: every(below),
        n=sorted({len(found) for found in tops.values()}, reverse=True),
        source="tutorial", paper="start with more negative")


def claims_on_tutorial(arms: list[dict]) -> list[Claim]:
    """The tutorial's 20 plain layers, and what made them fail."""
    (given,) = (arm for arm in arms if arm["start"] == "tutorial" and arm["lr"] == 0.01)
    return [
        own("tutorial-plain-fails", "20 plain layers have a test accuracy of at most "
            "15 %, which is 5 points above guessing", [given], given["test_acc"], 5,
            lambda points: bool(max(accuracies(given)) <= 0.1 + points / 100),
            source="tutorial", paper="<= 15 %"),
        own("tutorial-fails-by-depth", "the tutorial's 20 plain layers fail because of "
            "their depth: no initialisation and no learning rate that was tried brings "
            "every seed to 50 %",
            arms, {f"{arm['start']}, lr {arm['lr']:g}": arm["test_acc"]
                   for arm in arms}, None,
            lambda: all(min(accuracies(arm)) < READS for arm in arms))]


def claims(record: dict) -> list[Claim]:
    """All claims of a record but those on controls."""
    sgd = [row for row in record["full"] if row["optimizer"] == "sgd"]
    return [claim_on_sgd(sgd), claim_on_guideline(record["map"]),
            *claims_on_thousand(record["thousand"], record["plan"]["thousand"]["shut"]),
            claim_on_advice(record["map"]), *claims_on_tutorial(record["tutorial"]),
            claim_on_sums(record), *claims_on_deepest(record)]
