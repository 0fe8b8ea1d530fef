"""A traced run: the panel (findings, graph, cuts, forward values, norms, operations), and the page with its viewer."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tensormagic.views import to_html, to_svg
from tensormagic.views.graph.cuts import cut_heading, cut_sentence, cut_sentences
from tensormagic.views.graph.drawing import draw
from tensormagic.views.graph.marks import Crash, value_of, with_crash
from tensormagic.views.markup import packed, svg_image, tag
from tensormagic.views.nodes import Bar, Cell, Column, Findings, Node, Panel, Paragraph, Section, Table, Words, table_of
from tensormagic.views.page.document import SAVED_LIMITS, trace_document
from tensormagic.views.page.viewer_words import VIEWER_WORDS
from tensormagic.views.panels import refused_call
from tensormagic.views.panels.trace_words import UNTITLED, all_clear, bad_text, run_lines, run_text, touched
from tensormagic.views.pictures.gradient_graph import EndedGraph, GradientGraph
from tensormagic.views.pictures.norms import Norms
from tensormagic.views.theme import code_of, heat_style, loader, module, sheet, static
from tensormagic.views.to_html import finding_html, fold, folds, scroll
from tensormagic.words import DOT, count, number_of_bytes, percent, plural, seconds_text, short_number, shortened

if TYPE_CHECKING:
    from tensormagic.reports import ForwardNonfinite, ForwardValues, Graph, Total, TraceReport

_MOST_BOXES = 40  # whose forward values are shown
_MOST_CUTS = (60, 8)  # in a page, in a terminal
_LABEL = 36  # characters of a line


def view(report: TraceReport) -> Panel:
    """Return the panel of a traced run, below that of the call that ended it."""
    ended, report = refused_call.top_of(report, report.failure) if report.failure is not None else (None, report)
    run = panel(report)
    return run if ended is None else replace(ended, after=(*ended.after, run))


def panel(report: TraceReport, picture: GradientGraph | None = None) -> Panel:
    """Return the panel of a traced run alone, its operations last; ``picture`` is its graph, drawn in its own way."""
    clear = all_clear(report)
    refused = report.failure is not None  # the call above is the finding
    body: list[Node] = [
        Findings(report.findings, report.gaps, "" if refused else clear),
        Paragraph(clear if refused and not report.findings else "", "quiet"),
        picture or GradientGraph(*with_crash(report)),
        *_cuts(report), _forward(report), Norms(report), _operations(report),
    ]  # fmt: skip
    ended = f"{report.state}: {report.error}" if report.error else report.state
    state = Words(ended, "error") if report.state in {"failed", "interrupted"} else ended
    return Panel("trace", "graph", report.title or UNTITLED, [state, Words(run_text(report), "quiet")], body,
                 second=list(run_lines(report)))  # fmt: skip


def _cuts(report: TraceReport) -> Iterator[Section]:
    """Yield where the way of the gradient ends: before a backward, and in the graph that is shown."""
    columns = (Column(), Column(look="code", in_terminal=False))
    if report.cuts:
        rows = [(cut_sentence(report, None, cut), "") for cut in report.cuts]
        yield Section("Cuts", [Table(columns, rows)], "backward was called on a value without a graph; it was cut here",
                      folded=True)  # fmt: skip
    graph = report.graphs[0] if report.graphs else None
    if graph is not None and graph.cuts:
        places = ((sentence, report.location(at)) for sentence, at in cut_sentences(report, graph))
        rows = [(sentence, place.text if place is not None else "") for sentence, place in places]
        yield Section("Cuts", [Table(columns, rows, most=_MOST_CUTS)], cut_heading(graph), folded=True)


def _forward(report: TraceReport) -> Section:
    """Return what the forward made, a line a box, with the gradient beside it; nothing where that was not asked for."""
    measured = [(graph, frame) for graph in report.graphs[:1] for frame in graph.frames if frame.forward is not None]
    if not measured:
        return Section("", [])
    graph, frame = measured[-1]  # the newest
    boxes = draw(graph, max_boxes=_MOST_BOXES, inside=False).boxes
    rows = []
    for box in boxes:  # a box has the value that it hands on: that of the first of its nodes seen
        found = (forward_numbers(frame.forward, node) for node in box.nodes if frame.forward is not None)
        numbers = next((each for each in found if each is not None), None)
        gradient = value_of(box.nodes, frame).text.removeprefix("gradient norm ").removeprefix("gradient ")
        rows += [(box.label, *numbers, gradient)] if numbers is not None else []
    unseen = len(boxes) - len(rows)
    body: list[Node] = [Table(_FORWARD, rows, most=(_MOST_BOXES, _MOST_BOXES))]
    body += [f"{plural(unseen, 'box', 'boxes')} without a recorded value"] if unseen else []
    body += [nonfinite_text(report, graph, graph.forward_nonfinite)] if graph.forward_nonfinite is not None else []
    note = f"pass {frame.pass_number}, input to loss, and the gradient received"
    return Section("Forward values", body, note, folded=True)


_NUMBERS = ("norm", "|max|", "mean", "std", "zeros", "gradient")
_FORWARD = (Column("box", look="name"), *(Column(name, look="number") for name in _NUMBERS))


def forward_numbers(values: ForwardValues, index: int) -> tuple[str, ...] | None:
    """Return norm, largest magnitude, mean, deviation and share of zeros of a node; None where it was not seen."""
    norm = values.norms[index]
    if not touched(norm):
        return None
    largest, mean, std, zero = values.measures[index * 6 : index * 6 + 4]
    numbers = (norm, abs(largest), mean, std)
    first, *rest = ["–" if math.isnan(value) else short_number(value) for value in numbers]
    bad = values.bad.get(str(index))
    return (bad_text(*bad) if bad else first, *rest, percent(zero) if zero > 0 else "")


def nonfinite_text(report: TraceReport, graph: Graph, nonfinite: ForwardNonfinite) -> str:
    """Return where the forward first made a NaN or Inf, and whether one went in."""
    node = graph.nodes[nonfinite.node]
    place = report.location(node.location)
    where = f", {place.label}: {place.text}" if place is not None else ""
    given = {True: " its inputs already held some", False: " its inputs were finite", None: ""}[nonfinite.given]
    made = f"{bad_text(nonfinite.nan, nonfinite.inf)} of {nonfinite.count}"
    forward = f"the forward of pass {nonfinite.pass_number}"
    return f"{forward} first produced {made} in {node.op}{where}{given and ';'}{given}"


def _operations(report: TraceReport) -> Section:
    """Return where the time went: by line of the user's, and by operation, the longest first."""
    ops = report.ops
    if ops is None or not ops.uses:
        return Section("", [])
    whole = ops.total.seconds
    written = {short_name(use.op): use.mutated[0] for use in reversed(ops.uses) if use.mutations}
    lines = []
    for at, total in ops.by(lambda use: use.location):
        place = report.location(at)
        label = "line unknown" if place is None else f"{place.label}: {place.text}".rstrip(": ")
        lines.append((label, total, ""))
    names = [(name, total, written.get(name, "")) for name, total in ops.by(lambda use: short_name(use.op))]
    phases = ops.by(lambda use: use.phase)  # forward 41 %, backward 37 %, optimizer 20 %, other 2 %
    remarks = [", ".join(f"{phase} {percent(total.seconds, whole)}" for phase, total in phases)]
    if ops.is_launch_time:
        remarks.append("time on the host; for an accelerator, the time to launch an operation, not to run it")
    missing, share = plural(ops.unattributed.calls, "call"), percent(ops.unattributed.seconds, whole)
    unknown = f"the line is unknown for {missing}, {share} of the time"
    remarks.append(unknown if ops.unattributed.calls else "every call has its line")
    body: list[Node] = [
        Paragraph("; ".join(remarks), "quiet"),
        table_of(_columns("line", whole, "name code"), lines, most=(10, 6), label="Operations by line"),
        table_of(_columns("operation", whole, "name"), names, most=(20, 10), label="Operations"),
    ]
    notes = [f"{plural(ops.total.calls, 'call')} in {seconds_text(whole)}"]
    notes.append(f"{number_of_bytes(ops.total.nbytes)} allocated")
    notes += [plural(ops.total.mutations, "write")] if ops.total.mutations else []
    return Section("Operations", body, f" {DOT} ".join(notes), folded=True)


