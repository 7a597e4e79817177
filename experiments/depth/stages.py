"""How many blocks of the nets of `depth` work one after the other.

In a stage all blocks read one input; the sequential depth of a net is the least number
of stages that keeps its answers (experiments/nets/probes.py).
"""

from __future__ import annotations

from experiments.depth.claims import own
from experiments.depth.plan import ONE, Net, net_config
from experiments.depth.record import by_key, final_loss
from experiments.depth.training import train
from experiments.lab import Claim, Lab
from experiments.lab.judging import ahead
from experiments.nets.probes import sequential_depths
from highway_suite.records import RecordError

WIDE = 10               # stages: nearly side by side
LOWER, HIGHER = -5.0, -2.0


def describe(lab: Lab, rules: list[dict]) -> list[dict]:
    """A row for each net, with S = 1 of every depth, at its best rate, and by b_T: of
    every seed the loss, the accuracy, the sequential depths, and the accuracy by
    stages, which is on fewer test images. Raises RecordError if one diverged."""
    plan, how = lab.plan, lab.plan["stages"]
    nets = [*((Net(row["depth"], ONE), row["lr"]) for row in rules
              if row["rule"] == "S = 1"),
            *((Net(how["depth"], {"bias": bias}), how["lr"]) for bias in how["biases"])]
    found = by_key(lab.trials(train, {
        (i, seed): net_config(plan, net, lr, stages=how["images"], seed=seed)
        for i, (net, lr) in enumerate(nets) for seed in how[
            "deepest_seeds" if net.depth == plan["deepest"]["depth"] else "seeds"]}))
    rows = []
    for (net, lr), trials in zip(nets, found.values(), strict=True):
        if any(trial.result["status"] != "ok" for trial in trials):
            raise RecordError(f"a net of {net.depth} blocks in stages diverged")
        rows.append({
            "depth": net.depth, "gates": net.gates, "lr": lr,
            "trials": [trial.hash for trial in trials],
            "train_loss": [final_loss(trial) for trial in trials],
            "test_acc": [trial.result["test_acc"] for trial in trials],
            "stages": [sequential_depths(trial.result, how["shares"])
                       for trial in trials],
            "tried": trials[0].result["tried"], "accuracy": [
                trial.result["trained"]["accuracy"] for trial in trials]})
    return rows


def least(row: dict, state: str = "trained") -> list[int]:
    """The sequential depth of each seed."""
    return [found[state]["0.95"] for found in row["stages"]]


def claims(record: dict) -> list[Claim]:
    """Whether deep nets with S = 1 are wide, and whether b_T alone changes that."""
    ones = [row for row in record["stages"] if row["gates"] == ONE]
    from_depth = record["plan"]["stages"]["depth"]
    deep = [row for row in ones if row["depth"] >= from_depth]
    by_bias = {row["gates"]["bias"]: row for row in record["stages"]
               if row["gates"] != ONE}
    low, high = by_bias[LOWER], by_bias[HIGHER]

    def wide(state, of=all):
        return lambda stages: of(found <= stages for row in deep
                                 for found in least(row, state))
    return [
        own("deep-nets-wide", "with b_T = logit(1/L), the blocks of nets of "
            f"{from_depth} blocks and more work nearly side by side: {WIDE} stages keep"
            " at least 95 % of the answers to test images, in every seed. Ours is the "
            "sequential depth",
            deep, {f"{row['depth']} blocks": {state: least(row, state) for state in (
                "trained", "untrained")} for row in ones}, WIDE,
            wide("trained"), control=wide("untrained", any)),
        own("stages-by-bias", f"a higher b_T makes nets of {low['depth']} blocks "
            f"sequentially deeper: with {HIGHER:g} they need more stages than with "
            f"{LOWER:g} to keep 95 % of their answers. Ours is the sequential depth",
            [low, high], {
                f"b_T {bias:g}": {state: least(row, state) for state in (
                    "trained", "untrained")} for bias, row in by_bias.items()},
            None, lambda: ahead(least(high), least(low)), control=lambda: ahead(
                least(high, "untrained"), least(low, "untrained")))]
