"""Modes that torch does not notice, and modes that can leave their thread's stack for a while."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, TypeVar

import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from tensormagic.collectors.hooks.replacing import Replacement

# Keeps torch from noticing that a function mode is on.
#
# A function mode has one effect of its own: ``torch.overrides.has_torch_function`` says True while any mode is on,
# and ``nn.TransformerEncoderLayer`` and ``nn.MultiheadAttention`` then leave their fused inference path, whose
# results differ in the last bits. `Transparent` answers that question as if the mode were not there.

AnyMode = TypeVar("AnyMode", bound="TransparentMode")

_QUESTIONS = ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic")
_ASKING = (torch.overrides, torch.functional, nn.functional)
_BACKWARD = frozenset(call.__code__ for call in (torch.Tensor.backward, torch.autograd.backward, torch.autograd.grad))


class Transparent:
    """Lets torch's own questions whether anybody overrides its functions be answered as if ``mode`` were off.

    Only names that torch's Python modules look such questions up by are replaced, and put back: the fused inference
    paths of ``nn.TransformerEncoderLayer`` and ``nn.MultiheadAttention``, and the functions of
    ``torch.nn.functional``, which would take a way round through the mode (and show it in their tracebacks) before
    they come to the calls that the mode sees anyway. Backward calls are seen by `backward_calls`, and do not take that
    way either: how far up the stack a line is that a warning in a hook names is then what it always is.
    """

    def __init__(self, mode: TorchFunctionMode) -> None:
        self._mode = mode
        self._replaced: list[Replacement] = []

    def __enter__(self) -> Transparent:
        """Replace the names; where they are put back for a while, again."""
        if self._replaced:
            self.resume()
            return self
        for module in _ASKING:
            for name in _QUESTIONS:
                self._replace(module, name, self._answering)
        self._replace(torch._tensor, "has_torch_function_unary", self._answering_backward)
        self._replace(torch.autograd, "has_torch_function", self._answering_backward)
        return self

    def _replace(self, module: Any, name: str, make: Callable[[Callable[..., bool]], Callable[..., bool]]) -> None:
        if hasattr(module, name):
            self._replaced.append(Replacement(module, name, make))

    def __exit__(self, *_: object) -> None:
        """Put them back."""
        while self._replaced:
            self._replaced.pop().undo()

    def pause(self) -> None:
        """Put them back for a while."""
        for replaced in self._replaced:
            replaced.pause()

    def resume(self) -> None:
        """Replace them again."""
        for replaced in self._replaced:
            replaced.resume()

    def _answering_backward(self, original: Callable[..., bool]) -> Callable[..., bool]:
        """Return the answer for calls of backward, which are seen elsewhere; other questions get torch's own."""
        answer = self._answering(original)

        def has_torch_function(*args: Any) -> bool:
            return answer(*args) if sys._getframe(1).f_code in _BACKWARD else original(*args)

        return has_torch_function

    def _answering(self, original: Callable[..., bool]) -> Callable[..., bool]:
        mode = self._mode

        def has_torch_function(*args: Any) -> bool:
            if not _is_innermost(mode):
                return original(*args)
            torch._C._pop_torch_function_stack()
            try:
                return original(*args)
            finally:
                torch._C._push_on_torch_function_stack(mode)

        return has_torch_function


class TransparentMode(TorchFunctionMode):
    """A function mode that torch does not notice, and that can leave the stack for a while."""

    def __init__(self) -> None:
        super().__init__()
        self._transparent = Transparent(self)
        self._place = 0

    def __enter__(self: AnyMode) -> AnyMode:
        """Go onto the stack; torch's own questions about overrides are answered as if nobody were there."""
        self._transparent.__enter__()
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: object) -> None:
        """Leave it, wherever on it the mode lies."""
        self._transparent.__exit__()
        set_modes([mode for mode in active_modes() if mode is not self])

    def step_aside(self) -> bool:
        """Leave the stack until `step_back`, where this mode is on it; the run is then as if nobody looked."""
        modes = active_modes()
        if self not in modes:
            return False
        self._transparent.pause()
        self._place = modes.index(self)
        set_modes([mode for mode in modes if mode is not self])
        return True

    def step_back(self, _caller: FrameType | None) -> None:
        """Come back."""
        modes = active_modes()
        set_modes([*modes[: self._place], self, *modes[self._place :]])
        self._transparent.resume()


def active_modes() -> list[TorchFunctionMode]:
    """Return this thread's function modes, the outermost first."""
    return [torch._C._get_function_stack_at(at) for at in range(torch._C._len_torch_function_stack())]


def set_modes(modes: list[TorchFunctionMode]) -> None:
    """Put these function modes on this thread's stack, the outermost first, and no others."""
    while torch._C._len_torch_function_stack():
        torch._C._pop_torch_function_stack()
    for mode in modes:
        torch._C._push_on_torch_function_stack(mode)


def _is_innermost(mode: TorchFunctionMode) -> bool:
    depth = torch._C._len_torch_function_stack()
    return depth > 0 and torch._C._get_function_stack_at(depth - 1) is mode


# A dispatch mode that can leave its thread's stack for a while, wherever on it it lies.

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
