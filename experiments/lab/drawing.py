"""What the figures of experiments share: the sheet, colours, dashes, axes."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator

from highway_suite import figures
from highway_suite.datasets import DATASETS
from highway_suite.figures import COLOURS, TINTS, sheet

__all__ = ("DASHED", "colour_of", "data_of", "draw_band", "draw_level", "log_y",
           "plain_numbers", "sheet", "signed")
DASHED = (0, (3, 1.2))


def data_of(plan: dict) -> str:
    """A plan's data set, as pictures name it."""
    return DATASETS[plan["dataset"]].title


def colour_of(block: str) -> str:
    """The colour of a block on every figure; grey, if it was added to hn.BLOCKS."""
    return COLOURS.get(block, TINTS.soft)


def signed(value: float) -> str:
    """A number, with a minus sign and not a hyphen."""
    return f"{value:g}".replace("-", "−")


def draw_band(axes: Axes, x: Any, values: Any, colour: str, **line: Any) -> None:
    """Median and range of the nets' values (N, X) as a line in a band."""
    values = np.array(values, float)
    axes.plot(x, np.median(values, axis=0), color=colour, **line)
    axes.fill_between(x, values.min(axis=0), values.max(axis=0), color=colour,
                      alpha=0.2, linewidth=0)


def draw_level(axes: Axes, height: float) -> None:
    """A dotted line across the axes."""
    axes.axhline(height, color=TINTS.soft, linewidth=1.2, linestyle=":", zorder=1.5)


def plain_numbers(axis: Axis) -> None:
    """A logarithmic axis with its numbers written out, the more the shorter it is."""
    low, high = axis.get_view_interval()
    digits = (1, 2, 5) if high > 8 * low else (1, 1.5, 2, 2.5, 3, 4, 5, 6, 8)
    ticks = [digit * 10.0 ** power for power in range(-6, 6) for digit in digits]
    axis.set_major_locator(FixedLocator([v for v in ticks if low <= v <= high])
                           if high > 1.6 * low else MaxNLocator(5))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(lambda value, _: f"{value:g}")


def log_y(axes: Axes, label: str) -> None:
    """A logarithmic y-axis with plain numbers, once all lines are there."""
    axes.set_yscale("log")
    plain_numbers(axes.yaxis)
    figures.label_y(axes, f"{label} (log scale)")
