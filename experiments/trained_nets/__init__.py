"""What does each block of a trained net do, and does a harder task use more of them?

The claims are of P1, section 4 and Figures 2 to 4, and of P2, sections 2 and 4. Most
measurements are on training images, as in P1; stages, and whether T tells the class,
are measured on test images. results/trained_nets/README.md has the protocol. A claim
holds if it holds for each net. What is as true before training, or of plain nets, is
not learned. Momentum is 0.9, the rate falls by 5 % an epoch, nothing is clipped, and
images are less their mean. T below 0.1 is low. An effect on the loss is seen if the
loss doubles. A, of which blocks are estimates, is the last block's output.

Fixed before the nets for CIFAR-10 and CIFAR-100 were trained: all that is claimed of
them, with its limits. More blocks matter, or later ones change, if each number of the
three seeds is above each of the three for MNIST.

Four things were added later. The limits of the first three were fixed before they ran:

    nets whose gates cannot move with the image, W_T = 0. One of 15 epochs, by others,
        was known: it read 96.1 % of the test images, where learned gates read 96.6
    blocks in stages (nets/probes.py). A trial with one seed was known: 10 stages for
        highway blocks, 49 for residual ones. More seeds, kinds, data, depths and epochs
        followed when the numbers of our first seed were known
    quick nets, for a recheck in a minute
    MNIST's nets from the b_T of harder data. When all numbers were known, they became
        what harder data are compared with, and the loss a second measure of whether a
        block matters
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from experiments.lab import Experiment, Lab, Trial
from experiments.lab.judging import name_of_least
from experiments.nets.perceptrons import EPOCHS, SETTINGS
from experiments.nets.probes import sequential_depths
from experiments.trained_nets import claims, trials
from experiments.trained_nets.figures import FIGURES
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
        "harder": ["mnist", "cifar100", "cifar10"], "gate_bias": -4.0,
        "other_kinds": ["cifar10", "cifar100"]},     # with the first seed
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
               "epochs": [1], "depths": [3], "harder": ["digits"], "gate_bias": -4.0,
               "other_kinds": ["digits"]},
    "quick": {"lrs": {"highway": 0.1, "residual": 0.01}, "epochs": 2, "n_train": 300,
              "n_test": 100},
    "harder": PLAN["harder"] | {
        "easy": "digits",
        "data": {"digits": {"gate_bias": -4.0, "classes": [0, 1], "pictured": True,
                            "plain": [0.01]}},
        "control": {"digits": -2.0}, "seeds": [0, 1], "epochs": 4,
        "search": {"lrs": [0.1, 0.2], "epochs": 1, "held_out": 237, "seed": 0},
        "trained": [0.2]}}


def rows_in_stages(lab: Lab, found: Mapping[trials.Staged, Trial]) -> list[dict]:
    """Nets in stages: a row for each, with its sequential depth by the share of answers
    that must stay."""
    shares = lab.plan["stages"]["shares"]
    return [{**staged._asdict(), "trials": [trial.hash], **trial.result,
             "sequential_depth": sequential_depths(trial.result, shares)}
            for staged, trial in found.items()]


def look_at_stages(lab: Lab, record: dict) -> list[dict]:
    """The rows of all nets that the plan wants in stages."""
    wanted = trials.stage_configs(lab.plan, record)
    found: dict[trials.Staged, Trial] = {}
    for data in dict.fromkeys(staged.data for staged in wanted):
        found |= lab.trials(trials.run_in_stages, {
            staged: config for staged, config in wanted.items()
            if staged.data == data}, data)
    return rows_in_stages(lab, found)


def look_at_still_gates(lab: Lab) -> list[dict]:
    """A row for each highway net whose gates cannot move with the image."""
    plan = lab.plan
    return [{"seed": seed, "trials": [trial.hash], **trial.result}
            for seed, trial in lab.trials(trials.look_at_still, {seed: plan["net"] | {
                "block": "highway", "seed": seed, "lrs": plan["lrs"]["highway"],
                "epochs": plan["epochs"], "search_epochs": plan["search_epochs"]}
                for seed in plan["seeds"]}).items()]


def searched(lab: Lab, dataset: str, lrs: Sequence[float], **own: Any
             ) -> dict[float, Trial]:
    """Search the learning rates of harder data -> {rate: trial}."""
    how = {name: value for name, value in lab.plan["harder"]["search"].items()
           if name != "lrs"}
    return lab.trials(trials.search, {lr: lab.plan["net"] | how | own | {"lr": lr}
                                      for lr in lrs}, dataset)


def looked(lab: Lab, dataset: str, rates: Iterable[float], seeds: Sequence[int],
           **own: Any) -> dict[tuple[float, int], Trial]:
    """Train and measure nets of harder data -> {(rate, seed): trial}."""
    harder = lab.plan["harder"]
    return lab.trials(trials.look_at_other_data, {(lr, seed): lab.plan["net"] | own | {
        "epochs": harder["epochs"], "classes": harder["data"][dataset]["classes"],
        "lr": lr, "seed": seed} for lr in rates for seed in seeds}, dataset)


def look_at_rates(lab: Lab, dataset: str) -> dict:
    """Highway nets of harder data -> which learning rates were chosen, by what (the
    fitted rate by nets of the first seed alone), and the nets of each. Raises
    RecordError."""
    plan, bias = lab.plan["harder"], lab.plan["harder"]["data"][dataset]["gate_bias"]
    found = searched(lab, dataset, plan["search"]["lrs"], gate_bias=bias)
    best = name_of_least({lr: -(trial.result["test_acc"][-1] or 0)
                          for lr, trial in found.items()})
    nets = looked(lab, dataset, sorted({best, *plan["trained"]}), plan["seeds"][:1],
                  gate_bias=bias)
    fitted = name_of_least({lr: trial.result.get("error")
                            for (lr, _), trial in nets.items()})
    return {"gate_bias": bias, "fitted": fitted, "held_out": best, "rates": [
        rate_of(lab, dataset, lr, gate_bias=bias)
        for lr in dict.fromkeys([fitted, best])]}


def look_at_plain(lab: Lab, dataset: str) -> dict:
    """Plain nets of harder data, at the learning rate with the lowest training loss at
    the end of the search. Raises RecordError."""
    plan = lab.plan["harder"]
    found = searched(lab, dataset, plan["data"][dataset]["plain"], block="plain")
    lr = name_of_least({lr: trial.result["train_loss"][-1]
                        for lr, trial in found.items()})
    return rate_of(lab, dataset, lr, block="plain")


def rate_of(lab: Lab, dataset: str, lr: float, **own: Any) -> dict:
    """The nets of harder data at a rate, and how many of their blocks matter, by the
    error and by the loss. Raises RecordError if one diverged."""
    found = looked(lab, dataset, [lr], lab.plan["harder"]["seeds"], **own)
    nets = [{"seed": seed, "trials": [trial.hash], **trial.result}
            for (_, seed), trial in found.items()]
    if any(net["training"]["status"] != "ok" for net in nets):
        raise RecordError(f"a net for {dataset} diverged at lr {lr:g}")
    return {"lr": lr, "matter": [claims.matter(net, 0.5) for net in nets],
            "doubling": [claims.doubling(net, 1) for net in nets], "nets": nets}


def run(lab: Lab) -> dict:
    """Train all nets -> the record: what each trial found, by block and data set. For
    the pictures, one of the nets with the lowest training error is trained again."""
    nets, configs = dict[str, list](), trials.configs(lab.plan)
    for (block, seed), trial in lab.trials(trials.look_into, configs).items():
        nets.setdefault(block, []).append(
            {"seed": seed, "trials": [trial.hash], **trial.result})
    data, seeds = lab.plan["harder"]["data"], lab.plan["harder"]["seeds"]
    record: dict[str, Any] = {
        "nets": nets, "still_gates": look_at_still_gates(lab),
        "quick": rows_in_stages(lab, lab.trials(trials.look_quickly,
                                                trials.quick_configs(lab.plan))),
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
        record["harder_control"][dataset] = {"gate_bias": bias} | rate_of(
            lab, dataset, record["harder"][dataset]["fitted"], gate_bias=bias)
    return record | {"stages": look_at_stages(lab, record)}


EXPERIMENT = Experiment(name="trained_nets", doc=__doc__, plan=PLAN, smoke=SMOKE,
                        run=run, claims=claims.claims, figures=FIGURES)
