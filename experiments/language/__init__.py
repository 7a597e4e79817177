"""Which form of the layer helps a language model that reads characters?

Kim et al. 2016 (arXiv:1508.06615) put highway layers between the characters of a word
and an LSTM. P2 (section 5.2, Table 1a) replaces the two layers of their large model by
other forms. We follow their small model and its code, yoonkim/lstm-char-cnn on GitHub:
results/language/README.md has the protocol. The layers are 525 wide; padding is no
parameter; a trial takes two to three hours on one core.

How it is judged. The limit of each claim was fixed before the runs, and the rule for
the order of two nets (docs/claims.md) after them. By how much a net must be better is
taken off before it is compared. A claim of one net alone holds, or does not, where its
seeds agree. A run that diverged or guesses counts as worse than any other; two of them
cannot be told apart.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import permutations, product
from operator import ge, le
from typing import Any, NamedTuple

import numpy as np

import highway_networks as hn
from experiments.lab import Claim, Experiment, Lab, Trial
from experiments.lab.experiment import for_figures
from experiments.lab.judging import agreed, ahead, every, listed, or_infinite
from experiments.lab.papers import TABLE_1A, spoken
from experiments.language.text import content, load
from experiments.language.train import train_model

with for_figures():
    from matplotlib.figure import Figure

    from experiments.lab.drawing import sheet
    from highway_suite.figures import SMALL, TINTS

SEEDS: dict[tuple, list] = {     # of each net: block, layers
    ("highway", 1): [0, 1], ("highway", 2): [0, 1], ("full", 2): [0, 1],
    ("c_only", 2): [0, 1], ("plain", 1): [0, 1], ("t_only", 2): [0, 1],
    ("residual", 4): [0, 1], ("plain", 0): [0, 1], ("residual", 2): [0]}
NETS: list[dict] = [{"block": block, "depth": depth, "seeds": seeds}
                    for (block, depth), seeds in SEEDS.items()]
PLAN: dict[str, Any] = {
    "dataset": "ptb", "batch": 20, "steps": 35, "epochs": 20, "lr": 1.0,
    "lr_decay": 0.5, "least_gain": 1.0, "clip": 5.0, "dropout": 0.5, "scale": 0.05,
    "gate_bias": -2.0, "nets": NETS,
    "sizes": {"units": 300, "numbers": 15, "widths": [1, 2, 3, 4, 5, 6], "maps": 25}}
SMOKE: dict[str, Any] = {
    "dataset": "lecture", "batch": 3, "steps": 6, "epochs": 3, "scale": 0.2,
    "sizes": {"units": 16, "numbers": 6, "widths": [1, 2, 3], "maps": 4},
    "nets": [net | {"seeds": [0]} for net in NETS]}
P2 = {("plain", 1): "plain", ("residual", 4): "residual"} | {
    (block, 2): block for block in ("highway", "t_only", "c_only", "full")}
KIM = {         # Kim et al.'s Table 7, small model: by block and number of layers
    ("plain", 0): 100.3, ("plain", 1): 111.2, ("highway", 1): 92.3,
    ("highway", 2): 90.1}
GUESSES = 300           # a run trains if its last validation perplexity is no higher;
                        # guessing by the words' frequencies has 600 to 800


def make_config(plan: dict, net: dict, seed: int) -> dict:
    """The trial of a net of the plan with a seed."""
    names = ("batch", "steps", "epochs", "lr", "lr_decay", "least_gain", "clip",
             "dropout", "scale")
    gated = net["depth"] and hn.block_of(net["block"], net["depth"]).gates
    bias = {"gate_bias": plan["gate_bias"]} if gated else {}
    return {**{name: plan[name] for name in names}, **plan["sizes"], **bias,
            "block": net["block"], "depth": net["depth"], "seed": seed}


def row_of(net: dict, trials: list[Trial]) -> dict:
    """The trials of one net of the plan -> its row; small and large: the papers' test
    perplexities."""
    key = net["block"], net["depth"]
    return net | {
        "small": KIM.get(key), "large": TABLE_1A.get(P2.get(key, "")),
        "parameters": trials[0].result["parameters"],
        **{name: [trial.result[name] for trial in trials] for name in (
            "valid_perplexity", "test_perplexity", "held_gates")},
        "trials": [trial.hash for trial in trials]}


def run(lab: Lab) -> dict:
    """All trials -> the record."""
    nets = lab.plan["nets"]
    trials = lab.trials(train_model, {
        (net["block"], net["depth"], seed): make_config(lab.plan, net, seed)
        for net in nets for seed in net["seeds"]})
    return {"nets": [row_of(net, [trials[net["block"], net["depth"], seed]
                                  for seed in net["seeds"]]) for net in nets]}


# --------------------------------------------------------------------------------------
# The figure

def label_of(net: Mapping) -> str:
    """The blocks between the characters and the LSTM."""
    return f"{net['depth']} {spoken(net['block'])}" if net["depth"] else "none"


def draw(record: dict) -> Figure:
    """Test perplexity of every form, ours and what the papers report; the worst by the
    median of its seeds is at the bottom."""
    figure, axes = sheet(
        "Our runs with a gate on the input x predict best", "Penn Treebank",
        "ours: a dot for each seed; the small model of Kim et al. (2016)",
        "the model of P2 (Greff et al., 2017) is larger", height=3.9)
    nets = sorted(record["nets"], reverse=True, key=lambda net: np.median(
        or_infinite(net["test_perplexity"])))
    with_gate, without = TINTS.own[:2]
    for at, net in enumerate(nets):
        gated = net["depth"] and net["block"] in ("full", "highway", "c_only")
        colour = with_gate if gated else without
        for value in net["test_perplexity"]:
            axes.plot(value or np.nan, at, "o", color=colour, markersize=7)
        for name, mark in (("small", "D"), ("large", "s")):
            axes.plot(net[name] or np.nan, at, mark, color=TINTS.soft, markersize=6,
                      fillstyle="none")
    for mark, fill, colour, label in (("o", "full", with_gate, "ours, a gate on x"),
                                      ("o", "full", without, "ours, no gate on x"),
                                      ("D", "none", TINTS.soft, "Kim et al."),
                                      ("s", "none", TINTS.soft, "P2")):
        axes.plot([], [], mark, color=colour, label=label, fillstyle=fill)
    axes.legend(fontsize=SMALL, loc="upper center", bbox_to_anchor=(0.36, 1.2), ncols=4,
                frameon=False, handletextpad=0, columnspacing=1)
    axes.set_yticks(range(len(nets)), map(label_of, nets))
    axes.set(xlabel="test perplexity (smaller is better)", ylim=(-0.6, len(nets) - 0.4))
    axes.grid(axis="x")
    return figure


# --------------------------------------------------------------------------------------
# Claims

NAMES = {       # of nets in claims: block, layers
    "nothing": ("plain", 0), "plain": ("plain", 1), "one highway": ("highway", 1),
    "two highway": ("highway", 2), "full": ("full", 2), "highway": ("highway", 2),
    "C-only": ("c_only", 2), "T-only": ("t_only", 2), "four residual": ("residual", 4)}
THREE = ("full", "highway", "C-only")


def trains(net: dict, at: int) -> bool:
    """Whether the run of a net's seed did not diverge, and does not guess."""
    last = net["valid_perplexity"][at][-1]
    return last is not None and last <= GUESSES


