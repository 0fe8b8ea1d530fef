"""Graphs that are kept, or recorded in eval mode: which lines they are told of, how often, and when not."""

from __future__ import annotations

import threading

import pytest
import torch
from torch import nn

import tensormagic as tm


def unused_in(run, *, net=None, **options):
    """Trace ``run``; return what is told, by the text of the line."""
    with tm.trace(namespace={} if net is None else {"net": net}, **options) as trace:
        run()
    report = trace.report
    return {report.location(one.location).text.strip(): one for one in report.unused_graphs}


@pytest.fixture
def net():
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))


def train(net, **options):
    net.train()
    net(torch.ones(3, 4)).sum().backward(**options)


@pytest.mark.parametrize("level", ["grad", "ops"])
def test_evaluations_are_counted_by_the_passes_after_them(net, level):
    """Batches between two passes are one evaluation; what comes after the last pass may still be used."""

    def run():
        for _ in range(4):
            train(net)
            net.eval()
            for _ in range(3):
                net(torch.ones(3, 4)).argmax()

    found = unused_in(run, net=net, level=level)
    (one,) = found.values()
    assert list(found) == ["net(torch.ones(3, 4)).argmax()"]
    assert (one.kind, one.model, one.times) == ("evaluation", "net", 3)


def test_the_line_is_the_one_that_calls_the_model(net):
    """Not the line within it; a model in train mode that holds one in eval mode is trained."""

    class Scorer(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net

        def forward(self, x):
            return self.net(x)

    scorer = Scorer()

    def run():
        for _ in range(3):
            train(net)
            scorer.eval()
            scorer(torch.ones(3, 4))
            scorer.train()
            net.eval()
            scorer(torch.ones(1, 4)).detach()

    found = unused_in(run)
    assert list(found) == ["scorer(torch.ones(3, 4))"]
    assert found["scorer(torch.ones(3, 4))"].model == "Scorer"


def test_one_pass_through_any_of_them_is_enough(net):
    """As in an attack, or a penalty in every tenth step."""

    def run():
        for number in range(5):
            train(net)
            net.eval()
            scores = net(torch.ones(3, 4, requires_grad=True))
            if number == 3:
                scores.sum().backward()

    assert unused_in(run, net=net) == {}


def test_graphs_that_are_kept_are_told_when_the_next_pass_leaves_them_alone(net):
    """Of the last it is not known; it is counted, since it keeps its graph as the others do."""

    def run():
        for _ in range(4):
            train(net, retain_graph=True)

    (one,) = unused_in(run, net=net).values()
    assert (one.kind, one.times, one.model) == ("kept", 4, "")


def test_graphs_that_are_gone_through_again_much_later(net):
    """The first of many steps is gone through once more, at the end."""
    losses = []

    def run():
        for _ in range(20):
            losses.append(net(torch.ones(3, 4)).sum())
            losses[-1].backward(retain_graph=True)
        losses[0].backward()

    assert unused_in(run, net=net) == {}


def test_create_graph_keeps_for_another_reason(net):
    """TM315 and TM317 speak of it."""

    def run():
        for _ in range(4):
            torch.autograd.grad(net(torch.ones(3, 4)).sum(), list(net.parameters()), create_graph=True)

    assert unused_in(run, net=net) == {}


def test_steps_that_are_not_traced_are_not_judged(net):
    """What was kept may be gone through while the tracer rests."""

    def run(*, again):
        kept = None
        for _ in range(24):
            loss = net(torch.ones(3, 4)).sum()
            loss.backward(retain_graph=True)
            if again and kept is not None:
                kept.backward()
            kept = loss

    assert unused_in(lambda: run(again=False), net=net, every=3) == {}
    assert unused_in(lambda: run(again=True), net=net, every=3) == {}
    assert unused_in(lambda: run(again=False), net=net)


def test_graphs_of_another_thread_are_left_alone(net):
    """Each thread has numbers of its own."""

    def run():
        for _ in range(3):
            train(net)
            net.eval()
            thread = threading.Thread(target=lambda: net(torch.ones(3, 4)).sum())
            thread.start()
            thread.join()

    assert unused_in(run, net=net) == {}
