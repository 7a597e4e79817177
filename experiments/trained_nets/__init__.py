"""What does each block of a trained net do, and does a harder task use more of them?

The claims. P1, section 4 and Figures 2 to 4: most transform biases fall; the gates of
one image are sparse and differ by class; the net does not learn a static routing;
closing an early block raises the loss, closing most others does not; on CIFAR-100 more
blocks matter. P2, sections 2 and 4: a plain net does not survive without a block, and
blocks may be shuffled; block outputs a_k are estimates of one value A, with errors of
mean 0 that shrink from block to block, and T mixes them best.

The plan. Highway, residual, plain and T-only nets of 49 blocks of 50 units for MNIST,
five seeds each, all 60,000 training images, momentum SGD, 60 epochs at the learning
rate with the lowest training loss after four. All measurements are on training images,
as P1's, but for readouts. A claim holds if it does for each net; what is as true before
training, or of plain nets, is not learned. Harder data: highway nets at several
learning rates, chosen by held-out images, and by training error as P1 did; a block
matters if closing it costs half a point of training error.

The papers are silent, we assume: momentum 0.9, a rate that falls by 5 % an epoch, no
clipping, images less their mean; T below 0.1 is low; a loss that doubles is seen; A is
the last block's output.

Deviations. P1 took the best of many random settings, we vary the rate alone. P2's nets
are convolutional; what it says of VGG and ResNets stays open. CIFAR-100 is not among
the data yet: CIFAR-10 as JPEGs stands in, and P1's claims on CIFAR-100 stay open.

Cost: an hour on two cores. Finished trials are kept. The weights of the first seed's
nets lie beside the record: python3 -m experiments.trained_nets.weights
"""

from __future__ import annotations

from typing import Any

import highway_networks as hn
from experiments.lab import Experiment, Lab
from experiments.nets.perceptrons import EPOCHS, SETTINGS
from experiments.trained_nets.figures import FIGURES
from experiments.trained_nets.trials import (
    configs,
    look_at_other_data,
    look_into,
    search,
)
from experiments.trained_nets.verdicts import claims, matter
from highway_suite.schema import RecordError

MEASURES: dict[str, Any] = {
    "closed": 0.1, "ridge": 1e-4, "apart": 10, "within": [0.05, 0.1, 0.2],
    "classes": [0, 7], "ranges": {
        "all": [1, 49], "1 to 5": [1, 5], "1 to 15": [1, 15], "16 to 49": [16, 49],
        "30 to 49": [30, 49]},
    "shuffle": {"images": 10_000, "draws": 10, "seed": 0,
                "distances": [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48]}}
PLAN: dict[str, Any] = {
    "dataset": "mnist", "seeds": [0, 1, 2, 3, 4], "net": SETTINGS, "epochs": EPOCHS,
    "search_epochs": 4, "lrs": {"highway": [0.05, 0.1, 0.2, 0.4],
                                "residual": [0.001, 0.003, 0.01, 0.03],
                                "plain": [0.001, 0.003, 0.01, 0.03],
                                "t_only": [0.01, 0.03, 0.1, 0.3]},
    "measures": MEASURES, "first": 5, "early": 15, "idle": [15, 45],
    "harder": {
        # Of each data set: P1's b_T for it first, then MNIST's; the two classes of
        # Figure 3. With MNIST among them, they are compared with its nets here.
        "easy": "mnist",
        "data": {"cifar10-jpeg75": {"gate_biases": [-4.0, -2.0], "classes": [0, 1]}},
        "seeds": [0, 1, 2], "epochs": EPOCHS, "changing": 40,
        "search": {"lrs": [0.0125, 0.025, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6], "epochs": 10,
                   "held_out": 5000, "seed": 0, "near": 0.005},
        "further": [0.2, 0.4, 0.8]}}
