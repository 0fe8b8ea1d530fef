"""Pictures of what a kind stores that stores only some elements: as a matrix, and as the arrays in memory.

The host sees a bounded number of stored elements, in one transfer: a large one is counted over a grid of cells, from
evenly spaced stored elements where there are very many, and the picture says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from tensormagic.reports import NOT_STORED, OUTSIDE, StoredMap

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
    return StoredMap(
        row_name=frame.row_name,
        column_name=frame.column_name,
        row_count=frame.row_count,
        column_count=frame.column_count,
        row_step=frame.row_step,
        column_step=frame.column_step,
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
    return StoredMap(
        row_name=frame.row_name,
        column_name=frame.column_name,
        row_count=frame.row_count,
        column_count=frame.column_count,
        row_step=frame.row_step,
        column_step=frame.column_step,
        counts=tuple(tuple(int(count) for count in row) for row in counts),
        places=places,
        texts=tuple(tuple(texts[at] if 0 <= at < len(texts) else "" for at in row) for row in places),
        title=frame.title,
    )


def _ragged_places(frame: Frame, lengths: Sequence[int], starts: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    return tuple(
        tuple(start + at if at < length else OUTSIDE for at in range(frame.column_count))
        for start, length in zip(starts, lengths, strict=True)
    )


def _rows(flat: np.ndarray, width: int) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(int(item) for item in row) for row in flat.reshape(-1, width))


def _texts(flat: np.ndarray, texts: Sequence[str], height: int, width: int) -> tuple[tuple[str, ...], ...]:
    """Return each cell's value; several stored for one cell are written as the sum they stand for."""
    cells: list[list[str]] = [[] for _ in range(height * width)]
    for at, text in zip(flat, texts, strict=False):
        cells[at].append(text)
    return tuple(tuple(" + ".join(cell) for cell in cells[row * width : (row + 1) * width]) for row in range(height))
