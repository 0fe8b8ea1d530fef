"""Tensors that consist of others: nested tensors, and what functorch and others wrap."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch._C import _functorch

from tensormagic.collectors.kinds.kind import (
    ITSELF,
    MOST_COPIED,
    MOST_LISTED,
    MOST_NAMED,
    Description,
    Frame,
    Kind,
    Part,
    Values,
    bytes_of,
    copied,
    element_text,
    has_class,
    ragged_map,
)
from tensormagic.reports import Fact, StoredGroup, StoredLine, StoredList, StoredMap
from tensormagic.words import count, listed, number_of_bytes, percent, plural, tuple_text

# Layouts that torch keeps for a library: the numbers lie in an order that only the library knows.


def _describe_opaque(x: Any) -> Description:
    return Description(
        label="oneDNN (mkldnn)",
        summary="Stored in oneDNN's own layout: there is no storage and no stride to show.",
        facts=(
            Fact("elements", count(x.numel()), f"{number_of_bytes(x.numel() * x.element_size())} as a strided tensor"),
            Fact("to get strides", f"{ITSELF}.to_dense()", "makes a strided copy"),
        ),
        values=copied(x, torch.Tensor.to_dense, f"the {plural(x.numel(), 'value')} of a strided copy"),
    )


OPAQUE = (Kind("mkldnn", lambda x: bool(x.is_mkldnn), _describe_opaque),)


# MaskedTensor: data and a mask that says which of its elements count.


def _describe_masked(x: Any) -> Description:
    attributes: dict[str, Any] = object.__getattribute__(x, "__dict__")
    data, mask = attributes["_masked_data"], attributes["_masked_mask"]
    parts = (
        Part(".get_data()", "the values of all elements, masked ones included", data),
        Part(".get_mask()", "True where an element counts", mask),
    )
    if data.layout != torch.strided:
        return Description("masked tensor", "Data and mask, both sparse.", parts=parts)
    valid = int(mask.expand_as(data).sum())
    return Description(
        label="masked tensor",
        summary=f"{count(valid)} of {plural(data.numel(), 'element')} count; the others are ignored.",
        facts=(
            Fact("valid", count(valid), percent(valid, data.numel())),
            Fact("masked out", count(data.numel() - valid), "printed as --, left out by its reductions"),
        ),
        parts=parts,
        values=copied(data, lambda every: every[mask.expand_as(every)], f"the {plural(valid, 'element')} that count"),
    )


# Not printable: its detach() warns each time.
MASKED = (Kind("masked", lambda x: has_class(x, "torch.masked", "MaskedTensor"), _describe_masked, printable=False),)


# Functional wrappers: what torch.compile uses to turn in-place operations into ones that return new tensors.


def _is_functional(x: Any) -> bool:
    return _is_python_wrapper(x) or bool(torch._is_functional_tensor(x))


def _is_python_wrapper(x: Any) -> bool:
    return has_class(x, "torch._subclasses.functional_tensor", "FunctionalTensor")


def _describe_functional(x: Any) -> Description:
    wrapped = object.__getattribute__(x, "__dict__")["elem"] if _is_python_wrapper(x) else x
    inside = torch._from_functional_tensor(wrapped)
    chain = ["FunctionalTensor (Python)"] if wrapped is not x else []
    return Description(
        label="functional wrapper",
        summary="Writes to it are recorded and later replayed on the tensor behind it, as torch.compile requires.",
        facts=(
            Fact("wrapped by", ", then ".join([*chain, "FunctionalTensorWrapper (C++)"])),
            Fact("writes recorded so far", "yes" if _was_written(wrapped) else "none"),
        ),
        parts=(Part(" behind its wrapper", "the tensor that holds the numbers, as of the last replay", inside),),
        values=Values(inside, f"the {plural(inside.numel(), 'value')} behind the wrapper, as of the last replay"),
    )


def _was_written(wrapped: torch.Tensor) -> bool:
    functions: Any = torch
    return bool(
        functions._functionalize_has_data_mutation(wrapped) or functions._functionalize_has_metadata_mutation(wrapped)
    )


FUNCTIONAL = (Kind("functional", _is_functional, _describe_functional, printable=False),)


# Inside vmap, grad, jvp and functionalize: torch hands out wrappers, one for each transform that is running.

_MOST_LEVELS = 16


@dataclass(frozen=True, slots=True)
class _Level:
    """One wrapper: which transform made it, at which level, with which batch dimension, and what it looks like."""

    transform: str
    level: int
    batch_dim: int | None
    shape: tuple[int, ...]
    inside: torch.Tensor


def _is_wrapper(x: Any) -> bool:
    if _functorch.is_batchedtensor(x) or _functorch.is_gradtrackingtensor(x):
        return True
    return _functorch.is_functionaltensor(x) and _functorch.maybe_get_level(x) > 0


def _levels(x: Any) -> list[_Level]:
    """Return the wrappers around the plain tensor, outermost first."""
    levels: list[_Level] = []
    while _is_wrapper(x) and len(levels) < _MOST_LEVELS:
        level, batch_dim = int(_functorch.maybe_get_level(x)), None
        if _functorch.is_batchedtensor(x):
            batch_dim = int(_functorch.maybe_get_bdim(x))
        inside = _functorch.get_unwrapped(x)
        levels.append(_Level(_transform(x, level), level, batch_dim, tuple(int(size) for size in x.shape), inside))
        x = inside
    return levels


def _transform(x: Any, level: int) -> str:
    """Return the transform's name; grad and jvp have the same wrapper and are distinguished by running transforms."""
    if _functorch.is_batchedtensor(x):
        return "vmap"
    if _functorch.is_functionaltensor(x):
        return "functionalize"
    return _running().get(level, "grad or jvp")


