"""Plain graphs of numbers, no torch: cycles, dominance, reachability, and what roots free alone and together."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

# Which root alone leads to a node, and which roots lead there together.
#
# A root that dominates a node (every way to the node goes through it) is a root that alone reaches it. That is asked
# for roots only, so that a dominator tree is not needed: every node takes the colour of the root that reaches it, or
# that of "several", and is looked at twice at most.

NOBODY, SEVERAL = -1, -2

Edges = Sequence[Sequence[int]]  # for each node, or for each root, the nodes that it refers to
Weights = Mapping[int, tuple[int, str]]  # bytes and device, by node


def sole_roots(edges: Edges, roots: Edges) -> list[int]:
    """Return for each node the root that alone reaches it, `SEVERAL`, or `NOBODY`."""
    colours = [NOBODY] * len(edges)
    for root, starts in enumerate(roots):
        pending = list(starts)
        while pending:
            node = pending.pop()
            colour = colours[node]
            if colour == NOBODY:
                colours[node] = root
                pending += edges[node]
            elif colour not in {root, SEVERAL}:
                colours[node] = SEVERAL
                pending += edges[node]
    return colours


def root_sets(edges: Edges, roots: Edges, colours: Sequence[int]) -> dict[int, int]:
    """Return for each node that several roots reach which ones do: the bits of a number, the first root the lowest.

    ``colours`` is what `sole_roots` made of the graph.
    """
    sets = {node: 0 for node, colour in enumerate(colours) if colour == SEVERAL}
    begun = ((node, root) for root, starts in enumerate(roots) for node in starts)
    through = ((after, colour) for node, colour in enumerate(colours) if colour >= 0 for after in edges[node])
    for node, root in chain(begun, through):  # directly, or through nodes that only one root reaches
        if node in sets:
            sets[node] |= 1 << root
    found = components(edges, sets)  # nodes that lead to one another have one number, and those led to come first
    reach = dict.fromkeys(found.values(), 0)
    for node, component in found.items():
        reach[component] |= sets[node]
    for node in reversed(found):
        for after in edges[node]:
            reach[found[after]] |= reach[found[node]]
    return {node: reach[found[node]] for node in sets}


# Which edges of a graph lie on a circle.
#
# Tarjan's strongly connected components, without recursion: graphs of autograd are deep.


def ends_in_cycles(edges: Edges, some: Sequence[tuple[int, int]]) -> list[int]:
    """Return the ends of those edges that lie on a circle; only what these lead to is looked at."""
    found = components(edges, (end for _, end in some))
    return [end for begin, end in some if found.get(begin) == found[end]]


def components(edges: Edges, starts: Iterable[int]) -> dict[int, int]:
    """Return for each node that the starts lead to the number of its component: nodes that lead to one another.

    In the order of the result, no component leads to a later one.
    """
    low: dict[int, int] = {}  # the first node of its component, as far as is known
    found: dict[int, int] = {}
    opened: list[int] = []
    for start in starts:
        path: list[tuple[int, int, Iterator[int]]] = []
        after: int | None = None if start in low else start
        while path or after is not None:
            if after is not None:
                path.append((after, len(low), iter(edges[after])))
                low[after] = len(low)
                opened.append(after)
            node, place, rest = path[-1]
            after = next(rest, None)
            if after is None:
                path.pop()
                if path:
                    low[path[-1][0]] = min(low[path[-1][0]], low[node])
                while low[node] == place and node not in found:
                    found[opened.pop()] = place
            elif after in low:
                if after not in found:
                    low[node] = min(low[node], low[after])
                after = None
    return found


@dataclass(slots=True)
class Sum:
    """Bytes of several storages."""

    nbytes: int = 0  # all of them
    storages: int = 0  # how many storages
    devices: dict[str, int] = field(default_factory=dict)  # the bytes by device

    def add(self, nbytes: int, device: str) -> None:
        """Add a storage."""
        self.include(Sum(nbytes, 1, {device: nbytes}))

    def include(self, other: Sum) -> None:
        """Add another sum."""
        self.nbytes += other.nbytes
        self.storages += other.storages
        for device, nbytes in other.devices.items():
            self.devices[device] = self.devices.get(device, 0) + nbytes


@dataclass(slots=True)
class Flow:
    """Who frees what."""

    alone: list[Sum]  # What each root frees by itself.
    together: dict[int, Sum]  # What takes several roots, by which (the bits of a number, the first root the lowest).
    # The root that alone leads to each node, or that several or none do; see `sole_roots`.
    colours: list[int] = field(default_factory=list)
    sets: dict[int, int] = field(default_factory=dict)  # Which roots lead to each node that several lead to.

    def freed(self, members: int) -> Sum:
        """Return what a set of roots frees: all that nothing outside the set leads to."""
        freed = Sum()
        for at in bits(members):
            freed.include(self.alone[at])
        for needed, shared in self.together.items():
            if needed & ~members == 0:
                freed.include(shared)
        return freed

    def shared(self, members: int) -> list[tuple[int, Sum]]:
        """Return what a set of roots leads to but does not free, and which roots that takes, the most first."""
        found = [(needed, one) for needed, one in self.together.items() if needed & members and needed & ~members]
        return sorted(found, key=lambda pair: -pair[1].nbytes)


def flow_of(edges: Edges, roots: Edges, weights: Weights) -> Flow:
    """Return who frees what."""
    colours = sole_roots(edges, roots)
    sets = root_sets(edges, roots, colours)
    flow = Flow([Sum() for _ in roots], {}, colours, sets)
    for node, (nbytes, device) in weights.items():
        if colours[node] == SEVERAL:
            flow.together.setdefault(sets[node], Sum()).add(nbytes, device)
        elif colours[node] >= 0:
            flow.alone[colours[node]].add(nbytes, device)
    return flow


def bits(members: int) -> list[int]:
    """Return the numbers of the roots in a set."""
    return [at for at in range(members.bit_length()) if members >> at & 1]


def set_of(roots: Iterable[int]) -> int:
    """Return the set of these roots."""
    return sum(1 << root for root in roots)


# What a single node alone leads to, and each of its references by itself.
#
# A node dominates others where every way to these goes through it. Of all nodes that would be a dominator tree; asked
# for the few containers that a user can write down, it is enough to go forward from one and to take away again what
# can be entered from elsewhere. What a node dominates is led to by the same roots as the node: nothing beyond is
# looked at.

MOST_STEPS = 200_000  # nodes looked at: a tenth of a second


class Dominance:
    """Asks a graph of which `flow_of` told who frees what."""

    def __init__(self, edges: Edges, roots: Edges, flow: Flow, weights: Weights) -> None:
        self._edges, self._flow, self.weights = edges, flow, weights
        self._begun = {node for starts in roots for node in starts}
        self._before: list[list[int]] = [[] for _ in edges]
        for node, afters in enumerate(edges):
            if flow.colours[node] != NOBODY:
                for after in afters:
                    self._before[after].append(node)
        self.steps = MOST_STEPS  # that may still be looked at; below zero nothing is reported any more

    def is_worth_asking(self, node: int) -> bool:
        """Return whether there are bytes that only the roots of a node lead to."""
        colour = self._flow.colours[node]
        if colour == SEVERAL:
            return self._flow.sets[node] in self._flow.together
        return colour >= 0 and self._flow.alone[colour].nbytes > 0

    def below(self, node: int) -> set[int]:
        """Return the nodes that only this one leads to, itself left out."""
        colours, sets = self._flow.colours, self._flow.sets
        colour, members = colours[node], sets.get(node)
        found: set[int] = set()
        pending = list(self._edges[node])
        while pending and self.steps >= 0:  # forward, as far as the same roots lead
            each = pending.pop()
            if each not in found and each != node and colours[each] == colour and sets.get(each) == members:
                found.add(each)
                pending += self._edges[each]
                self.steps -= 1
        inside = {*found, node}
        exposed = [each for each in found if each in self._begun or not inside.issuperset(self._before[each])]
        while exposed:
            each = exposed.pop()
            if each in found:
                found.discard(each)
                exposed += self._edges[each]
        return found

    def parts(self, node: int, below: Collection[int]) -> list[set[int]]:
        """Return for each reference of a node, one after the other, what only that leads to of what is ``below`` it."""
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

    def weighed(self, nodes: Collection[int]) -> Sum:
        """Return the bytes of nodes."""
        total = Sum()
        for each in nodes:
            if each in self.weights:
                total.add(*self.weights[each])
        return total
