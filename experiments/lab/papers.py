"""What the papers' rules and tables say, in numbers.

P1 is "Training Very Deep Networks" (NIPS 2015), P2 "Highway and Residual Networks learn
Unrolled Iterative Estimation" (ICLR 2017).
"""

from __future__ import annotations

# Why a claim of theirs may be open.
FEWER_EPOCHS, OTHER_NETS = "fewer epochs than theirs", "other nets than theirs"
GUIDELINE = {10: -1.0, 20: -2.0, 30: -3.0}      # P1, section 2.2: depth, b_T

TABLE_1 = {         # of P1: test accuracy of five runs in %, by width
    16: {"best": 99.43, "mean": 99.40, "std": 0.03},
    32: {"best": 99.55, "mean": 99.54, "std": 0.02}}
TABLE_1_OTHERS = {"Maxout": {"parameters": 420_000, "accuracy": 99.55},
                  "DSN": {"parameters": 350_000, "accuracy": 99.61}}
TABLE_1_EPOCHS = 300        # those of the authors' file for width 32; P1 has none
TABLE_2 = {         # of P1: test accuracy on CIFAR-10 in %, 11 layers
    "Highway A": 89.18, "Fitnet A": 89.01}
TABLE_2_EPOCHS = 400        # those of the authors' code for Table 3; P1 has none
TABLE_3 = {"mean": 92.31, "std": 0.12}      # of P1: 19 layers, test accuracy in %
TABLE_3_LOG = {     # accuracy by epoch, of the authors' log for Table 3, CIFAR-10
    10: 69.0, 20: 77.1, 50: 84.5, 200: 86.9, 201: 90.4, 220: 92.0, 300: 90.9, 305: 91.9,
    400: 92.1}
FIGURE_1_EPOCHS = 400       # the axis of P1's Figure 1
TABLE_1A = {        # of P2: test perplexity by form, in its order
    "plain": 92.60, "residual": 91.32, "t_only": 82.94, "c_only": 79.15,
    "highway": 79.13, "full": 79.09}


def name_of(block: str) -> str:
    """A block's name in P2's table: T-only."""
    return block.replace("_", "-").capitalize()


def spoken(block: str) -> str:
    """A block's name in our own sentences and legends: T-only, but highway."""
    return name_of(block) if block.endswith("_only") else block.replace("_", " ")
