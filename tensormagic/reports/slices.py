"""A tensor slice by slice: which row, channel or batch item is bad, empty, or far larger than the others."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BadSlice:
    """One index of a dimension whose slice holds NaN or infinities.

    Attributes:
        index: Which.
        nan: How many of its elements are NaN.
        inf: How many are infinite.
    """

    index: int
    nan: int
    inf: int


@dataclass(frozen=True, slots=True)
class LargeSlice:
    """One index of a dimension whose values are far larger than those of the others.

    Attributes:
        index: Which.
        ratio: Mean magnitude of its finite values, as a multiple of that of the median slice.
    """

    index: int
    ratio: float


@dataclass(frozen=True, slots=True)
class DimensionSlices:
    """The slices along one dimension.

    Attributes:
        dim: Which dimension.
        size: How many slices there are.
        elements: How many elements a slice has.
        looked: How many of them were looked at for everything but NaN and infinities.
        cell_slices: How many slices a cell of the picture stands for.
        levels: For each cell the mean magnitude of the finite values of its largest slice; NaN where none is finite.
        cell_bad: For each cell how many elements are NaN or infinite.
        bad_count: How many slices hold NaN or infinities.
        bad: The first few of them.
        bad_exact: Whether every element was looked at for NaN and infinities.
        zero_count: How many slices are zero everywhere (of what was looked at).
        zero: The first few of them.
        large: Slices far larger than the others, the largest first.
    """

    dim: int
    size: int
    elements: int
    looked: int
    cell_slices: int
    levels: tuple[float, ...]
    cell_bad: tuple[int, ...]
    bad_count: int = 0
    bad: tuple[BadSlice, ...] = ()
    bad_exact: bool = True
    zero_count: int = 0
    zero: tuple[int, ...] = ()
    large: tuple[LargeSlice, ...] = ()
