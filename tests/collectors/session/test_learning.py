"""What stands still between two looks: how it is counted, and that looking leaves no trace."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
import torch
from torch import nn

from tensormagic.collectors.session.session_walk import ChangingLines
from tensormagic.collectors.session.update_tracking import UpdateTracking

NO_LINES = ChangingLines([])


class Net(nn.Module):
    """One layer that nothing uses."""

    def __init__(self):
        super().__init__()
        self.used, self.idle = nn.Linear(4, 2), nn.Linear(4, 2)

    def forward(self, x):
        return self.used(x)


def train(net, optimizer, steps):
    """Make steps, and leave the last gradients."""
    for _ in range(steps):
        optimizer.zero_grad()
        net(torch.ones(3, 4)).square().sum().backward()
        optimizer.step()


OPTIMIZERS = {
    "SGD": (lambda given: torch.optim.SGD(given, lr=1e-3), 0),
    "momentum": (lambda given: torch.optim.SGD(given, lr=1e-3, momentum=0.9), 0),
    "Adam": (torch.optim.Adam, 7),
    "AdamW": (torch.optim.AdamW, 7),
    "Adagrad": (torch.optim.Adagrad, 7),  # makes its state before the first step
    "RMSprop": (torch.optim.RMSprop, 7),
    "unfused": (lambda given: torch.optim.Adam(given, foreach=False), 7),
}


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_steps_are_counted_from_look_to_look(kind):
    """By the optimizer's own count where it has one, else by how often others were changed."""
    make, counted = OPTIMIZERS[kind]
    net = Net()
    optimizer, tracking = make(net.parameters()), UpdateTracking()
    roots, optimizers = [("net", net)], [("optimizer", optimizer)]
    assert tracking.look(roots, optimizers, lines=NO_LINES) == ()
    for steps, total in ((3, 3), (0, 3), (4, 7)):
        train(net, optimizer, steps)
        (found,) = tracking.look(roots, optimizers, lines=NO_LINES)
        assert (found.watched, found.held) == (total, True)
        assert [found.names[number] for number in found.unchanged] == ["net.idle.weight", "net.idle.bias"]
        assert [found.names[number] for number in found.trained] == ["net.used.weight", "net.used.bias"]
    assert found.steps == counted


def test_a_gradient_at_one_step_ends_it():
    """One step with all of them, and nothing stands still any more."""
    net, tracking = Net(), UpdateTracking()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    roots, optimizers = [("net", net)], [("optimizer", optimizer)]
    tracking.look(roots, optimizers, lines=NO_LINES)
    train(net, optimizer, 12)
    assert tracking.look(roots, optimizers, lines=NO_LINES)[0].watched == 12
    (net(torch.ones(1, 4)) + net.idle(torch.ones(1, 4))).sum().backward()
    optimizer.step()
    assert tracking.look(roots, optimizers, lines=NO_LINES) == ()
    optimizer.zero_grad()
    train(net, optimizer, 5)
    assert tracking.look(roots, optimizers, lines=NO_LINES)[0].watched == 5


def test_a_model_and_an_optimizer_of_every_run_are_new_ones():
    """Nothing is carried over to what has the same name, or the same address."""
    tracking = UpdateTracking()
    tracking.look([], [], lines=NO_LINES)
    for _ in range(4):
        net = Net()
        optimizer = torch.optim.Adam(net.parameters())
        train(net, optimizer, 6)
        (found,) = tracking.look([("net", net)], [("optimizer", optimizer)], lines=NO_LINES)
        assert (found.watched, found.steps) == (6, 6)


def test_a_gradient_that_comes_anew_at_the_same_address_is_another():
    """What is in no optimizer gets gradients all the same: an allocator gives an address again."""
    net, tracking, memory = Net(), UpdateTracking(), np.ones((2, 4), dtype=np.float32)
    optimizer = torch.optim.SGD(net.used.parameters(), lr=1e-3)
    roots, optimizers = [("net", net)], [("optimizer", optimizer)]
    tracking.look(roots, optimizers, lines=NO_LINES)
    for total in (3, 6):
        train(net, optimizer, 3)
        net.idle.weight.grad = torch.from_numpy(memory)
        (found,) = tracking.look(roots, optimizers, lines=NO_LINES)
        assert [found.names[number] for number in found.unchanged] == ["net.idle.weight"]
        assert (found.watched, found.held) == (total, False)
    train(net, optimizer, 3)
    assert tracking.look(roots, optimizers, lines=NO_LINES) == ()  # no gradient has come any more


def test_a_parameter_of_two_models_is_told_of_once():
    """As the first one's."""
    net, tracking = Net(), UpdateTracking()
    both = nn.Sequential(net)
    optimizer = torch.optim.Adam(net.parameters())
    roots, optimizers = [("net", net), ("both", both)], [("optimizer", optimizer)]
    tracking.look(roots, optimizers, lines=NO_LINES)
    train(net, optimizer, 3)
    assert [found.owner for found in tracking.look(roots, optimizers, lines=NO_LINES)] == ["net"]


def test_looking_leaves_no_trace_and_keeps_nothing():
    """No state is made for what has none; models, gradients and optimizers go when they are deleted."""
    net, tracking = Net(), UpdateTracking()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    tracking.look([("net", net)], [("optimizer", optimizer)], lines=NO_LINES)
    train(net, optimizer, 2)
    before = [(p._version, p.grad) for p in net.parameters()], len(optimizer.state)
    tracking.look([("net", net)], [("optimizer", optimizer)], lines=NO_LINES)
    assert len(optimizer.state) == before[1]
    pairs = zip(net.parameters(), before[0], strict=True)
    assert all(p._version == version and p.grad is grad for p, (version, grad) in pairs)
    kept = [weakref.ref(thing) for thing in (net, optimizer, net.used.weight, net.used.weight.grad)]
    del net, optimizer, before
    gc.collect()
    assert [reference() for reference in kept] == [None] * 4


def test_odd_parameters_are_left_out():
    """Lazy, of a subclass, made under inference mode: nothing is read of them."""
    with torch.inference_mode():
        inferred = nn.Linear(2, 2)
    odd = nn.ModuleDict({"lazy": nn.LazyLinear(3), "inferred": inferred, "meta": nn.Linear(2, 2, device="meta")})
    optimizer = torch.optim.SGD(odd["meta"].parameters(), lr=0.1)
    tracking = UpdateTracking()
    for _ in range(2):
        assert tracking.look([("odd", odd)], [("optimizer", optimizer)], lines=NO_LINES) == ()
