"""Where a graph shows what its findings speak of: a few words over the box of the node, in the finding's colour.

A NaN that is born has words of its own, for the pass in which it is; so has the node at which a run ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tensormagic.renderers.basics.markup import escape
from tensormagic.renderers.basics.svg_paths import number
from tensormagic.renderers.basics.text_metrics import text_width
from tensormagic.renderers.basics.theme import inked
from tensormagic.renderers.graph.graph_drawing import HEAD_HEIGHT, Drawing

if TYPE_CHECKING:
    from tensormagic.reports import Finding, Graph, TraceReport
    from tensormagic.reports.finding import Severity

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
STYLE = inked(
    ".tms .kerror{fill:none;stroke:$error;stroke-width:2}.tms .kwarning{fill:none;stroke:$warning;stroke-width:2}"
    ".tms .jerror{font-weight:600;fill:$error}.tms .jwarning{font-weight:600;fill:$warning}"
)
_SIZE = 10.5
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
        half = text_width(words, _SIZE, bold=True) / 2
        x = min(max(box.x + box.width / 2, half), max(drawing.width - half, half))
        free = all(x - half > right or x + half < left or abs(y - box.y) > 15 for left, right, y in said)
        said += [(x - half, x + half, box.y)] if free else []
        frame = f'x="{number(box.x - 3)}" y="{number(box.y - 3)}" width="{number(box.width + 6)}"'
        text = f'<text class="j{kind} c o" x="{number(x)}" y="{number(box.y - ABOVE)}">{escape(words)}</text>'
        parts.append(f'<rect class="k{kind}" {frame} height="{number(HEAD_HEIGHT + 6)}" rx="6"/>{text if free else ""}')
    return "".join(parts)
