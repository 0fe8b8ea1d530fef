"""Which elements of one tensor lie in the memory that another one writes to: how many, and which is the first.

Counted in a picture of the memory between them, one byte for a byte, as long as that is small; beyond that the count
comes from `overlap_elements` and the first index from the strides, where they tell it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tensormagic.collectors.geometry.overlap import Region, overlap_elements

PICTURE_LIMIT = 2**22  # bytes
MOST_MARKS = 48


@dataclass(frozen=True, slots=True)
class Touched:
    """What a write reaches of another tensor.

    Attributes:
        elements: How many of its indices; None where that takes too long.
        first: The first of them, row by row; None where not known.
        marks: Where they lie, row by row: a digit for each of at most `MOST_MARKS` equal parts of the other tensor,
            from 0 (nothing in it) to 9 (all of it); empty where not known.
    """

    elements: int | None
    first: tuple[int, ...] | None
    marks: str = ""


def touched(other: Region, written: Region, mask: np.ndarray | None = None) -> Touched:
    """Return which elements of ``other`` a write reaches.

    Args:
        other: The tensor that is looked at.
        written: The tensor that was written to.
        mask: Which of its elements were, by index; None: all.
    """
    low, high = min(other.start, written.start), max(other.stop, written.stop)
    if max(high - low, other.elements * other.itemsize, written.elements * written.itemsize) <= PICTURE_LIMIT:
        return _by_picture(other, written, mask, low, high)
    count = overlap_elements(other, written)
    return Touched(count, _index_of(other, written.start), "9" if count == other.elements else "")


def _by_picture(other: Region, written: Region, mask: np.ndarray | None, low: int, high: int) -> Touched:
    picture = np.zeros(high - low, dtype=np.bool_)
    cells = _bytes_of(picture, written, low)
    if mask is None:
        cells[...] = True
    else:
        np.logical_or(cells, mask[..., None], out=cells)
    hit = np.asarray(_bytes_of(picture, other, low).any(axis=-1))
    count = int(np.count_nonzero(hit))
    if not count:
        return Touched(0, None)
    first = np.unravel_index(int(np.argmax(hit)), other.shape) if other.shape else ()
    return Touched(count, tuple(map(int, first)), _marks(hit))


def _marks(hit: np.ndarray) -> str:
    """Return the share of true values in equal parts, as digits; a part with some but not all is 1 to 8."""
    flat = hit.reshape(-1)
    parts = min(flat.size, MOST_MARKS)
    edges = np.arange(parts + 1) * flat.size // parts
    shares = np.add.reduceat(flat, edges[:-1], dtype=np.int64) / np.diff(edges)
    digits = np.where(shares == 0, 0, np.where(shares == 1, 9, np.clip(np.round(shares * 9), 1, 8)))
    return "".join(map(str, digits.astype(int)))


def _bytes_of(picture: np.ndarray, region: Region, low: int) -> np.ndarray:
    """Return the bytes of a region in the picture, one more dimension for the bytes of an element."""
    shape, stride = (*region.shape, region.itemsize), (*region.stride, 1)
    return np.lib.stride_tricks.as_strided(picture[region.start - low :], shape, stride)


def _index_of(other: Region, byte: int) -> tuple[int, ...] | None:
    """Return which index of ``other`` starts at ``byte``, where the bytes come in reading order."""
    if any(step < following for step, following in zip(other.stride, other.stride[1:], strict=False)):
        return None
    return index_at(other, byte)


def index_at(region: Region, byte: int) -> tuple[int, ...] | None:
    """Return an index of a region whose element starts at ``byte``; None where none is found."""
    rest, index = byte - region.start, [0] * len(region.shape)
    for dim in sorted(range(len(index)), key=lambda dim: -region.stride[dim]):
        step = region.stride[dim]
        index[dim] = max(min(rest // step, region.shape[dim] - 1), 0) if step else 0
        rest -= index[dim] * step
    return tuple(index) if rest == 0 else None
