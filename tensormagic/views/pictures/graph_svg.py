"""The drawing of an autograd graph in one pass, as SVG: boxes, wires along the gradient's way, cuts, marks, legend."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tensormagic.reports import UNREADABLE, Frame, Graph
from tensormagic.views.graph import drawing as graph_drawing
from tensormagic.views.graph.drawing import DETAIL_SIZE, HEAD_HEIGHT, Box, Drawing, badge_rows
from tensormagic.views.graph.marks import CRASH_STYLE, FINDING_STYLE, Placed, Value, marks_svg, value_of
from tensormagic.views.graph.words import gradient_text, value_text, wire_text
from tensormagic.views.markup import fitted, tag, text_width
from tensormagic.views.panels.trace_words import NOT_MEASURABLE, norm_text
from tensormagic.views.svg_paths import Canvas, arrowhead, hatching, line, number, point
from tensormagic.views.theme import NORM_EXPONENTS, NORM_SCALE_LIGHT, inked
from tensormagic.words import count, plural

_BREAK = 13.0  # how far before its end a wire is cut
_FOOT = 6.0
_CROWDED = 60  # from this many boxes on, boxes carry no numbers
_THICKNESS = (1.4, 1.9, 2.4, 3.0, 3.7, 4.5)

_LEVELS = "".join(
    f".tms .s{level}{{stroke:{colour}}}.tms .f{level}{{fill:{colour}}}"
    f".tms .w{level}{{stroke:{colour};stroke-width:{wide}}}"
    for level, (colour, wide) in enumerate(zip(NORM_SCALE_LIGHT, _THICKNESS, strict=True))
)
STYLE = inked(
    ".tms{font:10.5px system-ui,-apple-system,'Segoe UI','DejaVu Sans',sans-serif;fill:$ink}"
    ".tms .l{font-weight:600;font-size:12px}.tms .v{font-weight:600}"
    ".tms .q{fill:$ink-2}.tms .c{text-anchor:middle}.tms .e{text-anchor:end}"
    ".tms .b{fill:$bg;stroke-width:1.5;stroke-linejoin:round}.tms .w{fill:none}.tms .k{font-size:10px}"
    ".tms .t{stroke-width:6}.tms .x{stroke-width:8}"
    ".tms .sbad{stroke:$error}.tms .fbad{fill:$error}.tms .wbad{stroke:$error;stroke-width:4}"
    ".tms .i{stroke:$bg;stroke-width:2.2;stroke-dasharray:3 3;fill:none}"
    ".tms .snone{stroke:$line-2;stroke-dasharray:4 3}.tms .fnone{fill:$line-2}"
    ".tms .wnone{stroke:$line-2;stroke-width:1.2;stroke-dasharray:4 3}"
    ".tms .sblind{stroke:$ink-2;stroke-dasharray:1 3;stroke-linecap:round}.tms .fblind{fill:$ink-2}"
    ".tms .wblind{stroke:$ink-2;stroke-width:1.4;stroke-dasharray:.5 3;stroke-linecap:round}"
    ".tms .h{stroke:$error;stroke-width:1.8;fill:none}.tms .r{fill:$error}"
    ".tms .o{paint-order:stroke;stroke:$bg;stroke-width:3px;stroke-linejoin:round}"
    ".tms .xl{fill:none;stroke:$line-2;stroke-width:1.4;stroke-dasharray:2.5 2.5}"
    ".tms .xg{stroke:$bg;stroke-width:7}.tms .xs{fill:none;stroke:$ink;stroke-width:1.5;stroke-linecap:round}"
    ".tms .xe{fill:none;stroke:$ink-2;stroke-width:1.4}" + _LEVELS + CRASH_STYLE + FINDING_STYLE
)
# No gradient was asked for: nothing is missing, so nothing is dashed.
SOLID = inked(".tms .snone,.tms .wnone{stroke:$ink-2;stroke-dasharray:none}.tms .l.q{fill:$ink}")


def styled(content: str, rules: str, label: str = "") -> str:
    """Return a picture with its style sheet and further rules; with a label it is read out as that."""
    named = {"role": "img", "aria_label": label} if label else {}
    return tag("g", tag("style", STYLE, rules), content, class_="tms", **named)


class Scene(NamedTuple):
    """What is drawn: a drawing, its graph, and the pass that colours it."""

    drawing: Drawing
    graph: Graph
    frame: Frame | None
    tips: bool = True  # whether boxes carry tooltips: in an ``<img>`` nobody sees them
    scale: tuple[int, int] = NORM_EXPONENTS
    marks: Sequence[Placed] = ()


# -- cuts -------------------------------------------------------------------------------------------------------------


def _cuts_svg(drawing: Drawing, graph: Graph) -> str:
    """Return what lies above the lines: where wires are cut, what ended them, and where a value was taken."""
    canvas = Canvas()
    for wire in drawing.detachment if graph.cuts else ():
        (left, top), (x, y) = wire.points[-2:]
        across, down = x - left, y - top  # a level piece is cut near its end, a curve at t = 0.8
        _break(canvas, *((left + 0.752 * across, top + 0.896 * down) if down
                         else (x - min(_BREAK, max(across - 4, 6.0)), y)))  # fmt: skip
    for box in drawing.boxes if graph.cuts else ():
        shown, more = badge_rows(box.kind, box.badges)
        for row, cut in enumerate(box.cuts, len(shown) + bool(more)):
            y = box.y + HEAD_HEIGHT + 3 + row * graph_drawing.BADGE_HEIGHT
            canvas.path("xl", f"M{point(box.x - 4, y + 6)}H{number(box.x + 16)}")
            _break(canvas, box.x + 7, y + 6)
            words = fitted(cut.label, box.width - graph_drawing.CUT_INDENT, graph_drawing.BADGE_SIZE)
            canvas.text("k", box.x + graph_drawing.CUT_INDENT, y + graph_drawing.BADGE_SIZE, words)
    for place, cuts in drawing.stubs.items():  # a short line out of a box: cut, or with a cap where it was only read
        box = drawing.boxes[place]
        x, y = box.x + box.width, box.y + HEAD_HEIGHT - 9
        if any(graph.cuts[cut].detachment for cut in cuts):
            canvas.path("xl", f"M{point(x, y)}h14")
            _break(canvas, x + 8, y)
        else:
            canvas.path("xe", f"M{point(x, y)}h6m0-4v8")
    return canvas.svg()


def _break(canvas: Canvas, x: float, y: float) -> None:
    """Draw a gap with a stroke on either side of it."""
    canvas.path("xg", f"M{point(x - 2.5, y)}h5")
    canvas.path("xs", f"M{point(x - 4.5, y + 4.5)}l4-9M{point(x + 0.5, y + 4.5)}l4-9")


# -- boxes and wires --------------------------------------------------------------------------------------------------


def graph_svg(scene: Scene) -> str:
    """Return the drawing as SVG content, its top left corner at the origin."""
    drawing, small = scene.drawing, scene.frame.values if scene.frame is not None else None
    values = {box.id: value_of(box.nodes, scene.frame, scene.scale) for box in drawing.boxes}
    cut_wires, wires, behind, plates, boxes, marks = (Canvas() for _ in range(6))  # the cut wires lie lowest
    for cut in drawing.detachment:
        cut_wires.path("xl", line(cut.points))
    for wire in drawing.wires:  # as thick as the gradient that the target received
        value = values[wire.target] if not values[wire.source].untouched else Value()
        level = value.style
        thick = _THICKNESS[int(level)] if level.isdigit() else 4.0 if value.bad else 1.2
        tip, length = wire.points[-1], round(5.0 + thick)
        path = line([*wire.points[:-1], (tip[0] + min(length, wire.points[-2][0] - tip[0]), tip[1])])
        wires.path(f"w w{level}", path)
        if value.bad:
            wires.path("i", path)
        wires.path(f"f{level}", arrowhead(tip, length, round(2.5 + thick)))
    for box in drawing.boxes:
        if box.kind in {"module", "repeat"}:
            behind.path(f"b s{values[box.id].style}", _plate(box.x - 3, box.y - 3, box.width))
        plates.path(f"b s{values[box.id].style}", _plate(box.x, box.y, box.width))
        _box(boxes, box, scene, values[box.id])
    named = {box.id for mark, box, _ in scene.marks if mark.kind == "born"}  # the words take the place of the number
    crowded = len(drawing.boxes) >= _CROWDED
    for box in drawing.boxes if not crowded else ():
        over = (gradient_text(small.gradients[box.nodes[0]]) if small is not None else "") or values[box.id].number
        if box.id not in named and over:
            marks.text("k c o r" if values[box.id].bad else "k c o", box.x + box.width / 2, box.y - 7, over)
    for wire in drawing.wires if small is not None and not crowded else ():
        at = len(wire.points) // 2
        (x, y), (end, height) = wire.points[at - 1 : at + 1]
        words = wire_text(scene.graph, small, wire.edges) if small is not None else ""
        marks.text("k c o q", (x + end) / 2, (y + height) / 2 - 4, words)  # over the middle of the wire
    ends, written = _cuts_svg(drawing, scene.graph), marks.svg() + marks_svg(scene.marks)
    return f"{cut_wires.svg()}{wires.svg()}{ends}{behind.svg()}{plates.svg()}{boxes.svg()}{written}"


def _box(canvas: Canvas, box: Box, scene: Scene, value: Value) -> None:
    """Draw what is in a box and below it: of a small graph the numbers that it made, else their shape; its leaves."""
    level, middle, bottom = value.style, box.x + box.width / 2, box.y + HEAD_HEIGHT
    if value.bad:
        canvas.path("h", hatching(box.x + 2, bottom - _FOOT - 1, box.width - 4, _FOOT))
    elif level.isdigit():
        canvas.path(f"t s{level}", f"M{point(box.x + 1, bottom - _FOOT / 2)}h{number(box.width - 2)}")
    several = f" ({plural(len(box.nodes), 'node')})" if len(box.nodes) > 1 else ""
    title = f"{box.label} {box.detail}{several}: {value.text}" if scene.tips else ""
    label = fitted(box.label, box.width - 8, graph_drawing.LABEL_SIZE, bold=True)
    small = scene.frame.values if scene.frame is not None else None
    detail = (value_text(small.made[box.nodes[0]]) if small is not None else "") or box.detail
    canvas.text("l c q" if value.untouched else "l c", middle, box.y + (16 if detail else 21), label, title=title)
    if detail:
        canvas.text("q c", middle, box.y + 29, fitted(detail, box.width - 6, DETAIL_SIZE))
    shown, more = badge_rows(box.kind, box.badges)
    x, y = box.x + 3, bottom + 5
    for badge in shown:
        value = value_of((badge.node,), scene.frame, scene.scale)
        if not value.style.isdigit():
            canvas.path(f"w s{value.style}", f"M{point(x, y)}h8v8h-8z")
        else:
            canvas.path(f"x s{value.style}", f"M{point(x, y + 4)}h8")
        if value.bad:
            canvas.path("h", hatching(x + 1, y + 1, 6, 6))
        canvas.text("k", x + 12, y + 8, fitted(badge.label, box.width - 16, graph_drawing.BADGE_SIZE))
        y += graph_drawing.BADGE_HEIGHT
    if more:
        bad = sum(value_of((badge.node,), scene.frame).bad for badge in box.badges[len(shown) :])
        words = f"+ {count(more)} more" if shown else plural(more, "leaf", "leaves")
        words += f", {count(bad)} NaN/Inf" if bad else ""
        canvas.text("k r" if bad else "k q", box.x + 4, y - 2 + graph_drawing.BADGE_SIZE, words)


def _plate(x: float, y: float, width: float) -> str:
    """Return the outline of a box's head, its corners cut: with round joins they look round."""
    across, down = number(width - 4), number(HEAD_HEIGHT - 4)
    return f"M{point(x + 2, y)}h{across}l2,2v{down}l-2,2h-{across}l-2-2v-{down}z"


