"""1000 layers: which initial gate bias lets them train, and are they used?

The claims. P1, section 2.2: a negative initial b_T is enough to train very deep nets,
-1, -2, -3 are a guideline for about 10, 20, 30 layers (of convolutional nets), and SGD
did not stall at more than 1000 layers. J. Fleming's "Highway Networks with TensorFlow"
(2015; "the tutorial" here): 20 plain layers stay below 15 % on MNIST; 1000 highway
layers reach about 95 % with b_T near -20, "just learning to carry the last 980
layers or so".

Everywhere 784 pixels -> one plain layer -> depth - 1 blocks of 50 units -> softmax of
10, so depth counts as P1 counts it. Highway nets: tanh, Glorot's weights, Adam,
gradients clipped at norm 5, batches of 128. Training loss is the mean over an epoch's
steps, each before its update; test accuracy is taken once, after the last epoch, and
chooses nothing. Five parts, a module each, with what it measures and how:

    gate_bias_map   initial b_T from +1 to -20 by depth from 10 to 1000: 6000 training
                    images, 12 epochs, two learning rates, one seed
    use             which layers trained nets of 100, 1000 and 2000 layers use: all
                    60,000 images, one to three seeds
    more_seeds      the guideline's depths with ten seeds, 50 to 200 layers and the
                    largest b_T with three, trained as the map's
    tutorial        its 20 layers, its start against He's, two learning rates: 5 seeds
    norms           signal and gradient before training, of all forms: 5 seeds

The sources are silent, we assume: all of the map and the deep nets, which are fully
connected where the guideline is convolutional, with pixels in [-1, 1]; the tutorial's
55,000 images, drawn here by the seed. Deviations: Adam for P1's SGD; log-sum-exp for
the tutorial's bare logarithm.

Cost on two cores, at 0.1 ms a step and layer: map 30 minutes, deep 90, more_seeds 15,
tutorial 2. Finished trials are kept.
"""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure

import highway_networks as hn
from experiments.judging import Claim
from experiments.old_lab import Experiment, Lab
from experiments.very_deep import gate_bias_map, more_seeds, norms, tutorial, use
from highway_suite.figures import TITLE

PROTOCOL = {
    "dataset": "mnist", "batch": 128,
    "map": {"depths": [10, 20, 30, 50, 100, 200, 500, 1000], "gate_biases": [
                1.0, 0.0, -1.0, -2.0, -3.0, -4.0, -5.0, -7.0, -10.0, -15.0, -20.0],
            "lrs": [1e-3, 5e-3], "n_train": 6000, "epochs": 12},
    "deep": {"lr": 1e-3, "lr_decay": 0.9, "n_train": 60_000, "nets": [
                {"depth": 100, "gate_biases": [-3.0, -4.0, -5.0], "epochs": 15,
                 "seeds": [0, 1, 2]},
                {"depth": 1000, "gate_biases": [-6.0, -7.0, -5.0, -10.0, -20.0, -4.0],
                 "epochs": 12, "seeds": [0]},
                {"depth": 2000, "gate_biases": [-7.0, -10.0], "epochs": 12,
                 "seeds": [0]},
                {"depth": 1000, "gate_biases": [-10.0, -7.0], "epochs": 12,
                 "seeds": [1]},
                {"depth": 1000, "gate_biases": [-20.0], "epochs": 12,
                 "seeds": [1, 2]}],
             "measured": 2560, "lesioned": 50, "kept": [10, 20, 50, 100, 200, 500]},
    "tutorial": {"depth": 19, "steps": 5000, "batch": 50, "n_train": 55_000,
                 "lrs": [0.01, 0.001], "gate_bias": -2.0, "seeds": [0, 1, 2, 3, 4]},
    "more_seeds": {
        "guideline": {"depths": [10, 20, 30], "seeds": list(range(10)),
                      "gate_biases": [0.0, -1.0, -2.0, -3.0, -4.0, -5.0]},
        "advice": {"depths": [50, 100, 200], "seeds": [0, 1, 2], "gate_biases": [
            1.0, 0.0, -1.0, -2.0, -3.0, -4.0, -5.0, -7.0, -10.0, -15.0, -20.0]},
        "largest": {"depths": [1000], "seeds": [0, 1, 2], "gate_biases": [1.0]}},
    "norms": {"depth": 100, "gate_biases": [-2.0, -5.0], "images": 1000,
              "seeds": [0, 1, 2, 3, 4]}}
