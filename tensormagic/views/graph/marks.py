"""What a graph shows at a node: its value in a pass, where the run ended, and what its findings speak of."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain

from tensormagic.reports import UNTOUCHED, FailureReport, Finding, FirstNonfinite, Frame, Graph, Node, TraceReport
from tensormagic.reports.base import Severity
from tensormagic.views.graph.drawing import HEAD_HEIGHT, Box, Drawing
from tensormagic.views.markup import escape, text_width
from tensormagic.views.panels.trace_words import NOT_MEASURABLE, bad_text, measured, norm_text, touched
from tensormagic.views.svg_paths import number
from tensormagic.views.theme import NORM_EXPONENTS, inked, norm_level, norm_scale

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
ABOVE = 20.0  # from the box up to the words: the number of the box is between


@dataclass(frozen=True, slots=True)
class NodeMark:
    """A few words at a node, and how serious it is."""

    node: int
    words: str
    severity: Severity


def marks_of(report: TraceReport, graph: Graph) -> list[NodeMark]:
    """Return the marks of a graph, one a node: of its findings, then of what it saved and could not use now."""
    place = next(at for at, each in enumerate(report.graphs) if each.number == graph.number)
    taken = {nonfinite.node for nonfinite in graph.first_nonfinite}
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
    """Yield the nodes of an existing graph at which backward would fail."""
    for node in reversed(graph.nodes) if report.state == "drawn" else ():  # as backward comes to them
        names = [saved.name for saved in node.saved if saved.state == "changed in place"]
        if names:
            name = _variable(graph, node, names[0]) or f"saved {names[0]}"
            yield NodeMark(node.index, f"{name} changed in place", "error")


def _variable(graph: Graph, node: Node, slot: str) -> str:
    """Return the variable whose value a node saved in a slot; empty where that is not known."""
    if slot in {"result", "output", "out"}:
        return node.variable
    number = {"self": 0, "input": 0, "other": 1}.get(slot)
    made = (edge.target for edge in graph.edges if edge.source == node.index and edge.input_number == number)
    return next((graph.nodes[at].variable for at in made), "")


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


# -- the values of a pass ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Value:
    """The gradient of a box or a badge in one pass."""

    norm: float = UNTOUCHED  # Its norm, `UNTOUCHED`, or `UNREADABLE`.
    nan: int = 0  # How many NaN it holds.
    inf: int = 0  # How many infinities it holds.
    scale: tuple[int, int] = NORM_EXPONENTS  # The scale of its colour: log10 of the norms at its ends.

    @property
    def bad(self) -> bool:
        """Whether it is not finite."""
        return bool(self.nan or self.inf) or not math.isfinite(self.norm)

    @property
    def untouched(self) -> bool:
        """Whether no gradient came."""
        return not self.bad and not touched(self.norm)

    @property
    def blind(self) -> bool:
        """Whether a gradient came that could not be measured."""
        return not self.bad and not self.untouched and not measured(self.norm)

    @property
    def style(self) -> str:
        """How it is drawn: ``"bad"``, ``"none"``, ``"blind"``, or the level ``"n0"`` … ``"n5"`` of its norm."""
        if self.bad or self.untouched or self.blind:
            return "bad" if self.bad else "none" if self.untouched else "blind"
        return f"n{norm_level(self.norm, self.scale)}"

    @property
    def number(self) -> str:
        """What is written over a box: the norm, or the count of what is not finite; empty where no gradient came."""
        if self.untouched:
            return ""
        return bad_text(self.nan, self.inf) if self.nan or self.inf else "?" if self.blind else norm_text(self.norm)

    @property
    def text(self) -> str:
        """What it is, in words."""
        if self.bad:
            return bad_text(self.nan, self.inf) if self.nan or self.inf else norm_text(self.norm)
        if self.blind:
            return f"gradient {NOT_MEASURABLE}"
        return "no gradient" if self.untouched else f"gradient norm {norm_text(self.norm)}"


def value_of(nodes: Iterable[int], frame: Frame | None, scale: tuple[int, int] = NORM_EXPONENTS) -> Value:
    """Return the value of a box over ``nodes``, or of a leaf, in the pass of ``frame``."""
    if frame is None:
        return Value()
    came = UNTOUCHED
    for node in nodes:
        norm = frame.norms[node] if node < len(frame.norms) else UNTOUCHED
        counts = frame.bad.get(str(node), _NONE) if frame.bad else _NONE
        if counts != _NONE or not math.isfinite(norm):
            return Value(norm, *counts, scale)
        came = norm if not touched(came) else came
    return Value(came, scale=scale)


_NONE = (0, 0)  # neither NaN nor Inf


def bad_among(nodes: Iterable[int], frame: Frame | None) -> int:
    """Return how many of ``nodes`` received a gradient that is not finite in the pass of ``frame``."""
    if frame is None:
        return 0
    bad, norms, size = frame.bad, frame.norms, len(frame.norms)
    return sum(
        not math.isfinite(norms[node] if node < size else UNTOUCHED) or bad.get(str(node), _NONE) != _NONE
        for node in nodes
    )


_MOST_SCALED = 48  # frames of a graph that its scale is made of


def run_scale(report: TraceReport) -> tuple[int, int]:
    """Return the scale of a run's norms, from passes of all its graphs."""
    frames = (frame for graph in report.graphs for frame in graph.frames[:: len(graph.frames) // _MOST_SCALED + 1])
    ends = [(min(known), max(known)) for frame in frames if (known := [n for n in frame.norms if 0 < n < math.inf])]
    return norm_scale(chain.from_iterable(ends))


def shown_frame(graph: Graph) -> Frame | None:
    """Return the pass that is shown first: in which something was born, else the last; None where none was kept."""
    born = min((nonfinite.pass_number for nonfinite in graph.first_nonfinite), default=-1)
    return next((frame for frame in graph.frames if frame.pass_number == born), last_frame(graph))


def last_frame(graph: Graph) -> Frame | None:
    """Return the last kept pass, or None where none was kept."""
    return graph.frames[-1] if graph.frames else None


def forward_mark(graph: Graph) -> FirstNonfinite | None:
    """Return the place at which a forward was not finite first, to mark it; None where none is known.

    What went wrong in the forward is older than what its backward makes of it. Of a leaf, or data, it is the op that
    used it.
    """
    first = graph.first_bad
    if first is None or any(nonfinite.pass_number < first.pass_number for nonfinite in graph.first_nonfinite):
        return None
    users = [edge.source for edge in graph.edges if edge.target == first.node] if first.source == "leaf" else []
    node = min(users, default=first.node)
    return FirstNonfinite(
        first.pass_number, node, node, 0, first.nan, first.inf, first.count, 0.0, certain=first.certain
    )


def nonfinite_by_box(drawing: Drawing, graph: Graph) -> dict[int, FirstNonfinite]:
    """Return the first NaN or Inf in each box where one appeared; if the forward held some, that place alone."""
    owner = {node: box.id for box in drawing.boxes for node in box.nodes}
    found: dict[int, FirstNonfinite] = {}
    older = forward_mark(graph)
    for nonfinite in graph.first_nonfinite if older is None else (older,):
        if nonfinite.node in owner:
            found.setdefault(owner[nonfinite.node], nonfinite)
    return found
