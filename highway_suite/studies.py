"""A record as arrays that are ready to be drawn, and what the scripts share that do.

Legend: S seeds, E epochs, K epochs whose gates were recorded, L blocks (the depth), C
classes. Where a run has no value, because it diverged, arrays hold NaN.
"""

from __future__ import annotations

import math
import os
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

import highway_networks as hn
from highway_suite.files import write_files
from highway_suite.records import COMMAND, read_with_hash
from highway_suite.schema import RecordError, is_earlier, nets_of
from highway_suite.terminal import say

# What makes each record that is drawn unasked: its name, and the flags of its command.
RUN = ("run.json", "--seed 0")
SWEEP = ("run_sweep.json", "--seed 0 --depths 5,10,20,30,50")


class Arm(NamedTuple):
    """The nets of one kind and one depth: a row for each seed."""

    block: str
    depth: int              # L, blocks after the input projection
    place: int              # of its block among those of the record; 0 is the last
    parameters: int | None  # None where the record does not say
    epoch: np.ndarray       # (E,) whole numbers
    train_loss: np.ndarray  # (S, E) nats, mean over the steps of the epoch
    test_acc: np.ndarray    # (S, E) fraction, after the epoch
    diverged: np.ndarray    # (S,) bool
    T_epoch: np.ndarray     # (K,) whole numbers; K is 0 where no gate was recorded
    T: np.ndarray           # (S, K, L) mean over units and test images

    @property
    def layers(self) -> int:
        """As the papers count them, the input's projection included."""
        return self.depth + 1


class Study(NamedTuple):
    """A record, ready to be drawn."""

    arms: dict[int, dict[str, Arm]]     # depth -> block -> Arm, in rising depth
    seeds: list[int]
    dataset: str
    n_train: int
    n_test: int
    init: str
    gate_bias: float    # b_T of every gate before training
    assumed: bool       # init and gate bias stand not in the record, but are known
    command: str        # that made the record; empty where it does not say
    sha256: str         # of the file

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
        """C: chance is 1/C, and ln C the loss of a uniform guess."""
        return hn.DATASETS[self.dataset].classes

    @property
    def T_start(self) -> float:
        """sigma(b_T), where every gate starts but for the spread of W_T x."""
        return 0.5 + 0.5 * math.tanh(self.gate_bias / 2)


def make_arm(nets: list[dict], block: str, depth: int, place: int) -> Arm:
    """The nets of a record, one for each seed, all of one block and depth -> Arm."""
    def table(name):
        return np.array([net["history"][name] for net in nets], float)  # NaN for null
    gates = [dict(net.get("layer_T_history") or ()) for net in nets]
    T_epoch = np.unique([epoch for T in gates for epoch in T]).astype(int)
    T = np.full((len(nets), len(T_epoch), depth), math.nan)
    for row, kept in zip(T, gates, strict=True):
        row[np.isin(T_epoch, list(kept))] = np.reshape(list(kept.values()), (-1, depth))
    loss, acc = table("train_loss"), table("test_acc")
    diverged = np.isnan(loss).any(axis=1) | np.isnan(acc).any(axis=1)
    diverged |= [net.get("status") == "diverged" for net in nets]
    return Arm(block, depth, place, nets[0].get("parameters"),
               np.array(nets[0]["history"]["epoch"]), loss, acc, diverged, T_epoch, T)


def make_study(record: dict, sha256: str) -> Study:
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
    assumed = is_earlier(record)
    # The earlier reproduction: MNIST, b_T = -2, U(+-1/sqrt(fan_in)).
    config: dict = ({"gate_bias": -2.0, "init": "uniform"} if assumed else
                    record["config"])
    return Study(arms, sorted(seeds), "mnist" if assumed else record["dataset"],
                 record["n_train"], record["n_test"], config["init"],
                 config["gate_bias"], assumed, record.get("command", ""), sha256)


def record_home() -> Path:
    """The folder whose records are drawn unasked: the current one, if it has a
    run.json, else that of the scripts."""
    here = Path(), hn.HERE
    return next((folder for folder in here if os.path.exists(folder / RUN[0])), Path())


def picture_home(own: bool) -> Path:
    """The folder for pictures: of records that a user named (own) the current one, but
    in the checkout runs/, for the pictures there are those of its own records."""
    if not own:
        return record_home()
    return Path("runs") if os.path.samefile(os.curdir, hn.HERE) else Path()


def load(path: str | Path, flags: str = RUN[1]) -> Study:
    """A record's file -> Study; flags: of the command that makes it. Raises
    RecordError, one line that names file, field and command."""
    path = Path(path)
    # --out even for run.json: where MNIST is not to be had, --seed 0 goes to runs/.
    return make_study(*read_with_hash(path, f"{COMMAND} {flags} --out "
                                      f"{shlex.quote(str(path))}"))


def write_pictures(program: str, draw: Callable[[], dict[Path, bytes]],
                   place: str | Path) -> list[Path]:
    """Write what draw() gives, all or nothing; say and return the paths. Exits with 1
    and one line on stderr where a record or a file is wrong, by default that place."""
    try:
        write_files(contents := draw())
    except RecordError as error:
        sys.exit(f"{program}: {error}")
    except OSError as error:
        sys.exit(f"{program}: {error.filename or place}: {error.strerror}; nothing "
                 "written")
    say("wrote " + ", ".join(map(str, contents)), sys.stdout)
    return list(contents)
