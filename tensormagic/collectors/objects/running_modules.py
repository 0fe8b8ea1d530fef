"""Which module's forward is running in a frame, by the path that a person would write."""

from __future__ import annotations

from types import FrameType

from torch import nn

from tensormagic.collectors.objects.identity import ModuleNames
from tensormagic.collectors.objects.modules import inside
from tensormagic.garbage import garbage_waits

_MODULE_CALL = nn.Module._call_impl.__code__


class RunningModules:
    """Looks up the stack for the innermost module.

    Args:
        modules: Names modules; learns those that are met.
    """

    def __init__(self, modules: ModuleNames) -> None:
        self._modules = modules

    def path_in(self, frame: FrameType | None) -> str:
        """Return the path of the innermost module whose forward is running in ``frame`` or above it."""
        while frame is not None:
            if frame.f_code is _MODULE_CALL:
                module = frame.f_locals["self"]
                return self._modules.path(module) or self._learn(module, frame)
            frame = frame.f_back
        return ""

    def _learn(self, module: nn.Module, frame: FrameType) -> str:
        """Learn the outermost module that is running, and with it, as a rule, the path of ``module``."""
        if label := self._modules.stranger(module):
            return label
        outermost, above = module, frame.f_back
        while above is not None:
            if above.f_code is _MODULE_CALL:
                outermost = above.f_locals["self"]
            above = above.f_back
        if self._modules.path(outermost) and all(inner is not module for _, inner in inside("", outermost)):
            return self._modules.add_stranger(module)
        with garbage_waits:
            self._modules.add_root(outermost)
        return self._modules.path(module) or self._modules.add_stranger(module)
