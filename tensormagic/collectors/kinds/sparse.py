"""Sparse tensors: coordinates, compressed rows, columns and blocks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise, takewhile
from typing import Any, NamedTuple

import torch

from tensormagic.collectors.kinds.kind import (
    MOST_COUNTED,
    MOST_LISTED,
    Description,
    Frame,
    Kind,
    Part,
    Values,
    bytes_of,
    element_text,
    stored_map,
)
from tensormagic.reports import Fact, StoredGroup, StoredLine, StoredList, StoredMap
from tensormagic.reports.storage import contiguous_stride
from tensormagic.words import count, is_or_are, number_of_bytes, percent, plural, tuple_text

_MOST_UNIQUE = 2**20  # stored places that are compared to find repeats
_MOST_BLOCK_TEXT = 4  # elements of a block that are written out in the list


def _is_unread(indices: torch.Tensor) -> bool:
    """Return whether a component has no numbers to look at: on the meta device, or fake."""
    return bool(indices.is_meta) or type(indices) is not torch.Tensor


def _sparse(x: Any, said: Description, nnz: str, held: int) -> Description:
    """Add what every sparse tensor says of itself; the last of its parts is the values, ``held`` of which count."""
    parts, dense = said.parts, x.numel() * x.element_size()
    kept, values = bytes_of(*(part.tensor for part in parts)), parts[-1].tensor
    note = ""
    if kept and dense:
        more = "as much" if dense == kept else f"{dense / kept:.3g} times as much"
        note = more if dense >= kept else f"less: this takes {kept / dense:.3g} times as much"
    each = ", ".join(f"{part.path.strip('._()')} {number_of_bytes(bytes_of(part.tensor))}" for part in parts)
    return replace(
        said,
        facts=(
            Fact("nnz", count(int(x._nnz())), nnz),
            Fact("density", percent(held, x.numel()), f"{count(held)} of {plural(x.numel(), 'element')}"),
            *said.facts,
            Fact("bytes", number_of_bytes(kept), each),
            Fact("dense would take", number_of_bytes(dense), note),
        ),
        values=Values(values, f"the {plural(values.numel(), 'stored value')}"),
        stored_bytes=kept,
    )


def _texts(values: torch.Tensor) -> tuple[str, ...]:
    return tuple(map(element_text, values.tolist()))


# Sparse COO: a list of places and a list of values, in any order and with repeats unless it is coalesced.
def _describe_coordinates(x: Any) -> Description:
    indices, values, stored, coalesced = x._indices(), x._values(), int(x._nnz()), x.is_coalesced()
    place = "index" if x.sparse_dim() == 1 else f"{x.sparse_dim()} indices"
    dense = tuple_text(x.shape[x.sparse_dim() :]) if x.dense_dim() else ""
    what = f"{plural(stored, 'value')}{f' of shape {dense}' if dense else ''} {is_or_are(stored)} stored"
    repeated = "in any order; a place may repeat, and then its values add up"
    order = "in order, each place once" if coalesced else repeated
    distinct, note = _distinct(x, indices, stored)
    held = values.numel() if distinct is None or not stored else values.numel() // stored * distinct
    each = f"each stored value is a tensor of {dense}" if dense else ""
    own = Description(
        label="sparse COO" if coalesced else "sparse COO, uncoalesced",
        summary=f"{what} for a tensor of {tuple_text(x.shape)}, each with its index ({order}).",
        facts=(
            Fact("coalesced", str(coalesced), note),
            Fact("sparse / dense dimensions", f"{x.sparse_dim()} / {x.dense_dim()}", each),
        ),
        parts=(
            Part("._indices()", f"where: column k holds the {place} of stored value k", indices),
            Part("._values()", "what: the stored values, in the order of the columns of indices", values),
        ),
    )
    description = _sparse(x, own, "stored values, including stored zeros", held)
    if _is_unread(indices):
        return description
    shown, middle, reading = min(stored, MOST_LISTED), stored // 2, list[str]()
    lines = [StoredLine(f"indices[{dim}]", tuple(map(str, row))) for dim, row in enumerate(indices[:, :shown].tolist())]
    lines.append(StoredLine("values", _texts(values[:shown])))
    if stored:
        value, index = _texts(values[middle : middle + 1])[0], indices[:, middle].tolist()
        reading.append(f"stored value {middle} is {value}; its index is {index}: column {middle} of indices")
    listed = StoredList(stored, shown, tuple(lines), example=middle)
    return replace(description, map=_coordinate_map(x, indices, values), stored=listed, reading=tuple(reading))


def _distinct(x: Any, indices: torch.Tensor, stored: int) -> tuple[int | None, str]:
    """Return how many different places are stored, None where there are too many to look, and what that means."""
    if x.is_coalesced() or stored < 2:
        return stored, ""
    if stored > _MOST_UNIQUE or _is_unread(indices):
        return None, "not looked for repeats: there are too many places, or none to read"
    strides = torch.tensor(contiguous_stride(x.shape[: x.sparse_dim()]), dtype=torch.int64, device=indices.device)
    flat: Any = (indices * strides[:, None]).sum(0)
    distinct = int(flat.unique().numel())
    if distinct == stored:
        return distinct, "no place is stored twice, but torch has not checked"
    repeated = f"{plural(stored - distinct, 'value')} {'repeats' if stored - distinct == 1 else 'repeat'}"
    return distinct, f"{repeated} a place: coalesce() adds them up and leaves {distinct}"


def _coordinate_map(x: Any, indices: torch.Tensor, values: torch.Tensor) -> StoredMap | None:
    """Return the picture of the last two sparse dimensions; of one sparse dimension, as a single row."""
    sparse = x.sparse_dim()
    if sparse == 0:
        return None
    columns = indices[-1]
    rows = indices[-2] if sparse > 1 else torch.zeros_like(columns)
    height = int(x.shape[sparse - 2]) if sparse > 1 else 1
    leading = f"all {tuple_text(x.shape[: sparse - 2])} slices of the leading dimensions, one over the other"
    frame = Frame("row", "column", height, int(x.shape[sparse - 1]), leading if sparse > 2 else "")
    few = frame.small and values.shape[0] <= 4 * MOST_LISTED**2
    return stored_map(frame, rows, columns, _texts(values) if few else ())


# CSR, CSC, BSR and BSC: the values row by row (or column by column), and where in them each row begins.
#
# The four differ in which dimension is compressed, and in whether one value or a block is stored at a time.
class _Format(NamedTuple):
    """One of the four formats: what it calls its arrays, and what is found in them."""

    label: str
    pointers: str  # the method that gives where each owner begins in the other two
    plain: str  # the method that gives the other index of each
    owner: str  # what is compressed
    other: str
    stored: str  # what is stored at a time

    @property
    def by_row(self) -> bool:
        return self.plain == "col_indices"


_FORMATS = {
    torch.sparse_csr: _Format("CSR", "crow_indices", "col_indices", "row", "column", "value"),
    torch.sparse_csc: _Format("CSC", "ccol_indices", "row_indices", "column", "row", "value"),
    torch.sparse_bsr: _Format("BSR", "crow_indices", "col_indices", "block row", "block column", "block"),
    torch.sparse_bsc: _Format("BSC", "ccol_indices", "row_indices", "block column", "block row", "block"),
}


@dataclass(frozen=True, slots=True)
class _Arrays:
    """The three component tensors of a compressed tensor, or those of its first batch item."""

    form: _Format
    shape: tuple[int, ...]
    pointers: torch.Tensor
    plain: torch.Tensor
    values: torch.Tensor

    @property
    def blocked(self) -> bool:
        return self.form.stored == "block"

    @property
    def block(self) -> tuple[int, int]:
        """Rows and columns of what is stored at a time."""
        at = self.plain.dim()
        return tuple(self.values.shape[at : at + 2]) if self.blocked else (1, 1)  # type: ignore[return-value]


def _describe_compressed(x: Any) -> Description:
    form = _FORMATS[x.layout]
    arrays = _Arrays(form, tuple(map(int, x.shape)), getattr(x, form.pointers)(), getattr(x, form.plain)(), x.values())
    pointers, plain, values, batch = arrays.pointers, arrays.plain, arrays.values, tuple(arrays.pointers.shape[:-1])
    stored, (height, width), facts = int(plain.numel()), arrays.block, list[Fact]()
    if arrays.blocked:
        blocks = f"the matrix is {arrays.shape[-2] // height} × {arrays.shape[-1] // width} of them"
        facts.append(Fact("block", f"{height} × {width}", f"{blocks}; a stored block holds its zeros too"))
    what = f"{plural(stored, form.stored)}{f' of {height} × {width}' if arrays.blocked else ''} {is_or_are(stored)}"
    where = f"stored for a tensor of {tuple_text(arrays.shape)}, {form.owner} after {form.owner}"
    batches = f", for each of the {tuple_text(batch)} batch items" if batch else ""
    each = f"stored {form.stored}s{' in each batch item' if batch else ''}, including stored zeros"
    facts.append(Fact("index dtype", str(pointers.dtype).removeprefix("torch.")))
    own = Description(
        label=f"sparse {form.label}",
        summary=f"{what} {where}; {form.pointers} says where each begins{batches}.",
        facts=tuple(facts),
        parts=(
            Part(f".{form.pointers}()", f"where each {form.owner} begins in the other two", pointers),
            Part(f".{form.plain}()", f"the {form.other} of each stored {form.stored}", plain),
            Part(".values()", f"the stored {form.stored}s, {form.owner} after {form.owner}", values),
        ),
    )
    description = _sparse(x, own, each, values.numel())
    if 0 in batch or _is_unread(pointers):
        return description
    first = (0,) * len(batch)
    one = _Arrays(form, arrays.shape[len(batch) :], pointers[first], plain[first], values[first])
    title = f"batch item {[0] * len(batch)} of {tuple_text(batch)}" if batch else ""
    drawn, listed = _compressed_map(one, title), _compressed_list(one)
    return replace(description, map=drawn, stored=listed, reading=_compressed_reading(one))


def _compressed_map(one: _Arrays, title: str) -> StoredMap | None:
    (height, width), stored = one.block, one.plain.numel()
    every = max(-(-stored // MOST_COUNTED), 1)
    at = torch.arange(0, stored, every, device=one.plain.device)
    owners = torch.searchsorted(one.pointers.to(torch.int64).contiguous(), at, right=True) - 1
    others = one.plain[::every].to(torch.int64)
    rows, columns = (owners, others) if one.form.by_row else (others, owners)
    frame = Frame("row", "column", one.shape[0], one.shape[1], title)
    if not frame.small:
        if one.blocked:
            title = f"{title}, in blocks".removeprefix(", ")
            frame = Frame("block row", "block column", one.shape[0] // height, one.shape[1] // width, title)
        return stored_map(frame, rows, columns, every=every)
    # A small matrix is drawn element by element; the place of an element is that of its block.
    flat = one.values.reshape(rows.numel() * height * width, -1).tolist() if one.values.numel() else []
    texts = [element_text(value[0] if len(value) == 1 else value) for value in flat]
    shape = (rows.numel(), height, width)
    rows = (rows[:, None, None] * height + torch.arange(height, device=rows.device)[:, None]).expand(shape).reshape(-1)
    columns = (columns[:, None, None] * width + torch.arange(width, device=rows.device)).expand(shape).reshape(-1)
    found = stored_map(frame, rows, columns, texts)
    if found is None or not one.blocked:
        return found
    places = tuple(tuple(at // (height * width) if at >= 0 else at for at in row) for row in found.places)
    return replace(found, places=places)


def _compressed_list(one: _Arrays) -> StoredList:
    form, stored, (height, width) = one.form, int(one.plain.numel()), one.block
    shown = min(stored, MOST_LISTED)
    if not one.blocked:
        texts = _texts(one.values[:shown])
    elif height * width > _MOST_BLOCK_TEXT:
        texts = (f"{height} × {width}",) * shown
    else:
        blocks = one.values[:shown].tolist()
        texts = tuple(" / ".join(" ".join(map(element_text, row)) for row in block) for block in blocks)
    lines = StoredLine(form.plain, tuple(map(str, one.plain[:shown].tolist()))), StoredLine("values", texts)
    # The rows (columns) that own the elements listed, empty ones among them too.
    ends = takewhile(lambda pair: pair[0] < shown or not shown, pairwise(one.pointers[: 4 * MOST_LISTED].tolist()))
    groups = [StoredGroup(f"{form.owner} {at}", start, min(stop, shown)) for at, (start, stop) in enumerate(ends)]
    return StoredList(stored, shown, lines, tuple(groups), form.pointers, stored // 2)


def _compressed_reading(one: _Arrays) -> tuple[str, ...]:
    stored, form = int(one.plain.numel()), one.form
    if not stored:
        return ()
    at = stored // 2
    place = torch.tensor([at], dtype=one.pointers.dtype, device=one.pointers.device)
    owner = int(torch.searchsorted(one.pointers, place, right=True)) - 1
    start, stop = one.pointers[owner : owner + 2].tolist()
    other = int(one.plain[at])
    row, column = (owner, other) if form.by_row else (other, owner)
    word = f"the block at block row {row}, block column {column}" if one.blocked else f"[{row}, {column}]"
    value = "" if one.blocked else f" = {element_text(one.values[at].tolist())}"
    ends = f"{form.pointers}[{owner}] = {start}, {form.pointers}[{owner + 1}] = {stop}"
    return (
        f"{form.owner} {owner} owns places {start} to {stop - 1}: {ends}",
        f"{form.plain}[{at}] = {other}, so {word} is values[{at}]{value}",
    )


def _kind(layout: torch.layout, describe: Callable[[Any], Description]) -> Kind:
    return Kind(str(layout).removeprefix("torch."), lambda x: bool(x.layout == layout), describe)


HOLDERS = (_kind(torch.sparse_coo, _describe_coordinates), *(_kind(form, _describe_compressed) for form in _FORMATS))
