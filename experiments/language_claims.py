"""What Kim et al. and ICLR 2017 say of the layer between characters and LSTM, judged.

The meaning of each statement in perplexity of the test text was fixed before the runs;
in brackets what the papers' own tables give. A statement is judged seed by seed, with
the seeds that all of its nets have: it holds, or not, where they agree, and is open
where they do not. A run that diverged or guesses counts as worse than any other; two of
them cannot be told apart.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

from experiments.judging import Claim, at_each, claim, listed, resting_on
from experiments.lab.papers import TABLE_1A

KIM = {         # Kim et al.'s Table 7, small model: by block and number of layers
    ("plain", 0): 100.3, ("plain", 1): 111.2, ("highway", 1): 92.3,
    ("highway", 2): 90.1}
GATED_INPUT = {"full": ("full", 2), "coupled": ("highway", 2), "C-only": ("c_only", 2)}

NEAR = 4                # "92.3": ours within this of it (a port of the large net: 0.1)
SIMILAR = 1.5           # full, coupled and C-only lie within this of each other (0.06)
BETTER = 1              # better: by at least this (T-only: 3.8; two layers: 2.2)
SUBSTANTIALLY = 5       # substantially better than four residual layers: by this (12.2)
CLOSE = 3               # residual is as close as this to a plain layer (1.3)
DYNAMIC = 5             # gates held at their mean over words cost this, validation text
GUESSES = 300           # last validation perplexity of a run that has not learnt: that
                        # of the words' frequencies is 600 to 800

BySeed = Mapping[tuple, Mapping[int, float]]    # (block, layers) -> seed -> perplexity


def learnt(net: dict, at: int) -> bool:
    """Whether the run of a net's seed did not diverge, and does not guess."""
    last = net["valid_perplexity"][at][-1]
    return last is not None and last <= GUESSES


def test_perplexities(nets: list[dict]) -> BySeed:
    """Infinite where a run diverged or guesses."""
    return {(net["block"], net["depth"]): {
        seed: value if learnt(net, i) and value is not None else math.inf
        for i, (seed, value) in enumerate(zip(net["seeds"], net["test_perplexity"],
                                              strict=True))} for net in nets}


def costs_of_holding(nets: list[dict]) -> BySeed:
    """What holding its gates at their means costs a net, in validation perplexity; NaN
    where a run diverged or guesses."""
    def cost(net, i):
        if not learnt(net, i):
            return math.nan
        held = net["instead"][i]["held_gates"]
        return math.inf if held is None else held - net["valid_perplexity"][i][-1]
    return {(net["block"], net["depth"]): {
        seed: cost(net, i) for i, seed in enumerate(net["seeds"])} for net in nets
        if (net["block"], net["depth"]) in GATED_INPUT.values()}


def verdict(section: str, text: str, paper: Any, values: BySeed,
            nets: Mapping[str, tuple], measure: Callable[..., float], limit: float, *,
            within: bool = False) -> Claim:
    """A claim that measure(value of each net) is at least a limit, or no further than
    that from 0; of no seed where one of its nets has no trial. nets: {name: (block,
    layers)}."""
    seeds = sorted(set.intersection(*(set(values.get(key, ()))
                                      for key in nets.values())))
    found = {seed: measure(*(values[key][seed] for key in nets.values()))
             for seed in seeds}

    def holds(limit):
        verdicts = {None if math.isnan(number) else number <= limit if within else
                    number >= limit for number in found.values()}
        return verdicts.pop() if len(verdicts) == 1 else None

    def shown(numbers):
        numbers = listed(list(numbers))
        return numbers[0] if len(numbers) == 1 else numbers
    ours = {name: shown(values[key][seed] for seed in seeds)
            for name, key in nets.items()}
    made, = resting_on([claim(
        section=section, text=text, paper=paper, n=len(seeds),
        ours=ours | {"apart" if within else "margin": shown(found.values())},
        **at_each(holds, (limit / 2, limit, 2 * limit)))],
        *({"block": block, "depth": depth, "seed": seeds}
          for block, depth in nets.values()))
    return made


def check_kims(test: BySeed) -> list[Claim]:
    """Kim et al.'s statements."""
    one, two, plain, nothing = (
        {name: key} for name, key in (("one highway", ("highway", 1)),
                                      ("two highway", ("highway", 2)),
                                      ("plain", ("plain", 1)),
                                      ("nothing", ("plain", 0))))

    def theirs(nets):
        return {name: KIM[key] for name, key in nets.items()}
    return [
        verdict("Kim Table 7", f"one highway layer: test perplexity, to {NEAR}",
                KIM["highway", 1], test, one,
                lambda ours: abs(ours - KIM["highway", 1]), NEAR, within=True),
        *(verdict("Kim Table 7", f"{text}, by {BETTER}", theirs(worse | better), test,
                  worse | better, operator.sub, BETTER) for text, worse, better in (
            ("a plain layer is worse than nothing", plain, nothing),
            ("a highway layer is better than nothing", nothing, one),
            ("two highway layers are better than one", one, two)))]


def check_forms(test: BySeed) -> list[Claim]:
    """P2's statements on Table 1a."""
    t_only, residual, plain = (
        {name: key} for name, key in (("T-only", ("t_only", 2)),
                                      ("four residual", ("residual", 4)),
                                      ("plain", ("plain", 1))))
    last = {"worst of three": max(TABLE_1A[block].perplexity
                                  for block, _ in GATED_INPUT.values())}

    def theirs(nets):
        return {name: TABLE_1A[block].perplexity for name, (block, _) in nets.items()}

    def ahead(*values):
        *three, other = values
        return other - max(three)
    return [
        verdict("P2 5.2", "the full, coupled and C-only forms have similar "
                f"performance, within {SIMILAR}", theirs(GATED_INPUT), test,
                GATED_INPUT, lambda *three: max(three) - min(three), SIMILAR,
                within=True),
        verdict("P2 5.2", f"each of these three is better than T-only, by {BETTER}",
                last | theirs(t_only), test, GATED_INPUT | t_only, ahead, BETTER),
        verdict("P2 5.2", "and substantially better than four residual layers, by "
                f"{SUBSTANTIALLY}", last | theirs(residual), test,
                GATED_INPUT | residual, ahead, SUBSTANTIALLY),
        verdict("P2 5.2", "four residual layers are close to a single plain one, "
                f"within {CLOSE}", theirs(residual | plain), test, residual | plain,
                lambda one, other: abs(one - other), CLOSE, within=True),
        verdict("P2 5.2", "a significant advantage for all forms with a gate on the "
                f"input: the worst of them against the best of the others, by {BETTER}",
                last | theirs(t_only), test,
                GATED_INPUT | t_only | residual | plain, lambda *values: ahead(
                    *values[:3], min(values[3:])), BETTER)]


def check_claims(record: dict) -> list[Claim]:
    """The papers' statements with our numbers and whether they hold; those of nets that
    are not trained are left out."""
    nets = record["nets"]
    test = test_perplexities(nets)
    claims = [*check_kims(test), *check_forms(test), verdict(
        "P2 5.2", "it is crucial to replace parts of the input dynamically: gates held "
        "at their mean over words cost validation perplexity in each of the three, at "
        f"least {DYNAMIC}", None, costs_of_holding(nets), GATED_INPUT,
        lambda *costs: math.nan if any(map(math.isnan, costs)) else min(costs),
        DYNAMIC)]
    return [item for item in claims if item["n"]]
