"""Sparse tensors: coordinates, compressed rows, columns and blocks."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch

from tensormagic.collectors.kinds.kind import (
    MOST_COUNTED,
    MOST_LISTED,
    Description,
    Frame,
    Kind,
    Part,
    Places,
    Values,
    bytes_of,
    dense_fact,
    element_text,
    stored_map,
    without_numbers,
)
from tensormagic.reports import Fact, StoredGroup, StoredLine, StoredList, StoredMap
from tensormagic.reports.storage import contiguous_stride
from tensormagic.words import count, number_of_bytes, percent, plural, tuple_text

# Sparse COO: a list of places and a list of values, in any order and with repeats unless it is coalesced.

_MOST_UNIQUE = 2**20  # stored places that are compared to find repeats


def _describe_coordinates(x: Any) -> Description:
    indices, values = x._indices(), x._values()
    stored, unread = int(x._nnz()), without_numbers(indices)
    place = "index" if x.sparse_dim() == 1 else f"{x.sparse_dim()} indices"
    return Description(
        label="sparse COO" if x.is_coalesced() else "sparse COO, uncoalesced",
        summary=_coordinate_summary(x, stored),
        facts=_coordinate_facts(x, indices, values, stored),
        parts=(
            Part("._indices()", f"where: column k holds the {place} of stored value k", indices),
            Part("._values()", "what: the stored values, in the order of the columns of indices", values),
        ),
        values=Values(values, f"the {plural(values.numel(), 'stored value')}"),
        map=None if unread else _coordinate_map(x, indices, values),
        stored=None if unread else _coordinate_list(indices, values, stored),
        reading=() if unread else _coordinate_reading(indices, values, stored),
        stored_bytes=bytes_of(indices) + bytes_of(values),
    )


def _coordinate_summary(x: Any, stored: int) -> str:
    repeated = "in any order; a place may repeat, and then its values add up"
    order = "in order, each place once" if x.is_coalesced() else repeated
    each = f" of shape {tuple_text(x.shape[x.sparse_dim() :])}" if x.dense_dim() else ""
    verb = "is" if stored == 1 else "are"
    what = f"{plural(stored, 'value')}{each}"
    return f"{what} {verb} stored for a tensor of {tuple_text(x.shape)}, each with its index ({order})."


def _coordinate_facts(x: Any, indices: torch.Tensor, values: torch.Tensor, stored: int) -> tuple[Fact, ...]:
    dense = x.numel() * x.element_size()
    kept = bytes_of(indices) + bytes_of(values)
    distinct = _distinct(x, indices, stored)
    held = values.numel() if distinct is None or not stored else values.numel() // stored * distinct
    each = f"each stored value is a tensor of {tuple_text(x.shape[x.sparse_dim() :])}" if x.dense_dim() else ""
    return (
        Fact("nnz", count(stored), "stored values, including stored zeros"),
        Fact("density", percent(held, x.numel()), f"{count(held)} of {plural(x.numel(), 'element')}"),
        Fact("coalesced", str(x.is_coalesced()), _repeats(x, stored, distinct)),
        Fact("sparse / dense dimensions", f"{x.sparse_dim()} / {x.dense_dim()}", each),
        Fact(
            "bytes",
            number_of_bytes(kept),
            f"indices {number_of_bytes(bytes_of(indices))}, values {number_of_bytes(bytes_of(values))}",
        ),
        dense_fact(kept, dense),
    )


def _distinct(x: Any, indices: torch.Tensor, stored: int) -> int | None:
    """Return how many different places are stored; None where there are too many to look."""
    if x.is_coalesced() or stored < 2:
        return stored
    if stored > _MOST_UNIQUE or without_numbers(indices):
        return None
    strides = torch.tensor(contiguous_stride(x.shape[: x.sparse_dim()]), dtype=torch.int64, device=indices.device)
    flat: Any = (indices * strides[:, None]).sum(0)
    return int(flat.unique().numel())


def _repeats(x: Any, stored: int, distinct: int | None) -> str:
    if x.is_coalesced() or stored < 2:
        return ""
    if distinct is None:
        return "not looked for repeats: there are too many places, or none to read"
    if distinct == stored:
        return "no place is stored twice, but torch has not checked"
    number = stored - distinct
    verb = "repeats" if number == 1 else "repeat"
    return f"{plural(number, 'value')} {verb} a place: coalesce() adds them up and leaves {distinct}"


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
    return stored_map(frame, Places.of(rows, columns), _value_texts(values) if few else ())


def _value_texts(values: torch.Tensor) -> list[str]:
    return [element_text(value) for value in values.tolist()]


def _coordinate_list(indices: torch.Tensor, values: torch.Tensor, stored: int) -> StoredList:
    shown = min(stored, MOST_LISTED)
    places = indices[:, :shown].tolist()
    lines = [StoredLine(f"indices[{dim}]", tuple(map(str, row))) for dim, row in enumerate(places)]
    return StoredList(
        stored, shown, (*lines, StoredLine("values", tuple(_value_texts(values[:shown])))), example=stored // 2
    )


def _coordinate_reading(indices: torch.Tensor, values: torch.Tensor, stored: int) -> tuple[str, ...]:
    if not stored:
        return ()
    at = stored // 2
    place = ", ".join(map(str, indices[:, at].tolist()))
    return (
        f"stored value {at} is {_value_texts(values[at : at + 1])[0]}; its index is [{place}]: column {at} of indices",
    )


COORDINATES = (Kind("sparse_coo", lambda x: x.layout == torch.sparse_coo, _describe_coordinates),)


# CSR, CSC, BSR and BSC: the values row by row (or column by column), and where in them each row begins.
#
# The four differ in two ways only: which dimension is compressed, and whether one value or a block is stored at a
# time.

_MOST_BLOCK_TEXT = 4  # elements of a block that are written out in the list


@dataclass(frozen=True, slots=True)
class _Format:
    """One of the four formats: which dimension is compressed, and its methods' names."""

    label: str
    by_row: bool
    blocked: bool

    @property
    def pointers(self) -> str:
        return "crow_indices" if self.by_row else "ccol_indices"

    @property
    def plain(self) -> str:
        return "col_indices" if self.by_row else "row_indices"

    @property
    def compressed_name(self) -> str:
        return ("block row" if self.by_row else "block column") if self.blocked else "row" if self.by_row else "column"

    @property
    def plain_name(self) -> str:
        return ("block column" if self.by_row else "block row") if self.blocked else "column" if self.by_row else "row"


