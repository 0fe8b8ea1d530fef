"""Which models are a part of a traced run: those that ran in it, or whose parameters got a gradient."""

from __future__ import annotations

import torch
from torch import nn

import tensormagic as tm


class Loose(nn.Module):
    """Keeps a weight that nobody trains."""

    def __init__(self):
        super().__init__()
        self.fc, self.scale = nn.Linear(2, 2), torch.ones(2, requires_grad=True)

    def forward(self, x):
        return self.fc(x) * self.scale


def traced(namespace, run):
    with tm.trace(namespace=namespace) as trace:
        run()
    return trace.report


def loose_of(report):
    return [loose.name for loose in report.modules.unregistered_tensors]


def test_a_model_of_an_earlier_cell_is_no_part():
    """A parameter that belongs to no model makes the tracer look for one; others stay unmentioned."""
    old, w = Loose(), nn.Parameter(torch.ones(2))
    report = traced({"old": old, "w": w}, lambda: (w * 2).sum().backward())
    assert (loose_of(report), [series.name for series in report.parameters], report.title) == ([], ["w"], "")


def test_a_model_that_ran():
    """Its forward ran: it reports on."""
    net = Loose()
    report = traced({"net": net}, lambda: net(torch.ones(1, 2)).sum().backward())
    assert (loose_of(report), report.title) == (["net.scale"], "net")


def test_a_model_whose_parameters_are_used_without_it():
    """Two models lend a parameter each: both are told of, and the one that does not is not."""
    one, two, three = Loose(), Loose(), Loose()
    namespace = {"three": three, "one": one, "two": two}
    report = traced(namespace, lambda: (one.fc.weight * two.fc.weight).sum().backward())
    assert sorted(loose_of(report)) == ["one.scale", "two.scale"]


def test_the_run_is_called_by_the_model_that_learns():
    """A frozen target network that runs first does not give the run its name."""
    target, net = nn.Linear(2, 1), nn.Linear(2, 1)

    def run():
        with torch.no_grad():
            wanted = target(torch.ones(1, 2))
        (net(torch.ones(1, 2)) - wanted).square().sum().backward()

    assert traced({"target": target, "net": net}, run).title == "net"


def test_a_model_that_an_optimizer_steps_for_a_parameter_of_none():
    """A Parameter made anew in every step belongs to no model: the one that the optimizer holds is told of."""
    base, old = nn.Linear(2, 2), nn.Linear(2, 2)
    optimizer = torch.optim.SGD(base.parameters(), lr=0.1)

    def run():
        nn.Parameter(base.weight * 0.5).sum().backward()
        optimizer.step()

    report = traced({"old": old, "base": base}, run)
    assert {series.owner for series in report.parameters} == {"", "base"}
