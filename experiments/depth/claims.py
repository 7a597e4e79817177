"""What `depth` claims: of S, of rules, and of the nets that use their depth."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

import highway_networks as hn
from experiments.depth.plan import TRAINS
from experiments.depth.record import mean_loss, noise, variance
from experiments.depth.training import KEEPS
from experiments.lab import Claim
from experiments.lab.judging import ahead, every, listed, or_infinite
from experiments.lab.papers import GUIDELINE

NEAR, FAR, MOVED = 20, 50, 25       # %: near a loss, far from it, a border that moves
LAWFUL = (0.1, 3)       # the S at which the depths' losses are compared
LOW = 2                 # the largest S with which nets of all depths train well
READS = 0.5             # test accuracy from which on a net of the map trains
OPTIMIZERS = {"adam": "Adam", "sgd": "SGD"}
NOISE = "by chance"


def seeds_of(rows: Iterable[dict]) -> int | list[int]:
    """How many seeds stand behind rows' numbers; where they differ, each."""
    found = sorted({len(row["train_loss"]) for row in rows}, reverse=True)
    return found if len(found) > 1 else sum(found)


def accuracies(row: dict) -> np.ndarray:
    """Test accuracy of each seed, 0 of one that diverged."""
    return np.array([value or 0 for value in row["test_acc"]])


def own(name: str, text: str, rows: Sequence[dict], ours: Any, limit: float | None,
        test: Callable, **more: Any) -> Claim:
    """A claim of ours; more: what else it has."""
    return Claim(name=name, text=text, rows=rows, ours=ours, limit=limit, test=test,
                 **{"source": "ours"} | ({} if "n" in more else {
                     "n": seeds_of(rows)}) | more)


def within(ratios: Iterable[float]) -> Callable[[float], bool | None]:
    """-> the test whether all ratios are at most 1 + so many %; None of no ratios."""
    found = [*ratios]
    return lambda limit: all(ratio <= 1 + limit / 100 for ratio in found
                             ) if found else None


def by_depth(values: dict[int, Any]) -> dict[str, Any]:
    """Values by depth, as a claim keeps them."""
    return {f"{depth} blocks": value for depth, value in values.items()}


def grouped(rows: Iterable[dict], *names: str) -> dict[tuple, list[dict]]:
    """Rows by the values of some of their fields."""
    groups: dict[tuple, list[dict]] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in names), []).append(row)
    return groups


# --------------------------------------------------------------------------------------
# S


def claims_on_variance(rows: list[dict]) -> list[Claim]:
    """Whether S decides the loss, or b_T or the depth."""
    shares = {OPTIMIZERS[optimizer]: {
        "all": variance(found), "low": variance([
            row for row in found if row["S"] <= LOW])}
        for (optimizer,), found in grouped(rows, "optimizer").items()}
    whole = [share["all"] for share in shares.values()]

    def ours(*names):
        return {name: {optimizer: {part: listed(values[name], 3)
                                   for part, values in share.items()}
                       for optimizer, share in shares.items()} for name in names}
    return [
        own("loss-follows-sum", "over nets of 10 to 1000 blocks, a cubic in log S "
            "explains at least 80 % of the variance of log loss, for S from 0.03 to "
            f"20. Depth adds at most 10 %. This is the rise beyond S = {LOW}: up to "
            "there S explains little with Adam (low)", rows, ours("S", "S and L"), 20,
            lambda rest: all(share["S"] >= 1 - rest / 100 and
                             share["S and L"] - share["S"] <= rest / 200
                             for share in whole)),
        own("loss-not-by-bias-or-depth", "neither b_T nor depth alone explains half of "
            "the variance of log loss", rows, ours("b_T", "L"), 50,
            lambda most: all(max(share["b_T"], share["L"]) < most / 100
                             for share in whole))]


