"""What lies inside a folded box, level by level, down to single ops: the viewer opens a box where it stands.

The drawing is one cut through this tree. Below every drawn box stand the parts that a person would see next: the
modules inside a module, the repetitions of something that repeats, and in the end the ops with their leaves, as
`graph_folding.fold` leaves them. No level has more parts than a screen holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tensormagic.renderers.graph.graph_coarsening import divide

if TYPE_CHECKING:
    from tensormagic.renderers.graph.graph_folding import Group

MOST_INSIDE = 48  # parts of one opened box; up to so many layers of a network stand beside each other
MOST_PARTS = 20_000  # of a larger graph the innermost parts stay closed: the viewer lists their nodes instead


@dataclass(frozen=True, slots=True)
class Part:
    """One box of the tree.

    Attributes:
        parent: Place of the part it lies in; -1 for a drawn box.
        group: What it stands for.
        whole: Whether nothing lies inside it.
    """

    parent: int
    group: Group
    whole: bool = False


def hierarchy(fine: Sequence[Group], drawn: Sequence[Group]) -> tuple[Part, ...]:
    """Return the tree whose roots are the groups ``drawn``, in their order, and whose ends are the groups ``fine``.

    Of a very large graph some ends are unions of them.

    Args:
        fine: One group an op, in forward order.
        drawn: Unions of them.
    """
    waiting = [(-1, group, inside) for group, inside in zip(drawn, _inside(fine, drawn), strict=True)]
    parts: list[Part] = []
    at = 0
    while at < len(waiting):  # breadth first: a part's place is its place in the queue
        parent, group, inside = waiting[at]
        opens = len(inside) > 1 and len(waiting) < MOST_PARTS
        parts.append(Part(parent, group, whole=not opens))
        if opens:
            below = divide(inside, MOST_INSIDE)
            waiting += [(at, *child) for child in zip(below, _inside(inside, below), strict=True)]
        at += 1
    return tuple(parts)


def _inside(fine: Sequence[Group], unions: Sequence[Group]) -> list[list[Group]]:
    """Return for each union the groups of ``fine`` it is made of."""
    owner = {node: number for number, union in enumerate(unions) for node in union.nodes}
    members: list[list[Group]] = [[] for _ in unions]
    for group in fine:
        members[owner[group.nodes[0]]].append(group)
    return members
