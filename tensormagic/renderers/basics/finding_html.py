"""Findings and gaps as HTML: a row each, its remedy one click away; complete where styles and scripts are stripped."""

from __future__ import annotations

import re
from collections.abc import Iterable

from tensormagic.renderers.basics.markup import escape, tag
from tensormagic.reports import Finding, Gap

SIGNS = {"error": "\u2716", "warning": "\u25b2", "note": "\u25cb"}


def with_code(text: str) -> str:
    """Return ``text`` escaped, with what stands between backticks as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))


def findings_html(findings: Iterable[Finding]) -> str:
    """Return the findings strip, or nothing where there is no finding."""
    rows = "".join(_finding(finding) for finding in findings)
    return tag("div", rows, class_="tm-find") if rows else ""


def _finding(finding: Finding) -> str:
    sign = tag("span", SIGNS[finding.severity], " ", escape(finding.severity), class_=f"tm-sev tm-{finding.severity}")
    message = tag("span", with_code(finding.message))
    more = tag("span", "remedy" if finding.remedy else "more", class_="tm-hint")
    summary = tag("summary", sign, " ", tag("code", escape(finding.code), class_="quiet"), " ", message, " ", more)
    return tag("details", summary, tag("div", *_explanation(finding), class_="tm-fix"))


def _explanation(finding: Finding) -> list[str]:
    parts = [tag("p", with_code(finding.remedy))] if finding.remedy else []
    if finding.location is not None:
        where, text = finding.location.label, finding.location.text
        parts.append(tag("p", escape(where), f": {tag('code', escape(text))}" if text else ""))
    parts += related_html(finding)
    if finding.evidence:
        numbers = ", ".join(f"{key} = {value}" for key, value in finding.evidence.items())
        parts.append(tag("p", "evidence: ", escape(numbers)))
    parts.append(tag("p", escape(f"explained in {finding.url}")))
    return parts


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
