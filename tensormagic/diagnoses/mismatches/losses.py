"""Losses: what the target must look like for the input that it is compared with."""

from __future__ import annotations

import re

from tensormagic.diagnoses.mismatches.broadcasting import clashing
from tensormagic.diagnoses.mismatches.call import Call, Given, mismatch, size, sizes, whole
from tensormagic.diagnoses.mismatches.dtypes import converted, floating
from tensormagic.reports import Mismatch


def _two(call: Call) -> tuple[Given, Given] | None:
    """Return the input of a loss and its target."""
    given, target = call.tensor("input|self|log_probs", 0), call.tensor("target|targets", 1)
    if call.function == "linear_cross_entropy":
        target = call.tensor("target", 2)
    return (given, target) if given is not None and target is not None else None


def _classes(given: Given) -> int:
    return given.shape[1] if given.ndim > 1 else given.shape[0] if given.ndim else 1


def _as_indices(given: Given) -> tuple[int, ...]:
    """Return the shape of a target of class indices: that of the input without its class dimension."""
    return given.shape[:1] + given.shape[2:] if given.ndim > 1 else ()


def target_must_be_classes(call: Call, _: re.Match[str]) -> Mismatch | None:
    """Expected target dtype to be Long or Byte, but got Float: indices of classes are whole numbers."""
    pair = _two(call)
    if pair is None:
        return None
    given, target = pair
    rule = f"A target with one class for each sample holds whole numbers, int64: {target.name} is {target.dtype}."
    works = [converted(target, "int64")]
    if _classes(given) == 1:
        works = [f"F.binary_cross_entropy_with_logits({given.code}.squeeze(1), {target.code})"]
    return mismatch("dtype", rule, whole(target, target.dtype, "int64"), works=works)


def target_probabilities(call: Call, _: re.Match[str]) -> Mismatch | None:
    """Expected floating point type for target with class probabilities, got Long: one-hot labels, mostly."""
    pair = _two(call)
    if pair is None:
        return None
    given, target = pair
    rule = (
        f"A target of the shape of the input ({sizes(target.shape)}) holds probabilities, which are floating point: "
        f"{target.name} is {target.dtype}; labels as class indices have the shape "
        f"{sizes(_as_indices(given)) if given.ndim > 1 else 'of one number'}."
    )
    works = [f"{target.code}.argmax({1 if target.ndim > 1 else 0})", converted(target, given.dtype)]
    return mismatch("dtype", rule, whole(target, target.dtype, given.dtype), works=works)


def batches_differ(call: Call, found: re.Match[str]) -> Mismatch | None:
    """Expected input batch_size (8) to match target batch_size (4)."""
    pair = _two(call)
    if pair is None or not pair[0].ndim or not pair[1].ndim:
        return None
    given, target = pair
    rule = (
        f"There is one target for each sample: {given.sized} has {found[1]} in dimension 0, and {target.sized} has "
        f"{found[2]}."
    )
    works = []
    if target.ndim == 1 and given.ndim == 3 and given.shape[0] * given.shape[1] == target.shape[0]:
        works.append(f"{given.code}.flatten(0, 1)")
    if target.ndim == 2 and given.ndim == 2 and target.shape[0] * target.shape[1] == given.shape[0]:
        works.append(f"{target.code}.flatten()")
    return mismatch("shape", rule, size(given, 0, found[2]), size(target, 0, found[1]), works=works)


def target_shape(call: Call, _: re.Match[str]) -> Mismatch | None:
    """0D or 1D target tensor expected; Expected target size [8, 4], got [8, 10]; only batches of spatial targets."""
    pair = _two(call)
    if pair is None or not pair[0].ndim:
        return None
    given, target = pair
    wanted = _as_indices(given)
    if target.shape == wanted:
        return None
    if target.ndim == len(wanted):
        parts = [size(target, at, wanted[at]) for at in range(len(wanted)) if target.shape[at] != wanted[at]]
    else:
        parts = [whole(target, sizes(target.shape), sizes(wanted))]
    rule = (
        f"For {given.sized}, whose dimension {min(given.ndim - 1, 1)} is the {_classes(given)} classes, the target "
        "has the "
        f"shape {sizes(wanted)} (class indices); {target.sized} has not."
    )
    return mismatch("shape", rule, *parts, works=_target_ways(given, target, wanted))


