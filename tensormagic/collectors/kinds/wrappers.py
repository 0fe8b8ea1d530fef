"""Tensors that consist of others: nested tensors, and what functorch and others wrap."""

from __future__ import annotations

from math import prod
from typing import Any, cast

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
    counting,
    element_text,
    has_class,
    ragged_map,
)
from tensormagic.reports import Fact, StoredGroup, StoredLine, StoredList, StoredMap
from tensormagic.words import count, listed, number_of_bytes, percent, plural, tuple_text

_MOST_LEVELS = 16
_MOST_ITEMS = 4096  # items whose lengths are fetched for the picture


# Layouts that torch keeps for a library: the numbers lie in an order that only the library knows.


def _describe_opaque(x: Any) -> Description:
    return Description(
        label="oneDNN (mkldnn)",
        summary="Stored in oneDNN's own layout: there is no storage and no stride to show.",
        facts=(
            Fact("elements", count(x.numel()), f"{number_of_bytes(bytes_of(x))} as a strided tensor"),
            Fact("to get strides", f"{ITSELF}.to_dense()", "makes a strided copy"),
        ),
        values=copied(x, torch.Tensor.to_dense, f"the {plural(x.numel(), 'value')} of a strided copy"),
    )


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
        summary=f"{count(valid)} of {plural(data.numel(), 'element')} {'counts' if valid == 1 else 'count'}; the rest "
        "is ignored.",
        facts=(
            Fact("valid", count(valid), percent(valid, data.numel())),
            Fact("masked out", count(data.numel() - valid), "printed as --, left out by its reductions"),
        ),
        parts=parts,
        values=copied(data, lambda every: every[mask.expand_as(every)], counting(valid)),
    )


# Functional wrappers: what torch.compile uses to turn in-place operations into ones that return new tensors.


def _is_functional(x: Any) -> bool:
    return _is_python_wrapper(x) or bool(torch._is_functional_tensor(x))


def _is_python_wrapper(x: Any) -> bool:
    return has_class(x, "torch._subclasses.functional_tensor", "FunctionalTensor")


def _describe_functional(x: Any) -> Description:
    wrapped = object.__getattribute__(x, "__dict__")["elem"] if _is_python_wrapper(x) else x
    inside, functions = torch._from_functional_tensor(wrapped), cast("Any", torch)
    data, metadata = functions._functionalize_has_data_mutation, functions._functionalize_has_metadata_mutation
    chain = ["FunctionalTensor (Python)"] if wrapped is not x else []
    return Description(
        label="functional wrapper",
        summary="Writes to it are recorded and later replayed on the tensor behind it, as torch.compile requires.",
        facts=(
            Fact("wrapped by", ", then ".join([*chain, "FunctionalTensorWrapper (C++)"])),
            Fact("writes recorded so far", "yes" if data(wrapped) or metadata(wrapped) else "none"),
        ),
        parts=(Part(" behind its wrapper", "the tensor that holds the numbers, as of the last replay", inside),),
        values=Values(inside, f"the {plural(inside.numel(), 'value')} behind the wrapper, as of the last replay"),
    )


# Inside vmap, grad, jvp and functionalize: torch hands out wrappers, one for each transform that is running.
def _is_wrapper(x: Any) -> bool:
    if _functorch.is_batchedtensor(x) or _functorch.is_gradtrackingtensor(x):
        return True
    return _functorch.is_functionaltensor(x) and _functorch.maybe_get_level(x) > 0


