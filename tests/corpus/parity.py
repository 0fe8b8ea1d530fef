"""Whether the graph that is shown is autograd's own, node for node and edge for edge: both as the same plain data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch

from tensormagic.collectors.runs.trace import Tracer
from tensormagic.reports import TraceReport

Shape = tuple[tuple[str, tuple[tuple[int, int, int], ...]], ...]


def edge_of(root):
    return root if isinstance(root, tuple) else torch.autograd.graph.get_gradient_edge(root)


def walked(roots) -> Shape:
    """Return a live graph in depth-first order, from ``next_functions`` alone: each node's name and its edges."""
    alive, places, edges, pending = [], {}, {}, [edge_of(root).node for root in roots][::-1]
    while pending:
        node = pending.pop()
        if node is None or id(node) in places:
            continue
        places[id(node)] = len(alive)
        alive.append(node)
        edges[id(node)] = [(at, node_, slot) for at, (node_, slot) in enumerate(node.next_functions) if node_]
        pending += [target for _, target, _ in reversed(edges[id(node)])]
    return tuple(
        (node.name().rsplit("::", 1)[-1], tuple((at, places[id(to)], slot) for at, to, slot in edges[id(node)]))
        for node in alive
    )


def shown(graph) -> Shape:
    """Return a reported graph in the same order."""
    leading: dict[int, list] = {node.index: [] for node in graph.nodes}
    for edge in graph.edges:
        leading[edge.source].append((edge.input_number, edge.target, edge.slot))
    order: list[int] = []
    places: dict[int, int] = {}
    pending = list(graph.roots)[::-1]
    while pending:
        index = pending.pop()
        if index not in places:
            places[index] = len(order)
            order.append(index)
            pending += [target for _, target, _ in sorted(leading[index], reverse=True)]
    assert len(order) == len(graph.nodes), "every node can be reached from where backward starts"
    edges = {index: tuple((at, places[to], slot) for at, to, slot in sorted(leading[index])) for index in order}
    return tuple((graph.nodes[index].name, edges[index]) for index in order)


@contextmanager
def counted_walks() -> Iterator[Counter[Shape]]:
    """Count the graphs that backward is called on, walked by nobody but the test."""
    counted: Counter[Shape] = Counter()
    original = Tracer._prepare

    def prepare(self, roots, followed):
        grown = [root for root in roots if isinstance(root, tuple) or root.requires_grad]
        if grown:
            counted[walked(grown)] += 1
        return original(self, roots, followed)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Tracer, "_prepare", prepare)
        yield counted


def passes_of(report: TraceReport) -> Counter[Shape]:
    """Return every reported graph, as often as backward ran through it."""
    passes: Counter[Shape] = Counter()
    for graph in report.graphs:
        passes[shown(graph)] += graph.passes_seen
    return passes
