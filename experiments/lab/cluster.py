"""Trials on a Dask cluster: an attempt for `running.run_all`.

Its workers have neither our code nor our data, and may not see the store: both are sent
to them, and they hand their trials back.
"""

from __future__ import annotations

import copy
import logging
import socket
import tempfile
import time
import warnings
import zipfile
from collections.abc import Callable, Generator
from contextlib import suppress
from pathlib import Path
from typing import Any

import highway_networks as hn
from experiments.lab.trials import Request, StoreError, Trial, compute
from highway_suite.terminal import say

PATIENCE = 10           # seconds that a scheduler has to answer
LOOK, ALONE = 5, 300    # seconds between looks, and that there may be no worker


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


def wait_for(place: tuple[str, int]) -> None:
    """Wait until something listens at this host and port. Raises OSError."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            socket.create_connection(place, PATIENCE).close()
            return
        except OSError:
            if time.monotonic() > end:
                raise
        time.sleep(0.2)


def connect(distributed: Any, address: str) -> Any:
    """A client of the scheduler there, which has a worker. Raises StoreError."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")     # of other versions: it is said below
            # Or a Client hangs: at a wrong address, or where Ctrl-C interrupts it.
            wait_for(distributed.comm.get_address_host_port(address))
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
    """An attempt for `run_all`, on the scheduler there. Raises StoreError."""
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
