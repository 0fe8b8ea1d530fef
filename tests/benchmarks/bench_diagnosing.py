"""What diagnosing costs where nothing is wrong: the watchers while a run is traced, and the rules at its end.

The same traced training loop takes turns with its watchers on and off (their methods replaced by ones that do
nothing), on one thread, in CPU time: a ratio is that to the mean of the loops before and after. Run by ``make bench``.
"""

from __future__ import annotations

import contextlib
import gc
import statistics
import time
from unittest import mock

import pytest
import torch

import tensormagic as tm
from tensormagic.collectors.autograd_errors.failed_backward import AutogradErrors
from tensormagic.collectors.autograd_errors.untracked_writes import AutogradWatch
from tensormagic.collectors.calls.call_watch import CallWatch
from tensormagic.collectors.training.habits import ModuleWatch
from tensormagic.collectors.training.training import TrainingWatcher
from tensormagic.diagnoses import diagnose
from tests.benchmarks.workloads import WORKLOADS

pytestmark = [pytest.mark.benchmark, pytest.mark.usefixtures("one_thread")]

STEPS = {"a": 60, "b": 16, "c": 2}
ROUNDS = {"a": 50, "b": 40, "c": 12}
MOST = 1.03


def _nothing(*_, **__):
    """Stand in for a watcher: a plain function, since a mock takes longer than what it replaces."""


WATCHERS = {
    CallWatch: ("place", "before", "follow"),
    AutogradWatch: ("see", "see_out", "before_setting", "step_begins", "step_ends", "pass_begins"),
    TrainingWatcher: ("before_pass", "after_pass", "before_step", "after_step", "finish"),
    AutogradErrors: ("begin_pass", "end_pass", "finish"),
    ModuleWatch: ("finish",),
}


def _unwatched():
    """Replace every watcher's methods; a name that is no longer there fails the benchmark."""
    stack = contextlib.ExitStack()
    for owner, names in WATCHERS.items():
        for name in names:
            stack.enter_context(mock.patch.object(owner, name, _nothing))
    return stack


def _train(name):
    net, step = WORKLOADS[name]()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-9)  # so that it is as healthy at the end as it was

    def train():
        for _ in range(STEPS[name]):
            optimizer.zero_grad()
            step()
            optimizer.step()

    return {"net": net, "optimizer": optimizer}, train


def _seconds(namespace, train):
    gc.collect()
    began = time.process_time()
    with tm.trace(namespace=namespace) as trace:
        train()
    return time.process_time() - began, trace


def _rules(report, traced):
    began = time.process_time()
    found = diagnose(report)
    assert [one.code for one in found if one.severity != "note"] == []
    return (time.process_time() - began) / traced


def _without(namespace, train):
    with _unwatched():
        return _seconds(namespace, train)[0]


@pytest.mark.parametrize("name", WORKLOADS)
def test_diagnosing_a_healthy_run_costs_under_three_percent(name):
    """Of the traced run, all watchers and all rules together."""
    namespace, train = _train(name)
    _seconds(namespace, train)
    watching, rules = [], []
    before = _without(namespace, train)
    for _ in range(ROUNDS[name]):
        with_watchers, trace = _seconds(namespace, train)
        after = _without(namespace, train)
        rules.append(_rules(trace.report, after))
        watching.append(2 * with_watchers / (before + after))
        before = after
    total = statistics.median(watching) + statistics.median(rules)
    low, _, high = statistics.quantiles(watching, n=4)
    print(f"\n{WORKLOADS[name].__doc__}\n    diagnosing: {total:.3f} (watchers {statistics.median(watching):.3f}, "
          f"half of them {low:.3f} to {high:.3f}; rules {statistics.median(rules):.4f})")  # fmt: skip
    assert total <= MOST
