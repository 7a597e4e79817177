"""A trained highway net that skips what its closed gates do not need.

A unit whose T is nearly 0 hands on its x, whatever H is. So T is computed first, and of
H only the units whose T is above a threshold. Or whole layers are left out, gates and
all. What each costs in accuracy, in movement and in seconds: for the experiment
data_movement.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

import highway_networks as hn
from experiments import movement, tracing
from experiments.inside import weights_hash
from experiments.lab import Lab, load_record
from experiments.pricing import COMMITTED
from experiments.probing import loss_and_error
from highway_suite.records import RecordError

COSTS = ("bytedmd", "address", "bytes")


def skip(net: hn.DeepNet, x: np.ndarray, threshold: float,
         opened: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Images x (P, B) -> logits (C, B), and which units of H were used, (L, U, B):
    those with T above the threshold, or those given."""
    w, used = net.views(net.params), np.empty((net.depth, net.hidden, x.shape[1]), bool)
    x = np.tanh(w["W_in"] @ x + w["b_in"])
    for layer in range(net.depth):
        T = 0.5 + 0.5 * np.tanh(
            0.5 * (w["W_T"][layer] @ x + w["b_T"][layer][:, None]))
        H = np.tanh(w["W_H"][layer] @ x + w["b_H"][layer][:, None])
        used[layer] = threshold < T if opened is None else opened[layer]
        x = x + np.where(used[layer], T * (H - x), 0)
    return w["W_out"] @ x + w["b_out"][:, None], used


def skip_accuracy(net: hn.DeepNet, x: np.ndarray, labels: np.ndarray, threshold: float,
                  rng: np.random.Generator | None = None, size: int = 500
                  ) -> tuple[float, float]:
    """Images x (N, P) -> accuracy and the share of units used. rng: for the control, of
    each layer and image as many units, but drawn at random."""
    right = used = 0.0
    for start in range(0, len(x), size):
        batch = x[start:start + size].T
        logits, opened = skip(net, batch, threshold)
        if rng is not None:
            logits, opened = skip(net, batch, threshold, rng.permuted(opened, axis=1))
        right += np.count_nonzero(logits.argmax(axis=0) == labels[start:start + size])
        used += opened.mean() * batch.shape[1]
    return hn.significant(right / len(x)), hn.significant(used / len(x))


def subnet(net: hn.DeepNet, layers: list[int]) -> hn.DeepNet:
    """The net of these layers alone."""
    settings: dict[str, Any] = {**net.settings, "depth": len(layers)}
    small = hn.DeepNet(**settings, dtype=net.dtype)
    old = net.views(net.params)
    for name, values in small.views(small.params).items():
        in_layers = name.endswith(("_H", "_T", "_C"))
        values[...] = old[name][layers] if in_layers else old[name]
    return small


def forward_costs(net: hn.DeepNet) -> dict:
    """Movement of the core's own forward pass, one image."""
    settings: dict[str, Any] = net.settings
    costs = movement.movement(tracing.trace_forward(hn.DeepNet(**settings), 1))
    return {name: costs[name] for name in COSTS}


def skip_gates(net: hn.DeepNet, images: dict, protocol: dict, draws: int) -> list[dict]:
    """A row for each threshold: accuracy, also of the control, and the movement of one
    image, the mean of several that follow each other. images: {name: (x, labels)}."""
    rows = []
    for threshold in protocol["thresholds"]:
        row: dict = {"threshold": threshold}
        for name, (x, labels) in images.items():
            row[name], row["used"] = skip_accuracy(net, x, labels, threshold)
        rngs = (np.random.default_rng([protocol["seed"], draw])
                for draw in range(draws))
        x, labels = images["test"]
        row["random"] = [skip_accuracy(net, x, labels, threshold, rng)[0]
                         for rng in rngs]
        few = x[:protocol["traced"]]
        opened = skip(net, few.T, threshold)[1].transpose(2, 0, 1)
        costs = movement.movement(tracing.trace_skipping(net, opened))
        rows.append(row | {name: hn.significant(costs[name] / len(few))
                           for name in COSTS})
    return rows


def leave_out(net: hn.DeepNet, images: dict, protocol: dict, order: list[int]
              ) -> list[dict]:
    """A row for each number of layers left out, the first of the order first: accuracy,
    also of the control, which draws the layers at random, and the movement of both."""
    rng = np.random.default_rng([protocol["seed"], 9])
    drawn = [rng.permutation(net.depth) for _ in range(protocol["draws"])]

    def right(name, without):
        x, labels = images[name]
        return hn.significant(1 - loss_and_error(net, x, labels, without)[1])
    return [{"left_out": count} | {name: right(name, order[:count]) for name in images}
            | {"random": [right("test", layers[:count]) for layers in drawn]}
            | forward_costs(subnet(net, list(range(net.depth - count))))
            for count in protocol["left_out"]]


def best_within(rows: list[dict], lost: float) -> dict:
    """The row of least movement that loses at most so much accuracy in training."""
    allowed = [row for row in rows if row["train"] >= rows[0]["train"] - lost]
    return min(allowed, key=lambda row: row["bytedmd"])


def spared_order(lab: Lab, net: hn.DeepNet, data: hn.Data) -> list[int]:
    """Layers, from the one whose closing raises the training loss least: by the record
    of experiments/lesion.py, and in a smoke run anew. Raises RecordError."""
    if lab.options.smoke:
        losses = [loss_and_error(net, data.x_train, data.y_train, [layer])[0]
                  for layer in range(net.depth)]
    else:
        record, _ = load_record(COMMITTED / "lesion" / "record.json")
        fields = record["nets"][net.settings["block"]]
        if fields["sha256"] != weights_hash(net):
            raise RecordError("results/lesion/record.json is not of the net that was "
                              f"trained last. Make it anew: {record['command']}")
        losses = fields["one_closed"]["loss"]
    return [int(layer) for layer in np.argsort(losses, kind="stable")]


