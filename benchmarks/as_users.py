"""What a user waits for: the whole of the headline's job, and the answer to one image.

The job is that of `python3 highway_networks.py`, in a process of its own, from its
start to the end: a highway and a plain net of 30 blocks train for 12 epochs. The images
are random, so that nobody reads a file. What a library compiled is kept from an earlier
run.

    python3 -m benchmarks.as_users NAME         does the job by one of the programs
"""

from __future__ import annotations

import subprocess
import sys
import time
from functools import partial
from typing import Any

import numpy as np

import highway_networks as hn
from benchmarks.fully_connected import FRAMEWORKS, OURS, Task
from benchmarks.harness import Contest, Contestant

PROGRAMS = {"ours": OURS, **FRAMEWORKS}
NET = {"depth": 30, "hidden": 50, "steps": 46}
EPOCHS = 12


class Job:
    """The headline's two nets, trained by a program in a process of its own."""

    def __init__(self, task: Task, name: str):
        self.task, self.name = task, name

    def gradient(self) -> dict[str, np.ndarray]:
        return PROGRAMS[self.name].make(self.task).gradient()

    def work(self) -> None:
        subprocess.run([sys.executable, "-m", "benchmarks.as_users", self.name],
                       check=True, cwd=hn.HERE)


class OneRow:
    """A program's answers to one image after the other; they take the place of the
    gradient in the check of equal work."""

    def __init__(self, task: Task, name: str):
        self.program = PROGRAMS[name].make(task)
        self.rows = [task.x[i:i + 1] for i in range(len(task.order))]

    def gradient(self) -> dict[str, np.ndarray]:
        return {"answers": np.concatenate(self.work())}

    def work(self) -> list[np.ndarray]:
        return [self.program.answer(row) for row in self.rows]


def contest(way: Any, steps: int, clock: Any = None) -> Contest:
    """All programs, asked in one way."""
    return Contest(lambda dtype: Task(dtype, block="highway", **NET), {
        name: Contestant(partial(way, name=name), program.needs)
        for name, program in PROGRAMS.items()}, NET, steps, 1, "float32", clock)


CONTESTS = {"the headline's job, from its start": contest(Job, 1, time.perf_counter),
            "the answer to one image, 30 blocks": contest(OneRow, NET["steps"])}

if __name__ == "__main__":
    for block in ("highway", "plain"):
        program = PROGRAMS[sys.argv[1]].make(Task("float32", block=block, **NET))
        for _ in range(EPOCHS):
            program.work()
