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

from tensormagic.views import to_html, to_svg
from tensormagic.views.graph.drawing import Drawing, draw
from tensormagic.views.graph.marks import Crash, with_crash
from tensormagic.views.markup import packed, svg_image, tag
from tensormagic.views.nodes import Findings, Panel, Paragraph, Section
from tensormagic.views.page.document import SAVED_LIMITS, Draw, trace_document
from tensormagic.views.panels import refused_call, trace
from tensormagic.views.pictures.gradient_graph import EndedGraph, GradientGraph
from tensormagic.views.theme import code, heat_style, loader, module, sheet, static
from tensormagic.views.to_html import (
    finding_html,
    fold,
    folds,
    remedy_html,
    scroll,
)

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
    report, crash = with_crash(report)
    place = report.failure.node if report.failure is not None else None
    if ended is not None and place is not None and not place[0]:  # the first graph, drawn below, is marked there
        ended = replace(ended, body=[node for node in ended.body if not isinstance(node, EndedGraph)])
    failure = to_html.top(ended) if ended is not None else ""
    drawings = {graph.number: draw(graph, max_boxes=SAVED_LIMITS.boxes) for graph in report.graphs[:1]}

    def drawn(graph: Graph, *, max_boxes: int) -> Drawing:
        return drawings.get(graph.number) or draw(graph, max_boxes=max_boxes)

    graph = GradientGraph(report, crash, drawing=next(iter(drawings.values()), None), tips=False)
    view = trace.panel(report, graph)
    style, picture = tag("style", panel_style()), _static(_picture(graph))
    if wall:
        rows = (finding_html(each, [remedy_html(each)], is_open=True) for each in report.findings)
        top = replace(_top(view), body=[]) if report.findings else _top(view)
        found = tag("div", *rows, class_="tm-find") if report.findings else ""
        parts = (style, failure, *to_html.inside(top), found, picture)
    else:
        parts = (style, failure, picture, _below(view))
    if not viewer:
        return tag("section", *parts, class_="tm tm-trace")
    nodes = sum(len(graph.nodes) for graph in report.graphs)
    taken = sum(map(len, (*(part.encode() for part in parts), viewer_code(), loader())))
    packed_document = _packed_document(report, drawn, crash, ROOM + ROOM_PER_NODE * max(nodes - SMALL, 0) - taken,
                                       wall=wall)  # fmt: skip
    document = tag("script", packed_document, type="text/plain", class_="tm-document")
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
    report, crash = with_crash(report)
    drawing = draw(report.graphs[0], max_boxes=PICTURE_BOXES[1], inside=False) if picture and report.graphs else None
    graph = GradientGraph(report, crash, drawing=drawing, tips=False)
    shown = _picture(graph) if picture else "".join(to_html.inside(_top(trace.panel(report, graph))))
    return tag("section", tag("style", panel_style()), _static(shown), class_="tm tm-trace")


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


@cache
def viewer_code() -> str:
    """Return the element that carries the viewer for outputs that stay, with its style sheet."""
    source = module("trace", "saved.js").replace("export async function", "async function")
    mount = f"(panel, unpacked, key) => mountSaved(panel, unpacked, key, {json.dumps(viewer_rules())})"
    return code("trace", source, mount, beside=panel_style())


def _static(shown: str) -> str:
    """Return what the viewer replaces: the picture, which holds header, findings, graph and charts; or their text."""
    return tag("div", shown, class_="tm-static")


def _picture(graph: GradientGraph) -> str:
    """Return the panel as an ``<img>``, its graph folded further where it would be too large."""
    svg = to_svg.render(trace.panel(graph.report, graph))
    for boxes in PICTURE_BOXES[1:]:
        if len(svg) <= PICTURE_BYTES or not graph.report.graphs:
            break
        smaller = draw(graph.report.graphs[graph.place], max_boxes=boxes, inside=False)
        svg = to_svg.render(trace.panel(graph.report, replace(graph, drawing=smaller)))
    return svg_image(svg.replace(".tms .", "."), graph.sentence)  # nothing else stands in this picture


def _top(view: Panel) -> Panel:
    """Return the panel less its pictures and what is folded."""
    return replace(view, body=[node for node in view.body if isinstance(node, Findings | Paragraph)])


def _below(view: Panel) -> str:
    """Return what is one click away: the operations, and all of the run as text and tables."""
    *body, operations = view.body
    others = [replace(node, folded=False) if isinstance(node, Section) else node for node in body]
    table = to_html.html(operations)
    style = tag("style", static("view.css"), static("trace_ops.css")) if table else ""
    words = scroll("The run as text", *to_html.inside(replace(view, body=others)))
    below = folds(table, fold("As text", words, state="findings, parameters, nodes, passes"))
    return style + below.replace("</td>", "").replace("</tr>", "")  # HTML closes them itself
