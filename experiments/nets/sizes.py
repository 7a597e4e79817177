"""Nets of equal size: the width at which a form has the highway net's parameters."""

from __future__ import annotations

import highway_networks as hn


def matched_width(block: str, blocks: int, hidden: int, inputs: int, classes: int
                  ) -> int:
    """The width at which a form is nearest in parameters, those of a whole DeepNet of
    so many blocks, to the highway net of `hidden` units. Highway has two matrices in
    each block, and every form has at least one: no form is twice as wide."""
    def size(form, units):
        rows = units * (1 + len(hn.block_of(form, blocks).gates))
        return (inputs + 1) * units + (units + 1) * (blocks * rows + classes)
    target = size("highway", hidden)
    return min(range(1, 2 * hidden), key=lambda units: abs(size(block, units) - target))
