"""A record, checked field by field, as arrays that are ready to be drawn.

Legend: S seeds, E epochs, K epochs whose gates were recorded, L blocks (the depth), C
classes. Where a run has no value, because it diverged, arrays hold NaN.
"""

from __future__ import annotations

import hashlib
import math
from pathlib import Path
from typing import NamedTuple

import numpy as np

import highway_networks as hn
from highway_suite.records import RecordError, read_record


class Arm(NamedTuple):
    """The nets of one kind and one depth: a row for each seed."""

    block: str              # "highway" or "plain"
    depth: int              # L, blocks after the input projection
    parameters: int | None  # None where the record does not say
    epoch: np.ndarray       # (E,) whole numbers
    train_loss: np.ndarray  # (S, E) nats, mean over the steps of the epoch
    test_acc: np.ndarray    # (S, E) fraction, after the epoch
    diverged: np.ndarray    # (S,) bool
    T_epoch: np.ndarray     # (K,) whole numbers; K is 0 where no gate was recorded
    T: np.ndarray           # (S, K, L) mean over units and test images


class Study(NamedTuple):
    """A checked record, ready to be drawn."""

    arms: dict          # depth -> {"highway": Arm, "plain": Arm}, in rising depth
    seeds: list
    dataset: str
    n_train: int
    n_test: int
    init: str
    gate_bias: float    # b_T of every gate before training
    assumed: bool       # init and gate bias stand not in the record, but are known
    command: str        # that made the record; empty where it does not say
    sha256: str         # of the file

    @property
    def depth(self):
        """The deepest one: what is drawn where a picture has room for one depth."""
        return max(self.arms)

    @property
    def classes(self):
        """C: chance is 1/C, and ln C the loss of a uniform guess."""
        return hn.DATASETS[self.dataset].classes

    @property
    def T_start(self):
        """sigma(b_T), where every gate starts but for the spread of W_T x."""
        return 0.5 + 0.5 * math.tanh(self.gate_bias / 2)


INITS = {"uniform": "U(±1/√fan_in)", "glorot": "Glorot", "he": "He"}
RUN = ("run.json", "--seed 0")
SWEEP = ("run_sweep.json", "--seed 0 --depths 5,10,20,30,50")
SEEDS = "--seeds 0,1,2,3,4 --depths 5,10,20,30,50"


def number(value, field, low, high):
    """A number of a record, as a float. Raises RecordError."""
    if type(value) not in (int, float) or not low <= value <= high:
        raise RecordError(f"field '{field}' is {value!r:.40}, not a number from "
                          f"{low:g} to {high:g}")
    return float(value)


def numbers(values, field, low, high, null=False):
    """A list of a record -> float array, NaN for null. Raises RecordError."""
    if not isinstance(values, list):
        raise RecordError(f"field '{field}' is missing or not a list")
    return np.array([math.nan if value is None and null else
                     number(value, f"{field}[{i}]", low, high)
                     for i, value in enumerate(values)], float)


def whole(value, field, low, high=10**12):
    """A whole number of a record, itself. Raises RecordError."""
    if type(value) is not int or not low <= value <= high:
        raise RecordError(f"field '{field}' is {value!r:.40}, not a whole number from "
                          f"{low:g} to {high:g}")
    return value


def rising(values, field):
    """Epochs of a record, each later than the one before. Raises RecordError."""
    for i, value in enumerate(values):
        whole(value, f"{field}[{i}]", 0 if i == 0 else values[i - 1] + 1, 10**6)
    return np.array(values, int)


def read_gates(net, depth, field):
    """layer_T_history of one net -> epochs (K,), T (K, L). Raises RecordError."""
    rows = net.get("layer_T_history") or []
    if not isinstance(rows, list):
        raise RecordError(f"field '{field}' is not a list")
    for k, row in enumerate(rows):
        if not isinstance(row, list) or len(row) != 2:
            raise RecordError(f"field '{field}[{k}]' is not a pair of epoch and gates")
        numbers(row[1], f"{field}[{k}][1]", 0, 1)
        if len(row[1]) != depth:
            raise RecordError(f"field '{field}[{k}][1]' has {len(row[1])} layers, the "
                              f"net {depth}")
    epoch = rising([row[0] for row in rows], field + " epoch")
    return epoch, np.array([row[1] for row in rows], float).reshape(len(rows), depth)


