"""The record of `depth_law`: results of trials -> rows and fits."""

from __future__ import annotations

import math

import numpy as np

import highway_networks as hn
from experiments.depth_law.nets import logit
from experiments.depth_law.plan import (
    ONE,
    RULES,
    TRAINS,
    Book,
    border_sum,
    bracket,
    deepest_config,
    full_config,
    highway_sums,
    net_config,
    record_config,
    rules_at,
    start_config,
)
from experiments.judging import listed, or_infinite

OPTIMIZERS = {"adam": "Adam", "sgd": "SGD"}
GUESSING = math.log(10)         # the loss that a diverged net is given among others
NEAR = 1.2                      # the factor of H2


def rule_of(gates: dict) -> str:
    """The name of the rule."""
    return next(name for name, value in RULES.items() if value == gates)


def best_row(book: Book, configs_by_lr: dict[float, list[dict]]) -> dict | None:
    """{lr: configs, one for each seed} -> what their nets did at the rate of the lowest
    mean loss: of the rates that most seeds ran with, so that none wins by one lucky
    seed. Losses and accuracies are None where a net diverged."""
    found = {lr: [result for config in configs if (result := book.get(config))]
             for lr, configs in configs_by_lr.items()}
    most = max(map(len, found.values()), default=0)
    if not most:
        return None
    means = {lr: np.mean(or_infinite([final_loss(result) for result in results]))
             for lr, results in found.items() if len(results) == most}
    lr = min(means, key=means.__getitem__)
    return {"lr": lr, "train_loss": [final_loss(result) for result in found[lr]],
            **{name: [result[name] for result in found[lr]]
               for name in ("test_acc", "S_before", "S_after")}}


def final_loss(result: dict) -> float | None:
    return result["train_loss"][-1] if result["status"] == "ok" else None


def row_of(book: Book, protocol: dict, depth: int, gates: dict, optimizer: str, block:
           str = "highway", seeds: list[int] | None = None) -> dict | None:
    """`best_row` over the protocol's rates, with what it is of. None if nothing ran."""
    row = best_row(book, {lr: [
        net_config(protocol, depth, gates, optimizer, lr, seed, block=block)
        for seed in seeds or protocol["seeds"]] for lr in protocol["lrs"][optimizer]})
    return row and {"depth": depth, "optimizer": optimizer} | row


def describe_collapse(book: Book, protocol: dict, sums: list[float]) -> list[dict]:
    """A row for each depth, optimiser and S."""
    depths = [*protocol["depths"], *protocol["deeper"], *protocol["deep"]]
    rows = []
    for depth in depths:
        for optimizer in OPTIMIZERS:
            for gates, _ in highway_sums(sums, depth):
                row = row_of(book, protocol, depth, gates, optimizer)
                if row:
                    S = gates["sum"]
                    rows.append({"S": S, "b_T": hn.significant(logit(S / depth))} | row)
    return rows


def mean_loss(row: dict) -> float:
    """The mean over seeds of a row's final losses; infinite if one diverged."""
    return float(np.mean(or_infinite(row["train_loss"])))


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


def describe_variance(rows: list[dict]) -> dict:
    """For each optimiser: what explains the variance of log loss over all its nets, and
    by which factor the depths' mean losses differ at equal S."""
    record = {}
    for optimizer in dict.fromkeys(row["optimizer"] for row in rows):
        own = [row for row in rows if row["optimizer"] == optimizer]
        y = np.log(np.minimum([mean_loss(row) for row in own], GUESSING))
        S, L = (np.log([row[name] for row in own]) for name in ("S", "depth"))
        b_T = np.array([row["b_T"] for row in own])
        factors = {}
        for sum_ in sorted({row["S"] for row in own}):
            losses = [mean_loss(row) for row in own if row["S"] == sum_]
            factors[f"{sum_:g}"] = listed(max(losses) / min(losses))
        record[optimizer] = {
            "nets": len(own), "S": explained(y, S), "b_T": explained(y, b_T),
            "L": explained(y, L), "S and L": explained(y, S, L),
            "b_T and L": explained(y, b_T, L), "S and b_T": explained(y, S, b_T),
            "factor between depths": factors}
    return record