def claims_on_sums(record: dict) -> list[Claim]:
    """Losses at equal S, at the best S, at S = 1 and at S below 0.03."""
    least = min(record["plan"]["sums"])
    rows, lower = ([row for row in record["sums"] if (row["S"] < least) == below]
                   for below in (False, True))
    nets = grouped(rows, "optimizer", "depth")
    best = {key: min(found, key=mean_loss) for key, found in nets.items()}
    factors, prices = ({name: {} for name in OPTIMIZERS.values()} for _ in range(2))
    gains: dict[str, list] = {name: [] for name in OPTIMIZERS.values()}
    equal = [row for row in rows if LAWFUL[0] <= row["S"] <= LAWFUL[1]]
    for (optimizer, S), found in sorted(grouped(equal, "optimizer", "S").items()):
        losses = [mean_loss(row) for row in found]
        factors[OPTIMIZERS[optimizer]][f"S {S:g}"] = listed(max(losses) / min(losses))
    ones = [row for row in rows if row["S"] == 1]
    for row in ones:
        other = best[row["optimizer"], row["depth"]]
        prices[OPTIMIZERS[row["optimizer"]]][f"{row['depth']} blocks"] = listed(
            mean_loss(row) / mean_loss(other), 4)
    for row in lower:
        gains[OPTIMIZERS[row["optimizer"]]].append(
            mean_loss(row) / mean_loss(best[row["optimizer"], row["depth"]]))
    return [
        *claims_on_variance(rows),
        own("equal-sum-equal-loss", "at the same S, the mean losses of all depths lie "
            f"within {FAR} % of each other, for S from {LAWFUL[0]:g} to {LAWFUL[1]:g} "
            "(1000 blocks: without S = 0.5 and 2). Ours is the largest factor", equal, {
                name: max(found.values()) for name, found in factors.items()
                } | {NOISE: noise(equal)}, FAR,
            within(ratio for found in factors.values() for ratio in found.values())),
        own("sum-1-near-best-sum", "at every depth, with Adam and with SGD, the loss "
            f"at S = 1 is at most {NEAR} % above the lowest loss for S of {least:g} "
            "and more. Ours is the largest ratio", [*ones, *best.values()], {
                name: max(found.values()) for name, found in prices.items()
                } | {NOISE: noise(rows)}, NEAR, within(
                price for found in prices.values() for price in found.values()),
            n=seeds_of(ones)),
        own("lower-sum-no-gain", f"S below {least:g} gains nothing: at every depth the "
            f"loss is at least 1/{1 + NEAR / 100:g} of the lowest loss for S of "
            f"{least:g} and more. Ours is the least ratio", lower, {
                name: listed(min(found), 4) for name, found in gains.items()
                } | {NOISE: noise(lower)}, NEAR,
            within(1 / ratio for found in gains.values() for ratio in found))]


def moves(row: dict, rows: list[dict], limit: float) -> bool | None:
    """Whether a row's border lies apart from that of its reference, by more than so
    many % in the median and by the rank test; None where only the median does."""
    before = {name: value for name, value in row["change"].items()
              if name == "lr" and "epochs" in row["change"]}
    reference = next(other for other in rows if other["change"] == before)
    low, high = sorted((row["median"], reference["median"]))
    if high <= (1 + limit / 100) * low:
        return False
    return None if ahead(row["S"], reference["S"]) is None else True


def claims_on_border(rows: list[dict]) -> list[Claim]:
    """What moves the largest S that trains, and what leaves it."""
    def claim(name, text, factors, test):
        there = [row for row in rows if row["factor"] in ("", *factors)]

        def judged(limit):
            return every(test([moves(row, rows, limit) for row in there
                               if row["factor"] == factor]) for factor in factors)
        return own(name, text, there, {row["name"]: row["median"] for row in there},
                   MOVED, judged, n=len(rows[0]["S"]))
    return [
        claim("border-moves", "the largest S that trains is not a constant: learning "
              "rate, optimiser, Adam's eps and epochs each move it by more than "
              f"{MOVED} %, with some change that was tried",
              ("rate", "optimiser", "eps", "epochs"),
              lambda found: True if True in found else every(found)),
        claim("border-stays", "depth, width, dtype, initialisation and relu move the "
              f"largest S that trains by at most {MOVED} %",
              ("depth", "width", "dtype", "initialisation", "relu"),
              lambda found: every(None if value is None else not value
                                  for value in found))]


def claims_on_mechanism(rows: list[dict]) -> list[Claim]:
    """Before training."""
    def claim(name, quantity, words):
        fits = {row["depth"]: row["fits"][quantity] for row in rows}
        return own(name, f"before training, {words} falls as e^-S: the slope is -1 ± "
                   "0.2 and R² is at least 0.95, at every depth", rows, {
                       "slopes": listed([fit["slope"] for fit in fits.values()], 3),
                       "least R2": min(fit["R2"] for fit in fits.values())}, 0.2,
                   lambda limit: all(abs(fit["slope"] + 1) <= limit and
                                     fit["R2"] >= 1 - limit / 4
                                     for fit in fits.values()), n=rows[0]["n"])
    return [claim("start-projection", "W_in", "the gradient of W_in"),
            claim("start-gradient", "gradient", "dL/dy over the blocks"),
            claim("start-carried", "carried", "the carried part of the input")]


# --------------------------------------------------------------------------------------
# Rules


