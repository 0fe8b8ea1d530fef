"""What must hold between the parts of a trace that was read from a file: every number points at something.

A report that a run left is sound by the way it is made. One from a file may be cut, edited or hostile, and is read by
people and by code that trust it: it is refused as a whole, with a sentence, before anything indexes with it.
"""

from __future__ import annotations

from collections.abc import Iterable

from tensormagic.errors import ReportFormatError
from tensormagic.reports.graph import MEASURES, Graph


def check_graph(graph: Graph, lines: int) -> None:
    """Raise ReportFormatError where a part of a graph, in a report of so many lines, points at what is not there."""
    size = len(graph.nodes)
    require(all(node.index == at for at, node in enumerate(graph.nodes)), "the nodes are numbered")
    require(within((node.location for node in graph.nodes), lines), "a node stands on a line")
    require(within((end for edge in graph.edges for end in (edge.source, edge.target)), size), "an edge joins nodes")
    require(within((*graph.roots, *graph.order), size), "backward reached a node")
    require(within((end for one in graph.births for end in (one.node, one.receiver)), size), "a NaN is born in a node")
    require(within((end for cut in graph.cuts for end in (cut.source, cut.target)), size), "a cut is between nodes")
    ends = (line for cut in graph.cuts for line in (cut.location, cut.source_location))
    require(within(ends, lines), "a cut stands on a line")
    require(all(len(frame.norms) == size for frame in graph.frames), "a pass has a norm for a node")
    require(within(graph.shared_edges, len(graph.edges)), "an edge shares its end")
    wide = all(len(frame.measures) in {0, size * len(MEASURES)} for frame in graph.frames)
    require(
        wide and all(len(frame.parts) in {0, len(graph.shared_edges)} for frame in graph.frames), "a pass is measured"
    )
    forward = [frame.forward for frame in graph.frames if frame.forward is not None]
    sizes = {(len(values.norms), len(values.measures)) for values in forward}
    require(sizes <= {(size, size * len(MEASURES))}, "a forward is measured")
    birth = graph.forward_birth
    require(birth is None or 0 <= birth.node < size, "a forward made a NaN")
    first = graph.first_bad
    require(first is None or 0 <= first.node < size, "a forward held a NaN")
    bad = [
        *(node for frame in graph.frames for node in frame.bad),
        *(node for values in forward for node in values.bad),
    ]
    require(all(node.isdecimal() and int(node) < size for node in bad), "a NaN is counted in a node")


def within(numbers: Iterable[int | None], size: int) -> bool:
    """Return whether all numbers that are there are places in something of this size."""
    return all(number is None or 0 <= number < size for number in numbers)


def require(holds: bool, what: str) -> None:  # noqa: FBT001  (the one thing that is asked)
    """Raise ReportFormatError where something does not hold that a trace says."""
    if not holds:
        raise ReportFormatError(f"this trace contradicts itself where {what}: the file is damaged or was edited")
