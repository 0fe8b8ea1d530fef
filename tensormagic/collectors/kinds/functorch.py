"""Inside vmap, grad, jvp and functionalize: torch hands out wrappers, one for each transform that is running."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch._C import _functorch

from tensormagic.collectors.kinds.kind import Description, Kind, Part, Values, bytes_of
from tensormagic.reports import Fact
from tensormagic.words import plural, tuple_text

_MOST_LEVELS = 16


@dataclass(frozen=True, slots=True)
class _Level:
    """One wrapper: which transform made it, at which level, with which batch dimension, and what it looks like."""

    transform: str
    level: int
    batch_dim: int | None
    shape: tuple[int, ...]
    inside: torch.Tensor


def _is_wrapper(x: Any) -> bool:
    if _functorch.is_batchedtensor(x) or _functorch.is_gradtrackingtensor(x):
        return True
    return _functorch.is_functionaltensor(x) and _functorch.maybe_get_level(x) > 0


def _levels(x: Any) -> list[_Level]:
    """Return the wrappers around the plain tensor, outermost first."""
    levels: list[_Level] = []
    while _is_wrapper(x) and len(levels) < _MOST_LEVELS:
        level, batch_dim = int(_functorch.maybe_get_level(x)), None
        if _functorch.is_batchedtensor(x):
            batch_dim = int(_functorch.maybe_get_bdim(x))
        inside = _functorch.get_unwrapped(x)
        levels.append(_Level(_transform(x, level), level, batch_dim, tuple(int(size) for size in x.shape), inside))
        x = inside
    return levels


def _transform(x: Any, level: int) -> str:
    """Return the transform's name; grad and jvp have the same wrapper and are distinguished by running transforms."""
    if _functorch.is_batchedtensor(x):
        return "vmap"
    if _functorch.is_functionaltensor(x):
        return "functionalize"
    return _running().get(level, "grad or jvp")


def _running() -> dict[int, str]:
    """Return the transforms that are running, by level; none where torch does not say."""
    interpreters = _functorch.get_interpreter_stack() or []
    return {int(one.level()): str(one.key()).rsplit(".", 1)[-1].lower() for one in interpreters}


def _describe(x: Any) -> Description:
    levels = _levels(x)
    innermost, first = levels[-1].inside, levels[0]
    inner, outer = tuple_text(first.shape), tuple_text(innermost.shape)
    names = " inside ".join(level.transform for level in levels)
    return Description(
        label=f"inside {names}",
        summary=_summary(first, inner, outer),
        facts=(
            Fact("shape inside", inner, f"what the function under {first.transform} sees"),
            Fact("shape outside", outer, "the plain tensor behind all wrappers"),
            Fact("levels", str(len(levels)), "outermost level first, as wrapped around the tensor"),
            *(_level_fact(level) for level in levels),
            *_dead(first),
        ),
        parts=(Part(" behind its wrappers", "the plain tensor that holds the numbers of every batch item", innermost),),
        values=Values(innermost, f"all {plural(innermost.numel(), 'element')} behind the wrapper"),
        stored_bytes=bytes_of(innermost),
    )


def _summary(first: _Level, inner: str, outer: str) -> str:
    if first.transform != "vmap":
        return f"A wrapper with which {first.transform} traces the computation; the numbers are in a tensor of {outer}."
    return f"It shows one item of a batch, {inner}; behind it is the whole batch, {outer}."


def _level_fact(level: _Level) -> Fact:
    if level.batch_dim is None:
        return Fact(f"level {level.level}", level.transform, f"wraps {tuple_text(level.inside.shape)}")
    size = int(level.inside.shape[level.batch_dim])
    note = f"hides batch dimension {level.batch_dim} (size {size}) of {tuple_text(level.inside.shape)}"
    return Fact(f"level {level.level}", level.transform, note)


def _dead(first: _Level) -> tuple[Fact, ...]:
    """Return the fact that the transform has ended: any operation on such a tensor raises."""
    if first.level in _running() or (first.level > 0 and first.transform == "functionalize"):
        return ()
    return (Fact("escaped", "yes", f"its {first.transform} has ended: operations on it raise an error"),)


KINDS = (Kind("functorch", _is_wrapper, _describe, printable=False),)
