"""Messages that no table knows, of another version of torch perhaps: the rule of the function itself decides."""

from __future__ import annotations

import re

from tensormagic.diagnoses.mismatches import broadcasting, devices, dtypes, products
from tensormagic.diagnoses.mismatches.call import Call, mismatch, sizes, whole
from tensormagic.reports import Mismatch

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


def by_function(call: Call) -> Mismatch | None:
    """Return what the operands themselves break of the function's rule, if the message is about such a thing at all."""
    nothing = re.compile("").match("")
    if nothing is not None and _OF_DEVICE.search(call.error):
        found = devices.devices(call, nothing)
        if found is not None:
            return found
    if _OF_DTYPE.search(call.error) and call.function in _ELEMENTWISE | _PRODUCTS | {"linear"}:
        return dtypes.any_two(call)
    return _of_shape(call) if _OF_SHAPE.search(call.error) else None


def _of_shape(call: Call) -> Mismatch | None:
    if call.function == "linear":
        return products.linear(call)
    if call.function in _PRODUCTS:
        return products.product(call)
    if call.function in _ELEMENTWISE:
        return broadcasting.do_not_broadcast(call)
    return _quoted(call)


def _quoted(call: Call) -> Mismatch | None:
    """Name the operands whose shapes torch quotes; what clashes is not claimed, since nobody knows."""
    shapes = [broadcasting.numbers(text) for text in _QUOTED.findall(call.error)]
    named = [one for one in call.tensors if one.shape in shapes]
    if not named:
        return None
    said = call.error.strip().split("\n", 1)[0]
    return mismatch("argument", f"Torch says: {said}", *(whole(one, sizes(one.shape)) for one in named))
