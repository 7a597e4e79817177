"""What ships, to try things at once: forty images of MNIST, and three trained nets."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import highway_networks as hn

HERE = Path(__file__).resolve().parent
TRAINED = ("highway", "residual", "plain")


def mnist_images() -> tuple[np.ndarray, np.ndarray]:
    """The forty images, uint8 (40, 784), and their labels (40,); mnist40/README.md says
    which they are. A net takes images / 127.5 - 1; images * 2 would overflow."""
    with np.load(HERE / "mnist40" / "images.npz") as archive:
        return archive["images"], archive["labels"]


def trained_net(block: str) -> hn.DeepNet:
    """A net of 49 blocks that was trained on all of MNIST, pixels from -1 to 1; see
    results/trained_nets. block: one of `TRAINED`; for another one there is no file.
    """
    installed = HERE / "trained_nets"       # in the wheel; in a checkout, results
    folder = installed if installed.is_dir() else hn.HERE / "results" / "trained_nets"
    return hn.DeepNet.load(folder / f"{block}.npz")
