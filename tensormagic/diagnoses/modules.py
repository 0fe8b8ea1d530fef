"""TM6xx: modules, their parameters, and what trains them."""

from __future__ import annotations

from collections.abc import Iterator

from tensormagic.diagnoses.words import counted, listed
from tensormagic.reports import Finding, ParameterSeries, TraceReport


def parameter_without_gradient(report: TraceReport) -> Iterator[Finding]:
    """TM601: a parameter that asks for a gradient got none in any pass, although others of its model did.

    A model that no backward reached at all is not reported: in adversarial training that is meant. Nor is a
    parameter that a graph leads to: ``autograd.grad`` may have been asked for others only.
    """
    for owner in dict.fromkeys(series.owner for series in report.parameters if series.touched and series.owner):
        missing = [series for series in report.parameters if series.owner == owner and _is_missing(series)]
        if missing:
            yield _missing_finding(report, owner, missing)


def _is_missing(series: ParameterSeries) -> bool:
    return series.is_parameter and series.requires_grad and not series.touched and not series.used


def _missing_finding(report: TraceReport, owner: str, missing: list[ParameterSeries]) -> Finding:
    names = [series.name for series in missing]
    of = sum(series.owner == owner for series in report.parameters)
    called = report.passes[-1].location if report.passes else None
    passes = counted(report.passes_seen, "backward pass", "backward passes")
    return Finding(
        code="TM601",
        severity="warning",
        message=f"{listed(names)} got no gradient in {passes}: no path leads there from the loss "
        f"({counted(len(missing), 'parameter')} of the {of} of {owner}).",
        location=report.location(called),
        evidence={series.name: series.numel for series in missing[:8]},
        remedy="Use it in forward, or look for what cuts the path (detach, no_grad, .item(), .data); if it is meant to "
        "stay as it is, say so: requires_grad_(False).",
        subject=names[0],
    )
