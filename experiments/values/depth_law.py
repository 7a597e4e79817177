"""Numbers and tables of the page of `depth_law`."""

from __future__ import annotations

from typing import Any

import numpy as np

from experiments.depth_law.plan import TRAINS
from experiments.depth_law.record import OPTIMIZERS, describe_variance, mean_loss
from experiments.depth_law.verdicts import LAWFUL, SLOPES, rule_losses
from experiments.judging import or_infinite
from experiments.values.common import about, look_up, percent, span, table

RECORD = "results/depth_law/record.json"
RULES = {"S = 1": "S = 1", "b_T = -2": "b_T = -2", "guideline": "-L/10",
         "chrono": "chrono"}
BLOCKS = {"highway": "highway", "t_only": "T-only"}


def loss(value: float | None) -> str:
    """A loss in three digits; a dash where a net did not learn."""
    return "–" if value is None or value >= TRAINS else f"{value:#.3g}"


@about(RECORD)
def depth_law(record: dict) -> dict[str, str]:
    found: dict[str, str] = {}
    for key, row in record["variance"].items():
        found |= {f"{key}_{name}": percent(row[part]) for name, part in (
            ("S", "S"), ("both", "S and L"), ("b_T", "b_T"), ("L", "L"))}
        factors = {float(S): factor for S, factor in row[
            "factor between depths"].items() if LAWFUL[0] <= float(S) <= LAWFUL[1]}
        found[f"{key}_apart"] = f"{max(factors.values()):.2f}"
        found[f"{key}_apart_at"] = f"{max(factors, key=factors.__getitem__):g}"
    low = describe_variance([row for row in record["collapse"] if row["S"] <= 2])
    found |= {f"{key}_low_{name}": percent(row[part]) for key, row in low.items()
              for name, part in (("S", "S"), ("both", "S and L"))}
    rule = [row["S = 1"] for row in rule_losses(record).values()]
    lower = [ratio for depths in look_up(record, "below S = 0.03").values()
             for ratios in depths.values() for ratio in ratios.values()]
    return found | {"rule_least": f"{min(rule):.3f}", "rule_most": f"{max(rule):.3f}",
                    "lower_least": f"{min(lower):.2f}",
                    "lower_most": f"{max(lower):.2f}"
                    } | ten_thousand(record) | full_values(record)


def ten_thousand(record: dict) -> dict[str, str]:
    """The deepest nets, from the least to the most, and what the rules come to at their
    depth."""
    nets, last = record["ten_thousand"]["nets"], record["ten_thousand"]["depth"]
    used, losses = [net["used"] for net in nets], rule_losses(record)[last]
    lesions = [max(each["lesions"]["loss"]) / each["loss"] for each in used]
    found = {"accuracy": span([100 * net["test_acc"] for net in nets], ".1f"),
             "prefix": span([each["prefix"] for each in used], ","),
             "chrono_times": f"{losses['chrono'] / losses['S = 1']:.1f}",
             "lesion_most": f"{max(lesions):.2f}"}
    for place, blocks in enumerate(used[0]["kept"]["layers"]):
        found[f"left_{blocks}"] = span(
            [each["kept"]["loss"][place] / each["loss"] for each in used], ".3g")
    return found | {f"deepest_S_{S}": loss(value)
                    for S, value in record["ten_thousand"]["by_S"].items()}


def full_values(record: dict) -> dict[str, str]:
    """All images, S = 1, highway blocks: accuracies of the seeds, and by how much SGD's
    losses grow with depth."""
    rows = {(row["optimizer"], row["depth"]): row for row in record["full"]
            if (row["rule"], row["block"]) == ("S = 1", "highway")}
    losses = [row["train_loss"] for (optimizer, _), row in rows.items()
              if optimizer == "sgd"]
    times = max(deep / shallow for shallow, deep in zip(*losses, strict=True))
    return {"sgd_times": f"{times:.2f}"} | {
        f"full_{optimizer}_{depth}": span([100 * value for value in row["test_acc"]],
                                          ".1f")
        for (optimizer, depth), row in rows.items()}


@about(RECORD)
def depth_law_price(record: dict) -> str:
    def cells(row):
        return [f"{row['best_S']:g}", span(row["near"]),
                f"{100 * (row['price'] - 1):.0f}"]
    found = {(row["depth"], row["optimizer"]): cells(row) for row in record["price"]}
    head = "|".join(f"{words}: best S:|around it within 20 %:|S = 1 costs, %:"
                    for words in OPTIMIZERS.values())
    return table(f"blocks:|{head}", (
        [f"{depth:,}", *found[depth, "adam"], *found[depth, "sgd"]]
        for depth in sorted({depth for depth, _ in found})))


@about(RECORD)
def depth_law_mechanism(record: dict) -> str:
    def cell(fit):
        return f"{fit['slope']:.2f} ({fit['R2']:.3f})"
    names = [words.removeprefix("the ") for words in SLOPES.values()]
    return table("blocks:|" + "|".join(f"{name}:" for name in names), (
        [f"{row['depth']:,}", *(cell(row["fits"][name]) for name in SLOPES)]
        for row in record["mechanism"]))


@about(RECORD)
def depth_law_border(record: dict) -> str:
    rows = sorted((row for row in record["border"] if row["S"]),
                  key=lambda row: -row["median"])
    return table("setting|largest S that trains, median:|lowest and highest of five:", (
        [row["name"], f"{row['median']:.1f}", span(row["S"], ".1f")] for row in rows))


@about(RECORD)
def depth_law_rules(record: dict) -> str:
    def cells(block: str, depth: int) -> list[str]:
        losses = rule_losses(record, block).get(depth, {})
        return [loss(losses[rule]) if rule in losses else "" for rule in RULES]
    depths = list(rule_losses(record))
    head = "|".join(f"{words}: {rule}:" for words in BLOCKS.values()
                    for rule in RULES.values())
    return table(f"blocks:|{head}", (
        [f"{depth:,}", *(cell for block in BLOCKS for cell in cells(block, depth))]
        for depth in depths))


@about(RECORD)
def depth_law_full(record: dict) -> str:
    def cells(row: dict) -> list[Any]:
        there = [value for value in row["test_acc"] if value is not None]
        prefixes = [value for value in row["prefix"] if value is not None]
        return [f"{row['depth']:,}", OPTIMIZERS[row["optimizer"]],
                BLOCKS[row["block"]], RULES[row["rule"]], f"{row['lr']:g}",
                loss(mean_loss(row)), span([100 * value for value in there], ".1f")
                if there else "–", span(prefixes) if prefixes else "–",
                str(len(row["train_loss"]))]
    return table("blocks:|optimiser|block|rule|rate:|training loss:|test accuracy, %:|"
                 "blocks needed:|n:", map(cells, record["full"]))


@about(RECORD)
def depth_law_rescue(record: dict) -> str:
    def cells(row):
        values = or_infinite(row["train_loss"])
        return [f"{row['depth']}", OPTIMIZERS[row["optimizer"]], row["start"],
                f"{row['trained']} of {row['tried']}",
                f"{np.mean(values):.2g}", f"{row['lowest']:.2g}"]
    return table("blocks:|optimiser|start|train:|loss at the best rate:|lowest loss:",
                 map(cells, record["rescue"]))
