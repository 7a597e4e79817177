"""Claims and their verdicts, and numbers as a record keeps them.

A claim is one sentence of a source, with its numbers, ours, and one test. `judge` gives
the verdict, the same way for all of them:

    holds           the test says so
    does not hold   the test says that it is not so
    not learned     it is so, and of the untrained net, or another control, as well
    open            the test cannot tell, or nothing here can
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

HOLDS, FAILS, NOT_LEARNED, OPEN = "holds", "does not hold", "not learned", "open"


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One statement beside our numbers."""

    name: str               # its own, in all of the suite: "fig1-orders"
    source: str = "ours"    # or whose, and where: "P1 3.1"
    text: str               # one plain sentence
    ours: Any               # our numbers, as JSON
    rows: Sequence[Mapping]         # of the record, that it reads: with "trials"
    test: Callable[..., bool | None] | None    # test(limit), without a limit test()
    limit: float | None = None      # what the test compares with
    control: Callable[..., bool | None] | None = None   # the same test, of the control
    paper: Any = None               # theirs
    n: Any = 1                      # seeds behind each of our numbers
    told: Callable[[float], str] = "{:g}".format    # a limit as its sentence has it
    after_data: bool = False        # limit or nets chosen when the numbers were known
    why: str = "the seeds do not decide it"     # why it is open, if it is


def verdict(claim: Claim, limit: float | None) -> str:
    """What the claim's test says at a limit."""
    arguments = () if limit is None else (limit,)
    found = claim.test(*arguments) if claim.test else None
    if found and claim.control and claim.control(*arguments):
        return NOT_LEARNED
    return OPEN if found is None else HOLDS if found else FAILS


def judge(claim: Claim) -> dict:
    """A claim -> its part of a record: with the verdict, that at half and at twice the
    limit, and the hashes of the trials that decide it."""
    found = {"name": claim.name, "source": claim.source, "claim": claim.text,
             "paper": claim.paper, "ours": claim.ours, "n": claim.n,
             "verdict": verdict(claim, claim.limit),
             "trials": sorted({name for row in claim.rows for name in row["trials"]})}
    if claim.limit is not None:
        found["at"] = {claim.told(limit): verdict(claim, limit) for limit in
                       (claim.limit / 2, claim.limit, 2 * claim.limit)}
    if found["verdict"] == OPEN:
        found["why"] = claim.why
    return found | ({"after_data": True} if claim.after_data else {})


# --------------------------------------------------------------------------------------
# What tests are made of


def every(verdicts: Iterable[bool | None]) -> bool | None:
    """True if all are, False if any is, else None: also where there are none."""
    found = set(verdicts)
    return False if False in found else None if None in found or not found else True


def agreed(verdicts: Iterable[bool | None]) -> bool | None:
    """The verdict of all nets; None where they differ, or some tell nothing."""
    different = set(verdicts)
    return different.pop() if len(different) == 1 else None


def ahead(one: Iterable[float | None], other: Iterable[float | None],
          nets: Iterable[Iterable[float | None]] = ()) -> bool | None:
    """Whether one net is ahead of another by the numbers of their seeds, as accuracies:
    True, False if it is behind, None if that is open.

    It is with at least three seeds each, all above all of the other; or with two each,
    if the gap exceeds three times the largest spread of a net, of these and of `nets`,
    the others of the record. A seed that diverged, None, is below all numbers.
    """
    one, other, *rest = ([-math.inf if value is None else float(value)
                          for value in values] for values in (one, other, *nets))
    few = min(len(one), len(other))
    least = 3 * max((max(values) - min(values) for values in (one, other, *rest)
                     if max(values) > -math.inf), default=0) if few < 3 else 0
    return None if few < 2 else (True if min(one) - max(other) > least else
                                 False if min(other) - max(one) > least else None)


# --------------------------------------------------------------------------------------
# Numbers, and choices by them


def listed(values: Any, digits: int = 6) -> Any:
    """Numbers of any shape as JSON keeps them: so many significant digits, None where
    not finite. (hn.significant is for one number, which must be finite.)"""
    if np.ndim(values):
        return [listed(value, digits) for value in values]
    return float(f"{values:.{digits}g}") if math.isfinite(values) else None


def or_infinite(values: Any) -> np.ndarray:
    """Losses or epochs, None where a run diverged or never got there -> an array of
    that shape with infinity in their places."""
    values = np.array(values, float)
    return np.where(np.isnan(values), np.inf, values)


def or_zero(values: Iterable[float | None]) -> list[float]:
    """Accuracies, None where a run diverged -> the same with 0 in their places."""
    return [value or 0 for value in values]


def name_of_least(values: Mapping[Any, float | None]) -> Any:
    """The name of the least value, of equal ones the first; None is the largest."""
    known = {name: math.inf if value is None else value
             for name, value in values.items()}
    return min(known, key=lambda name: known[name])


def next_beyond(tried: Collection[float], best: float, more: Sequence[float]
                ) -> list[float]:
    """Where the best of the values tried lies at an end: the nearest of more, which
    ascend, on the far side of it."""
    lower = [value for value in more if value < min(tried)][-1:]
    higher = [value for value in more if value > max(tried)][:1]
    return lower * (best == min(tried)) + higher * (best == max(tried))


def mean_and_std(values: Iterable[float | None]) -> dict:
    """Mean and standard deviation (n - 1) of the values that are not None."""
    there = [value for value in values if value is not None]
    return {"mean": listed(np.mean(there)) if there else None,
            "std": listed(np.std(there, ddof=1)) if len(there) > 1 else None,
            "n": len(there)}


def over_nets(values: Sequence[Any]) -> Any:
    """A number of each net, or dicts of them -> lowest, median and highest."""
    if isinstance(values[0], Mapping):
        return {name: over_nets([value[name] for value in values])
                for name in values[0]}
    return {name: listed(of(values)) for name, of in (
        ("lowest", np.min), ("median", np.median), ("highest", np.max))}
