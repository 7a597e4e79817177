"""What a contest is, and how it is measured: equal work first, then rounds in turns.

All contestants of a contest start from the same weights and get the same batches.
Before anything is timed, the gradient of each is held to ours; a contestant that does
other work ends the contest. Then all work one after the other, round after round, so
that a slow minute of the machine meets all alike. A ratio is taken within a round; its
median over the rounds, the least and the largest are reported.

Seconds are those that the processor spent, so that other programs matter less; where a
contest has several threads, or starts programs, they are those of the clock.
"""

from __future__ import annotations

import importlib.util
import math
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

import highway_networks as hn

TOLERANCE = {"float32": 1e-4, "float64": 1e-8}      # of a tensor's largest gradient
APART = 0.01        # of our way: how far weights may lie from ours after a first round
LEVEL = 0.05        # closer than that to our time is level


class OtherWork(ValueError):
    """A contestant does not compute what we do; the message says who."""


class Contestant(NamedTuple):
    """make(task) is a program: gradient() of the first batch at the initial weights, by
    tensor; work(), which trains some steps; and weights(), by tensor, where they can be
    compared: not where each draws its own dropout. needs: its libraries, and "c++" for
    a compiler. rival: whether it does all of the work, so that somebody is ahead."""

    make: Callable[[Any], Any]
    needs: tuple[str, ...] = ()
    rival: bool = True


class Contest(NamedTuple):
    """task(dtype) is what all work on. checked_in: the dtype in which gradients are
    compared; they are timed in float32. The first contestant is "ours"."""

    task: Callable[[str], Any]
    contestants: Mapping[str, Contestant]
    settings: dict              # what the record says of the task
    steps: int = 1              # that one work() trains
    threads: int = 1
    checked_in: str = "float64"
    clock: Callable[[], float] | None = None    # None: the processor's for one thread


def absent(needs: Sequence[str]) -> list[str]:
    """What of a contestant's needs is not here."""
    def there(name):
        if name == "c++":
            return any(map(shutil.which, ("g++", "clang++", "c++")))
        return importlib.util.find_spec(name) is not None
    return [name for name in needs if not there(name)]


# --------------------------------------------------------------------------------------
# Equal work


def gradient_error(ours: dict, theirs: dict) -> float:
    """Largest difference of two gradients, relative to a tensor's largest entry."""
    return float(np.max([abs(ours[name] - theirs[name]).max() / abs(ours[name]).max()
                         for name in ours]))    # Python's max may pass over a NaN


def weights_apart(ours: dict, theirs: dict, start: dict) -> float:
    """How far their weights are from ours, in parts of our way from the start."""
    def length(a, b):
        return np.sqrt(sum(np.square(a[n] - b[n]).sum(dtype=float) for n in ours))
    return float(length(theirs, ours) / length(start, ours))


def check(found: dict[str, float], most: float, words: str) -> dict[str, float]:
    """{contestant: how far it is from us}, as found. Raises OtherWork, in these words,
    where one is further than `most`."""
    for name, apart in found.items():
        if not apart <= most:           # a NaN is not
            raise OtherWork(f"{name} does other work: its {words} by {apart:.1e}")
    return found


# --------------------------------------------------------------------------------------
# Rounds


def verdict(ratios: Sequence[float]) -> str:
    """Their time over ours, round by round -> where we are: "ahead" or "behind" where
    the median says so by more than LEVEL and three rounds of four agree, or "level"."""
    low, middle, high = np.quantile(ratios, (0.25, 0.5, 0.75))
    if middle > 1 + LEVEL and low > 1:
        return "ahead"
    return "behind" if middle < 1 / (1 + LEVEL) and high < 1 else "level"


def take_turns(programs: Mapping[str, Any], rounds: int, clock: Callable[[], float],
               patience: float = math.inf) -> dict[str, list[float]]:
    """{contestant: seconds of its work in each round}; every second round goes the
    other way round, so that nobody always follows the same. After so many seconds of
    patience three rounds are enough."""
    seconds: dict[str, list] = {name: [] for name in programs}
    begin_of_all = time.perf_counter()
    for number in range(rounds):
        if number >= 3 and time.perf_counter() - begin_of_all > patience:
            break
        for name in list(programs)[::1 if number % 2 else -1]:
            begin = clock()
            programs[name].work()
            seconds[name].append(clock() - begin)
    return seconds


def summary(seconds: Sequence[float], ours: Sequence[float], steps: int, rival: bool
            ) -> dict:
    """Seconds of the rounds, and ours -> what the record says: of one step."""
    ratios = np.array(seconds) / np.array(ours)
    return {"seconds": [hn.significant(s / steps) for s in seconds],
            "median": hn.significant(np.median(seconds) / steps),
            "times_ours": {"median": hn.significant(np.median(ratios)),
                           "least": hn.significant(ratios.min()),
                           "largest": hn.significant(ratios.max())},
            "verdict": verdict(ratios) if rival else None}


def measure(contest: Contest, rounds: int, patience: float = math.inf) -> dict:
    """A contest -> its part of the record. Raises OtherWork."""
    lacking = {name: absent(who.needs) for name, who in contest.contestants.items()}
    there = {name: who for name, who in contest.contestants.items()
             if not lacking[name]}
    rivals = [name for name, who in there.items() if who.rival]

    def programs_in(dtype, names):
        task = contest.task(dtype)
        return {name: there[name].make(task) for name in names}

    programs = programs_in(contest.checked_in, rivals)
    ours = programs["ours"].gradient()
    errors = check({name: gradient_error(ours, program.gradient())
                    for name, program in programs.items()},
                   TOLERANCE[contest.checked_in], "gradient is off")
    programs = programs_in("float32", there)
    shown = {name: programs[name] for name in rivals
             if hasattr(programs[name], "weights")}
    start = {name: array.copy() for name, array in shown["ours"].weights().items()
             } if shown else {}
    take_turns(programs, 1, time.perf_counter)
    apart = check({name: weights_apart(shown["ours"].weights(), who.weights(), start)
                   for name, who in shown.items()}, APART,
                  "weights, in parts of our way, end apart")
    seconds = take_turns(programs, rounds, contest.clock or (
        time.process_time if contest.threads == 1 else time.perf_counter), patience)
    found = {}
    for name, own in seconds.items():
        found[name] = summary(own, seconds["ours"], contest.steps,
                              there[name].rival and name != "ours")
        numbers = {"gradient_error": errors.get(name), "weights_apart": apart.get(name)}
        found[name] |= {key: hn.significant(value) for key, value in numbers.items()
                        if value is not None}
    return {"settings": contest.settings, "threads": contest.threads,
            "rounds": len(seconds["ours"]),
            "skipped": {name: lacks for name, lacks in lacking.items() if lacks},
            "contestants": found}
