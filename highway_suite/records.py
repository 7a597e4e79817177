"""Records: what a run keeps as JSON, made and read."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
import time
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_info

import highway_networks as hn
from highway_suite.files import parse_json, read_file
from highway_suite.schema import (
    SCHEMA,
    SCHEMA_VERSION,
    OtherRecord,
    RecordError,
    check_record,
)

# What makes a record: the script of a checkout, or the command that pip installs.
COMMAND = ("python3 highway_networks.py" if (hn.HERE / "pyproject.toml").exists() else
           "highway-networks")


PRODUCTS = ("run.json", "run_sweep.json", "viz", "highway_networks.gif",
            "docs")                 # which no run reads


@lru_cache(maxsize=1)
def git_state() -> tuple[str | None, bool | None]:
    """(revision, dirty) of the checkout this file lies in; None where there is none.
    To make PRODUCTS anew changes no other result."""
    def git(*words):
        return os.fsdecode(subprocess.run(      # without locks: it may be killed midway
            ("git", "--no-optional-locks", *words), cwd=hn.HERE, capture_output=True,
            check=True, timeout=10).stdout).strip()
    try:
        if not os.path.samefile(git("rev-parse", "--show-toplevel"), hn.HERE):
            return None, None
        return (git("rev-parse", "HEAD"),
                bool(git("status", "--porcelain", "--untracked-files=no", "--", ".",
                         *(f":(exclude){name}" for name in PRODUCTS))
                     or git("ls-files", "--others", "--exclude-standard", "--",
                            "experiments/*.py", "highway_suite/*.py",
                            "benchmarks/*.py")))        # code that no commit has
    except (OSError, subprocess.SubprocessError):
        return None, None


@lru_cache(maxsize=1)
def blas_in_use() -> dict:
    """What threadpoolctl knows of it; to ask takes longer than to train a small net."""
    return next((lib for lib in threadpool_info() if lib["user_api"] == "blas"), {})


def environment() -> dict:
    """What may change the last bits or the speed of a run; no user, host or path."""
    blas = blas_in_use()
    revision, dirty = git_state()
    return {"python": platform.python_version(), "numpy": np.__version__,
            "platform": f"{platform.system()} {platform.machine()}",
            "blas": blas.get("internal_api"), "blas_version": blas.get("version"),
            "blas_kernel": blas.get("architecture"),
            "blas_threads": 1, "git": revision, "git_dirty": dirty}


def load_net(path: Path, digest: str) -> hn.DeepNet:
    """The net of a file whose weights have that hash. Raises RecordError."""
    try:
        net = hn.DeepNet.load(path)
    except (ValueError, OSError) as error:
        raise RecordError(str(error)) from error    # it names the file
    if weights_hash(net) != digest:
        raise RecordError(f"{path}: not the weights of its record")
    return net


def weights_hash(net: hn.DeepNet) -> str:
    """SHA-256 of a net's weights."""
    return hashlib.sha256(net.params.tobytes()).hexdigest()


def summarize(arms: list[dict]) -> list[dict]:
    """Mean and standard deviation (n - 1) over the seeds, per depth and block."""
    groups: dict[tuple, list] = {}
    for arm in arms:
        groups.setdefault((arm["depth"], arm["block"]), []).append(arm)
    rows = []
    for (depth, block), group in groups.items():
        row = {"depth": depth, "block": block, "n": len(group),
               "diverged": sum(arm["status"] != "ok" for arm in group)}
        for name in ("test_acc", "train_loss"):
            values = [arm["final_" + name] for arm in group if arm["status"] == "ok"]
            row[name + "_mean"] = hn.significant(np.mean(values)) if values else None
            row[name + "_std"] = (hn.significant(np.std(values, ddof=1))
                                  if len(values) > 1 else None)
        rows.append(row)
    return rows


def make_record(settings: dict, arms: list[dict], command: str) -> dict:
    """Settings of the command line and its arms -> the record of the run. Of depths
    that have each their own b_T it names the deepest one's; every arm names its own."""
    settings = settings | {"gate_bias": hn.initial_bias(settings["gate_bias"],
                                                        max(settings["depths"]))}
    pairs: dict[tuple, dict] = {}
    for arm in arms:
        pairs.setdefault((arm["depth"], arm["seed"]), {})[arm["block"]] = arm
    runs = [{"depth": depth, "seed": seed, **pair, "wallclock_sec":
             round(sum(arm["wallclock_sec"] for arm in pair.values()), 3)}
            for (depth, seed), pair in pairs.items()]
    return {"schema": SCHEMA, "schema_version": SCHEMA_VERSION, "command": command,
            "dataset": settings["dataset"],
            "seed": settings["seeds"][0], "seeds": settings["seeds"],
            "hidden": settings["hidden"], "depth": max(settings["depths"]),
            "epochs": settings["epochs"], "batch_size": settings["batch"],
            "lr": settings["lr"], "n_train": settings["n_train"],
            "n_test": settings["n_test"], "config": settings,
            "env": environment(), "summary": summarize(arms), "runs": runs}


def train_arm(config: hn.Config, data: hn.Data, report: Callable | None = None) -> dict:
    """Configuration and unscaled subset -> one arm of the record."""
    start = time.perf_counter()
    net = hn.make_net(config, data)
    history, layer_T, status = hn.train(net, hn.scale_pixels(data, config.dtype),
                                        config, report)
    seconds = time.perf_counter() - start
    own = {}
    if isinstance(config.gate_bias, str):       # else it is that of the record's config
        own["gate_bias"] = hn.initial_bias(config.gate_bias, config.depth)
    return {
        "label": f"{config.block} {config.depth}", "block": config.block,
        "depth": config.depth, "hidden": config.hidden, "epochs": config.epochs,
        "batch_size": config.batch, "lr": config.lr, "seed": config.seed,
        "parameters": net.params.size, "status": status,
        "history": history,
        **{"final_" + name: history[name][-1]
           for name in ("train_acc", "test_acc", "train_loss")},
        "wallclock_sec": round(seconds, 3),
        "layer_T_history": layer_T,
        "final_T_per_layer": layer_T[-1][1] if layer_T and status == "ok" else [],
        **own,
    }


def read_with_hash(path: str | Path, command: str = f"{COMMAND} --seed 0"
                   ) -> tuple[dict, str]:
    """A checked record and the SHA-256 of its file. Records without our `schema` key,
    by the earlier reproduction, are read too. Raises RecordError, one line that names
    file, field and remedy: the command, but for what it should not replace, or cannot.
    """
    try:
        content = read_file(path)
        record = parse_json(content.decode())
        check_record(record)
    except OtherRecord as error:
        raise RecordError(f"{path}: a record of another kind: {error}") from error
    except (ValueError, RecursionError) as error:
        other = os.path.exists(path) and not os.path.isfile(path)
        remedy = "" if other else f". Make it with: {command}"
        raise RecordError(f"{path}: {error}{remedy}") from error
    return record, hashlib.sha256(content).hexdigest()


def read_record(path: str | Path, command: str = f"{COMMAND} --seed 0") -> dict:
    """The record of `read_with_hash`."""
    return read_with_hash(path, command)[0]
