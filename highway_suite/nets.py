"""Nets in files, and what ships to try things at once: three trained nets, and forty
images of MNIST."""

from __future__ import annotations

import hashlib
import io
from pathlib import Path

import numpy as np

import highway_networks as hn
from highway_suite.files import expanded, write_file

HERE = Path(__file__).resolve().parent
TRAINED = ("highway", "residual", "plain")


def save_net(net: hn.DeepNet, path: str | Path) -> None:
    """Write settings and weights as one .npz, without pickles, whole or not at all.
    Raises OSError."""
    content = io.BytesIO()
    np.savez_compressed(content, params=net.params, **net.settings)
    write_file(path, content.getvalue())


def load_net(path: str | Path) -> hn.DeepNet:
    """The net that `save_net` wrote. Raises OSError for a file that cannot be opened,
    ValueError for one that is something else. Its block must be in BLOCKS, with the
    functions that it was trained with: they are not in the file."""
    with open(expanded(path), "rb") as file:
        try:
            with np.load(file) as archive:          # no pickles
                params = archive["params"]
                settings = {name: archive[name].item() for name in archive.files
                            if name != "params"}
            if settings["block"] not in hn.BLOCKS:
                raise ValueError(f"its block is {settings['block']!r}, which BLOCKS "
                                 "lacks; run the code that adds it first")
            net = hn.DeepNet(**settings, dtype=params.dtype)
            if params.shape != net.params.shape or not np.isfinite(params).all():
                raise ValueError(f"{params.shape} weights, not {net.params.size}, each "
                                 "a finite number")
        except Exception as error:      # zipfile, zlib, numpy: each its own kind
            raise ValueError(f"{path} is not a saved DeepNet: {error}") from error
    net.params[...] = params
    return net


def weights_hash(net: hn.DeepNet) -> str:
    """SHA-256 of a net's weights."""
    return hashlib.sha256(net.params.tobytes()).hexdigest()


def trained_net(block: str) -> hn.DeepNet:
    """A net of 49 blocks that was trained on all of MNIST, pixels from -1 to 1; see
    results/trained_nets. block: one of `TRAINED`; for another one there is no file.
    """
    installed = HERE / "trained_nets"       # in the wheel; in a checkout, results
    folder = installed if installed.is_dir() else hn.HERE / "results" / "trained_nets"
    return load_net(folder / f"{block}.npz")


def mnist_images() -> tuple[np.ndarray, np.ndarray]:
    """The forty images, uint8 (40, 784), and their labels (40,); mnist40/README.md says
    which they are. A net takes images / 127.5 - 1; images * 2 would overflow."""
    with np.load(HERE / "mnist40" / "images.npz") as archive:
        return archive["images"], archive["labels"]
