"""The index grid: a two-dimensional cut through a tensor, with the storage offset of every shown element."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tensormagic.reports import Grid

MOST_ROWS = 32
MOST_COLUMNS = 32


@dataclass(frozen=True, slots=True)
class Cut:
    """Which elements of a tensor are shown: rows × columns of the slice that ``fixed`` names (see `reports.Grid`)."""

    row_dim: int | None
    column_dim: int | None
    rows: tuple[int, ...]
    columns: tuple[int, ...]
    fixed: tuple[int, ...]


def cut_of(shape: Sequence[int]) -> Cut:
    """Return the cut along the last two dimensions, at index 0 of all others, evenly thinned where they are long."""
    ndim = len(shape)
    row_dim, column_dim = (ndim - 2 if ndim > 1 else None), (ndim - 1 if ndim else None)
    row_count, column_count = _length(shape, row_dim), _length(shape, column_dim)
    fixed_exists = 0 not in shape[: max(ndim - 2, 0)]
    rows = evenly(row_count, MOST_ROWS) if fixed_exists else ()
    return Cut(row_dim, column_dim, rows, evenly(column_count, MOST_COLUMNS), (0,) * ndim)


def _length(shape: Sequence[int], dim: int | None) -> int:
    return 1 if dim is None else shape[dim]


def evenly(count: int, most: int) -> tuple[int, ...]:
    """Return all indices below ``count``, or ``most`` of them, evenly spaced from 0."""
    shown = min(count, most)
    return tuple(at * count // shown for at in range(shown))


def grid(shape: Sequence[int], stride: Sequence[int], offset: int) -> Grid:
    """Return the index grid of a strided tensor, without the values of its elements."""
    cut = cut_of(shape)
    row_step, column_step = (0 if dim is None else stride[dim] for dim in (cut.row_dim, cut.column_dim))
    offsets = tuple(tuple(offset + row * row_step + column * column_step for column in cut.columns) for row in cut.rows)
    return Grid(
        row_dim=cut.row_dim,
        column_dim=cut.column_dim,
        rows=cut.rows,
        columns=cut.columns,
        row_count=_length(shape, cut.row_dim),
        column_count=_length(shape, cut.column_dim),
        fixed=cut.fixed,
        offsets=offsets,
    )
