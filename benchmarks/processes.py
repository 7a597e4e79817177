"""Contestants in processes of their own, bound to cores, and the tasks they get."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import highway_networks as hn

IMAGES = 6000                               # of the headline
PATIENCE = 180                              # seconds until the first epoch is trained
PINNED = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")      # they choose other kernels


class Skipped(RuntimeError):
    """A contestant cannot take part; the message says why."""


def available_cores() -> list[int]:
    """The numbers of the cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


@contextmanager
def bound_to(cores: Iterable[int]) -> Iterator[None]:
    """Processes started in the body stay on these cores, where the system can do it."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def variables_for(cores: Sequence[int], cache: str | Path) -> dict[str, str]:
    """A contestant's environment variables: a thread for each of its cores, this
    machine's own BLAS kernels, and an empty folder for compiled code."""
    threads = str(len(cores))
    variables = {**os.environ, "OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads,
                 "JAX_PLATFORMS": "cpu", "TORCHINDUCTOR_CACHE_DIR": str(cache)}
    if len(cores) == 1:     # without it JAX's pool of one thread waits for itself
        variables["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"
    for pinned in PINNED:
        variables.pop(pinned, None)
    return variables


class Process:
    """One contestant, waiting for commands. Leaving its context ends it."""

    def __init__(self, name: str, task: str | Path, cores: Sequence[int]):
        self.folder = tempfile.TemporaryDirectory()
        self.errors = Path(self.folder.name) / "stderr"
        with bound_to(cores), open(self.errors, "w", encoding="utf-8") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.contestants", name, str(task)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
                text=True, cwd=hn.HERE, env=variables_for(cores, self.folder.name))
        assert self.process.stdin and self.process.stdout       # for the type checker
        self.questions, self.answers = self.process.stdin, self.process.stdout

    def wait(self) -> None:
        """Until the first epoch is trained: versions and its seconds. Raises Skipped.
        """
        late = threading.Timer(PATIENCE, self.process.kill)
        late.start()
        try:
            ready = self.answer()
        except Skipped:
            if late.finished.is_set():      # it was killed, and did not end by itself
                raise Skipped(f"no epoch trained within {PATIENCE} s") from None
            raise
        finally:
            late.cancel()
        self.versions, self.first_epoch = ready["versions"], ready["first_epoch"]

    def send(self, command: str) -> None:
        self.questions.write(command + "\n")
        self.questions.flush()

    def answer(self) -> Any:
        """The answer to a command sent. Raises Skipped if the process has ended."""
        if line := self.answers.readline():
            return json.loads(line)
        code = self.process.wait()
        last = self.errors.read_text("utf-8").strip().rpartition("\n")[2]
        raise Skipped(f"ended with {code}: {last[:200]}")

    def ask(self, command: str) -> Any:
        """Send a command and wait for the answer. Raises Skipped."""
        self.send(command)
        return self.answer()

    def arrays(self, what: str) -> dict[str, np.ndarray]:
        """"gradient" or "weights" -> {name: array}."""
        path = Path(self.folder.name) / "arrays.npz"
        self.ask(f"{what} {path}")
        with np.load(path) as archive:
            return dict(archive)

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_):
        try:
            self.process.communicate(timeout=10)        # the end of stdin ends it
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()
        self.folder.cleanup()


def write_images(folder: str | Path, data: hn.Data) -> tuple[int, int, int]:
    """Write images.npz, see `contestants.Task`, of uint8 Data -> its N and P, and how
    many classes."""
    data = hn.scale_pixels(hn.take_subset(data, hn.Config(n_train=IMAGES)))
    np.savez(Path(folder) / "images.npz", x=data.x_train, labels=data.y_train)
    return *data.x_train.shape, data.classes


def write_task(path: Path, shape: tuple, block: str, depth: int, hidden: int,
               batch: int, steps: int) -> Path:
    """Write one TASK.npz for images of this shape, as `write_images` gives it; return
    its path."""
    images, inputs, classes = shape
    settings = {"block": block, "depth": depth, "hidden": hidden, "inputs": inputs,
                "classes": classes}
    order = np.random.default_rng(0).integers(images, size=(steps, batch))
    np.savez(path, settings=json.dumps(settings), order=order)
    return path


def start_all(stack: ExitStack, names: Iterable[str], tasks: Sequence[Path],
              places: Sequence) -> tuple[dict, dict]:
    """Start each contestant's processes, one for each task and its cores, one after the
    other -> {name: [processes]} and, of those that cannot, {name: why}."""
    groups, skipped = {}, {}
    for name in names:
        try:
            group = []
            for task, cores in zip(tasks, places, strict=True):
                group.append(stack.enter_context(Process(name, task, cores)))
                group[-1].wait()
            groups[name] = group
        except Skipped as reason:
            if name == "ours":
                raise
            print(f"{name}: skipped, {reason}")
            skipped[name] = str(reason)
    return groups, skipped
