"""The document that the trace viewer reads, live and saved alike; what changes between two of them is in columns.py.

The viewer is a browser module; it knows no Python and no report. What it shows is fixed here, as plain JSON: a widget
has both from one kernel, and an output names the very viewer that it needs (`theme.code_of`). Nothing is left out
silently: where passes, graphs or parameters are too many for one output, ``notes`` say how many of how many are here.
"""

from __future__ import annotations

import math
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from tensormagic.views.graph import marks
from tensormagic.views.graph.cuts import cut_label, cut_sentence
from tensormagic.views.graph.drawing import BADGE_SIZE, CUT_INDENT, DETAIL_SIZE, LABEL_SIZE, Drawing, badge_rows, draw
from tensormagic.views.graph.words import gradient_text, value_text, whole_shape, wire_text
from tensormagic.views.markup import fitted, made_once
from tensormagic.views.nodes import listing
from tensormagic.views.page import columns
from tensormagic.views.page.viewer_words import VIEWER_WORDS
from tensormagic.views.panels import trace_words
from tensormagic.views.pictures.gradient_graph import trace_alternative
from tensormagic.words import count, evidence_text, plural, short_number

if TYPE_CHECKING:
    from tensormagic.reports import Finding, FirstNonfinite, Graph, Location, Node, TraceReport


Draw = Callable[..., Drawing]  # of a graph, with at most about ``max_boxes``


@dataclass(frozen=True, slots=True)
class Limits:
    """How much one document may hold; of a small run less, so that it stays small."""

    boxes: int = 32  # Drawn boxes of one graph.
    frame_values: int = 16_000  # Norms in all frames of all graphs together; of graphs below 2,000 nodes fewer.
    measure_values: int = 8_000  # Other numbers about gradients, in all frames of all graphs together; likewise.
    series_values: int = 10_000  # Norms in all parameters' series together; of less than 300 parameters fewer.
    parameters: int = 300  # Parameters with a series.
    graphs: int = 8  # Graphs.
    nodes: int = 6_000  # Nodes of all graphs together; the first graph is always whole.


SAVED_LIMITS = Limits()
LIVE_LIMITS = Limits(frame_values=4_000, measure_values=0)


@made_once()
def trace_document(
    report: TraceReport,
    *,
    limits: Limits = SAVED_LIMITS,
    draw: Draw = draw,
    crash: marks.Crash | None = None,
) -> dict[str, Any]:
    """Return everything the viewer shows of ``report`` as JSON-ready data.

    Args:
        report: A finished run, or a snapshot of a running one.
        limits: How much to keep; what is left out is said in ``notes``.
        draw: Lays a graph out, with at most about ``max_boxes``.
        crash: Where the run ended, as `with_crash` found it.
    """
    builder, running = _Builder(report, limits, draw, crash), report.state == "running"
    seen = len(report.parameters)
    some = f"{count(limits.parameters)} of " if limits.parameters < seen else ""
    none = "No parameter has received a gradient yet." if running else "No parameter took part."
    return {
        "words": VIEWER_WORDS,
        "title": report.title or trace_words.UNTITLED,
        "state": report.state,
        "said": "" if running else trace_words.run_text(report),
        "verdict": trace_words.verdict(report),
        "rest": report.sampling.next_step if report.sampling is not None and report.sampling.paused else -1,
        "cost": trace_words.sampling_text(report) or trace_words.overhead_text(report),
        "below": list(trace_words.run_lines(report)),
        "scale": list(marks.run_scale(report)) if any(graph.frames for graph in report.graphs) else None,
        "seconds": columns.rounded(report.seconds),
        "passes_seen": report.passes_seen,
        "passes_traced": report.passes_traced,
        "steps_seen": report.steps_seen,
        "findings": [_finding(report, finding) for finding in report.findings],
        "graphs": builder.graphs(),
        "parameters": builder.parameters(),
        # above the charts, and in their place where there are none
        "parameters_said": [f"of {some}{plural(seen, 'parameter')}, log scale", none],
        "passes": builder.passes(),
        "locations": [[place.label, place.line, place.text] for place in report.locations],
        "source": builder.rows,
        "strings": list(builder.strings),
        "saved": list(map(list, builder.saved)),
        "notes": [*builder.cuts, *(f"{gap.section}: {gap.reason}" for gap in report.gaps)],
    }


