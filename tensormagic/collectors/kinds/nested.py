"""Nested tensors: items of different sizes in one buffer, strided (a table of sizes) or jagged (a table of offsets)."""

from __future__ import annotations

from typing import Any

import torch

from tensormagic.collectors.kinds.kind import (
    MOST_LISTED,
    MOST_NAMED,
    Description,
    Frame,
    Kind,
    Part,
    Values,
    bytes_of,
    element_text,
    ragged_map,
)
from tensormagic.reports import Fact, StoredGroup, StoredLine, StoredList, StoredMap
from tensormagic.words import listed, number_of_bytes, plural, tuple_text

_MOST_ITEMS = 4096  # items whose lengths are fetched for the picture


def _is_jagged(x: Any) -> bool:
    return bool(x.layout == torch.jagged)


def _describe_jagged(x: Any) -> Description:
    inner: dict[str, Any] = object.__getattribute__(x, "__dict__")
    values, offsets, lengths = inner["_values"], inner["_offsets"], inner.get("_lengths")
    ragged, items = int(inner["_ragged_idx"]), int(offsets.numel()) - 1
    starts, own = _spans(offsets, lengths)
    parts = [
        Part(".values()", "every item's numbers, one item after the other", values),
        Part(".offsets()", "item i begins at offsets[i] of values and ends before offsets[i + 1]", offsets),
    ]
    if lengths is not None:
        parts.append(Part(".lengths()", "how much of its space each item uses; the rest are holes", lengths))
    shape = tuple(-1 if at == ragged else int(size) for at, size in enumerate(inner["_size"]))
    if values.device.type == "meta":
        return Description("nested, jagged", "A jagged nested tensor without memory.", parts=tuple(parts), shape=shape,
                           no_values="its values have no memory")  # fmt: skip
    return Description(
        label="nested, jagged",
        summary=f"{plural(items, 'item')} of different length along dimension {ragged}, end to end in one buffer.",
        facts=_jagged_facts(values, own, shape, ragged),
        parts=tuple(parts),
        values=Values(
            values,
            f"the {plural(values.numel(), 'value')} in the buffer{' (holes too)' if lengths is not None else ''}",
        ),
        shape=shape,
        map=_map(values, starts, own, ragged, lengths is None),
        stored=_list(values, starts, own, ragged),
        reading=_reading(starts, own),
        stored_bytes=bytes_of(values) + bytes_of(offsets) + (0 if lengths is None else bytes_of(lengths)),
    )


