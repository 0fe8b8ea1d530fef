"""What one pass brought to every box of a drawing: a norm, something that is no number, or nothing.

The rule, here and in the live panel: a box has the gradient of the first of its nodes that was reached; where any of
its nodes got a NaN or an infinity, the box has it too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain

from tensormagic.reports import UNTOUCHED, FirstNonfinite, Frame, Graph, Node, TraceReport
from tensormagic.views.graph.drawing import Box, Drawing
from tensormagic.views.panels.trace_words import NOT_MEASURABLE, bad_text, measured, norm_text, touched
from tensormagic.views.theme import NORM_EXPONENTS, norm_level, norm_scale


@dataclass(frozen=True, slots=True)
class Value:
    """The gradient of a box or a badge in one pass.

    Attributes:
        norm: Its norm, `UNTOUCHED`, or `UNREADABLE`.
        nan: How many NaN it holds.
        inf: How many infinities it holds.
        scale: The scale of its colour: log10 of the norms at its ends.
    """

    norm: float = UNTOUCHED
    nan: int = 0
    inf: int = 0
    scale: tuple[int, int] = NORM_EXPONENTS

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
    born = min((birth.pass_number for birth in graph.first_nonfinite), default=-1)
    return next((frame for frame in graph.frames if frame.pass_number == born), last_frame(graph))


def last_frame(graph: Graph) -> Frame | None:
    """Return the last kept pass, or None where none was kept."""
    return graph.frames[-1] if graph.frames else None


def forward_mark(graph: Graph) -> FirstNonfinite | None:
    """Return the place at which a forward was not finite first, as a birth to mark; None where none is known.

    What went wrong in the forward is older than what its backward makes of it. Of a leaf, or data, it is the op that
    used it.
    """
    first = graph.first_bad
    if first is None or any(birth.pass_number < first.pass_number for birth in graph.first_nonfinite):
        return None
    users = [edge.source for edge in graph.edges if edge.target == first.node] if first.source == "leaf" else []
    node = min(users, default=first.node)
    return FirstNonfinite(
        first.pass_number, node, node, 0, first.nan, first.inf, first.count, 0.0, certain=first.certain
    )


def births_by_box(drawing: Drawing, graph: Graph) -> dict[int, FirstNonfinite]:
    """Return the first birth in each box that has one; of what the forward held already, the place of that alone."""
    owner = {node: box.id for box in drawing.boxes for node in box.nodes}
    found: dict[int, FirstNonfinite] = {}
    older = forward_mark(graph)
    for birth in graph.first_nonfinite if older is None else (older,):
        if birth.node in owner:
            found.setdefault(owner[birth.node], birth)
    return found


def main_node(box: Box, graph: Graph) -> Node:
    """Return the node that speaks for the box."""
    return graph.nodes[box.nodes[0]]
