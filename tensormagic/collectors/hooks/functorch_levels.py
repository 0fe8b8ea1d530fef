"""Looks through the wrappers that ``torch.func`` puts around tensors, one for each transform that is running.

Inside ``grad``, ``vjp`` or ``jacrev`` backward runs as anywhere: over nodes that can be walked and hooked. Only the
tensors are wrapped, once a transform (a *level*), and under ``vmap`` one wrapper stands for a whole batch. The
numbers that the tracer gives are those of what is wrapped: of all the batch at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch._C import _functorch
from torch.utils._python_dispatch import _disable_current_modes

BATCHED = "is_grads_batched"


def active_levels() -> tuple[str, ...]:
    """Return what is running on this thread, the outermost first: ``("vmap", "grad")``; mostly nothing (0.3 µs)."""
    if _functorch.peek_interpreter_stack() is None:
        return (BATCHED,) * _batching_depth()
    stack = _functorch.get_interpreter_stack() or ()
    return tuple(interpreter.key().name.lower() for interpreter in stack) + (BATCHED,) * _batching_depth()


def _batching_depth() -> int:
    """Return how many calls of the older vmap are running, the one behind ``is_grads_batched=True``."""
    depth = torch._C._vmapmode_increment_nesting() - 1
    torch._C._vmapmode_decrement_nesting()
    return depth


def bare(value: Any) -> Any:
    """Return the tensor inside all wrappers; anything that is not wrapped as it is."""
    while isinstance(value, torch.Tensor):
        if _functorch.is_functorch_wrapped_tensor(value):
            value = _functorch.get_unwrapped(value)
        elif _functorch.is_legacy_batchedtensor(value):
            value = torch._remove_batch_dim(value, _batching_depth(), 1, 0)
        else:
            break
    return value


@contextmanager
def outside_levels() -> Iterator[None]:
    """Compute as if no transform and no dispatch mode were on."""
    with torch._C._DisableFuncTorch(), _disable_current_modes():
        yield
