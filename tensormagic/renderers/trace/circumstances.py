"""Words for where a backward ran."""

from __future__ import annotations

from tensormagic.reports import Circumstances, Pass, TraceReport


def circumstances_text(report: TraceReport, one: Pass) -> str:
    """Return ``inside CheckpointFunction``, ``on thread worker-1``, ``in vmap > grad``; empty for most."""
    described = one.circumstances
    if described is None:
        return ""
    inside = f"inside {_maker(report, described) or 'another'}" if described.inside else ""
    thread = f"on thread {described.thread}" if described.thread else ""
    levels = f"in {' > '.join(described.levels)}" if described.levels else ""
    return ", ".join(filter(None, (inside, thread, levels)))


def _maker(report: TraceReport, described: Circumstances) -> str:
    """Return the name of the node whose backward made the call, where it is known."""
    graph = next((graph for graph in report.graphs if graph.number == described.graph), None)
    if graph is None or described.node is None or described.node >= len(graph.nodes):
        return ""
    return graph.nodes[described.node].op
