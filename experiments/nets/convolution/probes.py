"""Measure a trained ConvNet stage by stage: its layers closed, in another order, side
by side; how far each is from what the stage ends with.

A stage is all highway layers between two layers of other kinds. Its layers work in
groups: those of a group compute H and T from the same input, the group's. Then each in
turn mixes its H into what is carried. Groups of one are the net itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from experiments.lab.judging import listed
from experiments.nets.convolution.net import Cache, ConvNet

Groups = Sequence[Sequence[int]]        # of layers, by their places in the net


def stages_of(net: ConvNet) -> list[range]:
    """The places of the layers of each stage."""
    highway = [False, *(kind == "highway" for kind, *_ in net.layers), False]
    ends = np.flatnonzero(np.diff(highway))
    return [range(first, end) for first, end in zip(ends[::2], ends[1::2], strict=True)]


def in_groups(cache: Cache, x: np.ndarray, groups: Groups) -> np.ndarray:
    """x (B, S, S, C) -> what a stage makes of it whose layers work in these groups."""
    y, unused = x.copy(), np.empty_like(x)
    for group in groups:
        x = y.copy()
        for layer in (cache.layers[place] for place in group):
            np.copyto(layer.x, x)
            layer.forward(unused)
            y += layer.gates[0] * (layer.H - y)
    return y


def answers(cache: Cache, place: int, x: np.ndarray) -> np.ndarray:
    """x (B, S, S, C), the input of the layer at a place -> the net's answers (B,)."""
    layers = cache.layers[place:]
    np.copyto(layers[0].x, x)
    for layer, y in zip(layers, [*(layer.x for layer in layers[1:]), cache.logits],
                        strict=True):
        layer.forward(y)
    return cache.logits[:, 0, 0].argmax(axis=1)


def variations(stage: range, draws: int, rng: np.random.Generator
               ) -> dict[str, list[Groups]]:
    """Each layer closed, the layers in random orders, in 1, 2, ... equal groups."""
    return {"closed": [[[k] for k in stage if k != closed] for closed in stage],
            "shuffled": [[[k] for k in rng.permutation(stage)] for _ in range(draws)],
            "in_groups": [[part.tolist() for part in np.array_split(stage, n + 1)]
                          for n in range(len(stage))]}


def look_at_stages(net: ConvNet, cache: Cache, batches: Iterable[tuple], draws: int,
                   rng: np.random.Generator) -> dict[str, Any]:
    """The accuracy of a net on batches of images x (P, B) and labels (B,), and of each
    stage, with the variations of this stage alone:

    closed, shuffled    accuracy with each layer closed; in each random order
    in_groups   the share of the whole net's answers that 1, 2, ... groups keep
    mean, std   of the estimation error a_k - A, k = 0 .. n - 1, with A = a_n, the
                stage's output: mean over images and units, and the standard deviation
                over images, mean of the units, both in units of A's (P2, section 4.2)
    """
    stages = [(stage, variations(stage, draws, rng)) for stage in stages_of(net)]
    counts: list[list] = [[] for _ in stages]       # by batch
    sums: list[list] = [[] for _ in stages]
    right, N = 0, 0
    for x, labels in batches:
        logits, _ = net.forward(x, cache)
        whole = logits.argmax(axis=0)
        right, N = right + np.count_nonzero(whole == labels), N + len(labels)
        seen = [np.array([cache.layers[k].x for k in [*stage, stage.stop]])
                for stage, _ in stages]         # variations overwrite it
        for (stage, varied), a, count, own in zip(stages, seen, counts, sums,
                                                  strict=True):
            away = np.concatenate([a[:-1] - a[-1], a[-1:]]).astype(float)
            own.append([away.sum(axis=1), (away ** 2).sum(axis=1)])
            count.append([np.count_nonzero(
                answers(cache, stage.stop, in_groups(cache, a[0], groups))
                == (whole if name == "in_groups" else labels))
                for name, all_groups in varied.items() for groups in all_groups])
    return {"acc": listed(right / N), "stages": [
        shares(varied, np.sum(count, axis=0) / N) | moments(*np.sum(own, axis=0) / N)
        for (_, varied), count, own in zip(stages, counts, sums, strict=True)]}


def shares(varied: dict[str, list], values: np.ndarray) -> dict[str, list[float]]:
    """What was counted of each variation, by name."""
    ends = np.cumsum([len(groups) for groups in varied.values()])
    return {name: listed(part) for name, part in zip(
        varied, np.split(values, ends[:-1]), strict=True)}


def moments(mean: np.ndarray, square: np.ndarray) -> dict[str, list[float]]:
    """Means over images of a_0 - A, ..., and A, (n + 1, S, S, C) -> mean and std."""
    axes = tuple(range(1, mean.ndim))
    std = np.sqrt(np.maximum(square - mean ** 2, 0)).mean(axis=axes)
    return {"mean": listed(mean[:-1].mean(axis=axes) / std[-1]),
            "std": listed(std[:-1] / std[-1])}
