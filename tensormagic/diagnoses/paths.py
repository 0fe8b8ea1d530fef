"""Ways through a graph: what a node leads to, and how the gradient travels from the loss to a weight."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from statistics import median
from typing import Any, TypeVar

from tensormagic.reports import Cut, Frame, Graph, Node, ParameterSeries, TraceReport

RESHAPING = frozenset({
    "view", "reshape", "unsafe_view", "expand", "unsqueeze", "squeeze", "permute", "transpose", "t", "clone", "to_copy",
})  # fmt: skip
"""Ops that hand all elements on, in another shape, memory or dtype."""


def neighbours(graph: Graph) -> tuple[dict[int, list[int]], dict[int, list[int]]]:
    """Return for each node those that send it a gradient, and those that it sends one to."""
    feeders: dict[int, list[int]] = {}
    targets: dict[int, list[int]] = {}
    for edge in graph.edges:
        feeders.setdefault(edge.target, []).append(edge.source)
        targets.setdefault(edge.source, []).append(edge.target)
    return feeders, targets


def reached(
    next_to: Mapping[int, Iterable[int]], starts: Iterable[int], allows: Callable[[int], bool] = lambda _: True
) -> set[int]:
    """Return the nodes that ways from some nodes lead to, these too, over nodes alone that are allowed."""
    found, pending = set[int](), list(starts)
    while pending:
        at = pending.pop()
        if at not in found and allows(at):
            found.add(at)
            pending += next_to.get(at, ())
    return found


def users_of(graph: Graph, node: int) -> list[Node]:
    """Return the ops that use what a node made: they send it its gradient."""
    return [graph.nodes[edge.source] for edge in graph.edges if edge.target == node]


def cuts_in(report: TraceReport) -> Iterator[tuple[Graph, Cut]]:
    """Yield the cuts of all graphs of a run, each with its graph."""
    return ((graph, cut) for graph in report.graphs for cut in graph.cuts)


def frame_of(graph: Graph, pass_number: int) -> Frame | None:
    """Return what the nodes got in one pass; None where it was not kept."""
    return next((frame for frame in graph.frames if frame.pass_number == pass_number), None)


# How the gradient travels through a graph: which ops use a weight, what reached them, and over which others it came.
#
# A weight's own gradient is large or small for two reasons: because of the gradient that comes down to the op that
# uses it, and because of that op's input. Only the first is vanishing or exploding; raw features of size 1e4 are
# neither. So the gradients are looked at where they arrive: at the matrix products and convolutions, seen from the
# loss.

# The ops that multiply a weight with an activation …
USERS = frozenset({
    "addmm", "mm", "bmm", "baddbmm", "mv", "addmv", "dot", "linear", "mkldnn_linear", "convolution",
    "mkldnn_convolution", "cudnn_convolution", "embedding", "embedding_bag", "bilinear", "trilinear",
    "mkldnn_rnn_layer", "cudnn_rnn",
})  # fmt: skip
# … and those that stand between a weight and its user.
_BETWEEN = RESHAPING | {"slice", "select", "split", "chunk", "contiguous", "as_strided"}

Value = TypeVar("Value", bound=Any)  # anything that can be compared


class Paths:
    """One graph, looked at from the loss: the arriving gradient of every op that uses a weight.

    Made for being asked often while a run goes on: each question costs at most one walk over the edges.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._feeders, self._targets = neighbours(graph)
        self._leaves = {node.variable: node.index for node in graph.nodes if node.kind == "accumulate"}
        self._users = {node.index for node in graph.nodes if node.op in USERS}
        self._users_of: dict[str, list[int]] = {}
        self._arriving: dict[int, float] = {}
        self._last_layers: list[float] = []
        self._least: float | None = None
        self.first = self._first_users()

    def _first_users(self) -> set[int]:
        """Return the users that the gradient reaches before any other: the last layers of the forward."""
        below: set[int] = set()
        for node in reversed(self._graph.nodes):  # what made a node's input was made before it
            if any(feeder in below or feeder in self._users for feeder in self._feeders.get(node.index, ())):
                below.add(node.index)
        return self._users - below

    def users(self, leaf: str) -> list[int]:
        """Return the ops that multiply something with the leaf of that name."""
        if leaf not in self._users_of:
            self._users_of[leaf] = self._look_for_users(leaf)
        return self._users_of[leaf]

    def _look_for_users(self, leaf: str) -> list[int]:
        found, waiting = set(), [self._leaves[leaf]] if leaf in self._leaves else []
        while waiting:
            for feeder in self._feeders.get(waiting.pop(), ()):
                if feeder in self._users:
                    found.add(feeder)
                elif self._graph.nodes[feeder].op in _BETWEEN:
                    waiting.append(feeder)
        return sorted(found)

    def largest_above(self, values: Mapping[int, Value], least: Value) -> list[Value]:
        """Return for every node the largest of ``values`` on its paths from the loss, itself not counted.

        Args:
            values: By node.
            least: What represents a node without a value.
        """
        largest = [least] * len(self._graph.nodes)
        for node in self._from_the_loss():
            for feeder in self._feeders.get(node, ()):
                largest[node] = max(largest[node], largest[feeder], values.get(feeder, least))
        return largest

    def _from_the_loss(self) -> list[int]:
        """Return all nodes, each after those that send it a gradient."""
        waiting = {node: len(feeders) for node, feeders in self._feeders.items()}
        order = [node.index for node in reversed(self._graph.nodes) if node.index not in waiting]
        for node in order:  # grows while it is walked
            for target in self._targets.get(node, ()):
                waiting[target] -= 1
                if not waiting[target]:
                    order.append(target)
        return order

    def arriving(self, node: int) -> float:
        """Return the median of the finite norms above zero that a node received; 0 where there was none."""
        if node not in self._arriving:
            norms = [frame.norms[node] for frame in self._graph.frames if 0 < frame.norms[node] < math.inf]
            self._arriving[node] = median(norms) if norms else 0.0
        return self._arriving[node]

    def strongest(self, nodes: Iterable[int]) -> tuple[float, int]:
        """Return (norm, node) of the node at which the largest gradient arrives; (0, -1) where none does."""
        return max(((self.arriving(node), node) for node in nodes), default=(0.0, -1))

    def at_the_last_layer(self, node: int) -> float:
        """Return the largest norm that arrives at a last layer on the way to ``node``; 0 where there is none."""
        if not self._last_layers:
            self._last_layers = self.largest_above({user: self.arriving(user) for user in self.first}, 0.0)
        return self._last_layers[node]

    def least_at_a_last_layer(self) -> float:
        """Return the smallest norm above zero that arrives at a last layer; infinite where there is none."""
        if self._least is None:
            self._least = min((norm for node in self.first if (norm := self.arriving(node))), default=math.inf)
        return self._least


_ADDS_BIAS = frozenset({"add", "addmm", "baddbmm", "convolution"})


def changes_no_derivative(report: TraceReport, series: ParameterSeries) -> bool:
    """Return whether a bias is added to what is differentiated alone: inside of `torch.func.grad`, say.

    There a graph goes through its module; those that lead to parameters have no more of it than a turned weight.
    """
    module, _, leaf = series.name.rpartition(".")
    weight = next((one for one in report.parameters if one.name == f"{module}.weight"), None)
    if leaf != "bias" or weight is None or not weight.touched:
        return False
    learning, inner = set[str](), set[str]()
    for graph in report.graphs:
        leads = any(node.variable.startswith(f"{series.owner}.") for node in graph.nodes if node.kind == "accumulate")
        (learning if leads else inner).update(node.op for node in graph.nodes if node.module == module)
    return bool(_ADDS_BIAS & inner) and learning <= {"t", "transpose"}
