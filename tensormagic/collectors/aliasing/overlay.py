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
    edges = [(low, min(low + cell, nbytes)) for low in range(0, nbytes, cell)]
    if 0 in region.shape:
        return (0.0,) * len(edges)
    if (solid := solid_bytes(region)) is not None:
        return tuple(max(min(solid[1], high) - max(solid[0], low), 0) / (high - low) for low, high in edges)
    if region.stop <= _MARKED and region.start >= 0 and region.elements <= _MARKED:
        picture = marked(region, 0, region.stop)
        return tuple(int(picture[low:high].sum()) / (high - low) for low, high in edges)
    pattern, shares = region.pattern, list[float | None]()
    for low, high in edges:
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
    groups: list[list[int]] = []  # which holders lie in the same memory, directly or through a third one
    for at, holder in enumerate(holders):
        met = [group for group in groups if any(holder.touches(holders[other]) for other in group)]
        groups = [group for group in groups if group not in met]
        groups.append(sorted([at, *(other for group in met for other in group)]))
    members, storages = [holder.member for holder in holders], list[OverlayStorage]()
    for group in sorted(groups):
        some = [holders[at] for at in group]
        origin, stop = min(holder.low for holder in some), max(holder.low + holder.nbytes for holder in some)
        starts = [holder.region.start + holder.low - origin for holder in some]
        regions = {at: replace(holders[at].region, start=start) for at, start in zip(group, starts, strict=True)}
        for at, region in regions.items():
            pattern = _bytewise(region).pattern
            first = None if pattern is None else region.start
            members[at] = replace(members[at], first_byte=first, distinct_bytes=count_distinct(pattern))
        alone = OverlayStorage(tuple(group), origin, stop - origin, some[0].device)
        storages.append(_storage(alone, regions))
    gaps = tuple(one for one in looked if isinstance(one, Gap))
    return OverlayReport(members=tuple(members), storages=tuple(storages), gaps=gaps)


def _holder_or_gap(name: str, item: Any) -> _Holder | Gap:
    try:
        return _holder(name, item)
    except (RuntimeError, NotImplementedError, AttributeError, ValueError, TypeError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0][:120]
        return Gap(name, f"its memory cannot be compared: {reason}")


