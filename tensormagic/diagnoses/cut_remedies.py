"""What ends a gradient's way, in words, and what to write instead: by kind of cut, as one readable table."""

from __future__ import annotations

import re

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


_SWITCH = re.compile(r"(?:torch\.)?set_grad_enabled\((?:[^()]|\([^()]*\))*\)")
_DRAWN = re.compile(r"\.sample(?:_n)?\(")


def _drawn(cut: Cut, place: Location | None) -> bool:
    """Whether a distribution drew what has no history: torch draws under ``no_grad``, and nobody wrote that."""
    return cut.kind == "no_grad" and place is not None and _DRAWN.search(place.text) is not None and (
        not place.text.startswith(("with ", "@")))  # fmt: skip


def _switch(cut: Cut, place: Location | None) -> str:
    """Return the call that switched gradients off, as it is written; empty where it was another."""
    found = _SWITCH.search(place.text) if place is not None and cut.kind == "no_grad" else None
    return f"torch.{found[0].removeprefix('torch.')}" if found is not None else ""


def call_words(cut: Cut, place: Location | None = None) -> str:
    """Return what ended the way as a person would write it, as code: ``.detach()``, ``torch.no_grad()``, ``argmax``.

    Args:
        cut: What ended the way.
        place: Its line, where known.
    """
    if _drawn(cut, place):
        return "`.sample()`"
    if cut.kind in _BLOCKS:
        return f"`{_switch(cut, place) or _BLOCKS[cut.kind]}`"
    return f"`{_call(cut)}`"


def _call(cut: Cut) -> str:
    if cut.kind == "data":
        return ".data"
    if cut.op in _OPERATORS:
        return _OPERATORS[cut.op]
    if cut.op in _FREE:
        return f"{_free(cut)}(...)"
    return cut.op if cut.kind == "frozen" else f".{cut.op}()"


def _free(cut: Cut) -> str:
    return f"torch.{cut.op}" if cut.kind == "copy" else cut.op


def instead(cut: Cut, place: Location | None) -> str:
    """Return what to write instead, beginning with a small letter; the mended line where that is plain."""
    text = "" if place is None else place.text
    if _drawn(cut, place):
        return (
            "draw by `.rsample()`: what `.sample()` draws has no way back. A distribution that has none is discrete: "
            "there use `dist.log_prob(sample)` in the loss"
        )
    if switch := _switch(cut, place):
        block = text.startswith("with ")
        return f"move this out of the `{switch}` block" if block else (
            "switch gradients on again before it: `torch.set_grad_enabled(True)`")  # fmt: skip
    if cut.kind == "detach" and cut.op == "detach" and ".detach()" in text:
        mended = text.replace(".detach()", "")
        target, _, value = mended.partition(" = ")
        return "take this line away" if target == value else f"without `.detach()`: `{mended}`"
    found = _BY_OP.get(cut.op) or _BY_KIND.get(cut.kind, "")
    return found.format(op=_free(cut))
