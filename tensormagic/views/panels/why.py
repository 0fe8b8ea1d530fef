"""Why a gradient is what it is (``%why``): the answer, the way to the loss with its end, what to do."""

from __future__ import annotations

from tensormagic.reports import GradientFacts, WhyGroup, WhyReport
from tensormagic.views.nodes import Cell, Column, Findings, Items, Node, Panel, Paragraph, Section, Words, table_of
from tensormagic.views.pictures.autograd_path import WayPicture
from tensormagic.words import listed, plural, short_number, tuple_text

MOST_NAMES = 12


def view(report: WhyReport) -> Panel:
    """Return the panel."""
    body: list[Node] = [Findings(report.findings, report.gaps)]
    if len(report.way) > 1:
        body.append(WayPicture(report))
    if report.remedy:
        body.append(Section("What to do", [Items(list(map(_code_or_words, report.remedy)), len(report.remedy))]))
    rests: list[Node] = [*report.evidence]
    if report.location is not None and report.location.text:
        rests.append(f"{report.location.label}: `{report.location.text}`")
    if report.source:
        rests.append(Paragraph(f"as {report.source} saw it", "quiet"))
    body.append(Section("", rests))
    body += [table_of(GROUPS, report.groups)] if report.groups else []
    facts: list[Cell] = [Words(facts_words(report.facts), "quiet")] if report.facts is not None else []
    name, label = title(report), f"Why {title(report)} is what it is"
    return Panel("why", "graph", f"why {name}", facts, body, label, lead=report.answer, sheets=("why.css",))


def _code_or_words(text: str) -> Cell:
    """Return a sentence, or what is code as a whole as code."""
    return text if "`" in text or text.endswith(".") else Words(text, "code")


def _reason(group: WhyGroup) -> Cell:
    return group.reason if group.fine else Words(group.reason, "error")


def _names(group: WhyGroup) -> Cell:
    return Words(listed(group.names, most=MOST_NAMES), "code")


GROUPS = (
    Column("reason", _reason, "name"),
    Column("how many", lambda group: plural(group.count, "parameter"), "silent"),
    Column("which", _names, "wide"),
    Column("the first of them", lambda group: group.answer),
)


def title(report: WhyReport) -> str:
    """Return what was asked about: ``net.fc1.weight.grad``; of a module its name."""
    return report.name if report.facts is None else f"{report.name}.grad"


def facts_words(facts: GradientFacts) -> str:
    """Return what the tensor is, in one line."""
    kind = "parameter" if facts.is_parameter else "leaf" if facts.is_leaf else "no leaf"
    flag = f"requires_grad={facts.requires_grad}"
    asked = f"shown for {facts.expression}" if facts.expression else ""
    parts = (asked, kind, f"{facts.dtype} {tuple_text(facts.shape)}", flag, _grad(facts))
    return " \u00b7 ".join(filter(None, parts))


def _grad(facts: GradientFacts) -> str:
    if facts.grad == "none":
        return "grad None"
    return "grad unreadable" if facts.grad == "unreadable" else f"grad of norm {short_number(facts.norm)}"
