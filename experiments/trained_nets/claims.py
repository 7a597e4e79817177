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
from dataclasses import replace
from functools import partial
from operator import ge, gt, lt
from typing import Any

import numpy as np

import highway_networks as hn
from experiments.lab import Claim
from experiments.lab.judging import agreed, ahead, listed, over_nets, verdict
from highway_suite.datasets import DATASETS

Nets = Mapping[str, Sequence[Mapping]]
Passes = tuple[Callable[[Any, float], bool], Callable[[float], str]]
STATES = ("trained", "untrained")


def odds(share: float) -> float:
    """The odds of a share: how many times as much lies in it as outside it."""
    return share / (1 - share) if share < 1 else float("inf")


SHARES = {0.5: "a third", 1: "half", 2: "two thirds"}       # by their odds
# What a number must be, and the limit as the sentence has it: a share more or less than
# half of all, by its odds; a correlation nearer to 1, or to -1, than the limit.
mostly: Passes = (lambda share, limit: odds(share) > limit, SHARES.__getitem__)
rarely: Passes = (lambda share, limit: odds(share) < limit, SHARES.__getitem__)
above: Passes = (lambda found, limit: found > 1 - limit, lambda limit: f"{1 - limit:g}")
below: Passes = (lambda found, limit: found < limit - 1, lambda limit: f"{limit - 1:g}")


def about(nets: Sequence[Mapping], values: Sequence, wanted: Passes | Callable,
          **more: Any) -> dict:
    """A number of each net -> fields of a claim. Its verdict is what all nets agree on.
    wanted: a test(number, limit), or one and how the sentence tells the limit.
    A number may be {"trained": number, and those of its controls}. What one of the
    controls passes as well has not been learned."""
    passes, told = wanted if isinstance(wanted, tuple) else (wanted, "{:g}".format)
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
    return {"rows": nets, "n": len(nets), "test": test, "told": told,
            "control": control if len(each[0]) > 1 else None, **more}


def in_both(nets: Sequence[Mapping], of: Callable[[Mapping, str], Any]) -> list[dict]:
    """A number of each net, after and before training."""
    return [{state: of(net, state) for state in STATES} for net in nets]


def beside_plain(nets: Nets, block: str, of: Callable[[Mapping, str], Any]
                 ) -> list[dict]:
    """The same, and the number of the trained plain net of the same seed."""
    return [found | {"plain": of(plain, "trained")} for found, plain in zip(
        in_both(nets[block], of), nets["plain"], strict=True)]


def factors(net: Mapping) -> np.ndarray:
    """The factor by which the loss rises if one block is closed, of each block (L,)."""
    return np.array(net["one_closed"]["loss"]) / net["loss"]


def rises(net: Mapping) -> np.ndarray:
    """By how many points the training error rises if one block is closed (L,)."""
    return 100 * (np.array(net["one_closed"]["error"]) - net["error"])


# --------------------------------------------------------------------------------------
# P1, sections 4 and 4.1: gates and outputs


def claims_on_gates(nets: Sequence[Mapping], plan: dict) -> list[Claim]:
    """Biases and sparsity of T, and whether it tells the class."""
    closed = plan["measures"]["closed"]

    def share(of):
        return in_both(nets, lambda net, state: np.mean(net["closed"][state][of]))

    def sparser(net):
        gaps = [net["sparsity"][state] - net["hoyer_of_mean"][state]
                for state in STATES]
        return gaps[0] / gaps[1]
    return [
        Claim(name="biases-fall", source="P1 4", text="most transform biases fall "
              "during training. The fall is small beside their start, -2",
              paper="> 0.5", limit=1, **about(
                  nets, [net["bias"]["fell"] for net in nets], mostly,
                  ours={"share": over_nets([net["bias"]["fell"] for net in nets]),
                        "mean fall": over_nets([net["mean_fall"] for net in nets])})),
        Claim(name="gates-sparse", source="P1 4", text="T of a single example is very "
              f"sparse. Ours is the share of gates below {closed}; they start at 0.12",
              paper="Figure 2, without a number", rows=nets, n=len(nets),
              ours=over_nets(share("per_example")), test=None,
              why="they give no number"),
        Claim(name="gates-active", source="P1 4.1", text="most gates are active on "
              f"average: fewer than half have a mean T below {closed}",
              paper="< 0.5", limit=1, **about(nets, share("of_mean"), rarely)),
        Claim(name="gates-selective", source="P1 4.1", text="T of a single example is "
              "sparser than the mean T, by Hoyer's measure. A mean is always less "
              "sparse, in untrained nets too. So ours is the difference in trained "
              "nets, divided by that in untrained ones: it must be above 2",
              paper="very selective", limit=2,
              **about(nets, [sparser(net) for net in nets], gt)),
        Claim(name="gates-tell-class", source="P1 4.1", text="the gates differ by "
              "class: training raises the share of test images whose T is nearest to "
              "the mean T of their own class, by more than one point",
              paper="clear", limit=1, **about(
                  nets, [100 * (net["told"]["trained"] - net["told"]["untrained"])
                         for net in nets], gt,
                  ours=over_nets([net["told"] for net in nets])))]


