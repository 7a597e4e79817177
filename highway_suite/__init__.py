"""What stands around the machine: data sets, records, figures, checkpoints, workers and
the whole command line."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from highway_networks import Data


def load(name: str, data_dir: str | Path | None = None) -> Data:
    """A data set by name, fetched if it is not there -> highway_networks.Data. Raises
    highway_networks.DataError. See highway_suite.datasets."""
    from highway_suite import datasets  # which takes NumPy: so this module is light
    return datasets.load(name, data_dir)
