"""skipped.py REPORT LIST STAGE [START]: run the tests that a report calls skipped.

The report is pytest's JUnit file of another run; START chooses those whose names start
with it. Exits with 1 if one of them fails, or is skipped again and not in LIST, whose
lines are a stage, the start of tests' names, and the reason, two blanks between them.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from pathlib import Path


def skipped(report: str | Path) -> list[str]:
    """The names of a report's skipped tests, as pytest takes them."""
    names = []
    for case in ElementTree.parse(report).iter("testcase"):
        if case.find("skipped") is not None:
            module = case.get("classname", "").replace(".", "/")
            names.append(f"{module}.py::{case.get('name')}")
    return names


def allowed(path: str | Path, stage: str) -> dict[str, str]:
    """A list of exceptions -> those of a stage, {start of a name: reason}."""
    rows = [line.split("  ", 2) for line in Path(path).read_text().splitlines()
            if line and not line.startswith("#")]
    return {start: reason for where, start, reason in rows if where == stage}


def main(report: str, exceptions: str, stage: str, start: str = "") -> int:
    """Run, tell, and return the exit status."""
    names = [name for name in skipped(report) if name.startswith(start)]
    if not names:
        print("nothing was skipped")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        again = Path(folder, "report.xml")
        ended = subprocess.run([sys.executable, "-m", "pytest", "-q",
                                f"--junitxml={again}", *names])
        left = skipped(again) if again.exists() else []
    reasons, unknown = allowed(exceptions, stage), []
    for name in left:
        reason = next((reason for start, reason in reasons.items()
                       if name.startswith(start)), None)
        print(f"skipped again: {name}: {reason or 'NOT LISTED'}")
        unknown += [] if reason else [name]
    print(f"{len(names)} tests that stage tests skipped: {len(names) - len(left)} run, "
          f"{len(left) - len(unknown)} left out as listed, {len(unknown)} skipped "
          f"without a reason, pytest ended with {ended.returncode}")
    return int(bool(unknown or ended.returncode))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
