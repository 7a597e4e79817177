"""Controls of `depth`: what a constant T does, and what shallow nets do.

The nets that are judged share no seed with those that chose their rate. At equal
compute ten blocks train longer. By the schedule of the deepest net shallow ones see all
images; they are judged by test accuracy.

Limits are wider than the noise: one seed's loss is off by about 14 % of its mean, so a
ratio of two means by 7 % with eight seeds and by 9 % with five. The limit is 20 %, and
a ratio within two standard errors of the limit tells nothing (one, when they ran).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from experiments.depth.claims import accuracies, by_depth, own, prefixes
from experiments.depth.plan import ONE, Net, gates_of, net_config, on_all
from experiments.depth.record import GUESSING, best_row, mean_loss, of_seeds
from experiments.depth.training import train
from experiments.lab import Claim, Lab
from experiments.lab.judging import ahead, every, listed, next_beyond, or_infinite

NEAR = 20               # %: near a loss
POINTS = 0.5            # of test accuracy: near
NEAR_LIMIT = "within two standard errors of the limit"

# --------------------------------------------------------------------------------------
# The record


def judged(lab: Lab, net: Net) -> dict:
    """The row of a net with the seeds that judge it, at the rate that others chose.
    Where the best rate lies at an end, one more is tried, until it does not."""
    plan, controls = lab.plan, lab.plan["controls"]
    deep, lrs = net.depth >= plan["one_rate_from"], [*plan["lrs"]["adam"]]
    while True:
        lr = best_row(lab.by_seed(
            train, {lr: net_config(plan, net, lr) for lr in sorted(lrs)},
            plan["seeds"][:1 if deep else None]))["lr"]
        more = next_beyond(lrs, lr, controls["beyond"])
        if not more:
            break
        lrs += more
    return best_row(lab.by_seed(train, {lr: net_config(
        plan, net, lr, measure={"measured": controls["measured"], "kept": []})},
        controls["deep_seeds" if deep else "seeds"]))


def with_need(row: dict) -> dict:
    """A row whose `used` is no more than how many first blocks each seed needs."""
    rest = {name: value for name, value in row.items() if name != "used"}
    return rest | {"needed": prefixes(row)}


def describe(lab: Lab) -> dict:
    """The record's part: rows of `nets`; of ten blocks for more epochs, `longer`; and
    of shallow nets by the schedule of the deepest, `schedule`."""
    plan, how = lab.plan, lab.plan["controls"]
    longer, schedule = how["longer"], how["schedule"]
    ten = Net(longer["depth"], ONE)
    many = lab.by_seed(train, {
        epochs: net_config(plan, ten, longer["lr"], epochs=epochs)
        for epochs in longer["epochs"]}, longer["seeds"])
    shallow = {depth: lab.by_seed(train, {lr: net_config(
        plan, Net(depth, gates_of(plan, "shallow", depth)), lr, **on_all(plan, "adam"))
        for lr in schedule["lrs"]}, schedule["seeds"]) for depth in schedule["depths"]}
    return {
        "nets": [{"rule": rule, "depth": depth} | with_need(judged(
            lab, Net(depth, gates_of(plan, rule, depth)))) for rules, depths in (
                (how["rules"], how["depths"]), (["shallow"], how["shallow"]))
            for depth in depths for rule in rules],
        "longer": [{"depth": ten.depth, "epochs": epochs} | of_seeds(trials)
                   for epochs, trials in many.items()],
        "schedule": [{"depth": depth} | with_need(best_row(found))
                     for depth, found in shallow.items()]}


# --------------------------------------------------------------------------------------
# Claims


def compared(one: Iterable[float | None], other: Iterable[float | None]) -> dict:
    """The ratio of the means of two nets' losses, and its standard error."""
    losses = [np.minimum(or_infinite(values), GUESSING) for values in (one, other)]
    ratio = losses[0].mean() / losses[1].mean()
    error = ratio * math.sqrt(sum((values.std(ddof=1) / values.mean()) ** 2
                                  / len(values) for values in losses))
    return {"ratio": listed(ratio, 4), "error": listed(error, 2)}


def told(found: dict) -> str:
    """A ratio with its standard error."""
    return f"{found['ratio']:.2f} ± {found['error']:.2f}"


def below(found: Iterable[dict]) -> Any:
    """-> the test whether all ratios are at most 1 + so many %. Within two standard
    errors of that a ratio tells nothing."""
    pairs = [(each["ratio"], each["error"]) for each in found]

    def test(limit):
        return every(None if abs(ratio - 1 - limit / 100) <= 2 * error
                     else ratio < 1 + limit / 100 for ratio, error in pairs)
    return test


