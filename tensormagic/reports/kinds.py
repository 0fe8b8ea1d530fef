"""What a kind of tensor stores: facts, the stored elements as they lie in memory, and a map of the stored cells.

The kinds themselves are told by `tensormagic.reports.tensor.KindReport`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fact:
    """One thing that is true of this kind: what it is called, its value as text, and what to know about it."""

    label: str
    value: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class StoredLine:
    """One array of a kind that stores only some elements, cut to the stored elements that are listed."""

    name: str
    texts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StoredGroup:
    """Stored elements that belong to one row, column or item: from ``start`` to ``stop`` (exclusive)."""

    label: str
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class StoredList:
    """The first stored elements, one column each, as they lie in memory.

    Attributes:
        count: How many stored elements there are.
        shown: How many are listed: the first ones.
        lines: The arrays, each with a text for every element listed.
        groups: Which row, column or item owns which run of them; empty where there are no such runs.
        group_name: The array that says so: ``"crow_indices"``, ``"offsets"``.
        example: The place whose way is told step by step (`KindReport.reading`); None where none is.
    """

    count: int
    shown: int
    lines: tuple[StoredLine, ...]
    groups: tuple[StoredGroup, ...] = ()
    group_name: str = ""
    example: int | None = None


NOT_STORED, OUTSIDE = -1, -2


@dataclass(frozen=True, slots=True)
class StoredMap:
    """A picture of which cells of a matrix, or of rows of different lengths, are stored.

    Attributes:
        row_name: What a row is: ``"row"``, ``"item"``.
        column_name: What a column is: ``"column"``, ``"position"``.
        row_count: How many rows there are.
        column_count: How many columns there are.
        row_step: Rows in one drawn row; 1 where each has its own.
        column_step: Columns in one drawn column.
        counts: For each drawn cell how many stored elements lie in it.
        places: For each drawn cell the place of its stored element (its last, where there are several) among the
            stored ones, `NOT_STORED`, or `OUTSIDE` where a row has ended. Empty where cells are joined.
        texts: For each drawn cell its value as text; empty where cells are joined.
        title: What is drawn, where it is not simply everything: ``"batch item 0 of 4"``.
        sampled: How many of the stored elements were looked at, where not all were; else 0.
    """

    row_name: str
    column_name: str
    row_count: int
    column_count: int
    row_step: int
    column_step: int
    counts: tuple[tuple[int, ...], ...]
    places: tuple[tuple[int, ...], ...] = ()
    texts: tuple[tuple[str, ...], ...] = ()
    title: str = ""
    sampled: int = 0
