"""How a strided tensor lies in its storage, which views it can have, and whether a result shares its memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import prod
from typing import Literal


@dataclass(frozen=True, slots=True)
class Barrier:
    """Two neighbouring dimensions that no view can merge, with the numbers that say why.

    They would merge if one step along the outer one were as long as the whole inner one: ``stride == needed``.
    """

    outer: int  #: The dimension left of the barrier.
    inner: int  #: The nearest dimension to the right of it; dimensions of size 1 between the two do not matter.
    stride: int  #: The stride of ``outer``.
    needed: int  #: The stride at which they would merge: ``inner_size * inner_stride``.
    inner_size: int  #: The size of ``inner``.
    inner_stride: int  #: The stride of ``inner``.


@dataclass(frozen=True, slots=True)
class ViewReport:
    """Which shapes ``.view()`` gives without a copy: those that keep every group of dimensions to itself."""

    groups: tuple[tuple[int, ...], ...]  #: Dimensions that merge, from the outermost group inwards; none of size 1.
    sizes: tuple[int, ...]  #: How many elements each group spans.
    strides: tuple[int, ...]  #: The stride each group has once it is merged.
    barriers: tuple[Barrier, ...]  #: What is between one group and the next; one less than there are groups.
    copy_bytes: int  #: What ``.reshape()`` copies where ``.view()`` cannot.

    @property
    def flat(self) -> bool:
        """Whether ``.view(-1)`` works, and with it a view to any shape of as many elements."""
        return not self.barriers


@dataclass(frozen=True, slots=True)
class ViewFailure:
    """Why one view cannot be: a dimension of the wanted shape reaches over a barrier."""

    dim: int | None  #: The dimension of the wanted shape that would reach over it; None where the counts differ.
    barrier: Barrier | None  #: What it would reach over; None where the number of elements differs.
    elements: int  #: How many elements the tensor has.
    wanted: int  #: How many the wanted shape has.


# How a strided tensor lies in its storage: the index grid, the storage strip, and the formula that links them.
#
# Everything here counts in *elements* of the tensor's dtype from the storage's first byte, unless a name says bytes.


@dataclass(frozen=True, slots=True)
class StorageReport:
    """The one-dimensional buffer behind a tensor."""

    address: int  #: Of the first byte; 0 for storages without memory (meta, fake).
    nbytes: int  #: Size of the whole storage.
    elements: int  #: ``nbytes`` divided by the tensor's element size, rounded down.
    device: str  #: As torch writes it: ``"cpu"``, ``"cuda:0"``.
    resizable: bool = False  #: Whether torch may resize it.
    shared: bool = False  #: Whether it lies in memory shared between processes.
    pinned: bool = False  #: Whether it lies in page-locked host memory.


@dataclass(frozen=True, slots=True)
class Grid:
    """A two-dimensional cut through a tensor: for each shown index its storage offset and its value."""

    row_dim: int | None  #: The dimension that runs downwards, or None (0-d and 1-d tensors have a single row).
    column_dim: int | None  #: The dimension that runs to the right, or None (0-d).
    rows: tuple[int, ...]  #: Indices shown along ``row_dim``; a subset where the dimension is too long.
    columns: tuple[int, ...]  #: Indices shown along ``column_dim``.
    row_count: int  #: Length of ``row_dim``: how many rows there are in truth.
    column_count: int  #: Length of ``column_dim``.
    fixed: tuple[int, ...]  #: The index of every dimension (0 at row_dim and column_dim): which slice this is.
    offsets: tuple[tuple[int, ...], ...]  #: ``offsets[r][c]`` is the storage offset of the element at row r, column c.
    #: ``values[r][c]`` the element as short text (``"15"``, ``"nan"``, ``"1+2j"``); empty tuple where values cannot be
    #: read.
    values: tuple[tuple[str, ...], ...] = ()
    #: ``levels[r][c]`` the element as a float for colouring (complex: magnitude; bool: 0 or 1).
    levels: tuple[tuple[float, ...], ...] = ()

    @property
    def complete(self) -> bool:
        """Whether every row and column of this slice is shown."""
        return len(self.rows) == self.row_count and len(self.columns) == self.column_count


@dataclass(frozen=True, slots=True)
class StripCell:
    """One cell of the storage strip: the storage elements ``start`` to ``stop`` (exclusive)."""

    start: int  #: First storage element of the cell.
    stop: int  #: One past the last; ``stop - start`` is 1 where every element has its own cell.
    distinct: int | None  #: How many of these storage elements the tensor reads at all (None: not known exactly).
    reads: int | None  #: How many of the tensor's elements lie here, repeats counted (None: not known exactly).


@dataclass(frozen=True, slots=True)
class Strip:
    """The storage drawn as a strip of cells, each one element or an equal run of elements."""

    start: int  #: First storage element drawn.
    stop: int  #: One past the last storage element drawn; the strip may be a window of the storage.
    cell_elements: int  #: Storage elements in one cell (the last cell may hold fewer).
    cells: tuple[StripCell, ...]  #: From ``start`` on.
    exact: bool = True  #: False where counts had to be sampled; renderers say so.
    row_length: int = 0  #: Where the base tensor has rows worth drawing under the strip: their length in elements.
    row_name: str = ""  #: What those rows are rows of, e.g. ``"a"``; empty where nothing is known.


@dataclass(frozen=True, slots=True)
class MemoryFormat:
    """Whether the tensor is contiguous in one memory format, and if not, why not."""

    name: str  #: ``"contiguous_format"``, ``"channels_last"`` or ``"channels_last_3d"``.
    holds: bool  #: Whether torch says that the tensor is contiguous in it.
    stride: tuple[int, ...]  #: The stride that a tensor of this shape would have in this format.
    #: The first dimension, from the innermost of the format outwards, whose stride differs; None where the format
    #: holds.
    breaking_dim: int | None = None


@dataclass(frozen=True, slots=True)
class LayoutReport:
    """Where each index of a strided tensor lies in its storage."""

    shape: tuple[int, ...]  #: Sizes.
    stride: tuple[int, ...]  #: In elements.
    storage_offset: int  #: In elements.
    dim_names: tuple[str, ...]  #: One letter a dimension for the formula: ``("i", "j", "k", …)``.
    grid: Grid  #: The index grid, coloured by storage offset.
    strip: Strip | None  #: The storage strip, or None where the storage is empty.
    formats: tuple[MemoryFormat, ...]  #: The memory formats that exist for this number of dimensions.
    lowest: int | None  #: The smallest storage offset read (None for an empty tensor).
    highest: int | None  #: The largest storage offset read (None for an empty tensor).
    distinct: int | None  #: How many storage elements are read at all; None where that is too hard to count.
    internal_overlap: Literal["no", "yes", "maybe"]  #: Whether two indices read the same element.
    jumps: tuple[int, ...]  #: The first few differences between offsets, row by row: the order of walking.
    contiguous_bytes: int  #: What a contiguous copy of the tensor would take.
    views: ViewReport | None = None  #: Which dimensions ``.view()`` can merge.
    #: Every element as short text in reading order, for small tensors with more slices than the one in ``grid``; else
    #: empty.
    elements: tuple[str, ...] = ()

    def offset(self, index: tuple[int, ...]) -> int:
        """Return the storage offset of ``index``: storage_offset + Σ stride·index."""
        return self.storage_offset + sum(step * at for step, at in zip(self.stride, index, strict=True))


# Which ``.view(shape)`` works, by the rule torch itself goes by: integer arithmetic, for tensors of any device.
#
# A view may split and merge dimensions only inside runs of dimensions that lie in memory as one dimension would. The
# rule is that of ``computeStride`` in torch's ``ATen/TensorUtils.cpp``. It stands beside the reports because a
# collector and a diagnosis both go by it.


def contiguous_stride(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the stride torch gives a fresh tensor of this shape (sizes of 0 count as 1)."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def views(shape: Sequence[int], stride: Sequence[int], *, element_size: int = 1) -> ViewReport:
    """Return which dimensions merge, and what keeps the others apart.

    Args:
        shape: Sizes.
        stride: In elements.
        element_size: Bytes an element, for what a copy takes.
    """
    groups, barriers = _groups(shape, stride)
    return ViewReport(
        groups=tuple(map(tuple, groups)),
        sizes=tuple(prod(shape[dim] for dim in group) for group in groups),
        strides=tuple(stride[group[-1]] for group in groups),
        barriers=tuple(barriers),
        copy_bytes=prod(shape) * element_size,
    )


def _groups(shape: Sequence[int], stride: Sequence[int]) -> tuple[list[list[int]], list[Barrier]]:
    """Return the groups of dimensions and the barriers between them; without elements every view works: one group."""
    if 0 in shape:
        return [list(range(len(shape)))], []
    groups: list[list[int]] = []
    barriers: list[Barrier] = []
    for dim in reversed([dim for dim, size in enumerate(shape) if size != 1]):
        barrier = _between(shape, stride, dim, groups[0][0]) if groups else None
        if barrier is None and groups:
            groups[0].insert(0, dim)
            continue
        groups.insert(0, [dim])
        barriers[:0] = [barrier] if barrier else []
    return groups, barriers


def _between(shape: Sequence[int], stride: Sequence[int], outer: int, inner: int) -> Barrier | None:
    needed = shape[inner] * stride[inner]
    if stride[outer] == needed:
        return None
    return Barrier(outer, inner, stride[outer], needed, shape[inner], stride[inner])


def view_stride(shape: Sequence[int], stride: Sequence[int], wanted: Sequence[int]) -> tuple[int, ...] | None:
    """Return the stride that ``.view(wanted)`` would have, or None where torch refuses it.

    Dimensions of size 1 in ``wanted`` get some stride; which one is of no consequence.

    Args:
        shape: Sizes of the tensor.
        stride: Its stride, in elements.
        wanted: The wanted sizes, none of them -1 (see `resolved`).
    """
    if prod(shape) != prod(wanted):
        return None
    if 0 in shape:
        return tuple(stride) if tuple(shape) == tuple(wanted) else contiguous_stride(wanted)
    groups, _ = _groups(shape, stride)
    found: list[int] = []
    left = list(wanted)
    for group in reversed(groups):
        step, span = stride[group[-1]], prod(shape[dim] for dim in group)
        while left and (span > 1 or left[-1] == 1):
            size = left.pop()
            if span % size:
                return None
            found.append(step)
            step, span = step * size, span // size
        if span > 1:
            return None
    return (*([1] * len(left)), *reversed(found))


def resolved(shape: Sequence[int], wanted: Sequence[int]) -> tuple[int, ...]:
    """Return ``wanted`` with a single -1 replaced by the size that makes the number of elements right."""
    rest = prod(size for size in wanted if size != -1)
    return tuple(prod(shape) // rest if size == -1 and rest else size for size in wanted)


def why_not(shape: Sequence[int], stride: Sequence[int], wanted: Sequence[int]) -> ViewFailure | None:
    """Return why ``.view(wanted)`` fails: the innermost barrier that a wanted dimension reaches over; None if it works.

    Args:
        shape: Sizes of the tensor.
        stride: Its stride, in elements.
        wanted: The wanted sizes; one of them may be -1.
    """
    wanted = resolved(shape, wanted)
    counts = prod(shape), prod(wanted)
    if view_stride(shape, stride, wanted) is not None:
        return None
    if counts[0] != counts[1]:
        return ViewFailure(None, None, *counts)
    ends = list(accumulate(reversed(wanted), lambda all_, size: all_ * size))  # elements from each dimension inwards
    groups, barriers = _groups(shape, stride)
    inside = 1
    for group, barrier in zip(reversed(groups), reversed(barriers), strict=False):
        inside *= prod(shape[dim] for dim in group)
        if inside not in ends:
            dim = next(at for at, end in enumerate(ends) if end > inside)
            return ViewFailure(len(wanted) - 1 - dim, barrier, *counts)
    return None


Outcome = Literal["same object", "view", "written in place", "copy", "new", "separate", "unknown"]
Verdict = Literal["same object", "view", "same storage", "copy", "new", "separate", "unknown"]
Relation = Literal["same object", "overlap", "may overlap", "same storage", "separate", "unknown"]


@dataclass(frozen=True, slots=True)
class Step:
    """One call, index or attribute of an expression."""

    code: str  #: As it is in the expression: ``"x.t()"``, ``".contiguous()"``, ``"[1:]"``.
    #: ``"same object"`` (an input was returned as it is), ``"view"`` (other sizes or strides over the memory of an
    #: input), ``"written in place"`` (the same object, changed), ``"copy"`` (values of the inputs in new memory),
    #: ``"new"`` (computed into new memory), ``"separate"`` (shares nothing with its inputs; whether the memory is new
    #: is not known, for a function of the user's own made it), ``"unknown"`` (it has no memory that can be compared).
    outcome: Outcome
    of: str = ""  #: The input it shares memory with, as written in the expression; empty where with none.
    nbytes: int = 0  #: Bytes of the result where it is in new memory, else 0.
    reason: str = ""  #: Why so, in words with code between backticks; empty where there is nothing to add.


@dataclass(frozen=True, slots=True)
class Sharing:
    """What a result has in common with one operand."""

    name: str  #: The operand: ``"x"``, ``"net.weight"``, ``"batch[0]"``.
    relation: Relation  #: ``"same storage"`` says that they lie in one storage without an element in common.
    elements: int | None = 0  #: How many different elements of the operand the result reaches; None if not counted.
    of_elements: int | None = None  #: How many different elements the operand has; None where counting was given up.
    #: Whether both count writes on one version counter, so that autograd notices a write to either; None where that is
    #: unknown, or where one of them has none (a NumPy array).
    shares_version: bool | None = None

    @property
    def shares(self) -> bool:
        """Whether a write to the result can change the operand."""
        return self.relation in {"same object", "overlap", "may overlap"}


@dataclass(frozen=True, slots=True)
class CopyVerdict:
    """Whether a result shares memory with its operands."""

    name: str  #: The result: the expression that made it, or what it was called.
    operands: tuple[Sharing, ...]  #: The verdict against each operand, those it shares with first.
    steps: tuple[Step, ...] = ()  #: How it came to that, call by call; empty where only the result was looked at.
    more_steps: int = 0  #: How many earlier steps are left out.
    more_operands: int = 0  #: How many operands are left out that share nothing.

    @property
    def outcome(self) -> Verdict:
        """The verdict in a word."""
        relations = {operand.relation for operand in self.operands}
        if "same object" in relations:
            return "same object"
        if relations & {"overlap", "may overlap"}:
            return "view"
        if "same storage" in relations:
            return "same storage"
        if "unknown" in relations:
            return "unknown"
        made = [step.outcome for step in self.steps if step.outcome in {"copy", "new", "separate"}]
        return made[-1] if made else "separate"

    @property
    def shares_with(self) -> tuple[str, ...]:
        """The operands that a write to the result can change."""
        return tuple(operand.name for operand in self.operands if operand.shares)

    @property
    def copied_bytes(self) -> int:
        """Bytes that the steps copied from one place in memory to another."""
        return sum(step.nbytes for step in self.steps if step.outcome == "copy")