def rule_rows(record: dict, *rules: str, block: str = "highway") -> list[dict]:
    """The rows of rules with Adam, of all unless named."""
    return [row for row in record["rules"] if row["optimizer"] == "adam"
            and row["block"] == block and row["rule"] in (rules or [row["rule"]])]


def rule_losses(record: dict, block: str = "highway") -> dict[int, dict[str, float]]:
    """With Adam, {depth: {rule: mean loss}}."""
    losses: dict[int, dict[str, float]] = {}
    for row in rule_rows(record, block=block):
        losses.setdefault(row["depth"], {})[row["rule"]] = mean_loss(row)
    return dict(sorted(losses.items()))


def claim_on_t_only(record: dict) -> Claim:
    """S = 1 with another block."""
    losses = rule_losses(record)
    ratios = {depth: row["S = 1"] / losses[depth]["S = 1"]
              for depth, row in rule_losses(record, "t_only").items()}
    rows = [row for block in ("highway", "t_only")
            for row in rule_rows(record, "S = 1", block=block)]
    return own("sum-1-t-only", "the loss of T-only blocks with S = 1 differs by at "
               f"most {NEAR} % from that of highway blocks with S = 1", rows, by_depth({
                   depth: listed(ratio) for depth, ratio in ratios.items()}) | {
                       NOISE: noise(rows)}, NEAR,
               within(max(ratio, 1 / ratio) for ratio in ratios.values()))


def claims_on_other_rules(record: dict) -> list[Claim]:
    """Of b_T = -2, -L/10 and chrono: their losses over that of S = 1."""
    losses = rule_losses(record)

    def of(rule, least, ratio=True):
        there = {depth: row for depth, row in losses.items()
                 if depth >= least and rule in row}
        rows = [row for row in rule_rows(record, rule, *["S = 1"] * ratio)
                if row["depth"] in there]
        values = {depth: row[rule] / (row["S = 1"] if ratio else 1)
                  for depth, row in there.items()}
        return values, rows, by_depth({depth: listed(value)
                                       for depth, value in values.items()})
    fixed, rows, ours = of("b_T = -2", 300, ratio=False)
    line, line_rows, line_ours = of("-L/10", 100)
    chrono, chrono_rows, chrono_ours = of("chrono", 0)
    return [
        own("bias-2-fails", "with b_T = -2, nets of 300 and more blocks do not "
            "train: their loss is at least ln(10) / 2 (10,000 blocks: after 3 epochs)",
            rows, ours, TRAINS,
            lambda least: all(loss >= least for loss in fixed.values())
            if fixed else None),
        own("line-loses", "b_T = -L/10, which extends the guideline to a line, has a "
            f"loss more than {FAR} % above that of S = 1, from 100 blocks on",
            line_rows, line_ours, FAR,
            lambda limit: all(ratio > 1 + limit / 100 for ratio in line.values())
            if line else None),
        own("chrono-loses", "chrono initialisation has a higher loss than S = 1: by "
            f"less than {FAR} % up to 1000 blocks, by more at 10,000",
            chrono_rows, chrono_ours, FAR,
            lambda limit: all((ratio > 1 + limit / 100) == (depth == max(chrono))
                              for depth, ratio in chrono.items()))]


def claims_on_rescue(record: dict) -> list[Claim]:
    """Gates half open, and S = 1 instead."""
    least = record["plan"]["rescue"]["judged_from"]
    starts = grouped(record["rescue"], "start")
    half, ones = ([row for row in starts[start,] if row["depth"] >= least]
                  for start in ("half open", "S = 1"))
    shallow = starts["S = 1",][:len(OPTIMIZERS)]        # of the least depth
    ten = {row["optimizer"]: mean_loss(row) for row in shallow}

    def ours(rows, value):
        return {f"{row['depth']} blocks, {OPTIMIZERS[row['optimizer']]}": listed(
            value(row), 4) for row in rows}
    return [
        own("half-open-fails", "nets of 40 and 48 blocks whose gates start half open "
            "(b_T = 0) do not train with Adam or SGD, at any rate that was tried: "
            "every loss is at least ln(10) / 2. Ours is the lowest loss", half,
            ours(half, lambda row: row["lowest"]), TRAINS,
            lambda loss: all(row["lowest"] >= loss for row in half)),
        own("sum-1-rescues", "with S = 1 instead of b_T = 0, nets of 40 and 48 blocks "
            f"train in every seed: their mean loss is at most {NEAR} % above that of "
            "10 blocks", [*shallow, *ones],
            ours([*shallow, *ones], mean_loss) | {NOISE: noise(ones)}, NEAR,
            lambda limit: all(
                max(or_infinite(row["train_loss"])) < TRAINS and mean_loss(row)
                <= (1 + limit / 100) * ten[row["optimizer"]] for row in ones))]


