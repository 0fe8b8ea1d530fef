"""A traced run as text and as SVG, as the package draws it; its page is `tensormagic.views.panels.trace`."""

from __future__ import annotations

from typing import Any

from tensormagic.reports import TraceReport
from tensormagic.views import to_svg, to_text
from tensormagic.views.graph.marks import with_crash
from tensormagic.views.panels import trace
from tensormagic.views.pictures.gradient_graph import GradientGraph
from tests.views import samples_trace as samples

CASES = {
    "broken": samples.broken,
    "finished": samples.report,
    "one_pass": samples.one_pass,
    "empty": samples.empty,
    "failed": samples.failed,
    "hostile": samples.hostile,
    "untouched": samples.untouched,
    "cuts": samples.cuts,
    "paced": samples.paced,
    "forward": samples.forward,
    "transformer": lambda: samples.report(samples.transformer(8), title="encoder"),
    "lstm": lambda: samples.report(samples.lstm(300), title="lstm"),
}


def text(report: TraceReport, *, width: int = 100) -> str:
    """Return the run as text."""
    return to_text.render(trace.view(report), width=width)


def svg(report: TraceReport, **how: Any) -> str:
    """Return the run as a picture; ``how`` are fields of `GradientGraph`."""
    return to_svg.render(trace.panel(report, GradientGraph(*with_crash(report), **how)))
