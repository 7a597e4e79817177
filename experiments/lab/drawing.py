"""What the figures of experiments share: colours, dashes, axes."""

from __future__ import annotations

import numpy as np
from matplotlib.axis import Axis
from matplotlib.colors import to_rgb
from matplotlib.ticker import (
    FixedLocator,
    LogLocator,
    MaxNLocator,
    NullFormatter,
    NullLocator,
)

from highway_suite import figures
from highway_suite.figures import COLOURS

GREY = "#8C8C8C"
DASHES = {"highway": "-", "plain": (0, (3, 1.2))}       # where colour is not enough


def title_of(record: dict) -> str:
    """A record's data set, as pictures name it."""
    return figures.title_of(record["dataset"])


def colour_of(block: str) -> str:
    """The colour of a block on every figure; grey, if it was added to hn.BLOCKS."""
    return COLOURS.get(block, GREY)


def pale(colour: str, strength: float) -> tuple:
    """A colour of Matplotlib, mixed with white: strength 1 is the colour itself."""
    return tuple(1 - strength * (1 - np.array(to_rgb(colour))))


def format_log(axis: Axis) -> None:
    """Plain numbers on a log scale, 1, 2 and 5 of each decade."""
    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter(NullFormatter())


def plain_numbers(axis: Axis) -> None:
    """A logarithmic axis with its numbers written out, the more the shorter it is."""
    low, high = axis.get_view_interval()
    digits = (1, 2, 5) if high > 8 * low else (1, 1.5, 2, 2.5, 3, 4, 5, 6, 8)
    ticks = [digit * 10.0 ** power for power in range(-6, 6) for digit in digits]
    axis.set_major_locator(FixedLocator([v for v in ticks if low <= v <= high])
                           if high > 1.6 * low else MaxNLocator(5))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(lambda value, _: f"{value:g}")
