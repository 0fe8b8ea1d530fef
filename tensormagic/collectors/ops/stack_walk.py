"""One walk up the stack: from where an operation was called to the person's line, the module and the phase.

Both dispatch modes that attribute operations to lines take it: the one that counts them and the one that follows
their memory.
"""

from __future__ import annotations

import os.path
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch
from torch import nn

from tensormagic.collectors.where.source import Sites, is_own_code

_MODULE_CALL = nn.Module._call_impl.__code__
_TORCH = os.path.dirname(torch.__file__) + os.path.sep  # noqa: PTH120  (compared with file names as Python has them)
_OPTIMIZERS = (os.path.join(_TORCH, "optim", ""), os.path.join(_TORCH, "amp", "grad_scaler.py"))  # noqa: PTH118
_STEP_WRAPPER = "wrapper"  # torch's, around the ``step`` of every optimizer, the person's own ones included
_DECORATED = "decorate_context"  # torch's, around what @torch.no_grad() stands on
_GENERATED = "torchinductor_"  # a folder of files that the compiler wrote: not the person's
_LIBRARY, _OWN, _OPTIMIZER = 0, 1, 2


class StackWalk:
    """Finds the person's line, the module and the phase of what a frame runs.

    Args:
        sites: Interns the person's lines.
        module_path: Gives the path of the module that is called in a frame.
    """

    def __init__(self, sites: Sites, module_path: Callable[[FrameType | None], str]) -> None:
        self._sites = sites
        self._module_path = module_path
        self._kinds: dict[str, int] = {}

    def own_site(self, frame: FrameType | None, stop: Any) -> int | None:
        """Return the site of the innermost own frame below the one that runs ``stop``; None where there is none."""
        while frame is not None and frame.f_code is not stop:
            if self._kind(frame) == _OWN:
                return self._sites.of_frame(frame)
            frame = frame.f_back
        return None

    def walk(self, frame: FrameType | None) -> tuple[int | None, str, bool]:
        """Return the innermost own line, the innermost module, and whether an optimizer of torch's made the call."""
        site, module, optimizes, found = None, "", False, False
        known = self._kinds.get
        while frame is not None:
            code = frame.f_code
            if code is _MODULE_CALL:
                module = module or self._path(frame)
                if found:
                    break
            elif not found:
                if (kind := known(code.co_filename)) is None:
                    kind = self._kind(frame)
                if kind == _OWN:
                    site, found = self._sites.of_frame(frame), True
                    optimizes = not module and (optimizes or self._is_step(frame))
                    if module or code.co_name == "<module>":
                        break
                optimizes = optimizes or kind == _OPTIMIZER
            elif code.co_name == "<module>" and self._kind(frame) == _OWN:
                break
            frame = frame.f_back
        return site, module, optimizes and not module

    def _path(self, frame: FrameType) -> str:
        """Return the path of the module that is called in ``frame``; never raises, whatever the module is."""
        try:
            return self._module_path(frame)
        except Exception:  # half made still, as a lazy one is while it makes its parameters
            return f"({type(frame.f_locals.get('self')).__name__})"

    def _is_step(self, frame: FrameType) -> bool:
        """Return whether an own frame is the ``step`` of an optimizer that the person wrote."""
        above = frame.f_back
        if above is not None and above.f_code.co_name == _DECORATED:
            above = above.f_back
        return above is not None and above.f_code.co_name == _STEP_WRAPPER and self._kind(above) == _OPTIMIZER

    def _kind(self, frame: FrameType) -> int:
        filename = frame.f_code.co_filename
        kind = self._kinds.get(filename)
        if kind is None:
            own = is_own_code(filename) and _GENERATED not in filename
            kind = _OWN if own else _OPTIMIZER if filename.startswith(_OPTIMIZERS) else _LIBRARY
            self._kinds[filename] = kind
        return kind