SMOKE: dict[str, Any] = {
    "dataset": "digits", "seeds": [0, 1], "net": SETTINGS | {"depth": 6, "hidden": 16},
    "epochs": 6, "search_epochs": 1,
    "lrs": {"highway": [0.1, 0.2], "residual": [0.01], "plain": [0.01],
            "t_only": [0.1]},
    "measures": MEASURES | {
        "apart": 2, "ranges": {"all": [1, 6], "1 to 15": [1, 2], "16 to 49": [3, 6]},
        "shuffle": {"images": 300, "draws": 3, "seed": 0, "distances": [1, 2, 4]}},
    "first": 1, "early": 2, "idle": [3, 5],
    "harder": {
        "easy": "mnist",
        "data": {"digits": {"gate_biases": [-4.0, -2.0], "classes": [0, 1]}},
        "seeds": [0, 1], "epochs": 4, "changing": 5,
        "search": {"lrs": [0.1, 0.2], "epochs": 1, "held_out": 237, "seed": 0,
                   "near": 0.5}, "further": [0.2]}}


def near_the_best(accuracy: dict[float, float], within: float) -> list[float]:
    """The rate with the best accuracy, and then those that are within so much of it."""
    best = max(accuracy, key=accuracy.__getitem__)
    return [best, *(lr for lr, value in accuracy.items()
                    if lr != best and value >= accuracy[best] - within)]


def look_at_rates(lab: Lab, dataset: str) -> list[dict]:
    """Search, train, look into the nets of harder data -> a row for each b_T and rate
    with which no net diverged, the best first. Raises RecordError."""
    plan, about = lab.plan["harder"], lab.plan["harder"]["data"][dataset]
    settings = {name: value for name, value in lab.plan["net"].items()
                if name != "gate_bias"}
    lrs, search_plan, biases = (plan["search"]["lrs"], plan["search"],
                                about["gate_biases"])
    searched = lab.trials(search, {(bias, lr): settings | {
        "gate_bias": bias, "lr": lr, "epochs": search_plan["epochs"],
        "held_out": search_plan["held_out"], "seed": search_plan["seed"]}
        for bias in biases for lr in lrs}, dataset)
    held_out = {key: trial.result["test_acc"][-1] or 0
                for key, trial in searched.items()}
    near = {bias: near_the_best({lr: held_out[bias, lr] for lr in lrs},
                                search_plan["near"]) for bias in biases}
    rates = near | {biases[0]: [*near[biases[0]], *(
        lr for lr in plan["further"] if lr not in near[biases[0]])]}
    looked = lab.trials(look_at_other_data, {(bias, lr, seed): settings | {
        "gate_bias": bias, "lr": lr, "epochs": plan["epochs"], "seed": seed,
        "classes": about["classes"]}
        for bias in biases for seed in plan["seeds"] for lr in rates[bias]}, dataset)
    rows = []
    for bias in biases:
        for lr in rates[bias]:
            trials = {seed: looked[bias, lr, seed] for seed in plan["seeds"]}
            nets = [{"seed": seed, "trials": [trial.hash], **trial.result}
                    for seed, trial in trials.items()]
            if all(net["training"]["status"] == "ok" for net in nets):
                rows.append({"gate_bias": bias, "lr": lr, "near": lr in near[bias],
                             "held_out_acc": held_out[bias, lr],
                             "searched": searched[bias, lr].hash,
                             "matter": [matter(net, 0.5) for net in nets],
                             "nets": nets})
            elif lr == near[bias][0]:
                raise RecordError(f"a net for {dataset} diverged at lr {lr:g}")
    return rows


def run(lab: Lab) -> dict:
    """All nets -> the record: what each trial found, by block and by data set."""
    nets: dict[str, list] = {}
    for (block, seed), trial in lab.trials(look_into, configs(lab.plan)).items():
        nets.setdefault(block, []).append(
            {"seed": seed, "trials": [trial.hash], **trial.result})
    return {"n_train": hn.DATASETS[lab.plan["dataset"]].images[0], "nets": nets,
            "harder": {dataset: look_at_rates(lab, dataset)
                       for dataset in lab.plan["harder"]["data"]}}


EXPERIMENT = Experiment(name="trained_nets", doc=__doc__, minutes=60, plan=PLAN,
                        smoke=SMOKE, run=run, claims=claims, figures=FIGURES)
