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
    """Return the cut that is shown by default: along the last two dimensions that are longer than 1, others at 0.

    A convolution's weight of shape (64, 3, 1, 1) is drawn as 64 by 3, not as a single cell.
    """
    return cut_along(shape, *_default_dims(shape))


def _default_dims(shape: Sequence[int]) -> tuple[int | None, int | None]:
    long = [dim for dim, size in enumerate(shape) if size != 1][-2:]
    others = [dim for dim in reversed(range(len(shape))) if dim not in long]
    drawn = sorted((long + others)[:2])
    return (None, drawn[0]) if len(drawn) == 1 else (drawn[0], drawn[1]) if drawn else (None, None)


def cut_along(
    shape: Sequence[int], row_dim: int | None, column_dim: int | None, *, fixed: tuple[int, ...] | None = None
) -> Cut:
    """Return the cut along two dimensions, evenly thinned where they are long.

    Args:
        shape: Sizes.
        row_dim: The dimension that runs downwards; None: a single row.
        column_dim: The dimension that runs to the right; None: a single column.
        fixed: The index of every other dimension; None: 0.
    """
    drawn = {row_dim, column_dim}
    empty = any(size == 0 for dim, size in enumerate(shape) if dim not in drawn)
    rows = () if empty else evenly(_length(shape, row_dim), MOST_ROWS)
    columns = evenly(_length(shape, column_dim), MOST_COLUMNS)
    return Cut(row_dim, column_dim, rows, columns, fixed or (0,) * len(shape))


def _length(shape: Sequence[int], dim: int | None) -> int:
    return 1 if dim is None else shape[dim]


def evenly(count: int, most: int) -> tuple[int, ...]:
    """Return all indices below ``count``, or ``most`` of them, evenly spaced from 0."""
    shown = min(count, most)
    return tuple(at * count // shown for at in range(shown))


def grid(shape: Sequence[int], stride: Sequence[int], offset: int, cut: Cut | None = None) -> Grid:
    """Return the index grid of a strided tensor, without the values of its elements.

    Args:
        shape: Sizes.
        stride: In elements.
        offset: Of the storage, in elements.
        cut: What is shown; None: what is by default.
    """
    cut = cut or cut_of(shape)
    row_step, column_step = (0 if dim is None else stride[dim] for dim in (cut.row_dim, cut.column_dim))
    start = offset + sum(step * at for step, at in zip(stride, cut.fixed, strict=True))
    offsets = tuple(tuple(start + row * row_step + column * column_step for column in cut.columns) for row in cut.rows)
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