def _columns(title: str, whole: float, look: str) -> tuple[Column, ...]:
    """Return the columns of a table of operations, whose rows are a label, a total and what was written."""

    def label(row: tuple[str, Total, str]) -> Cell:
        short = shortened(row[0], _LABEL)
        return Words(short, "code", "" if short == row[0] else row[0]) if "code" in look else short

    def number(name: str, amount: Callable[[Total], float], text: Callable[[Any], str]) -> Column:
        return Column(name, lambda row: text(amount(row[1])) if amount(row[1]) else "", "number")

    def writes(row: tuple[str, Total, str]) -> str:
        _, total, to = row
        return f"{count(total.mutations)}{to and f' to {to}'}" if total.mutations else ""

    return (
        Column(title, label, look),
        number("calls", lambda total: total.calls, count),
        number("time", lambda total: total.seconds, seconds_text),
        Column("share", lambda row: Bar(row[1].seconds / (whole or 1)), "silent", in_terminal=False),
        number("share", lambda total: total.seconds, lambda seconds: percent(seconds, whole)),
        number("forward", lambda total: total.forward_seconds, seconds_text),
        number("backward", lambda total: total.backward_seconds, seconds_text),
        number("memory", lambda total: total.nbytes, number_of_bytes),
        Column("writes", writes, "number"),
    )


