"""Run trials: in parallel processes or on a Dask cluster, resumable, none lost.

    trials = run_trials(requests, store, load, jobs=2)

The same call again, after a crash or beside a process that is still at it, runs what is
missing. A trial that raises has failed, and so has one whose worker is killed twice;
the others go on, and the next call runs it again.
"""

from __future__ import annotations

import copy
import json
import logging
import multiprocessing
import os
import pickle
import signal
import tempfile
import time
import traceback
import warnings
import zipfile
from collections.abc import (
    Callable,
    Collection,
    Generator,
    Iterator,
    Mapping,
    Sequence,
)
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any

import highway_networks as hn
from experiments.lab.trials import Request, Store, StoreError, Trial
from highway_suite.checkpoints import Checkpoint
from highway_suite.files import check_target, parse_json, write_file
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
PATIENCE = 10           # seconds that a scheduler has to answer
LOOK, ALONE = 5, 300    # seconds between looks, and that there may be no worker


def compute(request: Request, data: Any, path: Path | None = None) -> Trial:
    """Run one trial, on one BLAS thread; path: of its checkpoint. What it raises is why
    it failed."""
    declared = request.function.declared
    start, status, error, result = time.perf_counter(), "ok", None, None
    checkpoint = Checkpoint(path, {"trial": request.hashes[0]}, data="",  # in the hash
                            anyway=True) if path else None
    more = [checkpoint] if declared.resumable else []
    try:
        with hn.blas_threads(1):
            result = request.function(copy.deepcopy(request.config), data, *more)
        result = parse_json(json.dumps(result))         # as its line will give it back
    except Exception as caught:         # not SystemExit, as which a SIGTERM may come
        status, result, error = "failed", None, in_a_line(caught)
    seconds, env = time.perf_counter() - start, environment()
    if checkpoint:
        seconds += checkpoint.seconds_before    # that it took before it was interrupted
        if checkpoint.environments[1:]:         # also on another processor
            env = env | {"went_on_from": checkpoint.environments[:-1]}
    return Trial(declared.name, declared.version, request.dataset, request.config,
                 status, error, result, round(seconds, 3), env)


def in_a_line(error: Exception) -> str:
    """What an exception says, and where it was raised, for a terminal."""
    where = traceback.extract_tb(error.__traceback__)[-1]
    words = "".join(letter if letter.isprintable() else " "
                    for letter in str(error)[:500])
    return (f"{type(error).__name__}: {words} ({Path(where.filename).name}, line "
            f"{where.lineno})")


def checkpoint_of(store: Store, request: Request) -> Path | None:
    """Where a resumable trial keeps how far it is: beside the store."""
    if not request.function.declared.resumable:
        return None
    folder = store.path.parent / "checkpoints"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{request.hashes[0]}.npz"


def compute_and_save(request: Request, data: Any, store: Store) -> Trial:
    """The work of a local process. It keeps the trial itself, so that nothing finished
    is lost, whatever becomes of the process that asked for it."""
    if there := store.find(request.hashes[0]):
        return there            # by another process, or just before a worker was killed
    checkpoint = checkpoint_of(store, request)
    trial = store.save(compute(request, data, checkpoint))
    if checkpoint and trial.status == "ok":
        checkpoint.unlink(missing_ok=True)
    return trial


# --------------------------------------------------------------------------------------
# Local processes

shared: dict[str, Any] = {}     # of a worker: what all of its trials work with


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
# A Dask cluster


def zip_of_code(folder: str) -> str:
    """The modules that a trial needs, in a file that Dask sends to its workers."""
    path = Path(folder) / "highway_code.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for name in ("highway_networks.py", "highway_suite", "experiments"):
            top = hn.HERE / name
            for file in sorted(top.rglob("*")) if top.is_dir() else [top]:
                if file.suffix in (".py", ".gz"):
                    archive.write(file, file.relative_to(hn.HERE).as_posix())
    return str(path)


def tell_versions(client: Any) -> None:
    """Say where a worker has other versions than this machine: the last bits of its
    trials may then differ. Each trial's environment names its own."""
    found = client.get_versions()
    here, there = found["client"]["packages"], {}
    for worker in found["workers"].values():
        for name in ("python", "numpy", "distributed"):
            if worker["packages"].get(name) != here[name]:
                there.setdefault(name, set()).add(str(worker["packages"].get(name)))
    for name, versions in there.items():
        say(f"workers have {name} {', '.join(sorted(versions))}, and this machine "
            f"{here[name]}: last bits of their trials may differ")


def dask() -> Any:
    """Dask's package. Raises StoreError."""
    try:
        import distributed
    except ImportError as error:
        raise StoreError("a cluster needs Dask: pip install -e '.[cluster]'") from error
    for name in "distributed.client", "asyncio":
        logging.getLogger(name).setLevel("CRITICAL")        # we say it
    return distributed


