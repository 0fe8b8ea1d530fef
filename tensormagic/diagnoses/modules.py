"""TM6xx: modules, their parameters, and what trains them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tensormagic.diagnoses.words import counted, grouped, listed
from tensormagic.reports import Finding, ParameterSeries, TraceReport


def parameter_without_gradient(report: TraceReport) -> Iterator[Finding]:
    """TM601: a parameter that asks for a gradient got none in any pass, although others of its model did.

    A model that no backward reached at all is not reported: in adversarial training that is meant. Nor is a
    parameter that a graph leads to: ``autograd.grad`` may have been asked for others only. Re-entrant checkpointing
    hides its parameters from the graph of the loss: where no pass inside another was followed, nothing is said at all.
    """
    checkpoints = any(node.name.startswith("CheckpointFunction") for graph in report.graphs for node in graph.nodes)
    if checkpoints and not report.inner_passes_seen:
        return
    for owner in dict.fromkeys(series.owner for series in report.parameters if series.touched and series.owner):
        missing = [series for series in report.parameters if series.owner == owner and _is_missing(series)]
        if missing:
            yield _missing_finding(report, owner, missing)


def _is_missing(series: ParameterSeries) -> bool:
    return series.is_parameter and series.requires_grad and not series.touched and not series.used


def _missing_finding(report: TraceReport, owner: str, missing: list[ParameterSeries]) -> Finding:
    of = [series.name for series in report.parameters if series.owner == owner]
    places = _shortest([series.name for series in missing], of)
    called = report.passes[-1].location if report.passes else None
    passes = counted(report.passes_seen, "backward pass", "backward passes")
    if report.passes_traced < report.passes_seen:
        passes = f"the {grouped(report.passes_traced)} traced of {passes}"
    verb = "gets" if len(places) == 1 else "get"
    share = f"{grouped(len(missing))} of the {grouped(len(of))} parameters of {owner}"
    return Finding(
        code="TM601",
        severity="warning",
        message=f"{listed(places)} {verb} no gradient in {passes}: no path leads there from the loss ({share}).",
        location=report.location(called),
        evidence={series.name: series.numel for series in missing[:8]},
        remedy="Use it in forward, or look for what cuts the path (detach, no_grad, .item(), .data); if it is meant to "
        "stay as it is, say so: requires_grad_(False).",
        subject=missing[0].name,
    )


def _shortest(missing: list[str], of: list[str]) -> list[str]:
    """Return the missing names, those of a module that misses all it has (two or more) as the module alone."""
    inside, missed = (Counter(module for name in names for module in _above(name)) for names in (of, missing))
    places: dict[str, None] = {}
    for name in missing:
        whole = (module for module in _above(name) if 1 < inside[module] == missed[module])
        places[next(whole, name)] = None
    return list(places)


def _above(name: str) -> Iterator[str]:
    """Yield the paths of the modules that a parameter lies in, the outermost first."""
    parts = name.split(".")
    return (".".join(parts[:length]) for length in range(1, len(parts)))
