"""A recheck tests a claim: it trains the trials that decide it once more, puts them in
the place of the committed ones, makes the rows again and judges again.

    python3 -m experiments.claims --recheck NAME [--minutes M] [--sample N]
    python3 -m experiments.claims --five

Where the deciding trials take longer than the minutes given, it says so and gives no
verdict: other trials would only repeat the old one. A sample of them can be asked for;
that compares numbers and judges nothing.

Where the verdict stays, the numbers must come out, too: to the bit on the same
processor with the same versions, elsewhere within what the seeds leave open (`unlike`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

import numpy as np

from experiments.lab.experiment import (
    Lab,
    Replay,
    Training,
    all_claims,
    all_records,
    folder_of,
    get,
)
from experiments.lab.judging import over_nets
from experiments.lab.running import CORES, describer, duration, seconds_of
from experiments.lab.trials import Trial, read_packed
from highway_suite.records import RecordError, environment, numbers_of, numerics
from highway_suite.terminal import say


def made_by(lab: Lab, name: str) -> dict:
    """A claim, made of a lab's trials. Raises StoreError, RecordError."""
    claims = {claim["name"]: claim for claim in lab.record("")["claims"]}
    return claims.get(name, {}) | {"experiment": lab.experiment.name}


def leaves(value: Any, seeds: bool, place: str = "") -> Iterator[tuple[str, Any]]:
    """Numbers one by one, each with its place. seeds: those of one net stay together.
    """
    items: Iterable[tuple] = ()
    if seeds and isinstance(value, dict) and {*value} == {*over_nets([0])}:
        value = [*value.values()]
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list) and not (
            seeds and all(not isinstance(item, (dict, list)) for item in value)):
        items = enumerate(value, 1)
    else:
        yield place, value
    for name, item in items:
        yield from leaves(item, seeds, f"{place} {name}".strip())


def in_short(value: Any) -> str:
    """A number, or those of the seeds, for the terminal."""
    if isinstance(value, list):
        return " ".join(map(in_short, value))
    return f"{value:.5g}" if type(value) in (int, float) else str(value)


def apart(there: Any, here: Any) -> str:
    """How two results of one trial compare, in words; seconds are not compared."""
    one, other = (dict(leaves(numbers_of(result), False)) for result in (there, here))
    if one == other:
        return "equal to the bit"
    if one.keys() == other.keys():
        pairs = [(value, other[place]) for place, value in one.items()
                 if value != other[place]]
        if all(isinstance(value, (int, float)) for pair in pairs for value in pair):
            off = max(abs(a - b) / max(abs(a), abs(b)) for a, b in pairs)
            return f"differs by up to {off:.2g} of a number"
    return "differs in more than numbers"


def numbers_in(leaf: Any) -> np.ndarray | None:
    """Of a leaf, a number or those of the seeds; None if something else is there."""
    values = leaf if isinstance(leaf, list) else [leaf]
    return np.array(values, float) if values and all(
        type(value) in (int, float) for value in values) else None


def unlike(ours: Any, now: Any) -> list[str]:
    """Where a claim's numbers, made again on another processor or with other versions,
    are not like the committed ones: outside the range of the seeds, widened on each
    side by twice its width. Of fewer than three seeds, the width is the widest in the
    same column as a part of its largest number; if no number there has a second seed,
    in all columns. Where there is none either, nothing can be said."""
    there = {place: values for place, leaf in leaves(ours, True)
             if (values := numbers_in(leaf)) is not None}
    here = {place: numbers_in(leaf) for place, leaf in leaves(now, True)}
    widest: dict[str, float] = {}
    for place, values in there.items():
        if len(values) > 1 and values.any():
            for column in ("", place.split(" ")[-1]):
                widest[column] = max(widest.get(column, 0),
                                     np.ptp(values) / abs(values).max())
    found = []
    for place, values in there.items():
        part = widest.get(place.split(" ")[-1], widest.get("", np.inf))
        width = 2 * (np.ptp(values) if len(values) > 2 else
                     part * abs(values).max(initial=1e-300))
        again = here.get(place)
        if again is None or (again < values.min() - width).any() or (
                again > values.max() + width).any():
            found.append(place)
    return found