def claims_on_outputs(nets: Nets, plan: dict) -> list[Claim]:
    """Where outputs and gates change, and the stripes between."""
    gated, early, how = nets["highway"], plan["early"], plan["measures"]
    within = how["within"][1]           # between its half and its double

    def change(net, state):
        return sum(net["change"][state][:early]) / sum(net["change"][state])

    def classes(net, state):
        return min(sum(shares[:early]) for shares in net["differences"][state].values())
    stripes = beside_plain(nets, "highway", lambda net, state: dict(
        zip(how["within"], net["still"][state], strict=True)))
    return [
        Claim(name="early-change", source="P1 4", text="most of the change of the "
              f"block outputs happens in the first {early} blocks", paper="> 0.5",
              limit=1, **about(gated, in_both(gated, change), mostly)),
        Claim(name="stripes", source="P1 4", text="most outputs stay constant over "
              f"many blocks and show as stripes: they move by less than {within} in "
              f"{how['apart']} blocks", paper="most", limit=within, **about(
                  gated, stripes, lambda shares, within: shares[within] > 0.5,
                  ours=over_nets([{state: shares[within] for state, shares
                                   in net.items()} for net in stripes]))),
        Claim(name="class-differences-early", source="P1 4.1", text="most of the "
              "squared differences of mean T between classes lie in the first "
              f"{early} blocks, for the paper's two classes and "
              "for all classes. Ours is the smaller of the two shares",
              paper="> 0.5", limit=1, **about(gated, in_both(gated, classes), mostly))]


def claims_on_routing(nets: Sequence[Mapping], still: Sequence[Mapping]
                      ) -> list[Claim]:
    """Whether it matters that T depends on the image: to a net that was trained with
    such T, and to one that never had them."""
    def held(way):
        return [{"factor": net["held"][way][0] / net["loss"],
                 "error": net["held"][way][1]} for net in nets]
    return [
        Claim(name="routing-not-static", source="P1 4.1", text="routing depends on the "
              "image: if T of every block is held at its mean over all images, the "
              "loss rises more than tenfold", limit=10,
              paper="an important part of the computation", **about(
                  nets, [found["factor"] for found in held("all")], gt,
                  ours=over_nets(held("all")))),
        Claim(name="routing-by-class", text="routing goes by class: if "
              "T is held at its mean over the images of the same class, the error "
              "rises by less than 5 points. This T gives the class away", limit=5,
              **about(nets, [100 * (found["error"] - net["error"]) for found, net in
                             zip(held("its class"), nets, strict=True)], lt,
                      ours=over_nets(held("its class")))),
        Claim(name="still-gates-fit", text="a highway net whose T never depended on "
              "the image (W_T = 0, b_T is learned) fits its training images: its "
              "training error, in %, is below 1", limit=1, rows=still, n=len(still),
              ours=over_nets([{"error": net["error"], "test accuracy":
                               net["training"]["test_acc"][-1]} for net in still]),
              test=lambda limit: agreed(100 * net["error"] < limit for net in still)),
        Claim(name="moving-gates-ahead", text="highway nets are ahead of those whose T "
              "never depended on the image, by test accuracy", n=len(still),
              rows=[*nets, *still],
              ours={name: over_nets([net["training"]["test_acc"][-1] for net in found])
                    for name, found in (("T moves", nets), ("T does not", still))},
              test=lambda: ahead(*([net["training"]["test_acc"][-1] for net in found]
                                   for found in (nets, still))))]


