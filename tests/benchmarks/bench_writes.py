"""What ``%%aliases`` costs, as a ratio to a dispatch mode that does nothing, in the same run. Run by ``make bench``.

Every op passes through Python once in both; what is left is what the watch itself costs.
"""

from __future__ import annotations

import statistics
import time

import pytest
import torch
from torch import nn

import tensormagic as tm
from tests.benchmarks.overhead import NoOp

pytestmark = pytest.mark.benchmark

ROUNDS = 5


def _training(kind, **options):
    net = nn.Sequential(*[layer for _ in range(20) for layer in (nn.Linear(64, 64), nn.ReLU())])
    optimizer = kind(net.parameters(), lr=1e-3, **options)
    x = torch.randn(8, 64)

    def step():
        optimizer.zero_grad()
        net(x).sum().backward()
        optimizer.step()

    return {"net": net, "optimizer": optimizer}, step, 150


def _rows():
    out = torch.zeros(64, 16)
    views = [out[at] for at in range(0, 64, 8)]

    def step():
        for at in range(64):
            out[at] = at

    return {"out": out, "views": views}, step, 30


WORKLOADS = {
    "forward and backward, few writes": lambda: _training(torch.optim.SGD, foreach=True),
    "Adam, one tensor at a time": lambda: _training(torch.optim.Adam, foreach=False),
    "rows of a buffer of which eight have names": _rows,
}
MOST = {
    "forward and backward, few writes": 2.2,
    "Adam, one tensor at a time": 2.2,
    "rows of a buffer of which eight have names": 12.0,
}


def _seconds(context, step, count):
    began = time.perf_counter()
    with context:
        for _ in range(count):
            step()
    return time.perf_counter() - began


@pytest.mark.parametrize("name", WORKLOADS)
def test_ratio_to_a_mode_that_does_nothing(name):
    """Medians over rounds in which both take turns."""
    names, step, count = WORKLOADS[name]()
    for context in (NoOp(), tm.watch_writes(namespace=names)):
        _seconds(context, step, 3)
    ratios = []
    for _ in range(ROUNDS):
        plain = _seconds(NoOp(), step, count)
        ratios.append(_seconds(tm.watch_writes(namespace=names), step, count) / plain)
    print(f"\n    {name}: {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")
    assert statistics.median(ratios) <= MOST[name]
