"""From the plan to the rows of the record: what is trained, chosen and kept."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

import highway_networks as hn
from experiments.convolution.plan import BIASES, GATES, STAGES
from experiments.convolution.trials import make_net, train
from experiments.lab import Lab, Trial
from experiments.lab.judging import listed, mean_and_std, name_of_least, or_infinite
from highway_suite.datasets import DATASETS


def hashes(trials: list[Trial]) -> list[str]:
    """Of trials, as a row names those that decide it."""
    return [trial.hash for trial in trials]


def last_losses(trials: list[Trial], name: str = "train_loss") -> list[float | None]:
    """The loss of each one's last epoch; None where it diverged."""
    return [trial.result[name][-1] for trial in trials]


def percent(trials: list[Trial]) -> list[float | None]:
    """The accuracy of each in %; None where it diverged."""
    return [hn.significant(100 * trial.result["acc"]) if "acc" in trial.result else None
            for trial in trials]


# --------------------------------------------------------------------------------------
# Depths


def depth_config(plan: dict, block: str, depth: int, lr: float) -> dict:
    """The trial of a net that compares depths; it lacks the seed."""
    bias = {"gate_bias": BIASES[depth]} if block == "highway" else {}
    return plan["net"] | bias | {
        "block": block, "stages": STAGES[depth], "lr": lr,
        "measure": "gates" if block == "highway" else "test"}


def mean_gates(trials: list[Trial]) -> dict[str, list]:
    """T of each layer by cell, ink or blank, of each seed."""
    return {cells: [trial.result["T"][cells] for trial in trials]
            for cells in ("ink", "blank")}


def rows_by_depth(lab: Lab) -> list[dict]:
    """Nets of both kinds by depth: the first seed tries all rates, the others take the
    one with the least last training loss. Untrained highway nets are a control."""
    plan = lab.plan["depths"]
    nets = [(block, depth) for block in plan["lrs"] for depth in plan["depths"]]
    tried = lab.by_seed(train, {
        (net, lr): depth_config(plan, *net, lr)
        for net in nets for lr in plan["lrs"][net[0]]}, plan["seeds"][:1])
    best = {net: name_of_least({lr: last_losses(tried[net, lr])[0]
                                for lr in plan["lrs"][net[0]]}) for net in nets}
    configs = {net: depth_config(plan, *net, best[net]) for net in nets}
    start = lab.by_seed(train, {net: config | {"epochs": 0} for net, config
                                in configs.items() if net[0] == "highway"},
                        plan["seeds"])
    rows = []
    for net, trials in lab.by_seed(train, configs, plan["seeds"]).items():
        row = {"block": net[0], "depth": net[1], "lr": best[net],
               "train_loss": last_losses(trials), "test_percent": percent(trials),
               "trials": hashes(trials)}
        if net[0] == "highway":
            row |= {"T": mean_gates(trials), "T_untrained": mean_gates(start[net]),
                    "untrained": hashes(start[net])}
        rows.append(row)
    return rows


def rows_by_layer(lab: Lab, depths: list[dict]) -> list[dict]:
    """What is found of the layers of each stage, a row for each seed's net. depths: the
    rows of `rows_by_depth`, for the rate."""
    plan = lab.plan["layers"]
    lr = next(row["lr"] for row in depths
              if (row["block"], row["depth"]) == ("highway", plan["depth"]))
    config = depth_config(lab.plan["depths"], "highway", plan["depth"], lr) | {
        "measure": "test", "look": plan["look"]}
    return rows_of_layers(lab.by_seed(train, in_states(config), plan["seeds"]))


def in_states(config: dict) -> dict[str, dict]:
    """The trials of a net whose layers are looked at: as it is, and untrained."""
    return {"trained": config, "untrained": config | {"epochs": 0}}


def rows_of_layers(states: dict[str, list[Trial]]) -> list[dict]:
    """The rows of one net's trials by state and seed, but for seeds that diverged."""
    return [{"seed": trials[0].config["seed"], "trials": hashes(trials)} | {
        state: trial.result["layers"] for state, trial in zip(states, trials,
                                                              strict=True)}
        for trials in zip(*states.values(), strict=True)
        if all("layers" in trial.result for trial in trials)]


# --------------------------------------------------------------------------------------
# b_T and gates


