"""What each root frees alone, and what sets of roots free together: bytes, laid onto a graph of references."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tensormagic.collectors.releases.reachability import SEVERAL, Edges, root_sets, sole_roots


@dataclass(slots=True)
class Sum:
    """Bytes of several storages.

    Attributes:
        nbytes: All of them.
        storages: How many storages.
        devices: The bytes by device.
    """

    nbytes: int = 0
    storages: int = 0
    devices: dict[str, int] = field(default_factory=dict)

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
    """Who frees what.

    Attributes:
        alone: What each root frees by itself.
        together: What takes several roots, by which (the bits of a number, the first root the lowest).
        colours: The root that alone leads to each node, or that several or none do; see `sole_roots`.
        sets: Which roots lead to each node that several lead to.
    """

    alone: list[Sum]
    together: dict[int, Sum]
    colours: list[int] = field(default_factory=list)
    sets: dict[int, int] = field(default_factory=dict)

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


def flow_of(edges: Edges, roots: Sequence[Sequence[int]], weights: Mapping[int, tuple[int, str]]) -> Flow:
    """Return who frees what.

    Args:
        edges: For each node, the nodes that it refers to.
        roots: For each root, the nodes that it refers to.
        weights: Bytes and device, by node.
    """
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
    found = []
    while members:
        lowest = members & -members
        found.append(lowest.bit_length() - 1)
        members ^= lowest
    return found


def set_of(roots: Iterable[int]) -> int:
    """Return the set of these roots."""
    members = 0
    for root in roots:
        members |= 1 << root
    return members
