"""What `cuts` asks of values and nodes: whether a value has a way back, and which node took it as an input.

Nothing here may change what is asked: a view that was written to is not asked for its node, because torch would make
one to answer.
"""

from __future__ import annotations

import weakref
from typing import Any, NamedTuple

import numpy as np
import torch

from tensormagic.collectors.graphs.history import flat, has_history, is_stale
from tensormagic.collectors.quiet import numbers

_TAKE_MASKS = ("Where", "IndexPut")  # nodes that have no input for a mask, and one for a number
MOST_SEARCHED = 64  # nodes that one call made, looked through for an input without a way back


class Receiver(NamedTuple):
    """What used a marked value: a node by its sequence number, or a leaf that the value itself became."""

    number: int
    input_number: int | None
    shape: tuple[int, ...]
    dtype: str
    selects: bool = False
    leaf: weakref.ref[torch.Tensor] | None = None


def receiver_of(made: tuple[int, int], values: list[Any], at: int, result: Any) -> Receiver | None:
    """Return what used the marked value at ``values[at]``, in a call that made the nodes ``made``; None if unknown."""
    value = values[at]
    shape, dtype = shape_of(value), dtype_of(value)
    if isinstance(value, torch.Tensor) and value.requires_grad and value is not result:
        return Receiver(-1, None, leaf=weakref.ref(value), shape=shape, dtype=dtype)  # a leaf of its own by now
    nodes = _nodes_made(made, values[0] if result is None else result)
    if not nodes:
        return None
    ended = sorted((number, places) for number, places, *_ in nodes if places)
    if isinstance(value, torch.Tensor) and not differentiable(value):
        others = sum(_could_end(other, result) for other in values if other is not value)
        masks = value.dtype == torch.bool and any(name.startswith(_TAKE_MASKS) for *_, name in nodes)
        if masks or sum(len(places) for _, places in ended) <= others:
            ended = []
    if not ended:
        number = max(number for number, *_ in nodes)
        return Receiver(number, None, selects=isinstance(value, torch.Tensor), shape=shape, dtype=dtype)
    number, places = ended[0]
    inputs = next(inputs for other, _, inputs, _ in nodes if other == number)
    place = places[0] if len(places) == 1 else _at_its_place(values, at, (len(nodes), inputs, places))
    return Receiver(number, place, shape=shape, dtype=dtype)


def differentiable(value: torch.Tensor) -> bool:
    """Say whether its dtype can have a gradient."""
    return value.is_floating_point() or value.is_complex()


def _could_end(value: Any, result: Any) -> bool:
    """Say whether a value is one that a node has an input for, and that has no history."""
    return isinstance(value, torch.Tensor) and value is not result and differentiable(value) and not value.requires_grad


def _nodes_made(made: tuple[int, int], result: Any) -> list[tuple[int, list[int], int, str]]:
    """Return the nodes of one call, each with its inputs that have no way back, how many it has, and its name."""
    results = [x for x in flat((result,)) if has_history(x) and not is_stale(x)]
    waiting: list[Any] = [x.grad_fn for x in results]
    found: dict[int, tuple[int, list[int], int, str]] = {}
    while waiting and len(found) < MOST_SEARCHED:
        node = waiting.pop()
        number = node._sequence_nr()
        if number in found or not made[0] <= number < made[1]:
            continue
        targets = [target for target, _ in node.next_functions]
        ended = [at for at, target in enumerate(targets) if target is None]
        found[number] = (number, ended, len(targets), node.name())
        waiting += [target for target in targets if target is not None]
    return list(found.values())


def _at_its_place(values: list[Any], at: int, node: tuple[int, int, list[int]]) -> int | None:
    """Return which of several inputs without a way back it is: told by its place where there is one for each tensor."""
    made, inputs, ended = node
    tensors = [place for place, value in enumerate(values) if isinstance(value, torch.Tensor)]
    place = tensors.index(at) if at in tensors and made == 1 and len(tensors) == inputs else -1
    return place if place in ended else None


def shape_of(value: Any) -> tuple[int, ...]:
    """Return the shape of a tensor or an array; empty for a number, and where it cannot be told."""
    try:
        return numbers(value.shape) if isinstance(value, torch.Tensor | np.ndarray) else ()
    except (RuntimeError, TypeError, AttributeError):  # nested, jagged or symbolic sizes
        return ()


def dtype_of(value: Any) -> str:
    """Return the dtype of a tensor or an array, without the prefix; of a number its type."""
    plain = isinstance(value, torch.Tensor | np.ndarray)
    return str(value.dtype).removeprefix("torch.") if plain else type(value).__name__
