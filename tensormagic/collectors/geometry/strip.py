"""The storage strip: for every cell of the storage, how much of it a tensor reads, and how early.

Counts are exact wherever that is possible at a bounded price: by arithmetic where the dimensions nest, by
enumeration for overlapping patterns of up to `ENUMERATION_LIMIT` elements. Beyond that they are sampled, and the strip
says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tensormagic.collectors.geometry.geometry import Pattern, count_between
from tensormagic.reports import Strip, StripCell

CELLS = 64
CONTEXT = 8
ENUMERATION_LIMIT = 2**21
SAMPLE = 2**18  # steps that are looked at where there are more than can be enumerated
_MOST_ROWS = 96


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows worth drawing under the strip: the slices ``name[0]``, ``name[1]``, … of a contiguous base tensor.

    Attributes:
        length: Storage elements in one of them.
        name: The name of the tensor they are slices of.
    """

    length: int
    name: str


def strip(pattern: Pattern | None, storage_elements: int, rows: Rows | None = None) -> Strip | None:
    """Return the strip of a storage, or None where the storage holds no element.

    Args:
        pattern: What the tensor reads; None for a tensor without elements.
        storage_elements: Elements of the tensor's dtype in the storage.
        rows: What to draw under the strip, if anything.
    """
    if storage_elements <= 0:
        return None
    start, stop, width = _cut(pattern, storage_elements, rows.length if rows else 0)
    starts = range(start, stop, width)
    counts, exact = tally(pattern, starts, stop)
    cells = tuple(
        StripCell(first, min(first + width, stop), *count) for first, count in zip(starts, counts, strict=True)
    )
    length, name = (rows.length, rows.name) if rows else (0, "")
    return Strip(start, stop, width, cells, exact=exact, row_length=length, row_name=name)


def _cut(pattern: Pattern | None, elements: int, row_length: int) -> tuple[int, int, int]:
    """Return which part of the storage to draw, and how many elements to a cell."""
    if elements <= CELLS:
        return 0, elements, 1
    span = pattern.highest + 1 - pattern.lowest if pattern else elements
    if pattern is None or span > CELLS:
        return 0, elements, _run_length(elements, row_length)
    context = min((CELLS - span) // 2, CONTEXT)
    return max(pattern.lowest - context, 0), min(pattern.highest + 1 + context, elements), 1


def _run_length(elements: int, row_length: int) -> int:
    """Return how many elements to a cell: about 64 cells, cut where rows begin as far as that goes."""
    even = -(-elements // CELLS)
    if not 0 < row_length < elements:
        return even
    rows = -(-elements // row_length)
    if rows > _MOST_ROWS:
        return row_length * -(-rows // CELLS)
    parts = max(CELLS // rows, 1)
    fitting = [part for part in range(max(parts // 2, 1), parts + 1) if row_length % part == 0]
    return row_length // fitting[-1] if fitting else even


Count = tuple["int | None", "int | None", "int | None"]


def tally(pattern: Pattern | None, starts: range, stop: int) -> tuple[Sequence[Count], bool]:
    """Return (distinct, reads, first rank) for every cell of a strip up to ``stop``, and whether that is exact."""
    if pattern is None:
        return [(0, 0, None)] * len(starts), True
    if pattern.nests:
        return [_tally_nested(pattern, at, min(at + starts.step, stop)) for at in starts], True
    if pattern.steps <= ENUMERATION_LIMIT:
        return _tally_enumerated(pattern, starts), True
    return _tally_sampled(pattern, starts, stop), False


def _tally_nested(pattern: Pattern, start: int, stop: int) -> Count:
    boxes = list(pattern.boxes(start, stop))
    distinct = sum(count for count, _ in boxes)
    first = min((rank for _, rank in boxes), default=None)
    return distinct, distinct * pattern.repeats, None if first is None else first + 1


def _tally_enumerated(pattern: Pattern, starts: range) -> list[Count]:
    offsets, ranks = enumerate_reads(pattern)
    cells = (offsets - starts.start) // starts.step
    reads = np.bincount(cells, minlength=len(starts)) * pattern.repeats
    distinct = np.bincount((np.unique(offsets) - starts.start) // starts.step, minlength=len(starts))
    first = np.full(len(starts), np.iinfo(np.int64).max)
    np.minimum.at(first, cells, ranks)
    return [
        (int(some), int(times), int(rank) + 1 if times else None)
        for some, times, rank in zip(distinct, reads, first, strict=True)
    ]


def enumerate_reads(pattern: Pattern) -> tuple[np.ndarray, np.ndarray]:
    """Return the storage offset and the reading rank (from 0) of every step of a pattern, in no order to rely on."""
    offsets, ranks = np.array([pattern.offset]), np.array([0])
    for axis in pattern.axes:
        steps = np.arange(axis.size)
        offsets = np.add.outer(offsets, steps * axis.stride).reshape(-1)
        ranks = np.add.outer(ranks, steps * axis.weight).reshape(-1)
    return offsets, ranks


def _tally_sampled(pattern: Pattern, starts: range, stop: int) -> list[Count]:
    """Estimate reads from evenly spaced steps; distinct elements stay exact where the axes can be joined."""
    every = -(-pattern.steps // SAMPLE)
    taken = np.arange(0, pattern.steps, every)
    cells = (_offsets_at(pattern, taken) - starts.start) // starts.step
    reads = np.bincount(cells, minlength=len(starts)) * (pattern.steps / len(taken) * pattern.repeats)
    bounds = ((at, min(at + starts.step, stop)) for at in starts)
    return [(count_between(pattern, *bound), round(times), None) for bound, times in zip(bounds, reads, strict=True)]


def _offsets_at(pattern: Pattern, steps: np.ndarray) -> np.ndarray:
    """Return the storage offset of the given steps, counted with the shortest stride fastest."""
    offsets, rest = np.full(len(steps), pattern.offset), steps
    for axis in reversed(pattern.axes):
        rest, at = np.divmod(rest, axis.size)
        offsets += at * axis.stride
    return offsets
