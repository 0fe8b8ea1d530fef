"""A layered layout of its own: sizes and edges in, coordinates and routed lines out, left to right.

Own code because nothing else fits: the Python libraries are GPL, hang on unrolled recurrent networks or let boxes
overlap, and a layout in JavaScript could not feed a static picture. Pure, deterministic, iterative. A graph that is
wider than the page is broken into rows, like lines of text: a line that goes on in the next row leaves at the right
end, runs back between the rows and comes in at the left. The lanes are nested, so that these lines do not cross each
other.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from tensormagic.views.graph.layers import Columns, Edge, Extent, adjacency, order, placed, ports, rank

Point = tuple[float, float]
Size = tuple[float, float]

_LANE = 8.0
_BESIDE_BORDER = 14.0
_EVEN_STEP = 30.0
_STRETCH = 1.12
_ABOVE_LANES = 10.0
_BELOW_LANES = 28.0  # a number and the words of a mark can be written above a box of the next row
_OVER_BOXES = 24.0  # of that, what stands above the boxes of the next row
_TURN = 8.0  # the arrowhead of a line that turns at the row's end needs this much
_BEND_HEIGHT = 2.0


@dataclass(frozen=True, slots=True)
class Spacing:
    """The distances of a layout, in pixels."""

    column_gap: float = 32.0  # Least distance between two columns.
    row_gap: float = 20.0  # Least distance between two boxes of a column: the value over a box is in it.
    wrap_width: float = math.inf  # Where to break the columns into a new row.


@dataclass(frozen=True, slots=True)
class Layered:
    """A graph with every edge cut at the columns it crosses."""

    columns: Columns  # Nodes and bends, column by column.
    column_of: list[int]  # The column of every item.
    extents: list[Extent]  # How far every item reaches above and below its axis, the height at which lines touch it.
    paths: list[list[int]]  # For every edge its items, left to right; empty for a loop.
    real_count: int  # How many of the items are nodes.


class Page:
    """The coordinates of a layered graph whose axes are known."""

    def __init__(self, layered: Layered, sizes: Sequence[Size], axes: Sequence[float], spacing: Spacing) -> None:
        """Break into rows and place everything; ``sizes`` are those of the nodes, ``axes`` of all items."""
        self._layered, self._spacing = layered, spacing
        self._axes = [round(axis) for axis in axes]  # whole pixels: level lines are sharp, and short to write
        self._leave, self._reach = ports(layered.columns, layered.extents, self._axes)
        self._widths = [
            max((sizes[item][0] for item in column if item < layered.real_count), default=0.0)
            for column in layered.columns.members
        ]
        self._gaps = self._all_gaps()
        self._row_of = self._rows(spacing.wrap_width)
        self.row_count = self._row_of[-1] + 1
        self._assign_lanes()
        self._place(sizes)

    def positions(self) -> tuple[Point, ...]:
        """Return the top left corner of every node."""
        extents = self._layered.extents
        return tuple((round(self._left[item], 1), round(self._y(item, self._axes[item]) - extents[item][0], 1))
                     for item in range(self._layered.real_count))  # fmt: skip

    def route(self, path: Sequence[int]) -> list[Point]:
        """Return the points of the line that runs through the items of ``path``.

        They are rounded to a tenth of a pixel, without those that lie on a level line between their neighbours.
        """
        corners: list[Point] = []
        for link in pairwise(path):
            left, right = link
            column, following = (self._layered.column_of[item] for item in link)
            y, end = self._y(left, self._leave[link]), self._y(right, self._reach[link])
            corners += [(self._right[left], y), (self._column_x[column] + self._widths[column], y)]
            row = self._row_of[column]
            if self._row_of[following] != row:
                lane = self._lanes[link]
                turn = self._row_right[row] + _TURN + (lane + 1) * _LANE
                between = self._row_bottom[row] + _ABOVE_LANES + (lane + 0.5) * _LANE
                back = self.margin - (self._lane_count[row] - lane) * _LANE
                corners += [(turn, y), (turn, between), (back, between), (back, end)]
            corners += [(self._column_x[following], end), (self._left[right], end)]
        kept: list[Point] = []
        for x, y in corners:
            point = (round(x, 1), round(y, 1))
            if kept and kept[-1] == point:
                continue
            if len(kept) > 1 and kept[-1][1] == kept[-2][1] == point[1] and kept[-2][0] <= kept[-1][0] <= point[0]:
                kept.pop()
            kept.append(point)
        return kept

    def _y(self, item: int, height: float) -> float:
        return height + self._row_shift[self._row_of[self._layered.column_of[item]]]

    def _all_gaps(self) -> list[float]:
        """Return the distance after each column: wider where lines climb far, so that they stay readable."""
        columns, gaps = self._layered.columns, []
        for members, *widths in zip(columns.members, self._widths, self._widths[1:], strict=False):
            links = ((item, head) for item in members for head in columns.following[item])
            climb = max((abs(self._leave[link] - self._reach[link]) for link in links), default=0.0)
            gap = _BESIDE_BORDER if 0.0 in widths else self._spacing.column_gap  # points on a border need little room
            gaps.append(round(gap + min(climb * 0.12, 36.0)))
        return [*gaps, 0.0]

    def _rows(self, limit: float) -> list[int]:
        """Return the row of every column; they break earlier where that needs no more rows.

        Rows may grow a little where that saves a row for one box.
        """
        found, wider = self._break(limit), self._break(limit * _STRETCH)
        if found.count(found[-1]) == 1 and wider[-1] < found[-1]:
            found, limit = wider, limit * _STRETCH
        while found[-1] > 0 and (limit := limit - _EVEN_STEP) > 0:
            earlier = self._break(limit)
            if earlier[-1] > found[-1]:
                break
            found = earlier
        return found

    def _break(self, limit: float) -> list[int]:
        """Return the row of every column, where no row with several columns is wider than ``limit``."""
        rows: list[int] = []
        while len(rows) < len(self._widths):
            start, row = len(rows), rows[-1] + 1 if rows else 0
            rows += [row] * (self._row_end(start, limit) - start)
        return rows

    def _row_end(self, start: int, limit: float) -> int:
        """Return where the row from column ``start`` ends: late, but where few lines are cut."""
        ends, used = [], 0.0
        for column in range(start, len(self._widths)):
            used += self._widths[column]
            if used > limit and column > start:
                break
            ends.append((column + 1, used))
            used += self._gaps[column]
        else:
            return len(self._widths)
        columns = self._layered.columns
        late = [end for end, width in ends if width > limit * 0.6 or end == ends[-1][0]]
        return min(late, key=lambda end: (sum(len(columns.preceding[item]) for item in columns.members[end]), -end))

    def _assign_lanes(self) -> None:
        """Give every line that runs between two rows its lane: the lowest line at a row's end turns first."""
        self._lanes: dict[Edge, int] = {}
        self._lane_count = [0] * self.row_count
        columns = self._layered.columns
        for members, (row, following) in zip(columns.members, pairwise(self._row_of), strict=False):
            if following != row:
                links = {(item, head) for item in members for head in columns.following[item]}
                falling = sorted(links, key=lambda link: (-self._leave[link], -self._reach[link]))
                self._lanes.update({link: lane for lane, link in enumerate(falling)})
                self._lane_count[row] = len(falling)

    def _place(self, sizes: Sequence[Size]) -> None:
        """Place columns from left to right in their rows, and rows below one another."""
        self.margin = (max(self._lane_count) + 1) * _LANE if self.row_count > 1 else 0.0
        self._column_x, self._row_right = [0.0] * len(self._widths), [0.0] * self.row_count
        self._left, self._right = [0.0] * len(self._axes), [0.0] * len(self._axes)  # the sides of every item
        spans = [(math.inf, -math.inf)] * self.row_count
        extents, axes, x, row = self._layered.extents, self._axes, self.margin, 0
        for column, (width, members) in enumerate(zip(self._widths, self._layered.columns.members, strict=True)):
            if self._row_of[column] != row:
                x, row = self.margin, self._row_of[column]
            self._column_x[column], self._row_right[row] = x, x + width
            for item in members:
                wide = sizes[item][0] if item < self._layered.real_count else width
                self._left[item] = x + (width - wide) // 2
                self._right[item] = self._left[item] + wide
            x += width + self._gaps[column]
            top, bottom = axes[members[0]] - extents[members[0]][0], axes[members[-1]] + extents[members[-1]][1]
            spans[row] = min(spans[row][0], top), max(spans[row][1], bottom)
        self.width = round(max(self._row_right) + self.margin + (_TURN if self.row_count > 1 else 0.0), 1)
        self._row_shift, self._row_bottom, y = [0.0] * self.row_count, [0.0] * self.row_count, 0.0
        self.row_ends: list[float] = []
        for row, (low, high) in enumerate(spans):
            self._row_shift[row] = y - low
            self._row_bottom[row] = y = y + high - low
            goes_on = row + 1 < self.row_count
            y += _ABOVE_LANES + self._lane_count[row] * _LANE + _BELOW_LANES if goes_on else 0.0
            self.row_ends.append(y - (_OVER_BOXES if goes_on else 0.0))
        self.height = round(y, 1)


