"""Why a gradient is what it is, in a terminal: the answer, what it rests on, the way stop by stop, what to do."""

from __future__ import annotations

from collections.abc import Iterator

from tensormagic.renderers.tensor.tensor_text import finding_lines
from tensormagic.renderers.terminal.text_canvas import table
from tensormagic.renderers.trace.trace_text_lines import filled, printable
from tensormagic.renderers.why.why_html import names_words
from tensormagic.renderers.why.why_words import (
    ARROW,
    SEVERED,
    came_words,
    facts_words,
    line_words,
    title,
)
from tensormagic.reports import WhyReport
from tensormagic.words import shortened

NARROWEST = 40
_LABEL = 40


def render(report: WhyReport, *, width: int = 100) -> str:
    """Return the answer as text, no line wider than ``width`` (at least 40) columns."""
    width = max(width, NARROWEST)
    lines = [line for section in (_head, _way, _remedy, _rests, _groups) for line in section(report, width)]
    return printable("\n".join(line if len(line) <= width else line[: width - 1] + "\u2026" for line in lines)) + "\n"


def _head(report: WhyReport, width: int) -> Iterator[str]:
    yield f"why  {title(report)}"
    if report.facts is not None:
        yield from filled("     ", facts_words(report.facts), width)
    yield "\u2500" * width
    yield from filled("", _plain(report.answer), width)
    for finding in report.findings:
        yield from finding_lines(finding, width)
    for gap in report.gaps:
        yield from filled("not shown: ", f"{gap.section}: {gap.reason}", width)


def _plain(text: str) -> str:
    return text.replace("`", "")


def _way(report: WhyReport, width: int) -> Iterator[str]:
    if len(report.way) < 2:
        return
    rows = []
    for at, step in enumerate(report.way):
        sign = " " if not at else SEVERED if step.kind in {"cut", "nothing"} else ARROW
        mark = "!" if step.bad else ""
        label = f"{sign} {shortened(step.label, _LABEL)}"
        rows.append((label, step.detail, line_words(report, step), came_words(step), mark))
    yield ""
    yield "from the tensor to the loss; the gradient flows upwards"
    yield from table([("", "", "line", "gradient", ""), *rows], indent=2, width=width)


def _remedy(report: WhyReport, width: int) -> Iterator[str]:
    if report.remedy:
        yield ""
        yield "what to do"
    for text in report.remedy:
        yield from filled("  ", _plain(text), width)


def _rests(report: WhyReport, width: int) -> Iterator[str]:
    told = [_plain(text) for text in report.evidence]
    if report.location is not None and report.location.text:
        told.append(f"{report.location.label}: {report.location.text}")
    if report.source:
        told.append(f"as {report.source} saw it")
    if told:
        yield ""
    for text in told:
        yield from filled("", text, width)


def _groups(report: WhyReport, width: int) -> Iterator[str]:
    for group in report.groups:
        yield ""
        yield from filled(f"{group.reason}: ", f"{group.count} \u00b7 {names_words(group)}", width)
        yield from filled("  ", _plain(group.answer), width)
