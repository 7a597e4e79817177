"""Training as a user wants it: with a bar, with a checkpoint, on more threads."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import numpy as np

import highway_networks as hn
from highway_suite.checkpoints import Checkpoint, of_training
from highway_suite.terminal import say

EVERY = 10          # seconds without a word


class Progress:
    """What a training shows on stderr: a bar, where tqdm is installed and somebody
    looks on, else a line after each epoch, and one every ten seconds within it.

    then(row) is called after each epoch, too, and may end the training. lines: show no
    bar, because other processes also write there; quiet: show nothing.
    """

    def __init__(self, label: str, epochs: int, then: Callable | None = None, *,
                 lines: bool = False, quiet: bool = False):
        self.label, self.epochs, self.then, self.quiet = label, epochs, then, quiet
        self.told, self.bar, self.done = time.monotonic(), None, 0
        if not (lines or quiet) and (sys.stderr.isatty() or "ipykernel" in sys.modules):
            with suppress(ImportError):
                import tqdm
                self.bar = tqdm.tqdm(total=epochs, ncols=88, bar_format=(
                    label + "  {bar}| {n:.1f} of {total} epochs, {remaining} left"
                    "{postfix}"))

    def watch(self, batches: hn.Batches) -> hn.Batches | Progress:
        """Batches for `fit`, which are passed on: this object tells how far their epoch
        is."""
        if self.quiet:
            return batches
        self.batches, self.size, self.streams = batches, batches.size, batches.streams
        return self

    def __iter__(self) -> Iterator[tuple]:
        for i, batch in enumerate(self.batches, 1):
            yield batch
            share = i / len(self.batches)
            if self.bar is not None:
                self.bar.update(self.done + share - self.bar.n)
            elif time.monotonic() > self.told + EVERY:
                self.line(f"{share:.0%} of an epoch")

    def line(self, text: str) -> None:
        """Write a line, unless it is to be quiet."""
        self.told = time.monotonic()
        if not self.quiet:
            say(f"{self.label}  {text}")

    def report(self, row: dict) -> Any:
        """Called after each epoch -> what `then` says: true ends the training."""
        self.done = row["epoch"]
        names = [name for name in ("train_loss", "test_acc", "validation_acc",
                                   "train_acc") if name in row][:2]
        told = "  ".join(f"{name.replace('_', ' ').replace('acc', 'accuracy')} "
                         f"{row[name]:.4f}" for name in names)
        if self.bar is None:
            self.line(f"epoch {row['epoch']}/{self.epochs}  {told}")
        else:
            self.bar.set_postfix_str(told.removeprefix("train "), refresh=False)
            self.bar.update(self.done - self.bar.n)
        return self.then and self.then(row)

    def close(self) -> None:
        """Called when the training has ended, however."""
        if self.bar is not None:
            self.bar.close()


def label_of(config: hn.Config) -> str:
    """How lines and bars name a training."""
    return f"{config.block:>7} {config.depth} seed {config.seed}"


def train(net: hn.DeepNet, data: hn.Data, config: hn.Config,
          report: Callable | None = None, *, progress: bool = False,
          checkpoint: str | Path | None = None, threads: int | None = 1
          ) -> tuple[dict[str, list], np.ndarray, str]:
    """`highway_networks.train`, with more around it -> (history, layer_T, status).

    progress: whether the training is shown on stderr.
    checkpoint: a file, with which an interrupted training goes on.
    threads: of BLAS; None leaves its number as it is.
    Raises ValueError, also where the net's block, depth, hidden or activation are not
    the config's, and CheckpointError for a file that cannot be gone on from.
    """
    for name, value in net.settings.items():
        if (wanted := getattr(config, name, value)) != value:
            raise ValueError(f"{name} is {wanted!r}, but the net has {value!r}")
    kept = None if checkpoint is None else of_training(checkpoint, config, data)
    with closing(Progress(label_of(config), config.epochs, report,
                          quiet=not progress)) as shown:
        return hn.train(net, data, config, shown.report, watch=shown.watch,
                        checkpoint=kept, threads=threads)


def train_arm(config: hn.Config, data: hn.Data, checkpoint: Checkpoint | None = None,
              lines: bool = False, threads: int | None = 1) -> dict[str, Any]:
    """`highway_networks.train_arm`, shown on stderr, in lines if others write there,
    too. Its seconds include those before the checkpoint was loaded, and if there were
    several environments, it names them."""
    with closing(Progress(label_of(config), config.epochs, lines=lines)) as shown:
        arm = hn.train_arm(config, data, shown.report, watch=shown.watch,
                           checkpoint=checkpoint, threads=threads)
    if checkpoint:
        seconds = arm["wallclock_sec"] + checkpoint.seconds_before
        arm["wallclock_sec"] = round(seconds, 3)
        if checkpoint.environments[1:]:
            arm["environments"] = checkpoint.environments
    return arm
