"""What a look before training says: one line for each question, what is wrong first in words."""

from __future__ import annotations

from tensormagic.reports import Probe, StartReport
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
    what = "parameter" if report.function is None else "argument"
    facts: list[Cell] = [plural(report.parameters, what), seconds_text(report.seconds)]
    when = "before training" if report.function is None else "in one call"
    return Panel("start", "graph", f"check {report.model}", facts, body, f"Check of {report.model} {when}",
                 lead=summary(report))  # fmt: skip


def _state(probe: Probe) -> Cell:
    return Words(*_STATES[probe.state])


def _answer(probe: Probe) -> Cell:
    return Noted(probe.answer, [probe.remedy] if probe.remedy else [])


PROBES = (
    Column("question", lambda probe: probe.question, "name"),
    Column("state", _state, "silent"),
    Column("answer", _answer, "wide"),
)


def summary(report: StartReport) -> str:
    """Return the answer in one sentence."""
    wrong = sum(probe.state == "wrong" for probe in report.probes)
    odd = sum(probe.state == "look" for probe in report.probes)
    unknown = sum(probe.state == "unknown" for probe in report.probes)
    rest = [f"{unknown} not known"] * bool(unknown)
    if unknown == len(report.probes):
        return "Nothing could be asked."
    if not wrong and not odd:
        ready = "Ready: " if report.function is None else ""
        return (
            ready + ", ".join([f"{plural(len(report.probes) - unknown, 'question')} found nothing wrong", *rest]) + "."
        )
    parts = [f"{wrong} wrong"] * bool(wrong) + [f"{odd} to look at"] * bool(odd) + rest
    return f"Of {plural(len(report.probes), 'question')}, {listed(parts)}."