def describe_price(rows: list[dict]) -> list[dict]:
    """For each depth and optimiser: the best S, loss at S = 1 over its loss, by means
    and by seed, and which S tried around the best are within NEAR of it."""
    record = []
    for depth, optimizer in sorted({(row["depth"], row["optimizer"]) for row in rows}):
        own = {row["S"]: row for row in rows
               if (row["depth"], row["optimizer"]) == (depth, optimizer)}
        if 1.0 not in own:
            continue
        losses = {S: mean_loss(row) for S, row in own.items()}
        best, sums = min(losses, key=losses.__getitem__), sorted(own)
        low = high = sums.index(best)
        while low and losses[sums[low - 1]] <= NEAR * losses[best]:
            low -= 1
        while high < len(sums) - 1 and losses[sums[high + 1]] <= NEAR * losses[best]:
            high += 1
        one, other = (or_infinite(own[S]["train_loss"]) for S in (1.0, best))
        seeds = min(len(one), len(other))
        record.append({
            "depth": depth, "optimizer": optimizer, "best_S": best,
            "price": hn.significant(losses[1.0] / losses[best]),
            "by_seed": listed(one[:seeds] / other[:seeds]),
            "near": [sums[low], sums[high]]})
    return record


def name_change(change: dict, base: dict) -> str:
    """What a row of the border differs in from the base, in words."""
    words = {"lr": "rate {:g}", "eps": "eps {:g}", "epochs": "{} epochs",
             "depth": "{} blocks", "hidden": "{} units", "init": "{}",
             "dtype": "{}", "activation": "{}", "optimizer": "{}"}
    names = {"sgd": "SGD", "he": "He's weights", "uniform": "U(±1/√n)"}
    shown = ", ".join(words[name].format(names.get(value, value))
                      for name, value in change.items())
    return shown or f"{base['depth']} blocks, Adam {base['lr']:g}"


def describe_border(book: Book, protocol: dict) -> list[dict]:
    """For each change: the largest S that trains, for each seed the geometric mean of
    the last step that trained and the first that did not; None if not finished."""
    rows, own = [], protocol["border"]
    for change in own["changes"]:
        borders = []
        for seed in own["seeds"]:
            low, high = bracket(book, protocol, change, seed)
            if low is not None:
                borders.append(hn.significant(math.sqrt(
                    border_sum(protocol, low) * border_sum(protocol, high))))
        rows.append({"change": change, "name": name_change(change, own), "S": borders,
                     "median": hn.significant(np.median(borders)) if borders else None})
    return rows


def fit_line(x: np.ndarray, y: np.ndarray) -> dict:
    """Least squares -> slope and R^2."""
    slope, start = np.polyfit(x, y, 1)
    rest = y - slope * x - start
    return {"slope": hn.significant(slope),
            "R2": hn.significant(1 - rest @ rest / ((y - y.mean()) @ (y - y.mean())))}


def describe_mechanism(book: Book, protocol: dict) -> list[dict]:
    """For each depth: slopes of the three logarithms in S before training, and the
    means over seeds behind them."""
    own, rows = protocol["mechanism"], []
    for depth in own["depths"]:
        sums = [S for S in protocol["sums"] if 0.1 <= S <= 10 and depth > S]
        starts = [[start for seed in own["seeds"] if (start := book.get(
            start_config(protocol, depth, {"sum": S}, seed)))] for S in sums]
        if any(len(group) < len(own["seeds"]) for group in starts):
            continue
        values = {"W_in": [[start["W_in"] for start in group] for group in starts],
                  "gradient": [[start["gradient"]["rms"][0] / start["gradient"]["rms"][
                      -1] for start in group] for group in starts],
                  "carried": [[start["carried"] for start in group]
                              for group in starts]}
        S = np.array([[start["S"] for start in group] for group in starts])
        # A carried part may be negative by chance where next to nothing is carried.
        logs = {name: np.log(np.abs(table)) for name, table in values.items()}
        rows.append({
            "depth": depth, "S": listed(S.mean(axis=1)), "n": len(own["seeds"]),
            "fits": {name: fit_line(S.ravel(), log.ravel())
                     for name, log in logs.items()},
            **{name: listed(np.exp(log.mean(axis=1))) for name, log in logs.items()}})
    return rows


