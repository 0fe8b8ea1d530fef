"""Tensors that are put together: all sizes must agree but that of the dimension along which they are joined."""

from __future__ import annotations

import re

from tensormagic.diagnoses.mismatches.call import Call, Given, mismatch, size, whole
from tensormagic.reports import Clashing, Mismatch
from tensormagic.words import listed

# What the short names do to a tensor before they join it: at least so many dimensions, along which one.
_SHORT = {"hstack": (1, 1), "vstack": (2, 0), "row_stack": (2, 0), "dstack": (3, 2), "column_stack": (2, 1)}
_LEGACY = (0,)  # an empty tensor of one dimension is skipped by torch


def _members(call: Call) -> list[Given]:
    inside = [one for one in call.tensors if one.operand.place]
    return [one for one in inside or call.tensors if one.shape != _LEGACY]


def _along(call: Call, members: list[Given]) -> int:
    if call.function in _SHORT:
        return 0 if call.function == "hstack" and members[0].ndim == 1 else _SHORT[call.function][1]
    text = call.value("dim|axis", 1)
    at = int(text) if text.lstrip("-").isdigit() else 0
    return at % max(members[0].ndim, 1)


def sizes_differ(call: Call, found: re.Match[str]) -> Mismatch | None:
    """Sizes of tensors must match except in dimension 1. Expected size 20 but got size 19 for tensor number 1."""
    members = _members(call)
    if not members or any(one.ndim != members[0].ndim for one in members):
        return None
    along, first = int(found[1]), members[0]
    wrong = {
        (at, one) for one in members[1:] for at in range(first.ndim) if at != along and one.shape[at] != first.shape[at]
    }
    dims = sorted({at for at, _ in wrong})
    parts = [size(first, at, next(one.shape[at] for each, one in wrong if each == at)) for at in dims]
    parts += [size(one, at, first.shape[at]) for at, one in sorted(wrong, key=lambda pair: (pair[1].index, pair[0]))]
    others = listed([one.sized for one in members[1:] if any(one is each for _, each in wrong)])
    rule = (
        f"All sizes but that of dimension {along}, along which they are joined, must be equal: {first.sized} and "
        f"{others} differ in {listed([f'dimension {at}' for at in dims])}."
    )
    return mismatch("shape", rule, *parts, works=_other_ways(members, along))


def _other_ways(members: list[Given], along: int) -> list[str]:
    names = ", ".join(one.code for one in members[:4]) + (", …" if len(members) > 4 else "")
    ways = []
    for dim in range(members[0].ndim):
        rest = {one.shape[:dim] + one.shape[dim + 1 :] for one in members}
        if dim != along and len(rest) == 1:
            ways.append(f"torch.cat([{names}], dim={dim})")
    return ways


def dimensions_differ(call: Call, _: re.Match[str]) -> Mismatch | None:
    """Tensors must have same number of dimensions: got 2 and 1."""
    members = _members(call)
    counts = sorted({one.ndim for one in members})
    if len(counts) < 2:
        return None
    usual = max(counts, key=lambda count: (sum(one.ndim == count for one in members), count))
    wrong = [one for one in members if one.ndim != usual]
    right = next(one for one in members if one.ndim == usual)
    rule = (
        f"All must have the same number of dimensions: {right.sized} has {right.ndim}, and {wrong[0].sized} has "
        f"{wrong[0].ndim}."
    )
    parts = [whole(right, f"{right.ndim}-D", f"{wrong[0].ndim}-D")]
    parts += [whole(one, f"{one.ndim}-D", f"{right.ndim}-D") for one in wrong]
    return mismatch("shape", rule, *parts, works=_lifted(call, wrong[0], right, _along(call, members)))


def _lifted(call: Call, low: Given, high: Given, along: int) -> list[str]:
    """Return where a dimension of size 1 can be put so that the two can be joined: tried out on the shapes."""
    if high.ndim != low.ndim + 1 or call.function != "cat":
        return []
    ways = []
    for at in range(high.ndim):
        shape = (*low.shape[:at], 1, *low.shape[at:])
        if all(shape[dim] == high.shape[dim] for dim in range(high.ndim) if dim != along):
            ways.append(f"{low.code}.unsqueeze({at})")
    return ways


def not_equal(call: Call, _: re.Match[str]) -> Mismatch | None:
    """Stack expects each tensor to be equal size, but got [3] at entry 0 and [4] at entry 1."""
    members = _members(call)
    wrong = [one for one in members if one.shape != members[0].shape] if members else []
    if not wrong:
        return None
    first = members[0]
    rule = f"A stack takes tensors of one shape: {first.sized} and {listed([one.sized for one in wrong])}."
    parts = [*_against(first, wrong[0])]
    for one in wrong:
        parts += _against(one, first)
    same_rest = len({one.shape[1:] for one in members}) == 1 and first.ndim > 0
    names = ", ".join(one.code for one in members[:4]) + (", …" if len(members) > 4 else "")
    ways = [f"torch.cat([{names}])", f"nn.utils.rnn.pad_sequence([{names}])"] if same_rest else []
    return mismatch("shape", rule, *parts, works=ways)


def _against(one: Given, other: Given) -> list[Clashing]:
    """Return what of a tensor differs from another."""
    if one.ndim != other.ndim:
        return [whole(one, f"{one.ndim}-D", f"{other.ndim}-D")]
    return [size(one, at, other.shape[at]) for at in range(one.ndim) if one.shape[at] != other.shape[at]]


def no_dimension(call: Call, _: re.Match[str]) -> Mismatch | None:
    """zero-dimensional tensor (at position 0) cannot be concatenated."""
    wrong = [one for one in _members(call) if not one.ndim]
    if not wrong:
        return None
    names = ", ".join(one.code for one in _members(call)[:4])
    rule = f"There is no dimension along which to join {wrong[0].sized}; numbers are stacked."
    return mismatch("shape", rule, *(whole(one, "0-D", "1-D") for one in wrong), works=[f"torch.stack([{names}])"])


def chunks(call: Call, found: re.Match[str]) -> Mismatch | None:
    """_chunk_cat: sizes before the dimension must be equal."""
    members = _members(call)
    empty = [one for one in call.tensors if 0 in one.shape]
    if empty:
        rule = f"There must be something to cut: {empty[0].sized} is empty."
        return mismatch("shape", rule, *(size(one, one.shape.index(0), "at least 1") for one in empty))
    if len(members) < 2:
        return None
    dim = call.value("dim", 1)
    if "same sizes" in found[0] and dim.isdigit():
        wrong = [at for at in range(int(dim)) if members[0].shape[at] != members[1].shape[at]]
        rule = f"All sizes before dimension {dim} must be equal: {members[0].sized} and {members[1].sized}."
        parts = [size(one, at, other.shape[at]) for at in wrong for one, other in (members[:2], members[1::-1])]
        return mismatch("shape", rule, *parts)
    rule = (
        "The dimensions before the one that is cut must be there in all, and equal: "
        f"{listed([one.sized for one in members])}."
    )
    return mismatch("shape", rule, *(whole(one) for one in members))


MESSAGES = (
    (r"Sizes of tensors must match except in dimension (\d+)", sizes_differ),
    (r"Tensors must have same number of dimensions: got", dimensions_differ),
    (r"stack expects each tensor to be equal size", not_equal),
    (r"zero-dimensional tensor \(at position \d+\) cannot be concatenated", no_dimension),
    (r"_chunk_cat expects (?:same sizes|dim < ndim|non-negative dim when|non-empty tensor)", chunks),
)