_FORMATS = {
    torch.sparse_csr: _Format("CSR", by_row=True, blocked=False),
    torch.sparse_csc: _Format("CSC", by_row=False, blocked=False),
    torch.sparse_bsr: _Format("BSR", by_row=True, blocked=True),
    torch.sparse_bsc: _Format("BSC", by_row=False, blocked=True),
}


@dataclass(frozen=True, slots=True)
class _Arrays:
    """The three component tensors of a compressed tensor, and those of its first batch item."""

    form: _Format
    shape: tuple[int, ...]
    pointers: torch.Tensor
    plain: torch.Tensor
    values: torch.Tensor

    @classmethod
    def of(cls, x: Any) -> _Arrays:
        form = _FORMATS[x.layout]
        by_name = getattr(x, form.pointers)(), getattr(x, form.plain)(), x.values()
        return cls(form, tuple(int(size) for size in x.shape), *by_name)

    @property
    def batch(self) -> tuple[int, ...]:
        """Sizes of the leading dimensions, each item of which has its own rows and values."""
        return tuple(self.pointers.shape[:-1])

    @property
    def block(self) -> tuple[int, int]:
        """Rows and columns of what is stored at a time."""
        at = self.plain.dim()
        return tuple(self.values.shape[at : at + 2]) if self.form.blocked else (1, 1)  # type: ignore[return-value]

    def first(self) -> _Arrays:
        """Return the arrays of the first batch item."""
        zero = (0,) * len(self.batch)
        shape = self.shape[len(zero) :]
        return _Arrays(self.form, shape, self.pointers[zero], self.plain[zero], self.values[zero])


