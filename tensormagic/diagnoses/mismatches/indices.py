"""What indexes a tensor must fit it: indices and dimensions that are not there, shapes of indices, masks and values."""

from __future__ import annotations

import re

from tensormagic.diagnoses.mismatches.call import Call, Given, Shape, clashing, mismatch, numbers
from tensormagic.diagnoses.mismatches.table import Messages
from tensormagic.reports import Mismatch

says = Messages()

# -- shapes of indices, of masks, and of the values that are written ------------------------------------------------

says.table(r"""
Index is supposed to be a vector
    shape: The index of {call.title} has one dimension, and {index} has {index.ndim}.
    parts: index.ndim must be 1; try: {index.code}.flatten()

Number of indices \({got}\) should be equal to source\.size\(dim\): \({wanted}\), for dim: {dim}
    shape: There must be one index for each slice of the source: {index} against dimension {dim} of {source}.
    parts: index is {got} must be {wanted}; source[dim] must be {got}

repeats\.size\(0\) = {got} and input\.size\(-?\d+\) = {wanted}
    if: first.ndim
    shape: There must be one number of repeats for each element, or one for all: {repeats} against {first}.
    parts: repeats is {got} must be {wanted}

The shape of the mask \[{shape:shape}\] at index {at} does not match the shape of the indexed tensor \[.*?\] at index \
{other}
    with mask: first one.shape == shape and one.dtype in ("bool", "uint8")
    with part: first.shape[other - at : other - at + mask.ndim]
    shape: A mask has the sizes of the dimensions it selects from: {mask} against {sizes(part)} of {first}.
    parts: mask[at] must equal first[other]
    try: {first.code}[:, {mask.code}] when mask.ndim == 1 and first.shape[1:2] == mask.shape
    try: {first.code}[{mask.code}.T] when mask.ndim == 2 and mask.shape[::-1] == part

value tensor of shape \[{shape:shape}\] cannot be broadcast to indexing result of shape \[{wanted:shape}\]
    with value: last one.shape == shape; with wrong: clashing(value.shape, wanted)
    shape: The value must broadcast to its target: {value} does not broadcast to the selected {sizes(wanted)}.
    parts: value[at] must be {wanted[at]} for at in wrong; parts: value.shape must be {sizes(wanted)} when not wrong

Index tensor must have the same number of dimensions as {like:word}
    with other: src if like == "src" else first
    shape: The index must have as many dimensions as the tensor it indexes: {index} has {index.ndim}, {other} has
        {other.ndim}.
    parts: index.ndim must be {other.ndim}; other.ndim must be {index.ndim}
    try: {index.code}.unsqueeze(1) when index.ndim + 1 == other.ndim and index[0] == other[0]

Source/destination tensor must have same slice shapes|source tensor shape must match self tensor shape
    with along: dim % max(first.ndim, 1)
    with wrong: unlike(first.shape, source.shape) if first.ndim == source.ndim else ()
    shape: The source has the sizes of the tensor in every dimension but {along}: {source} against {first}.
    parts: source.ndim must be {first.ndim}; first.ndim must be {source.ndim} when first.ndim != source.ndim
    parts: source[at] must be {first[at]} for at in wrong when at != along
""")


@says(r"indexing tensors could not be broadcast together with shapes (?P<given>.*)")
def _indices_broadcast(call: Call, given: str) -> Mismatch | None:
    shapes = [numbers(text) for text in re.findall(r"\[(.*?)\]", given)]
    wrong = [one for one in call.tensors[1:] if one.shape in shapes]
    if len(wrong) < 2:
        return None
    left, right = wrong[0], next((one for one in wrong[1:] if clashing(one.shape, wrong[0].shape)), wrong[1])
    parts = [part for at in clashing(left.shape, right.shape) for part in left.against(at, right)]
    rule = f"Tensors that index together must broadcast: {left} and {right} do not."
    works = [f"{call.tensors[0].code}[{left.code}][:, {right.code}]"] if left.ndim == right.ndim == 1 else []
    return mismatch("shape", rule, *parts, works=works)


says.table(r"""
index \[.*?\] to be no larger than self \[.*?\] apart from dimension {dim}
    with read: [one for one in (first, call.tensor("src", 3)) if one]
    with both: [(at, one) for at in range(index.ndim) for one in read if at < one.ndim and index[at] > one[at]]
    with wrong: [(at, one) for at, one in both if one is not first or at != dim]
    with smaller: listed(map(str, dict.fromkeys([one for _, one in wrong]))) or first
    shape: The index must not be larger than the tensor it reads: {index} against {smaller}, in every dimension but
        {dim} of the input.
    parts: index[at] must be at most {one[at]}; one[at] for at, one in wrong
""")


# -- dimensions that are not there ---------------------------------------------------------------------------------

says.table(r"""
Dimension specified as {got} but tensor has no dimensions
    index: The dimension {got} was requested, but {number.name} is a single number, which has no dimensions.
    parts: number.ndim must be 1; try: {number.code}.unsqueeze(0)

duplicate dims are not allowed|appears multiple times in the list of dims|diagonal dimensions cannot be identical
    argument: The dimensions of {first} can be named once each.
    parts: first

permute\(.*number of dimensions in the tensor input does not match
    with asked: len(numbers(call.plain_text))
    shape: The new order names each dimension once: {first} has {first.ndim}, and {asked} are named.
    parts: first.ndim must be {asked}

# A number counts as one dimension, and where the call adds one, its input has one less.
Dimension out of range \(expected to be in range of \[{lowest}, {highest}\], but got {got}\)
    with having: [one for many in (highest + 1, highest) for one in call.tensors if many in (one.ndim, one.ndim or 1)]
    with given: having[0]; with extra: " (and one more to put it into)" if highest + 1 > max(given.ndim, 1) else ""
    with needs: got + 1 if got >= 0 else -got
    index: The dimensions of {given} are {lowest} to {highest}{extra}: it has {plural(given.ndim, "dimension")}, but
        {got} was requested.
    with asking: [one for one in call.given if not one.is_tensor and got in numbers(one.text)]
    parts: given.ndim must be {needs}
    parts: one is {one.text} must be {lowest} to {highest} for one in asking[:1]
    try: {given.code}.unsqueeze(0) when given.ndim and needs == given.ndim + 1
""")


