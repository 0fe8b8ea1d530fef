"""Indices: outside of their dimension, of a wrong dtype or shape; and dimensions that are not there."""

from __future__ import annotations

import re

from tensormagic.diagnoses.mismatches.broadcasting import numbers
from tensormagic.diagnoses.mismatches.call import Call, Given, mismatch, size, whole
from tensormagic.reports import Mismatch
from tensormagic.words import plural

_ADDS_ONE = frozenset({"unsqueeze", "diag_embed", "stack"})


# -- dimensions that are not there ---------------------------------------------------------------------------------


def dimension_out_of_range(call: Call, found: re.Match[str]) -> Mismatch | None:
    """Dimension out of range (expected to be in range of [-2, 1], but got 2)."""
    lowest, highest, got = int(found[1]), int(found[2]), int(found[3])
    given = _of_dimensions(call, highest + 1)
    if given is None:
        return None
    count = plural(given.ndim, "dimension")
    extra = " (and one more to put it into)" if highest + 1 > max(given.ndim, 1) else ""
    rule = f"The dimensions of {given.sized} are {lowest} to {highest}{extra}: it has {count}, and {got} was asked for."
    parts = [whole(given, f"{given.ndim}-D", f"{_needed(got)}-D")]
    parts += [whole(one, one.operand.text, f"{lowest} to {highest}") for one in call.given if _says(one, got)][:1]
    return mismatch("index", rule, *parts, works=_dimension_ways(given, got))


def _of_dimensions(call: Call, count: int) -> Given | None:
    """Return the tensor that has so many dimensions, or one less where the call adds one; a number counts as one."""
    for wanted in (count, count - 1):
        found = [one for one in call.tensors if max(one.ndim, 1) == wanted or one.ndim == wanted]
        if found:
            return found[0]
    return None


def _needed(got: int) -> int:
    return got + 1 if got >= 0 else -got


def _says(one: Given, number: int) -> bool:
    return not one.operand.is_tensor and str(number) in re.findall(r"-?\d+", one.operand.text)


def _dimension_ways(given: Given, got: int) -> list[str]:
    return [f"{given.code}.unsqueeze(0)"] if given.ndim and _needed(got) == given.ndim + 1 else []


def no_dimensions(call: Call, found: re.Match[str]) -> Mismatch | None:
    """Dimension specified as 0 but tensor has no dimensions."""
    given = next((one for one in call.tensors if not one.ndim), None)
    if given is None:
        return None
    rule = f"The dimension {found[1]} was asked for, and {given.name} is a single number, which has no dimensions."
    return mismatch("index", rule, whole(given, "0-D", "1-D"), works=[f"{given.code}.unsqueeze(0)"])


def ordering_of_one(call: Call, _: re.Match[str]) -> Mismatch | None:
    """narrow_copy, which says it in the words of its source."""
    given, text = call.tensor("input|self", 0), call.value("dim", 1)
    if given is None or not text.lstrip("-").isdigit():
        return None
    rule = f"The dimensions of {given.sized} are 0 to {given.ndim - 1}, and {text} was asked for."
    return mismatch("index", rule, whole(given, f"{given.ndim}-D", f"{_needed(int(text))}-D"))


def ordering(call: Call, _: re.Match[str]) -> Mismatch | None:
    """permute: as many dimensions as the tensor has, each once."""
    given = call.tensor("input|self", 0)
    if given is None:
        return None
    texts = [one.operand.text for one in call.given if not one.operand.is_tensor]
    asked = len(numbers(" ".join(texts)))
    rule = f"The new order names each dimension once: {given.sized} has {given.ndim}, and {asked} are named."
    return mismatch("shape", rule, whole(given, f"{given.ndim}-D", f"{asked}-D"))


def repeated_dimension(call: Call, _: re.Match[str]) -> Mismatch | None:
    """A dimension named twice."""
    given = call.tensor("input|self", 0)
    if given is None:
        return None
    return mismatch("argument", f"The dimensions of {given.sized} can be named once each.", whole(given))


# -- indices outside of their dimension ----------------------------------------------------------------------------


def out_of_bounds(call: Call, found: re.Match[str]) -> Mismatch | None:
    """Index 5 is out of bounds for dimension 0 with size 3."""
    got, dim, count = int(found[1]), int(found[2]), int(found[3])
    given = next((one for one in call.tensors if dim < one.ndim and one.shape[dim] == count), None)
    if given is None:  # of an index by several, torch numbers the dimensions as it has put them
        places = [(one, at) for one in call.tensors for at, length in enumerate(one.shape) if length == count]
        return _outside(call, *places[0], got) if len(places) == 1 else None
    return _outside(call, given, dim, got)


