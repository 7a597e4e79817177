"""The verdicts of `depth_law` on its hypotheses, and with half and twice the margin."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from experiments.depth_law.plan import ONE, RULES, TRAINS, highway_sums
from experiments.depth_law.record import NEAR, OPTIMIZERS, mean_loss
from experiments.judging import Claim, claim, every, listed, or_infinite, resting_on

FAR, MOVED = 1.5, 1.25          # factors of H1, H5, H8, and of H3
LAWFUL = (0.1, 3)               # the S of H1 at which the depths' losses are compared
SLOPES = {"W_in": "the gradient of W_in", "gradient": "dL/dy over the blocks",
          "carried": "the carried part of the input"}


def judged(text: str, ours: dict, verdict: Callable, n: Any, section: str = "ours",
           paper: str | None = None) -> dict:
    """A claim whose margin was stated before the runs; verdict(scale) is what it would
    be with that many times the margin."""
    return claim(section=section, text=text, paper=paper, holds=verdict(1), n=n,
                 ours=ours, also={"half the margin": verdict(0.5),
                                  "twice the margin": verdict(2)})


def widened(factor: float, scale: float) -> float:
    """A factor whose distance from 1 is so many times as large."""
    return 1 + scale * (factor - 1)


def seeds_of(rows: Iterable[dict]) -> int | list[int]:
    """How many seeds stand behind rows' numbers; where they differ, each."""
    found = sorted({len(row["train_loss"]) for row in rows}, reverse=True)
    return found if len(found) > 1 else sum(found)


def check_collapse(record: dict, complete: bool | None) -> list[dict]:
    """H1."""
    table, n = record["variance"], seeds_of(record["collapse"])
    names = {name: {OPTIMIZERS[key]: row[name] for key, row in table.items()}
             for name in ("S", "b_T", "L", "S and L")}
    factors = {OPTIMIZERS[key]: {S: value for S, value in row[
        "factor between depths"].items() if LAWFUL[0] <= float(S) <= LAWFUL[1]}
        for key, row in table.items()}

    def alone(scale):
        return complete and all(
            row["S"] >= 1 - 0.2 * scale and row["S and L"] - row["S"] <= 0.1 * scale
            for row in table.values())

    def others(scale):
        return complete and all(max(row["b_T"], row["L"]) < 0.5 * scale
                                for row in table.values())

    def equal(scale):
        return complete and all(
            value is not None and value <= widened(FAR, scale)
            for row in factors.values() for value in row.values())
    return [
        judged("from 10 to 1000 blocks S decides the loss: a cubic in log S explains "
               "80 % of the variance of log loss, adding depth at most 10 % more",
               {"S": names["S"], "S and L": names["S and L"]}, alone, n),
        judged("neither b_T nor depth alone explains half of the variance of log loss",
               {"b_T": names["b_T"], "L": names["L"]}, others, n),
        judged(f"at equal S, from {LAWFUL[0]:g} to {LAWFUL[1]:g}, the mean losses of "
               "all depths (of 1000 blocks, without S = 0.5 and 2) lie within a factor "
               f"{FAR:g}", factors, equal, seeds_of(
                   row for row in record["collapse"]
                   if LAWFUL[0] <= row["S"] <= LAWFUL[1]))]


def check_price(record: dict, complete: bool | None) -> dict:
    """H2."""
    ours = {OPTIMIZERS[key]: {f"{row['depth']} blocks": {
        "price": row["price"], "best S": row["best_S"]}
        for row in record["price"] if row["optimizer"] == key} for key in OPTIMIZERS}
    return judged(
        f"at every depth the loss at S = 1 is within {NEAR:g} of that at the best S",
        ours, lambda scale: complete and all(row["price"] <= widened(NEAR, scale)
                                             for row in record["price"]),
        seeds_of(row for row in record["collapse"] if row["S"] == 1))


def factor_of(change: dict) -> str | None:
    """What a change of the border's setting is about."""
    names = {"optimizer": "optimiser", "epochs": "epochs", "lr": "rate", "eps": "eps",
             "depth": "depth", "hidden": "width", "dtype": "dtype",
             "activation": "relu", "init": "initialisation"}
    return next((word for name, word in names.items() if name in change), None)


def moves(row: dict, rows: list[dict], seeds: int, factor: float) -> bool | None:
    """Whether a row's border lies apart from that of its reference: True, False where
    the medians are within the factor, None between the two or where seeds lack."""
    before = {name: value for name, value in row["change"].items()
              if name == "lr" and "epochs" in row["change"]}
    reference = next(other for other in rows if other["change"] == before)
    one, other = row["S"], reference["S"]
    if min(len(one), len(other)) < seeds:
        return None
    ratio = max(row["median"], reference["median"]) / min(row["median"],
                                                          reference["median"])
    if ratio <= factor:
        return False
    return True if min(one) > max(other) or max(one) < min(other) else None