# --------------------------------------------------------------------------------------
# All of MNIST


def claim_on_sgd(rows: list[dict]) -> Claim:
    """P1's "SGD did not stall", beside a net that needs none of its blocks."""
    nets = grouped(rows, "optimizer", "rule")
    shallow, deep = sorted(nets["sgd", "S = 1"], key=lambda row: row["depth"])
    (shut,) = nets["sgd", "-L/10"]
    losses = or_infinite(shallow["train_loss"])

    def near(row):
        return lambda limit: bool(np.all(
            or_infinite(row["train_loss"]) <= (1 + limit / 100) * losses))
    return own(
        "sgd-1000-blocks", "1000 highway blocks train with momentum SGD (all of MNIST, "
        f"S = 1, four epochs): in every seed, the loss is at most {FAR} % above that "
        "of 100 blocks. The control is a net of 100 blocks with b_T = -10, which needs "
        "none of its blocks", [shallow, deep, shut], {
            name: {"loss": listed(row["train_loss"], 3), "needed": prefixes(row)}
            for name, row in (
                    (f"{shallow['depth']} blocks", shallow),
                    (f"{deep['depth']} blocks", deep), ("control", shut))},
        FAR, near(deep), control=near(shut), source="P1 2.2",
        paper="SGD did not stall")


def prefixes(row: dict) -> list[int]:
    """How many of its first blocks the net of each seed needs; 0 if it diverged."""
    return [used["prefix"] if used else 0 for used in row["used"]]


def claims_on_deepest(record: dict) -> list[Claim]:
    """10,000 blocks: that they train, and that they are used."""
    row = max(record["full"], key=lambda row: row["depth"])
    ten = record["controls"]["schedule"][-1]
    return [
        own("ten-thousand-train", "10,000 highway blocks train: with S = 1, they "
            "reach 96 % test accuracy after five epochs of Adam on all of MNIST. "
            "Beside them are ten blocks with the same schedule", [row, ten], by_depth({
                net["depth"]: net["test_acc"] for net in (row, ten)}), 4,
            lambda error: min(accuracies(row)) >= 1 - error / 100, n=seeds_of([row])),
        own("ten-thousand-used", "10,000 highway blocks are used: to keep its training "
            "loss within 10 %, each net needs more than its first 50 blocks",
            [row], prefixes(row), 50,
            lambda blocks: min(prefixes(row)) > blocks)]


def left_with(used: dict, blocks: float) -> float | None:
    """How many times its loss a net has with only its blocks open that change their
    input most, so many or the next number that was measured; None beyond those."""
    kept = dict(zip(used["kept"]["layers"], used["kept"]["loss"], strict=True))
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


def claims_on_deep(rows: list[dict], shut: float) -> list[Claim]:
    """Nets of given b_T on all images. shut: the b_T whose gates are shut."""
    hundred, thousand = (group for _, group in sorted(grouped(rows, "depth").items()))
    (closed,) = (row for row in thousand if row["gate_bias"] == shut)

    def by_bias(rows, value):
        return {f"b_T {row['gate_bias']:g}": value(row) for row in rows}

    def reaches(row):
        return lambda error: bool(np.mean(accuracies(row)) >= 1 - error / 100)

    def train(name, text, rows, error, also="", **more):
        best = min(rows, key=mean_loss)
        return own(name, f"{text} train with Adam: with the b_T of the lowest training "
                   f"loss they reach {100 - error} % test accuracy{also}",
                   [best, closed] if more else [best],
                   by_bias([best, closed] if more else [best],
                           lambda row: row["test_acc"]), error, reaches(best),
                   n=len(best["trials"]), **more)

    def used(blocks):
        found = [uses_more(row, blocks) for row in thousand]
        return True if True in found else None if None in found else False
    good = [row for row in thousand if uses_more(row, 50)]
    return [
        train("thousand-layers-train", "1000 highway layers (999 blocks)", thousand, 5,
              f". The control is the same net with b_T = {shut:g}: its gates are shut",
              control=reaches(closed)),
        train("hundred-layers-train", "100 highway layers (99 blocks)", hundred, 3),
        own("thousand-layers-used", "there is a b_T with which all our nets of 1000 "
            "layers (999 blocks) train and use more than 50 blocks. To keep its "
            "training loss within 10 %, each net needs more than its first 50 blocks "
            "(needed). With only the 50 blocks that change their input most, its loss "
            f"is more than {KEEPS:g} times as large", thousand, {
                "needed": by_bias(thousand, prefixes)}, 50, used,
            n=max((len(row["trials"]) for row in good), default=0)),
        *claims_on_carrying(closed)]


