"""A record as arrays that are ready to be drawn.

Legend: S seeds, E epochs, K epochs whose gates were recorded, L blocks (the depth), C
classes. Where a run has no value, because it diverged, arrays hold NaN.
"""

from __future__ import annotations

import math
import shlex
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from highway_suite.datasets import DATASETS
from highway_suite.records import (
    COMMAND,
    RecordError,
    check_record,
    nets_of,
    read_with_hash,
    sound,
)

# What makes each record that is drawn unasked: its name, and the flags of its command.
RUN = ("run.json", "--seed 0")
SWEEP = ("run_sweep.json", "--seed 0 --depths 5,10,20,30,50")
SERIES = ("train_loss", "train_acc", "test_acc", "validation_loss", "validation_acc",
          "grad_norm")


class Arm(NamedTuple):
    """The nets of one kind and one depth: a row for each seed."""

    block: str
    depth: int              # L, blocks after the input's projection
    place: int              # of its block among those of the record; 0 is the last
    parameters: int | None  # None where it is not known
    epoch: np.ndarray       # (E,) whole numbers
    history: dict[str, np.ndarray]  # of SERIES those that are known -> (S, E); losses
                                    # in nats, accuracies as fractions
    diverged: np.ndarray    # (S,) bool
    T_epoch: np.ndarray     # (K,) whole numbers; K is 0 where no gate was recorded
    T: np.ndarray           # (S', K, L) mean over units and test images, of `alive`
    chance: float | None    # share of the commonest test label, mean over the seeds

    @property
    def alive(self) -> np.ndarray:
        """(S,) bool: whose mean is drawn, the nets that did not diverge; all of them,
        if all did."""
        return ~self.diverged | self.diverged.all()


class Study(NamedTuple):
    """A record, ready to be drawn; or arrays, of which the rest is not known."""

    arms: dict[int, dict[str, Arm]]     # depth -> block -> Arm, in rising depth
    seeds: list[int]
    dataset: str = ""
    n_train: int = 0
    n_test: int = 0
    init: str = ""
    gate_bias: float | None = None      # b_T of the deepest nets before training
    assumed: bool = False   # init and gate bias stand not in the record, but are known
    command: str = ""       # that made the record
    sha256: str = ""        # of the file

    @property
    def depth(self) -> int:
        """The deepest one: what is drawn where a picture has room for one depth."""
        return max(self.arms)

    @property
    def deepest(self) -> list[Arm]:
        """The arms of that depth."""
        return list(self.arms[self.depth].values())

    @property
    def blocks(self) -> list[str]:
        """The kinds of nets, in the record's order."""
        return list(dict.fromkeys(block for arms in self.arms.values()
                                  for block in arms))

    @property
    def classes(self) -> int:
        """C, 0 where it is not known; the loss of a uniform guess is ln C."""
        row = DATASETS.get(self.dataset)
        return row.classes if row else 0

    @property
    def chance(self) -> float:
        """The accuracy of the best constant answer: the share of the commonest test
        label where the record has it, else 1/C; NaN where that is not known either."""
        known = [arm.chance for arm in self.deepest if arm.chance is not None]
        return float(np.mean(known)) if known else 1 / (self.classes or math.nan)

    @property
    def T_start(self) -> float:
        """sigma(b_T), where every gate starts but for the spread of W_T x; where b_T is
        not known the mean of the first gates recorded."""
        if self.gate_bias is not None:
            return 1 / (1 + math.exp(-self.gate_bias))
        first = [arm.T[:, 0].ravel() for arm in self.deepest if arm.T.size]
        return float(np.nanmean(np.concatenate(first)))


