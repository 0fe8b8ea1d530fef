"""One structure that passes went through, and what is kept of them: bounded, whatever the length of the run.

Of every pass the norms are taken. Everything else about a gradient (largest magnitude, mean, deviation, zeros) costs
several times as much where gradients are large, so it is taken in the first pass and then in as many of the passes
that are kept as fit into a small share of the time: `TracedGraph.wants_statistics`.
"""

from __future__ import annotations

import dataclasses
from array import array
from operator import attrgetter
from typing import Any

from tensormagic.collectors.gradients.pass_values import PassValues
from tensormagic.collectors.gradients.survey import StatisticsTable
from tensormagic.collectors.gradients.timeline import Thinned
from tensormagic.collectors.graphs.nodes import new_node
from tensormagic.collectors.graphs.skeleton import Skeleton
from tensormagic.reports import UNTOUCHED, Birth, FirstBad, ForwardBirth, Frame, GradientStatistics, Graph, Node

KEPT_NUMBERS = 1 << 14  # the norms kept a graph over all its passes, and over all passes for the parameters;
FEWEST_PASSES, MOST_PASSES = 24, 192  # within these bounds: a small network keeps every step of a short run
STATISTICS_SHARE = 0.005  # of the time of the run goes into statistics beyond the first pass,
FREE_SECONDS = 0.02  # after these


class TracedGraph:
    """One skeleton with everything that is known about it."""

    def __init__(self, skeleton: Skeleton, nodes: tuple[Node, ...]) -> None:
        self.skeleton = skeleton
        self.nodes = nodes
        self.first = StatisticsTable(skeleton.size)
        self.frames: Thinned[Frame] = Thinned(passes_to_keep(skeleton.size))
        self.order = array("i")
        self.births: tuple[Birth, ...] = ()
        self.forward_birth: ForwardBirth | None = None
        self.first_bad: FirstBad | None = None
        self.looked_back = False  # whether that was looked for
        self.passes = 0
        self.bad_passes = 0
        self.inner = False  # whether all its passes ran inside other passes
        self.python_places: tuple[int, ...] = ()  # traversal places of nodes whose backward is the person's Python code
        self._shared = tuple(_shared_edges(skeleton))
        self._statistics_seconds = 0.0
        self._statistics_cost = 0.0  # of the last pass that was measured in full
        self._told: tuple[int, tuple[Node, ...]] = (0, nodes)

    def wants_statistics(self, seconds: float) -> bool:
        """Return whether the next pass is to be measured in full, ``seconds`` into the run."""
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
        if values.births and not self.births:
            self.births = values.births
        before = self.frames.last
        if before is not None and before.pass_number == values.pass_number:
            return False
        born = self._is_forward_birth(values)
        self.frames.append(self._frame(values), pin=born or (bool(values.bad) and self.bad_passes == 1))
        values.table = None  # the frame has its numbers; the live panel, which goes on showing the pass, needs none
        return True

    def _is_forward_birth(self, values: PassValues) -> bool:
        if self.forward_birth is not None or values.forward is None:
            return False
        self.forward_birth = values.forward.birth()
        return self.forward_birth is not None

    def _frame(self, values: PassValues) -> Frame:
        bad = {str(index): counts for index, counts in values.bad.items()}
        edges = self.skeleton.edges
        keys = [(edges[at].source, edges[at].input_number) for at in self._shared]
        parts = array("f", [values.parts[key][0] if key in values.parts else UNTOUCHED for key in keys])
        measures = values.table.columns() if values.table is not None else array("f")
        forward = values.forward.report() if values.forward is not None else None
        return Frame(values.pass_number, values.norms, bad, measures, parts, forward)

    def report(self) -> Graph:
        """Return what is known as plain data."""
        skeleton, nodes = self.skeleton, self._with_first_statistics()
        return Graph(
            number=skeleton.number, nodes=nodes, edges=skeleton.edges, roots=skeleton.roots, order=tuple(self.order),
            passes_seen=self.passes, frames=self.frames.items(), births=self.births, shared_edges=self._shared,
            forward_birth=self.forward_birth, first_bad=self.first_bad,
        )  # fmt: skip

    def _with_first_statistics(self) -> tuple[Node, ...]:
        """Return the nodes with what is known of their first gradients, put together only where more is known."""
        count, told = self._told
        if (now := len(self.first)) != count:
            told = tuple(map(_with_statistics, self.nodes, self.first.every()))
            self._told = (now, told)
        return told


def passes_to_keep(numbers: int) -> int:
    """Return how many passes of so many numbers each are kept."""
    return min(max(KEPT_NUMBERS // max(numbers, 1), FEWEST_PASSES), MOST_PASSES)


def _shared_edges(skeleton: Skeleton) -> list[int]:
    contested = {
        (skeleton.index[place], input_number) for place, inputs in skeleton.contested.items() for input_number in inputs
    }
    return [at for at, edge in enumerate(skeleton.edges) if (edge.source, edge.input_number) in contested]


_FIELDS = tuple(each.name for each in dataclasses.fields(Node))
_AT = _FIELDS.index("statistics")
_in_order = attrgetter(*_FIELDS)


def _with_statistics(node: Node, statistics: GradientStatistics | None) -> Node:
    """As ``dataclasses.replace`` does, in a small part of the time: a graph may have a hundred thousand nodes."""
    if statistics is None:
        return node
    values: tuple[Any, ...] = _in_order(node)
    return new_node(*values[:_AT], statistics, *values[_AT + 1 :])