SMOKE = {
    "dataset": "digits", "batch": 64,
    "map": {"depths": [3, 10], "gate_biases": [1.0, -1.0, -20.0], "lrs": [1e-3, 5e-3],
            "n_train": 640, "epochs": 2},
    "deep": {"lr": 3e-3, "lr_decay": 0.9, "n_train": 1437, "nets": [
                {"depth": 4, "gate_biases": [-1.0], "epochs": 2, "seeds": [0, 1]},
                {"depth": 12, "gate_biases": [-2.0, -20.0], "epochs": 2, "seeds": [0]}],
             "measured": 128, "lesioned": 4, "kept": [1, 2, 5]},
    "tutorial": {"depth": 5, "steps": 40, "batch": 50, "n_train": 1437,
                 "lrs": [0.01, 0.001], "gate_bias": -2.0, "seeds": [0, 1]},
    "more_seeds": {
        "guideline": {"depths": [10], "seeds": [0, 1], "gate_biases": [-1.0, -20.0]},
        "advice": {"depths": [3], "seeds": [0, 1], "gate_biases": [-1.0, -20.0]},
        "largest": {"depths": [10], "seeds": [0], "gate_biases": [1.0]}},
    "norms": {"depth": 8, "gate_biases": [-2.0, -5.0], "images": 100, "seeds": [0]}}
PARTS: dict[str, Any] = {"map": gate_bias_map, "deep": use, "tutorial": tutorial,
                         "norms": norms, "more_seeds": more_seeds}


def train(config: dict, data: hn.Data) -> dict:
    """One trial of any part."""
    return PARTS[config.pop("part")].train(config, data)


def all_configs(protocol: dict) -> dict[tuple, dict]:
    """Every trial, {(part, key): config}, in the order in which they run: short parts
    first, half of the map, the deep nets, the rest of it."""
    of = {part: {(part, key): config for key, config in
                 module.configs(protocol).items()} for part, module in PARTS.items()}
    cells = list(of["map"].items())
    half = len(cells) // len(protocol["map"]["lrs"])
    return (of["norms"] | of["tutorial"] | dict(cells[:half]) | of["more_seeds"]
            | of["deep"] | dict(cells[half:]))


def run(lab: Lab) -> dict:
    """All trials -> the record."""
    trials = lab.trials(train, all_configs(lab.protocol), lab.load_data())
    return {part: module.describe(
        {key: trial.result for (of, key), trial in trials.items() if of == part},
        lab.protocol[part]) for part, module in PARTS.items()}


def check_claims(record: dict) -> list[Claim]:
    """All claims of a record."""
    return [*more_seeds.check(record["more_seeds"]), *use.check(record["deep"]),
            *tutorial.check(record["tutorial"])]


def draw(record: dict) -> Figure:
    """The record -> the figure: the map, the use of layers, the tutorial, the norms."""
    protocol = record["protocol"]
    figure = Figure(figsize=(9, 11), layout="constrained")
    upper, middle, lower = figure.subfigures(
        3, 1, squeeze=False, height_ratios=(1.15, 1.15, 1)).flat
    gate_bias_map.draw(upper, record)
    upper.suptitle(gate_bias_map.message(
        record["map"]["border"], max(record["protocol"]["map"]["gate_biases"])),
        **TITLE | {"size": 11})
    use.draw(middle, record)
    arms, output, gradient = lower.subplots(1, 3)
    tutorial.draw(arms, record["tutorial"], protocol["tutorial"])
    n = len(protocol["norms"]["seeds"])
    norms.draw(output, record["norms"], "output", "rms of block outputs\n"
               f"before training (n = {n})")
    norms.draw(gradient, record["norms"], "gradient", "rms of dL/dy\n"
               f"before training (n = {n})")
    lower.legend(*output.get_legend_handles_labels(), ncols=5, frameon=False,
                 fontsize=8, loc="outside lower center")
    return figure


def pack_by(config: dict) -> str:
    """The packed file of a trial."""
    return (f"deep_{config['depth'] + 1}" if config["part"] == "deep"
            else config["part"])


EXPERIMENT = Experiment(
    name="experiments.very_deep", doc=__doc__, minutes=137, protocol=PROTOCOL,
    smoke=SMOKE, run=run, draw=draw, check=check_claims, pack_by=pack_by)
