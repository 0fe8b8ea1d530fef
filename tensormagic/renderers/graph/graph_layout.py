"""A layered layout of its own: sizes and edges in, coordinates and routed lines out, left to right.

Own code because nothing else fits: the Python libraries are GPL, hang on unrolled recurrent networks or let boxes
overlap, and a layout in JavaScript could not feed a static picture. Pure, deterministic, iterative. A graph that is
wider than the page is broken into rows, like lines of text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from tensormagic.renderers.graph.layout_order import Columns, order
from tensormagic.renderers.graph.layout_position import Extent, Placement
from tensormagic.renderers.graph.layout_ranks import Edge, adjacency, rank
from tensormagic.renderers.graph.layout_rows import Layered, Page, Point, Size, Spacing

_BEND_HEIGHT = 2.0
_BEND_BUDGET = 60_000


@dataclass(frozen=True, slots=True)
class Layout:
    """Where everything lies.

    Attributes:
        width: Of the whole.
        height: Of the whole.
        positions: Top left corner of every box, in the order of the sizes.
        routes: For every edge the points of its line, from the first node's right side to the second's left.
        ranks: The column of every box.
        rows: How many rows the columns were broken into.
        crossings: How many pairs of lines cross between neighbouring columns (lines round the boxes not counted).
    """

    width: float
    height: float
    positions: tuple[Point, ...]
    routes: tuple[tuple[Point, ...], ...]
    ranks: tuple[int, ...]
    rows: int
    crossings: int


def lay_out(
    sizes: Sequence[Size],
    edges: Sequence[Edge],
    spacing: Spacing | None = None,
    *,
    heads: Sequence[float] | None = None,
) -> Layout:
    """Lay a graph out from left to right.

    Args:
        sizes: Width and height of every node.
        edges: Pairs of node numbers; the first is drawn to the left of the second unless the edges run in a circle.
        spacing: Distances; default: those of `Spacing`.
        heads: The height of the upper part of every node, the one that lines lead to; default: the whole of it.
    """
    spacing = spacing or Spacing()
    if not sizes:
        return Layout(0.0, 0.0, (), tuple(() for _ in edges), (), 0, 0)
    ranks = rank(len(sizes), edges)
    heads = heads or [height for _, height in sizes]
    extents = [(head / 2, height - head / 2) for (_, height), head in zip(sizes, heads, strict=True)]
    layered = _cut(extents, edges, ranks, spacing)
    crossings = order(layered.columns)
    axes = Placement(layered.columns, layered.extents, layered.real_count, spacing.row_gap).run()
    page = Page(layered, sizes, axes, spacing)
    return Layout(
        width=page.width, height=page.height, positions=page.positions(), ranks=tuple(ranks),
        routes=tuple(_turned(page.route(path), edge, path) for path, edge in zip(layered.paths, edges, strict=True)),
        rows=page.row_count, crossings=crossings,
    )  # fmt: skip


def _turned(route: list[Point], edge: Edge, path: list[int]) -> tuple[Point, ...]:
    """Return the route so that it starts at the edge's first node (an edge of a circle was turned round)."""
    return tuple(reversed(route)) if path and path[0] != edge[0] else tuple(route)


def _cut(extents: list[Extent], edges: Sequence[Edge], ranks: list[int], spacing: Spacing) -> Layered:
    """Put a bend into every column that an edge crosses.

    Edges that leave the same node, or arrive at the same, share their bends: they run as one line up to where they
    part. Without that the steps of a recurrent network, each fed by one ``unbind``, would be drawn as wide ribbons.
    """
    column_of, real_count = list(ranks), len(ranks)
    spans = {edge: abs(ranks[edge[0]] - ranks[edge[1]]) for edge in edges}
    longest = _longest_span(sorted(spans[edge] for edge in edges), spacing.max_span)
    ends = [sorted(edge, key=ranks.__getitem__) for edge in edges]
    shared = _shared_ends([(left, right) for left, right in ends])
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
    links = dict.fromkeys(link for path, edge in zip(paths, edges, strict=True) for link in _links(path, spans[edge]))
    return Layered(_columns(column_of, list(links)), column_of, extents, paths, real_count)


def _links(path: list[int], span: int) -> Iterator[Edge]:
    """Return the pieces of an edge from column to column; none of one that got no bends though it needs them."""
    return pairwise(path) if len(path) == span + 1 else iter(())


def _shared_ends(edges: Sequence[Edge]) -> dict[Edge, int]:
    """Return for every edge the end that it has in common with more of the others."""
    leaving = Counter(left for left, _ in set(edges))
    arriving = Counter(right for _, right in set(edges))
    return {(left, right): left if leaving[left] >= arriving[right] else right for left, right in edges}


def _longest_span(spans: Sequence[int], max_span: int) -> int:
    """Return the longest span that still gets bends: at most ``max_span``, and less where bends would run out."""
    bends = 0
    for span in spans:
        bends += span - 1
        if span > max_span or bends > _BEND_BUDGET:
            return span - 1
    return max_span


def _columns(column_of: list[int], links: list[Edge]) -> Columns:
    members: list[list[int]] = [[] for _ in range(max(column_of) + 1)]
    for item, column in enumerate(column_of):
        members[column].append(item)
    following, preceding = adjacency(len(column_of), links)
    return Columns(members, following, preceding)
