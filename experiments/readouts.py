"""What features of images, such as gates, tell of their classes.

Legend: F features, of all layers together; L layers, U units, C classes, N images.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np


class Moments:
    """First and second moments of F features over images, and their means by class.

    They are taken from an origin near the mean, (layers, U): from 0, the variance of
    gates that hardly move would be lost in float32.
    """

    def __init__(self, origin: np.ndarray, classes: int):
        self.shape, self.origin = origin.shape, origin.reshape(-1, 1)
        size = origin.size
        self.count = np.zeros(classes)
        self.sums = np.zeros((size, classes))
        self.gram = np.zeros((size, size))

    def add(self, values: np.ndarray, labels: np.ndarray) -> None:
        """Take in values (layers, U, B) and labels (B,)."""
        flat = values.reshape(-1, len(labels)) - self.origin
        chosen = np.eye(len(self.count), dtype=flat.dtype)[labels]      # (B, C)
        self.count += chosen.sum(axis=0)
        self.sums += flat @ chosen
        self.gram += flat @ flat.T

    @property
    def mean(self) -> np.ndarray:
        """(F,)"""
        return self.origin[:, 0] + self.sums.sum(axis=1) / self.count.sum()

    @property
    def class_means(self) -> np.ndarray:
        """(F, C)"""
        return self.origin + self.sums / self.count

    @property
    def covariance(self) -> np.ndarray:
        """(F, F)"""
        mean = self.mean - self.origin[:, 0]
        return self.gram / self.count.sum() - np.outer(mean, mean)

    def between(self) -> np.ndarray:
        """The share of each layer's variance that lies between the classes, (layers,):
        both kinds are summed over its units."""
        weight = self.count / self.count.sum()
        apart = ((self.class_means - self.mean[:, None]) ** 2 @ weight)
        total = np.diag(self.covariance)
        return (apart.reshape(self.shape).sum(axis=1)
                / total.reshape(self.shape).sum(axis=1))

    def parts(self) -> dict[int | None, slice]:
        """The features of all layers, key None, and of each layer: {layer: slice}."""
        layers, U = self.shape
        return {None: slice(None)} | {l: slice(l * U, l * U + U) for l in range(layers)}

    def nearest_mean(self, part: slice) -> tuple[np.ndarray, np.ndarray]:
        """argmin |f - mean_c|^2 = argmax mean_c f - |mean_c|^2 / 2, as (W, b)."""
        W = self.class_means[part]
        return W, -0.5 * (W ** 2).sum(axis=0)

    def regression(self, part: slice, covariance: np.ndarray, ridge: float
                   ) -> tuple[np.ndarray, np.ndarray]:
        """Ridge regression to one-hot labels, as (W, b); the penalty is `ridge` times
        the mean variance of the features."""
        share, mean = self.count / self.count.sum(), self.mean[part]
        own = covariance[part, part]
        with_labels = (self.class_means[part] - mean[:, None]) * share
        penalty = ridge * np.trace(own) / len(own) * np.eye(len(own))
        W = np.linalg.solve(own + penalty, with_labels)
        return W, share - mean @ W


class Readout(NamedTuple):
    """Scores of the classes, W^T f + b, for the features f of one layer or of all."""

    how: str            # it was fitted: "means" or "ridge"
    layer: int | None   # None: all layers
    part: slice         # of the features
    W: np.ndarray       # (f, C)
    b: np.ndarray       # (C,)


def readouts(found: Moments, ridge: float) -> list[Readout]:
    """Both readouts of all layers together and of each one."""
    covariance, fitted = found.covariance, []
    for layer, part in found.parts().items():
        fitted += [
            Readout("means", layer, part, *found.nearest_mean(part)),
            Readout("ridge", layer, part, *found.regression(part, covariance, ridge))]
    return fitted


# --------------------------------------------------------------------------------------
# Clusters


def kmeans(points: np.ndarray, k: int, rng: np.random.Generator, restarts: int,
           most: int = 100) -> np.ndarray:
    """Lloyd's k-means, the best of so many by the sum of squared distances -> cluster
    of each of points (N, F). It starts from k-means++ (Arthur, Vassilvitskii 2007) in
    its greedy form: of a few candidates for a next centre the one that helps most."""
    best, best_cost = np.zeros(len(points), int), np.inf
    squares, candidates = (points ** 2).sum(axis=1), 2 + int(np.log(k))

    def distances(centres):
        return np.maximum(squares[:, None] - points @ (2 * centres.T)
                          + (centres ** 2).sum(axis=1), 0)      # (N, k)
    for _ in range(restarts):
        centres = points[rng.integers(len(points))][None]
        while len(centres) < k:
            near = distances(centres).min(axis=1).astype("float64")
            drawn = points[rng.choice(len(points), candidates, p=near / near.sum())]
            left = np.minimum(near[:, None], distances(drawn)).sum(axis=0)
            centres = np.vstack([centres, drawn[left.argmin()]])
        labels: Any = None
        for _ in range(most):
            apart, before = distances(centres), labels
            labels = apart.argmin(axis=1)
            if before is not None and (labels == before).all():
                break
            chosen = np.eye(k, dtype=points.dtype)[labels]      # (N, k)
            count = chosen.sum(axis=0)
            there = count > 0       # a centre that has lost all its points stays
            centres[there] = (chosen.T @ points)[there] / count[there, None]
        cost = apart.min(axis=1).sum(dtype=float)
        if cost < best_cost:
            best, best_cost = labels, cost
    return best


def contingency(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Two labellings (N,) -> the counts of their pairs."""
    table = np.zeros((a.max() + 1, b.max() + 1), int)
    np.add.at(table, (a, b), 1)
    return table


def adjusted_rand(a: np.ndarray, b: np.ndarray) -> float:
    """Agreement of two partitions: 1 if they are equal, 0 on average if one of them is
    shuffled (Hubert, Arabie 1985). Cluster names do not matter."""
    table = contingency(a, b)

    def pairs(counts):
        return (counts * (counts - 1) / 2).sum()
    both, left, right = pairs(table), pairs(table.sum(axis=1)), pairs(table.sum(axis=0))
    expected = left * right / pairs(table.sum())
    most = (left + right) / 2
    return float((both - expected) / (most - expected)) if most > expected else 1.0