def _running() -> dict[int, str]:
    """Return the transforms that are running, by level; none where torch does not say."""
    interpreters = _functorch.get_interpreter_stack() or []
    return {int(one.level()): str(one.key()).rsplit(".", 1)[-1].lower() for one in interpreters}


def _describe_functorch(x: Any) -> Description:
    levels = _levels(x)
    innermost, first = levels[-1].inside, levels[0]
    inner, outer = tuple_text(first.shape), tuple_text(innermost.shape)
    names = " inside ".join(level.transform for level in levels)
    if first.transform == "vmap":
        summary = f"It shows one item of a batch, {inner}; behind it is the whole batch, {outer}."
    else:
        tracing = f"A wrapper with which {first.transform} traces the computation"
        summary = f"{tracing}; the numbers are in a tensor of {outer}."
    runs = first.level in _running() or (first.level > 0 and first.transform == "functionalize")
    escaped = Fact("escaped", "yes", f"its {first.transform} has ended: operations on it raise an error")
    return Description(
        label=f"inside {names}",
        summary=summary,
        facts=(
            Fact("shape inside", inner, f"what the function under {first.transform} sees"),
            Fact("shape outside", outer, "the plain tensor behind all wrappers"),
            Fact("levels", str(len(levels)), "outermost level first, as wrapped around the tensor"),
            *(_level_fact(level) for level in levels),
            *(() if runs else (escaped,)),
        ),
        parts=(Part(" behind its wrappers", "the plain tensor that holds the numbers of every batch item", innermost),),
        values=Values(innermost, f"all {plural(innermost.numel(), 'element')} behind the wrapper"),
        stored_bytes=bytes_of(innermost),
    )


def _level_fact(level: _Level) -> Fact:
    if level.batch_dim is None:
        return Fact(f"level {level.level}", level.transform, f"wraps {tuple_text(level.inside.shape)}")
    size = int(level.inside.shape[level.batch_dim])
    note = f"hides batch dimension {level.batch_dim} (size {size}) of {tuple_text(level.inside.shape)}"
    return Fact(f"level {level.level}", level.transform, note)


FUNCTORCH = (Kind("functorch", _is_wrapper, _describe_functorch, printable=False),)


# Quantized tensors: small integers that stand for real numbers, by a scale and a zero point.

_PACKED = {torch.quint4x2: "two 4-bit integers in each byte", torch.quint2x4: "four 2-bit integers in each byte"}


def _describe_quantized(x: Any) -> Description:
    scheme = str(x.qscheme()).removeprefix("torch.")
    per_channel = scheme.startswith("per_channel")
    integers = x.int_repr() if x.numel() <= MOST_COPIED else torch.empty(0, dtype=torch.uint8)
    facts, parts, reading = _per_channel(x) if per_channel else _per_tensor(x, integers)
    packed, dtype = _PACKED.get(x.dtype, ""), str(integers.dtype).removeprefix("torch.")
    return Description(
        label=f"quantized {'per channel' if per_channel else 'per tensor'}",
        summary=f"Stored as {packed or f'{dtype} integers'}; the real number is (integer − zero point) · scale.",
        facts=(
            Fact("scheme", scheme),
            *facts,
            Fact("packed", packed) if packed else Fact("integers", dtype),
            Fact(
                "as float32 would take",
                number_of_bytes(x.numel() * 4),
                f"this takes {number_of_bytes(x.untyped_storage().nbytes())}",
            ),
        ),
        parts=(Part(".int_repr()", "the stored integers" + (", packed" if packed else ""), integers), *parts),
        values=copied(
            x, torch.Tensor.dequantize, f"the {plural(x.numel(), 'real number')} that the integers stand for"
        ),
        reading=reading,
    )