def describe_rules(book: Book, protocol: dict) -> list[dict]:
    """A row for each depth, rule, block and optimiser; 10,000 blocks have one rate."""
    rows = []

    def add(row, gates, block):
        if row:
            rows.append({"rule": rule_of(gates), "block": block} | row)
    for depth in (*protocol["depths"], *protocol["deeper"], *protocol["deep"]):
        for gates, block in rules_at(protocol, depth):
            for optimizer in OPTIMIZERS:
                add(row_of(book, protocol, depth, gates, optimizer, block), gates,
                    block)
    own = protocol["ten_thousand"]
    for gates, block in rules_at(protocol, own["depth"]):
        config, *others = [deepest_config(book, protocol, gates, block, seed)
                           for seed in range(len(protocol["seeds"]))]
        row = best_row(book, {config["lr"]: [config, *others]})
        add(row and {"depth": own["depth"], "optimizer": "adam",
                     "epochs": config["epochs"]} | row, gates, block)
    return rows


def describe_full(book: Book, protocol: dict) -> list[dict]:
    """A row for each net of the rules on all images, its seeds side by side."""
    rows = []
    for depth in protocol["full"]["depths"]:
        for gates, block in rules_at(protocol, depth):
            for optimizer in OPTIMIZERS:
                configs = [config for seed in protocol["seeds"] if (
                    config := full_config(book, protocol, depth, gates, block,
                                          optimizer, seed))]
                row = configs and best_row(book, {configs[0]["lr"]: configs})
                if row:
                    used = [result.get("used") for config in configs
                            if (result := book.get(config))]
                    rows.append({"depth": depth, "rule": rule_of(gates), "block": block,
                                 "optimizer": optimizer, **row,
                                 "prefix": [u and u["prefix"] for u in used]})
    return rows


def describe_rescue(book: Book, protocol: dict) -> list[dict]:
    """Half-open gates and the rule: a row for each depth and optimiser, with how many
    of all their trials (rates and seeds) train, and the lowest loss of any."""
    own, rows = protocol["rescue"], []
    for depth in own["depths"]:
        for start, gates in (("half open", {"bias": 0.0}), ("S = 1", ONE)):
            for optimizer in OPTIMIZERS:
                row = row_of(book, protocol, depth, gates, optimizer,
                             seeds=own["seeds"])
                found = [book.loss(net_config(protocol, depth, gates, optimizer, lr,
                                              seed))
                         for seed in own["seeds"] for lr in protocol["lrs"][optimizer]]
                losses = [loss for loss in found if loss is not None]
                if row:
                    rows.append({"start": start} | row | {
                        "tried": len(losses), "lowest": listed(min(losses)),
                        "trained": sum(loss < TRAINS for loss in losses)})
    return rows


def describe_ten_thousand(book: Book, protocol: dict) -> dict:
    """The nets of 10,000 blocks on all images that have run, by seed; and the losses of
    10,000 blocks on the few images, by S."""
    own = protocol["ten_thousand"]
    sums = {}
    for S in sorted({1.0, *own["sums"]}):
        loss = book.loss(deepest_config(book, protocol, {"sum": S}, "highway"))
        if loss is not None:
            sums[f"{S:g}"] = listed(loss)
    return {"depth": own["depth"], "by_S": sums,
            "nets": [net for seed in protocol["seeds"]
                     if (net := book.get(record_config(protocol, seed)))]}


def describe(book: Book, protocol: dict) -> dict:
    """The results of the trials that have run -> the record."""
    rows = describe_collapse(book, protocol, protocol["sums"])
    return {"collapse": rows,
            "lower": describe_collapse(book, protocol, protocol["second"]["sums"]),
            "variance": describe_variance(rows),
            "price": describe_price(rows), "border": describe_border(book, protocol),
            "mechanism": describe_mechanism(book, protocol),
            "rules": describe_rules(book, protocol),
            "full": describe_full(book, protocol),
            "rescue": describe_rescue(book, protocol),
            "ten_thousand": describe_ten_thousand(book, protocol)}
