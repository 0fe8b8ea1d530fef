"""Sizes that do not broadcast: dimensions are compared from the right, and must be equal, or one of them 1."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import combinations

from tensormagic.diagnoses.mismatches.call import Call, Given, mismatch, size, sizes, tuple_text, whole
from tensormagic.reports import Clashing, Mismatch
from tensormagic.words import listed

Shape = tuple[int, ...]

_NUMBER = re.compile(r"-?\d+")
# The last dimensions of these are no batch: the product takes them.
_MATRIX_DIMENSIONS = {"matmul": 2, "solve": 2, "baddbmm": 2, "lstsq": 2}
# Arguments that take no part in the broadcasting.
_APART = {"cosine_embedding_loss": frozenset({"weight"}), "setitem": frozenset({"index"})}


def numbers(text: str) -> Shape:
    """Return the whole numbers in a text, as a shape."""
    return tuple(int(found) for found in _NUMBER.findall(text))


def clashing(one: Shape, other: Shape) -> list[int]:
    """Return the dimensions in which two shapes do not broadcast, counted from the right: -1 is the last."""
    both = range(1, min(len(one), len(other)) + 1)
    return [-at for at in both if one[-at] != other[-at] and 1 not in {one[-at], other[-at]}]


def fit(one: Shape, other: Shape) -> bool:
    """Whether two shapes broadcast."""
    return not clashing(one, other)


def broadcast(one: Shape, other: Shape) -> Shape:
    """Return the shape that two shapes which fit broadcast to."""
    length = max(len(one), len(other))
    padded = [(1,) * (length - len(shape)) + shape for shape in (one, other)]
    return tuple(right if left == 1 else left for left, right in zip(*padded, strict=True))


# -- two operands that do not fit ----------------------------------------------------------------------------------


def sizes_differ(call: Call, found: re.Match[str]) -> Mismatch | None:
    """The size of tensor a (4) must match the size of tensor b (5) at non-singleton dimension 1."""
    wanted = {int(found[1]), int(found[2])}
    pairs = sorted(_pairs(call), key=lambda pair: pair[2] != wanted)
    return _explained(call, *pairs[0]) if pairs else None


def do_not_broadcast(call: Call) -> Mismatch | None:
    """Explain two operands of an elementwise call that do not broadcast, whatever torch said."""
    pair = next(_pairs(call), None)
    return _explained(call, *pair) if pair else None


def _pairs(call: Call) -> Iterator[tuple[Given, Given, set[int], int]]:
    """Yield pairs of operands that do not broadcast, with the sizes that clash first, and how many dimensions count."""
    cut = _MATRIX_DIMENSIONS.get(call.function, 0)
    apart = _APART.get(call.function, frozenset())
    taking_part = [one for one in call.tensors if one.operand.role not in apart]
    for left, right in combinations(taking_part, 2):
        shapes = [one.shape[: max(one.ndim - cut, 0)] for one in (left, right)]
        where = clashing(shapes[0], shapes[1])
        if where:
            yield left, right, {shapes[0][where[0]], shapes[1][where[0]]}, cut


def _explained(call: Call, left: Given, right: Given, _: set[int], cut: int) -> Mismatch:
    where = [at - cut for at in clashing(left.shape[: left.ndim - cut], right.shape[: right.ndim - cut])]
    parts: list[Clashing] = []
    for at in where:
        parts += [size(left, at, right.shape[at]), size(right, at, left.shape[at])]
    return mismatch("shape", _rule(left, right, where, cut), *parts, works=_ways(call, left, right, cut))


def _rule(left: Given, right: Given, where: list[int], cut: int) -> str:
    pairs = [f"{left.shape[at]} against {right.shape[at]} in {_which(at, left, right)}" for at in where]
    what = "Batch dimensions" if cut else "Dimensions"
    return (
        f"{what} are compared from the right, and must be equal or 1: {left.sized} and {right.sized} have "
        f"{listed(pairs)}."
    )


def _which(at: int, left: Given, right: Given) -> str:
    if left.ndim == right.ndim:
        return f"dimension {left.ndim + at}"
    return {-1: "the last dimension", -2: "the last but one"}.get(at, f"dimension {at}")


def _ways(call: Call, left: Given, right: Given, cut: int) -> list[str]:
    """Return how one of the two could be made to fit, without changing what it holds: tried out on the shapes."""
    if cut:
        return []
    smaller = [(right, left), (left, right)] if right.ndim <= left.ndim else [(left, right), (right, left)]
    ways: list[str] = []
    for mended, other in smaller:
        others = [one.shape for one in call.tensors if one not in (mended, other)]
        for shape, code in _changes(mended):
            if _grows_nothing(shape, other.shape) and all(fit(shape, each) for each in others):
                ways.append(code)
    return ways[:2]


def _grows_nothing(shape: Shape, other: Shape) -> bool:
    """Whether two shapes broadcast to one of the two: a result larger than both is hardly meant."""
    return fit(shape, other) and len(shape) <= len(other) and broadcast(shape, other) in {shape, other}


def _changes(given: Given) -> Iterator[tuple[Shape, str]]:
    """Yield shapes that a tensor can be given by one simple call, with that call."""
    shape, code = given.shape, given.code
    if given.ndim == 2:
        yield shape[::-1], f"{code}.T"
    if given.ndim == 1:
        for ones in (1, 2, 3):
            text = f"{code}.unsqueeze(1)" if ones == 1 else f"{code}.view({tuple_text((-1,) + (1,) * ones)})"
            yield shape + (1,) * ones, text
    for at in range(1, given.ndim):
        if given.ndim > 1:
            yield (*shape[:at], 1, *shape[at:]), f"{code}.unsqueeze({at})"
    for at, each in enumerate(shape):
        if each == 1:
            yield shape[:at] + shape[at + 1 :], f"{code}.squeeze({at})"
    for left, right in combinations(range(given.ndim), 2):
        swapped = list(shape)
        swapped[left], swapped[right] = swapped[right], swapped[left]
        if given.ndim > 2 and swapped != list(shape):
            yield tuple(swapped), f"{code}.transpose({left}, {right})"


# -- a result that has a shape of its own --------------------------------------------------------------------------


def result_too_small(call: Call, found: re.Match[str]) -> Mismatch | None:
    """Output with shape [3, 4] doesn't match the broadcast shape [2, 3, 4]."""
    have, needed = numbers(found[1]), numbers(found[2])
    target = next((one for one in call.tensors if one.shape == have), None)
    if target is None:
        return None
    others = [one for one in call.tensors if one is not target and not fit_into(one.shape, have)]
    with_ = f" with {others[0].sized}" if others else ""
    parts = [size(target, at, needed[at]) for at in range(-len(have), 0) if have[at] != needed[at]]
    parts = parts or [whole(target, sizes(have), sizes(needed))]
    if others:
        parts.append(whole(others[0], sizes(others[0].shape), sizes(have)))
    rule = (
        f"An in-place operation keeps the shape of what it writes to: {target.sized}{with_} would give {sizes(needed)}."
    )
    return mismatch("shape", rule, *parts, works=[_out_of_place(call, target, others)])


