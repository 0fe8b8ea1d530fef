"""What a graph shows at a node: its value in a pass, where the run ended, and what its findings speak of."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Literal

from tensormagic.reports import UNTOUCHED, FailureReport, FirstNonfinite, Frame, Graph, TraceReport
from tensormagic.reports.base import Severity
from tensormagic.views.graph.drawing import HEAD_HEIGHT, Box, Drawing
from tensormagic.views.markup import escape, text_width
from tensormagic.views.panels.trace_words import NOT_MEASURABLE, bad_text, measured, norm_text, touched
from tensormagic.views.svg_paths import number, rect
from tensormagic.views.theme import NORM_EXPONENTS, inked, least_of, norm_level, norm_scale
from tensormagic.words import refused_by

# -- where the run ended ----------------------------------------------------------------------------------------------

_CRASH_ABOVE = 26.0  # that words above a box take
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


def crash_words(failure: FailureReport) -> str:
    """Return ``"torch refused this: RuntimeError, cell 3, line 7"``, or where a backward failed."""
    who = refused_by(failure.function, failure.error)
    what = f"{who} refused this" if failure.node is None else "backward failed here"
    return f"{what}: {failure.error_type}" + (f", {failure.location.label}" if failure.location is not None else "")


def with_crash(report: TraceReport) -> tuple[TraceReport, Crash | None]:
    """Return a run with the graph that holds the place where it ended, and that place; None where it is not known.

    What leads to a refused call in the forward is not a graph of a backward: it comes last, as a graph of its own.
    """
    failure = report.failure
    if failure is not None and failure.node is not None:
        return report, Crash(*failure.node, crash_words(failure))
    if failure is None or failure.graph is None:
        return report, None
    last = max((graph.number for graph in report.graphs), default=0)
    graphs = (*report.graphs, dataclasses.replace(failure.graph, number=last + 1))
    crash = Crash(len(graphs) - 1, failure.graph.roots[0], crash_words(failure))
    return dataclasses.replace(report, graphs=graphs), crash


def _ring(box: Box, class_: str) -> str:
    return rect(box.x - 3, box.y - 3, box.width + 6, HEAD_HEIGHT + 6, class_=class_, rx=6)


def mark_svg(drawing: Drawing, node: int, words: str) -> Mark:
    """Return a frame round the box that holds ``node``, with a cross and words; nothing where it is not drawn.

    The words stand to the right of the last box, where nothing else is, and above any other.
    """
    boxes = (box for box in drawing.boxes if node in (*box.nodes, *(badge.node for badge in box.badges)))
    box = next(boxes, None)
    if box is None:
        return Mark()
    ring = _ring(box, "cr")
    wide = text_width(words, _CRASH_SIZE, bold=True) + 14
    left, y, above = box.x + (box.width - wide) / 2, box.y - 10, max(_CRASH_ABOVE - box.y, 4.0)
    if box.id == len(drawing.boxes) - 1:
        left, y, above = box.x + box.width + 14, box.y + HEAD_HEIGHT / 2 + 4, max(6.0 - box.y, 0.0)
    cross = f'<path class="cx" d="M{number(left)},{number(y - 8)}l8,8m0-8l-8,8"/>'
    text = f'<text class="cw" x="{number(left + 14)}" y="{number(y)}">{escape(words)}</text>'
    return Mark(ring + cross + text, left, left + wide, above)


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
    """A few words at a node: of a finding of that severity, where the first NaN or Inf began, where the run ended."""

    node: int
    words: str
    kind: Severity | Literal["born", "crash"]


Placed = tuple[NodeMark, Box, tuple[float, float] | None]  # a mark, its box, and where its words have a place


def born_marks(drawing: Drawing, graph: Graph, frame: Frame | None) -> Iterator[NodeMark]:
    """Yield the marks of boxes in which the first NaN or Inf appeared; a pass other than that of ``frame`` is named."""
    for place, first in nonfinite_by_box(drawing, graph).items():
        inside = drawing.boxes[place].kind in {"module", "repeat"}
        when = "" if frame is None or frame.pass_number == first.pass_number else f", pass {first.pass_number}"
        yield NodeMark(first.node, nonfinite_words(first, inside=inside) + when, "born")


def nonfinite_words(nonfinite: FirstNonfinite, *, inside: bool) -> str:
    """Return ``NaN born here``, or that it is ``in here``, inside of a box of many nodes."""
    what, place = "NaN" if nonfinite.nan else "Inf", "in here" if inside else "here"
    return f"{what} born {place}" + ("" if nonfinite.certain else ", or beside it")


def marks_of(report: TraceReport, graph: Graph) -> list[NodeMark]:
    """Return the marks of a graph, one a node: of its findings, then of what it saved and could not use now."""
    place = next(at for at, each in enumerate(report.graphs) if each.number == graph.number)
    taken = {nonfinite.node for nonfinite in graph.first_nonfinite}
    if report.failure is not None and report.failure.node is not None and report.failure.node[0] == place:
        taken.add(report.failure.node[1])
    marks: dict[int, NodeMark] = {}
    for finding in report.findings:
        if finding.node is not None and finding.node[0] == place and finding.code in _WORDS:
            words = _WORDS[finding.code].format(subject=finding.subject or "its input")
            marks.setdefault(finding.node[1], NodeMark(finding.node[1], words, finding.severity))
    # The nodes of an existing graph at which backward would fail, as it comes to them.
    for node in reversed(graph.nodes) if report.state == "drawn" else ():
        if slot := next((saved.name for saved in node.saved if saved.state == "changed in place"), ""):
            number = {"self": 0, "input": 0, "other": 1}.get(slot)
            made = (edge.target for edge in graph.edges if edge.source == node.index and edge.input_number == number)
            name = next((graph.nodes[at].variable for at in made), "")
            name = node.variable if slot in {"result", "output", "out"} else name
            marks.setdefault(node.index, NodeMark(node.index, f"{name or f'saved {slot}'} changed in place", "error"))
    return [mark for mark in marks.values() if mark.node not in taken]


Rectangle = tuple[float, float, float, float]  # left, top, right, bottom
_ASCENT, _DESCENT = 9.0, 3.0  # of words, from their baseline
_BESIDE, _HIGH = 8.0, 34.0  # from the box up to the baseline: at the height of the numbers, and above a line
_BELOW = 11.0  # and down to it
_BOX, _NUMBER, _WIRE, _EDGE = 4, 2, 1, 9  # how bad it is to cover a box or words, a number, a wire, or to lie outside


def words_around(x: float, y: float, half: float) -> Rectangle:
    """Return the rectangle that words take, whose baseline has its middle at a point."""
    return x - half, y - _ASCENT, x + half, y + _DESCENT


def word_place(
    drawing: Drawing, box: Box, half: float, others: Sequence[Rectangle] = (), *, numbered: bool = True
) -> tuple[float, float]:
    """Return the middle of the baseline for words at a box, ``half`` so wide: the first place where they cover nothing.

    Above the box, or below it; over its middle, or moved to a side. Where each place covers something, also ``others``,
    words that are there already, it is the one that covers least. ``numbered``: whether the box shows its number.
    """
    taken = [*_taken(drawing, box if not numbered else None), *((_BOX, each) for each in others)]
    aside = max(half - box.width / 2, 0.0)  # so far moved, the words end where the box does
    sides = (box.x + box.width / 2 + aside * share for share in (0.0, -0.5, 0.5, -1.0, 1.0, -1.3, 1.3))
    within = [min(max(x, half), max(drawing.width - half, half)) for x in sides]
    above = (ABOVE,) if numbered else (_BESIDE, ABOVE)
    heights = (*(box.y - up for up in above), box.y + box.height + _BELOW, box.y - _HIGH)
    places = [(x, y) for y in heights for x in within]
    return min(places, key=lambda place: _covered(words_around(place[0], place[1], half), taken))  # the first of equals


def _taken(drawing: Drawing, without_number: Box | None) -> Iterator[tuple[int, Rectangle]]:
    """Yield what words must not cover: boxes with their leaves, numbers over boxes, wires, what is outside."""
    yield _EDGE, (-math.inf, drawing.height + _BELOW + _DESCENT, math.inf, math.inf)
    yield _EDGE, (-math.inf, -math.inf, math.inf, -ABOVE - _ASCENT)
    for box in drawing.boxes:
        yield _BOX, (box.x, box.y, box.x + box.width, box.y + box.height)
        if box is not without_number:
            yield _NUMBER, (box.x, box.y - 16, box.x + box.width, box.y - 4)
    for line in (*drawing.wires, *drawing.detachment):
        for (x, y), (end, low) in pairwise(line.points):
            steps = 1 if x == end or y == low else min(int(abs(low - y) / 8) + 1, 40)  # a slanting one is no rectangle
            points = [(x + (end - x) * at / steps, y + (low - y) * at / steps) for at in range(steps + 1)]
            for (one, top), (other, bottom) in pairwise(points):
                yield _WIRE, (min(one, other) - 2, min(top, bottom) - 2, max(one, other) + 2, max(top, bottom) + 2)


def _covered(words: Rectangle, taken: Iterable[tuple[int, Rectangle]]) -> int:
    left, top, right, bottom = words
    return sum(bad for bad, (x, y, end, low) in taken if x < right and end > left and y < bottom and low > top)


def placed_marks(drawing: Drawing, marks: Iterable[NodeMark]) -> list[Placed]:
    """Return marks with their boxes and the place of their words, None if they would cover others; one of a kind a box.

    Where a NaN or Inf began is always said, in the place of the number.
    """
    owner = {node: box for box in drawing.boxes for node in (*(badge.node for badge in box.badges), *box.nodes)}
    seen: set[tuple[int, bool]] = set()
    texts: list[Rectangle] = []
    placed: list[Placed] = []
    for mark in marks:
        box, born = owner.get(mark.node), mark.kind == "born"
        if box is None or (box.id, born) in seen:
            continue
        seen.add((box.id, born))
        half = text_width(f"◆ {mark.words}", _WORDS_SIZE, bold=True) / 2
        place = word_place(drawing, box, half, texts, numbered=not born)
        around = words_around(*place, half)
        free = born or not _covered(around, ((_BOX, other) for other in texts))
        texts += [around] if free else []
        placed.append((mark, box, place if free else None))
    return placed


def marks_svg(placed: Iterable[Placed]) -> str:
    """Return a frame round each box that holds a marked node, and words at it."""
    parts = []
    for mark, box, place in placed:
        kind = "error" if mark.kind in {"error", "born"} else "warning"
        parts.append(_ring(box, f"k{kind}"))
        if place is not None:
            at = f'x="{number(place[0])}" y="{number(place[1])}"'
            parts.append(f'<text class="j{kind} c o" {at}>{escape(f"◆ {mark.words}")}</text>')
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
    def style(self) -> str:
        """How it is drawn.

        Returns:
            ``"bad"``: it is not finite; ``"none"``: no gradient came; ``"blind"``: one came that could not be measured;
            else the level ``"0"`` … ``"5"`` of its norm.
        """
        if self.nan or self.inf or not math.isfinite(self.norm):
            return "bad"
        if not measured(self.norm):
            return "blind" if touched(self.norm) else "none"
        return str(norm_level(self.norm, self.scale))

    @property
    def bad(self) -> bool:
        """Whether it is not finite."""
        return self.style == "bad"

    @property
    def untouched(self) -> bool:
        """Whether no gradient came."""
        return self.style == "none"

    @property
    def number(self) -> str:
        """What is written over a box: the norm, or the count of what is not finite; empty where no gradient came."""
        known = bad_text(self.nan, self.inf) if self.nan or self.inf else norm_text(self.norm)
        return {"none": "", "blind": "?"}.get(self.style, known)

    @property
    def text(self) -> str:
        """What it is, in words."""
        words = {"bad": self.number, "none": "no gradient", "blind": f"gradient {NOT_MEASURABLE}"}
        return words.get(self.style, f"gradient norm {self.number}")


def value_of(nodes: Iterable[int], frame: Frame | None, scale: tuple[int, int] = NORM_EXPONENTS) -> Value:
    """Return the value of a box over ``nodes``, or of a leaf, in the pass of ``frame``."""
    if frame is None:
        return Value()
    came, fine = UNTOUCHED, (0, 0)  # neither NaN nor Inf
    for node in nodes:
        norm = frame.norms[node] if node < len(frame.norms) else UNTOUCHED
        counts = frame.bad.get(str(node), fine) if frame.bad else fine
        if counts != fine or not math.isfinite(norm):
            return Value(norm, *counts, scale)
        came = norm if not touched(came) else came
    return Value(came, scale=scale)


_MOST_SCALED = 48  # frames of a graph that its scale is made of


def run_scale(report: TraceReport) -> tuple[int, int]:
    """Return the scale of a run's norms, from passes of all its graphs."""
    frames = (frame for graph in report.graphs for frame in graph.frames[:: len(graph.frames) // _MOST_SCALED + 1])
    every = ([norm for norm in frame.norms if 0 < norm < math.inf] for frame in frames)
    return norm_scale(chain.from_iterable((least_of(known), max(known)) for known in every if known))


def shown_frame(graph: Graph) -> Frame | None:
    """Return the pass that is shown first: in which something was born, else the last; None where none was kept."""
    born = min((nonfinite.pass_number for nonfinite in graph.first_nonfinite), default=-1)
    return next((frame for frame in graph.frames if frame.pass_number == born), next(reversed(graph.frames), None))


def forward_mark(graph: Graph) -> FirstNonfinite | None:
    """Return the place at which a forward was not finite first, to mark it; None where none is known.

    What went wrong in the forward is older than what its backward makes of it. Of a leaf, or data, it is the op that
    used it.
    """
    first = graph.nonfinite_source
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
