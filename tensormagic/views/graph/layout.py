"""A layered layout of its own: sizes and edges in, coordinates and routed lines out, left to right.

Own code because nothing else fits: the Python libraries are GPL, hang on unrolled recurrent networks or let boxes
overlap, and a layout in JavaScript could not feed a static picture. Pure, deterministic, iterative. A graph that is
wider than the page is broken into rows, like lines of text: a line that goes on in the next row leaves at the right
end, runs back between the rows and comes in at the left. The lanes are nested, so that these lines do not cross each
other. An edge too long to get bends runs round the boxes in the same space between the rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from tensormagic.views.graph.layers import Columns, Edge, Extent, Placement, Ports, adjacency, order, rank

Point = tuple[float, float]
Size = tuple[float, float]

_LANE = 8.0
_BESIDE_BORDER = 14.0
_EVEN_STEP = 30.0
_STRETCH = 1.12
_MOST_ROWS_BALANCED = 24  # in a longer picture one short row is not seen
_ABOVE_LANES = 10.0
_BELOW_LANES = 28.0  # a number and the words of a mark can be written above a box of the next row
_OVER_BOXES = 24.0  # of that, what stands above the boxes of the next row
_TURN = 8.0  # the arrowhead of a line that turns at the row's end needs this much


@dataclass(frozen=True, slots=True)
class Spacing:
    """The distances of a layout, in pixels."""

    column_gap: float = 32.0  # Least distance between two columns.
    # Least distance between two boxes of a column.
    row_gap: float = 20.0  # the value over a box is in it
    wrap_width: float | None = None  # Where to break the columns into a new row; None: never.
    max_span: int = 64  # An edge over more columns than this gets no bends of its own but runs round the boxes.


@dataclass(frozen=True, slots=True)
class Layered:
    """A graph with every edge cut at the columns it crosses."""

    columns: Columns  # Nodes and bends, column by column.
    column_of: list[int]  # The column of every item.
    extents: list[Extent]  # How far every item reaches above and below its axis, the height at which lines touch it.
    # For every edge its items, left to right; empty for a loop, only its ends where it is too long.
    paths: list[list[int]]
    real_count: int  # How many of the items are nodes.


class Page:
    """The coordinates of a layered graph whose axes are known."""

    def __init__(self, layered: Layered, sizes: Sequence[Size], axes: Sequence[float], spacing: Spacing) -> None:
        """Break into rows and place everything; ``sizes`` are those of the nodes, ``axes`` of all items."""
        self._layered, self._sizes, self._spacing = layered, sizes, spacing
        self._axes = [round(axis) for axis in axes]  # whole pixels: level lines are sharp, and short to write
        self._ports = Ports(layered.columns, layered.extents, self._axes)
        self._widths = [
            max((sizes[item][0] for item in column if item < layered.real_count), default=0.0)
            for column in layered.columns.members
        ]
        self._gaps = self._all_gaps()
        self._row_of = self._rows(spacing.wrap_width)
        self.row_count = self._row_of[-1] + 1
        self._assign_lanes()
        self._place()

    def positions(self) -> tuple[Point, ...]:
        """Return the top left corner of every node."""
        return tuple(self._position(item) for item in range(self._layered.real_count))

    def route(self, path: Sequence[int]) -> list[Point]:
        """Return the points of the line that runs through the items of ``path``.

        They are rounded to a tenth of a pixel, without those that lie on a level line between their neighbours.
        """
        if not path:
            return []
        if (path[0], path[-1]) in self._long_lanes and len(path) == 2:
            return self._long_route(path[0], path[-1])
        kept: list[Point] = []
        for x, y in self._corners(path):
            point = (round(x, 1), round(y, 1))
            if kept and kept[-1] == point:
                continue
            if len(kept) > 1 and kept[-1][1] == kept[-2][1] == point[1] and kept[-2][0] <= kept[-1][0] <= point[0]:
                kept.pop()
            kept.append(point)
        return kept

    def _corners(self, path: Sequence[int]) -> Iterator[Point]:
        for left, right in pairwise(path):
            column, y = self._layered.column_of[left], self._y(left, self._ports.leave[left, right])
            yield from ((self._edge_x(left, right=True), y), (self._column_x[column] + self._widths[column], y))
            column, end = self._layered.column_of[right], self._y(right, self._ports.reach[left, right])
            row = self._row(left)
            if self._row(right) != row:
                lane = self._lanes[left, right]
                turn, between = self._row_right[row] + _TURN + (lane + 1) * _LANE, self._lane_y(row, lane)
                back = self.margin - (self._lane_count[row] - lane) * _LANE
                yield from ((turn, y), (turn, between), (back, between), (back, end))
            yield from ((self._column_x[column], end), (self._edge_x(right, right=False), end))

    def _position(self, item: int) -> Point:
        column, width = self._layered.column_of[item], self._sizes[item][0]
        x = self._column_x[column] + (self._widths[column] - width) // 2
        return round(x, 1), round(self._y(item, self._axes[item]) - self._layered.extents[item][0], 1)

    def _y(self, item: int, height: float) -> float:
        return height + self._row_shift[self._row(item)]

    def _row(self, item: int) -> int:
        return self._row_of[self._layered.column_of[item]]

    def _lane_y(self, row: int, lane: int) -> float:
        return self._row_bottom[row] + _ABOVE_LANES + (lane + 0.5) * _LANE

    def _all_gaps(self) -> list[float]:
        """Return the distance after each column: wider where lines climb far, so that they stay readable."""
        leave, reach, columns, gaps = self._ports.leave, self._ports.reach, self._layered.columns, []
        for members, *widths in zip(columns.members, self._widths, self._widths[1:], strict=False):
            links = ((item, head) for item in members for head in columns.following[item])
            climb = max((abs(leave[link] - reach[link]) for link in links), default=0.0)
            gap = _BESIDE_BORDER if 0.0 in widths else self._spacing.column_gap  # points on a border need little room
            gaps.append(round(gap + min(climb * 0.12, 36.0)))
        return [*gaps, 0.0]

    def _rows(self, limit: float | None) -> list[int]:
        """Return the row of every column; they break earlier where that needs no more rows.

        Rows may grow a little where that saves a row for one box.
        """
        found = self._break(limit)
        if limit is not None and found.count(found[-1]) == 1:
            wider = self._break(limit * _STRETCH)
            found, limit = (wider, limit * _STRETCH) if wider[-1] < found[-1] else (found, limit)
        while limit is not None and 0 < found[-1] <= _MOST_ROWS_BALANCED and (limit := limit - _EVEN_STEP) > 0:
            earlier = self._break(limit)
            if earlier[-1] > found[-1]:
                break
            found = earlier
        return found

    def _break(self, limit: float | None) -> list[int]:
        """Return the row of every column, where no row with several columns is wider than ``limit``."""
        rows, row, start = [0] * len(self._widths), 0, 0
        while limit is not None and (end := self._row_end(start, limit)) < len(self._widths):
            rows[start:end] = [row] * (end - start)
            row, start = row + 1, end
        return rows[:start] + [row] * (len(rows) - start)

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
        self._lanes: dict[tuple[int, int], int] = {}
        self._lane_count = [0] * self.row_count
        members = self._layered.columns.members
        for column in range(len(members) - 1):
            row = self._row_of[column]
            if self._row_of[column + 1] != row:
                links = {(item, head) for item in members[column] for head in self._layered.columns.following[item]}
                falling = sorted(links, key=lambda link: (-self._ports.leave[link], -self._ports.reach[link]))
                self._lanes.update({link: lane for lane, link in enumerate(falling)})
                self._lane_count[row] = len(falling)
        self._long_lanes: dict[tuple[int, int], list[int]] = {}
        paths = ((path[0], path[1]) for path in self._layered.paths if len(path) == 2)
        for link in dict.fromkeys(link for link in paths if link not in self._ports.leave):
            # The next lane below the row of the one, and above the row of the other; none is needed above the first.
            taken = self._long_lanes[link] = []
            for row in (self._row(link[0]), self._row(link[1]) - 1):
                taken.append(self._lane_count[row] if row >= 0 else 0)
                if row >= 0:
                    self._lane_count[row] += 1

    def _place(self) -> None:
        """Place columns from left to right in their rows, and rows below one another."""
        self.margin = (max(self._lane_count) + 1) * _LANE if self.row_count > 1 else 0.0
        self._column_x, self._row_right = [0.0] * len(self._widths), [0.0] * self.row_count
        spans = [(float("inf"), float("-inf"))] * self.row_count
        extents, axes, x, row = self._layered.extents, self._axes, self.margin, 0
        for column, (width, members) in enumerate(zip(self._widths, self._layered.columns.members, strict=True)):
            if self._row_of[column] != row:
                x, row = self.margin, self._row_of[column]
            self._column_x[column], self._row_right[row] = x, x + width
            x += width + self._gaps[column]
            top, bottom = axes[members[0]] - extents[members[0]][0], axes[members[-1]] + extents[members[-1]][1]
            spans[row] = min(spans[row][0], top), max(spans[row][1], bottom)
        self.width = round(max(self._row_right) + self.margin + (_TURN if self.row_count > 1 else 0.0), 1)
        self._row_shift, self._row_bottom, y = [0.0] * self.row_count, [0.0] * self.row_count, 0.0
        self.row_ends: list[float] = []
        for row, (low, high) in enumerate(spans):
            self._row_shift[row] = y - low
            self._row_bottom[row] = y = y + high - low
            lanes, goes_on = self._lane_count[row], row + 1 < self.row_count
            y += _ABOVE_LANES + lanes * _LANE + (_BELOW_LANES if goes_on else 0.0) if goes_on or lanes else 0.0
            self.row_ends.append(y - (_OVER_BOXES if goes_on else 0.0))
        self.height = round(y, 1)

    def _edge_x(self, item: int, *, right: bool) -> float:
        if item < self._layered.real_count:
            return self._position(item)[0] + (self._sizes[item][0] if right else 0.0)
        column = self._layered.column_of[item]
        return self._column_x[column] + (self._widths[column] if right else 0.0)

    def _long_route(self, left: int, right: int) -> list[Point]:
        lanes, rows = self._long_lanes[left, right], (self._row(left), self._row(right))
        start, end = self._middle(left, right=True), self._middle(right, right=False)
        down, up = start[0] + self._to_gap(left, right=True), end[0] - self._to_gap(right, right=False)
        y = self._lane_y(rows[0], lanes[0])
        if rows[0] == rows[1]:
            return [start, (down, start[1]), (down, y), (up, y), (up, end[1]), end]
        back, above = _LANE / 2, self._lane_y(rows[1] - 1, lanes[1])
        return [start, (down, start[1]), (down, y), (back, y), (back, above), (up, above), (up, end[1]), end]

    def _middle(self, item: int, *, right: bool) -> Point:
        return self._edge_x(item, right=right), self._y(item, self._axes[item])

    def _to_gap(self, item: int, *, right: bool) -> float:
        """Return how far the gap beside the column is from the side of ``item``, and a little more."""
        column = self._layered.column_of[item]
        side = self._column_x[column] + (self._widths[column] if right else 0.0)
        return abs(side - self._edge_x(item, right=right)) + self._spacing.column_gap / 3


# -- from sizes and edges to a layout ---------------------------------------------------------------------------------

_BEND_HEIGHT = 2.0
_BEND_BUDGET = 60_000


@dataclass(frozen=True, slots=True)
class Layout:
    """Where everything lies."""

    width: float  # Of the whole.
    height: float  # Of the whole.
    positions: tuple[Point, ...]  # Top left corner of every box, in the order of the sizes.
    # For every edge the points of its line, from the first node's right side to the second's left.
    routes: tuple[tuple[Point, ...], ...]
    ranks: tuple[int, ...]  # The column of every box.
    rows: int  # How many rows the columns were broken into.
    crossings: int  # How many pairs of lines cross between neighbouring columns (lines round the boxes not counted).
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
        return Layout(0.0, 0.0, (), tuple(() for _ in edges), (), 0, 0)
    ranks = _put_outside(rank(len(sizes), edges), *outermost)
    heads = heads or [height for _, height in sizes]
    extents = [(head / 2, height - head / 2) for (_, height), head in zip(sizes, heads, strict=True)]
    layered = _cut(extents, edges, ranks, spacing)
    crossings = order(layered.columns)
    axes = Placement(layered.columns, layered.extents, layered.real_count, spacing.row_gap).run()
    page = Page(layered, sizes, axes, spacing)
    # A route starts at the edge's first node: an edge of a circle was turned round.
    ways = ((page.route(path), path[:1] == [edge[0]]) for path, edge in zip(layered.paths, edges, strict=True))
    return Layout(
        width=page.width, height=page.height, positions=page.positions(), ranks=tuple(ranks),
        routes=tuple(tuple(way) if ahead else tuple(reversed(way)) for way, ahead in ways),
        rows=page.row_count, crossings=crossings, margin=page.margin, row_ends=tuple(page.row_ends),
    )  # fmt: skip


def _put_outside(ranks: list[int], first: int | None, last: int | None) -> list[int]:
    """Return columns with one node in the first of them, and one alone behind all others."""
    if first is not None:
        ranks[first] = 0
    if last is not None:
        ranks[last] = max(ranks) + 1
    column = {old: new for new, old in enumerate(sorted(set(ranks)))}
    return [column[old] for old in ranks]


def _cut(extents: list[Extent], edges: Sequence[Edge], ranks: list[int], spacing: Spacing) -> Layered:
    """Put a bend into every column that an edge crosses.

    Edges that leave the same node, or arrive at the same, share their bends: they run as one line up to where they
    part. Without that the steps of a recurrent network, each fed by one ``unbind``, would be drawn as wide ribbons.
    """
    column_of, real_count = list(ranks), len(ranks)
    spans = {edge: abs(ranks[edge[0]] - ranks[edge[1]]) for edge in edges}
    longest, needed = spacing.max_span, 0  # the longest span that still gets bends: less where these would run out
    for span in sorted(spans[edge] for edge in edges):
        needed += span - 1
        if span > spacing.max_span or needed > _BEND_BUDGET:
            longest = span - 1
            break
    ends = [sorted(edge, key=ranks.__getitem__) for edge in edges]
    # For every edge the end that it has in common with more of the others.
    leaving, arriving = (Counter(end[side] for end in set(map(tuple, ends))) for side in (0, 1))
    shared = {(left, right): left if leaving[left] >= arriving[right] else right for left, right in ends}
    paths: list[list[int]] = []
    bends: dict[tuple[int, int], int] = {}
    for edge, (left, right) in zip(edges, ends, strict=True):
        if left == right or spans[edge] > longest:
            paths.append([left, right] if left != right else [])
            continue
        between = [(shared[left, right], column) for column in range(ranks[left] + 1, ranks[right])]
        for place in between:
            if place not in bends:
                bends[place] = len(column_of)
                column_of.append(place[1])
        paths.append([left, *(bends[place] for place in between), right])
    extents += [(_BEND_HEIGHT / 2, _BEND_HEIGHT / 2)] * len(bends)
    # The pieces of an edge from column to column; none of one that got no bends though it needs them.
    whole = (path for path, edge in zip(paths, edges, strict=True) if len(path) == spans[edge] + 1)
    links = dict.fromkeys(link for path in whole for link in pairwise(path))
    members: list[list[int]] = [[] for _ in range(max(column_of) + 1)]
    for item, column in enumerate(column_of):
        members[column].append(item)
    return Layered(Columns(members, *adjacency(len(column_of), links)), column_of, extents, paths, real_count)
