"""Which edges of a graph lie on a circle: plain graphs of numbers, no torch.

Tarjan's strongly connected components, without recursion: graphs of autograd are deep.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from tensormagic.collectors.releases.reachability import Edges


def ends_in_circles(edges: Edges, some: Sequence[tuple[int, int]]) -> list[int]:
    """Return the ends of those edges that lie on a circle.

    Args:
        edges: For each node, the nodes that it refers to.
        some: From which node to which. Only what these lead to is looked at.
    """
    found = components(edges, (end for _, end in some))
    return [end for begin, end in some if found.get(begin) == found[end]]


def components(edges: Edges, starts: Iterable[int]) -> dict[int, int]:
    """Return for each node that the starts lead to the number of its component: nodes that lead to one another."""
    search = _Search(edges)
    for start in starts:
        if start not in search.low:
            search.go(start)
    return search.found


class _Search:
    def __init__(self, edges: Edges) -> None:
        self._edges = edges
        self.low: dict[int, int] = {}  # the first node of its component, as far as is known
        self.found: dict[int, int] = {}
        self._open: list[int] = []
        self._path: list[tuple[int, int, Iterator[int]]] = []

    def go(self, start: int) -> None:
        """Visit a node and all that it leads to."""
        self._enter(start)
        while self._path:
            node, place, rest = self._path[-1]
            after = next(rest, None)
            if after is None:
                self._leave(node, place)
            elif after not in self.low:
                self._enter(after)
            elif after not in self.found:
                self.low[node] = min(self.low[node], self.low[after])

    def _enter(self, node: int) -> None:
        place = self.low[node] = len(self.low)
        self._open.append(node)
        self._path.append((node, place, iter(self._edges[node])))

    def _leave(self, node: int, place: int) -> None:
        self._path.pop()
        if self._path:
            above = self._path[-1][0]
            self.low[above] = min(self.low[above], self.low[node])
        if self.low[node] == place:
            at = _from_end(self._open, node)
            for member in self._open[at:]:
                self.found[member] = place
            del self._open[at:]


def _from_end(values: list[int], value: int) -> int:
    at = len(values) - 1
    while values[at] != value:
        at -= 1
    return at
