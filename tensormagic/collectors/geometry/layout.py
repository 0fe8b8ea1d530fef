"""The storage offset of each index of a strided tensor: the index grid, the storage strip, and their cells."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from math import prod
from operator import mul

import numpy as np
import torch

from tensormagic.collectors.geometry.strides import Pattern, count_between
from tensormagic.collectors.quiet import quiet
from tensormagic.reports import Grid, LayoutReport, MemoryFormat, Strip, StripCell
from tensormagic.reports.storage import contiguous_stride, views

MOST_ROWS = 32
MOST_COLUMNS = 32
CELLS = 64  # of the storage strip
CONTEXT = 8  # elements of the strip beside what is read
ENUMERATION_LIMIT = 2**21
SAMPLE = 2**18  # steps that are looked at where there are more than can be enumerated
_MOST_ROWS = 96  # of a base, each a row of the strip
_JUMPS = 8  # the first differences between successive offsets in reading order
_LETTERS = "ijklmnopqrstuvwxyz"  # of dimensions


def default_slice(shape: Sequence[int]) -> Grid:
    """Return the slice along the last two dimensions longer than 1: a convolution's (64, 3, 1, 1) as 64 by 3."""
    long = [dim for dim, size in enumerate(shape) if size != 1][-2:]
    others = [dim for dim in reversed(range(len(shape))) if dim not in long]
    column_dim, row_dim, *_ = [*sorted((long + others)[:2], reverse=True), None, None]
    return slice_along(shape, row_dim, column_dim)


def slice_along(
    shape: Sequence[int], row_dim: int | None, column_dim: int | None, *, fixed: tuple[int, ...] | None = None
) -> Grid:
    """Return the slice along two dimensions, evenly thinned where long (None: a single row or column), others fixed.

    Where its elements lie is not filled in yet; see `grid`.
    """
    row_count, column_count = (1 if dim is None else shape[dim] for dim in (row_dim, column_dim))
    empty = any(size == 0 for dim, size in enumerate(shape) if dim not in {row_dim, column_dim})
    rows, columns = () if empty else evenly(row_count, MOST_ROWS), evenly(column_count, MOST_COLUMNS)
    place = fixed or (0,) * len(shape)
    return Grid(row_dim, column_dim, rows, columns, row_count, column_count, place, offsets=())


