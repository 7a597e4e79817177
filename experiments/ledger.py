"""How the ledger is written: a claim, its verdict and its numbers, for readers.

CLAIMS.md has a line for each claim, with the numbers that decide; the page of each
record has all numbers, and the verdict at other thresholds.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from experiments.papers import spoken
from highway_suite.schema import VERDICTS

SPREAD = ("median", "lowest", "highest")    # of several nets
LONG = 130                                  # letters of a cell of CLAIMS.md


class Row(NamedTuple):
    """A claim, as `claim` makes it, and how it is checked."""

    claim: dict
    page: str = ""      # the folder of results/ that tells more; "" if there is none
    name: str = ""      # its ID
    seconds: str = ""   # that a recheck takes,
    part: str = ""      # and what of the trials it trains


def table_lines(head: list[str], rows: Iterable[Iterable[str]]) -> list[str]:
    """The lines of a Markdown table."""
    cells = [[cell.replace("|", r"\|") for cell in row] for row in rows]
    return [f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *cells]]


# --------------------------------------------------------------------------------------
# Values in words


def label(name: str) -> str:
    """A key of a record as a reader would write it."""
    name = re.sub("(?<=[0-9])_(?=[0-9])", " to ", spoken(name))
    return re.sub("(?<=[a-z])_(?=[a-z0-9])", " ", name)


def named(name: str, text: str, deep: bool) -> str:
    """What a key of a record holds; deep: that has keys of its own."""
    return f"{label(name)} ({text})" if deep else f"{label(name)}: {text}"


def words(value: Any) -> str:
    """A value of a record as a reader would write it, numbers with four digits."""
    if value is None or isinstance(value, bool):
        return {None: "–", True: "yes", False: "no"}[value]
    if isinstance(value, (int, float)):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    if isinstance(value, list):
        return ", ".join(map(words, value))
    if isinstance(value, dict):
        deep = any(isinstance(item, (dict, list)) or ", " in name
                   for name, item in value.items())
        return ("; " if deep else ", ").join(
            named(name, words(item), isinstance(item, dict))
            for name, item in value.items())
    return value


def brief_number(value: float) -> str:
    """A number as CLAIMS.md has it: four digits from 0.1 on, two below."""
    return words(value) if abs(value) >= 0.1 else f"{value:.2g}"


def from_to(values: list) -> str:
    """What several seeds gave: from the least to the largest, and what is no number."""
    numbers = sorted(value for value in values if type(value) in (int, float))
    others = Counter("without a number" if value is None else words(value)
                     for value in values if type(value) not in (int, float))
    ends = dict.fromkeys(map(brief_number, (numbers[:1] + numbers[-1:])))
    return ", ".join([" to ".join(ends)] * bool(ends) + [
        f"{count} {other}" for other, count in others.items()])


def brief(value: Any, cut: bool = False) -> str:
    """The numbers that decide, in a line: of several seeds from the least to the
    largest, of several nets the median before them. What a sentence says, as "A ahead
    of B", needs no numbers. cut: of more than two entries the first and the last."""
    if isinstance(value, list):
        return "; ".join(brief(item, cut) for item in value) if value and isinstance(
            value[0], list) else from_to(value)
    if not isinstance(value, Mapping):
        return brief_number(value) if type(value) in (int, float) else words(value)
    said = [item for item in value.values() if isinstance(item, list) and item
            and all(isinstance(each, str) and " " in each for each in item)]
    if said:
        return ", ".join(said[0])
    if set(SPREAD) <= set(value):
        middle, *ends = (brief_number(value[name]) for name in SPREAD)
        return middle if len(set(ends)) == 1 else f"{middle} ({' to '.join(ends)})"
    items = {name: brief(item, cut) for name, item in value.items()
             if not name.startswith("at ")}       # verdicts at other thresholds
    deep = {name for name, item in value.items()
            if isinstance(item, Mapping) and not set(SPREAD) <= set(item)}
    listed = any(isinstance(item, list) or ", " in name for name, item in value.items())
    pieces = [named(name, item, name in deep) for name, item in items.items()]
    if cut and len(pieces) > 2:
        return f"{pieces[0]} … {pieces[-1]}"
    text = ("; " if deep or listed else ", ").join(pieces)
    return text if cut or len(text) <= LONG else brief(value, cut=True)