def short_name(op: str) -> str:
    """Return an operation as people write it: ``aten.add_.Tensor`` is ``add_``; other namespaces keep their name."""
    namespace, _, rest = op.partition(".")
    name = rest.partition(".")[0]
    return op if not rest else name if namespace == "aten" else f"{namespace}.{name}"


# -- the page ----------------------------------------------------------------------------------------------------------

# What stays in a notebook: one self-contained HTML fragment, readable with scripts and without. The picture and the
# tables hold all the information; where scripts run, the viewer takes the picture's place and reads the same report
# from a packed document beside it. Nothing is requested from anywhere, and the fragment holds no id, so that the same
# output stands on a page twice without a quarrel.

PICTURE_BYTES = 14_000  # the picture is not compressed: a larger one is folded further
# Bytes that an output may take, without its plain text (some 8,000 more): of a small graph, and for each node beyond.
ROOM, SMALL, ROOM_PER_NODE = 114_000, 200, 100
# What is kept of the passes where there is not enough room for all that usually is.
LESS = (
    SAVED_LIMITS,
    replace(SAVED_LIMITS, frame_values=2_000, measure_values=1_500, series_values=1_500),
    replace(SAVED_LIMITS, frame_values=400, measure_values=0, series_values=300),
)


def render(report: TraceReport, *, wall: bool = False) -> str:
    """Return the fragment: header, findings, picture, tables, and the viewer that makes them one live panel.

    On a ``wall``, for slides, there is what was found, and the graph; nothing that is read from near.
    """
    ended, report = refused_call.top_of(report, report.failure) if report.failure is not None else (None, report)
    report, crash = with_crash(report)
    place = report.failure.node if report.failure is not None else None
    if ended is not None and place is not None and not place[0]:  # the first graph, drawn below, is marked there
        ended = replace(ended, body=[node for node in ended.body if not isinstance(node, EndedGraph)])
    failure = to_html.top(ended) if ended is not None else ""
    style, picture = tag("style", sheet("trace.css")), tag("div", _picture(report, crash), class_="tm-static")
    view = panel(report, GradientGraph(report, crash, tips=False))
    if wall:
        rows = (finding_html(each, is_open=True) for each in report.findings)
        top = replace(_top(view), body=[]) if report.findings else _top(view)
        found = tag("div", *rows, class_="tm-find") if report.findings else ""
        parts = (style, failure, *to_html.inside(top), found, picture)
    else:
        parts = (style, failure, picture, _below(view))
    nodes = sum(len(graph.nodes) for graph in report.graphs)
    taken = sum(map(len, (*(part.encode() for part in parts), viewer_code(), loader())))
    room = ROOM + ROOM_PER_NODE * max(nodes - SMALL, 0) - taken
    for limits in LESS:  # fewer of the passes where they would not fit
        document = trace_document(report, limits=limits, crash=crash) | ({"wall": True} if wall else {})
        del document["words"]  # which come with the viewer
        read = packed(json.dumps(document, allow_nan=False, separators=(",", ":")))
        if len(read) <= room:
            break
    carried = tag("script", read, type="text/plain", class_="tm-document")
    return tag("section", *parts, viewer_code(), carried, loader(), class_="tm tm-trace", data_tm_waiting="")


