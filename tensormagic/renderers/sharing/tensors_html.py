"""What a person sees from ``%tensors`` in a notebook: a table that can be sorted and filtered, and what all takes.

The static table holds the first rows, or the largest where there are very many, and says so; the data block holds all
of them, and the inlined viewer sorts and filters those. The fragment holds no id: it can stand on a page twice.
"""

from __future__ import annotations

import re

from tensormagic.renderers.basics import theme
from tensormagic.renderers.basics.finding_html import findings_html, gaps_html
from tensormagic.renderers.basics.markup import escape, json_block, packed, tag
from tensormagic.renderers.basics.panel import folds, header, panel, scroll, section
from tensormagic.renderers.sharing.tensors_text import shown_rows
from tensormagic.renderers.sharing.tensors_words import row_cells, table_summary, table_title, total
from tensormagic.renderers.shelf import code_of, loader
from tensormagic.renderers.tensor import tensor_html
from tensormagic.reports import TensorRow, TensorTable
from tensormagic.views.nodes import Chip
from tensormagic.views.to_html import cell
from tensormagic.words import count

MOST_ROWS = 100
MOST_PLAIN = 400  # rows whose data stand in the page as they are; more are packed
HEAD = ("name", "kind", "shape", "dtype", "device", "bytes", "memory", "gradient")
RIGHT = "bytes"
_BLOCK, _STYLE = (re.compile(rf"<{name}>.*?</{name}>", re.DOTALL) for name in ("script", "style"))


def render(table: TensorTable) -> str:
    """Return the table as an HTML fragment: a ``<section>`` that needs nothing from outside."""
    parts = [
        _header(table),
        findings_html(table.findings),
        gaps_html(table.gaps),
        _rows(table),
        _panels(table),
        _viewer(table),
    ]
    css = ("sharing.css", *(tensor_html.CSS if table.panels else ()))
    return panel("tm-sharing", f"Tensors of {table_title(table)}", parts, css=css)


def _header(table: TensorTable) -> str:
    totals = (escape(total(part)) for part in table.totals)
    return header(escape(table_title(table)), [table_summary(table)], about="tensor", second=totals)


def _rows(table: TensorTable) -> str:
    if not table.rows:
        return ""
    rows = shown_rows(table.rows, MOST_ROWS)
    head = tag("tr", *(tag("th", title, class_="tm-right" if title == RIGHT else None) for title in HEAD))
    body = "".join(_row(row) for row in rows)
    filled = tag("table", tag("thead", head), tag("tbody", body), class_="tm-list tm-full tm-rows")
    cut = f"The {len(rows)} largest of {count(len(table.rows))} are listed; the totals are over all."
    more = tag("p", cut if len(rows) < len(table.rows) else "", class_="quiet tm-listed")
    return section("", scroll("Tensors", filled, class_="tm-rowbox"), more, class_="tm-rows-part")


def _row(row: TensorRow) -> str:
    name, *cells = row_cells(row)
    described = [tag("td", escape(cell), class_="tm-right" if title == RIGHT else None)
            for title, cell in zip(HEAD[1:6], cells[:5], strict=True)]  # fmt: skip
    return tag("tr", tag("th", escape(name)), *described, tag("td", cell(Chip(row.group))), tag("td", escape(cells[6])))


def _panels(table: TensorTable) -> str:
    if not table.panels:
        return ""
    folded = [tensor_html.folded(panel) for panel in table.panels]
    left_out = len(table.rows) - len(table.panels)
    more = (
        tag("p", f"The panels of {count(left_out)} more are not in this output.", class_="quiet")
        if left_out > 0
        else ""
    )
    return once(folds(tag("div", *folded, more, class_="tm-panels")))


def once(html: str) -> str:
    """Return panels without their style sheets, which are the table's, and each script only where it stands last."""
    html = _STYLE.sub("", html)
    last = {match.group(): match.start() for match in _BLOCK.finditer(html)}
    return _BLOCK.sub(lambda match: match.group() if last[match.group()] == match.start() else "", html)


def _viewer(table: TensorTable) -> str:
    if len(table.rows) < 2:
        return ""
    text = json_block(
        {"head": HEAD, "chips": theme.CHIP_COLOURS, "first": MOST_ROWS, "rows": [_data(row) for row in table.rows]}
    )
    kind, data = ("application/json", text) if len(table.rows) <= MOST_PLAIN else ("text/plain", packed(text))
    viewer = code_of("tensors", "tensors_viewer.js", mount="mountTables") + loader()
    return tag("script", data, type=kind, class_="tm-table-data") + viewer


def _data(row: TensorRow) -> list[object]:
    """Return a row for the viewer: its cells, then what they are sorted by where that is not the text itself."""
    numel = 1
    for size in row.shape:
        numel *= size
    return [*row_cells(row), numel, row.nbytes, row.group]
