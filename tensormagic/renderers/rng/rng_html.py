"""Generators, draws and compared runs as panels. Plain markup: there is nothing to compute in the browser."""

from __future__ import annotations

from collections.abc import Sequence

from tensormagic.renderers.basics.finding_html import findings_html, gaps_html
from tensormagic.renderers.basics.markup import escape, tag
from tensormagic.renderers.basics.panel import header, panel, scroll, section
from tensormagic.renderers.rng import rng_words as words
from tensormagic.reports.rng import DrawSum, RngComparison, RngReport, RngRunReport
from tensormagic.words import count

MOST_ROWS = 100


def render(report: RngReport | RngRunReport | RngComparison) -> str:
    """Return the panel as an HTML fragment: a ``<section>`` that needs nothing from outside."""
    if isinstance(report, RngReport):
        return _panel("random generators", words.headline(report), _standing(report))
    if isinstance(report, RngRunReport):
        told = f"{words.state_text(report)} \u00b7 {words.run_headline(report)}"
        return _panel("random numbers", told, _run(report))
    return _panel("two runs' random numbers", words.verdict(report), _compared(report))


def _panel(title: str, second: str, parts: list[str]) -> str:
    head = header(title, [escape(second)], about="random")
    return panel("tm-rng", title.capitalize(), [head, *parts], css=("listing.css", "rng.css"))


def _standing(report: RngReport) -> list[str]:
    rows = [words.state_row(state) for state in report.generators]
    table = _table(words.STATE_HEAD, rows, class_="tm-list tm-all tm-states")
    return [findings_html(report.findings), gaps_html(report.gaps), table]


def _run(report: RngRunReport) -> list[str]:
    rows = [words.draw_row(report, draw) for draw in report.sums]
    source = _source(report)
    return [
        findings_html(report.findings),
        gaps_html(report.gaps),
        source,
        "" if source else _table(words.DRAW_HEAD, rows),
        _table(words.CHANGE_HEAD, words.change_rows(report)),
    ]


def _source(report: RngRunReport) -> str:
    rows = "".join(_line(report, *row) for row in words.source_rows(report))
    listing = tag("table", tag("tbody", rows), class_="tm-code")
    return section("", scroll("The cell, line by line", listing), class_="tm-listing") if rows else ""


def _line(report: RngRunReport, number: int, text: str, draws: tuple[DrawSum, ...]) -> str:
    told = (tag("p", escape(words.beside(report, draw)), class_=f"tm-draw tm-{draw.kind}") for draw in draws)
    cells = (
        tag("td", str(number), class_="tm-number"),
        tag("td", tag("code", escape(text)), class_="tm-text"),
        tag("td", *told, class_="tm-draws"),
    )
    return tag("tr", *cells, class_="tm-at tm-at-note" if draws else None)


def _compared(report: RngComparison) -> list[str]:
    if report.difference == "none":
        return []
    return [
        _table(
            ("run", "where they part"), [(name, words.side_text(report, at)) for at, name in enumerate(report.names)]
        )
    ]


def _table(head: Sequence[str], rows: list[tuple[str, ...]], *, class_: str = "tm-list tm-all") -> str:
    if not rows:
        return ""
    titles = tag("tr", *(tag("th", title, scope="col") for title in head))
    body = "".join(tag("tr", *(tag("td", escape(cell)) for cell in row)) for row in rows[:MOST_ROWS])
    left_out = len(rows) - MOST_ROWS
    more = tag("p", f"and {count(left_out)} more", class_="quiet") if left_out > 0 else ""
    return section("", tag("table", tag("thead", titles), tag("tbody", body), class_=class_), more)
