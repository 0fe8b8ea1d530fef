"""What lies inside the folded boxes: every op once, level by level, no level too large for a screen."""

from __future__ import annotations

from collections import Counter
from itertools import accumulate

import pytest

from tensormagic.views.graph.coarsening import MOST_INSIDE
from tensormagic.views.graph.drawing import Drawing, draw
from tensormagic.views.graph.folding import fold
from tensormagic.views.page.document import SAVED_LIMITS, trace_document
from tests.views import samples_viewer


def _drawing(count: int, boxes: int) -> Drawing:
    return draw(samples_viewer.large_run(count, passes=1).graphs[0], max_boxes=boxes)


@pytest.mark.parametrize(("count", "boxes"), [(200, 160), (200, 20), (2000, 60), (5000, 12)])
def test_every_op_is_one_whole_part(count: int, boxes: int) -> None:
    """The ends of the tree are the ops as they are folded without a limit, each once."""
    graph = samples_viewer.large_run(count, passes=1).graphs[0]
    parts = draw(graph, max_boxes=boxes).parts
    ends = Counter(part.group.nodes for part in parts if part.whole)
    assert ends == Counter(group.nodes for group in fold(graph).groups)


@pytest.mark.parametrize(("count", "boxes"), [(200, 20), (2000, 60), (5000, 12)])
def test_parts_lie_where_they_belong_and_fit_a_screen(count: int, boxes: int) -> None:
    """A part comes after the one it lies in, is made of its nodes, and no box has one part or more than a screenful."""
    drawing = _drawing(count, boxes)
    parts = drawing.parts
    assert [part.group.nodes for part in parts[: len(drawing.boxes)]] == [box.nodes for box in drawing.boxes]
    inside = Counter(part.parent for part in parts[len(drawing.boxes) :])
    assert all(2 <= many <= MOST_INSIDE for many in inside.values())
    assert all(part.parent < place for place, part in enumerate(parts))
    for part in parts[len(drawing.boxes) :]:
        assert set(part.group.nodes) < set(parts[part.parent].group.nodes)


def test_modules_open_before_ops() -> None:
    """Inside what represents many layers are layers, inside a layer its ops."""
    parts = _drawing(5000, 12).parts
    opened = next(place for place, part in enumerate(parts) if not part.whole)
    children = [part for part in parts if part.parent == opened]
    assert any(part.group.kind == "module" for part in children)


def test_of_a_very_large_graph_the_innermost_parts_stay_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the limit no further box can be opened; every node is still in one end of the tree."""
    monkeypatch.setattr("tensormagic.views.graph.coarsening.MOST_PARTS", 100)
    graph = samples_viewer.large_run(2000, passes=1).graphs[0]
    drawing = draw(graph, max_boxes=20)
    assert len(drawing.boxes) < len(drawing.parts) < 100 + MOST_INSIDE
    ends = [part for part in drawing.parts if part.whole]
    assert any(len(part.group.nodes) > 5 for part in ends)
    nodes = [node for part in ends for node in part.group.nodes]
    assert sorted(nodes) == sorted(node for group in fold(graph).groups for node in group.nodes)


def test_document_holds_the_parts_inside_as_columns() -> None:
    """The columns begin after the boxes; of what has parts inside no nodes are listed twice."""
    report = samples_viewer.large_run(2000, passes=1)
    document = trace_document(report)
    graph, strings = document["graphs"][0], document["strings"]
    parts, boxes = graph["parts"], len(graph["drawing"]["boxes"])
    tree = draw(report.graphs[0], max_boxes=SAVED_LIMITS.boxes).parts[boxes:]
    assert parts["parent"] == [part.parent for part in tree]
    assert [strings[place] for place in parts["kind"]] == [part.group.kind for part in tree]
    steps = [step for nodes in parts["nodes"] for step in nodes]
    assert list(accumulate(steps)) == [node for part in tree if part.whole for node in part.group.nodes]
    assert [len(leaves) for leaves in parts["leaves"]] == [len(part.group.leaves) * part.whole for part in tree]
    assert all(38 <= width <= 190 for width in parts["width"])
