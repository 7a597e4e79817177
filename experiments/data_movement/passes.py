"""Trials that price the passes of nets. Shapes decide what they move, no seed does."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import highway_networks as hn
from experiments.data_movement.costs import movement
from experiments.data_movement.tracing import Tape, trace_pass
from experiments.lab import Lab, trial_function
from experiments.lab.experiment import folder_of, load_record
from experiments.nets.perceptrons import matched_width
from highway_suite.datasets import DATASETS

PASSES = ("forward", "step")


def trace(net: hn.DeepNet, name: str, batch: int, optimizer: Any = hn.Adam) -> Tape:
    """The tape of a "forward" pass or a training "step" of so many images."""
    x = np.zeros((batch, net.inputs), net.dtype)
    if name == "forward":
        return trace_pass(net, x)
    return trace_pass(net, x, np.zeros(batch, np.intp), optimizer(net.params))


@trial_function("data_movement.passes", version=2, needs_data=False)
def price_passes(config: dict, _: Any) -> dict:
    """Both passes of all forms of one size -> rows. The nets are as wide as the highway
    net, or, matched, have as many parameters."""
    depth, width, ends = (config[name] for name in ("depth", "hidden", "ends"))
    nets = [(block, width, False) for block in config["forms"]]
    nets += [(block, matched_width(block, depth, width, **ends), True)
             for block in config["matched"]]
    rows = []
    for block, hidden, matched in nets:
        net = hn.DeepNet(block, depth, hidden, **ends)
        rows += [{"block": block, "hidden": hidden, "matched": matched, "pass": name,
                  "parameters": net.params.size}
                 | movement(trace(net, name, config["batch"])) for name in PASSES]
    return {"rows": rows}


def passes(lab: Lab) -> list[dict]:
    """All forms, sizes and batches -> a row for each size and batch. The largest batch
    is priced for one size only."""
    plan, data = lab.plan, DATASETS[lab.plan["dataset"]]
    ends = {"inputs": math.prod(data.shape), "classes": data.classes}
    sizes = [(plan["depth"], hidden) for hidden in plan["widths"]]
    sizes += [(depth, plan["hidden"]) for depth in plan["depths"]]
    configs = {(depth, hidden, batch): {
        "depth": depth, "hidden": hidden, "batch": batch, "ends": ends,
        "forms": plan["forms"], "matched": plan["matched"]}
        for depth, hidden in dict.fromkeys(sizes) for batch in plan["batches"]
        if batch < max(plan["batches"]) or (depth, hidden) == (
            plan["depth"], plan["hidden"])}
    return [{"depth": depth, "hidden": hidden, "batch": batch, "trials": [trial.hash],
             "nets": trial.result["rows"]} for (depth, hidden, batch), trial
            in lab.trials(price_passes, configs).items()]


@trial_function("data_movement.steps", needs_data=False)
def price_step(config: dict, _: Any) -> dict:
    """A training step of one of Figure 1's nets, with momentum SGD. How large rate and
    momentum are moves nothing."""
    net = hn.DeepNet(config["block"], config["depth"], config["hidden"],
                     activation=config["activation"])
    return movement(trace(net, "step", config["batch"],
                          lambda params: hn.SGD(params, 0.9)))


def until_loss(lab: Lab) -> list[dict]:
    """Figure 1's nets, with the settings that are fastest -> rows: what a step moves,
    and how many epochs each seed needs to the loss, None where it does not get there.
    """
    plan = lab.plan["until"]
    record, _ = load_record(folder_of("optimization") / "record.json")
    nets = [net for net in record["nets"] + record["orthogonal"]
            if net["depth"] in plan["depths"]]
    trials = lab.trials(price_step, {number: {
        "block": net["block"], "depth": net["depth"], "hidden": net["hidden"],
        "activation": net["fastest"]["setting"]["activation"],
        "batch": plan["batch"]} for number, net in enumerate(nets)})
    return [{"block": net["block"], "depth": net["depth"], "hidden": net["hidden"],
             "init": net.get("init", "Glorot or He"), **trial.result,
             "epochs": net["fastest"]["epochs_to"][plan["loss"]],
             "trials": [trial.hash]}
            for net, trial in zip(nets, trials.values(), strict=True)]
