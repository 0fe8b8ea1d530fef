"""TM320: graphs that no backward goes through."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tensormagic.diagnoses.lines import call_on, keyword_of, set_keyword, text_of
from tensormagic.reports import Finding, TraceReport, UnusedGraph

FEWEST = {"kept": 3, "evaluation": 2}  # a single one may be used by code that was not traced


def unused_graph(report: TraceReport) -> Iterator[Finding]:
    """TM320: a backward that keeps its graph for no other, or an evaluation that records one."""
    for found in report.unused_graphs:
        if found.times >= FEWEST[found.kind]:
            yield from _kept(report, found) if found.kind == "kept" else _recorded(report, found)


def _kept(report: TraceReport, found: UnusedGraph) -> Iterator[Finding]:
    place = report.location(found.location)
    call = call_on(text_of(place), "backward", "grad")
    keeps = None if call is None else keyword_of(call, "retain_graph")
    if call is None or not isinstance(keeps, ast.Constant):  # a library keeps it, or it depends on something
        return
    set_keyword(call, "retain_graph", None)
    yield Finding(
        code="TM320",
        severity="note",
        message=f"{found.times} backward passes keep their graph, and no other pass goes through it: what it saved "
        "stays in memory as long as its results do, usually into the next step.",
        location=place,
        evidence={"passes": found.times},
        remedy=f"Leave out `retain_graph=True`: `{ast.unparse(call)}`",
        subject="retain_graph",
    )


def _recorded(report: TraceReport, found: UnusedGraph) -> Iterator[Finding]:
    yield Finding(
        code="TM320",
        severity="note",
        message=f"{found.model} in eval mode records a graph, in {found.times} evaluations, and no backward goes "
        "through it: its activations stay in memory as long as the result.",
        location=report.location(found.location),
        evidence={"evaluations": found.times},
        remedy="Evaluate under `torch.no_grad()`: `eval()` changes what dropout and normalisations do, and does not "
        "turn off recording.",
        subject=found.model,
    )
