"""TM312: the graph grows from step to step, because something with a history is carried over into the next step."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tensormagic.reports import Finding, GraphGrowth, Location, RelatedLine, RunningSum, TraceReport
from tensormagic.words import count, plural

_SIMPLE = (ast.Name, ast.Attribute, ast.Subscript, ast.Call)

FEWEST_STEPS = 4  # over which it grew, by the same number of nodes each time


def growing_graph(report: TraceReport) -> Iterator[Finding]:
    """TM312: backward goes through the steps before as well, or a sum that backward never goes through keeps them."""
    if report.training is None:
        return
    for growth in report.training.growth:
        if growth.passes >= FEWEST_STEPS:
            yield _growing(report, growth)
    used = {node.location for graph in report.graphs for node in graph.nodes}
    for found in report.training.sums:
        if found.steps >= FEWEST_STEPS and found.location not in used and report.state != "running":
            yield _summed(report, found)


def _growing(report: TraceReport, growth: GraphGrowth) -> Finding:
    joined, reaches = report.location(growth.joined), report.location(growth.reaches)
    backward = report.location(growth.backward)
    lines = [("what it carries over was made here", reaches)] if reaches != joined else []
    lines += [("backward goes through all of it", backward)]
    return Finding(
        code="TM312",
        severity="warning",
        message=f"The graph grows by {plural(growth.increment, 'node')} a step, from {count(growth.first_size)} to "
        f"{count(growth.last_size)} in {growth.passes} steps: {plural(growth.older, 'node')} of it "
        f"{'was' if growth.older == 1 else 'were'} made in earlier steps, and backward goes through them again.",
        location=joined or backward,
        evidence={"nodes a step": growth.increment, "nodes": growth.last_size, "of earlier steps": growth.older},
        remedy="Cut off what is carried over into the next step: `.detach()`; of a loss that is only counted, take "
        "`loss.item()`.",
        subject="graph",
        related=tuple(RelatedLine(what, place) for what, place in lines if place is not None),
    )


def _summed(report: TraceReport, found: RunningSum) -> Finding:
    place = report.location(found.location)
    name, remedy = _target_and_remedy(place)
    passes = plural(found.steps, "backward pass", "backward passes")
    return Finding(
        code="TM312",
        severity="warning",
        message=f"{name} carries the graph of every step with it: over at least {passes}, values that still have their "
        "history were added to it, and no backward goes through the sum.",
        location=place,
        evidence={"backward passes": found.steps},
        remedy=remedy,
        subject=name,
    )


def _target_and_remedy(place: Location | None) -> tuple[str, str]:
    """Return what is added to, and the line as it should be; plain words where the line is no simple one."""
    try:
        (statement,) = ast.parse(place.text if place is not None else "").body
    except (SyntaxError, ValueError):
        return "A sum", "Add the number alone: `loss.item()`, or `loss.detach()`."
    if isinstance(statement, ast.AugAssign):
        name = ast.unparse(statement.target)
        value = ast.unparse(statement.value)
        value = value if isinstance(statement.value, _SIMPLE) else f"({value})"
        return name, f"Add the number alone: `{name} += {value}.item()`"
    if isinstance(statement, ast.Assign):
        return ast.unparse(statement.targets[0]), "Add the number alone: `loss.item()`, or `loss.detach()`."
    return "A sum", "Add the number alone: `loss.item()`, or `loss.detach()`."
