"""A traced run as plain HTML tables: what a host without scripts and pictures still shows, and a reader can copy."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from tensormagic.renderers.basics.markup import escape, tag
from tensormagic.renderers.document.columns import shape_text
from tensormagic.renderers.graph.words import (
    NO_WAY_BACK,
    cut_heading,
    cut_place,
    cut_source,
    cut_target,
    cut_value,
    ended_sentence,
)
from tensormagic.renderers.trace.circumstances import circumstances_text
from tensormagic.renderers.trace.forward_words import COLUMNS, birth_text, forward_frame, forward_numbers
from tensormagic.renderers.trace.parallel_phrases import last_used
from tensormagic.renderers.trace.trace_phrases import NOT_MEASURABLE, measured, move_text, norm_text, touched
from tensormagic.words import plural, seconds_text, short_number

if TYPE_CHECKING:
    from tensormagic.reports import Cut, Frame, Graph, Node, ParameterSeries, Pass, TraceReport

MOST_PARAMETERS = 24
MOST_NODES = 24
MOST_PASSES = 8
MOST_CUTS = 60

Cells = Sequence[str]


def tables_html(report: TraceReport) -> str:
    """Return every table: parameters, cuts, nodes of the main graph, passes; each says how many it leaves out."""
    return _parameters(report) + _cuts(report) + _nodes(report) + _passes(report)


def _parameters(report: TraceReport) -> str:
    head: Cells = ("parameter", "shape", "dtype", "passes", "first", "last", "smallest", "largest")
    shown = report.parameters[:MOST_PARAMETERS]
    rows: list[Cells] = [_parameter_row(parameter) for parameter in shown]
    moves = [move_text(parameter) for parameter in shown]
    if any(moves):
        head, rows = (*head, "last update"), [(*row, move) for row, move in zip(rows, moves, strict=True)]
    steps = [last_used(parameter)[1] for parameter in shown]
    if any(map(touched, steps)):
        head = (*head, "last step used")
        rows = [(*row, norm_text(used) if touched(used) else "") for row, used in zip(rows, steps, strict=True)]
    return _table(f"Gradient norms of {_shown(len(rows), len(report.parameters), 'parameter')}", head, rows)


def _parameter_row(parameter: ParameterSeries) -> Cells:
    norms = [norm for norm in parameter.norms if touched(norm)]
    plain = (parameter.name, shape_text(parameter.shape), parameter.dtype, str(parameter.touched))
    if not parameter.requires_grad:
        return (*plain, "frozen", "", "", "")
    if not norms:
        return (*plain, "none" if parameter.used else "unused", "", "", "")
    finite = [norm for norm in norms if math.isfinite(norm) and measured(norm)]
    if not any(map(measured, norms)):
        return (*plain, NOT_MEASURABLE, NOT_MEASURABLE, "", "")
    ends = (min(finite), max(finite)) if finite else (math.nan, math.nan)
    return (*plain, *map(norm_text, (norms[0], norms[-1], *ends)))


def _cuts(report: TraceReport) -> str:
    graph = report.graphs[0] if report.graphs else None
    ended = _table(NO_WAY_BACK, ("cut",), [(ended_sentence(report, cut),) for cut in report.cuts])
    if graph is None or not graph.cuts:
        return ended
    head = ("cut", "what went in", "what used it", "value", "times", "source")
    rows = [_cut_row(report, graph, cut) for cut in graph.cuts[:MOST_CUTS]]
    title = cut_heading(graph) if len(rows) == len(graph.cuts) else f"{len(rows)} of {len(graph.cuts)} cuts"
    return ended + _table(title, head, rows)


def _cut_row(report: TraceReport, graph: Graph, cut: Cut) -> Cells:
    place = report.location(cut.location)
    ends = (cut_source(report, graph, cut), cut_target(graph, cut))
    return (cut_place(report, cut), *ends, cut_value(cut), str(cut.count), place.text if place else "")


def _nodes(report: TraceReport) -> str:
    if not report.graphs:
        return ""
    graph = report.graphs[0]
    frame = graph.frames[-1] if graph.frames else None
    rows = _node_rows(report, _most_telling(graph), frame)
    title = f"{_shown(len(rows), len(graph.nodes), 'node')} of graph {graph.number}"
    when = f", norms of pass {frame.pass_number}" if frame else ""
    head = ("node", "op", "result or leaf", "module", "shape", "norm", "line")
    if (forward := forward_frame(graph)) is None or forward.forward is None:
        return _table(title + when, head, rows)
    values = [forward_numbers(forward.forward, node.index) or ("",) * len(COLUMNS) for node in _most_telling(graph)]
    wide = [(*row[:5], *more, *row[5:]) for row, more in zip(rows, values, strict=True)]
    named = (*head[:5], *(f"value {name}" for name in COLUMNS), "gradient norm", "line")
    birth = birth_text(report, graph, graph.forward_birth) if graph.forward_birth is not None else ""
    described = f"{title}{when}, values of pass {forward.pass_number}{birth and f'; {birth}'}"
    return _table(described, named, wide)


def _most_telling(graph: Graph) -> Iterable[Node]:
    """The nodes to list: where NaN or Inf was born and went first, then the rest in order."""
    if len(graph.nodes) <= MOST_NODES:
        return graph.nodes
    born = {birth.node for birth in graph.first_nonfinite} | {birth.receiver for birth in graph.first_nonfinite}
    rest = [node.index for node in graph.nodes if node.index not in born]
    return (graph.nodes[index] for index in sorted([*born, *rest[: MOST_NODES - len(born)]]))


def _node_rows(report: TraceReport, nodes: Iterable[Node], frame: Frame | None) -> list[Cells]:
    """Return a row a node; the text of a line stands where the line is named first."""
    rows, sentence = [], set[int | None]()
    for node in nodes:
        rows.append(_node_row(report, node, frame, quoted=node.location not in sentence))
        sentence.add(node.location)
    return rows


def _node_row(report: TraceReport, node: Node, frame: Frame | None, *, quoted: bool) -> Cells:
    place = report.location(node.location)
    norm = norm_text(frame.norms[node.index]) if frame and node.index < len(frame.norms) else ""
    line = f"{place.label}: {place.text}" if place and quoted else place.label if place else ""
    return (str(node.index), node.op, node.variable, node.module, ", ".join(map(shape_text, node.shapes)), norm, line)


def _passes(report: TraceReport) -> str:
    last = sorted((*report.inner_passes, *report.passes), key=lambda one: one.number)[-MOST_PASSES:]
    rows = [_pass_row(report, one) for one in last]
    title = (
        f"{_shown(len(rows), seen, 'pass')}, the last ones"
        if (seen := report.passes_traced + report.inner_passes_seen) > len(rows)
        else "Passes"
    )
    return _table(
        title, ("pass", "step", "graph", "outcome", "time", "nodes reached", "loss", "all finite", "line"), rows
    )


def _pass_row(report: TraceReport, one: Pass) -> Cells:
    place = report.location(one.location)
    finite = "yes" if one.finite else "no"
    outcome = ", ".join(filter(None, (one.outcome, circumstances_text(report, one))))
    numbers = (str(one.number), str(one.step), str(one.graph), outcome)
    loss = short_number(one.value) if one.value is not None else ""
    return (*numbers, seconds_text(one.seconds), str(one.reached), loss, finite, place.label if place else "")


def _shown(shown: int, total: int, noun: str) -> str:
    everything = plural(total, noun, "passes" if noun == "pass" else "")
    return everything if shown == total else f"{shown} of {everything}"


def _table(title: str, head: Cells, rows: Sequence[Cells]) -> str:
    if not rows:
        return ""
    top = tag("thead", tag("tr", *(tag("th", name, scope="col") for name in head)))
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}' for cell in row)}" for row in rows)  # HTML closes them itself
    return tag("table", tag("caption", escape(title)), top, tag("tbody", body))
