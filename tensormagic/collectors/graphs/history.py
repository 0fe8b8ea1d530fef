"""Whether a value has a way back, which node made it, what that node leads to, and whether it runs Python code."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from types import GetSetDescriptorType
from typing import Any

import numpy as np
import torch
from torch.autograd.function import BackwardCFunction

from tensormagic.collectors.objects.holdings import mro_of

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


# The nodes that a node hands its gradients to: the one place, with `structure`, that reads the edges of live graphs.


def inputs_of(node: Any) -> list[Any]:
    """Return the node behind each input of a node; None for an input without a gradient."""
    return [target for target, _ in node.next_functions]


def next_nodes(node: Any) -> list[Any]:
    """Return the nodes that a node hands gradients to, in the order of its inputs."""
    return [target for target, _ in node.next_functions if target is not None]


def first_input(node: Any) -> Any:
    """Return the node behind the first input; None where it has none."""
    return node.next_functions[0][0] if node.next_functions else None


def walk_nodes(roots: Iterable[Any], most: int, seen: set[Any] | None = None) -> Iterator[Any]:
    """Yield nodes and all that is below them, the nearest first, each once.

    Args:
        roots: Where to begin.
        most: How many may have been met, then it ends.
        seen: Those met before, which are passed over; those met now are added, and held: an ``id`` lasts as long.
    """
    met = set() if seen is None else seen
    pending = deque(roots)
    while pending and len(met) < most:
        node = pending.popleft()
        if node not in met:
            met.add(node)
            yield node
            pending.extend(next_nodes(node))


def is_node_class(kind: type) -> bool:
    """Return whether instances of a class are nodes of an autograd graph."""
    return torch._C._FunctionBase in mro_of(kind) or type(vars(kind).get("next_functions")) is GetSetDescriptorType


# Which nodes run Python code of the person's in their backward.

_CHECKPOINT = "CheckpointFunctionBackward"


def runs_python(node: Any) -> bool:
    """Return whether the backward of a node is Python code of the person's, or runs such code."""
    if not isinstance(node, BackwardCFunction):
        return False
    module: str = getattr(getattr(type(node), "_forward_cls", None), "__module__", "")
    return not module.startswith("torch.") or type(node).__name__ == _CHECKPOINT
