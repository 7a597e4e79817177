"""The numbers and tables that stand in the texts, each computed from a record.

A function marked `about` is given one record, or several, and returns {name: text}; in
a text the name is that of the function, a dot, and this one: `lesion.worst`. A name
without a dot, as `headline`, is that of a table.
"""

from __future__ import annotations

from pathlib import Path

from experiments.lab import sound
from experiments.values import depth_law, headline, language, movement, nets, speed
from experiments.values.common import ABOUT, read

__all__ = ["collect", "depth_law", "headline", "language", "movement", "nets", "speed"]


def collect(root: Path) -> dict[str, str]:
    """The folder of the records -> {name: text} of all values and tables."""
    found: dict[str, str] = {}
    for name, (function, paths) in ABOUT.items():
        records = [read(root / path) for path in paths]
        with sound(root / (paths or ("",))[0], f"the command that it names ({name})"):
            values = function(*records)
        found |= ({name: values} if isinstance(values, str) else
                  {f"{name}.{key}": text for key, text in values.items()})
    return found
