"""What stands around the machine: data sets, saved nets, records, figures, checkpoints,
workers, the classifier and the whole command line.

    import highway_suite
    data = highway_suite.load("mnist")
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

PUBLIC = {      # imported once somebody asks for it, so that this module is light
    "load": "datasets", "train": "training", "save_net": "nets", "load_net": "nets",
    "HighwayClassifier": "classifier"}


def __getattr__(name: str) -> Any:
    """One of `PUBLIC`. Raises ImportError where its library is missing."""
    if name not in PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(f"highway_suite.{PUBLIC[name]}"), name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "sklearn":
            raise
        raise ImportError("HighwayClassifier needs scikit-learn: pip install "
                          "scikit-learn") from None


def __dir__() -> list[str]:
    return sorted(PUBLIC)
