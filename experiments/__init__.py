"""One module or package for each question: `python3 -m experiments.NAME` answers it,
`python3 -m experiments` lists them."""

from highway_suite.terminal import check_libraries

check_libraries("experiments")

# In the order of the claims.
NAMES = ("headline", "optimization", "variants", "blocks", "trained_nets", "depth",
         "convolution", "data_movement", "language")
