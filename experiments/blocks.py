"""Which form of the block y = H T + x C is best, at which depth?

P2's Table 1a (section 5.2) ranks six forms in a character-aware language model, by test
perplexity. We rank the same forms on MNIST with 9 to 99 blocks, at equal size. This
tests how far the ranking carries over; it does not test the table. The protocol stands
in results/blocks/README.md. Widths match the highway net's parameters to 1.4 %.
Training loss is the mean over an epoch's steps, each before its update.

Added when the results of the six forms were known: scaled residual nets,
y = x + H / sqrt(L), by the same search. A trial by others, with 49 blocks, had given
them 0.9770 +- 0.0012. Their claim was worded before our numbers were known.
"""

from __future__ import annotations

import itertools
import math
from typing import NamedTuple

import numpy as np

import highway_networks as hn
from experiments.lab import Claim, Experiment, Lab, Trial, main, trial_function
from experiments.lab.experiment import for_figures
from experiments.lab.judging import ahead, every, next_beyond, or_infinite, or_zero
from experiments.lab.papers import TABLE_1A, name_of, spoken
from experiments.nets.perceptrons import hold_out, matched_width
from highway_suite.datasets import DATASETS

with for_figures():
    from matplotlib.figure import Figure

    from experiments.lab.drawing import colour_of, data_of, log_y, sheet
    from highway_suite.figures import fit_depths, label_right, mean_and_range

WIDTH = 50              # of the highway nets that the others are matched to
BESIDE = "scaled_residual"      # the form that is not in P2's table

PLAN = {"dataset": "mnist", "blocks": [*TABLE_1A, BESIDE], "depths": [9, 19, 49, 99],
        "batch": 128, "clip": 5.0, "lr_decay": 0.8,
        "lrs": [1e-4, 3e-4, 1e-3, 3e-3, 1e-2], "gate_biases": [-1.0, -3.0, -5.0],
        "held_out": 10_000, "split_seed": 1612, "search_epochs": 3, "epochs": 10,
        "seeds": [0, 1, 2, 3, 4],
        "beyond": {"lr": [1e-5, 3e-5, 3e-2, 1e-1], "gate_bias": [-9.0, -7.0, 1.0, 3.0]}}
SMOKE = {"dataset": "digits", "depths": [3, 5], "lrs": [1e-3, 1e-2], "held_out": 237,
         "gate_biases": [-1.0, -3.0], "search_epochs": 1, "epochs": 2, "seeds": [0, 1],
         "beyond": {"lr": [3e-4], "gate_bias": [1.0]}}


class Net(NamedTuple):
    """A form, and how many blocks."""

    block: str
    depth: int


class Setting(NamedTuple):
    """What the search varies."""

    lr: float
    gate_bias: float | None = None      # None: the form has no gate

    def fields(self) -> dict:
        """Those that there are, for hn.Config and the record."""
        return {name: value for name, value in self._asdict().items()
                if value is not None}


def match_width(net: Net, dataset: str) -> int:
    """The width whose parameters are nearest to those of the highway net."""
    row = DATASETS[dataset]
    return matched_width(net.block, net.depth, WIDTH, math.prod(row.shape), row.classes)


def settings_of(block: str, plan: dict) -> list[Setting]:
    """What the search tries for a form: learning rates, and b_T if it has a gate."""
    biases = plan["gate_biases"] if hn.block_of(block, 1).gates else [None]
    return [Setting(*both) for both in itertools.product(plan["lrs"], biases)]


def untried(accuracies: dict[Setting, float | None], plan: dict) -> list[Setting]:
    """Settings not tried yet: the next value beyond each edge of the grid that the best
    one lies at, with all the values there are of the other."""
    rows = [setting.fields() for setting in accuracies]
    values = {name: sorted({row[name] for row in rows}) for name in rows[0]}
    for name, chosen in best(accuracies).fields().items():
        values[name] = sorted([*values[name], *next_beyond(
            values[name], chosen, plan["beyond"][name])])
    return [setting for setting in map(Setting, *zip(*itertools.product(
        values["lr"], values.get("gate_bias", [None])), strict=True))
        if setting not in accuracies]


def make_config(plan: dict, net: Net, setting: Setting, **rest: int) -> dict:
    """The trial of one net; with split_seed it is one of the search."""
    train, test = DATASETS[plan["dataset"]].images
    held = plan["held_out"]
    images = (train - held, held) if "split_seed" in rest else (train, test)
    return {"block": net.block, "depth": net.depth, "init": "glorot",
            "hidden": match_width(net, plan["dataset"]),
            "n_train": images[0], "n_test": images[1],
            **{name: plan[name] for name in ("batch", "clip", "lr_decay")},
            **setting.fields(), **rest}