def fit_into(shape: Shape, target: Shape) -> bool:
    """Whether a shape broadcasts to ``target`` and no further."""
    return fit(shape, target) and broadcast(shape, target) == target


def _out_of_place(call: Call, target: Given, others: list[Given]) -> str:
    signs = {"add": "+", "sub": "-", "mul": "*", "div": "/"}
    sign = signs.get(call.function.removeprefix("i"), "") or signs.get(call.function, "")
    if not sign or not others or not target.operand.name:
        return ""
    return f"{target.code} = {target.code} {sign} {others[0].code}"


# -- expanding to a shape ------------------------------------------------------------------------------------------


def cannot_expand(call: Call, found: re.Match[str]) -> Mismatch | None:
    """The expanded size of the tensor (5) must match the existing size (4) at non-singleton dimension 1."""
    target, have = numbers(found[3]), numbers(found[4])
    candidates = [one for one in call.tensors if one.shape == have]
    if not candidates:
        return None
    given = candidates[0] if call.function in {"expand", "broadcast_to", "expand_as"} else candidates[-1]
    given = _bias(call, have) or given
    where = clashing(given.shape, target) or [int(found[2]) - len(target)]
    parts = [size(given, at, target[at]) for at in where]
    likes = [one for one in call.tensors if one is not given and one.shape == target]
    parts += [size(like, at, given.shape[at]) for like in likes[:1] for at in where]
    at = where[0]
    rule = (
        f"Only a dimension of size 1 can be expanded: {given.sized} is to become {sizes(target)}, and its "
        f"{_last_or(at, given)} is {given.shape[at]}, not {target[at]} or 1."
    )
    return mismatch("shape", rule, *parts, works=_ways_to(given, target))


