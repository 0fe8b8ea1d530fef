"""The operations of a run as plain text: totals, and the few operations and lines that took longest."""

from __future__ import annotations

from collections.abc import Iterator

from tensormagic.renderers.trace.ops_words import (
    COLUMNS,
    OpsRow,
    remarks,
    rows_by_line,
    rows_by_operation,
    split,
    summary,
)
from tensormagic.renderers.trace.trace_text_lines import filled
from tensormagic.reports import TraceReport
from tensormagic.words import count, shortened

MOST_OPERATIONS, MOST_LINES = 10, 6
_WIDTHS = (8, 9, 7, 9, 9, 10, 14)
_LEAST_LABEL = 16
_NEEDED = ("time", "share", "calls", "memory", "writes", "backward", "forward")  # the last give way on a narrow page


def operations(report: TraceReport, width: int) -> list[str]:
    """Return the section, no line wider than ``width``; empty where operations were not recorded."""
    ops = report.ops
    if ops is None or not ops.uses:
        return []
    lines = [*filled("operations: ", summary(ops), width)]
    lines += filled("  ", "; ".join([split(ops), *remarks(ops)]), width)
    lines += _table("operation", rows_by_operation(ops), MOST_OPERATIONS, width)
    lines += _table("line", rows_by_line(report, ops), MOST_LINES, width)
    return lines


def _table(name: str, rows: list[OpsRow], most: int, width: int) -> Iterator[str]:
    kept = _columns(width)
    label = width - 2 - sum(_WIDTHS[at] for at in kept)
    yield "  " + name.ljust(label) + "".join(COLUMNS[at].rjust(_WIDTHS[at]) for at in kept)
    for row in rows[:most]:
        cells = "".join(shortened(row.cells[at], _WIDTHS[at] - 1).rjust(_WIDTHS[at]) for at in kept)
        yield ("  " + shortened(row.label, label - 1).ljust(label) + cells).rstrip()
    if len(rows) > most:
        yield f"  and {count(len(rows) - most)} more"


def _columns(width: int) -> list[int]:
    """Return which columns fit, in their order."""
    kept: list[int] = []
    left = width - 2 - _LEAST_LABEL
    for name in _NEEDED:
        at = COLUMNS.index(name)
        if _WIDTHS[at] <= left:
            kept.append(at)
            left -= _WIDTHS[at]
    return sorted(kept)
