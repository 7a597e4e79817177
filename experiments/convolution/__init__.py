"""Do convolutional highway nets train at any depth, and reach what the paper's reach?

The claims are of P1, sections 2.2, 3.2 (Table 1) and 3.3 (Tables 2 and 3), and of P2,
sections 2, 4.2, 4.4 and 5.1. Layers and training are those of the authors' Caffe fork:
convolutions of relu, dropout, max pooling; He's weights, N(0, 0.1^2) for the outputs;
Nesterov's momentum 0.9; weight decay, ten times as large for the outputs and none for
biases, which have twice the rate. Plain twins have the same layers without gates. The
protocol stands in results/convolution/README.md.

    depths      each kind at the best of several learning rates; T where there is ink,
                before and after training
    layers      those of each stage closed, in another order, side by side
    gates       b_T, and gates that see 3x3, 1x1 or nothing, on few images
    table_1     settings chosen on training images held out
    ladder      the 11 layers of Table 2 in colour, with crops and mirror images, from
                the authors' recipe to today's, step by step
    table_2     the same 11 layers for 60 epochs, each kind by its best settings
    table_3     the authors' 19 layers by the settings that the ladder keeps

We assume: the layout of Table 2, a reading with the right number of parameters, its
crops, dropout and epochs; the stages of 18 and 28 highway layers; rates and images of
depths and gates.
"""

from __future__ import annotations

from experiments.convolution import claims
from experiments.convolution.figures import FIGURES
from experiments.convolution.plan import PLAN, SMOKE
from experiments.convolution.rows import run
from experiments.convolution.weights import measure, write
from experiments.lab import Experiment

EXPERIMENT = Experiment(
    name="convolution", doc=__doc__, plan=PLAN, smoke=SMOKE, run=run,
    claims=claims.claims, figures=FIGURES, more={
        "--weights": (measure, "measure the committed weights on the test images"),
        "--keep-weights": (write, "train their nets again, hours, and write them")})
