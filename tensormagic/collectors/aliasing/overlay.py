"""Several tensors on one strip: which bytes each reads, and exactly how much each two have in common."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import torch

from tensormagic.collectors.aliasing.aliases import array_footprint
from tensormagic.collectors.aliasing.storage_aliases import Entry, Shared, by_memory
from tensormagic.collectors.geometry.layout import Count, count_distinct, enumerate_reads, total
from tensormagic.collectors.geometry.overlap import Region, overlap, overlap_elements, region_of
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

STRIP_CELLS = 40  # of a member of a group
MOST_MEMBERS = 8
UNITS = 96  # cells up to which every element is drawn by itself
CELLS = 64  # beyond that, of a row
MOST_CELLS = 480  # in all rows together, so that a panel stays small
CONTEXT = 8  # units around what is read
MOST_STEPS = 2**16  # elements that are told one by one
MOST_RUNS = 2**11  # runs of bytes that are compared one after the other


def cell_bytes(piece: Shared) -> int:
    """Return how many bytes one of at most `STRIP_CELLS` cells has: a whole number of the largest elements in there."""
    sizes = [entry.item.element_size() if entry.is_tensor else 1 for entry in piece.entries[:STRIP_CELLS]]
    unit = max(sizes, default=1)
    return max(-(-piece.nbytes // (STRIP_CELLS * unit)), 1) * unit


def coverage(region: Region, nbytes: int, cell: int) -> tuple[float | None, ...]:
    """Return for each cell of a memory which part of its bytes a region reads; None where that is too hard to count."""
    cells = range(0, nbytes, cell)
    counts, _ = _bytes_read(region, cells, nbytes)
    lengths = (min(cell, nbytes - low) for low in cells)
    return tuple(None if read is None else read / length for (read, _), length in zip(counts, lengths, strict=True))


def _bytes_read(region: Region, cells: range, stop: int) -> tuple[Sequence[Count], bool]:
    """Return what `total` does, in bytes; overlapping dimensions are joined where that makes counting exact."""
    pattern = _bytewise(region).pattern
    return total(pattern and (pattern.nested() or pattern), cells, stop)


# All arithmetic is in bytes from the first byte of the memory they share: a float32 and an int8 view of one storage
# are compared like any others. No memory is read.
def overlay(tensors: Mapping[str, Any]) -> OverlayReport:
    """Return what at most `MOST_MEMBERS` tensors and arrays have in common. Never raises: an odd one is a gap."""
    members, entries, gaps = list[OverlayMember](), list[Entry](), list[Gap]()
    with quiet():
        for name, item in tensors.items():
            try:
                member, memory = _member(name, item)
            except (RuntimeError, NotImplementedError, AttributeError, ValueError, TypeError) as error:
                reason = (str(error).splitlines() or [type(error).__name__])[0][:120]
                gaps.append(Gap(name, f"its memory cannot be compared: {reason}"))
                continue
            members.append(member)
            entries.append(Entry(item, [name], memory, is_kind(item, torch.Tensor)))
        numbers = {id(entry): at for at, entry in enumerate(entries)}
        pieces = [(sorted(numbers[id(entry)] for entry in piece.entries), piece) for piece in by_memory(entries)]
        placed = [
            (OverlayStorage(tuple(group), piece.address, piece.nbytes, piece.device),
             {at: piece.region(entries[at]) for at in group})
            for group, piece in sorted(pieces, key=lambda pair: pair[0])
        ]  # fmt: skip
    for at, region in (pair for _, regions in placed for pair in regions.items()):
        pattern = _bytewise(region).pattern
        first = None if pattern is None else region.start
        members[at] = replace(members[at], first_byte=first, distinct_bytes=count_distinct(pattern))
    storages = tuple(_storage(alone, regions) for alone, regions in placed)
    return OverlayReport(members=tuple(members), storages=storages, gaps=tuple(gaps))


def _member(name: str, item: Any) -> tuple[OverlayMember, Memory]:
    """Return what a report says of a tensor or an array, its bytes not counted yet, and the memory that it lies in."""
    if is_kind(item, np.ndarray):
        found = array_footprint(item)
        [(memory, region)] = found.pieces or []
        stride, dtype = found.stride, found.dtype
    elif item.layout != torch.strided or item.is_nested:
        raise ValueError(f"its layout is {'nested' if item.is_nested else str(item.layout).removeprefix('torch.')}")
    else:
        memory, region, stride = Memory.of(item), region_of(item, 0), tuple(map(int, item.stride()))
        dtype = str(item.dtype).removeprefix("torch.")
        if region.elements and region.stop > memory.nbytes:
            held = f"its storage has {plural(memory.nbytes, 'byte')}"
            raise ValueError(f"{held}, it would read up to byte {region.stop}")
    return OverlayMember(name, type(item).__name__, dtype, region.shape, stride, region.itemsize, None, None), memory


def _storage(alone: OverlayStorage, regions: Mapping[int, Region]) -> OverlayStorage:
    """Return a piece of memory with the strips and pairs of those that lie in it, where there are several."""
    if len(regions) < 2 or not any(region.elements for region in regions.values()):
        return alone
    start, stop, cell, single = _cut(list(regions.values()), alone.nbytes)
    cells = range(start, stop, cell)
    read = {at: _bytes_read(region, cells, stop) for at, region in regions.items()}
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
    """Return each element where it lies, with the first index that reads it and how many do."""
    if (pattern := region.pattern) is None:
        return ()
    stride, shape = np.array(region.stride, np.int64), np.array(region.shape, np.int64)
    sizes = np.where(stride == 0, 1, shape)
    index = np.indices(tuple(sizes)).reshape(len(sizes), sizes.prod()).T
    turned = np.isin(np.arange(len(sizes)), region.turned)
    starts = region.start + np.where(turned, sizes - 1 - index, index) @ stride
    places, firsts, counts = np.unique(starts, return_index=True, return_counts=True)
    return tuple(
        OverlayElement(place, tuple(first), times * pattern.repeats)
        for place, first, times in zip(places.tolist(), index[firsts].tolist(), counts.tolist(), strict=True)
    )


def _pair(left: int, right: int, regions: Mapping[int, Region]) -> OverlayPair:
    one, other = regions[left], regions[right]
    answer = overlap(one, other)
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
    starts = enumerate_reads(Pattern(cut.offset, outer, 1))
    return sum(count_between(pattern, int(start), int(start) + solid) or 0 for start in starts)


def _bytewise(region: Region) -> Region:
    return Region(region.start, (*region.shape, region.itemsize), (*region.stride, 1), 1)
