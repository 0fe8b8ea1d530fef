"""The ends of the gradient's way, as the viewer reads them: in words, and where they stand in the drawing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tensormagic.renderers.basics.text_metrics import fitted
from tensormagic.renderers.graph.graph_drawing import BADGE_SIZE, CUT_INDENT, Drawing
from tensormagic.renderers.trace.cut_words import cut_label, cut_sentence

if TYPE_CHECKING:
    from tensormagic.reports import Cut, Graph, TraceReport


def ends_document(report: TraceReport, graph: Graph, drawing: Drawing) -> dict[str, Any] | None:
    """Return the cuts of a graph and where they are drawn, each box identified by its place; None where there is none.

    Of each cut: source, target, whether it is severed, location, label, and the whole in one sentence.
    """
    if not graph.cuts:
        return None
    return {"cuts": [_row(report, graph, cut) for cut in graph.cuts], **_drawn(graph, drawing)}


def _row(report: TraceReport, graph: Graph, cut: Cut) -> list[Any]:
    words = cut_sentence(report, graph, cut)
    return [cut.source, cut.target, cut.detachment, cut.location, cut_label(cut), words]


def _drawn(graph: Graph, drawing: Drawing) -> dict[str, Any]:
    """Return the lines under boxes, the severed wires, and the stubs."""
    places = {box.id: place for place, box in enumerate(drawing.boxes)}
    rows = [
        [places[box.id], [[fitted(row.label, box.width - CUT_INDENT, BADGE_SIZE), list(row.cuts)] for row in box.cuts]]
        for box in drawing.boxes
        if box.cuts
    ]
    wires = [
        [places[wire.source], places[wire.target], [round(value, 1) for at in wire.points for value in at], wire.cut]
        for wire in drawing.detachment
    ]
    stubs = [
        [places[box], list(cuts), any(graph.cuts[cut].detachment for cut in cuts)]
        for box, cuts in drawing.stubs.items()
    ]
    return {"rows": rows, "wires": wires, "stubs": stubs}
