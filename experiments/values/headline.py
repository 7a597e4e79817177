"""The headline, the sweep, and sizes of nets."""

from __future__ import annotations

import highway_networks as hn
from experiments.values.common import about, mean_in_words, percent, table
from highway_suite.schema import INITS
from highway_suite.studies import Arm, Study


def last(arm: Arm, series: str, digits: int) -> str:
    """The last value of an arm's series over the seeds that did not diverge, or –."""
    good = ~arm.diverged
    values = getattr(arm, series)[good, -1]
    return mean_in_words(values, digits) if good.any() else "–"


def net_table(study: Study) -> str:
    """A row for each kind and depth, with n and parameters."""
    def row(arm):
        lost, n = int(arm.diverged.sum()), str(len(arm.diverged))
        return (arm.block, str(arm.depth + 1),
                f"{arm.parameters:,}" if arm.parameters else "–",
                f"{n}, of which {lost} diverged" if lost else n,
                last(arm, "test_acc", 4), last(arm, "train_loss", 3))
    return table("net|layers:|parameters:|n:|test accuracy:|last training loss:",
                 (row(arm) for arms in study.arms.values() for arm in arms.values()))


@about("run.json")
def headline(study: Study) -> str:
    return net_table(study)


@about("run_sweep.json")
def sweep(study: Study) -> str:
    return net_table(study)


@about("results/headline/sweep_five_seeds.json",
       "results/headline/sweep_glorot_five_seeds.json")
def depths(*studies: Study) -> str:
    """Test accuracy, a row for each depth, a column for each kind and study."""
    heads = [f"{arm.block}, {INITS[study.init]}, n = {len(study.seeds)}:"
             for study in studies for arm in study.deepest]

    def cell(arm):
        return last(arm, "test_acc", 3) + (
            f", {arm.diverged.sum()} diverged" if arm.diverged.any() else "")
    return table("|".join(["layers:", *heads]), (
        [str(depth + 1), *(cell(arm) for study in studies
                       for arm in study.arms[depth].values())]
        for depth in studies[0].arms))


@about("run.json")
def run(study: Study) -> dict[str, str]:
    return {"highway": percent(study.arms[study.depth]["highway"].test_acc[0, -1])}


@about()
def sizes() -> dict[str, str]:
    def block(kind, hidden):
        one, two = (hn.DeepNet(kind, depth, hidden).params.size for depth in (1, 2))
        return f"{two - one:,}"
    plain, highway = (hn.DeepNet(kind, 30, hidden).params.size
                      for kind, hidden in (("plain", 71), ("highway", 50)))
    return {"plain_71": block("plain", 71), "highway_50": block("highway", 50),
            "larger": percent(plain / highway - 1)}
