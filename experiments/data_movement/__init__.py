"""Does the carry path save data movement?

Moving numbers costs more than computing with them, and the earlier reproduction of P1
left open whether the carry path, which hands on what it gets, saves any of it. Two
models price what is read (costs.py); results/data_movement/README.md has the protocol.
A pass is DeepNet.forward, or a training step: forward, loss, backward, norm of the
gradient, Adam. Where steps are counted until a training loss is reached, they are of
momentum SGD. Controls skip as many units of each block and image, or as many blocks,
drawn at random.

What we expected, written before the run. No form is a tenth cheaper than plain at the
same width; residual is at most a tenth dearer; at the same parameters highway and plain
are within a tenth. Until the loss, highway is at least a tenth cheaper, for it takes
fewer steps. Skipping units saves a tenth for one point of accuracy, and as many at
random cost five points more; leaving blocks out saves half. Before the later runs: a
small net is ahead of the pruned one that moves as much; T-only nets spare half as well,
residual nets few blocks.
"""

from typing import Any

from experiments.data_movement import trials
from experiments.data_movement.claims import claims
from experiments.data_movement.figures import draw_passes, draw_skipping
from experiments.lab import Experiment, Lab
from experiments.nets.perceptrons import EPOCHS, SETTINGS

PLAN: dict[str, Any] = {
    "dataset": "mnist",
    "forms": ["plain", "highway", "residual", "t_only", "c_only", "full"],
    "matched": ["plain", "residual"], "widths": [8, 16, 32, 50],
    "depths": [5, 10, 20, 30, 49], "depth": 30, "hidden": 50, "batches": [1, 16, 128],
    "until": {"depths": [9, 19, 49, 99], "loss": "0.01", "batch": 128},
    # At the rates that the search of trained_nets chose for each of these seeds.
    "net": SETTINGS | {"epochs": EPOCHS},
    "lrs": {"highway": 0.2, "residual": 0.003, "t_only": 0.03},
    "seeds": [0, 1, 2, 3, 4], "lost": 0.01, "small": [5, 10, 14, 19, 28],
    "skip": {"thresholds": [0.0, 0.03, 0.05, 0.08, 0.1, 0.11, 0.12, 0.13, 0.15, 0.2,
                            0.3, 0.5, 0.8],
             "left_out": [0, 5, 10, 15, 20, 25, 28, 30, 31, 32, 33, 35, 38, 42, 46],
             "images": 10_000, "traced": 16, "draws": 3},
    "leave_out": {"left_out": [0, 1, 2, 3, 4, 5, 7, 10, 15, 20, 25, 28, 30, 32, 35, 38,
                               42, 46], "images": 10_000, "draws": 3}}
SMOKE: dict[str, Any] = {
    "dataset": "digits", "widths": [4, 8], "depths": [2, 4], "depth": 3, "hidden": 8,
    "batches": [1, 3], "until": {"depths": [9], "loss": "0.01", "batch": 2},
    "net": PLAN["net"] | {"depth": 6, "hidden": 16, "epochs": 8}, "seeds": [0, 1],
    "small": [2, 3],
    "skip": {"thresholds": [0.0, 0.1, 0.5], "left_out": [0, 2, 4], "images": 300,
             "traced": 2, "draws": 2},
    "leave_out": {"left_out": [0, 1, 3], "images": 300, "draws": 2}}


def run(lab: Lab) -> dict:
    """Price passes, skip in trained nets -> the record."""
    return {"passes": trials.passes(lab), "until_loss": trials.until_loss(lab),
            "small": trials.small_nets(lab), "skipping": trials.nets(lab)}


EXPERIMENT = Experiment(
    name="data_movement", doc=__doc__, plan=PLAN, smoke=SMOKE, run=run,
    claims=claims, figures={"figure": draw_passes, "skipping": draw_skipping})
