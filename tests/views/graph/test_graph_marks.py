"""Marks in a drawing: where the gradient's way ends, and words at a box, which cover nothing else."""

from __future__ import annotations

import math
from array import array
from dataclasses import replace
from itertools import pairwise

import pytest

from tensormagic.reports import UNREADABLE, UNTOUCHED, Cut, Frame
from tensormagic.views.graph.cuts import MOST_ROWS, cut_target
from tensormagic.views.graph.drawing import Box, Drawing, Wire, draw
from tensormagic.views.graph.folding import fold
from tensormagic.views.graph.marks import (
    NodeMark,
    marks_svg,
    placed_marks,
    run_scale,
    value_of,
    word_place,
    words_around,
)
from tensormagic.views.graph.words import shape_text
from tests.views import samples_trace as samples


def by_label(drawing, label, number=0):
    return [box for box in drawing.boxes if box.label == label][number]


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
    """A block of many steps tells how many cuts are in it, and so does each part inside it, with room for them."""
    graph = samples.transformer(8)
    targets = [node.index for node in graph.nodes if node.op in {"mul", "add"}][:6]
    cuts = tuple(Cut(kind="detach", op="detach", line=at, target=node) for at, node in enumerate(targets, 1))
    drawing, plain = (draw(replace(graph, cuts=each), max_boxes=6) for each in (cuts, ()))
    assert sorted(cut for box in drawing.boxes for row in box.cuts for cut in row.cuts) == list(range(len(targets)))
    ends = [part.cuts for part in drawing.inside if part.whole]
    assert sorted(cut for rows in ends for row in rows for cut in row.cuts) == list(range(len(targets)))
    for part, before in zip(drawing.inside, plain.inside, strict=True):
        assert (part.size[1] > before.size[1]) == bool(part.cuts)


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


@pytest.mark.parametrize("graph", [samples.chain(60), samples.resnet(4), samples.digits_cnn()])
@pytest.mark.parametrize("numbered", [True, False], ids=["finding", "born"])
def test_words_cover_nothing_at_any_box(graph, numbered):
    """No box, no number over one, and no wire."""
    drawing = draw(graph)
    for at in drawing.boxes:
        left, top, right, bottom = words_around(*word_place(drawing, at, HALF, numbered=numbered), HALF)
        for box in drawing.boxes:
            beside = box.x >= right or box.x + box.width <= left
            assert beside or box.y >= bottom or box.y + box.height <= top
            assert beside or (box is at and not numbered) or box.y - 16 >= bottom or box.y - 4 <= top
        for (x, y), (end, low) in (piece for wire in drawing.wires for piece in pairwise(wire.points)):
            points = ((x + (end - x) * at / 24, y + (low - y) * at / 24) for at in range(25))
            assert not any(left < over < right and top < high < bottom for over, high in points)


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


FRAME = Frame(1, array("f", [UNTOUCHED, 0.5, 2.0, math.inf, UNREADABLE]), {"2": (1, 2)})


@pytest.mark.parametrize(
    ("nodes", "style", "text"),
    [((0,), "none", "no gradient"), ((2,), "bad", "1 NaN, 2 Inf"), ((1, 3), "bad", "Inf"),
     ((0, 4, 1), "blind", "gradient not measurable")],
)  # fmt: skip
def test_a_bad_node_anywhere_in_a_box_is_louder_than_its_first(nodes, style, text):
    assert (value_of(nodes, FRAME).style, value_of(nodes, FRAME).text) == (style, text)


@pytest.mark.parametrize(
    ("norms", "scale"),
    [
        ([0.3, 0.02, 0.05, 1.4, 0.7, 0.11, 2e-9, 4e-10], (-2, 1)),  # biases before normalisations: rounding errors
        ([0.3, 0.02, 0.05, 1.4, 0.7, 2e-9, 3e-9, 4e-10], (-10, 1)),  # too many for that
        ([10.0**-at for at in range(9)], (-8, 0)),  # a gradient that vanishes layer by layer
        ([0.3, 0.02, 0.05, 5e-5], (-5, 0)),
        ([2.0], (-2, 1)),
    ],
)
def test_few_norms_far_below_all_others_do_not_take_their_colours(norms, scale):
    """The scale of the colours is that of the others."""
    whole = samples.report()
    frame = Frame(1, array("f", norms))
    assert run_scale(replace(whole, graphs=(replace(whole.graphs[0], frames=(frame,)),))) == scale
