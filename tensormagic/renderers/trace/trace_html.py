"""What stays in a notebook of a traced run: one self-contained HTML fragment, readable with scripts and without.

The picture and the tables hold all the information; where scripts run, the viewer takes the picture's place and reads
the same report from a packed document beside it. Nothing is requested from anywhere, and the fragment holds no id, so
that the same output stands on a page twice without a quarrel.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from tensormagic.renderers.alternatives.trace_alternative import trace_alternative
from tensormagic.renderers.assets import code, loader, module, static
from tensormagic.renderers.basics.markup import escape, packed, svg_image, tag
from tensormagic.renderers.basics.panel import all_clear as clear
from tensormagic.renderers.basics.panel import (
    explanation_html,
    finding_html,
    fold,
    folds,
    gaps_html,
    header,
    remedy_html,
    scroll,
)
from tensormagic.renderers.basics.theme import heat_style, sheet
from tensormagic.renderers.document.document import SAVED_LIMITS, Draw, trace_document
from tensormagic.renderers.graph.drawing import Drawing, draw
from tensormagic.renderers.graph.marks import Crash, with_crash
from tensormagic.renderers.trace import trace_svg
from tensormagic.renderers.trace.ops_html import operations_html
from tensormagic.renderers.trace.parallel_phrases import run_lines
from tensormagic.renderers.trace.trace_phrases import UNTITLED, all_clear, run_text, state_text
from tensormagic.renderers.trace.trace_tables import tables_html
from tensormagic.views import to_html
from tensormagic.views.panels import refused_call

if TYPE_CHECKING:
    from tensormagic.reports import Graph, TraceReport

PICTURE_BYTES = 14_000  # the picture is not compressed: a larger one is folded further
PICTURE_BOXES = (SAVED_LIMITS.boxes, 24, 16)
# Bytes that an output may take, without its plain text (some 8,000 more): of a small graph, and for each node beyond.
ROOM, SMALL, ROOM_PER_NODE = 114_000, 200, 100
# What is kept of the passes where there is not enough room for all that usually is.
LESS = (
    SAVED_LIMITS,
    replace(SAVED_LIMITS, frame_values=2_000, measure_values=1_500, series_values=1_500),
    replace(SAVED_LIMITS, frame_values=1_000, measure_values=0, series_values=800),
    replace(SAVED_LIMITS, frame_values=400, measure_values=0, series_values=300),
)


def render(report: TraceReport, *, viewer: bool = True, wall: bool = False) -> str:
    """Return the fragment: header, findings, picture, tables, and the viewer that makes them one live panel.

    Args:
        report: The run.
        viewer: Whether the viewer comes along.
        wall: Whether it is for slides: what was found, and the graph; nothing that is read from near.
    """
    ended, report = refused_call.top_of(report)
    failure = to_html.top(ended) if ended is not None else ""
    report, crash = with_crash(report)
    drawings = {graph.number: draw(graph, max_boxes=SAVED_LIMITS.boxes) for graph in report.graphs[:1]}

    def drawn(graph: Graph, *, max_boxes: int) -> Drawing:
        return drawings.get(graph.number) or draw(graph, max_boxes=max_boxes)

    if not viewer:
        described = (failure, _static_part(report, None, crash=crash), _operations(report), _text_part(report))
        return tag("section", _style(), *described, class_="tm tm-trace")
    main = drawings.get(report.graphs[0].number) if report.graphs else None
    static_part = _static_part(report, main, crash=crash)
    below = (_operations(report), _text_part(report))
    found = _header(report) + _findings(report, explained=False)
    parts = (_style(), failure, found, static_part) if wall else (_style(), failure, static_part, *below)
    nodes = sum(len(graph.nodes) for graph in report.graphs)
    room = (
        ROOM
        + ROOM_PER_NODE * max(nodes - SMALL, 0)
        - sum(map(len, (*(part.encode() for part in parts), viewer_code(), loader())))
    )
    document = tag(
        "script", _packed_document(report, drawn, crash, room, wall=wall), type="text/plain", class_="tm-document"
    )
    return tag("section", *parts, viewer_code(), document, loader(), class_="tm tm-trace", data_tm_waiting="")


def _packed_document(report: TraceReport, draw: Draw, crash: Crash | None, room: int, *, wall: bool) -> str:
    """Return what the viewer reads, with fewer of the passes where it would not fit into so many bytes."""
    document = ""
    for limits in LESS:
        whole_document = trace_document(report, limits=limits, draw=draw, crash=crash)
        if wall:
            whole_document["wall"] = True
        document = packed(json.dumps(whole_document, allow_nan=False, separators=(",", ":")))
        if len(document) <= room:
            break
    return document


def render_static(report: TraceReport, *, picture: bool = True) -> str:
    """Return header, findings and picture alone, no tables, no script: what a running cell shows without widgets."""
    main = draw(report.graphs[0], max_boxes=PICTURE_BOXES[1], inside=False) if picture and report.graphs else None
    return tag("section", _style(), _static_part(report, main, picture=picture), class_="tm tm-trace")


@cache
def viewer_style() -> str:
    """Return the whole style sheet of the viewer: the tokens, the rules of the panel, and its own."""
    return panel_style() + static("trace_ops.css") + viewer_rules()


@cache
def panel_style() -> str:
    """Return what the panel needs where no script runs; the viewer brings the rest along."""
    return sheet("trace.css")


def viewer_rules() -> str:
    """Return the rules that only the viewer needs; they come packed with it."""
    return static("trace_viewer.css") + heat_style()


@cache
def viewer_module() -> str:
    """Return the viewer's module source, in one piece."""
    return module("trace", "viewer.js")