@dataclass(frozen=True, slots=True)
class Layout:
    """Where everything lies."""

    width: float  # Of the whole.
    height: float  # Of the whole.
    positions: tuple[Point, ...]  # Top left corner of every box, in the order of the sizes.
    # For every edge the points of its line, from the first node's right side to the second's left.
    routes: tuple[tuple[Point, ...], ...]
    margin: float = 0.0  # Left of it lines run from row to row.
    row_ends: tuple[float, ...] = ()  # For each row the height below its boxes and lines, above what comes next.


def lay_out(
    sizes: Sequence[Size],
    edges: Sequence[Edge],
    spacing: Spacing | None = None,
    *,
    heads: Sequence[float] | None = None,
    outermost: tuple[int | None, int | None] = (None, None),
) -> Layout:
    """Lay a graph out from left to right.

    Args:
        sizes: Width and height of every node.
        edges: Pairs of node numbers; the first is drawn to the left of the second unless the edges run in a circle.
        spacing: Distances; default: those of `Spacing`.
        heads: The height of the upper part of every node, the one that lines lead to; default: the whole of it.
        outermost: A node of the first column, and one behind all others.
    """
    spacing = spacing or Spacing()
    if not sizes:
        return Layout(0.0, 0.0, (), ())
    heads = heads or [height for _, height in sizes]
    extents = [(head / 2, height - head / 2) for (_, height), head in zip(sizes, heads, strict=True)]
    layered = _cut(extents, edges, rank(len(sizes), edges, outermost))
    order(layered.columns)
    page = Page(layered, sizes, placed(layered.columns, layered.extents, len(sizes), spacing.row_gap), spacing)
    # A route starts at the edge's first node: an edge of a circle was turned round.
    ways = ((page.route(path), path[:1] == [edge[0]]) for path, edge in zip(layered.paths, edges, strict=True))
    routes = tuple(tuple(way) if ahead else tuple(reversed(way)) for way, ahead in ways)
    return Layout(page.width, page.height, page.positions(), routes, page.margin, tuple(page.row_ends))


