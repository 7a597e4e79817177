"""What does each block of a trained net do, and does a harder task use more of them?

The claims. P1, section 4 and Figures 2 to 4: most transform biases fall. The gates of
one image are sparse, and they differ by class. The net does not learn a static routing.
Closing an early block raises the loss, closing most others does not. On CIFAR-100 more
blocks matter. P2, sections 2 and 4: a plain net does not survive without a block, and
blocks may be shuffled. The block outputs a_k are estimates of one value A. Their errors
have mean 0 and shrink from block to block, and T mixes them best.

For MNIST the learning rate is the one with the lowest training loss after a few epochs.
All measurements are on training images, as in P1. A claim holds if it holds for each
net. What is as true before training, or of plain nets, is not learned.

Harder data are CIFAR-100, as in P1, and CIFAR-10. Highway nets have two learning rates.
One is the best on held-out images. The other is the one with the lowest training error
of fully trained nets of the first seed, because P1 chose its nets in this way. MNIST's
nets for this comparison are chosen alike. Plain nets are trained beside them.

The papers are silent, and we assume: momentum 0.9, a rate that falls by 5 % an epoch,
no clipping, and images less their mean. T below 0.1 is low. An effect on the loss is
seen if the loss doubles. A block matters if closing it costs more than half a point of
training error. A is the output of the last block.

Fixed before the nets for CIFAR-10 and CIFAR-100 were trained: all that is claimed of
them, with its limits. More blocks matter, or later ones change, if each number of the
three seeds is above each of the three for MNIST.

Nets whose gates cannot move with the image, W_T = 0, were added later, searched and
trained as the others. One of 15 epochs, by others, had read 96.1 % of the test images,
where learned gates read 96.6.

Blocks in stages, added later: within a stage, all blocks read the stage's input
(probes.py). The sequential depth of a net is the least number of stages with which, as
with every larger one, 95 % of the first 2,000 test images keep the whole net's answer.
The limits of its claims were fixed before this run. A trial of such nets, with one
seed, was known: 10 stages for highway blocks, 49 for residual blocks. When the numbers
of the first seed were known, more seeds, kinds, data, depths and epochs were added. The
limits of their claims were fixed before they ran.

Quick nets, added last, are for a recheck in a minute: 12,000 images, ten epochs, the
learning rates that the search chose most. The limits of their claims were fixed before
the first of them was trained.

Added later: b_T starts lower on harder data than on MNIST, so MNIST's nets are also
trained from the b_T of harder data, at the learning rate of MNIST's own nets. When all
numbers were known, these became what harder data are compared with, and the loss a
second measure of whether a block matters.

Deviations. P1 took the best of many random settings; we vary only the learning rate.
P2's nets are convolutional; what it says of VGG and ResNets stays open. The weights of
the first seed's nets lie beside the record (weights.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from experiments.lab import Experiment, Lab, Trial
from experiments.lab.judging import name_of_least
from experiments.nets.perceptrons import EPOCHS, SETTINGS
from experiments.nets.probes import sequential_depths
from experiments.trained_nets.claims import claims, doubling, matter
from experiments.trained_nets.figures import FIGURES
from experiments.trained_nets.trials import (
    Staged,
    configs,
    look_at_other_data,
    look_at_still,
    look_into,
    look_quickly,
    quick_configs,
    run_in_stages,
    search,
    stage_configs,
)
from highway_suite.records import RecordError

MEASURES: dict[str, Any] = {
    "closed": 0.1, "apart": 10, "within": [0.05, 0.1, 0.2], "classes": [0, 7],
    "shuffle": {"images": 10_000, "draws": 10, "seed": 0,
                "distances": [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48]}}
PLAN: dict[str, Any] = {
    "dataset": "mnist", "seeds": [0, 1, 2, 3, 4], "net": SETTINGS, "epochs": EPOCHS,
    "search_epochs": 4, "lrs": {"highway": [0.05, 0.1, 0.2, 0.4],
                                "residual": [0.001, 0.003, 0.01, 0.03],
                                "plain": [0.001, 0.003, 0.01, 0.03],
                                "t_only": [0.01, 0.03, 0.1, 0.3]},
    "measures": MEASURES, "early": 15, "idle": [15, 45],
    "stages": {
        "images": 2000, "committed": True, "shares": [0.9, 0.95, 0.99],
        "seeds": {"highway": [0, 1, 2], "residual": [0, 1, 2], "plain": [0, 1, 2],
                  "t_only": [0, 1, 2], "scaled_residual": [0], "c_only": [0],
                  "full": [0]},
        # Blocks that have no nets above search these rates.
        "others": {"scaled_residual": [0.01, 0.03, 0.1, 0.3],
                   "c_only": [0.01, 0.03, 0.1, 0.3], "full": [0.05, 0.1, 0.2, 0.4]},
        "early": ["highway", "residual"], "epochs": [1, 5, 15], "depths": [10, 99],
        "harder": ["mnist", "cifar100", "cifar10"], "gate_bias": -4.0},
    "quick": {"lrs": {"highway": 0.2, "residual": 0.003}, "epochs": 10,
              "n_train": 12_000, "n_test": 2000},
    "harder": {
        # Of each data set: P1's b_T for it, and the two classes of Figure 3. With
        # `pictured` a net is kept for the figures.
        "easy": "mnist",
        "data": {"cifar100": {"gate_bias": -4.0, "classes": [0, 1], "pictured": True,
                              "plain": [0.001, 0.003, 0.01, 0.03]},
                 "mnist": {"gate_bias": -2.0, "classes": [0, 7]},
                 "cifar10": {"gate_bias": -4.0, "classes": [0, 1]}},
        "control": {"mnist": -4.0},
        "seeds": [0, 1, 2], "epochs": EPOCHS, "changing": 40,
        "search": {"lrs": [0.0125, 0.025, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6], "epochs": 10,
                   "held_out": 5000, "seed": 0},
        "trained": [0.1, 0.2, 0.4, 0.8]}}
SMOKE: dict[str, Any] = {
    "dataset": "digits", "seeds": [0, 1], "net": SETTINGS | {"depth": 6, "hidden": 16},
    "epochs": 6, "search_epochs": 1,
    "lrs": {"highway": [0.1, 0.2], "residual": [0.01], "plain": [0.01],
            "t_only": [0.1]},
    "measures": MEASURES | {"apart": 2, "shuffle": {
        "images": 300, "draws": 3, "seed": 0, "distances": [1, 2, 4]}},
    "early": 2, "idle": [3, 5],
    "stages": {"images": 200, "committed": False, "shares": [0.9, 0.95, 0.99],
               "seeds": {"highway": [0, 1], "residual": [0, 1], "scaled_residual": [0]},
               "others": {"scaled_residual": [0.01]}, "early": ["highway"],
               "epochs": [1], "depths": [3], "harder": ["digits"], "gate_bias": -4.0},
    "quick": {"lrs": {"highway": 0.1, "residual": 0.01}, "epochs": 2, "n_train": 300,
              "n_test": 100},
    "harder": PLAN["harder"] | {
        "easy": "digits",
        "data": {"digits": {"gate_bias": -4.0, "classes": [0, 1], "pictured": True,
                            "plain": [0.01]}},
        "control": {"digits": -2.0}, "seeds": [0, 1], "epochs": 4,
        "search": {"lrs": [0.1, 0.2], "epochs": 1, "held_out": 237, "seed": 0},
        "trained": [0.2]}}


def rows_in_stages(lab: Lab, trials: Mapping[Staged, Trial]) -> list[dict]:
    """Nets in stages: a row for each, with its sequential depth by the share of answers
    that must stay."""
    shares = lab.plan["stages"]["shares"]
    return [{**staged._asdict(), "trials": [trial.hash], **trial.result,
             "sequential_depth": sequential_depths(trial.result, shares)}
            for staged, trial in trials.items()]


def look_at_stages(lab: Lab, record: dict) -> list[dict]:
    """The rows of all nets that the plan wants in stages."""
    wanted = stage_configs(lab.plan, record)
    trials: dict[Staged, Trial] = {}
    for data in dict.fromkeys(staged.data for staged in wanted):
        trials |= lab.trials(run_in_stages, {
            staged: config for staged, config in wanted.items()
            if staged.data == data}, data)
    return rows_in_stages(lab, trials)


def look_at_still_gates(lab: Lab) -> list[dict]:
    """A row for each highway net whose gates cannot move with the image."""
    plan = lab.plan
    return [{"seed": seed, "trials": [trial.hash], **trial.result}
            for seed, trial in lab.trials(look_at_still, {seed: plan["net"] | {
                "block": "highway", "seed": seed, "lrs": plan["lrs"]["highway"],
                "epochs": plan["epochs"], "search_epochs": plan["search_epochs"]}
                for seed in plan["seeds"]}).items()]


def searched(lab: Lab, dataset: str, lrs: Sequence[float], **own: Any
             ) -> dict[float, Trial]:
    """Search the learning rates of harder data -> {rate: trial}."""
    how = {name: value for name, value in lab.plan["harder"]["search"].items()
           if name != "lrs"}
    return lab.trials(search, {lr: lab.plan["net"] | how | own | {"lr": lr}
                               for lr in lrs}, dataset)


def looked(lab: Lab, dataset: str, rates: Iterable[float], seeds: Sequence[int],
           **own: Any) -> dict[tuple[float, int], Trial]:
    """Train and measure nets of harder data -> {(rate, seed): trial}."""
    harder = lab.plan["harder"]
    return lab.trials(look_at_other_data, {(lr, seed): lab.plan["net"] | own | {
        "epochs": harder["epochs"], "classes": harder["data"][dataset]["classes"],
        "lr": lr, "seed": seed} for lr in rates for seed in seeds}, dataset)


def look_at_rates(lab: Lab, dataset: str) -> dict:
    """Highway nets of harder data -> which learning rates were chosen, by what, and the
    nets of each. Raises RecordError."""
    plan, bias = lab.plan["harder"], lab.plan["harder"]["data"][dataset]["gate_bias"]
    found = searched(lab, dataset, plan["search"]["lrs"], gate_bias=bias)
    best = name_of_least({lr: -(trial.result["test_acc"][-1] or 0)
                          for lr, trial in found.items()})
    nets = looked(lab, dataset, sorted({best, *plan["trained"]}), plan["seeds"][:1],
                  gate_bias=bias)
    fitted = name_of_least({lr: trial.result.get("error")
                            for (lr, _), trial in nets.items()})
    chosen = list(dict.fromkeys([fitted, best]))
    nets |= looked(lab, dataset, chosen, plan["seeds"][1:], gate_bias=bias)
    return {"gate_bias": bias, "fitted": fitted, "held_out": best, "rates": [
        rate_of(nets, dataset, lr) for lr in chosen]}


def look_at_plain(lab: Lab, dataset: str) -> dict:
    """Plain nets of harder data, at the learning rate with the lowest training loss at
    the end of the search. Raises RecordError."""
    plan = lab.plan["harder"]
    found = searched(lab, dataset, plan["data"][dataset]["plain"], block="plain")
    lr = name_of_least({lr: trial.result["train_loss"][-1]
                        for lr, trial in found.items()})
    nets = looked(lab, dataset, [lr], plan["seeds"], block="plain")
    return rate_of(nets, dataset, lr)


def rate_of(trials: dict[tuple[float, int], Trial], dataset: str, lr: float) -> dict:
    """Of nets by rate and seed those of one rate, and how many of their blocks matter,
    by the error and by the loss. Raises RecordError if one diverged."""
    nets = [{"seed": seed, "trials": [trial.hash], **trial.result}
            for (rate, seed), trial in trials.items() if rate == lr]
    if any(net["training"]["status"] != "ok" for net in nets):
        raise RecordError(f"a net for {dataset} diverged at lr {lr:g}")
    return {"lr": lr, "matter": [matter(net, 0.5) for net in nets],
            "doubling": [doubling(net, 1) for net in nets], "nets": nets}


def run(lab: Lab) -> dict:
    """Train all nets -> the record: what each trial found, by block and data set. For
    the pictures, one of the nets with the lowest training error is trained again."""
    nets: dict[str, list] = {}
    for (block, seed), trial in lab.trials(look_into, configs(lab.plan)).items():
        nets.setdefault(block, []).append(
            {"seed": seed, "trials": [trial.hash], **trial.result})
    data, seeds = lab.plan["harder"]["data"], lab.plan["harder"]["seeds"]
    record: dict[str, Any] = {
        "nets": nets, "still_gates": look_at_still_gates(lab),
        "quick": rows_in_stages(lab, lab.trials(look_quickly, quick_configs(lab.plan))),
        "harder": {}, "harder_plain": {}, "harder_control": {}, "pictures": {}}
    for dataset, about in data.items():
        found = look_at_rates(lab, dataset)
        record["harder"][dataset] = found
        if "plain" in about:
            record["harder_plain"][dataset] = look_at_plain(lab, dataset)
        if about.get("pictured"):
            (trial,) = looked(lab, dataset, [found["fitted"]], seeds[:1],
                              gate_bias=found["gate_bias"], pictured=True).values()
            record["pictures"][dataset] = trial.result["picture"] | {
                "trials": [trial.hash]}
    for dataset, bias in lab.plan["harder"]["control"].items():
        lr = record["harder"][dataset]["fitted"]
        found = looked(lab, dataset, [lr], seeds, gate_bias=bias)
        record["harder_control"][dataset] = {"gate_bias": bias} | rate_of(
            found, dataset, lr)
    return record | {"stages": look_at_stages(lab, record)}


EXPERIMENT = Experiment(name="trained_nets", doc=__doc__, plan=PLAN,
                        smoke=SMOKE, run=run, claims=claims, figures=FIGURES)
