"""The work of an experiment on several machines, by the workers of a Dask scheduler.
Each machine has the checkout and the data: docs/cluster.md."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Generator
from contextlib import suppress
from typing import Any

import highway_networks as hn
from experiments.lab.trials import StoreError
from highway_suite.records import environment

PATIENCE = 30           # seconds that a scheduler, or the first worker, may take
LOOK = 10               # seconds between looks at who is there


def code_here() -> dict:
    """What has to be equal on all machines; each is asked."""
    env = environment()
    return {name: env[name] for name in ("git", "git_dirty", "python", "numpy")}


def check_workers(client: Any) -> None:
    """Raise StoreError unless all workers have our code and versions."""
    here = code_here()
    for worker, there in client.run(code_here).items():
        for name, value in here.items():
            if there[name] != value:
                raise StoreError(f"worker {worker} has {name} {there[name]}, and this "
                                 f"machine {value}")


def on_cluster(function: Callable, tasks: list[tuple], address: str) -> Generator:
    """function(*task) of each task, as they finish. Raises StoreError, one line."""
    try:
        import distributed
    except ImportError as error:
        raise StoreError("a cluster needs Dask: pip install -e '.[cluster]'") from error
    for name in "distributed.client", "asyncio":
        logging.getLogger(name).setLevel("CRITICAL")        # we say it
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")     # of other versions: `check_workers`
            client = distributed.Client(address, timeout=PATIENCE, set_as_default=False)
        with client, client.as_current():
            client.wait_for_workers(1, PATIENCE)
            check_workers(client)
            left = {client.submit(function, *task, pure=False) for task in tasks}
            while left:
                client.wait_for_workers(1, PATIENCE)        # or nobody is left
                with suppress(distributed.TimeoutError):
                    for future in distributed.as_completed(left, timeout=LOOK):
                        result = future.result(LOOK)    # may be lost with its worker
                        left.remove(future)
                        yield result
    except (hn.DataError, StoreError):
        raise
    except Exception as error:      # of sockets, timeouts, killed workers, imports
        words = " ".join(str(error).split()).partition(". ")[0]
        raise StoreError(f"the Dask cluster at {address}: {type(error).__name__}: "
                         f"{words}. Finished trials are kept: see docs/cluster.md, and "
                         "run again") from error
