"""Weights of nets that took hours, in float16, to be measured on the test images.

    python3 -m experiments.convolution --weights        measures those that are there
    python3 -m experiments.convolution --keep-weights   trains these nets again, hours,
                                                        and writes the files; it goes on
                                                        where it was stopped

Each is the first highway net of Table 2 or 3. A file has `params`, in the order of
ConvNet.params, and the hash of its `trial`, whose config says what the net is.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import highway_networks as hn
from experiments.convolution.trials import make_net, right_and_loss, statistics, train
from experiments.lab.experiment import folder_of, load_record
from experiments.lab.trials import Request, Trial, compute, read_packed
from highway_suite.datasets import load
from highway_suite.records import RecordError

FOLDER = folder_of("convolution")


def accuracy(params: np.ndarray, trial: Trial, data: hn.Data) -> float:
    """That of the trial's net with these weights (P,), of any type, on the test images.
    """
    config = trial.config | statistics(data.x_train, trial.config)
    net = make_net(config, data.x_train.shape[1], classes=data.classes)
    net.params[...] = params
    with hn.blas_threads(1):
        return right_and_loss(net, data.x_test, data.y_test, config,
                              net.cache(config["batch"], config["piece"]))["acc"]


def measure(data_dir: Path | None) -> None:
    """Print what each file's net reads, and what it read as it was trained."""
    trials: dict[str, Any] = read_packed(FOLDER / "trials")
    for path in sorted(FOLDER.glob("weights/*.npz")):
        with np.load(path) as file:
            params, trial = file["params"], trials[str(file["trial"])]
        data = load(trial.dataset["name"], data_dir)
        print(f"{path.stem}: {params.size:,} weights read "
              f"{100 * accuracy(params, trial, data):.2f} % of {len(data.x_test):,} "
              f"test images; before they were rounded, "
              f"{100 * trial.result['acc']:.2f} %", flush=True)


def keep(trial: Trial, data: hn.Data, checkpoint: Path, path: Path) -> None:
    """Train the net of a trial, or go on from the checkpoint, and write its weights.
    Raises RecordError where the trial does not come out again."""
    again = compute(Request(train, trial.dataset, trial.config), data, checkpoint)
    if again.result != trial.result:
        raise RecordError(f"{checkpoint}: trial {trial.hash} does not come out again, "
                          f"{again.error or 'its numbers differ'}; nothing is written")
    with np.load(checkpoint) as file:
        params = file["params"].astype(np.float16)
    path.parent.mkdir(exist_ok=True)
    np.savez(path, params=params, trial=trial.hash)


def write(data_dir: Path | None) -> None:
    """Write the files of all tables."""
    record, _ = load_record(FOLDER / "record.json")
    trials: dict[str, Any] = read_packed(FOLDER / "trials")
    for table in ("table_2", "table_3"):
        for net in record[table]["nets"][:1]:       # the highway net
            trial, name = trials[net["trials"][0]], table.replace("_", "-")
            keep(trial, load(trial.dataset["name"], data_dir),
                 hn.HERE / "runs/weights" / f"{name}.npz",
                 FOLDER / "weights" / f"{name}.npz")
