"""What the papers say of the inside of trained nets, judged by several nets of a kind.

Where a paper gives no threshold, we chose the limit. Half of it and twice of it make
sense, too: it is a factor, points or blocks. Where a share must be most of something,
the limit is 1 for the odds, share / (1 - share). The limits for MNIST were fixed before
all nets but those of seed 0. For harder data, the limits and the rules by which its
nets are chosen were fixed before these nets were trained. At that time the numbers of
earlier nets, for CIFAR-10 from JPEG images, were known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import ge, gt, lt
from typing import Any

import numpy as np

import highway_networks as hn
from experiments.lab import Claim
from experiments.lab.judging import agreed, ahead, over_nets

Nets = Mapping[str, Sequence[Mapping]]
Passes = Callable[[Any, float], bool]       # (what is known of a net, limit) -> verdict
STATES = ("trained", "untrained")
OTHER_REGIME = "another regime"


def odds(share: float) -> float:
    """The odds of a share: how many times as much lies in it as outside it."""
    return share / (1 - share) if share < 1 else float("inf")


def mostly(share: float, limit: float) -> bool:
    """Whether a share is more than half of all, by its odds."""
    return odds(share) > limit


def about(nets: Sequence[Mapping], values: Sequence,
          passes: Passes, **more: Any) -> dict:
    """A number of each net -> fields of a claim. Its verdict is what all nets agree on.
    A number may be {"trained": number, and those of its controls}. What one of the
    controls passes as well has not been learned."""
    each = [value if isinstance(value, Mapping) else {"trained": value}
            for value in values]
    if "ours" not in more:
        numbers = over_nets([{state: hn.significant(number)
                              for state, number in value.items()} for value in each])
        more["ours"] = numbers["trained"] if len(each[0]) == 1 else numbers

    def test(limit):
        return agreed(bool(passes(value["trained"], limit)) for value in each)

    def control(limit):
        return any(passes(number, limit) for value in each
                   for state, number in value.items() if state != "trained")
    return {"rows": nets, "n": len(nets), "test": test,
            "control": control if len(each[0]) > 1 else None, **more}


def in_both(nets: Sequence[Mapping], of: Callable[[Mapping, str], Any]) -> list[dict]:
    """A number of each net, after and before training."""
    return [{state: of(net, state) for state in STATES} for net in nets]


def beside_plain(nets: Nets, block: str, of: Callable[[Mapping, str], Any]
                 ) -> list[dict]:
    """The same, and the number of the trained plain net of the same seed."""
    return [{state: of(net, state) for state in STATES} | {
        "plain": of(plain, "trained")}
        for net, plain in zip(nets[block], nets["plain"], strict=True)]


def factors(net: Mapping) -> np.ndarray:
    """The factor by which the loss rises if one block is closed, of each block (L,)."""
    return np.array(net["one_closed"]["loss"]) / net["loss"]


def rises(net: Mapping) -> np.ndarray:
    """By how much the training error rises if one block is closed, of each (L,)."""
    return np.array(net["one_closed"]["error"]) - net["error"]


# --------------------------------------------------------------------------------------
# P1, sections 4 and 4.1: gates


def claims_on_gates(nets: Nets, plan: dict) -> list[Claim]:
    """Biases and sparsity of T, and whether it tells the class."""
    gated, closed = nets["highway"], plan["measures"]["closed"]

    def share(of):
        return lambda net, state: float(np.mean(net["sparsity"][state][of]))

    def sparser(net):
        gaps = [net["sparsity"][state]["hoyer_per_example"]
                - net["sparsity"][state]["hoyer_of_mean"] for state in STATES]
        return gaps[0] / gaps[1]

    def gain(net):
        return 100 * min(told["trained"] - told["untrained"]
                         for values, told in net["told"].items() if values[0] == "T")
    return [
        Claim(name="biases-fall", source="P1 4", text="most transform biases fall "
              "during training. The fall is small beside their start, -2",
              paper="> 0.5", limit=1, **about(
                  gated, [net["bias"]["fell"] for net in gated], mostly,
                  ours={name: over_nets([net["bias"][name] for net in gated])
                        for name in ("fell", "mean_change")})),
        Claim(name="gates-sparse", source="P1 4", text="T of a single example is very "
              "sparse, though less so on MNIST than on CIFAR-100. Ours is the share of "
              f"gates below {closed}; these gates start at 0.12",
              paper="Figure 2, without a number",
              rows=gated, n=len(gated), test=None, why="no number of theirs",
              ours=over_nets(in_both(gated, share("closed_per_example")))),
        Claim(name="gates-active", source="P1 4.1", text="most gates are active on "
              f"average: fewer than half have a mean T below {closed}. P1 says it "
              "above all of CIFAR-100", paper="< 0.5", limit=1, **about(
                  gated, in_both(gated, share("closed_of_mean")),
                  lambda found, limit: odds(found) < limit)),
        Claim(name="gates-selective", source="P1 4.1", text="T of a single example is "
              "sparser than the mean T, by more than twice as much as before training "
              "(Hoyer's measure). A mean is always less sparse, and only the "
              "difference to the untrained net counts", paper="very selective", limit=2,
              **about(gated, [sparser(net) for net in gated], gt)),
        Claim(name="gates-tell-class", source="P1 4.1", text="the gates differ by "
              "class: each readout from T alone finds the class of more test images "
              "than before training, by more than one percentage point. It finds no "
              "more than a readout from the block outputs", paper="clear", limit=1,
              **about(
                  gated, [gain(net) for net in gated], gt,
                  ours=over_nets([net["told"] for net in gated])))]


def claims_on_depth(nets: Nets, plan: dict) -> list[Claim]:
    """Where outputs and gates change, and the stripes between."""
    gated, early, how = nets["highway"], plan["early"], plan["measures"]

    def change(net, state):
        return float(np.sum(net["change"][state][:early]) / np.sum(
            net["change"][state]))

    def classes(net, state):
        return min(float(np.sum(shares[:early]))
                   for shares in net["differences"][state].values())

    stripes = beside_plain(nets, "highway", lambda net, state: dict(
        zip(how["within"], net["still"][state], strict=True)))
    within = how["within"][1]           # between its half and its double
    return [
        Claim(name="early-change", source="P1 4", text="most of the change of the "
              f"block outputs happens in the first {early} blocks, in the mean over "
              "all images", paper="> 0.5", limit=1,
              **about(gated, in_both(gated, change), mostly)),
        Claim(name="stripes", source="P1 4", text="most outputs stay constant over "
              f"many blocks and show as stripes: they move by less than {within} in "
              f"{how['apart']} blocks", paper="most", limit=within, **about(
                  gated, stripes, lambda shares, within: shares[within] > 0.5,
                  ours=over_nets([{state: shares[within] for state, shares
                                   in net.items()} for net in stripes]))),
        Claim(name="class-differences-early", source="P1 4.1", text="most of the "
              "squared differences of mean T between classes lie in the first "
              f"{early} blocks. This is so for the paper's two classes and for all "
              "classes", paper="> 0.5", limit=1,
              **about(gated, in_both(gated, classes), mostly))]


def claims_on_routing(nets: Nets) -> list[Claim]:
    """Whether it matters that T depends on the image."""
    gated = nets["highway"]

    def factor(net, way, where):
        return net["rerouted"][way][where][0] / net["loss"]

    def both(found, way, where):
        return {"factor": over_nets([factor(net, way, where) for net in found]),
                "error": over_nets([net["rerouted"][way][where][1] for net in found])}

    def static(name, block, where, text, source="ours", paper=None):
        found = nets[block]
        return Claim(name=name, source=source, paper=paper, limit=10, text=f"{text} "
                     "is held at its mean over the images, the loss rises more than "
                     "tenfold", **about(found, [
                         factor(net, "mean of all", where) for net in found], gt,
                         ours=both(found, "mean of all", where)))

    def by_class(name, way, text):
        return Claim(name=name, source="ours", text=f"routing goes by class: {text}, "
                     "the error rises by less than 5 points. This T gives the class "
                     "away", limit=5, **about(gated, [
                         100 * (net["rerouted"][way]["all"][1] - net["error"])
                         for net in gated], lt, ours=both(gated, way, "all")))
    return [
        static("routing-not-static", "highway", "all", "routing depends on the "
               "image: if T of every block", source="P1 4.1",
               paper="an important part of the computation"),
        static("early-routing-not-static", "highway", "1 to 15", "if T of the first 15 "
               "blocks"),
        static("late-routing-not-static", "highway", "16 to 49", "if T of the blocks "
               "after the 15th"),
        static("t-only-routing-not-static", "t_only", "all", "in T-only nets, if T of "
               "every block"),
        by_class("routing-by-class", "mean of its class",
                 "if T is held at its mean over the images of the same class"),
        by_class("routing-like-its-class", "of its class",
                 "with T of another image of the same class")]


# --------------------------------------------------------------------------------------
# P1, section 4.2, and P2, sections 2 and 4.4: lesions and shuffles


def claims_on_lesions(nets: Sequence[Mapping], plan: dict) -> list[Claim]:
    """Highway nets with one block closed. plan["idle"]: the first and the last of the
    blocks that P1 found to be idle."""
    first, last = plan["idle"]

    def least(stop):
        return about(nets, [factors(net)[:stop].min() for net in nets], ge)

    def spared(rise):
        return [float((factors(net) < 1 + rise).mean()) for net in nets]
    return [
        Claim(name="early-blocks-matter", source="P1 4.2", text="each of the blocks "
              f"before block {first} matters significantly: closing it raises the loss "
              "at least tenfold. Ours is the factor of the block that matters least",
              paper="significantly", limit=10, **least(first - 1)),
        *(Claim(name=f"first-blocks-{word}", source="ours", text="each of the first "
                f"{plan['first']} blocks raises the loss at least {word} if it is "
                "closed", limit=times, **least(plan["first"]))
          for word, times in (("tenfold", 10), ("hundredfold", 100))),
        Claim(name="idle-blocks", source="P1 4.2", text=f"closing one of blocks {first}"
              f" to {last} has close to no effect: the loss at most doubles. Ours is "
              "the largest rise of the loss among these blocks, in units of the loss",
              paper="close to none", limit=1, **about(
                  nets, [factors(net)[first - 1:last].max() - 1 for net in nets], lt)),
        Claim(name="spared-blocks", source="P1 4.2", text="about 60 % of the blocks "
              "can be closed, one at a time, without doubling the loss; here: more "
              "than half", paper=0.6, rows=nets, n=len(nets), ours={
                  f"at {1 + rise:g} times": over_nets(spared(rise))
                  for rise in (0.25, 0.5, 1, 2)}, limit=1,
              test=lambda rise: agreed(share > 0.5 for share in spared(rise)))]


def largest_rise(net: Mapping) -> float:
    """The most points by which the training error rises with one block closed."""
    return 100 * rises(net).max()


def claims_on_plain_and_residual(nets: Nets) -> list[Claim]:
    """The error of plain and residual nets with one block closed. What P2 says of a VGG
    of 15 layers and of a ResNet stays open, because ours are perceptrons."""
    plain, gentlest = nets["plain"], [min(net["one_closed"]["error"])
                                      for net in nets["plain"]]
    return [
        Claim(name="plain-destroyed", source="ours", text="every block of a plain "
              "net is needed: if any one is closed, more than half of the answers are "
              "wrong", limit=1, **about(plain, gentlest, mostly)),
        Claim(name="vgg-guesses", source="P2 2", text="a VGG of 15 layers errs on "
              "about 90 % of the images if any one layer is left out, like guessing. "
              "Ours is the least error of plain perceptrons with one block closed",
              paper="about 0.9", rows=plain, n=len(plain), test=None,
              why=OTHER_REGIME, ours=over_nets(gentlest)),
        Claim(name="resnet-hardly-hurt", source="P2 2", text="a ResNet performs only a "
              "little worse if any one layer is left out. Ours is the largest rise of "
              "the error of residual perceptrons, in points", paper="a minor drop",
              rows=nets["residual"], n=len(nets["residual"]), test=None,
              why=OTHER_REGIME, ours=over_nets([
                  largest_rise(net) for net in nets["residual"]]))]


def claims_on_kinds(nets: Nets) -> list[Claim]:
    """The error of each kind of net with one block closed."""
    def worst(block):
        return [max(net["one_closed"]["error"]) for net in nets[block]]

    def thirds(block):
        return [hn.significant(np.median(factors(net)[:len(factors(net)) // 3])
                               / np.median(factors(net)[-(len(factors(net)) // 3):]))
                for net in nets[block]]
    claims = claims_on_plain_and_residual(nets)
    for block, source in (("highway", "P2 2"), ("residual", "ours")):
        claims += [
            Claim(name=f"{block}-survives", source=source, text=f"{block} nets stay "
                  "far better than guessing if any one block is closed: fewer than "
                  "half of their answers are wrong", limit=1, paper="far superior"
                  if source != "ours" else None, **about(
                      nets[block], worst(block),
                      lambda error, limit: odds(error) < limit)),
            Claim(name=f"{block}-early-matter", source=source, text=f"the loss of "
                  f"{block} nets rises more if an early block is closed than if a late "
                  "one is. Ours is the median factor of the first third of the blocks "
                  "over that of the last third", limit=1,
                  paper="> 1" if source != "ours" else None,
                  **about(nets[block], thirds(block), gt))]
    return [*claims, Claim(
        name="highway-hardly-hurt", source="P2 2", text="highway nets perform only a "
        "little worse if any one block is closed: their error rises by less than 5 "
        "points", paper="a minor drop", limit=5,
        **about(nets["highway"], [largest_rise(net) for net in nets["highway"]], lt))]


def rank_correlation(values: Sequence[float]) -> float:
    """Spearman's rank correlation of a series with its index. Equal values share the
    mean of their ranks. For a constant series it is not defined, and we take 0."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - counts / 2)[place]
    if len(counts) == 1:
        return 0.0
    return hn.significant(np.corrcoef(ranks, np.arange(len(ranks)))[0, 1])


