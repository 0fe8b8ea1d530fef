"""Calls that take a certain number of dimensions, and those with a rule of their own about sizes: windows, points."""

from __future__ import annotations

import re
from typing import Annotated

from tensormagic.diagnoses.mismatches.call import (
    Call,
    Given,
    Input,
    Left,
    Messages,
    Right,
    against,
    dims,
    mismatch,
    numbers,
    operand,
    size,
    unlike,
    whole,
)
from tensormagic.reports import Mismatch
from tensormagic.words import listed

says = Messages()

_FIRST = "input|self|tensor|query"
_PRODUCTS = frozenset({"mm", "spmm", "bmm"})
_LAYOUTS = {
    "conv1d": "(N, C, L)", "conv2d": "(N, C, H, W)", "conv3d": "(N, C, D, H, W)", "max_pool1d": "(N, C, L)",
    "max_pool2d": "(N, C, H, W)", "max_pool3d": "(N, C, D, H, W)", "avg_pool2d": "(N, C, H, W)",
    "batch_norm": "(N, C, …)", "interpolate": "(N, C, …)", "adaptive_avg_pool2d": "(N, C, H, W)",
    "conv_transpose2d": "(N, C, H, W)",
}  # fmt: skip
First = Annotated[Given, operand(_FIRST, 0)]
Grid = Annotated[Given, operand("grid", 1)]


# -- sizes ---------------------------------------------------------------------------------------------------------


@says(r"Expected shape of indices to be same as that of the input")
def _same_shape_of_indices(
    given: Annotated[Given, operand("input|self", 0)], index: Annotated[Given, operand("indices", 1)]
) -> Mismatch | None:
    if given.ndim != index.ndim:
        return None
    rule = f"There must be one index for each element: {index.sized} against {given.sized}."
    return mismatch("shape", rule, *(size(index, at, given.shape[at]) for at in unlike(given, index)))


@says(r"expected grid to have size (\d) in last dimension")
def _grid_size(grid: Grid, coordinates: str) -> Mismatch:
    rule = f"The last dimension of a grid is the {coordinates} coordinates: {grid.sized}."
    return mismatch("shape", rule, size(grid, -1, coordinates))


@says(r"expected grid and input to have same batch size")
def _grid_batch(given: Input, grid: Grid) -> Mismatch:
    rule = f"Input and grid must have the same batch size: {given.sized} and {grid.sized} differ in dimension 0."
    return mismatch("shape", rule, *against(given, 0, grid))


@says(
    r"input\.size\((?P<at>-?\d+)\)=\d+ is not divisible by (?P<by>\d+)",
    r"input's dimension (?P<at>\d+) to be divisible by the product of kernel_size(?P<by>)",
)
def _divisible(given: First, at: int, by: str) -> Mismatch:
    rule = f"Dimension {at % given.ndim} of {given.sized} must be divisible by {by or 'the window'}."
    return mismatch("shape", rule, size(given, at, f"a multiple of {by}" if by else ""))


@says(r"Halving dimension must be even, but dimension (\d+)")
def _halved(given: First, at: int) -> Mismatch:
    rule = f"Dimension {at} of {given.sized} is split into two halves, so it must be even."
    return mismatch("shape", rule, size(given, at, "an even number"))


@says(
    r"attempted to split along dimension (\d+), but the size of the dimension \d+ is not divisible by the split_size "
    r"(\d+)"
)
def _split_evenly(given: First, at: int, count: str) -> Mismatch:
    rule = f"Dimension {at} of {given.sized} must be divisible into {count} parts."
    return mismatch("argument" if count == "0" else "shape", rule, size(given, at))


@says(r"output size of \((.*?)\)")
def _spatial(given: First, output: str) -> Mismatch:
    asked = len(numbers(output))
    rule = (
        f"There must be one output size for each spatial dimension: {given.sized} has {given.ndim - 2}, and {asked} "
        "are "
        "given."
    )
    return mismatch("shape", rule, dims(given, asked + 2))


@says(r"expected each dimension size to be at least edge_order\+1")
def _long_enough(call: Call, given: First) -> Mismatch | None:
    order = call.value("edge_order") or "1"
    if not order.isdigit():
        return None
    least = int(order) + 1
    wrong = [at for at, each in enumerate(given.shape) if each < least]
    rule = f"Every dimension needs at least edge_order + 1 = {least} elements: {given.sized}."
    return mismatch("shape", rule, *(size(given, at, f"at least {least}") for at in wrong))


