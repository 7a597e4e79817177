"""The numbers in the texts: each is written between markers, from its record.

    python3 -m experiments.texts            README.md and all other pages anew
    python3 -m experiments.texts --check    only say whether they are up to date

In a text, `<!--value:lesion.worst-->15.9<!--end-->` is a number in a sentence, and
`<!--table:headline-->` ... `<!--end-->` is a table, or whatever else has lines of its
own; `experiments.values` says what belongs there, and of claims `from_claims`. It
measures nothing. Exits with 1 if a text was stale, a record is missing or a marker is
wrong.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import dedent

import highway_networks as hn
from experiments import NAMES
from experiments.claims import from_claims
from experiments.store import StoreError
from experiments.values import collect
from experiments.values.common import table
from highway_suite.files import write_files
from highway_suite.schema import RecordError

MARKER = re.compile(r"<!--\s*(?:(value|table):\s*(.+?)|end)\s*-->")
HEADING = re.compile(r"([A-Z]\w+(?: \w+){0,4})[.:] ")
PAGES = ("*.md", "results/README.md", "results/*/README.md", "benchmarks/README.md")


class TextError(ValueError):
    """The markers of a text are wrong: which one, and where."""


def rewrite(text: str, found: Mapping[str, str]) -> str:
    """A text with markers -> the same with what was found between them. TextError."""
    pieces: list[str] = []
    done, open_marker = 0, ""
    for marker in MARKER.finditer(text):
        place = f"line {text.count(chr(10), 0, marker.start()) + 1}: {marker[0]}"
        if (marker[2] is None) == (not open_marker):
            raise TextError(f"{place}: " + (
                "no marker before it" if marker[2] is None else
                f"{open_marker} before it has no end"))
        if marker[2] is None:
            open_marker, done = "", marker.start()
            continue
        if marker[1] == "value" and text[:marker.start()].endswith("\n"):
            raise TextError(f"{place}: at the start of a line it ends the paragraph")
        if marker[2] not in found:
            raise TextError(f"{place}: known are " + ", ".join(
                sorted(name for name in found if name[0] == marker[2][0])))
        line = "\n" if marker[1] == "table" else ""
        pieces.append(text[done:marker.end()] + line + found[marker[2]] + line)
        open_marker = marker[0]
    if open_marker:
        raise TextError(f"{open_marker} has no end")
    return "".join(pieces) + text[done:]


def from_lecture() -> dict[str, str]:
    """The docstring of highway_networks in Markdown, by its headings, which are the
    first words of a paragraph up to a full stop or a colon; what stands before the
    first is left out. And the code of the highway block."""
    found: dict[str, str] = {}
    name = ""
    for paragraph in (hn.__doc__ or "").split("\n\n"):
        if start := HEADING.match(paragraph):
            name, paragraph = start[1], paragraph[start.end():]
        if paragraph.startswith("    "):
            paragraph = f"```\n{dedent(paragraph)}\n```"
        else:       # what Markdown would take for its own
            paragraph = paragraph.strip().replace("*", r"\*").replace("<", "&lt;")
        found[name] = f"{found[name]}\n\n{paragraph}" if name in found else paragraph
    pair = (hn.highway_forward, hn.highway_backward)
    code = "\n\n".join(inspect.getsource(function) for function in pair)
    return {f"lecture.{name}": text for name, text in found.items() if name} | {
        "lecture.code": f"```python\n{code}```"}


def contents() -> str:
    """The experiments: page, question and minutes, a row for each."""
    def row(name):
        experiment = importlib.import_module(f"experiments.{name}").EXPERIMENT
        return (f"[{name}]({name}/README.md)", experiment.question,
                str(experiment.minutes))
    return table("page|question|minutes on two cores, about:", map(row, NAMES))


def pages(root: Path) -> list[Path]:
    """The texts of a checkout that have markers."""
    return [path for pattern in PAGES for path in sorted(root.glob(pattern))
            if MARKER.search(path.read_text(encoding="utf-8", errors="replace"))]


def stale_pages(root: Path) -> dict[Path, bytes]:
    """{text that is not up to date: what it should be}. RecordError, TextError."""
    found = (collect(root) | from_claims(root) | from_lecture()
             | {"experiments": contents()})
    stale = {}
    for path in pages(root):
        content = path.read_bytes()
        try:
            new = rewrite(content.decode(), found).encode()
        except (TextError, UnicodeDecodeError) as error:
            raise TextError(f"{path}: {error}") from error
        if new != content:
            stale[path] = new
    return stale


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        prog="python3 -m experiments.texts", allow_abbrev=False,
        description="Write the numbers of the texts from the records.")
    parser.add_argument("--check", action="store_true", help="write nothing")
    options = parser.parse_args(argv)
    try:
        stale = stale_pages(hn.HERE)
        if not options.check:
            write_files(stale)
    except (RecordError, StoreError, TextError, OSError) as error:
        sys.exit(f"experiments.texts: {error}")
    for path in stale:
        print(f"{path.relative_to(hn.HERE)} was stale" + (
            ": write it with python3 -m experiments.texts" if options.check else
            ", and is written anew"))
    if stale:
        sys.exit(1)
    print(f"{len(pages(hn.HERE))} texts are up to date")


if __name__ == "__main__":
    main()
