"""Marks in a drawing: where the gradient's way ends, and words at a box, which cover nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tensormagic.reports import Cut
from tensormagic.views.graph.drawing import BADGE_HEIGHT, MOST_ROWS, Box, Drawing, Wire, draw
from tensormagic.views.graph.folding import fold
from tensormagic.views.graph.marks import NodeMark, marks_svg, placed_marks, word_place
from tensormagic.views.graph.words import cut_target, shape_text
from tensormagic.views.page.document import trace_document
from tensormagic.views.panels import trace as trace_html
from tests.views import samples_trace as samples


def by_label(drawing, label, number=0):
    return [box for box in drawing.boxes if box.label == label][number]


def test_a_cut_stands_under_the_box_that_used_the_value():
    """As a leaf does: a line with what ended the way, for which the box grows; only reading adds none."""
    graph = samples.cuts().graphs[0]
    plain, drawing = draw(samples.digits_cnn()), draw(graph)
    assert {box.label: [row.label for row in box.cuts] for box in drawing.boxes if box.cuts} == {
        "linear": ["detach, line 10"], "mse_loss": ["no_grad, line 3"],
    }  # fmt: skip
    assert by_label(drawing, "linear").height == by_label(plain, "linear").height + BADGE_HEIGHT
    assert by_label(drawing, "mse_loss").height == by_label(plain, "mse_loss").height + BADGE_HEIGHT + 3


def test_a_cut_wire_leads_from_the_maker_to_the_user():
    """It begins at the right side of the one and ends at the left side of the other; it is none of the wires."""
    drawing = draw(samples.cuts().graphs[0])
    (wire,) = drawing.detachment
    maker, user = drawing.boxes[wire.source], drawing.boxes[wire.target]
    assert (maker.label, user.label, wire.cut) == ("view ×2", "linear", 0)
    assert wire.points[0][0] == maker.x + maker.width
    assert wire.points[-1][0] == user.x
    assert len(drawing.wires) == len(draw(samples.digits_cnn()).wires)


def test_where_no_wire_can_say_so_a_cap_stands_at_the_box():
    """A value that is read leaves a stub at the box whose value it was.

    What comes from an earlier pass has no wire: its maker stands behind its user, or far away; both have their mark.
    """
    graph = samples.cuts().graphs[0]
    drawing = draw(graph)
    assert {drawing.boxes[box].label: cuts for box, cuts in drawing.stubs.items()} == {"+": (3,)}
    drawing = draw(replace(graph, cuts=(replace(graph.cuts[0], earlier=True),)))
    assert not drawing.detachment
    assert [drawing.boxes[box].label for box in drawing.stubs] == ["view ×2"]


@pytest.mark.parametrize(("count", "rows"), [(1, 1), (2, 2), (7, MOST_ROWS)])
def test_many_cuts_of_one_box_are_counted(count, rows):
    """More than two lines are told as a number; none is lost."""
    graph = samples.digits_cnn()
    mse = next(node.index for node in graph.nodes if node.op == "mse_loss")
    cuts = tuple(Cut(kind="detach", op="detach", line=line, target=mse) for line in range(1, count + 1))
    box = by_label(draw(replace(graph, cuts=cuts)), "mse_loss")
    assert len(box.cuts) == rows
    assert sorted(cut for row in box.cuts for cut in row.cuts) == list(range(count))


def test_cuts_of_folded_blocks_and_of_boxes_inside_boxes_are_told():
    """A block of many steps tells how many cuts are in it, and so does each part inside it, with room for them.

    The document has the lines by part.
    """
    graph = samples.transformer(8)
    targets = [node.index for node in graph.nodes if node.op in {"mul", "add"}][:6]
    cuts = tuple(Cut(kind="detach", op="detach", line=at, target=node) for at, node in enumerate(targets, 1))
    drawing, plain = (draw(replace(graph, cuts=each), max_boxes=6) for each in (cuts, ()))
    assert sorted(cut for box in drawing.boxes for row in box.cuts for cut in row.cuts) == list(range(len(targets)))
    parts = drawing.inside
    ends = [rows for part, rows in zip(parts.parts, parts.cuts, strict=True) if part.whole]
    assert sorted(cut for rows in ends for row in rows for cut in row.cuts) == list(range(len(targets)))
    for rows, size, before in zip(parts.cuts, parts.sizes, plain.inside.sizes, strict=True):
        assert (size[1] > before[1]) == bool(rows)
    report = replace(samples.cuts(), graphs=(replace(graph, cuts=cuts),))
    said = dict(trace_document(report, draw=lambda *_, **__: drawing)["graphs"][0]["ends"]["rows"])
    assert set(said) == {place for place, rows in enumerate(parts.cuts) if rows}
    assert any(place >= len(drawing.boxes) and rows[0][0].startswith("detach, line") for place, rows in said.items())


def test_the_document_tells_where_cuts_stand():
    """Severed wires by the place of their boxes, and every cut in words, also in a table without a script."""
    report = samples.cuts()
    (graph,) = trace_document(report)["graphs"]
    ends, boxes = graph["ends"], graph["drawing"]["boxes"]
    assert [[boxes[source][5], boxes[target][5], cut] for source, target, _, cut in ends["wires"]] == [
        ["view ×2", "linear", 0]
    ]
    assert ends["cuts"][0][-1] == ("detach, line 10: view (line 10) // linear, input 1, 32×512 float32, 40 times")
    assert trace_document(samples.report())["graphs"][0]["ends"] is None
    html = trace_html.render(report)
    assert "view (line 10)" in html
    assert "only selects elements in mse_loss" in html


def test_a_cut_names_an_op_as_its_box_does():
    """A product with a weight is linear; with what was computed, as a score of queries and keys, it is not."""
    build = samples.Builder()
    queries, keys = build.op("exp", build.linear("q", None)), build.op("exp", build.leaf("k", (8, 64)))
    weighted = build.op("mm", queries, build.op("t", build.op("_to_copy", build.leaf("w", (64, 64)))))
    scores = build.op("mm", weighted, build.op("t", keys))
    targets = (weighted, scores)
    cuts = tuple(Cut(kind="detach", op="detach", line=at, source=queries, target=at) for at in targets)
    graph = replace(build.graph(), cuts=cuts)
    boxes = {group.nodes[0]: group.label for group in fold(graph).groups}
    assert [boxes[at] for at in targets] == ["linear", "mm"]
    assert [cut_target(graph, cut) for cut in cuts] == ["linear", "mm"]
    few = replace(graph, nodes=tuple(replace(node, shapes=((2,),)) for node in graph.nodes))
    assert cut_target(few, cuts[0]) == "mm", "where every node has a box of its own"


HALF = 54.0  # of "NaN born here" with its sign


def test_a_line_above_the_box_is_evaded() -> None:
    """Above the box runs a line, on its left and right is room: the words are below; where that is taken, elsewhere."""
    box = Box(0, (0,), "sqrt", "4", "op", (), 100.0, 60.0, 60.0, 40.0)
    line = Wire(0, 0, ((0.0, 42.0), (300.0, 42.0)), ())
    drawing = Drawing(300.0, 200.0, (box,), (line,), 1, 0, "")
    assert word_place(drawing, box, HALF) == (130.0, 111.0)
    below = Wire(0, 0, ((0.0, 110.0), (90.0, 110.0)), ())
    drawing = Drawing(300.0, 200.0, (box,), (line, below), 1, 0, "")
    assert word_place(drawing, box, HALF) == (154.0, 111.0)


def test_words_of_two_marks_do_not_cover_each_other() -> None:
    """A second mark evades the words of the first; where there is no room for it, its frame is drawn alone."""
    boxes = [Box(at, (at,), "mul", "4", "op", (), 70.0 * at, 30.0, 60.0, 40.0) for at in range(2)]
    drawing = Drawing(130.0, 110.0, tuple(boxes), (), 2, 0, "")
    marks = [NodeMark(at, "gradient vanishes", "warning") for at in range(5)]
    svg = marks_svg(placed_marks(drawing, marks))
    assert svg.count("<rect") == 2
    assert sorted(part.split('"')[0] for part in svg.split(' y="')[1:]) == ["10", "27", "27", "81"]
    one = tuple(replace(boxes[0], id=at, nodes=(at,), y=0.0) for at in range(5))
    placed = placed_marks(Drawing(130.0, 40.0, one, (), 5, 0, ""), marks)
    assert [place is None for _, _, place in placed] == [False] * 2 + [True] * 3, "there are two places"


@pytest.mark.parametrize(
    ("shape", "text"), [((), "scalar"), ((1,), "(1,)"), ((32,), "32"), ((2, 1), "2×1"), ((1, 1), "1×1")]
)
def test_a_shape_does_not_read_as_a_value(shape, text):
    """A lone 1 below a node's name would be taken for what it computed."""
    assert shape_text(shape) == text
