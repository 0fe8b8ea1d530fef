"""What lies inside the folded boxes: every op once, level by level, no level too large for a screen."""

from __future__ import annotations

from collections import Counter
from itertools import accumulate, combinations

import pytest

from tensormagic.reports import Graph
from tensormagic.views.graph.drawing import BORDER, HEAD_HEIGHT, MOST_INSIDE, Part, draw
from tensormagic.views.graph.folding import fold, shown_edges
from tensormagic.views.page.document import SAVED_LIMITS, trace_document
from tests.views import samples_trace as samples, samples_viewer


def _graph(count: int) -> Graph:
    return samples_viewer.large_run(count, passes=1).graphs[0]


@pytest.mark.parametrize(("count", "boxes"), [(200, 160), (200, 20), (2000, 60), (5000, 12)])
def test_every_op_is_one_whole_part(count: int, boxes: int) -> None:
    """The ends of the tree are the ops as they are folded without a limit, each once."""
    graph = _graph(count)
    parts = draw(graph, max_boxes=boxes).inside
    ends = Counter(part.group.nodes for part in parts if part.whole)
    assert ends == Counter(group.nodes for group in fold(graph).groups)


@pytest.mark.parametrize(("count", "boxes"), [(200, 20), (2000, 60), (5000, 12)])
def test_parts_lie_where_they_belong_and_fit_a_screen(count: int, boxes: int) -> None:
    """A part comes after the one it lies in, is made of its nodes, and no box has one part or more than a screenful."""
    drawing = draw(_graph(count), max_boxes=boxes)
    parts = drawing.inside
    assert [part.group.nodes for part in parts[: len(drawing.boxes)]] == [box.nodes for box in drawing.boxes]
    inside = Counter(part.parent for part in parts[len(drawing.boxes) :])
    assert all(2 <= many <= MOST_INSIDE for many in inside.values())
    assert all(part.parent < place for place, part in enumerate(parts))
    for part in parts[len(drawing.boxes) :]:
        assert set(part.group.nodes) < set(parts[part.parent].group.nodes)


def test_modules_open_before_ops() -> None:
    """Inside what represents many layers are layers, inside a layer its ops."""
    parts = draw(_graph(5000), max_boxes=12).inside
    opened = next(place for place, part in enumerate(parts) if not part.whole)
    children = [part for part in parts if part.parent == opened]
    assert any(part.group.kind == "module" for part in children)


def test_of_a_very_large_graph_the_innermost_parts_stay_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the limit no further box can be opened; every node is still in one end of the tree."""
    monkeypatch.setattr("tensormagic.views.graph.drawing.MOST_PARTS", 100)
    graph = _graph(2000)
    drawing = draw(graph, max_boxes=20)
    assert len(drawing.boxes) < len(drawing.inside) < 100 + MOST_INSIDE
    ends = [part for part in drawing.inside if part.whole]
    assert any(len(part.group.nodes) > 5 for part in ends)
    nodes = [node for part in ends for node in part.group.nodes]
    assert sorted(nodes) == sorted(node for group in fold(graph).groups for node in group.nodes)


def test_document_holds_the_parts_inside_as_columns() -> None:
    """The columns begin after the boxes; of what has parts inside no nodes are listed twice."""
    report = samples_viewer.large_run(2000, passes=1)
    document = trace_document(report)
    graph, strings = document["graphs"][0], document["strings"]
    parts, boxes = graph["parts"], len(graph["drawing"]["boxes"])
    tree = draw(report.graphs[0], max_boxes=SAVED_LIMITS.boxes).inside[boxes:]
    assert parts["parent"] == [part.parent for part in tree]
    assert [strings[place] for place in parts["kind"]] == [part.group.kind for part in tree]
    steps = [step for nodes in parts["nodes"] for step in nodes]
    assert list(accumulate(steps)) == [node for part in tree if part.whole for node in part.group.nodes]
    assert [len(leaves) for leaves in parts["leaves"]] == [len(part.group.leaves) * part.whole for part in tree]
    assert all(38 <= width <= 190 for width in parts["width"])
    shown = [leaf for part in tree if part.whole for leaf in part.group.leaves]
    assert len(shown) == sum(len(names) for names in parts["names"])
    places = parts["level"]
    assert len(places) == boxes + len(tree)
    inside = [place for place, level in enumerate(places) if level >= 0]
    assert inside == sorted(set(parts["parent"]))
    for place in inside:
        assert len(parts["levels"][places[place]][4]) == 2 * parts["parent"].count(place)
    assert len(parts["levels"]) < len(inside) / 2, "levels that are alike are written once"


@pytest.mark.parametrize(("count", "boxes"), [(200, 20), (2000, 60), (5000, 12)])
def test_levels_are_laid_out_with_their_lines(count: int, boxes: int) -> None:
    """Inside each part no boxes overlap; its lines are the graph's edges between its parts, or end at its border."""
    graph = _graph(count)
    parts = draw(graph, max_boxes=boxes).inside
    home = {node: place for place, part in enumerate(parts) if part.whole for node in part.group.nodes}
    shown = [edge for edge, is_shown in zip(graph.edges, shown_edges(graph), strict=True) if is_shown]
    for place, (edges, level) in ((at, part.level) for at, part in enumerate(parts) if part.level is not None):
        children = [at for at, part in enumerate(parts) if part.parent == place]
        holder = {at: number for number, child in enumerate(children) for at in _below(parts, child)}
        ends = ((holder.get(home.get(e.target), BORDER), holder.get(home.get(e.source), BORDER)) for e in shown)
        wanted = {(tail, head) for tail, head in ends if tail != head}
        assert set(edges) == wanted
        for (tail, head), points in zip(edges, level.routes, strict=True):
            x, y = points[0]
            right, top = (level.positions[tail][at] + parts[children[tail]].size[at] * (1 - at) for at in (0, 1))
            assert tail == BORDER or (x == pytest.approx(right) and top <= y <= top + HEAD_HEIGHT)
            assert head == BORDER or points[-1][0] == pytest.approx(level.positions[head][0])
        boxes_of = [(*at, *parts[child].size) for at, child in zip(level.positions, children, strict=True)]
        for (x, y, w, h), (left, top, wide, tall) in combinations(boxes_of, 2):
            assert x + w <= left or left + wide <= x or y + h <= top or top + tall <= y
        assert level.row_ends[-1] == pytest.approx(level.height)


def _below(parts: tuple[Part, ...], place: int) -> set[int]:
    found = {place}
    for at, part in enumerate(parts):
        if part.parent in found:
            found.add(at)
    return found


def test_a_chain_of_views_opens_into_its_single_nodes() -> None:
    """In forward order, the leaves with the first."""
    graph = samples.transformer(2)
    parts = draw(graph, max_boxes=160).inside
    chains = [place for place, part in enumerate(parts) if part.group.kind == "views" and not part.whole]
    assert chains
    for place in chains:
        children = [part.group for part in parts if part.parent == place]
        assert [child.nodes for child in children] == [(node,) for node in reversed(parts[place].group.nodes)]
        assert children[0].leaves == parts[place].group.leaves
