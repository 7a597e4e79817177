"""Measure a trained ConvNet stage by stage: its layers closed, in another order, side
by side; how far each is from what the stage ends with.

A stage is all highway layers between two layers of other kinds. Its layers work in
groups, what probes.py of the folder above calls stages: those of a group compute H and
T from the same input, the group's. Then each in turn mixes its H into what is carried.
Groups of one are the net itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from experiments.nets.convolution.net import Cache, ConvNet

Groups = Sequence[Sequence[int]]        # of layers, by their places in the net


def places_of_stages(net: ConvNet) -> list[range]:
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
    """Each layer closed; the layers in random orders; in 1, 2, ... equal groups."""
    return {"closed": [[[k] for k in stage if k != closed] for closed in stage],
            "shuffled": [[[k] for k in rng.permutation(stage)] for _ in range(draws)],
            "in_groups": [[part.tolist() for part in np.array_split(stage, n + 1)]
                          for n in range(len(stage))]}


def look_at_stages(net: ConvNet, batches: Iterable[tuple], draws: int,
                   rng: np.random.Generator) -> dict[str, Any]:
    """Measure a net on batches of images x (P, B) and labels (B,), B always the same:
    its accuracy "acc", and of each of its "stages" what follows. Only this stage is
    varied then, and the others stay as they are.

    closed, shuffled    the accuracy with each layer closed; in each random order
    in_groups   the share of the whole net's answers that 1, 2, ... groups keep
    mean, std   of the estimation error a_k - A, k = 0 .. n - 1, with A = a_n, the
                stage's output: the mean over images and units, and the standard
                deviation over images, mean of the units; both in units of A's
                (P2, section 4.2)
    """
    stages = [(stage, variations(stage, draws, rng)) for stage in places_of_stages(net)]
    counts = [{name: np.zeros(len(every)) for name, every in varied.items()}
              for _, varied in stages]
    sums: list[list] = [[] for _ in stages]         # by batch
    right, N, cache = 0, 0, None
    for x, labels in batches:
        logits, cache = net.forward(x, cache)
        whole = logits.argmax(axis=0)
        right, N = right + np.count_nonzero(whole == labels), N + len(labels)
        seen = [np.array([cache.layers[k].x for k in [*stage, stage.stop]])
                for stage, _ in stages]             # variations overwrite it
        for (stage, varied), a, count, own in zip(stages, seen, counts, sums,
                                                  strict=True):
            away = np.concatenate([a[:-1] - a[-1], a[-1:]]).astype(float)
            own.append([away.sum(axis=1), (away ** 2).sum(axis=1)])
            for name, every in varied.items():
                wanted = whole if name == "in_groups" else labels
                count[name] += [np.count_nonzero(answers(
                    cache, stage.stop, in_groups(cache, a[0], groups)) == wanted)
                    for groups in every]
    return {"acc": right / N, "stages": [
        {name: number / N for name, number in count.items()}
        | moments(*np.sum(own, axis=0) / N)
        for count, own in zip(counts, sums, strict=True)]}


def moments(mean: np.ndarray, square: np.ndarray) -> dict[str, np.ndarray]:
    """Means over images of a_0 - A, ..., and A, (n + 1, S, S, C) -> mean and std."""
    axes = tuple(range(1, mean.ndim))
    std = np.sqrt(np.maximum(square - mean ** 2, 0)).mean(axis=axes)
    return {"mean": mean[:-1].mean(axis=axes) / std[-1], "std": std[:-1] / std[-1]}