def largest_step(values: Sequence[float]) -> float:
    """The largest rise between neighbours, as a share of that from first to last."""
    rise = values[-1] - values[0]
    return hn.significant(np.diff(values).max() / rise) if rise > 0 else 1.0


def smoothness(net: Mapping) -> dict:
    """How the error grows as the blocks are shuffled further and further."""
    error = np.mean(net["shuffled"]["error"], axis=0)
    return {"rank_correlation": rank_correlation(error),
            "largest_step": largest_step(error),
            "first_rise": hn.significant(error[0] - net["shuffled"]["before"])}


def claims_on_shuffling(nets: Nets) -> list[Claim]:
    """Layers may change places: P2 reports this of a ResNet, and expects it of any net
    that refines one representation."""
    found = {block: [smoothness(net) for net in nets[block]]
             for block in ("highway", "residual")}

    def smooth(block):
        return lambda percent: agreed(
            each["rank_correlation"] > 1 - percent / 100
            and each["largest_step"] < 5 * percent / 100
            and each["first_rise"] < percent / 100 for each in found[block])

    def about_block(block):
        return {"rows": nets[block], "n": len(nets[block]),
                "ours": over_nets(found[block])}
    return [*(Claim(
        name=f"{block}-shuffle", source=source, paper=paper, text=f"the error of "
        f"{block} nets grows smoothly when their blocks are shuffled further, and "
        "little when blocks only change places with a neighbour. Smooth means a rank "
        "correlation above 0.9 and no step above half of the whole rise; little means "
        "a first rise below 0.1", limit=10, test=smooth(block),
        **about_block(block)) for block, source, paper in (
            ("highway", "P2 4.4", "interchangeable to a certain degree"),
            ("residual", "ours", None))),
        Claim(name="resnet-shuffle", source="P2 2", text="the error of a ResNet-110 "
              "rises smoothly when layers are shuffled within a stage. Ours are "
              "residual perceptrons", paper="smoothly", test=None, why=OTHER_REGIME,
              **about_block("residual"))]


