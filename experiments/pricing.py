"""What the passes of nets move: of six forms, by size, and until a training loss.

For the experiment data_movement, whose protocol it goes by, and whose trials these are:
shapes decide them, no seed does.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import highway_networks as hn
from experiments import movement, tracing
from experiments.old_lab import Lab, load_record
from experiments.nets.sizes import matched_width

MODELS = ("bytedmd", "address")
FORMS = ("plain", "highway", "residual", "t_only", "c_only", "full")    # in the record
COMMITTED = Path(__file__).resolve().parents[1] / "results"     # only read: settings of
                                                                # trained nets


def inputs_of(protocol: dict) -> dict[str, Any]:
    """Pixels and classes of the protocol's data set."""
    dataset = hn.DATASETS[protocol["dataset"]]
    return {"inputs": int(np.prod(dataset.shape)),
            "classes": dataset.classes}


def batches_by_size(protocol: dict) -> dict[tuple[int, int], list[int]]:
    """(depth, width) of the nets, and the batches that each is priced at: the largest
    only at the depth that is named so."""
    pairs = [(protocol["depth"], hidden) for hidden in protocol["widths"]]
    pairs += [(depth, protocol["hidden"]) for depth in protocol["depths"]]
    large = (protocol["largest"], protocol["hidden"])
    batches = protocol["batches"]
    return {pair: [batch for batch in batches if batch < max(batches)
                   or pair == large] for pair in dict.fromkeys(pairs)}


def trace(net: hn.DeepNet, name: str, batch: int) -> tracing.Tape:
    """The tape of a "forward" pass or a training "step" with Adam."""
    if name == "forward":
        return tracing.trace_forward(net, batch)
    return tracing.trace_steps(net, batch, hn.Adam(net.params))


def priced(block: str, depth: int, hidden: int, batch: int, ends: dict[str, Any]
           ) -> list[dict]:
    """The passes of one net -> two rows of the record's `passes`."""
    rows = []
    for name in ("forward", "step"):
        net = hn.DeepNet(block, depth, hidden, **ends)
        tape = trace(net, name, batch)
        rows.append({"block": block, "depth": depth, "hidden": hidden, "batch": batch,
                     "pass": name, "parameters": net.params.size}
                    | movement.movement(tape))
    return rows


def price_size(config: dict, _: Any) -> dict:
    """All forms of one size -> rows; `size` is the width of the highway net that a net
    is as wide as, or has as many parameters as."""
    depth, hidden, batch, ends = (config[name] for name in (
        "depth", "hidden", "batch", "ends"))
    nets = [(block, hidden, False) for block in FORMS]
    nets += [(block, matched_width(block, depth, hidden, **ends), True)
             for block in ("plain", "residual")]
    return {"rows": [row | {"size": hidden, "matched": is_matched}
                     for block, units, is_matched in nets
                     for row in priced(block, depth, units, batch, ends)]}


def price_passes(lab: Lab) -> list[dict]:
    """All forms and sizes -> rows."""
    ends = inputs_of(lab.protocol)
    trials = lab.trials(price_size, {
        (*pair, batch): {"part": "pass", "depth": pair[0], "hidden": pair[1],
                         "batch": batch, "ends": ends}
        for pair, batches in batches_by_size(lab.protocol).items()
        for batch in batches}, None)
    return [row for trial in trials.values() for row in trial.result["rows"]]


def price_second(config: dict, _: Any) -> dict:
    """The second of two steps in units of the first."""
    net = hn.DeepNet("highway", config["depth"], config["hidden"], **config["ends"])
    tape = tracing.trace_steps(net, 1, hn.Adam(net.params), steps=2)
    parts = movement.movement(tape)["parts"]
    costs = [sum(cost for part, cost in parts.items() if part.endswith(step))
             for step in ("step 1", "step 2")]
    return {"ratio": hn.significant(costs[1] / costs[0])}


def second_step(lab: Lab) -> float:
    """Is one step like the others?"""
    protocol = lab.protocol
    (trial,) = lab.trials(price_second, {"": {
        "part": "second", "depth": min(protocol["depths"]),
        "hidden": protocol["hidden"], "ends": inputs_of(protocol)}}, None).values()
    return trial.result["ratio"]


