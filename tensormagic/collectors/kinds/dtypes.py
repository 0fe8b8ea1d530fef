"""Dtypes that need a word, and what a tensor can be besides: a parameter, a buffer, a lazy conjugate."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import torch

from tensormagic.collectors.kinds.kind import (
    ITSELF,
    Description,
    Kind,
    Part,
    Values,
    always,
    bytes_of,
    element_text,
    has_class,
)
from tensormagic.reports import Fact
from tensormagic.words import number_of_bytes, plural, tuple_text

# Dtypes that need a word: small floats, opaque bits, integers of a few bits, and unsigned ones torch rarely computes.
#
# Elements of fewer bits than a byte have one byte each in torch (``int4``, ``uint3``), or share a byte by name
# (``float4_e2m1fn_x2``, ``bits4x2``). Where torch has no operation on them, the bytes are read as they are.

_FLOATS = {
    # name → sign, exponent and fraction bits, and what is peculiar
    "float16": (1, 5, 10, ""),
    "bfloat16": (1, 8, 7, "the range of float32 with 8 significant bits"),
    "float8_e4m3fn": (1, 4, 3, "no infinities: too large becomes NaN"),
    "float8_e5m2": (1, 5, 2, "like float16 truncated to a byte"),
    "float8_e4m3fnuz": (1, 4, 3, "no infinities and no negative zero"),
    "float8_e5m2fnuz": (1, 5, 2, "no infinities and no negative zero"),
    "float8_e8m0fnu": (0, 8, 0, "powers of two only, as scales of blocks; no zero and no sign"),
    "float4_e2m1fn_x2": (1, 2, 1, "two numbers in each byte; no infinities and no NaN"),
}
_FLOAT4 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0)
_FEW_BITS = re.compile(r"(u?)int([1-7])")
_OPAQUE = re.compile(r"bits(\d+)(?:x(\d+))?")


def _name(x: Any) -> str:
    """Return the name of a tensor's dtype; raises where its class says something that is no dtype."""
    dtype = x.dtype
    # Were that printed, it might print the tensor, which prints its dtype: torch ends that recursion with its
    # transforms (``torch.func``) switched off.
    if type(dtype) is not torch.dtype:
        raise TypeError(f"its dtype is a {type(dtype).__name__}")
    return str(dtype).removeprefix("torch.")


def decoded(x: torch.Tensor) -> Values | None:
    """Return the numbers of a tensor whose dtype torch cannot read, from its bytes; None where it is no such tensor.

    Integers of a few bits have one byte each, of which the lowest bits count; two 4-bit floats share a byte, the first
    one in its lower half; opaque bits are shown as the bytes they are.
    """
    name = _name(x)
    few, is_float = _FEW_BITS.fullmatch(name), name == "float4_e2m1fn_x2"
    if not (few or is_float or _OPAQUE.fullmatch(name)):
        return None
    raw = x.view(torch.int16) if x.element_size() == 2 else x.view(torch.uint8)
    if is_float:
        table = torch.tensor(_FLOAT4, device=x.device)
        pairs = torch.stack([raw & 15, raw >> 4], -1).to(torch.int64)
        return Values(table[pairs], f"the {plural(2 * x.numel(), 'number')} in {plural(x.numel(), 'byte')}")
    if few:
        bits = int(few[2])
        low = raw.to(torch.int16) & (2**bits - 1)
        signed = torch.where(low >= 2 ** (bits - 1), low - 2**bits, low).to(torch.int8)
        return Values(low.to(torch.uint8) if few[1] else signed, f"the lowest {bits} bits of each byte")
    return Values(raw, "the bytes, as unsigned integers" if x.element_size() == 1 else "the 16-bit words, as integers")


def _describe_float(x: Any) -> Description:
    name = _name(x)
    sign, exponent, fraction, peculiar = _FLOATS[name]
    bits = f"{exponent} exponent bits only"
    if sign:
        bits = f"{sign} sign, {exponent} exponent and {fraction} fraction bits"
    facts: tuple[Fact, ...] = (Fact("numbers it has", "0, ±0.5, ±1, ±1.5, ±2, ±3, ±4, ±6"),)
    if name != "float4_e2m1fn_x2":
        info = torch.finfo(x.dtype)
        facts = (
            Fact("largest", element_text(info.max)),
            Fact("smallest normal", element_text(info.smallest_normal)),
            # Not info.eps: of float8_e5m2fnuz torch gives that of float8_e4m3fnuz.
            Fact("step at 1", element_text(2.0**-fraction), "the gap between 1 and the next number"),
        )
    return Description(name, f"{bits}{f': {peculiar}' if peculiar else ''}.", facts)


def _describe_few(x: Any) -> Description:
    found = _FEW_BITS.fullmatch(_name(x))
    assert found
    bits = int(found[2])
    low, high = (0, 2**bits - 1) if found[1] else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    summary = f"Integers of {plural(bits, 'bit')}, {low} to {high}, one a byte; torch cannot compute with them."
    read = Fact("to read it", f"{ITSELF}.view(torch.uint8)", "the bytes, without a copy")
    return Description(_name(x), summary, (Fact("bits used", f"{bits} of 8"), read))


