"""Work that runs side by side in processes, which joblib starts: the nets of a command,
the trials of an experiment. Without joblib, or where the system lets no processes share
memory, this process does all of it."""

from __future__ import annotations

import os
import signal
import threading
import time
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import highway_networks as hn
from highway_suite.terminal import say
from highway_suite.training import train_arm

START_SECONDS = 0.6     # that starting processes takes


@contextmanager
def muted() -> Iterator[None]:
    """What joblib warns of in the body is not shown: what matters of it, we say."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def find_joblib() -> Any:
    """joblib, or None where it is not installed, or cannot even make the lock that it
    makes as it is imported."""
    with suppress(ImportError, OSError, TypeError), muted():
        import joblib
        return joblib
    return None


def why_alone() -> str:
    """Why no other process can work beside this one; nothing where some can."""
    if (joblib := find_joblib()) is None:
        return "joblib is not there"
    with muted():
        return "" if joblib.effective_n_jobs(2) > 1 else (
            "processes cannot share memory here")


def end_with(caller: int) -> None:
    """The first thing that a worker does. From now on only its caller obeys Ctrl-C.
    The worker ends within a second after the caller: if that is killed, nobody wants
    the work. Windows gives an orphan no other parent, so there the worker finishes."""
    def watch():
        while os.getppid() == caller:
            time.sleep(0.5)
        os._exit(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def handling(numbers: Iterable[int], handler: Any) -> Iterator[None]:
    """In the body these signals have this handler. Python lets only the main thread
    change one; in another the body just runs."""
    main = threading.current_thread() is threading.main_thread()
    before = {number: signal.signal(number, handler) for number in numbers if main}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


@contextmanager
def ended_by_signals(ending: Callable[[int], BaseException] = KeyboardInterrupt
                     ) -> Iterator[None]:
    """SIGTERM, and the SIGHUP of a terminal that is closed, end the body as Ctrl-C
    does, so that worker processes and temporary files go, too. ending(number) makes the
    exception. Signals that are ignored, as under nohup, stay ignored."""
    def end(number, frame):
        raise ending(number)
    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP")
               if hasattr(signal, name)]        # Windows has no SIGHUP
    with handling([number for number in numbers
                   if signal.getsignal(number) == signal.SIG_DFL], end):
        yield


def side_by_side(function: Callable, tasks: Iterable[tuple], jobs: int | None = None
                 ) -> Generator:
    """function(*task) of each task, as they finish, in so many processes, one for each
    core unless given. They start at once and end with this process. It raises what a
    task raises, and BrokenExecutor where a process was killed; then the others end."""
    tasks = list(tasks)
    if jobs != 1 and len(tasks) > 1 and (why := why_alone()):
        say(f"{why}: one process does all the work")
        jobs = 1
    joblib = find_joblib()      # whose cpu_count knows a container's share, too
    jobs = min(jobs or (joblib.cpu_count() if joblib else 1), len(tasks))
    if jobs <= 1:
        return (function(*task) for task in tasks)
    with handling([signal.SIGINT], signal.SIG_IGN):      # they inherit it
        # Always the same options, or joblib would start new processes. max_nbytes=None
        # keeps images out of shared memory, where they would stay after a SIGKILL.
        done = joblib.Parallel(
            jobs, backend="loky", return_as="generator_unordered", batch_size=1,
            pre_dispatch=jobs, max_nbytes=None, initializer=end_with,
            initargs=(os.getpid(),))(
            joblib.delayed(function)(*task) for task in tasks)
    return until_closed(done)


def until_closed(done: Any) -> Generator:
    """What joblib's generator gives. Whoever closes this one ends the processes, and
    joblib says nothing of what it cuts off."""
    try:
        for result in done:     # noqa: UP028 (it would close the other one unmuted)
            yield result
    finally:
        with muted():
            done.close()


def train_numbered(number: int, block: Any, alone: bool, threads: int,
                   config: hn.Config, data: hn.Data, checkpoint: Any
                   ) -> tuple[int, dict]:
    """(number, arm) of one net. Several at a time show their progress in lines, for
    bars would lie one over the other. The caller's block comes along, because another
    process may lack it, or have an older one of its name."""
    hn.BLOCKS[config.block] = block
    return number, train_arm(config, data, checkpoint, not alone, threads)


def cost(config: hn.Config) -> float:
    """About the seconds that training takes on one core: 0.15 ns for each image and
    each weight of a block, for the forward and the backward pass together."""
    gates = len(hn.block_of(config.block, config.depth).gates)
    images = config.epochs * (config.n_train // config.batch) * config.batch
    return 1.5e-10 * images * config.depth * config.hidden ** 2 * (1 + gates)


def processes_for(configs: list[hn.Config]) -> int:
    """The number of processes that is fastest: one per core, or only one where starting
    more would take longer than they save, or where there can be no more."""
    work = sum(map(cost, configs))
    if work < START_SECONDS or len(configs) == 1 or why_alone():
        return 1
    jobs = min(find_joblib().cpu_count(), len(configs))
    return jobs if work - work / jobs > START_SECONDS else 1


def train_all(tasks: list[tuple], jobs: int, threads: int = 1) -> list[dict]:
    """tasks: (config, unscaled Data, checkpoint or None) -> their arms in this order;
    trained in so many processes, the costliest first."""
    order = sorted(range(len(tasks)), key=lambda i: cost(tasks[i][0]), reverse=True)
    arms = dict(side_by_side(train_numbered, (
        (i, hn.BLOCKS[tasks[i][0].block], jobs == 1, threads, *tasks[i])
        for i in order), jobs))
    return [arms[i] for i in range(len(tasks))]
