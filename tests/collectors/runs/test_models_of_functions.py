"""A model that a function makes and trains is gone when the run ends: what is wrong with it is found all the same."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from torch import nn

import tensormagic as tm
from tests.corpus import healthy_by_hand, healthy_cuts, healthy_steps

PASSES = 5


class Net(nn.Module):
    """Two layers, with what the subclasses do wrong."""

    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(4, 4), nn.Linear(4, 1)

    def between(self, x):
        return x.relu()

    def forward(self, x):
        return self.head(self.between(self.body(x)))


class ThroughNumpy(Net):
    def between(self, x):
        return torch.tensor(x.detach().numpy())


class PlainScale(Net):
    def __init__(self):
        super().__init__()
        self.scale = torch.ones(1, requires_grad=True)

    def between(self, x):
        return x * self.scale


class PlainList(Net):
    def __init__(self):
        super().__init__()
        self.more = [nn.Linear(4, 4), nn.Linear(4, 4)]

    def between(self, x):
        return self.more[1](self.more[0](x))


class Repeated(Net):
    def __init__(self):
        super().__init__()
        self.more = nn.Sequential(*[nn.Linear(4, 4)] * 3)

    def between(self, x):
        return self.more(x)


class Zeros(Net):
    def __init__(self):
        super().__init__()
        for each in self.parameters():
            nn.init.constant_(each, 0.1)


def train(kind, watched):
    torch.manual_seed(0)
    net = kind()
    watched.append(weakref.ref(net))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for _ in range(PASSES):
        x = torch.randn(8, 4)
        loss = (net(x) - x.sum(1, keepdim=True)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@pytest.mark.parametrize(
    ("kind", "code", "says"),
    [
        (ThroughNumpy, "TM303", "ThroughNumpy.body gets no gradient in 5 backward passes: `.detach()` cuts it off"),
        (PlainScale, "TM603", "the optimizer updates 4 parameters of PlainScale and never this tensor"),
        (PlainList, "TM605", "PlainList.more is a plain list of 2 modules"),
        (Repeated, "TM614", "Repeated.more"),
        (Zeros, "TM408", "Zeros.body.weight"),
        (Net, "", ""),
    ],
)
def test_what_is_wrong_with_it_is_told(kind, code, says):
    """And nothing keeps it: neither the run nor what was noted of it."""
    watched = []
    with tm.trace(namespace={}) as trace:
        train(kind, watched)
        gc.collect()
        assert watched[0]() is None
    found = [one for one in trace.report.findings if one.severity != "note" or one.code == code]
    assert [one.code for one in found] == ([code] if code else [])
    assert all(says in one.message for one in found)


@pytest.mark.parametrize(
    "program",
    [
        healthy_cuts.a_codebook_kept_up_by_moving_averages,
        healthy_by_hand.an_average_that_is_copied_into_its_place,
        healthy_steps.an_average_that_gets_gradients_and_uses_none,
    ],
)
def test_what_is_right_in_it_is_not_told(program):
    """What follows other weights is not trained, and a Parameter that another one replaced is not missed."""
    with tm.trace(namespace={}) as trace:
        program()
        gc.collect()
    assert [one.message for one in trace.report.findings if one.severity != "note"] == []


class Unreadable(Net):
    """Its parameters cannot be listed once it has trained for a pass."""

    passes = 0

    def named_parameters(self, *given, **named):
        if self.passes > 1:
            raise RuntimeError("not now")
        return super().named_parameters(*given, **named)


def test_a_model_that_cannot_be_read_ends_no_backward():
    """The look is left out, with a gap; every backward comes back, and every gradient is there."""
    net = Unreadable()
    with tm.trace(namespace={"net": net}) as trace:
        for _ in range(PASSES):
            loss = net(torch.ones(8, 4)).sum()
            net.passes += 1
            loss.backward()
        net.passes = 0
    assert [done.outcome for done in trace.report.passes] == ["finished"] * PASSES
    assert any("not now" in gap.reason for gap in trace.report.gaps)
