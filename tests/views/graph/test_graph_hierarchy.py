"""What lies inside the folded boxes: every op once, level by level, no level too large for a screen."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

import pytest

from tensormagic.views.graph.drawing import BORDER, HEAD_HEIGHT, MOST_INSIDE, draw
from tensormagic.views.graph.folding import fold, shown_edges
from tests.views import samples_trace as samples, samples_viewer

each_size = pytest.mark.parametrize(("count", "boxes"), [(200, 160), (200, 20), (2000, 60), (5000, 12)])


def graph_of(count: int):
    return samples_viewer.large_run(count, passes=1).graphs[0]


@each_size
def test_parts_lie_where_they_belong_and_fit_a_screen(count: int, boxes: int) -> None:
    """The ends of the tree are the ops as they are folded without a limit, each once.

    A part comes after the one it lies in, is made of its nodes, and no box has one part or more than a screenful.
    """
    graph = graph_of(count)
    drawing = draw(graph, max_boxes=boxes)
    parts, inside = drawing.inside, drawing.inside[len(drawing.boxes) :]
    assert Counter(part.group.nodes for part in parts if part.whole) == Counter(
        group.nodes for group in fold(graph).groups
    )
    assert [part.group.nodes for part in parts[: len(drawing.boxes)]] == [box.nodes for box in drawing.boxes]
    assert all(2 <= many <= MOST_INSIDE for many in Counter(part.parent for part in inside).values())
    assert all(part.parent < place for place, part in enumerate(parts))
    assert all(set(part.group.nodes) < set(parts[part.parent].group.nodes) for part in inside)


def test_what_opens_into_what(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many layers into layers, a chain of views into its nodes in forward order, the leaves with the first.

    Beyond the limit no further box can be opened; every node is still in one end of the tree.
    """
    parts = draw(graph_of(5000), max_boxes=12).inside
    opened = next(place for place, part in enumerate(parts) if not part.whole)
    assert "module" in {part.group.kind for part in parts if part.parent == opened}
    parts = draw(samples.transformer(2), max_boxes=160).inside
    place = next(place for place, part in enumerate(parts) if part.group.kind == "views" and not part.whole)
    children = [part.group for part in parts if part.parent == place]
    assert [child.nodes for child in children] == [(node,) for node in reversed(parts[place].group.nodes)]
    assert children[0].leaves == parts[place].group.leaves
    monkeypatch.setattr("tensormagic.views.graph.drawing.MOST_PARTS", 100)
    graph = graph_of(2000)
    parts = draw(graph, max_boxes=20).inside
    assert 20 < len(parts) < 100 + MOST_INSIDE
    nodes = [node for part in parts if part.whole for node in part.group.nodes]
    assert sorted(nodes) == sorted(node for group in fold(graph).groups for node in group.nodes)


@each_size
def test_levels_are_laid_out_with_their_lines(count: int, boxes: int) -> None:
    """Inside each part no boxes overlap; its lines are the graph's edges between its parts, or end at its border."""
    graph = graph_of(count)
    parts = draw(graph, max_boxes=boxes).inside
    home = {node: place for place, part in enumerate(parts) if part.whole for node in part.group.nodes}
    shown = [edge for edge, is_shown in zip(graph.edges, shown_edges(graph), strict=True) if is_shown]
    for place, (edges, level) in ((at, part.level) for at, part in enumerate(parts) if part.level is not None):
        children = [at for at, part in enumerate(parts) if part.parent == place]
        holder = {at: number for number, child in enumerate(children) for at in below(parts, child)}
        ends = ((holder.get(home.get(e.target), BORDER), holder.get(home.get(e.source), BORDER)) for e in shown)
        assert set(edges) == {(tail, head) for tail, head in ends if tail != head}
        for (tail, head), points in zip(edges, level.routes, strict=True):
            x, y = points[0]
            right, top = (level.positions[tail][at] + parts[children[tail]].size[at] * (1 - at) for at in (0, 1))
            assert tail == BORDER or (x == pytest.approx(right) and top <= y <= top + HEAD_HEIGHT)
            assert head == BORDER or points[-1][0] == pytest.approx(level.positions[head][0])
        boxes_of = [(*at, *parts[child].size) for at, child in zip(level.positions, children, strict=True)]
        for (x, y, w, h), (left, top, wide, tall) in combinations(boxes_of, 2):
            assert x + w <= left or left + wide <= x or y + h <= top or top + tall <= y


def below(parts, place: int) -> set[int]:
    found = {place}
    for at, part in enumerate(parts):
        if part.parent in found:
            found.add(at)
    return found
