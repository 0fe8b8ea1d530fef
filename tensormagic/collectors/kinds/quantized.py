"""Quantized tensors: small integers that stand for real numbers, by a scale and a zero point."""

from __future__ import annotations

from typing import Any

import torch

from tensormagic.collectors.kinds.kind import MOST_COPIED, Description, Kind, Part, copied, element_text
from tensormagic.reports import Fact
from tensormagic.words import number_of_bytes, plural

_PACKED = {torch.quint4x2: "two 4-bit integers in each byte", torch.quint2x4: "four 2-bit integers in each byte"}


def _describe(x: Any) -> Description:
    scheme = str(x.qscheme()).removeprefix("torch.")
    per_channel = scheme.startswith("per_channel")
    integers = x.int_repr() if x.numel() <= MOST_COPIED else torch.empty(0, dtype=torch.uint8)
    facts, parts, reading = _per_channel(x) if per_channel else _per_tensor(x, integers)
    packed = _PACKED.get(x.dtype, "")
    return Description(
        label=f"quantized {'per channel' if per_channel else 'per tensor'}",
        summary=f"Stored as {_stored(x, integers)}; the real number is (integer − zero point) · scale.",
        facts=(
            Fact("scheme", scheme),
            *facts,
            Fact("packed", packed) if packed else Fact("integers", str(integers.dtype).removeprefix("torch.")),
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


def _stored(x: Any, integers: torch.Tensor) -> str:
    return _PACKED.get(x.dtype, f"{str(integers.dtype).removeprefix('torch.')} integers")


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


KINDS = (
    Kind("quantized_packed", lambda x: bool(x.is_quantized) and x.dtype in _PACKED, _describe),
    Kind("quantized", lambda x: bool(x.is_quantized), _describe, strided=True),
)
