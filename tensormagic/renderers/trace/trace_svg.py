"""A traced run as one standalone SVG picture: what happened, the graph in its last kept pass, the parameters.

It is what stays of the live panel where no script runs, so everything is in the picture itself: no script, no font,
no reference to anything outside or inside, an opaque light card of its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from tensormagic.renderers.alternatives.trace_alternative import trace_alternative
from tensormagic.renderers.basics.markup import escape, tag
from tensormagic.renderers.basics.plain_text import fitted, text_width, wrapped
from tensormagic.renderers.basics.svg_paths import number
from tensormagic.renderers.basics.theme import inked, role
from tensormagic.renderers.graph.drawing import Drawing, draw
from tensormagic.renderers.graph.marks import (
    ABOVE,
    CRASH_STYLE,
    FINDING_STYLE,
    Crash,
    Mark,
    mark_svg,
    marks_of,
    with_crash,
)
from tensormagic.renderers.trace import trace_svg_chart
from tensormagic.renderers.trace.parallel_phrases import run_lines
from tensormagic.renderers.trace.trace_phrases import UNTITLED, all_clear, run_text
from tensormagic.renderers.trace.trace_svg_graph import SOLID, STYLE, Scene, graph_svg, legend_svg
from tensormagic.renderers.trace.trace_values import run_scale, shown_frame
from tensormagic.reports import TraceReport
from tensormagic.reports.finding import Finding
from tensormagic.words import plural

WIDTH = 960.0
_PAD = 14.0
_INNER = WIDTH - 2 * _PAD
_MOST_FINDINGS = 3
_MOST_BOXES = 64  # a picture cannot be zoomed into: it shows less than the panel
_STATE_ROLES = {"running": "accent", "finished": "ink-2", "failed": "error", "interrupted": "warning",
                "drawn": "ink-2"}  # fmt: skip

Section = tuple[str, float]

_CODE, _MARK = re.compile(r"`([^`]+)`"), "\x00"  # no character that a text could hold and be drawn with


def render(
    report: TraceReport,
    *,
    drawing: Drawing | None = None,
    graph: int = 0,
    crash: Crash | None = None,
    tips: bool = True,
) -> str:
    """Return the picture of a run.

    Args:
        report: The run.
        drawing: The drawing of the graph, where there is one already.
        graph: Which of the report's graphs, by place.
        crash: Where the run ended, where ``report`` was made by `with_crash`.
        tips: Whether boxes carry tooltips, which an ``<img>`` never shows.
    """
    if crash is None:
        report, crash = with_crash(report)
    scenes = [scene._replace(tips=tips) for scene in _scene(report, drawing, graph)]
    words = [_header(report), *_paced(report), *_findings(report)]
    sections = [*words, *_body(report, scenes, crash if crash and crash.graph == graph else None)]
    # In a page the alternative stands at the ``<img>``.
    return _card(report, sections, trace_alternative(report, graph=graph) if tips else "")


def chart(report: TraceReport, *, width: float = WIDTH) -> str:
    """Return the small charts of all parameters as a picture of their own; empty where no pass was kept."""
    content, height = trace_svg_chart.chart(report, width - 2 * _PAD)
    described = trace_alternative(report)
    return _svg((width, height + 2 * _PAD), _moved(content, _PAD, _PAD), report, described) if content else ""


def _scene(report: TraceReport, drawing: Drawing | None, graph: int) -> Iterator[Scene]:
    """Yield what is drawn of the graph, where there is one."""
    if report.graphs:
        shown = report.graphs[graph]
        drawn, marks = drawing or draw(shown, max_boxes=_MOST_BOXES, inside=False), tuple(marks_of(report, shown))
        yield Scene(drawn, shown, shown_frame(shown), scale=run_scale(report), marks=marks)


def _body(report: TraceReport, scenes: list[Scene], crash: Crash | None) -> Iterator[Section]:
    for scene in scenes:
        yield from _graph(report, scene, crash)
    charts, height = trace_svg_chart.chart(report, _INNER)
    if charts:
        yield _rule(height + 18, lambda: _moved(charts, _PAD, 10))
    if report.gaps:
        yield _lines([f"Not seen: {gap.section}: {gap.reason}" for gap in report.gaps[:4]])


def _card(report: TraceReport, sections: list[Section], alternative: str) -> str:
    parts, y = [], 0.0
    for content, height in sections:
        parts.append(_moved(content, 0, y))
        y += height
    return _svg((WIDTH, y + 2), "".join(parts), report, alternative)


_CODE_STYLE = inked(".tms .code{font:11.5px ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;fill:$ink}")

_CLASS, _STYLE_RULE, _CLASS_NAME = (
    re.compile(r'class="([^"]*)"'),
    re.compile(r"[^{}]+\{[^}]*\}"),
    re.compile(r"\.([a-z][\w-]*)"),
)

# What XML 1.0 cannot hold, not even escaped: a name may hold anything.
_NOT_XML = re.compile("[^\\t\\n\\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def _needed(style: str, content: str) -> str:
    """Return those rules of a style sheet that something in the picture is dressed by: it is saved uncompressed."""
    present = {"tms", *" ".join(_CLASS.findall(content)).split()}
    return "".join(rule for rule in _STYLE_RULE.findall(style) if present.issuperset(_CLASS_NAME.findall(rule)))


def _svg(room: tuple[float, float], content: str, report: TraceReport, alternative: str) -> str:
    width, height = room
    size = f'width="{number(width)}" height="{number(height)}" viewBox="0 0 {number(width)} {number(height)}"'
    label = f' aria-label="{escape(alternative)}"' if alternative else ""
    inner = f'width="{number(width - 1)}" height="{number(height - 1)}"'
    ground = f'<rect x=".5" y=".5" {inner} rx="4" fill="{role("bg")}" stroke="{role("line")}"/>'
    marked = CRASH_STYLE if report.failure is not None else ""
    marked += FINDING_STYLE
    solid = SOLID if report.graphs and _is_drawn_only(report) else ""
    style = f"<style>{_needed(f'{STYLE}{trace_svg_chart.STYLE}{_CODE_STYLE}{solid}{marked}', content)}</style>"
    start = f'<svg xmlns="http://www.w3.org/2000/svg" class="tms" {size} role="img"{label}>'
    return _NOT_XML.sub("\ufffd", f"{start}{style}{ground}{content}</svg>\n")


def _moved(content: str, x: float, y: float, scale: float = 1.0) -> str:
    shrunk = f" scale({scale:.3f})" if scale != 1 else ""
    return f'<g transform="translate({number(x)},{number(y)}){shrunk}">{content}</g>'


def _header(report: TraceReport) -> Section:
    title = fitted(report.title or UNTITLED, 220, 13, bold=True)
    at = _PAD + text_width(title, 13, bold=True) + 12
    words = run_text(report)
    room = max(WIDTH - _PAD - at - 12 - text_width(words, 12), 90)
    state = fitted(report.error or report.state, room, 12, bold=True)
    run, ink = at + text_width(state, 12, bold=True) + 12, role(_STATE_ROLES[report.state])
    return (
        f'<text x="{number(_PAD)}" y="21" font-weight="600" style="font-size:13px">{escape(title)}</text>'
        f'<text class="l" x="{number(at)}" y="21" style="fill:{ink}">{escape(state)}</text>'
        f'<text class="q" x="{number(run)}" y="21" style="font-size:12px">{escape(words)}</text>'
        f'<path class="g" d="M0,32.5H{number(WIDTH)}"/>'
    ), 33.0


def _paced(report: TraceReport) -> Iterator[Section]:
    """Say which steps were traced, where not all were."""
    if lines := list(run_lines(report)):
        yield _lines(lines)


def _findings(report: TraceReport) -> Iterator[Section]:
    for finding in report.findings[:_MOST_FINDINGS]:
        yield _finding(finding)
    if len(report.findings) > _MOST_FINDINGS:
        yield _lines([f"{plural(len(report.findings) - _MOST_FINDINGS, 'finding')} more, not shown in this picture"])
    if not report.findings:
        words = escape(all_clear(report))
        yield f'<text class="l" x="{number(_PAD)}" y="20">{words[0].upper()}{words[1:]}</text>', 30.0


def _finding(finding: Finding) -> Section:
    ink, ground = role(finding.severity), role(f"{finding.severity}-bg")
    where = f"{finding.location.label}: {finding.location.text}" if finding.location else ""
    lines = [("", text) for text in _prose(finding.message, 3)]
    lines += [("q", escape(text)) for text in wrapped(where, _INNER - 134, 12, 1) if text]
    lines += [("q", text) for text in _prose(finding.remedy, 2) if text]
    height = 16.0 * len(lines) + 10
    words = "".join(
        tag("text", text, class_=style or None, x=148, y=number(17 + 16 * at), style="font-size:12px")
        for at, (style, text) in enumerate(lines)
    )
    return (
        f'<rect y="0" width="{number(WIDTH)}" height="{number(height)}" fill="{ground}"/>'
        f'<rect width="3" height="{number(height)}" fill="{ink}"/>'
        f'<path d="M20,6l6.5,6.5l-6.5,6.5l-6.5,-6.5z" fill="{ink}"/>'
        f'<text class="l" x="34" y="17" style="fill:{ink}">{escape(finding.code)} {finding.severity}</text>{words}'
    ), height + 1


def _prose(text: str, most: int) -> list[str]:
    """Return ``text`` broken into lines, as content of text elements; what stands between backticks is set as code.

    Code may go on from one line to the next: each line closes what it opened. A backtick without a partner stays.
    """
    marked = _CODE.sub(f"{_MARK}\\1{_MARK}", text)
    inside, lines = False, []
    for line in wrapped(marked, _INNER - 146, 12, most):
        pieces = line.split(_MARK)
        lines.append("".join(_set(piece, code=inside ^ bool(at % 2)) for at, piece in enumerate(pieces)))
        inside ^= len(pieces) % 2 == 0
    return lines


def _set(piece: str, *, code: bool) -> str:
    return f'<tspan class="code">{escape(piece)}</tspan>' if code and piece else escape(piece)


def _graph(report: TraceReport, scene: Scene, crash: Crash | None) -> Iterator[Section]:
    drawing = scene.drawing
    mark = mark_svg(drawing, crash.node, crash.words) if crash is not None else Mark()
    before = max(0.0, -mark.left)
    wide = before + max(drawing.width, mark.right)
    scale = min(1.0, _INNER / wide) if wide else 1.0
    left = _PAD + max(0.0, (_INNER - wide * scale) / 2) + before * scale
    yield _caption(report, scene)
    content, above = graph_svg(scene) + mark.svg, max(mark.above, ABOVE if scene.marks else 0.0)
    yield _moved(content, left, 22 + above * scale, scale), 22 + (above + drawing.height) * scale + 12
    if not _is_drawn_only(report):
        yield _rule(24, lambda: _moved(legend_svg(scene), _PAD, 6))


def _is_drawn_only(report: TraceReport) -> bool:
    """Return whether no backward ran through the graph: it was asked for as a picture, or the forward ended in it."""
    return report.state == "drawn" or not any(graph.passes_seen for graph in report.graphs)


def _caption(report: TraceReport, scene: Scene) -> Section:
    """Say which pass is shown, and what was folded."""
    parts = ["Backward graph", _which_pass(report, scene), scene.drawing.note]
    if report.state != "drawn" and not scene.graph.passes_seen:
        parts = ["Graph so far", "what autograd had recorded when the forward stopped", scene.drawing.note]
    if others := sum(graph is not scene.graph and graph.passes_seen > 0 for graph in report.graphs):
        parts.append(f"{plural(others, 'graph')} with another structure not shown")
    words = " · ".join(part for part in parts[1:] if part)
    rest_of_line = f'<tspan class="q" font-weight="400">{escape(words)}</tspan>'
    return f'<text class="v" x="{number(_PAD)}" y="18">{parts[0]} {rest_of_line}</text>', 22.0


def _which_pass(report: TraceReport, scene: Scene) -> str:
    if scene.frame is None:
        return "" if report.state == "drawn" else "no pass was kept"
    step = next((each.step for each in report.passes if each.number == scene.frame.pass_number), None)
    which = f"pass {scene.frame.pass_number}" + (f", step {step}" if step is not None else "")
    return f"colours show {which}" if scene.graph.passes_seen > 1 else which


def _rule(height: float, content: Callable[[], str]) -> Section:
    return f'<path class="g" d="M0,.5H{number(WIDTH)}"/>{content()}', height


def _lines(texts: list[str]) -> Section:
    shown = "".join(
        f'<text class="q" x="{number(_PAD)}" y="{number(14 + 15 * at)}">{escape(fitted(text, _INNER, 10.5))}</text>'
        for at, text in enumerate(texts)
    )
    return shown, 15.0 * len(texts) + 8
