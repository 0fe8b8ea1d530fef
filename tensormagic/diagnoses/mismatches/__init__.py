"""What did not fit in a call that torch refused, worked out from its operands and from what torch said.

A message of torch names numbers; whose they are is found among the operands, and what is not found there is not
claimed. One table of what torch says, a subject a file; where none of its rows fits (a message of another version of
torch perhaps), the sizes, dtypes and devices of the operands are held against the rule of the function itself.
"""

from __future__ import annotations

import re

from tensormagic.diagnoses.mismatches import arguments, dimensions, dtypes, indices, layers, losses, products, shapes
from tensormagic.diagnoses.mismatches.call import Call, Row, mismatch, numbers, shaped
from tensormagic.reports import FailureReport, Mismatch

# In this order, as far as two rows fit one message: those that ask for a certain function stand first.
TABLE: tuple[Row, ...] = tuple(
    row
    for subject in (layers, dtypes, losses, products, shapes, indices, dimensions, arguments)
    for row in subject.says.rows
)
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
    """Return what did not fit in a failed call; None where that is not what was wrong, or cannot be told.

    Args:
        report: The failed call; its own ``mismatch`` is not looked at.
    """
    call = Call(report)
    explained = (row.mismatch(call) for row in TABLE)
    return next((found for found in explained if found is not None), None) or _by_function(call)


def _by_function(call: Call) -> Mismatch | None:
    """Return what the operands themselves break of the function's rule, if the message is about such a thing at all."""
    found = dtypes.devices(call) if _OF_DEVICE.search(call.error) else None
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
        return shapes.do_not_broadcast(call)
    # What clashes among the operands whose shapes torch quotes is not claimed, since nobody knows.
    quoted = [numbers(text) for text in _QUOTED.findall(call.error)]
    named = [one for one in call.tensors if one.shape in quoted]
    message = call.error.strip().split("\n", 1)[0]
    return mismatch("argument", f"Torch says: {message}", *map(shaped, named)) if named else None
