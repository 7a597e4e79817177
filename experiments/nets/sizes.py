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
    """The width at which a form is nearest in parameters to the highway net of `hidden`
    units. Highway has two matrices in each block, and every form has at least one: no
    form is twice as wide."""
    target = count_parameters("highway", blocks, hidden, inputs, classes)
    return min(range(1, 2 * hidden), key=lambda units: abs(
        count_parameters(block, blocks, units, inputs, classes) - target))
