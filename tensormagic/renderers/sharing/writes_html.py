"""Watched writes as a panel: findings first, then the cell with what each line changed, then every write as a table.

Plain markup throughout: there is nothing to compute in the browser, so there is no script.
"""

from __future__ import annotations

from tensormagic.renderers.basics.finding_html import findings_html, gaps_html
from tensormagic.renderers.basics.icons import icon
from tensormagic.renderers.basics.markup import corner, escape, tag
from tensormagic.renderers.basics.panel import all_clear as clear
from tensormagic.renderers.basics.panel import fold, folds, header, panel, scroll, section
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
from tensormagic.reports import ChangedName, Write, WritesReport
from tensormagic.words import count, plural, shortened

MOST_ROWS = 60
NAME_WIDTH = 48


def render(report: WritesReport) -> str:
    """Return the panel as an HTML fragment: a ``<section>`` that needs nothing from outside."""
    parts = [
        _header(report),
        findings_html(report.findings) or clear(all_clear(report)),
        gaps_html(report.gaps),
        _source(report),
        _table(report),
    ]
    return panel("tm-writes", "In-place writes", parts, css=("listing.css", "writes.css"))


def _header(report: WritesReport) -> str:
    state = tag("span", escape(state_text(report)), class_=f"tm-{report.state}")
    return header("in-place writes", [state, escape(headline(report))], about="code")


# -- the listing ---------------------------------------------------------------------------------------------------


def _source(report: WritesReport) -> str:
    rows = "".join(_line(line) for line in source_lines(report))
    if not rows:
        return ""
    head = tag(
        "tr",
        corner("mark", scope="col"),
        corner("number of the line", scope="col"),
        *(tag("th", text, scope="col") for text in ("line, and what it changes besides", "writes to")),
    )
    listing = tag("table", tag("thead", head), tag("tbody", rows), class_="tm-code")
    return section("", scroll("The cell, line by line", listing), class_="tm-listing")


def _line(line: SourceLine) -> str:
    if not line.number:
        text = escape(line.text) or "\u22ee"
        return tag("tr", tag("td", text, colspan=4, class_="tm-heading"))
    cells = (
        tag("td", str(line.number), class_="tm-number"),
        tag("td", _mark(line.sign), class_="tm-sign"),
        tag("td", tag("code", escape(line.text)), *_effects(line.writes), class_="tm-text"),
        tag("td", tag("code", escape(written_text(line.writes))) if line.writes else "", class_="tm-to"),
    )
    return tag("tr", *cells, class_=f"tm-at tm-at-{line.sign}" if line.sign else None)


def _mark(sign: str) -> str:
    return "\u2022" if sign == "write" else icon(sign) if sign else ""


def _effects(writes: tuple[Write, ...]) -> list[str]:
    """Return what a line did besides: of several ops that changed the same name, the first."""
    clashes = [tag("p", escape(clash_text(write.clash)), class_="tm-clash") for write in writes if write.clash]
    changed = {one.name: one for write in reversed(writes) for one in reversed(write.changed)}
    found = effects(reversed(changed.values()))
    left = len(found) - MOST_CHANGED
    more = [tag("p", f"and {plural(left, 'more name')}, in the table below", class_="quiet")] if left > 0 else []
    return [*clashes, *map(_effect, found[:MOST_CHANGED]), *more]


def _effect(effect: Effect) -> str:
    name, amount = tag("code", escape(shortened(effect.name, NAME_WIDTH))), tag("span", escape(effect.amount))
    arrow = tag("span", "\u2192", class_="quiet")
    strip = _strip(effect.changed) if effect.changed is not None else ""
    return tag("p", arrow, " ", name, " ", amount, " ", strip, class_="tm-changed")


def _strip(changed: ChangedName) -> str:
    """Return where the changed elements lie, row by row, a small box a part; with a wider gap between rows."""
    marks = changed.marks
    if not marks:
        return ""
    row = changed.shape[-1] if len(changed.shape) > 1 and len(marks) == changed.of_elements else 0
    boxes = "".join(_box(mark, new_row=bool(row and at and at % row == 0)) for at, mark in enumerate(marks))
    said = f"{count(changed.elements or 0)} of {plural(changed.of_elements, 'element')} reached, in reading order"
    return tag("span", boxes, class_="tm-marks", role="img", aria_label=said, title=said)


def _box(mark: str, *, new_row: bool) -> str:
    name = {"0": "", "9": "on"}.get(mark, "some")
    return tag("i", class_=f"{name} row".strip() if new_row else name or None)


# -- every write ---------------------------------------------------------------------------------------------------


def _table(report: WritesReport) -> str:
    rows = list(table_rows(report))
    if not rows:
        return ""
    top = tag("thead", tag("tr", *(tag("th", name, scope="col") for name in TABLE_HEAD)))
    body = tag("tbody", *(tag("tr", *(tag("td", escape(cell)) for cell in row)) for row in rows[:MOST_ROWS]))
    left = len(rows) - MOST_ROWS
    more = tag("p", f"and {plural(left, 'more line')} that write", class_="quiet") if left > 0 else ""
    table = tag("table", top, body, class_="tm-list tm-full tm-all")
    said = plural(len(rows), "line and op", "lines and ops")
    return folds(fold("Every write", scroll("Every write", table, more), state=said))