def evenly(count: int, most: int) -> tuple[int, ...]:
    """Return all indices below ``count``, or ``most`` of them, evenly spaced from 0."""
    shown = min(count, most)
    return tuple(at * count // shown for at in range(shown))


def grid(shown: Grid, stride: Sequence[int], offset: int) -> Grid:
    """Return a slice with the storage offsets of its elements; stride and offset in elements."""
    row_step, column_step = (0 if dim is None else stride[dim] for dim in (shown.row_dim, shown.column_dim))
    start = offset + sum(step * at for step, at in zip(stride, shown.fixed, strict=True))
    offsets = tuple(
        tuple(start + row * row_step + column * column_step for column in shown.columns) for row in shown.rows
    )
    return replace(shown, offsets=offsets)


# The storage strip: for every cell of the storage, how much of it a tensor reads.
#
# Exact by arithmetic where the dimensions nest, and by enumeration for overlapping patterns of bounded size; beyond
# that counts are sampled, and the strip says so.
Rows = tuple[int, str]  # rows worth drawing under it: storage elements in one, and the name that they are slices of
NO_ROWS: Rows = (0, "")


def strip(pattern: Pattern | None, storage_elements: int, rows: Rows = NO_ROWS) -> Strip | None:
    """Return the strip of a storage, counted in elements of the tensor's dtype, or None where it holds none."""
    if storage_elements <= 0:
        return None
    start, stop, width = _cut(pattern, storage_elements, rows[0])
    starts = range(start, stop, width)
    counts, exact = total(pattern, starts, stop)
    cells = tuple(
        StripCell(first, min(first + width, stop), *count) for first, count in zip(starts, counts, strict=True)
    )
    return Strip(start, stop, width, cells, exact=exact, row_length=rows[0], row_name=rows[1])


def _cut(pattern: Pattern | None, elements: int, row_length: int) -> tuple[int, int, int]:
    if elements <= CELLS:
        return 0, elements, 1
    if pattern is not None and (span := pattern.highest + 1 - pattern.offset) <= CELLS:
        context = min((CELLS - span) // 2, CONTEXT)
        return max(pattern.offset - context, 0), min(pattern.highest + 1 + context, elements), 1
    even = -(-elements // CELLS)  # about 64 cells, cut where rows begin as far as that goes
    if not 0 < row_length < elements:
        return 0, elements, even
    rows = -(-elements // row_length)
    if rows > _MOST_ROWS:
        return 0, elements, row_length * -(-rows // CELLS)
    parts = max(CELLS // rows, 1)
    fitting = [part for part in range(max(parts // 2, 1), parts + 1) if row_length % part == 0]
    return 0, elements, row_length // fitting[-1] if fitting else even


Count = tuple["int | None", "int | None"]


def total(pattern: Pattern | None, starts: range, stop: int) -> tuple[Sequence[Count], bool]:
    """Return (distinct, reads) for every cell of a strip up to ``stop``, and whether that is exact."""
    if pattern is None:
        return [(0, 0)] * len(starts), True
    if not pattern.nests and pattern.steps <= ENUMERATION_LIMIT:
        offsets = enumerate_reads(pattern)
        offsets = offsets[(offsets >= starts.start) & (offsets < stop)]
        every, once = ((some - starts.start) // starts.step for some in (offsets, np.unique(offsets)))
        reads = np.bincount(every, minlength=len(starts)) * pattern.repeats
        distinct = np.bincount(once, minlength=len(starts))
        return [(int(some), int(times)) for some, times in zip(distinct, reads, strict=True)], True
    read = [count_between(pattern, at, min(at + starts.step, stop)) for at in starts]
    if pattern.nests:
        return [(some, (some or 0) * pattern.repeats) for some in read], True
    # Reads are estimated from evenly spaced steps; distinct elements stay exact where the axes can be joined.
    rest = np.arange(0, pattern.steps, -(-pattern.steps // SAMPLE))  # counted with the shortest stride fastest
    offsets, each = np.full(len(rest), pattern.offset), pattern.steps / len(rest) * pattern.repeats
    for axis in reversed(pattern.axes):
        rest, at = np.divmod(rest, axis.size)
        offsets += at * axis.stride
    estimated = np.bincount((offsets - starts.start) // starts.step, minlength=len(starts)) * each
    return [(some, round(times)) for some, times in zip(read, estimated, strict=True)], False


def enumerate_reads(pattern: Pattern) -> np.ndarray:
    """Return the storage offset of every step of a pattern, in no order to rely on."""
    offsets = np.array([pattern.offset])
    for axis in pattern.axes:
        offsets = np.add.outer(offsets, np.arange(axis.size) * axis.stride).reshape(-1)
    return offsets


# Memory formats besides the plain one: number of dimensions → name, and its dimensions from the innermost outwards.
_CHANNELS_LAST = {4: ("channels_last", (1, 3, 2, 0)), 5: ("channels_last_3d", (1, 4, 3, 2, 0))}


def layout(  # noqa: PLR0913  (all but the geometry itself is keyword-only)
    shape: Sequence[int],
    stride: Sequence[int],
    storage_offset: int,
    *,
    storage_elements: int,
    element_size: int,
    rows: Rows = NO_ROWS,
) -> LayoutReport:
    """Return the layout of a strided tensor: all is in elements, but ``element_size``; no stride is negative."""
    shape, stride = tuple(shape), tuple(stride)
    pattern = Pattern.of(shape, stride, storage_offset)
    distinct, numel = count_distinct(pattern), prod(shape)
    first = itertools.islice(itertools.product(*(range(min(size, _JUMPS + 1)) for size in shape)), _JUMPS + 1)
    offsets = [sum(map(mul, index, stride)) for index in first]
    return LayoutReport(
        shape=shape,
        stride=stride,
        storage_offset=storage_offset,
        dim_names=dim_names(len(shape)),
        grid=grid(default_slice(shape), stride, storage_offset),
        strip=strip(pattern, storage_elements, rows),
        formats=memory_formats(shape, stride),
        lowest=pattern.offset if pattern else None,
        highest=pattern.highest if pattern else None,
        distinct=distinct,
        internal_overlap="maybe" if distinct is None else "yes" if distinct < numel else "no",
        jumps=tuple(after - before for before, after in itertools.pairwise(offsets)),
        contiguous_bytes=numel * element_size,
        views=views(shape, stride, element_size=element_size),
    )


def dim_names(ndim: int) -> tuple[str, ...]:
    """Return a letter for each dimension: i, j, k, … and d0, d1, … where there are more than letters."""
    return tuple(_LETTERS[:ndim]) if ndim <= len(_LETTERS) else tuple(f"d{dim}" for dim in range(ndim))


def count_distinct(pattern: Pattern | None) -> int | None:
    """Return how many storage elements a pattern reads; None where that is too hard to count."""
    if pattern is None:
        return 0
    if (nested := pattern.nested()) is not None:
        return nested.steps
    return len(np.unique(enumerate_reads(pattern))) if pattern.steps <= ENUMERATION_LIMIT else None


def memory_formats(shape: tuple[int, ...], stride: tuple[int, ...]) -> tuple[MemoryFormat, ...]:
    """Return the memory formats that exist for this number of dimensions, and what breaks each.

    Judged as torch does (``compute_contiguous``, ``compute_channels_last_contiguous_2d`` in c10): dimensions of size
    1 may have any stride; without elements every tensor is contiguous, but not every one is channels_last.
    """

    def judged(name: str, wanted: Sequence[int], order: Sequence[int]) -> MemoryFormat:
        breaking = next((dim for dim in order if shape[dim] != 1 and stride[dim] != wanted[dim]), None)
        return MemoryFormat(name, breaking is None, tuple(wanted), breaking)

    outwards = () if 0 in shape else tuple(reversed(range(len(shape))))
    formats = [judged("contiguous_format", contiguous_stride(shape), outwards)]
    if len(shape) in _CHANNELS_LAST:
        name, order = _CHANNELS_LAST[len(shape)]
        packed = {dim: prod(shape[inner] for inner in order[:at]) for at, dim in enumerate(order)}
        formats.append(judged(name, [packed[dim] for dim in range(len(shape))], order))
    return tuple(formats)


Element = bool | int | float | complex


def with_values(shown: Grid, x: torch.Tensor) -> Grid:
    """Return the grid of a slice with its elements as short texts and as numbers to colour by, row by row."""
    if not (shown.rows and shown.columns):
        return shown
    with quiet():
        index: list[int | torch.Tensor] = list(shown.fixed)
        if shown.row_dim is not None:
            index[shown.row_dim] = torch.tensor(shown.rows, dtype=torch.int64, device=x.device)[:, None]
        if shown.column_dim is not None:
            index[shown.column_dim] = torch.tensor(shown.columns, dtype=torch.int64, device=x.device)[None, :]
        cells = x[tuple(index)].reshape(len(shown.rows), len(shown.columns))  # touches no other elements
        rows = cells.resolve_conj().resolve_neg().tolist()
    values = tuple(tuple(map(text_of, row)) for row in rows)
    return replace(shown, values=values, levels=tuple(tuple(map(level_of, row)) for row in rows))


def text_of(value: Element) -> str:
    """Return an element as short text: ``15``, ``0.1``, ``nan``, ``True``, ``1+2j``."""
    if isinstance(value, complex):
        return f"{value.real:.3g}{value.imag:+.3g}j"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def level_of(value: Element) -> float:
    """Return an element as a number to colour by: of a complex one the magnitude."""
    return math.hypot(value.real, value.imag) if isinstance(value, complex) else float(value)
