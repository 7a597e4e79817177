"""Run the trials of long experiments: in parallel, resumable, none lost or run twice.

A trial is one call train(config, data): config is a dict and the result a value that
JSON can hold. Its folder (experiments/store.py) is all there is to the progress of an
experiment:

    trials = run_trials(train, configs, "runs/search", protocol={"dataset": "mnist"})

The same call again, after a crash or beside a process that is still at it, runs what is
missing. A trial that raises is recorded as failed, and so is one whose worker is killed
twice; the others go on.
"""

from __future__ import annotations

import atexit
import copy
import json
import os
import sys
import tempfile
import time
import traceback
import warnings
from argparse import ArgumentParser
from collections.abc import Callable, Collection, Generator, Iterable, Iterator
from contextlib import (
    AbstractContextManager,
    ExitStack,
    closing,
    contextmanager,
    nullcontext,
)
from functools import lru_cache
from pathlib import Path
from typing import Any

from joblib import Parallel, cpu_count, delayed
from joblib.externals.loky.process_executor import TerminatedWorkerError
from threadpoolctl import threadpool_limits
from tqdm import tqdm

from experiments.store import (
    Store,
    StoreError,
    Trial,
    as_json,
    hash_of,
    make_trial,
    merged,
    open_store,
    scratch_in,
)
from highway_suite.checkpoints import numerics
from highway_suite.files import parse_json
from highway_suite.records import environment
from highway_suite.terminal import in_range, say
from highway_suite.workers import (
    end_with,
    ended_by_signals,
    sparing_children_ctrl_c,
)

KILLED = "its worker was killed, and again when it ran alone"


def compute(protocol: str, train: Callable, config: dict, data: Any) -> Trial:
    """Run one trial, on one BLAS thread -> Trial. What it raises is why it failed."""
    environment()       # is asked once: who commits while it trains changes nothing
    start, status, error, result = time.perf_counter(), "ok", None, None
    before = 0.0        # seconds that it took until it was stopped, by its checkpoint
    try:
        with threadpool_limits(1, "blas"):
            result = train(copy.deepcopy(config), data)
        if isinstance(result, dict):
            before = result.pop("seconds_before", before)
        result = parse_json(json.dumps(result))      # as its file will give it back
    except Exception as caught:     # not SystemExit: a SIGTERM may be raised as that
        where = traceback.extract_tb(caught.__traceback__)[-1]
        status, result = "failed", None
        error = (f"{type(caught).__name__}: {str(caught)[:2000]} "
                 f"({Path(where.filename).name}, line {where.lineno})")
    return make_trial(protocol, config, status, error, result,
                      time.perf_counter() - start + before)


def compute_and_save(store: Store, again: bool, train: Callable, config: dict,
                     data: Any) -> Trial:
    """The work of a local process. It writes the trial itself, so that nothing finished
    is lost, whatever becomes of the process that asked for it."""
    there = store.find(hash_of(config))
    if there and not (again and there.status == "failed"):
        return there        # by another process, or just before its worker was killed
    return store.save(compute(store.protocol, train, config, data))


@lru_cache(maxsize=1)
def folder_for_arrays() -> str:
    """Where joblib may keep the arrays that processes share, for as long as this one
    lives. Not in shared memory, which a kill would leave full until the next start of
    the machine; what killed processes left here goes now."""
    stack = ExitStack()
    atexit.register(stack.close)
    return str(stack.enter_context(scratch_in(Path(tempfile.gettempdir()),
                                              ".highway-networks")))


def parallel(tasks: Iterable, jobs: int) -> Generator[Any, None, None]:
    """Hand tasks to local processes, one to each; yield what they return, as it comes.
    """
    with sparing_children_ctrl_c():
        outputs = Parallel(jobs, backend="loky", pre_dispatch=jobs, batch_size=1,
                           return_as="generator_unordered",
                           temp_folder=folder_for_arrays(), initializer=end_with,
                           initargs=(os.getpid(),))(tasks)
    try:
        for output in outputs:      # noqa: UP028 ("yield from" would close them itself)
            yield output
    finally:
        with warnings.catch_warnings():     # joblib's, that work was left undone
            warnings.simplefilter("ignore")
            outputs.close()


def on_this_machine(store: Store, configs: dict, again: bool, jobs: int,
                    train: Callable, data: Any) -> Callable:
    """-> attempt for `run_all`, in local processes."""
    def attempt(names, done):
        out = []

        def tasks():
            for name in names:
                out.append(name)
                yield delayed(compute_and_save)(store, again, train, configs[name],
                                                data)
        try:
            with closing(parallel(tasks(), jobs)) as trials:
                for trial in trials:
                    done.add(trial.hash)
                    yield trial
        except TerminatedWorkerError as error:
            if not out:
                raise StoreError("processes are killed before they have a trial; is "
                                 "there memory for so many?") from error
            return [name for name in out if name not in done]
        return []
    return attempt


