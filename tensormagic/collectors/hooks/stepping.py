"""A dispatch mode that can leave its thread's stack for a while, wherever on it it lies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

_depth: Callable[[], int] = torch._C._len_torch_dispatch_stack
_mode_at: Callable[[int], Any] = torch._C._get_dispatch_stack_at
_pop_mode: Callable[[Any], Any] = torch._C._pop_torch_dispatch_stack
_push_mode: Callable[[Any], None] = torch._C._push_on_torch_dispatch_stack


class SteppingMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A mode that ``torch.compile`` does not mind, and that can step off."""

    supports_higher_order_operators = True

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Leave ``torch.compile`` on."""
        return True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Do without torch's wrapper, which would import the compiler and stand in tracebacks."""
        return False

    def leave(self) -> int:
        """Leave this thread's stack; returns the place there, to come back to: -1 where it was not on it."""
        depth = _depth()
        place = next((at for at in range(depth) if _mode_at(at) is self), -1)
        if place >= 0:
            above = _pop(depth - place)
            _push(above[:-1])
        return place

    def leave_alone(self) -> Callable[[Any], None] | None:
        """Leave while torch writes down what runs: see `tensormagic.collectors.hooks.capturing.Captures`."""
        place = self.leave()
        return None if place < 0 else lambda _caller: self.come_back(place)

    def come_back(self, place: int) -> None:
        """Go back onto the stack, where `leave` said; nothing is done where it is there already."""
        depth = _depth()
        if place < 0 or any(_mode_at(at) is self for at in range(depth)):
            return
        _push([*_pop(depth - place), self])


def _pop(count: int) -> list[Any]:
    """Take so many modes off the stack; returns them, the innermost first."""
    return [_pop_mode(None) for _ in range(count)]


def _push(modes: list[Any]) -> None:
    """Put back what `_pop` returned."""
    for mode in reversed(modes):
        _push_mode(mode)
