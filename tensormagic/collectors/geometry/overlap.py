"""Whether, and how much, two strided regions of memory overlap: exactly, and without reading memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import Any, Literal

import numpy as np
import torch

from tensormagic.collectors.geometry.layout import count_distinct
from tensormagic.collectors.geometry.strides import Pattern, count_between

# Comparing address ranges is not enough: ``x[:, ::2]`` and ``x[:, 1::2]`` lie in the same range and share nothing.
# NumPy solves the question exactly (``numpy.shares_memory``, a bounded search over strides), and never looks at what
# lies at the addresses: made-up ones do as well.

MAX_WORK = 100_000
COUNT_LIMIT = 2**22
_TOO_HARD: type[Exception] = getattr(np, "exceptions", np).TooHardError  # moved in NumPy 1.25
_BASE = 2**48  # made up; high enough for regions that start before the storage they are compared with


@dataclass(frozen=True, slots=True)
class Region:
    """A strided region of memory."""

    start: int  # byte of its first element, counted from any point that both regions share
    shape: tuple[int, ...]  # sizes
    stride: tuple[int, ...]  # in bytes; not negative
    itemsize: int  # bytes an element
    turned: tuple[int, ...] = ()  # dimensions that NumPy walks backwards, turned round here

    @classmethod
    def of(cls, start: int, shape: Sequence[int], stride: Sequence[int], itemsize: int) -> Region:
        """Return a region, of any strides."""
        for size, step in zip(shape, stride, strict=True):
            start += min((size - 1) * step, 0) if size else 0
        turned = tuple(dim for dim, step in enumerate(stride) if step < 0)
        return cls(start, tuple(shape), tuple(abs(step) for step in stride), itemsize, turned)

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
    _bytes_of(touched, region, 0)[...] = True
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
    _bytes_of(touched, y, low)[...] = True
    starts = np.zeros(high - low, dtype=np.bool_)
    _bytes_of(starts, x, low)[..., 0] = True
    firsts = np.flatnonzero(starts)
    return int(np.any(touched[firsts[:, None] + np.arange(x.itemsize)], axis=1).sum())


# Which elements of one tensor lie in the memory that another one writes to: how many, and which is the first.
#
# Counted in a picture of the memory between them, one byte for a byte, as long as that is small; beyond that the
# count comes from `overlap_elements` and the first index from the strides, where they show it.

PICTURE_LIMIT = 2**22  # bytes
MOST_MARKS = 48


@dataclass(frozen=True, slots=True)
class Touched:
    """What a write reaches of another tensor."""

    elements: int | None  # How many of its indices; None where that takes too long.
    first: tuple[int, ...] | None  # The first of them, row by row; None where not known.
    # Where they lie, row by row: a digit for each of at most `MOST_MARKS` equal parts of the other tensor, from 0
    # (nothing in it) to 9 (all of it); empty where not known.
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
    falling = all(step >= following for step, following in pairwise(other.stride))
    in_order = falling and not other.turned  # bytes come as they are read
    first = index_at(other, written.start) if in_order else None
    return Touched(count, first, "9" if count == other.elements else "")


def _by_picture(other: Region, written: Region, mask: np.ndarray | None, low: int, high: int) -> Touched:
    picture = np.zeros(high - low, dtype=np.bool_)
    cells = _bytes_of(picture, written, low)
    cells[... if mask is None else mask] = True  # by assignment: an element may be several of its indices
    hit = np.flip(_bytes_of(picture, other, low).any(axis=-1), other.turned)
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
    """Return the bytes of a region in a picture that starts at byte ``low``, those of an element last."""
    shape, stride = (*region.shape, region.itemsize), (*region.stride, 1)
    return np.lib.stride_tricks.as_strided(picture[region.start - low :], shape, stride)


def index_at(region: Region, byte: int) -> tuple[int, ...] | None:
    """Return an index of a region whose element starts at ``byte``; None where none is found."""
    rest, index = byte - region.start, [0] * len(region.shape)
    for dim in sorted(range(len(index)), key=lambda dim: -region.stride[dim]):
        step = region.stride[dim]
        index[dim] = max(min(rest // step, region.shape[dim] - 1), 0) if step else 0
        rest -= index[dim] * step
    return tuple(index) if rest == 0 else None


# Which elements a masked or indexed write reaches: ``x[mask] = 0`` writes to some of x, not to all.
#
# The op is done once more, on a fresh tensor of truth values of the same shape: what is true afterwards was written
# to. Only on the CPU and within a bound; else the answer is "at most all of it".

LIMIT = 2**20  # elements

Mark = Callable[[torch.Tensor, tuple[Any, ...]], Any]


def _put(mark: torch.Tensor, args: tuple[Any, ...]) -> None:
    mark.index_put_(list(args[1]), torch.tensor(data=True))


def _fill_at_index(mark: torch.Tensor, args: tuple[Any, ...]) -> None:
    mark.index_fill_(args[1], args[2], True)  # noqa: FBT003  (the value)


def _scatter(mark: torch.Tensor, args: tuple[Any, ...]) -> None:
    mark.scatter_(args[1], args[2], True)  # noqa: FBT003


def _masked(mark: torch.Tensor, args: tuple[Any, ...]) -> None:
    mark.masked_fill_(args[1], True)  # noqa: FBT003


def _put_flat(mark: torch.Tensor, args: tuple[Any, ...]) -> None:
    mark.put_(args[1], torch.ones_like(args[1], dtype=torch.bool))


_MARKS: dict[str, Mark] = {
    "index_put_": _put,
    "_index_put_impl_": _put,
    "index_fill_": _fill_at_index,
    "index_copy_": _fill_at_index,
    "index_add_": _fill_at_index,
    "index_reduce_": _fill_at_index,
    "scatter_": _scatter,
    "scatter_add_": _scatter,
    "scatter_reduce_": _scatter,
    "masked_fill_": _masked,
    "masked_scatter_": _masked,
    "put_": _put_flat,
}


def is_scattered(op_name: str) -> bool:
    """Return whether this op writes to some elements of its target only."""
    return op_name in _MARKS


def written_elements(op_name: str, target: torch.Tensor, args: tuple[Any, ...]) -> np.ndarray | None:
    """Return which elements of ``target`` the call wrote to, as an array of truth values; None where not known.

    Call it outside all modes (`quiet`).
    """
    if target.device.type != "cpu" or target.numel() > LIMIT or not args or args[0] is not target:
        return None
    mark = torch.zeros(target.shape, dtype=torch.bool)
    try:
        _MARKS[op_name](mark, args)
    except (RuntimeError, IndexError, TypeError, ValueError, KeyError):
        return None  # other arguments than these ops have today
    found: np.ndarray = mark.numpy()
    return found
