"""A hundred thousand nodes from forward to page, in CPU seconds: a chain, a wide graph, a residual net, a loop."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest
import torch
from torch import nn

import tensormagic as tm
from tensormagic.views.page import files

pytestmark = [pytest.mark.benchmark, pytest.mark.usefixtures("one_thread")]

NODES = 100_000
SECONDS = 10.0
PAGE_BYTES = 3_000_000


class _Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, given):
        return given + self.second(torch.relu(self.first(given)))


def _chain():
    w = torch.ones(4, requires_grad=True)

    def forward():
        x = w
        for _ in range(NODES):
            x = x.sin()
        return x.sum()

    return forward


def _wide():
    leaves = [torch.ones(4, requires_grad=True) for _ in range(NODES // 3)]
    return lambda: torch.stack([leaf.sin() * 2 for leaf in leaves]).sum()


def _residual(scale=0.1):
    net, x = nn.Sequential(*[_Block() for _ in range(NODES // 10)]), torch.ones(2, 4)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.mul_(scale)
    return lambda: net(x).sum()


def _infinite():
    return _residual(1.0)  # as torch initializes it: a part of the gradients is infinite, most are NaN


def _recurrent():
    cell, steps = nn.LSTMCell(4, 4), NODES // 15
    x = torch.ones(steps, 2, 4)

    def forward():
        hidden = memory = torch.zeros(2, 4)
        for each in x:
            hidden, memory = cell(each, (hidden, memory))
        return hidden.sum()

    return forward


GRAPHS = {"chain": _chain, "wide": _wide, "residual": _residual, "infinite": _infinite, "recurrent": _recurrent}


@pytest.fixture(autouse=True)
def _the_same_weights():
    torch.manual_seed(0)


@pytest.mark.parametrize("name", GRAPHS)
def test_traced_folded_and_shown(name):
    """Forward, backward, rules, page and text take less than ten seconds together; the page less than 3 MB."""
    forward = GRAPHS[name]()
    marks = [time.process_time()]
    with tm.trace() as trace:
        forward().backward()
    marks.append(time.process_time())
    report = trace.report
    marks.append(time.process_time())
    page = files.bundle(report)["text/html"]  # and text, and LaTeX
    marks.append(time.process_time())
    run, rules, shown = (after - before for before, after in pairwise(marks))
    print(f"\n    {name}, {len(report.nodes)} nodes: traced {run:.1f} s, report {rules:.1f} s, "
          f"page and text {shown:.1f} s, {len(page) / 1e6:.1f} MB")  # fmt: skip
    assert len(report.nodes) >= 0.9 * NODES
    assert run + rules + shown < SECONDS
    assert len(page.encode()) < PAGE_BYTES


@pytest.mark.parametrize("name", GRAPHS)
def test_drawn_before_backward(name):
    """``%gradgraph`` of the same graphs: looked at, folded and shown in less than ten seconds."""
    loss = GRAPHS[name]()()
    began = time.process_time()
    page = files.bundle(tm.gradgraph(loss))["text/html"]
    took = time.process_time() - began
    print(f"\n    {name}: {took:.1f} s, {len(page) / 1e6:.1f} MB")
    assert took < SECONDS
    assert len(page.encode()) < PAGE_BYTES
