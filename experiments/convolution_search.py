"""Settings of convolutional nets, chosen on training images that a net did not see.

A search goes by steps. In each, every net has the settings chosen so far and tries for
some epochs the values of one or several settings, one at a time; of each setting it
then keeps the value with the least loss on the images held out, in the last epoch. At
the end the one trial with the least loss decides, of those with the most epochs: values
that were best one at a time need not be so together. The loss is the mean cross-
entropy: of 5000 images so few are misclassified that their number says less.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any

import numpy as np

import highway_networks as hn
from experiments.judging import or_infinite
from experiments.old_lab import Lab


def describe_setting(name: str, epochs: int, values: list, results: list[dict]) -> dict:
    """What became of the values of one setting, at the end of their trials."""
    last = {key: [result[key][-1] for result in results]
            for key in ("held_out_loss", "held_out_acc", "train_loss")}
    return {"setting": name, "epochs": epochs, "values": values, **last,
            "chosen": values[int(np.argmin(or_infinite(last["held_out_loss"])))]}


def search(lab: Lab, train: Callable, data: hn.Data, nets: Mapping[Hashable, dict],
           start: dict, steps: list[dict]) -> dict[Any, dict]:
    """Choose settings for nets, {key: the rest of a trial's config} -> {key: the
    settings chosen, and what was tried, as the record keeps it}.

    start: the settings before the first step; steps: {"epochs": of a trial, setting:
    its values, ...}, where the nets try others {key: values}. All nets take a step
    together.
    """
    found: dict[Any, dict] = {key: {"chosen": dict(start), "tried": []} for key in nets}
    best: dict[Any, tuple] = {}     # key -> - epochs, loss, settings of its best trial
    for step in steps:
        plan = {key: {name: values.get(key, []) if isinstance(values, Mapping)
                      else values for name, values in step.items() if name != "epochs"}
                for key in nets}
        trials = lab.trials(train, {
            (key, name, value): net | found[key]["chosen"] | {
                name: value, "epochs": step["epochs"]}
            for key, net in nets.items() for name, values in plan[key].items()
            for value in values}, data)
        for (key, name, value), trial in trials.items():
            loss = float(or_infinite(trial.result["held_out_loss"])[-1])
            rank = -step["epochs"], loss, found[key]["chosen"] | {name: value}
            best[key] = min(best.get(key, rank), rank, key=lambda one: one[:2])
        for key in nets:
            tried = [describe_setting(name, step["epochs"], values, [
                trials[key, name, value].result for value in values])
                for name, values in plan[key].items() if values]
            found[key]["tried"] += tried
            found[key]["chosen"] |= {one["setting"]: one["chosen"] for one in tried}
    for key, (_, _, settings) in best.items():
        found[key]["chosen"] = settings
    return found
