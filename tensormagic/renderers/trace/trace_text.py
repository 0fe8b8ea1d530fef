"""A traced run as plain text, for terminals and for the ``text/plain`` of every output.

Findings first, then the way of the gradient, then a line for every parameter. Nothing rests on colour, no line is
wider than asked for, and what is left out is said at the end.
"""

from __future__ import annotations

from collections.abc import Iterator

from tensormagic.renderers.graph.words import NO_WAY_BACK, cut_heading, cut_sentences, ended_sentence
from tensormagic.renderers.trace.ops_text import operations
from tensormagic.renderers.trace.parallel_phrases import run_lines
from tensormagic.renderers.trace.trace_phrases import UNTITLED, all_clear, run_text, state_text
from tensormagic.renderers.trace.trace_text_flow import flow
from tensormagic.renderers.trace.trace_text_forward import forward_values
from tensormagic.renderers.trace.trace_text_lines import filled, printable
from tensormagic.renderers.trace.trace_text_parameters import parameters
from tensormagic.reports import TraceReport
from tensormagic.reports.finding import Finding
from tensormagic.views import to_text
from tensormagic.views.panels import refused_call
from tensormagic.words import plural

_NARROWEST = 40
_MOST_CUTS = 8


def render(report: TraceReport, *, width: int = 100) -> str:
    """Return the run as text, no line wider than ``width`` (at least 40) columns."""
    width = max(width, _NARROWEST)
    ended, report = refused_call.top_of(report)
    sections = (
        [*_head(report, width), *([] if ended is not None else _findings(report, width))],
        to_text.lines(ended, width) if ended is not None else [],
        list(_findings(report, width)) if ended is not None else [], flow(report, width),
        forward_values(report, width),
        _cuts(report, width), parameters(report, width), operations(report, width), _gaps(report, width),
    )  # fmt: skip
    blocks = ["\n".join(section) for section in sections if section]
    return printable("\n\n".join(blocks)) + "\n"


def _head(report: TraceReport, width: int) -> Iterator[str]:
    title = " ".join(report.title.split()) or UNTITLED
    what = "gradgraph" if report.state == "drawn" else "tracegrad"
    yield from filled("", f"{what}  {title}  {' '.join(state_text(report).split())}", width)
    yield from filled("", run_text(report), width)
    for line in run_lines(report):
        yield from filled("", line, width)
    yield "─" * width


def _findings(report: TraceReport, width: int) -> Iterator[str]:
    for finding in report.findings:
        yield from _finding(finding, width)
    if not report.findings:
        yield from filled("", all_clear(report), width)


def _finding(finding: Finding, width: int) -> Iterator[str]:
    lead = f"{finding.code} {finding.severity}  "
    yield from filled(lead, finding.message.replace("`", ""), width)
    if finding.location is not None:
        yield from filled(" " * len(lead), f"{finding.location.label}: {finding.location.text}", width)
    for line in finding.related:
        yield from filled(" " * len(lead), f"{line.what}: {line.location.label}: {line.location.text}", width)
    if finding.remedy:
        yield from filled(" " * len(lead), f"→ {finding.remedy.replace('`', '')}", width)


def _cuts(report: TraceReport, width: int) -> list[str]:
    graph = report.graphs[0] if report.graphs else None
    ended = [line for cut in report.cuts for line in filled("  ", ended_sentence(report, cut), width)]
    above = [*filled("", NO_WAY_BACK, width), *ended] if ended else []
    if graph is None or not graph.cuts:
        return above
    described = (line for text in cut_sentences(report, graph, _MOST_CUTS) for line in filled("  ", text, width))
    return [*above, *filled("", cut_heading(graph), width), *described]


def _gaps(report: TraceReport, width: int) -> list[str]:
    lines = [line for gap in report.gaps for line in filled("not seen: ", f"{gap.section}: {gap.reason}", width)]
    others = len(report.graphs) - 1
    if others > 0:
        lines.append(f"not shown: {plural(others, 'graph')} with another structure")
    return lines
