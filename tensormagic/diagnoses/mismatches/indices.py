"""What indexes a tensor must fit it: indices and dimensions that are not there, shapes of indices, masks and values."""

from __future__ import annotations

from tensormagic.diagnoses.mismatches.table import Messages

says = Messages()

_OUTSIDE = r"""
    with most: given[dim] - 1; with wholes: all one is not given and one.dtype in ("int64", "int32", "uint8")
    with indexing: [one for one in (call.tensor("index|indices"), *wholes) if one][:1]
    index: Dimension {dim} of {given} has the indices 0 to {most}, or {-given[dim]} to -1; {got} is not one of them.
    parts: given[dim] must be {f"more than {got}" if got >= 0 else f"at least {-got}"}
    parts: one is {got} must be 0 to {most} for one in indexing
"""[1:]

says.table(
    r"""
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

indexing tensors could not be broadcast together with shapes (?P<shapes>.*)
    with given: [numbers(text) for text in shapes.split("]")[:-1]]
    with wrong: [one for one in call.tensors[1:] if one.shape in given]; with left: wrong[0]
    with right: [*[one for one in wrong[1:] if clashing(one.shape, left.shape)], wrong[1]][0]
    shape: Tensors that index together must broadcast: {left} and {right} do not.
    parts: left[at] must equal right[at] for at in clashing(left.shape, right.shape)
    try: {call.tensors[0].code}[{left.code}][:, {right.code}] when left.ndim == right.ndim == 1

index \[.*?\] to be no larger than self \[.*?\] apart from dimension {dim}
    with read: [one for one in (first, call.tensor("src", 3)) if one]
    with both: [(at, one) for at in range(index.ndim) for one in read if at < one.ndim and index[at] > one[at]]
    with wrong: [(at, one) for at, one in both if one is not first or at != dim]
    with smaller: listed(map(str, dict.fromkeys([one for _, one in wrong]))) or first
    shape: The index must not be larger than the tensor it reads: {index} against {smaller}, in every dimension but
        {dim} of the input.
    parts: index[at] must be at most {one[at]}; one[at] for at, one in wrong

# -- dimensions that are not there

Dimension specified as {got} but tensor has no dimensions
    index: The dimension {got} was requested, but {number.name} is a single number, which has no dimensions.
    parts: number.ndim must be 1; try: {number.code}.unsqueeze(0)

duplicate dims are not allowed|appears multiple times in the list of dims|diagonal dimensions cannot be identical
    argument: The dimensions of {first} can be named once each.
    parts: first

permute\(.*number of dimensions in the tensor input does not match
    with asked: sum([len(numbers(one.text)) for one in call.given if not one.is_tensor])
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

# -- indices outside of their dimension

too many indices for tensor of dimension
    index: There can be one index for each dimension, and {first} has {first.ndim}.
    parts: first.ndim must be {first.ndim + 1}

invalid index of a 0-dim tensor
    index: A single number has no index: {number.name} is 0-dimensional.
    parts: number.ndim must be 1; try: {number.code}.item()

tried to access index {got} on a tensor of {elements} elements
    index: An index into {first}, read as one row, is 0 to {elements - 1}; {got} is not one of them.
    parts: one is {got} must be 0 to {elements - 1} for one in [call.tensor("index", 1)] when one
    parts: first is {elements} elements

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

^index out of range in self
    if: call.function in ("embedding", "embedding_bag")
    with table: [one for one in (call.tensor("weight", 1), *call.tensors) if one and one.ndim == 2][0]
    with rows: table[0]
    index: Every index in {given.name} must be between 0 and {rows - 1}, because {call.owner or table} has {rows} rows;
        one of them does not.
    parts: given must be 0 to {rows - 1}; table[0]
    try: {given.code}.max()  # at most {rows - 1}; try: {given.code}.min()  # at least 0

^index out of range in self
    if: call.function not in ("embedding", "embedding_bag"); with at: dim % max(first.ndim, 1); with size: first[at]
    index: Every index in {index.name} must be between 0 and {size - 1}, because dimension {at} of {first} has {size};
        one does not.
    parts: index must be 0 to {size - 1}; first[at]
    try: {index.code}.max()  # at most {size - 1}; try: {index.code}.min()  # at least 0

selected number k out of range for dimension (?P<at>\d+)|selected index k out of range
    with known: [each for each in (at and int(at), call.number("dim", 2), first.ndim - 1) if each is not None]
    with where: known[0] % max(first.ndim, 1); with k: call.value("k", 1)
    index: There are not {k or "as many"} elements to choose from in dimension {where} of {first}.
    parts: first[where] must be at least {k} when first.ndim; parts: first when not first.ndim

# Of an index by several, torch numbers the dimensions as it has put them.
index {got} is out of bounds for dimension {at} with size {size}
    with named: [(one, at) for one in call.tensors if at < one.ndim and one[at] == size][:1]
    with places: named or [(one, at) for one in call.tensors for at in range(one.ndim) if one[at] == size]
    if: len(places) == 1; with given: places[0][0]; with dim: places[0][1]
"""
    + _OUTSIDE
    + r"""
index {got} out of range for tensor of size \[{shape:shape}\] at dimension {dim}
    with given: call.of_shape(shape) or first; if: dim < given.ndim
"""
    + _OUTSIDE
)