@contextmanager
def connected(address: str) -> Iterator[tuple]:
    """-> Dask's package and a client of the scheduler there. Raises StoreError."""
    try:
        import distributed
    except ImportError as error:
        raise StoreError("a cluster needs Dask: pip install -e '.[cluster]'") from error
    try:
        client = distributed.Client(address, timeout=10, set_as_default=False)
    except (OSError, ValueError) as error:
        raise StoreError(f"no Dask scheduler answers at {address}: {error}. Start one "
                         "with: dask scheduler") from error
    with client:
        try:
            client.wait_for_workers(1, timeout=30)
        except distributed.TimeoutError as error:
            raise StoreError(f"the Dask scheduler at {address} has no worker. Start: "
                             f"dask worker {address} --nthreads 1") from error
        yield distributed, client


@contextmanager
def on_cluster(store: Store, configs: dict, address: str, train: Callable, data: Any
               ) -> Iterator[Callable]:
    """-> attempt for `run_all`, on a Dask cluster. Raises StoreError.

    Its workers may not see the store: they hand their trials back to be written here.
    Not through joblib, whose Dask backend waits for ever for what Dask gives up.
    """
    with connected(address) as (distributed, client):
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Sending large graph")
            # Unlike scattered data, a task's result outlives the worker that has it.
            sent = client.submit(copy.copy, data, pure=False)

        def attempt(names, done):
            killed, futures = [], {client.submit(
                compute, store.protocol, train, configs[name], sent, pure=False,
                priority=-number): name for number, name in enumerate(names)}
            try:
                for future in distributed.as_completed(futures, loop=client.loop):
                    try:
                        trial = store.save(future.result())
                    except distributed.KilledWorker:
                        killed.append(futures[future])
                        continue
                    done.add(trial.hash)
                    yield trial
            except distributed.CancelledError as error:
                raise StoreError(f"lost the Dask scheduler at {address}. Start one and "
                                 "run again: finished trials are kept") from error
            return killed
        yield attempt


def place_for(store: Store, configs: dict, train: Callable, data: Any,
              jobs: int | None, cluster: str | None, again: bool
              ) -> AbstractContextManager[Callable]:
    """-> attempt for `run_all`, on a cluster where there is one and work for it."""
    if cluster and configs:
        return on_cluster(store, configs, cluster, train, data)
    return nullcontext(on_this_machine(store, configs, again, jobs or cpu_count(),
                                       train, data))


def run_all(store: Store, configs: dict, attempt: Callable
            ) -> Generator[Trial, None, None]:
    """Run trials, {hash: config}; yield the Trials as they finish.

    attempt(names, done): yields Trials, adds their hashes to `done` and returns those
        that were out when a worker was killed, if one was.

    A killed worker takes with it more than the trial that killed it, and nobody says
    which that was. So all that were out are suspect and wait until the rest is done, to
    run again one at a time: the next kill has one author, and no innocent trial pays.
    """
    done: set[str] = set()
    suspects: list[str] = []
    while waiting := [name for name in configs if name not in {*done, *suspects}]:
        suspects += yield from attempt(waiting, done)
    for name in suspects:
        say(f"a worker was killed while trial {name[:8]} was out; it runs alone now")
        if (yield from attempt([name], done)):
            yield store.save(make_trial(store.protocol, configs[name], "failed", KILLED,
                                        None, 0))


def missing(wanted: dict[str, dict], finished: dict[str, Trial], retry_failed: bool
            ) -> dict[str, dict]:
    """Those of {hash: config} that are still to be run."""
    return {name: config for name, config in wanted.items() if name not in finished
            or (retry_failed and finished[name].status == "failed")}


def run_trials(train: Callable, configs: Iterable[dict], folder: str | Path, *,
               protocol: dict, data: Any = None, packed: Iterable[Trial] = (),
               jobs: int | None = None, cluster: str | None = None,
               retry_failed: bool = False, report: Callable | None = None
               ) -> list[Trial]:
    """Run train(config, data) for each config without a finished trial in the folder;
    return the Trials of all, in the order of configs. Call it from the main thread.

    train: a function of a module, or any that cloudpickle can send; its result must be
        JSON. A trial that raises is recorded as failed.
    configs, protocol: dicts of JSON. The protocol is what all trials have in common.
    data: what all trials work on, hn.Data for one, which train may not change. Local
        processes share its arrays.
    packed: trials of packed files, which count as finished. Where all are among them,
        nothing is written.
    jobs: processes, one per core unless given. 1 runs the trials in this process, which
        then is not there to go on after a trial that gets it killed.
    cluster: the address of a Dask scheduler, whose workers run the trials instead. They
        must be able to import this package, and have one thread each, because NumPy's
        thread limit is one per process.
    retry_failed: run failed trials again too.
    report: gets each Trial that was run now.

    Raises StoreError for a folder of another protocol or that cannot be written, and a
    cluster that is not there. After that, and after Ctrl-C, finished trials are kept.
    """
    configs = [as_json(config, f"configs[{i}]") for i, config in enumerate(configs)]
    wanted = {hash_of(config): config for config in configs}
    protocol = as_json(protocol, "protocol")
    finished = {trial.hash: trial for trial in packed}
    if not finished or missing(wanted, finished, retry_failed):
        folder = Path(folder).absolute()    # workers may be started in another one
        with ended_by_signals(), open_store(folder, protocol) as (store, there):
            finished = merged(finished, there)
            todo = missing(wanted, finished, retry_failed)
            place = place_for(store, todo, train, data, jobs, cluster, retry_failed)
            with (place as attempt, closing(run_all(store, todo, attempt)) as trials,
                  progress(wanted, len(todo), report) as tell):
                for trial in trials:
                    finished[trial.hash] = trial
                    tell(trial)
    asked = [finished[hash_of(config)] for config in configs]
    warn_of_mixture(asked)
    return asked


