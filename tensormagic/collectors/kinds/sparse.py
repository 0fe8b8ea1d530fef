"""Sparse COO: a list of places and a list of values, in any order and with repeats unless it is coalesced."""

from __future__ import annotations

from typing import Any

import torch

from tensormagic.collectors.kinds.kind import (
    Description,
    Kind,
    Part,
    Values,
    bytes_of,
    dense_fact,
    element_text,
    without_numbers,
)
from tensormagic.collectors.kinds.stored import MOST_LISTED, Frame, Places, stored_map
from tensormagic.reports import Fact, StoredLine, StoredList, StoredMap
from tensormagic.words import count, number_of_bytes, percent, plural, tuple_text

_MOST_UNIQUE = 2**20  # stored places that are compared to find repeats


def _describe(x: Any) -> Description:
    indices, values = x._indices(), x._values()
    stored, unread = int(x._nnz()), without_numbers(indices)
    return Description(
        label="sparse COO" if x.is_coalesced() else "sparse COO, uncoalesced",
        summary=_summary(x, stored),
        facts=_facts(x, indices, values, stored),
        parts=(
            Part("._indices()", f"where: column k holds the {_index_words(x)} of stored value k", indices),
            Part("._values()", "what: the stored values, in the order of the columns of indices", values),
        ),
        values=Values(values, f"the {plural(values.numel(), 'stored value')}"),
        map=None if unread else _map(x, indices, values),
        stored=None if unread else _list(indices, values, stored),
        reading=() if unread else _reading(indices, values, stored),
        stored_bytes=bytes_of(indices) + bytes_of(values),
    )


def _summary(x: Any, stored: int) -> str:
    order = (
        "in order, each place once"
        if x.is_coalesced()
        else "in any order; a place may repeat, and then its values add up"
    )
    each = f" of shape {tuple_text(x.shape[x.sparse_dim() :])}" if x.dense_dim() else ""
    verb = "is" if stored == 1 else "are"
    what = f"{plural(stored, 'value')}{each}"
    return f"{what} {verb} stored for a tensor of {tuple_text(x.shape)}, each with its index ({order})."


def _index_words(x: Any) -> str:
    return "index" if x.sparse_dim() == 1 else f"{x.sparse_dim()} indices"


def _facts(x: Any, indices: torch.Tensor, values: torch.Tensor, stored: int) -> tuple[Fact, ...]:
    dense = x.numel() * x.element_size()
    kept = bytes_of(indices) + bytes_of(values)
    distinct = _distinct(x, indices, stored)
    held = values.numel() if distinct is None or not stored else values.numel() // stored * distinct
    return (
        Fact("nnz", count(stored), "stored values, including stored zeros"),
        Fact("density", percent(held, x.numel()), f"{count(held)} of {plural(x.numel(), 'element')}"),
        Fact("coalesced", str(x.is_coalesced()), _repeats(x, stored, distinct)),
        Fact("sparse / dense dimensions", f"{x.sparse_dim()} / {x.dense_dim()}", _dense_note(x)),
        Fact(
            "bytes",
            number_of_bytes(kept),
            f"indices {number_of_bytes(bytes_of(indices))}, values {number_of_bytes(bytes_of(values))}",
        ),
        dense_fact(kept, dense),
    )


def _dense_note(x: Any) -> str:
    return f"each stored value is a tensor of {tuple_text(x.shape[x.sparse_dim() :])}" if x.dense_dim() else ""


def _distinct(x: Any, indices: torch.Tensor, stored: int) -> int | None:
    """Return how many different places are stored; None where there are too many to look."""
    if x.is_coalesced() or stored < 2:
        return stored
    if stored > _MOST_UNIQUE or without_numbers(indices):
        return None
    strides = torch.tensor(_strides(x.shape[: x.sparse_dim()]), dtype=torch.int64, device=indices.device)
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


def _strides(sizes: Any) -> list[int]:
    steps, step = [], 1
    for size in reversed(sizes):
        steps.append(step)
        step *= max(int(size), 1)
    return steps[::-1]


def _map(x: Any, indices: torch.Tensor, values: torch.Tensor) -> StoredMap | None:
    """Return the picture of the last two sparse dimensions; of one sparse dimension, as a single row."""
    sparse = x.sparse_dim()
    if sparse == 0:
        return None
    columns = indices[-1]
    rows = indices[-2] if sparse > 1 else torch.zeros_like(columns)
    height = int(x.shape[sparse - 2]) if sparse > 1 else 1
    frame = Frame("row", "column", height, int(x.shape[sparse - 1]), _title(x, sparse))
    few = frame.small and values.shape[0] <= 4 * MOST_LISTED**2
    return stored_map(frame, Places.of(rows, columns), _value_texts(values) if few else ())


def _title(x: Any, sparse: int) -> str:
    parts = [f"all {tuple_text(x.shape[: sparse - 2])} slices of the leading dimensions, one over the other"]
    return parts[0] if sparse > 2 else ""


def _value_texts(values: torch.Tensor) -> list[str]:
    return [element_text(value) for value in values.tolist()]


def _list(indices: torch.Tensor, values: torch.Tensor, stored: int) -> StoredList:
    shown = min(stored, MOST_LISTED)
    places = indices[:, :shown].tolist()
    lines = [StoredLine(f"indices[{dim}]", tuple(map(str, row))) for dim, row in enumerate(places)]
    return StoredList(
        stored, shown, (*lines, StoredLine("values", tuple(_value_texts(values[:shown])))), example=stored // 2
    )


def _reading(indices: torch.Tensor, values: torch.Tensor, stored: int) -> tuple[str, ...]:
    if not stored:
        return ()
    at = stored // 2
    place = ", ".join(map(str, indices[:, at].tolist()))
    return (
        f"stored value {at} is {_value_texts(values[at : at + 1])[0]}; its index is [{place}]: column {at} of indices",
    )


KINDS = (Kind("sparse_coo", lambda x: x.layout == torch.sparse_coo, _describe),)
