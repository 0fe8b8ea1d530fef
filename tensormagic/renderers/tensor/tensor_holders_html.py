"""Who keeps a tensor alive, as HTML: a table in the panel's "Memory and holders"."""

from __future__ import annotations

from tensormagic.renderers.basics.finding_html import with_code
from tensormagic.renderers.basics.markup import escape, tag
from tensormagic.renderers.tensor.tensor_holders_words import nobody_else, notes, rows
from tensormagic.reports import HoldersReport


def holders_html(report: HoldersReport | None, name: str) -> str:
    """Return the table with its notes, or nothing where not searched."""
    if report is None:
        return ""
    sentence = "".join(tag("p", with_code(line)) for line in notes(report, name))
    if nobody_else(report, name):
        return tag("p", with_code(f"Held only by `{name}`.")) + sentence
    if not report.holders:
        return sentence
    head = tag("tr", *(tag("th", title) for title in ("held by", "keeps alive", "which is")))
    body = (_row(row) for row in rows(report))
    return tag("table", tag("thead", head), tag("tbody", *body), class_="tm-list") + sentence


def _row(cells: tuple[str, str, str]) -> str:
    path, keeps, what = (escape(cell) for cell in cells)
    return tag("tr", tag("th", tag("code", path)), tag("td", keeps), tag("td", what, class_="quiet"))
