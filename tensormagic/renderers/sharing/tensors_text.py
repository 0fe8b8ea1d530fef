"""What a person sees from ``%tensors`` in a terminal: a line a tensor, and what all of them take."""

from __future__ import annotations

from tensormagic.renderers.sharing.tensors_words import row_cells, table_summary, table_title, total
from tensormagic.renderers.tensor.tensor_text import finding_lines, shortened_line
from tensormagic.renderers.tensor.tensor_text import render as tensor_text
from tensormagic.renderers.terminal.text_canvas import printable
from tensormagic.renderers.terminal.text_canvas import table as columns
from tensormagic.renderers.trace.trace_text_lines import filled
from tensormagic.reports import TensorRow, TensorTable
from tensormagic.words import count

NARROWEST = 40
MOST_ROWS = 40
HEAD = ("NAME", "KIND", "SHAPE", "DTYPE", "DEVICE", "BYTES", "MEMORY", "GRADIENT")
_DEVICE = HEAD.index("DEVICE")


def render(table: TensorTable, *, width: int = 100) -> str:
    """Return the table as text, no line wider than ``width`` columns (never narrower than 40)."""
    width = max(width, NARROWEST)
    sections = [
        _header(table, width),
        [line for finding in table.findings for line in finding_lines(finding, width)],
        [line for gap in table.gaps for line in filled(" not shown: ", f"{gap.section}: {gap.reason}", width)],
        _rows(table, width),
        *(tensor_text(panel, width=width).split("\n") for panel in table.panels),
    ]
    lines = "\n\n".join("\n".join(section) for section in sections if section).split("\n")
    return "\n".join(shortened_line(printable(line), width) for line in lines)


def _header(table: TensorTable, width: int) -> list[str]:
    rule = f"\u2500\u2500 {table_title(table)} \u2500\u2500 {table_summary(table)} ".ljust(width, "\u2500")
    return [rule, *(f"   {total(part)}" for part in table.totals)]


def _rows(table: TensorTable, width: int) -> list[str]:
    rows = shown_rows(table.rows, MOST_ROWS)
    if not rows:
        return []
    left_out = len(table.rows) - len(rows)
    more = [f" the {MOST_ROWS} largest of {count(len(table.rows))}"] if left_out else []
    cells = [HEAD, *(row_cells(row) for row in rows)]
    if len(table.totals) == 1 and max(map(len, columns(cells, gap=2))) > width:  # the header says which device it is
        cells = [(*one[:_DEVICE], *one[_DEVICE + 1 :]) for one in cells]
    return [*columns(cells, gap=2, width=width), *more]


def shown_rows(rows: tuple[TensorRow, ...], most: int) -> tuple[TensorRow, ...]:
    """Return all rows in their order, or the largest where there are too many."""
    return rows if len(rows) <= most else tuple(sorted(rows, key=lambda row: -row.nbytes)[:most])
