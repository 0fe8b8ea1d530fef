"""What a check says in a notebook: a strip of findings, small and quiet; all of it there without a script."""

from __future__ import annotations

from tensormagic.renderers.basics.finding_html import findings_html, gaps_html
from tensormagic.renderers.basics.markup import escape, tag
from tensormagic.renderers.basics.panel import all_clear as clear
from tensormagic.renderers.basics.panel import fold, folds, header, panel
from tensormagic.renderers.session.watch_words import all_clear, sizes, summary
from tensormagic.reports import WatchReport
from tensormagic.words import shortened

_NAME_WIDTH = 64
_HEAD = ("what holds the most", "tensors", "bytes")


def render(report: WatchReport) -> str:
    """Return the report as an HTML fragment: a ``<section>`` that needs nothing from outside."""
    parts = [
        header("check", [tag("span", escape(summary(report)), class_="quiet")], about="memory"),
        findings_html(report.findings) or clear(all_clear(report)),
        gaps_html(report.gaps),
        _sizes(report),
    ]
    return panel("tm-watch", "Check of the session", parts)


def _sizes(report: WatchReport) -> str:
    rows = sizes(report)
    if not rows:
        return ""
    first, *numbers = _HEAD
    head = tag(
        "tr", tag("th", first, scope="col"), *(tag("th", title, scope="col", class_="tm-num") for title in numbers)
    )
    body = "".join(
        tag(
            "tr",
            tag("td", tag("code", escape(shortened(name, _NAME_WIDTH)))),
            tag("td", tensors, class_="tm-num"),
            tag("td", nbytes, class_="tm-num"),
        )
        for name, tensors, nbytes in rows
    )
    filled = tag("table", tag("thead", head), tag("tbody", body), class_="tm-list")
    return folds(fold("What holds the most", filled, state=f"{rows[0][0]}: {rows[0][2]}"))
