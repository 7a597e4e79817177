"""Run trials: in parallel processes or on a Dask cluster, resumable, none lost.

    trials = run_trials(requests, store, load, jobs=2)

The same call again, after a crash or beside a process that is still at it, runs what is
missing. A trial that raises has failed, and so has one whose worker is killed twice;
the others go on, and the next call runs it again.
"""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import pickle
import signal
import tempfile
import time
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

from experiments.lab.cluster import on_cluster
from experiments.lab.trials import Request, Store, StoreError, Trial, compute
from highway_suite.files import check_target, write_file
from highway_suite.records import environment
from highway_suite.terminal import say
from highway_suite.workers import (
    cores,
    end_with,
    ended_by_signals,
    sparing_children_ctrl_c,
)

KILLED = "its worker was killed, and again when it ran alone"
SLOW = 30               # seconds without a word
CORES = 2               # of the machine that times are given for
START = 5               # seconds that it takes to start and to read


# --------------------------------------------------------------------------------------
# Local processes

shared: dict[str, Any] = {}     # of a worker: what all of its trials work with


def compute_and_save(request: Request, data: Any, store: Store) -> Trial:
    """The work of a local process. It keeps the trial itself, so that nothing finished
    is lost, whatever becomes of the process that asked for it. A resumable trial keeps
    how far it is beside the store."""
    if there := store.find(request.hashes[0]):
        return there            # by another process, or just before a worker was killed
    if not request.function.declared.resumable:
        return store.save(compute(request, data))
    checkpoint = store.path.parent / "checkpoints" / f"{request.hashes[0]}.npz"
    trial = store.save(compute(request, data, checkpoint))
    if trial.status == "ok":
        checkpoint.unlink(missing_ok=True)
    return trial


def start_worker(caller: int, things: str) -> None:
    """The first thing that a worker does: from now on Ctrl-C is for its caller alone,
    and it ends when its caller ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with(caller)
    shared.update(pickle.loads(Path(things).read_bytes()))


def work(request: Request) -> Trial:
    """One task of a worker."""
    return compute_and_save(request, **shared)


@contextmanager
def pool_of(jobs: int, things: dict) -> Iterator[tuple[ProcessPoolExecutor, Future]]:
    """A pool of spawned processes, which share things, and its first task, which does
    nothing; they end with the body. They read the things from a file: where one dies as
    it starts, a pipe would never be empty."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "things"
        write_file(file, pickle.dumps(things))
        pool = ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"),
                                   start_worker, (os.getpid(), str(file)))
        try:
            with sparing_children_ctrl_c():
                first = pool.submit(int)                # starts all of them
            yield pool, first
        finally:
            for process in [*pool._processes.values()]:
                process.terminate()     # or the interpreter waits for their trials
            pool.shutdown(cancel_futures=True)


def in_processes(todo: dict[str, Request], jobs: int, things: dict
                 ) -> Generator[Trial, None, list[str]]:
    """An attempt for `run_all`, in local processes. Raises StoreError."""
    waiting = iter(list(todo.items()))
    out: dict[Future, str] = {}
    with pool_of(min(jobs, len(todo)), things) as (pool, first):
        try:
            while True:
                for name, request in islice(waiting, jobs - len(out)):
                    out[pool.submit(work, request)] = name
                if not out:
                    return []
                for future in wait(out, return_when=FIRST_COMPLETED).done:
                    trial = future.result()
                    del todo[out.pop(future)]
                    yield trial
        except BrokenProcessPool as error:
            if first.exception():       # not even that one was done
                raise StoreError("worker processes end as they start: free memory, or "
                                 "use --jobs 1; a script of your own has to run trials "
                                 'below if __name__ == "__main__":') from error
            return list(out.values())


def in_this_process(todo: dict[str, Request], things: dict
                    ) -> Generator[Trial, None, list[str]]:
    """An attempt for `run_all`, one after the other, right here."""
    for name, request in list(todo.items()):
        yield compute_and_save(request, **things)
        del todo[name]
    return []


# --------------------------------------------------------------------------------------
# All trials


def run_all(requests: dict[str, Request], attempt: Callable
            ) -> Generator[Trial, None, None]:
    """Run requests, {hash: Request}; yield the Trials as they finish.

    attempt(todo): yields Trials and removes them from todo, and returns the hashes of
        those that were out when a worker was killed, if one was.

    A killed worker takes with it more than the trial that killed it, and nobody says
    which that was. So all that were out are suspect and wait until the rest is done, to
    run again one at a time: the next kill has one author, and no innocent trial pays.
    """
    todo, suspects = dict(requests), {}
    while todo:
        for name in (yield from attempt(todo)):
            suspects[name] = todo.pop(name)
    for name, request in suspects.items():
        say(f"a worker was killed while trial {name} was out; it runs alone now")
        if (yield from attempt({name: request})):
            declared = request.function.declared
            yield Trial(declared.name, declared.version, request.dataset,
                        request.config, "failed", KILLED, None, 0, environment())


def run_trials(requests: Sequence[Request], store: Store, load: Callable[[], Any], *,
               finished: Mapping[str, Trial] | None = None, jobs: int | None = None,
               cluster: str | None = None) -> list[Trial]:
    """Run what has no finished trial, in the store or among those given; return the
    Trials of all, in order. Raises StoreError, and OSError where the store cannot be
    written; then, and after Ctrl-C, what is finished is kept.

    requests: their functions are of modules, so that processes can import them.
    load: gives the data of all of them; called only if there is something to run.
    jobs: processes, one per core unless given. 1 runs the trials in this process, which
        then is not there to go on after a trial that gets it killed.
    cluster: the address of a Dask scheduler, whose workers run the trials instead. They
        have one thread each, because BLAS's limit of threads is one per process.
    """
    there: dict[str, Trial] = {}
    for name in {request.function.declared.name for request in requests}:
        there |= store.of(name)
    there |= finished or {}     # which win: a run does not exchange what is committed
    wanted = {request.hashes[0]: request for request in requests}
    todo = {name: request for name, request in wanted.items()
            if not request.found_in(there)}
    if todo:
        check_target(store.path)
        jobs = jobs or cores()
        things = {"data": load(), "store": store}

        def attempt(todo):
            if cluster is not None:
                return on_cluster(todo, cluster, things)
            return (in_this_process(todo, things) if jobs == 1 else
                    in_processes(todo, jobs, things))
        tell = progress(requests, len(wanted), len(todo))
        with ended_by_signals(), closing(run_all(todo, attempt)) as trials:
            for trial in trials:
                there[trial.hash] = trial
                tell(trial)
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
            for name, value in config.items()
            if isinstance(value, (str, int, float))
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
