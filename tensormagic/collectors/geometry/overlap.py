"""Whether, and how much, two strided regions of memory overlap: exactly, and without reading memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np
import torch

from tensormagic.collectors.geometry.layout import count_distinct
from tensormagic.collectors.geometry.strides import Pattern, count_between
from tensormagic.collectors.quiet import number, numbers

# Comparing address ranges is not enough: ``x[:, ::2]`` and ``x[:, 1::2]`` lie in the same range and share nothing.
# NumPy solves the question exactly (``numpy.shares_memory``, a bounded search over strides), and never looks at what
# lies at the addresses: made-up ones do as well.

MAX_WORK = 100_000
PICTURE_LIMIT = 2**22  # bytes between two regions up to which what they share is counted in a picture of them
MOST_MARKS = 48
LIMIT = 2**20  # elements of a tensor, of which it is found out which were written to
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


def region_of(x: torch.Tensor, shift: int) -> Region:
    """Return the bytes a strided tensor reads, its storage starting at byte ``shift``."""
    size = x.element_size()
    start = shift + number(x.storage_offset()) * size
    return Region.of(start, numbers(x.shape), tuple(step * size for step in numbers(x.stride())), size)


def array_region(array: Any, origin: int = 0) -> Region:
    """Return the bytes of an array, counted from an address; nothing of a subclass is called."""
    interface = np.ndarray.__array_interface__.__get__(array)
    strides, itemsize = np.ndarray.strides.__get__(array), np.ndarray.itemsize.__get__(array)
    return Region.of(interface["data"][0] - origin, interface["shape"], strides, itemsize)


def place_of(x: Any) -> Region:
    """Return the bytes of an array or strided tensor: addresses where it has memory, else from its storage's start."""
    if not isinstance(x, torch.Tensor):
        return array_region(x)
    address = 0 if x.device.type == "meta" else x.data_ptr()
    shift = address - int(x.storage_offset()) * x.element_size() if address else 0
    return region_of(x, shift)


def overlap(x: Region, y: Region) -> Literal["yes", "no", "maybe"]:
    """Return whether two regions have a byte in common; "maybe" where finding out would take too long."""
    if 0 in x.shape or 0 in y.shape:
        return "no"
    arrays: list[np.ndarray] = []
    for region in (x, y):
        place = {"shape": region.shape, "strides": region.stride, "data": (_BASE + region.start, True)}
        interface = {"version": 3, "typestr": f"|V{region.itemsize}", **place}
        arrays.append(np.asarray(SimpleNamespace(__array_interface__=interface)))
    try:
        left, right = arrays
        shared = np.shares_memory(left, right, max_work=MAX_WORK)  # type: ignore[arg-type]  # NumPy's stubs know 0, -1
    except _TOO_HARD:
        return "maybe"
    return "yes" if shared else "no"


def overlap_elements(x: Region, y: Region) -> int | None:
    """Return how many different elements of x have a byte in common with y; None where counting takes too long."""
    reads, writes = x.pattern, y.pattern
    if reads is None or writes is None or overlap(x, y) == "no":
        return 0
    start, stop, distinct = writes.offset, writes.highest + y.itemsize, count_distinct(writes)
    covered = None if distinct is None else distinct * y.itemsize
    if covered == stop - start and all(not axis.stride % y.itemsize for axis in writes.axes):  # y leaves no gaps
        within = start <= reads.offset and reads.highest + x.itemsize <= stop
        count = count_distinct(reads) if within else count_between(reads, start - x.itemsize + 1, stop)
        if count is not None:
            return count
    if (reads.offset, reads.axes, x.itemsize) == (writes.offset, writes.axes, y.itemsize):
        return count_distinct(reads)
    # Every byte that both reach is marked in a picture of the memory between them.
    low, high = min(x.start, y.start), max(x.stop, y.stop)
    if max(high - low, x.elements, y.elements) > PICTURE_LIMIT:
        return None
    starts, picture = np.zeros(high - low, dtype=np.bool_), np.zeros(high - low, dtype=np.bool_)
    _bytes_of(starts, x, low)[..., 0] = True
    _bytes_of(picture, y, low)[...] = True
    each = np.flatnonzero(starts)[:, None] + np.arange(x.itemsize)
    return int(np.any(picture[each], axis=1).sum())


