"""Where a loss that is not finite came from: real graphs, looked at before backward goes through them."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

import tensormagic as tm
from tensormagic.collectors.gradients import nonfinite, traced_graph
from tensormagic.reports import NonfiniteSource


def found(make, **namespace):
    """Return what was found of the one graph behind the sum of what ``make`` returns."""
    with tm.trace(namespace=namespace) as trace:
        make().sum().backward()
    (graph,) = trace.report.graphs
    return graph.nonfinite_source, graph


def leaf(*values):
    return torch.tensor(values, requires_grad=True)


def test_data_with_their_name():
    """The tensor that the user holds, or another of the same elements."""
    x, w = torch.tensor([[1.0, math.nan, math.inf]]), torch.ones(3, 2, requires_grad=True)
    first, graph = found(lambda: x @ w, x=x)
    assert first == NonfiniteSource(1, 1, "data", 1, 1, 3, "x", (1, 3))
    assert graph.nodes[1].op == "mm"
    first, _ = found(lambda: x.view(1, 3) @ w, rows=x.view(1, 3))
    assert first.name == "rows"
    assert found(lambda: (x + 0) @ w, x=x)[0].name == ""


def test_a_leaf():
    """A parameter that is bad before the forward begins, whoever uses it."""
    w = leaf(1.0, math.nan)
    first, graph = found(lambda: w * 2)
    assert (first.source, first.nan, first.count, first.shape) == ("leaf", 1, 2, (2,))
    assert graph.nodes[first.node].kind == "accumulate"


@pytest.mark.parametrize(
    ("make", "values", "op", "counts", "operand"),
    [
        (torch.log, (1.0, 0.0, -1.0), "log", (1, 1), (1, 1)),
        (torch.log1p, (1.0, -1.0, -3.0), "log1p", (1, 1), (1, 1)),
        (torch.acos, (0.5, 2.0), "acos", (1, 0), (0, 1)),
        (torch.acosh, (0.5, 2.0), "acosh", (1, 0), (0, 1)),
        (torch.reciprocal, (1.0, 0.0), "reciprocal", (0, 1), (0, 0)),
        (lambda x: x / (x * 0), (1.0, 2.0), "div", (0, 2), (2, 0)),
        (torch.exp, (1.0, 1000.0), "exp", (0, 1), (0, 0)),
        (torch.sqrt, (4.0, -1.0), "sqrt", (1, 0), (0, 0)),
    ],
)
def test_ops_that_leave_their_domain(make, values, op, counts, operand):
    """By the result where it was saved, else by the operand."""
    x = leaf(*values)
    first, graph = found(lambda: make(x))
    assert graph.nodes[first.node].op == op
    assert ((first.nan, first.inf), (first.zero, first.negative)) == (counts, operand)
    assert (first.source, first.certain, first.count) == ("made", True, len(values))


def test_what_was_handed_on_is_traced_back_to_its_maker():
    """A matrix product saves no result; the view and the ReLU after it hand on what it made."""
    x, w = torch.full((2, 2), 1e38), torch.full((2, 2), 1e38, requires_grad=True)
    first, graph = found(lambda: (x @ w).view(4).relu().exp())
    assert graph.nodes[first.node].op == "mm"
    assert (first.inf, first.certain) == (4, True)


def test_what_nobody_saved_is_said_to_be_unknown():
    """A sum saves nothing: the NaN of the softmax may have come through it."""
    x = leaf(1.0, 2.0)
    first, graph = found(lambda: (x + torch.tensor([math.nan, 0.0])).softmax(0).square())
    assert graph.nodes[first.node].op == "softmax"
    assert not first.certain


def test_a_nan_that_came_from_an_infinity():
    """Infinity minus infinity: the overflow is told, not where it became NaN."""
    x = leaf(1.0, 200.0)

    def make():
        e = x.exp()
        return (e / e.sum()).square()

    first, graph = found(make)
    assert (graph.nodes[first.node].op, first.inf) == ("exp", 1)


def test_an_infinity_elsewhere_is_not_to_blame():
    """A second branch holds an infinity that the loss leaves out: the NaN did not come from it."""
    x, y = leaf(1.0, 0.0), leaf(-1.0, 2.0)

    def make():
        hidden = torch.where(x > 0, x.log(), 0.0)
        return hidden.sum() + y.sqrt().sum()

    first, graph = found(make)
    assert (graph.nodes[first.node].op, first.nan) == ("sqrt", 1)


def test_nothing_is_looked_at_while_the_loss_is_finite(monkeypatch):
    """It costs one comparison a pass; and of a run that has gone wrong, one look a structure."""
    looks = []
    search = traced_graph.nonfinite_source

    def counted(*given):
        looks.append(given[2])
        return search(*given)

    monkeypatch.setattr(traced_graph, "nonfinite_source", counted)
    x = leaf(1.0, 2.0)
    with tm.trace(namespace={}) as trace:
        for scale in (1.0, 1.0, -1.0, -1.0):
            (x * scale).log().sum().backward()
    assert looks == [3]
    assert trace.report.graphs[0].nonfinite_source.pass_number == 3


def test_the_person_s_saved_tensor_hooks_are_not_run():
    """What they packed stays packed, and is not known."""
    unpacked = []
    x = leaf(1.0, -1.0)
    with tm.trace(namespace={}) as trace:
        with torch.autograd.graph.saved_tensors_hooks(lambda saved: saved, lambda saved: unpacked.append(1) or saved):
            loss = x.log().sum()
        loss.backward()
    assert len(unpacked) == 1  # by backward itself
    assert trace.report.graphs[0].nonfinite_source is None


def test_a_tensor_changed_in_place_is_a_gap_in_what_is_known():
    """Reading it raises: nothing is known of it, and backward says what it says without us."""
    x = leaf(1.0, -1.0)
    trace = tm.trace(namespace={})
    with trace:
        y = x * 1
        z = y.log()
        y.add_(5)
        with pytest.raises(RuntimeError, match="inplace"):
            z.sum().backward()
    assert trace.report.graphs[0].nonfinite_source is None
    assert trace.report.gaps == ()


def test_what_cannot_be_searched_is_a_gap(monkeypatch):
    """It never raises into the run."""

    def broken(*_):
        raise ValueError("no")

    monkeypatch.setattr(traced_graph, "nonfinite_source", broken)
    x = leaf(1.0, -1.0)
    with tm.trace(namespace={}) as trace:
        x.log().sum().backward()
    assert x.grad.tolist() == [1.0, -1.0]
    (gap,) = trace.report.gaps
    assert (gap.section, gap.reason) == ("forward", "where the loss became nan was not found: ValueError: no")


def test_results_versions_and_modes_are_the_person_s():
    """Gradients bit for bit, version counters, and what a mode of the user's own sees."""

    class Seen(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            calls.append(str(func))
            return func(*args, **(kwargs or {}))

    def step():
        x = torch.full((4, 3), -1.0)
        net = nn.Linear(3, 2)
        with torch.no_grad():
            net.weight.fill_(1.0)
            net.bias.fill_(0.5)
        with Seen():
            net(x).log().mean().backward()
        return net.weight.grad, net.weight._version, x._version

    calls: list[str] = []
    plain, alone = step(), calls
    calls = []
    with tm.trace(namespace={}) as trace:
        traced = step()
    assert calls == alone
    assert torch.equal(plain[0], traced[0])
    assert plain[1:] == traced[1:]
    assert trace.report.graphs[0].nonfinite_source.source == "made"


def test_an_older_nan_that_a_later_op_alone_saved():
    """The sum saves nothing of its NaN: the product far behind the logarithm does, and is asked all the same."""
    x = leaf(-1.0)

    def late():
        older = x + math.nan
        newer = torch.log(x)
        for _ in range(20):
            newer = newer.sin()
        return older * newer

    first, graph = found(late)
    assert graph.nodes[first.node].op == "add"


def test_nothing_is_read_behind_the_first_nan_but_what_used_something_older(monkeypatch):
    """A deep network is bad from some layer on: what all others hold says nothing."""
    looked = []
    before = nonfinite._Look._look_at
    monkeypatch.setattr(nonfinite._Look, "_look_at", lambda self, at: (looked.append(at), before(self, at)))

    def deep():
        x = torch.log(leaf(-1.0))
        for _ in range(50):
            x = x.sin()
        return x

    first, graph = found(deep)
    assert graph.nodes[first.node].op == "log"
    assert len(looked) < 6 < len(graph.nodes)
