"""Indices and dimensions: those that are not there, how many a call takes, and rules of single calls about sizes."""

from __future__ import annotations

import re
from itertools import pairwise

from tensormagic.diagnoses.mismatches.call import Call, Given, Shape, mismatch
from tensormagic.diagnoses.mismatches.table import Messages
from tensormagic.reports import Mismatch
from tensormagic.words import listed, plural

says = Messages(globals())

_FIRST = "input|self|tensor|query"
_PRODUCTS = frozenset({"mm", "spmm", "bmm"})
_LAYOUTS = {
    "conv1d": "(N, C, L)", "conv2d": "(N, C, H, W)", "conv3d": "(N, C, D, H, W)", "max_pool1d": "(N, C, L)",
    "max_pool2d": "(N, C, H, W)", "max_pool3d": "(N, C, D, H, W)", "avg_pool2d": "(N, C, H, W)",
    "batch_norm": "(N, C, …)", "interpolate": "(N, C, …)", "adaptive_avg_pool2d": "(N, C, H, W)",
    "conv_transpose2d": "(N, C, H, W)",
}  # fmt: skip

_OUTSIDE = r"""
    with most: given[dim] - 1; with wholes: all one is not given and one.dtype in ("int64", "int32", "uint8")
    with indexing: [one for one in (call.tensor("index|indices"), *wholes) if one][:1]
    index: Dimension {dim} of {given} has the indices 0 to {most}, or {-given[dim]} to -1; {got} is not one of them.
    parts: given[dim] must be {f"more than {got}" if got >= 0 else f"at least {-got}"}
    parts: one is {got} must be 0 to {most} for one in indexing
"""[1:]

