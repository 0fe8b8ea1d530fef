"""Words of a mark at a box: they cover no box, number, wire or other words, wherever the box is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import pytest

from tensormagic.views.graph.drawing import Box, Drawing, Wire, draw
from tensormagic.views.graph.marks import NodeMark, marks_svg, word_place, words_around
from tests.views import samples_trace as samples

GRAPHS = {
    "rows of a chain": samples.chain(60),
    "mlp": samples.mlp(16),
    "resnet": samples.resnet(4),
    "transformer": samples.transformer(2),
    "convolution": samples.digits_cnn(),
}
HALF = 54.0  # of "NaN born here" with its sign


def covered(drawing: Drawing, at: Box, place: tuple[float, float], *, numbered: bool) -> list[str]:
    """Return what words would cover there."""
    left, top, right, bottom = words_around(*place, HALF)
    found = []
    for box in drawing.boxes:
        over = box.x < right and box.x + box.width > left
        if over and box.y < bottom and box.y + box.height > top:
            found.append(f"box {box.label}")
        if over and (numbered or box is not at) and box.y - 16 < bottom and box.y - 4 > top:
            found.append(f"number of {box.label}")
    for wire in drawing.wires:
        for (x, y), (end, low) in pairwise(wire.points):
            points = (((x * at + end * (24 - at)) / 24, (y * at + low * (24 - at)) / 24) for at in range(25))
            if any(left < over < right and top < high < bottom for over, high in points):
                found.append(f"wire {wire.source} {wire.target}")
    return found


def places_near(drawing: Drawing, box: Box) -> Iterator[tuple[float, float]]:
    """Yield all places above and below a box, to the pixel upwards, to two sideways."""
    for x in range(int(box.x + box.width / 2) - 70, int(box.x + box.width / 2) + 71, 2):
        for y in (*range(int(box.y) - 22, int(box.y) - 6), int(box.y + box.height) + 11):
            if HALF <= x <= drawing.width - HALF:
                yield float(x), float(y)


@pytest.mark.parametrize("numbered", [True, False], ids=["finding", "born"])
@pytest.mark.parametrize("name", GRAPHS)
def test_words_cover_nothing_at_any_box(name: str, *, numbered: bool) -> None:
    """In rows, the line between two rows runs clear of them, as do lines round a box; or there is no free place."""
    drawing = draw(GRAPHS[name])
    wrong = {}
    for box in drawing.boxes:
        found = covered(drawing, box, word_place(drawing, box, HALF, numbered=numbered), numbered=numbered)
        if found and any(not covered(drawing, box, place, numbered=numbered) for place in places_near(drawing, box)):
            wrong[box.id] = found
    assert wrong == {}


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
    svg = marks_svg(drawing, [NodeMark(at, "gradient vanishes", "warning") for at in range(2)])
    assert svg.count("<rect") == 2
    assert sorted(part.split('"')[0] for part in svg.split(' y="')[1:]) == ["10", "27", "27", "81"]
    narrow = Drawing(130.0, 40.0, (replace(boxes[0], y=0.0),), (), 2, 0, "")
    taken = [words_around(65.0, -20.0, 65.0), words_around(65.0, 51.0, 65.0)]
    assert "<text" not in marks_svg(narrow, [NodeMark(0, "gradient vanishes", "warning")], taken)
