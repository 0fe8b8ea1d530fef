"""The ends of the gradient's way in the picture: severed wires, and a line under the box that used the value."""

from __future__ import annotations

from tensormagic.renderers.basics.plain_text import fitted
from tensormagic.renderers.basics.svg_paths import Canvas, Point, line, number, point
from tensormagic.renderers.basics.theme import inked
from tensormagic.renderers.graph.drawing import (
    BADGE_HEIGHT,
    BADGE_SIZE,
    CUT_INDENT,
    HEAD_HEIGHT,
    Box,
    Drawing,
    badge_rows,
)
from tensormagic.reports import Graph

_STYLE = inked(
    ".tms .xl{fill:none;stroke:$line-2;stroke-width:1.4;stroke-dasharray:2.5 2.5}"
    ".tms .xg{stroke:$bg;stroke-width:7}.tms .xs{fill:none;stroke:$ink;stroke-width:1.5;stroke-linecap:round}"
    ".tms .xe{fill:none;stroke:$ink-2;stroke-width:1.4}"
)
_BREAK = 13.0  # how far before its end a wire is severed


def wires_svg(drawing: Drawing) -> str:
    """Return the severed wires: what lies below all other lines."""
    canvas = Canvas()
    for wire in drawing.detachment:
        canvas.path("xl", line(wire.points))
    return canvas.svg()


def marks_svg(drawing: Drawing, graph: Graph) -> str:
    """Return what lies above the lines: where wires are severed, what ended them, and where a value was taken."""
    if not graph.cuts:
        return ""
    canvas, boxes = Canvas(), {box.id: box for box in drawing.boxes}
    for wire in drawing.detachment:
        _break(canvas, *_near_end(wire.points[-2], wire.points[-1]))
    for box in drawing.boxes:
        for row, cut in enumerate(box.cuts):
            _row(canvas, box, row, cut.label)
    for number_, cuts in drawing.stubs.items():
        _stub(canvas, boxes[number_], detachment=any(graph.cuts[cut].detachment for cut in cuts))
    return f"<style>{_STYLE}</style>{canvas.svg()}"


def _near_end(start: Point, end: Point) -> Point:
    """Return where the last piece of a wire is severed: of a level one near its end, of a curve at t = 0.8."""
    across, down = end[0] - start[0], end[1] - start[1]
    if not down:
        return end[0] - min(_BREAK, max(across - 4, 6.0)), end[1]
    return start[0] + 0.752 * across, start[1] + 0.896 * down


def _break(canvas: Canvas, x: float, y: float) -> None:
    """Draw a gap with a stroke on either side of it."""
    canvas.path("xg", f"M{point(x - 2.5, y)}h5")
    canvas.path("xs", f"M{point(x - 4.5, y + 4.5)}l4-9M{point(x + 0.5, y + 4.5)}l4-9")


def _row(canvas: Canvas, box: Box, row: int, label: str) -> None:
    shown, more = badge_rows(box)
    y = box.y + HEAD_HEIGHT + 3 + (len(shown) + bool(more) + row) * BADGE_HEIGHT
    canvas.path("xl", f"M{point(box.x - 4, y + 6)}H{number(box.x + 16)}")
    _break(canvas, box.x + 7, y + 6)
    canvas.text("k", box.x + CUT_INDENT, y + BADGE_SIZE, fitted(label, box.width - CUT_INDENT, BADGE_SIZE))


def _stub(canvas: Canvas, box: Box, *, detachment: bool) -> None:
    """Draw a short line out of a box: severed, or with a cap where the value was only read."""
    x, y = box.x + box.width, box.y + HEAD_HEIGHT - 9
    if detachment:
        canvas.path("xl", f"M{point(x, y)}h14")
        _break(canvas, x + 8, y)
    else:
        canvas.path("xe", f"M{point(x, y)}h6m0-4v8")


def key_svg() -> str:
    """Return the sign of a cut for the legend, 22 pixels wide, its middle at 6."""
    canvas = Canvas()
    canvas.path("xl", "M0,6H22")
    _break(canvas, 11, 6)
    return canvas.svg()
