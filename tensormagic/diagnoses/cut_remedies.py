"""What ends a gradient's way, in words, and what to write instead: by kind of cut, as one readable table."""

from __future__ import annotations

from tensormagic.reports import Cut, Location

_OPERATORS = {
    "gt": ">", "lt": "<", "ge": ">=", "le": "<=", "eq": "==", "ne": "!=", "__gt__": ">", "__lt__": "<",
    "floor_divide": "//", "__floordiv__": "//", "__rfloordiv__": "//",
}  # fmt: skip
_BLOCKS = {"no_grad": "torch.no_grad()", "inference_mode": "torch.inference_mode()"}
_FREE = frozenset({"float", "int", "index", "complex", "tensor", "as_tensor", "asarray"})

_BY_KIND = {
    "detach": "use the value itself",
    "data": "use the tensor itself: `.data` has no history",
    "no_grad": "move this out of the `torch.no_grad()` block, or take the decorator away",
    "inference_mode": "move this out of the `torch.inference_mode()` block, or take the decorator away",
    "item": "keep the tensor and calculate with it: a Python number has no history",
    "numpy": "stay in torch: NumPy arrays have no history, and most NumPy functions have one of the same name in torch",
    "copy": "use the value itself, or `torch.stack([...])` for a list of tensors: `{op}(...)` copies values "
    "without their history",
    "cast": "keep it floating-point: integers and booleans have no gradient",
    "non-differentiable": "put something with a slope in its place",
}
_BY_OP = {
    "argmax": "argmax has no slope: use `F.softmax(x, dim)`, or `F.gumbel_softmax(x, hard=True)` for a hard choice",
    "argmin": "argmin has no slope: use `F.softmin(x, dim)`",
    "multinomial": "sampling has no slope: use `dist.log_prob(sample)` in the loss, or `F.gumbel_softmax`",
    **dict.fromkeys(
        ("gt", "lt", "ge", "le"),
        "a comparison has no slope: use `torch.sigmoid(k * (x - threshold))`, or `x + (hard - x).detach()`",
    ),
}


def call_words(cut: Cut) -> str:
    """Return what ended the way as a person would write it, as code: ``.detach()``, ``torch.no_grad()``, ``argmax``."""
    if cut.kind in _BLOCKS:
        return f"`{_BLOCKS[cut.kind]}`"
    if cut.kind == "data":
        return "`.data`"
    if cut.op in _OPERATORS:
        return f"`{_OPERATORS[cut.op]}`"
    if cut.op in _FREE:
        return f"`{_free(cut)}(...)`"
    if cut.kind == "frozen":
        return f"`{cut.op}`"
    return f"`.{cut.op}()`"


def _free(cut: Cut) -> str:
    return f"torch.{cut.op}" if cut.kind == "copy" else cut.op


def instead(cut: Cut, place: Location | None) -> str:
    """Return what to write instead, beginning with a small letter; the mended line where that is plain."""
    text = "" if place is None else place.text
    if cut.kind == "detach" and cut.op == "detach" and ".detach()" in text:
        mended = text.replace(".detach()", "")
        target, _, value = mended.partition(" = ")
        return "take this line away" if target == value else f"without `.detach()`: `{mended}`"
    found = _BY_OP.get(cut.op) or _BY_KIND.get(cut.kind, "")
    return found.format(op=_free(cut))
