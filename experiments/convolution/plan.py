"""The plan of `convolution`: depths, layers, b_T and gates, Tables 1 to 3, the ladder.

Depth counts highway layers. P1 counts two layers more, the first convolution and the
softmax: its 10, 20 and 30 layers are 8, 18 and 28 here.

The ladder has the 11 layers of Table 2 on CIFAR-10, ten epochs and three seeds for each
rung, from the authors' way to the best that is found, and the plain twin at both ends.
Tables 2 and 3 have the settings that it keeps.

On one core a step of 11 layers takes 0.2 to 0.3 s with gates, and two thirds of it
without: a rung 0.8 to 1.3 core hours, 60 epochs 1.6 to 2.5 for each net. A step of 19
layers takes 1.4 to 2.7 s with whole images, and 20 epochs, with smaller ones first, 4
to 5 core hours.
"""

from __future__ import annotations

from typing import Any

from experiments.lab.papers import GUIDELINE

# By depth: the highway layers before each pooling.
STAGES = {8: [2, 3, 3], 18: [4, 7, 7], 28: [6, 11, 11]}
BIASES = {depth: GUIDELINE[depth + 2] for depth in STAGES}      # P1's guideline
GATES = {3: "3x3 gates", 1: "1x1 gates", 0: "a number for each map"}

PIECES = {"batch": 100, "piece": 25, "momentum": 0.9}
MNIST = {"net": "table 1", "scale": 256, "centred": False, "crop": 0}   # Caffe's 1/256
COLOUR = {"net": "table 2", "scale": 64, "centred": True, "crop": 4}
DIGITS = {"scale": 16, "batch": 200, "piece": 100}
AUTHORS = {"lr": 0.01, "schedule": "thirds", "order": "files", "decay": 0.001,
           "dropout": 1}
START = {"lr": 0.1, "schedule": "cosine", "order": "shuffled", "decay": 1e-4,
         "dropout": 0.5}
# The authors' solver for Table 3, scaled to any number of epochs.
AUTHORS_2 = {"lr": 0.025, "schedule": "eighths", "order": "shuffled", "decay": 0.001,
             "dropout": 1, "optimizer": "nesterov"}
LOOK = {"images": 2000, "draws": 5}     # at layers, of test images in random orders
HIGHWAY = {"block": "highway", "gate_bias": BIASES[8]}
PLAIN = {"block": "plain"}
# A rung of the ladder tries one change of the settings kept so far. It is kept if its
# accuracy on images held out, the mean over the seeds at the last epoch, is higher than
# that of the last rung kept; one that diverges is not. Test images decide nothing.
RUNGS: list[list] = [
    ["the authors' way", {}],
    ["a rate that rises and falls", {"schedule": "linear"}],
    ["no dropout", {"dropout": 0}],
    ["Adam, decay apart", {"optimizer": "adam", "lr": 0.003, "decay": 0.05}],
    ["Muon for kernels", {"optimizer": "muon", "lr": 0.003, "decay": 0.05}],
    ["whitened colours", {"whitened": True}],
    ["a start of unit variance", {"start": "unit"}]]
BOTH = [{"epochs": 10, "lr": [0.01, 0.03, 0.1, 0.3]},
        {"epochs": 20, "schedule": ["cosine", "thirds"], "decay": [3e-5, 1e-4, 3e-4],
         "dropout": [0.25, 0.5, 0.75]}]


def searched(fixed: dict, steps: list[dict], start: dict | str) -> dict:
    """A search for a net's settings, from some or from those that another chose."""
    return {"fixed": fixed, "start": start, "steps": steps}


def runs(net: str, settings: str, seeds: int) -> dict:
    """Runs of the net of a search, with the settings that one chose or that are given.
    """
    return {"net": net, "settings": settings, "seeds": list(range(seeds))}