def _describe_compressed(x: Any) -> Description:
    arrays = _Arrays.of(x)
    form, values = arrays.form, arrays.values
    one = arrays.first() if 0 not in arrays.batch and not without_numbers(arrays.pointers) else None
    return Description(
        label=f"sparse {form.label}",
        summary=_compressed_summary(arrays),
        facts=_compressed_facts(x, arrays),
        parts=(
            Part(f".{form.pointers}()", f"where each {form.compressed_name} begins in the other two", arrays.pointers),
            Part(f".{form.plain}()", f"the {form.plain_name} of each stored {_stored_word(form)}", arrays.plain),
            Part(
                ".values()",
                f"the stored {_stored_word(form)}s, {form.compressed_name} after {form.compressed_name}",
                values,
            ),
        ),
        values=Values(values, f"the {plural(values.numel(), 'stored value')}"),
        map=_compressed_map(arrays, one) if one else None,
        stored=_compressed_list(one) if one else None,
        reading=_compressed_reading(one) if one else (),
        stored_bytes=bytes_of(arrays.pointers) + bytes_of(arrays.plain) + bytes_of(values),
    )


def _stored_word(form: _Format) -> str:
    return "block" if form.blocked else "value"


def _compressed_summary(arrays: _Arrays) -> str:
    form = arrays.form
    what = plural(int(arrays.plain.numel()), _stored_word(form))
    blocks = f" of {arrays.block[0]} × {arrays.block[1]}" if form.blocked else ""
    verb = "is" if arrays.plain.numel() == 1 else "are"
    batch = f", for each of the {tuple_text(arrays.batch)} batch items" if arrays.batch else ""
    return (
        f"{what}{blocks} {verb} stored for a tensor of {tuple_text(arrays.shape)}, {form.compressed_name} after "
        f"{form.compressed_name}; {form.pointers} says where each begins{batch}."
    )


def _compressed_facts(x: Any, arrays: _Arrays) -> tuple[Fact, ...]:
    parts = {arrays.form.pointers: arrays.pointers, arrays.form.plain: arrays.plain, "values": arrays.values}
    kept = sum(map(bytes_of, parts.values()))
    dense, stored = x.numel() * x.element_size(), arrays.values.numel()
    stored_words = f"stored {_stored_word(arrays.form)}s{' in each batch item' if arrays.batch else ''}"
    height, width = arrays.block
    blocks = f"the matrix is {arrays.shape[-2] // height} × {arrays.shape[-1] // width} of them"
    facts = [
        Fact("nnz", count(int(x._nnz())), f"{stored_words}, including stored zeros"),
        Fact("density", percent(stored, x.numel()), f"{count(stored)} of {plural(x.numel(), 'element')}"),
        Fact("block", f"{height} × {width}", f"{blocks}; a stored block holds its zeros too")
        if arrays.form.blocked
        else None,
        Fact("index dtype", str(arrays.pointers.dtype).removeprefix("torch.")),
        Fact(
            "bytes",
            number_of_bytes(kept),
            ", ".join(f"{name} {number_of_bytes(bytes_of(part))}" for name, part in parts.items()),
        ),
        dense_fact(kept, dense),
    ]
    return tuple(fact for fact in facts if fact is not None)


