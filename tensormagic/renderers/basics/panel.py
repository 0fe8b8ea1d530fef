"""The frame of a panel, and the findings in it."""

from __future__ import annotations

import re
from collections.abc import Iterable

from tensormagic.renderers.basics.markup import escape, tag
from tensormagic.renderers.basics.theme import SIGNS, icon
from tensormagic.reports import Finding, Gap
from tensormagic.words import evidence_text

__all__ = ["SIGNS", "finding_html", "findings_html", "gaps_html", "related_html", "remedy_html", "with_code"]


# The parts that every panel is made of: header, all-clear, disclosure, scrolled table.
#
# One module, so that a person who has read one panel can read them all: what it is about stands at the top left, what
# is wrong right under it, then sections by the same headings, and behind a plus sign what is not needed at once.
# Everything works without scripts, and reads in order where styles are stripped.


def header(  # noqa: PLR0913  (all but title and facts is keyword-only)
    title: str,
    facts: Iterable[str] = (),
    *,
    about: str = "",
    badges: str = "",
    second: Iterable[str] = (),
    lead: str = "",
) -> str:
    """Return the header: what this is, the first facts beside it, badges at the right; all are markup already.

    Args:
        title: What the panel is about; set as code.
        facts: One after the other on the line of the title.
        about: The icon that says what kind of thing that is.
        badges: At the right.
        second: Quiet lines below.
        lead: The answer, as a sentence in large type.
    """
    name = tag("b", title, class_="tm-name")
    described = (fact if fact.startswith("<") else tag("span", fact) for fact in facts if fact)
    line = tag("p", (icon(about) if about else "") + " ".join([name, *described]), class_="tm-line")
    right = " " + tag("p", badges, class_="tm-badges") if badges else ""
    below = "".join(tag("p", text, class_="tm-second quiet") for text in second if text)
    answer = tag("p", lead, class_="tm-lead") if lead else ""
    return tag("header", line, right, answer, below, class_="tm-head")


def all_clear(text: str) -> str:
    """Return the line that says that nothing was found; ``text`` is plain."""
    return tag("p", icon("ok"), " ", escape(text), class_="tm-clear")


def fold(title: str, *content: str, state: str = "", is_open: bool = False) -> str:
    """Return what opens on demand: a heading behind a plus sign, with what it would show in quiet words beside it."""
    body = "".join(content)
    if not body:
        return ""
    sentence = " " + tag("span", escape(state), class_="quiet") if state else ""
    inside = tag("div", body, class_="tm-inside")
    return tag("details", tag("summary", title, sentence), inside, class_="tm-fold", open="" if is_open else None)


def folds(*each: str) -> str:
    """Return disclosures side by side; nothing where there are none."""
    shown = " ".join(one for one in each if one)
    return tag("div", shown, class_="tm-folds") if shown else ""


def scroll(label: str, *content: str, class_: str = "") -> str:
    """Return content that is as high as it may be and scrolls beyond, by the keyboard too; ``label`` names it."""
    pairs = {"class_": f"tm-scroll {class_}".strip(), "tabindex": "0", "role": "region", "aria_label": label}
    pairs["data_lm_suppress_shortcuts"] = "true"  # JupyterLab would take the arrow keys for its own
    return tag("div", *content, **pairs)


# Findings and gaps as HTML: a row each, its remedy one click away; complete where styles and scripts are stripped.

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
