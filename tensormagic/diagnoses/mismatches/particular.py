"""Calls with a rule of their own about shapes: linear algebra, images, windows, points."""

from __future__ import annotations

import re

from tensormagic.diagnoses.mismatches.broadcasting import numbers
from tensormagic.diagnoses.mismatches.call import Call, mismatch, size, whole
from tensormagic.reports import Mismatch
from tensormagic.words import listed

_FIRST = "input|self|tensor|query"


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


def reflectors(call: Call, _: re.Match[str]) -> Mismatch | None:
    """ormqr: one factor in tau for each reflector in the input."""
    given, tau, other = ([*list(call.tensors), None, None, None])[:3]
    if given is None or tau is None or other is None or not tau.ndim or min(given.ndim, other.ndim) < 2:
        return None
    wanted = min(other.shape[-2], given.shape[-1])
    rule = f"There is one factor in tau for each reflector, {wanted} of them: {tau.sized}."
    return mismatch("shape", rule, size(tau, -1, wanted))


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


MESSAGES = (
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
    (r"tau\.shape\[-1\] must be equal to min", reflectors),
    (r"boundaries tensor should be 1 dimension or", boundaries),
)  # fmt: skip