def legend_svg(scene: Scene) -> str:
    """Return the key to colours and marks, one line high, its baseline at 11 px."""
    low, high = (norm_text(10.0**exponent) for exponent in scene.scale)
    swatches = "".join(
        f'<rect class="f{level}" x="{number(128 + 20 * level)}" y="{number(9 - 1.1 * level)}" width="19"'
        f' height="{number(3 + 1.1 * level)}"/>'
        for level in range(6)
    )
    parts = ['<text class="q" x="0" y="11">gradient norm</text>', f'<text class="q e" x="122" y="11">{low}</text>',
             f'{swatches}<text class="q" x="253" y="11">{high}</text>']  # fmt: skip
    drawing, x = scene.drawing, 300.0
    keys = [
        (f'{_small(0, 1, "sbad")}<path class="h" d="{hatching(1, 3, 20, 7, 5)}"/>', "NaN or Inf, count"),
        (_small(0, 1, "snone"), "no gradient"),
        (f'<path class="w w3" d="M8,6H22"/><path class="f3" d="{arrowhead((0, 6), 8, 5)}"/>', "gradient flow"),
    ]
    if scene.frame is not None and UNREADABLE in scene.frame.norms:
        keys.insert(2, (_small(0, 1, "sblind"), NOT_MEASURABLE))
    if drawing.detachment or any(box.cuts for box in drawing.boxes):
        cut = Canvas()  # 22 pixels wide, its middle at 6
        cut.path("xl", "M0,6H22")
        _break(cut, 11, 6)
        keys.append((cut.svg(), "cut"))
    if any(box.kind in {"module", "repeat"} for box in drawing.boxes):
        keys.append((f"{_small(3, 0, 's3')}{_small(0, 3, 's3')}", "several steps in one box"))
    for mark, words in keys:
        parts.append(f'<g transform="translate({number(x)})">{mark}<text class="q" x="27" y="11">{words}</text></g>')
        x += 27 + text_width(words, DETAIL_SIZE) + 16
    return "".join(parts)


def _small(x: float, y: float, style: str) -> str:
    return f'<rect class="b {style}" x="{number(x)}" y="{number(y)}" width="20" height="10" rx="2"/>'
