"""Where a run ended: the graph with the call that torch refused, or with the node that was running, and its mark."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from tensormagic.renderers.basics.markup import escape
from tensormagic.renderers.basics.svg_paths import number
from tensormagic.renderers.basics.text_metrics import text_width
from tensormagic.renderers.basics.theme import inked
from tensormagic.renderers.graph.graph_drawing import HEAD_HEIGHT, Box, Drawing
from tensormagic.reports import FailureReport, TraceReport

_ABOVE = 26.0  # that words above a box take
REFUSED, RAN = "torch refused this", "backward failed here"
_SIZE = 11.0
STYLE = inked(
    ".tms .cr{fill:none;stroke:$error;stroke-width:2.5}.tms .cx{fill:none;stroke:$error;stroke-width:3;"
    f"stroke-linecap:round}}.tms .cw{{font-weight:600;font-size:{number(_SIZE)}px;fill:$error}}"
)


@dataclass(frozen=True, slots=True)
class Crash:
    """The node at which a run ended: the place of its graph, its number there, and what to write beside it."""

    graph: int
    node: int
    words: str


@dataclass(frozen=True, slots=True)
class Mark:
    """What is drawn at a box, and how far to the left, to the right and above the drawing it goes."""

    svg: str = ""
    left: float = 0.0
    right: float = 0.0
    above: float = 0.0


def crash_words(failure: FailureReport, what: str) -> str:
    """Return ``"torch refused this: RuntimeError, cell 3, line 7"``."""
    place = f", {failure.location.label}" if failure.location is not None else ""
    return f"{what}: {failure.error_type}{place}"


def with_crash(report: TraceReport) -> tuple[TraceReport, Crash | None]:
    """Return a run with the graph that holds the place where it ended, and that place; None where it is not known.

    What leads to a refused call in the forward is no graph of a backward: it comes last, as a graph of its own.
    """
    failure = report.failure
    if failure is None:
        return report, None
    if failure.node is not None:
        return report, Crash(*failure.node, crash_words(failure, RAN))
    if failure.graph is None:
        return report, None
    last = max((graph.number for graph in report.graphs), default=0)
    graphs = (*report.graphs, dataclasses.replace(failure.graph, number=last + 1))
    words = crash_words(failure, REFUSED)
    return dataclasses.replace(report, graphs=graphs), Crash(len(graphs) - 1, failure.graph.roots[0], words)


def mark_svg(drawing: Drawing, node: int, words: str) -> Mark:
    """Return a frame round the box that holds ``node``, with a cross and words; nothing where it is not drawn.

    The words stand to the right of the last box, where nothing else is, and above any other.
    """
    box = next((box for box in drawing.boxes if _holds(box, node)), None)
    if box is None:
        return Mark()
    frame = f'x="{number(box.x - 2)}" y="{number(box.y - 2)}" width="{number(box.width + 4)}"'
    ring = f'<rect class="cr" {frame} height="{number(HEAD_HEIGHT + 4)}" rx="5"/>'
    wide = text_width(words, _SIZE, bold=True) + 14
    left, y, above = box.x + (box.width - wide) / 2, box.y - 10, max(_ABOVE - box.y, 4.0)
    if box.id == len(drawing.boxes) - 1:
        left, y, above = box.x + box.width + 14, box.y + HEAD_HEIGHT / 2 + 4, max(6.0 - box.y, 0.0)
    cross = f'<path class="cx" d="M{number(left)},{number(y - 8)}l8,8m0-8l-8,8"/>'
    text = f'<text class="cw" x="{number(left + 14)}" y="{number(y)}">{escape(words)}</text>'
    return Mark(ring + cross + text, left, left + wide, above)


def _holds(box: Box, node: int) -> bool:
    return node in box.nodes or any(badge.node == node for badge in box.badges)
