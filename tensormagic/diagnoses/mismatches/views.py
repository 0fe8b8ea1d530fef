"""Views and new shapes: how many elements there are, and which dimensions lie apart in memory."""

from __future__ import annotations

import re
from math import prod

from tensormagic.diagnoses.mismatches.broadcasting import numbers
from tensormagic.diagnoses.mismatches.call import Call, Given, mismatch, size, sizes, tuple_text, whole
from tensormagic.reports import Clashing, Mismatch
from tensormagic.reports.view_geometry import resolved, why_not
from tensormagic.words import count

Shape = tuple[int, ...]


def _wanted(call: Call) -> Shape:
    """Return the shape that was asked for, from the arguments after the tensor."""
    other = call.tensor("other", 1)
    if call.function in {"view_as", "reshape_as"} and other is not None:
        return other.shape
    after = [one.operand.text for one in call.given if not one.operand.is_tensor and one.operand.role != "dtype"]
    return numbers(" ".join(text.replace("torch.Size", "") for text in after))


def cannot_view(call: Call, _: re.Match[str]) -> Mismatch | None:
    """View size is not compatible with input tensor's size and stride."""
    given, wanted = call.tensor("input|self", 0), _wanted(call)
    if given is None or not wanted or not given.operand.stride:
        return None
    wanted = resolved(given.shape, wanted)
    failure = why_not(given.shape, given.operand.stride, wanted)
    if failure is None or failure.barrier is None or failure.dim is None:
        return None
    barrier = failure.barrier
    rule = (
        f"The view of {given.sized} as {sizes(wanted)} would merge dimensions {barrier.outer} and {barrier.inner}, "
        f"which do not lie one after the other in memory: the stride of dimension {barrier.outer} is {barrier.stride}, "
        f"not {barrier.inner_size} × {barrier.inner_stride} = {barrier.needed}."
    )
    text = tuple_text(_as_written(call) or wanted)
    works = _in_memory_order(given, wanted, text)
    works = works or [f"{given.code}.reshape({text})", f"{given.code}.contiguous().view({text})"]
    parts = (
        stride_of(given, barrier.outer, barrier.stride, barrier.needed),
        stride_of(given, barrier.inner, barrier.inner_stride),
    )
    return mismatch("view", rule, *parts, works=works)


def _in_memory_order(given: Given, wanted: Shape, text: str) -> list[str]:
    """Return the view of the dimensions put back as they lie in memory, where the wanted shape merges those.

    A reshape would run too, but put elements together that do not belong together (the heads of an attention): it is
    not said to work.
    """
    stride = given.operand.stride
    order = sorted(range(given.ndim), key=lambda dim: -stride[dim])
    shape = tuple(given.shape[dim] for dim in order)
    if _merges(given.shape, wanted) or not _merges(shape, wanted):
        return []
    moved = [dim for dim in range(given.ndim) if order[dim] != dim]
    swap = f"transpose({moved[0]}, {moved[1]})" if len(moved) == 2 else f"permute({tuple_text(tuple(order))})"
    again = tuple(stride[dim] for dim in order)
    kept = "" if why_not(shape, again, wanted) is None else ".contiguous()"
    return [f"{given.code}.{swap}{kept}.view({text})"]


def _merges(shape: Shape, wanted: Shape) -> bool:
    """Whether each wanted size is the product of neighbouring ones."""
    left = [each for each in shape if each != 1]
    for each in (each for each in wanted if each != 1):
        product = 1
        while product < each and left:
            product *= left.pop(0)
        if product != each:
            return False
    return not left


def stride_of(given: Given, dimension: int, got: int, needed: object = "") -> Clashing:
    """Return a part of a mismatch that is about the stride of a dimension."""
    expected = f"a stride of {needed}" if needed else ""
    return Clashing(given.index, dimension % given.ndim, f"stride {got}", expected)


def _as_written(call: Call) -> Shape:
    return () if call.function.endswith("_as") else _wanted(call)


