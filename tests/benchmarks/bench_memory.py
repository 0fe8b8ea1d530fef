"""What a trace keeps: at most 2 KB a node beyond the untraced run, and not one tensor. Run by ``make bench``."""

from __future__ import annotations

import gc
import tracemalloc

import pytest
import torch
from torch import nn

import tensormagic as tm

pytestmark = pytest.mark.benchmark

BYTES_A_NODE = 2048


def _net():
    return nn.Sequential(*[layer for _ in range(400) for layer in (nn.Linear(8, 8), nn.ReLU())])


def _steps(net, count):
    x = torch.randn(4, 8)
    for _ in range(count):
        for parameter in net.parameters():
            parameter.grad = None
        net(x).sum().backward()


def _peak(run):
    gc.collect()
    tracemalloc.start()
    result = run()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak, result


def _traced(net, count):
    with tm.trace(namespace={"net": net}) as trace:
        _steps(net, count)
    return trace.report


@pytest.mark.parametrize("count", [1, 20, 300])
def test_python_memory(count):
    """A graph of 2 001 nodes, traced for one, twenty and three hundred steps, the report included."""
    net = _net()
    _traced(net, 2)  # imports and caches
    plain, _ = _peak(lambda: _steps(net, count))
    traced, report = _peak(lambda: _traced(net, count))
    each = (traced - plain) / len(report.nodes)
    print(f"\n    {count} steps, {len(report.nodes)} nodes: {each:.0f} bytes a node at the peak")
    assert each <= BYTES_A_NODE


def _live_tensors():
    gc.collect()
    return sum(isinstance(thing, torch.Tensor) for thing in gc.get_objects())


def test_no_tensor_stays():
    """After the trace there are as many tensors as before it."""
    net = _net()
    _steps(net, 1)
    before = _live_tensors()
    report = _traced(net, 3)
    assert report.nodes
    assert _live_tensors() == before
