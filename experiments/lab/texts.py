"""The texts that quote numbers, rendered from the records: X.md from X.md.jinja.

    python3 -m experiments.lab.texts            write what is stale

A template stands beside its text (that of README.md in docs/), and Jinja renders it; a
name that is not there is an error, so no number can be missing or out of date. In a
template there are

    record, plan        of the experiment whose page it is; records.NAME of any
    claim["NAME"]       a judged claim: its ours, paper, n, verdict
    claims_section      all claims of the page: a table, and a fold for each, to be
                        linked to
    minutes(claim)      that its recheck takes
    run, sweep          run.json and run_sweep.json;  experiments: name -> Experiment
    lecture, code       parts of highway_networks.py
    speed, accuracy     records of benchmarks/; speed's ranges over kinds of processor
    filters             percent, decimal, number, span, mean, table; words of a value
"""

from __future__ import annotations

import argparse
import inspect
import math
import re
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from decimal import ROUND_HALF_EVEN, Decimal
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import highway_networks as hn
from experiments import FIVE, NAMES
from experiments.lab import experiment
from experiments.lab.judging import FAILS, HOLDS, NOT_LEARNED, OPEN
from experiments.lab.papers import spoken
from experiments.lab.running import seconds_of
from experiments.lab.trials import Trial, read_packed
from highway_suite.files import parse_json, read_file, write_file

PLACES = ("docs/*.md.jinja", "results/*.md.jinja", "results/*/README.md.jinja",
          "benchmarks/README.md.jinja")
HEADING = re.compile(r"([A-Z]\w+(?: \w+){0,4})[.:](?: |$)")
FRONT = hn.HERE / "docs" / "README.md.jinja"    # of the README at the top

# --------------------------------------------------------------------------------------
# Numbers in words


def number(value: float | None, digits: int = 4) -> str:
    """So many significant digits; thousands have commas, None is a dash."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if abs(value) >= 10 ** max(digits - 1, 3) else (
        f"{value:.{digits}g}")


def decimal(value: float) -> str:
    """0.0001, and not 1e-4."""
    return np.format_float_positional(value, trim="-")


def percent(fraction: float, digits: int = 1) -> str:
    """0.967 -> "96.7"; a half goes to the even digit, so that shares add up to 100."""
    return str((100 * Decimal(str(fraction))).quantize(Decimal(10) ** -digits,
                                                       ROUND_HALF_EVEN))


def alike(values: Sequence[float | None], digits: int = 4) -> list[str]:
    """Numbers with as many decimals as the largest has, where they are of one order."""
    told = [number(value, digits) for value in values]
    there = [abs(value) for value in values if value]
    if None in values or not there or min(there) < max(1e-3, max(there) / 100):
        return told
    decimals = min(max(len(text.partition(".")[2]) for text in told),
                   max(digits - 1 - math.floor(math.log10(max(there))), 0))
    return [f"{value:,.{decimals}f}" for value in values]


def span(values: Iterable[float], digits: int = 3) -> str:
    """Lowest to highest, once if they look alike."""
    values = sorted(values)
    return " to ".join(dict.fromkeys(alike([values[0], values[-1]], digits)))


def mean(values: Iterable[float | None], digits: int = 4) -> str:
    """Values of the seeds -> "0.9037 ± 0.0059", standard deviation with n - 1."""
    there = [value for value in values if value is not None]
    if not there:
        return "diverged"
    deviation = f" ± {np.std(there, ddof=1):.{digits}f}" if len(there) > 1 else ""
    return f"{np.mean(there):.{digits}f}{deviation}"


def spaced(name: str) -> str:
    """A key of a record in words; b_T stays."""
    return re.sub("(?<!b)_", " ", name)


def words(value: Any) -> str:
    """Any value of a record in a line: seeds from the least to the largest."""
    if value is None or isinstance(value, (int, float)):
        return number(value, 3 if abs(value or 1) < 1e-3 else 4)
    if isinstance(value, list):
        if len(value) > 3 and all(type(item) in (int, float) for item in value):
            return span(value, 4)
        if value and all(type(item) in (int, float) and abs(item) >= 1e-3
                         for item in value):
            return ", ".join(alike(value))
        return ", ".join(map(words, value))
    if not isinstance(value, Mapping):
        return str(value)
    ends = {"lowest", "median", "highest"}
    if set(value) == ends:
        told = alike([value[name] for name in ("median", "lowest", "highest")])
        return told[0] if len(set(told)) == 1 else f"{told[0]} ({told[1]} to {told[2]})"
    names = [spaced(name) for name in value]
    return "; ".join(
        f"{name} ({words(item)})" if isinstance(item, Mapping) and set(item) != ends
        else f"{name}: {words(item)}" for name, item in zip(names, value.values(),
                                                             strict=True))


def table(rows: Iterable[Iterable[str]], head: str) -> str:
    """A Markdown table; in its head, "a|b:|c", a column that ends in ":" is of numbers.
    """
    names = head.split("|")
    lines = [[name.rstrip(":") for name in names],
             ["---:" if name.endswith(":") else "---" for name in names],
             *([str(cell).replace("|", r"\|") for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


# --------------------------------------------------------------------------------------
# Claims in words


def ours_of(value: Any) -> str:
    """What we measured: a line, or a table if a line would be long."""
    line, rows = words(value), value
    if isinstance(value, Mapping) and len(value) == 1:
        (name, of), = value.items()
        rows = {at: {name: item} for at, item in of.items()} if isinstance(
            of, Mapping) else value
    if not isinstance(rows, Mapping) or len(rows) < 4 and len(line) < 100:
        return f"- Ours: {line}."
    inner = {tuple(item) if isinstance(item, Mapping) else () for item in rows.values()}
    columns = inner.pop() if len(inner) == 1 else ()
    cells = [[spaced(name), *(map(words, item.values()) if columns else [words(item)])]
             for name, item in rows.items()]
    return f"\n{table(cells, '|'.join(['ours', *(columns or [' '])]))}\n"


def verdict_of(claim: Mapping) -> str:
    """A claim's verdict; a dagger where its limit was chosen after the numbers."""
    why = f" ({claim['why']})" if claim.get("why") else ""
    return claim["verdict"] + why + " †" * claim.get("after_data", False)


