"""Plain graphs of numbers, no torch: what roots free alone and together, what a node dominates, and cycles."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

Edges = Sequence[Sequence[int]]  # for each node, or for each root, the nodes that it refers to
Weights = Mapping[int, tuple[int, str]]  # bytes and device, by node

FEW, _MANY = 8, -1  # roots that lead to something together
MOST_STEPS = 200_000  # nodes looked at for what containers free: a tenth of a second


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


class Flow:
    """Who frees what, in a graph that is entered at roots.

    A set of roots is the bits of a number, the first root the lowest.
    """

    def __init__(self, edges: Edges, roots: Edges, weights: Weights) -> None:
        self._edges, self.weights = edges, weights
        found = components(edges, chain(*roots))
        sets = dict.fromkeys(found.values(), 0)  # which roots lead to each component
        for root, starts in enumerate(roots):
            for node in starts:
                sets[found[node]] |= 1 << root
        for node in reversed(found):
            for after in edges[node]:
                sets[found[after]] |= sets[found[node]]
        self.sets = [sets[found[node]] if node in found else 0 for node in range(len(edges))]  # and to each node
        self.sums: dict[int, Sum] = {}  # what it takes each set of roots to free
        for node, weight in weights.items():
            if self.sets[node]:
                self.sums.setdefault(self.sets[node], Sum()).add(*weight)
        several = [each for each in self.sums.items() if each[0].bit_count() > 1]
        self.several = sorted(several, key=lambda each: -each[1].nbytes)  # the sets of more than one, the most first
        self._places = _places_of(needed for needed, _ in self.several)
        self._begun = {node for starts in roots for node in starts}
        self._before: list[list[int]] = [[] for _ in edges]
        for node, afters in enumerate(edges):
            for after in afters if self.sets[node] else ():
                self._before[after].append(node)
        self.steps = MOST_STEPS  # that may still be looked at; below zero nothing is reported any more

    def alone(self, root: int) -> int:
        """Return the bytes that a root frees by itself."""
        return self.sums.get(1 << root, Sum()).nbytes

    def freed(self, members: int) -> Sum:
        """Return what a set of roots frees: all that nothing outside the set leads to."""
        freed = Sum()
        for at in bits(members):
            freed.include(self.sums.get(1 << at, Sum()))
        for needed, what in (
            self._near(members) if members & (members - 1) else ()
        ):  # a single root frees no set of several
            if needed & members == needed:
                freed.include(what)
        return freed

    def shared(self, members: int) -> tuple[int, int]:
        """Return the bytes that a set of roots leads to but does not free, and which roots the most of it takes."""
        found = [each for each in self._near(members) if (held := each[0] & members) and held != each[0]]
        return sum(what.nbytes for _, what in found), found[0][0] if found else 0

    def _near(self, members: int) -> list[tuple[int, Sum]]:
        """Return the sets of several roots, without those of a few roots of which none is a member."""
        few = {at for root in bits(members) for at in self._places.get(root, ())}
        return [self.several[at] for at in sorted([*self._places.get(_MANY, ()), *few])]

    # What a single node alone leads to. It dominates others where every way to these goes through it. Of all nodes
    # that would be a dominator tree; asked for the few containers that a user can write down, it is enough to go
    # forward from one and to take away again what can be entered from elsewhere. The same roots lead to all of it.

    def below(self, node: int) -> set[int]:
        """Return the nodes that only this one leads to, itself left out."""
        found: set[int] = set()
        pending = list(self._edges[node])
        while pending and self.steps >= 0:
            each = pending.pop()
            if each not in found and each != node and self.sets[each] == self.sets[node]:
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


def _places_of(sets: Iterable[int]) -> dict[int, list[int]]:
    """Return for each root where the sets of a few roots are that it is in; under `_MANY` where the others are."""
    places: dict[int, list[int]] = {}
    for at, members in enumerate(sets):
        for root in bits(members) if members.bit_count() <= FEW else (_MANY,):
            places.setdefault(root, []).append(at)
    return places


def bits(members: int) -> Iterator[int]:
    """Yield the numbers of the roots in a set, in order."""
    while members:
        lowest = members & -members
        yield lowest.bit_length() - 1
        members ^= lowest


def set_of(roots: Iterable[int]) -> int:
    """Return the set of these roots."""
    return sum(1 << root for root in roots)


def ends_in_cycles(edges: Edges, some: Sequence[tuple[int, int]]) -> list[int]:
    """Return the ends of those edges that lie on a circle; only what these lead to is looked at."""
    found = components(edges, (end for _, end in some))
    return [end for begin, end in some if found.get(begin) == found[end]]


def components(edges: Edges, starts: Iterable[int]) -> dict[int, int]:
    """Return for each node that the starts lead to the number of its component: nodes that lead to one another.

    In the order of the result, no component leads to a later one. Gabow's algorithm, without recursion: graphs of
    autograd are deep.
    """
    place: dict[int, int] = {}  # in which order nodes were met
    found: dict[int, int] = {}
    path: list[int] = []  # what was met and has no component yet
    begins: list[int] = []  # the places at which components on the path may begin
    pending = list(starts)
    while pending:
        node = pending.pop()
        if node < 0:  # all that follows it was looked at
            node = ~node
            if begins[-1] == place[node]:
                begins.pop()
                while node not in found:
                    found[path.pop()] = place[node]
        elif node not in place:
            place[node] = len(place)
            path.append(node)
            begins.append(place[node])
            pending += [~node, *edges[node]]
        elif node not in found:
            while begins[-1] > place[node]:
                begins.pop()
    return found
