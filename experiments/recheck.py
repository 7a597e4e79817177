"""Committed numbers computed again: equal to the bit, or by how much they are not.

The plan of an experiment runs with its committed trials in the place of training, which
must give the committed record; then some of the trials are trained again. On another
processor or with other libraries the last bits differ, and training amplifies them: so
there a difference is measured, and named with what differs; where all that is the same,
any difference is one too many.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from experiments.store import Trial, hash_of
from experiments.trials import describer, run_trials
from highway_suite.checkpoints import numerics

if TYPE_CHECKING:       # lab imports this module
    from experiments.old_lab import Lab

MOST = 0.5              # by which results of two processors may differ: of training's
                        # spikes, in epochs, the last bits decide
LONG = 115              # seconds: what a claim's recheck may take on two cores


class Planned(NamedTuple):
    """A finished trial of a plan, and how to train it again."""

    trial: Trial
    train: Callable
    data: Any


class Choice(NamedTuple):
    """The trials that a recheck trains again."""

    planned: list[Planned]
    epochs: int | None = None       # only so many of them, or all
    words: str = ""


def difference(there: Any, here: Any) -> float:
    """By how much two values of JSON differ: the largest difference of two numbers, as
    a part of the larger one, or in a list of numbers of its largest; infinite where
    anything else differs. Hashes tell only whether two nets are equal."""
    if isinstance(there, dict) and isinstance(here, dict):
        if set(there) != set(here):
            return math.inf
        return max((difference(there[name], here[name]) for name in there
                    if name != "sha256"), default=0.0)
    if isinstance(there, list) and isinstance(here, list):
        if len(there) != len(here):
            return math.inf
        if all(type(value) in (int, float) for value in [*there, *here]):
            one, other = np.array([there, here], float)
            largest = np.abs([one, other]).max(initial=0)
            return float(np.abs(one - other).max(initial=0) / largest) if largest else 0
        return max(map(difference, there, here), default=0.0)
    if type(there) in (int, float) and type(here) in (int, float):
        return abs(there - here) / max(abs(there), abs(here)) if there != here else 0.0
    return 0.0 if type(there) is type(here) and there == here else math.inf


def changed(env: dict) -> str:
    """What differs between that environment and this one, of all that the last bits
    depend on; "" if nothing does."""
    return ", ".join(f"{name} {value} here, {env.get(name)} there"
                     for name, value in numerics().items() if value != env.get(name))


def timeless(value: Any) -> Any:
    """The same without what was timed, which never comes out again: `seconds`."""
    if isinstance(value, dict):
        return {name: timeless(item) for name, item in value.items()
                if name != "seconds"}
    return list(map(timeless, value)) if isinstance(value, list) else value


def judge(there: Any, here: Any, env: dict) -> tuple[bool, str]:
    """Committed and computed again -> whether that is as good as equal, in words."""
    if there == here:
        return True, "equal to the bit"
    if timeless(there) == timeless(here):
        return True, f"equal but for seconds, by up to {difference(there, here):.2g}"
    there, here = timeless(there), timeless(here)
    apart, other = difference(there, here), changed(env)
    amount = "in more than numbers" if math.isinf(apart) else f"by up to {apart:.2g}"
    if other and apart <= MOST:
        return True, f"within {apart:.2g} ({other})"
    return False, f"DIFFERS {amount}" + f" ({other})" * bool(other)


def costs(trials: Sequence[Trial]) -> dict[str, float]:
    """About the seconds that each trial takes from the start, by its hash. Older ones
    that went on from a checkpoint have only those since: so a trial counts at least as
    its kind does, whose members differ in the seed and in what any trial has with a
    point alone."""
    kinds: dict[str, list[float]] = {}
    free = {name for trial in trials for name, value in trial.config.items()
            if isinstance(value, float)} | {"seed", "epochs", "maps"}

    def kind_of(trial):
        return json.dumps({name: value for name, value in trial.config.items()
                           if name not in free}, sort_keys=True)
    for trial in trials:
        kinds.setdefault(kind_of(trial), []).append(
            trial.seconds / trial.config.get("epochs", 1))

    def cost(trial):
        if isinstance(trial.result, dict) and trial.result.get("status") == "diverged":
            return trial.seconds        # it ended early
        return max(trial.seconds, trial.config.get("epochs", 1)
                   * float(np.median(kinds[kind_of(trial)])))
    return {trial.hash: cost(trial) for trial in trials}


def cheapest(planned: Sequence[Planned], count: int, seed: int | None = None) -> Choice:
    """So many trials, the cheapest, or drawn."""
    cost = costs([each.trial for each in planned])
    order = sorted(planned, key=lambda each: cost[each.trial.hash])
    if seed is not None:
        rng = np.random.default_rng(seed)
        order = [order[i] for i in rng.permutation(len(order))]
    return Choice(order[:count])


def affordable(trials: Sequence[Trial], cost: dict[str, float], besides: float = 0
               ) -> tuple[list[Trial], int | None, float]:
    """Trials that decide a claim, and their costs -> those to train again, the cheapest
    first, how many epochs of them (None: all), and about the seconds on two cores.
    besides: those that a trial takes after its epochs."""
    order = sorted(trials, key=lambda trial: cost[trial.hash])
    seconds = [cost[trial.hash] for trial in order]
    count = sum(own <= LONG and so_far <= 2 * LONG for own, so_far in
                zip(seconds, np.cumsum(seconds), strict=True))
    if count or not order:
        # Not sum, which rounds in another way from Python 3.12 on.
        half = math.fsum(seconds[:count]) / 2
        return order[:count], None, max([half, *seconds[:count]])
    epochs = order[0].config.get("epochs")
    return (order[:1], 1, (seconds[0] - besides) / epochs + besides) if epochs else (
        order[:1], None, seconds[0])


def words_of(chosen: Sequence, trials: Sequence, epochs: int | None) -> str:
    """Which trials of a claim a recheck trains again, in words."""
    count = ("all" if len(chosen) == len(trials) and not epochs else
             f"{len(chosen)} of {len(trials)}")
    return (f"{count} trial{'s' * (len(trials) > 1)}" if len(trials) > 1 or epochs else
            "its trial") + (f", epoch {epochs} alone" if epochs else "")


def by_epoch(there: dict, here: dict, config: dict, epochs: int
             ) -> list[tuple[list, list]]:
    """What a result with this config lists epoch by epoch, wherever it does, so far as
    one of fewer epochs goes: pairs of its values and the latter's."""
    found = []
    for name in sorted(there.keys() & here.keys()):
        one, other = there[name], here[name]
        if isinstance(one, dict) and isinstance(other, dict):
            found += by_epoch(one, other, config, epochs)
        elif (isinstance(one, list) and isinstance(other, list)
              and (len(one), len(other)) == (config["epochs"], epochs)):
            found.append((one[:epochs], other))
    return found


