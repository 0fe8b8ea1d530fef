"""Several tensors on one strip: which bytes each reads, and exactly how much each two have in common."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np
import torch

from tensormagic.collectors.aliasing.aliases import array_region, region_of
from tensormagic.collectors.aliasing.storage_aliases import Entry, Shared
from tensormagic.collectors.geometry.layout import count_distinct, enumerate_reads, total
from tensormagic.collectors.geometry.overlap import Region, marked, overlap, overlap_elements, solid_bytes
from tensormagic.collectors.geometry.strides import Memory, Pattern, count_between
from tensormagic.collectors.objects.namespace import is_kind
from tensormagic.collectors.quiet import quiet
from tensormagic.reports import (
    Gap,
    OverlayElement,
    OverlayMember,
    OverlayPair,
    OverlayReport,
    OverlayRow,
    OverlayStorage,
)
from tensormagic.words import plural

# The bytes that a tensor, an array or a buffer reads, counted from the first byte of the memory it lies in.


def region_in(entry: Entry, piece: Shared) -> Region:
    """Return the region of an entry in a piece of memory. Memory is not read."""
    if entry.is_tensor:
        return region_of(entry.item, piece.shift(entry))
    if is_kind(entry.item, np.ndarray):
        return array_region(entry.item, piece.address)
    return Region(piece.shift(entry), (entry.memory.nbytes if entry.memory else 0,), (1,), 1)


# Which part of a piece of memory a strided region reads, cell by cell: what the strips of ``%aliases`` are drawn
# from.
#
# Exact: small spans are marked byte by byte, larger ones are counted by arithmetic on their strides.

STRIP_CELLS = 40
_MARKED = 2**16


def cell_bytes(piece: Shared) -> int:
    """Return how many bytes one of at most `STRIP_CELLS` cells has: a whole number of the largest elements in there."""
    sizes = [entry.item.element_size() if entry.is_tensor else 1 for entry in piece.entries[:STRIP_CELLS]]
    unit = max(sizes, default=1)
    return max(-(-piece.nbytes // (STRIP_CELLS * unit)), 1) * unit


def coverage(region: Region, nbytes: int, cell: int) -> tuple[float | None, ...]:
    """Return for each cell of a memory which part of its bytes a region reads; None where that is too hard to count."""
    edges = list(range(0, nbytes, cell))
    if 0 in region.shape:
        return tuple(0.0 for _ in edges)
    solid = solid_bytes(region)
    if solid is not None:
        begin, end = solid
        return tuple(max(min(end, low + cell) - max(begin, low), 0) / min(cell, nbytes - low) for low in edges)
    if region.stop <= _MARKED and region.start >= 0 and region.elements <= _MARKED:
        touched = np.zeros(len(edges) * cell, dtype=np.bool_)
        touched[: min(nbytes, region.stop)] = marked(region, 0, region.stop)[: min(nbytes, region.stop)]
        counted = touched.reshape(len(edges), cell).sum(axis=1).tolist()
        return tuple(number / min(cell, nbytes - low) for number, low in zip(counted, edges, strict=True))
    pattern, shares = region.pattern, list[float | None]()
    for low in edges:
        high = min(low + cell, nbytes)
        read = count_between(pattern, low, high) if pattern is not None else 0
        shares.append(None if read is None else min(read * region.itemsize / (high - low), 1.0))
    return tuple(shares)


# All arithmetic is in bytes from the first byte of the memory they share: a float32 and an int8 view of one storage
# are compared like any others. No memory is read.

MOST_MEMBERS = 8
UNITS = 96  # cells up to which every element is drawn by itself
CELLS = 64
MOST_CELLS = 480  # in all rows together, so that a panel stays small
CONTEXT = 8  # units around what is read
MOST_STEPS = 2**16
MOST_RUNS = 2**11  # runs of bytes that are compared one after the other


@dataclass(frozen=True, slots=True)
class _Holder:
    """A tensor or array and its memory. Holds none of them: numbers only."""

    # What the report says about it; its bytes are filled in once the start of the memory is known.
    member: OverlayMember
    identity: int | None  # Of torch's storage object; None for arrays.
    device: str  # As torch writes it.
    low: int  # Address of the first byte of its memory; 0 where there is none.
    nbytes: int  # Size of its memory.
    region: Region  # What it reads, from that address on.

    def touches(self, other: _Holder) -> bool:
        """Return whether the two lie in the same memory."""
        if self.identity is not None and self.identity == other.identity:
            return True
        if self.device != other.device or not self.low or not other.low:
            return False
        return self.low < other.low + other.nbytes and other.low < self.low + self.nbytes


def overlay(tensors: Mapping[str, Any]) -> OverlayReport:
    """Return what at most `MOST_MEMBERS` tensors and arrays have in common. Never raises: an odd one is a gap."""
    with quiet():
        looked = [_holder_or_gap(name, item) for name, item in tensors.items()]
    holders = [one for one in looked if isinstance(one, _Holder)]
    groups = _groups(holders)
    settled = {at: _settled(holders[at], _origin(holders, group)) for group in groups for at in group}
    return OverlayReport(
        members=tuple(settled[at] for at in range(len(holders))),
        storages=tuple(_storage(holders, group) for group in groups),
        gaps=tuple(one for one in looked if isinstance(one, Gap)),
    )


def _holder_or_gap(name: str, item: Any) -> _Holder | Gap:
    try:
        return _array_holder(name, item) if is_kind(item, np.ndarray) else _tensor_holder(name, item)
    except (RuntimeError, NotImplementedError, AttributeError, ValueError, TypeError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0][:120]
        return Gap(name, f"its memory cannot be compared: {reason}")


def _tensor_holder(name: str, x: torch.Tensor) -> _Holder:
    if x.layout != torch.strided or x.is_nested:
        raise ValueError(f"its layout is {'nested' if x.is_nested else str(x.layout).removeprefix('torch.')}")
    memory, size = Memory.of(x), x.element_size()
    shape, stride = tuple(map(int, x.shape)), tuple(map(int, x.stride()))
    region = region_of(x, 0)
    if region.elements and region.stop > memory.nbytes:
        raise ValueError(f"its storage has {plural(memory.nbytes, 'byte')}, it would read up to byte {region.stop}")
    dtype = str(x.dtype).removeprefix("torch.")
    member = OverlayMember(name, type(x).__name__, dtype, shape, stride, size, None, None)
    return _Holder(member, memory.identity, memory.device, memory.address, memory.nbytes, region)


def _array_holder(name: str, array: np.ndarray) -> _Holder:
    """Read an array through NumPy's own descriptors: nothing of a subclass is called."""
    region, steps = array_region(array), np.ndarray.strides.__get__(array)
    shape, size = region.shape, region.itemsize
    whole = all(step % size == 0 for step in steps)
    stride = tuple(step // size for step in steps) if whole else tuple(steps)
    dtype = str(np.ndarray.dtype.__get__(array))
    member = OverlayMember(name, type(array).__name__, dtype, shape, stride, size, None, None)
    nbytes = region.stop - region.start if 0 not in shape else 0
    return _Holder(member, None, "cpu", region.start, nbytes, replace(region, start=0))


def _groups(holders: Sequence[_Holder]) -> list[list[int]]:
    """Return which holders lie in the same memory, directly or through a third one."""
    groups: list[list[int]] = []
    for at, holder in enumerate(holders):
        met = [group for group in groups if any(holder.touches(holders[other]) for other in group)]
        groups = [group for group in groups if group not in met]
        groups.append(sorted([at, *(other for group in met for other in group)]))
    return sorted(groups)


def _origin(holders: Sequence[_Holder], group: Sequence[int]) -> int:
    return min(holders[at].low for at in group)


def _region(holder: _Holder, origin: int) -> Region:
    return replace(holder.region, start=holder.region.start + holder.low - origin)


def _settled(holder: _Holder, origin: int) -> OverlayMember:
    region = _region(holder, origin)
    pattern = _bytewise(region).pattern
    if pattern is None:
        return replace(holder.member, distinct_bytes=0)
    return replace(holder.member, first_byte=region.start, distinct_bytes=count_distinct(pattern))


def _storage(holders: Sequence[_Holder], group: list[int]) -> OverlayStorage:
    origin = _origin(holders, group)
    nbytes = max(holders[at].low + holders[at].nbytes for at in group) - origin
    alone = OverlayStorage(tuple(group), origin, nbytes, holders[group[0]].device)
    regions = {at: _region(holders[at], origin) for at in group}
    if len(group) < 2 or not any(region.elements for region in regions.values()):
        return alone
    start, stop, cell, single = _cut(list(regions.values()), nbytes)
    cells = range(start, stop, cell)
    read = {at: total(_joined(_bytewise(region).pattern), cells, stop) for at, region in regions.items()}
    elements = {at: _elements(region) for at, region in regions.items()} if single else {}
    rows = tuple(OverlayRow(at, tuple(distinct for distinct, _ in read[at][0]), elements.get(at, ())) for at in group)
    readers = tuple(sum(bool(row.bytes_read[at]) for row in rows) for at in range(len(cells))) if single else ()
    pairs = tuple(_pair(left, right, regions) for left, right in combinations(group, 2))
    exact = all(certain for _, certain in read.values())
    return replace(alone, start=start, stop=stop, cell_bytes=cell, rows=rows, readers=readers, pairs=pairs, exact=exact)


def _cut(regions: Sequence[Region], nbytes: int) -> tuple[int, int, int, bool]:
    """Return which bytes to draw, how many to a cell, and whether every element can be drawn by itself."""
    full = [region for region in regions if region.elements]
    low, high = min(region.start for region in full), max(region.stop for region in full)
    unit = math.gcd(nbytes, *(region.itemsize for region in full), *(region.start for region in full))
    unit = math.gcd(unit, *(step for region in full for step in region.stride))
    single = all(_apart(region) for region in full)
    most = min(UNITS, MOST_CELLS // len(regions)) * unit
    if nbytes <= most:
        return 0, nbytes, unit, single
    if high - low <= most:
        context = min((most - (high - low)) // 2, CONTEXT * unit)
        return max(low - context, 0) // unit * unit, min(high + context, nbytes), unit, single
    whole = math.lcm(*(region.itemsize for region in full))
    start = low // whole * whole
    cells = min(CELLS, MOST_CELLS * 5 // (6 * len(regions)))
    cell = -(-(high - start) // (cells * whole)) * whole
    return start, min(start + -(-(high - start) // cell) * cell, nbytes), cell, False


def _apart(region: Region) -> bool:
    """Return whether different elements of a region have no byte in common, so that they can be drawn side by side."""
    pattern = region.pattern
    return (
        pattern is not None
        and pattern.steps <= MOST_STEPS
        and all(axis.stride % region.itemsize == 0 for axis in pattern.axes)
    )


def _joined(pattern: Pattern | None) -> Pattern | None:
    """Return a pattern that reads the same bytes, overlapping dimensions joined where that makes counting exact."""
    if pattern is None or pattern.nests:
        return pattern
    united = pattern.united()
    return united if united.nests else pattern


def _elements(region: Region) -> tuple[OverlayElement, ...]:
    pattern = region.pattern
    if pattern is None:
        return ()
    starts, ranks = enumerate_reads(pattern)
    order = np.lexsort((ranks, starts))
    places, firsts, counts = np.unique(starts[order], return_index=True, return_counts=True)
    return tuple(
        OverlayElement(int(place), _index(int(ranks[order[first]]), region), int(times) * pattern.repeats)
        for place, first, times in zip(places, firsts, counts, strict=True)
    )


def _index(rank: int, region: Region) -> tuple[int, ...]:
    index: list[int] = []
    for dim in reversed(range(len(region.shape))):
        rank, at = divmod(rank, region.shape[dim])
        index.append(region.shape[dim] - 1 - at if dim in region.turned else at)
    return tuple(reversed(index))


def _pair(left: int, right: int, regions: Mapping[int, Region]) -> OverlayPair:
    one, other = regions[left], regions[right]
    answer = overlap(one, other)
    if answer == "no":
        return OverlayPair(left, right, answer, 0, 0, 0)
    common, size = _common_bytes(one, other), one.itemsize
    # On one grid elements meet whole or not at all.
    aligned = all(step % size == 0 for step in (one.start - other.start, *one.stride, *other.stride))
    if common is not None and size == other.itemsize and aligned:
        return OverlayPair(left, right, answer, common, common // size, common // size)
    return OverlayPair(left, right, answer, common, overlap_elements(one, other), overlap_elements(other, one))


def _common_bytes(one: Region, other: Region) -> int | None:
    """Return how many bytes both read, counted from whichever side that can be done; None where from neither."""
    one, other = _bytewise(one), _bytewise(other)
    counts = (
        count(left, right) for count in (overlap_elements, _by_runs) for left, right in ((one, other), (other, one))
    )
    return next((count for count in counts if count is not None), None)


def _by_runs(reads: Region, runs: Region) -> int | None:
    """Return how many bytes two regions of single bytes share, run by run of the second; None for too many runs."""
    pattern, cut = _joined(reads.pattern), _joined(runs.pattern)
    if pattern is None or cut is None or not (pattern.nests and cut.nests):
        return None
    solid = cut.axes[-1].size if cut.axes and cut.axes[-1].stride == 1 else 1
    outer = cut.axes[:-1] if solid > 1 else cut.axes
    if math.prod(axis.size for axis in outer) > MOST_RUNS:
        return None
    starts, _ = enumerate_reads(Pattern(cut.offset, outer, 1))
    return sum(count_between(pattern, int(start), int(start) + solid) or 0 for start in starts)


def _bytewise(region: Region) -> Region:
    return Region(region.start, (*region.shape, region.itemsize), (*region.stride, 1), 1)
