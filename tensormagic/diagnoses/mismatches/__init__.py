"""What did not fit in a call that torch refused, worked out from its operands and from what torch said.

A message of torch names numbers; whose they are is found among the operands, and what is not found there is not
claimed. One table of what torch says, a subject a file; where none of its rows fits (a message of another version of
torch perhaps), the sizes, dtypes and devices of the operands are compared with the rule of the function itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import import_module
from typing import Any

from tensormagic.diagnoses.mismatches.call import Call, Given, Row, Shape, mismatch, numbers, shaped, sizes, whole
from tensormagic.diagnoses.mismatches.call import size as size_of
from tensormagic.reports import Clashing, FailureReport, Mismatch

# In this order, as far as two rows fit one message: those that ask for a certain function stand first. A subject is
# imported where no row of those before it explains the message.
_SUBJECTS = ("layers", "dtypes", "products", "shapes", "indices", "dimensions", "arguments")
_ELEMENTWISE = frozenset({
    "add", "sub", "mul", "div", "true_divide", "truediv", "pow", "maximum", "minimum", "where", "eq", "ne", "lt",
    "le", "gt",
    "ge", "atan2", "fmod", "remainder", "lerp", "and", "or", "xor", "mse_loss", "l1_loss", "smooth_l1_loss",
    "huber_loss",
})  # fmt: skip
_PRODUCTS = frozenset({"matmul", "mm", "mv", "dot", "addmm", "bmm", "spmm", "inner"})
_OF_SHAPE = re.compile(r"\b(?:shapes?|sizes?|dimensions?|dims?|numel|channels?)\b", re.IGNORECASE)
_OF_DTYPE = re.compile(r"\b(?:dtypes?|scalar types?|data types?)\b", re.IGNORECASE)
_OF_DEVICE = re.compile(r"\bdevices?\b", re.IGNORECASE)
_QUOTED = re.compile(r"\[((?:\d+(?:, )?)+)\]")


def mismatch_of(report: FailureReport) -> Mismatch | None:
    """Return what did not fit in a failed call; None where that is not what was wrong, or is not known.

    Args:
        report: The failed call; its own ``mismatch`` is not looked at.
    """
    call = Call(report)
    explained = (row.mismatch(call) for row in rows())
    return next((found for found in explained if found is not None), None) or _by_function(call) or _as_torch_says(call)


def rows() -> Iterator[Row]:
    """Yield the rows of the table in the order in which they are compared with a message."""
    for name in _SUBJECTS:
        yield from _subject(name).says.rows


def _subject(name: str) -> Any:
    return import_module(f"{__name__}.{name}")


def _by(call: Call, subject: str, function: str) -> Mismatch | None:
    found: Mismatch | None = getattr(_subject(subject), function)(call)
    return found


def _by_function(call: Call) -> Mismatch | None:
    """Return what the operands themselves break of the function's rule, if the message is about such a thing at all."""
    found = _by(call, "dtypes", "devices") if _OF_DEVICE.search(call.error) else None
    if found is not None:
        return found
    if _OF_DTYPE.search(call.error) and call.function in _ELEMENTWISE | _PRODUCTS | {"linear"}:
        return _by(call, "dtypes", "any_two")
    return _of_shape(call) if _OF_SHAPE.search(call.error) else None


def _of_shape(call: Call) -> Mismatch | None:
    if call.function == "linear":
        return _by(call, "products", "linear")
    if call.function in _PRODUCTS:
        return _by(call, "products", "product")
    if call.function in _ELEMENTWISE:
        return _by(call, "shapes", "do_not_broadcast")
    # What clashes among the operands whose shapes torch quotes is not claimed, since nobody knows.
    quoted = [numbers(text) for text in _QUOTED.findall(call.error)]
    named = [one for one in call.tensors if one.shape in quoted]
    message = call.error.strip().split("\n", 1)[0]
    return mismatch("argument", f"Torch says: {message}", *map(shaped, named)) if named else None


# What torch's message says by itself, where an operand was computed in the failing line and nobody saw it.

_BROADCAST = re.compile(r"size of tensor a \((\d+)\) must match the size of tensor b \((\d+)\) at .*dimension (\d+)")
_PRODUCT = re.compile(r"mat1 and mat2 shapes cannot be multiplied \((\d+x\d+) and (\d+x\d+)\)")
_JOINED = re.compile(r"except in dimension (\d+)\. Expected size (\d+) but got size (\d+) for tensor number (\d+)")


def _as_torch_says(call: Call) -> Mismatch | None:
    """Return what did not fit, from the sizes in the message: an unknown operand is named by its code."""
    given = [one for one in call.given if one.operand.is_tensor or one.operand.name.startswith("the result of ")]
    if all(one.operand.is_tensor for one in given):
        return None
    if len(given) == 2 and call.function in _ELEMENTWISE and (found := _BROADCAST.search(call.error)):
        return _broadcast(given, numbers(" ".join(found.groups())))
    if len(given) == 2 and call.function in _PRODUCTS and (found := _PRODUCT.search(call.error)):
        return _multiplied(given, [numbers(text.replace("x", " ")) for text in found.groups()])
    if found := _JOINED.search(call.error):
        dim, wanted, got, number = numbers(" ".join(found.groups()))
        rule = f"All dimensions but {dim} must be equal: tensor {number} of the list has {got} where the first has"
        return mismatch("shape", f"{rule} {wanted}.", whole(given[0], got, wanted))
    return None


def _broadcast(given: list[Given], shapes: Shape) -> Mismatch | None:
    one, other, at = shapes
    sides = list(zip(given, (one, other), strict=True))
    if any(side.operand.is_tensor and got not in side.shape for side, got in sides):
        return None
    return mismatch(
        "shape",
        f"Dimensions are compared from the right, and must be equal or 1: in dimension {at} of the result, "
        f"{_sized(given[0])} has {one} and {_sized(given[1])} has {other}.",
        *(_part(side, got, at) for side, got in sides),
    )


def _multiplied(given: list[Given], shapes: list[Shape]) -> Mismatch | None:
    if any(one.operand.is_tensor and one.shape != shape for one, shape in zip(given, shapes, strict=True)):
        return None
    (first, second), (left, right) = given, shapes
    return mismatch(
        "shape",
        f"The columns of the first must be as many as the rows of the second: {first.name} ({sizes(left)}) has "
        f"{left[1]} columns, {second.name} ({sizes(right)}) has {right[0]} rows.",
        whole(first, f"{left[1]} columns"),
        whole(second, f"{right[0]} rows", left[1]),
    )


def _sized(given: Given) -> str:
    return given.sized if given.operand.is_tensor else given.name


def _part(given: Given, got: int, at: int) -> Clashing:
    places = [place for place, size in enumerate(given.shape) if size == got]
    return size_of(given, places[0]) if len(places) == 1 else whole(given, f"{got} in dimension {at}")