# --------------------------------------------------------------------------------------
# P1, section 4.2, and P2, sections 2 and 4.4: lesions and shuffles


def claims_on_lesions(nets: Sequence[Mapping], idle: Sequence[int]) -> list[Claim]:
    """Highway nets with one block closed. idle: the first and the last of the blocks
    that P1 found to be idle."""
    first, last = idle

    def spared(rise):
        return [float((factors(net) < 1 + rise).mean()) for net in nets]

    def thirds(net):
        third = len(factors(net)) // 3
        return np.median(factors(net)[:third]) / np.median(factors(net)[-third:])
    return [
        Claim(name="early-blocks-matter", source="P1 4.2", text="each of the blocks "
              f"before block {first} matters: closing it raises the loss at least "
              "tenfold. Ours is the factor of the block that matters least",
              paper="significantly", limit=10, **about(
                  nets, [factors(net)[:first - 1].min() for net in nets], ge)),
        Claim(name="idle-blocks", source="P1 4.2", text=f"closing one of blocks {first}"
              f" to {last} has close to no effect: the loss at most doubles. Ours is "
              "the largest rise, as a multiple of the whole net's loss",
              paper="close to none", limit=1, **about(
                  nets, [factors(net)[first - 1:last].max() - 1 for net in nets], lt)),
        Claim(name="spared-blocks", source="P1 4.2", text="more than half of the "
              "blocks can be closed, one at a time, without doubling the loss",
              paper=0.6, rows=nets, n=len(nets), ours=over_nets(spared(1)),
              limit=1, test=lambda rise: agreed(share > 0.5 for share in spared(rise))),
        Claim(name="highway-hardly-hurt", source="P2 2", text="highway nets perform "
              "only a little worse if any one block is closed: their error rises by "
              "less than 5 points, the unit of ours", paper="a minor drop", limit=5,
              **about(nets, [rises(net).max() for net in nets], lt)),
        Claim(name="highway-early-matter", source="P2 2", text="the loss of highway "
              "nets rises more if an early block is closed than if a late one is. Ours "
              "is the median factor by which closing a block of the first third raises "
              "the loss, divided by that of the last third", limit=1, paper="> 1",
              **about(nets, [thirds(net) for net in nets], gt))]


def claim_on_plain(nets: Sequence[Mapping]) -> Claim:
    """The error of plain nets with one block closed."""
    return Claim(
        name="plain-destroyed", text="every block of a plain net is needed: if any one "
        "is closed, more than half of the answers are wrong", limit=1,
        **about(nets, [min(net["one_closed"]["error"]) for net in nets], mostly))