PLAN: dict[str, Any] = {
    "dataset": "mnist",
    "depths": {
        "depths": [8, 18, 28], "seeds": [0, 1, 2],
        "lrs": {"highway": [0.01, 0.03, 0.1, 0.3],
                "plain": [0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3]},
        "net": MNIST | PIECES | AUTHORS | {"width": 16, "epochs": 3}},
    "gates": {
        "depths": [8, 28], "biases": [0.0, -1.0, -3.0, -5.0], "seeds": [0, 1, 2],
        "lrs": [0.025, 0.05, 0.1, 0.2],
        "net": MNIST | AUTHORS | {
            "block": "highway", "width": 16, "n_train": 4000, "epochs": 3, "batch": 25,
            "piece": 25, "momentum": 0.9, "dropout": 0, "order": "shuffled"}},
    # The deepest of `depths` again, with the settings that it has there: its layers.
    "layers": {"depth": 28, "seeds": [0, 1, 2], "look": LOOK},
    "table_1": {
        "dataset": "mnist", "held_out": 5000, "epochs": 30,
        "net": MNIST | PIECES | {"stages": STAGES[8]},
        "settings": {"authors": AUTHORS},
        "searches": {
            "highway 16": searched({**HIGHWAY, "width": 16}, [
                *BOTH, {"epochs": 20, "gate_bias": [-1.0, -2.0, -3.0],
                        "dropout": [0, 0.25]},
                {"epochs": 20, "lr": [0.03, 0.06, 0.1]}], START),
            "plain 16": searched({**PLAIN, "width": 16}, [
                *BOTH, {"epochs": 20, "decay": [3e-4, 1e-3], "dropout": [0.75, 1]},
                {"epochs": 20, "lr": [0.005, 0.01, 0.02]}], START),
            "highway 32": searched({**HIGHWAY, "width": 32}, [
                {"epochs": 20, "dropout": [0.25, 0.5, 0.75]}], "highway 16")},
        "runs": [runs("highway 16", "highway 16", 5), runs("highway 16", "authors", 2),
                 runs("plain 16", "plain 16", 3), runs("highway 32", "highway 16", 3),
                 runs("highway 32", "highway 32", 3)]},
    "ladder": {
        "dataset": "cifar10", "net": COLOUR | PIECES | AUTHORS_2,
        "by_rung": {"epochs": 10, "held_out": 5000, "measure": "curve"},
        "blocks": {"highway": HIGHWAY, "plain": PLAIN}, "seeds": [0, 1, 2],
        "rungs": RUNGS},
    "table_2": {
        "dataset": "cifar10", "seeds": {"highway": [0, 1, 2], "plain": [0, 1, 2]},
        "net": {"epochs": 60, "measure": "test by epoch"}},
    "table_3": {
        "dataset": "cifar10", "seeds": {"highway": [0]}, "net": {
            "net": "table 3", "gate_bias": -2.0, "epochs": 20, "sides": [20, 24, 32],
            "threads": 2, "measure": "test by epoch", "look": LOOK}}}

SMOKE: dict[str, Any] = {
    "dataset": "digits",
    "depths": PLAN["depths"] | {
        "depths": [8, 18], "seeds": [0, 1], "lrs": {"highway": [0.01, 0.03],
                                                   "plain": [0.003, 0.01]},
        "net": PLAN["depths"]["net"] | DIGITS | {"width": 4, "n_train": 400,
                                                 "epochs": 1}},
    "gates": PLAN["gates"] | {
        "biases": [0.0, -1.0, -3.0], "seeds": [0], "lrs": [0.1],
        "net": PLAN["gates"]["net"] | DIGITS | {
            "width": 2, "n_train": 100, "epochs": 1, "batch": 50, "piece": 50}},
    "layers": {"depth": 18, "seeds": [0], "look": LOOK | {"images": 200}},
    "table_1": PLAN["table_1"] | {
        "dataset": "digits", "held_out": 1037, "epochs": 1,
        "net": PLAN["table_1"]["net"] | DIGITS | {"n_train": 400},
        "searches": {name: search | {"steps": [{"epochs": 1} | (
            {"gate_bias": [-1.0, -3.0]} if "gate_bias" in search["fixed"] else
            {"lr": [0.01, 0.03]})]} for name, search in PLAN["table_1"]["searches"
                                                             ].items()},
        "runs": [one | {"seeds": [0]} for one in PLAN["table_1"]["runs"]]},
    "ladder": PLAN["ladder"] | {
        "dataset": "digits", "seeds": [0], "net": PLAN["ladder"]["net"] | DIGITS | {
            "crop": 1}, "by_rung": PLAN["ladder"]["by_rung"] | {"held_out": 1037,
                                                                "epochs": 1},
        "rungs": [rung for rung in RUNGS if rung[1] != {"whitened": True}]},
    "table_2": {"dataset": "digits", "seeds": {"highway": [0], "plain": [0]}, "net": {
        "epochs": 1, "n_train": 400, "measure": "test by epoch"}},
    "table_3": {"dataset": "digits", "seeds": {"highway": [0]}, "net": PLAN["table_3"][
        "net"] | {"n_train": 400, "epochs": 1, "sides": [4], "look": LOOK | {
            "images": 200}}}}
