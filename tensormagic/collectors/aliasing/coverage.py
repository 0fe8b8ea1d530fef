"""Which part of a piece of memory a strided region reads, cell by cell: what the strips of ``%aliases`` are drawn from.

Exact: small spans are marked byte by byte, larger ones are counted by arithmetic on their strides.
"""

from __future__ import annotations

import numpy as np

from tensormagic.collectors.aliasing.sharing import Shared
from tensormagic.collectors.geometry.geometry import count_between
from tensormagic.collectors.geometry.overlap import Region, marked, solid_bytes

CELLS = 40
_MARKED = 2**16


def cell_bytes(piece: Shared) -> int:
    """Return how many bytes one of at most `CELLS` cells has: a whole number of the largest elements in there."""
    sizes = [entry.item.element_size() if entry.is_tensor else 1 for entry in piece.entries[:CELLS]]
    unit = max(sizes, default=1)
    return max(-(-piece.nbytes // (CELLS * unit)), 1) * unit


def coverage(region: Region, nbytes: int, cell: int) -> tuple[float | None, ...]:
    """Return for each cell which part of its bytes a region reads; None where that is too hard to count.

    Args:
        region: What is read, counted from the first byte of the memory.
        nbytes: Size of the memory.
        cell: Bytes of a cell.
    """
    edges = list(range(0, nbytes, cell))
    if 0 in region.shape:
        return tuple(0.0 for _ in edges)
    solid = solid_bytes(region)
    if solid is not None:
        return tuple(_share(max(solid[0], low), min(solid[1], low + cell), low, nbytes, cell) for low in edges)
    if region.stop <= _MARKED and region.start >= 0 and region.elements <= _MARKED:
        touched = np.zeros(len(edges) * cell, dtype=np.bool_)
        touched[: min(nbytes, region.stop)] = marked(region, region.stop)[: min(nbytes, region.stop)]
        counted = touched.reshape(len(edges), cell).sum(axis=1).tolist()
        return tuple(number / min(cell, nbytes - low) for number, low in zip(counted, edges, strict=True))
    return tuple(_counted(region, low, min(low + cell, nbytes)) for low in edges)


def _share(start: int, stop: int, low: int, nbytes: int, cell: int) -> float:
    return max(stop - start, 0) / min(cell, nbytes - low)


def _counted(region: Region, low: int, high: int) -> float | None:
    pattern = region.pattern
    number = count_between(pattern, low, high) if pattern is not None else 0
    return None if number is None else min(number * region.itemsize / (high - low), 1.0)