def read_net(net, block, depth, place):
    """One net of the record -> Arm with S = 1. Raises RecordError."""
    history, status = net["history"], net.get("status")
    epoch = rising(history["epoch"], f"{place}.history.epoch")
    if not len(epoch):
        raise RecordError(f"field '{place}.history.epoch' is empty")
    loss = numbers(history["train_loss"], f"{place}.history.train_loss", 0, 1e30, True)
    acc = numbers(history["test_acc"], f"{place}.history.test_acc", 0, 1, True)
    gap = bool(np.isnan(loss).any() or np.isnan(acc).any())
    if status not in (None, "ok", "diverged") or (status == "ok" and gap):
        raise RecordError(f"field '{place}.status' is {status!r:.40}"
                          + (", yet its history has null" if status == "ok" else ""))
    parameters = net.get("parameters")
    if parameters is not None:
        whole(parameters, f"{place}.parameters", 1)
    T_epoch, T = read_gates(net, depth, f"{place}.layer_T_history")
    return Arm(block, depth, parameters, epoch, loss[None], acc[None],
               np.array([gap or status == "diverged"]), T_epoch, T[None])


def join_seeds(nets, place):
    """Arms of one seed each -> one Arm. Raises RecordError where epochs differ."""
    first = nets[0]
    if any(not np.array_equal(net.epoch, first.epoch) for net in nets):
        raise RecordError(f"field 'history.epoch' of {place} differs between seeds")
    T_epoch = np.unique(np.concatenate([net.T_epoch for net in nets]))
    T = np.full((len(nets), len(T_epoch), first.depth), math.nan)
    for row, net in zip(T, nets):
        row[np.searchsorted(T_epoch, net.T_epoch)] = net.T[0]
    return first._replace(
        train_loss=np.concatenate([net.train_loss for net in nets]),
        test_acc=np.concatenate([net.test_acc for net in nets]),
        diverged=np.concatenate([net.diverged for net in nets]), T_epoch=T_epoch, T=T)


def read_arms(record):
    """The runs of a record -> (arms by depth, seeds). Raises RecordError."""
    nets, seeds = {}, set()
    for i, run in enumerate(record["runs"]):
        depth = whole(run["depth"], f"runs[{i}].depth", 1, 10**5)
        # Runs of the earlier reproduction have no seed of their own.
        seed = whole(run.get("seed", record.get("seed", 0)), f"runs[{i}].seed", 0)
        seeds.add(seed)
        for block in ("highway", "plain"):
            rows = nets.setdefault(depth, {}).setdefault(block, {})
            if seed in rows:
                raise RecordError(f"field 'runs[{i}]' repeats depth {depth} of seed "
                                  f"{seed}")
            rows[seed] = read_net(run[block], block, depth, f"runs[{i}].{block}")
    arms = {depth: {block: join_seeds(list(rows.values()), f"{block} {depth}")
                    for block, rows in nets[depth].items()} for depth in sorted(nets)}
    return arms, sorted(seeds)


def load(path, flags, gates=False):
    """A record's file and the flags that make it -> Study.

    gates: whether the deepest highway net must have a layer_T_history. Raises
    RecordError, one line that names file, field and command.
    """
    path = Path(path)
    out = "" if flags == RUN[1] and str(path) == RUN[0] else f" --out {path}"
    command = f"python3 highway_networks.py {flags}{out}"
    record = read_record(path, command)
    try:
        study = make_study(record, hashlib.sha256(path.read_bytes()).hexdigest())
        deepest = study.arms[study.depth]["highway"]
        if gates and not len(deepest.T_epoch) and not deepest.diverged.all():
            raise RecordError(f"field 'layer_T_history' of the highway net of depth "
                              f"{study.depth} is missing")
    except RecordError as error:
        raise RecordError(f"{path}: {error}. Make it with: {command}") from error
    return study


def make_study(record, sha256):
    """A record as `read_record` gives it -> Study. Raises RecordError."""
    arms, seeds = read_arms(record)
    config = record.get("config")
    assumed = "schema" not in record and config is None
    if assumed:     # the earlier reproduction: MNIST, b_T = -2, U(+-1/sqrt(fan_in))
        config, dataset = {"gate_bias": -2.0, "init": "uniform"}, "mnist"
    else:
        dataset = record.get("dataset")
    if not isinstance(config, dict):
        raise RecordError("field 'config' is missing or not a dict")
    for field, value, known in (("dataset", dataset, hn.DATASETS),
                                ("config.init", config.get("init"), INITS)):
        if not isinstance(value, str) or value not in known:
            raise RecordError(f"field '{field}' is {value!r:.40}; known: "
                              + ", ".join(known))
    bias = number(config.get("gate_bias"), "config.gate_bias", -100, 100)
    command = record.get("command", "")
    if not isinstance(command, str) or not command.isprintable():
        raise RecordError("field 'command' is not a line of text")
    images = [whole(record.get(name), name, 1) for name in ("n_train", "n_test")]
    return Study(arms, seeds, dataset, *images, config["init"], bias, assumed, command,
                 sha256)
