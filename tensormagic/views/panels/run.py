"""Several questions asked of one run (``%%tracegrad --memory``): what was found by all of them, one line's together.

The panel of each question stands below, as it is alone.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby

from tensormagic.reports import SEVERITIES, Finding, RunReport
from tensormagic.views.nodes import SHOWN_FINDINGS, Cell, Findings, Node, Panel, Section, Words
from tensormagic.words import listed, plural, seconds_text, shortened

ASKED = {"trace": "gradients", "memory run": "memory", "writes": "writes", "rng run": "random numbers"}
CLEAR = "Nothing was found. Each part below says what it looked at."
_LINE, _TITLE, _ERROR = 80, 60, 200  # characters


def view(report: RunReport) -> Panel:
    """Return the panel of what was found."""
    name = shortened(report.title or "one run", _TITLE)
    return Panel("run", "code", name, facts(report), body(report), "What was found in a run")


def facts(report: RunReport) -> list[Cell]:
    """Return how the run ended, how long it took and what was asked."""
    ended = f"{report.state}: {report.error}" if report.error else report.state
    state = Words(shortened(ended, _ERROR), "error") if report.error else ended
    asked = [ASKED[part.kind_name] for part in report.parts]
    return [state, seconds_text(report.seconds), f"{plural(len(asked), 'question')}: {listed(asked)}"]


def body(report: RunReport) -> list[Node]:
    """Return the findings; those of several questions about one line under that line."""
    if not report.findings:
        return [Findings((), report.gaps, CLEAR)]
    nodes: list[Node] = [Findings((), report.gaps)] if report.gaps else []
    worst = sorted(report.findings, key=lambda finding: SEVERITIES.index(finding.severity))[:SHOWN_FINDINGS]
    shown = tuple(finding for finding in report.findings if finding in worst)
    folded = [finding for finding in report.findings if finding not in worst]
    for several, groups in groupby(_by_line(shown), lambda group: len(group) > 1):
        if not several:
            nodes.append(_listed(report, [group[0] for group in groups]))
            continue
        for group in groups:
            place, note = group[0].location, f"{plural(len(group), 'finding')} about one line"
            line = "" if place is None else f"{place.label}: `{shortened(place.text, _LINE)}`"
            nodes.append(Section(line, [_listed(report, group)], note))
    return [*nodes, replace(_listed(report, folded), most=0)] if folded else nodes


def _by_line(findings: tuple[Finding, ...]) -> list[list[Finding]]:
    """Return findings that follow one another in groups of one line each; one without a line stands alone."""
    places = ((finding.location.filename, finding.location.line) if finding.location else at
              for at, finding in enumerate(findings))  # fmt: skip
    pairs = zip(places, findings, strict=True)
    return [[finding for _, finding in group] for _, group in groupby(pairs, lambda pair: pair[0])]


def _listed(report: RunReport, findings: list[Finding]) -> Findings:
    return Findings(findings, where=[part_of(report, finding) for finding in findings])


def part_of(report: RunReport, finding: Finding) -> str:
    """Return which question a finding answers."""
    return next((ASKED[part.kind_name] for part in report.parts if finding in part.findings), "")
