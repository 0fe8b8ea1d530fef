"""What a check says in a notebook: a strip of findings, small and quiet; all of it there without a script."""

from __future__ import annotations

from tensormagic.renderers.assets import static
from tensormagic.renderers.basics import theme
from tensormagic.renderers.basics.finding_html import findings_html, gaps_html
from tensormagic.renderers.basics.markup import escape, tag
from tensormagic.renderers.basics.phrases import shortened
from tensormagic.renderers.session.watch_words import all_clear, sizes, summary
from tensormagic.reports import WatchReport

_NAME_WIDTH = 64
_HEAD = ("what holds the most", "tensors", "bytes")


def render(report: WatchReport) -> str:
    """Return the report as an HTML fragment: a ``<section>`` that needs nothing from outside."""
    clear = tag("p", escape(all_clear(report)), class_="tm-clear")
    parts = [
        tag("style", theme.stylesheet(), static("tensor.css"), static("watch.css")),
        _header(report),
        findings_html(report.findings) or clear,
        gaps_html(report.gaps),
        _sizes(report),
    ]
    return tag("section", *parts, class_="tm tm-tensor tm-watch", aria_label="Check of the session")


def _header(report: WatchReport) -> str:
    name = tag("b", "check", class_="tm-name")
    line = tag("p", name, " ", tag("span", escape(summary(report)), class_="quiet"), class_="tm-line")
    return tag("header", line, class_="tm-head")


def _sizes(report: WatchReport) -> str:
    rows = sizes(report)
    if not rows:
        return ""
    head = tag("tr", *(tag("th", title, scope="col") for title in _HEAD))
    body = "".join(
        tag("tr", tag("td", tag("code", escape(shortened(name, _NAME_WIDTH)))), tag("td", tensors), tag("td", nbytes))
        for name, tensors, nbytes in rows
    )
    filled = tag("table", tag("thead", head), tag("tbody", body), class_="tm-holds")
    said = tag("span", escape(f"{rows[0][0]}: {rows[0][2]}"), class_="quiet")
    return tag("div", tag("details", tag("summary", "What holds the most ", said), filled), class_="tm-more")
