"""Pairs the graphs of two runs by likeness, and says of every node that both have how it differs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from tensormagic.comparisons.matching import common_edges, match_nodes
from tensormagic.comparisons.names import Renames
from tensormagic.comparisons.norms import compare_norms
from tensormagic.comparisons.steps import PassPair, pair_frames
from tensormagic.reports import Graph, Node, TraceReport
from tensormagic.reports.comparison import GraphDifference, NodeDifference, NodeMention

MOST_NODES = 400  # that differ, the most different first; and that only one graph has
MOST_GRAPHS = 8
LEAST_ALIKE = 0.3  # share of common nodes below which two graphs are no counterparts


def pair_graphs(left: TraceReport, right: TraceReport, renames: Renames) -> list[tuple[Graph, Graph]]:
    """Return the graphs of both runs paired, the most alike first taken; in the left run's order."""
    mine = [_ingredients(graph, Renames({})) for graph in left.graphs[:MOST_GRAPHS]]
    theirs = [_ingredients(graph, renames) for graph in right.graphs[:MOST_GRAPHS]]
    alike = [(_likeness(one, other), at, to) for at, one in enumerate(mine) for to, other in enumerate(theirs)]
    found: dict[int, int] = {}
    for likeness, at, to in sorted(alike, key=lambda entry: (-entry[0], entry[1], entry[2])):
        if likeness >= LEAST_ALIKE and at not in found and to not in found.values():
            found[at] = to
    return [(left.graphs[at], right.graphs[to]) for at, to in sorted(found.items())]


def _ingredients(graph: Graph, renames: Renames) -> Counter[tuple[str, str]]:
    return Counter((node.name, renames.of(node.variable) if node.kind == "accumulate" else "") for node in graph.nodes)


def _likeness(one: Counter[tuple[str, str]], other: Counter[tuple[str, str]]) -> float:
    """Return the share of nodes, those without names, that both have: of the larger graph."""
    here, there = _nameless(one), _nameless(other)
    larger = max(here.total(), there.total())
    exact = (one & other).total() / larger / 1000 if larger else 0.0  # among equals, the names decide
    return (here & there).total() / larger + exact if larger else 0.0


def _nameless(ingredients: Counter[tuple[str, str]]) -> Counter[str]:
    plain: Counter[str] = Counter()
    for (name, _), number in ingredients.items():
        plain[name] += number
    return plain


class Sides:
    """Two runs, with what every comparison of their graphs needs.

    Attributes:
        leaves: What the leaves that were matched are called, in the left run and in the right one.
    """

    def __init__(self, left: TraceReport, right: TraceReport, renames: Renames, passes: list[PassPair]) -> None:
        self.left, self.right, self.renames, self.passes = left, right, renames, passes
        self.leaves: dict[str, str] = {}

    def compare(self, left: Graph, right: Graph) -> GraphDifference:
        """Match two graphs, and say how every node that both have differs."""
        pairs = match_nodes(left, right, self.renames.of)
        leaves = [(left.nodes[at], right.nodes[to]) for at, to in pairs.items() if left.nodes[at].kind == "accumulate"]
        self.leaves.update({one.variable: other.variable for one, other in leaves if one.variable and other.variable})
        common = common_edges(left, right, pairs)
        every = self._nodes(left, right, pairs)
        different = [one for one in every if one.reshaped or not one.norms.same]
        only_left = [node for node in left.nodes if node.index not in pairs]
        taken = set(pairs.values())
        only_right = [node for node in right.nodes if node.index not in taken]
        whole = not only_left and not only_right and common == len(left.edges) == len(right.edges)
        return GraphDifference(
            left=left.number,
            right=right.number,
            matched=len(pairs),
            same=whole,
            equal=len(every) - len(different),
            nodes=tuple(sorted(different, key=lambda one: -one.norms.weight)[:MOST_NODES]),
            nodes_found=len(different),
            only_left=_mentions(self.left, only_left[:MOST_NODES]),
            only_left_found=len(only_left),
            only_right=_mentions(self.right, only_right[:MOST_NODES]),
            only_right_found=len(only_right),
            edges_only_left=len(left.edges) - common,
            edges_only_right=len(right.edges) - common,
        )

    def _nodes(self, left: Graph, right: Graph, pairs: dict[int, int]) -> list[NodeDifference]:
        frames = pair_frames(left, right, self.passes)
        steps = [step for step, _, _ in frames]
        return [
            NodeDifference(
                mention(self.left, left.nodes[at]),
                mention(self.right, right.nodes[other]),
                compare_norms(
                    steps, [one.norms[at] for _, one, _ in frames], [one.norms[other] for _, _, one in frames]
                ),
            )
            for at, other in sorted(pairs.items())
        ]


def _mentions(report: TraceReport, nodes: Iterable[Node]) -> tuple[NodeMention, ...]:
    return tuple(mention(report, node) for node in nodes)


def mention(report: TraceReport, node: Node) -> NodeMention:
    """Return a node as it is named in a comparison."""
    place = report.location(node.location)
    named = node.index, node.op, node.module, node.variable
    return NodeMention(*named, node.shapes, node.dtype, place, node.statistics)
