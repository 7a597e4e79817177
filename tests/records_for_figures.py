"""Small records, every number of them known, to test pictures and animation on."""

import copy
import json

import numpy as np


def wave(*place):
    """A number in (0, 1) that no two places share."""
    return 0.5 + 0.49 * np.sin(1 + sum((i + 1.7) * n for i, n in enumerate(place)))


def make_arm(block, depth, seed, epochs):
    """One arm of a record: nets with a T learn, the others do not."""
    learns = block in ("highway", "t_only", "full", "own_with_gates")
    e = np.arange(1, epochs + 1)
    noise = 0.02 * wave(depth, seed, e)
    acc = ((0.9 * e / (e + 1) if learns else 0.1) + noise).round(6).tolist()
    loss = ((2 / (e + 1) if learns else 2.3) + noise).round(6).tolist()
    layers = np.arange(depth)
    T = [[e, (0.12 + 0.08 * np.tanh(e) * (wave(seed, e, layers) - 0.5)).round(6)
          .tolist()] for e in range(epochs + 1)] if learns else []
    return {"label": f"{block} {depth}", "block": block, "depth": depth, "seed": seed,
            "parameters": 1000 * depth * (1 + learns), "status": "ok",
            "history": {"epoch": e.tolist(), "train_loss": loss, "train_acc": acc,
                        "grad_norm": [1.0] * epochs, "test_acc": acc},
            "final_train_acc": acc[-1], "final_test_acc": acc[-1],
            "final_train_loss": loss[-1], "layer_T_history": T,
            "final_T_per_layer": T[-1][1] if T else []}


def make_record(depths=(6,), seeds=(0,), epochs=4, gate_bias=-2.0, dataset="mnist",
                blocks=("highway", "plain")):
    """A record of ours."""
    return {"schema": "highway-networks/run", "schema_version": 1,
            "command": "python3 highway_networks.py --seed 0", "dataset": dataset,
            "seed": min(seeds), "seeds": list(seeds), "n_train": 6000, "n_test": 2000,
            "config": {"gate_bias": gate_bias, "init": "uniform",
                       "blocks": list(blocks)},
            "runs": [{"depth": depth, "seed": seed,
                      **{block: make_arm(block, depth, seed, epochs)
                         for block in blocks}}
                     for depth in depths for seed in seeds]}


def diverge(arm, after):
    """Let an arm have no value from the epoch `after` on; -1: no gate either."""
    arm["status"], arm["final_T_per_layer"] = "diverged", []
    for name, values in arm["history"].items():
        if name != "epoch":
            arm["history"][name] = [value if i < after else None
                                    for i, value in enumerate(values)]
    arm["layer_T_history"] = [row for row in arm["layer_T_history"] if row[0] <= after]


def as_earlier(record):
    """The same record as the earlier reproduction wrote it: without our keys, and gates
    only of the deepest highway net, from epoch 1."""
    record = copy.deepcopy(record)
    for key in ("schema", "schema_version", "command", "dataset", "config", "seeds"):
        del record[key]
    deepest = max(run["depth"] for run in record["runs"])
    for run in record["runs"]:
        del run["seed"]
        for block in ("highway", "plain"):
            del run[block]["status"], run[block]["parameters"]
        del run["plain"]["layer_T_history"]
        gates = run["highway"]["layer_T_history"]
        run["highway"]["layer_T_history"] = gates[1:] if run["depth"] == deepest else []
    return record


def save(path, record):
    """Write a record; returns its path as text."""
    path.write_text(json.dumps(record), encoding="utf-8")
    return str(path)
