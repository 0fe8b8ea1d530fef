"""What a trace keeps: at most 1 KB a node and pass, 2 KB at the peak, however long the run; and not one tensor.

Run by ``make bench``.
"""

from __future__ import annotations

import gc
import resource
import tracemalloc
from array import array
from pathlib import Path

import pytest
import torch
from torch import nn

import tensormagic as tm
from tensormagic.collectors.gradients.traced_graph import MOST_PASSES, SubsampledSequence, passes_to_keep
from tensormagic.reports import Frame

pytestmark = pytest.mark.benchmark

BYTES_A_NODE = 2048
BYTES_A_PASS = 32  # and node, of every pass that is kept: its norm, and six numbers where they were taken
BYTES_KEPT = 1024
CELLS = 10_000


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
    assert each <= BYTES_A_NODE + BYTES_A_PASS * (len(report.graphs[0].frames) - 1)


def _live_tensors(net):
    """Count the tensors that Python knows; a gradient is one of them once somebody has asked for it."""
    assert all(parameter.grad is not None for parameter in net.parameters())
    gc.collect()
    return sum(isinstance(thing, torch.Tensor) for thing in gc.get_objects())


def test_no_tensor_stays():
    """After the trace there are as many tensors as before it."""
    net = _net()
    _steps(net, 1)
    before = _live_tensors(net)
    report = _traced(net, 3)
    assert report.nodes
    assert _live_tensors(net) == before


def test_what_is_kept_of_a_pass():
    """When a pass has ended, the tracer holds at most 1 KB a node of it, the graph itself included."""
    net = _net()
    _traced(net, 2)
    gc.collect()
    tracemalloc.start()
    with tm.trace(namespace={"net": net}) as trace:
        _steps(net, 1)
    gc.collect()
    kept = tracemalloc.get_traced_memory()[0] / len(trace.report.nodes)
    tracemalloc.stop()
    print(f"\n    {kept:.0f} bytes a node")
    assert kept <= BYTES_KEPT


def test_a_million_passes_take_what_a_thousand_do():
    """Passes are thinned as the run goes on: what is kept of a million is not more than of a thousand."""
    kept = {}
    frames = SubsampledSequence(passes_to_keep(4))
    for number in range(1, 1_000_001):
        frames.append(Frame(number, array("f", [1.0]) * 4))
        if number in {1_000, 1_000_000}:
            kept[number] = len(frames.items())
    print(f"\n    kept of a thousand and of a million: {list(kept.values())}")
    assert kept[1_000_000] <= MOST_PASSES + 2
    assert [frame.pass_number for frame in frames.items()][:: len(frames.items()) - 1] == [1, 1_000_000]


def test_ten_thousand_cells():
    """Ten thousand traced runs in one process: no more objects and memory than after the first half.

    By then what the allocator keeps has settled.
    """
    net, x = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1)), torch.randn(2, 4)
    seen = {}
    for number in range(1, CELLS + 1):
        with tm.trace(namespace={"net": net}) as trace:
            net(x).sum().backward()
        assert trace.report.passes_seen == 1
        if number in {CELLS // 2, CELLS}:
            gc.collect()
            seen[number] = (len(gc.get_objects()), _resident())
    (objects, before), (after, now) = seen.values()
    print(f"\n    objects {objects} and {after}, resident {before / 1e6:.1f} and {now / 1e6:.1f} MB")
    assert after <= objects + 100
    assert now <= before + 8_000_000


def _resident():
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * resource.getpagesize()