# --------------------------------------------------------------------------------------
# Claims in words


def verdict(item: dict) -> str:
    """A claim's verdict, why it is open, and whether its numbers are the older."""
    why = f": {item.get('why', 'undecided')}" if item["holds"] is None else ""
    bold = "" if item["holds"] is None else "**"
    return (f"{bold}{VERDICTS[item['holds']]}{bold}{why}"
            + " †" * item.get("younger", False))


def at_others(item: dict) -> str:
    """The verdict at other thresholds."""
    return "; ".join(f"{name}: {VERDICTS[holds]}"
                     for name, holds in item.get("also", {}).items()) or "–"


def measured(item: dict) -> str:
    """Our numbers, and theirs where they are of the same things."""
    ours, theirs = item["ours"], item["paper"]
    if item["n"] is None:
        return words(ours)
    same = isinstance(theirs, Mapping) and isinstance(ours, Mapping) and {
        *ours} & {*theirs}
    return brief(ours) + ("; " + named("theirs", brief(theirs), True) if same else "")


def check_of(row: Row) -> str:
    """How a claim is checked: its ID, as a link to its page, and the seconds."""
    return (f"[`{row.name}`](results/{row.page}/README.md#claims) {row.seconds}"
            if row.name else "–")


def line_of(row: Row, paper: str) -> list[str]:
    """A claim's cells in CLAIMS.md."""
    item = row.claim
    section = item["section"].removeprefix(paper).strip() or row.page or "–"
    return [verdict(item), section, item["claim"], measured(item), words(item["n"]),
            check_of(row)]


def by_section(row: Row) -> tuple:
    """Sections of a paper in order, figures and tables last."""
    section = row.claim["section"].partition(" ")[2]
    return not section[:1].isdigit(), section


def ledger_table(paper: str, rows: Iterable[Row]) -> list[str]:
    """The claims of one paper, a line for each."""
    return table_lines(
        ["verdict", "where", "claim", "we measured", "n", "check, seconds"],
        [line_of(row, paper) for row in sorted(rows, key=by_section)])


def full_table(rows: Iterable[Row]) -> list[str]:
    """The claims of one page, with all that is known of them."""
    return table_lines(
        ["verdict", "section", "claim", "theirs", "ours", "n",
         "at half and twice the threshold", "recheck"],
        [[verdict(row.claim), row.claim["section"], row.claim["claim"],
          words(row.claim["paper"]), words(row.claim["ours"]), words(row.claim["n"]),
          at_others(row.claim), f"`{row.name}` {row.seconds}: {row.part}"]
         for row in rows])


# --------------------------------------------------------------------------------------
# Counts


def is_alone(n: Any) -> bool:
    """Whether one seed stands behind a number."""
    return 1 in n if isinstance(n, list) else n == 1


class Count(NamedTuple):
    """How many claims there are, with which verdicts."""

    claims: int
    hold: int
    alone: int      # hold with one seed
    fail: int
    open: int
    reasons: str    # why claims are open


def count(rows: Sequence[Row]) -> Count:
    """Claims by their verdicts, and why they are open."""
    hold, fail, is_open = (sum(row.claim["holds"] is found for row in rows)
                           for found in VERDICTS)
    why = Counter(row.claim.get("why", "undecided") for row in rows
                  if row.claim["holds"] is None)
    alone = sum(row.claim["holds"] is True and is_alone(row.claim["n"]) for row in rows)
    return Count(len(rows), hold, alone, fail, is_open, ", ".join(
        f"{number} {reason}" for reason, number in why.most_common()))


def count_table(rows: Mapping[str, Sequence[Row]]) -> list[str]:
    """Claims by whose they are: {title: rows}."""
    return table_lines(
        ["claims of", "all", "hold", "of these with one seed", "do not hold", "open",
         "why open"],
        [[title, *map(str, count(own)[:5]), count(own).reasons or "–"]
         for title, own in rows.items()])