def by_rule(record: dict) -> dict[str, dict[int, dict]]:
    """The rows of the nets that are judged, {rule: {depth: row}}."""
    rows: dict[str, dict[int, dict]] = {}
    for row in record["controls"]["nets"]:
        rows.setdefault(row["rule"], {})[row["depth"]] = row
    return rows


def all_losses(record: dict) -> dict[int, dict[str, list]]:
    """Losses by seed of every rule with highway blocks and Adam, {depth: {rule:
    losses}}: of the controls where there are any."""
    losses: dict[int, dict[str, list]] = {}
    for row in [*record["rules"], *record["controls"]["nets"]]:
        if row["rule"] != "shallow":
            losses.setdefault(row["depth"], {})[row["rule"]] = row["train_loss"]
    return dict(sorted(losses.items()))


def claim_on_best_rule(record: dict) -> Claim:
    """S = 1 beside every other rule and every shallow net."""
    rows = by_rule(record)
    shallow = {f"{row['depth']} blocks": row["train_loss"] for row in (
        *rows["shallow"].values(), rows["S = 1"][min(rows["S = 1"])])}
    found, ours = [], {}
    for depth, losses in all_losses(record).items():
        others = {name: values for name, values in (losses | shallow).items()
                  if name not in ("S = 1", f"{depth} blocks")}
        best = min(others, key=lambda name: mean_loss({"train_loss": others[name]}))
        found.append(compared(losses["S = 1"], others[best]))
        ours[depth] = f"{told(found[-1])} ({best})"
    return own(
        "sum-1-near-best-rule", "from 10 to 10,000 blocks the loss with S = 1 is at "
        f"most {NEAR} % above that of the best other rule. At every depth, nets of 1, "
        "3 and 10 blocks count as rules, too",
        [*record["rules"], *record["controls"]["nets"]], by_depth(ours), NEAR,
        below(found), why=NEAR_LIMIT, after_data=True)


def claim_on_constant(record: dict) -> Claim:
    """The same T in every block."""
    rows = by_rule(record)
    ones, constant = rows["S = 1"], rows["constant T"]
    beside = {depth: compared(row["train_loss"], ones[depth]["train_loss"])
              for depth, row in constant.items()}
    return own(
        "constant-t-as-good", f"with an initial T of {record['plan']['constant_T']:g} "
        f"in every block, the loss is at most {NEAR} % above that of S = 1, from 10 to "
        "1000 blocks. At 10,000 blocks both rules are the same",
        [*ones.values(), *constant.values()],
        by_depth({depth: told(each) for depth, each in beside.items()}), NEAR,
        below(beside.values()), why=NEAR_LIMIT, after_data=True)


def claim_on_compute(record: dict) -> Claim:
    """Ten blocks, trained for as long as deep nets take."""
    ones, epochs = by_rule(record)["S = 1"], record["plan"]["epochs"]
    pairs = [(row, ones[row["depth"] * row["epochs"] // epochs])
             for row in record["controls"]["longer"]]
    return own(
        "equal-compute", "with equal compute, ten blocks have a lower loss than 30, "
        "100 and 300 blocks, in every seed. The ten blocks train for more epochs, so "
        "that both cost the same. Ours are the loss and the accuracy of ten blocks, "
        "then those of the deep nets", [row for pair in pairs for row in pair],
        {f"10 blocks for {long['epochs']} epochs; {row['depth']} blocks": {
            "loss": listed([mean_loss(long), mean_loss(row)], 3),
            "accuracy": listed([accuracies(each).mean() for each in (long, row)], 4)}
            for long, row in pairs}, None,
        lambda: every(ahead(or_infinite(row["train_loss"]),
                            or_infinite(long["train_loss"])) for long, row in pairs))


def claim_on_schedule(record: dict) -> Claim:
    """10,000 blocks beside ten, by the same schedule on all images."""
    deepest = max(record["full"], key=lambda row: row["depth"])
    rows = [*record["controls"]["schedule"], deepest]
    many, few = accuracies(deepest), accuracies(rows[-2])
    apart = 100 * (many.mean() - few.mean())
    error = 100 * math.sqrt(sum(found.var(ddof=1) / len(found)
                                for found in (many, few)))
    return own(
        "ten-as-good-as-10000", "nets of 10,000 blocks are hardly better than nets of "
        "ten: on all of MNIST, with the same schedule, the mean test accuracy of ten "
        f"blocks is at most {POINTS:g} points lower", rows,
        {"points behind": listed(apart, 3), "standard error": listed(error, 2)}, POINTS,
        lambda limit: None if abs(apart - limit) <= 2 * error else apart < limit,
        why=NEAR_LIMIT, after_data=True)


def claims(record: dict) -> list[Claim]:
    """All claims on controls."""
    return [claim_on_best_rule(record), claim_on_constant(record),
            claim_on_compute(record), claim_on_schedule(record)]