def _describe_functorch(x: Any) -> Description:
    interpreters = _functorch.get_interpreter_stack() or []
    running = {int(one.level()): str(one.key()).rsplit(".", 1)[-1].lower() for one in interpreters}
    innermost, names, levels, facts = x, list[str](), list[int](), list[Fact]()  # from the outermost wrapper inwards
    while _is_wrapper(innermost) and len(names) < _MOST_LEVELS:
        level, inside = int(_functorch.maybe_get_level(innermost)), _functorch.get_unwrapped(innermost)
        # grad and jvp have the same wrapper, and are distinguished by the transforms that are running.
        functional = _functorch.is_functionaltensor(innermost)
        name, note = "functionalize" if functional else running.get(level, "grad or jvp"), "wraps"
        if _functorch.is_batchedtensor(innermost):
            name, dim = "vmap", int(_functorch.maybe_get_bdim(innermost))
            note = f"hides batch dimension {dim} (size {int(inside.shape[dim])}) of"
        names.append(name)
        levels.append(level)
        facts.append(Fact(f"level {level}", name, f"{note} {tuple_text(inside.shape)}"))
        innermost = inside
    inner, outer, first = tuple_text(tuple(map(int, x.shape))), tuple_text(innermost.shape), names[0]
    summary = f"A wrapper with which {first} traces the computation; the numbers are in a tensor of {outer}."
    if first == "vmap":
        summary = f"It shows one item of a batch, {inner}; behind it is the whole batch, {outer}."
    if levels[0] not in running and not (levels[0] > 0 and first == "functionalize"):
        facts.append(Fact("escaped", "yes", f"its {first} has ended: operations on it raise an error"))
    return Description(
        label=f"inside {' inside '.join(names)}",
        summary=summary,
        facts=(
            Fact("shape inside", inner, f"what the function under {first} sees"),
            Fact("shape outside", outer, "the plain tensor behind all wrappers"),
            Fact("levels", str(len(levels)), "outermost level first, as wrapped around the tensor"),
            *facts,
        ),
        parts=(Part(" behind its wrappers", "the plain tensor that holds the numbers of every batch item", innermost),),
        values=Values(innermost, f"all {plural(innermost.numel(), 'element')} behind the wrapper"),
        stored_bytes=bytes_of(innermost),
    )


# Quantized tensors: small integers that stand for real numbers, by a scale and a zero point.

_PACKED = {torch.quint4x2: "two 4-bit integers in each byte", torch.quint2x4: "four 2-bit integers in each byte"}


