"""All claims with their verdicts, and the recheck of one.

    python3 -m experiments.claims                   a line for each claim
    python3 -m experiments.claims --recheck NAME    train again what decides it, and
                                                    judge it again
    python3 -m experiments.claims --five            the same of README's five findings,
                                                    in minutes, as a table in Markdown

A recheck exits with 1 where the verdict changes, and with 2, without a verdict, where
it would take longer than --minutes. Where the verdict stays while the numbers do not
come out, it says so and exits with 3.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from experiments import FIVE
from experiments.lab.experiment import all_claims, all_records, failing_in_a_line
from experiments.lab.recheck import recheck_all, recheck_claim
from highway_suite.files import expanded
from highway_suite.terminal import in_range


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        prog="python3 -m experiments.claims", allow_abbrev=False,
        description=(__doc__ or "").partition("\n")[0])
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--recheck", metavar="NAME", help="train the trials that decide "
                      "a claim again, and judge it again")
    mode.add_argument("--five", action="store_true", help="recheck README's five "
                      "findings; prints a table in Markdown, to be pasted")
    parser.add_argument("--minutes", type=in_range(float, 0.1, 10**6),
                        help="that a recheck may take (default: 2)")
    parser.add_argument("--sample", type=in_range(int, 1, 10**6),
                        metavar="N", help="train only the N cheapest and compare them; "
                        "that gives no verdict")
    parser.add_argument("--jobs", type=in_range(int, 1, 1024), metavar="N",
                        help="processes (default: one per core)")
    parser.add_argument("--data-dir", metavar="FOLDER", type=expanded,
                        help="of the data set's files")
    options = parser.parse_args(argv)
    trains = options.five or options.recheck is not None
    if options.recheck is None and (options.minutes or options.sample):
        parser.error("--minutes and --sample are for --recheck")
    kept = "; a recheck begins anew" if trains else ""
    with failing_in_a_line("experiments.claims", kept):
        if not trains:
            for claim in all_claims(all_records()):
                print(f"{claim['name']}: {claim['verdict']}. {claim['source']}: "
                      f"{claim['claim']}")
            return
        sys.exit(recheck_all(FIVE, options.jobs, options.data_dir) if options.five else
                 recheck_claim(options.recheck, minutes=options.minutes or 2,
                               sample=options.sample or 0, jobs=options.jobs,
                               data_dir=options.data_dir))


if __name__ == "__main__":
    main()
