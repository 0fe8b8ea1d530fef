"""What a kind of tensor says of itself, and pictures of what it stores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from tensormagic.collectors.geometry.layout import text_of
from tensormagic.reports import NOT_STORED, OUTSIDE, Fact, Placed, StoredList, StoredMap
from tensormagic.words import plural

# What one kind of tensor has to say about itself, before it becomes a report: the pieces that every kind's file uses.
#
# These hold tensors (the components), so that they never leave the collectors.

MOST_COPIED = 2**24  # elements of a kind whose numbers can only be had as a copy
MOST_NAMED = 6  # of the many things that a fact may list
ITSELF = "\0"  # stands for the tensor's name in code that a summary or a fact gives
MOST_DRAWN = 16  # up to so many rows and columns each is drawn by itself
BINS = 32  # rows and columns of a picture whose cells are joined
MOST_LISTED = 16  # stored elements in a list
MOST_COUNTED = 2**20  # stored elements whose places are looked at


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
    error: Exception | None = None  # why the kind could not be described, where it says nothing


@dataclass(frozen=True, slots=True)
class Kind:
    """An entry of the table."""

    key: str  # Its name.
    holds: Callable[[Any], bool]  # Whether a tensor is of this kind. May raise, which counts as no.
    # What it says about such a tensor. May raise: that becomes a gap, and the tensor keeps its kind.
    describe: Callable[[Any], Description]
    strided: bool = False  # Whether strides, storage and elements of such a tensor can be read as those of a plain one.
    printable: bool = True  # Whether torch prints such a tensor's values without running code that is not torch's.


def always(label: str, summary: str, *facts: Fact, **more: Any) -> Callable[[Any], Description]:
    """Return what describes every tensor of a kind in the same words."""
    return lambda _: Description(label, summary, facts, **more)


def copied(x: torch.Tensor, copy: Callable[[torch.Tensor], torch.Tensor], of_what: str) -> Values | None:
    """Return numbers that can only be had as a copy; nothing where that would be a large one."""
    return Values(copy(x), of_what) if x.numel() <= MOST_COPIED else None


def has_class(x: object, module: str, name: str) -> bool:
    """Return whether an object is of a class of that name, or of one derived from it; its module is not imported."""
    return any(cls.__name__ == name and cls.__module__.startswith(module) for cls in type(x).__mro__)


def counting(number: int) -> str:
    """Return what to call the elements that a mask leaves: ``the 2 elements that count``."""
    return f"the {plural(number, 'element')} that {'counts' if number == 1 else 'count'}"


def bytes_of(*tensors: torch.Tensor) -> int:
    """Return the bytes that the elements of tensors take."""
    return sum(x.numel() * x.element_size() for x in tensors)


def element_text(value: Any) -> str:
    """Return a number as short text, a list of them in brackets (``[1, 2]``), a longer one cut."""
    if not isinstance(value, list):
        return text_of(value)
    inner = ", ".join(map(element_text, value[:MOST_NAMED]))
    return f"[{inner}, …]" if len(value) > MOST_NAMED else f"[{inner}]"


# Pictures of what a kind stores that stores only some elements: as a matrix, and as the arrays in memory.
#
# The host sees a bounded number of stored elements, in one transfer: a large one is counted over a grid of cells,
# from evenly spaced stored elements where there are very many, and the picture says so.
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
        return max(self.row_count, self.column_count) <= MOST_DRAWN

    @property
    def steps(self) -> tuple[int, int]:
        """Rows and columns in one drawn cell."""
        return (1, 1) if self.small else (-(-self.row_count // BINS), -(-self.column_count // BINS))

    def filled(self, cells: np.ndarray, **found: Any) -> StoredMap:
        """Return the picture, given how many stored elements each drawn cell has and the other fields of it."""
        own = (self.row_name, self.column_name, self.row_count, self.column_count, *self.steps)
        return StoredMap(*own, tuple(map(tuple, cells.tolist())), **{"title": self.title, **found})


def stored_map(
    frame: Frame, rows: torch.Tensor, columns: torch.Tensor, texts: Sequence[str] = (), *, every: int = 1
) -> StoredMap | None:
    """Return the picture of stored elements in a matrix, given the row and column of each; None where it has no cell.

    Their texts are for a small matrix; ``every`` is of how many stored elements each of these is one.
    """
    if not (frame.row_count and frame.column_count):
        return None
    (row_step, column_step), step = frame.steps, max(-(-rows.numel() // MOST_COUNTED), 1)
    down, across = torch.stack([rows[::step].to(torch.int64), columns[::step].to(torch.int64)]).cpu().numpy()
    every *= step
    # An index outside the matrix is a fault that torch need not have looked for.
    inside = (down >= 0) & (down < frame.row_count) & (across >= 0) & (across < frame.column_count)
    outside = int((~inside).sum()) * every
    height, width = -(-frame.row_count // row_step), -(-frame.column_count // column_step)
    flat = down[inside] // row_step * width + across[inside] // column_step
    cells = np.bincount(flat, minlength=height * width).reshape(height, width) * every
    places, written = np.full(height * width, NOT_STORED), [list[str]() for _ in range(height * width)]
    places[flat] = np.flatnonzero(inside)
    for at, text in zip(flat, (text for text, held in zip(texts, inside, strict=False) if held), strict=False):
        written[at].append(text)  # several stored for one cell are written as the sum they stand for
    joined = [" + ".join(cell) for cell in written]
    starts = range(0, height * width, width) if frame.small else ()
    return frame.filled(
        cells,
        places=tuple(tuple(places[start : start + width].tolist()) for start in starts),
        texts=tuple(tuple(joined[start : start + width]) for start in starts),
        title="; ".join(filter(None, (frame.title, f"{outside} more have an index outside it" if outside else ""))),
        sampled=len(inside) if every > 1 else 0,
    )


def ragged_map(frame: Frame, lengths: Sequence[int], starts: Sequence[int], texts: Sequence[str]) -> StoredMap | None:
    """Return the picture of rows that are runs of stored elements, the first given as text; None where no cell is."""
    if not (frame.row_count and frame.column_count):
        return None
    row_step, column_step = frame.steps
    own = np.asarray(lengths, dtype=np.int64)[:, None]
    edges = np.arange(-(-frame.column_count // column_step) + 1) * column_step
    reached = [np.minimum(own[row : row + row_step], edges).sum(axis=0) for row in range(0, frame.row_count, row_step)]
    places = tuple(
        tuple(start + at if at < length else OUTSIDE for at in range(frame.column_count))
        for start, length in zip(starts, lengths, strict=True)
        if frame.small
    )
    written = tuple(tuple(texts[at] if 0 <= at < len(texts) else "" for at in row) for row in places)
    return frame.filled(np.diff(reached), places=places, texts=written)
