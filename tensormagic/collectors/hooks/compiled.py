"""Keeps what is compiled compiled: the tracer's mode is off the stack while a compiled region is entered and runs.

Dynamo guards on torch's stack of function modes. With a mode on it, a function that was compiled before is compiled
once more, and now Dynamo follows the mode's own Python code: the graph breaks at every call. So the mode steps aside
at the door. Every function that ``torch.compile`` returns switches Dynamo on through ``_maybe_set_eval_frame`` of
``torch._dynamo.eval_frame``, and off again through the same, from the same frame; that name is replaced while a trace
is on, and put back with it. The nodes made between the two belong to the line that called the compiled function.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import FrameType, ModuleType
from typing import Any, Protocol

import torch

from tensormagic.collectors.hooks.replacing import Replacement
from tensormagic.collectors.where.caller import foreign_caller

_MODULE, _SWITCH = "torch._dynamo.eval_frame", "_maybe_set_eval_frame"


class StepsAside(Protocol):
    """A mode that can leave the stack for a while."""

    def step_aside(self) -> bool:
        """Leave the stack; False, and nothing is done, where the mode is not on this thread's."""

    def step_back(self, caller: FrameType | None) -> None:
        """Come back; ``caller`` is the frame that called the compiled function."""


class Hooks(Protocol):
    """Hooks that Dynamo would follow."""

    def step_aside(self) -> bool:
        """Take them away; False where there were none."""

    def step_back(self) -> None:
        """Put them back."""


class Together:
    """A mode, and hooks that step aside with it."""

    def __init__(self, mode: StepsAside, hooks: Hooks) -> None:
        self._mode, self._hooks = mode, hooks
        self._had_hooks = False

    def step_aside(self) -> bool:
        """Leave, both."""
        left = self._mode.step_aside()
        self._had_hooks = left and self._hooks.step_aside()
        return left

    def step_back(self, caller: FrameType | None) -> None:
        """Come back, both."""
        self._mode.step_back(caller)
        if self._had_hooks:
            self._hooks.step_back()


class kept_compiled:  # noqa: N801  (read as what it does: ``with kept_compiled(mode):``)
    """Let ``mode`` step aside at the door of every compiled function, until the block ends."""

    def __init__(self, mode: StepsAside) -> None:
        self._mode = mode
        self._entered: FrameType | None = None
        self._replaced: list[Replacement] = []

    def __enter__(self) -> None:
        """Watch Dynamo, now or as soon as the first ``torch.compile`` has imported it."""
        module = sys.modules.get(_MODULE)
        if module is None:
            self._replace(torch, "compile", self._compile)
        elif hasattr(module, _SWITCH):
            self._replace(module, _SWITCH, self._switch)

    def __exit__(self, *_: object) -> None:
        """Put everything back."""
        while self._replaced:
            self._replaced[-1].__exit__()
            self._replaced.pop()
        if self._entered is not None:
            self._leave()

    def _replace(self, owner: ModuleType, name: str, make: Callable[[Any], Any]) -> None:
        self._replaced.append(Replacement(owner, name, make))
        self._replaced[-1].__enter__()

    def _compile(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def compile(*args: Any, **kwargs: Any) -> Any:  # noqa: A001  (it stands in for torch.compile)
            compiled = original(*args, **kwargs)
            if _MODULE in sys.modules and len(self._replaced) == 1:
                self.__enter__()
            return compiled

        return compile

    def _switch(self, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Return what stands in for Dynamo's switch. Nothing may run between switching on and returning."""

        def switch(callback: Any) -> Any:
            caller = foreign_caller(sys._getframe(1))
            if self._entered is None:
                if callable(callback) and self._mode.step_aside():
                    self._entered = caller
                return original(callback)
            if caller is not self._entered:
                return original(callback)  # a door within: the mode is aside already
            prior = original(callback)
            self._leave()
            return prior

        return switch

    def _leave(self) -> None:
        caller, self._entered = self._entered, None
        self._mode.step_back(caller.f_back if caller is not None else None)
