"""What a kind of tensor says of itself, and pictures of what it stores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from tensormagic.reports import NOT_STORED, OUTSIDE, Fact, Placed, StoredList, StoredMap
from tensormagic.words import number_of_bytes

# What one kind of tensor has to say about itself, before it becomes a report: the pieces that every kind's file uses.
#
# These hold tensors (the components), so that they never leave the collectors.

MOST_COPIED = 2**24  # elements of a kind whose numbers can only be had as a copy
MOST_NAMED = 6  # of the many things that a fact may list
ITSELF = "\0"  # stands for the tensor's name in code that a summary or a fact gives


@dataclass(frozen=True, slots=True)
class Part:
    """A component: how it is reached from the tensor (``".values()"``), what it is for, and the tensor."""

    path: str
    role: str
    tensor: torch.Tensor


@dataclass(frozen=True, slots=True)
class Values:
    """Where the numbers of a kind lie that has none of its own: a strided tensor, and what to call its elements."""

    tensor: torch.Tensor
    of_what: str


@dataclass(frozen=True, slots=True)
class Description:
    """What a kind says about one tensor; the fields are those of `reports.KindReport`."""

    label: str  # what to call it
    summary: str  # what it means, in one sentence
    facts: tuple[Fact, ...] = ()  # what is known
    parts: tuple[Part, ...] = ()  # the tensors it is made of
    values: Values | None = None  # where its numbers are; None where it is strided itself, or has none
    shape: tuple[int, ...] | None = None  # sizes, where the tensor itself cannot be asked for them
    map: StoredMap | None = None  # which cells are stored
    stored: StoredList | None = None  # the stored elements
    reading: tuple[str, ...] = ()  # how one element is found
    no_values: str = ""  # why there are no numbers to show; empty where there are
    stored_bytes: int | None = None  # what it really takes, where that is not its elements times their size
    placed: Placed | None = None  # how it is spread over ranks


@dataclass(frozen=True, slots=True)
class Kind:
    """An entry of the table."""

    key: str  # Its name.
    holds: Callable[[Any], bool]  # Whether a tensor is of this kind. May raise, which counts as no.
    # What it says about such a tensor. May raise: that becomes a gap, and the tensor keeps its kind.
    describe: Callable[[Any], Description]
    strided: bool = False  # Whether strides, storage and elements of such a tensor can be read as those of a plain one.
    printable: bool = True  # Whether torch prints such a tensor's values without running code that is not torch's.


def copied(x: torch.Tensor, copy: Callable[[torch.Tensor], torch.Tensor], of_what: str) -> Values | None:
    """Return numbers that can only be had as a copy; nothing where that would be a large one."""
    return Values(copy(x), of_what) if x.numel() <= MOST_COPIED else None


def without_numbers(x: torch.Tensor) -> bool:
    """Return whether a component has no numbers to look at: on the meta device, or fake."""
    return bool(x.is_meta) or type(x) is not torch.Tensor


def has_class(x: object, module: str, name: str) -> bool:
    """Return whether an object's class is one of that name, or derived from it, without importing where it comes from.

    A tensor of that class can only exist where its module has been imported.
    """
    return any(cls.__name__ == name and cls.__module__.startswith(module) for cls in type(x).__mro__)


def bytes_of(x: torch.Tensor) -> int:
    """Return the bytes that a tensor's elements take."""
    return x.numel() * x.element_size()


def element_text(value: Any) -> str:
    """Return a number as short text, a list of them in brackets (``[1, 2]``), a longer one cut."""
    if isinstance(value, list):
        inner = ", ".join(element_text(item) for item in value[:MOST_NAMED])
        return f"[{inner}, …]" if len(value) > MOST_NAMED else f"[{inner}]"
    if isinstance(value, complex):
        return f"{value.real:.3g}{value.imag:+.3g}j"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def dense_fact(kept: int, dense: int) -> Fact:
    """Return what a dense tensor would take, against what is kept."""
    note = ""
    if kept and dense:
        more = "as much" if dense == kept else f"{dense / kept:.3g} times as much"
        less = f"less: this takes {kept / dense:.3g} times as much"
        note = more if dense >= kept else less
    return Fact("dense would take", number_of_bytes(dense), note)


# Pictures of what a kind stores that stores only some elements: as a matrix, and as the arrays in memory.
#
# The host sees a bounded number of stored elements, in one transfer: a large one is counted over a grid of cells,
# from evenly spaced stored elements where there are very many, and the picture says so.

MOST_CELLS_ROWS, MOST_CELLS_COLUMNS = 16, 16  # up to here each row and column is drawn by itself
BINS = 32  # rows and columns of a picture whose cells are joined
MOST_LISTED = 16  # stored elements in a list
MOST_COUNTED = 2**20  # stored elements whose places are looked at


