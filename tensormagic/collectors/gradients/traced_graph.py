"""The structures that a run's passes went through, and what is kept of them."""

from __future__ import annotations

import dataclasses
import math
from array import array
from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any, Generic, TypeVar

from tensormagic.collectors.gradients.gradient_statistics import PassValues, Statistics, measures_of
from tensormagic.collectors.gradients.nonfinite import nonfinite_source
from tensormagic.collectors.gradients.on_device import DeviceHistory
from tensormagic.collectors.graphs.live_nodes import runs_python
from tensormagic.collectors.graphs.nodes import describe_nodes, new_node
from tensormagic.collectors.graphs.structure import GraphStructure, Walk, Walker, make_structure
from tensormagic.collectors.objects.identity import Leaves
from tensormagic.collectors.quiet import quiet
from tensormagic.collectors.where.caller import Origins
from tensormagic.reports import (
    UNTOUCHED,
    FirstNonfinite,
    ForwardNonfinite,
    Frame,
    GradientStatistics,
    Graph,
    Node,
    NonfiniteSource,
)
from tensormagic.reports.graph import is_small
from tensormagic.words import error_text

# Keeps a bounded number of passes of a run of any length: the first, the last and pinned ones, and of the others every
# k-th, where k doubles whenever the store is full: a loop of a million steps costs what one of a hundred does.

Item = TypeVar("Item")


