"""Run trials: side by side in processes or on a cluster, resumable, none lost.

    trials = run_trials(requests, store, highway_suite.load, jobs=2)

The same call again, after a crash or beside a process that is still at it, runs what is
missing. A trial that raises has failed; the others go on, and the next call runs it
again. A killed worker ends the call.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import BrokenExecutor
from contextlib import closing
from functools import lru_cache
from pathlib import Path
from typing import Any

from experiments.lab.cluster import on_cluster
from experiments.lab.trials import Request, Store, StoreError, Trial, compute
from highway_suite.checkpoints import discard
from highway_suite.files import check_target
from highway_suite.terminal import say
from highway_suite.workers import ended_by_signals, side_by_side

SLOW = 30               # seconds without a word
CORES = 2               # of the machine that times are given for
START = 5               # seconds that it takes to start and to read


@lru_cache(maxsize=1)       # the trials of a call learn from one data set
def data_of(load: Callable, name: str, folder: Path | None) -> Any:
    """A data set by its name; each process loads it once."""
    return load(name, folder)


def run_one(request: Request, load: Callable, folder: Path | None, store: Store | None
            ) -> Trial:
    """Run one trial, in whatever process. That process keeps the result at once, so
    that nothing finished is lost if the caller is killed. The checkpoint of a resumable
    trial lies beside the store."""
    name, checkpoint = request.hashes[0], None
    if store and (there := store.find(name)):
        return there            # another call has run it
    data = request.dataset and data_of(load, request.dataset["name"], folder)
    if store and request.function.declared.resumable:
        checkpoint = store.path.parent / "checkpoints" / f"{name}.npz"
    trial = compute(request, data, checkpoint)
    if store:
        trial = store.save(trial)
    if checkpoint and trial.status == "ok":
        discard(checkpoint)
    return trial


def run_trials(requests: Sequence[Request], store: Store | None, load: Callable,
               folder: Path | None = None, *,
               finished: Mapping[str, Trial] | None = None, jobs: int | None = None,
               cluster: str | None = None) -> list[Trial]:
    """Run what has no finished trial, in the store or among those given; return the
    Trials of all, in order. Raises StoreError, what load raises, and OSError where the
    store cannot be written; then, and after Ctrl-C, what is finished is kept.

    requests: of one data set. Their functions are of modules, and so is load: each
        process imports them.
    store: where trials are kept; None keeps none.
    load: (data set's name, folder) -> data; each process calls it once.
    jobs: processes, one per core unless given.
    cluster: the address of a Dask scheduler, whose workers run the trials instead.
    """
    there: dict[str, Trial] = {}
    for name in {request.function.declared.name for request in requests}:
        there |= store.of(name) if store else {}
    there |= finished or {}     # which win: a run does not exchange what is committed
    wanted = {request.hashes[0]: request for request in requests}
    todo = [request for request in wanted.values() if not request.found_in(there)]
    if todo:
        if store:
            check_target(store.path)
        if todo[0].dataset:     # it is fetched, or found wrong, before processes start
            data_of(load, todo[0].dataset["name"], folder)
        tell = progress(requests, len(wanted), len(todo))
        tasks = [(request, load, folder, None if cluster else store)
                 for request in todo]
        try:
            with ended_by_signals(), closing(
                    on_cluster(run_one, tasks, cluster) if cluster else
                    side_by_side(run_one, tasks, jobs)) as trials:
                for trial in trials:
                    there[trial.hash] = store.save(trial) if store else trial
                    tell(trial)
        except BrokenExecutor as error:
            raise StoreError(
                "a worker process was killed, or memory ran out. Finished trials are "
                "kept: run again, where memory is short with fewer --jobs") from error
    return [request.found_in(there) for request in requests]    # type: ignore[misc]


# --------------------------------------------------------------------------------------
# Progress


def describer(configs: Collection[dict]) -> Callable[[dict], str]:
    """-> describe(config): its settings, in a line; of several configs' those in which
    they differ."""
    values: dict[str, set] = {}
    for config in configs:
        for name, value in config.items():
            values.setdefault(name, set()).add(json.dumps(value, sort_keys=True))

    def describe(config):
        return ", ".join(
            value if isinstance(value, str) else f"{name} {value:g}"
            for name, value in config.items() if isinstance(value, (str, int, float))
            and (len(configs) == 1 or len(values.get(name, ())) > 1))
    return describe


def seconds_of(trials: Collection[Trial], jobs: int = CORES) -> float:
    """About how long trials take again on so many cores."""
    each = [trial.seconds for trial in trials]
    return max([math.fsum(each) / jobs, *each]) + START


def duration(seconds: float) -> str:
    """Seconds as a reader would say it."""
    return (f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
            if seconds < 6000 else f"{seconds / 3600:.1f} h")


def progress(requests: Sequence[Request], total: int, todo: int
             ) -> Callable[[Trial], None]:
    """-> tell(trial): a line on stderr for each trial, with about the time left."""
    start, done = time.monotonic(), total - todo
    describe = describer([request.config for request in requests])
    say(f"{todo} of {total} trials to run, {done} finished before")

    def tell(trial):
        nonlocal done
        done += 1
        seconds = (time.monotonic() - start) * (total - done) / (done - total + todo)
        ahead = f"  about {duration(seconds)} left" if seconds > 1 else ""
        why = f"  {trial.error}" if trial.error else ""
        say(f"trial {done}/{total}  {describe(trial.config)}  {trial.status}  "
            f"{trial.seconds:.1f} s{why}{ahead}")
    return tell


def epoch_reporter(config: dict) -> Callable[[dict], None]:
    """-> report(row) for hn.fit: says on stderr how far a trial is whose epochs take
    long, and nothing of quick ones."""
    words = describer([config])({name: value for name, value in config.items() if name
                                 in ("block", "depth", "width", "lr", "seed")})
    start = last = time.monotonic()

    def report(row):
        nonlocal last
        now = time.monotonic()
        if now - last >= SLOW:
            say(f"{words}: epoch {row['epoch']}/{config['epochs']}  loss "
                f"{row['train_loss']:.4g}  after {duration(now - start)}")
            last = now
    return report
