"""The graph so far, as autograd had recorded it when torch refused a call."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from torch import nn

import tensormagic as tm
from tensormagic.collectors.failures import failures


def told(run):
    with pytest.raises(RuntimeError), tm.explain() as explanation:
        run()
    return explanation.report


def test_the_graph_leads_to_the_refused_call():
    """Its last node is the call, fed by what made its operands and by the leaves among them."""
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(5, 2))
    graph = told(lambda: net(torch.ones(2, 3))).graph
    last = graph.roots[0]
    assert (last, graph.nodes[last].op) == (len(graph.nodes) - 1, "linear")
    feeding = {graph.nodes[edge.target].op for edge in graph.edges if edge.source == last}
    assert feeding == {"relu", "accumulate"}
    assert {"net.2.weight", "net.2.bias"} <= {node.variable for node in graph.nodes}
    assert {node.location for node in graph.nodes} == {None}


def test_under_a_trace_its_nodes_know_their_modules():
    """The tracer saw them being made."""
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(5, 2))
    with pytest.raises(RuntimeError), tm.trace(namespace={"net": net}) as trace:
        net(torch.ones(2, 3))
    graph = trace.report.failure.graph
    assert {node.module for node in graph.nodes if node.op == "relu"} == {"net.1"}


@pytest.mark.parametrize(
    "run",
    [
        lambda: torch.ones(2, 3) @ torch.ones(4, 5),
        lambda: torch.ones(2, 3, requires_grad=True) @ torch.ones(4, 5),
        (torch.ones(2, 3, requires_grad=True) * 2).backward,
    ],
    ids=["nothing recorded", "leaves alone", "in backward"],
)
def test_there_is_none_where_nothing_led_there(run):
    """No graph, no picture."""
    assert told(run).graph is None


@pytest.mark.parametrize("following", [tm.explain, tm.trace])
def test_what_the_failing_functions_held_goes_with_the_error(following):
    """At once, as without the tool: where memory ran out, nobody can wait for Python's search for cycles."""

    def run():
        held, x = torch.ones(100), torch.ones(2, 3, requires_grad=True)
        gone.append(weakref.ref(held))
        return (x * 2) @ torch.ones(4, 5)

    gone = []
    gc.collect()
    gc.disable()
    try:
        with pytest.raises(RuntimeError) as raised, following() as followed:
            run()
        assert followed.report is not None
        del raised
        assert [reference() for reference in gone] == [None]
    finally:
        gc.enable()


def test_a_large_graph_is_left_out(monkeypatch):
    """Its picture would be all folds."""
    monkeypatch.setattr(failures, "MOST_NODES", 20)

    def run():
        x = torch.ones(2, 3, requires_grad=True)
        for _ in range(30):
            x = x * 2
        return x @ torch.ones(4, 5)

    assert told(run).graph is None
