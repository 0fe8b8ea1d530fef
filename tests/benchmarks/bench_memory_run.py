"""What ``%%gpumem`` costs: ratios to eager and to a dispatch mode that does nothing, in one run. Run by ``make bench``.

Processor time, all configurations taking turns, medians of the ratios within each round. torch's own MemTracker stands
beside them. What a run costs once, the look before it and the one after it, is told apart.
"""

from __future__ import annotations

import contextlib
import statistics
import time
import warnings

import pytest
import torch
from torch.distributed._tools.mem_tracker import MemTracker

import tensormagic as tm
from tests.benchmarks.overhead import NoOp
from tests.benchmarks.workloads import WORKLOADS

pytestmark = pytest.mark.benchmark

ROUNDS = 7
STEPS = {"a": 40, "b": 20, "c": 1}
FEWER = 10  # times fewer steps under MemTracker


def _configurations(step):
    tracker = MemTracker()

    def tracked():
        tracker.reset_mod_stats()  # it refuses a second iteration without
        step()

    return {
        "eager": (contextlib.nullcontext, step),
        "no-op dispatch mode": (NoOp, step),
        "%%gpumem": (lambda: tm.track_memory(namespace={}), step),
        "MemTracker": (lambda: tracker, tracked),
    }


def _timed(make, step, count):
    """Return the processor seconds of a step, and those of entering and leaving."""
    began = time.process_time()
    with make():
        inside = time.process_time()
        for _ in range(count):
            step()
        ended = time.process_time()
    return (ended - inside) / count, time.process_time() - began - (ended - inside)


def _measured(name):
    """Return the ratios to eager and to the no-op mode by configuration, and the seconds of the two looks."""
    torch.set_num_threads(1)
    _, step = WORKLOADS[name]()
    every = _configurations(step)
    for make, one in every.values():
        _timed(make, one, 2)
    rounds = []
    for _ in range(ROUNDS):
        counts = {each: max(STEPS[name] // (FEWER if each == "MemTracker" else 1), 1) for each in every}
        rounds.append({each: _timed(*every[each], counts[each]) for each in every})
    return {
        base: {each: statistics.median(row[each][0] / row[base][0] for row in rounds) for each in every}
        for base in ("eager", "no-op dispatch mode")
    }, statistics.median(row["%%gpumem"][1] for row in rounds)


@pytest.mark.parametrize("name", WORKLOADS)
def test_overhead(name):
    """(a) at most twice a no-op dispatch mode; (c) at most 1.1 × eager; everywhere below MemTracker."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ratios, once = _measured(name)
    print(f"\n{WORKLOADS[name].__doc__}\n    the looks before and after: {1000 * once:.0f} ms, once a run")
    for each in ratios["eager"]:
        print(f"    {each:<22} {ratios['eager'][each]:7.2f} × eager {ratios['no-op dispatch mode'][each]:7.2f} × no-op")
    if name == "a":
        assert ratios["no-op dispatch mode"]["%%gpumem"] <= 2.0
    if name == "c":
        assert ratios["eager"]["%%gpumem"] <= 1.1
    assert ratios["eager"]["%%gpumem"] < ratios["eager"]["MemTracker"]


def test_a_million_operations_stay_small():
    """What is remembered of a run does not grow with it: events, moments, lines."""
    x = torch.zeros(10)
    with tm.track_memory(namespace={}) as run:
        for _ in range(1_000_000):
            x = x + 1
    follower = run._listener
    (ledger,) = follower._allocation_logs.values()
    assert len(ledger.moments.kept) <= 2000
    assert len(follower._seen.events) <= follower._seen.patience + 1
    assert len(ledger.alive) < 100_000
