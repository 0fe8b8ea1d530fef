"""The words for the ends of the gradient's way, the same in the terminal, the tables and the panel."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tensormagic.renderers.graph.graph_words import op_label, shape_text
from tensormagic.words import count, plural

if TYPE_CHECKING:
    from tensormagic.reports import Cut, Graph, TraceReport

NO_WAY_BACK = "backward was called on a value without a graph; it was cut here:"
DETACHED_SIGN = "//"


def cut_label(cut: Cut) -> str:
    """Return what ended the way, in short: ``detach, line 10``."""
    return f"{cut.op}, line {cut.line}" if cut.line else cut.op


def cut_place(report: TraceReport, cut: Cut) -> str:
    """Return the same, with its file where that is not the traced cell: ``detach, model.py, line 10``."""
    place = report.location(cut.location)
    if place is None or place.filename == report.cell.filename:
        return cut_label(cut)
    return f"{cut.op}, {place.label}"


def cut_source(report: TraceReport, graph: Graph, cut: Cut) -> str:
    """Return what went in: ``relu (line 8)``, ``net.fc.weight``, ``mul (line 3) of an earlier pass``."""
    name = cut.source_name if cut.source is None else _name(graph, cut.source)
    place = report.location(cut.source_location)
    line = f" (line {place.line})" if place is not None else ""
    return f"{name or 'a value'}{line}{' of an earlier pass' if cut.earlier else ''}"


def cut_target(graph: Graph, cut: Cut) -> str:
    """Return what used it: ``linear, input 1``; for what was only read, ``read``."""
    if cut.target is None:
        return "only read"
    if cut.selects:
        return f"only selects elements in {_name(graph, cut.target)}"
    where = f", input {cut.input_number}" if cut.input_number is not None else ""
    return f"{_name(graph, cut.target)}{where}"


def cut_value(cut: Cut) -> str:
    """Return what came out: ``32×10 float32``, ``float``."""
    return f"{shape_text(cut.shape)} {cut.dtype}" if cut.shape else cut.dtype


def cut_sentence(report: TraceReport, graph: Graph, cut: Cut) -> str:
    """Return one line about a cut: ``detach, line 10: relu (line 8) // linear, input 1, 32×10 float32, 3 times``."""
    between = DETACHED_SIGN if cut.detachment else "→"
    ends = f"{cut_source(report, graph, cut)} {between} {cut_target(graph, cut)}"
    times = f", {count(cut.count)} times" if cut.count > 1 else ""
    return f"{cut_place(report, cut)}: {ends}, {cut_value(cut)}{times}"


def ended_sentence(report: TraceReport, cut: Cut) -> str:
    """Return one line about a value that backward was called on, although its way had ended."""
    place = report.location(cut.source_location)
    source = f"{cut.source_name or 'a value'}{f' (line {place.line})' if place is not None else ''}"
    return f"{cut_place(report, cut)}: {source} {DETACHED_SIGN} backward, {cut_value(cut)}"


def cut_heading(graph: Graph) -> str:
    """Return how many there are: ``2 cuts in the graph; 1 value only read or used as a mask or index``."""
    detachment = sum(cut.detachment for cut in graph.cuts)
    others = len(graph.cuts) - detachment
    parts = [f"{plural(detachment, 'cut')} in the graph"] if detachment else []
    parts += [f"{plural(others, 'value')} only read or used as a mask or index"] if others else []
    return "; ".join(parts)


def cut_sentences(report: TraceReport, graph: Graph, most: int) -> Iterator[str]:
    """Yield a line for each cut, one for those that read the same, at most ``most``; and one for those left out."""
    described = Counter(cut_sentence(report, graph, cut) for cut in graph.cuts)
    for sentence, places in list(described.items())[:most]:
        yield sentence if places == 1 else f"{sentence}, at each of {count(places)} places"
    if len(described) > most:
        yield f"{count(sum(list(described.values())[most:]))} more"


def _name(graph: Graph, index: int) -> str:
    node = graph.nodes[index]
    return node.variable or op_label(node)