says.table(
    r"""
# -- what indexes a tensor must fit it: shapes of indices, masks and values

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
    with first: call.tensors[0]; with count: "torch.arange(" in left.code
    try: {first.code}[torch.arange(len({right.code})), {right.code}] when count and first[0] == right[0]
    try: {first.code}[{left.code}][:, {right.code}] when left.ndim == right.ndim == 1 and not count

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
    argument: Each dimension of {first} can be named only once.
    parts: first

permute\(.*number of dimensions in the tensor input does not match
    with asked: sum([len(numbers(one.text)) for one in call.given if not one.is_tensor])
    shape: The new order names each dimension once: {first} has {first.ndim}, and {asked} are named.
    parts: first.ndim must be {asked}

# A number counts as one dimension, and where the call adds one, its input has one less.
Dimension out of range \(expected to be in range of \[{lowest}, {highest}\], but got {got}\)
    with having: [one for many in (highest + 1, highest) for one in call.tensors if many in (one.ndim, one.ndim or 1)]
    with given: having[0]; with needs: got + 1 if got >= 0 else -got; with new: highest + 1 > max(given.ndim, 1)
    with place: "A new dimension of" if new else f"With {plural(given.ndim, 'dimension')}, a dim of"
    index: {place} {given} can be {lowest} to {highest}, and {got} was given.
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

(?P<what>len\(\) of|iteration over) a 0-d tensor
    index: A single number has no {"length" if what.startswith("len") else "items"}: {anything.name} is 0-dimensional.
    parts: anything; try: {anything.code}.item() when what.startswith("len"); try: {anything.code}.unsqueeze(0)

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
        one of them is not.
    parts: given must be 0 to {rows - 1}; table[0]
    try: {given.code}.max()  # at most {rows - 1}; try: {given.code}.min()  # at least 0

^index out of range in self
    if: call.function not in ("embedding", "embedding_bag"); with at: dim % max(first.ndim, 1); with size: first[at]
    index: Every index in {index.name} must be between 0 and {size - 1}, because dimension {at} of {first} has {size};
        one is not.
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
    + r"""
# -- windows, points and other sizes

Got {got}D input, but {mode:word} mode needs {wanted}D input
    with what: {3: "a signal, (N, C, L)", 4: "a batch of images, (N, C, H, W)"}.get(wanted, "(N, C, D, H, W)")
    shape: The mode {mode} takes {what}: {first} has {plural(first.ndim, "dimension")}.
    parts: first.ndim must be {wanted}
    try: {first.code}.unsqueeze(0) when got + 1 == wanted; try: {first.code}[None, None] when got + 2 == wanted

Size mismatch between tensors
    if: call.function == "TensorDataset"; with wrong: every one.ndim and one[0] != left.shape[0]
    shape: A sample is one row of each tensor, so all must have as many rows: {left} has {left[0]}, {wrong[0]} has
        {wrong[0][0]}.
    parts: left[0] must be {wrong[0][0]}; parts: one[0] must be {left[0]} for one in wrong

invalid multinomial distribution \(sum of probabilities <= 0\)
    argument: There is nothing to draw: all weights of {anything.name}, or of a row of it, are 0.
    parts: anything

expected grid to have size {coordinates} in last dimension
    shape: The last dimension of a grid is the {coordinates} coordinates: {grid}.
    parts: grid[-1] must be {coordinates}

expected grid and input to have same batch size
    shape: Input and grid must have the same batch size: {given} and {grid} differ in dimension 0.
    parts: given[0] must equal grid[0]

input\.size\({at}\)=\d+ is not divisible by {by}
    shape: Dimension {at % tensor.ndim} of {tensor} must be divisible by {by}.
    parts: tensor[at] must be a multiple of {by}

input's dimension {at} to be divisible by the product of kernel_size
    shape: Dimension {at % tensor.ndim} of {tensor} must be divisible by the window.
    parts: tensor[at]

Halving dimension must be even, but dimension {at}
    shape: Dimension {at} of {tensor} is split into two halves, so it must be even.
    parts: tensor[at] must be an even number

attempted to split along dimension {at}, but the size of the dimension \d+ is not divisible by the split_size 0
    argument: Dimension {at} of {tensor} must be divisible into 0 parts.
    parts: tensor[at]

attempted to split along dimension {at}, but the size of the dimension \d+ is not divisible by the split_size {parts}
    shape: Dimension {at} of {tensor} must be divisible into {parts} parts.
    parts: tensor[at]

output size of \((?P<asked>.*?)\)
    shape: There must be one output size for each spatial dimension: {tensor} has {tensor.ndim - 2}, and
        {len(numbers(asked))} are given.
    parts: tensor.ndim must be {len(numbers(asked)) + 2}
    with image: len(numbers(asked)) == 2 and tensor.ndim == 3
    try: {tensor.code}.unsqueeze(0) when image and tensor[0] in (1, 3, 4)
    try: {tensor.code}.permute(2, 0, 1).unsqueeze(0) when image and tensor[2] in (1, 3, 4) and tensor[0] > 4

over an empty dimension|to have non-zero size|to be specified for input\.numel\(\) == 0
    shape: An empty dimension has no largest or smallest element: dimension {empty.shape.index(0)} of {empty} is empty.
    parts: empty[empty.shape.index(0)] must be at least 1

size of bins must be equal to the innermost dimension
    shape: There must be one number of bins for each column: {len(numbers(call.value("bins", 1)))} for {tensor}.
    parts: tensor[-1] must be {len(numbers(call.value("bins", 1)))}

one `x` value for each sample point
    shape: There must be one x for each y: {left} and {right}.
    parts: left[-1] must equal right[-1]

K-dimensional loss defined by linear_weight shape
    shape: The input must have a batch before its features where the weight has more than two dimensions: {given}.
    parts: given.ndim must be 2; parts: one is {one.ndim}-D for one in [call.tensor("linear_weight", 1)] when one

Expected shape of indices to be same as that of the input
    if: first.ndim == indices.ndim
    shape: There must be one index for each element: {indices} against {first}.
    parts: indices[at] must be {first[at]} for at in unlike(first.shape, indices.shape)

expected each dimension size to be at least edge_order\+1
    with order: call.value("edge_order") or "1"; if: order.isdigit(); with least: int(order) + 1
    shape: Every dimension needs at least edge_order + 1 = {least} elements: {tensor}.
    parts: tensor[at] must be at least {least} for at in range(tensor.ndim) when tensor[at] < least

boundaries tensor should be 1 dimension or
    with rows: call.tensor("sorted_sequence|boundaries", 0); with values: call.tensor("input|self|values", 1)
    shape: There must be one row of boundaries, or one for each row of values: {rows} and {values} differ before the
        last dimension.
    parts: rows.ndim must be {values.ndim} when rows.ndim != values.ndim
    with wrong: unlike(rows.shape[:-1], values.shape[:-1]) if rows.ndim == values.ndim else ()
    parts: rows[at] must equal values[at] for at in wrong

# -- how many dimensions there may be

only tensors with up to {most} dims are supported
    with given: first one.ndim > most
    shape: The call {call.title} takes at most {most} dimensions: {given.name} has {given.ndim}.
    parts: given.ndim must be {most}

only supports 0-dimensional start and end
    with wrong: every one.ndim
    shape: The call {call.title} needs single numbers as start and end: {listed(map(str, wrong))} are not.
    parts: one.ndim must be 0 for one in wrong

expected {role:word} to have (?P<word>zero|one|two) or fewer dimensions
    with given: tensor if role == "input" else call.tensor(role, 0); with most: ("zero", "one", "two").index(word)
    shape: The {role} of {call.title} has at most {plural(most, "dimension")}: {given} has {given.ndim}.
    parts: given.ndim must be {most}

expected {role:word} to have the same numel as there are observations in the input but got {got} != {wanted}
    with given: call.tensor(role)
    shape: There must be one of {role} for each of the {wanted} observations: {given}.
    parts: given is {got} must be {wanted}
"""
)


# -- how many dimensions there may be ------------------------------------------------------------------------------


@says(
    r"Expected {allowed:counts} \(batched\) input to conv",
    r"[Ee]xpected {allowed:counts} (?:\(batch mode\) )?(?:input|tensor) ?(?:\(got \dD input\)|with optional)",
    r"non-empty {allowed:counts} \(batch mode\) tensor expected",
    r"Expected {allowed:counts} \(batch mode\) tensor",
    r"Only {allowed:counts} input Tensors supported",
)
@says(r"must be a 3D tensor|batch\d must be a", allowed=(3,))
@says(r"(?:mat\d|self|input) must be a matrix|expected a matrix, but got tensor with dim", allowed=(2,))
@says(r"'weight' must be 2-D", allowed=(2,), about="weight", place=1)
@says(r"vec(?:tor)?\d? must be a vector", allowed=(1,), about="vec|vec2|other", place=1)
@says(r"Expected 1-D argument (?:self|vec2)|must be a one-dimensional tensor|Expect a 1D vector", allowed=(1,))
@says(r"boundaries tensor must be 1 dimension", allowed=(1,), about="boundaries", place=1)
@says(r"Expected `weight` to be a scalar or 1D", allowed=(0, 1), about="weight", place=1)
@says(r"expects a tensor with <= 2 dimensions", allowed=(0, 1, 2))
@says(r"Supports 1D or 2D tensors|prob_dist must be 1 or 2 dim", allowed=(1, 2))
@says(r"only supports a 0-dimensional value tensor", allowed=(0,), about="value", place=2)
@says(r"start must be an 0-dim integral Tensor", allowed=(0,), about="start", place=2)
@says(r"expected input with dimensionality 1 or 2|Expected non-empty vector or matrix", allowed=(1, 2))
@says(r"Expected 0D or 1D tensor in the tensor list", allowed=(0, 1))
def _count(call: Call, allowed: Shape, about: str = _FIRST, place: int = 0) -> Mismatch | None:
    """Explain an operand that has too few or too many dimensions; ``allowed`` are how many, the likeliest last."""
    wrong = [one for one in call.tensors if one.ndim not in allowed]
    if not wrong:
        return _empty(call)
    named = call.tensor(about, place)
    given = named if named in wrong else wrong[0]
    choice = f"{listed(map(str, allowed), last='or')} {'dimension' if allowed == (1,) else 'dimensions'}"
    layout = f", {_LAYOUTS[call.function]}" if call.function in _LAYOUTS else ""
    rule = f"The call {call.subject} takes {choice}{layout}: {given} has {given.ndim}."
    if call.function not in _PRODUCTS:  # of a product of matrices, both may have a wrong number
        wrong = [given]
    return mismatch("shape", rule, *(one.dims(allowed[-1]) for one in wrong), works=_ways(call, given, allowed))


def _ways(call: Call, given: Given, allowed: Shape) -> list[str]:
    if call.function in _PRODUCTS:
        fit = [(left, right) for left, right in pairwise(call.tensors) if left.ndim and right.ndim]
        return [f"{left.code} @ {right.code}" for left, right in fit if left[-1] == right.shape[-2:][0]]
    weight = call.tensor("weight", 1) if call.function.startswith("conv") else None
    if weight is not None and given.ndim < min(allowed) and weight.shape[1:2] != (1,):
        return []
    kind = re.match(r"(BatchNorm|InstanceNorm)\dd$", call.function)
    spatial = {2: 1, 3: 1, 4: 2, 5: 3}.get(given.ndim)
    if kind and spatial:
        features = next((one.operand.text for one in call.given if one.role == "num_features"), "")
        is_single = str(given[0]) == features != str(given[1])  # one item alone, whose channels come first
        if not is_single:  # the layer of the same kind that takes as many dimensions
            same = call.layer_with("num_features", given[1])
            return [re.sub(r"(?<=Norm)\dd(?=\()", f"{spatial}d", way) for way in same]
    return _lifted(call, given, allowed)


def _lifted(call: Call, given: Given, allowed: Shape) -> list[str]:
    if given.ndim + 1 in allowed:
        return [f"{given.code}.unsqueeze(0)"]
    if given.ndim + 2 in {min(allowed), max(allowed)}:
        return [f"{given.code}[None, None]"]
    if given.ndim - 1 in allowed and 1 in given.shape:
        return [f"{given.code}.squeeze({given.shape.index(1)})"]
    if call.function == "t":
        return [f"{given.code}.mT"]
    return [f"{given.code}.flatten()"] if allowed == (1,) else []


@says(r"expected linear_weight with dimensionality at least 2", least=2, about="linear_weight", place=1)
@says(r"mT is only supported on matrices", least=2)
@says(r"Not allow zero-dim input tensor|narrow\(\) cannot be applied to a 0-dim tensor", least=1)
@says(r"must have at least \d dimensions|needs at least \d dimensions", least=2)
@says(
    r"Input dimension should be at least {least}",
    r"Expected at least {least} dimensions for input",
    r"requires a tensor with at least {least} dimension",
    r"Input must be >= {least}-d",
    r"expected total dims >= {least}",
)
def _at_least(call: Call, least: int, about: str = _FIRST, place: int = 0) -> Mismatch:
    wrong = call.every(lambda one: one.ndim < least)
    named = call.tensor(about, place)
    given = named if named in wrong else wrong[0]
    rule = f"The call {call.title} takes at least {plural(least, 'dimension')}: {given} has {given.ndim}."
    works = [f"{given.code}.unsqueeze(0)"] if given.ndim + 1 == least else []
    return mismatch("shape", rule, given.dims(least), works=works)


@says(r"non-batch dimensions to have positive length")
def _empty(call: Call) -> Mismatch:
    """Explain a dimension that may not be empty."""
    given = call.every(lambda one: 0 in one.shape)[0]
    at = [at for at, each in enumerate(given.shape) if each == 0][-1]
    rule = f"The call {call.title} needs at least one element: dimension {at} of {given} is empty."
    return mismatch("shape", rule, given.size(at, "at least 1"))
