"""What did not fit in a call that torch refused, worked out from its operands and from what torch said.

A message of torch names numbers; whose they are is found among the operands, and what is not found there is not
claimed. One table of what torch says, a subject a file; where none of its rows fits (a message of another version of
torch perhaps), the sizes, dtypes and devices of the operands are compared with the rule of the function itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from typing import Any

from tensormagic.diagnoses.mismatches.call import Call, Given, Shape, mismatch, numbers, shaped, sizes, whole
from tensormagic.diagnoses.mismatches.call import size as size_of
from tensormagic.diagnoses.mismatches.table import Row
from tensormagic.reports import Clashing, FailureReport, Finding, Mismatch, Operand, RelatedLine
from tensormagic.reports.base import Scalar
from tensormagic.reports.failure import MismatchKind

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
    return str(given) if given.operand.is_tensor else given.name


def _part(given: Given, got: int, at: int) -> Clashing:
    places = [place for place, size in enumerate(given.shape) if size == got]
    return size_of(given, places[0]) if len(places) == 1 else whole(given, f"{got} in dimension {at}")


# TM101, TM702, TM801, TM802, TM804, TM807: calls that torch refused because what they were given does not go together.
#
# Each rule reports one kind of what did not fit. An argument that is wrong, or an index that the code gives as a
# number, has no code: the explanation of the error says the rule all the same.


def impossible_view(report: FailureReport) -> Iterator[Finding]:
    """TM101: the new shape merges dimensions that lie apart in memory."""
    yield from _described(report, "TM101", "view")


def generator_elsewhere(report: FailureReport) -> Iterator[Finding]:
    """TM702: a generator cannot draw numbers on another device than its own."""
    if _is_about_a_generator(report):
        yield from _described(report, "TM702", "device")


def operands_elsewhere(report: FailureReport) -> Iterator[Finding]:
    """TM801: the operands are on different devices."""
    if not _is_about_a_generator(report):
        yield from _described(report, "TM801", "device")


def dtypes_apart(report: FailureReport) -> Iterator[Finding]:
    """TM802: the operands have dtypes that do not go together, or one has a dtype that the call does not take."""
    yield from _described(report, "TM802", "dtype")


def shapes_apart(report: FailureReport) -> Iterator[Finding]:
    """TM804: the shapes do not go together."""
    yield from _described(report, "TM804", "shape")


_OF_VALUES = re.compile(r"Target -?\d+ is out of bounds|^index out of range in self|Class values must be")


def values_outside(report: FailureReport) -> Iterator[Finding]:
    """TM807: a tensor of classes or indices holds one that is not there; on a GPU that ends the process's use of it."""
    if _OF_VALUES.search(report.error):
        for found in _described(report, "TM807", "index"):
            yield replace(found, remedy=_about_values(report) or found.remedy)


def _about_values(report: FailureReport) -> str:
    """Return what to do about classes, or about indices into a table of embeddings."""
    clash = report.mismatch
    given = report.operands[clash.parts[0].operand] if clash is not None and clash.parts else None
    if clash is None or given is None or given.most is None:
        return ""
    name, most = given.name or "it", int(given.most)
    if "index out of range in self" in report.error:
        span = f"{name} holds {int(given.least or 0)} to {most}"
        return f"`nn.Embedding({most + 1}, …)` has a row for each: {span}." if " rows;" in clash.rule else f"{span}."
    if most == IGNORED:
        return f"If {most} marks what has no class, say so: `ignore_index={most}`."
    ways = _ways(clash)
    return f"{ways}; {name} holds {int(given.least or 0)} to {most}." if ways else ""


IGNORED = 255  # marks a border in masks, as a habit


def _is_about_a_generator(report: FailureReport) -> bool:
    return "generator" in report.error.lower()


def _described(report: FailureReport, code: str, kind: MismatchKind) -> Iterator[Finding]:
    """Yield the finding of a mismatch of one kind; what a backward ran into is not the user's call."""
    clash = report.mismatch
    if clash is None or clash.kind != kind or report.phase == "backward" or not clash.parts:
        return
    operands = [report.operands[part.operand] for part in clash.parts]
    yield Finding(
        code=code,
        severity="error",
        message=clash.rule,
        location=report.location,
        evidence=_evidence(report, clash),
        remedy=_ways(clash) or (_without_a_way(clash, operands) if kind == "shape" else ""),
        subject=next((operand.name for operand in operands if operand.name), ""),
        related=tuple(_origins(report, operands)),
    )


def _evidence(report: FailureReport, clash: Mismatch) -> dict[str, Scalar]:
    evidence: dict[str, Scalar] = {"call": report.function} if report.function else {}
    for part in clash.parts[:8]:
        evidence[_part_name(report.operands[part.operand], part)] = part.got or None
    return evidence


def _part_name(operand: Operand, part: Clashing) -> str:
    name = operand.name or operand.role or f"operand {part.operand + 1}"
    return name if part.dimension is None else f"{name}, dimension {part.dimension}"


def _ways(clash: Mismatch) -> str:
    """Return what would have worked, as code: the first two ways; else what may help and could not be tried."""
    ways = " or ".join(f"`{way}`" for way in clash.works[:2] or clash.maybe[:2])
    return ways if clash.works or not ways else f"try {ways}"


def _without_a_way(clash: Mismatch, operands: list[Operand]) -> str:
    """Return what is to be done where no code is known that would work: sizes come from where a tensor is made."""
    given = [operand.name or operand.role for operand in operands if operand.role not in {"weight", "bias"}]
    names = list(dict.fromkeys(name.removeprefix("the result of ") for name in given if name))
    if all(part.dimension is None for part in clash.parts) and len({len(each.shape) for each in operands}) > 1:
        return "`unsqueeze` adds a dimension of size 1, and `squeeze` removes one."
    if len(names) < 2:
        return f"Look at where {names[0] if names else 'it'} is made: its sizes come from there."
    return f"Change {names[1]} so that its sizes match {names[0]}, or slice the larger one."


def _origins(report: FailureReport, operands: list[Operand]) -> Iterator[RelatedLine]:
    """Yield the lines on which the clashing operands were made, where they are others than the failing one."""
    described = {(report.location.filename, report.location.line)} if report.location is not None else set()
    for operand in operands:
        place = operand.location
        if place is not None and (place.filename, place.line) not in described:
            described.add((place.filename, place.line))
            yield RelatedLine(f"made {operand.name or operand.role or 'an operand'}", place)
