"""The check before training: one line for each question; findings first."""

from __future__ import annotations

from tensormagic.reports import StartReport
from tensormagic.views.nodes import Cell, Column, Findings, Look, Node, Noted, Panel, Words, table_of
from tensormagic.words import listed, plural, seconds_text

_STATES: dict[str, tuple[str, Look]] = {
    "fine": ("fine", "quiet"),
    "look": ("look", "warning"),
    "wrong": ("wrong", "error"),
    "unknown": ("not known", "quiet"),
}  # fmt: skip


def view(report: StartReport) -> Panel:
    """Return the panel."""
    body: list[Node] = [Findings(report.findings, report.gaps), table_of(PROBES, report.probes)]
    what, when = ("parameter", "before training") if report.function is None else ("argument", "in one call")
    facts: list[Cell] = [plural(report.parameters, what), seconds_text(report.seconds)]
    return Panel("start", "graph", f"check {report.model}", facts, body, f"Check of {report.model} {when}",
                 lead=summary(report))  # fmt: skip


PROBES = (
    Column("question", lambda probe: probe.question, "name"),
    Column("state", lambda probe: Words(*_STATES[probe.state]), "silent"),
    Column("answer", lambda probe: Noted(probe.answer, [probe.remedy] if probe.remedy else []), "wide"),
)


def summary(report: StartReport) -> str:
    """Return the answer in one sentence."""
    states = [probe.state for probe in report.probes]
    wrong, odd, unknown = states.count("wrong"), states.count("look"), states.count("unknown")
    if unknown == len(states):
        return "Nothing could be asked."
    rest = [f"{unknown} not known"] * bool(unknown)
    tried = report.overfit is not None
    untried = "" if tried or report.function is not None else _untried(report)
    if not wrong and not odd:
        ready = "Ready: " if tried else ""
        answer = ", ".join([f"{ready}{plural(len(states) - unknown, 'question')} found nothing wrong", *rest]) + "."
        return f"{untried}{answer}"
    parts = [f"{wrong} wrong"] * bool(wrong) + [f"{odd} to look at"] * bool(odd) + rest
    return f"{untried}Of {plural(len(report.probes), 'question')}, {listed(parts)}."


def _untried(report: StartReport) -> str:
    """Return why no step was tried; empty where no batch was given, and none was to be."""
    if not report.batch:
        return ""
    gap = next((gap.reason for gap in report.gaps if gap.section in _HINDER), "")
    hinders = (one for one in report.probes if one.state != "fine" and one.question in _HINDER)
    probe = next((f"{one.question}: {one.answer}" for one in hinders), "")
    reason = gap or probe or "no parameter of the model is in the optimizer"
    return f"Training could not be tried: {reason}. "


_HINDER = ("batch", "copy", "overfit", "forward", "backward", "loss", "targets")
