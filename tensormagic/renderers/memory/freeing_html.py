"""What a person sees from ``%gpumem --free`` in a notebook: a sentence, a table, and what to run or what it brought."""

from __future__ import annotations

from tensormagic.renderers.basics.finding_html import findings_html, gaps_html
from tensormagic.renderers.basics.markup import escape, tag
from tensormagic.renderers.basics.panel import header, section
from tensormagic.renderers.memory.freeing_words import entry_words, gain_words, how, lead
from tensormagic.renderers.memory.memory_html import code_html, memory_panel
from tensormagic.reports import FreeingReport, Release


def render(report: FreeingReport) -> str:
    """Return the panel as an HTML fragment: a ``<section>`` that needs nothing from outside."""
    rows = "".join(map(_row, report.entries))
    gains = "".join(tag("p", escape(words), class_="quiet") for words in map(gain_words, report.gains) if words)
    hint = tag("p", code_html(how(report)), class_="quiet") if report.entries and not report.dropped else ""
    parts = [
        header("memory", [escape(lead(report))], about="memory"),
        findings_html(report.findings),
        gaps_html(report.gaps),
        section("", tag("table", tag("tbody", rows), class_="tm-list") if rows else "", gains, hint),
    ]
    return memory_panel("What only the history keeps in memory", parts)


def _row(entry: Release) -> str:
    name, nbytes, notes = entry_words(entry)
    cells = (
        tag("th", tag("code", escape(name)), scope="row"),
        tag("td", nbytes, class_="tm-num"),
        tag("td", escape(notes), class_="quiet tm-wide"),
    )
    return tag("tr", *cells)