def make_arm(nets: list[dict], block: str, depth: int, place: int) -> Arm:
    """The nets of a record, one for each seed, all of one block and depth -> Arm."""
    histories = [net.get("history") or {"epoch": []} for net in nets]
    epochs, history = np.array(histories[0]["epoch"], int), {}
    for name in SERIES:     # for which each has a number, or null, in every epoch
        with suppress(KeyError, TypeError, ValueError):
            values = np.array([one[name] for one in histories], float)
            if values.shape == (len(nets), len(epochs)):
                history[name] = values      # null becomes NaN
    gates = [dict(net.get("layer_T_history") or ()) for net in nets]
    T_epoch = np.unique([epoch for T in gates for epoch in T]).astype(int)
    T = np.full((len(nets), len(T_epoch), depth), math.nan)
    for row, kept in zip(T, gates, strict=True):
        for epoch, values in kept.items():
            row[T_epoch == epoch] = values
    diverged = np.array([net.get("status") == "diverged" for net in nets])
    for name, values in history.items():
        if not name.startswith("validation"):   # which is not measured in each epoch
            diverged |= np.isnan(values).any(axis=1)
    T = T[~diverged | diverged.all()]
    there = np.isfinite(T).any(axis=(0, 2))
    known = [net["chance"] for net in nets if net.get("chance") is not None]
    return Arm(block, depth, place, nets[0].get("parameters"),
               epochs, history, diverged, T_epoch[there],
               T[:, there], float(np.mean(known)) if known else None)


def make_study(record: dict, sha256: str = "") -> Study:
    """A record as `read_record` gives it -> Study."""
    nets: dict[int, dict[str, list]] = {}
    seeds = set()
    for run in record["runs"]:
        seeds.add(run.get("seed", record.get("seed", 0)))
        for block, net in nets_of(run).items():
            nets.setdefault(run["depth"], {}).setdefault(block, []).append(net)
    order = list(dict.fromkeys(block for found in nets.values() for block in found))
    arms = {depth: {block: make_arm(nets[depth][block], block, depth,
                                    len(order) - 1 - place)
                    for place, block in enumerate(order) if block in nets[depth]}
            for depth in sorted(nets)}
    if "schema" not in record and record.get("config") is None:
        # The earlier reproduction wrote it: MNIST, b_T = -2, U(+-1/sqrt(fan_in))
        return Study(arms, sorted(seeds), "mnist", record["n_train"], record["n_test"],
                     "uniform", -2.0, True, "", sha256)
    config = record["config"]
    return Study(arms, sorted(seeds), str(record["dataset"]), record["n_train"],
                 record["n_test"], str(config["init"]), float(config["gate_bias"]),
                 False, record["command"], sha256)


def load(path: str | Path, flags: str = RUN[1]) -> Study:
    """A record's file -> Study; flags: of the command that makes it. Raises
    RecordError, one line that names file, field and command."""
    # --out even for run.json: where MNIST is not to be had, --seed 0 goes to runs/.
    record, sha256 = read_with_hash(path, f"{COMMAND} {flags} --out "
                                    f"{shlex.quote(str(path))}")
    with sound(path):
        return make_study(record, sha256)


def as_study(source: Any) -> Study:
    """Whatever can be drawn -> Study. It is a Study, a record, or the path of one; or
    what `hn.train` gave, a history {name: (E,)} or the gates' T (K, L), of one net or
    in a dict of nets by their names. Raises RecordError for anything else, and
    ValueError where there is no net."""
    if isinstance(source, Study):
        return source
    if isinstance(source, (str, Path)):
        return load(source)
    if isinstance(source, dict) and "runs" in source:
        check_record(source)
        with sound("these nets"):
            return make_study(source)
    if not isinstance(source, dict) or "epoch" in source:
        source = {"net": source}
    arms = {}
    for place, (name, net) in enumerate((str(k), v) for k, v in source.items()):
        with sound(name):
            if isinstance(net, dict) and np.size(net.get("epoch", ())):
                arm, depth = {"history": net}, 0
            elif getattr(net, "ndim", 0) == 2:
                arm, depth = {"layer_T_history": list(enumerate(net))}, net.shape[1]
            else:
                raise RecordError(f"{name!r} is neither a record, nor a history with "
                                  "its epochs, nor an array of T (K, L)")
            arms[name] = make_arm([arm], name, depth, len(source) - 1 - place)
    if not arms:
        raise ValueError("there is no net to be drawn")
    return Study({0: arms}, [])
