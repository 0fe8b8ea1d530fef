"""TM301, TM304, TM311 of a backward that torch refused and whose error the code around it caught: the run went on.

A lesson shows an error on purpose, and a retry handles one: told as a note. Where a line was refused again and again
and never went through, nothing that it was to train has learned: that is very probably not meant. Where the code says
that it expects the error, nothing is told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from tensormagic.diagnoses import backward_failures
from tensormagic.reports import FailureReport, Finding, Severity, TraceReport
from tensormagic.reports.failure import SwallowedError
from tensormagic.words import plural

AGAIN = 2  # refusals of one line

_Check = Callable[[FailureReport], Iterator[Finding]]


def changed_after_saving(report: TraceReport) -> Iterator[Finding]:
    """TM301: a saved tensor was changed in place."""
    yield from _caught(report, backward_failures.changed_after_saving)


def freed_graph(report: TraceReport) -> Iterator[Finding]:
    """TM304: the graph had been freed."""
    yield from _caught(report, backward_failures.freed_graph)


def custom_function_return(report: TraceReport) -> Iterator[Finding]:
    """TM311: a custom Function returned what autograd cannot use."""
    yield from _caught(report, backward_failures.custom_function_return)


def _caught(report: TraceReport, check: _Check) -> Iterator[Finding]:
    for one in report.swallowed_errors:
        if not one.expected:
            for found in check(_as_failure(report, one)):
                yield replace(
                    found,
                    severity=severity(report, one.location, one.count),
                    message=f"{found.message.removesuffix('.')}; {_refused(one)}.",
                    evidence={**found.evidence, "times refused": one.count},
                )


def _as_failure(report: TraceReport, one: SwallowedError) -> FailureReport:
    return FailureReport(
        error_type=one.error_type, error=one.error, phase="backward", exact=False, backward=one.fault,
        location=report.location(one.location),
    )  # fmt: skip


def severity(report: TraceReport, location: int | None, count: int) -> Severity:
    """Return how bad it is that backward was refused on a line, so often, and the error caught."""
    went_through = any(done.location == location and done.outcome == "finished" for done in report.passes)
    return "warning" if count >= AGAIN and not went_through else "note"


def _refused(one: SwallowedError) -> str:
    """Return that torch refused, as a clause; the finding itself stands on another line."""
    if one.count == 1:
        return "torch refused this backward, and the code around it caught the error"
    return f"torch refused this backward {plural(one.count, 'time')}, and the code around it caught the errors"
