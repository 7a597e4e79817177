"""One module or package for each question: `python3 -m experiments.NAME` answers it,
`python3 -m experiments` lists them."""

from highway_suite.terminal import check_libraries

check_libraries("experiments")

# In the order of the claims.
NAMES = ("headline", "signals", "optimization", "variants", "blocks", "trained_nets",
         "depth", "convolution", "data_movement", "language")
# The claims of README's five findings, which are cheap to check.
FIVE = ("best-plain-300", "no-gate-100", "carry-fits-100",
        "quick-highway-sequential-depth", "quick-gates-held")
