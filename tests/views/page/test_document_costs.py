"""What the operations of each node took, as the viewer reads it."""

from __future__ import annotations

from array import array
from dataclasses import replace

from tensormagic.reports import NodeCosts, OpsReport
from tensormagic.views.page.document import trace_document
from tests.views import samples_viewer


def test_costs_are_columns_of_the_nodes() -> None:
    """Three digits a node; a column of zeros, and a graph that nothing was measured of, have none."""
    report = samples_viewer.calm_run(2)
    count = len(report.graphs[0].nodes)
    seconds = array("d", [1.23456e-5] * count)
    costs = NodeCosts(
        1, 2, 2, array("d", [0.0] * count), array("d", [4096.0] * count), seconds, array("d", [0.0] * count)
    )
    nodes = trace_document(replace(report, ops=OpsReport(nodes=(costs,))))["graphs"][0]["nodes"]
    assert nodes["backward_seconds"] == [1.23e-5] * count
    assert nodes["forward_bytes"] == [4100] * count
    assert "forward_seconds" not in nodes
    other = OpsReport(nodes=(replace(costs, graph=7),))
    assert "backward_seconds" not in trace_document(replace(report, ops=other))["graphs"][0]["nodes"]
