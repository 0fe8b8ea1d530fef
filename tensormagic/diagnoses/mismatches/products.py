"""Losses, and products of matrices and vectors: what the operands must look like for each other."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from math import prod

from tensormagic.diagnoses.lines import as_code
from tensormagic.diagnoses.mismatches.call import Call, Given, Shape, clashing, mismatch, needed, sizes
from tensormagic.diagnoses.mismatches.table import Messages
from tensormagic.reports import Mismatch

says = Messages(globals())

says.table(r"""
# -- losses: what the target must look like for the input that it is compared with

all elements of (?P<which>input|target) should be between 0 and 1
    with wrong: compared if which == "input" else target
    argument: A binary cross-entropy takes probabilities: all of {wrong.name} must lie between 0 and 1.
    parts: wrong must be 0 to 1
    try: F.binary_cross_entropy_with_logits({wrong.code}, {target.code}) when which == "input"

weight tensor should be defined either for all {classes} classes
expected weight shape to be \({classes},\), got \(\d+,\)
inconsistent weight size|weight must be one-dimensional
    shape: There must be one weight for each of the {classes} classes: {class_weight}.
    parts: class_weight.shape must be {classes}

Expected input batch_size \({samples}\) to match target batch_size \({targets}\)
    shape: There must be one target for each sample: {compared} has {samples} in dimension 0, and {target} has
        {targets}.
    parts: compared[0] must be {targets}; target[0] must be {samples}
    try: {compared.code}.flatten(0, 1) when compared.ndim == 3 and target.shape == (prod(compared.shape[:2]),)
    try: {target.code}.flatten() when target.ndim == 2 and compared.ndim == 2 and target.numel == compared[0]
    with more: targets - samples; with steps: flattened(compared) and flattened(target) if more > 0 else ""
    with many: steps and not samples % more and not targets % more and more > 1
    with sums: f"{targets} is {more} × {targets // more}, and {samples} is {more} × {samples // more}" if many else ""
    maybe: {steps}[:, 1:].reshape(-1)  # {sums} when many

Class values must be smaller than num_classes
    with classes: call.number("num_classes", 1); with operand: split.operand
    with from_one: operand.least == 1 and operand.most == classes
    with has: "" if operand.most is None or from_one else f", and {split.name} has {int(operand.most)}"
    with counted: f", and {split.name} counts from 1 to {classes}: classes count from 0" if from_one else has
    index: Every class in {split.name} must be smaller than num_classes, {classes}{counted}.
    parts: split; try: F.one_hot({split.code} - 1, {classes}) when from_one

# One target for each pair, whatever torch says of the sizes it came across.
The size of tensor a \(\d+\) must match the size of tensor b
    if: call.function == "cosine_embedding_loss"; with pairs: call.tensor("input1", 0)
    with labels: call.tensor("target", 2); with wanted: pairs.shape[:-1]; if: clashing(labels.shape, wanted)
    shape: There must be one target, 1 or -1, for each pair of {pairs}, {sizes(wanted)} of them: {labels}.
    parts: labels[at] must be {wanted[at]} for at in clashing(labels.shape, wanted)

All input tensors should have same dimension|expected to have the same number of dimensions, but got: anchor
    with counts: [one.ndim for one in call.tensors]; with usual: max(counts, key=counts.count, default=0)
    with right: first one.ndim == usual; with wrong: every one.ndim != usual
    shape: All must have the same number of dimensions: {right} has {usual}, and {wrong[0]} {wrong[0].ndim}.
    parts: one.ndim must be {usual} for one in wrong

var is of incorrect size
    with wrong: clashing(variance.shape, given.shape)
    shape: The variance has the shape of the input, or a last dimension of 1: {variance} against {given}.
    parts: variance[at] must be {given[at]} for at in wrong
    parts: variance.shape must be {sizes(given.shape)} when not wrong

(?P<which>target_lengths|input_lengths) must be of size batch_size
    with scores: call.tensor("log_probs", 0); with lengths: call.tensor(which, 2 if which == "input_lengths" else 3)
    if: scores.ndim > 1
    shape: There must be one length for each sample, {scores[1]} of them: {lengths}.
    parts: lengths.shape must be {scores[1]}

