"""The sentences of a table of tensors (``%tensors``)."""

from __future__ import annotations

from tensormagic.reports import MemoryTotal, TensorRow, TensorTable
from tensormagic.views.nodes import letters
from tensormagic.views.panels.aliases import clipped
from tensormagic.words import count, number_of_bytes, plural, shortened, tuple_text


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


def row_cells(row: TensorRow) -> tuple[str, ...]:
    """Return a row as text: name, kind, shape, dtype, device, bytes, letters of its memory, gradient."""
    more = f" +{row.names - 1}" if row.names > 1 else ""
    dtype = row.dtype if row.layout == "strided" else f"{row.dtype} {row.layout}"
    return (
        clipped(row.name) + more,
        shortened(row.kind, 20),
        tuple_text(row.shape),
        shortened(dtype, 24),
        row.device,
        number_of_bytes(row.nbytes),
        letters(row.group),
        row.gradient.removesuffix("Backward0") if row.gradient.endswith("Backward0") else row.gradient,
    )
