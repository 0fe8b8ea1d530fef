"""How a strided tensor lies in its storage: the index grid, the storage strip, and the formula that links them.

Everything here counts in *elements* of the tensor's dtype from the storage's first byte, unless a name says bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tensormagic.reports.views import ViewReport


@dataclass(frozen=True, slots=True)
class StorageReport:
    """The one-dimensional buffer behind a tensor.

    Attributes:
        address: Of the first byte; 0 for storages without memory (meta, fake).
        nbytes: Size of the whole storage.
        elements: ``nbytes`` divided by the tensor's element size, rounded down.
        device: As torch writes it: ``"cpu"``, ``"cuda:0"``.
        resizable: Whether torch may resize it.
        shared: Whether it lies in memory shared between processes.
        pinned: Whether it lies in page-locked host memory.
    """

    address: int
    nbytes: int
    elements: int
    device: str
    resizable: bool = False
    shared: bool = False
    pinned: bool = False


@dataclass(frozen=True, slots=True)
class Grid:
    """A two-dimensional cut through a tensor: for each shown index its storage offset and its value.

    Attributes:
        row_dim: The dimension that runs downwards, or None (0-d and 1-d tensors have a single row).
        column_dim: The dimension that runs to the right, or None (0-d).
        rows: Indices shown along ``row_dim``; a subset where the dimension is too long.
        columns: Indices shown along ``column_dim``.
        row_count: Length of ``row_dim``: how many rows there are in truth.
        column_count: Length of ``column_dim``.
        fixed: The index of every dimension (0 at row_dim and column_dim): which slice this is.
        offsets: ``offsets[r][c]`` is the storage offset of the element shown at row r, column c.
        values: ``values[r][c]`` the element as short text (``"15"``, ``"nan"``, ``"1+2j"``); empty tuple where
            values cannot be read.
        levels: ``levels[r][c]`` the element as a float for colouring (complex: magnitude; bool: 0 or 1).
    """

    row_dim: int | None
    column_dim: int | None
    rows: tuple[int, ...]
    columns: tuple[int, ...]
    row_count: int
    column_count: int
    fixed: tuple[int, ...]
    offsets: tuple[tuple[int, ...], ...]
    values: tuple[tuple[str, ...], ...] = ()
    levels: tuple[tuple[float, ...], ...] = ()

    @property
    def complete(self) -> bool:
        """Whether every row and column of this slice is shown."""
        return len(self.rows) == self.row_count and len(self.columns) == self.column_count


@dataclass(frozen=True, slots=True)
class StripCell:
    """One cell of the storage strip: the storage elements ``start`` to ``stop`` (exclusive).

    Attributes:
        start: First storage element of the cell.
        stop: One past the last; ``stop - start`` is 1 where every element has its own cell.
        distinct: How many of these storage elements the tensor reads at all (None: not known exactly).
        reads: How many of the tensor's elements lie here, repeats counted (None: not known exactly).
        first_rank: When the tensor, walked row by row (last index fastest), first reads here: 1 for its very
            first element; None where it never does, or where the rank is not known.
    """

    start: int
    stop: int
    distinct: int | None
    reads: int | None
    first_rank: int | None = None


@dataclass(frozen=True, slots=True)
class Strip:
    """The storage drawn as a strip of cells, each one element or an equal run of elements.

    Attributes:
        start: First storage element drawn.
        stop: One past the last storage element drawn; the strip may be a window of the storage.
        cell_elements: Storage elements in one cell (the last cell may hold fewer).
        cells: From ``start`` on.
        exact: False where counts had to be sampled; renderers say so.
        row_length: Where the base tensor has rows worth drawing under the strip: their length in elements, else 0.
        row_name: What those rows are rows of, e.g. ``"a"``; empty where nothing is known.
    """

    start: int
    stop: int
    cell_elements: int
    cells: tuple[StripCell, ...]
    exact: bool = True
    row_length: int = 0
    row_name: str = ""


@dataclass(frozen=True, slots=True)
class MemoryFormat:
    """Whether the tensor is contiguous in one memory format, and if not, why not.

    Attributes:
        name: ``"contiguous_format"``, ``"channels_last"`` or ``"channels_last_3d"``.
        holds: Whether torch says that the tensor is contiguous in it.
        stride: The stride that a tensor of this shape would have in this format.
        breaking_dim: The first dimension, from the innermost of the format outwards, whose stride differs; None
            where the format holds.
    """

    name: str
    holds: bool
    stride: tuple[int, ...]
    breaking_dim: int | None = None


@dataclass(frozen=True, slots=True)
class LayoutReport:
    """Where each index of a strided tensor lies in its storage.

    Attributes:
        shape: Sizes.
        stride: In elements.
        storage_offset: In elements.
        dim_names: One letter a dimension for the formula: ``("i", "j", "k", …)``.
        grid: The index grid, coloured by storage offset.
        strip: The storage strip, or None where the storage is empty.
        formats: The memory formats that exist for this number of dimensions.
        lowest: The smallest storage offset read (None for an empty tensor).
        highest: The largest storage offset read (None for an empty tensor).
        distinct: How many storage elements are read at all; None where that is too hard to count.
        internal_overlap: ``"no"``, ``"yes"`` or ``"maybe"``: whether two indices read the same element.
        jumps: The first few differences between successive offsets, row by row; shows the walking order.
        contiguous_bytes: What a contiguous copy of the tensor would take.
        views: Which dimensions ``.view()`` can merge.
        elements: Every element as short text in reading order, for small tensors with more slices than the one in
            ``grid``; else empty.
    """

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    storage_offset: int
    dim_names: tuple[str, ...]
    grid: Grid
    strip: Strip | None
    formats: tuple[MemoryFormat, ...]
    lowest: int | None
    highest: int | None
    distinct: int | None
    internal_overlap: Literal["no", "yes", "maybe"]
    jumps: tuple[int, ...]
    contiguous_bytes: int
    views: ViewReport | None = None
    elements: tuple[str, ...] = ()

    def offset(self, index: tuple[int, ...]) -> int:
        """Return the storage offset of ``index``: storage_offset + Σ stride·index."""
        return self.storage_offset + sum(step * at for step, at in zip(self.stride, index, strict=True))