def rank_correlation(values: Sequence[float]) -> float:
    """Spearman's rank correlation of a series with its index. Equal values share the
    mean of their ranks. For a constant series it is not defined, and we take 0."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - counts / 2)[place]
    if len(counts) == 1:
        return 0.0
    return hn.significant(np.corrcoef(ranks, np.arange(len(ranks)))[0, 1])


def smoothness(net: Mapping) -> dict:
    """How the error grows as the blocks are shuffled further and further. The largest
    step between neighbours is a share of the rise from first to last."""
    error = np.mean(net["shuffled"]["error"], axis=0)
    rise = error[-1] - error[0]
    return {"rank_correlation": rank_correlation(error),
            "largest_step": hn.significant(np.diff(error).max() / rise)
            if rise > 0 else 1.0,
            "first_rise": hn.significant(error[0] - net["shuffled"]["before"])}


def is_smooth(found: Mapping, limit: float) -> bool:
    """Whether the error grows in order, in small steps, and little at first."""
    return (found["rank_correlation"] > 1 - limit
            and found["largest_step"] < 5 * limit and found["first_rise"] < limit)


def claim_on_shuffling(nets: Sequence[Mapping]) -> Claim:
    """Layers may change places: P2 reports this of a ResNet, and expects it of any net
    that refines one representation."""
    found = [smoothness(net) for net in nets]
    return Claim(
        name="highway-shuffle", source="P2 4.4", text="the error of highway nets grows "
        "smoothly when their blocks are shuffled further: its rank correlation with "
        "the distance is above 0.9, no step is above half of the whole rise, and the "
        "error grows by less than 0.1 when blocks only change places with a neighbour. "
        "The three limits follow from one number, 0.1: they are 1 - 0.1, 5 x 0.1 and "
        "0.1", paper="interchangeable to a certain degree", limit=0.1,
        **about(nets, [{"trained": each} for each in found], is_smooth,
                ours=over_nets(found)))


# --------------------------------------------------------------------------------------
# P2, sections 3 and 4: estimation


def claims_on_estimation(nets: Nets, block: str) -> list[Claim]:
    """The estimation error, compared with that before training and of plain nets."""
    def claim(name, source, text, paper, of, passes=lt):
        return Claim(name=f"{block}-{name}", source=source, paper=paper, limit=0.1,
                     text=f"in {block} nets {text}", **about(
                         nets[block], beside_plain(nets, block, of), passes))

    def error(of):
        return lambda net, state: of(net["estimation"][state])
    return [
        claim("error-shrinks", "P2 4.2", "the standard deviation of the estimation "
              "error a_k - A falls from block to block: its rank correlation with k is "
              "below -0.9", "decreases",
              error(lambda found: rank_correlation(found["std"][:-1])), below),
        claim("error-mean", "P2 4.2", "the mean of the estimation error over images "
              "and units is below a tenth of its standard deviation at every k",
              "close to zero", error(lambda found: np.max(np.divide(
                  np.abs(found["mean"][:-1]), found["std"][:-1])))),      # k < L
        claim("error-bias", "P2 Eq. 1", "the estimation error of each unit has a mean "
              "near zero: less than a tenth of the mean square error is bias, at every "
              "k", "0", error(lambda found: max(found["bias_share"]))),
        claim("step-bias", "P2 Eq. 9" if block == "residual" else "P2 Eq. 7",
              "each unit's step a_k - a_(k-1) has a mean of zero: less than a tenth "
              "of its mean square is bias, in every block", "0",
              lambda net, state: max(net["steps_bias"][state]))]


def claim_on_mixing(nets: Sequence[Mapping]) -> Claim:
    """Whether T is the mixing of least variance."""
    return Claim(
        name="best-mixing", source="P2 Eqs. 10-12", text="in highway nets T is near "
        "the weight that estimates A from H and x with the least variance: over the "
        "gates of all blocks but the last, the rank correlation of mean T with this "
        "weight is above 0.5", paper="equal", limit=0.5, **about(
            nets, in_both(nets, lambda net, state: net["mixing"][state]), above))


def claim_on_bound() -> Claim:
    """P2's bound in a case: independent x and H of these variances."""
    T, x, H = 0.5, 1.0, 100.0
    y = T ** 2 * H + (1 - T) ** 2 * x
    return Claim(
        name="mixing-bounds-variance", source="P2 4.1", text="positive mixing weights "
        "are enough that the variance of y = H T + x (1 - T) is at most that of x. "
        "Ours is a case that needs no net: the variances of independent x and H, and "
        f"of y with T = {T:g}", paper="less or equal", rows=(), n=None,
        ours={"x": x, "H": H, "y": y}, test=lambda: y <= x)


# --------------------------------------------------------------------------------------
# Ours: how many blocks work one after the other


METER = ("All blocks of a stage get the same input. Ours is the least number of stages "
         "that keeps 0.9, 0.95 or 0.99 of the answers to test images; 0.95 decides")


def staged(record: Mapping, **wanted: Any) -> list[Mapping]:
    """Rows of nets that ran in stages. But for what is wanted they are for MNIST, and
    have the depth, b_T and epochs of all nets."""
    plan = record["plan"]
    wanted = {"data": plan["dataset"], "epochs": plan["epochs"], **{
        name: plan["net"][name] for name in ("depth", "gate_bias")}} | wanted
    return [row for row in record["stages"]
            if all(row[name] == value for name, value in wanted.items())]


def least_stages(rows: Sequence[Mapping], state: str = "trained") -> list[int]:
    """The sequential depths of nets."""
    return [row["sequential_depth"][state]["0.95"] for row in rows]


