"""Products of matrices and vectors: the inner dimensions must be equal, the batches too."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

from tensormagic.diagnoses.mismatches.broadcasting import clashing, numbers
from tensormagic.diagnoses.mismatches.call import Call, Given, mismatch, size, sizes, whole
from tensormagic.reports import Mismatch

LINEAR = frozenset({"linear", "linear_cross_entropy"})


def linear(call: Call) -> Mismatch | None:
    """Explain a linear layer whose input has another last dimension than its weight."""
    given, weight = call.tensor("input", 0), call.tensor("weight|linear_weight", 1)
    if given is None or weight is None or not given.ndim or weight.ndim < 1 or given.shape[-1] == weight.shape[-1]:
        return _linear_bias(call, weight)
    takes = weight.shape[-1]
    owner = f"{call.owner} takes" if call.owner else f"{weight.sized} takes"
    rule = f"The last dimension of {given.sized} is {given.shape[-1]}, but {owner} {takes} (in_features)."
    ways = _ways_into(call, given, weight)
    return mismatch("shape", rule, size(given, -1, takes), size(weight, -1, given.shape[-1]), works=list(ways))


def _ways_into(call: Call, given: Given, weight: Given) -> Iterator[str]:
    takes, gives, shape = weight.shape[-1], weight.shape[0], given.shape
    for first in range(1, given.ndim - 1):
        count = 1
        for each in shape[first:]:
            count *= each
        if count == takes:
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
    return mismatch("shape", rule, whole(bias, sizes(bias.shape), weight.shape[0]))


def inner_sizes(call: Call, found: re.Match[str]) -> Mismatch | None:
    """mat1 and mat2 shapes cannot be multiplied (32x784 and 128x10)."""
    if call.function in LINEAR:
        return linear(call)
    return product(call, (int(found[1]), int(found[2])))


def product(call: Call, inner: tuple[int, int] | None = None) -> Mismatch | None:
    """Explain a product of two operands whose inner dimensions differ; ``inner`` are the two that torch named."""
    pairs = list(_factors(call))
    right = [pair for pair in pairs if inner in {None, (pair[0].shape[-1], _rows(pair[1]))}]
    if not right:
        return None
    left, other = right[0]
    rule = (
        f"The last dimension of {left.sized} is {left.shape[-1]}, but {_end(other)} of {other.sized} is "
        f"{_rows(other)}; in a product the two must be equal."
    )
    parts = size(left, -1, _rows(other)), size(other, max(other.ndim - 2, 0), left.shape[-1])
    return mismatch("shape", rule, *parts, works=list(_products(left, other)))


def _end(given: Given) -> str:
    return "the next-to-last dimension" if given.ndim > 2 else "the first dimension"


def _rows(given: Given) -> int:
    return given.shape[-2] if given.ndim > 1 else given.shape[0]


def _factors(call: Call) -> Iterator[tuple[Given, Given]]:
    """Yield neighbouring tensors whose inner dimensions differ, those that the function multiplies first."""
    tensors = [one for one in call.tensors if one.ndim]
    if call.function in {"addmm", "addmv", "baddbmm", "addbmm", "sspaddmm"} and len(tensors) > 2:
        tensors = tensors[1:]
    for left, right in itertools.pairwise(tensors):
        if left.shape[-1] != _rows(right):
            yield left, right


def _products(left: Given, right: Given) -> Iterator[str]:
    """Yield products of the two that exist; tried out on the shapes."""
    one, two = left.shape, right.shape
    if len(two) > 1 and one[-1] == two[-1]:
        yield f"{left.code} @ {right.code}.{'T' if len(two) == 2 else 'mT'}"
    if len(one) > 1 and one[-2] == _rows(right):
        yield f"{left.code}.{'T' if len(one) == 2 else 'mT'} @ {right.code}"
    if two[-1] == _rows(left) and len(two) > 1:
        yield f"{right.code} @ {left.code}"


def vector_sizes(call: Call, _: re.Match[str]) -> Mismatch | None:
    """Inconsistent tensor size, and size mismatch of a matrix and a vector."""
    return product(call)


def vectors_expected(call: Call, _: re.Match[str]) -> Mismatch | None:
    """1D tensors expected: a dot product takes two vectors."""
    wrong = [one for one in call.tensors if one.ndim != 1]
    if not wrong:
        return None
    first = wrong[0]
    rule = f"A dot product takes two tensors of one dimension, and {first.sized} has {first.ndim}."
    parts = [whole(one, f"{one.ndim}-D", "1-D") for one in wrong]
    ways = [f"{first.code}.flatten()"] + [f"{left.code} @ {right.code}" for left, right in _multipliable(call)]
    return mismatch("shape", rule, *parts, works=ways)


def _multipliable(call: Call) -> list[tuple[Given, Given]]:
    pairs = zip(call.tensors, call.tensors[1:], strict=False)
    return [(left, right) for left, right in pairs if left.ndim > 1 and right.ndim and left.shape[-1] == _rows(right)]


def batch_of_matrices(call: Call, found: re.Match[str]) -> Mismatch | None:
    """Expected size for first two dimensions of batch2 tensor to be: [2, 4] but got: [3, 4]."""
    if call.function == "scaled_dot_product_attention":
        return attention(call)
    wanted, got = numbers(found[1]), numbers(found[2])
    right = call.tensor("mat2|batch2", 2 if call.function in {"baddbmm", "addbmm"} else 1)
    left = call.tensor("input|self|batch1", 1 if call.function in {"baddbmm", "addbmm"} else 0)
    if right is None or left is None or right.shape[:2] != got or left.ndim != 3:
        return product(call, (wanted[1], got[1])) if len(call.tensors) > 1 else None
    if wanted[1] != got[1]:
        return product(call, (wanted[1], got[1]))
    rule = (
        f"The number of matrices must be the same: {left.sized} has {left.shape[0]} and {right.sized} {right.shape[0]}."
    )
    return mismatch("shape", rule, size(left, 0, got[0]), size(right, 0, wanted[0]), works=_matmul(left, right))


def _matmul(left: Given, right: Given) -> list[str]:
    return [] if clashing(left.shape[:-2], right.shape[:-2]) else [f"{left.code} @ {right.code}"]


def attention(call: Call) -> Mismatch | None:
    """Explain queries, keys and values that do not belong together."""
    names = ("query", "key", "value")
    found = [call.tensor(name, at) for at, name in enumerate(names)]
    query, key, value = found
    if query is None or key is None or value is None:
        return None
    if query.shape[-1] != key.shape[-1]:
        rule = f"The last dimension of the query and of the key must be equal: {query.sized} and {key.sized}."
        return mismatch("shape", rule, size(query, -1, key.shape[-1]), size(key, -1, query.shape[-1]))
    if key.shape[-2:-1] != value.shape[-2:-1]:
        rule = f"There must be one value for each key: {key.sized} and {value.sized}."
        return mismatch("shape", rule, size(key, -2, value.shape[-2]), size(value, -2, key.shape[-2]))
    return None


def subscripts(call: Call, found: re.Match[str]) -> Mismatch | None:
    """einsum: a letter must have one size, wherever it stands."""
    letter, got, number, seen = found[1], int(found[2]), int(found[3]), int(found[4])
    terms = _terms(call)
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


def _terms(call: Call) -> list[str]:
    text = call.value("equation", 0).strip("'\"").replace(" ", "")
    return text.split("->", 1)[0].split(",")


def subscript_count(call: Call, found: re.Match[str]) -> Mismatch | None:
    """einsum: an operand needs as many letters as it has dimensions."""
    number = int(found[3])
    if number >= len(call.tensors):
        return None
    given = call.tensors[number]
    rule = f"An operand needs one letter for each dimension: {found[1]} letters stand for {given.sized}."
    return mismatch("shape", rule, whole(given, f"{given.ndim}-D", f"{found[1]}-D"))


def contracted(call: Call, found: re.Match[str]) -> Mismatch | None:
    """Tensordot and cdist: a dimension of the one against a dimension of the other."""
    left, right = ([*list(call.tensors), None, None])[:2]
    if left is None or right is None:
        return None
    sizes_ = (int(found[1]), int(found[3])) if found.re.groups == 4 else (int(found[1]), int(found[2]))
    ends = (int(found[2]), int(found[4])) if found.re.groups == 4 else (-1, -1)
    rule = (
        f"The dimensions that are summed over must be equal: {sizes_[0]} of {left.sized} against {sizes_[1]} of "
        f"{right.sized}."
    )
    return mismatch("shape", rule, size(left, ends[0], sizes_[1]), size(right, ends[1], sizes_[0]))


def bilinear(call: Call, found: re.Match[str]) -> Mismatch | None:
    """bilinear: each input has a dimension of the weight."""
    at = int(found[1])
    given, weight = call.tensor(f"input{at}", at - 1), call.tensor("weight", 2)
    if given is None or weight is None:
        return None
    rule = f"The last dimension of {given.sized} must be dimension {at} of {weight.sized}."
    return mismatch("shape", rule, size(given, -1, found[3]), size(weight, at, found[2]))


def chain(call: Call, found: re.Match[str]) -> Mismatch | None:
    """multi_dot: each matrix with the next."""
    at = int(found[1])
    if at + 1 >= len(call.tensors):
        return None
    left, right = call.tensors[at], call.tensors[at + 1]
    rule = f"The last dimension of {left.sized} must be the first of {right.sized}."
    return mismatch("shape", rule, size(left, -1, right.shape[0]), size(right, 0, left.shape[-1]))


def no_number(call: Call, _: re.Match[str]) -> Mismatch | None:
    """A product with a 0-dimensional tensor."""
    wrong = next((one for one in call.tensors if not one.ndim), None)
    if wrong is None:
        return None
    others = [one.code for one in call.tensors if one is not wrong]
    rule = f"The operator @ takes vectors and matrices, and {wrong.sized} is neither; a number is multiplied with *."
    return mismatch("shape", rule, whole(wrong, "0-D", "1-D"), works=[f"{others[0]} * {wrong.code}"] if others else [])


MESSAGES = (
    (r"mat1 and mat2 shapes cannot be multiplied \(\d+x(\d+) and (\d+)x\d+\)", inner_sizes),
    (r"size mismatch, got input \(\d+\), mat \(\d+x\d+\), vec \(\d+\)", vector_sizes),
    (r"inconsistent tensor size, expected tensor \[\d+\] and src", vector_sizes),
    (r"1D tensors expected, but got", vectors_expected),
    (r"Expected size for first two dimensions of batch2 tensor to be: \[(.*?)\] but got: \[(.*?)\]", batch_of_matrices),
    ((r"einsum\(\): subscript (\w) has size (\d+) for operand (\d+) which does not broadcast"
      r" with previously seen size (\d+)"),
     subscripts),
    (r"einsum\(\): the number of subscripts in the equation \((\d+)\) .*dimensions \((\d+)\) for operand (\d+)",
     subscript_count),
    (r"first has size (\d+) in dim (-?\d+) and second has size (\d+) in dim (-?\d+)", contracted),
    (r"X1 and X2 must have the same number of columns\. X1: (\d+) X2: (\d+)", contracted),
    (r"bilinear\(\): input(\d) size does not match weight size: got (\d+) but expected (\d+)", bilinear),
    (r"tensors (\d+) and \d+ with shapes .* cannot be multiplied", chain),
    (r"both arguments to matmul need to be at least 1D", no_number),
    (r"expected equal input and linear_weight last dimensions", lambda call, _: linear(call)),
    (r"expected linear_bias shape", lambda call, _: linear(call)),
)  # fmt: skip
