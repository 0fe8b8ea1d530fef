"""Whether a value has a way back, which node made it, and whether that node runs Python code of the person's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch.autograd.function import BackwardCFunction

# Whether a value has a way back, and which node made it, asked without making torch build one to answer.


def flat(values: tuple[Any, ...]) -> Iterator[Any]:
    """Yield the values, and those in lists and tuples among them."""
    for value in values:
        if isinstance(value, list | tuple):
            yield from value
        else:
            yield value


def has_history(value: Any) -> bool:
    """Say whether it is a tensor with a way back."""
    return isinstance(value, torch.Tensor) and value.requires_grad and (is_stale(value) or not value.is_leaf)


def is_leaf(value: Any) -> bool:
    """Say whether it is a tensor that collects a gradient of its own."""
    return isinstance(value, torch.Tensor) and value.requires_grad and not has_history(value)


def is_stale(x: torch.Tensor) -> bool:
    """Say whether torch might make a new node to answer what made ``x``: a view whose elements were written to."""
    return x._is_view() and x._version > 0


def without_history(value: Any) -> bool:
    """Say whether it is a value that has no way back; a view made without gradients calls itself a leaf."""
    if not isinstance(value, torch.Tensor):
        return isinstance(value, np.ndarray | float | complex)
    return not value.requires_grad or (value._is_view() and not has_history(value))


def history_of(x: torch.Tensor) -> tuple[int, str]:
    """Return the sequence number and the name of the node that made ``x``; -1 where there is none, or none to ask for.

    Asking a view that was written to for its node makes a new node: that would change the graph.
    """
    if not has_history(x) or is_stale(x):
        return -1, ""
    node: Any = x.grad_fn
    return node._sequence_nr(), node.name()


# Which nodes run Python code of the person's in their backward.

_CHECKPOINT = "CheckpointFunctionBackward"


def runs_python(node: Any) -> bool:
    """Return whether the backward of a node is Python code of the person's, or runs such code."""
    if not isinstance(node, BackwardCFunction):
        return False
    module: str = getattr(getattr(type(node), "_forward_cls", None), "__module__", "")
    return not module.startswith("torch.") or type(node).__name__ == _CHECKPOINT