def render_static(report: TraceReport) -> str:
    """Return header, findings and picture alone, no tables, no script: what a running cell shows without widgets."""
    report, crash = with_crash(report)
    shown = tag("div", _picture(report, crash), class_="tm-static")
    return tag("section", tag("style", sheet("trace.css")), shown, class_="tm tm-trace")


def viewer_style() -> str:
    """Return the whole style sheet of the viewer: the tokens, the rules of the panel, and its own."""
    return sheet("trace.css", "trace_viewer.css") + heat_style()


def viewer_module() -> str:
    """Return the viewer's module source, in one piece."""
    return module("trace/viewer.js")


def viewer_code() -> str:
    """Return the element that carries the viewer for outputs that stay, with the rules that the panel has not yet."""
    beside = f"{json.dumps(static('trace_viewer.css') + heat_style())}, {json.dumps(VIEWER_WORDS)}"
    mount = f"(panel, unpacked, key) => mountSaved(panel, unpacked, key, {beside})"
    return code_of("trace", "trace/saved.js", mount=mount, beside=sheet("trace.css"))


def _picture(report: TraceReport, crash: Crash | None) -> str:
    """Return the panel as an ``<img>``, its graph folded further where it would be too large."""
    for boxes in (SAVED_LIMITS.boxes, 24, 16):
        whole = boxes == SAVED_LIMITS.boxes
        drawing = draw(report.graphs[0], max_boxes=boxes, inside=whole) if report.graphs else None
        graph = GradientGraph(report, crash, drawing=drawing, tips=False)
        svg = to_svg.render(panel(report, graph))
        if len(svg) <= PICTURE_BYTES or not report.graphs:
            break
    return svg_image(svg.replace(".tms .", "."), graph.sentence)  # nothing else stands in this picture


def _top(view: Panel) -> Panel:
    """Return the panel less its pictures and what is folded."""
    return replace(view, body=[node for node in view.body if isinstance(node, Findings | Paragraph)])


def _below(view: Panel) -> str:
    """Return what is one click away: the operations, and all of the run as text and tables."""
    *body, operations = view.body
    others = [replace(node, folded=False) if isinstance(node, Section) else node for node in body]
    table = to_html.html(operations)
    style = tag("style", static("view.css")) if table else ""
    words = scroll("The run as text", *to_html.inside(replace(view, body=others)))
    below = folds(table, fold("As text", words, state="findings, parameters, nodes, passes"))
    return style + below.replace("</td>", "").replace("</tr>", "")  # HTML closes them itself
