"""The person's source as a listing of memory: the cell, then lines of other files, then functions asked for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tensormagic.reports import FunctionMemory, LineMemory, MemoryRunReport

WHOLE = 40  # a cell of at most so many lines is listed whole
AROUND = 2  # lines listed before and after one that did something, in a longer one
MOST = 160


@dataclass(frozen=True, slots=True)
class SourceRow:
    """A line of a listing.

    Attributes:
        number: From 1; 0 for a heading, or, without text, for lines left out.
        text: As it stands.
        memory: What it did; None where it did nothing.
        index: Of its memory in the report; -1 where there is none.
    """

    number: int
    text: str
    memory: LineMemory | None = None
    index: int = -1


def run_rows(report: MemoryRunReport) -> list[SourceRow]:
    """Return the cell, then the lines of other files that did something, each file under a heading."""
    asked = {index for function in report.functions for index in function.lines}
    files: dict[str, dict[int, int]] = {}
    for index, line in enumerate(report.lines):
        files.setdefault(line.location.filename, {}).setdefault(line.location.line, index)
    rows = _listing(report, report.cell.lines, 1, files.pop(report.cell.filename, {}))
    for lines in files.values():
        rows += _file(report, {line: index for line, index in lines.items() if index not in asked})
    return rows[:MOST]


def function_rows(report: MemoryRunReport, function: FunctionMemory) -> list[SourceRow]:
    """Return a function as it stands, line by line."""
    lines = {report.lines[index].location.line: index for index in function.lines if index < len(report.lines)}
    return _listing(report, function.source, function.first, lines)[:MOST]


def _listing(report: MemoryRunReport, source: tuple[str, ...], first: int, lines: dict[int, int]) -> list[SourceRow]:
    if not source:
        return _file(report, lines)
    numbers: Iterable[int] = range(first, first + len(source))
    if len(source) > WHOLE:
        near = {line + shift for line in lines for shift in range(-AROUND, AROUND + 1)}
        numbers = sorted(near & set(numbers))
    rows: list[SourceRow] = []
    last = first - 1
    for number in numbers:
        if number > last + 1:
            rows.append(SourceRow(0, ""))
        rows.append(_row(report, number, source[number - first].rstrip(), lines.get(number, -1)))
        last = number
    return rows


def _file(report: MemoryRunReport, lines: dict[int, int]) -> list[SourceRow]:
    if not lines:
        return []
    heading = report.lines[next(iter(lines.values()))].location.label.rpartition(",")[0]
    rows = [_row(report, line, report.lines[lines[line]].location.text, lines[line]) for line in sorted(lines)]
    return [SourceRow(0, heading), *rows]


def _row(report: MemoryRunReport, number: int, text: str, index: int) -> SourceRow:
    return SourceRow(number, text, report.lines[index] if index >= 0 else None, index)