# --------------------------------------------------------------------------------------
# P2, sections 3 and 4: estimation


def mean_by_std(found: Mapping) -> float:
    """The largest absolute mean of the estimation error over all k < L, in units of its
    standard deviation at the same k."""
    mean, std = (np.abs(found[part][:-1]) for part in ("mean", "std"))
    return hn.significant((mean / std).max())


def claims_on_estimation(nets: Nets, block: str) -> list[Claim]:
    """The estimation error, compared with that before training and of plain nets."""
    def compared(of, passes=lt):
        return about(nets[block], beside_plain(nets, block, of), passes)

    def error(of):
        return lambda net, state: of(net["estimation"][state])
    return [
        Claim(name=f"{block}-error-shrinks", source="P2 4.2", text=f"in {block} nets "
              "the standard deviation of the estimation error a_k - A falls from block "
              "to block: its rank correlation with k is below -0.9", paper="decreases",
              limit=0.1, **compared(
                  error(lambda found: rank_correlation(found["std"][:-1])),
                  lambda value, limit: value < limit - 1)),
        Claim(name=f"{block}-error-mean", source="P2 4.2", text=f"in {block} nets the "
              "mean of the estimation error a_k - A over images and units stays below "
              "a tenth of its standard deviation at every k", paper="close to zero",
              limit=0.1, **compared(error(mean_by_std))),
        Claim(name=f"{block}-error-bias", source="P2 Eq. 1", text=f"in {block} nets "
              "the estimation error a_k - A of each unit has a mean near zero: less "
              "than a tenth of the squared error is bias, at every k", paper="0",
              limit=0.1, **compared(error(lambda found: max(found["bias_share"])))),
        Claim(name=f"{block}-step-bias", source="P2 Eq. 9" if block == "residual" else
              "P2 Eq. 7", text=f"in {block} nets each unit's step a_k - a_(k-1) "
              "has a mean of zero: less than a tenth of its square is bias, in every "
              "block", paper="0", limit=0.1,
              **compared(lambda net, state: max(net["steps_bias"][state])))]


