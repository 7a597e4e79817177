"""What the papers say of the inside of trained nets, judged by several nets of a kind.

`check_claims` reads the record of five_nets.py. Where a paper gives no threshold, the
one below is ours, and a verdict is also given at half and at twice the threshold: of a
share, of its distance from 0 or 1; of a factor, as of what it rises by.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import ge, gt, lt
from typing import Any

import numpy as np

import highway_networks as hn
from experiments.judging import (
    Claim,
    agreed,
    at_each,
    claim,
    over_nets,
    resting_on,
    telling,
)
from experiments.lesion import (
    largest_bias,
    largest_step,
    mean_by_std,
    rank_correlation,
    std_by_block,
)

Nets = dict[str, list[dict]]
MORE = (0.25, 0.5, 0.75)        # a share above half of something
RISE = (5.0, 10.0, 20.0)        # a loss that rises tenfold


def judged(values: list[dict], test: Callable[[float, float], bool],
           thresholds: tuple[float, float, float]) -> dict:
    """Values of each net, {"trained": value, and those of its controls} -> the fields
    of a claim: numbers, n, verdict, and the verdict at half and twice the threshold."""
    def verdict(limit):
        return agreed(telling(test(value["trained"], limit), any(
            test(other, limit) for state, other in value.items() if state != "trained"))
            for value in values)
    found, numbers = at_each(verdict, thresholds), over_nets(values)
    alone = found["holds"] is None and all(test(value["trained"], thresholds[1])
                                           for value in values)
    return {"ours": numbers["trained"] if len(numbers) == 1 else numbers,
            "n": len(values), "why": "as true without" if alone else None, **found}


def trained(nets: list[dict], of: Callable[[dict], float]) -> list[dict]:
    """A value of each net that has no control."""
    return [{"trained": hn.significant(of(net))} for net in nets]


def beside(nets: Nets, block: str, of: Callable[[dict], dict[str, Any]],
           value: Callable[[Any], float]) -> list[dict]:
    """A value of each net of a block, after and before training, and of the trained
    plain net of its seed."""
    return [{"trained": value(of(net)["trained"]), "untrained": value(
        of(net)["untrained"]), "plain": value(of(plain)["trained"])}
        for net, plain in zip(nets[block], nets["plain"], strict=True)]


def before_too(nets: list[dict], of: Callable[[dict, str], float]) -> list[dict]:
    """A value of each net, after and before training."""
    states = ("trained", "untrained")
    return [{state: hn.significant(of(net, state)) for state in states} for net in nets]


def speaking_of(block: str, *claims: dict) -> list[Claim]:
    """Claims that the nets of a block decide; plain nets beside them are a control."""
    return resting_on(claims, {"block": block})


def factors(net: dict) -> np.ndarray:
    """By how much the loss rises with each layer closed, (L,)."""
    return np.array(net["lesion"]["one_closed"]["loss"]) / net["lesion"]["loss"]


# --------------------------------------------------------------------------------------
# P1, section 4


def check_biases(nets: list[dict]) -> list[dict]:
    """What training does to b_T."""
    about = [net["gates"]["bias"] for net in nets]
    found = judged([{"trained": bias["fell"]} for bias in about], gt, MORE)
    ours = {"share": found.pop("ours")} | {
        name: over_nets([bias[name] for bias in about])
        for name in ("mean_change", "std_of_change", "moved_less_than_0.05")}
    correlations = [net["gates"]["bias_activity_correlation"] for net in nets]
    return [
        claim(section="P1 4", text="most transform biases fall during training (the "
              "fall is small beside their start, -2)", paper="> 0.5", ours=ours,
              **found),
        claim(section="P1 4", text="biases are inversely correlated with mean gate "
              "activity: said of CIFAR-100, ours is MNIST", paper="< 0",
              ours=over_nets(correlations), holds=None, n=len(nets), why="data")]


def check_sparsity(nets: list[dict], closed: float) -> list[dict]:
    """How sparse T is, for one image and on average."""
    def share(of):
        return lambda net, state: float(np.mean(
            net["gates"]["sparsity"][state][f"closed_{of}"]))

    def gap(net, state):
        found = net["gates"]["sparsity"][state]
        return found["hoyer_per_example"] - found["hoyer_of_mean"]
    sparser = [{"trained": hn.significant(gap(net, "trained") / gap(net, "untrained"))}
               for net in nets]
    return [
        claim(section="P1 4", text="T of a single example is very sparse, on MNIST to "
              f"a lesser extent: the share of gates below {closed} (theirs is a "
              "picture, and at 0.12, where these gates start, it would be another)",
              paper="Figure 2", ours=over_nets(before_too(nets, share("per_example"))),
              holds=None, n=len(nets), why="no number of theirs"),
        claim(section="P1 4.1", text="most gates are active on average, said above all "
              f"of CIFAR-100: fewer than half have a mean T below {closed}",
              paper="< 0.5", **judged(before_too(nets, share("of_mean")), lt, MORE)),
        claim(section="P1 4.1", text="T of a single example is sparser than the mean T "
              "(Hoyer; in this direction by construction, as a mean evens out): by "
              "more than twice as much as before training", paper="very selective",
              **judged(sparser, gt, (1, 2, 4)))]


def check_depth(nets: Nets, protocol: dict) -> list[dict]:
    """Where outputs and gates change, and the stripes between."""
    early, gated = protocol["early"], nets["highway"]
    within = protocol["measures"]["within"]

    def change(net, state):
        steps = np.array(net["gates"]["sparsity"][state]["change"])
        return steps[:early].sum() / steps.sum()

    def classes(net, state):
        suffix = "" if state == "trained" else "_untrained"
        shares = net["gates"]["difference_shares"]
        return min(float(np.sum(shares[f"share_of_layer{which}{suffix}"][:early]))
                   for which in ("", "_0_7"))

    def stripes(place):
        return judged(beside(nets, "highway", lambda net: net["still"],
                             lambda shares: shares[place]), gt, MORE)
    found = stripes(1)
    found["also"] = {f"{within[place]:g}": stripes(place)["holds"] for place in (0, 2)}
    return [
        claim(section="P1 4", text=f"most of the change in outputs is in the first "
              f"{early} layers, in the mean of all images", paper="> 0.5",
              **judged(before_too(gated, change), gt, MORE)),
        claim(section="P1 4", text="most outputs stay constant over many layers, a "
              "pattern of stripes: the share that moves by less than "
              f"{within[1]} in {protocol['measures']['apart']} layers",
              paper="most", **found),
        claim(section="P1 4.1", text="most of the squared class differences of mean T "
              f"are in the first {early} layers, for the paper's two classes and for "
              "all", paper="> 0.5", **judged(before_too(gated, classes), gt, MORE))]


def check_readouts(nets: list[dict]) -> dict:
    """Whether T tells the class."""
    told = [net["gates"]["told"] for net in nets]
    gains = [{"trained": hn.significant(min(
        found["trained"] - found["untrained"] for name, found in one.items()
        if name.startswith("T")))} for one in told]
    return claim(section="P1 4.1", text="the gates differ by class: each readout of T "
                 "tells the class of a point more of the test images than before "
                 "training (and no more than the block outputs do)",
                 paper="clear", **judged(gains, gt, (0.005, 0.01, 0.02))
                 | {"ours": over_nets(told)})


def check_routing(nets: Nets) -> list[Claim]:
    """Whether it matters that routing depends on the image."""
    gated, rows = nets["highway"], []

    def note(block, **fields):
        rows.extend(speaking_of(block, claim(**fields)))

    def factor(way, layers="all"):
        return lambda net: net["rerouted"][way][layers][0] / net["lesion"]["loss"]

    def error(way, layers="all"):
        return lambda net: net["rerouted"][way][layers][1]

    def rise(way):
        return lambda net: error(way)(net) - net["lesion"]["error"]

    def both(block, way, layers="all"):
        return {"factor": over_nets([hn.significant(factor(way, layers)(net))
                                     for net in nets[block]]),
                "error": over_nets([error(way, layers)(net) for net in nets[block]])}
    for layers, where in (("all", "all layers"), ("1 to 15", "the first 15 layers"),
                          ("16 to 49", "the layers after the 15th")):
        found = judged(trained(gated, factor("mean of all", layers)), gt, RISE)
        note("highway",
             section="P1 4.1" if layers == "all" else "ours", text="routing is not "
             f"static: with each T of {where} held at its mean over the images the "
             "loss rises more than tenfold", paper="an important part of the "
             "computation" if layers == "all" else None, **found | {
                 "ours": both("highway", "mean of all", layers)})
    found = judged(trained(nets["t_only"], factor("mean of all")), gt, RISE)
    note("t_only", section="ours", text="T-only nets: with each T held at its mean "
         "over the images the loss rises more than tenfold", paper=None,
         **found | {"ours": both("t_only", "mean of all")})
    for way, text in (("mean of its class", "each T held at its mean over the images "
                       "of the class"), ("of its class", "the T of another image of "
                                         "the class")):
        found = judged(trained(gated, rise(way)), lt, (0.025, 0.05, 0.1))
        note("highway", section="ours", text=f"routing goes by class: with {text}, "
             "which gives the class away, the error rises by less than 5 points",
             paper=None, **found | {"ours": both("highway", way)})
    return rows


# --------------------------------------------------------------------------------------
# P1, section 4.2, and P2, sections 2 and 4.4: lesions and shuffles


def check_lesions(nets: list[dict], protocol: dict) -> list[dict]:
    """One layer of a highway net closed; "idle": the first and the last of those that
    P1 found to be so, from 1."""
    first, last = protocol["idle"]

    def lowest(stop):
        return trained(nets, lambda net: factors(net)[:stop].min())
    limits = (1.5, 2.0, 3.0)
    spared = {limit: [hn.significant((factors(net) < limit).mean()) for net in nets]
              for limit in (1.25, *limits)}
    verdicts = {limit: agreed(share > 0.5 for share in spared[limit])
                for limit in limits}
    few = protocol["lesions"]["early"]
    return [
        claim(section="P1 4.2", text="closing any one of the early layers, those "
              f"before layer {first}, raises the loss significantly, at least tenfold: "
              "the factor of the layer that matters least", paper="significantly",
              **judged(lowest(first - 1), ge, RISE)),
        claim(section="ours", text=f"closing any one of the first {few} layers raises "
              "the loss at least tenfold", paper=None,
              **judged(lowest(few), ge, RISE)),
        claim(section="ours", text=f"closing any one of the first {few} layers raises "
              "the loss at least a hundredfold", paper=None,
              **judged(lowest(few), ge, (50, 100, 200))),
        claim(section="P1 4.2", text=f"closing one of layers {first} to {last} has "
              "close to no effect, at most a doubled loss: the factor of the layer "
              "that matters most", paper="close to none",
              **judged(trained(nets, lambda net: factors(net)[first - 1:last].max()),
                       lt, limits)),
        claim(section="P1 4.2", text="about 60 % of the layers, more than half, can "
              "be closed one at a time without doubling the loss", paper="0.6", ours={
                  ("at " if limit != 2 else "") + f"{limit:g} times": over_nets(found)
                  for limit, found in spared.items()}, n=len(nets),
              holds=verdicts[2.0], also={f"{limit:g} times": verdicts[limit]
                                         for limit in (1.5, 3.0)})]


def check_kinds(nets: Nets) -> list[Claim]:
    """The error of each kind of net without one layer."""
    def worst(net):
        return max(net["lesion"]["one_closed"]["error"])

    def gentlest(net):
        return min(net["lesion"]["one_closed"]["error"])
    claims = speaking_of(
        "plain",
        claim(section="P2 2", text="a plain net (theirs: a VGG of 15 layers) is "
              "destroyed without any one layer: its least error is above 0.5",
              paper="to almost chance", **judged(trained(nets["plain"], gentlest),
                                                 gt, MORE)),
        claim(section="P2 2", text="the error of a plain net (theirs: a VGG of 15 "
              "layers) without one layer is about 90 %, that of guessing, whichever "
              "the layer: at least 0.8",
              paper="about 0.9", **judged(trained(nets["plain"], gentlest), ge,
                                          (0.7, 0.8, 0.85))))
    for block in ("highway", "residual"):
        claims += speaking_of(
            block,
            claim(section="P2 2", text=f"{block} nets stay far better than guessing "
                  "without one layer, whichever: their largest error is below 0.5",
                  paper="far superior", **judged(trained(nets[block], worst), lt,
                                                 MORE)),
            claim(section="P2 2", text=f"{block} nets (theirs: convolutional) perform "
                  "only a little worse without one layer, whichever: their error rises "
                  "by less than 5 points", paper="a minor drop", **judged(trained(
                      nets[block], lambda net: worst(net) - net["lesion"]["error"]),
                      lt, (0.025, 0.05, 0.1))),
            claim(section="P2 2", text=f"the loss of {block} nets rises more without "
                  "one of the early layers: median factor of the first third over "
                  "that of the last", paper="> 1",
                  **judged(trained(nets[block], thirds), gt, (0.5, 1, 2))))
    return claims


def thirds(net: dict) -> float:
    """How much more the first layers matter than the last."""
    rise = factors(net)
    third = len(rise) // 3
    return float(np.median(rise[:third]) / np.median(rise[-third:]))


def smooth(net: dict) -> dict:
    """How the error grows as the layers are shuffled ever further."""
    error = np.mean(net["lesion"]["shuffled"]["error"], axis=0)
    return {"rank_correlation": rank_correlation(error),
            "largest_step": largest_step(error),
            "first_rise": hn.significant(error[0]
                                         - net["lesion"]["sampled"]["error"][0])}


def check_shuffling(nets: Nets, block: str) -> dict:
    """P2 reports of a ResNet, and expects of any net that refines one representation,
    that layers may change places."""
    def holds(scale):
        return agreed(found["rank_correlation"] > 1 - 0.1 * scale
                      and found["largest_step"] < 0.5 * scale
                      and found["first_rise"] < 0.1 * scale for found in ours)
    ours = [smooth(net) for net in nets[block]]
    section, theirs, paper = (
        ("P2 4.4", "", "interchangeable to a certain degree") if block == "highway" else
        ("P2 2", " (theirs: a ResNet-110)", "smoothly"))
    return claim(section=section,
                 text=f"{block}: the error grows smoothly with the amount of "
                 "shuffling, and little where layers only move to the next place"
                 f"{theirs}: rank correlation above 0.9, largest step below 0.5 of "
                 "all, first rise below 0.1", paper=paper,
                 ours=over_nets(ours), n=len(ours), holds=holds(1), also={
                     "half as far off": holds(0.5), "twice as far off": holds(2)})


# --------------------------------------------------------------------------------------
# P2, sections 3 and 4: estimation


def check_estimation(nets: Nets, block: str) -> list[dict]:
    """The estimation error, beside that before training and that of plain nets."""
    def found(net):
        return net["lesion"]["estimation"]
    tenth = (0.05, 0.1, 0.2)
    return [
        claim(section="P2 4.2", text=f"{block}: the standard deviation of a_k - A "
              "falls from block to block: rank correlation with k below -0.9",
              paper="decreases", **judged(beside(nets, block, found, std_by_block),
                                          lt, (-0.95, -0.9, -0.8))),
        claim(section="P2 4.2", text=f"{block}: the mean of a_k - A over images and "
              "units stays near zero, below a tenth of the standard deviation at every "
              "k", paper="close to zero",
              **judged(beside(nets, block, found, mean_by_std), lt, tenth)),
        claim(section="P2 Eq. 1", text=f"{block}: the mean of each unit's a_k - A is "
              "near zero: less than a tenth of the squared error is bias, at every k",
              paper="0", **judged(beside(nets, block, found, largest_bias), lt,
                                  tenth)),
        claim(section=f"P2 Eq. {9 if block == 'residual' else 7}",
              text=f"{block}: the mean of each unit's step F = a_k "
              "- a_(k-1) is zero: less than a tenth of its square is bias, in every "
              "layer", paper="0", **judged(beside(
                  nets, block, lambda net: net["steps_bias"], max), lt, tenth))]


def check_mixing(nets: list[dict]) -> dict:
    """Whether T is the mixing of least variance."""
    found = judged(before_too(nets, lambda net, state: net["mixing"][state][
        "rank_correlation"]), gt, MORE)
    return claim(section="P2 Eqs. 10-12", text="highway: T mixes H with its input as "
                 "the estimate of least variance does: rank correlation of mean T with "
                 "alpha_1 / (alpha_1 + alpha_2) over all gates above 0.5",
                 paper="equal", **found | {"ours": over_nets(
                     [net["mixing"] for net in nets])})


def check_claims(record: dict) -> list[Claim]:
    """All claims of a record."""
    nets, protocol = record["nets"], record["protocol"]
    gated, both = nets["highway"], ("highway", "residual")
    return [*speaking_of("highway", *check_biases(gated),
                         *check_sparsity(gated, protocol["measures"]["closed"]),
                         *check_depth(nets, protocol), check_readouts(gated)),
            *check_routing(nets),
            *speaking_of("highway", *check_lesions(gated, protocol)),
            *check_kinds(nets),
            *(item for block in both
              for item in speaking_of(block, check_shuffling(nets, block))),
            *(item for block in both
              for item in speaking_of(block, *check_estimation(nets, block))),
            *speaking_of("highway", check_mixing(gated))]
