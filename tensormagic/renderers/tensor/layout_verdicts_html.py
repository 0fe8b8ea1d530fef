"""The verdicts on a layout as the lines under its picture."""

from __future__ import annotations

from tensormagic.renderers.basics.markup import tag
from tensormagic.renderers.basics.panel import with_code
from tensormagic.renderers.tensor.layout_words import verdicts
from tensormagic.reports import TensorReport


def verdicts_html(report: TensorReport) -> str:
    """Return one row a verdict: its title and its sentence; nothing for a tensor without strides."""
    if report.layout is None or not report.layout.shape:
        return ""
    rows = [tag("tr", tag("th", title), tag("td", with_code(text))) for title, text in verdicts(report.layout)]
    return tag("table", *rows, class_="tm-verdicts") if rows else ""