def asked(each: Planned, epochs: int | None) -> dict:
    """The settings to train again."""
    return each.trial.config | ({"epochs": epochs} if epochs else {})


def tell(there: Trial, again: Trial, epochs: int | None, settings: str) -> bool:
    """Say how a trial compares with the committed one -> whether it is as good as
    equal."""
    if again.status == "failed":
        same, how = False, f"FAILED: {again.error}"
    elif epochs:
        pairs = by_epoch(there.result, again.result, there.config, epochs)
        one, other = ([pair[side] for pair in pairs] for side in (0, 1))
        same, how = (judge(one, other, there.env) if pairs else
                     (False, "NOTHING to compare"))
        how = f"epoch {epochs} of {there.config['epochs']}: {how}"
    else:
        same, how = judge(there.result, again.result, there.env)
    before = "" if epochs else f" (committed: {there.seconds:.1f} s)"
    print(f"{settings or 'the trial'}: {how}; {again.seconds:.1f} s{before}",
          flush=True)
    return same


def train_again(choice: Choice, working: Path, protocol: dict, jobs: int | None
                ) -> bool:
    """Train trials of a protocol again, in stores of their own; say of each how it
    compares. Return whether all are as good as equal."""
    describe = describer([each.trial.config for each in choice.planned])
    groups: dict[tuple, dict[str, Planned]] = {}        # of one function and data
    for each in choice.planned:
        group = groups.setdefault((id(each.train), id(each.data)), {})
        group[hash_of(asked(each, choice.epochs))] = each
    good = []
    for number, group in enumerate(groups.values()):
        def report(again, group=group):
            there = group[again.hash].trial
            good.append(tell(there, again, choice.epochs, describe(there.config)))
        first, *_ = group.values()
        run_trials(first.train, [asked(each, choice.epochs) for each in group.values()],
                   working / f"again{number}", protocol=protocol, data=first.data,
                   jobs=jobs, report=report)
    print(f"{sum(good)} of {len(good)} without a difference that counts")
    return all(good)


def recheck(lab: Lab, record: dict, choose: Callable[[list[Planned]], Choice]) -> bool:
    """Make the record again from the committed trials, and train those again that are
    chosen of them; print what comes of it. Return whether nothing differs. An
    experiment without trials is computed again as a whole."""
    committed, computed = ({name: value for name, value in each.items()
                            if name not in ("env", "command")}
                           for each in (record, lab.answer()))
    good, how = judge(committed, computed, record["env"])
    print(f"{lab.record.name}: {how}" + ", as the committed trials have it"
          * bool(lab.planned), flush=True)
    if not lab.planned:
        return good
    choice = choose(lab.planned)
    count = len(choice.planned)
    print(f"training {choice.words or f'{count} trial' + 's' * (count > 1)} again",
          flush=True)
    return train_again(choice, lab.working, lab.trials_protocol, lab.options.jobs
                       ) and good
