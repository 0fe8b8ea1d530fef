"""Where the forward was not finite first is marked in the picture, instead of where backward made a NaN of it."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import nn

import tensormagic as tm
from tensormagic.views.graph.marks import forward_mark
from tensormagic.views.page.document import trace_document
from tests.views import trace_forms


def traced(net, x):
    """Return a pass whose loss is NaN."""
    with tm.trace(namespace={"net": net}) as trace:
        net(x).square().mean().backward()
    return trace.report


def two_layers():
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))


def test_data_are_marked_at_the_op_that_used_them():
    """The first linear layer, not the loss, in whose backward the first NaN gradient is made."""
    report = traced(two_layers(), torch.tensor([[1.0, math.nan, 2.0]]))
    (graph,) = report.graphs
    mark = forward_mark(graph)
    assert graph.nodes[mark.node].module == "net.0"
    assert (mark.pass_number, mark.nan, mark.certain) == (1, 1, True)


def test_a_leaf_is_marked_at_the_op_that_uses_it():
    """A leaf is no box of its own."""
    net = two_layers()
    with torch.no_grad():
        net[2].weight[0, 0] = math.nan
    (graph,) = traced(net, torch.ones(1, 3)).graphs
    assert graph.first_bad.source == "leaf"
    assert graph.nodes[forward_mark(graph).node].kind == "op"


def test_a_gradient_of_an_earlier_pass_is_older():
    """Then what the backward made is marked, as where the forward was finite."""
    report = traced(two_layers(), torch.tensor([[1.0, math.nan, 2.0]]))
    (graph,) = report.graphs
    later = replace(graph, first_bad=replace(graph.first_bad, pass_number=2))
    assert forward_mark(later) is None
    assert forward_mark(replace(graph, first_bad=None)) is None


def test_the_mark_is_in_the_text_and_in_what_the_viewer_gets():
    """The flow names the layer; the viewer's document has the node, and the first NaN beside it."""
    report = traced(two_layers(), torch.tensor([[1.0, math.nan, 2.0]]))
    assert "NaN born in linear, pass 1" in trace_forms.text(report)
    (graph,) = trace_document(report)["graphs"]
    assert graph["forward_mark"]["node"] == report.graphs[0].first_bad.node
    assert graph["first_nonfinite"][0]["node"] != graph["forward_mark"]["node"]
