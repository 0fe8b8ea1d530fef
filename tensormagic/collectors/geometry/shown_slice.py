"""Which two dimensions of a tensor span the index grid, and at which index of the others: the choice, checked.

A grid shows two dimensions. Which ones, and which slice, a person may say; what is said is checked against the shape
before anything is drawn, and misuse is answered with what would do.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

import torch

from tensormagic.collectors.geometry.layout import Cut, cut_along, cut_of, dim_names, grid, read_values, text_of
from tensormagic.collectors.quiet import quiet
from tensormagic.errors import TensorMagicError
from tensormagic.reports import Grid, LayoutReport

MOST_CARRIED = 2048  # elements up to which every slice is put into the report, as text
_DRAWN = 2  # dimensions a grid has

Place = int | str | slice | None


def chosen_cut(shape: Sequence[int], dims: Sequence[int | str] | None, at: Sequence[Place] | None) -> Cut:
    """Return the slice that was asked for.

    Args:
        shape: Sizes of the tensor.
        dims: The dimension that runs downwards and the one that runs to the right, by number or letter; None: those
            that ``at`` leaves open, or the two by default.
        at: For each dimension an index, or ``":"``, ``slice(None)`` or None where it is drawn; None: 0 everywhere.

    Raises:
        TensorMagicError: where these do not fit the shape or each other.
    """
    drawn: tuple[int | None, int | None] | None = None if dims is None else _dimensions(shape, dims)
    if at is None:
        return cut_of(shape) if drawn is None else cut_along(shape, *drawn)
    places = _places(shape, at)
    free = tuple(dim for dim, place in enumerate(places) if place is None)
    if drawn is not None and set(free) != set(drawn):
        asked, opened = (", ".join(map(str, some)) or "none" for some in (drawn, free))
        raise TensorMagicError(
            f"dims draws dimensions {asked}, but at leaves {opened} open with ':'; both must name the same two"
        )
    row_dim, column_dim = drawn or _drawn_by(shape, free)
    return cut_along(shape, row_dim, column_dim, fixed=tuple(place or 0 for place in places))


def _dimensions(shape: Sequence[int], dims: Sequence[int | str]) -> tuple[int, int]:
    names = dim_names(len(shape))
    found = [_dimension(names, dim) for dim in dims]
    if len(found) != _DRAWN or None in found or found[0] == found[1]:
        there = f"0 to {len(shape) - 1}, or {', '.join(names)}" if len(shape) >= _DRAWN else "too few to choose from"
        given = ", ".join(map(str, dims)) or "nothing"
        raise TensorMagicError(
            f"dims takes two different dimensions of the {len(shape)} there are ({there}), but was given {given}"
        )
    first, second = (at for at in found if at is not None)
    return first, second


def _dimension(names: tuple[str, ...], dim: int | str) -> int | None:
    """Return a dimension by number (also from the end) or letter; None where there is none such."""
    text = str(dim).strip()
    if text in names:
        return names.index(text)
    number = _whole_number(text)
    return number % len(names) if number is not None and -len(names) <= number < len(names) else None


def _whole_number(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None


def _places(shape: Sequence[int], at: Sequence[Place]) -> list[int | None]:
    if len(at) != len(shape):
        raise TensorMagicError(
            f"at takes an index or ':' for each of the {len(shape)} dimensions, but was given {len(at)}: "
            f"{', '.join(map(_as_given, at))}"
        )
    return [_place(dim, shape[dim], place) for dim, place in enumerate(at)]


def _as_given(place: Place) -> str:
    return ":" if _is_open(place) else str(place)


def _is_open(place: Place) -> bool:
    return place is None or place == slice(None) or str(place).strip() == ":"


def _place(dim: int, size: int, place: Place) -> int | None:
    if _is_open(place):
        return None
    number = _whole_number(str(place).strip())
    if number is None:
        raise TensorMagicError(
            f"at takes an index or ':' for each dimension, but was given {place!r} for dimension {dim}"
        )
    if not -size <= number < size:
        raise TensorMagicError(f"index {number} is out of range for dimension {dim}, which has size {size}")
    return number % size


def _drawn_by(shape: Sequence[int], free: tuple[int, ...]) -> tuple[int | None, int | None]:
    if len(free) > _DRAWN:
        raise TensorMagicError(
            f"two dimensions can be drawn, but at leaves {len(free)} of {len(shape)} open with ':'; give an index for "
            f"all but two, or dims"
        )
    padded = (None,) * (_DRAWN - len(free)) + free
    return padded[0], padded[1]


def with_slices(
    x: torch.Tensor,
    laid: LayoutReport,
    *,
    dims: Sequence[int | str] | None,
    at: Sequence[Place] | None,
    bad: tuple[int, ...] | None = None,
) -> LayoutReport:
    """Return the layout with the slice that was asked for in its grid, and with those that a viewer may turn to.

    Args:
        x: The tensor.
        laid: Its layout, with the default slice.
        dims: See `chosen_cut`.
        at: See `chosen_cut`.
        bad: Index of an element worth seeing: where ``at`` is None, the slice that holds it is shown.

    Raises:
        TensorMagicError: where ``dims`` or ``at`` does not fit the tensor.
    """
    cut = chosen_cut(laid.shape, dims, at)
    if at is None and bad is not None:
        drawn = cut.row_dim, cut.column_dim
        fixed = tuple(0 if dim in drawn else place for dim, place in enumerate(bad))
        cut = cut_along(laid.shape, *drawn, fixed=fixed)
        rows, columns = _with(cut.rows, bad, cut.row_dim), _with(cut.columns, bad, cut.column_dim)
        cut = replace(cut, rows=rows, columns=columns)
    if cut != cut_of(laid.shape):
        laid = show_slice(x, laid, cut)
    return replace(laid, elements=every_element(x, laid))


def _with(shown: tuple[int, ...], place: tuple[int, ...], dim: int | None) -> tuple[int, ...]:
    """Return the indices that are shown along a dimension, the nearest of them moved to that of an element."""
    if dim is None or not shown or place[dim] in shown:
        return shown
    nearest = min(range(len(shown)), key=lambda at: abs(shown[at] - place[dim]))
    return (*shown[:nearest], place[dim], *shown[nearest + 1 :])


def show_slice(x: torch.Tensor, laid: LayoutReport, cut: Cut) -> LayoutReport:
    """Return the layout with another slice in its grid; values are read where they were before."""
    drawn = grid(laid.shape, laid.stride, laid.storage_offset, cut)
    return replace(laid, grid=_with_values(x, drawn, cut) if laid.grid.values else drawn)


def _with_values(x: torch.Tensor, drawn: Grid, cut: Cut) -> Grid:
    values, levels = read_values(x, cut)
    return replace(drawn, values=values, levels=levels)


def every_element(x: torch.Tensor, laid: LayoutReport) -> tuple[str, ...]:
    """Return all elements as short text in reading order, where the tensor is small and has slices to choose from.

    What is read is one transfer of at most `MOST_CARRIED` elements. Empty where there are more, fewer than three
    dimensions, or no values that can be read.
    """
    if len(laid.shape) <= _DRAWN or not laid.grid.values or x.numel() > MOST_CARRIED:
        return ()
    with quiet(), suppress(Exception):  # a subclass may allow one element and refuse all: then there is one slice
        flat = x.detach().resolve_conj().resolve_neg().reshape(-1).tolist()
        return tuple(text_of(value) for value in flat)
    return ()
