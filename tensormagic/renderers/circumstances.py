"""Words for where a backward ran."""

from __future__ import annotations

from tensormagic.reports import Pass, TraceReport


def circumstances_text(report: TraceReport, one: Pass) -> str:
    """Return ``inside pass 3 (CheckpointFunction)``, ``on thread worker-1``, ``in vmap > grad``; empty for most."""
    told = one.circumstances
    if told is None:
        return ""
    maker = _maker(report, told.inside, told.node)
    inside = f"inside pass {told.inside}{maker and f' ({maker})'}" if told.inside else ""
    thread = f"on thread {told.thread}" if told.thread else ""
    levels = f"in {' > '.join(told.levels)}" if told.levels else ""
    return ", ".join(filter(None, (inside, thread, levels)))


def _maker(report: TraceReport, inside: int, node: int | None) -> str:
    """Return the name of the node whose backward made the call, where the pass it was in is kept."""
    graph_number = next((done.graph for done in report.passes if done.number == inside), None)
    graph = next((graph for graph in report.graphs if graph.number == graph_number), None)
    if graph is None or node is None or node >= len(graph.nodes):
        return ""
    return graph.nodes[node].op
