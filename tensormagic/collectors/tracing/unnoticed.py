"""Keeps torch from noticing that a function mode is on.

A function mode has one effect of its own: ``torch.overrides.has_torch_function`` says True while any mode is on, and
``nn.TransformerEncoderLayer`` and ``nn.MultiheadAttention`` then leave their fused inference path, whose results
differ in the last bits. `Unnoticed` answers that question as if the mode were not there.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from tensormagic.collectors.tracing.replacing import Replacement

_QUESTIONS = ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic")
_ASKING = (torch.overrides, torch.functional, nn.functional)
_BACKWARD = frozenset(call.__code__ for call in (torch.Tensor.backward, torch.autograd.backward, torch.autograd.grad))


class Unnoticed:
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

    def __enter__(self) -> Unnoticed:
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
