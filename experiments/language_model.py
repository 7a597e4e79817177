"""Which form of the layer helps a language model that reads characters?

ICLR 2017 (P2, section 5.2, Table 1a) changes the two highway layers that Kim et al.
2016 (arXiv:1508.06615) put between the characters of a word and an LSTM. Perplexity on
the Penn Treebank's test text: full 79.09, coupled 79.13, C-only 79.15, T-only 82.94,
residual (four layers) 91.32, plain (one) 92.60. That is Kim et al.'s large model; their
small one has 100.3 without such a layer, 111.2 with a plain one, 92.3 and 90.1 with one
and two highway layers (their Table 7).

The protocol is that of the small model and its code, yoonkim/lstm-char-cnn on GitHub:
characters of 15 numbers; a word has a start and an end and is padded to the longest;
kernels of width 1 to 6, 25 filters times the width, tanh, the largest over the word;
the layer in question, 525 wide, relu, T around -2 at first; two LSTMs of 300; dropout
0.5 after each; softmax over 10,000 words. All parameters U(-0.05, 0.05). Plain gradient
descent on 20 streams of 35 words, the state carried on; the gradient, of the sum over
35 steps, cut to norm 5; rate 1, from the third epoch on halved after each in which the
validation perplexity fell by less than 1. 20 epochs; the last net reads the test text,
once. Nine forms take the layer's place: nothing; one plain, one highway; two highway,
T-only, C-only, full; four residual, as P2 has it, and two. All train alike.

We assume that C starts around +2, so that it carries what T around -2 does: P2 is
silent. Deviations: the small model; 20 epochs for 25; the LSTMs start each epoch from
zeros, not only the first; padding is no parameter. Then we hold the gates of the
trained nets at their means, leave out layers, and look at which words open them.

    python3 -m experiments.language_model --data-dir FOLDER     results/language_model
    python3 -m experiments.language_model --smoke       reads this suite's own lecture

The text is the LDC's and not ours to give: FOLDER, or $HIGHWAY_PTB_DIR, has to hold
ptb.train.txt, ptb.valid.txt and ptb.test.txt. More: results/language_model/README.md.

Cost: nine to fourteen hours on two cores, 3.5 to 7.5 minutes an epoch on one. A trial
saves itself after each epoch: what is stopped goes on from there and ends with the same
bits.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from matplotlib.transforms import Bbox

import highway_networks as hn
from experiments.lab.drawing import plain_numbers
from experiments.judging import or_infinite
from experiments.old_lab import Experiment, Lab, main
from experiments.language_claims import GATED_INPUT, KIM, check_claims
from experiments.language_trials import (
    END,
    UNKNOWN,
    UNKNOWN_AS,
    Shared,
    lecture,
    load_text,
    train_model,
)
from experiments.lab.papers import TABLE_1A, name_of
from experiments.store import Trial
from highway_suite.figures import COLOURS, LIGHT, TITLE

SIZES = {"units": 300, "numbers": 15, "widths": [1, 2, 3, 4, 5, 6], "maps": 25}
P2 = {("plain", 1): "plain", ("residual", 4): "residual"} | {
    (block, 2): block for block in ("highway", "t_only", "c_only", "full")}
SEEDS: dict[tuple, list] = {        # of each net
    ("highway", 1): [0, 1], ("highway", 2): [0, 1], ("full", 2): [0, 1],
    ("c_only", 2): [0, 1], ("plain", 1): [0], ("t_only", 2): [0],
    ("residual", 4): [0], ("plain", 0): [0], ("residual", 2): [0]}
NETS: list[dict] = [{"block": block, "depth": depth, "seeds": seeds}
                    for (block, depth), seeds in SEEDS.items()]
PROTOCOL = {
    "dataset": "ptb", "batch": 20, "steps": 35, "epochs": 20, "lr": 1.0,
    "lr_decay": 0.5, "least_gain": 1.0, "clip": 5.0, "dropout": 0.5, "scale": 0.05,
    "gate_bias": -2.0, "sizes": SIZES,
    "look_up": ["while", "his", "you", "richard", "trading", "computer-aided",
                "misinformed", "looooook"],
    "nets": NETS}
SMOKE = {
    "dataset": "lecture", "batch": 3, "steps": 6, "epochs": 3, "scale": 0.2,
    "look_up": ["gate", "layer", "weights", "gatekeeper"],
    "sizes": {"units": 16, "numbers": 6, "widths": [1, 2, 3], "maps": 4},
    "nets": [net | {"seeds": [0]} for net in NETS]}

# Expected before the runs: Kim et al.'s order, some perplexity higher; of P2's ranking
# the gap between gated and residual forms, but T-only not behind, for on MNIST it
# leads; gates that depend on the word. What the statements mean: `language_claims`.

# --------------------------------------------------------------------------------------
# The record


def make_config(protocol: dict, net: dict, seed: int) -> dict:
    """The trial of a net of the plan with a seed."""
    names = ("batch", "steps", "epochs", "lr", "lr_decay", "least_gain", "clip",
             "dropout", "scale", "look_up")
    gated = net["depth"] and hn.BLOCKS[net["block"]].gates
    bias = {"gate_bias": protocol["gate_bias"]} if gated else {}
    return {**{name: protocol[name] for name in names}, **protocol["sizes"], **bias,
            "block": net["block"], "depth": net["depth"], "seed": seed}


def describe_net(net: dict, trials: list[Trial]) -> dict:
    """The trials of one net of the plan -> its part of the record."""
    results: list[Any] = [trial.result for trial in trials]
    names = ("status", "lr", "train_loss", "grad_norm", "valid_perplexity",
             "test_perplexity", "instead")
    return {"block": net["block"], "depth": net["depth"], "seeds": net["seeds"],
            "parameters": results[0]["parameters"],
            **{name: [result.get(name) for result in results] for name in names},
            **{name: results[0].get(name) for name in ("gates", "neighbours")}}


def run(lab: Lab) -> dict:
    """All trials -> the record."""
    text = load_text(lab.options.data_dir) if lab.protocol["dataset"] == "ptb" else (
        lecture())
    plan = lab.protocol["nets"]
    configs = {(net["block"], net["depth"], seed): make_config(lab.protocol, net, seed)
               for net in plan for seed in net["seeds"]}
    trials = lab.trials(train_model, configs,
                        Shared(text, str(lab.store / "checkpoints")))
    nets = [describe_net(net, [trials[net["block"], net["depth"], seed]
                               for seed in net["seeds"]]) for net in plan]
    return {"nets": nets, "papers": [
        {"block": key[0], "depth": key[1], "small": KIM.get(key),
         "large": TABLE_1A[P2[key]].perplexity if key in P2 else None}
        for key in SEEDS if lab.protocol["dataset"] == "ptb"]}


# --------------------------------------------------------------------------------------
# The figure


NUMBERS = {1: "one", 2: "two", 4: "four"}
GATED = {block for block, _ in GATED_INPUT.values()}
STROKES = {0: ":", 1: (0, (3, 1.2)), 2: "-", 4: (0, (6, 1.5, 1, 1.5))}     # by depth


def label_of(net: dict) -> str:
    """What stands between characters and LSTM."""
    if not net["depth"]:
        return "nothing"
    name = name_of(net["block"])
    return f"{NUMBERS[net['depth']]} {name if '-' in name else name.lower()}"


def colour_of_net(net: dict) -> str:
    return COLOURS[net["block"]] if net["depth"] else LIGHT.soft


def draw_curves(axes: Axes, nets: list[dict]) -> None:
    """Validation perplexity, epoch by epoch, the median of the seeds."""
    for net in nets:
        median = np.median(or_infinite(net["valid_perplexity"]), axis=0)
        axes.plot(range(1, 1 + len(median)), median, color=colour_of_net(net),
                  linewidth=1.5, linestyle=STROKES[net["depth"]], label=label_of(net))
    axes.set(yscale="log", xlabel="epoch", ylabel="perplexity",
             title="Validation text, epoch by epoch")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    plain_numbers(axes.yaxis)
    axes.title.set_fontsize(10)
    axes.legend(frameon=False, fontsize=8, ncols=2)


def draw_table(axes: Axes, nets: list[dict], papers: list[dict]) -> None:
    """Test perplexity of every form, ours and what the papers report."""
    theirs = {(row["block"], row["depth"]): row for row in papers}
    for at, net in enumerate(nets):
        ours = [value for value in net["test_perplexity"] if value is not None]
        axes.plot(ours, [at] * len(ours), "o", color=colour_of_net(net), markersize=6)
        row = theirs.get((net["block"], net["depth"]), {"small": None, "large": None})
        if row["small"]:
            axes.plot(row["small"], at, "D", color=LIGHT.ink, fillstyle="none",
                      markersize=6)
        large = f"{row['large']:.1f}" if row["large"] else "–"
        axes.annotate(large, (1.02, at), xycoords=("axes fraction", "data"),
                      va="center", size=9, color=LIGHT.soft)
    axes.annotate("P2,\nlarge", (1.02, len(nets) - 0.4), va="bottom", size=8,
                  xycoords=("axes fraction", "data"), color=LIGHT.soft)
    axes.set_yticks(range(len(nets)), [label_of(net) for net in nets])
    axes.set(xlabel="perplexity (diamonds: Kim et al., small)", title="Test text",
             ylim=(-0.6, len(nets) - 0.4))
    axes.title.set_fontsize(10)
    axes.grid(axis="x")


def draw_instead(axes: Axes, nets: list[dict]) -> None:
    """What the validation text says if gates are held or a layer is left out."""
    shown = [net for net in nets if net["depth"] and net["instead"][0]]
    for at, net in enumerate(shown):
        usual, instead = net["valid_perplexity"][0][-1], net["instead"][0]
        axes.plot([at - 0.3, at + 0.3], [usual] * 2, color=LIGHT.ink, linewidth=1.2)
        if instead["held_gates"]:
            axes.plot(at - 0.2, instead["held_gates"], "s", color=colour_of_net(net),
                      markersize=6)
        for n, value in enumerate(instead["without_layer"]):
            if value is None:       # beyond all numbers
                continue
            axes.annotate(str(n + 1), (at + 0.13 * n, value), ha="center", va="center",
                          size=9, color=colour_of_net(net), weight="bold")
    values = [value for net in shown for value in (
        net["valid_perplexity"][0][-1], net["instead"][0]["held_gates"],
        *net["instead"][0]["without_layer"]) if value]
    axes.set_xticks(range(len(shown)), [label_of(net) for net in shown])
    axes.set(yscale="log", xlim=(-0.6, len(shown) - 0.4), ylabel="perplexity",
             ylim=(0.9 * min(values, default=1), 1.3 * max(values, default=10)),
             title="Validation text as trained (line), with gates held at their mean "
                   "(square), without layer 1, 2, 3, 4")
    axes.title.set_fontsize(10)
    plain_numbers(axes.yaxis)


def draw_gates(axes: Axes, nets: list[dict], by: str, label: str) -> None:
    """The last layer's gates, mean over units, by a property of the word: how far they
    are from their mean over all words."""
    for net in nets:
        for name, gate in (net["gates"] or {}).items():
            values = np.array(gate[by], float) - gate["mean"][-1]
            at = 2.0 ** np.arange(len(values)) if by == "by_rank" else np.arange(
                len(values))
            there = ~np.isnan(values)
            axes.plot(at[there], values[there], color=colour_of_net(net), linewidth=1.5,
                      linestyle=STROKES[net["depth"]] if name == "T" else ":",
                      label=f"{label_of(net)}, {name}")
    axes.axhline(0, color=LIGHT.grid, linewidth=1, zorder=0)
    axes.set(xlabel=label, ylabel="T or C, from its mean")
    if by == "by_rank":
        axes.set_xscale("log")


def readable(word: str) -> str:
    """A word of the text as a reader knows it."""
    return {UNKNOWN_AS: UNKNOWN, END: "(end)"}.get(word, word)


def draw_words(axes: Axes, net: dict) -> None:
    """Nearest words before and after the layers, and words at the ends of the gate."""
    axes.set_axis_off()
    before, after = net["neighbours"]["before"], net["neighbours"]["after"]
    rows = [[readable(found[word][n]) if found[word] else "–" for word in before]
            for found in (before, after) for n in range(3)]
    longest = max(len(word) for row in [*rows, list(before)] for word in row)
    table = axes.table(rows, colLabels=list(before), edges="horizontal", cellLoc="left",
                       rowLabels=["before", "", "", "after", "", ""], colLoc="left",
                       bbox=Bbox.from_bounds(0.06, 0.3, 0.94, 0.7))
    table.auto_set_font_size(False)
    table.set_fontsize(min(8, 1000 / len(before) / longest))    # to fit its column
    table.set_in_layout(False)      # or the panel shrinks to make room for words
    for cell in table.get_celld().values():
        cell.set(edgecolor=LIGHT.grid)
    axes.set_title(f"Nearest words before and after {label_of(net)} layers, by cosine",
                   size=10)
    name, gate = next(iter(net["gates"].items()))
    for y, which in ((0.13, "largest"), (0.01, "least")):
        text = f"{which} mean {name} of the 1000 most frequent words:"
        for word, value in gate[which]:
            told = f"   {readable(word)} {value:.2f}"
            text += told * (len(text + told) < 140)
        axes.text(0, y, text, size=8, transform=axes.transAxes, parse_math=False,
                  in_layout=False)


def message(nets: list[dict], epochs: int) -> str:
    """Median test perplexities of the nets that have a gate on their input, and of
    those that have none: the least and the greatest of each, in a line."""
    def told(gated):
        medians = sorted(np.median(or_infinite(net["test_perplexity"])) for net in nets
                         if (net["block"] in GATED) == gated)
        return " to ".join(f"{end:.1f}" if math.isfinite(end) else "diverged"
                           for end in (medians[0], medians[-1]))
    return (f"Test perplexity after {epochs} epochs: {told(True)} with a gate on the "
            f"input, {told(False)} without")


def draw(record: dict) -> Figure:
    """The record -> the figure: curves and test text, what was learnt, gates, words."""
    nets = sorted(record["nets"], reverse=True, key=lambda net: np.median(
        or_infinite(net["test_perplexity"])))
    figure = Figure(figsize=(10, 12), layout="constrained")
    figure.suptitle(message(nets, record["protocol"]["epochs"]), **TITLE)
    text = "Penn Treebank" if record["dataset"] == "ptb" else "The suite's lecture"
    seeds = sorted({len(net["seeds"]) for net in nets})
    of_which = " (curves: their median; below: the first)" if seeds[-1] > 1 else ""
    figure.supxlabel(f"{text}; seeds of each net: {' or '.join(map(str, seeds))}"
                     f"{of_which}", fontsize=9)
    top, middle, gates, words = figure.subfigures(
        4, 1, height_ratios=(4, 3.3, 3.2, 2.4), squeeze=False)[:, 0]
    curves, table = top.subplots(1, 2)
    draw_curves(curves, nets)
    draw_table(table, nets, record["papers"])
    draw_instead(middle.subplots(), nets)
    gated = [net for net in nets if net["gates"]]
    panels = gates.subplots(1, 2, sharey=True)
    draw_gates(panels[0], gated, "by_rank", "rank of the word by frequency")
    draw_gates(panels[1], gated, "by_length", "letters of the word")
    panels[1].set_ylabel("")
    panels[1].xaxis.set_major_locator(MaxNLocator(integer=True))
    gates.suptitle("Gates of the last layer, mean over its units", size=10)
    gates.legend(*panels[0].get_legend_handles_labels(), frameon=False, fontsize=8,
                 loc="outside right center")
    if gated:
        draw_words(words.subplots(), min(gated, key=lambda net: (
            net["block"], net["depth"]) != ("highway", 2)))
    return figure


EXPERIMENT = Experiment(
    name="experiments.language_model", doc=__doc__, minutes=820, protocol=PROTOCOL,
    smoke=SMOKE, run=run, draw=draw, check=check_claims, besides=25,
    pack_by=lambda config: f"{config['block']}_{config['depth']}")

if __name__ == "__main__":
    main(EXPERIMENT)
