"""One rule for every depth? b_T = logit(1/L), tried from 10 to 10,000 blocks.

The question. P1 asks for a negative initial b_T and gives a guideline for 10, 20 and 30
layers (section 2.2). A highway net carries prod(1 - T) of its input, about e^-S with S
the sum of the T of all L blocks. Does S before training decide, whatever the depth, and
is S = 1, which is b_T = logit(1/L) = -log(L - 1), near the best everywhere?

The nets. 784 pixels -> one plain layer -> L blocks -> softmax of 10; L counts blocks,
P1's count is one more. 50 units, tanh, Glorot's weights, batches of 128, clip 5, 6000
training images, 12 epochs, constant rate, three seeds, unless it says otherwise. Loss:
training loss, mean over the last epoch's steps; a net trains if it is below ln(10) / 2.
Each optimiser has three rates and is judged by the best, by mean loss; from 300 blocks
on by the rate that seed 0 chose, and where it trained with none no other seed runs.
Test images choose nothing. A verdict also says what half and twice its margin make it.

H1 collapse   10 to 1000 blocks: a cubic in log S explains 80 % of the variance of log
              loss, depth 10 % more at most; b_T or depth alone less than half. At equal
              S, 0.1 to 3, the depths' mean losses lie within a factor 1.5.
H2 price      At every depth the loss at S = 1 is within 1.2 of that at the best S.
H3 border     The largest S that trains moves with rate, optimiser, eps and epochs, by
              more than 1.25, not with depth, width, dtype, initialisation and relu.
              50 blocks, Adam 1e-3, five seeds; bisection over 33 values, 1 to 32.
H4 mechanism  Before training the gradient of W_in, dL/dy's decay and the carried part
              of the input fall as e^-S: slope of the logarithm -1 +- 0.2, R^2 >= 0.95.
H5 rules      Adam. S = 1 is within 1.2 of the best rule to 10,000 blocks; b_T = -2 does
              not train from 300 on; -L/10, the guideline's line, loses by more than 1.5
              from 100 on; chrono (-log U(1, L - 1) for each unit) by less to 1000, more
              at 10,000. T-only blocks with S = 1 are within 1.2 of highway blocks.
H6 rescue     40 and 48 blocks, five seeds: half-open gates (b_T = 0) train at no rate;
              S = 1 always, within 1.2 of 10 blocks.
H7 10,000     S = 1, all of MNIST, five epochs: 96 % of the test images or more; more
              than 50 blocks needed (prefix, as `very_deep` defines it).
H8 SGD        All of MNIST, S = 1: SGD's loss at 1000 blocks is within 1.5 of that at
              100, in every seed; P1's "SGD did not stall".

A second plan, of 22 November 2026, made when the first's results were known: more seeds
where there was one (10,000 blocks, and what trains at no rate, there at the middle
one), and

H9 lower      S of 0.003 and 0.01: at no depth a loss of less than 1/1.2 of the best
              S's from 0.03 on.

Cost: 6 hours on two cores. Finished trials are kept. results/depth_law/README.md has
the plan in full, what pilots had shown before it, and what came out.
"""

from __future__ import annotations

from experiments.depth_law.figure import draw
from experiments.depth_law.nets import train
from experiments.depth_law.plan import PROTOCOL, SMOKE, Book, conduct
from experiments.depth_law.record import describe
from experiments.depth_law.verdicts import check_claims
from experiments.old_lab import Experiment, Lab


def run(lab: Lab) -> dict:
    """The plan -> the record."""
    data = lab.load_data()
    book = Book(lambda configs: lab.trials(train, configs, data))
    conduct(book, lab.protocol)
    return describe(book, lab.protocol)


def pack_by(config: dict) -> str:
    """The packed file of a trial: by kind and depth."""
    return f"{config['kind']}_{config['depth']}"


EXPERIMENT = Experiment(
    name="experiments.depth_law", doc=__doc__, minutes=360, protocol=PROTOCOL,
    smoke=SMOKE, run=run, draw=draw, check=check_claims, pack_by=pack_by)
