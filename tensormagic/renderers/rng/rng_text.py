"""Generators, draws and compared runs as plain text."""

from __future__ import annotations

from collections.abc import Sequence

from tensormagic.renderers.rng import rng_words as words
from tensormagic.renderers.tensor.tensor_text import finding_lines, shortened_line
from tensormagic.renderers.terminal.text_canvas import table
from tensormagic.renderers.trace.trace_text_lines import filled, printable
from tensormagic.reports import Finding, Gap
from tensormagic.reports.rng import RngComparison, RngReport, RngRunReport
from tensormagic.words import count, shortened

NARROWEST = 40
MOST_ROWS = 40
_NAME_WIDTH = 80  # other names of a generator: a few lines of a cell


def render(report: RngReport | RngRunReport | RngComparison, *, width: int = 100) -> str:
    """Return the report as text, no line wider than ``width`` (at least 40) columns."""
    width = max(width, NARROWEST)
    if isinstance(report, RngReport):
        sections = _standing(report, width)
    elif isinstance(report, RngRunReport):
        sections = _run(report, width)
    else:
        sections = _compared(report, width)
    blocks = ["\n".join(shortened_line(line, width) for line in section) for section in sections if section]
    return printable("\n\n".join(blocks)) + "\n"


def _standing(report: RngReport, width: int) -> list[list[str]]:
    rows = [(shortened(name, _NAME_WIDTH), *rest) for name, *rest in map(words.state_row, report.generators)]
    return [
        [*filled("", f"random generators  {words.headline(report)}", width), "\u2500" * width],
        _findings(report.findings, width),
        _table(words.STATE_HEAD, rows, width),
        _gaps(report.gaps, width),
    ]


def _run(report: RngRunReport, width: int) -> list[list[str]]:
    rows = [words.draw_row(report, draw) for draw in report.sums]
    head = f"random numbers  {' '.join(words.state_text(report).split())}"
    return [
        [*filled("", head, width), *filled("", words.run_headline(report), width), "\u2500" * width],
        _findings(report.findings, width),
        _source(report),
        [] if words.source_rows(report) else _table(words.DRAW_HEAD, rows, width),
        _table(words.CHANGE_HEAD, words.change_rows(report), width),
        _gaps(report.gaps, width),
    ]


def _source(report: RngRunReport) -> list[str]:
    lines: list[str] = []
    for number, text, draws in words.source_rows(report):
        lines.append(f" {number:>4} {'*' if draws else ' '} {text}")
        lines += [f"          {words.beside(report, draw)}" for draw in draws]
    return lines


def _compared(report: RngComparison, width: int) -> list[list[str]]:
    sides = [f" {name}: {words.side_text(report, at)}" for at, name in enumerate(report.names)]
    told = filled("", words.verdict(report), width)
    return [[*told, "\u2500" * width], sides if report.difference != "none" else []]


def _table(head: Sequence[str], rows: list[tuple[str, ...]], width: int) -> list[str]:
    if not rows:
        return []
    left_out = len(rows) - MOST_ROWS
    more = [f" and {count(left_out)} more"] if left_out > 0 else []
    return [*table([tuple(cell.upper() for cell in head), *rows[:MOST_ROWS]], gap=2, width=width), *more]


def _findings(findings: tuple[Finding, ...], width: int) -> list[str]:
    return [line for finding in findings for line in finding_lines(finding, width)]


def _gaps(gaps: tuple[Gap, ...], width: int) -> list[str]:
    return [line for gap in gaps for line in filled(" ", f"not shown: {gap.section}: {gap.reason}", width)]
