"""The way from a tensor to its leaves: the nearest nodes of its graph, by the person's names where there are any.

The walk is breadth first, iterative and bounded: a recurrent network of a hundred thousand nodes is not walked for a
panel. A few nodes are described, more are counted, and it is said whether these were all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tensormagic.collectors.graphs.nodes import op_name
from tensormagic.collectors.quiet import numbers
from tensormagic.collectors.tensors.saved_states import saved_states
from tensormagic.reports import BEYOND, NOTHING, Path, PathNode

MOST_COUNTED = 10_000
MOST_LISTED = 28
MOST_NAMED = 10_000  # names whose tensors are asked which node made them


def path_of(root: Any, names: Mapping[int, str], named: Iterable[tuple[str, Any]] = ()) -> Path | None:
    """Return the way from a node to the leaves.

    Args:
        root: A tensor's ``grad_fn``.
        names: What tensors are called, by ``tensor._cdata``: for the leaves.
        named: Names and tensors: for what the nodes made.
    """
    if root is None:
        return None
    nodes, complete = _walk(root)
    listed = nodes[:MOST_LISTED]
    places = {id(node): place for place, node in enumerate(listed)}
    made = _made(places, named)
    return Path(
        nodes=tuple(_node(node, names, places, made.get(place, "")) for place, node in enumerate(listed)),
        walked=len(nodes),
        complete=complete,
    )


def _walk(root: Any) -> tuple[list[Any], bool]:
    """Return the nearest nodes; holding them keeps each one's Python object, and so its ``id``, the same."""
    nodes, seen = [root], {id(root)}
    for node in nodes:  # grows while it is walked
        for following, _ in node.next_functions:
            if following is None or id(following) in seen:
                continue
            if len(nodes) == MOST_COUNTED:
                return nodes, False
            seen.add(id(following))
            nodes.append(following)
    return nodes, True


def _made(places: Mapping[int, int], named: Iterable[tuple[str, Any]]) -> dict[int, str]:
    """Return place → name for the listed nodes that made a tensor which has a name; the first name counts."""
    found: dict[int, str] = {}
    for _, (label, item) in zip(range(MOST_NAMED), named, strict=False):
        if getattr(item, "requires_grad", False) and (place := places.get(id(item.grad_fn))) is not None:
            found.setdefault(place, label)
    return found


def _node(node: Any, names: Mapping[int, str], places: Mapping[int, int], made: str) -> PathNode:
    if type(node).__name__ == "AccumulateGrad" and (leaf := node.variable) is not None:
        return PathNode(
            op="", node="AccumulateGrad", name=names.get(leaf._cdata, ""), shape=_sizes(leaf), is_leaf=True,
            has_grad=leaf.grad is not None,
        )  # fmt: skip
    inputs = tuple(NOTHING if to is None else places.get(id(to), BEYOND) for to, _ in node.next_functions)
    states = {saved.state for saved in saved_states(node)}
    spoilt = next((state for state in ("changed in place", "freed") if state in states), "")
    return PathNode(op_name(node.name()), node.name(), made, _shape(node), inputs=inputs, saved=spoilt)


def _shape(node: Any) -> tuple[int, ...]:
    try:
        return _sizes(node._input_metadata[0])
    except (RuntimeError, AttributeError, IndexError):  # nested and functorch outputs have no plain shape
        return ()


def _sizes(sized: Any) -> tuple[int, ...]:
    try:
        return numbers(sized.shape)
    except (RuntimeError, TypeError, AttributeError):  # symbolic or nested sizes
        return ()
