"""Looks at a value without a history that backward is about to be called on; torch will refuse, and not say why.

Called only then: everything here may take its time, and looks at the names of the person's functions that are running.
"""

from __future__ import annotations

import inspect
import linecache
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import FrameType
from typing import Any

import torch

from tensormagic.collectors.cuts.detachment_values import dtype_of, shape_of
from tensormagic.collectors.objects.namespace import modules_in
from tensormagic.collectors.where.source import is_expected, is_own_code, names_of
from tensormagic.reports.failure import LossWithoutGraph, ModelInSight

MOST_KINDS = 16  # different ones kept of one run
MOST_FRAMES = 8
MOST_MODELS = 8


def first_without_history(roots: Sequence[Any]) -> torch.Tensor | None:
    """Return the first of what backward was called on that torch will refuse."""
    return next((root for root in roots if isinstance(root, torch.Tensor) and not root.requires_grad), None)


def look_at(root: torch.Tensor, caller: FrameType | None, site: int | None) -> LossWithoutGraph:
    """Return what is to be said of a value without a history, and of the code that called backward on it."""
    with torch._C.DisableTorchFunction():
        frames = list(_own_frames(caller))
        return LossWithoutGraph(
            name=_name_of(root, frames[0]) if frames else "",
            location=site,
            shape=shape_of(root),
            dtype=dtype_of(root),
            grad_enabled=torch.is_grad_enabled(),
            inference=root.is_inference(),
            models=_models(frames),
            expected=is_expected(caller),
        )


def _own_frames(frame: FrameType | None) -> Iterator[FrameType]:
    found = 0
    while frame is not None and found < MOST_FRAMES:
        if is_own_code(frame.f_code.co_filename):
            found += 1
            yield frame
            if not frame.f_code.co_flags & inspect.CO_OPTIMIZED:
                return  # the cell or the module; what runs it is another matter
        frame = frame.f_back


def _name_of(value: object, frame: FrameType) -> str:
    spaces: tuple[Mapping[str, Any], ...] = (names_of(frame), frame.f_globals)
    named = (name for space in spaces for name, each in space.items() if each is value and not name.startswith("_"))
    return next(named, "")


def _models(frames: list[FrameType]) -> tuple[ModelInSight, ...]:
    """Return the models that the innermost function names that names any, each once.

    Of the names of a module or a notebook only those count that the running code mentions: the model of an earlier cell
    has nothing to do with it.
    """
    words = _words(frames)
    outside = [{name: frame.f_globals[name] for name in words if name in frame.f_globals} for frame in frames[-1:]]
    inside = [names_of(frame) for frame in frames if frame.f_code.co_flags & inspect.CO_OPTIMIZED]
    for space in (*inside, *outside):
        counted = [_counted(name, module) for name, module in modules_in(dict(space))]
        if found := tuple(model for model in counted if model.parameters):
            return found[:MOST_MODELS]
    return ()


def _words(frames: list[FrameType]) -> list[str]:
    """Return the names that running code mentions, in order: a function its own, a cell or a module all it has."""
    words: dict[str, None] = {}
    for frame in frames:
        code = frame.f_code
        words |= dict.fromkeys(code.co_names)
        if not code.co_flags & inspect.CO_OPTIMIZED:
            words |= dict.fromkeys(re.findall(r"[^\W\d]\w*", "".join(linecache.getlines(code.co_filename))))
    return list(words)


def _counted(name: str, module: torch.nn.Module) -> ModelInSight:
    flags = [parameter.requires_grad for parameter in module.parameters()]
    return ModelInSight(name=name, parameters=len(flags), frozen=flags.count(False))


class LossWithoutGraphLog:
    """The values without a history that backward was called on in a run, equal ones counted."""

    def __init__(self) -> None:
        self._seen: dict[tuple[int | None, object], tuple[LossWithoutGraph, object]] = {}

    def note(self, root: torch.Tensor, where: tuple[FrameType | None, int | None], cut: object) -> None:
        """Keep what is to be said of one; ``cut`` says by which key what ended its way is known."""
        key = (where[1], cut)
        if key in self._seen:
            known = self._seen[key][0]
            self._seen[key] = replace(known, count=known.count + 1), cut
        elif len(self._seen) < MOST_KINDS:
            self._seen[key] = look_at(root, *where), cut

    def report(self, cuts: Sequence[object]) -> tuple[LossWithoutGraph, ...]:
        """Return them, given the keys of the cuts that the report tells of, in order."""
        places = {cut: at for at, cut in enumerate(cuts)}
        return tuple(replace(one, cut=places.get(cut)) for one, cut in list(self._seen.values()))
