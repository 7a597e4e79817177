"""What is claimed of data movement, and how it is judged."""

from __future__ import annotations

from typing import Any

import numpy as np

import highway_networks as hn
from experiments.data_movement.costs import MODELS
from experiments.lab import Claim
from experiments.lab.judging import ahead, listed, or_infinite
from experiments.lab.papers import spoken

NAMES = {"bytedmd": "ByteDMD", "address": "addresses"}


def ratios(record: dict, model: str, block: str, matched: bool = False
           ) -> dict[tuple, float]:
    """{(depth, width, batch, pass): movement in units of the plain net's} of the same
    width, or of the same parameters if matched."""
    def costs(block: str, is_matched: bool) -> dict[tuple, int]:
        return {(row["depth"], row["hidden"], row["batch"], net["pass"]): net[model]
                for row in record["passes"] for net in row["nets"]
                if (net["block"], net["matched"]) == (block, is_matched)}
    plain = costs("plain", matched)
    return {key: cost / plain[key] for key, cost in costs(block, False).items()}


def extremes(record: dict, block: str, matched: bool = False) -> tuple[float, float]:
    """The least and the largest ratio to plain, of all passes and both models."""
    found = [ratio for model in MODELS
             for ratio in ratios(record, model, block, matched).values()]
    return hn.significant(min(found)), hn.significant(max(found))


def claims_on_passes(record: dict) -> list[Claim]:
    """What shapes alone decide."""
    ends = {block: extremes(record, block) for block in record["plan"]["forms"]
            if block != "plain"}
    low, high = extremes(record, "highway", matched=True)
    about: dict[str, Any] = {"rows": record["passes"], "n": None, "limit": 0.1}
    return [
        Claim(name="carry-saves-nothing", text="no form with a carry path moves a "
              "tenth less data than the plain net of the same width, in any pass, at "
              "any size and batch. Ours are the least and the largest ratio", ours={
                  block: [*found] for block, found in ends.items()}, **about,
              test=lambda part: min(low for low, _ in ends.values()) > 1 - part),
        Claim(name="movement-equal-size", text="with equally many parameters, the "
              "highway net moves as much data as the plain net to within a tenth, in "
              "any pass, at any size and batch. Ours is the ratio", **about,
              ours={"lowest": low, "highest": high},
              test=lambda part: 1 - part <= low and high <= 1 + part)]


def claim_on_loss(record: dict) -> Claim:
    """Movement until a training loss: that of a step times the median of the epochs. Of
    plain nets those weights count that move least."""
    rows, loss = record["until_loss"], record["plan"]["until"]["loss"]
    found: dict[str, dict[str, float]] = {}
    for depth in dict.fromkeys(row["depth"] for row in rows):
        for model in MODELS:
            highway, plain = (min(
                row[model] * float(np.median(or_infinite(row["epochs"]))) for row
                in rows if (row["block"], row["depth"]) == (block, depth))
                for block in ("highway", "plain"))
            found.setdefault(f"{depth} blocks", {})[model] = highway / plain
    return Claim(
        name="movement-until-loss", text=f"until a training loss of {loss}, the "
        "highway net moves at least a tenth less data than the plain net of as many "
        "blocks and about as many parameters, at every depth, each with the setting "
        "that needs the fewest epochs. Ours is the ratio of medians by both models",
        limit=0.1, rows=rows, n=len(rows[0]["epochs"]), after_data=True,
        ours={name: {NAMES[model]: listed(ratio) for model, ratio in ratios.items()}
              for name, ratios in found.items()},
        test=lambda part: all(ratio <= 1 - part for ratios in found.values()
                              for ratio in ratios.values()))


def chosen(net: dict, what: str, lost: float) -> dict:
    """Of a net's rows, "gates" or "left_out", that of least movement which loses at
    most so much accuracy on training images; with what it moves of the whole net's, and
    the points of test accuracy by which it is behind that and ahead of the control."""
    whole, rows = net["whole"], net[what]
    row = min((row for row in rows if row["train"] >= rows[0]["train"] - lost),
              key=lambda row: row["bytedmd"])
    return row | {"movement": hn.significant(row["bytedmd"] / whole["bytedmd"]),
                  "lost": hn.significant(100 * (whole["test"] - row["test"])),
                  "apart": hn.significant(100 * (row["test"]
                                                 - np.median(row["random"])))}


