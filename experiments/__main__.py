"""What experiments there are: name, question, time on two cores, results.

    python3 -m experiments
"""

from __future__ import annotations

import argparse
from textwrap import fill

from experiments import NAMES
from experiments.lab.experiment import failing_in_a_line, get, state_of
from experiments.lab.running import duration


def main() -> None:
    """Print the list."""
    argparse.ArgumentParser(prog="python3 -m experiments",
                            description=(__doc__ or "").partition("\n")[0]).parse_args()
    for name in NAMES:
        experiment = get(name)
        print(f"{name}: {duration(60 * experiment.minutes)}, results "
              f"{state_of(experiment)}")
        print(fill(experiment.question, 84, initial_indent="    ",
                   subsequent_indent="    "))
    print("\nRun one with: python3 -m experiments.NAME (--help for its flags). All "
          "claims: python3 -m experiments.claims")


if __name__ == "__main__":
    with failing_in_a_line("experiments"):
        main()
