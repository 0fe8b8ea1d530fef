"""Compares two runs: what was drawn, and what each step did."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any

from tensormagic.comparisons.graphs import (
    MOST_GRAPHS,
    PassPair,
    Rename,
    compare_graphs,
    compare_norms,
    pair_graphs,
    pair_passes,
    renames_between,
    side_names,
)
from tensormagic.reports import Gap, Graph, ParameterSeries, TraceReport
from tensormagic.reports.comparison import ComparisonReport, LossPair, ParameterDifference, Side
from tensormagic.reports.rng import Difference, Draw, RngComparison, RngRunReport


def compare_traces(left: TraceReport, right: TraceReport, *, names: Iterable[str] | None = None) -> ComparisonReport:
    """Return what is different between two traced runs.

    They are called by ``names``; by default by their titles, or ``a`` and ``b`` where these are equal.
    """
    rename, passes = renames_between(left, right), pair_passes(left, right)
    paired = pair_graphs(left, right, rename)
    compared = [compare_graphs((left, right), pair, rename, passes) for pair in paired]
    graphs = tuple(difference for difference, _ in compared)
    leaves = {name: other for _, called in compared for name, other in called.items()}
    pairs = _pair_parameters(left, right, rename, leaves)
    first, second = side_names(left, right, names)
    main = paired[0] if paired else (next(iter(left.graphs), None), next(iter(right.graphs), None))
    # Findings are told apart by code and subject: lines move, and numbers differ.
    mine = {(finding.code, finding.subject): finding for finding in left.findings}
    theirs = {(finding.code, rename(finding.subject)): finding for finding in right.findings}
    found = [_parameter(one, other, passes) for one, other in pairs]
    known, others = {one.name for one, _ in pairs}, {other.name for _, other in pairs}
    return ComparisonReport(
        left=_side(left, first, main[0]),
        right=_side(right, second, main[1]),
        steps_compared=len(passes),
        graphs=graphs,
        graphs_only_left=len(left.graphs) - len(graphs),
        graphs_only_right=len(right.graphs) - len(graphs),
        parameters=tuple(sorted(found, key=lambda one: -one.norms.weight)),
        parameters_only_left=tuple(one.name for one in left.parameters if one.name not in known),
        parameters_only_right=tuple(one.name for one in right.parameters if one.name not in others),
        losses=tuple(
            LossPair(pair.step, pair.left.value, pair.right.value)
            for pair in passes
            if pair.left.value is not None or pair.right.value is not None
        ),
        findings_only_left=tuple(finding for key, finding in mine.items() if key not in theirs),
        findings_only_right=tuple(finding for key, finding in theirs.items() if key not in mine),
        findings_both=tuple(finding for key, finding in theirs.items() if key in mine),
        gaps=tuple(_gaps(left, right, passes)),
    )


def _side(report: TraceReport, name: str, graph: Graph | None) -> Side:
    losses = [one.value for one in report.passes]
    return Side(
        name, report.title, report.state, report.steps_seen, report.passes_seen, report.seconds,
        len(graph.nodes) if graph else 0, len(graph.edges) if graph else 0,
        losses[0] if losses else None, losses[-1] if losses else None, len(report.findings), report.error,
    )  # fmt: skip


def _pair_parameters(
    left: TraceReport, right: TraceReport, rename: Rename, leaves: Mapping[str, str]
) -> list[tuple[ParameterSeries, ParameterSeries]]:
    """Pair parameters by name; and those that are called differently, where the nodes of their leaves are paired."""
    theirs = {rename(parameter.name): parameter for parameter in right.parameters}
    found = {one.name: theirs[one.name] for one in left.parameters if one.name in theirs}
    taken = {other.name for other in found.values()}
    others = {other.name: other for other in right.parameters if other.name not in taken}
    found |= {one: others.pop(other) for one, other in leaves.items() if one not in found and other in others}
    return [(one, found[one.name]) for one in left.parameters if one.name in found]


def _parameter(left: ParameterSeries, right: ParameterSeries, passes: Sequence[PassPair]) -> ParameterDifference:
    norms = compare_norms(
        [pair.step for pair in passes],
        [left.norms[pair.left_place] for pair in passes],
        [right.norms[pair.right_place] for pair in passes],
    )
    return ParameterDifference(left.name, right.name, left.shape, right.shape, norms)


def _gaps(left: TraceReport, right: TraceReport, passes: Sequence[PassPair]) -> Iterator[Gap]:
    shared = min(left.steps_seen, right.steps_seen)
    compared = len({pair.step for pair in passes})
    if compared < shared:
        yield Gap("steps", f"{compared} of {shared} steps are compared: the others were not kept by both runs")
    if not passes and left.passes and right.passes:
        yield Gap("steps", "no step was kept by both runs: only the graphs are compared")
    if max(len(left.graphs), len(right.graphs)) > MOST_GRAPHS:
        yield Gap("graphs", f"only the {MOST_GRAPHS} most used graphs of each run are compared")


def compare_draws(left: RngRunReport, right: RngRunReport, *, names: tuple[str, str] = ("a", "b")) -> RngComparison:
    """Return the first draw that differs between two runs.

    Lines are not compared with each other: the same call from a line that has moved draws the same.
    """
    complete = len(left.draws) == left.count and len(right.draws) == right.count
    for at, (one, other) in enumerate(zip_longest(left.draws, right.draws)):
        here = None if one is None else left.before[one.generator]
        there = None if other is None else right.before[other.generator]
        difference = _difference(one, other, here, there)
        if difference == "none":
            continue
        name = here.name if here is not None else there.name if there is not None else ""
        line, other_line = one and left.location(one.location), other and right.location(other.location)
        return RngComparison(
            names=names, difference=difference, same=_drawn(left, at), generator=name, sides=(one, other),
            places=(line, other_line), starts=(here, there) if difference in {"start", "state"} else (None, None),
            complete=complete,
        )  # fmt: skip
    return RngComparison(names=names, same=_drawn(left, len(left.draws)), complete=complete)


def _drawn(run: RngRunReport, first: int) -> int:
    """Return how many of the first records of a run are draws: the others are seeds that were set."""
    return sum(draw.kind == "drew" for draw in run.draws[:first])


def _difference(one: Draw | None, other: Draw | None, here: Any, there: Any) -> Difference:
    """Return how two draws differ; ``here`` and ``there`` are their generators before the runs."""
    if one is None or other is None:
        return "end"
    if (one.op, one.kind, here.name) != (other.op, other.kind, there.name):
        return "call"
    if one.values != other.values:
        return "values"
    if one.digest == other.digest:
        return "none"
    return "state" if here.digest == there.digest else "start"