def _describe_opaque(x: Any) -> Description:
    found = _OPAQUE.fullmatch(_name(x))
    assert found
    fields = f"{found[2]} fields of {plural(int(found[1]), 'bit')} each in a byte"
    packed = fields if found[2] else f"{found[1]} bits each"
    meaning = "their meaning depends on the code that made them; torch has no operations on them."
    view = f"{ITSELF}.view(torch.uint{8 if x.element_size() == 1 else 16})"
    return Description(_name(x), f"Opaque bits, {packed}: {meaning}", (Fact("to read it", view, "without a copy"),))


def _describe_unsigned(x: Any) -> Description:
    bits = 8 * x.element_size()
    summary = f"Unsigned integers of {bits} bits; torch stores and converts them, but supports few operations."
    return Description(_name(x), summary, (Fact("largest", str(2**bits - 1)),))


def _describe_parameter(x: Any) -> Description:
    state = "trained: backward() fills its .grad" if x.requires_grad else "frozen: requires_grad is False"
    return Description("Parameter", f"A module that holds it lists it in parameters(); it is {state}.")


def buffer(*, saved: bool) -> Description:
    """Return what it means to be a buffer, ``nn.Buffer`` or registered as one."""
    kept = "saved in state_dict()" if saved else "not saved in state_dict() (persistent=False)"
    moved = "A module that holds it moves it with .to(), but does not pass it to an optimizer"
    return Description("Buffer", f"{moved}; it is {kept}.")


def _is_buffer(x: Any) -> bool:
    return bool(getattr(x, "_is_buffer", False)) and not has_class(x, "torch.nn.parameter", "UninitializedBuffer")


def _describe_lazy(label: str, summary: str, method: str, x: Any) -> Description:
    """Describe a view that changes what it reads, and how that is written out."""
    fact = Fact("to write it out", f"{ITSELF}.{method}() copies {number_of_bytes(bytes_of(x))}")
    return Description(label, f"The storage holds the {summary}.", (fact,))


def _formats(x: Any) -> tuple[str, ...]:
    """Return the channels_last formats that a tensor is in, and not at the same time in the plain one."""
    if x.is_contiguous() or x.numel() == 0:
        return ()
    both = (("channels_last", torch.channels_last, 4), ("channels_last_3d", torch.channels_last_3d, 5))
    return tuple(name for name, fmt, ndim in both if x.dim() == ndim and x.is_contiguous(memory_format=fmt))


def _describe_channels_last(x: Any) -> Description:
    (name,) = _formats(x)
    spatial = " × ".join(map(str, x.shape[2:]))
    summary = f"The {x.shape[1]} channels of one place are next to each other in memory ({spatial})."
    order = Fact("order in memory", "N, D, H, W, C" if x.dim() == 5 else "N, H, W, C", "the shape stays N, C, …")
    stride = Fact("stride of C", str(x.stride(1)), "1: neighbouring channels are neighbours in memory")
    return Description(name, summary, (order, stride))


def _dual(x: Any) -> torch.Tensor | None:
    from torch.autograd import forward_ad

    if forward_ad._current_level < 0:
        return None
    tangent: torch.Tensor | None = torch._VF._unpack_dual(x, level=0).tangent
    return tangent


def _describe_dual(x: Any) -> Description:
    tangent = _dual(x)
    assert tangent is not None
    return Description(
        label="dual tensor",
        summary="In forward mode: besides its values it carries a tangent, which every operation propagates.",
        facts=(Fact("tangent", tuple_text(tangent.shape), "the derivative along the given direction"),),
        parts=(Part(" tangent", "the directional derivative of each element", tangent),),
    )


BUFFER = "buffer"
DTYPES = (
    Kind("small_float", lambda x: _name(x) in _FLOATS, _describe_float),
    Kind("few_bits", lambda x: bool(_FEW_BITS.fullmatch(_name(x))), _describe_few),
    Kind("bits", lambda x: bool(_OPAQUE.fullmatch(_name(x))), _describe_opaque),
    Kind("complex32", lambda x: x.dtype == torch.complex32,
         always("complex32", "Two half-precision numbers per element; many operations do not support it.",
                Fact("parts", "float16 + float16j", "real part first"))),
    Kind("unsigned", lambda x: _name(x) in {"uint16", "uint32", "uint64"}, _describe_unsigned),
)  # fmt: skip
TRAITS = (
    Kind("parameter", lambda x: has_class(x, "torch.nn.parameter", "Parameter"), _describe_parameter),
    Kind(BUFFER, _is_buffer, lambda x: buffer(saved=bool(getattr(x, "persistent", True)))),
    Kind("conj", lambda x: bool(x.is_conj()), partial(
        _describe_lazy, "conjugate view", "conjugates: every read negates the imaginary part", "resolve_conj")),
    Kind("neg", lambda x: bool(x.is_neg()), partial(
        _describe_lazy, "negative view", "negatives: every read negates them", "resolve_neg")),
    Kind("inference", lambda x: bool(x.is_inference()), always(
        "inference tensor",
        "Made under inference_mode: it has no version counter, and autograd cannot save it (but can save a clone).")),
)  # fmt: skip
STRIDED_KINDS = (
    Kind("dual", lambda x: _dual(x) is not None, _describe_dual),
    Kind("channels_last", lambda x: bool(_formats(x)), _describe_channels_last),
)