def _places(one: _Arrays) -> tuple[torch.Tensor, torch.Tensor, int]:
    """Return compressed and plain index of every stored value or block, or of every k-th, and k."""
    stored = one.plain.numel()
    every = max(-(-stored // MOST_COUNTED), 1)
    at = torch.arange(0, stored, every, device=one.plain.device)
    owners = torch.searchsorted(one.pointers.to(torch.int64).contiguous(), at, right=True) - 1
    return owners, one.plain[::every].to(torch.int64), every


def _compressed_map(arrays: _Arrays, one: _Arrays) -> StoredMap | None:
    title = f"batch item {[0] * len(arrays.batch)} of {tuple_text(arrays.batch)}" if arrays.batch else ""
    height, width = one.block
    owners, others, every = _places(one)
    rows, columns = (owners, others) if one.form.by_row else (others, owners)
    frame = Frame("row", "column", one.shape[0], one.shape[1], title)
    if not frame.small:
        what = "block " if one.form.blocked else ""
        title = f"{title}, in blocks".removeprefix(", ") if one.form.blocked else title
        blocks = Frame(f"{what}row", f"{what}column", one.shape[0] // height, one.shape[1] // width, title)
        return stored_map(blocks, Places.of(rows, columns, every))
    return _in_elements(frame, one, rows, columns)


def _in_elements(frame: Frame, one: _Arrays, rows: torch.Tensor, columns: torch.Tensor) -> StoredMap | None:
    """Return a small matrix element by element; the place of an element is that of its block."""
    height, width = one.block
    down = torch.arange(height, device=rows.device)[None, :, None]
    across = torch.arange(width, device=rows.device)[None, None, :]
    each = rows[:, None, None] * height + down, columns[:, None, None] * width + across
    shape = (rows.numel(), height, width)
    down_all, across_all = (part.expand(shape).reshape(-1) for part in each)
    places = Places.of(down_all, across_all)
    flat = one.values.reshape(rows.numel() * height * width, -1).tolist() if one.values.numel() else []
    found = stored_map(frame, places, [element_text(v[0] if len(v) == 1 else v) for v in flat])
    if found is None or not one.form.blocked:
        return found
    per_block = tuple(tuple(at // (height * width) if at >= 0 else at for at in row) for row in found.places)
    return StoredMap(**{name: getattr(found, name) for name in found.__dataclass_fields__} | {"places": per_block})


def _compressed_list(one: _Arrays) -> StoredList:
    form, stored = one.form, int(one.plain.numel())
    shown = min(stored, MOST_LISTED)
    lines = (
        StoredLine(form.plain, tuple(map(str, one.plain[:shown].tolist()))),
        StoredLine("values", tuple(_texts(one, shown))),
    )
    return StoredList(stored, shown, lines, _groups(one, shown), form.pointers, stored // 2)


def _texts(one: _Arrays, shown: int) -> list[str]:
    if one.form.blocked and one.block[0] * one.block[1] > _MOST_BLOCK_TEXT:
        return [f"{one.block[0]} × {one.block[1]}"] * shown
    if not one.form.blocked:
        return [element_text(value) for value in one.values[:shown].tolist()]
    return [" / ".join(" ".join(map(element_text, row)) for row in block) for block in one.values[:shown].tolist()]


def _groups(one: _Arrays, shown: int) -> tuple[StoredGroup, ...]:
    """Return the rows (columns) that own the elements listed, empty ones among them too."""
    ends = one.pointers[: 4 * MOST_LISTED].tolist()
    groups = []
    for at, (start, stop) in enumerate(pairwise(ends)):
        if start >= shown and shown:
            break
        groups.append(StoredGroup(f"{one.form.compressed_name} {at}", start, min(stop, shown)))
    return tuple(groups)


def _compressed_reading(one: _Arrays) -> tuple[str, ...]:
    """Return how the middle stored element is found, from the pointers to the value."""
    stored, form = int(one.plain.numel()), one.form
    if not stored:
        return ()
    at = stored // 2
    place = torch.tensor([at], dtype=one.pointers.dtype, device=one.pointers.device)
    owner = int(torch.searchsorted(one.pointers, place, right=True)) - 1
    start, stop = one.pointers[owner : owner + 2].tolist()
    other = int(one.plain[at])
    row, column = (owner, other) if form.by_row else (other, owner)
    word = f"the block at block row {row}, block column {column}" if form.blocked else f"[{row}, {column}]"
    value = "" if form.blocked else f" = {element_text(one.values[at].tolist())}"
    ends = f"{form.pointers}[{owner}] = {start}, {form.pointers}[{owner + 1}] = {stop}"
    return (
        f"{form.compressed_name} {owner} owns places {start} to {stop - 1}: {ends}",
        f"{form.plain}[{at}] = {other}, so {word} is values[{at}]{value}",
    )


def _kind(layout: torch.layout) -> Kind:
    return Kind(str(layout).removeprefix("torch."), lambda x: bool(x.layout == layout), _describe_compressed)


COMPRESSED = tuple(map(_kind, _FORMATS))
