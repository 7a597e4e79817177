"""Nets trained side by side in worker processes, with their progress on stderr. joblib
starts the processes; where it is not installed, one process trains all."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import highway_networks as hn
from highway_suite.training import train_arm

START_SECONDS = 0.6     # that starting processes takes


def find_joblib() -> Any:
    """joblib, or None where it is not installed."""
    try:
        import joblib
    except ImportError:
        return None
    return joblib


def train_in_worker(block: Any, config: hn.Config, data: hn.Data, checkpoint: Any
                    ) -> dict:
    """One net in another process, on one BLAS thread. The caller's block comes along,
    for that process may not have it, or may have an older one of this name."""
    hn.BLOCKS[config.block] = block
    return train_arm(config, data, checkpoint, lines=True)


def end_with(caller: int) -> None:
    """From now on this process ends within a second after the one that started it: if
    that one is killed, nobody wants the work. Windows gives an orphan no other parent,
    so there the process finishes its work."""
    def watch():
        while os.getppid() == caller:
            time.sleep(0.5)
        os._exit(1)
    threading.Thread(target=watch, daemon=True).start()


def options() -> dict[str, Any]:
    """The options of joblib's Parallel. They are always the same, or joblib would start
    new processes. max_nbytes=None keeps images out of shared memory, which would stay
    after a SIGKILL. Each process watches this one from its start on."""
    return {"max_nbytes": None, "initializer": end_with, "initargs": (os.getpid(),)}


def in_main_thread() -> bool:
    """Whether this is the main thread: Python allows only there to change what a signal
    does."""
    return threading.current_thread() is threading.main_thread()


@contextmanager
def sparing_children_ctrl_c() -> Iterator[None]:
    """Processes that are started in the body ignore Ctrl-C for good. The parent ignores
    it only in the body; later it gets it, and ends them."""
    if not in_main_thread():
        yield
        return
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)


@contextmanager
def ended_by_signals(ending: Callable[[int], BaseException] = KeyboardInterrupt
                     ) -> Iterator[None]:
    """SIGTERM, and the SIGHUP of a terminal that is closed, end the body as Ctrl-C
    does, so that worker processes and temporary files go, too. ending(number) makes the
    exception. Signals that are ignored, as under nohup, stay ignored."""
    def end(number, frame):
        raise ending(number)
    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP")
               if hasattr(signal, name) and in_main_thread()]   # Windows has no SIGHUP
    mine = [number for number in numbers if signal.getsignal(number) == signal.SIG_DFL]
    for number in mine:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in mine:
            signal.signal(number, signal.SIG_DFL)


def cores() -> int:
    """The processor's cores that this process may use."""
    return (len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else
            os.cpu_count() or 1)


def start_workers(jobs: int) -> Iterable:
    """Start so many processes, which load NumPy -> an iterable that ends when all have
    started."""
    if jobs == 1:
        return ()
    joblib = find_joblib()
    with sparing_children_ctrl_c():
        return joblib.Parallel(n_jobs=jobs, return_as="generator", **options())(
            joblib.delayed(int)() for _ in range(jobs))


def cost(config: hn.Config) -> float:
    """About the seconds that training takes on one core: 0.15 ns for each image and
    each weight of a block, for the forward and the backward pass together."""
    gates = len(hn.block_of(config.block, config.depth).gates)
    images = config.epochs * (config.n_train // config.batch) * config.batch
    return 1.5e-10 * images * config.depth * config.hidden ** 2 * (1 + gates)


def processes_for(configs: list[hn.Config]) -> int:
    """The number of processes that is fastest: one per core, or only one where starting
    more would take longer than they save, or where joblib is missing."""
    work = sum(map(cost, configs))
    if work < START_SECONDS or len(configs) == 1 or (joblib := find_joblib()) is None:
        return 1
    jobs = min(joblib.cpu_count(), len(configs))
    return jobs if work - work / jobs > START_SECONDS else 1


def train_all(tasks: list[tuple], jobs: int, threads: int = 1) -> list[dict]:
    """tasks: (config, unscaled Data, checkpoint or None) -> their arms in this order;
    trained on so many processes, the costliest first."""
    order = sorted(range(len(tasks)), key=lambda i: cost(tasks[i][0]), reverse=True)
    work = [tasks[i] for i in order]
    if jobs == 1:
        done = [train_arm(config, data, checkpoint, threads=threads)
                for config, data, checkpoint in work]
    else:
        joblib = find_joblib()
        done = joblib.Parallel(n_jobs=jobs, **options())(
            joblib.delayed(train_in_worker)(
                hn.BLOCKS[task[0].block], *task)
            for task in work)
    arms = dict(zip(order, done, strict=True))
    return [arms[i] for i in range(len(tasks))]
