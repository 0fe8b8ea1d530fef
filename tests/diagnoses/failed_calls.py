"""Failed calls made by hand, for the rules about them: what torch said, and what it was given."""

from __future__ import annotations

from typing import Any

from tensormagic.reports import FailureReport, Operand


def tensor(name: str, *shape: int, dtype: str = "float32", device: str = "cpu", **fields: Any) -> Operand:
    """Return a contiguous tensor as an operand, unless ``stride`` says otherwise."""
    stride, step = [], 1
    for size in reversed(shape):
        stride.append(step)
        step *= size
    known = {"stride": tuple(reversed(stride)), "layout": "strided", **fields}
    return Operand(name=name, shape=shape, dtype=dtype, device=device, **known)


def plain(text: str, role: str = "", place: str = "") -> Operand:
    """Return an argument that is no tensor."""
    return Operand(role=role, is_tensor=False, text=text, place=place)


def failed(function: str, error: str, *operands: Operand, kind: str = "RuntimeError", **fields: Any) -> FailureReport:
    """Return the report of a call that torch refused."""
    return FailureReport(error_type=kind, error=error, function=function, operands=operands, **fields)
