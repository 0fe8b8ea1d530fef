"""A budget on a device is kept by the device's own time, which no clock here tells."""

from __future__ import annotations

import pytest
import torch

from tensormagic.collectors.runs.run import Run
from tensormagic.collectors.runs.sampled_trace import SampledTracer
from tensormagic.reports import Cell, Schedule

STEPS = 400


@pytest.fixture
def run(simulated, monkeypatch):
    """Return a function that trains on a device, a second a pass, half of one more where it is traced.

    The host is ahead of it: on its own clock most passes take no time, and each tenth takes ten seconds.
    """
    send = simulated.send

    def slow(numbers):
        simulated.pass_time(0.5)
        return send(numbers)

    monkeypatch.setattr(simulated, "send", slow)

    def train(budget, jump_at=STEPS):
        clock = lambda: 1.0 + simulated.time // 10 * 10  # noqa: E731
        tracer = Run(trace=SampledTracer(Schedule(budget=budget), {}, Cell("", None, ()), clock=clock))
        w = torch.ones(3, requires_grad=True)
        tracer.start()
        for at in range(STEPS):
            loss = (w * (1e6 if at >= jump_at else 1.0)).sum()
            simulated.pass_time(1.0)
            loss.backward()
            simulated.catch_up()
        tracer.stop()
        return tracer.report()

    return train


@pytest.mark.parametrize("budget", [0.02, 0.1])
def test_a_budget_is_kept_by_the_devices_time(run, budget):
    """Half a second for each traced pass of one: as many are traced as that pays for, and not many fewer."""
    report = run(budget)
    cost = 0.5 * report.sampling.passes / STEPS
    assert 0.3 * budget <= cost <= budget


def test_a_jump_that_is_known_late_is_followed_all_the_same(run):
    """The numbers of a pass are there when the next one begins: what follows is traced more often then."""
    assert run(0.1, jump_at=200).sampling.after_finding > 0
    assert run(0.1).sampling.after_finding == 0