def claims_on_stages(rows: Sequence[Mapping], which: str = "",
                     after_data: bool = True) -> list[Claim]:
    """Sequential depth, as a share of the blocks. Of a plain net nothing is asked: in a
    stage all its blocks but the last are lost. which: "quick ", of such nets."""
    def claim(block, text, passes):
        nets = [row for row in rows if row["block"] == block]
        shares = nets[0]["sequential_depth"]["trained"]
        return Claim(
            name=f"{which}{block}-sequential-depth".replace(" ", "-"), limit=1,
            after_data=after_data, text=f"most of the {nets[0]['tried'][-1]} blocks of "
            f"a {which}{block} net for MNIST {text}. {METER}", **about(
                nets, [{state: net["sequential_depth"][state]["0.95"]
                        / net["tried"][-1] for state in STATES} for net in nets],
                passes, ours={state: {share: [
                    net["sequential_depth"][state][share] for net in nets]
                    for share in shares} for state in STATES}))
    return [
        claim("highway", "may work side by side: to keep 95 % of its answers, the net "
              "needs fewer stages than half the number of its blocks", rarely),
        claim("residual", "must work one after the other: to keep 95 % of its answers, "
              "the net needs more stages than half the number of its blocks", mostly)]


def orders_of_stages(record: Mapping) -> list[Claim]:
    """Whose sequential depth is less. Untrained nets became the control when the
    numbers were known."""
    how = record["plan"]["stages"]
    easy, *harder = how["harder"]

    def order(name, text, more, fewer):
        found = {state: {kind: least_stages(nets, state)
                         for kind, nets in (more, fewer)}
                 for state in ("trained", "untrained")}

        def deeper(state):
            return lambda: ahead(found[state][more[0]], found[state][fewer[0]])
        return Claim(name=name, text=text, n=len(more[1]), ours=found, after_data=True,
                     rows=[*more[1], *fewer[1]], test=deeper("trained"),
                     control=deeper("untrained"))
    return [
        order("fewer-stages-highway", "highway nets have less sequential depth than "
              "residual nets, on MNIST", *(
                  (block, staged(record, block=block))
                  for block in ("residual", "highway"))),
        *(order(f"more-stages-{data}", f"highway nets for {DATASETS[data].title} have "
                "more sequential depth than those for MNIST, at equal b_T and epochs",
                *((DATASETS[name].title, staged(record, block="highway", data=name,
                                                gate_bias=how["gate_bias"]))
                  for name in (data, easy))) for data in harder)]


def claims_on_quick(rows: Sequence[Mapping]) -> list[Claim]:
    """Nets that train in seconds: whether T depends on the image, and stages."""
    nets = [row for row in rows if "held" in row]
    held = [row["held"]["all"][1] for row in nets]
    return [
        Claim(name="quick-gates-held", limit=10, text="the gates of a quick highway "
              "net depend on the image: if T of every block is held at its mean over "
              "all images, the training error rises by more than 10 points", **about(
                  nets, [100 * (error - row["error"]) for error, row in zip(
                      held, nets, strict=True)], gt,
                  ours={"error": over_nets([row["error"] for row in nets]),
                        "error, T held": over_nets(held)})),
        *claims_on_stages(rows, "quick ", after_data=False)]


# --------------------------------------------------------------------------------------
# P1, section 4: harder data


def matter(net: Mapping, points: float) -> int:
    """How many blocks raise the training error by more than so many points if closed,
    one at a time."""
    return int((rises(net) > points).sum())


def doubling(net: Mapping, rise: float) -> int:
    """How many blocks raise the training loss by more than so many times it if closed,
    one at a time."""
    return int((factors(net) > 1 + rise).sum())


def late_change(net: Mapping, early: float, state: str = "trained") -> float:
    """The share of the change of the outputs that happens after the early blocks."""
    steps = np.array(net["change"][state])
    return hn.significant(steps[int(early):].sum() / steps.sum())


def sparsity(net: Mapping, _: None, state: str = "trained") -> float:
    """Hoyer's measure of the T of one image, mean over images."""
    return net["sparsity"][state]


def nets_at(found: Mapping, rule: str) -> list[Mapping]:
    """The nets of a data set at the learning rate that a rule chose: "fitted" by the
    lowest training error, "held_out" by the best accuracy on held-out images."""
    (nets,) = (row["nets"] for row in found["rates"] if row["lr"] == found[rule])
    return nets