def _cut(extents: list[Extent], edges: Sequence[Edge], ranks: list[int]) -> Layered:
    """Put a bend into every column that an edge crosses.

    Edges that leave the same node, or arrive at the same, share their bends: they run as one line up to where they
    part. Without that the steps of a recurrent network, each fed by one ``unbind``, would be drawn as wide ribbons.
    """
    column_of, ends = list(ranks), [sorted(edge, key=ranks.__getitem__) for edge in edges]
    leaving, arriving = (Counter(end[side] for end in set(map(tuple, ends))) for side in (0, 1))
    paths: list[list[int]] = []
    bends: dict[tuple[int, int], int] = {}
    for left, right in ends:
        shared = left if leaving[left] >= arriving[right] else right  # with more of the others
        between = [(shared, column) for column in range(ranks[left] + 1, ranks[right])]
        for place in between:
            if place not in bends:
                bends[place] = len(column_of)
                column_of.append(place[1])
        paths.append([left, *(bends[place] for place in between), right] if left != right else [])
    extents += [(_BEND_HEIGHT / 2, _BEND_HEIGHT / 2)] * len(bends)
    links = dict.fromkeys(link for path in paths for link in pairwise(path))
    members: list[list[int]] = [[] for _ in range(max(column_of) + 1)]
    for item, column in enumerate(column_of):
        members[column].append(item)
    return Layered(Columns(members, *adjacency(len(column_of), links)), column_of, extents, paths, len(ranks))