@says(r"over an empty dimension|to have non-zero size|to be specified for input\.numel\(\) == 0")
def _empty_reduction(call: Call) -> Mismatch:
    given = call.first(lambda one: 0 in one.shape)
    at = given.shape.index(0)
    rule = f"An empty dimension has no largest or smallest element: dimension {at} of {given.sized} is empty."
    return mismatch("shape", rule, size(given, at, "at least 1"))


@says(r"size of bins must be equal to the innermost dimension")
def _bins(call: Call, given: First) -> Mismatch:
    asked = len(numbers(call.value("bins", 1)))
    rule = f"There must be one number of bins for each column: {asked} for {given.sized}."
    return mismatch("shape", rule, size(given, -1, asked))


@says(r"one `x` value for each sample point")
def _sample_points(left: Left, right: Right) -> Mismatch:
    rule = f"There must be one x for each y: {left.sized} and {right.sized}."
    return mismatch("shape", rule, *against(left, -1, right))


@says(r"K-dimensional loss defined by linear_weight shape")
def _batch_before_features(given: Input, weight: Annotated[Given, operand("linear_weight", 1)] | None) -> Mismatch:
    rule = (
        f"The input must have a batch before its features where the weight has more than two dimensions: {given.sized}."
    )
    parts = [whole(weight, f"{weight.ndim}-D")] if weight is not None else []
    return mismatch("shape", rule, dims(given, 2), *parts)


@says(r"boundaries tensor should be 1 dimension or")
def _boundaries(
    rows: Annotated[Given, operand("sorted_sequence|boundaries", 0)],
    values: Annotated[Given, operand("input|self|values", 1)],
) -> Mismatch:
    rule = (
        f"There must be one row of boundaries, or one for each row of values: {rows.sized} and {values.sized} differ "
        "before "
        "the last dimension."
    )
    if rows.ndim != values.ndim:
        return mismatch("shape", rule, dims(rows, values.ndim))
    wrong = (at for at in unlike(rows, values) if at != rows.ndim - 1)
    return mismatch("shape", rule, *(part for at in wrong for part in against(rows, at, values)))


# -- how many dimensions there may be ------------------------------------------------------------------------------


def _count(call: Call, *, allowed: tuple[int, ...], about: str = _FIRST, place: int = 0) -> Mismatch | None:
    """Explain an operand that has too few or too many dimensions.

    Args:
        call: The failed call.
        allowed: How many dimensions it may have, the likeliest last.
        about: What torch calls the operand.
        place: Its place among the arguments.
    """
    given = call.tensor(about, place)
    if given is None or given.ndim in allowed:
        given = next((one for one in call.tensors if one.ndim not in allowed), None)
    if given is None:
        return _empty(call)
    choice = listed(list(map(str, allowed))).replace(" and ", " or ")
    count = f"{choice} {'dimension' if allowed == (1,) else 'dimensions'}"
    layout = f", {_LAYOUTS[call.function]}" if call.function in _LAYOUTS else ""
    rule = f"The call {call.subject} takes {count}{layout}: {given.sized} has {given.ndim}."
    wrong = [given]
    if call.function in _PRODUCTS:  # of a product of matrices, both may have a wrong number
        wrong = [one for one in call.tensors if one.ndim not in allowed] or wrong
    return mismatch("shape", rule, *(dims(one, allowed[-1]) for one in wrong), works=_ways(call, given, allowed))


@says(
    r"Expected (\dD \(unbatched\) or \dD) \(batched\) input to conv",
    r"[Ee]xpected (\dD or \dD|\dD) (?:\(batch mode\) )?(?:input|tensor) ?(?:\(got \dD input\)|with optional)",
    r"non-empty (\dD or \dD) \(batch mode\) tensor expected",
    r"Expected (\dD or \dD) \(batch mode\) tensor",
    r"Only (\dD, \dD and \dD) input Tensors supported",
)
def _count_in_the_message(call: Call, counts: str) -> Mismatch | None:
    return _count(call, allowed=tuple(int(text) for text in re.findall(r"\d", counts)))