def easy_nets(record: Mapping) -> list[Mapping]:
    """The nets for MNIST whose b_T starts as that of the nets for harder data."""
    return record["harder_control"][record["plan"]["harder"]["easy"]]["nets"]


def beside_held_out(one: Claim, other: Claim) -> Claim:
    """A claim on nets that the training error chose, with our numbers and the verdict
    on those that held-out images choose."""
    return replace(one, ours={
        "chosen by training error": one.ours, "by held-out images": other.ours,
        "verdict by held-out images": verdict(other, other.limit)})


def harder_claim(record: dict, data: str, name: str, text: str, of: Callable,
                 limit: Any, section: str | None = None, paper: Any = None,
                 rule: str = "fitted", control: bool = False) -> Claim:
    """Whether a number of(net, limit) is larger on harder data than on MNIST; rule: by
    what the learning rate of the nets was chosen; control: not before training, too."""
    title, is_theirs = DATASETS[data].title, data == "cifar100"
    nets, easy = nets_at(record["harder"][data], rule), easy_nets(record)

    def numbers(nets, limit, *state):
        return [of(net, limit, *state) for net in nets]

    def is_more(limit=limit, *state):
        return ahead(numbers(nets, limit, *state), numbers(easy, limit, *state))
    untrained = {f"{name}, untrained": numbers(own, limit, "untrained")
                 for name, own in ((title, nets), ("MNIST", easy)) if control}
    return Claim(name=f"{name}-{data}", paper=paper, limit=limit,
                 source=f"P1 {section}" if section and is_theirs else "ours",
                 text=f"on {title}, {text}", n=[len(nets), len(easy)],
                 rows=[*nets, *easy],
                 ours={title: numbers(nets, limit), "MNIST": numbers(easy, limit)}
                 | untrained, test=is_more,
                 control=(lambda limit=limit: is_more(limit, "untrained"))
                 if control else None, after_data=True)


def claims_on_harder(record: dict, data: str) -> list[Claim]:
    """Whether harder data use more blocks than MNIST, at the same b_T, by the error and
    by the loss. P1 chose its nets by their training error, and so are the nets of its
    sentences."""
    early, is_theirs = record["plan"]["early"], data == "cifar100"
    claim = partial(harder_claim, record, data)

    def at_both(*about, **more):
        return beside_held_out(*(claim(*about, **more | {"rule": rule})
                                 for rule in ("fitted", "held_out")))
    more = "more blocks matter than on MNIST with the same b_T:"
    costs, theirs = (f"{more} closing one costs more than half a point of training "
                     "error"), "about 40 of CIFAR-100, 15 of MNIST"
    found = [
        claim("more-blocks-matter", costs, matter, 0.5, "4.2",
              theirs if is_theirs else None),
        claim("more-blocks-matter-held-out", f"{costs}, at the learning rate that is "
              "best on held-out images", matter, 0.5, rule="held_out"),
        at_both("more-blocks-double-loss", f"{more} closing one more than doubles the "
                "training loss", doubling, 1, "4.2", theirs if is_theirs else None)]
    return found if not is_theirs else [
        *found,
        at_both("change-later", "outputs change later than on MNIST with the same b_T: "
                f"a larger share of the change happens after block {early}",
                late_change, early, "4", "40 layers, MNIST 15", control=True),
        at_both("sparser", "T of a single example is sparser than on MNIST with the "
                "same b_T, by Hoyer's measure", sparsity, None, "4",
                "most in CIFAR-100", control=True),
        *map(beside_held_out, *(
            claims_on_cifar100(nets_at(record["harder"][data], rule), record["plan"])
            for rule in ("fitted", "held_out")))]


