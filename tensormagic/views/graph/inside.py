"""What lies inside the boxes of a drawing, level by level, each laid out by itself: a page only puts levels together.

The drawing is one cut through a tree. Below every drawn box stand the parts that a user would see next: the modules
inside a module, the repetitions of something that repeats, the ops with their leaves as `folding.fold` leaves them,
and in the end the single views of a chain. No level has more parts than a screen holds.

A line that leaves a level ends at its border, at the left where its value came in, at the right where it went on: the
level looks the same whatever is open around it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING

from tensormagic.views.graph.folding import Folding, Group, divide
from tensormagic.views.graph.layers import Edge
from tensormagic.views.graph.layout import Size, Spacing, lay_out
from tensormagic.views.graph.words import op_label, shape_label

if TYPE_CHECKING:
    from tensormagic.reports import Graph

MOST_INSIDE = 48  # parts of one opened box; up to so many layers of a network stand beside each other
MOST_PARTS = 20_000  # of a larger graph the innermost parts stay closed: the viewer lists their nodes instead
LONGEST_CHAIN = 60  # views of one chain that it opens into
ROW_WIDTH = 890.0  # where rows of the outermost level end
BORDER = -1  # the other end of a line that leaves its level

_NARROWER = 40.0  # by which each level inside is less wide than the one around it
_NARROWEST = 480.0


@dataclass(frozen=True, slots=True)
class Part:
    """One box of the tree."""

    parent: int  # Place of the part it lies in; -1 for a drawn box.
    group: Group  # What it stands for.
    whole: bool = False  # Whether nothing lies inside it.


@dataclass(frozen=True, slots=True)
class Level:
    """The inside of one part."""

    width: float  # Of the whole.
    height: float  # Of the whole.
    margin: float  # Left of it run lines from row to row.
    row_ends: tuple[float, ...]  # For each row the height below its boxes and lines.
    positions: tuple[tuple[float, float], ...]  # Top left corner of every child, in their order.
    # Lines in the direction of the forward: number of the child they leave, of the child they reach, points. One of the
    # two may be `BORDER`.
    wires: tuple[tuple[int, int, tuple[tuple[float, float], ...]], ...]


def hierarchy(graph: Graph, fine: Sequence[Group], drawn: Sequence[Group]) -> tuple[Part, ...]:
    """Return the tree whose roots are the groups ``drawn``, in their order, and whose ends are the groups ``fine``.

    ``fine`` has one group an op, in forward order, ``drawn`` unions of them. Of a very large graph some ends are unions
    of them; a chain of views ends in its single nodes.
    """
    waiting = [(-1, group, inside) for group, inside in zip(drawn, _inside(fine, drawn), strict=True)]
    parts: list[Part] = []
    for at, (parent, group, inside) in enumerate(waiting):  # which grows, breadth first: a part's place is its place
        views: list[Group] = []
        opens = len(inside) > 1 and len(waiting) < MOST_PARTS
        if opens:
            below = divide(inside, MOST_INSIDE)
            waiting += [(at, *child) for child in zip(below, _inside(inside, below), strict=True)]
        elif len(inside) <= 1 and group.kind == "views" and 1 < len(group.nodes) <= LONGEST_CHAIN:
            nodes = [graph.nodes[node] for node in reversed(group.nodes)]  # in forward order
            views = [Group((one.index,), (), "op", op_label(one), shape_label(one), one.module) for one in nodes]
            views[0] = replace(views[0], leaves=group.leaves)
        parts.append(Part(parent, group, whole=not opens and not views))
        waiting += [(at, view, []) for view in views]
    return tuple(parts)


def _inside(fine: Sequence[Group], unions: Sequence[Group]) -> list[list[Group]]:
    """Return for each union the groups of ``fine`` it is made of."""
    owner = {node: number for number, union in enumerate(unions) for node in union.nodes}
    members: list[list[Group]] = [[] for _ in unions]
    for group in fine:
        members[owner[group.nodes[0]]].append(group)
    return members


def path_to(parts: Sequence[Part], place: int) -> list[int]:
    """Return a part and what it lies in, outermost first."""
    path = []
    while place >= 0:
        path.append(place)
        place = parts[place].parent
    return path[::-1]


def levels(
    graph: Graph, folding: Folding, parts: Sequence[Part], sizes: Sequence[Size], head: float
) -> dict[int, Level]:
    """Return the inside of every part that has one, by its place; lines lead to the upper part of a box, its head."""
    children: dict[int, list[int]] = {}
    depth = [0] * len(parts)
    for place, part in enumerate(parts):
        if part.parent >= 0:
            children.setdefault(part.parent, []).append(place)
            depth[place] = depth[part.parent] + 1
    links = _links(graph, folding, parts)
    found = {}
    for place, inside in children.items():
        number = {child: at for at, child in enumerate(inside)} | {BORDER: BORDER}
        edges = tuple((number[tail], number[head]) for tail, head in links.get(place, ()))
        wrap = max(ROW_WIDTH - _NARROWER * (depth[place] + 1), _NARROWEST)
        found[place] = _level(tuple(sizes[child] for child in inside), edges, wrap, head)
    return found


def _links(graph: Graph, folding: Folding, parts: Sequence[Part]) -> dict[int, dict[Edge, None]]:
    """Return the lines inside each part, from child to child or to its border, the way the forward ran."""
    home, side, found = [-1] * len(graph.nodes), folding.leaf_side, dict[int, dict[Edge, None]]()
    for place, part in enumerate(parts):  # the end of the tree that holds each node; -1 for leaves
        for node in part.group.nodes if part.whole else ():
            home[node] = place
    ends = dict.fromkeys(
        (home[edge.target], home[edge.source]) for edge in graph.edges if side[edge.source] or not side[edge.target]
    )
    paths = {place: path_to(parts, place) for place in {end for pair in ends for end in pair} - {-1}}
    for tail, head in ends:
        if tail == head or -1 in {tail, head}:
            continue
        left, right = paths[tail], paths[head]
        common = next(at for at, pair in enumerate(zip(left, right, strict=False)) if pair[0] != pair[1])
        if common:
            found.setdefault(left[common - 1], {})[left[common], right[common]] = None
        for outer, inner in pairwise(left[common:]):
            found.setdefault(outer, {})[inner, BORDER] = None
        for outer, inner in pairwise(right[common:]):
            found.setdefault(outer, {})[BORDER, inner] = None
    return found


@lru_cache(maxsize=64)  # layers repeat, and so do runs
def _level(sizes: tuple[Size, ...], edges: tuple[Edge, ...], wrap: float, head: float) -> Level:
    """Lay out one level: points on the border are boxes without a size, before all others and behind them."""
    before, behind = any(tail == BORDER for tail, _ in edges), any(to == BORDER for _, to in edges)
    boxes = [*([(0.0, 2.0)] * before), *sizes, *([(0.0, 2.0)] * behind)]
    heads = [*([2.0] * before), *([head] * len(sizes)), *([2.0] * behind)]
    last = len(boxes) - 1
    layout = lay_out(
        boxes,
        [(tail + before if tail != BORDER else 0, to + before if to != BORDER else last) for tail, to in edges],
        Spacing(wrap_width=wrap),
        heads=heads,
        outermost=(0 if before else None, last if behind else None),
    )
    wires = tuple((*edge, route) for edge, route in zip(edges, layout.routes, strict=True))
    places = layout.positions[before : before + len(sizes)]
    return Level(layout.width, layout.height, layout.margin, layout.row_ends, places, wires)
