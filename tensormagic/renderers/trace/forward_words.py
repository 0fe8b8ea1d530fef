"""The words for what the forward made: one row a node, with its gradient beside it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tensormagic.renderers.trace.trace_phrases import bad_text, touched
from tensormagic.words import percent, short_number

if TYPE_CHECKING:
    from tensormagic.reports import ForwardNonfinite, ForwardValues, Frame, Graph, TraceReport

COLUMNS = ("norm", "|max|", "mean", "std", "zeros")


def forward_frame(graph: Graph) -> Frame | None:
    """Return the newest kept pass whose forward was measured; None where forward values were not asked for."""
    return next((frame for frame in reversed(graph.frames) if frame.forward is not None), None)


def forward_numbers(values: ForwardValues, index: int) -> tuple[str, ...] | None:
    """Return the texts of `COLUMNS` for a node; None where its value was not seen."""
    norm = values.norms[index]
    if not touched(norm):
        return None
    if bad := values.bad.get(str(index)):
        return (bad_text(*bad), *_finite(values, index))
    return (value_text(norm), *_finite(values, index))


def _finite(values: ForwardValues, index: int) -> tuple[str, ...]:
    largest, mean, std, zero = values.measures[index * 6 : index * 6 + 4]
    return value_text(abs(largest)), value_text(mean), value_text(std), share_text(zero)


def value_text(value: float) -> str:
    """Return a number in four digits; ``–`` where there is none."""
    return "–" if math.isnan(value) else short_number(value)


def share_text(share: float) -> str:
    """Return a share in percent; empty for none."""
    return percent(share) if share > 0 else ""


def birth_text(report: TraceReport, graph: Graph, birth: ForwardNonfinite) -> str:
    """Return where the forward first made a NaN or Inf, and whether one went in."""
    node = graph.nodes[birth.node]
    place = report.location(node.location)
    where = f", {place.label}: {place.text}" if place is not None else ""
    given = {True: " its inputs already held some", False: " its inputs were finite", None: ""}[birth.given]
    made = f"{bad_text(birth.nan, birth.inf)} of {birth.count}"
    return f"the forward of pass {birth.pass_number} first produced {made} in {node.op}{where}{given and ';'}{given}"
