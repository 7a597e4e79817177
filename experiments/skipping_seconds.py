"""How long skipping takes in NumPy, beside the whole pass: for data_movement.

Two ways take turns, and what counts is the median of the ratios of neighbours: what
another program takes from the processor, it takes from both.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

import highway_networks as hn
from experiments.old_lab import Lab
from experiments.skipping import (
    best_within,
    how_trained,
    spared_order,
    subnet,
    trained_net,
)

LEAST = 0.005       # seconds of a measurement


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


def seconds(function: Callable, calls: int) -> float:
    """Of so many calls, the mean."""
    start = time.perf_counter()
    for _ in range(calls):
        function()
    return (time.perf_counter() - start) / calls


def calls_of(function: Callable) -> int:
    """How many calls take long enough to be measured."""
    calls = 1
    while seconds(function, calls) * calls < LEAST:
        calls *= 2
    return calls


def by_turns(whole: Callable, other: Callable, repeats: int) -> dict:
    """Two functions, so often in turn -> the least seconds of each, and the median and
    the quartiles of the ratios of neighbours, other / whole."""
    calls = calls_of(whole), calls_of(other)
    times = np.array([[seconds(function, count) for function, count in zip(
        (whole, other), calls, strict=True)] for _ in range(repeats)])
    low, middle, high = np.quantile(times[:, 1] / times[:, 0], [0.25, 0.5, 0.75])
    least = times.min(axis=0)
    return {name: hn.significant(value) for name, value in (
        ("whole", least[0]), ("other", least[1]), ("ratio", middle),
        ("lower_quartile", low), ("upper_quartile", high))}


def time_trained(config: dict, data: hn.Data) -> dict:
    """One image through a trained net, Data as read: skipping the units of closed
    gates, and without the layers that are left out, each beside the whole net."""
    scaled = hn.scale_pixels(data)
    net, _ = trained_net(config, scaled)
    x, cache = scaled.x_test[:1].T, net.cache(1)
    small = subnet(net, config["kept"])
    small_cache, skipping = small.cache(1), skipper(net)
    whole = partial(net.forward, x, cache)
    with threadpool_limits(1, "blas"):
        return {"seconds": {
            "gates": by_turns(whole, partial(skipping, x, config["threshold"]),
                             config["repeats"]),
            "left_out": by_turns(whole, partial(small.forward, x, small_cache),
                                config["repeats"])}}


def time_width(hidden: int, seed: int, config: dict) -> list[dict]:
    """An untrained net, with thresholds that leave so many units to use: bytes of the
    weights that one image reads, and seconds, of both ways."""
    rng, rows = np.random.default_rng(seed), []
    net = hn.DeepNet("highway", config["depth"], hidden, init="glorot",
                     seed=seed, **config["ends"])
    x = rng.uniform(-1, 1, (net.inputs, 1)).astype(net.dtype)
    whole = partial(net.forward, x, net.cache(1))
    one, T, H = skipper(net), net.gates(x.T), net.depth * hidden * (hidden + 1)
    for share in config["used"]:
        threshold = float(np.quantile(T, 1 - share))
        weights = net.params.size - H * (1 - (threshold < T).mean())
        rows.append({
            "hidden": hidden, "seed": seed, "used": share,
            "whole_bytes": net.params.nbytes,
            "gates_bytes": round(float(weights)) * net.dtype.itemsize,
            "seconds": by_turns(whole, partial(one, x, threshold), config["repeats"])})
    return rows


def time_widths(config: dict, _: Any) -> dict:
    """Nets of growing width, several of each."""
    with threadpool_limits(1, "blas"):
        return {"rows": [row for hidden in config["widths"] for seed in config["seeds"]
                         for row in time_width(hidden, seed, config)]}


# --------------------------------------------------------------------------------------
# Each in a trial of its own, which no other trial runs beside


def of_trained(lab: Lab, found: dict, data: hn.Data) -> dict:
    """The highway net of the first seed, of which that was found -> the seconds, and
    what was skipped."""
    protocol, seed = lab.protocol, found["seed"]
    threshold = best_within(found["gates"], protocol["lost"])["threshold"]
    count = best_within(found["left_out"], protocol["lost"])["left_out"]
    skipped = {"threshold": threshold,
               "kept": sorted(spared_order(found["closed"])[count:])}
    nets = protocol["nets"] | {"dataset": protocol["dataset"], "seed": seed}
    config = {"part": "seconds", "what": "trained", "block": "highway", "seed": seed,
              "repeats": protocol["repeats"], **how_trained(nets, "highway"), **skipped}
    (trial,) = lab.trials(time_trained, {"": config}, data).values()
    return skipped | trial.result


def of_widths(lab: Lab, ends: dict[str, Any]) -> list[dict]:
    """Untrained nets -> rows."""
    protocol = lab.protocol
    config = {"part": "seconds", "what": "widths", "widths": protocol["timed"],
              "seeds": protocol["seeds"], "used": protocol["used"], "ends": ends,
              "depth": protocol["timed_depth"], "repeats": protocol["repeats"]}
    (trial,) = lab.trials(time_widths, {"": config}, None).values()
    return trial.result["rows"]