@dataclass(frozen=True, slots=True)
class Frame:
    """What a picture's rows and columns are, and how many there are."""

    row_name: str
    column_name: str
    row_count: int
    column_count: int
    title: str = ""

    @property
    def small(self) -> bool:
        """Whether each row and column is drawn by itself."""
        return self.row_count <= MOST_CELLS_ROWS and self.column_count <= MOST_CELLS_COLUMNS

    @property
    def row_step(self) -> int:
        """Rows in one drawn row."""
        return 1 if self.small else max(-(-self.row_count // BINS), 1)

    @property
    def column_step(self) -> int:
        """Columns in one drawn column."""
        return 1 if self.small else max(-(-self.column_count // BINS), 1)

    @property
    def drawn(self) -> tuple[int, int]:
        """How many rows and columns are drawn."""
        return -(-self.row_count // self.row_step), -(-self.column_count // self.column_step)

    def filled(self, **found: Any) -> StoredMap:
        """Return the picture, given the other fields of `StoredMap`."""
        own = (self.row_name, self.column_name, self.row_count, self.column_count, self.row_step, self.column_step)
        return StoredMap(*own, **{"title": self.title, **found})


@dataclass(frozen=True, slots=True)
class Places:
    """Where stored elements lie: row and column of each, on the host, and every how-manieth of them these are."""

    rows: np.ndarray
    columns: np.ndarray
    every: int = 1

    def inside(self, frame: Frame) -> np.ndarray:
        """Return which of them lie in a matrix. An index outside it is a fault that torch need not have looked for."""
        rows = (self.rows >= 0) & (self.rows < frame.row_count)
        return rows & (self.columns >= 0) & (self.columns < frame.column_count)

    @classmethod
    def of(cls, rows: torch.Tensor, columns: torch.Tensor, already: int = 1) -> Places:
        """Fetch places from the device in one transfer, thinned where there are very many.

        Args:
            rows: Row of each stored element.
            columns: Column of each.
            already: Of how many stored elements each of these is one: what was left out before.
        """
        every = max(-(-rows.numel() // MOST_COUNTED), 1)
        both = torch.stack([rows[::every].to(torch.int64), columns[::every].to(torch.int64)]).cpu().numpy()
        return cls(both[0], both[1], every * already)


def stored_map(frame: Frame, places: Places, texts: Sequence[str] = ()) -> StoredMap | None:
    """Return the picture of stored elements in a matrix; None where it has no cell.

    Args:
        frame: The matrix.
        places: Where the stored elements lie.
        texts: Their values as text, for a small matrix.
    """
    if not (frame.row_count and frame.column_count):
        return None
    height, width = frame.drawn
    inside = places.inside(frame)
    rows, columns = places.rows[inside], places.columns[inside]
    flat = rows // frame.row_step * width + columns // frame.column_step
    counts = np.bincount(flat, minlength=height * width)[: height * width] * places.every
    last = np.full(height * width, NOT_STORED)
    last[flat] = np.flatnonzero(inside)
    texts = [text for text, held in zip(texts, inside, strict=False) if held]
    outside = int((~inside).sum()) * places.every
    return frame.filled(
        counts=_rows(counts, width),
        places=_rows(last, width) if frame.small else (),
        texts=_texts(flat, texts, height, width) if frame.small else (),
        title="; ".join(filter(None, (frame.title, f"{outside} more have an index outside it" if outside else ""))),
        sampled=len(inside) if places.every > 1 else 0,
    )


def ragged_map(frame: Frame, lengths: Sequence[int], starts: Sequence[int], texts: Sequence[str]) -> StoredMap | None:
    """Return the picture of rows of different lengths, each a run of stored elements; None where there is no cell.

    Args:
        frame: Its rows, and as columns the longest row.
        lengths: How long each row is.
        starts: Where each row starts among the stored elements.
        texts: The first stored elements as text, from the very first.
    """
    if not (frame.row_count and frame.column_count):
        return None
    height, width = frame.drawn
    own, counts = np.asarray(lengths, dtype=np.int64), np.zeros((height, width), dtype=np.int64)
    edges = np.arange(width + 1) * frame.column_step
    for row in range(height):
        some = own[row * frame.row_step : (row + 1) * frame.row_step, None]
        counts[row] = np.diff(np.minimum(some, edges[None, :]).sum(axis=0))
    places = _ragged_places(frame, lengths, starts) if frame.small else ()
    return frame.filled(
        counts=_rows(counts, width),
        places=places,
        texts=tuple(tuple(texts[at] if 0 <= at < len(texts) else "" for at in row) for row in places),
    )


def _ragged_places(frame: Frame, lengths: Sequence[int], starts: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    return tuple(
        tuple(start + at if at < length else OUTSIDE for at in range(frame.column_count))
        for start, length in zip(starts, lengths, strict=True)
    )


def _rows(numbers: np.ndarray, width: int) -> tuple[tuple[int, ...], ...]:
    return tuple(map(tuple, numbers.reshape(-1, width).tolist()))


def _texts(flat: np.ndarray, texts: Sequence[str], height: int, width: int) -> tuple[tuple[str, ...], ...]:
    """Return each cell's value; several stored for one cell are written as the sum they stand for."""
    cells: list[list[str]] = [[] for _ in range(height * width)]
    for at, text in zip(flat, texts, strict=False):
        cells[at].append(text)
    return tuple(tuple(" + ".join(cell) for cell in cells[row * width : (row + 1) * width]) for row in range(height))
