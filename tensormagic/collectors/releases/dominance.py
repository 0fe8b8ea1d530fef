"""What a single node alone leads to, and each of its references by itself: plain graphs of numbers, no torch.

A node dominates others where every way to these goes through it. Of all nodes that would be a dominator tree; asked
for the few containers that a person can write down, it is enough to go forward from one and to take away again what can
be entered from elsewhere. What a node dominates is led to by the same roots as the node: nothing beyond is looked at.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from tensormagic.collectors.releases.flow import Flow, Sum
from tensormagic.collectors.releases.reachability import NOBODY, SEVERAL, Edges

MOST_STEPS = 200_000  # nodes looked at: a tenth of a second


class Dominance:
    """Asks a graph.

    Args:
        edges: For each node, the nodes that it refers to.
        roots: For each root, the nodes that it refers to.
        flow: Who frees what in this graph.
        weights: Bytes and device, by node.

    Attributes:
        steps: How many more nodes may be looked at; where it is below zero, nothing is told any more.
    """

    def __init__(
        self, edges: Edges, roots: Sequence[Sequence[int]], flow: Flow, weights: Mapping[int, tuple[int, str]]
    ) -> None:
        self._edges, self._flow, self._weights = edges, flow, weights
        self._begun = {node for starts in roots for node in starts}
        self._before: list[list[int]] = [[] for _ in edges]
        for node, afters in enumerate(edges):
            if flow.colours[node] != NOBODY:
                for after in afters:
                    self._before[after].append(node)
        self.steps = MOST_STEPS

    def is_worth_asking(self, node: int) -> bool:
        """Return whether there are bytes that only the roots of a node lead to."""
        colour = self._flow.colours[node]
        if colour == SEVERAL:
            return self._flow.sets[node] in self._flow.together
        return colour >= 0 and self._flow.alone[colour].nbytes > 0

    def below(self, node: int) -> set[int]:
        """Return the nodes that only this one leads to, itself left out."""
        found = self._forward(node)
        exposed = [each for each in found if self._is_entered(each, found, node)]
        while exposed:
            each = exposed.pop()
            if each in found:
                found.discard(each)
                exposed += self._edges[each]
        return found

    def _forward(self, node: int) -> set[int]:
        """Return the nodes that one leads to, of those that the same roots lead to."""
        colours, sets = self._flow.colours, self._flow.sets
        colour, members = colours[node], sets.get(node)
        found: set[int] = set()
        pending = list(self._edges[node])
        while pending and self.steps >= 0:
            each = pending.pop()
            if each not in found and each != node and colours[each] == colour and sets.get(each) == members:
                found.add(each)
                pending += self._edges[each]
                self.steps -= 1
        return found

    def _is_entered(self, each: int, found: Collection[int], node: int) -> bool:
        return each in self._begun or any(before != node and before not in found for before in self._before[each])

    def parts(self, node: int, below: Collection[int]) -> list[set[int]]:
        """Return for each reference of a node, one after the other, what only that leads to.

        Args:
            node: The node.
            below: What it dominates.
        """
        several, owner = -1, dict[int, int]()
        for at, start in enumerate(self._edges[node]):
            pending = [start]
            while pending:
                each = pending.pop()
                known = owner.get(each)
                if each not in below or known in {at, several}:
                    continue
                owner[each] = at if known is None else several
                pending += self._edges[each]
                self.steps -= 1
        found: list[set[int]] = [set() for _ in self._edges[node]]
        for each, at in owner.items():
            if at >= 0:
                found[at].add(each)
        return found

    def weighs(self, node: int) -> bool:
        """Return whether a node has bytes."""
        return node in self._weights

    def weighed(self, nodes: Collection[int]) -> Sum:
        """Return the bytes of nodes."""
        total = Sum()
        for each in nodes:
            if each in self._weights:
                total.add(*self._weights[each])
        return total
