"""Several questions asked of one run (``%%tracegrad --memory``): what was found by all of them, one line's together.

The panel of each question stands below, as it is alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from tensormagic.reports import SEVERITIES, Finding, RunReport
from tensormagic.views.nodes import SHOWN_FINDINGS, Cell, Findings, Node, Panel, Section, Words
from tensormagic.words import listed, plural, seconds_text, shortened

ASKED = {"trace": "gradients", "memory run": "memory", "writes": "writes", "rng run": "random numbers"}
CLEAR = "Nothing was found. Each part below says what it looked at."
_LINE, _TITLE, _ERROR = 80, 60, 200  # characters


def view(report: RunReport) -> Panel:
    """Return the panel of what was found: how the run ended, how long it took, what was asked."""
    name = shortened(report.title or "one run", _TITLE)
    ended = f"{report.state}: {report.error}" if report.error else report.state
    asked = [ASKED[part.kind_name] for part in report.parts]
    facts: list[Cell] = [
        Words(shortened(ended, _ERROR), "error") if report.error else ended,
        seconds_text(report.seconds),
        f"{plural(len(asked), 'question')}: {listed(asked)}",
    ]
    return Panel("run", "code", name, facts, body(report), "What was found in a run")


def body(report: RunReport) -> list[Node]:
    """Return the findings; those of several questions about one line under that line."""
    if not report.findings:
        return [Findings((), report.gaps, CLEAR)]

    def answers(findings: Sequence[Finding], most: int = SHOWN_FINDINGS) -> Findings:
        asked = [[ASKED[part.kind_name] for part in report.parts if one in part.findings] for one in findings]
        return Findings(findings, where=["".join(each[:1]) for each in asked], most=most)

    nodes: list[Node] = [Findings((), report.gaps)] if report.gaps else []
    worst = sorted(report.findings, key=lambda finding: SEVERITIES.index(finding.severity))[:SHOWN_FINDINGS]
    shown = [finding for finding in report.findings if finding in worst]
    folded = [finding for finding in report.findings if finding not in worst]
    places = ((one.location.filename, one.location.line) if one.location else at for at, one in enumerate(shown))
    by_line = groupby(zip(places, shown, strict=True), lambda pair: pair[0])  # one without a line stands alone
    lines = [[finding for _, finding in group] for _, group in by_line]
    for several, groups in groupby(lines, lambda group: len(group) > 1):
        if not several:
            nodes.append(answers([group[0] for group in groups]))
            continue
        for group in groups:
            place, note = group[0].location, f"{plural(len(group), 'finding')} about one line"
            line = "" if place is None else f"{place.label}: `{shortened(place.text, _LINE)}`"
            nodes.append(Section(line, [answers(group)], note))
    return [*nodes, answers(folded, most=0)] if folded else nodes
