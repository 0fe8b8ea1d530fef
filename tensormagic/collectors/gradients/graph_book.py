"""The structures that a run's passes went through: each walk finds the graph it belongs to, or begins a new one."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from tensormagic.collectors.gradients.forward_search import first_bad
from tensormagic.collectors.gradients.pass_values import PassValues
from tensormagic.collectors.gradients.traced_graph import TracedGraph
from tensormagic.collectors.graphs.nodes import describe_nodes
from tensormagic.collectors.graphs.python_nodes import runs_python
from tensormagic.collectors.graphs.skeleton import Walk, Walker, make_skeleton
from tensormagic.collectors.objects.identity import Leaves
from tensormagic.collectors.quiet import quiet
from tensormagic.collectors.where.origins import Origins

MAX_GRAPHS = 32  # structures kept; a graph that differs in every step would fill memory
MAX_INNER_GRAPHS = 128  # and of passes inside others: with re-entrant checkpoints, one a layer

_FOREIGN = "some nodes were made on another thread: forward is followed on the traced one only, they have no line"


class GraphBook:
    """The graphs so far.

    Args:
        walker: Walked what is looked up.
        leaves: Names the leaves.
        origins: Says where nodes were made.
        namespace: Where names are looked up.
        add_gap: Told what could not be kept: section and reason.
    """

    def __init__(
        self,
        walker: Walker,
        leaves: Leaves,
        origins: Origins,
        namespace: Mapping[str, Any],
        *,
        add_gap: Callable[[str, str], None],
    ) -> None:
        self._walker, self._leaves, self._origins = walker, leaves, origins
        self._namespace, self._add_gap = namespace, add_gap
        self._graphs: list[TracedGraph] = []

    def __len__(self) -> int:
        return len(self._graphs)

    def of(self, found: Walk, *, inner: bool) -> TracedGraph | None:
        """Return the graph with the structure that was walked, a new one where none has it; None beyond the bound."""
        for graph in self._graphs:
            if graph.skeleton.signature == found.signature:
                found.signature = graph.skeleton.signature  # the same, once
                graph.inner &= inner
                return graph
        if self._walker.found_foreign(found):
            return self.of(self._walker.again(found), inner=inner)
        most = MAX_INNER_GRAPHS if inner else MAX_GRAPHS
        if sum(graph.inner == inner for graph in self._graphs) == most:
            self._add_gap("graphs", f"more than {most} different graphs: passes through others were not kept")
            return None
        return self._begin(found, inner=inner)

    def _begin(self, found: Walk, *, inner: bool) -> TracedGraph:
        skeleton = make_skeleton(len(self._graphs) + 1, found)
        with quiet():  # reading what a node saves is an operation, which a mode of the person's would see
            nodes = describe_nodes(found, skeleton, self._leaves, self._origins, self._namespace)
        graph = TracedGraph(skeleton, nodes)
        graph.inner = inner
        graph.python_places = tuple(place for place, node in enumerate(found.nodes) if runs_python(node))
        self._graphs.append(graph)
        if found.foreign:
            self._add_gap("source", _FOREIGN)
        return graph

    def look_back(self, graph: TracedGraph, found: Walk, values: PassValues) -> None:
        """Look where the forward of a pass went wrong whose loss is not finite, once for each graph. Never raises."""
        if values.value is None or math.isfinite(values.value) or graph.looked_back:
            return
        graph.looked_back = True
        try:
            graph.first_bad = first_bad(found, graph.skeleton, values.pass_number, self._namespace)
        except Exception as error:
            self._add_gap(
                "forward", f"where the loss became {values.value} was not found: {type(error).__name__}: {error}"
            )

    def by_use(self) -> list[TracedGraph]:
        """Return the graphs, the most used first, those of passes inside others last."""
        return sorted(self._graphs, key=lambda graph: (graph.inner, -graph.passes, graph.skeleton.number))