def look(lab: Lab, nets: dict[str, hn.DeepNet]) -> dict:
    """All that is skipped, of the trained nets {block: DeepNet} -> a part of the
    record. Both: the gates of what is left when layers were left out."""
    protocol, few = lab.protocol, slice(lab.protocol["images"])
    data = hn.scale_pixels(lab.load_data())
    images = {"train": (data.x_train[few], data.y_train[few]),
              "test": (data.x_test[few], data.y_test[few])}
    found: dict = {"nets": {}, "order": {}, "left_out": {}}
    for block, net in nets.items():
        accuracy = 1 - loss_and_error(net, *images["test"])[1]
        found["nets"][block] = {"parameters": net.params.size,
                                "test": hn.significant(accuracy)} | forward_costs(net)
        if block != "plain":        # which does without no layer
            found["order"][block] = order = spared_order(lab, net, data)
            found["left_out"][block] = leave_out(net, images, protocol, order)
        print(f"{block}: layers left out", flush=True)
    net = nets["highway"]
    found["gates"] = skip_gates(net, images, protocol, protocol["draws"])
    count = best_within(found["left_out"]["highway"], protocol["lost"])["left_out"]
    small = subnet(net, sorted(found["order"]["highway"][count:]))
    found["both"] = skip_gates(small, images, protocol, draws=0)
    threshold = best_within(found["gates"], protocol["lost"])["threshold"]
    found["seconds"] = time_trained(net, small, data.x_test[:1].T, threshold,
                                    protocol["repeats"])
    return found


# --------------------------------------------------------------------------------------
# Seconds


def skipper(net: hn.DeepNet) -> Callable:
    """-> the function (pixels (P, 1), threshold) -> logits (C, 1) that reads W_H only
    where a gate is open: as fast as NumPy lets us. It gathers the rows that it needs,
    for there is no product with some rows of a matrix."""
    w, U = net.views(net.params), net.hidden
    stacked = {name: np.concatenate([w["W_" + name], w["b_" + name][..., None]], -1)
               for name in ("H", "T", "out")}
    half, x = np.array(0.5, net.dtype), np.ones((U + 1, 1), net.dtype)
    T, H, some = (np.empty(shape, net.dtype) for shape in ((U, 1), (U, 1), (U, U + 1)))

    def forward(pixels, threshold):
        np.matmul(w["W_in"], pixels, out=x[:U])
        np.tanh(np.add(x[:U], w["b_in"], out=x[:U]), out=x[:U])
        for W_T, W_H in zip(stacked["T"], stacked["H"], strict=True):
            np.matmul(W_T, x, out=T)
            np.tanh(np.multiply(T, half, out=T), out=T)
            np.add(np.multiply(T, half, out=T), half, out=T)
            units = np.flatnonzero(threshold < T)
            rows, h = some[:len(units)], H[:len(units)]
            np.take(W_H, units, axis=0, out=rows, mode="clip")
            np.tanh(np.matmul(rows, x, out=h), out=h)
            old = x[units]
            x[units] = old + T[units] * (h - old)
        return stacked["out"] @ x
    return forward


def seconds(function: Callable, *arguments: Any, repeats: int) -> float:
    """The least of several timings of one call."""
    calls, spent = 1, 0.0
    while spent < 0.005:
        calls, start = 2 * calls, time.perf_counter()
        for _ in range(calls):
            function(*arguments)
        spent = time.perf_counter() - start
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        for _ in range(calls):
            function(*arguments)
        times.append((time.perf_counter() - start) / calls)
    return hn.significant(min(times))


def time_trained(net: hn.DeepNet, small: hn.DeepNet, x: np.ndarray, threshold: float,
                 repeats: int) -> dict:
    """Seconds that one image x (P, 1) takes: the whole net, its skipping of gates, and
    the net without the layers that are left out."""
    return {"threshold": threshold, "layers": small.depth,
            "whole": seconds(net.forward, x, net.cache(1), repeats=repeats),
            "gates": seconds(skipper(net), x, threshold, repeats=repeats),
            "left_out": seconds(small.forward, x, small.cache(1), repeats=repeats)}


def time_widths(protocol: dict, **ends: Any) -> list[dict]:
    """Untrained nets of growing width, with thresholds that leave so many units to use:
    bytes of the weights that one image reads, and seconds, of both ways."""
    rng, rows = np.random.default_rng(protocol["seed"]), []
    for hidden in protocol["timed"]:
        net = hn.DeepNet("highway", protocol["timed_depth"], hidden, init="glorot",
                         **ends)
        x = rng.uniform(-1, 1, (net.inputs, 1)).astype(net.dtype)
        whole = seconds(net.forward, x, net.cache(1), repeats=protocol["repeats"])
        one, T, H = skipper(net), net.gates(x), net.depth * hidden * (hidden + 1)
        for share in protocol["used"]:
            threshold = float(np.quantile(T, 1 - share))
            weights = net.params.size - H * (1 - (threshold < T).mean())
            rows.append({
                "hidden": hidden, "used": share, "whole_bytes": net.params.nbytes,
                "gates_bytes": round(float(weights)) * net.dtype.itemsize,
                "whole_seconds": whole, "gates_seconds": seconds(
                    one, x, threshold, repeats=protocol["repeats"])})
    return rows
