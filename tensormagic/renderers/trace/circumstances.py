"""Words for where a backward ran."""

from __future__ import annotations

from tensormagic.reports import Circumstances, Pass, TraceReport


def circumstances_text(report: TraceReport, one: Pass) -> str:
    """Return ``inside CheckpointFunction``, ``on thread worker-1``, ``in vmap > grad``; empty for most."""
    told = one.circumstances
    if told is None:
        return ""
    inside = f"inside {_maker(report, told) or 'another'}" if told.inside else ""
    thread = f"on thread {told.thread}" if told.thread else ""
    levels = f"in {' > '.join(told.levels)}" if told.levels else ""
    return ", ".join(filter(None, (inside, thread, levels)))


def _maker(report: TraceReport, told: Circumstances) -> str:
    """Return the name of the node whose backward made the call, where it is known."""
    graph = next((graph for graph in report.graphs if graph.number == told.graph), None)
    if graph is None or told.node is None or told.node >= len(graph.nodes):
        return ""
    return graph.nodes[told.node].op