# -- indices outside of their dimension ----------------------------------------------------------------------------

says.table(r"""
too many indices for tensor of dimension
    index: There can be one index for each dimension, and {first} has {first.ndim}.
    parts: first.ndim must be {first.ndim + 1}

invalid index of a 0-dim tensor
    index: A single number has no index: {number.name} is 0-dimensional.
    parts: number.ndim must be 1; try: {number.code}.item()

tried to access index {got} on a tensor of {elements} elements
    index: An index into {first}, read as one row, is 0 to {elements - 1}; {got} is not one of them.
    parts: taken? is {got} must be 0 to {elements - 1}; first is {elements} elements

start \({start}\) \+ length \({length}\) exceeds dimension size
    if: length >= 0
    index: A slice must be inside its dimension: {start} to {start + length} of dimension {dim % first.ndim} of {first}.
    parts: first[dim] must be at least {start + length}

start out of range \(expected to be in range of \[{lowest}, {highest}\], but got {got}\)
    index: A slice of dimension {dim % first.ndim} of {first} starts at {lowest} to {highest}, not at {got}.
    parts: first[dim]

maximum size for tensor at dimension {dim} is {most} but size is {got}
    shape: A window along dimension {dim} of {first} is at most {most} long, not {got}.
    parts: first[dim] must be {got}

Expected dim < .*self_sizes\.size
    index: The dimensions of {first} are 0 to {first.ndim - 1}, but {dim} was requested.
    parts: first.ndim must be {dim + 1 if dim >= 0 else -dim}

split_sizes to sum exactly to {total} \(input tensor's size at dimension {at}\), but got split_sizes=\[{asked:shape}\]
    shape: The parts must add up to dimension {at} of {split}, {total}: {" + ".join(map(str, asked))} is {sum(asked)}.
    parts: split[at] must be {sum(asked)}
""")


@says(r"index {got} is out of bounds for dimension {dim} with size {count}")
def _out_of_bounds(call: Call, got: int, dim: int, count: int) -> Mismatch | None:
    given = next((one for one in call.tensors if dim < one.ndim and one[dim] == count), None)
    if given is None:  # of an index by several, torch numbers the dimensions as it has put them
        places = [(one, at) for one in call.tensors for at, length in enumerate(one.shape) if length == count]
        return _outside(call, *places[0], got) if len(places) == 1 else None
    return _outside(call, given, dim, got)


def _outside(call: Call, given: Given, dim: int, got: int) -> Mismatch:
    count = given[dim]
    have = f"Dimension {dim} of {given} has the indices 0 to {count - 1}, or {-count} to -1"
    wholes = (one for one in call.tensors if one is not given and one.dtype in {"int64", "int32", "uint8"})
    index = call.tensor("index|indices") or next(wholes, None)
    parts = [given.size(dim, f"more than {got}" if got >= 0 else f"at least {-got}")]
    parts += [index.whole(got, f"0 to {count - 1}")] if index is not None else []
    return mismatch("index", f"{have}; {got} is not one of them.", *parts)


@says(r"index {got} out of range for tensor of size \[{shape:shape}\] at dimension {dim}")
def _select_out_of_range(call: Call, first: Given | None, got: int, shape: Shape, dim: int) -> Mismatch | None:
    given = call.of_shape(shape) or first
    return _outside(call, given, dim, got) if given is not None and dim < given.ndim else None


@says(r"^index out of range in self")
def _outside_of_table(call: Call, first: Given | None, dim: int | None) -> Mismatch | None:
    embedding = call.function in {"embedding", "embedding_bag"}
    if embedding:
        index, table, dim = call.tensor("input", 0), call.tensor("weight", 1), 0
        table = table if table is not None and table.ndim == 2 else call.first(lambda one: one.ndim == 2)
    else:
        index, table = call.tensor("index", 2), first
    if index is None or table is None or dim is None:
        return None
    dim %= max(table.ndim, 1)
    count = table[dim]
    which = f"dimension {dim} of {table} has {count}; one does not."
    if embedding:
        which = f"{call.owner or table} has {count} rows; one of them does not."
    rule = f"Every index in {index.name} must be between 0 and {count - 1}, because {which}"
    works = [f"{index.code}.max()  # at most {count - 1}", f"{index.code}.min()  # at least 0"]
    return mismatch("index", rule, index.whole("", f"0 to {count - 1}"), table.size(dim), works=works)


@says(r"selected number k out of range for dimension (?P<at>\d+)", r"selected index k out of range")
def _too_few_to_select(call: Call, at: str | None, first: Given) -> Mismatch:
    dim = at or call.value("dim", 2)
    where = int(dim) % max(first.ndim, 1) if dim.lstrip("-").isdigit() else max(first.ndim - 1, 0)
    k = call.value("k", 1)
    rule = f"There are not {k or 'as many'} elements to choose from in dimension {where} of {first}."
    return mismatch("index", rule, first.size(where, f"at least {k}") if first.ndim else first.whole())