class SubsampledSequence(Generic[Item]):
    """An append-only sequence that keeps about ``capacity`` of its items, evenly spaced.

    A few pinned ones and the last come on top.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._pins_left = 4
        self._stride = 1
        self._kept: dict[int, Item] = {}
        self._pinned: set[int] = set()
        self.seen = 0

    @property
    def keeps_next(self) -> bool:
        """Whether the next item stays when others follow it, unless the store is thinned once more."""
        return self.seen % self._stride == 0

    @property
    def keeps_last(self) -> bool:
        """The same of the last item."""
        return (self.seen - 1) % self._stride == 0 or self.seen - 1 in self._pinned

    @property
    def last(self) -> Item | None:
        """The last item, which is always kept; None where there is none yet."""
        return self._kept.get(self.seen - 1)

    def append(self, item: Item, *, pin: bool = False) -> None:
        """Add an item; a pinned one is never thinned out."""
        at, self.seen = self.seen, self.seen + 1
        if (last := at - 1) > 0 and last % self._stride and last not in self._pinned:
            del self._kept[last]
        self._kept[at] = item
        if pin and self._pins_left:
            self._pins_left -= 1
            self._pinned.add(at)
        while len(self._kept) > self.capacity + len(self._pinned) + 1:
            self._stride *= 2
            stay = {at, *self._pinned}
            self._kept = {one: item for one, item in self._kept.items() if one % self._stride == 0 or one in stay}

    def items(self) -> tuple[Item, ...]:
        """Return what is kept, in order."""
        return tuple(self._kept.copy().values())


# One structure that passes went through, and what is kept of them: bounded, whatever the length of the run.
# Of every pass the norms are taken. Everything else about a gradient costs several times as much where gradients are
# large, so it is taken in the first pass and in as many of those that are kept as fit into a small share of the time.
# What it costs on a device no clock here shows: there it is taken by count.

KEPT_NUMBERS = 1 << 14  # the norms kept a graph over all its passes, and over all passes for the parameters;
FEWEST_PASSES, MOST_PASSES = 24, 192  # within these bounds: a small network keeps every step of a short run
STATISTICS_SHARE = 0.005  # of the time of the run goes into statistics beyond the first pass,
FREE_SECONDS = 0.02  # after these
MOST_ZEROS = 256  # edges a graph that lead to exactly zero and are measured


class TracedGraph:
    """One structure with everything that is known about it."""

    def __init__(self, structure: GraphStructure, nodes: tuple[Node, ...], *, inner: bool) -> None:
        self.structure, self.nodes = structure, nodes
        self.first: Statistics = [None] * structure.size
        self.on_device = DeviceHistory()
        self.frames: SubsampledSequence[Frame] = SubsampledSequence(passes_to_keep(structure.size))
        self.order = array("i")
        self.first_nonfinite: tuple[FirstNonfinite, ...] = ()
        self.forward_nonfinite: ForwardNonfinite | None = None
        self.nonfinite_source: NonfiniteSource | None = None
        self.looked_back = False  # whether that was looked for
        self.passes = self.bad_passes = 0
        self.is_small = is_small(nodes)
        self.inner = inner  # whether all its passes ran inside other passes
        self.collects = False  # whether a pass left gradients in leaves, as that of a loss does
        self.hooked: dict[int, int | None] = {}  # by node: the line that put a hook on its result
        self.python_places: tuple[int, ...] = ()  # traversal places of nodes whose backward is the user's Python code
        contested = {(structure.index[place], at) for place, inputs in structure.contested.items() for at in inputs}
        ends = [(edge.source, edge.input_number) for edge in structure.edges]
        self._shared = tuple(at for at, end in enumerate(ends) if end in contested)
        self._ends = [ends[at] for at in self._shared]
        self._sent_to_zero: dict[int, float | None] = {}  # as `Graph.sent_to_zero`; None until it was measured
        self._statistics_seconds = 0.0
        self._statistics_cost = 0.0  # of the last pass that was measured in full

    def wants_statistics(self, seconds: float) -> bool:
        """Return whether the pass that begins is to be measured in full, ``seconds`` into the run."""
        due = self.on_device.begin()
        if self.on_device.used:
            return due
        if not self.passes:
            return True
        after = self._statistics_seconds + self._statistics_cost
        return self.frames.keeps_next and after <= FREE_SECONDS + STATISTICS_SHARE * seconds

    def add(self, values: PassValues, statistics_seconds: float) -> bool:
        """Keep the numbers of a pass that has ended; False where they are of a pass whose numbers are there already."""
        if self.passes:
            self._statistics_seconds += statistics_seconds
        if values.table is not None:
            self._statistics_cost = statistics_seconds
        self.passes += 1
        self.bad_passes += bool(values.bad)
        self.order = array("i", dict.fromkeys(values.order))
        if values.first_nonfinite and not self.first_nonfinite:
            self.first_nonfinite = values.first_nonfinite
        if self.frames.last is not None and self.frames.last.pass_number == values.pass_number:
            return False
        if 0.0 in values.norms:
            self._look_at_zeros(values)
        born = False
        if self.forward_nonfinite is None and values.forward is not None:
            self.forward_nonfinite = values.forward.nonfinite
            born = self.forward_nonfinite is not None
        frame = Frame(
            values.pass_number, values.norms, {str(index): counts for index, counts in values.bad.items()},
            measures_of(values.table) if values.table is not None else array("f"),
            array("f", [values.parts[end][0] if end in values.parts else UNTOUCHED for end in self._ends]),
            values.forward.values if values.forward is not None else None,
            values.small.report() if values.small is not None else None,
        )  # fmt: skip
        self.frames.append(frame, pin=born or (bool(values.bad) and self.bad_passes == 1))
        values.table = None  # the frame has its numbers; the live panel, which goes on showing the pass, needs none
        return True

    def _look_at_zeros(self, values: PassValues) -> None:
        """Learn what is sent along edges that lead from more than zero to exactly zero: measured from the next pass on.

        A hook of the user's may have changed it in between.
        """
        edges, norms = self.structure.edges, values.norms
        if self.passes & (self.passes - 1) == 0:  # a look at all edges, now and then
            for at, edge in enumerate(edges):
                if len(self._sent_to_zero) == MOST_ZEROS:
                    break
                if norms[edge.source] > 0 and norms[edge.target] == 0 and at not in self._sent_to_zero:
                    self._sent_to_zero[at] = None
                    inputs = self.structure.contested.setdefault(self.structure.index.index(edge.source), [])
                    if edge.input_number not in inputs:
                        inputs.append(edge.input_number)
        for at in self._sent_to_zero:
            sent = values.parts.get((edges[at].source, edges[at].input_number))
            if sent is not None and norms[edges[at].target] == 0:
                self._sent_to_zero[at] = sent[0]

    def report(self) -> Graph:
        """Return what is known as plain data."""
        structure, nodes = self.structure, tuple(map(_with_statistics, self.nodes, self.first))
        return Graph(
            number=structure.number, nodes=nodes, edges=structure.edges, roots=structure.roots, order=tuple(self.order),
            passes_seen=self.passes, frames=self.frames.items(), first_nonfinite=self.first_nonfinite,
            shared_edges=self._shared,
            sent_to_zero={str(at): norm for at, norm in [*self._sent_to_zero.items()] if norm is not None},
            hooked={str(index): line for index, line in [*self.hooked.items()]},
            forward_nonfinite=self.forward_nonfinite, nonfinite_source=self.nonfinite_source,
        )  # fmt: skip


def passes_to_keep(numbers: int) -> int:
    """Return how many passes of so many numbers each are kept."""
    return min(max(KEPT_NUMBERS // max(numbers, 1), FEWEST_PASSES), MOST_PASSES)


_FIELDS = tuple(each.name for each in dataclasses.fields(Node))
_AT = _FIELDS.index("statistics")
_in_order = attrgetter(*_FIELDS)


def _with_statistics(node: Node, statistics: GradientStatistics | None) -> Node:
    """As ``dataclasses.replace`` does, in a small part of the time: a graph may have a hundred thousand nodes."""
    if statistics is None:
        return node
    values: tuple[Any, ...] = _in_order(node)
    return new_node(*values[:_AT], statistics, *values[_AT + 1 :])


# The structures that a run's passes went through: each walk finds the graph it belongs to, or begins a new one.

MAX_GRAPHS = 32  # structures kept; a graph that differs in every step would fill memory
MAX_INNER_GRAPHS = 128  # and of passes inside others: with re-entrant checkpoints, one a layer

_FOREIGN = "some nodes were made on another thread: the forward is traced on one thread only, so they have no line"


class GraphBook:
    """The graphs so far; ``add_gap`` is called with what could not be kept: section and reason."""

    def __init__(
        self, walker: Walker, leaves: Leaves, origins: Origins, namespace: Mapping[str, Any],
        add_gap: Callable[[str, str], None],
    ) -> None:  # fmt: skip
        self._walker, self._leaves, self._origins = walker, leaves, origins
        self._namespace, self._add_gap = namespace, add_gap
        self._graphs: list[TracedGraph] = []

    def __len__(self) -> int:
        return len(self._graphs)

    def of(self, found: Walk, *, inner: bool) -> TracedGraph | None:
        """Return the graph with the structure that was walked, a new one where none has it; None beyond the bound."""
        for graph in self._graphs:
            if graph.structure.signature == found.signature:
                found.signature = graph.structure.signature  # the same, once
                graph.inner &= inner
                return graph
        if (again := self._walker.again(found)) is not None:
            return self.of(again, inner=inner)
        most = MAX_INNER_GRAPHS if inner else MAX_GRAPHS
        if sum(graph.inner == inner for graph in self._graphs) == most:
            self._add_gap("graphs", f"more than {most} different graphs: passes through others were not kept")
            return None
        structure = make_structure(len(self._graphs) + 1, found)
        with quiet():  # reading what a node saves is an operation, which a mode of the user's would see
            nodes = describe_nodes(found, structure, self._leaves, self._origins, self._namespace)
        graph = TracedGraph(structure, nodes, inner=inner)
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
            graph.nonfinite_source = nonfinite_source(found, graph.structure, values.pass_number, self._namespace)
        except Exception as error:
            self._add_gap("forward", f"where the loss became {values.value} was not found: {error_text(error)}")

    def by_use(self) -> list[TracedGraph]:
        """Return the graphs of losses, the most used first, then those of penalties, last those inside other passes."""
        return sorted(self._graphs, key=lambda graph: (graph.inner, not graph.collects, -graph.passes))