def train_again(lab: Lab, names: Collection[str], jobs: int | None
                ) -> dict[str, Trial]:
    """Run trials that a replay asked for once more, {hash of the committed one: new
    Trial}. Raises StoreError."""
    groups: dict[tuple, dict[str, dict]] = {}
    for name in names:
        function, dataset, config = lab.source.asked[name]
        about = function, dataset and dataset["name"]
        groups.setdefault(about, {})[name] = config
    new = Lab(lab.experiment, Training(None, {}, jobs), data_dir=lab.data_dir)
    again: dict[str, Trial] = {}
    for (function, dataset), configs in groups.items():
        again |= new.trials(function, configs, dataset)
    return again


def compare_again(lab: Lab, names: Collection[str], jobs: int | None) -> bool:
    """Run trials again and say of each how it compares with the committed one ->
    whether all are equal, or were made in another environment or by another version."""
    committed = lab.source.finished
    describe = describer([committed[name].config for name in names])
    good = True
    for name, trial in train_again(lab, names, jobs).items():
        there = committed[name]
        how = apart(there.result, trial.result)
        other = [f"{key} {value} here, {there.env.get(key)} there"
                 for key, value in numerics(trial.env).items()
                 if value != there.env.get(key)]
        if trial.version != there.version:
            other.insert(0, f"version {trial.version} of its function, not "
                            f"{there.version}")
        if other and not how.startswith("equal"):
            how += f" ({', '.join(other)})"
        good &= how.startswith("equal") or bool(other)
        print(f"{describe(there.config) or name}: {how}; {trial.seconds:.1f} s, "
              f"committed {there.seconds:.1f} s", flush=True)
    return good


def opened(name: str, data_dir: Any) -> tuple[dict, Lab]:
    """A committed claim, and the lab that made it once more of the committed trials.
    Raises RecordError, StoreError."""
    records = all_records()
    claims = {claim["name"]: claim for claim in all_claims(records)}
    if name not in claims:
        near = "".join(f", or {other}" for other in get_close_matches(name, claims))
        raise RecordError(f"no claim {name!a}: see python3 -m experiments.claims{near}")
    claim = claims[name]
    experiment = get(claim["experiment"])
    experiment = replace(experiment, plan=records[experiment.name]["plan"])
    committed = read_packed(folder_of(experiment.name) / "trials")
    lab = Lab(experiment, Replay(committed), data_dir=data_dir)
    if made_by(lab, name) != claim:
        raise RecordError(f"the committed trials do not give the committed claim {name}"
                          f": make the record with python3 -m experiments."
                          f"{experiment.name}")
    return claim, lab


def judge_again(claim: dict, lab: Lab, jobs: int | None, known: Mapping[str, Trial]
                ) -> tuple[dict, dict[str, Trial]]:
    """Train the trials that decide a claim once more, but for the known ones -> the
    claim that they give, and these trials. Raises StoreError, hn.DataError."""
    again = {name: known[name] for name in claim["trials"] if name in known}
    again |= train_again(lab, [name for name in claim["trials"] if name not in again],
                         jobs)
    # Where they lead an adaptive plan elsewhere, what it then asks for is trained too.
    source = Training(None, {**lab.source.finished, **again}, jobs)
    new = Lab(lab.experiment, source, data_dir=lab.data_dir)
    return made_by(new, claim["name"]), again


def recheck_claim(name: str, *, minutes: float, sample: int, jobs: int | None,
                  data_dir: Any) -> int:
    """Recheck a claim and print what comes of it -> the exit code: 0 verdict and
    numbers (or, of a sample, the numbers) came out again, 1 the verdict did not, 2
    there is none, 3 only the verdict came out. Raises RecordError, StoreError,
    hn.DataError."""
    claim, lab = opened(name, data_dir)
    print(f"{claim['source']}: {claim['claim']}\nverdict, as committed: "
          f"{claim['verdict']}", flush=True)
    deciding = [lab.source.finished[found] for found in claim["trials"]]
    if not deciding:
        print("no trial decides it: its numbers came out again from what is committed")
        return 0
    seconds = seconds_of(deciding, jobs or CORES)
    announce(deciding, seconds, jobs or CORES)
    if sample:
        chosen = sorted(deciding, key=lambda trial: trial.seconds)[:sample]
        print(f"a sample of them, the {len(chosen)} cheapest; it gives no verdict")
        return 0 if compare_again(lab, [t.hash for t in chosen], jobs) else 1
    if seconds > 60 * minutes:
        print(f"that is more than the {minutes:g} minutes given: --minutes "
              f"{math.ceil(seconds / 60)} gives the verdict, --sample N compares N "
              "trials without one")
        return 2
    judged, again = judge_again(claim, lab, jobs, {})
    for place, value, now in numbers_beside(claim, judged):
        print(f"    {place}: {value} committed, {now} now")
    code, notes = compared(claim, judged, lab.source.finished, again)
    print(f"verdict: {claim['verdict']} committed, {judged['verdict']} now", *notes,
          sep="\n")
    return code


