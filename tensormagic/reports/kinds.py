"""What sort of tensor a tensor is: sparse, nested, fake, distributed …, and where its numbers really lie.

One `KindReport` for what holds the numbers (at most one), and one for each further trait that is worth a sentence
(parameter, conjugate view, shared memory, an unusual dtype). All are plain text and numbers, made by
`tensormagic.collectors.kinds`; a new kind needs no change here and none in a renderer.
"""

from __future__ import annotations

from dataclasses import dataclass

# A component is a whole report, which in turn holds kinds: the module is named here, its class when types are asked for
from tensormagic.reports import tensor


@dataclass(frozen=True, slots=True)
class Fact:
    """One thing that is true of this kind: what it is called, its value as text, and what to know about it."""

    label: str
    value: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Component:
    """A tensor inside the tensor.

    Attributes:
        name: How a person reaches it, e.g. ``"x.crow_indices()"``.
        role: What it is for, in one sentence.
        report: The tensor itself, without a search for who shares it.
    """

    name: str
    role: str
    report: tensor.TensorReport


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


@dataclass(frozen=True, slots=True)
class KindReport:
    """One kind that a tensor is of.

    Attributes:
        key: Its name in the table of kinds: ``"sparse_csr"``, ``"vmap"``, ``"parameter"``.
        label: What to call it on a badge: ``"CSR"``, ``"conjugate view"``.
        summary: What that means for this tensor, in one sentence.
        facts: What is known of it, in the order to show.
        components: The tensors it is made of.
        map: Which cells are stored, where that is a matrix or rows.
        stored: The stored elements as they lie in memory.
        reading: How one element is found, step by step, with its numbers.
        stored_bytes: What it really takes, where that is not its elements times their size.
    """

    key: str
    label: str
    summary: str
    facts: tuple[Fact, ...] = ()
    components: tuple[Component, ...] = ()
    map: StoredMap | None = None
    stored: StoredList | None = None
    reading: tuple[str, ...] = ()
    stored_bytes: int | None = None