def _outside(call: Call, given: Given, dim: int, got: int) -> Mismatch:
    count = given.shape[dim]
    rule = (
        f"Dimension {dim} of {given.sized} has the indices 0 to {count - 1}, or {-count} to -1; {got} is not one of "
        "them."
    )
    index = _index(call, given)
    parts = [size(given, dim, f"more than {got}" if got >= 0 else f"at least {-got}")]
    parts += [whole(index, got, f"0 to {count - 1}")] if index is not None else []
    return mismatch("index", rule, *parts)


def _index(call: Call, given: Given) -> Given | None:
    named = call.tensor("index|indices")
    found = [one for one in call.tensors if one is not given and one.dtype in {"int64", "int32", "uint8"}]
    return named or (found[0] if found else None)


def select_out_of_range(call: Call, found: re.Match[str]) -> Mismatch | None:
    """select(): index 4 out of range for tensor of size [3, 4] at dimension 1."""
    given = call.of_shape(numbers(found[2])) or call.tensor("input|self", 0)
    dim = int(found[3])
    return _outside(call, given, dim, int(found[1])) if given is not None and dim < given.ndim else None


def too_many(call: Call, _: re.Match[str]) -> Mismatch | None:
    """Too many indices for tensor of dimension 2."""
    given = call.tensor("input|self", 0)
    if given is None:
        return None
    rule = f"There can be one index for each dimension, and {given.sized} has {given.ndim}."
    return mismatch("index", rule, whole(given, f"{given.ndim}-D", f"{given.ndim + 1}-D"))


def index_of_number(call: Call, _: re.Match[str]) -> Mismatch | None:
    """Invalid index of a 0-dim tensor."""
    given = next((one for one in call.tensors if not one.ndim), None)
    if given is None:
        return None
    rule = f"A single number has no index: {given.name} is 0-dimensional."
    return mismatch("index", rule, whole(given, "0-D", "1-D"), works=[f"{given.code}.item()"])


def outside_of_table(call: Call, _: re.Match[str]) -> Mismatch | None:
    """Index out of range in self: embedding and index_select."""
    if call.function in {"embedding", "embedding_bag"}:
        index, table = call.tensor("input", 0), call.tensor("weight", 1)
        table = table if table is not None and table.ndim == 2 else next((t for t in call.tensors if t.ndim == 2), None)
        return _lookup(call, index, table, 0) if index is not None and table is not None else None
    table = call.tensor("input|self", 0)
    index = call.tensor("index", 2)
    text = call.value("dim", 1)
    if table is None or index is None or not text.lstrip("-").isdigit():
        return None
    return _lookup(call, index, table, int(text) % max(table.ndim, 1))


def _lookup(call: Call, index: Given, table: Given, dim: int) -> Mismatch:
    count = table.shape[dim]
    owner = (call.owner or table.sized) if call.function.startswith("embedding") else table.sized
    rule = (
        f"Every index in {index.name} must lie in 0 to {count - 1}, since {owner} has {count} rows; one of them does "
        "not."
    )
    if not call.function.startswith("embedding"):
        rule = (
            f"Every index in {index.name} must lie in 0 to {count - 1}, since dimension {dim} of {owner} has {count}; "
            "one does not."
        )
    works = [f"{index.code}.max()  # at most {count - 1}", f"{index.code}.min()  # at least 0"]
    return mismatch("index", rule, whole(index, "", f"0 to {count - 1}"), size(table, dim), works=works)


def take_out_of_range(call: Call, found: re.Match[str]) -> Mismatch | None:
    """Out of range: tried to access index 5 on a tensor of 3 elements."""
    given, index = call.tensor("input|self", 0), call.tensor("index", 1)
    if given is None:
        return None
    rule = f"An index into {given.sized}, read as one row, is 0 to {int(found[2]) - 1}; {found[1]} is not one of them."
    parts = [whole(index, found[1], f"0 to {int(found[2]) - 1}")] if index is not None else []
    return mismatch("index", rule, *parts, whole(given, f"{found[2]} elements"))


