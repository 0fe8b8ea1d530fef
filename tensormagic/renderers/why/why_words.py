"""The words for why a gradient is what it is: in the panel and in the terminal the same."""

from __future__ import annotations

from tensormagic.reports import GradientFacts, WayStep, WhyReport
from tensormagic.words import short_number, tuple_text

SEVERED = "//"
ARROW = "\u2190"


def title(report: WhyReport) -> str:
    """Return what was asked about: ``net.fc1.weight.grad``; of a module its name."""
    return report.name if report.facts is None else f"{report.name}.grad"


def facts_words(facts: GradientFacts) -> str:
    """Return what the tensor is, in one line."""
    kind = "parameter" if facts.is_parameter else "leaf" if facts.is_leaf else "no leaf"
    flag = f"requires_grad={facts.requires_grad}"
    asked = f"asked for as {facts.expression}" if facts.expression else ""
    parts = (asked, kind, f"{facts.dtype} {tuple_text(facts.shape)}", flag, _grad(facts))
    return " \u00b7 ".join(filter(None, parts))


def _grad(facts: GradientFacts) -> str:
    if facts.grad == "none":
        return "grad None"
    return "grad unreadable" if facts.grad == "unreadable" else f"grad of norm {short_number(facts.norm)}"


def came_words(step: WayStep) -> str:
    """Return what came to a stop of the way: ``norm 0.43``, ``zero``; empty where that is not known."""
    if step.norm is None:
        return ""
    return "zero" if step.norm == 0 else f"norm {short_number(step.norm)}"


def line_words(report: WhyReport, step: WayStep) -> str:
    """Return the line of a stop of the way, with its file or cell where the way leads through several; else empty."""
    if step.location is None:
        return ""
    files = {each.location.filename for each in report.way if each.location is not None}
    return step.location.label if len(files) > 1 else f"line {step.location.line}"


def reached(report: WhyReport) -> list[bool]:
    """Return for each stop whether the gradient came there: not before the last cut, seen from the tensor."""
    ends = [at for at, step in enumerate(report.way) if step.kind in {"cut", "nothing"}]
    last = ends[-1] if ends else -1
    return [at > last for at in range(len(report.way))]


def legend(report: WhyReport) -> str:
    """Return how the picture of the way is to be read."""
    if any(step.kind == "cut" for step in report.way):
        return "the gradient flows from right to left, and does not come past the cut"
    measured = any(step.norm is not None for step in report.way)
    return "the gradient flows from right to left" + (
        "; under each stop what came to it in the last pass" if measured else ""
    )