def connect(distributed: Any, address: str) -> Any:
    """A client of the scheduler there, which has a worker. Raises StoreError."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")     # of other versions: it is said below
            distributed.comm.get_address_host_port(address)     # or a Client hangs
            if address.startswith("tls:") and not distributed.Security(
                    ).get_connection_args("client")["ssl_context"]:
                raise OSError("TLS needs certificates in Dask's configuration")
            client = distributed.Client(address, timeout=PATIENCE, set_as_default=False)
    except Exception as error:      # sockets, timeouts, addresses: each its own kind
        raise StoreError(f"no Dask scheduler answers at {address!r}: {error}. Start "
                         "one with: dask scheduler") from error
    try:
        client.wait_for_workers(1, timeout=3 * PATIENCE)
    except (distributed.TimeoutError, TimeoutError) as error:
        client.close()
        raise StoreError(f"the Dask scheduler at {address} has no worker. Start: dask "
                         f"worker {address} --nthreads 1") from error
    return client


# For workers that had our modules of an earlier run.
FORGET = """import sys
for name in list(sys.modules):
    if name.partition(".")[0] in ("experiments", "highway_networks", "highway_suite"):
        del sys.modules[name]"""


def send_code(client: Any, address: str) -> None:
    """Give the workers our code, in the place of what an earlier run gave them. Raises
    StoreError, OSError."""
    from distributed.diagnostics.plugin import SchedulerUploadFile, UploadFile
    end = time.monotonic() + PATIENCE       # for those of a desk that was just killed
    while any(str(key).startswith("compute-") for keys in client.processing().values()
              for key in keys):
        if time.monotonic() > end:
            raise StoreError(f"the workers at {address} run trials of another desk: "
                             "wait, or start a scheduler of your own")
        time.sleep(1)
    with tempfile.TemporaryDirectory() as folder:
        archive = zip_of_code(folder)
        try:
            client.run_on_scheduler(exec, FORGET)
            client.run(exec, FORGET)
            for plugin in SchedulerUploadFile(archive), UploadFile(archive):
                client.register_plugin(plugin, name="highway-networks")
        except OSError:
            raise
        except Exception as error:
            raise not_fit(address, error) from error


def not_fit(address: str, error: BaseException) -> StoreError:
    """The error of workers that fail before a trial begins, with its first cause."""
    while error.__cause__ is not None:
        error = error.__cause__
    return StoreError(f"the workers at {address} cannot run trials: "
                      f"{type(error).__name__}: {' '.join(str(error).split())[:200]}. "
                      "Each needs numpy, matplotlib, imageio and Dask")


def watched(ask: Callable[[float], Any], distributed: Any, client: Any, address: str
            ) -> Any:
    """What ask(seconds) gives, asked again where that was not long enough. Where no
    worker is left it says so, and gives up after `ALONE` seconds. Raises StoreError."""
    alone = 0.0
    while True:
        with suppress(distributed.TimeoutError, TimeoutError):
            return ask(LOOK)
        if client.scheduler_info()["workers"]:
            alone = 0.0
        elif not alone:
            alone = time.monotonic()
            say(f"no worker is left at {address}; waiting {ALONE / 60:g} minutes for "
                f"one. Start: dask worker {address} --nthreads 1")
        elif time.monotonic() - alone > ALONE:
            raise StoreError(f"no worker at {address} for {ALONE / 60:g} minutes. "
                             "Start some and run again: finished trials are kept")


def on_cluster(todo: dict[str, Request], address: str, things: dict
               ) -> Generator[Trial, None, list[str]]:
    """An attempt for `run_all`, on a Dask cluster. Its workers may not see the store:
    they hand their trials back to be kept here. Raises StoreError."""
    distributed = dask()
    try:
        with connect(distributed, address) as client, client.as_current():
            tell_versions(client)
            send_code(client, address)
            return (yield from on_workers(todo, distributed, client, address, things))
    except (distributed.CancelledError, OSError) as error:  # also of a worker's socket
        raise StoreError(f"lost the Dask scheduler at {address}, or a worker while it "
                         f"got our code ({type(error).__name__}). Run again when both "
                         "are there: finished trials are kept") from error


def on_workers(todo: dict[str, Request], distributed: Any, client: Any, address: str,
               things: dict) -> Generator[Trial, None, list[str]]:
    """The same on workers that have our code. Raises StoreError, OSError."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sending large graph")
        # Unlike scattered data, a task's result outlives the worker that has it.
        data = client.submit(copy.copy, things["data"], pure=False)
    killed, futures = [], {
        client.submit(compute, request, data, pure=False, priority=-number): name
        for number, (name, request) in enumerate(todo.items())}

    def next_done(seconds):
        return distributed.wait([*futures], seconds, "FIRST_COMPLETED").done.pop()
    while futures:
        future = watched(next_done, distributed, client, address)
        try:        # its result may have been lost with its worker
            trial = watched(future.result, distributed, client, address)
        except distributed.KilledWorker:
            killed.append(futures.pop(future))
            continue
        except (distributed.CancelledError, OSError, StoreError):
            raise
        except Exception as error:      # it could not even begin
            raise not_fit(address, error) from error
        if trial.hash != futures[future]:
            raise StoreError(f"the workers at {address} have other code: start them "
                             "again")
        del todo[futures.pop(future)]
        yield things["store"].save(trial)
    return killed


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
    there = dict(finished or {})
    for name in {request.function.declared.name for request in requests}:
        there |= store.of(name)
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
