"""What stands around the machine: data sets, records, figures, checkpoints, workers and
the whole command line."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from highway_networks import Data


def load(name: str, data_dir: str | Path | None = None) -> Data:
    """A data set by name, fetched if it is not there -> highway_networks.Data. Raises
    highway_networks.DataError. See highway_suite.datasets."""
    from highway_suite import datasets  # which takes NumPy: so this module is light
    return datasets.load(name, data_dir)


def forget_missing_backend() -> None:
    """Forget a $MPLBACKEND that is not installed here. A notebook hands its own down to
    all that it starts, and Matplotlib could not even be imported; no picture of ours
    needs a backend."""
    name, library = os.environ.get("MPLBACKEND", ""), find_spec("matplotlib")
    if not name or library is None or "matplotlib" in sys.modules:
        return
    if name.startswith("module://"):
        there = find_spec(name.removeprefix("module://").split(".")[0]) is not None
    else:
        there = (Path(str(library.origin)).parent / "backends"
                 / f"backend_{name.lower()}.py").exists()
    if not there:
        del os.environ["MPLBACKEND"]


forget_missing_backend()


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