expected target dtype to be Long or Byte
    dtype: A target with one class for each sample holds whole numbers, int64: {target.name} is {target.dtype}.
    parts: target.dtype must be int64
    try: F.binary_cross_entropy_with_logits({compared.code}.squeeze(1), {target.code}) when classes == 1
    try: {target.code}.long() when classes != 1

Expected floating point type for target with class probabilities
    with labels: sizes(compared.shape[:1] + compared.shape[2:]) if compared.ndim > 1 else "of one number"
    dtype: A target of the shape of the input ({sizes(target.shape)}) holds probabilities, which are floating point:
        {target.name} is {target.dtype}; labels as class indices have the shape {labels}.
    parts: target.dtype must be {compared.dtype}
    try: {target.code}.argmax({1 if target.ndim > 1 else 0}); try: {as_dtype(target.code, compared.dtype)}

multi_margin_loss: target tensor should be 1-D|inconsistent target size
    with wanted: compared.shape if call.function == "multilabel_margin_loss" else compared.shape[:1]
    shape: For {compared}, the target has the shape {sizes(wanted)}: {target}.
    parts: target[at] must be {wanted[at]} for at in unlike(target.shape, wanted) when target.ndim == len(wanted)
    parts: target.shape must be {sizes(wanted)} when target.ndim != len(wanted)

