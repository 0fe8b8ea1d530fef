"""Calls that take a certain number of dimensions, and those with a rule of their own about sizes: windows, points."""

from __future__ import annotations

import re
from itertools import pairwise

from tensormagic.diagnoses.mismatches.call import Call, Given, Shape, mismatch
from tensormagic.diagnoses.mismatches.table import Messages
from tensormagic.reports import Mismatch
from tensormagic.words import listed, plural

says = Messages()

_FIRST = "input|self|tensor|query"
_PRODUCTS = frozenset({"mm", "spmm", "bmm"})
_LAYOUTS = {
    "conv1d": "(N, C, L)", "conv2d": "(N, C, H, W)", "conv3d": "(N, C, D, H, W)", "max_pool1d": "(N, C, L)",
    "max_pool2d": "(N, C, H, W)", "max_pool3d": "(N, C, D, H, W)", "avg_pool2d": "(N, C, H, W)",
    "batch_norm": "(N, C, …)", "interpolate": "(N, C, …)", "adaptive_avg_pool2d": "(N, C, H, W)",
    "conv_transpose2d": "(N, C, H, W)",
}  # fmt: skip


# -- sizes ---------------------------------------------------------------------------------------------------------

says.table(r"""
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
""")


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
    if kind and spatial:  # the layer of the same kind that takes as many dimensions
        return [f"nn.{kind[1]}{spatial}d({given[1]})"]
    return _lifted(given, allowed)


def _lifted(given: Given, allowed: Shape) -> list[str]:
    if given.ndim + 1 in allowed:
        return [f"{given.code}.unsqueeze(0)"]
    if given.ndim + 2 in {min(allowed), max(allowed)}:
        return [f"{given.code}[None, None]"]
    if given.ndim - 1 in allowed and 1 in given.shape:
        return [f"{given.code}.squeeze({given.shape.index(1)})"]
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