def read(net: dict, at: int) -> float:
    """The test perplexity of a seed; infinite where it diverged or guesses."""
    value = net["test_perplexity"][at]
    return value if trains(net, at) and value is not None else math.inf


def cost_of_holding(net: dict, at: int) -> float:
    """What holding its gates at their means costs a seed, in validation perplexity; NaN
    where it diverged or guesses."""
    if not trains(net, at):
        return math.nan
    held = net["held_gates"][at]
    return math.inf if held is None else held - net["valid_perplexity"][at][-1]


class Said(NamedTuple):
    """A sentence of a source on nets, with a limit in perplexity. It says that each of
    them is better than each of `worse` by at least so much; if there are none, that
    they are alike to so much. Or of(net, seed) is at least the limit in every seed."""

    name: str
    source: str
    text: str
    nets: Sequence[str]
    limit: float
    paper: Any = None
    worse: Sequence[str] = ()
    of: Callable[[dict, int], float] | None = None
    passes: Callable[[float, float], bool] = ge


def p2s(*nets: str) -> dict:
    """Their numbers in P2."""
    return {name: TABLE_1A[NAMES[name][0]] for name in nets}


def kims(*nets: str) -> dict:
    """Their numbers in Kim et al."""
    return {name: KIM[NAMES[name]] for name in nets}


