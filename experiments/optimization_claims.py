"""What P1 says of Figure 1 (section 3.1), judged by a record of optimization.py.

The paper speaks of the best networks of each depth: so does each claim of its own here,
and what holds of every seed stands beside it as ours. A loss that is missed in fewer
epochs than the paper's is open, whichever net misses it and whoever would like it to;
a run that diverged has missed it for good. Where the paper gives no threshold, the one
below is ours, and a verdict is also given at half and at twice the threshold.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from experiments import judging
from experiments.judging import at_each, claim, listed, or_infinite
from experiments.lab.papers import FIGURE_1_EPOCHS

TARGET = 1e-4           # the loss that the paper's claim is about
COLLAPSED = 1.0         # a run that ends above this loss, and was below it, collapsed
TIMES = (5.0, 10.0, 20.0)       # a loss that is ten times another


def of(nets: list[dict], block: str, *depths: int) -> list[dict]:
    """The nets of a kind, of these depths."""
    return [net for net in nets if net["block"] == block and net["depth"] in depths]


def best_loss(net: dict) -> float:
    """The last loss of a net's best seed."""
    return float(or_infinite(net["best"]["final"]).min())


def reached(nets: list[dict], epochs: int, every: bool, target: float = TARGET
            ) -> bool | None:
    """Whether the best seed of each net, or every one, got below a loss. None where one
    did not that might with the paper's epochs: not one that diverged."""
    verdicts = []
    for net in nets:
        least, final = (or_infinite(net["best"][name]) for name in ("least", "final"))
        there = least < target
        enough = there.all() if every else there.any()
        lost = ~there & np.isinf(final)
        hopeless = epochs >= FIGURE_1_EPOCHS or (lost.any() if every else lost.all())
        verdicts.append(True if enough else False if hopeless else None)
    return judging.every(verdicts)


def missed(nets: list[dict], epochs: int, target: float = TARGET) -> bool | None:
    """Whether even the best seed of each net stays above a loss. None where one does
    that might not with the paper's epochs."""
    verdicts = [reached([net], epochs, every=False, target=target) for net in nets]
    if not nets or None in verdicts:
        return None
    return True not in verdicts


def loss_claims(nets: list[dict], epochs: int) -> list[dict]:
    """Which nets get below the paper's loss."""
    depths = sorted({net["depth"] for net in nets})
    highway, shallow, deep = (of(nets, "highway", *depths), of(nets, "plain", 10, 20),
                              of(nets, "plain", 50, 100))

    def least(found):
        return {f"{net['depth']} layers": [
            "diverged" if last is None else value for value, last in
            zip(net["best"]["least"], net["best"]["final"], strict=True)]
            for net in found}
    within = f"a loss below 1e-4, here within {epochs} epochs"
    like = "similar to 10 and 20 layers; plain: < 1e-4"
    rows: list[tuple[str, str, list[dict], Callable]] = []
    for section, every, who in (("P1 3.1", False, "their best runs"),
                                ("ours", True, "every seed")):
        rows += [(section, f"{text} reach {within}: {who}", found,
                  lambda target, found=found, every=every: reached(
                      found, epochs, every, target))
                 for text, found in (("plain nets of 10 and 20 layers", shallow),
                                     ("highway nets of all depths", highway))]
    rows.insert(2, ("P1 3.1", "plain nets of 50 and 100 layers do not reach "
                    f"{within}, not even their best runs", deep,
                    lambda target: missed(deep, epochs, target)))
    return [claim(section=section, text=text, paper=None if section == "ours" else
                  "> 1e-4" if found is deep else "< 1e-4" if found is shallow else like,
                  ours=least(found), n=seeds(nets), why="epochs",
                  younger=section != "ours",
                  **at_each(judge, (TARGET / 2, TARGET, 2 * TARGET)))
            for section, text, found, judge in rows]


def seeds(nets: list[dict]) -> int:
    """The seeds of the last rung."""
    return max(len(net["best"]["least"]) for net in nets)


def check_degrading(nets: list[dict], epochs: int) -> list[dict]:
    """How the end depends on depth, by the best runs of each net."""
    losses = {block: {net["depth"]: best_loss(net) for net in nets
                      if net["block"] == block} for block in ("plain", "highway")}

    def parted(block):
        return ([value for depth, value in losses[block].items() if depth <= 20],
                [value for depth, value in losses[block].items() if depth >= 50])

    def degrades(times):
        shallow, deep = parted("plain")
        return min(deep) > times * max(shallow) if shallow and deep else None

    def similar(times):
        shallow, deep = parted("highway")
        return (max(shallow + deep) < times * min(shallow + deep)
                if shallow and deep else None)

    def ours(block):
        return {f"{depth} layers": listed(value)
                for depth, value in sorted(losses[block].items())}
    return [
        claim(section="P1 3.1", text="the training loss of plain nets degrades with "
              "depth: that of 50 and 100 layers ends more than ten times above that of "
              f"10 and 20, here after {epochs} epochs: best runs",
              paper="significantly degrades",
              ours=ours("plain"), n=seeds(nets), younger=True,
              **at_each(degrades, TIMES)),
        claim(section="P1 3.1", text="highway nets of 50 and 100 layers perform like "
              "those of 10 and 20: the losses of their best runs are within a factor "
              "of ten", paper="similar", ours=ours("highway"), n=seeds(nets),
              younger=True, **at_each(similar, TIMES))]