def mean(rows: list[dict], name: str) -> float:
    """Of the nets."""
    return float(np.mean([row[name] for row in rows]))


def nets_of(record: dict, block: str) -> list[dict]:
    """The trained nets of a block, that skip."""
    return [net for net in record["skipping"] if net["block"] == block]


def numbers(rows: list[dict], **names: str) -> dict:
    """Fields of rows by other names -> each with the mean of the nets, which is what
    the claims judge, and with the numbers of all nets."""
    return {words: {"mean": hn.significant(mean(rows, name)),
                    "nets": sorted(row[name] for row in rows)}
            for name, words in names.items()}


def claims_on_units(record: dict) -> list[Claim]:
    """What need not be read of the blocks of highway nets, by the means of the nets."""
    nets = nets_of(record, "highway")
    gates = [chosen(net, "gates", record["plan"]["lost"]) for net in nets]
    return [
        Claim(name="skip-units", text="one image at a time, skipping the units with "
              "closed gates saves a tenth of the forward pass and costs at most one "
              "point of test accuracy, in the mean of the nets", rows=nets, n=len(nets),
              ours=numbers(gates, movement="movement", lost="points lost"), limit=0.1,
              test=lambda part: mean(gates, "movement") <= 1 - part
              and mean(gates, "lost") <= 1, after_data=True),
        Claim(name="skip-units-random", text="skipping as many units at random costs "
              "at least five points more, in the mean of the nets", rows=nets,
              n=len(nets), ours=numbers(gates, apart="points apart"), limit=5.0,
              test=lambda points: mean(gates, "apart") >= points)]


def as_small(record: dict, blocks: list[dict]) -> dict:
    """The deepest small net that moves no more than any of the pruned ones; the
    smallest where all move more."""
    rows = record["small"]
    least = min(row["bytedmd"] for row in blocks)
    return max((row for row in rows if row["bytedmd"] <= least),
               key=lambda row: row["depth"], default=rows[0])


def claims_on_blocks(record: dict) -> list[Claim]:
    """Which blocks can be left out, by the means of the nets, and what a small net does
    instead."""
    own = {block: nets_of(record, block) for block in record["plan"]["lrs"]}
    pruned = {block: [chosen(net, "left_out", record["plan"]["lost"]) for net in nets]
              for block, nets in own.items()}
    highway, small = pruned["highway"], as_small(record, pruned["highway"])
    whole = own["highway"][0]["whole"]["bytedmd"]
    depth = record["plan"]["net"]["depth"]

    def spares(name, block):
        rows = pruned[block]
        return Claim(
            name=name, text="without the blocks whose closing costs least, a "
            f"{spoken(block)} net moves at most half as much data in a forward pass "
            "and loses at most one point of test accuracy, in the mean of the nets",
            rows=own[block], n=len(rows), limit=0.5, ours=numbers(
                rows, movement="movement", lost="points lost",
                left_out="blocks left out"),
            test=lambda part: mean(rows, "movement") <= part
            and mean(rows, "lost") <= 1)
    return [
        spares("leave-blocks-out", "highway"),
        spares("leave-blocks-out-t-only", "t_only"),
        Claim(
            name="residual-spares-few", text="a residual net loses more than one point "
            f"of training accuracy when more than 5 of its {depth} blocks are left "
            "out, in each of the nets", rows=own["residual"], n=len(own["residual"]),
            ours=numbers(pruned["residual"], left_out="blocks left out",
                         movement="movement", lost="points lost"), limit=5,
            test=lambda most: all(row["left_out"] <= most
                                  for row in pruned["residual"])),
        Claim(
            name="small-net-beats-pruned", text="a net of fewer blocks, trained from "
            "the start, has a higher test accuracy, in every seed, than pruned highway "
            "nets (without the blocks whose closing costs least), and moves no more "
            "data than any of them",
            rows=[*own["highway"], *record["small"]], n=len(highway), ours={
                "pruned": [row["test"] for row in highway],
                **{f"{row['depth']} blocks": {
                    "movement": listed(row["bytedmd"] / whole, 3),
                    "accuracy": row["test"]} for row in record["small"]}},
            test=lambda: ahead(small["test"], [row["test"] for row in highway]))]


def claims(record: dict) -> list[Claim]:
    """All claims of a record."""
    return [*claims_on_passes(record), claim_on_loss(record),
            *claims_on_units(record), *claims_on_blocks(record)]