def wrong_number(call: Call, found: re.Match[str]) -> Mismatch | None:
    """Shape '[5, 5]' is invalid for input of size 24."""
    wanted, elements = numbers(found[1]), int(found[2])
    given = next((one for one in call.tensors if prod(one.shape) == elements), None)
    if given is None:
        return None
    fixed = prod(each for each in wanted if each != -1)
    if -1 in wanted:
        rule = (
            f"A reshape keeps all elements: the {count(elements)} of {given.sized} cannot be divided by the "
            f"{count(fixed)} that the other sizes of ({tuple_text(wanted)}) take."
        )
    else:
        rule = (
            f"A reshape keeps all elements: {given.sized} has {count(elements)}, and ({tuple_text(wanted)}) asks for "
            f"{count(fixed)}."
        )
    expected = f"a multiple of {fixed} elements" if -1 in wanted else f"{fixed} elements"
    return mismatch("shape", rule, whole(given, f"{elements} elements", expected), works=_reshapes(given, wanted))


def _reshapes(given: Given, wanted: Shape) -> list[str]:
    """Return shapes near the wanted one that have as many elements as there are."""
    ways, code, shape = [], given.code, given.shape
    if len(wanted) == 2 and len(shape) > 2 and shape[0]:
        ways.append(f"{code}.flatten(1)")
    for at in range(len(wanted)):
        rest = prod(each for place, each in enumerate(wanted) if place != at and each != -1)
        if -1 not in wanted and rest and prod(shape) % rest == 0:
            sized = [*wanted[:at], -1, *wanted[at + 1 :]]
            ways.append(f"{code}.reshape({tuple_text(tuple(sized))})")
    if len(wanted) == 2 and wanted[0] == -1 and len(shape) == 2:
        ways.append(f"{code}.reshape(-1, {shape[1]})")
    return ways[:2]


def one_inferred(call: Call, _: re.Match[str]) -> Mismatch | None:
    """Only one dimension can be inferred."""
    given = call.tensor("input|self", 0)
    if given is None:
        return None
    rule = "The size of one dimension only can be left to torch (-1); the others follow from no rule."
    return mismatch("argument", rule, whole(given, sizes(given.shape)))


def ambiguous(call: Call, _: re.Match[str]) -> Mismatch | None:
    """Cannot reshape tensor of 0 elements: any size would do for the -1."""
    given = call.tensor("input|self", 0)
    if given is None:
        return None
    rule = f"A size of -1 has no meaning where there are no elements: {given.sized} has none."
    return mismatch("shape", rule, whole(given, "0 elements"))


def unflatten(call: Call, found: re.Match[str]) -> Mismatch | None:
    """unflatten: Provided sizes [2, 3] don't multiply up to the size of dim 1 (5) in the input tensor."""
    given, wanted = call.tensor("input|self", 0), numbers(found[1])
    if given is None:
        return None
    at = int(found[2])
    count = prod(wanted)
    rule = (
        f"The new sizes must multiply to that of dimension {at} of {given.sized}: {sizes(wanted)} is {count}, not "
        f"{found[3]}."
    )
    return mismatch("shape", rule, size(given, at, abs(count)))


def dtype_view(call: Call, found: re.Match[str]) -> Mismatch | None:
    """self.stride(-1) must be 1 to view Float as Short."""
    given = call.tensor("input|self", 0)
    if given is None or not given.ndim:
        return None
    rule = (
        f"A view as a dtype of another size needs elements that lie side by side: the stride of the last dimension of "
        f"{given.sized} is {found[1]}, not 1."
    )
    part = stride_of(given, -1, int(found[1]), 1)
    text = call.value("dtype", 1) or "dtype"
    return mismatch("view", rule, part, works=[f"{given.code}.contiguous().view({text})"])


MESSAGES = (
    (r"view size is not compatible with input tensor's size and stride", cannot_view),
    (r"shape '\[(.*?)\]' is invalid for input of size (\d+)", wrong_number),
    (r"only one dimension can be inferred", one_inferred),
    (r"cannot reshape tensor of 0 elements", ambiguous),
    (r"Provided sizes \[(.*?)\] don't multiply up to the size of dim (\d+) \((\d+)\)", unflatten),
    (r"stride\(-1\) must be 1 to view \w+ as \w+ .*but got (\d+)", dtype_view),
)
