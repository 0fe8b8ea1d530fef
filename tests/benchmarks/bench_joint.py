"""What several questions to one run cost together: ratios of what each adds, in one run. Run by ``make bench``.

Processor time, all configurations taking turns, medians of the ratios within each round; the steps alone, without the
looks before and after a run.
"""

from __future__ import annotations

import contextlib
import statistics
import time

import pytest
import torch

import tensormagic as tm
from tensormagic.collectors.runs.run import Run, listener
from tensormagic.reports import Cell
from tests.benchmarks.workloads import WORKLOADS

pytestmark = pytest.mark.benchmark

ROUNDS = 11
STEPS = {"a": 40, "b": 20, "c": 1}


@contextlib.contextmanager
def together():
    """Follow memory, writes and draws, without a trace."""
    cell = Cell("", None, ())
    run = Run(**{name: listener(name, {}, cell) for name in ("writes", "draws", "memory")})
    run.start()
    yield
    run.stop()


CONFIGURATIONS = {
    "eager": contextlib.nullcontext,
    "trace": lambda: tm.trace(namespace={}),
    "memory": lambda: tm.track_memory(namespace={}),
    "writes": lambda: tm.watch_writes(namespace={}),
    "draws": lambda: tm.track_rng(namespace={}),
    "memory, writes, draws": together,
    "trace, memory": lambda: tm.trace(namespace={}, memory=True),
    "all": lambda: tm.trace(namespace={}, memory=True, writes=True, draws=True),
}


def _timed(make, step, count):
    with make():
        step()
        began = time.process_time()
        for _ in range(count):
            step()
        return (time.process_time() - began) / count


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("name", WORKLOADS)
def test_together(name):
    """The three that listen: at most 1.15 × the dearest; a trace and memory: at most 1.1 × what each adds, added up."""
    torch.manual_seed(0)
    _, step = WORKLOADS[name]()
    for make in CONFIGURATIONS.values():
        _timed(make, step, 2)
    rounds = [{each: _timed(make, step, STEPS[name]) for each, make in CONFIGURATIONS.items()} for _ in range(ROUNDS)]
    print(f"\n{WORKLOADS[name].__doc__}")
    for each in CONFIGURATIONS:
        print(f"    {each:<24} {statistics.median(row[each] / row['eager'] for row in rounds):6.2f} × eager")
    dearest = max(("memory", "writes", "draws"), key=lambda each: statistics.median(row[each] for row in rounds))
    three = statistics.median(row["memory, writes, draws"] / row[dearest] for row in rounds)
    alone = (row["trace"] + row["memory"] - 2 * row["eager"] for row in rounds)
    added = [(row["trace, memory"] - row["eager"]) / both for row, both in zip(rounds, alone, strict=True)]
    print(f"    the three / {dearest}: {three:.2f}; trace and memory / the sum: {statistics.median(added):.2f}")
    if name == "a":  # elsewhere what they add is near the noise
        assert three <= 1.15
        assert statistics.median(added) <= 1.1
