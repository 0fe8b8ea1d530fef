"""Matches the nodes of two graphs: by what they are, what they are called, and what stands around them.

Lines move and indices shift when a cell is edited, so neither is looked at. Every node gets a label of what it is
(op, module, name of a leaf); the label is then refined, round by round, by the labels of its neighbours (the
refinement of Weisfeiler and Leman, 1968). From the finest labels to the coarsest, nodes whose label stands equally
often in both graphs are paired in order, and from every pair its neighbours along the same edges are paired. What
stays over is tried once more without names. All of it is iterative, and linear in the edges but for sorting.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from tensormagic.reports import Graph, Node

Labels = list[int]
Links = list[list[tuple[int, int, int]]]  # node → (input number, slot, the node at the other end)
ROUNDS = 3

Key = Callable[[Node], tuple[str, ...]]


def match_nodes(left: Graph, right: Graph, rename: Callable[[str], str] = str) -> dict[int, int]:
    """Return which node of ``right`` each node of ``left`` is, for those that both graphs have.

    Args:
        left: A graph.
        right: Another one.
        rename: Turns a name of the right run into the left one's.
    """
    named = ([_named(node, str) for node in left.nodes], [_named(node, rename) for node in right.nodes])
    if named[0] == named[1] and left.edges == right.edges:
        return {node.index: node.index for node in left.nodes}
    matcher = _Matcher(left, right)
    matcher.match(*named, coarsest=0)
    plain = ([(node.name, node.kind) for node in left.nodes], [(node.name, node.kind) for node in right.nodes])
    matcher.match(*plain, coarsest=1)
    return matcher.pairs


def common_edges(left: Graph, right: Graph, pairs: dict[int, int]) -> int:
    """Return how many edges of ``left`` lead between the counterparts of their ends in ``right`` too."""
    there = {(edge.source, edge.target, edge.input_number, edge.slot) for edge in right.edges}
    mapped = ((pairs.get(edge.source), pairs.get(edge.target), edge.input_number, edge.slot) for edge in left.edges)
    return sum(edge in there for edge in mapped)


def _named(node: Node, rename: Callable[[str], str]) -> tuple[str, ...]:
    """Return what a node is; the name of what an op made is the person's, and may be another in the other run."""
    return (node.name, node.kind, rename(node.module), rename(node.variable) if node.kind == "accumulate" else "")


class _Side:
    """One graph, with its edges at hand from both ends."""

    def __init__(self, graph: Graph) -> None:
        self.size = len(graph.nodes)
        self.down: Links = [[] for _ in graph.nodes]
        self.up: Links = [[] for _ in graph.nodes]
        for edge in graph.edges:
            self.down[edge.source].append((edge.input_number, edge.slot, edge.target))
            self.up[edge.target].append((edge.input_number, edge.slot, edge.source))

    def refined(self, labels: Labels, known: dict[object, int]) -> Labels:
        """Return finer labels: a node's own, and those of its neighbours with the edges between."""
        return [known.setdefault(self._surroundings(at, labels), len(known)) for at in range(self.size)]

    def _surroundings(self, at: int, labels: Labels) -> tuple[object, ...]:
        below = tuple((number, slot, labels[other]) for number, slot, other in self.down[at])
        above = tuple(sorted((number, slot, labels[other]) for number, slot, other in self.up[at]))
        return labels[at], below, above


class _Matcher:
    """The pairs found so far."""

    def __init__(self, left: Graph, right: Graph) -> None:
        self.left, self.right = _Side(left), _Side(right)
        self.pairs: dict[int, int] = {}
        self._taken: set[int] = set()

    def match(self, keys: Iterable[object], others: Iterable[object], *, coarsest: int) -> None:
        """Pair by labels that begin with ``keys``, from the finest round to the round ``coarsest``."""
        known: dict[object, int] = {}
        mine = [[known.setdefault(key, len(known)) for key in keys]]
        theirs = [[known.setdefault(key, len(known)) for key in others]]
        for _ in range(ROUNDS):
            finer: dict[object, int] = {}
            mine.append(self.left.refined(mine[-1], finer))
            theirs.append(self.right.refined(theirs[-1], finer))
        self._spread(self.pairs, mine[0], theirs[0])
        for level in range(ROUNDS, coarsest - 1, -1):
            self._spread(self._equally_often(mine[level], theirs[level]), mine[0], theirs[0])

    def _equally_often(self, mine: Labels, theirs: Labels) -> dict[int, int]:
        """Pair, in order, the nodes left over whose label is as frequent here as there."""
        places = _places(mine, self.pairs)
        others = _places(theirs, self._taken)
        new = {
            at: other
            for label, here in places.items()
            if len(here) == len(others.get(label, ()))
            for at, other in zip(here, others[label], strict=True)
        }
        for at, other in new.items():
            self._pair(at, other)
        return new

    def _spread(self, start: dict[int, int], mine: Labels, theirs: Labels) -> None:
        """From every pair on, pair the neighbours at the other ends of the same edges, where both are what they are."""
        waiting = deque(start.items())
        while waiting:
            here, there = waiting.popleft()
            sides = ((self.left.down, self.right.down), (self.left.up, self.right.up))
            for at, other in (pair for links, others in sides for pair in _along(links[here], others[there])):
                if at not in self.pairs and other not in self._taken and mine[at] == theirs[other]:
                    self._pair(at, other)
                    waiting.append((at, other))

    def _pair(self, at: int, other: int) -> None:
        self.pairs[at] = other
        self._taken.add(other)


def _places(labels: Labels, taken: Iterable[int]) -> dict[int, list[int]]:
    done = taken if isinstance(taken, set | dict) else set(taken)
    places: dict[int, list[int]] = {}
    for at, label in enumerate(labels):
        if at not in done:
            places.setdefault(label, []).append(at)
    return places


def _along(links: list[tuple[int, int, int]], others: list[tuple[int, int, int]]) -> Iterable[tuple[int, int]]:
    """Return the neighbours along edges of the same number and slot, where there is one such edge on both sides."""
    theirs = _single(others)
    return ((node, theirs[edge]) for edge, node in _single(links).items() if edge in theirs)


def _single(links: list[tuple[int, int, int]]) -> dict[tuple[int, int], int]:
    ends: dict[tuple[int, int], list[int]] = {}
    for number, slot, node in links:
        ends.setdefault((number, slot), []).append(node)
    return {edge: nodes[0] for edge, nodes in ends.items() if len(nodes) == 1}