@trial_function("blocks.train")
def train_net(config: dict, data: hn.Data) -> dict:
    """One trial: its status, and per epoch the training loss and the accuracy on the
    images it is judged by. config: of hn.Config, and in the search the split_seed that
    draws these from the training images."""
    split = config.pop("split_seed", None)
    settings = hn.Config(**config)
    if split is not None:
        data = hold_out(data, settings.n_test, split)
    net = hn.make_net(settings, data)
    history, _, status = hn.train(net, hn.scale_pixels(data), settings)
    return {"status": status, "parameters": net.params.size,
            "train_loss": history["train_loss"], "acc": history["test_acc"]}


def search(lab: Lab, nets: list[Net]) -> dict[Net, dict]:
    """Every setting of every net, judged on held-out images, and of those whose best
    one lies at an edge ever more -> {net: {setting: accuracy}}."""
    plan = lab.plan
    settings = {net: settings_of(net.block, plan) for net in nets}
    found: dict[Net, dict] = {net: {} for net in nets}
    while any(settings.values()):
        trials = lab.trials(train_net, {
            (net, setting): make_config(
                plan, net, setting, seed=plan["seeds"][0],
                epochs=plan["search_epochs"], split_seed=plan["split_seed"])
            for net in reversed(nets) for setting in settings[net]})
        for (net, setting), trial in trials.items():
            found[net][setting] = trial.result["acc"][-1]
        found = {net: dict(sorted(tried.items(), key=lambda item: (
            item[0].lr, -(item[0].gate_bias or 0)))) for net, tried in found.items()}
        settings = {net: untried(found[net], plan) for net in nets}
    return found


def best(accuracies: dict[Setting, float | None]) -> Setting:
    """The setting of the highest accuracy, of equal ones the first; None is lowest."""
    return max(accuracies, key=lambda setting: accuracies[setting] or -1)


def describe_net(net: Net, plan: dict, accuracies: dict[Setting, float | None],
                 runs: list[Trial]) -> dict:
    """One net's row: its size, the chosen setting and its seeds."""
    chosen = best(accuracies)
    return {"block": net.block, "depth": net.depth,
            "hidden": match_width(net, plan["dataset"]),
            "parameters": runs[0].result["parameters"],
            "chosen": chosen.fields() | {"held_out_acc": accuracies[chosen]},
            "trials": [trial.hash for trial in runs],
            "train_loss": [trial.result["train_loss"][-1] for trial in runs],
            "test_acc": [trial.result["acc"][-1] for trial in runs]}


def run(lab: Lab) -> dict:
    """Search and seeds -> the record."""
    plan = lab.plan
    nets = [Net(block, depth) for depth in plan["depths"] for block in plan["blocks"]]
    found = search(lab, nets)
    trials = lab.by_seed(train_net, {
        net: make_config(plan, net, best(found[net]), epochs=plan["epochs"])
        for net in reversed(nets)}, plan["seeds"])
    return {"nets": [describe_net(net, plan, found[net], trials[net]) for net in nets]}


# --------------------------------------------------------------------------------------
# The figure

MARKERS = dict(zip([*TABLE_1A, BESIDE], "sD^vo*X", strict=True))


def errors(net: dict) -> np.ndarray:
    """The test errors of a net's seeds in %, NaN where one diverged."""
    return 100 - 100 * np.array(net["test_acc"], float)


def draw(record: dict) -> Figure:
    """The record -> the figure: one line per form, mean test error over seeds against
    depth, bars from lowest to highest."""
    nets, plan = record["nets"], record["plan"]
    depths, blocks = plan["depths"], plan["blocks"]
    best: dict[str, list] = {}
    for depth in depths:
        means = {net["block"]: np.mean(or_infinite(errors(net)))
                 for net in nets if net["depth"] == depth}
        best.setdefault(spoken(min(means, key=means.__getitem__)), []).append(depth)
    least = "; ".join(f"{name} at {', '.join(map(str, found))} blocks"
                      for name, found in best.items())
    figure, axes = sheet(
        f"At equal size {min(best)} has the lowest mean test error at every depth"
        if len(best) == 1 else f"The lowest mean test error is that of {least}",
        f"{data_of(plan)}, {plan['epochs']} epochs",
        f"mean and range of {len(plan['seeds'])} seeds")
    for place, block in enumerate(blocks):
        mean, low, high = mean_and_range(np.transpose(
            [errors(net) for net in nets if net["block"] == block]))     # by depth
        # Side by side at each depth, so that bars are not on top of one another.
        x = np.array(depths) * 1.03 ** (place - (len(blocks) - 1) / 2)
        axes.errorbar(x, mean, yerr=[mean - low, high - mean], color=colour_of(block),
                      marker=MARKERS.get(block, "X"), markersize=5, linewidth=1.3,
                      elinewidth=1.3)
    fit_depths(axes, depths)
    axes.margins(x=0.06)
    axes.autoscale(axis="x")
    log_y(axes, "test error, %")
    axes.grid(axis="y", which="both")
    label_right(axes, [(float(np.nanmean(errors(net))),
                        spoken(net["block"]), colour_of(net["block"]))
                       for net in nets if net["depth"] == max(depths)])
    return figure