def claims_on_mixing(nets: Sequence[Mapping]) -> list[Claim]:
    """Whether T is the mixing of least variance."""
    return [
        Claim(name="best-mixing", source="P2 Eqs. 10-12", text="in highway nets T "
              "mixes H and x as the estimate of least variance does: over the gates of "
              "all blocks but the last, the rank correlation of mean T with alpha_1 / "
              "(alpha_1 + alpha_2) is above 0.5", paper="equal", limit=0.5, **about(
                  nets, in_both(nets, lambda net, state: net["mixing"][state][
                      "rank_correlation"]), lambda value, limit: value > 1 - limit,
                  ours=over_nets([net["mixing"] for net in nets]))),
        Claim(name="resnet50-error-mean", source="P2 4.2", text="the mean estimation "
              "error of a ResNet-50 is near zero in stages 1 to 3, but not in stage 4",
              paper="Figure 3", ours=None, rows=(), test=None,
              why="needs ImageNet and a trained ResNet-50")]


# --------------------------------------------------------------------------------------
# P1, section 4: harder data


def matter(net: Mapping, points: float) -> int:
    """How many blocks raise the training error by more than so many points if closed,
    one at a time."""
    return int((rises(net) > points / 100).sum())


def double(net: Mapping, rise: float) -> int:
    """How many blocks raise the loss by more than so many times itself if closed, one
    at a time."""
    return int((factors(net) > 1 + rise).sum())