def price_rules(config: dict, _: Any) -> dict:
    """Highway and residual nets in units of the plain net of the same width, where the
    rules of the trace differ; and the share of steps on elements in each one's cost."""
    rules = {"as everywhere": tracing.by_kind, "image by image": tracing.by_columns,
             "weights vanish": tracing.forgotten}
    name, tapes, rows = config["pass"], {}, []
    for block in ("plain", "residual", "highway"):
        net = hn.DeepNet(block, config["depth"], config["hidden"], **config["ends"])
        tapes[block] = trace(net, name, config["batch"])
    for rule, change in rules.items():
        costs = {block: movement.movement(change(tape))
                 for block, tape in tapes.items()}
        rows.append({"pass": name, "rule": rule} | {
            block: {model: hn.significant(cost[model] / costs["plain"][model])
                    for model in MODELS} for block, cost in costs.items()})
        if change is tracing.by_kind:
            rows[-1]["elements"] = {
                block: hn.significant(cost["parts"]["elements"] / cost["bytedmd"])
                for block, cost in costs.items()}
    return {"rows": rows}


def other_rules(lab: Lab) -> list[dict]:
    """Both passes by other rules -> rows."""
    protocol = lab.protocol
    trials = lab.trials(price_rules, {
        name: {"part": "rules", "pass": name, "depth": protocol["depth"],
               "hidden": protocol["hidden"], "batch": protocol["few"],
               "ends": inputs_of(protocol)} for name in ("forward", "step")}, None)
    return [row for trial in trials.values() for row in trial.result["rows"]]


def fit_laws(rows: list[dict]) -> list[dict]:
    """cost = factor parameters^exponent, by least squares of the logarithms, for each
    pass, batch and model; worst: the largest ratio of a cost to the law or back."""
    laws = []
    for name, batch in sorted({(row["pass"], row["batch"]) for row in rows}):
        own = [row for row in rows if (row["pass"], row["batch"]) == (name, batch)]
        for model in MODELS:
            x, y = (np.log([row[key] for row in own]) for key in ("parameters", model))
            exponent, offset = np.polyfit(x, y, 1)
            worst = np.exp(np.abs(y - exponent * x - offset).max())
            laws.append({"pass": name, "batch": batch, "model": model, "n": len(own)}
                        | {key: hn.significant(value) for key, value in (
                            ("exponent", exponent), ("factor", np.exp(offset)),
                            ("worst", worst))})
    return laws


def price_step(config: dict, _: Any) -> dict:
    """A training step of one of Figure 1's nets. Which momentum it has moves nothing.
    """
    net = hn.DeepNet(config["block"], config["layers"] - 1, config["hidden"],
                     activation=config["activation"])
    optimizer = hn.SGD(net.params, 0.9)
    return {"parameters": net.params.size, "step": movement.movement(
        tracing.trace_steps(net, config["batch"], optimizer))}


def until_loss(lab: Lab) -> dict:
    """Figure 1's nets -> the price of a step and of all steps to the loss, by seed,
    None where it is not reached."""
    protocol, found = lab.protocol, []
    record, _ = load_record(COMMITTED / "optimization" / "record.json")
    steps = hn.DATASETS[record["dataset"]].images[0] // protocol["loss_batch"]
    nets = {(fields["block"], fields["depth"]): fields for fields in record["nets"]
            if fields["depth"] in protocol["layers"]}
    settings = {key: record["settings"][fields["best"]["setting"]]
                for key, fields in nets.items()}
    trials = lab.trials(price_step, {
        key: {"part": "loss", "block": fields["block"], "layers": fields["depth"],
              "hidden": fields["hidden"], "batch": protocol["loss_batch"],
              "activation": settings[key]["activation"]}
        for key, fields in nets.items()}, None)
    for key, fields in nets.items():
        epochs, priced = fields["best"]["epochs_to"][protocol["loss"]], trials[key]
        costs = priced.result["step"]
        found.append({
            "block": fields["block"], "layers": fields["depth"],
            "hidden": fields["hidden"], **priced.result, "epochs": epochs,
            "total": {model: [epoch and epoch * steps * costs[model]
                              for epoch in epochs] for model in MODELS}})
    return {"steps_per_epoch": steps, "nets": found}


def reference(lab: Lab) -> list[dict]:
    """The published numbers and ours."""
    (trial,) = lab.trials(price_reference, {"": {"part": "reference"}}, None).values()
    return trial.result["rows"]


def price_reference(config: dict, _: Any) -> dict:
    """The programs of the models' authors."""
    return {"rows": movement.published()}
