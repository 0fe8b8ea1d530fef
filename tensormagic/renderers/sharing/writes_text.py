"""Watched writes as plain text: findings, the source with the lines that write, and a row for every write."""

from __future__ import annotations

import textwrap

from tensormagic.renderers.sharing.writes_words import (
    MOST_CHANGED,
    TABLE_HEAD,
    Effect,
    SourceLine,
    all_clear,
    clash_text,
    effects,
    headline,
    source_lines,
    state_text,
    table_rows,
    written_text,
)
from tensormagic.renderers.tensor.tensor_text import finding_lines
from tensormagic.renderers.terminal.text_canvas import table
from tensormagic.renderers.trace.trace_text_lines import filled, printable
from tensormagic.reports import Write, WritesReport
from tensormagic.words import plural, shortened

MOST_ROWS = 40
_SIGNS = {"error": "\u2716", "warning": "\u25b2", "note": "\u25cb", "write": "\u2022", "": " "}
_BARS = "\u25af\u25ae"  # not reached, reached
_CELL_WIDTH = 34
_COLUMNS = 5  # what a write changed besides stands in the listing


def render(report: WritesReport, *, width: int = 100) -> str:
    """Return the report as text, no line wider than ``width`` (at least 40) columns."""
    width = max(width, 40)
    sections = (_head(report, width), _findings(report, width), _source(report, width), _table(report, width),
                _gaps(report, width))  # fmt: skip
    blocks = ["\n".join(line[:width] for line in section) for section in sections if section]
    return printable("\n\n".join(blocks)) + "\n"


def _head(report: WritesReport, width: int) -> list[str]:
    state = " ".join(state_text(report).split())
    return [*filled("", f"in-place writes  {state}", width), *filled("", headline(report), width), "\u2500" * width]


def _findings(report: WritesReport, width: int) -> list[str]:
    if not report.findings:
        return filled(" ", all_clear(report), width)
    return [line for finding in report.findings for line in finding_lines(finding, width)]


def _source(report: WritesReport, width: int) -> list[str]:
    return [line for row in source_lines(report) for line in _row(row, width)]


def _row(row: SourceLine, width: int) -> list[str]:
    if not row.number:
        return [f" {shortened(row.text, width - 1)}" if row.text else "     \u22ee"]
    code = row.text.expandtabs(4)
    written = f"  \u2190 {written_text(row.writes)}" if row.writes else ""
    first = f" {row.number:>3} {_SIGNS[row.sign]} {code}"
    lines = [first + written] if len(first + written) <= width else _apart(first, written, width)
    for text in _effects(row.writes):
        lines += textwrap.wrap(text, width, initial_indent="         ", subsequent_indent=" " * 11)
    return lines


def _apart(first: str, written: str, width: int) -> list[str]:
    """Return a line that has no room beside it for what it writes: the line whole, the other below."""
    hanging = " " * 11
    lines = textwrap.wrap(first, width, subsequent_indent=hanging)
    return lines + textwrap.wrap(written.strip(), width, initial_indent=" " * 9, subsequent_indent=hanging)


def _effects(writes: tuple[Write, ...]) -> list[str]:
    """Return what a line did besides, a phrase each; of several ops that changed the same name, the first."""
    said = [f"\u2717 {clash_text(write.clash)}" for write in writes if write.clash is not None]
    changed = {one.name: one for write in reversed(writes) for one in reversed(write.changed)}
    found = effects(reversed(changed.values()))
    said += [f"\u2192 {effect.name}: {effect.amount}{_bar(effect)}" for effect in found[:MOST_CHANGED]]
    left = len(found) - MOST_CHANGED
    return said + ([f"and {plural(left, 'more name')}"] if left > 0 else [])


def _bar(effect: Effect) -> str:
    """Return where the changed elements lie, as a strip; nothing where all of it changed, or nothing is known."""
    marks = effect.changed.marks if effect.changed is not None else ""
    if len(marks) < 2 or set(marks) == {"9"}:
        return ""
    return "  " + "".join(_BARS[mark != "0"] for mark in marks)


def _table(report: WritesReport, width: int) -> list[str]:
    rows = [tuple(shortened(cell, _CELL_WIDTH) for cell in row[:_COLUMNS]) for row in table_rows(report)]
    if not rows:
        return []
    left = len(rows) - MOST_ROWS
    heads = tuple(map(str.upper, TABLE_HEAD[:_COLUMNS]))
    lines = table([heads, *rows[:MOST_ROWS]], gap=2, width=width)
    return lines + ([f" and {plural(left, 'more line')} that write"] if left > 0 else [])


def _gaps(report: WritesReport, width: int) -> list[str]:
    return [line for gap in report.gaps for line in filled("not seen: ", f"{gap.section}: {gap.reason}", width)]