def late_change(net: Mapping, early: float) -> float:
    """The share of the change of the outputs that happens after the early blocks."""
    steps = np.array(net["change"]["trained"])
    return hn.significant(steps[int(early):].sum() / steps.sum())


def needed(net: Mapping, points: float) -> int:
    """The smallest k for which the first k blocks alone, and all larger k, err on at
    most so many points more of the images than the whole net."""
    off = np.flatnonzero(np.array(net["first_only"]["error"])
                         > net["error"] + points / 100)
    return int(off.max(initial=-1)) + 1


def nets_at(found: Mapping, rule: str) -> list[Mapping]:
    """The nets of a data set at the learning rate that a rule chose: "fitted" by the
    lowest training error, "held_out" by the best accuracy on held-out images."""
    (nets,) = (row["nets"] for row in found["rates"] if row["lr"] == found[rule])
    return nets


def easy_nets(record: dict, rule: str) -> list[Mapping]:
    """MNIST's highway nets at the rate that a rule chose. Where MNIST is not among the
    harder data, they are the nets that all other claims are about."""
    easy = record["harder"].get(record["plan"]["harder"]["easy"])
    return nets_at(easy, rule) if easy else record["nets"]["highway"]


def sparsity(net: Mapping, _: None) -> float:
    """Hoyer's measure of the T of one image, mean over images."""
    return net["sparsity"]["trained"]["hoyer_per_example"]