def _spans(offsets: torch.Tensor, lengths: torch.Tensor | None) -> tuple[list[int], list[int]]:
    """Return where each of the first items starts in the buffer, and how long it is."""
    if offsets.device.type == "meta":
        return [], []
    starts = offsets[: _MOST_ITEMS + 1].to(torch.int64)
    own = starts.diff() if lengths is None else lengths[:_MOST_ITEMS].to(torch.int64)
    both = torch.cat([starts[:-1], own]).tolist()
    return both[: len(both) // 2], both[len(both) // 2 :]


def _jagged_facts(values: torch.Tensor, own: list[int], shape: tuple[int, ...], ragged: int) -> tuple[Fact, ...]:
    items = [tuple(length if at == ragged - 1 else size for at, size in enumerate(shape[1:])) for length in own]
    used, room = sum(own), int(values.shape[ragged - 1])
    padded = len(own) * max(own, default=0) * (values.numel() // room if room else 0) * values.element_size()
    return (
        Fact("items", _some(items), f"dimension {ragged} is ragged (−1 in the shape)"),
        Fact("lengths", _range(own)),
        Fact("buffer", tuple_text(values.shape), f"{used} of its {room} elements belong to an item"),
        Fact(
            "bytes",
            number_of_bytes(values.numel() * values.element_size()),
            f"padded to the longest: {number_of_bytes(padded)}",
        ),
    )


def _some(items: list[tuple[int, ...]]) -> str:
    return listed(map(tuple_text, items), most=MOST_NAMED)


def _range(own: list[int]) -> str:
    if not own:
        return "none"
    return f"{min(own)} to {max(own)}, {sum(own) / len(own):.3g} on average"


def _map(
    values: torch.Tensor,
    starts: list[int],
    own: list[int],
    ragged: int,
    whole: bool,  # noqa: FBT001
) -> StoredMap | None:
    frame = Frame("item", "position", len(own), max(own, default=0), "" if whole else "holes are not drawn")
    last = max((start + length for start, length in zip(starts, own, strict=True)), default=0)
    return ragged_map(frame, own, starts, _texts(values, ragged, last) if frame.small else ())


def _texts(values: torch.Tensor, ragged: int, most: int) -> list[str]:
    """Return the first elements along the ragged dimension as text, of wide ones the beginning."""
    rows = values.movedim(ragged - 1, 0)[:most]
    rows = rows.reshape(rows.shape[0], -1)[:, : MOST_NAMED + 1] if rows.dim() > 1 else rows
    return [element_text(row) for row in rows.tolist()]


def _list(values: torch.Tensor, starts: list[int], own: list[int], ragged: int) -> StoredList:
    count = int(values.shape[ragged - 1])
    shown = min(count, MOST_LISTED)
    groups = [StoredGroup(f"item {at}", start, min(start + length, shown))
              for at, (start, length) in enumerate(zip(starts, own, strict=True)) if start < shown]  # fmt: skip
    return StoredList(
        count, shown, (StoredLine("values", tuple(_texts(values, ragged, shown))),), tuple(groups), "offsets"
    )


def _reading(starts: list[int], own: list[int]) -> tuple[str, ...]:
    at = len(starts) // 2
    if not starts or not own[at]:
        return ()
    start, stop = starts[at], starts[at] + own[at]
    return (f"item {at} is values[{start}:{stop}]: offsets[{at}] = {start}, {plural(own[at], 'place')} long",)


def _describe_strided(x: Any) -> Description:
    sizes, steps, starts = x._nested_tensor_size(), x._nested_tensor_strides(), x._nested_tensor_storage_offsets()
    if sizes.dim() < 2 or not sizes.numel():
        count = int(sizes.shape[0]) if sizes.dim() > 1 else 0
        return Description("nested, strided", f"{plural(count, 'item')} without known dimensions.", shape=(count,))
    items = [tuple(size) for size in sizes[:_MOST_ITEMS].tolist()]
    if x.device.type == "meta":
        return Description("nested, strided", "A nested tensor without memory.", no_values="it has no memory")
    buffer = torch.empty(0, dtype=x.dtype, device=x.device).set_(
        x.untyped_storage(), 0, (x.untyped_storage().nbytes() // x.element_size(),), (1,)
    )
    lengths = [_product(item) for item in items]
    plain = bool(x.is_contiguous())
    shape = (int(sizes.shape[0]), *_common(items))
    offsets = [int(start) for start in starts[:_MOST_ITEMS].tolist()]
    padded = len(items) * _product([max(column) for column in zip(*items, strict=True)]) * x.element_size()
    return Description(
        label="nested, strided",
        summary=f"{plural(shape[0], 'item')}, each with its own sizes and strides, in one buffer.",
        facts=(
            Fact("items", _some(items), "−1 in the shape: differs from item to item"),
            Fact("strides", _some([tuple(step) for step in steps[:_MOST_ITEMS].tolist()])),
            Fact(
                "storage offsets",
                ", ".join(map(str, offsets[:MOST_NAMED])) + (", …" if len(offsets) > MOST_NAMED else ""),
            ),
            Fact("contiguous", str(plain), "" if plain else "the items are not read in the order of the buffer"),
            Fact(
                "bytes",
                number_of_bytes(x.numel() * x.element_size()),
                f"padded to the largest: {number_of_bytes(padded)}",
            ),
        ),
        parts=(
            Part("._nested_tensor_size()", "a row of sizes for each item", sizes),
            Part("._nested_tensor_strides()", "a row of strides for each item", steps),
            Part("._nested_tensor_storage_offsets()", "where in the buffer each item begins", starts),
            Part(".untyped_storage()", "the buffer, as one row of numbers", buffer),
        ),
        values=Values(buffer, f"the {plural(buffer.numel(), 'value')} in the buffer"),
        shape=shape,
        map=_strided_map(buffer, offsets, lengths) if plain else None,
        stored=_strided_list(buffer, offsets, lengths) if plain else None,
    )


def _product(sizes: Any) -> int:
    result = 1
    for size in sizes:
        result *= int(size)
    return result


def _common(items: list[tuple[int, ...]]) -> tuple[int, ...]:
    """Return each size that all items have in common, −1 where they differ."""
    columns = zip(*items, strict=True)
    return tuple(column[0] if len(set(column)) == 1 else -1 for column in columns)


def _strided_map(buffer: torch.Tensor, starts: list[int], lengths: list[int]) -> StoredMap | None:
    frame = Frame("item", "element", len(lengths), max(lengths, default=0), "each item's elements in a row")
    last = max((start + length for start, length in zip(starts, lengths, strict=True)), default=0)
    return ragged_map(frame, lengths, starts, [element_text(v) for v in buffer[:last].tolist()] if frame.small else ())


def _strided_list(buffer: torch.Tensor, starts: list[int], lengths: list[int]) -> StoredList:
    shown = min(int(buffer.numel()), MOST_LISTED)
    groups = [StoredGroup(f"item {at}", start, min(start + length, shown))
              for at, (start, length) in enumerate(zip(starts, lengths, strict=True)) if start < shown]  # fmt: skip
    texts = tuple(element_text(value) for value in buffer[:shown].tolist())
    return StoredList(int(buffer.numel()), shown, (StoredLine("buffer", texts),), tuple(groups), "storage offsets")


NESTED = (
    Kind("jagged", _is_jagged, _describe_jagged),
    Kind("nested", lambda x: x.is_nested and x.layout == torch.strided, _describe_strided),
)
