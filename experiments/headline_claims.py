"""What the records of the command line say: P1's contrast over depth, and the gates.

`check` takes a sweep over depths and seeds, or the headline over seeds; what an earlier
reproduction says of its own runs, with the same settings, is judged by them too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import fmean

import highway_networks as hn
from experiments.judging import Claim, agreed, claim, resting_on


def loses(ends: Sequence[dict], points: float) -> bool | None:
    """Whether the second of two rows of a record's summary has a test accuracy so many
    points below the first's; None within two standard errors of that."""
    difference = ends[0]["test_acc_mean"] - ends[1]["test_acc_mean"] - points / 100
    error = math.hypot(*(row["test_acc_std"] / math.sqrt(row["n"] - row["diverged"])
                         for row in ends))
    return difference > 0 if abs(difference) > 2 * error else None


def accuracy_of(rows: Iterable[dict]) -> dict[str, str]:
    """Rows of a record's summary, in words."""
    return {f"{row['depth'] + 1} layers": f"{row['test_acc_mean']:.3f} ± "
            f"{row['test_acc_std']:.3f}" for row in rows}


def check_sweep(record: dict) -> list[Claim]:
    """P1's question in the setting of the headline, and what the earlier reproduction
    says of it: a sweep over seeds -> claims."""
    config, n = record["config"], len(record["seeds"])
    claims: list[Claim] = []
    setting = (f"init {config['init']}, {config['optimizer']}, {record['n_train']} "
               f"images, {record['epochs']} epochs")
    summary = {block: sorted((row for row in record["summary"]
                              if row["block"] == block), key=lambda row: row["depth"])
               for block in ("plain", "highway")}
    for block, rows in summary.items():
        if not rows:
            continue
        ends = rows[0], rows[-1]
        claims += resting_on([claim(
            section="ours", text=f"{block} nets lose more than two points of test "
            f"accuracy from the least depth to the largest, {setting}", paper=None,
            ours=accuracy_of(ends), holds=loses(ends, 2), n=n,
            younger=bool(summary["plain"]),     # the sweep without them came later
            also={f"{points} points": loses(ends, points) for points in (1, 4)})],
            {"block": block, "depth": [row["depth"] for row in ends]})
    if config["init"] != "uniform":
        return claims
    if not summary["plain"]:
        ends = summary["highway"][0], summary["highway"][-1]

        def flat(points):
            lost = loses(ends, points)
            return None if lost is None else not lost
        claims += resting_on([claim(
            section="reproduction", text="depth costs highway nets nothing: from the "
            "least depth to the largest they lose less than two points of test "
            "accuracy", paper="essentially flat", ours=accuracy_of(ends), holds=flat(2),
            n=n, also={f"{points} points": flat(points) for points in (1, 4)})],
            {"block": "highway", "depth": [row["depth"] for row in ends]})
    elif deep := [row for row in summary["plain"] if row["depth"] >= 20]:
        def fails(accuracy):
            return all(row["test_acc_mean"] < accuracy for row in deep)
        claims += resting_on([claim(
            section="reproduction", text="plain nets of 21 and more layers fail "
            "completely: a mean test accuracy below 0.2", paper="at chance",
            ours=accuracy_of(deep), holds=fails(0.2), n=n, younger=True,
            also={"0.15": fails(0.15), "0.3": fails(0.3)})],
            {"block": "plain", "depth": [row["depth"] for row in deep]})
    return claims


def check_gates(record: dict) -> list[Claim]:
    """What the earlier reproduction says of the gates over depth: a record of the
    headline over seeds -> claims."""
    thirds = []
    for run in record["runs"]:
        T = run["highway"]["final_T_per_layer"]
        thirds.append([fmean(part) for part in (T[:len(T) // 3], T[-(len(T) // 3):])])

    def higher(times):
        return agreed(lower > times * upper for lower, upper in thirds)
    return resting_on([claim(
        section="reproduction", text="the lower layers have the higher T: mean T of "
        "the first third of the layers above that of the last, with every seed",
        paper="lower layers develop higher T", ours={
            "first third": [hn.significant(first) for first, _ in thirds],
            "last third": [hn.significant(last) for _, last in thirds]},
        n=len(thirds), holds=higher(1), younger=True, also={
            "0.5 times": higher(0.5), "2 times": higher(2)})], {"block": "highway"})


def check(record: dict) -> list[Claim]:
    """The claims of a record: of a sweep, or of one depth, whose gates are looked at.
    """
    depths = {row["depth"] for row in record["summary"]}
    return check_sweep(record) if len(depths) > 1 else check_gates(record)
