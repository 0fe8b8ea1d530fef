"""What the operations of each node took, as columns beside the others: the viewer colours by them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tensormagic.reports import Graph, TraceReport

COST_COLUMNS = ("forward_seconds", "forward_bytes", "backward_seconds", "backward_bytes")


def cost_columns(report: TraceReport, graph: Graph) -> dict[str, list[float]]:
    """Return a column for each of `COST_COLUMNS`, a mean a pass for each node; none where nothing was measured."""
    costs = next((one for one in report.ops.nodes if one.graph == graph.number), None) if report.ops else None
    if costs is None:
        return {}
    columns = {name: getattr(costs, name) for name in COST_COLUMNS}
    return {name: [_short(value) for value in values] for name, values in columns.items() if any(values)}


def _short(value: float) -> float:
    """Return three significant digits: more are noise, and cost bytes."""
    number = float(f"{value:.3g}")
    return int(number) if number == int(number) else number