def _target_ways(given: Given, target: Given, wanted: tuple[int, ...]) -> list[str]:
    ones = [at for at in range(1, target.ndim) if target.shape[at] == 1]
    ways = [f"{target.code}.squeeze({at})" for at in ones if target.shape[:at] + target.shape[at + 1 :] == wanted]
    if given.ndim == 3 and target.shape == given.shape[:2]:
        ways.append(f"{given.code}.transpose(1, 2)")
    if target.ndim == 2 and given.ndim == 2 and floating(target.dtype):
        ways.append(f"{target.code}.argmax(1)")
    return ways


def target_class(call: Call, found: re.Match[str]) -> Mismatch | None:
    """Target 10 is out of bounds: there is no such class."""
    pair = _two(call)
    if pair is None:
        return None
    given, target = pair
    classes, got = _classes(given), int(found[1])
    at = min(1, given.ndim - 1)
    rule = f"The classes of {given.sized} are 0 to {classes - 1} (dimension {at}), and {target.name} holds {got}."
    works = [f"{target.code} - 1"] if got == classes else []
    works += ["ignore_index=-1  # where -1 means that there is no class"] if got == -1 else []
    most = max(got, int(target.operand.most or 0))
    works += (
        [f"nn.Linear(…, {most + 1})  # one output for each class" if given.ndim == 2 else ""] if got >= classes else []
    )
    parts = [whole(target, got, f"0 to {classes - 1}")] + ([size(given, at, f"more than {got}")] if got >= 0 else [])
    return mismatch("index", rule, *parts, works=works)


def one_hot_classes(call: Call, _: re.Match[str]) -> Mismatch | None:
    """Class values must be smaller than num_classes."""
    given, count = call.tensor("input|self|tensor", 0), call.value("num_classes", 1)
    if given is None:
        return None
    rule = f"Every class in {given.name} must be smaller than num_classes{f', {count}' if count else ''}."
    return mismatch("index", rule, whole(given), works=[f"F.one_hot({given.code}, {given.code}.max() + 1)"])


def class_weights(call: Call, found: re.Match[str]) -> Mismatch | None:
    """Weight tensor should be defined either for all 10 classes or no classes."""
    weight = call.tensor("weight", 2)
    if weight is None:
        return None
    rule = f"There is one weight for each of the {found[1]} classes: {weight.sized}."
    return mismatch("shape", rule, whole(weight, sizes(weight.shape), found[1]))


def class_weight_size(call: Call, _: re.Match[str]) -> Mismatch | None:
    """multi_margin_loss: weight must be one-dimensional, one for each class."""
    weight, given = call.tensor("weight", 2), call.tensor("input", 0)
    if weight is None or given is None:
        return None
    rule = f"There is one weight for each of the {_classes(given)} classes: {weight.sized}."
    return mismatch("shape", rule, whole(weight, sizes(weight.shape), _classes(given)))


def same_shape(call: Call, _: re.Match[str]) -> Mismatch | None:
    """Target size must be the same as input size (binary cross-entropy)."""
    pair = _two(call)
    if pair is None:
        return None
    given, target = pair
    rule = f"The target has the shape of the input: {given.sized} and {target.sized}."
    if given.ndim == target.ndim:
        parts = [part for at in range(given.ndim) if given.shape[at] != target.shape[at]
                 for part in (size(given, at, target.shape[at]), size(target, at, given.shape[at]))]  # fmt: skip
    else:
        parts = [
            whole(given, sizes(given.shape), sizes(target.shape)),
            whole(target, sizes(target.shape), sizes(given.shape)),
        ]
    return mismatch("shape", rule, *parts, works=_same_ways(given, target))


def _same_ways(given: Given, target: Given) -> list[str]:
    ways = []
    if given.shape == (*target.shape, 1):
        ways += [f"{given.code}.squeeze({target.ndim})", f"{target.code}.unsqueeze({target.ndim})"]
    elif target.shape == (*given.shape, 1):
        ways += [f"{target.code}.squeeze({given.ndim})"]
    elif given.ndim == 2 and given.shape[0] == (target.shape or (0,))[0] and target.ndim == 1:
        ways += [f"F.one_hot({target.code}.long(), {given.shape[1]}).float()"]
    return ways


def target_dimensions(call: Call, _: re.Match[str]) -> Mismatch | None:
    """multi_margin_loss and multilabel_margin_loss: the target must go with the input."""
    pair = _two(call)
    if pair is None:
        return None
    given, target = pair
    wanted = given.shape if call.function == "multilabel_margin_loss" else given.shape[:1]
    rule = f"For {given.sized}, the target has the shape {sizes(wanted)}: {target.sized}."
    if target.ndim == len(wanted):
        parts = [size(target, at, wanted[at]) for at in range(len(wanted)) if target.shape[at] != wanted[at]]
    else:
        parts = [whole(target, sizes(target.shape), sizes(wanted))]
    return mismatch("shape", rule, *parts)


