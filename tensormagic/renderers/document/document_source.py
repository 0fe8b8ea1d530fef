"""The person's source as the viewer lists it: the traced cell first, then the lines of other files that took part.

A long file is not shown whole: only the lines that made a node or called backward, with a little of what stands
around them, and a gap where lines are left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tensormagic.reports import TraceReport

WHOLE = 120  # a cell of at most so many lines is shown whole
AROUND = 2  # lines shown before and after one that took part, in a longer one

Row = list[Any]  # [line number, text, location indices]; line 0 with a text: a heading; without: lines left out


def source_rows(report: TraceReport) -> list[Row]:
    """Return the rows of the source list: ``[line, text, [location, ...]]``; line 0 marks headings and omissions."""
    by_file: dict[str, dict[int, list[int]]] = {}
    for index, location in enumerate(report.locations):
        by_file.setdefault(location.filename, {}).setdefault(location.line, []).append(index)
    rows = _cell_rows(report.cell.lines, by_file.pop(report.cell.filename, {}), report)
    for lines in by_file.values():
        rows += _file_rows(lines, report)
    return rows


def _cell_rows(lines: tuple[str, ...], located: dict[int, list[int]], report: TraceReport) -> list[Row]:
    if not lines:
        return _file_rows(located, report)
    wanted = range(1, len(lines) + 1) if len(lines) <= WHOLE else _neighbourhood(located, len(lines))
    rows: list[Row] = []
    last = 0
    for line in wanted:
        if line > last + 1:
            rows.append([0, "", []])
        rows.append([line, lines[line - 1].rstrip("\n"), located.get(line, [])])
        last = line
    return rows


def _neighbourhood(located: dict[int, list[int]], count: int) -> list[int]:
    near = {line + shift for line in located for shift in range(-AROUND, AROUND + 1)}
    return sorted(line for line in near if 1 <= line <= count)


def _file_rows(located: dict[int, list[int]], report: TraceReport) -> list[Row]:
    if not located:
        return []
    first = report.locations[next(iter(located.values()))[0]]
    heading = first.label.rsplit(",", 1)[0]
    texts = {line: report.locations[places[0]].text for line, places in located.items()}
    return [[0, heading, []], *([line, texts[line], located[line]] for line in sorted(located))]
