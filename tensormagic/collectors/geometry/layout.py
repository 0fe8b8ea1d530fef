"""Where each index of a strided tensor lies in its storage: pure integer arithmetic, for tensors of any device.

Nothing here touches a tensor; the values in the grid are put in by whoever has one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from math import prod
from typing import Literal

import numpy as np

from tensormagic.collectors.geometry.geometry import Pattern
from tensormagic.collectors.geometry.grid import grid
from tensormagic.collectors.geometry.strip import ENUMERATION_LIMIT, Rows, enumerate_reads, strip
from tensormagic.reports import LayoutReport, MemoryFormat
from tensormagic.reports.view_geometry import contiguous_stride, views

_JUMPS = 8
_LETTERS = "ijklmnopqrstuvwxyz"
# Memory formats besides the plain one: number of dimensions → name, and its dimensions from the innermost outwards.
_CHANNELS_LAST = {4: ("channels_last", (1, 3, 2, 0)), 5: ("channels_last_3d", (1, 4, 3, 2, 0))}


def layout(  # noqa: PLR0913  (all but the geometry itself is keyword-only)
    shape: Sequence[int],
    stride: Sequence[int],
    storage_offset: int,
    *,
    storage_elements: int,
    element_size: int,
    rows: Rows | None = None,
) -> LayoutReport:
    """Return the layout of a strided tensor.

    Args:
        shape: Sizes.
        stride: In elements, not negative.
        storage_offset: In elements.
        storage_elements: How many elements of this dtype the storage holds.
        element_size: Bytes an element.
        rows: Rows to draw under the strip.
    """
    shape, stride = tuple(shape), tuple(stride)
    pattern = Pattern.of(shape, stride, storage_offset)
    distinct = count_distinct(pattern)
    return LayoutReport(
        shape=shape,
        stride=stride,
        storage_offset=storage_offset,
        dim_names=dim_names(len(shape)),
        grid=grid(shape, stride, storage_offset),
        strip=strip(pattern, storage_elements, rows),
        formats=memory_formats(shape, stride),
        lowest=pattern.lowest if pattern else None,
        highest=pattern.highest if pattern else None,
        distinct=distinct,
        internal_overlap=_internal_overlap(distinct, prod(shape)),
        jumps=_jumps(shape, stride),
        contiguous_bytes=prod(shape) * element_size,
        views=views(shape, stride, element_size=element_size),
    )


def dim_names(ndim: int) -> tuple[str, ...]:
    """Return a letter for each dimension: i, j, k, … and d0, d1, … where there are more than letters."""
    return tuple(_LETTERS[:ndim]) if ndim <= len(_LETTERS) else tuple(f"d{dim}" for dim in range(ndim))


def count_distinct(pattern: Pattern | None) -> int | None:
    """Return how many storage elements a pattern reads; None where that is too hard to count."""
    if pattern is None:
        return 0
    distinct = pattern.distinct()
    if distinct is None and pattern.steps <= ENUMERATION_LIMIT:
        return len(np.unique(enumerate_reads(pattern)[0]))
    return distinct


def _internal_overlap(distinct: int | None, numel: int) -> Literal["no", "yes", "maybe"]:
    if distinct is None:
        return "maybe"
    return "yes" if distinct < numel else "no"


def _jumps(shape: tuple[int, ...], stride: tuple[int, ...]) -> tuple[int, ...]:
    """Return the first differences between successive offsets in reading order."""
    numel = prod(shape)
    offsets = [_offset_at(shape, stride, rank) for rank in range(min(numel, _JUMPS + 1))]
    return tuple(after - before for before, after in pairwise(offsets))


def _offset_at(shape: tuple[int, ...], stride: tuple[int, ...], rank: int) -> int:
    offset = 0
    for size, step in zip(reversed(shape), reversed(stride), strict=True):
        rank, at = divmod(rank, size)
        offset += at * step
    return offset


def memory_formats(shape: tuple[int, ...], stride: tuple[int, ...]) -> tuple[MemoryFormat, ...]:
    """Return the memory formats that exist for this number of dimensions, and what breaks each.

    Judged as torch does (``compute_contiguous``, ``compute_channels_last_contiguous_2d`` in c10): dimensions of size
    1 may have any stride; without elements every tensor is contiguous, but not every one is channels_last.
    """
    plain = MemoryFormat("contiguous_format", holds=True, stride=contiguous_stride(shape))
    formats = [plain if 0 in shape else _judged(plain, shape, stride, tuple(reversed(range(len(shape)))))]
    if len(shape) in _CHANNELS_LAST:
        name, order = _CHANNELS_LAST[len(shape)]
        formats.append(
            _judged(MemoryFormat(name, holds=True, stride=_packed_stride(shape, order)), shape, stride, order)
        )
    return tuple(formats)


def _judged(
    wanted: MemoryFormat, shape: tuple[int, ...], stride: tuple[int, ...], order: tuple[int, ...]
) -> MemoryFormat:
    """Return the format with the verdict on these strides."""
    breaking = [dim for dim in order if shape[dim] != 1 and stride[dim] != wanted.stride[dim]]
    return replace(wanted, holds=False, breaking_dim=breaking[0]) if breaking else wanted


def _packed_stride(shape: tuple[int, ...], order: tuple[int, ...]) -> tuple[int, ...]:
    """Return the stride of elements packed without gaps, the first dimension in ``order`` innermost."""
    wanted, step = [0] * len(shape), 1
    for dim in order:
        wanted[dim] = step
        step *= shape[dim]
    return tuple(wanted)
