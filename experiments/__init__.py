"""One module or package for each question: `python3 -m experiments.NAME` answers it,
`python3 -m experiments` lists them."""

import sys

from highway_suite.terminal import check_libraries

check_libraries("experiments")

# In the order of the claims.
NAMES = ("headline", "signals", "optimization", "variants", "blocks", "trained_nets",
         "depth", "convolution", "data_movement", "language")
# The claims of README's five findings, which are cheap to check.
FIVE = ("best-plain-300", "no-gate-100", "carry-fits-100",
        "quick-highway-sequential-depth", "quick-gates-held")
MOVED = {       # what earlier releases called them
    "inside": "trained_nets", "gates": "trained_nets", "lesion": "trained_nets",
    "five_nets": "trained_nets", "harder_data": "trained_nets", "depth_law": "depth",
    "very_deep": "depth", "language_model": "language", "table_1": "convolution",
    "table_2": "convolution", "convolution_gates": "convolution"}

if sys.argv[0] == "-m":         # python3 -m experiments.NAME is just looking for it
    for word in sys.orig_argv:
        name = word.removeprefix("experiments.")
        if word != name and name in MOVED:
            raise SystemExit(f"{word} is now part of experiments.{MOVED[name]}: "
                             f"python3 -m experiments.{MOVED[name]}")
