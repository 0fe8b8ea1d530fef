"""The graph with the crash marked, as a picture: what had been recorded when torch refused a call, or ran a node."""

from __future__ import annotations

from tensormagic.renderers.alternatives.trace_alternative import crash_alternative
from tensormagic.renderers.basics.markup import svg_image, tag
from tensormagic.renderers.basics.svg_paths import number
from tensormagic.renderers.graph import crash_mark
from tensormagic.renderers.graph.graph_drawing import Drawing, draw
from tensormagic.renderers.trace.trace_svg_graph import EITHER_SIDE, SOLID, STYLE, Scene, graph_svg
from tensormagic.reports import Graph

_MOST_BOXES = 32
_PAD = 14.0


def picture(graph: Graph, node: int, words: str) -> str:
    """Return the graph as an ``<img>``, with a cross and words at the box that holds ``node``."""
    drawing = draw(graph, max_boxes=_MOST_BOXES, inside=False)
    image = svg_image(_svg(drawing, graph, node, words), crash_alternative(graph, node, words))
    note = tag("p", drawing.note, class_="quiet") if drawing.note else ""
    return tag("div", tag("div", image), note, class_="tm-section tm-graph")


def _svg(drawing: Drawing, graph: Graph, node: int, words: str) -> str:
    mark = crash_mark.mark_svg(drawing, node, words)
    left, right = max(_PAD, _PAD - mark.left), max(drawing.width, mark.right)
    width, height = left + right + _PAD, drawing.height + mark.above + 2 * _PAD
    size = f'width="{number(width)}" height="{number(height)}" viewBox="0 0 {number(width)} {number(height)}"'
    content = f"{graph_svg(Scene(drawing, graph, None))}{mark.svg}"
    start = f'<svg xmlns="http://www.w3.org/2000/svg" class="tms" {size}>'
    style = f"<style>{STYLE}{SOLID}{crash_mark.STYLE}{EITHER_SIDE}</style>"
    moved = f"translate({number(left)},{number(mark.above + _PAD)})"
    return f'{start}{style}<g transform="{moved}">{content}</g></svg>\n'
