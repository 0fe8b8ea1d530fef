"""What ``--budget 5%`` costs, and what a tracer that rests costs. Run by ``make bench``.

Both sides take turns in every round, and every ratio is taken within its round; a round is a whole loop, the first,
costlier step included.
"""

from __future__ import annotations

import contextlib
import gc
import statistics
import time

import pytest
import torch

import tensormagic as tm
from tests.benchmarks.workloads import WORKLOADS

pytestmark = pytest.mark.benchmark

STEPS = {"a": 800, "b": 300, "c": 60}
ROUNDS = {"a": 7, "b": 5, "c": 3}
CALLS = 2000


def _seconds(step, count, context):
    began = time.perf_counter()
    with context:
        for _ in range(count):
            step()
    return time.perf_counter() - began


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_budget_of_five_percent_holds(name):
    """The loop takes at most 6 percent longer than without, the first step and the report's own estimate included."""
    net, step = WORKLOADS[name]()
    count = STEPS[name]
    for context in (contextlib.nullcontext(), tm.trace(namespace={"net": net}, budget=0.05)):
        _seconds(step, max(count // 10, 3), context)
    ratios, told = [], []
    for _ in range(ROUNDS[name]):
        gc.collect()
        before = _seconds(step, count, contextlib.nullcontext())
        trace = tm.trace(namespace={"net": net}, budget=0.05)
        paced = _seconds(step, count, trace)
        after = _seconds(step, count, contextlib.nullcontext())
        ratios.append(2 * paced / (before + after))
        told.append(trace.report.sampling)
    middle = told[len(told) // 2]
    print(f"\n{WORKLOADS[name].__doc__}\n    --budget 5%: {statistics.median(ratios):.3f} ({min(ratios):.3f} to "
          f"{max(ratios):.3f}), told {[f'{100 * one.cost:.1f}' for one in told]} %, "
          f"{middle.steps} of {count} steps traced")  # fmt: skip
    assert statistics.median(ratios) <= 1.06


def _backward(x):
    (x * 1).sum().backward()
    x.grad = None


def test_a_tracer_that_rests():
    """A backward call that goes by untraced takes at most 8 µs longer, in a loop that does nothing else."""
    x = torch.ones(3, requires_grad=True)
    plain, resting = [], []
    with tm.trace(steps=(10**9, None)):
        _seconds(lambda: _backward(x), 20, contextlib.nullcontext())
    for _ in range(15):
        plain.append(_seconds(lambda: _backward(x), CALLS, contextlib.nullcontext()))
        resting.append(_seconds(lambda: _backward(x), CALLS, tm.trace(steps=(10**9, None))))
    more = 1e6 * (min(resting) - min(plain)) / CALLS
    print(f"\n    a backward call: {1e6 * min(plain) / CALLS:.1f} µs, at rest {more:.1f} µs more")
    assert more <= 8