# Which elements of one tensor lie in the memory that another one writes to: how many, and which is the first. Beyond
# the picture's limit the count is that of `overlap_elements`, the first index that which the strides show.
@dataclass(frozen=True, slots=True)
class Touched:
    """What a write reaches of another tensor."""

    elements: int | None  # How many of its indices; None where that takes too long.
    first: tuple[int, ...] | None  # The first of them, row by row; None where not known.
    # Where they lie, row by row: a digit for each of at most `MOST_MARKS` equal parts of the other tensor, from 0
    # (nothing in it) to 9 (all of it); empty where not known.
    marks: str = ""


def touched(other: Region, written: Region, mask: np.ndarray | None = None) -> Touched:
    """Return which elements of ``other`` a write reaches; a mask says which elements were written to, None: all."""
    low, high = min(other.start, written.start), max(other.stop, written.stop)
    if max(high - low, other.elements * other.itemsize, written.elements * written.itemsize) > PICTURE_LIMIT:
        count = overlap_elements(other, written)
        falling = all(step >= following for step, following in pairwise(other.stride))
        in_order = falling and not other.turned  # bytes come as they are read
        first = index_at(other, written.start) if in_order else None
        return Touched(count, first, "9" if count == other.elements else "")
    picture = np.zeros(high - low, dtype=np.bool_)
    cells = _bytes_of(picture, written, low)
    cells[... if mask is None else mask] = True  # by assignment: an element may be several of its indices
    hit = np.flip(_bytes_of(picture, other, low).any(axis=-1), other.turned)
    flat, count = hit.reshape(-1), int(np.count_nonzero(hit))
    if not count:
        return Touched(0, None)
    # The share of true values in equal parts, as digits: a part with some but not all is 1 to 8.
    parts = min(flat.size, MOST_MARKS)
    edges = np.arange(parts + 1) * flat.size // parts
    shares = np.add.reduceat(flat, edges[:-1], dtype=np.int64) / np.diff(edges)
    digits = np.where(shares == 0, 0, np.where(shares == 1, 9, np.clip(np.round(shares * 9), 1, 8)))
    index = np.unravel_index(int(np.argmax(hit)), other.shape) if other.shape else ()
    return Touched(count, tuple(map(int, index)), "".join(map(str, digits.astype(int))))


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
# By op: which method marks what it writes to, and how many of its arguments say where that is.
_MARKS: dict[str, tuple[str, int]] = {
    **dict.fromkeys(("index_put_", "_index_put_impl_"), ("index_put_", 1)),
    **dict.fromkeys(("index_fill_", "index_copy_", "index_add_", "index_reduce_"), ("index_fill_", 2)),
    **dict.fromkeys(("scatter_", "scatter_add_", "scatter_reduce_"), ("scatter_", 2)),
    **dict.fromkeys(("masked_fill_", "masked_scatter_"), ("masked_fill_", 1)),
    "put_": ("put_", 1),
}


def written_elements(op_name: str, target: torch.Tensor, args: tuple[Any, ...]) -> tuple[np.ndarray | None, bool]:
    """Return which elements of ``target`` the call wrote to, as truth values, and whether that is known.

    None stands for all of them, or for those that are not known. Call it outside all modes (`quiet`).
    """
    if op_name not in _MARKS:
        return None, True
    if target.device.type != "cpu" or target.numel() > LIMIT or not args or args[0] is not target:
        return None, False
    mark, (method, places) = torch.zeros(target.shape, dtype=torch.bool), _MARKS[op_name]
    value: Any = True
    try:
        if method == "index_put_":
            value = torch.tensor(data=True)
        elif method == "put_":
            value = torch.ones_like(args[1], dtype=torch.bool)
        getattr(mark, method)(*args[1 : 1 + places], value)
    except (RuntimeError, IndexError, TypeError, ValueError):
        return None, False  # other arguments than these ops have today
    return mark.numpy(), True
