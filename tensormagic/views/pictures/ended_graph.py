"""The graph with the place where it ended: what had been recorded when torch refused a call, or ran a node."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tensormagic.renderers.alternatives.trace_alternative import crash_alternative
from tensormagic.renderers.basics.markup import svg_image, tag
from tensormagic.renderers.basics.svg_paths import number
from tensormagic.renderers.graph import marks
from tensormagic.renderers.graph.drawing import draw
from tensormagic.renderers.terminal.text_canvas import wrapped
from tensormagic.renderers.trace.trace_svg_graph import EITHER_SIDE, SOLID, STYLE, Scene, graph_svg
from tensormagic.reports import Graph
from tensormagic.views.nodes import Picture

_MOST_BOXES = 32
_PAD = 14.0


@dataclass(frozen=True, slots=True)
class EndedGraph(Picture):
    """A graph with a cross and words at the box that holds a node (refused call)."""

    graph: Graph
    node: int
    words: str

    @property
    def sentence(self) -> str:
        """How large the graph is, what happened, and where."""
        return crash_alternative(self.graph, self.node, self.words)

    def html(self) -> str:
        """Return it as an ``<img>``."""
        drawing = draw(self.graph, max_boxes=_MOST_BOXES, inside=False)
        note = tag("p", drawing.note, class_="quiet") if drawing.note else ""
        image = svg_image(self._drawn(EITHER_SIDE)[0], self.sentence)
        return tag("div", tag("div", image), note, class_="tm-graph")

    def text(self, width: int) -> Iterable[str]:
        """Return what is to be seen."""
        return wrapped(self.sentence, width, "  ", "  ")

    def svg(self, width: float) -> tuple[str, float]:
        """Return it, smaller where it is too wide."""
        drawn, wide, high = self._drawn("")
        scale = min(width / wide, 1.0)
        return f'<g transform="scale({number(scale)})">{drawn}</g>', high * scale

    def _drawn(self, style: str) -> tuple[str, float, float]:
        """Return the picture with further rules of style, its width and its height."""
        drawing = draw(self.graph, max_boxes=_MOST_BOXES, inside=False)
        mark = marks.mark_svg(drawing, self.node, self.words)
        left, right = max(_PAD, _PAD - mark.left), max(drawing.width, mark.right)
        width, height = left + right + _PAD, drawing.height + mark.above + 2 * _PAD
        size = f'width="{number(width)}" height="{number(height)}" viewBox="0 0 {number(width)} {number(height)}"'
        start = f'<svg xmlns="http://www.w3.org/2000/svg" class="tms" {size}>'
        rules = f"<style>{STYLE}{SOLID}{marks.CRASH_STYLE}{style}</style>"
        moved = f"translate({number(left)},{number(mark.above + _PAD)})"
        content = f"{graph_svg(Scene(drawing, self.graph, None))}{mark.svg}"
        return f'{start}{rules}<g transform="{moved}">{content}</g></svg>\n', width, height