def recheck_all(names: Iterable[str], jobs: int | None, data_dir: Any) -> int:
    """Recheck several claims; trials of more than one train once. Print a table in
    Markdown -> the exit code: 1 where a verdict changed, 3 where only numbers did not
    come out, else 0. Raises RecordError, StoreError, hn.DataError."""
    from experiments.lab.texts import table  # at the top, that program would warn
    begin, codes, known = time.monotonic(), set(), dict[str, Trial]()
    rows: list[tuple] = []
    told: list[str] = []
    for name in names:
        start = time.monotonic()
        claim, lab = opened(name, data_dir)
        say(f"\n{name}: {claim['claim']}")
        judged, again = judge_again(claim, lab, jobs, known)
        known |= again
        code, notes = compared(claim, judged, lab.source.finished, again)
        codes.add(code)
        told += [f"- {name}: {note}" for note in notes]
        rest = claim["verdict"], judged["verdict"], f"{time.monotonic() - start:.0f}"
        for place, value, now in numbers_beside(claim, judged):
            rows.append((name, place, value, now, *rest))
            name, *rest = [""] * 4      # once for all numbers of a claim
    print(table(rows, "claim|number|committed|now|verdict|now|seconds:"))
    print("", *told, "", ", ".join(
        f"{key} {value}" for key, value in environment().items() if value is not None)
        + f"; {time.monotonic() - begin:.0f} s in all", sep="\n")
    return min(codes - {0}, default=0)


def numbers_beside(claim: dict, judged: dict) -> Iterator[tuple[str, str, str]]:
    """A claim's numbers in short: place, committed, made again."""
    now = dict(leaves(judged["ours"], True))
    for place, value in leaves(claim["ours"], True):
        yield place, in_short(value), in_short(now.get(place, "gone"))


def announce(deciding: list[Trial], seconds: float, cores: int) -> None:
    """Say which trials decide a claim, and how long they take where they were made."""
    print(f"trials that decide it: {len(deciding)} (about {duration(seconds)} where "
          f"they were made, processes: {cores})")
    describe = describer([trial.config for trial in deciding])
    first, rest = deciding[:12], deciding[12:]
    for trial in first:
        print(f"    {trial.function} {describe(trial.config)}  {trial.seconds:.0f} s")
    if rest:
        print(f"    and {len(rest)} more")


def compared(claim: dict, judged: dict, committed: Mapping[str, Trial],
             again: Mapping[str, Trial]) -> tuple[int, list[str]]:
    """A claim, committed and judged again -> the exit code, and in words what may make
    its numbers or its verdict others, and which are."""
    versions = {(committed[name].version, trial.version)
                for name, trial in again.items()
                if committed[name].version != trial.version}
    env = numerics(next(iter(again.values())).env if again else environment())
    other = {key for name in again for key, value in numerics(
        committed[name].env).items() if env.get(key) != value}
    notes = [f"the committed trials are of version {old} of their function, these of "
             f"version {new}" for old, new in sorted(versions)]
    if other:
        notes.append("the committed trials were made with other versions or on another "
                     "processor, so their numbers may differ: "
                     + ", ".join(sorted(other)))
    if judged["verdict"] != claim["verdict"]:
        return 1, [*notes, "the verdict changed"]
    changed = [name for name, trial in again.items()
               if numbers_of(trial.result) != numbers_of(committed[name].result)
               and made_alike(trial, committed[name])]
    off = unlike(claim["ours"], judged["ours"]) if other or versions else []
    if changed:
        notes.append("its numbers do not come out: made here with the same versions, "
                     f"these trials differ: {', '.join(changed)}")
    if off:
        notes.append("its numbers do not come out: further from the committed ones "
                     "than their seeds explain are: "
                     + ", ".join(place or "its number" for place in off))
    return 3 if changed or off else 0, notes


def made_alike(one: Trial, other: Trial) -> bool:
    """Whether two trials must be equal to the bit: the same version of a function, on
    the same processor and with the same versions of all else."""
    return one.version == other.version and numerics(one.env) == numerics(other.env)

