"""Batch normalisations in train mode where gradients are off: an evaluation that moves running statistics."""

from __future__ import annotations

from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import nn

from tensormagic.reports import UntrainedNorm

if TYPE_CHECKING:
    from tensormagic.collectors.calls.call_watch import Call, CallWatch

NAMES: Final = ("batch_norm",)
MOST_MODULES = 256

_WEIGHT, _RUNNING_MEAN, _TRAINING = 1, 3, 5  # places among the arguments of torch.batch_norm
_MODULE_CALL = nn.Module._call_impl.__code__
_is_grad_enabled = torch.is_grad_enabled


@dataclass(slots=True)
class _Norm:
    path: str
    site: int | None
    passes: int
    batches: int = 0
    in_a_row: int = 0
    longest: int = 0


class UntrainedNorms:
    """Normalisations that took statistics from batches that nothing was learned from."""

    def __init__(self) -> None:
        self._norms: dict[tuple[str, int | None], _Norm] = {}

    def add(self, path: str, site: int | None, passes: int) -> None:
        """Note one batch, after so many backward passes."""
        norm = self._norms.get((path, site))
        if norm is None:
            if len(self._norms) >= MOST_MODULES:
                return
            norm = self._norms[path, site] = _Norm(path, site, passes)
        norm.in_a_row = norm.in_a_row + 1 if norm.passes == passes else 1
        norm.passes = passes
        norm.batches += 1
        norm.longest = max(norm.longest, norm.in_a_row)

    def report(self) -> tuple[UntrainedNorm, ...]:
        """Return what was seen."""
        return tuple(
            UntrainedNorm(module=norm.path, location=norm.site, batches=norm.batches, longest=norm.longest)
            for norm in list(self._norms.values())
        )


def normalised(watch: CallWatch, call: Call) -> None:
    """Look at a normalisation: in train mode, with gradients off, of a parameter that asks for one, amid a training."""
    if _is_grad_enabled() or not watch.loop.passes or len(call.args) <= _TRAINING or not call.args[_TRAINING]:
        return
    weight, mean = call.args[_WEIGHT], call.args[_RUNNING_MEAN]
    if weight is None or mean is None or not weight.requires_grad:
        return
    module = _module(call.frame)
    if module is not None and getattr(module, "momentum", None) is not None:  # None: to be computed anew, all of it
        watch.loop.norms.add(watch.path(call), watch.loop.region(), watch.loop.passes)


def _module(frame: FrameType | None) -> Any:
    while frame is not None and frame.f_code is not _MODULE_CALL:
        frame = frame.f_back
    return frame.f_locals["self"] if frame is not None else None
