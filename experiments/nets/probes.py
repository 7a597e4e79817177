"""Measure a trained DeepNet: its loss with blocks closed, its gates, its changes, and
how many of its blocks work one after the other.

Every function takes any number of images x (N, P) and works in batches. It adds up sums
over images, not means of batches, because the last batch may be smaller. A net is never
changed: `reordered` makes a copy.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

import highway_networks as hn

BATCH = 500


def passes(net: hn.DeepNet, x: np.ndarray, closed: Collection[int] = (),
           size: int = BATCH) -> Iterator[tuple[slice, np.ndarray, hn.Cache]]:
    """Forward passes over images x (N, P) in batches -> (rows, logits, cache). The next
    batch overwrites logits and cache."""
    cache = net.cache(min(size, len(x)))
    for start in range(0, len(x), size):
        rows = slice(start, start + size)
        logits, cache = net.forward(x[rows].T, cache, closed)
        yield rows, logits, cache


def over_images(net: hn.DeepNet, x: np.ndarray, of: Callable[..., Any],
                closed: Collection[int] = (), size: int = BATCH) -> np.ndarray:
    """The mean over images x (N, P) of what of(rows, logits, cache) sums over a batch.
    """
    return np.sum([of(rows, logits, cache) for rows, logits, cache in
                   passes(net, x, closed, size)], axis=0) / len(x)


def total_loss(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Logits (C, B) -> cross-entropy and number of errors, summed over the batch."""
    loss, _ = hn.cross_entropy(logits, labels)
    return np.array([float(loss) * len(labels),
                     np.count_nonzero(logits.argmax(axis=0) != labels)])


def loss_and_error(net: hn.DeepNet, x: np.ndarray, labels: np.ndarray,
                   closed: Collection[int] = (), size: int = BATCH
                   ) -> tuple[float, float]:
    """Mean cross-entropy and error rate on images x (N, P) with these blocks closed."""
    loss, wrong = over_images(net, x, lambda rows, logits, cache: total_loss(
        logits, labels[rows]), closed, size)
    return float(loss), float(wrong)


def prefix(net: hn.DeepNet, x: np.ndarray, labels: np.ndarray, size: int = BATCH
           ) -> np.ndarray:
    """Mean cross-entropy of the first k blocks alone, k = 0..L, (L + 1,). If the later
    blocks are closed, they hand y_k on to the output layer. One pass therefore gives
    the results for all k."""
    out = net.tensors(net.params)["out"]
    return over_images(net, x, lambda rows, _, cache: [
        total_loss(out @ y, labels[rows])[0] for y in cache.x], size=size)


def mean_gates(net: hn.DeepNet, x: np.ndarray, size: int = BATCH) -> np.ndarray:
    """Mean T over images x (N, P) of every unit, (L, U)."""
    return over_images(net, x, lambda rows, _, cache: cache.T.sum(axis=2, dtype=float),
                       size=size)


def mean_change(net: hn.DeepNet, x: np.ndarray, size: int = BATCH) -> np.ndarray:
    """Mean square of y - x over units and images x (N, P), for each block (L,)."""
    return over_images(net, x, lambda rows, _, cache: np.sum(
        np.diff(cache.x[:, :net.hidden], axis=0) ** 2, axis=(1, 2), dtype=float),
        size=size) / net.hidden


def reordered(net: hn.DeepNet, order: np.ndarray) -> hn.DeepNet:
    """A copy with the blocks in another order: its block l is block order[l] of the
    net."""
    settings: dict[str, Any] = net.settings
    twin = hn.DeepNet(**settings, dtype=net.dtype)
    twin.params[...] = net.params
    blocks = twin.tensors(twin.params)["blocks"]
    blocks[...] = blocks[order]
    return twin


# --------------------------------------------------------------------------------------
# Sequential depth


def stages_of(depth: int) -> list[int]:
    """The numbers of stages that are tried: 1, 2, 3, 4, 6, 7, 10, 13, ..., eight in a
    decade, and `depth` itself."""
    tried = {round(10 ** (k / 8)) for k in range(8 * len(str(depth)))}
    return [*sorted(stages for stages in tried if stages < depth), depth]


def in_stages(net: hn.DeepNet, cache: hn.Cache, stages: int) -> np.ndarray:
    """The logits (C, B) of a net whose blocks work in stages, for the images of a
    filled cache, which is overwritten.

    Stages have equally many blocks, the first ones perhaps one more. In a stage all
    blocks compute H and their gates from the same input, side by side. Then each block
    in turn mixes its H into what is carried, as in the whole net: only the input of H
    and gates is another one. As many stages as blocks are the net itself. To add up all
    changes at once would go too far where the T of a stage add up to more than 1.
    """
    for blocks in np.array_split(np.arange(net.depth), stages):
        x1 = cache.layers[blocks[0]].x1
        for layer in (cache.layers[l] for l in blocks):
            np.matmul(layer.W, x1, out=layer.z)
            hn.activate(layer.z, layer.rows[0], layer.gates, net.activation, cache.half)
            net.block.forward(layer.x, layer.rows, layer.y, cache.scratch)
    return cache.weights["out"] @ cache.x[-1]


def kept_in_stages(net: hn.DeepNet, x: np.ndarray, labels: np.ndarray,
                   tried: Sequence[int], size: int = BATCH) -> np.ndarray:
    """Of images x (N, P), for each number of stages tried: the share that keeps the
    whole net's answer, and the accuracy, (2, S)."""
    def counts(rows, logits, cache):
        wanted = logits.argmax(axis=0), labels[rows]
        answers = [in_stages(net, cache, stages).argmax(axis=0) for stages in tried]
        return [[np.count_nonzero(found == right) for found in answers]
                for right in wanted]
    return over_images(net, x, counts, size=size)


def keep_in_stages(states: Mapping[str, hn.DeepNet], x: np.ndarray, labels: np.ndarray,
                   size: int = BATCH) -> dict[str, Any]:
    """A net in several states, as "trained" -> the numbers of stages "tried", and for
    each state the shares of answers "kept" and the "accuracy" with them."""
    tried = stages_of(next(iter(states.values())).depth)
    found: dict[str, Any] = {"tried": tried}
    for state, net in states.items():
        kept, right = kept_in_stages(net, x, labels, tried, size)
        found[state] = {name: [hn.significant(float(share)) for share in shares]
                        for name, shares in (("kept", kept), ("accuracy", right))}
    return found


def sequential_depths(found: Mapping[str, Any], shares: Sequence[float]
                      ) -> dict[str, dict[str, int]]:
    """What `keep_in_stages` found -> {state: {share: sequential depth}}."""
    return {state: {f"{share:g}": sequential_depth(
        dict(zip(found["tried"], found[state]["kept"], strict=True)), share)
        for share in shares} for state in ("trained", "untrained")}


def sequential_depth(kept: Mapping[int, float], share: float = 0.95) -> int:
    """{stages: the share of answers kept} -> the least number of stages that keeps at
    least `share` of the answers, as does every larger number; the largest keeps them
    all. It is an upper bound: of blocks that need each other's output, neighbours also
    take a stage each."""
    *fewer, least = sorted(kept)
    while fewer and kept[fewer[-1]] >= share:
        least = fewer.pop()
    return least
