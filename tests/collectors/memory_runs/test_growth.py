"""The question at the end of a run: what is asked, what is not, and that nothing is kept alive by it."""

from __future__ import annotations

import gc
import weakref
from collections import defaultdict

import torch
from torch import nn

import tensormagic as tm
from tensormagic.collectors.memory_runs import run_report
from tensormagic.collectors.memory_runs.allocation_log import (
    MOST_JOINED,
    AllocationLog,
    Block,
    Freed,
    Iterations,
    LineTotals,
)
from tests.support.gaps import own_gaps


def block(**facts) -> Block:
    """Return what is known of a storage that is gone."""
    made = Block(torch.zeros(1).untyped_storage(), None)
    known = {
        "task": -1, "allocated_at": 1, "nbytes": 4, "op": "aten.cat.default", "place": None, "before": False,
        "seconds": 0.0, "start": 0, "pieces": None, "freed_at": None, "category": None, "by_engine": False,
    }  # fmt: skip
    for name, value in {**known, **facts}.items():
        setattr(made, name, value)
    return made


class Line:
    """A place that has a line."""

    site, phase, module = 3, "forward", ""


def ledger_of(*blocks: Block, device: str = "cpu") -> tuple[AllocationLog, Iterations]:
    """Return what is known after some allocations."""
    beats = Iterations()
    ledger = AllocationLog(device, defaultdict(LineTotals), beats)
    for each in blocks:
        ledger.fold([each])
    return ledger, beats


def test_a_backward_beats_once():
    """At the first operation that was seen in it; one inside another is one more, and going back to it none."""
    tasks = ((-1, 3), (5, 10), (5, 11), (6, 12), (5, 13), (9, 20))
    _, beats = ledger_of(*(block(task=task, allocated_at=operation) for task, operation in tasks))
    assert list(beats.backwards) == [10, 12, 20]


def test_a_backward_beats_where_it_only_frees():
    """By the moment at which what was saved for it was freed."""
    saved = block(allocated_at=2)
    ledger, beats = ledger_of(saved)
    ledger.fold([Freed(saved, 7, 0.0, None, 4, 4)])
    assert list(beats.backwards) == [7]


def test_what_is_joined_is_noted_by_line():
    """The latest, a bounded number of them."""
    beats = Iterations()
    for at in range(2 * MOST_JOINED + 1):
        beats.joined(block(allocated_at=at, nbytes=at * 4, place=Line))
    beats.joined(block())
    assert list(beats.joins) == [3]
    assert len(beats.joins[3]) == MOST_JOINED + 1
    assert beats.joins[3][-1] == (2 * MOST_JOINED, 8 * MOST_JOINED)


def test_only_what_is_joined_is_noted():
    """Of all that is allocated at a line."""
    _, beats = ledger_of(block(op="aten.mm.default", place=Line), block(place=Line, allocated_at=8))
    assert beats.joins == {3: [(8, 4)]}


def test_what_a_line_was_served_is_counted_on_cuda_alone():
    """Whose allocator tells what it served besides."""
    assert ledger_of(block(place=Line), device="cuda:0")[0].served == {3: 4}
    assert ledger_of(block(place=Line))[0].served is None


def test_a_run_that_leaves_little_behind_is_not_looked_through(monkeypatch):
    """Whatever a session holds."""
    monkeypatch.setattr(run_report, "find_holders", lambda *_, **__: {}["x"])
    net = nn.Linear(4, 4)
    with tm.track_memory() as run:
        for _ in range(20):
            net(torch.ones(2, 4)).sum().backward()
    assert (run.report.leaks, [gap.section for gap in own_gaps(run.report)]) == ((), [])


def test_what_goes_wrong_is_a_gap(monkeypatch):
    """The run is the user's."""
    monkeypatch.setattr(run_report, "find_holders", lambda *_, **__: {}["x"])
    kept = []
    with tm.track_memory() as run:
        kept.extend(torch.ones(4) + at for at in range(9))
    assert run.report.leaks == ()
    assert [gap.reason for gap in own_gaps(run.report)] == ["the search for what grows failed: KeyError: 'x'"]


def test_the_variables_of_the_function_are_names():
    """Those of its callers, too."""
    outputs = []

    def fill():
        with tm.track_memory() as run:
            for at in range(6):
                outputs.append(torch.ones(2**18) * at)  # noqa: PERF401
        return run.report

    (leak,) = fill().leaks
    assert (leak.holder, leak.iterations, leak.each, leak.training) == ("outputs", 6, 2**20, False)
    assert leak.holder_location.text.startswith("outputs.append")


def test_a_report_of_a_leak_keeps_nothing_alive():
    """Neither the run nor its report."""
    losses, w = [], torch.ones(4, requires_grad=True)
    with tm.track_memory() as run:
        for _ in range(6):
            losses.append((w * 2).exp().sum())  # noqa: PERF401
    report = run.report
    assert [(leak.holder, leak.graph, leak.each) for leak in report.leaks] == [("losses", True, 20)]
    gone = [weakref.ref(loss) for loss in losses]
    del losses, run
    gc.collect()
    assert [loss() for loss in gone] == [None] * 6


def test_what_collects_little_is_no_news():
    """A history of small tensors; graphs are told of however small."""
    small = []
    with tm.track_memory() as run:
        for at in range(6):
            small.append(torch.ones(2**10) * at)  # noqa: PERF401
    assert run.report.leaks == ()


def test_iterations_are_counted_on_while_backwards_run():
    """A backward that frees and makes nothing but gradients is one all the same."""
    w, seen = torch.ones(2**16, requires_grad=True), []
    with tm.track_memory() as run:
        for _ in range(7):
            (w * 2).exp().sum().backward()
            seen.append(w.grad.clone())
    (leak,) = run.report.leaks
    assert (leak.holder, leak.training, leak.iterations, leak.each) == ("seen", True, 7, 2**18)