# --------------------------------------------------------------------------------------
# Claims


def claims_on_forms(nets: list[dict]) -> list[Claim]:
    """Whether P2's ranking carries over, and our own finding that T-only leads."""
    found = {(net["block"], net["depth"]): net for net in nets}
    depths = sorted({net["depth"] for net in nets})
    others = [block for block in TABLE_1A if block != "t_only"]
    n = len(nets[0]["test_acc"])

    def every_ahead(depths: list[int], pairs: list[tuple[str, str]]) -> bool | None:
        return every(ahead(*(found[form, depth]["test_acc"] for form in pair))
                     for depth in depths for pair in pairs)

    def ordered(depth):
        return ", ".join(name_of(form) for form in sorted(
            TABLE_1A, key=lambda form: -sum(or_zero(found[form, depth]["test_acc"]))))
    ranking = [*((form, "t_only") for form in ("c_only", "highway", "full")),
               ("t_only", "residual")]
    of_table = [net for net in nets if net["block"] in TABLE_1A]
    deep = [net for net in of_table if net["depth"] > depths[0]]
    return [
        Claim(name="forms-ranking", text="as in P2's language model "
              "(5.2), C-only, highway and full are ahead of T-only, and T-only of "
              "residual, at every depth, by test accuracy on MNIST. Theirs is the test "
              "perplexity; ours are the forms from the best to the worst",
              paper={name_of(form): value for form, value in TABLE_1A.items()},
              ours={f"{depth} blocks": ordered(depth) for depth in depths},
              rows=of_table, test=lambda: every_ahead(depths, ranking), n=n),
        Claim(name="forms-t-only", text="T-only is ahead of the five other forms of "
              f"P2's table from {depths[1]} blocks on, by test accuracy on MNIST",
              rows=deep, ours={f"{depth} blocks": {
                  "T-only, least": min(or_zero(found["t_only", depth]["test_acc"])),
                  "others, largest": max(max(or_zero(found[form, depth]["test_acc"]))
                      for form in others)} for depth in depths[1:]},
              test=lambda: every_ahead(depths[1:],
                                       [("t_only", form) for form in others]),
              n=n, after_data=True)]


def claim_without_gate(nets: list[dict]) -> Claim:
    """Whether a form without a gate leads T-only."""
    found = {(net["block"], net["depth"]): net["test_acc"] for net in nets}
    depths = sorted({net["depth"] for net in nets})[1:]
    return Claim(
        name="forms-no-gate", text="scaled residual nets, y = x + H/√L, which "
        f"have no gate, are ahead of T-only from {depths[0]} blocks on, by test "
        "accuracy on MNIST. Ours are least and largest",
        rows=[net for net in nets if net["block"] in (BESIDE, "t_only")
              and net["depth"] in depths], n=len(nets[0]["test_acc"]),
        ours={f"{depth} blocks": {
            spoken(form): [least(or_zero(found[form, depth])) for least in (min, max)]
            for form in (BESIDE, "t_only")} for depth in depths},
        test=lambda: every(ahead(found[BESIDE, depth], found["t_only", depth])
                           for depth in depths))


def claim_on_plain(nets: list[dict]) -> Claim:
    """P1's statement on deep plain nets. None where the depths of the run cannot tell.
    """
    plain = [net for net in nets if net["block"] == "plain"]
    losses = {net["depth"]: or_infinite(net["train_loss"]) for net in plain}
    return Claim(
        name="plain-degrades", source="P1 3.1", text="the training loss of plain nets "
        "degrades with depth: that of 50 and 100 layers ends above that of 10, in "
        "every seed, after ten epochs of Adam at the best rate of a search",
        paper="significantly degrades", rows=plain, n=len(losses[plain[0]["depth"]]),
        ours={f"{net['depth']} blocks": net["train_loss"] for net in plain},
        test=lambda: every(ahead(found, losses[plain[0]["depth"]])
                           for depth, found in losses.items() if depth >= 49))


def claims(record: dict) -> list[Claim]:
    """All claims of a record."""
    nets = record["nets"]
    return [*claims_on_forms(nets), claim_without_gate(nets), claim_on_plain(nets)]


EXPERIMENT = Experiment(
    name="blocks", doc=__doc__, plan=PLAN, smoke=SMOKE, run=run,
    claims=claims, figures={"figure": draw})

if __name__ == "__main__":
    main("blocks")
