"""What every report goes through before it is handed over: the diagnoses, less what the person does not want told."""

from __future__ import annotations

import dataclasses
from typing import TypeVar

from tensormagic.api.ignoring import ignored
from tensormagic.diagnoses import diagnose
from tensormagic.diagnoses.mismatches import mismatch_of
from tensormagic.diagnoses.silence import is_silenced
from tensormagic.reports import FailureReport, Finding, Gap, Mismatch, Report, TraceReport

AnyReport = TypeVar("AnyReport", bound=Report)

_SECTION = "findings"


def diagnosed(report: AnyReport) -> AnyReport:
    """Return the report with what was found in it; what the person silenced is a gap, so that it is not forgotten."""
    report = _with_mismatch(report)
    found = diagnose(report)
    told = tuple(finding for finding in found if not is_silenced(finding, ignored()))
    report = dataclasses.replace(_with_findings(report, told), findings=told)
    return report if told == found else _with_gap(report, [one.code for one in found if one not in told])


def _with_mismatch(report: AnyReport) -> AnyReport:
    """Return the report with what did not fit in the call that torch refused, where there was one."""
    if isinstance(report, FailureReport) and report.mismatch is None and report.out_of_memory is None:
        return dataclasses.replace(report, mismatch=_tried(report, mismatch_of(report)))
    if isinstance(report, TraceReport) and report.failure is not None:
        return dataclasses.replace(report, failure=_with_mismatch(report.failure))
    return report


def _tried(report: FailureReport, mismatch: Mismatch | None) -> Mismatch | None:
    """Return a mismatch with only what really works said to work."""
    if mismatch is None or not mismatch.works:
        return mismatch
    from tensormagic.collectors.failures.tried_ways import with_ways_tried

    works, maybe = with_ways_tried(report, mismatch)
    return dataclasses.replace(mismatch, works=works, maybe=maybe)


def _with_findings(report: AnyReport, told: tuple[Finding, ...]) -> AnyReport:
    """Return the report with what was found about the call that ended the run beside that call as well."""
    if not isinstance(report, TraceReport) or report.failure is None:
        return report
    about = tuple(finding for finding in diagnose(report.failure) if finding in told)
    return dataclasses.replace(report, failure=dataclasses.replace(report.failure, findings=about))


def _with_gap(report: AnyReport, codes: list[str]) -> AnyReport:
    gaps = [gap for gap in getattr(report, "gaps", ()) if gap.section != _SECTION]
    gap = Gap(_SECTION, f"{len(codes)} silenced by you: {', '.join(sorted(set(codes)))}")
    return dataclasses.replace(report, gaps=(*gaps, gap))  # type: ignore[call-arg]