def claims_on_harder(record: dict, data: str) -> list[Claim]:
    """Whether harder data use more blocks than MNIST, by several measures. P1 chose its
    nets by their training error. Its own sentences are therefore asked of the nets at
    the rate with the lowest training error."""
    title, early = hn.DATASETS[data].title, record["plan"]["early"]
    costs = "more blocks matter than on MNIST: closing one costs more than half a point"
    needs = ("a net needs more of its first blocks than on MNIST: with these alone it "
             "errs on at most one point more of the images than the whole net")

    def claim(name, rule, text, of, limit=None, source="ours", paper=None):
        nets, easy = nets_at(record["harder"][data], rule), easy_nets(record, rule)

        def numbers(nets, limit):
            return [of(net, limit) for net in nets]
        words = {"fitted": "the lowest training error",
                 "held_out": "the best accuracy on held-out images"}[rule]
        if data != "cifar100":
            source, paper = "ours", None
        return Claim(name=f"{name}-{data}", source=source, paper=paper,
                     text=f"on {title}, {text}. On both data sets, the learning rate "
                     f"is the one with {words}", limit=limit,
                     n=[len(nets), len(easy)], rows=[*nets, *easy],
                     ours={title: numbers(nets, limit), "MNIST": numbers(easy, limit)},
                     test=lambda limit=limit: ahead(numbers(nets, limit),
                                                    numbers(easy, limit)))
    nets = nets_at(record["harder"][data], "fitted")
    inside = claims_on_cifar100(nets, record["plan"]) if data == "cifar100" else []
    plain = ([claim_on_plain(record, data, nets)] if data in record["harder_plain"]
             else [])
    return [
        claim("more-blocks-matter", "fitted", f"{costs} of training error", matter, 0.5,
              "P1 4.2", "about 40 of CIFAR-100, 15 of MNIST"),
        claim("change-later", "fitted", "outputs change later than on MNIST: a larger "
              f"share of the change happens after block {early}", late_change, early,
              "P1 4", "40 layers, MNIST 15"),
        claim("sparser", "fitted", "T of a single example is sparser than on MNIST, by "
              "Hoyer's measure", sparsity, None, "P1 4", "most in CIFAR-100"),
        claim("more-blocks-matter-held-out", "held_out", f"{costs} of training error",
              matter, 0.5),
        claim("more-blocks-double", "fitted", "closing one block more than doubles "
              "the loss for more blocks than on MNIST", double, 1),
        claim("more-blocks-needed", "fitted", needs, needed, 1),
        *plain, *inside]


