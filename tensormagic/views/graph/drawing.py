"""From an autograd graph to a drawing: fold what a user does not think of as a step, then lay the rest out.

Everything that draws the graph (the static picture, the live panel) starts from the same `Drawing`. A cut is an input
of a box from which nothing goes back, just as a leaf is one at which the way ends by nature: it is written under the
box that used the value, as leaves are. Where the box that made the value is drawn too, a cut wire leads from one to
the other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tensormagic.views.graph.folding import Folding, Group, coarsen, fold
from tensormagic.views.graph.inside import ROW_WIDTH, Level, Part, hierarchy, levels, path_to
from tensormagic.views.graph.layout import Size, Spacing, lay_out
from tensormagic.views.graph.words import cut_label, gradient_text, leaf_labels, shows_values, value_text, wire_text
from tensormagic.views.markup import text_width
from tensormagic.words import count, plural

if TYPE_CHECKING:
    from tensormagic.reports import Graph


# -- cuts -------------------------------------------------------------------------------------------------------------

MOST_ROWS = 2
MOST_WIRES = 24  # cut wires of one drawing: more would hide the others

Pair = tuple[int, int]
Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class CutRow:
    """One line under a box: what ended the way of something that the box used."""

    label: str  # ``"detach, line 10"``.
    cuts: tuple[int, ...]  # Indices into `Graph.cuts`.


def ends_of(
    graph: Graph, groups: Sequence[Group], wired: Mapping[Pair, object]
) -> tuple[tuple[tuple[CutRow, ...], ...], dict[Pair, int], dict[int, tuple[int, ...]]]:
    """Return where the cuts of ``graph`` stand; ``wired`` are the pairs of groups that have a wire already.

    Returns:
        For every box its lines; the cut of each ``(source, target)`` of boxes that a cut wire joins; the cuts of each
        box that made a value which some cut takes, or which was read, where no wire says so.
    """
    owner: dict[int | None, int] = {
        node: number for number, group in enumerate(groups) for node in (*group.leaves, *group.nodes)
    }
    places = [(owner.get(cut.source, -1), owner.get(cut.target, -1)) for cut in graph.cuts]
    pairs: dict[Pair, int] = {}
    stubs: dict[int, tuple[int, ...]] = {}
    for at, (cut, (source, target)) in enumerate(zip(graph.cuts, places, strict=True)):
        free = 0 <= source < target and (target, source) not in wired  # forward, where there is no other wire
        if cut.detachment and not cut.earlier and free and len(pairs) < MOST_WIRES:
            pairs.setdefault((source, target), at)
        elif source >= 0 and source != target and not cut.selects:
            stubs[source] = (*stubs.get(source, ()), at)
    return _cut_rows(graph, groups, [[target] if target >= 0 else [] for _, target in places]), pairs, stubs


def _cut_rows(graph: Graph, groups: Sequence[Group], places: Sequence[Sequence[int]]) -> tuple[tuple[CutRow, ...], ...]:
    """Return the lines below the box of each group; ``places`` are the groups that hold what each cut was used by."""
    labels: list[dict[str, tuple[int, ...]]] = [{} for _ in groups]
    for at, (cut, held) in enumerate(zip(graph.cuts, places, strict=True)):
        for place in held if cut.detachment else ():
            known, label = labels[place], cut_label(cut)
            known[label] = (*known.get(label, ()), at)
    below = []
    for found, group in zip(labels, groups, strict=True):
        rows = [CutRow(f"{label} ×{len(cuts)}" if len(cuts) > 1 else label, cuts) for label, cuts in found.items()]
        most = 1 if group.kind in {"module", "repeat"} else MOST_ROWS
        if len(rows) > most:
            rest = tuple(cut for row in rows[most - 1 :] for cut in row.cuts)
            words = f"{count(len(rest))} cuts" if most == 1 else f"{count(len(rest))} more cuts"
            rows[most - 1 :] = [CutRow(words, rest)]
        below.append(tuple(rows))
    return tuple(below)


# -- boxes and wires --------------------------------------------------------------------------------------------------

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


@dataclass(frozen=True, slots=True)
class Inside:
    """What lies inside the boxes of a drawing."""

    parts: tuple[Part, ...] = ()  # The first ones are the boxes themselves, in their order.
    badges: tuple[tuple[Badge, ...], ...] = ()  # Of each part.
    cuts: tuple[tuple[CutRow, ...], ...] = ()  # Of each part.
    sizes: tuple[Size, ...] = ()  # Of each part's box.
    levels: dict[int, Level] = field(default_factory=dict)  # The inside of each part that has one.


@dataclass(frozen=True, slots=True)
class Drawing:
    """A graph, folded and laid out."""

    width: float  # Of the whole, in pixels.
    height: float  # Of the whole.
    boxes: tuple[Box, ...]  # In forward order.
    wires: tuple[Wire, ...]  # Between them.
    node_count: int  # Nodes of the graph.
    folded: int  # How many of them do not have a box of their own.
    note: str  # What was folded, in one sentence; empty where every node has its box.
    inside: Inside = field(default_factory=Inside)  # What lies inside the boxes.
    margin: float = 0.0  # Left of it lines run from row to row.
    row_ends: tuple[float, ...] = ()  # For each row the height below its boxes and lines.
    detachment: tuple[Wire, ...] = ()  # Lines along which a value went, and no gradient goes; from who made it.
    # Boxes from which a value was taken in such a way, and no line says so; with the cuts.
    stubs: dict[int, tuple[int, ...]] = field(default_factory=dict)


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
    total = len(graph.nodes)
    drawn = f"{plural(total, 'node')} drawn as {plural(len(folding.groups), 'box', 'boxes')}: {folding.note}"
    return Drawing(
        layout.width, layout.height, boxes, wires, total, total - len(boxes), drawn if folding.note else "",
        _inside(graph, fine, folding) if inside else Inside(), layout.margin, layout.row_ends, detachment, stubs,
    )  # fmt: skip


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


def _inside(graph: Graph, fine: Folding, drawn: Folding) -> Inside:
    """Return the tree below the drawn boxes: each level is laid out as if all boxes in it were closed."""
    parts = hierarchy(graph, fine.groups, drawn.groups)
    if len(parts) == len(drawn.groups):
        return Inside(parts)
    names = leaf_labels(graph)
    marks = [tuple(Badge(leaf, names[leaf]) for leaf in part.group.leaves) for part in parts]
    groups, home = [part.group for part in parts], dict[int | None, int]()
    for place, part in enumerate(parts):
        for node in (*part.group.nodes, *part.group.leaves) if part.whole else ():
            home.setdefault(node, place)
    rows = _cut_rows(graph, groups, [path_to(parts, home.get(cut.target, -1)) for cut in graph.cuts])
    sizes = tuple(map(box_size, groups, marks, rows))
    return Inside(parts, tuple(marks), rows, sizes, levels(graph, fine, parts, sizes, HEAD_HEIGHT))


def badge_rows(box: Box) -> tuple[tuple[Badge, ...], int]:
    """Return the badges that are written out under a box, and how many more there are, in one line."""
    shown = written_out(box.kind, len(box.badges))
    return box.badges[:shown], len(box.badges) - shown


def written_out(kind: str, badges: int) -> int:
    """Return how many badges are written out: all that have room; of a box of many steps all or none."""
    if badges <= MOST_BADGES:
        return badges
    return 0 if kind in {"module", "repeat"} else MOST_BADGES - 1


def box_size(group: Group, badges: tuple[Badge, ...], cuts: tuple[CutRow, ...]) -> tuple[float, float]:
    """Return the width and height of a box with its badges and its cuts."""
    written = written_out(group.kind, len(badges))
    lines = written + (written < len(badges)) + len(cuts)
    words = [text_width(group.label, LABEL_SIZE, bold=True), text_width(group.detail, DETAIL_SIZE)]
    words += [text_width(badge.label, BADGE_SIZE) + BADGE_HEIGHT for badge in badges[:written]]
    wanted = [max(words) + 2 * _PADDING, *(text_width(cut.label, BADGE_SIZE) + CUT_INDENT + 4 for cut in cuts)]
    width = min(max(_NARROWEST, *wanted), _WIDEST)
    return round(width), HEAD_HEIGHT + (lines * BADGE_HEIGHT + 3 if lines else 0)