# --------------------------------------------------------------------------------------
# Progress

SLOW = 30       # seconds without a word
# Settings that tell the trials of an experiment apart, where they have them.
NAMING = ("block", "depth", "width", "gate_bias", "optimizer", "lr", "seed")


def describer(configs: Collection[dict]) -> Callable[[dict], str]:
    """-> describe(config): its settings, in a line; of several configs' those in which
    they differ."""
    values: dict[str, set] = {}
    for config in configs:
        for name, value in config.items():
            values.setdefault(name, set()).add(json.dumps(value, sort_keys=True))
    common = {name for name, found in values.items() if len(found) == 1}

    def describe(config):
        return ", ".join(
            value if isinstance(value, str) else f"{name} {value:g}"
            for name, value in config.items()
            if (len(configs) == 1 or name not in common) and name != "sha256"
            and isinstance(value, (str, int, float)))
    return describe


def loss_in(result: Any) -> str:
    """The last training loss of a trial's result in words, where it has one."""
    losses = result.get("train_loss") if isinstance(result, dict) else None
    last = losses[-1] if isinstance(losses, list) and losses else losses
    if isinstance(last, (int, float)):
        return f"  loss {last:.4g}"
    return "  diverged" if isinstance(result, dict) and (
        result.get("status") == "diverged") else ""


def duration(seconds: float) -> str:
    """Seconds as a reader would say it."""
    return (f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
            if seconds < 6000 else f"{seconds / 3600:.1f} h")


def reporting(config: dict) -> Callable[[dict], None]:
    """-> report(row) for hn.fit: says on stderr how far a trial is whose epochs take
    long, and nothing of quick ones."""
    names = [name for name in NAMING if name in config]
    words = describer([])({name: config[name] for name in names})
    start = last = time.monotonic()

    def report(row):
        nonlocal last
        now = time.monotonic()
        if now - last >= SLOW:
            say(f"{words}: epoch {row['epoch']}/{config['epochs']}  loss "
                f"{row['train_loss']:.4g}  after {duration(now - start)}")
            last = now
    return report


@contextmanager
def progress(wanted: dict[str, dict], todo: int, report: Callable | None
             ) -> Iterator[Callable[[Trial], None]]:
    """-> tell(trial): a bar if stderr is a terminal, else a line for each trial, and
    report(trial). The time left is by the mean of those that were run, so it is about
    right only."""
    total, start, left = len(wanted), time.monotonic(), todo
    describe = describer(wanted.values())
    if todo:
        say(f"{todo} of {total} trials to run, {total - todo} finished before")
    with tqdm(total=total, initial=total - todo, unit="trial",
              disable=not sys.stderr.isatty()) as bar:
        def tell(trial):
            nonlocal left
            left -= 1
            bar.set_postfix_str(describe(trial.config) + loss_in(trial.result),
                                refresh=False)
            bar.update()
            if bar.disable or trial.error:
                seconds = (time.monotonic() - start) * left / (todo - left)
                why = f"  {trial.error.splitlines()[0]}" if trial.error else ""
                ahead = f"  about {duration(seconds)} left" if seconds > 1 else ""
                with tqdm.external_write_mode(sys.stderr):
                    say(f"trial {total - left}/{total}  {describe(trial.config)}"
                        f"{loss_in(trial.result)}  {trial.status}  "
                        f"{trial.seconds:.1f} s{why}{ahead}")
            if report:
                report(trial)
        yield tell


def warn_of_mixture(trials: Collection[Trial]) -> None:
    """Say on stderr in what the environments of trials differ, if they do in what the
    last bits depend on."""
    mixed = sorted(name for name in numerics()
                   if len({hash_of(trial.env.get(name)) for trial in trials}) > 1)
    if mixed:
        say(f"these trials are not all of one environment: {', '.join(mixed)} differ")


def add_flags(parser: ArgumentParser) -> None:
    """The flags of every experiment that runs trials: three arguments of run_trials."""
    parser.add_argument("--jobs", type=in_range(int, 1, 1024), metavar="N",
                        help="processes (default: one per core)")
    parser.add_argument("--cluster", metavar="ADDRESS", help="of a Dask scheduler, "
                        "tcp://HOST:PORT, whose workers run the trials instead")
    parser.add_argument("--retry-failed", action="store_true",
                        help="run failed trials again")