def check_border(record: dict, seeds: int) -> list[dict]:
    """H3: what moves the border, and what leaves it."""
    rows = record["border"]

    def found(factors, scale):
        return {factor: [moves(row, rows, seeds, widened(MOVED, scale)) for row in rows
                         if factor_of(row["change"]) == factor] for factor in factors}

    def moving(scale):
        return every(True if True in each else every(each)
                     for each in found(movers, scale).values())

    def staying(scale):
        return every(False if True in each else None if None in each or not each
                     else True for each in found(rest, scale).values())
    movers = ("rate", "optimiser", "eps", "epochs")
    rest = ("depth", "width", "dtype", "initialisation", "relu")

    def medians(factors):
        return {row["name"]: row["median"] for row in rows
                if factor_of(row["change"]) in (None, *factors)}
    return [
        judged("the largest S that trains is no constant: rate, optimiser, Adam's eps "
               "and epochs move it, each by some change that was tried, by more than a "
               f"factor {MOVED:g}",
               medians(movers), moving, seeds),
        judged("depth, width, dtype, initialisation and relu leave the largest S that "
               f"trains within a factor {MOVED:g}", medians(rest), staying, seeds)]


def check_mechanism(record: dict, depths: int) -> list[dict]:
    """H4, a claim for each of the three quantities."""
    rows = record["mechanism"]

    def check(name, words):
        fits = [row["fits"][name] for row in rows]
        return judged(
            f"before training {words} falls as e^-S: slope -1 +- 0.2 and "
            "R^2 >= 0.95 at every depth",
            {f"{row['depth']} blocks": row["fits"][name] for row in rows},
            lambda scale: all(abs(fit["slope"] + 1) <= 0.2 * scale
                              and fit["R2"] >= 1 - 0.05 * scale for fit in fits)
            if len(rows) == depths else None, rows[0]["n"] if rows else 0)
    return [check(name, words) for name, words in SLOPES.items()]


def rule_losses(record: dict, block: str = "highway") -> dict[int, dict[str, float]]:
    """With Adam, {depth: {rule: mean loss}}."""
    losses: dict[int, dict[str, float]] = {}
    for row in record["rules"]:
        if (row["block"], row["optimizer"]) == (block, "adam"):
            losses.setdefault(row["depth"], {})[row["rule"]] = mean_loss(row)
    return losses


def shown(losses: dict) -> dict:
    """Losses by depth and rule, as a claim keeps them: None where a net diverged."""
    return {f"{depth} blocks": {rule: listed(value) for rule, value in row.items()}
            for depth, row in losses.items()}


def rounded(table: dict[int, float]) -> dict:
    """Numbers by depth, as a claim keeps them."""
    return {f"{depth} blocks": listed(value) for depth, value in table.items()}


def seeds_behind(record: dict, *rules: str, least: int = 0,
                 blocks: Sequence[str] = ("highway",)) -> int | list[int]:
    """The seeds behind these rules' numbers with Adam, from so many blocks on."""
    return seeds_of(row for row in record["rules"] if row["rule"] in rules
                    and row["block"] in blocks and row["optimizer"] == "adam"
                    and row["depth"] >= least)


def trials_behind(record: dict, depths: list[int], *rules: str,
                  blocks: Sequence[str] = ("highway",)) -> dict:
    """The settings of the trials behind these rules' numbers with Adam."""
    few = {name: record["protocol"][name] for name in ("n_train", "n_test")}
    return few | {"kind": "train", "optimizer": "adam", "depth": depths,
                  "block": list(blocks), "gates": [RULES[rule] for rule in rules]}


def check_rule(record: dict, depths: list[int]) -> list[Claim]:
    """H5, of S = 1 itself. depths: of the plan, the last is 10,000."""
    losses, t_only = rule_losses(record), rule_losses(record, "t_only")
    best = {depth: row["S = 1"] / min(row.values()) for depth, row in losses.items()
            if "S = 1" in row}
    both = {depth: row["S = 1"] / losses[depth]["S = 1"] for depth, row in
            t_only.items() if "S = 1" in row and "S = 1" in losses.get(depth, {})}

    def near(ratios):
        return lambda scale: all(value <= widened(NEAR, scale) for value in ratios
                                 ) if list(losses) == depths else None
    two = "highway", "t_only"
    return [
        *resting_on([judged(
            f"Adam: the loss with S = 1 is within {NEAR:g} of that of the best of the "
            "rules, from 10 to 10,000 blocks", shown(losses), near(best.values()),
            seeds_behind(record, *RULES))], trials_behind(record, depths, *RULES)),
        *resting_on([judged(
            f"T-only blocks with S = 1 are within {NEAR:g} of highway blocks with S = "
            "1, above or below", rounded(both), near([
                max(value, 1 / value) for value in both.values()]),
            seeds_behind(record, "S = 1", blocks=two))],
            trials_behind(record, depths, "S = 1", blocks=two))]


