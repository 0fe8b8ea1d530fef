"""Calls that take a certain number of dimensions.

One row of a table each: what torch says, which operand it is about, and what it asks for.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

from tensormagic.diagnoses.mismatches.call import Call, Given, mismatch, size, whole
from tensormagic.reports import Mismatch
from tensormagic.words import listed

_FIRST = "input|self|tensor|query"
_PRODUCTS = frozenset({"mm", "spmm", "bmm"})
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
    parts = [whole(one, f"{one.ndim}-D", f"{allowed[-1]}-D") for one in _all_wrong(call, given, allowed)]
    return mismatch("shape", rule, *parts, works=_ways(call, given, allowed))


def _empty(call: Call) -> Mismatch | None:
    """The number of dimensions is right, but one of them is empty."""
    given = next((one for one in call.tensors if 0 in one.shape), None)
    if given is None:
        return None
    at = [at for at, each in enumerate(given.shape) if each == 0][-1]
    rule = f"The call {call.title} needs at least one element: dimension {at} of {given.sized} is empty."
    return mismatch("shape", rule, size(given, at, "at least 1"))


def _all_wrong(call: Call, given: Given, allowed: tuple[int, ...]) -> list[Given]:
    """Return the operands that have a wrong number of dimensions: of a product of matrices, both may."""
    if call.function not in _PRODUCTS:
        return [given]
    return [one for one in call.tensors if one.ndim not in allowed] or [given]


def _ways(call: Call, given: Given, allowed: tuple[int, ...]) -> list[str]:
    if call.function in _PRODUCTS:
        pairs = zip(call.tensors, call.tensors[1:], strict=False)
        fit = ((left, right) for left, right in pairs if left.ndim and right.ndim)
        return [f"{left.code} @ {right.code}" for left, right in fit if left.shape[-1] == right.shape[-2:][0]]
    weight = call.tensor("weight", 1) if call.function.startswith("conv") else None
    if weight is not None and given.ndim < min(allowed) and weight.shape[1:2] != (1,):
        return []
    return _other_layer(call, given) or _lifted(given, allowed)


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


def no_dimensions(call: Call, _: re.Match[str]) -> Mismatch | None:
    """linspace: numbers, or tensors of no dimensions."""
    wrong = [one for one in call.tensors if one.ndim]
    if not wrong:
        return None
    rule = f"The call {call.title} goes from one number to another: {listed([one.sized for one in wrong])} are none."
    return mismatch("shape", rule, *(whole(one, f"{one.ndim}-D", "0-D") for one in wrong))


def empty(call: Call, _: re.Match[str]) -> Mismatch | None:
    """A dimension that may not be empty."""
    return _empty(call)


def too_many(call: Call, found: re.Match[str]) -> Mismatch | None:
    """Only tensors with up to 64 dims are supported."""
    given = next((one for one in call.tensors if one.ndim > int(found[1])), None)
    if given is None:
        return None
    rule = f"The call {call.title} takes at most {found[1]} dimensions: {given.name} has {given.ndim}."
    return mismatch("shape", rule, whole(given, f"{given.ndim}-D", f"{found[1]}-D"))


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
    (r"non-batch dimensions to have positive length", empty),
    (r"only tensors with up to (\d+) dims are supported", too_many),
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
    (r"only supports 0-dimensional start and end", no_dimensions),
    (r"start must be an 0-dim integral Tensor", _takes(0, about="start", place=2)),
    (r"expected input with dimensionality 1 or 2", _takes(1, 2)),
    ((r"expected linear_weight with dimensionality at least"
     r" 2"), partial(at_least, least=2, about="linear_weight", place=1)),
    (r"Expected 0D or 1D tensor in the tensor list", _takes(0, 1)),
    (r"Expected non-empty vector or matrix", _takes(1, 2)),
    (r"expected (\w+) to have (zero|one|two) or fewer dimensions", argument_count),
    ((r"expected (\w+) to have the same numel as there are observations in the input but got"
     r" (\d+) != (\d+)"), observations),
)  # fmt: skip
