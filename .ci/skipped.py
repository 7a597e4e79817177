"""skipped.py REPORT LIST: run the tests that a JUnit report calls skipped.

Exits with 1 if one of them fails, or is skipped again and not in LIST, whose lines are
the start of tests' names, two blanks or more, and the reason.
"""

from __future__ import annotations

import re
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


def allowed(path: str | Path) -> dict[str, str]:
    """A list of exceptions -> {start of a name: reason}."""
    lines = Path(path).read_text().splitlines()
    rows = [re.split(r"\s{2,}", line, maxsplit=1) for line in lines
            if line and not line.startswith("#")]
    return dict(rows)


def main(report: str, exceptions: str) -> int:
    """Run, tell, and return the exit status."""
    names = skipped(report)
    if not names:
        print("nothing was skipped")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        again = Path(folder, "report.xml")
        ended = subprocess.run([sys.executable, "-m", "pytest", "-q",
                                f"--junitxml={again}", *names])
        left = skipped(again) if again.exists() else []
    reasons, unknown = allowed(exceptions), []
    for name in left:
        reason = next((reason for start, reason in reasons.items()
                       if name.startswith(start)), None)
        print(f"skipped again: {name}: {reason or 'NOT LISTED'}")
        unknown += [] if reason else [name]
    print(f"{len(names)} tests that the first stage skipped: {len(names) - len(left)} "
          f"run, {len(left) - len(unknown)} left out as listed, {len(unknown)} skipped "
          f"without a reason, pytest ended with {ended.returncode}")
    return int(bool(unknown or ended.returncode))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
