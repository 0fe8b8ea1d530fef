"""Walks the autograd graph below a backward call and recognises structures it has seen before.

A training loop builds a new graph in every step, but always the same one. A walk gives each node its place in a
fixed traversal order and a key made of its type, its origin (line and module) and its edges; two passes with equal
keys share one `Skeleton`, and everything costly about a node (shapes, saved tensors, names) is read once a skeleton.

The walk is iterative: recursion dies at about a thousand nodes. It holds the nodes only until the pass ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tensormagic.collectors.forward import Origins
from tensormagic.collectors.identity import Leaves
from tensormagic.reports import Edge

Ends = tuple[int, ...]  # (place of target, slot) of every edge, one after the other: flat, because there are many
Key = tuple[Any, int, Ends]


@dataclass(slots=True)
class Walk:
    """One traversal of a live graph. Holds the nodes: drop it when the pass is over.

    Attributes:
        nodes: The autograd nodes, in traversal order; the roots first.
        keys: One a node: (type, origin or leaf number, edges); see `ends_of`.
        exact: Whether each node's origin is exact.
        roots: Places of the nodes that backward starts from.
    """

    nodes: list[Any]
    keys: list[Key]
    exact: list[bool]
    roots: tuple[int, ...]


def is_accumulate(node: Any) -> bool:
    """Return whether ``node`` is an ``AccumulateGrad``: the end of the graph, where a leaf collects its gradient."""
    return hasattr(node, "variable")


def walk(roots: Iterable[Any], origins: Origins, leaves: Leaves) -> Walk:
    """Walk the graph below ``roots``, breadth first in the order of ``next_functions``."""
    nodes: list[Any] = []
    places: dict[int, int] = {}  # id → place; sound while `nodes` keeps every wrapper alive
    starts = tuple(_enter(root, nodes, places) for root in roots)
    edges: list[Ends] = []
    for node in nodes:  # grows while it is walked
        edges.append(_edges_of(node, nodes, places))  # noqa: PERF401  (a comprehension would hide that)
    keys, exact = [], []
    for node, ends in zip(nodes, edges, strict=True):
        number, certain = _number(node, ends, origins, leaves)
        keys.append((type(node), number, ends))
        exact.append(certain)
    return Walk(nodes, keys, exact, tuple(dict.fromkeys(starts)))


def _edges_of(node: Any, nodes: list[Any], places: dict[int, int]) -> Ends:
    ends: list[int] = []
    for target, slot in node.next_functions:
        ends += (-1, 0) if target is None else (_enter(target, nodes, places), slot)
    return tuple(ends)


def ends_of(key: Key) -> Iterator[tuple[int, int, int]]:
    """Yield (input number, place of target, slot) for every edge of a node that leads somewhere."""
    flat = key[2]
    for at in range(0, len(flat), 2):
        if flat[at] >= 0:
            yield at // 2, flat[at], flat[at + 1]


def _enter(node: Any, nodes: list[Any], places: dict[int, int]) -> int:
    place = places.get(id(node))
    if place is None:
        place = places[id(node)] = len(nodes)
        nodes.append(node)
    return place


def _number(node: Any, ends: Ends, origins: Origins, leaves: Leaves) -> tuple[int, bool]:
    if not ends and is_accumulate(node):
        return leaves.number(node.variable), True
    return origins.of(node._sequence_nr())


@dataclass(slots=True)
class Skeleton:
    """What all passes of the same structure share. Plain data: it keeps no node alive.

    Nodes are held in report order: order of creation, leaves where first used. Traversal places are translated by
    ``index``.

    Attributes:
        number: From 1.
        keys: The structure, in traversal order.
        index: Traversal place → report index.
        edges: In report indices.
        roots: Report indices of the roots.
        leaf_of: Report index → leaf number, for the leaves only.
        contested: Traversal place of a node → {input number: (target's report index, slot)}, for the edges into a
            slot that several edges feed: only there does a gradient arrive summed.
        feeder: Report index → report index of the one node that feeds it, or -1 where there is not exactly one, or
            where a hook of the person's own could stand between the two.
    """

    number: int
    keys: list[Key]
    index: list[int]
    edges: tuple[Edge, ...]
    roots: tuple[int, ...]
    leaf_of: dict[int, int]
    contested: dict[int, dict[int, tuple[int, int]]] = field(default_factory=dict)
    feeder: list[int] = field(default_factory=list)

    @property
    def size(self) -> int:
        """How many nodes there are."""
        return len(self.keys)


def make_skeleton(number: int, found: Walk) -> Skeleton:
    """Turn a walk into the skeleton that later passes are compared with."""
    order = _creation_order(found)
    index = [0] * len(order)
    for at, place in enumerate(order):
        index[place] = at
    edges = tuple(
        Edge(index[place], index[target], number_of_input, slot)
        for place in order
        for number_of_input, target, slot in ends_of(found.keys[place])
    )
    leaf = [not key[2] and is_accumulate(node) for key, node in zip(found.keys, found.nodes, strict=True)]
    return Skeleton(
        number=number,
        keys=found.keys,
        index=index,
        edges=edges,
        roots=tuple(index[place] for place in found.roots),
        leaf_of={index[at]: key[1] for at, key in enumerate(found.keys) if leaf[at]},
        contested=_contested(found, index),
        feeder=_feeders(found, index),
    )


def _creation_order(found: Walk) -> list[int]:
    """Return traversal places in order of creation; leaves, which carry no number, just before their first user."""
    last = (1 << 64, 1)
    when = [last] * len(found.nodes)
    for place, (node, key) in enumerate(zip(found.nodes, found.keys, strict=True)):
        if not key[2] and is_accumulate(node):
            continue
        sequence = node._sequence_nr()
        when[place] = (sequence, 1)
        for _, target, _ in ends_of(key):
            if is_accumulate(found.nodes[target]):
                when[target] = min(when[target], (sequence, 0))
    return sorted(range(len(found.nodes)), key=lambda place: (*when[place], place))


def _contested(found: Walk, index: list[int]) -> dict[int, dict[int, tuple[int, int]]]:
    feeders: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for place, key in enumerate(found.keys):
        for input_number, target, slot in ends_of(key):
            feeders.setdefault((target, slot), []).append((place, input_number))
    contested: dict[int, dict[int, tuple[int, int]]] = {}
    for (target, slot), sources in feeders.items():
        for place, input_number in sources if len(sources) > 1 else ():
            contested.setdefault(place, {})[input_number] = (index[target], slot)
    return contested


def _feeders(found: Walk, index: list[int]) -> list[int]:
    sources: list[list[int]] = [[] for _ in index]
    for place, key in enumerate(found.keys):
        for _, target, _ in ends_of(key):
            sources[index[target]].append(index[place])
    for place in found.roots:
        sources[index[place]].append(-1)
    return [feeding[0] if len(feeding) == 1 else -1 for feeding in sources]
