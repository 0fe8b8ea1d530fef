"""From an autograd graph to a drawing: fold what a user does not think of as a step, then lay the rest out.

Everything that draws the graph (the static picture, the live panel) starts from the same `Drawing`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import compress, pairwise
from typing import TYPE_CHECKING

from tensormagic.views.graph.cuts import CutRow, cut_rows, ends_of
from tensormagic.views.graph.folding import Folding, Group, coarsen, divide, fold, group_of, shown_edges
from tensormagic.views.graph.layers import Edge
from tensormagic.views.graph.layout import Layout, Point, Size, Spacing, lay_out
from tensormagic.views.graph.words import gradient_text, leaf_labels, shows_values, value_text, wire_text
from tensormagic.views.markup import made_once, text_width
from tensormagic.words import plural

if TYPE_CHECKING:
    from tensormagic.reports import Graph

LABEL_SIZE = 12.0
DETAIL_SIZE = 10.5
BADGE_SIZE = 10.0
HEAD_HEIGHT = 40.0
BADGE_HEIGHT = 15.0
MOST_BADGES = 4
CUT_INDENT = 20.0  # where the words of a cut begin, to the right of its sign
MOST_REPEATED = 3

_PADDING = 10.0
_NARROWEST = 38.0
_VALUE_GAP = 64.0, 200.0  # between boxes with numbers: the local derivative stands there
_WIDEST = 190.0
ROW_WIDTH = 890.0  # where rows of the outermost level end


@dataclass(frozen=True, slots=True)
class Badge:
    """A leaf that collects a gradient, folded into a box that uses it."""

    node: int  # Index of the accumulate node.
    # Its name, short; with ``(in 3 boxes)`` where several boxes use it. Where very many do, it is a badge of the first
    # of them alone.
    label: str


@dataclass(frozen=True, slots=True)
class Box:
    """One box of the drawing."""

    id: int  # Its place in `Drawing.boxes`.
    # Indices of the graph's nodes it stands for, badges not included. The gradient of the first one that was reached is
    # the gradient of the box: the others were folded into it.
    nodes: tuple[int, ...]
    label: str  # What it does.
    detail: str  # Shape of what it makes.
    kind: str  # ``"op"``, ``"custom"``, ``"accumulate"``, ``"views"``, ``"module"`` or ``"repeat"``.
    badges: tuple[Badge, ...]  # Leaves folded into it.
    x: float  # Left side.
    y: float  # Top.
    width: float  # Of the box, badges included.
    height: float  # Of the box, badges included.
    cuts: tuple[CutRow, ...] = ()  # What it used and sends no gradient to, a line each below the badges.


@dataclass(frozen=True, slots=True)
class Wire:
    """A line between two boxes."""

    source: int  # Id of the box that sends the gradient (drawn at the right).
    target: int  # Id of the box that receives it.
    points: tuple[Point, ...]  # The line, from source to target.
    edges: tuple[int, ...] = ()  # Indices of the graph's edges it stands for.
    cut: int | None = None  # Index into `Graph.cuts`: a value went this way, and no gradient does.


Level = tuple[tuple[Edge, ...], Layout]  # lines the way the forward ran, from child to child or `BORDER`; all places


@dataclass(slots=True)
class Part:
    """One box of the tree below the drawn boxes."""

    parent: int  # Place of the part it lies in; -1 for a drawn box.
    group: Group  # What it stands for.
    whole: bool  # Whether nothing lies inside it.
    badges: tuple[Badge, ...] = ()  # Leaves folded into it.
    cuts: tuple[CutRow, ...] = ()  # As in `Box`.
    size: Size = (0.0, 0.0)  # Of its box.
    level: Level | None = None  # What lies inside it.


@dataclass(frozen=True, slots=True)
class Drawing:
    """A graph, folded and laid out."""

    width: float  # Of the whole, in pixels.
    height: float  # Of the whole.
    boxes: tuple[Box, ...]  # In forward order.
    wires: tuple[Wire, ...]  # Between them.
    note: str  # What was folded, in one sentence; empty where every node has its box.
    inside: tuple[Part, ...] = ()  # What lies inside the boxes; the first ones are the boxes themselves.
    margin: float = 0.0  # Left of it lines run from row to row.
    row_ends: tuple[float, ...] = ()  # For each row the height below its boxes and lines.
    detachment: tuple[Wire, ...] = ()  # Lines along which a value went, and no gradient goes; from who made it.
    # Boxes from which a value was taken in such a way, and no line says so; with the cuts.
    stubs: dict[int, tuple[int, ...]] = field(default_factory=dict)


@made_once()
def draw(graph: Graph, *, max_boxes: int = 160, inside: bool = True) -> Drawing:
    """Return the drawing of ``graph``, folded into at most ``max_boxes``; with ``inside``, what lies inside them."""
    fine = fold(graph)
    folding = fine if len(fine.groups) <= max_boxes else coarsen(graph, fine, max_boxes)
    uses = Counter(leaf for group in folding.groups for leaf in group.leaves)
    seen: set[int] = set()
    groups = []  # a leaf that very many boxes use (of a recurrent network) is left on the first of them only
    for group in folding.groups:
        leaves = tuple(leaf for leaf in group.leaves if uses[leaf] <= MOST_REPEATED or leaf not in seen)
        seen.update(leaves)
        groups.append(replace(group, leaves=leaves))
    names = leaf_labels(graph)
    labels = {leaf: names[leaf] + (f" (in {times} boxes)" if times > 1 else "") for leaf, times in uses.items()}
    badges = [tuple(Badge(leaf, labels[leaf]) for leaf in group.leaves) for group in groups]
    rows_below, cut_pairs, stubs = ends_of(graph, groups, folding.edges)
    sizes, gap = list(map(box_size, groups, badges, rows_below)), 32.0
    if shows_values(graph):
        sizes, gap = _with_values(graph, folding, groups, sizes)
    layout = lay_out(
        sizes,
        [*((target, source) for source, target in folding.edges), *cut_pairs],
        Spacing(gap, wrap_width=ROW_WIDTH),
        heads=[HEAD_HEIGHT] * len(sizes),
    )
    boxes = tuple(
        Box(number, group.nodes, group.label, group.detail, group.kind, marks, *position, *size, rows)
        for number, (group, marks, rows, position, size) in enumerate(
            zip(groups, badges, rows_below, layout.positions, sizes, strict=True)
        )
    )
    routes = iter(layout.routes)
    wires = tuple(Wire(*pair, next(routes)[::-1], edges) for pair, edges in folding.edges.items())
    detachment = tuple(Wire(*pair, next(routes), cut=cut) for pair, cut in cut_pairs.items())
    drawn = f"{plural(len(graph.nodes), 'node')} drawn as {plural(len(boxes), 'box', 'boxes')}: {folding.note}"
    parts = _inside(graph, fine, folding) if inside else ()
    return Drawing(layout.width, layout.height, boxes, wires, drawn if folding.note else "", parts,
                   layout.margin, layout.row_ends, detachment, stubs)  # fmt: skip


def _with_values(
    graph: Graph, folding: Folding, groups: Sequence[Group], sizes: Sequence[Size]
) -> tuple[list[Size], float]:
    """Return sizes with room for the numbers in and over each box, in every pass, and how far columns stand apart.

    The local derivatives have room between them.
    """
    values, found = [frame.values for frame in graph.frames if frame.values is not None], []
    for group, (width, height) in zip(groups, sizes, strict=True):
        node = group.nodes[0]
        inside = (text_width(value_text(one.made[node]), DETAIL_SIZE) + 2 * _PADDING for one in values)
        over = (text_width(gradient_text(one.gradients[node]), DETAIL_SIZE) + 6 for one in values)
        found.append((max([width, *(round(min(wide, _WIDEST)) for wide in (*inside, *over))]), height))
    texts = (wire_text(graph, one, edges) for one in values for edges in folding.edges.values())
    least, most = _VALUE_GAP
    return found, min(max((least, *(text_width(text, DETAIL_SIZE) + 18 for text in texts))), most)


def badge_rows(kind: str, badges: tuple[Badge, ...]) -> tuple[tuple[Badge, ...], int]:
    """Return the badges that are written out under a box of that kind, and how many more there are, in one line.

    Those are all that have room; of a box of many steps all or none.
    """
    fewer = 0 if kind in {"module", "repeat"} else MOST_BADGES - 1
    shown = badges if len(badges) <= MOST_BADGES else badges[:fewer]
    return shown, len(badges) - len(shown)


def box_size(group: Group, badges: tuple[Badge, ...], cuts: tuple[CutRow, ...]) -> tuple[float, float]:
    """Return the width and height of a box with its badges and its cuts."""
    written, more = badge_rows(group.kind, badges)
    lines = len(written) + bool(more) + len(cuts)
    words = [text_width(group.label, LABEL_SIZE, bold=True), text_width(group.detail, DETAIL_SIZE)]
    words += [text_width(badge.label, BADGE_SIZE) + BADGE_HEIGHT for badge in written]
    wanted = [max(words) + 2 * _PADDING, *(text_width(cut.label, BADGE_SIZE) + CUT_INDENT + 4 for cut in cuts)]
    width = min(max(_NARROWEST, *wanted), _WIDEST)
    return round(width), HEAD_HEIGHT + (lines * BADGE_HEIGHT + 3 if lines else 0)


# -- what lies inside the boxes ---------------------------------------------------------------------------------------
#
# The drawing is one cut through a tree. Below every drawn box stand the parts that a user would see next: the modules
# inside a module, the repetitions of something that repeats, the ops with their leaves as `fold` leaves them, and in
# the end the single views of a chain. No level has more parts than a screen holds. Each level is laid out by itself,
# as if all boxes in it were closed: a page only puts levels together.
#
# A line that leaves a level ends at its border, at the left where its value came in, at the right where it went on: the
# level looks the same whatever is open around it.

MOST_INSIDE = 48  # parts of one opened box; up to so many layers of a network stand beside each other
MOST_PARTS = 20_000  # of a larger graph the innermost parts stay closed: the viewer lists their nodes instead
LONGEST_CHAIN = 60  # views of one chain that it opens into
BORDER = -1  # the other end of a line that leaves its level

_NARROWER = 40.0  # by which each level inside is less wide than the one around it
_NARROWEST_LEVEL = 480.0


def _inside(graph: Graph, fine: Folding, drawn: Folding) -> tuple[Part, ...]:
    """Return the tree below the drawn boxes."""
    parts = hierarchy(graph, fine.groups, drawn.groups)
    if len(parts) == len(drawn.groups):
        return parts
    ends = [(place, part.group) for place, part in enumerate(parts) if part.whole]
    home: dict[int | None, int] = {node: place for place, group in ends for node in group.nodes}
    users = home | {leaf: place for place, group in reversed(ends) for leaf in group.leaves}
    held = [_path_to(parts, users.get(cut.target, -1)) for cut in graph.cuts]
    rows, names = cut_rows(graph, [part.group for part in parts], held), leaf_labels(graph)
    children, depth = dict[int, list[int]](), [0] * len(parts)
    for place, (part, cuts) in enumerate(zip(parts, rows, strict=True)):
        part.badges, part.cuts = tuple(Badge(leaf, names[leaf]) for leaf in part.group.leaves), cuts
        part.size = box_size(part.group, part.badges, cuts)
        if part.parent >= 0:
            children.setdefault(part.parent, []).append(place)
            depth[place] = depth[part.parent] + 1
    links = _links(graph, parts, home)
    for place, inside in children.items():
        number = {child: at for at, child in enumerate(inside)} | {BORDER: BORDER}
        edges = tuple((number[tail], number[head]) for tail, head in links.get(place, ()))
        wrap = max(ROW_WIDTH - _NARROWER * (depth[place] + 1), _NARROWEST_LEVEL)
        parts[place].level = _level(tuple(parts[child].size for child in inside), edges, wrap)
    return parts


def hierarchy(graph: Graph, fine: Sequence[Group], drawn: Sequence[Group]) -> tuple[Part, ...]:
    """Return the tree whose roots are the groups ``drawn``, in their order, and whose ends are the groups ``fine``.

    ``fine`` has one group an op, in forward order, ``drawn`` unions of them. Of a very large graph some ends are unions
    of them; a chain of views ends in its single nodes.
    """
    waiting = [(-1, group, inside) for group, inside in zip(drawn, _members(fine, drawn), strict=True)]
    parts: list[Part] = []
    for at, (parent, group, inside) in enumerate(waiting):  # which grows, breadth first: a part's place is its place
        views: list[Group] = []
        opens = len(inside) > 1 and len(waiting) < MOST_PARTS
        if opens:
            below = divide(inside, MOST_INSIDE)
            waiting += [(at, *child) for child in zip(below, _members(inside, below), strict=True)]
        elif len(inside) <= 1 and group.kind == "views" and 1 < len(group.nodes) <= LONGEST_CHAIN:
            views = [replace(group_of(graph, node, [], set()), kind="op") for node in reversed(group.nodes)]
            views[0] = replace(views[0], leaves=group.leaves)
        parts.append(Part(parent, group, whole=not opens and not views))
        waiting += [(at, view, []) for view in views]
    return tuple(parts)


def _members(fine: Sequence[Group], unions: Sequence[Group]) -> list[list[Group]]:
    """Return for each union the groups of ``fine`` it is made of."""
    owner = {node: number for number, union in enumerate(unions) for node in union.nodes}
    members: list[list[Group]] = [[] for _ in unions]
    for group in fine:
        members[owner[group.nodes[0]]].append(group)
    return members


def _path_to(parts: Sequence[Part], place: int) -> list[int]:
    """Return a part and what it lies in, outermost first."""
    path = []
    while place >= 0:
        path.append(place)
        place = parts[place].parent
    return path[::-1]


def _links(graph: Graph, parts: Sequence[Part], home: Mapping[int | None, int]) -> dict[int, dict[Edge, None]]:
    """Return the lines inside each part, from child to child or to its border, the way the forward ran.

    ``home`` is the end of the tree that holds each node.
    """
    found, shown = dict[int, dict[Edge, None]](), compress(graph.edges, shown_edges(graph))
    ends = dict.fromkeys((home.get(edge.target, -1), home.get(edge.source, -1)) for edge in shown)  # -1: a leaf
    paths = {place: _path_to(parts, place) for place in {end for pair in ends for end in pair}}
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
def _level(sizes: tuple[Size, ...], edges: tuple[Edge, ...], wrap: float) -> Level:
    """Lay out one level: points on the border are boxes without a size, before all others and behind them."""
    before, behind = any(tail == BORDER for tail, _ in edges), any(to == BORDER for _, to in edges)
    boxes = [*([(0.0, 2.0)] * before), *sizes, *([(0.0, 2.0)] * behind)]
    last = len(boxes) - 1
    layout = lay_out(
        boxes,
        [(tail + before if tail != BORDER else 0, to + before if to != BORDER else last) for tail, to in edges],
        Spacing(wrap_width=wrap),
        heads=[min(height, HEAD_HEIGHT) for _, height in boxes],
        outermost=(0 if before else None, last if behind else None),
    )
    return edges, replace(layout, positions=layout.positions[before : before + len(sizes)])
