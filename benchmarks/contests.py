"""The table of all contests; and one of them, measured in a process of its own.

    python3 -m benchmarks.contests NAME ROUNDS SECONDS     -> a line of JSON

`python3 -m benchmarks` starts these processes, each on cores of its own and with the
variables that `variables_for` sets: libraries read them as they are imported.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from benchmarks import as_users, convolution, fully_connected, language_model
from benchmarks.harness import OtherWork, measure
from benchmarks.records import processor
from highway_suite.records import environment

GROUPS = {"as_users": as_users.CONTESTS, "fully_connected": fully_connected.CONTESTS,
          "convolution": convolution.CONTESTS,
          "language_model": language_model.CONTESTS}
CONTESTS = {name: contest for group in GROUPS.values()
            for name, contest in group.items()}
PINNED = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")      # they choose other kernels
VERSIONS = ("torch", "jax", "optax", "sklearn")


def variables_for(threads: int, cache: str | Path) -> dict[str, str]:
    """The environment variables of a contest: so many threads for every library, this
    machine's own BLAS kernels, and an empty folder for compiled code."""
    variables = {**os.environ, "JAX_PLATFORMS": "cpu",
                 "TORCHINDUCTOR_CACHE_DIR": str(cache)}
    for library in ("OMP", "MKL", "OPENBLAS"):
        variables[f"{library}_NUM_THREADS"] = str(threads)
    if threads == 1:        # without it JAX's pool of one thread waits for itself
        variables["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"
    for pinned in PINNED:
        variables.pop(pinned, None)
    return variables


def bind(threads: int) -> None:
    """Stay on as many cores as threads, where the system can do it."""
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, cores[:threads])


def main(name: str, rounds: str, patience: str) -> None:
    """Measure and print. Exits with 1 and a line where a contestant does other work."""
    contest = CONTESTS[name]
    try:
        measured = measure(contest, int(rounds), float(patience))
    except OtherWork as error:
        sys.exit(f"{name}: {error}")
    versions = {library: sys.modules[library].__version__ for library in VERSIONS
                if library in sys.modules}
    env = environment() | {"blas_threads": contest.threads} | versions
    print(json.dumps({"kind": processor(), "contest": measured | {"env": env}}))


if __name__ == "__main__":
    bind(CONTESTS[sys.argv[1]].threads)
    main(*sys.argv[1:])