def other_verdicts(claim: Mapping) -> list[str]:
    """Half and twice a claim's limit, where the verdict is another there."""
    return [f"at {limit}: {verdict}" for limit, verdict in claim.get("at", {}).items()
            if verdict != claim["verdict"]]


ORDER = HOLDS, FAILS, NOT_LEARNED, OPEN


def in_short(claim: Mapping) -> str:
    """A claim's sentence without its exact test, for a table."""
    return re.split(r"\. |: | \((?=[^)]*: )", claim["claim"])[0]


def ours_in_short(value: Any, most: int = 60) -> str:
    """As much of what we measured as a cell holds; of a net and its controls that of
    the net."""
    if isinstance(value, Mapping) and "trained" in value:
        value = value["trained"]
    line = words(value)
    if len(line) <= most or not isinstance(value, Mapping):
        return line
    rest = "; \N{HORIZONTAL ELLIPSIS}"
    name, first = next(iter(value.items()))
    return f"{spaced(name)}: {ours_in_short(first).removesuffix(rest)}{rest}"


def section_of(claims: Sequence[Mapping]) -> str:
    """The claims of one page: a table, by verdict, and then the details of each, folded
    away, where links to it lead."""
    claims = sorted(claims, key=lambda claim: ORDER.index(claim["verdict"]))
    short = [in_short(claim) for claim in claims]
    rows = [(f"[{claim['verdict']}](#{claim['name']})"
             + (" †" if claim.get("after_data") else ""),
             told if short.count(told) == 1 else claim["claim"],
             ours_in_short(claim["ours"]), words(claim["n"]),
             str(minutes(claim)) if claim["trials"] else "")
            for claim, told in zip(claims, short, strict=True)]
    return "\n\n".join([
        "A verdict leads to its claim below, with the whole sentence and all numbers. "
        "[How to read a claim, and to check it again](../../docs/claims.md).",
        table(rows, "verdict|claim|ours|n|minutes:"), *map(told_of, claims)])


def told_of(claim: Mapping) -> str:
    """One claim in a fold: its name and verdict, its sentence, the numbers."""
    numbers = []
    if claim["source"] != "ours":
        numbers.append(f"- Source: {claim['source']}.")
    if claim["paper"] is not None:
        numbers.append(f"- Theirs: {words(claim['paper'])}.")
    if claim["ours"] is not None:
        numbers.append(ours_of(claim["ours"]))
    if others := other_verdicts(claim):
        numbers.append(f"- Limit: {[*claim['at']][1]}; {'; '.join(others)}.")
    name, sentence = claim["name"], claim["claim"]
    return "\n\n".join(filter(None, [
        f'<details id="{name}">\n<summary>{name}: {verdict_of(claim)}</summary>',
        f"{sentence[0].upper()}{sentence[1:]}.", "\n".join(numbers).strip("\n"),
        "</details>"]))


@cache
def packed(name: str) -> dict[str, Trial]:
    """The committed trials of an experiment."""
    return read_packed(experiment.folder_of(name) / "trials")


def minutes(claim: Mapping) -> int:
    """That a recheck of the claim takes on two cores, rounded up."""
    trials = packed(claim["experiment"])
    return math.ceil(round(seconds_of([trials[name] for name in claim["trials"]])) / 60)


