"""Do convolutional highway nets train at any depth, and reach what the paper's reach?

The claims. P1, section 2.2: b_T of about -1, -2 and -3 for convolutional nets of 10, 20
and 30 layers. Section 3.2, Table 1: two nets of 10 layers reach 99.43 and 99.55 % on
MNIST. Section 3.3, Table 2: one of 11 layers and 236 K parameters matches Fitnet A on
CIFAR-10 without a teacher's hints. P2, section 5.1: gates that are 1x1 convolutions
seem to make learning unstable, so gates should be as expressive as H.

The nets are those of the authors' Caffe fork: convolutions of relu, dropout, max
pooling; He's weights, N(0, 0.1^2) for the outputs; Nesterov's momentum 0.9; weight
decay, ten times as large for the outputs and none for biases, which have twice the
rate. Plain twins have the same layers without gates. A run looks at the test images
once, at its end, and they choose nothing.

    depths      each kind at the best of several learning rates; T where there is ink,
                before and after training
    gates       b_T, and gates that see 3x3, 1x1 or nothing, on few images
    table_1     settings chosen on training images held out
    table_2     the same in colour, with crops and mirror images
    ladder      the nets of table_2 and of Table 3 by today's recipes, found step by
                step; planned in plan.py, and not yet trained

The paper is silent, we assume: the layout of Table 2, a reading with the right number
of parameters, its crops, dropout and epochs; rates and images of depths and gates.
Deviations: a tenth of the authors' epochs or less, with settings made for that; P2
speaks of residual nets of 110 layers. Table 3's 19 layers are built and counted, not
trained.

Cost: 2.3 core hours for table_2, with runs of an hour at most. The rest took 14 hours
on two cores, by the earlier convolutions that its committed trials were trained with.
"""

from __future__ import annotations

from experiments.convolution import claims
from experiments.convolution.figures import FIGURES
from experiments.convolution.plan import PLAN, SMOKE
from experiments.convolution.rows import run
from experiments.lab import Experiment

EXPERIMENT = Experiment(
    name="convolution", doc=__doc__, plan=PLAN, smoke=SMOKE, run=run,
    claims=claims.claims, figures=FIGURES)
