"""The operations of a run as two HTML tables, folded away under one line with their totals.

Plain elements: everything can be read without scripts, and copied. The bar behind a share is drawn by the cell's
background; its number stands in the cell.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensormagic.renderers.basics.markup import escape, tag
from tensormagic.renderers.basics.panel import fold, folds, scroll
from tensormagic.renderers.trace.ops_words import (
    COLUMNS,
    OpsRow,
    remarks,
    rows_by_line,
    rows_by_operation,
    split,
    summary,
)

if TYPE_CHECKING:
    from tensormagic.reports import OpsReport, TraceReport

MOST_LINES, MOST_OPERATIONS = 10, 20
_SHARE = COLUMNS.index("share")


def operations_html(report: TraceReport) -> str:
    """Return the section; nothing where operations were not recorded."""
    ops = report.ops
    if ops is None or not ops.uses:
        return ""
    tables = (
        _table("By line", rows_by_line(report, ops), MOST_LINES, code=True),
        _table("By operation", rows_by_operation(ops), MOST_OPERATIONS),
    )
    inside = scroll("Operations", _lead(ops), *tables, class_="tm-ops")
    return folds(fold("Operations", inside, state=summary(ops)))


def _lead(ops: OpsReport) -> str:
    return tag("p", escape("; ".join([split(ops), *remarks(ops)])), class_="quiet")


def _table(title: str, rows: list[OpsRow], most: int, *, code: bool = False) -> str:
    shown = rows[:most]
    left_out = f", the {len(shown)} that took longest of {len(rows)}" if len(rows) > len(shown) else ""
    names = ("line" if code else "operation", *COLUMNS)
    head = tag("thead", tag("tr", *(tag("th", name, scope="col") for name in names)))
    body = tag("tbody", *(_row(row, code=code) for row in shown))
    return tag("table", tag("caption", escape(f"{title}{left_out}")), head, body, class_="tm-ops-table")


def _row(row: OpsRow, *, code: bool) -> str:
    label = tag("code", escape(row.label)) if code else escape(row.label)
    cells = [tag("td", escape(cell), **(_bar(row) if at == _SHARE else {})) for at, cell in enumerate(row.cells)]
    return tag("tr", tag("th", label, scope="row"), *cells)


def _bar(row: OpsRow) -> dict[str, str]:
    return {"class_": "tm-share", "style": f"--part:{100 * row.share:.1f}"}