for _pattern, _allowed, _about, _place in (
    (r"must be a 3D tensor|batch\d must be a", (3,), _FIRST, 0),
    (r"(?:mat\d|self|input) must be a matrix|expected a matrix, but got tensor with dim", (2,), _FIRST, 0),
    (r"'weight' must be 2-D", (2,), "weight", 1),
    (r"vec(?:tor)?\d? must be a vector", (1,), "vec|vec2|other", 1),
    (r"Expected 1-D argument (?:self|vec2)|must be a one-dimensional tensor|Expect a 1D vector", (1,), _FIRST, 0),
    (r"boundaries tensor must be 1 dimension", (1,), "boundaries", 1),
    (r"Expected `weight` to be a scalar or 1D", (0, 1), "weight", 1),
    (r"expects a tensor with <= 2 dimensions", (0, 1, 2), _FIRST, 0),
    (r"Supports 1D or 2D tensors|prob_dist must be 1 or 2 dim", (1, 2), _FIRST, 0),
    (r"only supports a 0-dimensional value tensor", (0,), "value", 2),
    (r"start must be an 0-dim integral Tensor", (0,), "start", 2),
    (r"expected input with dimensionality 1 or 2|Expected non-empty vector or matrix", (1, 2), _FIRST, 0),
    (r"Expected 0D or 1D tensor in the tensor list", (0, 1), _FIRST, 0),
):
    says(_pattern, allowed=_allowed, about=_about, place=_place)(_count)


def _ways(call: Call, given: Given, allowed: tuple[int, ...]) -> list[str]:
    if call.function in _PRODUCTS:
        pairs = zip(call.tensors, call.tensors[1:], strict=False)
        fit = ((left, right) for left, right in pairs if left.ndim and right.ndim)
        return [f"{left.code} @ {right.code}" for left, right in fit if left.shape[-1] == right.shape[-2:][0]]
    weight = call.tensor("weight", 1) if call.function.startswith("conv") else None
    if weight is not None and given.ndim < min(allowed) and weight.shape[1:2] != (1,):
        return []
    kind = re.match(r"(BatchNorm|InstanceNorm)\dd$", call.function)
    spatial = {2: 1, 3: 1, 4: 2, 5: 3}.get(given.ndim)
    if kind and spatial:  # the layer of the same kind that takes as many dimensions
        return [f"nn.{kind[1]}{spatial}d({given.shape[1]})"]
    return _lifted(given, allowed)


def _lifted(given: Given, allowed: tuple[int, ...]) -> list[str]:
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
    r"Input dimension should be at least (\d)",
    r"Expected at least (\d) dimensions for input",
    r"requires a tensor with at least (\d) dimension",
    r"Input must be >= (\d)-d",
    r"expected total dims >= (\d)",
)
def _at_least(call: Call, least: int, *, about: str = _FIRST, place: int = 0) -> Mismatch:
    given = call.tensor(about, place)
    if given is None or given.ndim >= least:
        given = call.first(lambda one: one.ndim < least)
    many = "dimension" if least == 1 else "dimensions"
    rule = f"The call {call.title} takes at least {least} {many}: {given.sized} has {given.ndim}."
    works = [f"{given.code}.unsqueeze(0)"] if given.ndim + 1 == least else []
    return mismatch("shape", rule, dims(given, least), works=works)


@says(r"non-batch dimensions to have positive length")
def _empty(call: Call) -> Mismatch:
    """Explain a dimension that may not be empty."""
    given = call.first(lambda one: 0 in one.shape)
    at = [at for at, each in enumerate(given.shape) if each == 0][-1]
    rule = f"The call {call.title} needs at least one element: dimension {at} of {given.sized} is empty."
    return mismatch("shape", rule, size(given, at, "at least 1"))


@says(r"only tensors with up to (\d+) dims are supported")
def _at_most(call: Call, most: int) -> Mismatch:
    given = call.first(lambda one: one.ndim > most)
    rule = f"The call {call.title} takes at most {most} dimensions: {given.name} has {given.ndim}."
    return mismatch("shape", rule, dims(given, most))


@says(r"only supports 0-dimensional start and end")
def _from_number_to_number(call: Call) -> Mismatch:
    wrong = call.every(lambda one: one.ndim)
    rule = (
        f"The call {call.title} needs single numbers as start and end: {listed([one.sized for one in wrong])} are not."
    )
    return mismatch("shape", rule, *(dims(one, 0) for one in wrong))


@says(r"expected (\w+) to have (zero|one|two) or fewer dimensions")
def _argument_count(call: Call, role: str, word: str) -> Mismatch | None:
    given, most = call.tensor(role if role != "input" else _FIRST, 0), ("zero", "one", "two").index(word)
    if given is None:
        return None
    rule = (
        f"The {role} of {call.title} has at most {most} dimension{'s' * (most != 1)}: {given.sized} has {given.ndim}."
    )
    return mismatch("shape", rule, dims(given, most))


@says(r"expected (\w+) to have the same numel as there are observations in the input but got (\d+) != (\d+)")
def _observations(call: Call, role: str, got: str, wanted: str) -> Mismatch | None:
    given = call.tensor(role)
    rule = f"There must be one of {role} for each of the {wanted} observations: {given.sized if given else ''}."
    return mismatch("shape", rule, whole(given, got, wanted)) if given is not None else None
