"""Values and gradients themselves, of graphs small enough to be checked by hand."""

from __future__ import annotations

import functools
import gc
import math
import weakref

import pytest
import torch

import tensormagic
from tensormagic.reports import TraceReport
from tensormagic.views.graph.words import value_text, wire_text


def traced(loss, **options) -> TraceReport:
    with tensormagic.trace(**options) as trace:
        loss().backward()
    return trace.report


def _zero_times_root(x):
    return x.sqrt() * 0


def numbers(report, what):
    """The numbers of the last pass, by the name of the leaf or result, or by op."""
    (graph,) = report.graphs
    found = getattr(graph.frames[-1].values, what)
    return {node.variable or node.op: found[node.index] for node in graph.nodes}


def test_values_and_gradients_have_their_signs():
    """The first graph of the micrograd lecture: L = (a b + c) f."""
    a, b, c, f = (torch.tensor(number, requires_grad=True) for number in (2.0, -3.0, 10.0, -2.0))
    report = traced(lambda: (a * b + c) * f, namespace={"a": a, "b": b, "c": c, "f": f})
    assert numbers(report, "made") | {"mul": ()} == {"a": (2.0,), "b": (-3.0,), "c": (10.0,), "f": (-2.0,),
                                                     "mul": (), "add": (4.0,)}  # fmt: skip
    came = numbers(report, "gradients")
    assert [came[name] for name in "abcf"] == [(6.0,), (-4.0,), (-2.0,), (4.0,)]
    assert [(leaf.grad.item(),) for leaf in (a, b, c, f)] == [came[name] for name in "abcf"]


def test_local_derivatives_stand_on_the_wires():
    """What goes along a wire is what came, times the derivative: of a value used twice both are told."""
    x = torch.tensor(0.5, requires_grad=True)
    (graph,) = traced(lambda: torch.tanh(x * x)).graphs
    values = graph.frames[0].values
    assert values is not None
    leaf = next(node.index for node in graph.nodes if node.kind == "accumulate")
    edges = [at for at, edge in enumerate(graph.edges) if edge.target == leaf]
    assert wire_text(graph, values, edges) == ("×0.5 + ×0.5")


def test_vectors_are_told_element_by_element():
    """Of an operation by element each element has its derivative; of a sum every element has 1."""
    w = torch.tensor([1.0, -2.0, 3.0], requires_grad=True)
    (graph,) = traced(lambda: torch.sum(w**2)).graphs
    values = graph.frames[0].values
    assert values is not None
    texts = {graph.nodes[edge.source].op: wire_text(graph, values, [at]) for at, edge in enumerate(graph.edges)}
    assert texts == {"sum": "×1", "pow": "×[2, −4, 6]"}


def test_larger_graphs_have_norms_alone_unless_asked():
    """Five elements are no longer small; with values=True what is small in a larger graph is told."""
    w = torch.ones(5, requires_grad=True)
    assert traced(w.sum).graphs[0].frames[0].values is None
    values = traced(w.sum, values=True).graphs[0].frames[0].values
    assert values is not None
    assert sorted(values.gradients) == [(), (1.0,)]


def test_round_trip_and_nothing_kept():
    """A saved report has the numbers, NaN included; the tensors themselves are not held."""
    made = torch.tensor(0.0, requires_grad=True)
    report = traced(functools.partial(_zero_times_root, made))
    again = TraceReport.from_dict(report.to_dict())
    values = again.graphs[0].frames[0].values
    assert values is not None
    assert any(math.isnan(number) for numbers in values.gradients for number in numbers)
    held = weakref.ref(made)
    del made
    gc.collect()
    assert held() is None


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ((6.0,), "6"), ((-0.0,), "0"), ((0.70710678,), "0.707"), ((1.0, -1e-7), "[1, −1e−7]"), ((math.nan,), "NaN"),
        ((), ""), ((1234.0,), "1234"),
    ],
)  # fmt: skip
def test_numbers_are_short(given, text):
    """Three digits, a sign, and no zero below zero."""
    assert value_text(given) == text
