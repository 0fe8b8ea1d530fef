"""What must hold between the parts of a trace that was read from a file: every number points at something.

A report that a run left is sound by the way it is made. One from a file may be cut, edited or hostile, and is read by
people and by code that trust it: it is refused as a whole, with a sentence, before anything indexes with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from tensormagic.errors import ReportFormatError
from tensormagic.reports.graph import MEASURES, Graph

if TYPE_CHECKING:
    from tensormagic.reports.trace import TraceReport


def check_trace(report: TraceReport) -> None:
    """Raise ReportFormatError where a part of a trace points at what is not there."""
    lines = len(report.locations)
    for graph in report.graphs:
        _check_graph(graph, lines)
    ends = (line for cut in report.cuts for line in (cut.location, cut.source_location))
    _require(_within(ends, lines), "a cut stands on a line")
    _require(_within((one.location for one in report.rootless), lines), "a backward that was refused stands on a line")
    _require(_within((one.location for one in report.caught), lines), "a backward that was caught stands on a line")
    _require(_within((one.cut for one in report.rootless), len(report.cuts)), "a backward was refused for a cut")
    _require(
        _within((one.location for one in (*report.passes, *report.inner_passes)), lines), "a pass stands on a line"
    )
    seen = (line for one in report.observations for line in (one.location, one.made))
    _require(_within(seen, lines), "something was seen on a line")
    widths = {len(series.norms) for series in report.parameters}
    _require(widths <= {len(report.passes)}, "a parameter has a norm for a pass")
    moves = {len(series.updates) for series in report.parameters}
    _require(moves <= {0, len(report.passes)}, "a step after a pass moved a parameter")
    standing = 0 if report.pacing is None else len(report.pacing.standing)
    _require(standing in {0, len(report.parameters)}, "a parameter's .grad stands at the end")
    sizes = [len(graph.nodes) for graph in report.graphs]
    places = [*(finding.node for finding in report.findings if finding.node), *_fault_places(report)]
    known = (0 <= graph < len(sizes) and 0 <= node < sizes[graph] for graph, node in places)
    _require(all(known), "a finding is about a node")


def _fault_places(report: TraceReport) -> Iterator[tuple[int, int]]:
    """Yield the nodes that something went wrong at, by what was collected."""
    raised = report.failure.backward if report.failure is not None else None
    every = [raised, *(one.fault for one in report.caught)]
    faults = (fault for one in every if one is not None for fault in (one.spoilt, one.freed, one.returned))
    for fault in (*faults, *(report.quiet.unseen if report.quiet is not None else ())):
        if fault is not None and fault.graph is not None and fault.node is not None:
            yield fault.graph, fault.node


def _check_graph(graph: Graph, lines: int) -> None:
    size = len(graph.nodes)
    _require(all(node.index == at for at, node in enumerate(graph.nodes)), "the nodes are numbered")
    _require(_within((node.location for node in graph.nodes), lines), "a node stands on a line")
    _require(_within((end for edge in graph.edges for end in (edge.source, edge.target)), size), "an edge joins nodes")
    _require(_within((*graph.roots, *graph.order), size), "backward reached a node")
    _require(
        _within((end for one in graph.births for end in (one.node, one.receiver)), size), "a NaN is born in a node"
    )
    _require(_within((end for cut in graph.cuts for end in (cut.source, cut.target)), size), "a cut is between nodes")
    ends = (line for cut in graph.cuts for line in (cut.location, cut.source_location))
    _require(_within(ends, lines), "a cut stands on a line")
    _require(all(len(frame.norms) == size for frame in graph.frames), "a pass has a norm for a node")
    _require(_within(graph.shared_edges, len(graph.edges)), "an edge shares its end")
    wide = all(len(frame.measures) in {0, size * len(MEASURES)} for frame in graph.frames)
    _require(
        wide and all(len(frame.parts) in {0, len(graph.shared_edges)} for frame in graph.frames), "a pass is measured"
    )
    forward = [frame.forward for frame in graph.frames if frame.forward is not None]
    sizes = {(len(values.norms), len(values.measures)) for values in forward}
    _require(sizes <= {(size, size * len(MEASURES))}, "a forward is measured")
    birth = graph.forward_birth
    _require(birth is None or 0 <= birth.node < size, "a forward made a NaN")
    first = graph.first_bad
    _require(first is None or 0 <= first.node < size, "a forward held a NaN")
    bad = [
        *(node for frame in graph.frames for node in frame.bad),
        *(node for values in forward for node in values.bad),
    ]
    _require(all(node.isdecimal() and int(node) < size for node in bad), "a NaN is counted in a node")


def _within(numbers: Iterable[int | None], size: int) -> bool:
    return all(number is None or 0 <= number < size for number in numbers)


def _require(holds: bool, what: str) -> None:  # noqa: FBT001  (the one thing that is asked)
    if not holds:
        raise ReportFormatError(f"this trace contradicts itself where {what}: the file is damaged or was edited")