def gate_nets(plan: dict) -> list[tuple[int, int, float]]:
    """(depth, side of the gate, b_T): all b_T of gates that see something, and the
    guideline's of all gates."""
    return [(depth, gate, bias) for depth in plan["depths"] for gate in GATES
            for bias in plan["biases"] if gate or bias == BIASES[depth]]


def rows_by_gate(lab: Lab) -> list[dict]:
    """The last training losses of each net, by learning rate and seed."""
    plan = lab.plan["gates"]
    runs = lab.by_seed(train, {
        (net, lr): plan["net"] | {
            "stages": STAGES[net[0]], "gate": net[1], "gate_bias": net[2], "lr": lr,
            "measure": "nothing"}
        for net in gate_nets(plan) for lr in plan["lrs"]}, plan["seeds"])
    rows = []
    for net in gate_nets(plan):
        own = [runs[net, lr] for lr in plan["lrs"]]
        rows.append({
            **dict(zip(("depth", "gate", "gate_bias"), net, strict=True)),
            "train_loss": [last_losses(trials) for trials in own],
            "trials": [name for trials in own for name in hashes(trials)]})
    return rows


# --------------------------------------------------------------------------------------
# Table 1


def search(trials: Callable, fixed: dict, start: dict, steps: list[dict]) -> dict:
    """Choose a net's settings by the loss on training images held out.

    In each step the net has the settings chosen so far and tries for some epochs the
    values of one or several others, one at a time; of each setting it then keeps the
    value with the least loss. At the end the one trial with the least loss decides, of
    those with the most epochs: values that were best one at a time need not be so
    together. The loss is the mean cross-entropy: of 5000 images so few are
    misclassified that their number says less.

    trials({key: config}) -> {key: Trial}; steps: {"epochs": n, setting: values, ...}.
    """
    chosen, decided, best = start, start, (0, np.inf)
    for step in steps:
        epochs = step["epochs"]
        values_of = {name: step[name] for name in step if name != "epochs"}
        found = trials({(name, value): fixed | chosen | {name: value, "epochs": epochs}
                        for name, values in values_of.items() for value in values})
        losses = {key: trial.result.get("loss") for key, trial in found.items()}
        name, value = name_of_least(losses)
        loss = float(or_infinite(losses[name, value]))
        if (-epochs, loss) < best:
            best, decided = (-epochs, loss), chosen | {name: value}
        chosen = chosen | {name: name_of_least(
            {value: losses[name, value] for value in values})
            for name, values in values_of.items()}
    return decided


def table_1(lab: Lab) -> dict:
    """Its searches, and a row for each net that was run."""
    plan = lab.plan["table_1"]
    ask = partial(lab.trials, train, dataset=plan["dataset"])
    chosen = dict(plan["settings"])
    for net, about in plan["searches"].items():
        start = about["start"]
        chosen[net] = search(
            ask, plan["net"] | about["fixed"] | {
                "seed": 0, "held_out": plan["held_out"], "measure": "held out"},
            chosen[start] if isinstance(start, str) else start, about["steps"])
    settings = [plan["searches"][one["net"]]["fixed"] | chosen[one["settings"]]
                | {"epochs": plan["epochs"]} for one in plan["runs"]]
    trials = ask({(i, seed): plan["net"] | settings[i] | {
        "seed": seed, "measure": "test"}
        for i, one in enumerate(plan["runs"]) for seed in one["seeds"]})
    rows = [describe_runs(one, settings[i], [trials[i, seed] for seed in one["seeds"]])
            for i, one in enumerate(plan["runs"])]
    return {"title": DATASETS[plan["dataset"]].title, "nets": rows}


def describe_runs(about: dict, settings: dict, trials: list[Trial]) -> dict:
    """The row of a net's runs; accuracies in %, with the standard error of their mean.
    """
    accuracy = percent(trials)
    numbers = mean_and_std(accuracy)
    error = numbers["std"] and listed(numbers["std"] / np.sqrt(numbers["n"]))
    return {"net": about["net"], "settings_of": about["settings"], **settings,
            "parameters": trials[0].result["parameters"],
            "test_percent": accuracy, **numbers, "standard_error": error,
            "best": max((value for value in accuracy if value is not None),
                        default=None), "trials": hashes(trials)}


# --------------------------------------------------------------------------------------
# The ladder, and what follows from it


