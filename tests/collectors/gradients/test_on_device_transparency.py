"""The run stays the user's where its gradients are taken for those of a device: bit for bit, and nothing is left."""

from __future__ import annotations

import contextlib

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import tensormagic as tm


def shared_weights():
    embedding = nn.Embedding(20, 8)
    for _ in range(3):
        F.cross_entropy(embedding(torch.arange(6)) @ embedding.weight.t(), torch.arange(6)).backward()
    return [embedding.weight.grad]


def sparse():
    table = nn.Embedding(10, 3, sparse=True)
    table(torch.tensor([1, 1, 2])).square().sum().backward()
    return [table.weight.grad.to_dense()]


def residual_sums_written_in_place():
    x = torch.randn(40, 3, requires_grad=True)
    h = x * 1.0
    (h + h.t().contiguous().t() + h.relu() + (h * 2)).square().sum().backward()
    return [x.grad]


def second_derivatives():
    x = torch.randn(5, requires_grad=True)
    (first,) = torch.autograd.grad(x.pow(3).sum(), x, create_graph=True)
    first.square().sum().backward()
    return [x.grad, first.detach()]


def half_precision():
    net = nn.Sequential(nn.Linear(30, 300), nn.ReLU(), nn.Linear(300, 300), nn.Linear(300, 3))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = net(torch.randn(200, 30)).float().square().mean()
        loss.backward()
    return [each.grad for each in net.parameters()]


def complex_numbers():
    x = torch.randn(300, dtype=torch.complex64, requires_grad=True)
    (x * x.conj()).abs().sum().backward()
    return [x.grad]


def checkpointed(use_reentrant):
    net = nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Dropout(), nn.Linear(6, 6))
    x = torch.randn(4, 6, requires_grad=True)
    checkpoint(net, x, use_reentrant=use_reentrant).sum().backward()
    return [x.grad, *(each.grad for each in net.parameters())]


def steps_inside_the_backward():
    net = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))
    optimizers = {each: torch.optim.SGD([each], lr=0.1, momentum=0.9) for each in net.parameters()}

    def step(parameter):
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for parameter in net.parameters():
        parameter.register_post_accumulate_grad_hook(step)
    for _ in range(4):
        net(torch.randn(3, 4)).square().sum().backward()
    return list(net.parameters())


def transforms():
    w = torch.randn(3)
    found = torch.func.vmap(torch.func.grad(lambda row: (row * w).tanh().sum()))(torch.randn(5, 3))
    return [found]


def expanded_and_empty():
    x, y = torch.randn(7, requires_grad=True), torch.zeros(0, 3, requires_grad=True)
    (x.expand(40, 7).sum() + x.as_strided((2,), (3,)).sum() + y.sum()).backward()
    return [x.grad, y.grad]


PROGRAMS = {
    each.__name__: each
    for each in (shared_weights, sparse, residual_sums_written_in_place, second_derivatives, half_precision,
                 complex_numbers, steps_inside_the_backward, transforms, expanded_and_empty)
} | {"checkpointed": lambda: checkpointed(False), "checkpointed, re-entrant": lambda: checkpointed(True)}  # fmt: skip


def _run(program, traced):
    torch.manual_seed(3)
    with tm.trace(level=traced) if traced else contextlib.nullcontext() as trace:
        found = program()
    return [*(each.detach().clone() for each in found), torch.rand(3)], trace.report if traced else None


@pytest.mark.parametrize("level", ["grad", "ops"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_no_bit_is_changed(name, level, simulated):
    """Gradients, parameters and generator are what they are untraced."""
    base, _ = _run(PROGRAMS[name], "")
    told, report = _run(PROGRAMS[name], level)
    assert all(map(torch.equal, base, told))
    assert not [gap for gap in report.gaps if "measured" in gap.reason or "read" in gap.reason]


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_norms_are_those_of_the_cpu(name, request):
    """Whatever the layout: sparse, expanded, complex, half, empty."""
    _, now = _run(PROGRAMS[name], "grad")
    request.getfixturevalue("simulated")
    _, later = _run(PROGRAMS[name], "grad")
    assert len(later.parameters) == len(now.parameters)
    for one, other in zip(now.parameters, later.parameters, strict=True):
        assert list(other.norms) == pytest.approx(list(one.norms), rel=1e-4)
    assert [gap.reason for gap in later.gaps] == [gap.reason for gap in now.gaps]