def equal_dimensions(call: Call, _: re.Match[str]) -> Mismatch | None:
    """All inputs of a ranking or triplet loss must have the same number of dimensions."""
    tensors = call.tensors
    counts = [one.ndim for one in tensors]
    if len(set(counts)) < 2:
        return None
    usual = max(counts, key=counts.count)
    wrong = next(one for one in tensors if one.ndim != usual)
    right = next(one for one in tensors if one.ndim == usual)
    rule = f"All must have the same number of dimensions: {right.sized} has {usual}, and {wrong.sized} {wrong.ndim}."
    parts = [whole(one, f"{one.ndim}-D", f"{usual}-D") for one in tensors if one.ndim != usual]
    return mismatch("shape", rule, *parts)


def probabilities(call: Call, found: re.Match[str]) -> Mismatch | None:
    """All elements of input should be between 0 and 1."""
    pair = _two(call)
    if pair is None:
        return None
    given, target = pair
    wrong = target if found[1] == "target" else given
    rule = f"A binary cross-entropy takes probabilities: all of {wrong.name} must lie between 0 and 1."
    logits = f"F.binary_cross_entropy_with_logits({given.code}, {target.code})"
    return mismatch("argument", rule, whole(wrong, "", "0 to 1"), works=[logits] if wrong is given else [])


def similar_or_not(call: Call, _: re.Match[str]) -> Mismatch | None:
    """cosine_embedding_loss: one target for each pair, whatever torch says of the sizes it came across."""
    first, target = call.tensor("input1", 0), call.tensor("target", 2)
    if call.function != "cosine_embedding_loss" or first is None or target is None:
        return None
    wanted = first.shape[:-1]
    where = clashing(target.shape, wanted)
    rule = f"There is one target, 1 or -1, for each pair of {first.sized}, {sizes(wanted)} of them: {target.sized}."
    return mismatch("shape", rule, *(size(target, at, wanted[at]) for at in where)) if where else None


def batch_lengths(call: Call, found: re.Match[str]) -> Mismatch | None:
    """target_lengths must be of size batch_size."""
    lengths, given = call.tensor(found[1]), call.tensor("log_probs", 0)
    lengths = lengths or call.tensor("", {"input_lengths": 2, "target_lengths": 3}[found[1]])
    if lengths is None or given is None or given.ndim < 2:
        return None
    rule = f"There is one length for each sample, {given.shape[1]} of them: {lengths.sized}."
    return mismatch("shape", rule, whole(lengths, sizes(lengths.shape), given.shape[1]))


def variance(call: Call, _: re.Match[str]) -> Mismatch | None:
    """Var is of incorrect size."""
    var, given = call.tensor("var", 2), call.tensor("input", 0)
    if var is None or given is None:
        return None
    rule = f"The variance has the shape of the input, or a last dimension of 1: {var.sized} against {given.sized}."
    parts = [size(var, at, given.shape[at]) for at in clashing(var.shape, given.shape)]
    return mismatch("shape", rule, *(parts or [whole(var, sizes(var.shape), sizes(given.shape))]))


MESSAGES = (
    (r"expected target dtype to be Long or Byte", target_must_be_classes),
    (r"Expected floating point type for target with class probabilities", target_probabilities),
    (r"Expected input batch_size \((\d+)\) to match target batch_size \((\d+)\)", batches_differ),
    (r"multi_margin_loss: target tensor should be 1-D|inconsistent target size", target_dimensions),
    ((r"target tensor expected, multi-target|size mismatch \(got input: |Expected target size \["
      r"|only batches of spatial targets supported"), target_shape),
    (r"Target (-?\d+) is out of bounds", target_class),
    (r"Class values must be smaller than num_classes", one_hot_classes),
    (r"weight tensor should be defined either for all (\d+) classes", class_weights),
    (r"expected weight shape to be \((\d+),\), got \(\d+,\)", class_weights),
    (r"inconsistent weight size|weight must be one-dimensional", class_weight_size),
    ((r"that is different to the input size|input and target shapes do not match"
      r"|must be the same as input size"), same_shape),
    (r"The size of tensor a \(\d+\) must match the size of tensor b", similar_or_not),
    (r"All input tensors should have same dimension|expected to have the same number of dimensions, but got: anchor",
     equal_dimensions),
    (r"all elements of (input|target) should be between 0 and 1", probabilities),
    (r"(target_lengths|input_lengths) must be of size batch_size", batch_lengths),
    (r"var is of incorrect size", variance),
)  # fmt: skip
