"""Small records, every number of them known, to test pictures and animation on."""

import copy
import json
import math
from functools import lru_cache

import numpy as np

from highway_suite.figures import MARKERS

OWN = "own_with_gates", "a_block_of_long_name"      # kinds that the suite does not know


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
    T = [[e, (0.12 + 0.08 * math.tanh(e) * (wave(seed, e, layers) - 0.5)).round(6)
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


def with_values(record, loss=None, T=None):
    """The record with these losses, epoch by epoch, or this T in every gate."""
    for run in record["runs"]:
        for block in record["config"]["blocks"]:
            if loss:
                run[block]["history"]["train_loss"] = list(loss)
            for row in run[block]["layer_T_history"] if T is not None else ():
                row[1] = [T] * run["depth"]
    return record


@lru_cache(maxsize=1)
def samples():
    """Name -> record: each kind that the pictures and the animation must hold."""
    lost = make_record(depths=(3, 6, 9), seeds=(0, 1, 2, 3, 4), epochs=5)
    none_left, one_lost = make_record(), make_record()
    for run in lost["runs"]:
        if run["depth"] == 6 or run["seed"] == 4:
            diverge(run["plain"], 2)
    diverge(lost["runs"][-2]["highway"], 3)
    for block in ("highway", "plain"):
        diverge(none_left["runs"][0][block], -1)
    diverge(one_lost["runs"][0]["highway"], 2)
    one_lost["runs"][0]["highway"]["history"]["train_loss"][1] = 3e4
    return {"all forms": make_record((3, 6), (0, 1), blocks=(*MARKERS, *OWN)),
            "long names": make_record((5, 10, 20, 30, 50), range(30), 3, blocks=[
                letter * 24 for letter in "aB_"]),
            "no gates": make_record(blocks=("residual", "plain"), dataset="digits"),
            "one block": make_record(depths=(1,), epochs=1),
            "3000 blocks": make_record((3000,), epochs=2, gate_bias=-8.0),
            "1000 epochs": make_record((1,), (0, 1), epochs=1000),
            "auto 400": make_record((400,), epochs=2, gate_bias=-math.log(399)),
            "gates shut": with_values(make_record(gate_bias=-40.0), T=0.0),
            "gates open": with_values(make_record(gate_bias=100.0), T=1.0),
            "loss 0": with_values(make_record(), [0.0] * 4),
            "loss to 0": with_values(make_record(), [1e30, 1.0, 1e-300, 0.0]),
            "many depths": make_record(range(1, 300), epochs=1),
            "deepest": make_record((1, 5000, 9000, 9500, 100_000), epochs=1),
            "lost": lost, "one lost": one_lost, "none left": none_left,
            "earlier": as_earlier(make_record(depths=(3, 6)))}
