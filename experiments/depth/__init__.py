"""Which initial b_T suits which depth, from 9 to 10,000 blocks, and are all used?

P1, section 2.2, gives a guideline for b_T, and says that SGD did not stall at more than
1000 layers. J. Fleming's "Highway Networks with TensorFlow" (2015; "the tutorial") has
1000 layers with b_T near -20. Ours: of its input a net carries prod(1 - T), about e^-S
with S the sum of the T of all L blocks. Do nets of any depth train alike with the same
S before training, and is S = 1, which is b_T = logit(1/L) = -log(L - 1), near the best?

The protocol stands in results/depth/README.md. Loss: training loss, mean over the last
epoch's steps.

    sums                loss by S, from 10 to 1000 blocks, Adam and SGD
    rules               S = 1, b_T = -2, -L/10 and chrono, to 10,000 blocks
    controls            the same T in every block, and 1, 3 and 10 blocks, beside S = 1
    full                all of MNIST, with which blocks are used, to 10,000
    stages              how many blocks work one after the other, by depth with S = 1,
                        and by b_T with 100 blocks (see nets/probes.py). One net of 300
                        blocks was known: 1 stage, 3 before training
    map, thousand       b_T from +1 to -20 by depth; all of MNIST at 999 blocks
    tutorial            its 20 plain layers, its start against He's
"""

from __future__ import annotations

from experiments.depth import claims, controls, figures, record, stages
from experiments.depth import plan as plans
from experiments.lab import Experiment, Lab


def run(lab: Lab) -> dict:
    """The plan -> the record."""
    found = record.describe(lab)
    return found | {"controls": controls.describe(lab),
                    "stages": stages.describe(lab, found["rules"])}


EXPERIMENT = Experiment(
    name="depth", doc=__doc__, plan=plans.PLAN, smoke=plans.SMOKE,
    run=run, figures=figures.FIGURES,
    claims=lambda record: [*claims.claims(record), *controls.claims(record),
                           *stages.claims(record)])
