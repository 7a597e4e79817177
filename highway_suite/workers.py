"""Nets trained side by side in worker processes, with their progress on stderr."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from tqdm import tqdm

import highway_networks as hn
from highway_suite.records import train_arm
from highway_suite.terminal import say

START_SECONDS = 0.6     # that starting processes takes


class Bar(tqdm):
    """A progress bar that several processes may draw at once: each keeps to its own row
    below the cursor and draws it in a single write."""

    def display(self, msg=None, pos=None):
        row = abs(self.pos)
        say("\n" * row + f"\r{self}\x1b[K" + "\x1b[A" * row, end="")

    def close(self):
        self.refresh()
        self.disable = True


def reporter(config: hn.Config, row: int | None) -> Callable:
    """What `train` calls after each epoch: a bar in this row, or a line without one."""
    label = f"{config.block:>7} {config.depth} seed {config.seed}"
    bar = None if row is None else Bar(total=config.epochs, desc=label, position=row,
                                       unit="epoch", ncols=88)

    def report(done):
        epoch, loss, accuracy = (done[name] for name in ("epoch", "train_loss",
                                                         "test_acc"))
        if bar is None:
            say(f"{label}  epoch {epoch:{len(str(config.epochs))}}/{config.epochs}  "
                f"train loss {loss:.4f}  test accuracy {accuracy:.4f}")
            return
        bar.set_postfix_str(f"loss {loss:.4f}, test {accuracy:.4f}", refresh=False)
        bar.update()
        if epoch == config.epochs:
            bar.close()
    return report


def train_reported(config: hn.Config, data: hn.Data, row: int | None) -> dict:
    """`train_arm` with its progress on stderr."""
    return train_arm(config, data, reporter(config, row))


def end_with(caller: int) -> None:
    """From now on this process ends within a second of the one that started it, which
    may be killed: nobody would want its work. Windows, which gives an orphan no other
    parent, lets it finish."""
    def watch():
        while os.getppid() == caller:
            time.sleep(0.5)
        os._exit(1)
    threading.Thread(target=watch, daemon=True).start()


def options() -> dict[str, Any]:
    """Of joblib's Parallel, always the same, or it starts anew. Without max_nbytes
    images would lie in shared memory, which a SIGKILL leaves; a process watches this
    one from its start, before it has anything to do."""
    return {"max_nbytes": None, "initializer": end_with, "initargs": (os.getpid(),)}


def train_in_worker(config: hn.Config, data: hn.Data, row: int | None,
                    block: hn.Block) -> dict:
    """The same in another process: its table may lack a block that the caller added, or
    hold what the caller, since changed, gave it for an earlier training."""
    hn.BLOCKS[config.block] = block
    return train_reported(config, data, row)


def start_up() -> None:
    """The work of a process that only starts: the imports."""


@contextmanager
def sparing_children_ctrl_c() -> Iterator[None]:
    """Processes started in the body ignore Ctrl-C: the parent, which ignores it only in
    the body, gets it and ends them."""
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)


class Ended(KeyboardInterrupt):
    """This process was told to end, by a signal of that number."""

    def __init__(self, number: int):
        super().__init__(number)
        self.number = number


@contextmanager
def ended_by_signals(ending: Callable[[int], BaseException] = Ended) -> Iterator[None]:
    """SIGTERM, and SIGHUP of a terminal that is closed, end the body as Ctrl-C does, or
    with another exception, made of the signal's number, so that worker processes and
    temporary files go too. Signals that are ignored, as under nohup, stay so."""
    def end(number, frame):
        raise ending(number)
    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP")
               if hasattr(signal, name)]        # Windows has no SIGHUP
    before = {number: signal.getsignal(number) for number in numbers}
    mine = [number for number in numbers if before[number] == signal.SIG_DFL]
    for number in mine:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in mine:
            signal.signal(number, before[number])


@contextmanager
def starting_workers(jobs: int) -> Iterator[None]:
    """Start the processes, with NumPy, while the body reads the data."""
    if jobs == 1:
        yield
        return
    from joblib import Parallel, delayed
    with sparing_children_ctrl_c():
        started = Parallel(n_jobs=jobs, return_as="generator", **options())(
            delayed(start_up)() for _ in range(jobs))
    try:
        yield
    finally:
        list(started)


def cost(config: hn.Config) -> float:
    """About the seconds that training takes on one core: 0.15 ns for each product of an
    image with a weight of a block, there and back."""
    gates = len(hn.BLOCKS[config.block].gates)
    images = config.epochs * (config.n_train // config.batch) * config.batch
    return 1.5e-10 * images * config.depth * config.hidden ** 2 * (1 + gates)


def processes_for(configs: list[hn.Config]) -> int:
    """How many processes finish first: one per core, or one alone where the others
    would take longer to start than they save."""
    work = sum(map(cost, configs))
    if work < START_SECONDS:
        return 1
    from joblib import cpu_count
    jobs = min(cpu_count(), len(configs))
    return jobs if work - work / jobs > START_SECONDS else 1


def train_all(configs: list[hn.Config], data: hn.Data, jobs: int) -> list[dict]:
    """Train every configuration, the costliest first, on so many processes."""
    order = sorted(range(len(configs)), key=lambda i: cost(configs[i]), reverse=True)
    bars = sys.stderr.isatty() and len(configs) < os.get_terminal_size(2).lines
    subsets = {seed: hn.take_subset(data, replace(configs[0], seed=seed))
               for seed in {config.seed: 0 for config in configs}}
    tasks = [(configs[i], subsets[configs[i].seed], i if bars else None) for i in order]
    if jobs == 1:
        done = [train_reported(*task) for task in tasks]
    else:
        from joblib import Parallel, delayed
        done = Parallel(n_jobs=jobs, **options())(
            delayed(train_in_worker)(*task, hn.BLOCKS[task[0].block]) for task in tasks)
    if bars:
        say("\n" * len(configs), end="")
    arms = dict(zip(order, done, strict=True))
    return [arms[i] for i in range(len(configs))]