def _per_tensor(x: Any, integers: torch.Tensor) -> tuple[tuple[Fact, ...], tuple[Part, ...], tuple[str, ...]]:
    scale, zero = float(x.q_scale()), int(x.q_zero_point())
    facts = (
        Fact("scale", element_text(scale), "one step of the integers"),
        Fact("zero point", str(zero), "the integer that stands for 0"),
    )
    if x.dtype in _PACKED or not integers.numel():
        return facts, (), ()
    one = int(integers.reshape(-1)[integers.numel() // 2])
    example = (
        f"integer {one} stands for ({one} − {zero}) · {element_text(scale)} = {element_text((one - zero) * scale)}"
    )
    return facts, (), (example,)


def _per_channel(x: Any) -> tuple[tuple[Fact, ...], tuple[Part, ...], tuple[str, ...]]:
    scales, zeros, axis = x.q_per_channel_scales(), x.q_per_channel_zero_points(), int(x.q_per_channel_axis())
    facts = (
        Fact("channel axis", str(axis), f"{plural(scales.numel(), 'channel')}, each with its own scale and zero point"),
    )
    parts = (
        Part(".q_per_channel_scales()", f"the scale of each index of dimension {axis}", scales),
        Part(".q_per_channel_zero_points()", "the number that stands for 0 in each", zeros),
    )
    return facts, parts, ()


QUANTIZED = (
    Kind("quantized_packed", lambda x: bool(x.is_quantized) and x.dtype in _PACKED, _describe_quantized),
    Kind("quantized", lambda x: bool(x.is_quantized), _describe_quantized, strided=True),
)


# Nested tensors: items of different sizes in one buffer, strided (a table of sizes) or jagged (a table of offsets).

_MOST_ITEMS = 4096  # items whose lengths are fetched for the picture


@dataclass(frozen=True, slots=True)
class _Runs:
    """Items of different lengths, each a run along one dimension of a buffer."""

    buffer: torch.Tensor
    dim: int
    starts: list[int]
    lengths: list[int]

    def drawn(self, column: str, title: str) -> StoredMap | None:
        """Return the picture of them, a row each; ``column`` is what one place in an item is called."""
        frame = Frame("item", column, len(self.lengths), max(self.lengths, default=0), title)
        last = max(map(sum, zip(self.starts, self.lengths, strict=True)), default=0)
        return ragged_map(frame, self.lengths, self.starts, self._texts(last) if frame.small else ())

    def listed(self, line: str, pointers: str) -> StoredList:
        """Return the first elements of the buffer, and whose they are."""
        count = int(self.buffer.shape[self.dim])
        shown = min(count, MOST_LISTED)
        groups = [StoredGroup(f"item {at}", start, min(start + length, shown))
                  for at, (start, length) in enumerate(zip(self.starts, self.lengths, strict=True))
                  if start < shown]  # fmt: skip
        return StoredList(count, shown, (StoredLine(line, tuple(self._texts(shown))),), tuple(groups), pointers)

    def _texts(self, most: int) -> list[str]:
        """Return the first elements along the dimension as text, of wide ones the beginning."""
        rows = self.buffer.movedim(self.dim, 0)[:most]
        rows = rows.flatten(1)[:, : MOST_NAMED + 1] if rows.dim() > 1 else rows
        return [element_text(row) for row in rows.tolist()]


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
    runs = _Runs(values, ragged - 1, starts, own)
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
        map=runs.drawn("position", "holes are not drawn" if lengths is not None else ""),
        stored=runs.listed("values", "offsets"),
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
        Fact("lengths", f"{min(own)} to {max(own)}, {sum(own) / len(own):.3g} on average" if own else "none"),
        Fact("buffer", tuple_text(values.shape), f"{used} of its {room} elements belong to an item"),
        Fact(
            "bytes",
            number_of_bytes(values.numel() * values.element_size()),
            f"padded to the longest: {number_of_bytes(padded)}",
        ),
    )


def _some(items: list[tuple[int, ...]]) -> str:
    return listed(map(tuple_text, items), most=MOST_NAMED)


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
    plain = bool(x.is_contiguous())
    columns = [set(column) for column in zip(*items, strict=True)]
    shape = (int(sizes.shape[0]), *(max(column) if len(column) == 1 else -1 for column in columns))
    offsets = [int(start) for start in starts[:_MOST_ITEMS].tolist()]
    padded = len(items) * prod(map(max, columns)) * x.element_size()
    runs = _Runs(buffer, 0, offsets, list(map(prod, items)))
    return Description(
        label="nested, strided",
        summary=f"{plural(shape[0], 'item')}, each with its own sizes and strides, in one buffer.",
        facts=(
            Fact("items", _some(items), "ragged: a size that differs from item to item"),
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
        map=runs.drawn("element", "each item's elements in a row") if plain else None,
        stored=runs.listed("buffer", "storage offsets") if plain else None,
    )


NESTED = (
    Kind("jagged", lambda x: bool(x.layout == torch.jagged), _describe_jagged),
    Kind("nested", lambda x: x.is_nested and x.layout == torch.strided, _describe_strided),
)
