"""Numbers as a record keeps them, and claims: statements beside them, with a verdict.

A module of an experiment makes its claims by `claim`, and says by `resting_on` which of
its trials decide them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np


def listed(values: Any, digits: int = 6) -> Any:
    """Numbers of any shape as JSON keeps them: so many significant digits, None where
    not finite."""
    if np.ndim(values):
        return [listed(value, digits) for value in values]
    return float(f"{values:.{digits}g}") if math.isfinite(values) else None


def or_infinite(values: Any) -> np.ndarray:
    """Losses or epochs, None where a run diverged or never got there -> an array of
    that shape with infinity in their places."""
    values = np.array(values, float)
    return np.where(np.isnan(values), np.inf, values)


def mean_and_std(values: Iterable[float | None]) -> dict:
    """Mean and standard deviation (n - 1) of the values that are not None."""
    there = [value for value in values if value is not None]
    return {"mean": listed(np.mean(there)) if there else None,
            "std": listed(np.std(there, ddof=1)) if len(there) > 1 else None,
            "n": len(there)}


def compare(one: Iterable[float | None], other: Iterable[float | None]) -> str:
    """Test accuracies of two nets' seeds, None where one diverged -> "ahead of" or
    "behind" where every seed of one is above every seed of the other, else "level
    with"."""
    one, other = ([-1 if value is None else value for value in values]
                  for values in (one, other))
    return ("ahead of" if min(one) > max(other) else
            "behind" if max(one) < min(other) else "level with")


def ahead(one: Iterable[float | None], other: Iterable[float | None]) -> bool | None:
    """Whether every seed's number of one net, as its accuracy, is above every one's of
    another; None where they mingle."""
    return {"ahead of": True, "behind": False}.get(compare(one, other))


def claim(*, section: str, text: str, paper: Any, ours: Any, holds: bool | None,
          n: Any = 1, also: dict[str, bool | None] | None = None,
          why: str | None = None, younger: bool = False) -> dict:
    """A statement of a paper beside our numbers, as a record keeps it; section names
    the paper too, as in "P1 3.1"; holds is True, False, or None: we cannot tell. n: the
    seeds behind each of our numbers. also: the verdict at other thresholds; why: it is
    open, where that is not because our numbers do not decide it; younger: the
    threshold, or which nets count, was chosen when the numbers were known."""
    def plain_bool(verdict):
        return None if verdict is None else bool(verdict)
    found = {"section": section, "claim": text, "paper": paper, "ours": ours, "n": n,
             "holds": plain_bool(holds)}
    if also:
        found["also"] = {name: plain_bool(verdict) for name, verdict in also.items()}
    if why and holds is None:
        found["why"] = why
    return found | ({"younger": True} if younger else {})


def at_each(judge: Callable[[float], bool | None],
            thresholds: tuple[float, float, float]) -> dict:
    """Fields of a claim: the verdict, and those at half and at twice the threshold."""
    half, given, twice = thresholds
    return {"holds": judge(given), "also": {f"{half:g}": judge(half),
                                            f"{twice:g}": judge(twice)}}


def agreed(verdicts: Iterable[bool | None]) -> bool | None:
    """The verdict of all nets; None where they differ, or some tell nothing."""
    different = set(verdicts)
    return different.pop() if len(different) == 1 else None


def every(verdicts: Iterable[bool | None]) -> bool | None:
    """True if all are, False if any is, else None: also where there are none."""
    found = set(verdicts)
    return False if False in found else None if None in found or not found else True


def over_nets(values: Sequence[Any]) -> Any:
    """A number of each net, or dicts of them -> lowest, median and highest."""
    if isinstance(values[0], Mapping):
        return {name: over_nets([value[name] for value in values])
                for name in values[0]}
    return {name: listed(of(values)) for name, of in (
        ("lowest", np.min), ("median", np.median), ("highest", np.max))}


class Claim(dict):
    """A claim with settings of the trials that decide it, which a record does not keep:
    a trial is among them if it has all of one of these dicts; where a list stands in
    them, any of its values will do."""

    trials: Sequence[dict] = ({},)

    def rests_on(self, config: dict) -> bool:
        """Whether a trial of these settings is among those that decide it."""
        return any(all(config.get(name) in (value if isinstance(value, list) else [
            value]) for name, value in settings.items()) for settings in self.trials)


def resting_on(claims: Iterable[dict], *trials: dict) -> list[Claim]:
    """Claims, each with the settings of the trials that decide it."""
    made = [Claim(item) for item in claims]
    for item in made:
        item.trials = trials or ({},)
    return made


def telling(holds: bool, before: bool) -> bool | None:
    """The verdict on a trained net: None, it tells nothing, where the statement holds
    and did so before training too."""
    return None if holds and before else holds
