"""HighwayClassifier beside two classifiers of scikit-learn -> a table on stdout.

    OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 python3 -m benchmarks.classifier

Accuracies are medians of five splits. Seconds are those of one fit; the classifiers
take turns, so that other work on the machine meets all of them.
"""

from __future__ import annotations

import time
import warnings
from statistics import median

from sklearn import datasets
from sklearn.ensemble import HistGradientBoostingClassifier
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


def compare(nets: list, data: tuple, scaled: bool) -> list[tuple[float, float]]:
    """Median accuracy and seconds of each net, in interleaved fits."""
    found: list[list] = [[] for _ in nets]
    for split in range(SPLITS):
        X, X_test, y, y_test = train_test_split(*data, random_state=split,
                                                stratify=data[1])
        for net, rows in zip(nets, found, strict=True):
            net.set_params(random_state=split)
            whole = make_pipeline(StandardScaler(), net) if scaled else net
            start = time.perf_counter()
            whole.fit(X, y)
            seconds = time.perf_counter() - start
            rows.append((whole.score(X_test, y_test), seconds))
    return [(median(a for a, _ in rows), median(s for _, s in rows)) for rows in found]


def main() -> None:
    """Print the table in Markdown."""
    warnings.simplefilter("ignore", ConvergenceWarning)
    names = "HighwayClassifier", "MLPClassifier", "HistGradientBoosting"
    print(f"| Set | {' | seconds | '.join(names)} | seconds |\n"
          f"| --- |{' ---: |' * 6}")
    for name, (data, scaled) in SETS.items():
        row = compare([HighwayClassifier(), MLPClassifier(),
                       HistGradientBoostingClassifier()], data, scaled)
        cells = (f"{accuracy:.3f} | {seconds:.2f}" for accuracy, seconds in row)
        print(f"| {name} | {' | '.join(cells)} |", flush=True)
    [(deep, seconds)] = compare([HighwayClassifier(depth=100)],
                                *SETS["digits, 0 to 16"])
    print(f"| digits, 100 blocks | {deep:.3f} | {seconds:.1f} |{' – |' * 4}")


if __name__ == "__main__":
    main()
