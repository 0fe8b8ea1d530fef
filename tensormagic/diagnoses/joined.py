"""What several reports of one run found, as one list: what is said twice is said once, one line's findings together."""

from __future__ import annotations

from collections.abc import Iterable

from tensormagic.reports import SEVERITIES, Finding, Report

_Line = tuple[str, int]


def joined(reports: Iterable[Report]) -> tuple[Finding, ...]:
    """Return the findings of all, the most severe first; those about one line follow one another."""
    found: list[Finding] = []
    for report in reports:
        known = {(finding.code, line_of(finding)) for finding in found}
        found += [one for one in report.findings if line_of(one) is None or (one.code, line_of(one)) not in known]
    found.sort(key=_severity)
    firsts: dict[_Line | int, int] = {}
    for at, finding in enumerate(found):
        firsts.setdefault(line_of(finding) or at, at)
    places = {id(finding): firsts[line_of(finding) or at] for at, finding in enumerate(found)}
    return tuple(sorted(found, key=lambda finding: places[id(finding)]))


def line_of(finding: Finding) -> _Line | None:
    """Return the line that a finding is about."""
    return None if finding.location is None else (finding.location.filename, finding.location.line)


def _severity(finding: Finding) -> tuple[int, str]:
    return SEVERITIES.index(finding.severity), finding.code