WORST = {"worst of three": max(p2s(*THREE).values())}
SAID = [
    Said("lm-one-highway", "Kim Table 7", "one highway layer has the same test "
         "perplexity as theirs: they differ by at most 4. Ours is the difference",
         ["one highway"], 4.0, KIM["highway", 1], passes=le,
         of=lambda net, at: abs(read(net, at) - KIM["highway", 1])),
    Said("lm-plain-harms", "Kim Table 7", "a plain layer is worse than nothing, by at "
         "least 1 in test perplexity", ["nothing"], 1.0, kims("plain", "nothing"),
         ["plain"]),
    Said("lm-highway-helps", "Kim Table 7", "a highway layer is better than nothing, "
         "by at least 1 in test perplexity", ["one highway"], 1.0,
         kims("nothing", "one highway"), ["nothing"]),
    Said("lm-two-highway", "Kim Table 7", "two highway layers are better than one, by "
         "at least 1 in test perplexity", ["two highway"], 1.0,
         kims("one highway", "two highway"), ["one highway"]),
    Said("lm-three-similar", "P2 5.2", "full, highway and C-only perform alike: their "
         "test perplexities differ by at most 1.5", THREE, 1.5, p2s(*THREE)),
    Said("lm-three-residual", "P2 5.2", "full, highway and C-only are each "
         "substantially better than four residual layers, by at least 5 in test "
         "perplexity", THREE, 5.0, WORST | p2s("four residual"), ["four residual"]),
    Said("lm-t-only-plain", "P2 Table 1a", "two T-only layers are better than one "
         "plain layer, by at least 1 in test perplexity (b_T of T-only is not "
         "searched)", ["T-only"], 1.0, p2s("T-only", "plain"), ["plain"]),
    Said("lm-residual-plain", "P2 5.2", "four residual layers are close to one plain "
         "layer: their test perplexities differ by at most 3",
         ["four residual", "plain"], 3.0, p2s("four residual", "plain")),
    Said("lm-input-gate", "P2 5.2", "all forms with a gate on the input have a "
         "significant advantage: the worst of them is better than the best of the "
         "others, by at least 1 in test perplexity", THREE, 1.0, WORST | p2s("T-only"),
         ["T-only", "four residual", "plain"]),
    Said("lm-dynamic", "P2 5.2", "the gates of full, highway and C-only depend on the "
         "word: held at their means over the words they raise the validation "
         "perplexity by at least 5. Ours is the rise. No net was trained with constant "
         "gates", THREE, 5.0, "crucial to replace parts of the input dynamically",
         of=cost_of_holding)]


def judged(said: Said, nets: Mapping[tuple, dict]) -> Claim:
    """A sentence with our numbers, those of all seeds."""
    own = {name: nets[NAMES[name]] for name in [*said.nets, *said.worse]}
    everything, ours = ({name: [of(net, i) for i in range(len(net["seeds"]))]
                         for name, net in some.items()}
                        for of, some in ((read, nets), (said.of or read, own)))
    values, others = ([value for name in names for value in ours[name]]
                      for names in (said.nets, said.worse))
    gap = ({} if said.of else {"margin": [min(others) - max(values)]} if others else
           {"apart": [max(values) - min(values)]})
    n = [len(found) for found in ours.values()]

    def holds(limit):
        if said.of:
            return agreed(None if math.isnan(value) else said.passes(value, limit)
                          for value in values)
        pairs = [*product(said.nets, said.worse)] or [*permutations(said.nets, 2)]
        # The less perplexity the better.
        found = [ahead(np.negative(ours[one]), limit - np.array(ours[other]),
                       map(np.negative, everything.values())) for one, other in pairs]
        if said.worse:
            return every(found)
        alike = min(n) > 1 and max(values) - min(values) <= limit
        return False if True in found else alike or None
    return Claim(
        name=said.name, source=said.source, text=said.text, paper=said.paper,
        n=n if len(set(n)) > 1 else n[0], test=holds, limit=said.limit,
        ours={name: listed(found) for name, found in (ours | gap).items()},
        rows=list(own.values()))


def claims(record: dict) -> list[Claim]:
    """The papers' statements, with our numbers."""
    nets = {(net["block"], net["depth"]): net for net in record["nets"]}
    return [judged(said, nets) for said in SAID]


EXPERIMENT = Experiment(
    name="language", doc=__doc__, plan=PLAN, smoke=SMOKE, run=run,
    claims=claims, figures={"figure": draw}, load=load, content=content)
