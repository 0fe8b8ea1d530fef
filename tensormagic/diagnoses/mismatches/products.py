"""Products of matrices and vectors: the inner dimensions must be equal, the batches too; and linear algebra."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from math import prod
from typing import Annotated

from tensormagic.diagnoses.mismatches.call import (
    Call,
    Given,
    Left,
    Messages,
    Right,
    Shape,
    against,
    dims,
    mismatch,
    needed,
    nth,
    operand,
    shaped,
    size,
    whole,
)
from tensormagic.diagnoses.mismatches.shapes import clashing
from tensormagic.reports import Mismatch
from tensormagic.words import listed

says = Messages()
LINEAR = frozenset({"linear", "linear_cross_entropy"})
_BATCHED_SUM = frozenset({"baddbmm", "addbmm"})


# -- linear layers -------------------------------------------------------------------------------------------------


@says(r"expected equal input and linear_weight last dimensions|expected linear_bias shape")
def linear(call: Call) -> Mismatch | None:
    """Explain a linear layer whose input has another last dimension than its weight."""
    given, weight = call.tensor("input", 0), call.tensor("weight|linear_weight", 1)
    if given is None or weight is None or not given.ndim or weight.ndim < 1 or given.shape[-1] == weight.shape[-1]:
        return _linear_bias(call, weight)
    takes = weight.shape[-1]
    rule = (
        f"The last dimension of {given.sized} is {given.shape[-1]}, but {call.owner or weight.sized} takes {takes} "
        "(in_features)."
    )
    return mismatch("shape", rule, *against(given, -1, weight), works=_ways_into(call, given, weight))


def _ways_into(call: Call, given: Given, weight: Given) -> Iterator[str]:
    takes, gives, shape = weight.shape[-1], weight.shape[0], given.shape
    for first in range(1, given.ndim - 1):
        if prod(shape[first:]) == takes:
            yield f"{given.code}.flatten({first})"
    if given.ndim == 2 and shape[0] == takes:
        yield f"{given.code}.T"
    elif given.ndim > 2 and takes in shape:
        yield f"{given.code}.transpose({shape.index(takes)}, -1)"
    if call.function == "linear" and weight.ndim == 2:
        yield f"nn.Linear({shape[-1]}, {gives})"


def _linear_bias(call: Call, weight: Given | None) -> Mismatch | None:
    bias = call.tensor("bias|linear_bias", 2)
    if bias is None or weight is None or not weight.ndim or bias.shape[-1:] in {weight.shape[:1], (1,)}:
        return None
    rule = f"The bias has one element for each output: {bias.sized} against the {weight.shape[0]} of {weight.sized}."
    return mismatch("shape", rule, shaped(bias, weight.shape[0]))


# -- products ------------------------------------------------------------------------------------------------------


@says(r"mat1 and mat2 shapes cannot be multiplied \(\d+x(\d+) and (\d+)x\d+\)")
def _inner_sizes(call: Call, columns: int, rows: int) -> Mismatch | None:
    return linear(call) if call.function in LINEAR else product(call, (columns, rows))


@says(
    r"size mismatch, got input \(\d+\), mat \(\d+x\d+\), vec \(\d+\)"
    r"|inconsistent tensor size, expected tensor \[\d+\] and src"
)
def _vector_sizes(call: Call) -> Mismatch | None:
    return product(call)


def product(call: Call, inner: tuple[int, int] | None = None) -> Mismatch | None:
    """Explain a product of two operands whose inner dimensions differ; ``inner`` are the two that torch named."""
    pairs = [pair for pair in _factors(call) if inner in {None, (pair[0].shape[-1], _rows(pair[1]))}]
    if not pairs:
        return None
    left, other = pairs[0]
    end = "the next-to-last dimension" if other.ndim > 2 else "the first dimension"
    rule = (
        f"The last dimension of {left.sized} is {left.shape[-1]}, but {end} of {other.sized} is {_rows(other)}; in a "
        "product these two must be equal."
    )
    parts = size(left, -1, _rows(other)), size(other, max(other.ndim - 2, 0), left.shape[-1])
    return mismatch("shape", rule, *parts, works=_products(left, other))


def _rows(given: Given) -> int:
    return given.shape[-2] if given.ndim > 1 else given.shape[0]


def _factors(call: Call) -> Iterator[tuple[Given, Given]]:
    """Yield neighbouring tensors whose inner dimensions differ, those that the function multiplies first."""
    tensors = [one for one in call.tensors if one.ndim]
    if call.function in {"addmm", "addmv", "sspaddmm", *_BATCHED_SUM} and len(tensors) > 2:
        tensors = tensors[1:]
    return ((left, right) for left, right in itertools.pairwise(tensors) if left.shape[-1] != _rows(right))


def _products(left: Given, right: Given) -> Iterator[str]:
    """Yield products of the two that exist; tried out on the shapes."""
    one, two = left.shape, right.shape
    if len(two) > 1 and one[-1] == two[-1]:
        yield f"{left.code} @ {right.code}.{'T' if len(two) == 2 else 'mT'}"
    if len(one) > 1 and one[-2] == _rows(right):
        yield f"{left.code}.{'T' if len(one) == 2 else 'mT'} @ {right.code}"
    if two[-1] == _rows(left) and len(two) > 1:
        yield f"{right.code} @ {left.code}"


@says(r"1D tensors expected, but got")
def _vectors_expected(call: Call) -> Mismatch:
    wrong = call.every(lambda one: one.ndim != 1)
    rule = f"A dot product takes two tensors of one dimension, and {wrong[0].sized} has {wrong[0].ndim}."
    pairs = itertools.pairwise(call.tensors)
    fit = ((one, two) for one, two in pairs if one.ndim > 1 and two.ndim and one.shape[-1] == _rows(two))
    ways = [f"{wrong[0].code}.flatten()", *(f"{left.code} @ {right.code}" for left, right in fit)]
    return mismatch("shape", rule, *(dims(one, 1) for one in wrong), works=ways)


@says(r"Expected size for first two dimensions of batch2 tensor to be: \[(.*?)\] but got: \[(.*?)\]")
def _batch_of_matrices(call: Call, wanted: Shape, got: Shape) -> Mismatch | None:
    if call.function == "scaled_dot_product_attention":
        return _attention(call)
    first = 1 if call.function in _BATCHED_SUM else 0
    left, right = call.tensor("input|self|batch1", first), call.tensor("mat2|batch2", first + 1)
    if right is None or left is None or right.shape[:2] != got or left.ndim != 3:
        return product(call, (wanted[1], got[1])) if len(call.tensors) > 1 else None
    if wanted[1] != got[1]:
        return product(call, (wanted[1], got[1]))
    rule = (
        f"The number of matrices must be the same: {left.sized} has {left.shape[0]} and {right.sized} {right.shape[0]}."
    )
    works = [] if clashing(left.shape[:-2], right.shape[:-2]) else [f"{left.code} @ {right.code}"]
    return mismatch("shape", rule, size(left, 0, got[0]), size(right, 0, wanted[0]), works=works)


def _attention(call: Call) -> Mismatch | None:
    """Explain queries, keys and values that do not belong together."""
    query, key, value = (call.tensor(name, at) for at, name in enumerate(("query", "key", "value")))
    if query is None or key is None or value is None:
        return None
    if query.shape[-1] != key.shape[-1]:
        rule = f"The last dimension of the query and of the key must be equal: {query.sized} and {key.sized}."
        return mismatch("shape", rule, *against(query, -1, key))
    if key.shape[-2:-1] != value.shape[-2:-1]:
        rule = f"There must be one value for each key: {key.sized} and {value.sized}."
        return mismatch("shape", rule, *against(key, -2, value))
    return None


@says(
    r"einsum\(\): subscript (\w) has size (\d+) for operand (\d+) which does not broadcast with previously seen size "
    r"(\d+)"
)
def _subscripts(call: Call, letter: str, got: int, number: int, seen: int) -> Mismatch | None:
    terms = call.value("equation", 0).strip("'\"").replace(" ", "").split("->", 1)[0].split(",")
    if number >= len(call.tensors) or len(terms) != len(call.tensors):
        return None
    parts = []
    for term, given in zip(terms, call.tensors, strict=True):
        if letter in term and "." not in term and len(term) == given.ndim:
            at = term.index(letter)
            if given.shape[at] in {got, seen}:
                parts.append(size(given, at, seen if given.shape[at] == got else got))
    names = " and ".join(one.sized for one in call.tensors)
    rule = f"The letter {letter} of the equation must have one size everywhere: it has {seen} and {got} in {names}."
    return mismatch("shape", rule, *parts)


@says(r"einsum\(\): the number of subscripts in the equation \((\d+)\) .*dimensions \(\d+\) for operand (\d+)")
def _subscript_count(call: Call, letters: str, number: int) -> Mismatch:
    given = call.tensors[number]
    rule = f"An operand needs one letter for each dimension: {letters} letters stand for {given.sized}."
    return mismatch("shape", rule, dims(given, letters))


@says(r"X1 and X2 must have the same number of columns\. X1: (\d+) X2: (\d+)", first=-1, second=-1)
@says(r"first has size (?P<one>\d+) in dim (?P<first>-?\d+) and second has size (?P<two>\d+) in dim (?P<second>-?\d+)")
def _contracted(call: Call, one: int, first: int, two: int, second: int) -> Mismatch:
    """Explain tensordot and cdist: a dimension of the one against a dimension of the other."""
    left, right = call.tensors[0], call.tensors[1]
    rule = f"The dimensions that are summed over must be equal: {one} of {left.sized} against {two} of {right.sized}."
    return mismatch("shape", rule, size(left, first, two), size(right, second, one))


@says(r"bilinear\(\): input(\d) size does not match weight size: got (\d+) but expected (\d+)")
def _bilinear(call: Call, weight: Annotated[Given, operand("weight", 2)], at: int, got: str, wanted: str) -> Mismatch:
    given = needed(call.tensor(f"input{at}", at - 1))
    rule = f"The last dimension of {given.sized} must be dimension {at} of {weight.sized}."
    return mismatch("shape", rule, size(given, -1, wanted), size(weight, at, got))


@says(r"tensors (\d+) and \d+ with shapes .* cannot be multiplied")
def _chain(call: Call, at: int) -> Mismatch:
    left, right = call.tensors[at], call.tensors[at + 1]
    rule = f"The last dimension of {left.sized} must be the first of {right.sized}."
    return mismatch("shape", rule, *against(left, -1, right, 0))


@says(r"both arguments to matmul need to be at least 1D")
def _no_number(call: Call) -> Mismatch:
    wrong = call.first(lambda one: not one.ndim)
    others = [one.code for one in call.tensors if one is not wrong]
    rule = f"The operator @ takes vectors and matrices, and {wrong.sized} is neither; a number is multiplied with *."
    return mismatch("shape", rule, dims(wrong, 1), works=[f"{others[0]} * {wrong.code}"] if others else [])


# -- linear algebra ------------------------------------------------------------------------------------------------


@says(r"must be batches of square matrices, but they are (\d+) by (\d+)")
def _square(call: Call, rows: int, columns: int) -> Mismatch:
    given = call.first(lambda one: one.shape[-2:] == (rows, columns))
    works = [f"torch.linalg.pinv({given.code})"] if call.function in {"inv", "inverse"} else []
    works += [f"{given.code} @ {given.code}.mT"] if call.function in {"cholesky", "eigh", "det", "eigvalsh"} else []
    rule = f"The matrix must be square: {given.sized} is {rows} by {columns}."
    return mismatch("shape", rule, size(given, -2, columns), size(given, -1, rows), works=works)


@says(r"Incompatible shapes of A and B|input\.size\(-2\) should match other\.size\(-2\)|Incompatible matrix sizes for")
def _right_side(matrix: Left, right: Right) -> Mismatch:
    rule = f"The matrix and the right side must have the same number of rows: {matrix.sized} and {right.sized}."
    return mismatch("shape", rule, *against(right, -2 if right.ndim > 1 else -1, matrix, -2))


@says(r"inputs dimension -?\d+ must have length 3")
def _cross(call: Call) -> Mismatch:
    text = call.value("dim", 2)
    dim = int(text) if text.lstrip("-").isdigit() else -1
    wrong = call.every(lambda one: -one.ndim <= dim < one.ndim and one.shape[dim] != 3)
    rule = (
        f"A cross product needs vectors with 3 components, along dimension {dim}: "
        f"{listed([one.sized for one in wrong])}."
    )
    return mismatch("shape", rule, *(size(one, dim, 3) for one in wrong))


@says(r"inputs must have the same number of dimensions")
def _as_many_dimensions(left: Left, right: Right) -> Mismatch | None:
    rule = f"Both must have as many dimensions: {left.sized} has {left.ndim}, and {right.sized} {right.ndim}."
    parts = dims(left, right.ndim), dims(right, left.ndim)
    return mismatch("shape", rule, *parts) if left.ndim != right.ndim else None


@says(r"tau\.shape\[-1\] must be equal to min")
def _reflectors(given: Left, tau: Right, other: Annotated[Given, nth(2)]) -> Mismatch | None:
    if min(given.ndim, other.ndim) < 2:
        return None
    wanted = min(other.shape[-2], given.shape[-1])
    rule = f"There must be one factor in tau for each reflector, {wanted} of them: {tau.sized}."
    return mismatch("shape", rule, size(tau, -1, wanted))


@says(r"the input matrix is singular|matrix is singular")
def _not_invertible(given: Annotated[Given, operand("input|self|A", 0)]) -> Mismatch:
    rule = f"Only a matrix of full rank has an inverse, and {given.sized} is singular: its rows depend on one another."
    return mismatch("argument", rule, whole(given), works=[f"torch.linalg.pinv({given.code})"])


@says(r"not positive-definite")
def _not_definite(given: Annotated[Given, operand("input|self|A", 0)]) -> Mismatch:
    rule = f"A Cholesky factor exists where all eigenvalues are positive, and {given.sized} has one that is not."
    jitter = f"torch.linalg.cholesky({given.code} + 1e-6 * torch.eye({given.shape[-1]}))" if given.ndim else ""
    return mismatch("argument", rule, whole(given), works=[jitter])