def claims_on_carrying(row: dict) -> list[Claim]:
    """The tutorial's 1000 layers: all seeds."""
    name = f"1000 layers with b_T = {row['gate_bias']:g}"
    return [
        own("tutorial-1000-accuracy", f"{name} reach about 95 % on MNIST; here 94 % or "
            "more in every seed, with Adam", [row], row["test_acc"], 6,
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


def behind(rows: list[dict], bias: float) -> np.ndarray | None:
    """By how much each seed is better, in test accuracy, with the b_T of the lowest
    median training loss than with a given one; None where that was not tried."""
    given = [accuracies(row) for row in rows if row["gate_bias"] == bias]
    best = min(rows, default={}, key=lambda row: float(
        np.median(or_infinite(row["train_loss"]))))
    return accuracies(best) - given[0] if given else None


def claim_on_guideline(rows: list[dict]) -> Claim:
    """P1's guideline beside the b_T of which there are as many seeds. A mean over seeds
    tells nothing within two standard errors of the limit."""
    depths = {depth: [row for row in rows if row["depth"] == depth - 1]
              for depth in GUIDELINE}
    n = max((len(row["test_acc"]) for found in depths.values() for row in found),
            default=0)
    depths = {depth: [row for row in found if len(row["test_acc"]) == n]
              for depth, found in depths.items()}

    def suits(points):
        found: list[bool | None] = []
        for depth, there in depths.items():
            lost = behind(there, GUIDELINE[depth])
            if lost is None or len(lost) < 2:
                return None
            apart = lost.mean() - points / 100
            error = 2 * lost.std(ddof=1) / math.sqrt(len(lost))
            found.append(None if abs(apart) <= error else bool(apart < 0))
        return every(found)
    return own(
        "guideline-suits", "P1's guideline for convolutional nets suits fully "
        "connected nets: b_T of -1, -2, -3 for 10, 20, 30 layers gives a mean test "
        "accuracy less than one point below that of the b_T with the lowest training "
        "loss",
        [row for found in depths.values() for row in found],
        {f"{depth} layers, points behind": lost if lost is None else listed(
            100 * lost.mean(), 2) for depth, lost in (
                (depth, behind(found, GUIDELINE[depth]))
                for depth, found in depths.items())}, 1, suits, n=n)


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
        "more-negative-trains", "when in doubt, more negative: if nets of a depth and "
        "seed train with one b_T, they train with every lower b_T that was tried. Ours "
        "is the largest b_T that trains; none above 1 or below -20 was tried",
        rows, tops, None,
        lambda: every(below),
        n=sorted({len(found) for found in tops.values()}, reverse=True),
        source="tutorial", paper="start with more negative")


def claims_on_tutorial(arms: list[dict]) -> list[Claim]:
    """The tutorial's 20 plain layers, and what made them fail."""
    plain = [arm for arm in arms if arm["block"] == "plain"]
    given = [arm for arm in plain if arm["start"] == "tutorial" and arm["lr"] == 0.01]
    n = len(plain[0]["test_acc"])
    return [
        own("tutorial-plain-fails", "20 plain layers have a test accuracy of at most "
            "15 %, which is 5 points above guessing", given,
            [arm["test_acc"] for arm in given], 5,
            lambda points: every(bool(max(accuracies(arm)) <= 0.1 + points / 100)
                                 for arm in given),
            n=n, source="tutorial", paper="<= 15 %"),
        own("tutorial-fails-by-depth", "the tutorial's 20 plain layers fail because of "
            "their depth: with no initialisation and no learning rate that was tried "
            "does every seed reach 50 %",
            plain, {f"{arm['start']}, lr {arm['lr']:g}": arm["test_acc"]
                    for arm in plain}, None,
            lambda: all(min(accuracies(arm)) < READS for arm in plain), n=n)]


def claims(record: dict) -> list[Claim]:
    """All claims of a record."""
    return [claim_on_sgd(record["full"]), claim_on_guideline(record["map"]),
            *claims_on_deep(record["deep"], record["plan"]["deep_nets"]["shut"]),
            claim_on_advice(record["map"]), *claims_on_tutorial(record["tutorial"]),
            *claims_on_sums(record), claim_on_t_only(record),
            *claims_on_other_rules(record), *claims_on_border(record["border"]),
            *claims_on_mechanism(record["mechanism"]), *claims_on_rescue(record),
            *claims_on_deepest(record)]