def _finding(report: TraceReport, finding: Finding) -> dict[str, Any]:
    known = {(place.filename, place.line): at for at, place in reversed(list(enumerate(report.locations)))}

    def place_of(where: Location | None) -> int | None:
        return None if where is None else known.get((where.filename, where.line))

    where = finding.location
    return {
        **{name: getattr(finding, name) for name in ("code", "severity", "message", "remedy", "fix", "subject")},
        "where": where.label if where else "",
        "text": where.text if where else "",
        "location": place_of(where),
        "node": list(finding.node) if finding.node else None,
        "related": [[line.what, line.location.label, line.location.text, place_of(line.location)]
                    for line in finding.related],
        "evidence": evidence_text(finding.evidence),
    }  # fmt: skip


class _Builder:
    """The parts of one document that share the table of strings and the list of what was left out."""

    def __init__(self, report: TraceReport, limits: Limits, draw: Draw, crash: marks.Crash | None) -> None:
        self.report, self.limits, self.draw, self.crash = report, limits, draw, crash
        self.strings, self.saved = columns.Table(), columns.Table()
        located: dict[tuple[str, int], list[int]] = {}
        for at, place in enumerate(report.locations):
            located.setdefault((place.filename, place.line), []).append(at)
        self.rows: list[Row] = [
            [number, text.rstrip("\n"), located.get((filename, number), []) if number else []]
            for filename, number, text in listing(report.cell, report.locations, WHOLE)
        ]
        self.cuts: list[str] = []

    def graphs(self) -> list[dict[str, Any]]:
        kept: list[Graph] = []
        for graph in self.report.graphs[: self.limits.graphs]:
            if kept and sum(len(each.nodes) for each in (*kept, graph)) > self.limits.nodes:
                break
            kept.append(graph)
        self._cut(len(kept), len(self.report.graphs), "graphs are shown, the most used first")
        total = sum(len(graph.nodes) * len(graph.frames) for graph in kept)
        most = min(self.limits.frame_values, max(4_000, 8 * sum(len(graph.nodes) for graph in kept)))
        share = min(most / total, 1.0) if total else 1.0
        return [self._graph(graph, at, max(int(len(graph.frames) * share), 2)) for at, graph in enumerate(kept)]

    def _graph(self, graph: Graph, place: int, most: int) -> dict[str, Any]:
        frames = columns.thinned(
            graph.frames, most, keep=lambda one: bool(one.bad) or not all(map(math.isfinite, one.norms))
        )
        self._cut(len(frames), len(graph.frames), f"kept passes of graph {graph.number} are shown node by node")
        drawing = self.draw(graph, max_boxes=self.limits.boxes)
        crash = self.crash if self.crash is not None and self.crash.graph == place else None
        ended = [marks.NodeMark(crash.node, crash.words, "crash")] if crash is not None else []
        shown = [*ended, *marks.born_marks(drawing, graph, None), *marks.marks_of(self.report, graph)]
        placed = marks.placed_marks(drawing, shown)
        places = {node: place for mark, box, place in placed if place and mark.kind == "born" for node in box.nodes}
        counts = [node.statistics.count if node.statistics else 0 for node in graph.nodes]
        share = min(self.limits.measure_values, max(2_500, 4 * len(graph.nodes))) // len(self.report.graphs)
        rows = columns.frame_rows(frames, share, counts)
        said = {one.number: trace_words.pass_text(one) for one in self.report.passes}
        for row, frame in zip(rows, frames, strict=True):
            if (values := frame.values) is not None:  # of a small graph: in each node, over it, and on each wire
                wires = [wire_text(graph, values, wire.edges) for wire in drawing.wires]
                row["values"] = [[*map(value_text, values.made)], [*map(gradient_text, values.gradients)], wires]
            row["said"] = said.get(row["pass"], f"pass {row['pass']}")
        described, edges = {row["pass"] for row in rows if "measures" in row}, columns.edge_columns(graph.edges)
        refused = crash is not None and not graph.passes_seen
        passes = "up to the refused call" if refused else plural(graph.passes_seen, "pass", "passes")
        return {
            "number": graph.number,
            # by which the viewer knows a graph again: the same where its nodes and edges are the same
            "likeness": zlib.crc32(repr(([(node.op, node.variable) for node in graph.nodes], edges)).encode()),
            "made": _made(self.rows, graph),
            "name": f"graph {graph.number}: {plural(len(graph.nodes), 'node')}, {passes}",
            "said": "" if self.report.state == "running" else trace_alternative(self.report, graph=place),
            "passes_seen": graph.passes_seen,
            "nodes": columns.node_columns(graph.nodes, self.strings, self.saved, described)
            | _cost_columns(self.report, graph),
            "edges": edges,
            "order": columns.steps(graph.order),
            "frames": rows,
            "shared_edges": list(graph.shared_edges),
            "first_nonfinite": [_nonfinite(one, places) for one in graph.first_nonfinite],
            "forward_mark": _nonfinite(mark, places) if (mark := marks.forward_mark(graph)) is not None else None,
            "marks": [_mark(one, at) for one, _, at in placed if one.kind not in {"born", "crash"}],
            "crash": next((_mark(one, at) for one, _, at in placed if one.kind == "crash"), None),
            "drawing": _drawing(drawing),
            "ends": ends_document(self.report, graph, drawing),
            "parts": columns.part_columns(drawing, self.strings),
        }

    def parameters(self) -> list[dict[str, Any]]:
        kept = self.report.parameters[: self.limits.parameters]
        self._cut(len(kept), len(self.report.parameters), "parameters are shown")
        # Of each dotted name its shortest ending, of two parts or more, that no other name has.
        endings = [[one.name.split(".", before)[-1] for before in reversed(range(one.name.count(".")))] for one in kept]
        uses = Counter(chain.from_iterable(endings))
        places, rows = self._pass_places(), []
        for one, own in zip(kept, endings, strict=True):
            codes = [columns.norm_code(one.norms[at]) for at in places if at < len(one.norms)]
            moves = [trace_words.move_text(one.updates[at]) for at in places if at < len(one.updates)]
            row = {
                "name": one.name,
                "short": next((ending for ending in own if uses[ending] == 1), one.name),
                "said": f"{one.name}  {whole_shape(one.shape)}  {one.dtype}, {plural(one.numel, 'element')}",
                "requires_grad": one.requires_grad,
                "used": one.used,
                "norms": [code for (code,) in columns.code_changes([code] for code in codes)],
                "updates": moves if any(map(trace_words.touched, one.updates)) else [],
            }
            rows.append(row)
        return rows

    def passes(self) -> list[list[Any]]:
        rows = [self.report.passes[place] for place in self._pass_places()]
        self._cut(len(rows), len(self.report.passes), "kept passes are shown in the charts")
        return [[one.number, one.location, *((None, "") if one.value is None else
                                             (columns.rounded(one.value), short_number(one.value)))]
                for one in rows]  # fmt: skip

    def _pass_places(self) -> list[int]:
        passes = self.report.passes
        series = min(len(self.report.parameters), self.limits.parameters)
        most = max(min(self.limits.series_values, max(2_500, 32 * series)) // max(series, 1), 12)
        return columns.thinned(range(len(passes)), most, keep=lambda place: not passes[place].finite)

    def _cut(self, kept: int, total: int, what: str) -> None:
        if kept < total:
            self.cuts.append(f"{kept} of {total} {what}")


def _mark(mark: marks.NodeMark, place: tuple[float, float] | None) -> list[Any]:
    return [mark.node, mark.words, mark.kind, list(place or ())]


def _nonfinite(nonfinite: FirstNonfinite, places: Mapping[int, tuple[float, float]]) -> dict[str, Any]:
    return {
        "place": list(places.get(nonfinite.node, ())),
        "pass": nonfinite.pass_number,
        "node": nonfinite.node,
        "receiver": nonfinite.receiver,
        "words": [f"◆ {marks.nonfinite_words(nonfinite, inside=inside)}" for inside in (False, True)],
        "said": trace_words.first_nonfinite_text(nonfinite),
    }


def _drawing(drawing: Drawing) -> dict[str, Any]:
    boxes = []
    for box in drawing.boxes:
        place = map(columns.tenths, (box.x, box.y, box.width, box.height))
        label = fitted(box.label, box.width - 8, LABEL_SIZE, bold=True)
        detail = fitted(box.detail, box.width - 6, DETAIL_SIZE)
        badges = [[badge.node, fitted(badge.label, box.width - 18, BADGE_SIZE)] for badge in box.badges]
        shown = len(badge_rows(box.kind, box.badges)[0])
        boxes.append([*place, list(box.nodes), label, detail, box.kind, badges, shown])
    return {
        "width": columns.tenths(drawing.width),
        "height": columns.tenths(drawing.height),
        "note": drawing.note,
        "boxes": boxes,
        "wires": [[wire.source, wire.target, *columns.all_tenths(wire.points)] for wire in drawing.wires],
        "margin": columns.tenths(drawing.margin),
        "ends": [columns.tenths(end) for end in drawing.row_ends],
    }


# -- cuts -------------------------------------------------------------------------------------------------------------


def ends_document(report: TraceReport, graph: Graph, drawing: Drawing) -> dict[str, Any] | None:
    """Return the cuts of a graph and where they are drawn, each box identified by its place; None where there is none.

    Of each cut: source, target, whether it detaches, location, label, and the whole in one sentence. ``rows`` are the
    lines below boxes, then below parts inside: the box, or part, and for each line its words and its cuts.
    """
    if not graph.cuts:
        return None
    below = [(box.cuts, box.width) for box in drawing.boxes]
    below += [(part.cuts, part.size[0]) for part in drawing.inside[len(drawing.boxes) :]]
    return {
        "cuts": [
            [cut.source, cut.target, cut.detachment, cut.location, cut_label(cut), cut_sentence(report, graph, cut)]
            for cut in graph.cuts
        ],
        "wires": [[wire.source, wire.target, list(columns.all_tenths(wire.points)), wire.cut]
                  for wire in drawing.detachment],
        "rows": [[place, [[fitted(row.label, width - CUT_INDENT, BADGE_SIZE), list(row.cuts)] for row in rows]]
                 for place, (rows, width) in enumerate(below) if rows],
    }  # fmt: skip


# -- what operations took ---------------------------------------------------------------------------------------------

COST_COLUMNS = ("forward_seconds", "forward_bytes", "backward_seconds", "backward_bytes")


def _cost_columns(report: TraceReport, graph: Graph) -> dict[str, list[float]]:
    """Return a column for each of `COST_COLUMNS`, a mean a pass for each node; none where nothing was measured."""
    means = {name: getattr(costs, name) for costs in (report.ops.nodes if report.ops else ())
             if costs.graph == graph.number for name in COST_COLUMNS}  # fmt: skip
    # three significant digits: more are noise, and cost bytes
    return {name: [float(f"{value:.3g}") for value in values] for name, values in means.items() if any(values)}


# -- the source -------------------------------------------------------------------------------------------------------

WHOLE = 120  # a cell of at most so many lines is shown whole

Row = list[Any]  # [line number, text, location indices]; line 0 with a text: a heading; without: lines left out


def _made(rows: Iterable[Row], graph: Graph) -> dict[str, list[str]]:
    """Return what the calls on each row made: ``h: 64×128``, as the line calls it or else its op; the last one last."""
    calls: dict[int | None, list[Node]] = {}
    for node in graph.nodes:
        if node.kind != "accumulate" and node.shapes:
            calls.setdefault(node.location, []).append(node)
    made = {}
    for at, (_, text, places) in enumerate(rows):
        nodes = sorted(chain.from_iterable(calls.get(place, ()) for place in places), key=attrgetter("index"))
        names = [node.variable or node.op for node in nodes]
        given = re.match(r"\s*(\w+)\s*=(?!=)[^;]*;?\s*$", text)  # one statement
        if nodes and given and not nodes[-1].variable:
            names[-1] = given[1]
        shapes = (", ".join(map(whole_shape, node.shapes)).replace("()", "scalar") for node in nodes)
        if said := dict.fromkeys(f"{name}: {shape}" for name, shape in zip(names, shapes, strict=True)):
            made[str(at)] = list(said)
    return made