def claims_on_cifar100(nets: Sequence[Mapping], plan: dict) -> list[Claim]:
    """What P1 says of the inside of its net for CIFAR-100."""
    first, early = plan["harder"]["changing"], plan["early"]

    def claim(name, section, text, paper, limit, values, passes):
        return Claim(name=f"{name}-cifar100", source=f"P1 {section}",
                     text=f"on CIFAR-100, {text}", paper=paper,
                     **about(nets, values, passes, limit=limit))

    def classes(net, state):
        return max(float(np.sum(shares[:early]))
                   for shares in net["differences"][state].values())
    bias = [net["bias"] for net in nets]
    return [
        claim("biases-fall", "4", "most transform biases fall during training",
              "> 0.5", 1, [each["fell"] for each in bias], mostly),
        claim("bias-rises-with-depth", "4", "b_T rises with depth: the mean b_T of a "
              "block and the block's number have a correlation above 0.5",
              "forming a gradient", 0.5, [each["with_depth"] for each in bias], above),
        claim("bias-against-activity", "4", "b_T is inversely correlated with the "
              "activity of the gates: the mean b_T and the mean T of a block have a "
              "correlation below -0.5", "inversely", 0.5,
              [each["with_activity"] for each in bias], below),
        claim("change-within-first", "4", "outputs change within the first "
              f"{first} blocks: less than 10 % of the change happens after them",
              "about 40", 0.1, in_both(nets, lambda net, state: late_change(
                  net, first, state)), lt),
        claim("class-differences-spread", "4.1", "differences of mean T between "
              "classes lie in all blocks: less than half of their squares lie in the "
              f"first {early}, for the paper's two classes and for "
              "all. Ours is the larger of the two shares",
              "all layers", 1, in_both(nets, classes), rarely),
        claim("each-of-first-matters", "4.2", f"each of the first {first} blocks "
              "matters: closing it costs at least half a point of training error. Ours "
              "is the least cost, in points", "noticeably", 0.5,
              [rises(net)[:first].min() for net in nets], ge)]


def claims_on_picture(found: Mapping, plan: dict) -> list[Claim]:
    """What P1's Figure 2 shows of a net for CIFAR-100: ours of one net, and one image.
    """
    how, closed = plan["measures"], plan["measures"]["closed"]
    outputs = np.array(found["outputs_one"])
    moved = np.abs(outputs[how["apart"]:] - outputs[:-how["apart"]])
    return [
        Claim(name="gates-active-cifar100", source="P1 4.1", text="especially for "
              "CIFAR-100 most gates are active on average: fewer than half have a mean "
              f"T below {closed}", paper="< 0.5", limit=1, after_data=True, **about(
                  [found], [float(np.mean(np.array(found["T_mean"]) < closed))],
                  rarely)),
        Claim(name="stripes-cifar100", source="P1 4", text="on CIFAR-100, most outputs "
              "of one image stay constant over many blocks and show as stripes: they "
              f"move by less than {how['within'][1]} in {how['apart']} blocks",
              paper="most", limit=how["within"][1], after_data=True, **about(
                  [found], [{"trained": moved}],
                  lambda moved, within: np.mean(moved < within) > 0.5,
                  ours={f"{within:g}": listed(np.mean(moved < within))
                        for within in how["within"]}))]


def claims_not_measured() -> list[Claim]:
    """What P1 says and no trial has measured."""
    return [Claim(name=name, source="P1 4.1", text=text, ours=None, rows=(), n=None,
                  test=None, why="not measured yet") for name, text in (
        ("different-blocks", "few blocks transform an image, but different blocks for "
         "different images"),
        ("gates-selective-cifar100", "on CIFAR-100, T of a single example is very "
         "selective"),
        ("gates-tell-class-cifar100", "on CIFAR-100, the gates differ by class"),
        ("routing-not-static-cifar100", "on CIFAR-100, routing depends on the image"))]


def claims(record: dict) -> list[Claim]:
    """All claims of a record."""
    nets, plan = record["nets"], record["plan"]
    harder = [data for data in record["harder"] if data != plan["harder"]["easy"]]
    return [*claims_on_gates(nets["highway"], plan), *claims_on_outputs(nets, plan),
            *claims_on_routing(nets["highway"], record["still_gates"]),
            *claims_on_lesions(nets["highway"], plan["idle"]),
            claim_on_plain(nets["plain"]), claim_on_shuffling(nets["highway"]),
            *(item for block in ("highway", "residual")
              for item in claims_on_estimation(nets, block)),
            claim_on_mixing(nets["highway"]), claim_on_bound(),
            *claims_on_stages(staged(record)), *orders_of_stages(record),
            *claims_on_quick(record["quick"]),
            *(item for data in harder for item in claims_on_harder(record, data)),
            *(item for data, found in record["pictures"].items() if data == "cifar100"
              for item in claims_on_picture(found, plan)), *claims_not_measured()]
