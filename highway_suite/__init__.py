"""What stands around the machine: data sets, records, figures, checkpoints, workers and
the whole command line."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from highway_networks import Data


def load(name: str, data_dir: str | Path | None = None) -> Data:
    """A data set by name, fetched if it is not there -> highway_networks.Data. Raises
    highway_networks.DataError. See highway_suite.datasets."""
    from highway_suite import datasets  # which takes NumPy: so this module is light
    return datasets.load(name, data_dir)


def __getattr__(name: str) -> Any:
    """HighwayClassifier, once somebody asks for it: it alone needs scikit-learn."""
    if name != "HighwayClassifier":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from highway_suite.classifier import HighwayClassifier
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "sklearn":
            raise
        raise ImportError("HighwayClassifier needs scikit-learn: pip install "
                          "scikit-learn") from None
    return HighwayClassifier
