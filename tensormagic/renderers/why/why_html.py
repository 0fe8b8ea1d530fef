"""Why a gradient is what it is, in a notebook: the answer, the way to the loss with its end, what to do.

Everything is in the markup; there is no script and no picture to load: the way is a row of boxes that wraps.
"""

from __future__ import annotations

from collections.abc import Iterable

from tensormagic.renderers.basics.finding_html import findings_html, gaps_html, with_code
from tensormagic.renderers.basics.markup import corner, escape, tag
from tensormagic.renderers.basics.panel import header, panel, section
from tensormagic.renderers.why.why_words import (
    ARROW,
    SEVERED,
    came_words,
    facts_words,
    legend,
    line_words,
    reached,
    title,
)
from tensormagic.reports import WayStep, WhyGroup, WhyReport
from tensormagic.words import listed, plural, shortened

_LABEL = 40
MOST_NAMES = 12


def render(report: WhyReport) -> str:
    """Return the panel as an HTML fragment: a ``<section>`` that needs nothing from outside."""
    parts = [
        _header(report),
        findings_html(report.findings),
        gaps_html(report.gaps),
        _way(report),
        _remedy(report.remedy),
        _rests(report),
        _groups(report.groups),
    ]
    return panel("tm-why", f"Why {title(report)} is what it is", parts, css=("why.css",))


def _header(report: WhyReport) -> str:
    about = facts_words(report.facts) if report.facts is not None else ""
    name = tag("i", "why") + " " + escape(title(report))
    facts = [tag("span", escape(about), class_="quiet")] if about else []
    return header(name, facts, about="graph", lead=with_code(report.answer))


def _way(report: WhyReport) -> str:
    if len(report.way) < 2:
        return ""
    came = reached(report)
    drawn = "".join(
        (_arrow(report.way[at - 1], step, came=came[at - 1]) if at else "") + _stop(report, step, came=came[at])
        for at, step in enumerate(report.way)
    )
    return section("", tag("div", drawn, class_="tm-way"), tag("p", escape(legend(report)), class_="quiet"))


def _arrow(before: WayStep, after: WayStep, *, came: bool) -> str:
    ended = "cut" in {before.kind, after.kind} or "nothing" in {before.kind, after.kind}
    kind = "tm-ended" if ended else "tm-some" if came else "tm-none"
    return tag("span", SEVERED if ended else ARROW, class_=f"tm-arrow {kind}")


def _stop(report: WhyReport, step: WayStep, *, came: bool) -> str:
    kinds = [
        "tm-stop",
        f"tm-{step.kind}",
        "" if came or step.kind == "cut" else "tm-none",
        "tm-bad" if step.bad else "",
    ]
    label = tag("code", escape(shortened(step.label, _LABEL)), class_="tm-label")
    below = [text for text in (step.detail, line_words(report, step)) if text]
    small = "".join(tag("span", escape(text), class_="tm-small") for text in below)
    norm = came_words(step)
    amount = tag("span", escape(norm), class_="tm-small tm-norm") if norm else ""
    hint = step.location.text if step.location is not None else None
    return tag("span", label, small, amount, class_=" ".join(filter(None, kinds)), title=hint or None)


def _remedy(remedy: Iterable[str]) -> str:
    rows = "".join(tag("li", _code_or_words(text)) for text in remedy)
    return section("What to do", tag("ul", rows), class_="tm-do") if rows else ""


def _code_or_words(text: str) -> str:
    """Return a sentence with its code marked, or what is code as a whole."""
    is_sentence = "`" in text or text.endswith(".")
    return with_code(text) if is_sentence else tag("code", escape(text))


def _rests(report: WhyReport) -> str:
    told = [tag("p", with_code(text)) for text in report.evidence]
    if report.location is not None and report.location.text:
        told.append(tag("p", escape(f"{report.location.label}: "), tag("code", escape(report.location.text))))
    if report.source:
        told.append(tag("p", escape(f"as {report.source} saw it"), class_="quiet"))
    return section("", *told, class_="tm-rests")


def _groups(groups: Iterable[WhyGroup]) -> str:
    rows = "".join(
        tag("tr", tag("th", escape(group.reason), class_=None if group.fine else "tm-ill"),
            tag("td", escape(plural(group.count, "parameter"))),
            tag("td", tag("code", escape(names_words(group)))), tag("td", with_code(group.answer)))
        for group in groups
    )  # fmt: skip
    head = tag("tr", tag("th", "reason"), corner("how many"), tag("th", "which"), tag("th", "the first of them"))
    return section("", tag("table", tag("thead", head), tag("tbody", rows), class_="tm-list tm-full")) if rows else ""


def names_words(group: WhyGroup) -> str:
    """Return the names of a group, at most a dozen."""
    return listed(group.names, most=MOST_NAMES)
