"""Findings and gaps as HTML: a row each, its remedy one click away; complete where styles and scripts are stripped."""

from __future__ import annotations

import re
from collections.abc import Iterable

from tensormagic.renderers.basics.icons import SIGNS, icon
from tensormagic.renderers.basics.markup import escape, tag
from tensormagic.reports import Finding, Gap
from tensormagic.words import evidence_text

__all__ = ["SIGNS", "finding_html", "findings_html", "gaps_html", "related_html", "remedy_html", "with_code"]


MOST_SHOWN = 4  # rows of the strip; more stand behind one more row


def with_code(text: str) -> str:
    """Return ``text`` escaped, with what stands between backticks as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))


def findings_html(findings: Iterable[Finding]) -> str:
    """Return the findings strip, errors with their remedies shown; nothing where there is no finding."""
    rows = [finding_html(finding, explanation_html(finding)) for finding in findings]
    most = MOST_SHOWN if len(rows) > MOST_SHOWN + 1 else len(rows)
    shown = "".join(rows[:most])
    if rows[most:]:
        summary = tag("summary", f"{len(rows) - most} more findings")
        shown += tag("details", summary, *rows[most:], class_="tm-fold tm-rest")
    return tag("div", shown, class_="tm-find") if rows else ""


def finding_html(finding: Finding, explanation: Iterable[str], *, before: str = "", is_open: bool | None = None) -> str:
    """Return one row of the strip.

    Args:
        finding: What was found.
        explanation: What the row shows when it is opened; see `remedy_html`.
        before: Markup in front of the message.
        is_open: Whether it is from the start; errors are where nothing is said.
    """
    name = tag("span", f"{escape(finding.code)} {escape(finding.severity)}", class_="tm-sev")
    message = tag("span", before, with_code(finding.message))
    more = tag("span", "remedy" if finding.remedy else "more", class_="tm-hint")
    summary = tag("summary", icon(finding.severity), " ", name, " ", message, " ", more)
    opened = finding.severity == "error" if is_open is None else is_open
    inside = tag("div", *explanation, class_="tm-fix")
    return tag("details", summary, inside, class_=f"tm-{finding.severity}", open="" if opened else None)


def remedy_html(finding: Finding) -> str:
    """Return what to do, or nothing where nothing is known."""
    return tag("p", with_code(finding.remedy), class_="tm-remedy") if finding.remedy else ""


def explanation_html(finding: Finding) -> list[str]:
    """Return what a row shows when it is opened: what to do, other lines, and where it is with its numbers."""
    described: list[str] = []
    if finding.location is not None:
        where, text = finding.location.label, finding.location.text
        described.append(escape(where) + (f": {tag('code', escape(text))}" if text else ""))
    if finding.evidence:
        described.append(escape(f"evidence: {evidence_text(finding.evidence)}"))
    described.append(f"explained by {tag('code', escape(finding.help))}")
    return [remedy_html(finding), *related_html(finding), tag("p", " \u00b7 ".join(described))]


def related_html(finding: Finding) -> list[str]:
    """Return a paragraph for each other line that matters."""
    return [
        tag("p", escape(f"{line.what}: {line.location.label}: "), tag("code", escape(line.location.text)))
        for line in finding.related
    ]


def gaps_html(gaps: Iterable[Gap]) -> str:
    """Return what could not be read, named, or nothing where everything could be."""
    rows = "".join(tag("p", tag("b", escape(gap.section)), " not shown: ", with_code(gap.reason)) for gap in gaps)
    return tag("div", rows, class_="tm-gaps") if rows else ""
