"""The quick hook of a pass that is measured in full leaves what the hook that looks at everything leaves."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

import tensormagic as tm
from tensormagic.collectors.gradients.gradients import PassRecorder
from tensormagic.collectors.gradients.measures import of_numbers


def of_a_net(scale):
    """Train a small net with views, a shared input and a large layer."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 600), nn.ReLU(), nn.Linear(600, 3))
    x = torch.randn(5, 6, requires_grad=True)
    hidden = net(x * scale)
    (hidden.t().reshape(-1)[::2] + hidden.sum().expand(8)).square().sum().backward()


def of_what_is_infinite():
    """Divide by zero, and pass the infinite gradient on to nodes before it."""
    x = torch.tensor([0.0, 1.0, 2.0], requires_grad=True)
    y = x * 1.0
    (y.view(3).neg().sqrt() + 1 / y).sum().backward()


def of_a_gradient_of_a_gradient():
    """Differentiate twice."""
    x = torch.tensor([2.0, 3.0], requires_grad=True)
    (slope,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
    slope.square().sum().backward()


def of_a_backward_within_a_backward():
    """A hook goes back through the same graph: its nodes are reached twice."""
    x = torch.tensor([2.0, 3.0], requires_grad=True)
    y = x.exp()
    z = y * 2

    def again(_gradient):
        handle.remove()
        torch.autograd.grad(z, x, torch.ones(2), retain_graph=True)

    handle = y.register_hook(again)
    z.sum().backward(retain_graph=True)


def of_a_gradient_that_is_stored_negated():
    """The gradient given to backward has its sign in a bit, and not in its memory."""
    x = torch.tensor([2.0, 3.0], requires_grad=True)
    x.t().backward(torch._neg_view(torch.tensor([1.0, 5.0])))


RUNS = {
    "a net": lambda: of_a_net(1.0),
    "what overflows float32 squares": lambda: of_a_net(1e12),
    "infinite gradients": of_what_is_infinite,
    "a second derivative": of_a_gradient_of_a_gradient,
    "a backward within a backward": of_a_backward_within_a_backward,
    "a gradient that is stored negated": of_a_gradient_that_is_stored_negated,
}


def told(run):
    """Return all numbers about gradients."""
    with tm.trace(namespace={}) as trace:
        run()
    return [
        (
            graph.order,
            [repr(node.statistics) for node in graph.nodes],
            graph.first_nonfinite,
            [*map(bits, graph.frames)],
        )
        for graph in trace.report.graphs
    ]


def bits(frame):
    """Return the numbers of a pass so that they are equal just where every bit is."""
    return frame.norms.tobytes(), frame.bad, frame.measures.tobytes(), frame.parts.tobytes()


@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
def test_it_leaves_what_the_other_look_leaves(run, monkeypatch):
    """Order, norms, counts, statistics and the first NaN are the same to the bit."""
    quick = told(run)
    taken = []

    def slowly_only(recorder, nodes, slowly):
        if recorder.values.table is None:
            return usual(recorder, nodes, slowly)
        taken.append(recorder.values.pass_number)
        return None

    usual = PassRecorder._usual_look
    monkeypatch.setattr(PassRecorder, "_usual_look", slowly_only)
    assert told(run) == quick
    assert taken


@pytest.mark.parametrize("count", [1, 32, 33])
@pytest.mark.parametrize("put", [(), (math.nan,), (math.inf,), (-math.inf, math.nan), (math.inf, -math.inf)])
def test_few_numbers_are_counted_as_many_are(count, put):
    """NaN and Inf are counted each, whichever way; without one the norm is that of float64."""
    numbers = torch.full((max(count, len(put)),), 1e30)
    numbers[: len(put)] = torch.tensor(put)
    norm, nan, inf = of_numbers(numbers.numpy())
    assert (nan, inf) == (sum(map(math.isnan, put)), sum(map(math.isinf, put)))
    expected = math.nan if nan else math.inf if inf else 1e30 * math.sqrt(count)
    assert norm == pytest.approx(expected, nan_ok=True)