def start_and_length(call: Call, found: re.Match[str]) -> Mismatch | None:
    """Start (2) + length (3) exceeds dimension size (4)."""
    given, dim = call.tensor("input|self", 0), call.value("dim", 1)
    if given is None or not dim.lstrip("-").isdigit() or not given.ndim:
        return None
    start, length = int(found[1]), int(found[2])
    rule = f"A part must lie inside: {start} to {start + length} of dimension {int(dim) % given.ndim} of {given.sized}."
    return mismatch("index", rule, size(given, int(dim), f"at least {start + length}"))


def start_out_of_range(call: Call, found: re.Match[str]) -> Mismatch | None:
    """Start out of range (expected to be in range of [-10, 10], but got 11)."""
    given, dim = call.tensor("input|self", 0), call.value("dim", 1)
    if given is None or not dim.lstrip("-").isdigit() or not given.ndim:
        return None
    rule = (
        f"A part of dimension {int(dim) % given.ndim} of {given.sized} starts at {found[1]} to {found[2]}, not at "
        f"{found[3]}."
    )
    return mismatch("index", rule, size(given, int(dim)))


def window_too_long(call: Call, found: re.Match[str]) -> Mismatch | None:
    """Maximum size for tensor at dimension 1 is 4 but size is 5."""
    given = call.tensor("input|self", 0)
    if given is None:
        return None
    rule = f"A window along dimension {found[1]} of {given.sized} is at most {found[2]} long, not {found[3]}."
    return mismatch("shape", rule, size(given, int(found[1]), found[3]))


def too_few_to_select(call: Call, found: re.Match[str]) -> Mismatch | None:
    """Selected index k out of range; kthvalue."""
    given = call.tensor("input|self", 0)
    if given is None:
        return None
    dim = found[1] if found.re.groups else call.value("dim", 2)
    at = int(dim) % max(given.ndim, 1) if dim.lstrip("-").isdigit() else max(given.ndim - 1, 0)
    k = call.value("k", 1)
    rule = f"There are not {k or 'as many'} elements to choose from in dimension {at} of {given.sized}."
    return mismatch("index", rule, size(given, at, f"at least {k}") if given.ndim else whole(given))


def split_sizes(call: Call, found: re.Match[str]) -> Mismatch | None:
    """split_with_sizes expects split_sizes to sum exactly to 4."""
    given = call.tensor("input|self|tensor", 0)
    if given is None:
        return None
    total, dim, parts = int(found[1]), int(found[2]), numbers(found[3])
    rule = (
        f"The parts must add up to dimension {dim} of {given.sized}, {total}: {' + '.join(map(str, parts))} is "
        f"{sum(parts)}."
    )
    return mismatch("shape", rule, size(given, dim, sum(parts)))


MESSAGES = (
    (r"Dimension out of range \(expected to be in range of \[(-?\d+), (-?\d+)\], but got (-?\d+)\)",
     dimension_out_of_range),
    (r"Dimension specified as (-?\d+) but tensor has no dimensions", no_dimensions),
    (r"permute\(.*number of dimensions in the tensor input does not match", ordering),
    ((r"duplicate dims are not allowed|appears multiple times in the list of dims|diagonal"
      r" dimensions cannot be identical"),
     repeated_dimension),
    (r"index (-?\d+) is out of bounds for dimension (\d+) with size (\d+)", out_of_bounds),
    (r"index (-?\d+) out of range for tensor of size \[(.*?)\] at dimension (\d+)", select_out_of_range),
    (r"Expected dim < .*self_sizes\.size", ordering_of_one),
    (r"too many indices for tensor of dimension", too_many),
    (r"invalid index of a 0-dim tensor", index_of_number),
    (r"^index out of range in self", outside_of_table),
    (r"tried to access index (-?\d+) on a tensor of (\d+) elements", take_out_of_range),
    (r"start \((-?\d+)\) \+ length \((\d+)\) exceeds dimension size", start_and_length),
    (r"start out of range \(expected to be in range of \[(-?\d+), (-?\d+)\], but got (-?\d+)\)", start_out_of_range),
    (r"maximum size for tensor at dimension (\d+) is (\d+) but size is (\d+)", window_too_long),
    (r"selected number k out of range for dimension (\d+)", too_few_to_select),
    (r"selected index k out of range", too_few_to_select),
    (r"split_sizes to sum exactly to (\d+) \(input tensor's size at dimension (\d+)\), but got split_sizes=\[(.*?)\]",
     split_sizes),
)  # fmt: skip