def _describe_quantized(x: Any) -> Description:
    scheme = str(x.qscheme()).removeprefix("torch.")
    integers = x.int_repr() if x.numel() <= MOST_COPIED else torch.empty(0, dtype=torch.uint8)
    packed, dtype = _PACKED.get(x.dtype, ""), str(integers.dtype).removeprefix("torch.")
    parts, reading, facts = list[Part](), list[str](), [Fact("scheme", scheme)]
    if scheme.startswith("per_channel"):
        kind, axis, scales = "channel", int(x.q_per_channel_axis()), x.q_per_channel_scales()
        channels = plural(scales.numel(), "channel")
        facts.append(Fact("channel axis", str(axis), f"{channels}, each with its own scale and zero point"))
        zeros, role = x.q_per_channel_zero_points(), "the number that stands for 0 in each"
        parts.append(Part(".q_per_channel_scales()", f"the scale of each index of dimension {axis}", scales))
        parts.append(Part(".q_per_channel_zero_points()", role, zeros))
    else:
        kind, scale, zero = "tensor", float(x.q_scale()), int(x.q_zero_point())
        facts.append(Fact("scale", element_text(scale), "one step of the integers"))
        facts.append(Fact("zero point", str(zero), "the integer that stands for 0"))
        if not packed and integers.numel():
            one = int(integers.reshape(-1)[integers.numel() // 2])
            product = f"({one} − {zero}) · {element_text(scale)}"
            reading.append(f"integer {one} stands for {product} = {element_text((one - zero) * scale)}")
    taken = f"this takes {number_of_bytes(x.untyped_storage().nbytes())}"
    of_what = f"the {plural(x.numel(), 'real number')} that the integers stand for"
    return Description(
        label=f"quantized per {kind}",
        summary=f"Stored as {packed or f'{dtype} integers'}; the real number is (integer − zero point) · scale.",
        facts=(
            *facts,
            Fact("packed", packed) if packed else Fact("integers", dtype),
            Fact("as float32 would take", number_of_bytes(x.numel() * 4), taken),
        ),
        parts=(Part(".int_repr()", "the stored integers" + (", packed" if packed else ""), integers), *parts),
        values=copied(x, torch.Tensor.dequantize, of_what),
        reading=tuple(reading),
    )


# Nested tensors: items of different sizes in one buffer, strided (a table of sizes) or jagged (a table of offsets).
def _pictures(
    buffer: torch.Tensor, starts: list[int], lengths: list[int], words: tuple[str, str, str, str], *, dim: int = 0
) -> tuple[StoredMap | None, StoredList]:
    """Return the picture of items that are runs along a dimension of a buffer, and the list of what is stored."""

    def texts(most: int) -> list[str]:
        """Return the first elements along the dimension as text, of wide ones the beginning."""
        rows = buffer.movedim(dim, 0)[:most]
        rows = rows.flatten(1)[:, : MOST_NAMED + 1] if rows.dim() > 1 else rows
        return [element_text(row) for row in rows.tolist()]

    column, title, line, pointers = words  # what a place in an item is called, what rows show, buffer, table of starts
    frame = Frame("item", column, len(lengths), max(lengths, default=0), title)
    stored = int(buffer.shape[dim])
    shown = min(stored, MOST_LISTED)
    runs = list(zip(starts, lengths, strict=True))
    spans = [(start, min(start + length, shown)) for start, length in runs]
    groups = [StoredGroup(f"item {at}", *span) for at, span in enumerate(spans) if span[0] < shown]
    drawn = ragged_map(frame, lengths, starts, texts(max(map(sum, runs), default=0)) if frame.small else ())
    return drawn, StoredList(stored, shown, (StoredLine(line, tuple(texts(shown))),), tuple(groups), pointers)


def _describe_jagged(x: Any) -> Description:
    inner: dict[str, Any] = object.__getattribute__(x, "__dict__")
    values, offsets, lengths = inner["_values"], inner["_offsets"], inner.get("_lengths")
    ragged, items = int(inner["_ragged_idx"]), int(offsets.numel()) - 1
    shape = tuple(-1 if at == ragged else int(size) for at, size in enumerate(inner["_size"]))
    parts = [
        Part(".values()", "every item's numbers, one item after the other", values),
        Part(".offsets()", "item i begins at offsets[i] of values and ends before offsets[i + 1]", offsets),
    ]
    if lengths is not None:
        parts.append(Part(".lengths()", "how much of its space each item uses; the rest are holes", lengths))
    if values.device.type == "meta":
        summary, no_values = "A jagged nested tensor without memory.", "its values have no memory"
        return Description("nested, jagged", summary, parts=tuple(parts), shape=shape, no_values=no_values)
    starts, own = list[int](), list[int]()  # of the first items, along the ragged dimension of the buffer
    if offsets.device.type != "meta":
        first = offsets[: _MOST_ITEMS + 1].to(torch.int64)
        used = first.diff() if lengths is None else lengths[:_MOST_ITEMS].to(torch.int64)
        starts, own = torch.stack([first[:-1], used]).tolist()
    reading, at, room = list[str](), len(starts) // 2, int(values.shape[ragged - 1])
    if starts and own[at]:
        span = f"values[{starts[at]}:{starts[at] + own[at]}]"
        reading.append(f"item {at} is {span}: offsets[{at}] = {starts[at]}, {plural(own[at], 'place')} long")
    shapes = [tuple(length if dim == ragged else size for dim, size in enumerate(shape) if dim) for length in own]
    padded = len(own) * max(own, default=0) * (values.numel() // room if room else 0) * values.element_size()
    spread = f"{min(own)} to {max(own)}, {sum(own) / len(own):.3g} on average" if own else "none"
    words = ("position", "holes are not drawn" if lengths is not None else "", "values", "offsets")
    drawn, stored = _pictures(values, starts, own, words, dim=ragged - 1)
    holes = " (holes too)" if lengths is not None else ""
    return Description(
        label="nested, jagged",
        summary=f"{plural(items, 'item')} of different length along dimension {ragged}, end to end in one buffer.",
        facts=(
            Fact("items", _some(shapes), f"dimension {ragged} is ragged (−1 in the shape)"),
            Fact("lengths", spread),
            Fact("buffer", tuple_text(values.shape), f"{sum(own)} of its {room} elements belong to an item"),
            Fact("bytes", number_of_bytes(bytes_of(values)), f"padded to the longest: {number_of_bytes(padded)}"),
        ),
        parts=tuple(parts),
        values=Values(values, f"the {plural(values.numel(), 'value')} in the buffer{holes}"),
        shape=shape,
        map=drawn,
        stored=stored,
        reading=tuple(reading),
        stored_bytes=bytes_of(*(part.tensor for part in parts)),
    )


def _some(items: list[tuple[int, ...]]) -> str:
    return listed(map(tuple_text, items), most=MOST_NAMED)


def _describe_strided(x: Any) -> Description:
    sizes, steps, starts = x._nested_tensor_size(), x._nested_tensor_strides(), x._nested_tensor_storage_offsets()
    if sizes.dim() < 2 or not sizes.numel():
        count = int(sizes.shape[0]) if sizes.dim() > 1 else 0
        return Description("nested, strided", f"{plural(count, 'item')} without known dimensions.", shape=(count,))
    if x.device.type == "meta":
        return Description("nested, strided", "A nested tensor without memory.", no_values="it has no memory")
    items = [tuple(size) for size in sizes[:_MOST_ITEMS].tolist()]
    offsets = [int(start) for start in starts[:_MOST_ITEMS].tolist()]
    length = x.untyped_storage().nbytes() // x.element_size()
    buffer = torch.empty(0, dtype=x.dtype, device=x.device).set_(x.untyped_storage(), 0, (length,), (1,))
    columns = [set(column) for column in zip(*items, strict=True)]
    shape = (int(sizes.shape[0]), *(max(column) if len(column) == 1 else -1 for column in columns))
    padded = number_of_bytes(len(items) * prod(map(max, columns)) * x.element_size())
    first = ", ".join([*map(str, offsets[:MOST_NAMED]), *(["…"] if len(offsets) > MOST_NAMED else [])])
    plain, drawn, stored = bool(x.is_contiguous()), None, None
    if plain:
        words = ("element", "each item's elements in a row", "buffer", "storage offsets")
        drawn, stored = _pictures(buffer, offsets, list(map(prod, items)), words)
    return Description(
        label="nested, strided",
        summary=f"{plural(shape[0], 'item')}, each with its own sizes and strides, in one buffer.",
        facts=(
            Fact("items", _some(items), "ragged: a size that differs from item to item"),
            Fact("strides", _some([tuple(step) for step in steps[:_MOST_ITEMS].tolist()])),
            Fact("storage offsets", first),
            Fact("contiguous", str(plain), "" if plain else "the items are not read in the order of the buffer"),
            Fact("bytes", number_of_bytes(bytes_of(x)), f"padded to the largest: {padded}"),
        ),
        parts=(
            Part("._nested_tensor_size()", "a row of sizes for each item", sizes),
            Part("._nested_tensor_strides()", "a row of strides for each item", steps),
            Part("._nested_tensor_storage_offsets()", "where in the buffer each item begins", starts),
            Part(".untyped_storage()", "the buffer, as one row of numbers", buffer),
        ),
        values=Values(buffer, f"the {plural(buffer.numel(), 'value')} in the buffer"),
        shape=shape,
        map=drawn,
        stored=stored,
    )


TRANSFORMS = (
    Kind("functorch", _is_wrapper, _describe_functorch, printable=False),
    Kind("functional", _is_functional, _describe_functional, printable=False),
)
HOLDERS = (
    # Not printable: its detach() warns each time.
    Kind("masked", lambda x: has_class(x, "torch.masked", "MaskedTensor"), _describe_masked, printable=False),
    Kind("jagged", lambda x: bool(x.layout == torch.jagged), _describe_jagged),
    Kind("nested", lambda x: x.is_nested and x.layout == torch.strided, _describe_strided),
    Kind("mkldnn", lambda x: bool(x.is_mkldnn), _describe_opaque),
    Kind("quantized_packed", lambda x: bool(x.is_quantized) and x.dtype in _PACKED, _describe_quantized),
    Kind("quantized", lambda x: bool(x.is_quantized), _describe_quantized, strided=True),
)