def _style() -> str:
    return tag("style", panel_style())


@cache
def viewer_code() -> str:
    """Return the element that carries the viewer for outputs that stay, with its style sheet."""
    source = module("trace", "saved.js").replace("export async function", "async function")
    mount = f"(panel, unpacked, key) => mountSaved(panel, unpacked, key, {json.dumps(viewer_rules())})"
    return code("trace", source, mount, beside=panel_style())


def _operations(report: TraceReport) -> str:
    table = operations_html(report)
    return tag("style", static("trace_ops.css")) + table if table else ""


def _static_part(
    report: TraceReport, drawing: Drawing | None, *, picture: bool = True, crash: Crash | None = None
) -> str:
    """Return what the viewer replaces: the picture, which holds header, findings, graph and charts; or their text."""
    inner = _picture(report, drawing, crash) if picture else _words(report)
    return tag("div", inner, class_="tm-static")


def _text_part(report: TraceReport) -> str:
    words = scroll("The run as text", _words(report), tables_html(report))
    return folds(fold("As text", words, state="findings, parameters, nodes, passes"))


def _words(report: TraceReport) -> str:
    return _header(report) + _findings(report) + gaps_html(report.gaps)


def _header(report: TraceReport) -> str:
    state = tag("span", escape(state_text(report)), class_=f"tm-{report.state}")
    run = tag("span", escape(run_text(report)), class_="quiet")
    return header(escape(report.title or UNTITLED), [state, run], about="graph", second=map(escape, run_lines(report)))


def _findings(report: TraceReport, *, explained: bool = True) -> str:
    if report.findings:
        rows = (
            finding_html(each, explanation_html(each) if explained else [remedy_html(each)], is_open=True)
            for each in report.findings
        )
        return tag("div", *rows, class_="tm-find")
    if report.state == "running":
        return ""
    return clear(all_clear(report)) if report.failure is None else tag("p", escape(all_clear(report)), class_="quiet")


def _picture(report: TraceReport, drawing: Drawing | None, crash: Crash | None) -> str:
    svg = trace_svg.render(report, drawing=drawing, crash=crash, tips=False)
    for boxes in PICTURE_BOXES[1:]:
        if len(svg) <= PICTURE_BYTES or not report.graphs:
            break
        smaller = draw(report.graphs[0], max_boxes=boxes, inside=False)
        svg = trace_svg.render(report, drawing=smaller, crash=crash, tips=False)
    return svg_image(svg.replace(".tms .", "."), trace_alternative(report))  # nothing else stands in this picture
