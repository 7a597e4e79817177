"""Nets of equal size: the width at which a form has the highway net's parameters."""

from __future__ import annotations

import highway_networks as hn


def count_parameters(block: str, blocks: int, hidden: int, inputs: int, classes: int
                     ) -> int:
    """Weights and biases of a whole DeepNet of so many blocks."""
    rows = hidden * (1 + len(hn.BLOCKS[block].gates))
    return hn.Parameters(hn.DeepNet.shapes(blocks, hidden, rows, inputs, classes)).size


def matched_width(block: str, blocks: int, hidden: int, inputs: int, classes: int
                  ) -> int:
    """The width whose parameters are nearest to those of the highway net of `hidden`
    units. No form has fewer matrices than one to its two: none is twice as wide."""
    target = count_parameters("highway", blocks, hidden, inputs, classes)
    return min(range(1, 2 * hidden), key=lambda units: abs(
        count_parameters(block, blocks, units, inputs, classes) - target))