target tensor expected, multi-target|size mismatch \(got input: |Expected target size \[|\
only batches of spatial targets supported
    with wanted: compared.shape[:1] + compared.shape[2:] if compared.ndim > 1 else ()
    if: compared.ndim and target.shape != wanted
    with as_many: is_floating(target.dtype) and target.ndim == compared.ndim
    with probabilities: f", or {sizes(compared.shape)} (probabilities)" if as_many else ""
    shape: For {compared}, whose dimension {min(compared.ndim - 1, 1)} is the {classes} classes, the target has the
        shape {sizes(wanted)} (class indices){probabilities}; {target} has not.
    parts: target[at] must be {wanted[at]} for at in unlike(target.shape, wanted) when target.ndim == len(wanted)
    parts: target.shape must be {sizes(wanted)} when target.ndim != len(wanted)
    with ones: [at for at in range(1, target.ndim) if target[at] == 1]
    try: {target.code}.squeeze({at}) for at in ones when target.shape[:at] + target.shape[at + 1 :] == wanted
    try: {compared.code}.transpose(1, 2) when compared.ndim == 3 and target.shape == compared.shape[:2]
    try: {target.code}.argmax(1) when target.ndim == 2 and compared.ndim == 2 and is_floating(target.dtype)

Target {got} is out of bounds
    with at: min(1, compared.ndim - 1); with outputs: max(got, int(target.operand.most or 0)) + 1
    index: The classes of {compared} are 0 to {classes - 1} (dimension {at}), and {target.name} holds {got}.
    parts: target is {got} must be 0 to {classes - 1}; parts: compared[at] must be more than {got} when got >= 0
    try: {target.code} - 1 when got == classes
    try: ignore_index=-1  # where -1 means that there is no class when got == -1
    with wider: f"nn.Linear(…, {outputs})  # one output for each class"
    try: {wider} when got >= classes and compared.ndim == 2

that is different to the input size|input and target shapes do not match|must be the same as input size
    with alike: compared.ndim == target.ndim
    shape: The target has the shape of the input: {compared} and {target}.
    parts: compared[at] must equal target[at] for at in unlike(compared.shape, target.shape) when alike
    parts: compared.shape must be {sizes(target.shape)}; target.shape must be {sizes(compared.shape)} when not alike
    try: {compared.code}.squeeze({target.ndim}) when compared.shape == (*target.shape, 1)
    try: {target.code}.unsqueeze({target.ndim}) when compared.shape == (*target.shape, 1)
    try: {target.code}.squeeze({compared.ndim}) when target.shape == (*compared.shape, 1)
    with as_many: compared.ndim and target.ndim and compared[0] == target[0] and compared.numel == target.numel
    try: {target.code}.flatten(1) when as_many and compared.ndim == 2
    try: {compared.code}.flatten(1) when as_many and target.ndim == 2
    with one_hot: compared.ndim == 2 and compared[1] != 1 and target.shape == compared.shape[:1]
    try: F.one_hot({target.code}.long(), {compared[1]}).float() when one_hot

# -- products

Expected size for first two dimensions of batch2 tensor
    if: call.function == "scaled_dot_product_attention" and query[-1] != key[-1]
    shape: The last dimension of the query and of the key must be equal: {query} and {key}.
    parts: query[-1] must equal key[-1]

Expected size for first two dimensions of batch2 tensor
    if: call.function == "scaled_dot_product_attention" and query[-1] == key[-1] and key[-2] != value[-2]
    shape: There must be one value for each key: {key} and {value}.
    parts: key[-2] must equal value[-2]

einsum\(\): the number of subscripts in the equation \({letters}\) .*dimensions \(\d+\) for operand {at}
    with wrong: call.tensors[at]
    shape: An operand needs one letter for each dimension: {letters} letters stand for {wrong}.
    parts: wrong.ndim must be {letters}

bilinear\(\): input{at} size does not match weight size: got {got} but expected {wanted}
    with wrong: call.tensor(f"input{at}", at - 1)
    shape: The last dimension of {wrong} must be dimension {at} of {class_weight}.
    parts: wrong[-1] must be {wanted}; class_weight[at] must be {got}

tensors {at} and \d+ with shapes .* cannot be multiplied
    with one: call.tensors[at]; with other: call.tensors[at + 1]
    shape: The last dimension of {one} must be the first of {other}.
    parts: one[-1] must equal other[0]

both arguments to matmul need to be at least 1D
    with others: all one is not number
    shape: The operator @ takes vectors and matrices, and {number} is neither; a number is multiplied with *.
    parts: number.ndim must be 1; try: {one.code} * {number.code} for one in others[:1]

X1 and X2 must have the same number of columns\. X1: {one} X2: {two}
    shape: The dimensions that are summed over must be equal: {one} of {left} against {two} of {right}.
    parts: left[-1] must be {two}; right[-1] must be {one}

first has size {one} in dim {first_dim} and second has size {two} in dim {second_dim}
    shape: The dimensions that are summed over must be equal: {one} of {left} against {two} of {right}.
    parts: left[first_dim] must be {two}; right[second_dim] must be {one}

1D tensors expected, but got
    with wrong: every one.ndim != 1
    with fit: [(one, two) for one, two in pairwise(call.tensors) if one.ndim > 1 and two.ndim]
    shape: A dot product takes two tensors of one dimension, and {wrong[0]} has {wrong[0].ndim}.
    parts: one.ndim must be 1 for one in wrong; try: {wrong[0].code}.flatten()
    try: {one.code} @ {two.code} for one, two in fit when one[-1] == two.shape[-2:][0]

einsum\(\): subscript (?P<letter>\w) has size {got} for operand {number} which does not broadcast with previously seen \
size {seen}
    with terms: call.value("equation", 0).strip("'\"").replace(" ", "").split("->", 1)[0].split(",")
    if: number < len(call.tensors) == len(terms)
    with known: [(one, term) for one, term in zip(call.tensors, terms) if "." not in term and len(term) == one.ndim]
    with fit: [(one, term.index(letter)) for one, term in known if letter in term]
    shape: The letter {letter} of the equation must have one size everywhere: it has {seen} and {got} in
        {" and ".join(map(str, call.tensors))}.
    parts: one[at] must be {seen if one[at] == got else got} for one, at in fit when one[at] in (got, seen)

# -- linear algebra

Incompatible shapes of A and B|input\.size\(-2\) should match other\.size\(-2\)|Incompatible matrix sizes for
    shape: The matrix and the right side must have the same number of rows: {left} and {right}.
    parts: right[-2 if right.ndim > 1 else -1] must equal left[-2]

inputs must have the same number of dimensions
    if: left.ndim != right.ndim
    shape: Both must have as many dimensions: {left} has {left.ndim}, and {right} {right.ndim}.
    parts: left.ndim must be {right.ndim}; right.ndim must be {left.ndim}

tau\.shape\[-1\] must be equal to min
    if: left.ndim > 1 and third.ndim > 1
    shape: There must be one factor in tau for each reflector, {min(third[-2], left[-1])} of them: {right}.
    parts: right[-1] must be {min(third[-2], left[-1])}

the input matrix is singular|matrix is singular
    argument: Only a matrix of full rank has an inverse, and {matrix} is singular: its rows depend on one another.
    parts: matrix; try: torch.linalg.pinv({matrix.code})

not positive-definite
    argument: A Cholesky factor exists where all eigenvalues are positive, and {matrix} has one that is not. A little
        more on the diagonal helps where rounding has done that, and only there.
    parts: matrix; maybe: torch.linalg.eigvalsh({matrix.code})  # all positive, or nearly 0

must be batches of square matrices, but they are {rows} by {columns}
    with wrong: first one.shape[-2:] == (rows, columns)
    shape: The matrix must be square: {wrong} is {rows} by {columns}.
    parts: wrong[-2] must be {columns}; wrong[-1] must be {rows}
    try: torch.linalg.pinv({wrong.code}) when call.function in ("inv", "inverse")
    try: {wrong.code} @ {wrong.code}.mT when call.function in ("cholesky", "eigh", "det", "eigvalsh")

inputs dimension -?\d+ must have length 3
    with text: call.value("dim", 2); with dim: int(text) if text.lstrip("-").isdigit() else -1
    with wrong: every -one.ndim <= dim < one.ndim and one[dim] != 3
    shape: A cross product needs vectors with 3 components, along dimension {dim}: {listed(map(str, wrong))}.
    parts: one[dim] must be 3 for one in wrong
""")


def flattened(given: Given) -> str:
    """Return the code of what was put into one row, or one row a class; empty where its code does not say so."""
    found = re.fullmatch(r"(.+)\.(?:(?:view|reshape)\(-1\b.*\)|flatten\(.*\))", given.code)
    return found[1] if found else ""


# -- linear layers: the inner dimensions must be equal --------------------------------------------------------------

LINEAR = frozenset({"linear", "linear_cross_entropy"})
_BATCHED_SUM = frozenset({"baddbmm", "addbmm"})


@says(r"expected equal input and linear_weight last dimensions|expected linear_bias shape")
def linear(call: Call) -> Mismatch | None:
    """Explain a linear layer whose input has another last dimension than its weight."""
    given, weight = call.tensor("input", 0), needed(call.tensor("weight|linear_weight", 1))
    if given is not None and given.ndim and weight.ndim and given[-1] != weight[-1]:
        takes = f"{call.owner or weight} takes {weight[-1]} (in_features)"
        rule, rows = f"The last dimension of {given} is {given[-1]}, but {takes}.", _rows_in_one(given, weight[-1])
        if rows:
            rule = f"{rule} {given[-1]} is {rows} × {weight[-1]}: the batch of {rows} was flattened as well."
        maybe = [f"torch.flatten({given.code}, 1)  # where {given.code} is flattened"] if rows else []
        ways = _ways_into(call, given, weight)
        return mismatch("shape", rule, *given.against(-1, weight, -1), works=ways, maybe=maybe)
    bias = call.tensor("bias|linear_bias", 2)
    if bias is None or bias.shape[-1:] in {weight.shape[:1], (1,)}:
        return None
    rule = f"The bias has one element for each output: {bias} against the {weight[0]} of {weight}."
    return mismatch("shape", rule, bias.whole(sizes(bias.shape), weight[0]))


def _ways_into(call: Call, given: Given, weight: Given) -> Iterator[str]:
    takes, shape = weight[-1], given.shape
    flat = [first for first in range(1, given.ndim - 1) if prod(shape[first:]) == takes][:1]
    for first in flat:
        start = f"start_dim={first}" if first != 1 else ""
        yield (
            f"nn.Flatten({start})  # before {as_code(call.owner)}" if given.before else f"{given.code}.flatten({first})"
        )
    if flat:
        return
    if given.ndim == 2 and shape[0] == takes:
        yield f"{given.code}.T"
    elif given.ndim > 2 and takes in shape:
        yield f"{given.code}.transpose({shape.index(takes)}, -1)"
    if call.function == "linear" and weight.ndim == 2 and not _rows_in_one(given, takes):
        yield from call.layer_with("in_features", shape[-1])


def _rows_in_one(given: Given, takes: int) -> int:
    """Return how many rows of what a layer takes stand in one dimension: a flatten that took the batch with it."""
    return given[0] // takes if given.ndim == 1 and not given[0] % takes else 0


@says(r"mat1 and mat2 shapes cannot be multiplied \(\d+x{columns} and {rows}x\d+\)")
def _inner_sizes(call: Call, columns: int, rows: int) -> Mismatch | None:
    return linear(call) if call.function in LINEAR else product(call, (columns, rows))


@says(
    r"size mismatch, got input \(\d+\), mat \(\d+x\d+\), vec \(\d+\)"
    r"|inconsistent tensor size, expected tensor \[\d+\] and src"
)
def product(call: Call, inner: tuple[int, int] | None = None) -> Mismatch:
    """Explain a product of two operands whose inner dimensions differ; ``inner`` are the two that torch named."""
    tensors = [one for one in call.tensors if one.ndim]
    if call.function in {"addmm", "addmv", "sspaddmm", *_BATCHED_SUM} and len(tensors) > 2:
        tensors = tensors[1:]  # the first is what the product is added to
    differing = [pair for pair in itertools.pairwise(tensors) if pair[0][-1] != _rows(pair[1])]
    named = [pair for pair in differing if inner in {None, (pair[0][-1], _rows(pair[1]))}]
    left, other = named[0]
    end = "the next-to-last dimension" if other.ndim > 2 else "the first dimension"
    sides = f"The last dimension of {left} is {left[-1]}, but {end} of {other} is {_rows(other)}"
    parts = left.size(-1, _rows(other)), other.size(max(other.ndim - 2, 0), left[-1])
    rule = f"{sides}; in a product these two must be equal."
    return mismatch("shape", rule, *parts, works=_products(left, other))


def _rows(given: Given) -> int:
    return given[-2] if given.ndim > 1 else given[0]


def _products(left: Given, right: Given) -> Iterator[str]:
    """Yield products of the two that exist; tried out on the shapes."""
    if right.ndim > 1 and left[-1] == right[-1]:
        yield f"{left.code} @ {right.code}.{'T' if right.ndim == 2 else 'mT'}"
    if left.ndim > 1 and left[-2] == _rows(right):
        yield f"{left.code}.{'T' if left.ndim == 2 else 'mT'} @ {right.code}"
    if right[-1] == _rows(left) and right.ndim > 1:
        yield f"{right.code} @ {left.code}"


@says(r"Expected size for first two dimensions of batch2 tensor to be: \[{wanted:shape}\] but got: \[{got:shape}\]")
def _batch_of_matrices(call: Call, wanted: Shape, got: Shape) -> Mismatch | None:
    if call.function == "scaled_dot_product_attention":  # the rows above know what its operands must share
        return None
    place = 1 if call.function in _BATCHED_SUM else 0
    left, right = call.tensor("input|self|batch1", place), call.tensor("mat2|batch2", place + 1)
    if right is None or left is None or right.shape[:2] != got or left.ndim != 3 or wanted[1] != got[1]:
        return product(call, (wanted[1], got[1]))
    rule = f"The number of matrices must be the same: {left} has {left[0]} and {right} {right[0]}."
    works = [] if clashing(left.shape[:-2], right.shape[:-2]) else [f"{left.code} @ {right.code}"]
    return mismatch("shape", rule, left.size(0, got[0]), right.size(0, wanted[0]), works=works)
