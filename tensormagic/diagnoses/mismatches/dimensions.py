"""Calls that take a certain number of dimensions, and others that take a certain shape: linear algebra, images.

One row of a table each: what torch says, which operand it is about, and what it asks for.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

from tensormagic.diagnoses.mismatches.broadcasting import numbers
from tensormagic.diagnoses.mismatches.call import Call, Given, mismatch, size, whole
from tensormagic.diagnoses.words import listed
from tensormagic.reports import Mismatch

_FIRST = "input|self|tensor|query"
_LAYOUTS = {
    "conv1d": "(N, C, L)", "conv2d": "(N, C, H, W)", "conv3d": "(N, C, D, H, W)", "max_pool1d": "(N, C, L)",
    "max_pool2d": "(N, C, H, W)", "max_pool3d": "(N, C, D, H, W)", "avg_pool2d": "(N, C, H, W)",
    "batch_norm": "(N, C, …)", "interpolate": "(N, C, …)", "adaptive_avg_pool2d": "(N, C, H, W)",
    "conv_transpose2d": "(N, C, H, W)",
}  # fmt: skip


def count(
    call: Call, found: re.Match[str], *, about: str = _FIRST, place: int = 0, allowed: tuple[int, ...] = ()
) -> Mismatch | None:
    """Explain an operand that has too few or too many dimensions.

    Args:
        call: The failed call.
        found: Torch's words; where ``allowed`` is empty, the numbers in its first group are what is allowed.
        about: What torch calls the operand.
        place: Its place among the arguments.
        allowed: How many dimensions it may have, the likeliest last.
    """
    allowed = allowed or tuple(int(text) for text in re.findall(r"\d", found[1]))
    given = call.tensor(about, place)
    if given is None or given.ndim in allowed:
        given = next((one for one in call.tensors if one.ndim not in allowed), None)
    if given is None:
        return _empty(call)
    layout = _LAYOUTS.get(call.function, "")
    choice = listed(list(map(str, allowed))).replace(" and ", " or ")
    many = "dimension" if allowed == (1,) else "dimensions"
    owner = call.owner or call.title
    rule = f"The call {owner} takes {choice} {many}{f', {layout}' if layout else ''}: {given.sized} has {given.ndim}."
    return mismatch(
        "shape",
        rule,
        whole(given, f"{given.ndim}-D", f"{allowed[-1]}-D"),
        works=_other_layer(call, given) or _lifted(given, allowed),
    )


def _empty(call: Call) -> Mismatch | None:
    """The number of dimensions is right, but one of them is empty."""
    given = next((one for one in call.tensors if 0 in one.shape), None)
    if given is None:
        return None
    at = [at for at, each in enumerate(given.shape) if each == 0][-1]
    rule = f"The call {call.title} needs at least one element: dimension {at} of {given.sized} is empty."
    return mismatch("shape", rule, size(given, at, "at least 1"))


def _other_layer(call: Call, given: Given) -> list[str]:
    """Return the layer of the same kind that takes as many dimensions."""
    kind = re.match(r"(BatchNorm|InstanceNorm)\dd$", call.function)
    spatial = {2: 1, 3: 1, 4: 2, 5: 3}.get(given.ndim)
    return [f"nn.{kind[1]}{spatial}d({given.shape[1]})"] if kind and spatial else []


def _lifted(given: Given, allowed: tuple[int, ...]) -> list[str]:
    if given.ndim + 1 in allowed or given.ndim + 1 == min(allowed):
        return [f"{given.code}.unsqueeze(0)"]
    if given.ndim + 2 == min(allowed) or given.ndim + 2 == max(allowed):
        return [f"{given.code}[None, None]"]
    if given.ndim - 1 in allowed and 1 in given.shape:
        return [f"{given.code}.squeeze({given.shape.index(1)})"]
    return [f"{given.code}.flatten()"] if allowed == (1,) else []


def at_least(call: Call, _: re.Match[str], *, least: int, about: str = _FIRST, place: int = 0) -> Mismatch | None:
    """Explain an operand that has too few dimensions."""
    given = call.tensor(about, place)
    if given is None or given.ndim >= least:
        given = next((one for one in call.tensors if one.ndim < least), None)
    if given is None:
        return None
    many = "dimension" if least == 1 else "dimensions"
    rule = f"The call {call.title} takes at least {least} {many}: {given.sized} has {given.ndim}."
    works = [f"{given.code}.unsqueeze(0)"] if given.ndim + 1 == least else []
    return mismatch("shape", rule, whole(given, f"{given.ndim}-D", f"{least}-D"), works=works)


def at_least_said(call: Call, found: re.Match[str]) -> Mismatch | None:
    """Read from the message how many dimensions are needed at least."""
    return at_least(call, found, least=int(found[1]))


def argument_count(call: Call, found: re.Match[str]) -> Mismatch | None:
    """Read from the message which argument has too many dimensions."""
    words = {"zero": 0, "one": 1, "two": 2}
    given, most = call.tensor(found[1] if found[1] != "input" else _FIRST, 0), words[found[2]]
    if given is None:
        return None
    rule = (
        f"The {found[1]} of {call.title} has at most {most} dimension{'s' * (most != 1)}: {given.sized} has "
        f"{given.ndim}."
    )
    return mismatch("shape", rule, whole(given, f"{given.ndim}-D", f"{most}-D"))


def observations(call: Call, found: re.Match[str]) -> Mismatch | None:
    """cov(): one weight for each observation."""
    given = call.tensor(found[1])
    if given is None:
        return None
    rule = f"There is one of {found[1]} for each of the {found[3]} observations: {given.sized}."
    return mismatch("shape", rule, whole(given, found[2], found[3]))


# -- linear algebra ------------------------------------------------------------------------------------------------


def square(call: Call, found: re.Match[str]) -> Mismatch | None:
    """A must be batches of square matrices, but they are 3 by 4 matrices."""
    rows, columns = int(found[1]), int(found[2])
    given = next((one for one in call.tensors if one.shape[-2:] == (rows, columns)), None)
    if given is None:
        return None
    rule = f"The matrix must be square: {given.sized} is {rows} by {columns}."
    works = [f"torch.linalg.pinv({given.code})"] if call.function in {"inv", "inverse"} else []
    works += [f"{given.code} @ {given.code}.mT"] if call.function in {"cholesky", "eigh", "det", "eigvalsh"} else []
    return mismatch("shape", rule, size(given, -2, columns), size(given, -1, rows), works=works)


def right_side(call: Call, _: re.Match[str]) -> Mismatch | None:
    """Incompatible shapes of A and B for the equation AX = B."""
    matrix, right = ([*list(call.tensors), None, None])[:2]
    if matrix is None or right is None or not matrix.ndim or not right.ndim:
        return None
    at = -2 if right.ndim > 1 else -1
    rule = f"The matrix and the right side must have the same number of rows: {matrix.sized} and {right.sized}."
    return mismatch("shape", rule, size(right, at, matrix.shape[-2]), size(matrix, -2, right.shape[at]))


def three(call: Call, _: re.Match[str]) -> Mismatch | None:
    """Inputs dimension -1 must have length 3."""
    text = call.value("dim", 2)
    dim = int(text) if text.lstrip("-").isdigit() else -1
    wrong = [one for one in call.tensors if -one.ndim <= dim < one.ndim and one.shape[dim] != 3]
    if not wrong:
        return None
    rule = (
        f"A cross product is one of vectors with 3 components, along dimension {dim}: "
        f"{listed([one.sized for one in wrong])}."
    )
    return mismatch("shape", rule, *(size(one, dim, 3) for one in wrong))


def as_many_dimensions(call: Call, _: re.Match[str]) -> Mismatch | None:
    """Inputs must have the same number of dimensions."""
    left, right = ([*list(call.tensors), None, None])[:2]
    if left is None or right is None or left.ndim == right.ndim:
        return None
    rule = f"Both must have as many dimensions: {left.sized} has {left.ndim}, and {right.sized} {right.ndim}."
    return mismatch(
        "shape",
        rule,
        whole(left, f"{left.ndim}-D", f"{right.ndim}-D"),
        whole(right, f"{right.ndim}-D", f"{left.ndim}-D"),
    )


# -- images, windows, points ---------------------------------------------------------------------------------------


def same_shape_of_indices(call: Call, _: re.Match[str]) -> Mismatch | None:
    """max_unpool: indices of the shape of the input."""
    given, index = call.tensor("input|self", 0), call.tensor("indices", 1)
    if given is None or index is None or given.ndim != index.ndim:
        return None
    parts = [size(index, at, given.shape[at]) for at in range(given.ndim) if given.shape[at] != index.shape[at]]
    rule = f"There is one index for each element: {index.sized} against {given.sized}."
    return mismatch("shape", rule, *parts)


def grid_size(call: Call, found: re.Match[str]) -> Mismatch | None:
    """Expected grid to have size 2 in last dimension."""
    grid = call.tensor("grid", 1)
    if grid is None:
        return None
    rule = f"The last dimension of a grid is the {found[1]} coordinates: {grid.sized}."
    return mismatch("shape", rule, size(grid, -1, found[1]))


def grid_batch(call: Call, _: re.Match[str]) -> Mismatch | None:
    """Expected grid and input to have same batch size."""
    given, grid = call.tensor("input", 0), call.tensor("grid", 1)
    if given is None or grid is None:
        return None
    rule = f"Input and grid have one batch: {given.sized} and {grid.sized} differ in dimension 0."
    return mismatch("shape", rule, size(given, 0, grid.shape[0]), size(grid, 0, given.shape[0]))


def divisible(call: Call, found: re.Match[str]) -> Mismatch | None:
    """A dimension must be divisible by a number (pixel_shuffle, fold, glu)."""
    given = call.tensor(_FIRST, 0)
    if given is None:
        return None
    rule = (
        f"Dimension {int(found['at']) % given.ndim} of {given.sized} must be divisible by "
        f"{found['by'] or 'the window'}."
    )
    return mismatch("shape", rule, size(given, int(found["at"]), f"a multiple of {found['by']}" if found["by"] else ""))


def halved(call: Call, found: re.Match[str]) -> Mismatch | None:
    """Halving dimension must be even, but dimension 0 is size 3."""
    given = call.tensor(_FIRST, 0)
    if given is None:
        return None
    rule = f"Dimension {found[1]} of {given.sized} is cut in two halves, and must be even."
    return mismatch("shape", rule, size(given, int(found[1]), "an even number"))


def split_evenly(call: Call, found: re.Match[str]) -> Mismatch | None:
    """Hsplit and the like: the dimension must be divisible by the number of sections."""
    given = call.tensor(_FIRST, 0)
    if given is None:
        return None
    rule = f"Dimension {found[1]} of {given.sized} must be divisible into {found[2]} parts."
    return mismatch("argument" if found[2] == "0" else "shape", rule, size(given, int(found[1])))


def spatial(call: Call, found: re.Match[str]) -> Mismatch | None:
    """interpolate: as many sizes as spatial dimensions."""
    given = call.tensor(_FIRST, 0)
    if given is None:
        return None
    asked = len(numbers(found[1]))
    rule = (
        f"There is one output size for each spatial dimension: {given.sized} has {given.ndim - 2}, and {asked} are "
        "given."
    )
    return mismatch("shape", rule, whole(given, f"{given.ndim}-D", f"{asked + 2}-D"))


def long_enough(call: Call, _: re.Match[str]) -> Mismatch | None:
    """torch.gradient: each dimension must have edge_order + 1 elements."""
    given, order = call.tensor(_FIRST, 0), call.value("edge_order") or "1"
    if given is None or not order.isdigit():
        return None
    wrong = [at for at, each in enumerate(given.shape) if each < int(order) + 1]
    rule = f"Every dimension needs at least edge_order + 1 = {int(order) + 1} elements: {given.sized}."
    return mismatch("shape", rule, *(size(given, at, f"at least {int(order) + 1}") for at in wrong))


def empty_reduction(call: Call, _: re.Match[str]) -> Mismatch | None:
    """A maximum of nothing."""
    given = next((one for one in call.tensors if 0 in one.shape), None)
    if given is None:
        return None
    at = given.shape.index(0)
    rule = f"Nothing has no largest or smallest element: dimension {at} of {given.sized} is empty."
    return mismatch("shape", rule, size(given, at, "at least 1"))


def innermost(call: Call, _: re.Match[str]) -> Mismatch | None:
    """histogramdd: one number of bins for each column."""
    given = call.tensor(_FIRST, 0)
    bins = call.value("bins", 1)
    if given is None or not given.ndim:
        return None
    asked = len(numbers(bins))
    rule = f"There is one number of bins for each column: {asked} for {given.sized}."
    return mismatch("shape", rule, size(given, -1, asked))


def sample_points(call: Call, _: re.Match[str]) -> Mismatch | None:
    """trapezoid: one x for each y."""
    left, right = ([*list(call.tensors), None, None])[:2]
    if left is None or right is None or not left.ndim or not right.ndim:
        return None
    rule = f"There is one x for each y: {left.sized} and {right.sized}."
    return mismatch("shape", rule, size(left, -1, right.shape[-1]), size(right, -1, left.shape[-1]))


def wrong_weight(call: Call, _: re.Match[str]) -> Mismatch | None:
    """A K-dimensional loss: the input must have as many class dimensions as the weight says."""
    given = call.tensor("input", 0)
    if given is None:
        return None
    weight = call.tensor("linear_weight", 1)
    rule = (
        f"The input must have a batch before its features where the weight has more than two dimensions: {given.sized}."
    )
    parts = [whole(weight, f"{weight.ndim}-D")] if weight is not None else []
    return mismatch("shape", rule, whole(given, f"{given.ndim}-D", "2-D"), *parts)


def boundaries(call: Call, _: re.Match[str]) -> Mismatch | None:
    """searchsorted: one row of boundaries, or one for each row of values."""
    rows, values = call.tensor("sorted_sequence|boundaries", 0), call.tensor("input|self|values", 1)
    if rows is None or values is None:
        return None
    rule = (
        f"There is one row of boundaries, or one for each row of values: {rows.sized} and {values.sized} differ before "
        "the last dimension."
    )
    if rows.ndim != values.ndim:
        return mismatch("shape", rule, whole(rows, f"{rows.ndim}-D", f"{values.ndim}-D"))
    wrong = [at for at in range(rows.ndim - 1) if rows.shape[at] != values.shape[at]]
    parts = [part for at in wrong for part in (size(rows, at, values.shape[at]), size(values, at, rows.shape[at]))]
    return mismatch("shape", rule, *parts)


Check = Callable[[Call, re.Match[str]], Mismatch | None]


def _takes(*allowed: int, about: str = _FIRST, place: int = 0) -> Check:
    return partial(count, about=about, place=place, allowed=allowed)


MESSAGES: tuple[tuple[str, Check], ...] = (
    (r"Expected (\dD \(unbatched\) or \dD) \(batched\) input to conv", partial(count)),
    ((r"[Ee]xpected (\dD or \dD|\dD) (?:\(batch mode\) )?(?:input|tensor) ?(?:\(got \dD input\)"
     r"|with optional)"), partial(count)),
    (r"non-empty (\dD or \dD) \(batch mode\) tensor expected", partial(count)),
    (r"Expected (\dD or \dD) \(batch mode\) tensor", partial(count)),
    (r"Input dimension should be at least (\d)", at_least_said),
    (r"Expected at least (\d) dimensions for input", at_least_said),
    (r"requires a tensor with at least (\d) dimension", at_least_said),
    ((r"must have at least (\d) dimensions|needs at least (\d)"
     r" dimensions"), lambda call, found: at_least(call, found, least=2)),
    (r"Input must be >= (\d)-d", at_least_said),
    (r"expected total dims >= (\d)", at_least_said),
    (r"Only (\dD, \dD and \dD) input Tensors supported", partial(count)),
    (r"must be a (3)D tensor|batch\d must be a", _takes(3)),
    (r"(?:mat\d|self|input) must be a matrix", _takes(2)),
    (r"'weight' must be 2-D", _takes(2, about="weight", place=1)),
    (r"vec(?:tor)?\d? must be a vector", _takes(1, about="vec|vec2|other", place=1)),
    (r"Expected 1-D argument (?:self|vec2)|must be a one-dimensional tensor|Expect a 1D vector", _takes(1)),
    (r"boundaries tensor should be 1 dimension or", boundaries),
    (r"boundaries tensor must be 1 dimension", _takes(1, about="boundaries", place=1)),
    (r"Expected `weight` to be a scalar or 1D", _takes(0, 1, about="weight", place=1)),
    (r"Not allow zero-dim input tensor", partial(at_least, least=1)),
    (r"narrow\(\) cannot be applied to a 0-dim tensor", partial(at_least, least=1)),
    (r"expects a tensor with <= 2 dimensions", _takes(0, 1, 2)),
    (r"Supports 1D or 2D tensors", _takes(1, 2)),
    (r"expected a matrix, but got tensor with dim", _takes(2)),
    (r"mT is only supported on matrices", partial(at_least, least=2)),
    (r"prob_dist must be 1 or 2 dim", _takes(1, 2)),
    (r"only supports a 0-dimensional value tensor", _takes(0, about="value", place=2)),
    (r"only supports 0-dimensional start and end", _takes(0, about="start", place=0)),
    (r"start must be an 0-dim integral Tensor", _takes(0, about="start", place=2)),
    (r"expected input with dimensionality 1 or 2", _takes(1, 2)),
    ((r"expected linear_weight with dimensionality at least"
     r" 2"), partial(at_least, least=2, about="linear_weight", place=1)),
    (r"Expected 0D or 1D tensor in the tensor list", _takes(0, 1)),
    (r"Expected non-empty vector or matrix", _takes(1, 2)),
    (r"expected (\w+) to have (zero|one|two) or fewer dimensions", argument_count),
    ((r"expected (\w+) to have the same numel as there are observations in the input but got"
     r" (\d+) != (\d+)"), observations),
    (r"must be batches of square matrices, but they are (\d+) by (\d+)", square),
    ((r"Incompatible shapes of A and B|input\.size\(-2\) should match other\.size\(-2\)"
     r"|Incompatible matrix sizes for"), right_side),
    (r"inputs dimension -?\d+ must have length 3", three),
    (r"inputs must have the same number of dimensions", as_many_dimensions),
    (r"Expected shape of indices to be same as that of the input", same_shape_of_indices),
    (r"expected grid to have size (\d) in last dimension", grid_size),
    (r"expected grid and input to have same batch size", grid_batch),
    (r"input\.size\((?P<at>-?\d+)\)=\d+ is not divisible by (?P<by>\d+)", divisible),
    (r"input's dimension (?P<at>\d+) to be divisible by the product of kernel_size(?P<by>)", divisible),
    (r"Halving dimension must be even, but dimension (\d+)", halved),
    ((r"attempted to split along dimension (\d+), but the size of the dimension \d+ is not"
      r" divisible by the split_size (\d+)"),
     split_evenly),
    (r"output size of \((.*?)\)", spatial),
    (r"expected each dimension size to be at least edge_order\+1", long_enough),
    (r"over an empty dimension|to have non-zero size|to be specified for input\.numel\(\) == 0", empty_reduction),
    (r"size of bins must be equal to the innermost dimension", innermost),
    (r"one `x` value for each sample point", sample_points),
    (r"K-dimensional loss defined by linear_weight shape", wrong_weight),
)  # fmt: skip
