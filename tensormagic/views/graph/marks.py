"""What a graph shows at a node: where the run ended, and what its findings speak of.

A NaN that is born has words of its own, for the pass in which it is.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tensormagic.reports import FailureReport, TraceReport
from tensormagic.views.graph.drawing import HEAD_HEIGHT, Box, Drawing
from tensormagic.views.markup import escape, text_width
from tensormagic.views.svg_paths import number
from tensormagic.views.theme import inked

if TYPE_CHECKING:
    from tensormagic.reports import Finding, Graph
    from tensormagic.reports.finding import Severity


# -- where the run ended ----------------------------------------------------------------------------------------------

_CRASH_ABOVE = 26.0  # that words above a box take
REFUSED, RAN = "torch refused this", "backward failed here"
_CRASH_SIZE = 11.0
CRASH_STYLE = inked(
    ".tms .cr{fill:none;stroke:$error;stroke-width:2.5}.tms .cx{fill:none;stroke:$error;stroke-width:3;"
    f"stroke-linecap:round}}.tms .cw{{font-weight:600;font-size:{number(_CRASH_SIZE)}px;fill:$error}}"
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
    wide = text_width(words, _CRASH_SIZE, bold=True) + 14
    left, y, above = box.x + (box.width - wide) / 2, box.y - 10, max(_CRASH_ABOVE - box.y, 4.0)
    if box.id == len(drawing.boxes) - 1:
        left, y, above = box.x + box.width + 14, box.y + HEAD_HEIGHT / 2 + 4, max(6.0 - box.y, 0.0)
    cross = f'<path class="cx" d="M{number(left)},{number(y - 8)}l8,8m0-8l-8,8"/>'
    text = f'<text class="cw" x="{number(left + 14)}" y="{number(y)}">{escape(words)}</text>'
    return Mark(ring + cross + text, left, left + wide, above)


def _holds(box: Box, node: int) -> bool:
    return node in box.nodes or any(badge.node == node for badge in box.badges)


# -- what findings speak of -------------------------------------------------------------------------------------------

_WORDS = {
    "TM301": "{subject} changed in place",
    "TM302": "{subject} changed unnoticed",
    "TM303": "cut off here",
    "TM304": "freed already",
    "TM311": "wrong gradients",
    "TM403": "gradient vanishes",
    "TM404": "gradient explodes",
    "TM405": "nothing gets through",
    "TM407": "out of range",
}
FINDING_STYLE = inked(
    ".tms .kerror{fill:none;stroke:$error;stroke-width:2}.tms .kwarning{fill:none;stroke:$warning;stroke-width:2}"
    ".tms .jerror{font-weight:600;fill:$error}.tms .jwarning{font-weight:600;fill:$warning}"
)
_WORDS_SIZE = 10.5
ABOVE = 20.0  # from the box up to the words: the number of the box stands between


@dataclass(frozen=True, slots=True)
class NodeMark:
    """A few words at a node, and how serious it is."""

    node: int
    words: str
    severity: Severity


def marks_of(report: TraceReport, graph: Graph) -> list[NodeMark]:
    """Return the marks of a graph, one a node: of its findings, then of what it saved and could not use now."""
    place = next(at for at, each in enumerate(report.graphs) if each.number == graph.number)
    taken = {birth.node for birth in graph.first_nonfinite}
    if report.failure is not None and report.failure.node is not None and report.failure.node[0] == place:
        taken.add(report.failure.node[1])
    marks: dict[int, NodeMark] = {}
    for mark in (*_of_findings(report.findings, place), *_of_saved(report, graph)):
        if mark.node not in taken:
            marks.setdefault(mark.node, mark)
    return list(marks.values())


def _of_findings(findings: tuple[Finding, ...], place: int) -> Iterator[NodeMark]:
    for finding in findings:
        if finding.node is not None and finding.node[0] == place and finding.code in _WORDS:
            words = _WORDS[finding.code].format(subject=finding.subject or "its input")
            yield NodeMark(finding.node[1], words, finding.severity)


def _of_saved(report: TraceReport, graph: Graph) -> Iterator[NodeMark]:
    """Yield the nodes of a graph that stands at which backward would fail."""
    for node in reversed(graph.nodes) if report.state == "drawn" else ():  # as backward comes to them
        names = [saved.name for saved in node.saved if saved.state == "changed in place"]
        if names:
            yield NodeMark(node.index, f"saved {names[0]} changed in place", "error")


def marks_svg(drawing: Drawing, marks: Iterable[NodeMark]) -> str:
    """Return a frame round each box that holds a marked node; words above it, where no others stand."""
    owner = {node: box for box in drawing.boxes for node in (*(badge.node for badge in box.badges), *box.nodes)}
    seen: set[int] = set()
    said: list[tuple[float, float, float]] = []
    parts = []
    for mark in marks:
        box = owner.get(mark.node)
        if box is None or box.id in seen:
            continue
        seen.add(box.id)
        words, kind = f"◆ {mark.words}", "error" if mark.severity == "error" else "warning"
        half = text_width(words, _WORDS_SIZE, bold=True) / 2
        x = min(max(box.x + box.width / 2, half), max(drawing.width - half, half))
        free = all(x - half > right or x + half < left or abs(y - box.y) > 15 for left, right, y in said)
        said += [(x - half, x + half, box.y)] if free else []
        frame = f'x="{number(box.x - 3)}" y="{number(box.y - 3)}" width="{number(box.width + 6)}"'
        text = f'<text class="j{kind} c o" x="{number(x)}" y="{number(box.y - ABOVE)}">{escape(words)}</text>'
        parts.append(f'<rect class="k{kind}" {frame} height="{number(HEAD_HEIGHT + 6)}" rx="6"/>{text if free else ""}')
    return "".join(parts)
