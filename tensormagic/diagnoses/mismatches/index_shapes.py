"""What indexes a tensor must fit it: the shapes of indices, of masks, and of the values that are written."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tensormagic.diagnoses.mismatches.broadcasting import clashing, numbers
from tensormagic.diagnoses.mismatches.call import Call, Given, mismatch, size, sizes, whole
from tensormagic.reports import Mismatch
from tensormagic.words import listed


def mask_shape(call: Call, found: re.Match[str]) -> Mismatch | None:
    """The shape of the mask [4] at index 0 does not match the shape of the indexed tensor [3, 4] at index 0."""
    mask, given = _mask(call, numbers(found[1])), call.tensor("input|self", 0)
    at, other = int(found[2]), int(found[4])
    if mask is None or given is None:
        return None
    first = other - at
    expected = given.shape[first : first + mask.ndim]
    rule = (
        f"A mask has the sizes of the dimensions it selects from: {mask.sized} against {sizes(expected)} of "
        f"{given.sized}."
    )
    parts = size(mask, at, given.shape[other]), size(given, other, mask.shape[at])
    works = [f"{given.code}[:, {mask.code}]"] if mask.ndim == 1 and given.shape[1:2] == mask.shape else []
    works += [f"{given.code}[{mask.code}.T]"] if mask.ndim == 2 and mask.shape[::-1] == expected else []
    return mismatch("shape", rule, *parts, works=works)


def _mask(call: Call, shape: tuple[int, ...]) -> Given | None:
    found = [one for one in call.tensors if one.shape == shape and one.dtype in {"bool", "uint8"}]
    return found[0] if found else None


def indices_broadcast(call: Call, found: re.Match[str]) -> Mismatch | None:
    """Indexing tensors could not be broadcast together with shapes [2], [3]."""
    shapes = [numbers(text) for text in re.findall(r"\[(.*?)\]", found[1])]
    wrong = [one for one in call.tensors[1:] if one.shape in shapes]
    if len(wrong) < 2:
        return None
    left, right = wrong[0], next((one for one in wrong[1:] if clashing(one.shape, wrong[0].shape)), wrong[1])
    parts = [part for at in clashing(left.shape, right.shape)
             for part in (size(left, at, right.shape[at]), size(right, at, left.shape[at]))]  # fmt: skip
    rule = f"Tensors that index together must broadcast: {left.sized} and {right.sized} do not."
    works = [f"{call.tensors[0].code}[{left.code}][:, {right.code}]"] if left.ndim == right.ndim == 1 else []
    return mismatch("shape", rule, *parts, works=works)


def value_shape(call: Call, found: re.Match[str]) -> Mismatch | None:
    """Value tensor of shape [5] cannot be broadcast to indexing result of shape [12]."""
    value = next((one for one in call.tensors[::-1] if one.shape == numbers(found[1])), None)
    if value is None:
        return None
    target = numbers(found[2])
    rule = f"The value must fit what is written to: {value.sized} does not broadcast to the selected {sizes(target)}."
    parts = [size(value, at, target[at]) for at in clashing(value.shape, target)]
    return mismatch("shape", rule, *(parts or [whole(value, sizes(value.shape), sizes(target))]))


def index_dimensions(call: Call, found: re.Match[str]) -> Mismatch | None:
    """Index tensor must have the same number of dimensions as input tensor."""
    index = call.tensor("index", 2)
    other = call.tensor("src", 3) if found[1] == "src" else call.tensor("input|self", 0)
    if index is None or other is None:
        return None
    rule = (
        f"The index has as many dimensions as what it indexes: {index.sized} has {index.ndim}, {other.sized} has "
        f"{other.ndim}."
    )
    parts = whole(index, f"{index.ndim}-D", f"{other.ndim}-D"), whole(other, f"{other.ndim}-D", f"{index.ndim}-D")
    works = [f"{index.code}.unsqueeze(1)"] if index.ndim + 1 == other.ndim and index.shape[0] == other.shape[0] else []
    return mismatch("shape", rule, *parts, works=works)


def index_larger(call: Call, found: re.Match[str]) -> Mismatch | None:
    """Expected index [4, 2] to be no larger than self [3, 4] apart from dimension 1 (and than src)."""
    index, dim = call.tensor("index", 2), int(found[1])
    given, source = call.tensor("input|self", 0), call.tensor("src", 3)
    if index is None or given is None:
        return None
    wrong = list(_larger(index, given, dim, source))
    parts = [part for at, other in wrong for part in (size(index, at, f"at most {other.shape[at]}"), size(other, at))]
    others = listed([other.sized for other in dict.fromkeys(other for _, other in wrong)]) or given.sized
    rule = (
        f"The index may be no larger than what it reads: {index.sized} against {others}, in every dimension but {dim} "
        "of the input."
    )
    return mismatch("shape", rule, *parts)


def _larger(index: Given, given: Given, dim: int, source: Given | None) -> Iterator[tuple[int, Given]]:
    for at in range(index.ndim):
        if at < given.ndim and at != dim and index.shape[at] > given.shape[at]:
            yield at, given
        if source is not None and at < source.ndim and index.shape[at] > source.shape[at]:
            yield at, source


def index_vector(call: Call, _: re.Match[str]) -> Mismatch | None:
    """Index is supposed to be a vector."""
    index = call.tensor("index", 2)
    if index is None:
        return None
    rule = f"The index of {call.title} has one dimension, and {index.sized} has {index.ndim}."
    return mismatch("shape", rule, whole(index, f"{index.ndim}-D", "1-D"), works=[f"{index.code}.flatten()"])


def as_many_as_source(call: Call, found: re.Match[str]) -> Mismatch | None:
    """Number of indices (2) should be equal to source.size(dim): (3), for dim: 0."""
    index, source, dim = call.tensor("index", 2), call.tensor("source", 3), int(found[3])
    if index is None or source is None or dim >= source.ndim:
        return None
    rule = f"There is one index for each slice of the source: {index.sized} against dimension {dim} of {source.sized}."
    return mismatch("shape", rule, whole(index, found[1], found[2]), size(source, dim, found[1]))


def slices_differ(call: Call, _: re.Match[str]) -> Mismatch | None:
    """Source and destination must have the same slice shapes."""
    given, source = call.tensor("input|self", 0), call.tensor("source", 3)
    text = call.value("dim", 1)
    if given is None or source is None or not text.lstrip("-").isdigit():
        return None
    dim = int(text) % max(given.ndim, 1)
    if given.ndim != source.ndim:
        parts = [
            whole(source, f"{source.ndim}-D", f"{given.ndim}-D"),
            whole(given, f"{given.ndim}-D", f"{source.ndim}-D"),
        ]
    else:
        parts = [size(source, at, given.shape[at]) for at in range(given.ndim)
                 if at != dim and source.shape[at] != given.shape[at]]  # fmt: skip
    rule = f"The source has the sizes of the tensor in every dimension but {dim}: {source.sized} against {given.sized}."
    return mismatch("shape", rule, *parts)


def repeats(call: Call, found: re.Match[str]) -> Mismatch | None:
    """Repeats must have the same size as input along dim."""
    given, counts = call.tensor("input|self", 0), call.tensor("repeats", 1)
    if given is None or counts is None or not given.ndim:
        return None
    rule = f"There is one number of repeats for each element, or one for all: {counts.sized} against {given.sized}."
    return mismatch("shape", rule, whole(counts, found[1], found[2]))


MESSAGES = (
    ((r"The shape of the mask \[(.*?)\] at index (\d+) does not match the shape of the indexed"
      r" tensor \[(.*?)\] at index (\d+)"),
     mask_shape),
    (r"indexing tensors could not be broadcast together with shapes (.*)", indices_broadcast),
    (r"value tensor of shape \[(.*?)\] cannot be broadcast to indexing result of shape \[(.*?)\]", value_shape),
    (r"Index tensor must have the same number of dimensions as (\w+)", index_dimensions),
    (r"index \[.*?\] to be no larger than self \[.*?\] apart from dimension (\d+)", index_larger),
    (r"Index is supposed to be a vector", index_vector),
    ((r"Number of indices \((\d+)\) should be equal to source\.size\(dim\): \((\d+)\), for dim:"
     r" (\d+)"), as_many_as_source),
    (r"Source/destination tensor must have same slice shapes|source tensor shape must match self tensor shape",
     slices_differ),
    (r"repeats\.size\(0\) = (\d+) and input\.size\(-?\d+\) = (\d+)", repeats),
)  # fmt: skip