def _bias(call: Call, have: Shape) -> Given | None:
    if call.function in {"addmm", "addmv", "baddbmm", "addbmm", "addr"}:
        return call.tensor("input|self", 0)
    return next((one for one in call.tensors if one.operand.role == "bias" and one.shape == have), None)


def _last_or(at: int, given: Given) -> str:
    return "last dimension" if at == -1 else f"dimension {given.ndim + at}"


def _ways_to(given: Given, target: Shape) -> list[str]:
    return [code for shape, code in _changes(given) if fit_into(shape, target)][:2]


def too_few_sizes(call: Call, found: re.Match[str]) -> Mismatch | None:
    """The number of sizes provided must be at least the number of dimensions."""
    given = call.tensor("input|self", 0)
    if given is None:
        return None
    wanted = numbers(found[1]) if found.re.groups and found[1] else ()
    rule = (
        f"The new shape must name every dimension of {given.sized}, from the right; new ones may stand before them"
        f"{f', but {sizes(wanted)} has fewer' if wanted else ''}."
    )
    return mismatch("shape", rule, whole(given, sizes(given.shape), sizes(wanted) if wanted else ""))


def _sum_to_size(call: Call, found: re.Match[str]) -> Mismatch | None:
    given, target = call.of_shape(numbers(found[2])) or call.tensor("input|self", 0), numbers(found[1])
    if given is None:
        return None
    parts = [size(given, at, target[at]) for at in clashing(given.shape, target)]
    rule = f"The shape summed to must broadcast to {given.sized}, and {sizes(target)} does not."
    return mismatch("shape", rule, *(parts or [whole(given, sizes(given.shape), sizes(target))]))


def _leading_minus_one(call: Call, _: re.Match[str]) -> Mismatch | None:
    given = call.tensor("input|self", 0)
    if given is None:
        return None
    rule = f"A size of -1 keeps a dimension that is there; the new ones before those of {given.sized} need a size."
    return mismatch("shape", rule, whole(given, sizes(given.shape)))


MESSAGES = (
    (r"The size of tensor a \((\d+)\) must match the size of tensor b \((\d+)\)", sizes_differ),
    (r"output with shape \[(.*?)\] doesn't match the broadcast shape \[(.*?)\]", result_too_small),
    (
        (
            r"The expanded size of the tensor \((-?\d+)\) must match the existing size \(\d+\) at non-singleton "
            r"dimension (\d+)\.\s+Target sizes: \[(.*?)\]\.\s+Tensor sizes: \[(.*?)\]"
        ),
        cannot_expand,
    ),
    (r"size=\[(.*?)\]\): the number of sizes provided", too_few_sizes),
    (r"Number of dimensions of repeat dims can not be smaller", too_few_sizes),
    (r"size \{\[(.*?)\]\} is not expandable to size \{\[(.*?)\]\}", _sum_to_size),
    (r"expanded size of the tensor \(-1\) isn't allowed in a leading", _leading_minus_one),
)