def check_other_rules(record: dict, depths: list[int]) -> list[Claim]:
    """H5, of the rules beside it."""
    losses = rule_losses(record)

    def ratios(rule, least=0):
        return {depth: row[rule] / row["S = 1"] for depth, row in losses.items()
                if depth >= least and rule in row and "S = 1" in row}
    done = list(losses) == depths
    fixed = {depth: row["b_T = -2"] for depth, row in losses.items()
             if depth >= 300 and "b_T = -2" in row}
    line, chrono = ratios("guideline", 100), ratios("chrono")

    def loses(scale):
        return all(value > widened(FAR, scale) for value in line.values()
                   ) if line else None

    def of_chrono(scale):
        return (all(value <= widened(FAR, scale) for depth, value in chrono.items()
                    if depth < depths[-1])
                and chrono[depths[-1]] > widened(FAR, scale)) if done else None
    return [
        *resting_on([judged(
            "nets with a fixed b_T = -2 do not train from 300 blocks on (margin: the "
            "loss, ln(10) / 2)", rounded(fixed),
            lambda scale: all(loss >= TRAINS * scale for loss in fixed.values())
            if done else None, seeds_behind(record, "b_T = -2", least=300))],
            trials_behind(record, list(fixed), "b_T = -2")),
        *resting_on([judged(
            "the line through the guideline, b_T = -L/10, loses to S = 1 by more than "
            f"{FAR:g} from 100 blocks on", rounded(line), loses,
            seeds_behind(record, "guideline", least=100))],
            trials_behind(record, list(line), "S = 1", "guideline")),
        *resting_on([judged(
            f"chrono initialisation loses to S = 1 by less than {FAR:g} up to 1000 "
            "blocks and by more at 10,000", rounded(chrono), of_chrono,
            seeds_behind(record, "S = 1", "chrono"))],
            trials_behind(record, list(chrono), "S = 1", "chrono"))]


def check_rescue(record: dict, depths: list[int]) -> list[dict]:
    """H6."""
    rows, shallow = record["rescue"], min(depths)
    ours = {start: {f"{row['depth']} blocks, {OPTIMIZERS[row['optimizer']]}":
                    f"{row['trained']} of {row['tried']} train, lowest loss "
                    f"{row['lowest']}" for row in rows if row["start"] == start
                    and row["depth"] >= 40} for start in ("half open", "S = 1")}
    deep = [row for row in rows if row["depth"] >= 40]
    ten = {row["optimizer"]: mean_loss(row) for row in rows
           if row["start"] == "S = 1" and row["depth"] == shallow}

    def fails(scale):
        found = [row["lowest"] for row in deep if row["start"] == "half open"]
        return all(loss >= TRAINS * scale for loss in found) if found else None

    def trains(scale):
        found = [row for row in deep if row["start"] == "S = 1"]
        return all(max(or_infinite(row["train_loss"])) < TRAINS and mean_loss(row)
                   <= widened(NEAR, scale) * ten[row["optimizer"]] for row in found
                   ) if found else None
    n = max((len(row["train_loss"]) for row in rows), default=0)
    return [
        judged("gates that start half open (b_T = 0) keep 40 and 48 blocks from "
               "training, at every rate tried, with Adam and SGD (margin: the loss, "
               "ln(10) / 2)", ours["half open"], fails, n),
        judged("with S = 1 the same nets train in every seed, with a mean loss within "
               f"{NEAR:g} of that of {shallow} blocks",
               ours["S = 1"] | {f"{shallow} blocks": listed(list(ten.values()))},
               trains, n)]


