"""The way from a tensor to what was computed from it, as graphs stand now: looked for from the far end.

A graph can be walked in one direction only: from what was computed to what it was computed from. So everything that has
a name and a history is walked, scalars first and the last ones made first, until one leads to the tensor.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch

from tensormagic.collectors.graphs.history import is_stale
from tensormagic.collectors.graphs.nodes import op_name
from tensormagic.collectors.tensors.saved_states import saved_states
from tensormagic.reports import LiveWay

MOST_NODES = 50_000  # walked in all
MOST_ENDS = 64  # named values that are tried

Named = Sequence[tuple[str, Any]]


def way_between(x: torch.Tensor, loss: Any, name: str, named: Named) -> LiveWay | None:
    """Return the way from ``x`` to a given loss; None where there is none."""
    if not isinstance(loss, torch.Tensor) or loss.grad_fn is None or is_stale(loss):
        return None
    nodes, _ = _walk(loss.grad_fn, x, MOST_NODES)
    return _told(nodes, loss, name, named) if nodes else None


def way_to_anything(x: torch.Tensor, named: Named) -> tuple[LiveWay | None, int]:
    """Return the way to something computed from ``x`` that has a name, and how many were looked at."""
    ends = _ends(x, named)
    left = MOST_NODES
    for looked, (label, end) in enumerate(ends, start=1):
        nodes, left = _walk(end.grad_fn, x, left)
        if nodes:
            return _told(nodes, end, label, named), looked
        if left <= 0:
            break
    return None, len(ends)


def _ends(x: torch.Tensor, named: Named) -> list[tuple[str, torch.Tensor]]:
    """Return what has a name and a history, each once: single numbers first, later names before earlier ones."""
    found: dict[int, tuple[str, torch.Tensor]] = {}
    for label, each in reversed(named):
        if each is not x and each.requires_grad and not each.is_leaf and not is_stale(each) and each.layout is not None:
            found.setdefault(id(each), (label, each))
    ordered = sorted(found.values(), key=lambda pair: (pair[1].numel() != 1, "." in pair[0] or "[" in pair[0]))
    return ordered[:MOST_ENDS]


def _walk(root: Any, x: torch.Tensor, left: int) -> tuple[list[Any], int]:
    """Return the nodes from the one that makes or collects ``x`` to ``root``, and how many more may be walked."""
    aim = None if x.is_leaf else x.grad_fn
    came_from: dict[int, tuple[Any, Any]] = {id(root): (root, None)}
    nodes = [root]
    for node in nodes:  # grows while it is walked
        left -= 1
        if node is aim or (aim is None and getattr(node, "variable", None) is x):
            return list(_back(node, came_from)), left
        if left <= 0:
            break
        for following, _ in node.next_functions:
            if following is not None and id(following) not in came_from:
                came_from[id(following)] = following, node
                nodes.append(following)
    return [], left


def _back(node: Any, came_from: Mapping[int, tuple[Any, Any]]) -> Iterator[Any]:
    while node is not None:
        yield node
        node = came_from[id(node)][1]


def _told(nodes: list[Any], end: torch.Tensor, name: str, named: Named) -> LiveWay:
    made = _made(nodes, named)
    return LiveWay(
        end=name,
        is_scalar=end.numel() == 1,
        ops=tuple(made.get(id(node), op_name(node.name())) for node in nodes[1:-1]),
        freed=any(state.state == "freed" for node in nodes[1:] for state in saved_states(node)),
    )


def _made(nodes: Iterable[Any], named: Named) -> dict[int, str]:
    """Return what the tensors are called that the nodes made."""
    wanted = {id(node) for node in nodes}
    found: dict[int, str] = {}
    for label, each in named:
        if each.requires_grad and not each.is_leaf and not is_stale(each) and id(each.grad_fn) in wanted:
            found.setdefault(id(each.grad_fn), label)
    return found
