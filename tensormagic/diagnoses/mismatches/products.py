"""Losses, and products of matrices and vectors: what the operands must look like for each other."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from math import prod
from typing import Annotated

from tensormagic.diagnoses.mismatches.call import (
    Call,
    Given,
    Input,
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
    sizes,
    unlike,
    whole,
)
from tensormagic.diagnoses.mismatches.dtypes import converted, floating
from tensormagic.diagnoses.mismatches.shapes import clashing
from tensormagic.reports import Mismatch
from tensormagic.words import listed

says = Messages()

# Losses: what the target must look like for the input that it is compared with.


def _target(call: Call) -> Given | None:
    return call.tensor("target", 2) if call.function == "linear_cross_entropy" else call.tensor("target|targets", 1)


Compared = Annotated[Given, operand("input|self|log_probs", 0)]
Target = Annotated[Given, _target]
ClassWeight = Annotated[Given, operand("weight", 2)]


def _classes(given: Given) -> int:
    return given.shape[1] if given.ndim > 1 else given.shape[0] if given.ndim else 1


def _as_indices(given: Given) -> Shape:
    """Return the shape of a target of class indices: that of the input without its class dimension."""
    return given.shape[:1] + given.shape[2:] if given.ndim > 1 else ()


def _must_have(target: Given, wanted: Shape, rule: str, *works: str) -> Mismatch:
    parts = [shaped(target, sizes(wanted))]
    if target.ndim == len(wanted):
        parts = [size(target, at, wanted[at]) for at in range(len(wanted)) if target.shape[at] != wanted[at]]
    return mismatch("shape", rule, *parts, works=works)


@says(r"expected target dtype to be Long or Byte")
def _target_must_be_classes(given: Compared, target: Target) -> Mismatch:
    rule = f"A target with one class for each sample holds whole numbers, int64: {target.name} is {target.dtype}."
    works = [converted(target, "int64")]
    if _classes(given) == 1:
        works = [f"F.binary_cross_entropy_with_logits({given.code}.squeeze(1), {target.code})"]
    return mismatch("dtype", rule, whole(target, target.dtype, "int64"), works=works)


@says(r"Expected floating point type for target with class probabilities")
def _target_probabilities(given: Compared, target: Target) -> Mismatch:
    rule = (
        f"A target of the shape of the input ({sizes(target.shape)}) holds probabilities, which are floating point: "
        f"{target.name} is {target.dtype}; labels as class indices have the shape "
        f"{sizes(_as_indices(given)) if given.ndim > 1 else 'of one number'}."
    )
    works = [f"{target.code}.argmax({1 if target.ndim > 1 else 0})", converted(target, given.dtype)]
    return mismatch("dtype", rule, whole(target, target.dtype, given.dtype), works=works)


@says(r"Expected input batch_size \((\d+)\) to match target batch_size \((\d+)\)")
def _batches_differ(given: Compared, target: Target, samples: str, targets: str) -> Mismatch:
    rule = (
        f"There must be one target for each sample: {given.sized} has {samples} in dimension 0, and {target.sized} has "
        f"{targets}."
    )
    works = []
    if target.ndim == 1 and given.ndim == 3 and given.shape[0] * given.shape[1] == target.shape[0]:
        works.append(f"{given.code}.flatten(0, 1)")
    if target.ndim == 2 and given.ndim == 2 and target.shape[0] * target.shape[1] == given.shape[0]:
        works.append(f"{target.code}.flatten()")
    return mismatch("shape", rule, size(given, 0, targets), size(target, 0, samples), works=works)


@says(r"multi_margin_loss: target tensor should be 1-D|inconsistent target size")
def _target_dimensions(call: Call, given: Compared, target: Target) -> Mismatch:
    wanted = given.shape if call.function == "multilabel_margin_loss" else given.shape[:1]
    rule = f"For {given.sized}, the target has the shape {sizes(wanted)}: {target.sized}."
    return _must_have(target, wanted, rule)


@says(
    r"target tensor expected, multi-target|size mismatch \(got input: |Expected target size \["
    r"|only batches of spatial targets supported"
)
def _target_shape(given: Compared, target: Target) -> Mismatch | None:
    wanted = _as_indices(given)
    if not given.ndim or target.shape == wanted:
        return None
    rule = (
        f"For {given.sized}, whose dimension {min(given.ndim - 1, 1)} is the {_classes(given)} classes, the target "
        f"has the shape {sizes(wanted)} (class indices); {target.sized} has not."
    )
    ones = [at for at in range(1, target.ndim) if target.shape[at] == 1]
    ways = [f"{target.code}.squeeze({at})" for at in ones if target.shape[:at] + target.shape[at + 1 :] == wanted]
    if given.ndim == 3 and target.shape == given.shape[:2]:
        ways.append(f"{given.code}.transpose(1, 2)")
    if target.ndim == 2 and given.ndim == 2 and floating(target.dtype):
        ways.append(f"{target.code}.argmax(1)")
    return _must_have(target, wanted, rule, *ways)


@says(r"Target (-?\d+) is out of bounds")
def _target_class(given: Compared, target: Target, got: int) -> Mismatch:
    classes, at = _classes(given), min(1, given.ndim - 1)
    rule = f"The classes of {given.sized} are 0 to {classes - 1} (dimension {at}), and {target.name} holds {got}."
    works = [f"{target.code} - 1"] if got == classes else []
    works += ["ignore_index=-1  # where -1 means that there is no class"] if got == -1 else []
    if got >= classes and given.ndim == 2:
        works.append(f"nn.Linear(…, {max(got, int(target.operand.most or 0)) + 1})  # one output for each class")
    parts = [whole(target, got, f"0 to {classes - 1}")] + ([size(given, at, f"more than {got}")] if got >= 0 else [])
    return mismatch("index", rule, *parts, works=works)


@says(r"Class values must be smaller than num_classes")
def _one_hot_classes(call: Call, given: Annotated[Given, operand("input|self|tensor", 0)]) -> Mismatch:
    count = call.value("num_classes", 1)
    rule = f"Every class in {given.name} must be smaller than num_classes{f', {count}' if count else ''}."
    return mismatch("index", rule, whole(given), works=[f"F.one_hot({given.code}, {given.code}.max() + 1)"])


@says(
    r"weight tensor should be defined either for all (\d+) classes",
    r"expected weight shape to be \((\d+),\), got \(\d+,\)",
)
def _class_weights(weight: ClassWeight, classes: str) -> Mismatch:
    return mismatch(
        "shape", f"There must be one weight for each of the {classes} classes: {weight.sized}.", shaped(weight, classes)
    )


@says(r"inconsistent weight size|weight must be one-dimensional")
def _class_weight_size(weight: ClassWeight, given: Input) -> Mismatch:
    return _class_weights(weight, str(_classes(given)))


@says(r"that is different to the input size|input and target shapes do not match|must be the same as input size")
def _same_shape(given: Compared, target: Target) -> Mismatch:
    rule = f"The target has the shape of the input: {given.sized} and {target.sized}."
    parts = [shaped(given, sizes(target.shape)), shaped(target, sizes(given.shape))]
    if given.ndim == target.ndim:
        parts = [part for at in unlike(given, target) for part in against(given, at, target)]
    ways = []
    if given.shape == (*target.shape, 1):
        ways += [f"{given.code}.squeeze({target.ndim})", f"{target.code}.unsqueeze({target.ndim})"]
    elif target.shape == (*given.shape, 1):
        ways += [f"{target.code}.squeeze({given.ndim})"]
    elif given.ndim == 2 and given.shape[0] == (target.shape or (0,))[0] and target.ndim == 1:
        ways += [f"F.one_hot({target.code}.long(), {given.shape[1]}).float()"]
    return mismatch("shape", rule, *parts, works=ways)


@says(r"The size of tensor a \(\d+\) must match the size of tensor b")
def _similar_or_not(
    call: Call, first: Annotated[Given, operand("input1", 0)], target: Annotated[Given, operand("target", 2)]
) -> Mismatch | None:
    """Explain cosine_embedding_loss: one target for each pair, whatever torch says of the sizes it came across."""
    wanted = first.shape[:-1]
    where = clashing(target.shape, wanted)
    if call.function != "cosine_embedding_loss" or not where:
        return None
    rule = (
        f"There must be one target, 1 or -1, for each pair of {first.sized}, {sizes(wanted)} of them: {target.sized}."
    )
    return mismatch("shape", rule, *(size(target, at, wanted[at]) for at in where))


@says(r"All input tensors should have same dimension|expected to have the same number of dimensions, but got: anchor")
def _equal_dimensions(call: Call) -> Mismatch | None:
    counts = [one.ndim for one in call.tensors]
    if len(set(counts)) < 2:
        return None
    usual = max(counts, key=counts.count)
    wrong, right = call.every(lambda one: one.ndim != usual), call.first(lambda one: one.ndim == usual)
    rule = (
        f"All must have the same number of dimensions: {right.sized} has {usual}, and {wrong[0].sized} {wrong[0].ndim}."
    )
    return mismatch("shape", rule, *(dims(one, usual) for one in wrong))


@says(r"all elements of (input|target) should be between 0 and 1")
def _probabilities(given: Compared, target: Target, which: str) -> Mismatch:
    wrong = target if which == "target" else given
    rule = f"A binary cross-entropy takes probabilities: all of {wrong.name} must lie between 0 and 1."
    logits = f"F.binary_cross_entropy_with_logits({given.code}, {target.code})"
    return mismatch("argument", rule, whole(wrong, "", "0 to 1"), works=[logits] if wrong is given else [])


@says(r"(target_lengths|input_lengths) must be of size batch_size")
def _batch_lengths(call: Call, given: Annotated[Given, operand("log_probs", 0)], which: str) -> Mismatch | None:
    lengths = call.tensor(which) or call.tensor("", {"input_lengths": 2, "target_lengths": 3}[which])
    if lengths is None or given.ndim < 2:
        return None
    rule = f"There must be one length for each sample, {given.shape[1]} of them: {lengths.sized}."
    return mismatch("shape", rule, shaped(lengths, given.shape[1]))


@says(r"var is of incorrect size")
def _variance(variance: Annotated[Given, operand("var", 2)], given: Input) -> Mismatch:
    rule = f"The variance has the shape of the input, or a last dimension of 1: {variance.sized} against {given.sized}."
    parts = [size(variance, at, given.shape[at]) for at in clashing(variance.shape, given.shape)]
    return mismatch("shape", rule, *(parts or [shaped(variance, sizes(given.shape))]))


# Products: the inner dimensions must be equal, the batches too; and linear algebra.

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