def check_ten_thousand(record: dict) -> list[dict]:
    """H7, of every seed."""
    nets = record["ten_thousand"]["nets"]
    accuracies = [net["test_acc"] or 0 for net in nets]
    prefixes = [net["used"]["prefix"] if net.get("used") else 0 for net in nets]
    return [
        judged("10,000 highway blocks train: with S = 1, five epochs of Adam on all of "
               "MNIST reach 96 % test accuracy", {"test accuracy": accuracies},
               lambda scale: min(accuracies) >= 1 - 0.04 * scale if nets else None,
               len(nets)),
        judged("10,000 highway blocks are used: to keep the loss within 10 % takes "
               "more than the first 50", {"prefix": prefixes},
               lambda scale: min(prefixes) > 50 * scale if nets else None, len(nets))]


def check_lower(record: dict) -> dict:
    """H9, of the second plan."""
    rows = [*record["collapse"], *record["lower"]]
    best = {(depth, optimizer): min(
        mean_loss(row) for row in record["collapse"]
        if (row["depth"], row["optimizer"]) == (depth, optimizer))
        for depth, optimizer in {(row["depth"], row["optimizer"]) for row in rows}}
    ours: dict[str, dict] = {}
    ratios = []
    for row in record["lower"]:
        ratios.append(mean_loss(row) / best[row["depth"], row["optimizer"]])
        ours.setdefault(OPTIMIZERS[row["optimizer"]], {}).setdefault(
            f"{row['depth']} blocks", {})[f"S {row['S']:g}"] = listed(ratios[-1])
    return judged(
        "below S = 0.03 nothing is gained: at no depth is the loss at S = 0.003 or "
        f"0.01 less than 1/{NEAR:g} of that at the best S from 0.03 on: ratio", ours,
        lambda scale: min(ratios) >= 1 / widened(NEAR, scale) if ratios else None,
        seeds_of(record["lower"]))


def check_sgd(record: dict, depths: list[int], seeds: int) -> dict:
    """H8."""
    rows = {row["depth"]: row for row in record["full"]
            if (row["rule"], row["block"], row["optimizer"])
            == ("S = 1", "highway", "sgd")}
    ours = {f"{depth} blocks": {name: row[name] for name in ("train_loss", "test_acc")}
            for depth, row in rows.items()}
    pairs = [or_infinite(rows[depth]["train_loss"] if depth in rows else [])
             for depth in depths]
    done = all(len(losses) == seeds for losses in pairs)
    return judged(
        "1000 highway blocks train with momentum SGD: on all of MNIST, S = 1, four "
        f"epochs, the loss is within {FAR:g} of that of 100 blocks, in every seed",
        ours, lambda scale: bool(np.all(pairs[1] <= widened(FAR, scale) * pairs[0]))
        if done else None, seeds, "P1 2.2", "SGD did not stall")


def check_claims(record: dict) -> list[dict]:
    """All verdicts on the hypotheses; None where their trials have not run."""
    protocol = record["protocol"]
    full = [*protocol["depths"], *protocol["deeper"], *protocol["deep"]]
    sums = sum(len(highway_sums(protocol["sums"], depth)) for depth in full[:-1])
    deep = len(highway_sums(protocol["deep_sums"], full[-1]))
    complete = True if len(record["collapse"]) == 2 * (sums + deep) and all(
        len(row["train_loss"]) == len(protocol["seeds"]) or mean_loss(row) >= TRAINS
        for row in record["collapse"]) else None
    few = {"kind": "train"} | {name: protocol[name] for name in ("n_train", "n_test")}
    sweep = few | {"depth": full, "block": "highway"}
    first = [{"sum": S} for S in {*protocol["sums"], *protocol["deep_sums"]}]
    deepest = [*full, protocol["ten_thousand"]["depth"]]
    full_images = {"n_train": protocol["full"]["n_train"]}
    return [
        *resting_on([*check_collapse(record, complete), check_price(record, complete)],
                    sweep | {"gates": first}),
        *resting_on(check_border(record, len(protocol["border"]["seeds"])),
                    {"n_test": protocol["border"]["n_test"]}),
        *resting_on(check_mechanism(record, len(protocol["mechanism"]["depths"])),
                    {"kind": "start"}),
        *check_rule(record, deepest), *check_other_rules(record, deepest),
        *resting_on(check_rescue(record, protocol["rescue"]["depths"]),
                    few | {"depth": [depth for depth in protocol["rescue"]["depths"]
                                     if depth >= 40]}),
        *resting_on([check_lower(record)], sweep | {
            "gates": [{"sum": S} for S in protocol["second"]["sums"]]}),
        *resting_on(check_ten_thousand(record), full_images | {
            "depth": protocol["ten_thousand"]["depth"]}),
        *resting_on([check_sgd(record, protocol["full"]["depths"],
                               len(protocol["seeds"]))],
                    full_images | {"optimizer": "sgd", "block": "highway",
                                   "gates": ONE})]