def counts(claims: Iterable[Mapping]) -> dict[str, int]:
    """How many claims have each verdict: holds, fails, not_learned, open, all."""
    found = [claim["verdict"] for claim in claims]
    return {"all": len(found), "holds": found.count(HOLDS), "fails": found.count(FAILS),
            "not_learned": found.count(NOT_LEARNED), "open": found.count(OPEN)}


# --------------------------------------------------------------------------------------
# Rendering


def read(name: str) -> dict:
    """A record at the top of the checkout."""
    return parse_json(read_file(hn.HERE / name).decode())


def lecture(name: str) -> str:
    """A part of the docstring of highway_networks in Markdown, by its heading: the
    first words of a paragraph up to a full stop. Formulas become code, and
    results/NAME a link. Raises KeyError."""
    found: dict[str, str] = {}
    heading = ""
    for paragraph in (hn.__doc__ or "").strip().split("\n\n"):
        if start := HEADING.match(paragraph):
            heading, paragraph = start[1], paragraph[start.end():]
        if paragraph.startswith("    "):
            paragraph = f"```\n{textwrap.dedent(paragraph)}\n```"
        found[heading] = f"{found.get(heading, '')}\n\n{paragraph}".strip()
    return re.sub(r"results/(\w+)", r"[\g<0>](../\g<0>/README.md)", found[name])


def code(*names: str) -> str:
    """The source of functions of highway_networks, as Markdown."""
    text = "\n\n".join(inspect.getsource(getattr(hn, name)) for name in names)
    return f"```python\n{text}```"


AS_IT_IS = re.compile(r"    |[|#<>!]|\[!|\d+\. |### ", re.S)


def wrapped(text: str) -> str:
    """Markdown with its paragraphs and lists in lines of 80; code, tables, headings,
    quotations and pictures stay as they are."""
    def fill(paragraph, width=80):
        if AS_IT_IS.match(paragraph):
            return paragraph
        if paragraph.startswith("- "):
            items = re.split(r"(?:^|\n)- ", paragraph)[1:]
            return "\n".join("- " + fill(item, 78).replace("\n", "\n  ")
                             for item in items)
        kept = re.sub(r" ([-+*=/]) ", "\0\\1\0", " ".join(paragraph.split()))
        kept = re.sub(r"`[^`]{,75}`", lambda found: found[0].replace(" ", "\0"), kept)
        return textwrap.fill(kept, width, break_long_words=False, break_on_hyphens=False
                             ).replace("\0", " ")
    pieces = re.split(r"(```.*?```)", text, flags=re.S)
    pieces[::2] = [re.sub(r"[^\n]+(\n[^\n]+)*", lambda found: fill(found[0]), piece)
                   for piece in pieces[::2]]
    return "".join(pieces)


def rendered() -> dict[Path, bytes]:
    """All texts that have a template, as they should be. Raises jinja2's errors, which
    name the template and the line."""
    import jinja2
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(hn.HERE), undefined=jinja2.StrictUndefined,
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True)
    environment.filters |= {of.__name__: of for of in (
        percent, decimal, number, span, mean, median, words, table, spoken)}
    records = experiment.all_records()
    claims = experiment.all_claims(records)
    environment.globals |= {of.__name__: of for of in (
        counts, in_short, verdict_of, other_verdicts, minutes, lecture, code)}
    environment.globals |= {
        "records": records, "claim": {item["name"]: item for item in claims},
        "claims": claims, "five": FIVE, "hn": hn, "run": read("run.json"),
        "sweep": read("run_sweep.json"), "speed": read("benchmarks/speed.json"),
        "accuracy": read("benchmarks/accuracy.json"),
        "experiments": {name: experiment.get(name) for name in NAMES}}
    texts = {}
    for pattern in PLACES:
        for path in sorted(hn.HERE.glob(pattern)):
            about: dict[str, Any] = {}
            if record := records.get(path.parent.name):
                about = {"record": record, "plan": record["plan"],
                         "claims_section": section_of(
                             [item for item in claims
                              if item["experiment"] == path.parent.name])}
            template = environment.get_template(path.relative_to(hn.HERE).as_posix())
            target = hn.HERE / "README.md" if path == FRONT else path.with_suffix("")
            texts[target] = wrapped(template.render(about)).encode()
    return texts


def stale() -> dict[Path, bytes]:
    """The texts that are not as they should be."""
    return {path: text for path, text in rendered().items()
            if not path.exists() or path.read_bytes() != text}


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python3 -m experiments.lab.texts",
                                     description="Render the texts from the records.")
    parser.parse_args(argv)
    if find_spec("jinja2") is None:
        sys.exit(f"{parser.prog} needs jinja2. Install: pip install -e '.[test]'")
    with experiment.failing_in_a_line("experiments.lab.texts"):
        for path, content in stale().items():
            write_file(path, content)
            print(f"{path.relative_to(hn.HERE).as_posix()} written")


if __name__ == "__main__":
    main()