def _holder(name: str, item: Any) -> _Holder:
    if is_kind(item, np.ndarray):  # read through NumPy's own descriptors: nothing of a subclass is called
        region, steps, dtype = array_region(item), np.ndarray.strides.__get__(item), np.ndarray.dtype.__get__(item)
        size = region.itemsize
        whole = bool(size) and all(step % size == 0 for step in steps)  # elements of no field have no size
        stride = tuple(step // size for step in steps) if whole else tuple(steps)
        nbytes = region.stop - region.start if 0 not in region.shape else 0
        memory, identity, region = Memory(0, "cpu", region.start, nbytes), None, replace(region, start=0)
    elif item.layout != torch.strided or item.is_nested:
        raise ValueError(f"its layout is {'nested' if item.is_nested else str(item.layout).removeprefix('torch.')}")
    else:
        memory, dtype, stride, region = Memory.of(item), item.dtype, tuple(map(int, item.stride())), region_of(item, 0)
        if region.elements and region.stop > memory.nbytes:
            held = f"its storage has {plural(memory.nbytes, 'byte')}"
            raise ValueError(f"{held}, it would read up to byte {region.stop}")
        identity = memory.identity
    kind, dtype = type(item).__name__, str(dtype).removeprefix("torch.")
    member = OverlayMember(name, kind, dtype, region.shape, stride, region.itemsize, None, None)
    return _Holder(member, identity, memory.device, memory.address, memory.nbytes, region)


def _storage(alone: OverlayStorage, regions: Mapping[int, Region]) -> OverlayStorage:
    """Return a piece of memory with the strips and pairs of those that lie in it, where there are several."""
    if len(regions) < 2 or not any(region.elements for region in regions.values()):
        return alone
    start, stop, cell, single = _cut(list(regions.values()), alone.nbytes)
    cells = range(start, stop, cell)
    patterns = {at: _bytewise(region).pattern for at, region in regions.items()}
    # Overlapping dimensions are joined where that makes counting exact.
    read = {at: total((some.nested() or some) if some else None, cells, stop) for at, some in patterns.items()}
    rows = tuple(
        OverlayRow(at, tuple(distinct for distinct, _ in read[at][0]), _elements(region) if single else ())
        for at, region in regions.items()
    )
    readers = tuple(sum(bool(row.bytes_read[at]) for row in rows) for at in range(len(cells))) if single else ()
    pairs = tuple(_pair(left, right, regions) for left, right in combinations(regions, 2))
    exact = all(certain for _, certain in read.values())
    return replace(alone, start=start, stop=stop, cell_bytes=cell, rows=rows, readers=readers, pairs=pairs, exact=exact)


def _cut(regions: Sequence[Region], nbytes: int) -> tuple[int, int, int, bool]:
    full = [region for region in regions if region.elements]
    low, high = min(region.start for region in full), max(region.stop for region in full)
    unit = math.gcd(nbytes, *(region.itemsize for region in full), *(region.start for region in full))
    unit = math.gcd(unit, *(step for region in full for step in region.stride))
    # Where different elements have no byte in common they can be drawn side by side.
    patterns = [(pattern, region.itemsize) for region in full if (pattern := region.pattern) is not None]
    single = all(
        pattern.steps <= MOST_STEPS and all(axis.stride % size == 0 for axis in pattern.axes)
        for pattern, size in patterns
    )
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


def _elements(region: Region) -> tuple[OverlayElement, ...]:
    pattern = region.pattern
    if pattern is None:
        return ()
    starts, ranks = enumerate_reads(pattern)
    order = np.lexsort((ranks, starts))
    places, firsts, counts = np.unique(starts[order], return_index=True, return_counts=True)
    indices = np.unravel_index(ranks[order[firsts]], region.shape) if region.shape else ()
    ends = [size - 1 if dim in region.turned else 0 for dim, size in enumerate(region.shape)]  # where indices begin
    columns = [abs(index - end).tolist() for index, end in zip(indices, ends, strict=True)]
    return tuple(
        OverlayElement(int(place), tuple(column[at] for column in columns), int(times) * pattern.repeats)
        for at, (place, times) in enumerate(zip(places, counts, strict=True))
    )


def _pair(left: int, right: int, regions: Mapping[int, Region]) -> OverlayPair:
    one, other = regions[left], regions[right]
    answer = overlap(one, other)
    if answer == "no":
        return OverlayPair(left, right, answer, 0, 0, 0)
    # How many bytes both read is counted from whichever side that can be done.
    sides = [(_bytewise(one), _bytewise(other)), (_bytewise(other), _bytewise(one))]
    counts = (count(*side) for count in (overlap_elements, _by_runs) for side in sides)
    common, size = next((count for count in counts if count is not None), None), one.itemsize
    # On one grid elements meet whole or not at all.
    aligned = bool(size) and all(step % size == 0 for step in (one.start - other.start, *one.stride, *other.stride))
    if common is not None and size == other.itemsize and aligned:
        return OverlayPair(left, right, answer, common, common // size, common // size)
    return OverlayPair(left, right, answer, common, overlap_elements(one, other), overlap_elements(other, one))


def _by_runs(reads: Region, runs: Region) -> int | None:
    """Return how many bytes two regions of single bytes share, run by run of the second; None for too many runs."""
    pattern, cut = (some.pattern and some.pattern.nested() for some in (reads, runs))
    if pattern is None or cut is None:
        return None
    solid = cut.axes[-1].size if cut.axes and cut.axes[-1].stride == 1 else 1
    outer = cut.axes[:-1] if solid > 1 else cut.axes
    if math.prod(axis.size for axis in outer) > MOST_RUNS:
        return None
    starts, _ = enumerate_reads(Pattern(cut.offset, outer, 1))
    return sum(count_between(pattern, int(start), int(start) + solid) or 0 for start in starts)


def _bytewise(region: Region) -> Region:
    return Region(region.start, (*region.shape, region.itemsize), (*region.stride, 1), 1)
