"""What a person sees from ``%gpumem --free`` in a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from tensormagic.renderers.memory.freeing_words import entry_words, gain_words, how, lead
from tensormagic.renderers.memory.memory_text import NARROWEST, page
from tensormagic.renderers.tensor.tensor_text import finding_lines
from tensormagic.renderers.terminal.text_canvas import table
from tensormagic.renderers.trace.trace_text_lines import filled
from tensormagic.reports import FreeingReport


def render(report: FreeingReport, *, width: int = 100) -> str:
    """Return the report as text, no line wider than ``width`` (at least 40) columns."""
    width = max(width, NARROWEST)
    return page([_head(report, width), _entries(report, width), _end(report, width)], width)


def _head(report: FreeingReport, width: int) -> Iterator[str]:
    yield from filled("", lead(report), width)
    for finding in report.findings:
        yield from finding_lines(finding, width)
    for gap in report.gaps:
        yield from filled("not shown: ", f"{gap.section}: {gap.reason}", width)


def _entries(report: FreeingReport, width: int) -> Iterator[str]:
    if report.entries:
        yield from table([entry_words(entry) for entry in report.entries], indent=2, gap=2, width=width)


def _end(report: FreeingReport, width: int) -> Iterator[str]:
    for gain in report.gains:
        if words := gain_words(gain):
            yield from filled("  ", words, width)
    if report.entries and not report.dropped:
        yield from filled("", how(report).replace("`", ""), width)
