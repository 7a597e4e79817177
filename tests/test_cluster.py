"""Trials on a Dask cluster: those of this machine, and no loss is without a word."""

import gc
import os
import random
import subprocess
import sys
import threading
import time

import pytest
from test_lab import same

import highway_networks as hn
from experiments import variants
from experiments.lab import cluster as cluster_of
from experiments.lab.running import run_trials
from experiments.lab.trials import Request, StoreError
from highway_suite import load
from highway_suite.records import environment


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    """A scheduler and two workers, started as the documentation says, elsewhere; but
    without nannies, which would start killed workers anew -> its address and its
    processes."""
    pytest.importorskip("distributed")
    started, port = [], random.randrange(20000, 40000)
    address = f"tcp://127.0.0.1:{port}"
    with open(tmp_path / "cluster.log", "w") as log:
        def start_dask(name, *words):
            started.append(subprocess.Popen(
                [sys.executable, "-m", f"distributed.cli.dask_{name}", *words,
                 "--no-dashboard"], cwd=tmp_path, stdout=log, stderr=log,
                env=os.environ | {"PYTHONPATH": str(hn.HERE)}))
        start_dask("scheduler", "--host", "127.0.0.1", "--port", str(port))
        for _ in range(2):
            start_dask("worker", address, "--nthreads", "1", "--no-nanny",
                       "--local-directory", str(tmp_path))
        yield address, started
        for process in started:
            process.kill()
            process.wait()


def requests_of_variants():
    about = {"name": "digits", "content": "0"}
    return [Request(variants.train, about, config) for config in variants.configs(
        variants.PLAN | variants.SMOKE).values()]


def kill_at_work(processes, store, monkeypatch):
    """Once a trial is kept; what then is lost need not be waited for long."""
    def kill():
        while not store.of("variants."):
            time.sleep(0.05)
        for process in processes:
            process.kill()
        monkeypatch.setattr(cluster_of, "PATIENCE", 5)
    monkeypatch.setattr(cluster_of, "LOOK", 2)
    threading.Thread(target=kill, daemon=True).start()


def test_a_cluster_gives_the_same_trials_and_bears_a_killed_worker(store, cluster,
                                                                   monkeypatch):
    address, processes = cluster
    requests = requests_of_variants()
    with monkeypatch.context() as patch, pytest.raises(StoreError, match="numpy"):
        patch.setattr(cluster_of, "environment", lambda: environment() | {"numpy": "0"})
        run_trials(requests, store, load, cluster=address)
    assert not store.of("variants.")
    kill_at_work(processes[1:2], store, monkeypatch)
    found = run_trials(requests, store, load, cluster=address)
    assert same(found) == same(run_trials(requests, None, load, jobs=2))


@pytest.mark.parametrize("lost", [slice(0, 1), slice(1, 3)])
def test_a_lost_cluster_is_one_line_and_what_is_finished_is_kept(store, cluster, lost,
                                                                 monkeypatch):
    address, processes = cluster
    kill_at_work(processes[lost], store, monkeypatch)
    with pytest.raises(StoreError) as caught:
        run_trials(requests_of_variants(), store, load, cluster=address)
    assert "\n" not in str(caught.value) and store.of("variants.")


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:9", "x", "http://x"])
def test_no_cluster_is_one_line(store, monkeypatch, address):
    pytest.importorskip("distributed")
    monkeypatch.setattr(cluster_of, "PATIENCE", 1)
    gc.collect()    # a client of Dask hangs if its start collects one that failed
    with pytest.raises(StoreError) as caught:
        run_trials(requests_of_variants(), store, load, cluster=address)
    assert "\n" not in str(caught.value) and address in str(caught.value)
