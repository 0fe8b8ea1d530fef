"""Walks the autograd graph below a backward call and recognises structures it has seen before.

A training loop builds a new graph in every step, but always the same one. A walk gives each node its place in a
fixed traversal order, and packs the type, origin (line and module) and edges of all nodes into one array, the
signature; passes with equal signatures share one `GraphStructure`, and everything costly about a node (shapes, saved
tensors, names) is read once a structure.

The walk is iterative: recursion dies at about a thousand nodes. It holds the nodes only until the pass ends.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from tensormagic.collectors.graphs.live_nodes import (
    NO_NUMBER,
    STRIDE,
    VIEWS,
    DeallocStops,
    NodeThreads,
    dealloc_stops,
    nodes_named,
    put_stops,
)
from tensormagic.collectors.graphs.saved_tensors import saved_argument
from tensormagic.collectors.objects.identity import Leaves
from tensormagic.collectors.quiet import unwrap
from tensormagic.collectors.where.caller import Origins
from tensormagic.reports import Edge
from tensormagic.reports.base import quickly

_edge = quickly(Edge)

_FEW = 64  # nodes whose origins are looked up one by one

Links = list[list[tuple[int, int, int]]]  # traversal place of a node → its edges: (input number, target's place, slot)


@dataclass(slots=True)
class Walk:
    """One traversal of a live graph. Holds the nodes: drop it when the pass is over."""

    nodes: list[Any]  # The autograd nodes, in traversal order; the roots first.
    # The structure: the number of roots, then for each node its type's number, its origin's or leaf's number, how many
    # edges it has, and for each edge the target's place (-1: nowhere) and slot.
    signature: array[int]
    roots: tuple[int, ...]  # Places of the nodes that backward starts from.
    # Sequence numbers by place; `NO_NUMBER` for leaves, and for nodes known to be another thread's.
    numbers: array[int]
    foreign: frozenset[int] = frozenset()  # Places of the nodes that were made on another thread, where that was asked.


def is_accumulate(node: Any) -> bool:
    """Return whether ``node`` is an ``AccumulateGrad``: the end of the graph, where a leaf collects its gradient."""
    return hasattr(node, "variable")


class Walker:
    """Walks graphs; two walks by one walker have equal signatures just where their structures are equal."""

    # Says which nodes were made on another thread. The roots are asked for in every walk, all nodes once a structure;
    # from when the first one is found, all nodes in every walk.
    node_threads: NodeThreads | None = None
    _all_asked = False

    def __init__(self, origins: Origins, leaves: Leaves) -> None:
        self._origins, self._leaves = origins, leaves
        self._types: dict[type, int] = {}
        self._stops: tuple[array[int], DeallocStops] = (array("i"), ())  # of the deep graph that was walked last

    def walk(self, roots: Iterable[Any]) -> Walk:
        """Walk the graph below ``roots``, breadth first in the order of ``next_functions``."""
        nodes = list({id(root): root for root in roots}.values())
        places = {id(node): place for place, node in enumerate(nodes)}  # sound while `nodes` keeps every wrapper alive
        starts = tuple(range(len(nodes)))
        self._all_asked = self._all_asked or any(map(self._is_foreign, nodes))
        flat, at, numbers, foreign = [len(starts)], [], array("Q"), set()
        types, place_of, leaf_number = self._types, places.get, self._leaves.find
        with self._leaves.one_look():
            for place, node in enumerate(nodes):  # grows while it is walked
                links = node.next_functions
                number, sequence = -1, NO_NUMBER
                if not links and is_accumulate(node):
                    known = leaf_number(variable := node.variable)
                    number = self._leaves.number(unwrap(variable)) if known is None else known
                elif self._all_asked and self._is_foreign(node):
                    foreign.add(place)
                else:
                    sequence = node._sequence_nr()
                if (kind := types.get(type(node), -1)) < 0:
                    kind = types[type(node)] = len(types)
                at.append(len(flat) + 1)
                numbers.append(sequence)
                flat += (kind, number, len(links))
                for target, slot in links:
                    if target is None:
                        flat += (-1, 0)
                        continue
                    if (end := place_of(id(target))) is None:
                        end = places[id(target)] = len(nodes)
                        nodes.append(target)
                    flat += (end, slot)
        signature = self._signed(flat, at, numbers)
        if len(nodes) > STRIDE:
            stops = self._stops  # of an equal one the first is kept, which the structure has as well
            self._stops = stops if stops[0] == signature else (signature, dealloc_stops(_unpack(signature)[1]))
            put_stops(nodes, self._stops[1])
        return Walk(nodes, signature, starts, numbers, frozenset(foreign))

    def _signed(self, flat: list[int], at: list[int], numbers: array[int]) -> array[int]:
        """Return a signature with the numbers of the origins, at ``at``, of the nodes that have a sequence number."""
        if len(numbers) <= _FEW:  # NumPy takes some 60 µs for any
            origin = self._origins.of
            for place, number in zip(at, numbers, strict=True):
                if number != NO_NUMBER:
                    flat[place] = origin(number)[0]
            return array("i", flat)
        signature = array("i", flat)
        made = np.frombuffer(numbers, np.uint64) != NO_NUMBER
        origins = self._origins.of_all(np.frombuffer(numbers, np.uint64)[made])
        np.frombuffer(signature, np.int32)[np.array(at, np.int64)[made]] = origins
        return signature

    def again(self, found: Walk) -> Walk | None:
        """Walk a new graph once more, where it holds nodes of another thread and nobody has asked for such so far."""
        if self._all_asked or not any(map(self._is_foreign, found.nodes)):
            return None
        self._all_asked = True
        return self.walk(found.nodes[: len(found.roots)])

    def _is_foreign(self, node: Any) -> bool:
        return self.node_threads is not None and not is_accumulate(node) and self.node_threads.is_foreign(node)


def _unpack(signature: array[int]) -> tuple[list[int], Links]:
    """Return what a signature says of each node: its number, and its edges that lead somewhere."""
    numbers: list[int] = []
    links: Links = []
    plain, at = signature.tolist(), 1
    while at < len(plain):
        first = at + 3
        stop = first + 2 * plain[at + 2]
        numbers.append(plain[at + 1])
        ends = enumerate(zip(plain[first:stop:2], plain[first + 1 : stop : 2], strict=True))
        links.append([(which, end, slot) for which, (end, slot) in ends if end >= 0])
        at = stop
    return numbers, links


@dataclass(slots=True)
class GraphStructure:
    """What all passes of the same structure share. Plain data: it keeps no node alive.

    Nodes are held in report order: order of creation, leaves where first used. Traversal places are translated by
    ``index``.
    """

    number: int  # From 1.
    signature: array[int]  # The structure.
    index: array[int]  # Traversal place → report index.
    edges: tuple[Edge, ...]  # In report indices.
    roots: tuple[int, ...]  # Report indices of the roots.
    leaf_of: dict[int, int]  # Report index → leaf number, for the leaves only.
    index_of_leaf: dict[int, int]  # And back; the last one where several stand for one leaf.
    # Traversal place of a node → its inputs whose edges lead into a slot that several edges feed: only there does a
    # gradient arrive summed.
    contested: dict[int, list[int]]
    # Report index → report index of the one node that feeds it, if that may send on the very memory that it received,
    # else -1. Memory that it was done with may come again from the allocator, in a hook of the user's or in compiled
    # code: its address alone proves nothing.
    sender: array[int]

    @property
    def size(self) -> int:
        """How many nodes there are."""
        return len(self.index)


# What these send to their first input (a sum to both) is what they received.
_SENDING_ON = nodes_named(*VIEWS, "Add", "Sub", "Expand", "IndexAdd")


def make_structure(number: int, found: Walk) -> GraphStructure:
    """Turn a walk into the structure that later passes are compared with."""
    numbers, links = _unpack(found.signature)
    leaf = [not ends and is_accumulate(node) for ends, node in zip(links, found.nodes, strict=True)]
    order = _creation_order(found.nodes, links, leaf)
    count = len(order)
    index, sender = array("i", sorted(range(count), key=order.__getitem__)), array("i", [count]) * count
    leaf_of = {index[place]: numbers[place] for place, is_leaf in enumerate(leaf) if is_leaf}
    feeding: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for place, ends in enumerate(links):
        node = found.nodes[place]
        sends_on = node.name() in _SENDING_ON
        for which, target, slot in ends:
            feeding.setdefault((target, slot), []).append((place, which))
            same = sends_on and (not which or saved_argument(node, "alpha", 0) == 1)
            sender[index[target]] = index[place] if same and sender[index[target]] == count else -1
    contested: dict[int, list[int]] = {}
    for sources in feeding.values():
        for place, which in sources if len(sources) > 1 else ():
            contested.setdefault(place, []).append(which)
    roots = tuple(index[place] for place in found.roots)
    for at in roots:
        sender[at] = -1
    edges = tuple(
        _edge(at, index[target], which, slot) for at, place in enumerate(order) for which, target, slot in links[place]
    )
    return GraphStructure(
        number, found.signature, index, edges, roots, leaf_of, {leaf: at for at, leaf in leaf_of.items()}, contested,
        sender,
    )  # fmt: skip


def _creation_order(nodes: list[Any], links: Links, leaf: list[bool]) -> list[int]:
    """Return traversal places in order of creation; leaves, which carry no number, just before their first user."""
    when = [1 << 65] * len(nodes)  # twice the number, less one for a leaf
    for place, node in enumerate(nodes):
        if not leaf[place]:
            when[place] = sequence = 2 * node._sequence_nr()
            for _, target, _ in links[place]:
                if leaf[target] and when[target] >= sequence:
                    when[target] = sequence - 1
    return sorted(range(len(nodes)), key=when.__getitem__)  # of equal ones the first stays first


def start_nodes(roots: Sequence[Any]) -> list[Any]:
    """Return the nodes that a backward starts from: those of tensors, of gradient edges, and of leaves."""
    nodes: list[Any] = []
    for root in roots:
        if not isinstance(root, torch.Tensor):
            nodes.append(getattr(root, "node", None))
        elif root.grad_fn is not None or not root.requires_grad:
            nodes.append(root.grad_fn)
        else:
            with torch._C.DisableTorchFunction():
                nodes.append(torch.autograd.graph.get_gradient_edge(root).node)
    return [node for node in nodes if node is not None]
