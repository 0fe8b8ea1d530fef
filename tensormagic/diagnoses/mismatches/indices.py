"""What indexes a tensor must fit it: indices and dimensions that are not there, shapes of indices, masks and values."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated

from tensormagic.diagnoses.mismatches.call import (
    Call,
    Dim,
    First,
    Given,
    Messages,
    Shape,
    against,
    dims,
    mismatch,
    needed,
    numbers,
    operand,
    shaped,
    size,
    sizes,
    whole,
)
from tensormagic.diagnoses.mismatches.shapes import clashing
from tensormagic.reports import Mismatch
from tensormagic.words import listed, plural

says = Messages()
Index = Annotated[Given, operand("index", 2)]
Source = Annotated[Given, operand("source", 3)]


# -- shapes of indices, of masks, and of the values that are written ------------------------------------------------


@says(
    r"The shape of the mask \[(.*?)\] at index (\d+) does not match the shape of the indexed tensor \[.*?\] at index "
    r"(\d+)"
)
def _mask_shape(call: Call, given: First, shape: Shape, at: int, other: int) -> Mismatch:
    mask = call.first(lambda one: one.shape == shape and one.dtype in {"bool", "uint8"})
    first = other - at
    expected = given.shape[first : first + mask.ndim]
    rule = (
        f"A mask has the sizes of the dimensions it selects from: {mask.sized} against {sizes(expected)} of "
        f"{given.sized}."
    )
    works = [f"{given.code}[:, {mask.code}]"] if mask.ndim == 1 and given.shape[1:2] == mask.shape else []
    works += [f"{given.code}[{mask.code}.T]"] if mask.ndim == 2 and mask.shape[::-1] == expected else []
    return mismatch("shape", rule, *against(mask, at, given, other), works=works)


@says(r"indexing tensors could not be broadcast together with shapes (.*)")
def _indices_broadcast(call: Call, given: str) -> Mismatch | None:
    shapes = [numbers(text) for text in re.findall(r"\[(.*?)\]", given)]
    wrong = [one for one in call.tensors[1:] if one.shape in shapes]
    if len(wrong) < 2:
        return None
    left, right = wrong[0], next((one for one in wrong[1:] if clashing(one.shape, wrong[0].shape)), wrong[1])
    parts = [part for at in clashing(left.shape, right.shape) for part in against(left, at, right)]
    rule = f"Tensors that index together must broadcast: {left.sized} and {right.sized} do not."
    works = [f"{call.tensors[0].code}[{left.code}][:, {right.code}]"] if left.ndim == right.ndim == 1 else []
    return mismatch("shape", rule, *parts, works=works)


@says(r"value tensor of shape \[(.*?)\] cannot be broadcast to indexing result of shape \[(.*?)\]")
def _value_shape(call: Call, shape: Shape, target: Shape) -> Mismatch:
    value = call.every(lambda one: one.shape == shape)[-1]
    rule = f"The value must broadcast to its target: {value.sized} does not broadcast to the selected {sizes(target)}."
    parts = [size(value, at, target[at]) for at in clashing(value.shape, target)]
    return mismatch("shape", rule, *(parts or [shaped(value, sizes(target))]))


@says(r"Index tensor must have the same number of dimensions as (\w+)")
def _index_dimensions(call: Call, index: Index, like: str) -> Mismatch:
    other = needed(call.tensor("src", 3) if like == "src" else call.tensor("input|self", 0))
    rule = (
        f"The index must have as many dimensions as the tensor it indexes: {index.sized} has {index.ndim}, "
        f"{other.sized} has "
        f"{other.ndim}."
    )
    works = [f"{index.code}.unsqueeze(1)"] if index.ndim + 1 == other.ndim and index.shape[0] == other.shape[0] else []
    return mismatch("shape", rule, dims(index, other.ndim), dims(other, index.ndim), works=works)


@says(r"index \[.*?\] to be no larger than self \[.*?\] apart from dimension (\d+)")
def _index_larger(given: First, index: Index, source: Annotated[Given, operand("src", 3)] | None, dim: int) -> Mismatch:
    wrong = list(_larger(index, given, dim, source))
    parts = [part for at, other in wrong for part in (size(index, at, f"at most {other.shape[at]}"), size(other, at))]
    others = listed([other.sized for other in dict.fromkeys(other for _, other in wrong)]) or given.sized
    rule = (
        f"The index must not be larger than the tensor it reads: {index.sized} against {others}, in every dimension "
        f"but {dim} "
        "of the input."
    )
    return mismatch("shape", rule, *parts)


def _larger(index: Given, given: Given, dim: int, source: Given | None) -> Iterator[tuple[int, Given]]:
    for at in range(index.ndim):
        if at < given.ndim and at != dim and index.shape[at] > given.shape[at]:
            yield at, given
        if source is not None and at < source.ndim and index.shape[at] > source.shape[at]:
            yield at, source


@says(r"Index is supposed to be a vector")
def _index_vector(call: Call, index: Index) -> Mismatch:
    rule = f"The index of {call.title} has one dimension, and {index.sized} has {index.ndim}."
    return mismatch("shape", rule, dims(index, 1), works=[f"{index.code}.flatten()"])


@says(r"Number of indices \((\d+)\) should be equal to source\.size\(dim\): \((\d+)\), for dim: (\d+)")
def _as_many_as_source(index: Index, source: Source, got: str, wanted: str, dim: int) -> Mismatch:
    rule = (
        f"There must be one index for each slice of the source: {index.sized} against dimension {dim} of "
        f"{source.sized}."
    )
    return mismatch("shape", rule, whole(index, got, wanted), size(source, dim, got))


@says(r"Source/destination tensor must have same slice shapes|source tensor shape must match self tensor shape")
def _slices_differ(given: First, source: Source, dim: Dim) -> Mismatch:
    dim %= max(given.ndim, 1)
    parts = [dims(source, given.ndim), dims(given, source.ndim)]
    if given.ndim == source.ndim:
        parts = [
            size(source, at, given.shape[at])
            for at in range(given.ndim)
            if at != dim and source.shape[at] != given.shape[at]
        ]
    rule = f"The source has the sizes of the tensor in every dimension but {dim}: {source.sized} against {given.sized}."
    return mismatch("shape", rule, *parts)


@says(r"repeats\.size\(0\) = (\d+) and input\.size\(-?\d+\) = (\d+)")
def _repeats(given: First, counts: Annotated[Given, operand("repeats", 1)], got: str, wanted: str) -> Mismatch | None:
    rule = (
        f"There must be one number of repeats for each element, or one for all: {counts.sized} against {given.sized}."
    )
    return mismatch("shape", rule, whole(counts, got, wanted)) if given.ndim else None


# -- dimensions that are not there ---------------------------------------------------------------------------------


@says(r"Dimension out of range \(expected to be in range of \[(-?\d+), (-?\d+)\], but got (-?\d+)\)")
def _dimension_out_of_range(call: Call, lowest: int, highest: int, got: int) -> Mismatch:
    given = needed(_of_dimensions(call, highest + 1))
    count = plural(given.ndim, "dimension")
    extra = " (and one more to put it into)" if highest + 1 > max(given.ndim, 1) else ""
    rule = f"The dimensions of {given.sized} are {lowest} to {highest}{extra}: it has {count}, but {got} was requested."
    asking = (one for one in call.given if not one.operand.is_tensor and got in numbers(one.operand.text))
    parts = [whole(one, one.operand.text, f"{lowest} to {highest}") for one in asking][:1]
    works = [f"{given.code}.unsqueeze(0)"] if given.ndim and _dimensions_for(got) == given.ndim + 1 else []
    return mismatch("index", rule, dims(given, _dimensions_for(got)), *parts, works=works)


def _of_dimensions(call: Call, count: int) -> Given | None:
    """Return the tensor that has so many dimensions, or one less where the call adds one; a number counts as one."""
    for wanted in (count, count - 1):
        found = [one for one in call.tensors if wanted in {one.ndim, max(one.ndim, 1)}]
        if found:
            return found[0]
    return None


def _dimensions_for(got: int) -> int:
    return got + 1 if got >= 0 else -got


@says(r"Dimension specified as (-?\d+) but tensor has no dimensions")
def _no_dimensions(call: Call, got: str) -> Mismatch:
    given = call.first(lambda one: not one.ndim)
    rule = f"The dimension {got} was requested, but {given.name} is a single number, which has no dimensions."
    return mismatch("index", rule, dims(given, 1), works=[f"{given.code}.unsqueeze(0)"])


@says(r"permute\(.*number of dimensions in the tensor input does not match")
def _order(call: Call, given: First) -> Mismatch:
    texts = [one.operand.text for one in call.given if not one.operand.is_tensor]
    asked = len(numbers(" ".join(texts)))
    rule = f"The new order names each dimension once: {given.sized} has {given.ndim}, and {asked} are named."
    return mismatch("shape", rule, dims(given, asked))


@says(
    r"duplicate dims are not allowed|appears multiple times in the list of dims"
    r"|diagonal dimensions cannot be identical"
)
def _repeated_dimension(given: First) -> Mismatch:
    return mismatch("argument", f"The dimensions of {given.sized} can be named once each.", whole(given))


# -- indices outside of their dimension ----------------------------------------------------------------------------


@says(r"index (-?\d+) is out of bounds for dimension (\d+) with size (\d+)")
def _out_of_bounds(call: Call, got: int, dim: int, count: int) -> Mismatch | None:
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
    wholes = (one for one in call.tensors if one is not given and one.dtype in {"int64", "int32", "uint8"})
    index = call.tensor("index|indices") or next(wholes, None)
    parts = [whole(index, got, f"0 to {count - 1}")] if index is not None else []
    return mismatch("index", rule, size(given, dim, f"more than {got}" if got >= 0 else f"at least {-got}"), *parts)


@says(r"index (-?\d+) out of range for tensor of size \[(.*?)\] at dimension (\d+)")
def _select_out_of_range(call: Call, first: First | None, got: int, shape: Shape, dim: int) -> Mismatch | None:
    given = call.of_shape(shape) or first
    return _outside(call, given, dim, got) if given is not None and dim < given.ndim else None


@says(r"Expected dim < .*self_sizes\.size")  # narrow_copy, which says it in the words of its source
def _narrow_copy(given: First, dim: Dim) -> Mismatch:
    rule = f"The dimensions of {given.sized} are 0 to {given.ndim - 1}, but {dim} was requested."
    return mismatch("index", rule, dims(given, _dimensions_for(dim)))


@says(r"too many indices for tensor of dimension")
def _too_many_indices(given: First) -> Mismatch:
    rule = f"There can be one index for each dimension, and {given.sized} has {given.ndim}."
    return mismatch("index", rule, dims(given, given.ndim + 1))


@says(r"invalid index of a 0-dim tensor")
def _index_of_number(call: Call) -> Mismatch:
    given = call.first(lambda one: not one.ndim)
    rule = f"A single number has no index: {given.name} is 0-dimensional."
    return mismatch("index", rule, dims(given, 1), works=[f"{given.code}.item()"])


@says(r"^index out of range in self")
def _outside_of_table(call: Call, first: First | None, dim: Dim | None) -> Mismatch | None:
    embedding = call.function in {"embedding", "embedding_bag"}
    if embedding:
        index, table, dim = call.tensor("input", 0), call.tensor("weight", 1), 0
        table = table if table is not None and table.ndim == 2 else call.first(lambda one: one.ndim == 2)
    else:
        index, table = call.tensor("index", 2), first
    if index is None or table is None or dim is None:
        return None
    dim %= max(table.ndim, 1)
    count = table.shape[dim]
    which = f"{call.owner or table.sized} has {count} rows; one of them does not."
    if not embedding:
        which = f"dimension {dim} of {table.sized} has {count}; one does not."
    rule = f"Every index in {index.name} must be between 0 and {count - 1}, because {which}"
    works = [f"{index.code}.max()  # at most {count - 1}", f"{index.code}.min()  # at least 0"]
    return mismatch("index", rule, whole(index, "", f"0 to {count - 1}"), size(table, dim), works=works)


@says(r"tried to access index (-?\d+) on a tensor of (\d+) elements")
def _take(given: First, index: Annotated[Given, operand("index", 1)] | None, got: str, count: int) -> Mismatch:
    rule = f"An index into {given.sized}, read as one row, is 0 to {count - 1}; {got} is not one of them."
    parts = [whole(index, got, f"0 to {count - 1}")] if index is not None else []
    return mismatch("index", rule, *parts, whole(given, f"{count} elements"))


@says(r"start \((-?\d+)\) \+ length \((\d+)\) exceeds dimension size")
def _start_and_length(given: First, dim: Dim, start: int, length: int) -> Mismatch:
    end = start + length
    rule = f"A slice must be inside its dimension: {start} to {end} of dimension {dim % given.ndim} of {given.sized}."
    return mismatch("index", rule, size(given, dim, f"at least {end}"))


@says(r"start out of range \(expected to be in range of \[(-?\d+), (-?\d+)\], but got (-?\d+)\)")
def _start_out_of_range(given: First, dim: Dim, lowest: str, highest: str, got: str) -> Mismatch:
    where = f"dimension {dim % given.ndim} of {given.sized}"
    return mismatch("index", f"A slice of {where} starts at {lowest} to {highest}, not at {got}.", size(given, dim))


@says(r"maximum size for tensor at dimension (\d+) is (\d+) but size is (\d+)")
def _window_too_long(given: First, dim: int, most: str, got: str) -> Mismatch:
    rule = f"A window along dimension {dim} of {given.sized} is at most {most} long, not {got}."
    return mismatch("shape", rule, size(given, dim, got))


@says(r"selected number k out of range for dimension (\d+)", r"selected index k out of range")
def _too_few_to_select(call: Call, found: re.Match[str], given: First) -> Mismatch:
    dim = found[1] if found.re.groups else call.value("dim", 2)
    at = int(dim) % max(given.ndim, 1) if dim.lstrip("-").isdigit() else max(given.ndim - 1, 0)
    k = call.value("k", 1)
    rule = f"There are not {k or 'as many'} elements to choose from in dimension {at} of {given.sized}."
    return mismatch("index", rule, size(given, at, f"at least {k}") if given.ndim else whole(given))


@says(r"split_sizes to sum exactly to (\d+) \(input tensor's size at dimension (\d+)\), but got split_sizes=\[(.*?)\]")
def _split_sizes(
    given: Annotated[Given, operand("input|self|tensor", 0)], total: str, dim: int, parts: Shape
) -> Mismatch:
    rule = (
        f"The parts must add up to dimension {dim} of {given.sized}, {total}: {' + '.join(map(str, parts))} is "
        f"{sum(parts)}."
    )
    return mismatch("shape", rule, size(given, dim, sum(parts)))