def kept_of(rungs: list[dict]) -> list[dict]:
    """Those whose change was kept."""
    return [rung for rung in rungs if rung["kept"]]


def ladder(lab: Lab) -> dict:
    """Rung by rung what each change is worth, and the plain twin on the first and on
    the last that was kept."""
    plan = lab.plan["ladder"]
    rungs: list[dict] = []
    for name, change in plan["rungs"]:
        kept = kept_of(rungs)
        rung = climb(lab, "highway", name, (kept[-1]["settings"] if kept else {})
                     | change)
        rungs.append(rung | {
            "kept": not kept or rung["held_out_mean"] > kept[-1]["held_out_mean"]})
    kept = kept_of(rungs)
    twins = [climb(lab, "plain", rung["rung"], rung["settings"])
             for rung in kept[:1] + kept[1:][-1:]]
    return {"title": DATASETS[plan["dataset"]].title, "rungs": rungs, "twins": twins}


def by_ladder(lab: Lab, name: str, found: dict) -> dict:
    """Table 2 or 3, a row for each net: the highway net has the settings of the
    ladder's best rung, the plain one those of the better of its own. Where the plan has
    "look", also the rows of what is found of the layers."""
    plan, nets, layers = lab.plan[name], [], []
    best = {"highway": kept_of(found["rungs"])[-1],
            "plain": max(found["twins"], key=lambda rung: rung["held_out_mean"])}
    for block, seeds in plan["seeds"].items():
        settings = (lab.plan["ladder"]["blocks"][block] | best[block]["settings"]
                    | plan["net"])
        config = lab.plan["ladder"]["net"] | settings
        states = lab.by_seed(train, in_states(config) if "look" in config else {
            "trained": config}, seeds, plan["dataset"])
        if seeds:
            own = {key: value for key, value in settings.items() if key != "net"}
            trials = states["trained"]
            nets.append(describe_runs(
                {"net": block, "settings": best[block]["rung"]}, own, trials) | {
                    "train_loss": last_losses(trials),
                    "test_loss": last_losses(trials, "test_loss"),
                    "test_by_epoch": curves(trials, "test_acc")})
        if "look" in config:
            layers += rows_of_layers(states)
    return {"title": DATASETS[plan["dataset"]].title, "nets": nets, "layers": layers}


def curves(trials: list[Trial], name: str) -> list[list[float | None]]:
    """What each trial has by epoch, in %; None after it diverged."""
    return [[value and hn.significant(100 * value) for value in trial.result[name]]
            for trial in trials]


def climb(lab: Lab, block: str, name: str, settings: dict) -> dict:
    """The row of a rung: accuracies in %, of each seed by epoch on images held out."""
    plan = lab.plan["ladder"]
    config = plan["net"] | plan["by_rung"] | plan["blocks"][block] | settings
    (trials,) = lab.by_seed(train, {name: config}, plan["seeds"], plan["dataset"]
                            ).values()
    held_out = curves(trials, "held_out_acc")
    last = [curve[-1] or 0 for curve in held_out]
    return {"rung": name, "block": block, "settings": settings, "held_out": held_out,
            "held_out_mean": hn.significant(float(np.mean(last))) if all(last) else 0,
            "train_loss": last_losses(trials), "test_percent": percent(trials),
            "trials": hashes(trials)}


def count_parameters() -> dict[str, int]:
    """Of the nets of the paper's tables, by our reading of Table 2."""
    def count(table, classes=10, size=3072, **more):
        config = {"net": table, "block": "highway", "dropout": 1, "seed": 0, **more}
        return make_net(config, size, classes=classes).params.size
    return {"Table 1, width 16": count("table 1", size=784, stages=STAGES[8], width=16),
            "Table 1, width 32": count("table 1", size=784, stages=STAGES[8], width=32),
            "Table 3, CIFAR-10": count("table 3"),
            "Table 3, CIFAR-100": count("table 3", classes=100)}


def run(lab: Lab) -> dict:
    """All trials -> the record: rows for each question."""
    found, depths = ladder(lab), rows_by_depth(lab)
    return {"parameters": count_parameters(), "gates": rows_by_gate(lab),
            "depths": depths, "layers": rows_by_layer(lab, depths),
            "table_1": table_1(lab), "ladder": found,
            "table_2": by_ladder(lab, "table_2", found),
            "table_3": by_ladder(lab, "table_3", found)}
