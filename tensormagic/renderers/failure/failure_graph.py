"""The graph with the crash marked, as a picture: what had been recorded when torch refused a call, or ran a node."""

from __future__ import annotations

from tensormagic.renderers.basics.markup import attributes, svg_data_uri, tag
from tensormagic.renderers.basics.phrases import plural
from tensormagic.renderers.basics.svg_paths import number
from tensormagic.renderers.basics.text_metrics import text_width
from tensormagic.renderers.graph.graph_drawing import HEAD_HEIGHT, Box, Drawing, draw
from tensormagic.renderers.trace.trace_svg_graph import SOLID, STYLE, Scene, graph_svg
from tensormagic.reports import Graph

_MOST_BOXES = 32
_PAD, _TOP = 14.0, 26.0  # the words of the mark stand above the box
_SIZE = 11.0
_MARK = (
    ".tms .x{fill:none;stroke:#b3261e;stroke-width:2.5}.tms .y{fill:none;stroke:#b3261e;stroke-width:3;"
    f"stroke-linecap:round}}.tms .z{{font-weight:600;font-size:{number(_SIZE)}px;fill:#b3261e}}"
)
REFUSED, RAN = "torch refused this", "backward failed here"


def picture(graph: Graph, node: int, words: str) -> str:
    """Return the graph as an ``<img>``, with a cross and words at the box that holds ``node``."""
    drawing = draw(graph, max_boxes=_MOST_BOXES, inside=False)
    box = next((box for box in drawing.boxes if _holds(box, node)), None)
    said = f"{plural(len(graph.nodes), 'node')} of the graph; {words}: {graph.nodes[node].op}"
    image = f"<img{attributes(alt=said, src=svg_data_uri(_svg(drawing, graph, box, words)))}>"
    note = tag("p", drawing.note, class_="quiet") if drawing.note else ""
    return tag("div", tag("div", image), note, class_="tm-graph")


def _holds(box: Box, node: int) -> bool:
    return node in box.nodes or any(badge.node == node for badge in box.badges)


def _svg(drawing: Drawing, graph: Graph, box: Box | None, words: str) -> str:
    mark, left, right = _crash(box, words, drawing) if box is not None else ("", 0.0, 0.0)
    left, right = max(_PAD, _PAD - left), max(drawing.width, right)
    width, height = left + right + _PAD, drawing.height + _TOP + _PAD
    size = f'width="{number(width)}" height="{number(height)}" viewBox="0 0 {number(width)} {number(height)}"'
    content = f"{graph_svg(Scene(drawing, graph, None))}{mark}"
    start = f'<svg xmlns="http://www.w3.org/2000/svg" class="tms" {size}>'
    style = f"<style>{STYLE}{SOLID}{_MARK}</style>"
    return f'{start}{style}<g transform="translate({number(left)},{number(_TOP)})">{content}</g></svg>\n'


def _crash(box: Box, words: str, drawing: Drawing) -> tuple[str, float, float]:
    """Return a frame around a box with a cross and what happened, and how far to the left and right that goes.

    The words stand to the right of the last box, where nothing else is, and above any other.
    """
    frame = f'x="{number(box.x - 4)}" y="{number(box.y - 4)}" width="{number(box.width + 8)}"'
    ring = f'<rect class="x" {frame} height="{number(HEAD_HEIGHT + 8)}" rx="6"/>'
    wide = text_width(words, _SIZE, bold=True) + 14
    left, y = box.x + (box.width - wide) / 2, box.y - 10
    if box.id == len(drawing.boxes) - 1:
        left, y = box.x + box.width + 14, box.y + HEAD_HEIGHT / 2 + 4
    cross = f'<path class="y" d="M{number(left)},{number(y - 8)}l8,8m0-8l-8,8"/>'
    return f'{ring}{cross}<text class="z" x="{number(left + 14)}" y="{number(y)}">{words}</text>', left, left + wide
