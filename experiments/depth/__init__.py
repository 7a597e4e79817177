"""Which initial b_T suits which depth, from 9 to 10,000 blocks, and are all used?

The claims. P1, section 2.2: a negative initial b_T is enough to train very deep nets,
-1, -2, -3 are a guideline for about 10, 20, 30 layers (of convolutional nets), and SGD
did not stall at more than 1000 layers. J. Fleming's "Highway Networks with TensorFlow"
(2015; "the tutorial"): 20 plain layers stay below 15 % on MNIST; 1000 highway layers
reach about 95 % with b_T near -20, "just learning to carry the last 980 layers or so".
Ours: of its input a net carries prod(1 - T), about e^-S with S the sum of the T of all
L blocks. Do nets of any depth train alike with the same S before training, and is
S = 1, which is b_T = logit(1/L) = -log(L - 1), near the best everywhere?

The nets. 784 pixels -> one plain layer -> L blocks -> softmax of 10; P1's count of
layers is one higher. Loss: training loss, mean over the last epoch's steps; a net
trains if it is below ln(10) / 2, on the map if it classifies half of the test images
correctly. Nets by S or by rule have three rates for each optimiser and are judged by
the best, by mean loss over the seeds; deep ones by the rate that seed 0 chose. Controls
have more rates where the best is at an end, and other seeds judge than choose. Test
images choose nothing.

    sums                loss by S, from 10 to 1000 blocks, Adam and SGD
    rules               S = 1, b_T = -2, -L/10 and chrono, to 10,000 blocks
    controls            the same T in every block, and 1, 3 and 10 blocks, beside S = 1
    full                all of MNIST, with which blocks are used, to 10,000
    stages              how many blocks work one after the other, by depth with S = 1,
                        and by b_T with 100 blocks (see nets/probes.py). One net of 300
                        blocks was known: 1 stage, 3 before training
    map, thousand       b_T from +1 to -20 by depth; all of MNIST at 999 blocks
    tutorial            its 20 plain layers, its start against He's

The papers are silent, we assume: all of it, for fully connected nets. Deviations: Adam
beside P1's SGD; log-sum-exp for the tutorial's bare logarithm.
"""

from __future__ import annotations

from experiments.depth import claims, controls, figures, stages, tutorial
from experiments.depth import plan as plans
from experiments.depth.record import describe
from experiments.depth.training import train
from experiments.lab import Experiment, Lab


def run(lab: Lab) -> dict:
    """The plan -> the record: cheap trials first."""
    plan = lab.plan
    others = [lab.trials(train, plans.map_configs(plan)),
              lab.trials(train, plans.thousand_configs(plan)),
              lab.trials(tutorial.train, plans.tutorial_configs(plan))]
    book = plans.Book(lambda configs: lab.trials(train, configs))
    plans.conduct(book, plan)
    controls.conduct(book, plan)
    stages.conduct(book, plan)
    return describe(book, plan, others) | {"controls": controls.describe(book, plan),
                                           "stages": stages.describe(book, plan)}


EXPERIMENT = Experiment(
    name="depth", doc=__doc__, plan=plans.PLAN, smoke=plans.SMOKE,
    run=run, figures=figures.FIGURES,
    claims=lambda record: [*claims.claims(record), *controls.claims(record),
                           *stages.claims(record)])
