"""Whether, and how much, two strided regions of memory overlap: exactly, and without reading memory.

Comparing address ranges is not enough: ``x[:, ::2]`` and ``x[:, 1::2]`` lie in the same range and share nothing.
NumPy solves the question exactly (``numpy.shares_memory``, a bounded search over strides), and never looks at what lies
at the addresses: made-up ones do as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Literal

import numpy as np

from tensormagic.collectors.geometry.geometry import Pattern, count_between
from tensormagic.collectors.geometry.layout import count_distinct

MAX_WORK = 100_000
COUNT_LIMIT = 2**22
_TOO_HARD: type[Exception] = getattr(np, "exceptions", np).TooHardError  # moved in NumPy 1.25
_BASE = 2**48  # made up; high enough for regions that start before the storage they are compared with


@dataclass(frozen=True, slots=True)
class Region:
    """A strided region of memory.

    Attributes:
        start: Byte of its first element, counted from any point that both regions share.
        shape: Sizes.
        stride: In bytes; not negative.
        itemsize: Bytes an element.
    """

    start: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    itemsize: int

    @classmethod
    def of(cls, start: int, shape: Sequence[int], stride: Sequence[int], itemsize: int) -> Region:
        """Return a region, dimensions that NumPy walks backwards turned round."""
        for size, step in zip(shape, stride, strict=True):
            start += min((size - 1) * step, 0) if size else 0
        return cls(start, tuple(shape), tuple(abs(step) for step in stride), itemsize)

    @property
    def elements(self) -> int:
        """How many elements it has."""
        return prod(self.shape)

    @property
    def stop(self) -> int:
        """One past the last byte of its last element."""
        return self.start + sum((n - 1) * step for n, step in zip(self.shape, self.stride, strict=True)) + self.itemsize

    @property
    def pattern(self) -> Pattern | None:
        """What is read, in bytes: of each element the first."""
        return Pattern.of(self.shape, self.stride, self.start)


class _Interface:
    """Something that NumPy takes for an array at a made-up address."""

    def __init__(self, region: Region) -> None:
        self.__array_interface__: dict[str, Any] = {
            "version": 3,
            "shape": region.shape,
            "strides": region.stride,
            "typestr": f"|V{region.itemsize}",
            "data": (_BASE + region.start, True),
        }


def overlap(x: Region, y: Region) -> Literal["yes", "no", "maybe"]:
    """Return whether two regions have a byte in common; "maybe" where finding out would take too long."""
    if 0 in x.shape or 0 in y.shape:
        return "no"
    left, right = np.asarray(_Interface(x)), np.asarray(_Interface(y))
    try:
        shared = np.shares_memory(left, right, max_work=MAX_WORK)  # type: ignore[arg-type]  # NumPy's stubs know 0, -1
    except _TOO_HARD:
        return "maybe"
    return "yes" if shared else "no"


def overlap_elements(x: Region, y: Region) -> int | None:
    """Return how many different elements of x have a byte in common with y; None where counting takes too long."""
    reads, writes = x.pattern, y.pattern
    if reads is None or writes is None:
        return 0
    solid = _solid(writes, y.itemsize)
    if solid is not None and (count := _count_in_range(reads, solid, x.itemsize)) is not None:
        return count
    if (reads.offset, reads.axes, x.itemsize) == (writes.offset, writes.axes, y.itemsize):
        return count_distinct(reads)
    return _count_by_marking(x, y)


def solid_bytes(region: Region) -> tuple[int, int] | None:
    """Return first byte and one past the last where a region covers every byte between; None where it leaves gaps."""
    pattern = region.pattern
    return None if pattern is None else _solid(pattern, region.itemsize)


def marked(region: Region, size: int) -> np.ndarray:
    """Return a picture of memory of ``size`` bytes, from the point a region counts from: True where it has a byte."""
    touched = np.zeros(size, dtype=np.bool_)
    _at(touched, region, 0, whole=True)[...] = True
    return touched


def _solid(pattern: Pattern, itemsize: int) -> tuple[int, int] | None:
    """Return the bytes from first to last, where a pattern covers all of them; None where it leaves gaps."""
    distinct, length = pattern.distinct(), pattern.highest - pattern.lowest + itemsize
    covered = (
        distinct is not None and distinct * itemsize == length and all(a.stride % itemsize == 0 for a in pattern.axes)
    )
    return (pattern.lowest, pattern.lowest + length) if covered else None


def _count_in_range(reads: Pattern, solid: tuple[int, int], itemsize: int) -> int | None:
    start, stop = solid
    if start <= reads.lowest and reads.highest + itemsize <= stop:
        return count_distinct(reads)
    return count_between(reads, start - itemsize + 1, stop)


def _count_by_marking(x: Region, y: Region) -> int | None:
    """Mark every byte that both reach in a picture of the memory between them; None where that is too large."""
    low = min(x.start, y.start)
    high = max(x.stop, y.stop)
    if max(high - low, x.elements, y.elements) > COUNT_LIMIT:
        return None
    touched = np.zeros(high - low, dtype=np.bool_)
    _at(touched, y, low, whole=True)[...] = True
    starts = np.zeros(high - low, dtype=np.bool_)
    _at(starts, x, low, whole=False)[...] = True
    firsts = np.flatnonzero(starts)
    return int(np.any(touched[firsts[:, None] + np.arange(x.itemsize)], axis=1).sum())


def _at(picture: np.ndarray, region: Region, low: int, *, whole: bool) -> np.ndarray:
    """Return the bytes of a region in a picture that starts at byte ``low``: of each element all, or the first."""
    shape, stride = (region.shape, region.stride)
    if whole:
        shape, stride = (*shape, region.itemsize), (*stride, 1)
    return np.lib.stride_tricks.as_strided(picture[region.start - low :], shape, stride)
