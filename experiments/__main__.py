"""What experiments there are: name, question, minutes on two cores, results.

    python3 -m experiments
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from textwrap import fill

import highway_networks as hn
from experiments import NAMES
from experiments.lab import state_of


def main(argv: Sequence[str] | None = None) -> None:
    """Print the list, in one write: whoever reads it may stop after a line."""
    parser = argparse.ArgumentParser(
        prog="python3 -m experiments", allow_abbrev=False, description=
        __doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("name", nargs="?", help=argparse.SUPPRESS)
    if name := parser.parse_args(argv).name:
        parser.error(f"this only lists them. Run one with: python3 -m "
                     f"experiments.{name if name in NAMES else 'NAME'}")
    lines = []
    for name in NAMES:
        experiment = importlib.import_module(f"experiments.{name}").EXPERIMENT
        state = state_of(experiment, hn.HERE / "results" / name)
        lines += [f"{name}: {experiment.minutes} minutes, results {state}",
                  fill(experiment.question, 84, initial_indent="    ",
                       subsequent_indent="    ")]
    planned = sorted(page.parent.name for page in
                     (hn.HERE / "results").glob("*/README.md")
                     if (hn.HERE / "experiments" / f"{page.parent.name}.py").exists()
                     and page.parent.name not in NAMES)
    if planned:
        lines.append(f"Planned, without results yet: {', '.join(planned)}")
    lines += ["", "Run one with: python3 -m experiments.NAME (--help for its flags).",
              "The ledger of their claims, CLAIMS.md: python3 -m experiments.claims\n"]
    sys.stdout.write("\n".join(lines))


if __name__ == "__main__":
    main()
