"""HighwayClassifier beside scikit-learn's MLPClassifier -> two tables on stdout.

    OPENBLAS_NUM_THREADS=1 python3 -m benchmarks.classifier

Accuracies are medians of five splits. Seconds are those of one fit; the two take turns,
so that other work on the machine meets both, and the ratio is the median of the pairs'.
"""

from __future__ import annotations

import time
import warnings
from statistics import median
from typing import Any

from sklearn import datasets
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from highway_suite import HighwayClassifier

SPLITS = 5
SETS = {        # name: rows and labels, whether they are scaled first
    "digits, 0 to 16": (datasets.load_digits(return_X_y=True), False),
    "breast cancer": (datasets.load_breast_cancer(return_X_y=True), True),
    "wine": (datasets.load_wine(return_X_y=True), True),
    "two moons": (datasets.make_moons(1000, noise=0.2, random_state=0), False),
    "gaussian quantiles": (datasets.make_gaussian_quantiles(
        n_samples=2000, n_features=5, n_classes=3, random_state=0), False),
}


def seconds_of(net: Any, X: Any, y: Any) -> float:
    """The seconds of one fit."""
    start = time.perf_counter()
    net.fit(X, y)
    return time.perf_counter() - start


def compare(nets: list, data: tuple, scaled: bool) -> list[tuple[float, float]]:
    """Median accuracy and seconds of each net, in interleaved fits."""
    found: list[list] = [[] for _ in nets]
    for split in range(SPLITS):
        X, X_test, y, y_test = train_test_split(*data, random_state=split,
                                                stratify=data[1])
        for net, rows in zip(nets, found, strict=True):
            net.set_params(random_state=split)
            whole = make_pipeline(StandardScaler(), net) if scaled else net
            seconds = seconds_of(whole, X, y)
            rows.append((whole.score(X_test, y_test), seconds))
    return [(median(a for a, _ in rows), median(s for _, s in rows)) for rows in found]


def equal_nets(depth: int) -> list:
    """Ours and theirs with the same layers of 50 units, batches and epochs. Theirs has
    no input projection beside its hidden layers, ours has: it is one of the layers."""
    return [HighwayClassifier("plain", depth - 1, 50, batch_size=128, max_iter=10),
            MLPClassifier((50,) * depth, activation="tanh", batch_size=128, max_iter=10,
                          alpha=0, tol=0, n_iter_no_change=10)]


def main() -> None:
    """Print both tables in Markdown."""
    warnings.simplefilter("ignore", ConvergenceWarning)
    print("| Set | HighwayClassifier | seconds | MLPClassifier | seconds |\n"
          "| --- | ---: | ---: | ---: | ---: |")
    for name, (data, scaled) in SETS.items():
        (ours, a), (theirs, b) = compare([HighwayClassifier(), MLPClassifier()], data,
                                         scaled)
        print(f"| {name} | {ours:.3f} | {a:.2f} | {theirs:.3f} | {b:.2f} |", flush=True)
    [(deep, seconds)] = compare([HighwayClassifier(depth=100)],
                                *SETS["digits, 0 to 16"])
    print(f"| digits, 100 blocks | {deep:.3f} | {seconds:.1f} | | |\n\n"
          "| Hidden layers of 50 | ours, seconds | MLPClassifier's seconds / ours |\n"
          "| --- | ---: | ---: |", flush=True)
    X, y = datasets.load_digits(return_X_y=True)
    for depth in (3, 30):
        pairs = [[seconds_of(net, X, y) for net in equal_nets(depth)]
                 for _ in range(9)]
        ratio = median(theirs / ours for ours, theirs in pairs)
        print(f"| {depth} | {median(ours for ours, _ in pairs):.2f} | {ratio:.2f} |")


if __name__ == "__main__":
    main()