def claim_on_plain(record: dict, data: str, nets: Sequence[Mapping]) -> Claim:
    """Training errors of highway nets and of plain nets of equal depth."""
    plain = record["harder_plain"][data]["nets"]
    errors = {name: [net["error"] for net in found]
              for name, found in (("highway", nets), ("plain", plain))}
    return Claim(name=f"plain-fits-worse-{data}", source="ours", text="on "
                 f"{hn.DATASETS[data].title}, highway nets end with a lower training "
                 "error than plain nets of equal depth", ours=errors,
                 rows=[*nets, *plain], n=[len(nets), len(plain)],
                 test=lambda: ahead(errors["plain"], errors["highway"]))


def claims_on_cifar100(nets: Sequence[Mapping], plan: dict) -> list[Claim]:
    """What P1 says of the inside of its net for CIFAR-100."""
    first, early = plan["harder"]["changing"], plan["early"]

    def claim(name, section, text, paper, limit, values, passes):
        return Claim(name=f"{name}-cifar100", source=f"P1 {section}",
                     text=f"on CIFAR-100, {text}", paper=paper,
                     **about(nets, values, passes, limit=limit))

    def change(net, state):
        steps = np.array(net["change"][state])
        return 100 * (1 - steps[:first].sum() / steps.sum())

    def classes(net, state):
        return max(float(np.sum(shares[:early]))
                   for shares in net["differences"][state].values())
    bias = [net["bias"] for net in nets]
    return [
        claim("biases-fall", "4", "most transform biases fall during training", "> 0.5",
              1, [each["fell"] for each in bias], mostly),
        claim("bias-rises-with-depth", "4", "b_T rises with depth: the mean b_T of a "
              "block and the block's number have a correlation above 0.5",
              "forming a gradient", 0.5, [each["with_depth"] for each in bias],
              lambda value, limit: value > 1 - limit),
        claim("bias-against-activity", "4", "b_T is inversely correlated with the "
              "activity of the gates: the mean b_T and the mean T of a block have a "
              "correlation below -0.5", "inversely", 0.5,
              [each["with_activity"] for each in bias],
              lambda value, limit: value < limit - 1),
        claim("change-within-first", "4", "outputs change within the first "
              f"{first} blocks: less than 10 % of the change happens after them. Ours "
              "is this share in %", "about 40", 10, in_both(nets, change), lt),
        claim("class-differences-spread", "4.1", "differences of mean T between "
              "classes lie in all blocks: less than half of their squares lie in the "
              f"first {early}. This is so for the paper's two classes and for all "
              "classes. P1 also calls them sparser than on MNIST; it says this of a "
              "picture, and we do not test it", "all layers", 1, in_both(nets, classes),
              lambda share, limit: odds(share) < limit),
        claim("each-of-first-matters", "4.2", f"each of the first {first} blocks "
              "matters: closing it costs at least half a point of training error. Ours "
              "is the least cost, in points", "noticeably", 0.5,
              [100 * rises(net)[:first].min() for net in nets], ge)]


def claims(record: dict) -> list[Claim]:
    """All claims of a record."""
    nets, plan = record["nets"], record["plan"]
    harder = [data for data in record["harder"] if data != plan["harder"]["easy"]]
    return [*claims_on_gates(nets, plan), *claims_on_depth(nets, plan),
            *claims_on_routing(nets), *claims_on_lesions(nets["highway"], plan),
            *claims_on_kinds(nets), *claims_on_shuffling(nets),
            *(item for block in ("highway", "residual")
              for item in claims_on_estimation(nets, block)),
            *claims_on_mixing(nets["highway"]),
            *(item for data in harder for item in claims_on_harder(record, data))]
