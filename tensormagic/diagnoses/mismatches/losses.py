"""Losses: what the target must look like for the input that it is compared with."""

from __future__ import annotations

from typing import Annotated

from tensormagic.diagnoses.mismatches.call import (
    Call,
    Given,
    Input,
    Messages,
    Shape,
    against,
    dims,
    mismatch,
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

says = Messages()


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
