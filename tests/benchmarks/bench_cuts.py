"""What following cuts and measuring forward values cost, as ratios inside one run. Run by ``make bench``."""

from __future__ import annotations

import statistics
import time

import pytest
import torch

import tensormagic as tm
from tests.benchmarks.workloads import WORKLOADS

pytestmark = pytest.mark.benchmark

ROUNDS = 5
STEPS = {"a": 10, "b": 5, "c": 1}
CALLS = 20_000


def _seconds(run, repeat):
    began = time.process_time()
    for _ in range(repeat):
        run()
    return (time.process_time() - began) / repeat


def _traced(step, repeat, **options):
    with tm.trace(**options):
        step()
        return _seconds(step, repeat)


@pytest.mark.parametrize("name", WORKLOADS)
def test_forward_values(name):
    """A step takes at most 2.5 times what it takes with gradients alone; (c) at most 1.5 times."""
    _, step = WORKLOADS[name]()
    step()
    ratios = [_traced(step, STEPS[name], forward=True) / _traced(step, STEPS[name]) for _ in range(ROUNDS)]
    print(
        f"\n    ({name}) forward=True / off: {statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})"
    )
    assert statistics.median(ratios) <= (1.5 if name == "c" else 2.5)


def test_calls_beside_a_followed_value():
    """Calls that have nothing to do with a cut cost at most 30 % more while a detached value lives."""
    x, data = torch.randn(4, requires_grad=True), torch.randn(4)
    ratios = {"a node": [], "no node": []}
    with tm.trace():
        for _ in range(ROUNDS):
            plain = {"a node": _seconds(x.neg, CALLS // 4), "no node": _seconds(data.neg, CALLS // 4)}
            kept = (x * 2).detach()
            beside = {"a node": _seconds(x.neg, CALLS // 4), "no node": _seconds(data.neg, CALLS // 4)}
            del kept
            for what, seconds in beside.items():
                ratios[what].append(seconds / plain[what])
    for what, found in ratios.items():
        print(f"\n    a call that makes {what}, beside a followed value: {statistics.median(found):.3f}")
        assert statistics.median(found) <= 1.3
