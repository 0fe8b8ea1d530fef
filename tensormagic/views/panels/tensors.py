"""A table of tensors (``%tensors``): a line each, and what all of them take."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

from tensormagic.reports import MemoryTotal, TensorReport, TensorRow, TensorTable
from tensormagic.views import theme, to_html, to_svg, to_text
from tensormagic.views.markup import escape, json_block, packed, tag
from tensormagic.views.nodes import Cell, Chip, Column, Findings, Node, Panel, Picture, Table, Words, clipped, letters
from tensormagic.views.panels import tensor
from tensormagic.views.panels.tensor import SHEETS as TENSOR_SHEETS
from tensormagic.views.pictures import tensor_elements
from tensormagic.views.text_canvas import wrapped
from tensormagic.views.theme import code_of, loader
from tensormagic.views.to_html import fold, folds
from tensormagic.words import count, number_of_bytes, plural, shortened

# The rows of a table of tensors: in a notebook they can be sorted and filtered, and each opens as its panel.
#
# The static table holds the first rows, or the largest where there are very many, and says so; the data block holds
# all of them, and the inlined viewer sorts and filters those. The markup holds no id: it can stand on a page twice.

MOST_ROWS, MOST_LINES = 100, 40  # in a page, in a terminal
MOST_PLAIN = 400  # rows whose data stand in the page as they are; more are packed
HEAD = ("name", "kind", "shape", "dtype", "device", "bytes", "memory", "gradient")
_LOOKS = {"name": "name wide", "bytes": "number"}


@dataclass(frozen=True, slots=True)
class TensorRows(Picture):
    """A table of tensors whose rows can be sorted and filtered (tensors)."""

    table: TensorTable  # Its rows, and the panels of the first of them.

    def html(self) -> str:
        """Return the rows, the folded panels, and the viewer with its data."""
        shown, every = self.drawn(MOST_ROWS), len(self.table.rows)
        cut = f"The {MOST_ROWS} largest of {count(every)} are listed; the totals are over all."
        listed = tag("p", cut if len(shown.rows) < every else "", class_="quiet tm-listed")
        rows = tag("div", to_html.html(shown), listed, class_="tm-rows") if every else ""
        return rows + _panels(self.table) + (_viewer(self.table) if every > 1 else "")

    def text(self, width: int) -> Iterator[str]:
        """Return a line a tensor, and how to see one in full."""
        yield from to_text.text(self.drawn(), width)
        if len(self.table.rows) > MOST_LINES:
            yield f"  the {MOST_LINES} largest of {count(len(self.table.rows))}"
        if self.table.panels:
            yield ""
            yield from wrapped(f"one in full: %tensor {self.table.panels[0].name}", width, "  ", "  ")

    def svg(self, width: float) -> tuple[str, float]:
        """Return the rows."""
        return to_svg.table_svg(self.drawn(), width)

    def drawn(self, most: int = MOST_LINES) -> Table:
        """Return the rows, or the largest, as a table; the device is in the line above where there is but one."""
        several = len(self.table.totals) > 1
        columns = [Column(title, look=_LOOKS.get(title, ""), in_terminal=title != "device" or several)
                   for title in HEAD]  # fmt: skip
        rows: list[tuple[Cell, ...]] = []
        every = self.table.rows
        for row in every if len(every) <= most else sorted(every, key=lambda row: -row.nbytes)[:most]:
            *cells, _, gradient = (Words(text, "literal") for text in row_cells(row))
            rows.append((*cells, Chip(row.group), gradient))
        return Table(columns, rows, label="Tensors")


def row_cells(row: TensorRow) -> tuple[str, ...]:
    """Return a row as text: name, kind, shape, dtype, device, bytes, letters of its memory, gradient."""
    more = f" +{row.names - 1}" if row.names > 1 else ""
    dtype = row.dtype if row.layout == "strided" else f"{row.dtype} {row.layout}"
    return (
        clipped(row.name) + more,
        shortened(row.kind, 20),
        tensor_elements.shape_text(row.shape),
        shortened(dtype, 24),
        row.device,
        number_of_bytes(row.nbytes),
        letters(row.group),
        row.gradient.removesuffix("Backward0") if row.gradient.endswith("Backward0") else row.gradient,
    )


def _panels(table: TensorTable) -> str:
    if not table.panels:
        return ""
    title, left_out = "The panel of each", len(table.rows) - len(table.panels)
    more = ""
    if left_out > 0:
        title = f"The panels of the first {count(len(table.panels))}"
        more = tag("p", f"The panels of {count(left_out)} more are not in this output.", class_="quiet")
    html = folds(fold(title, tag("div", *map(folded, table.panels), more, class_="tm-panels")))
    # Without their style sheets, which are the table's, and with one loader for all of them.
    before, last, after = re.sub("<style>.*?</style>", "", html, flags=re.DOTALL).rpartition(loader())
    return before.replace(loader(), "") + last + after


def folded(report: TensorReport) -> str:
    """Return the panel of a tensor folded under one line that says which it is."""
    return fold(tag("code", escape(tensor_elements.summary(report))), to_html.render(tensor.view(report)))


# What the viewer says of the rows (`words.worded`).
_TABLE_WORDS = {
    "filter": "filter the tensors: words that a row must contain",
    "keys": "filter: name, dtype, letter",
    "match": "{length} of {all} match",
    "all": "{all row}",
    "more": "{shown} of {length} shown: show more",
}


def _viewer(table: TensorTable) -> str:
    # Of each row its cells, then what they are sorted by where that is not the text itself.
    rows = [[*row_cells(row), abs(math.prod(row.shape)), row.nbytes, row.group] for row in table.rows]
    text = json_block({"head": HEAD, "chips": theme.CHIP_COLOURS, "first": MOST_ROWS, "rows": rows})
    kind, data = ("application/json", text) if len(table.rows) <= MOST_PLAIN else ("text/plain", packed(text))
    viewer = code_of("tensors", "tensors_viewer.js", mount="mountTable", words=json.dumps(_TABLE_WORDS)) + loader()
    return tag("script", data, type=kind, class_="tm-table-data") + viewer


def view(table: TensorTable) -> Panel:
    """Return the panel."""
    body: list[Node] = [Findings(table.findings, table.gaps), TensorRows(table)]
    totals = [*(total(part, table) for part in table.totals), *([table.hint] if table.hint else [])]
    title = table_title(table)
    sheets = ("sharing.css", *(TENSOR_SHEETS if table.panels else ()))
    return Panel("sharing", "tensor", title, [table_summary(table)], body, f"Tensors of {title}", totals, sheets=sheets)


def table_title(table: TensorTable) -> str:
    """Return the name of a table."""
    return clipped(table.title) or "tensors"


def total(part: MemoryTotal, table: TensorTable) -> str:
    """Return what lies on one device of a table."""
    on = f"{number_of_bytes(part.nbytes)} on {part.device}: {count(part.tensors)}"
    if part.tensors == part.storages and not table.groups:
        return f"{on}, each in its own memory" if part.tensors > 1 else on
    each = ", each counted once" if part.tensors > part.storages else ""
    return f"{on} in {plural(part.storages, 'piece')} of memory{each}"


def table_summary(table: TensorTable) -> str:
    """Return how many rows of which kinds there are."""
    arrays = sum(row.kind == "ndarray" for row in table.rows)
    text = plural(len(table.rows) - arrays, "tensor")
    return f"{text}, {plural(arrays, 'array')}" if arrays else text
