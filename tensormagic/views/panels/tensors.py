"""A table of tensors (``%tensors``): a line each, and what all of them take."""

from __future__ import annotations

from tensormagic.reports import MemoryTotal, TensorTable
from tensormagic.views.nodes import Findings, Node, Panel, clipped
from tensormagic.views.panels.tensor import SHEETS as TENSOR_SHEETS
from tensormagic.views.pictures.tensor_rows import TensorRows
from tensormagic.words import count, number_of_bytes, plural


def view(table: TensorTable) -> Panel:
    """Return the panel."""
    body: list[Node] = [Findings(table.findings, table.gaps), TensorRows(table)]
    totals = [*map(total, table.totals), *([table.hint] if table.hint else [])]
    title = table_title(table)
    sheets = ("sharing.css", *(TENSOR_SHEETS if table.panels else ()))
    return Panel("sharing", "tensor", title, [table_summary(table)], body, f"Tensors of {title}", totals, sheets=sheets)


def table_title(table: TensorTable) -> str:
    """Return the name of a table."""
    return clipped(table.title) or "tensors"


def total(part: MemoryTotal) -> str:
    """Return what lies on one device."""
    pieces = plural(part.storages, "piece") + " of memory"
    described = f"{number_of_bytes(part.nbytes)} on {part.device}: {count(part.tensors)} in {pieces}"
    return f"{described}, each counted once" if part.tensors > part.storages else described


def table_summary(table: TensorTable) -> str:
    """Return how many rows of which kinds there are."""
    arrays = sum(row.kind == "ndarray" for row in table.rows)
    text = plural(len(table.rows) - arrays, "tensor")
    return f"{text}, {plural(arrays, 'array')}" if arrays else text