def check_orders(highway: dict, plain: dict, n: int, epochs: int) -> dict:
    """By how much one net ends below another, in both ways of counting."""
    ends = {"best runs": [best_loss(net) for net in (plain, highway)],
            "medians of the seeds": [float(np.median(or_infinite(
                net["best"]["final"]))) for net in (plain, highway)]}
    with np.errstate(all="ignore"):      # infinite / infinite tells nothing
        orders = {name: float(np.log10(np.divide(pair[0], pair[1])))
                  for name, pair in ends.items()}

    def judge(limit):
        value = orders["best runs"]
        return None if np.isnan(value) else value > limit
    return claim(
        section="P1 3.1", text="the deepest highway net ends more than two orders of "
        f"magnitude below the deepest plain one, here after {epochs} epochs: best runs",
        paper="> 2", n=n, younger=True,
        ours={name: listed(value) for name, value in orders.items()},
        **at_each(judge, (1, 2, 4)))


def median_epochs(net: dict) -> float:
    """The seeds' median of the epochs to a loss of 0.01; "never" is infinite."""
    return float(np.median(or_infinite(net["best"]["epochs_to"]["0.01"])))


def check_speed(highway: list[dict], plain: list[dict], n: int) -> dict:
    """Whether highway nets converge in fewer epochs: nets of both kinds by depth."""
    pairs = {f"{net['depth']} layers": [median_epochs(net), median_epochs(other)]
             for net, other in zip(highway, plain, strict=True)}
    there = [pair for pair in pairs.values() if not np.isinf(pair).all()]

    def judge(times):
        return all(times * one < other for one, other in there) if there else None
    return claim(
        section="P1 3.1", text="highway nets need fewer epochs than plain ones to a "
        "loss of 0.01, at each depth where either gets there: medians of the seeds",
        paper="significantly faster",
        ours={depth: dict(zip(("highway", "plain"), listed(pair), strict=True))
              for depth, pair in pairs.items()}, n=n,
        holds=judge(1), also={"by a half": judge(1.5), "twice": judge(2)})


def check_ten(nets: list[dict], epochs: int) -> dict:
    """Figure 1, right: the mean of the ten best settings. One that diverged makes it
    infinite."""
    ends = {block: {net["depth"]: float(or_infinite(net["ten"]["mean"][-1]))
                    for net in nets if net["block"] == block}
            for block in ("highway", "plain")}
    low, high = min(ends["plain"]), max(ends["plain"])

    def judge(times):
        if low == high:
            return None
        with np.errstate(invalid="ignore"):
            worse = {block: found[high] / found[low] for block, found in ends.items()}
        return bool(worse["plain"] > times and worse["highway"] < times)
    return claim(
        section="P1 Fig. 1", text="right panel, mean loss of the ten best settings, "
        f"one seed each, here after {epochs} epochs: from the least depth to the "
        "largest it grows more than tenfold for plain nets and not for highway nets",
        paper="much harder; still optimized well", ours={block: {
            f"{depth} layers": "diverged" if np.isinf(value) else value
            for depth, value in found.items()} for block, found in ends.items()},
        n=1, younger=True, **at_each(judge, TIMES))


def check_collapses(nets: list[dict]) -> dict:
    """How many runs of the last rung were lost after they had trained, by net."""
    counts = {block: {f"{net['depth']} layers": int(np.count_nonzero(
        (or_infinite(net["best"]["least"]) < COLLAPSED)
        & (or_infinite(net["best"]["final"]) > COLLAPSED)))
        for net in nets if net["block"] == block} for block in ("highway", "plain")}
    deep = [count for depth, count in counts["plain"].items()
            if int(depth.split()[0]) >= 50]
    return claim(
        section="ours", text="deep plain nets collapse: at 50 and at 100 layers some "
        f"runs end above a loss of {COLLAPSED:g}, or diverge, after having been below "
        "it", paper=None, ours=counts, n=seeds(nets),
        younger=True, holds=all(count > 0 for count in deep) if deep else None)


def check_claims(record: dict) -> list[dict]:
    """The paper's statements about Figure 1, with our numbers and whether they hold."""
    nets, rungs = record["nets"], record["protocol"]["rungs"]
    depths = sorted({net["depth"] for net in nets})
    highway, plain = (of(nets, block, *depths) for block in ("highway", "plain"))
    return [*loss_claims(nets, rungs[-1][1]), *check_degrading(nets, rungs[-1][1]),
            check_orders(highway[-1], plain[-1], seeds(nets), rungs[-1][1]),
            check_speed(highway, plain, seeds(nets)), check_ten(nets, rungs[1][1]),
            check_collapses(nets)]
