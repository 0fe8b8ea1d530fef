"""Memory over a run: bytes by line, the peak and what was alive then, to the byte."""

from __future__ import annotations

import gc

import pytest
import torch
from torch import nn

import tensormagic as tm
from tensormagic.errors import TraceError

WIDTH, BATCH = 1000, 64
WEIGHT, BIAS, ROWS = 4 * WIDTH * WIDTH, 4 * WIDTH, 4 * BATCH * WIDTH


def line_of(report, text):
    """Return the line of the report whose source begins with ``text``."""
    return next(line for line in report.lines if line.location.text.startswith(text))


def linear():
    """Return a linear layer and a batch for it."""
    return nn.Linear(WIDTH, WIDTH), torch.randn(BATCH, WIDTH)


def test_a_step_of_sgd_by_line():
    """Each line of a training step allocates what can be reckoned by hand, and the timeline ends with what stays."""
    net, x = linear()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, foreach=False)
    with tm.track_memory() as run:
        y = net(x)
        loss = y.sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        del y
    report = run.report
    forward, total = line_of(report, "y = net"), line_of(report, "loss = ")
    assert (forward.allocated, forward.backward) == (ROWS + WEIGHT + BIAS, WEIGHT + BIAS)
    assert (forward.kept, forward.largest, forward.op) == (0, WEIGHT, "aten.mm.default")
    assert (total.allocated, total.kept) == (4, 4)  # the gradient of a sum is a view of the scalar
    assert not any(line.location.text == "optimizer.step()" for line in report.lines)  # it works in place
    assert line_of(report, "optimizer.zero_grad").freed == WEIGHT + BIAS
    assert line_of(report, "del y").freed == ROWS
    (timeline,) = report.timelines
    assert timeline.live[-1] - timeline.live[0] == 4
    assert max(timeline.live) - timeline.live[0] == ROWS + WEIGHT + BIAS + 8


def test_a_step_of_adam_leaves_two_moments():
    """The first step of Adam keeps two moments and a counter a parameter; a plain parameter step allocates no more."""
    net, x = linear()
    optimizer = torch.optim.Adam(net.parameters(), foreach=False)
    with tm.track_memory() as run:
        net(x).sum().backward()
        optimizer.step()
    step = line_of(run.report, "optimizer.step")
    assert step.kept == 2 * (WEIGHT + BIAS) + 2 * 4
    assert line_of(run.report, "net(x)").kept == WEIGHT + BIAS  # the gradients
    peak = {(block.storage.nbytes, block.op, block.phase) for block in run.report.peak_blocks}
    assert (WEIGHT, "aten.zeros_like.default", "optimizer") in peak
    assert sum(block.storage.nbytes for block in run.report.peak_blocks) == max(run.report.timelines[0].live)


def test_what_a_backward_frees_was_saved_for_it():
    """What the engine lets go of was saved; what it made and left is a gradient; the parts add up at each moment."""
    net, x = nn.Sequential(nn.Linear(10, 10), nn.Tanh(), nn.Linear(10, 1)), torch.randn(4000, 10)
    with tm.track_memory() as run:
        net(x).sum().backward()
        net.zero_grad()
    (timeline,) = run.report.timelines
    timeline.check()
    by_category = dict(timeline.by_category)
    assert max(by_category["saved for backward"]) == 4000 * 10 * 4
    assert max(by_category["gradient"]) == 4 * sum(parameter.numel() for parameter in net.parameters())
    saved = next(block for block in run.report.peak_blocks if block.storage.category == "saved for backward")
    assert (saved.op, saved.storage.module, saved.phase) == ("aten.tanh.default", "Sequential.1", "forward")


def test_views_resizing_and_shared_memory():
    """A view allocates nothing; what grows counts as it grows; an array's memory counts where it became a tensor."""
    array = torch.zeros(10).numpy()
    with tm.track_memory() as run:
        x = torch.zeros(100)
        view = x[10:]
        x.resize_(300)
        del view
        y = torch.from_numpy(array)
        z = torch.empty(0)
        z.set_(torch.ones(7))
    report = run.report
    assert [line_of(report, text).allocated for text in ("x = ", "x.resize_", "z.set_")] == [400, 800, 28]
    assert line_of(report, "x.resize_").op == "aten.resize_.default"
    assert line_of(report, "x = ").kept == 1200
    assert report.timelines[0].live[-1] - report.timelines[0].live[0] == 1200 + 28 + (0 if y is None else 40)


def test_what_was_there_before_is_told_apart():
    """A tensor from before the run that dies in it makes ``before`` less, and counts as freed where that was."""
    held = [torch.zeros(1000), torch.zeros(50)]
    with tm.track_memory() as run:
        held.pop(0)
        held.append(torch.zeros(10))
    (timeline,) = run.report.timelines
    assert timeline.before[0] - timeline.before[-1] == 4000
    assert line_of(run.report, "held.pop").freed == 4000
    assert line_of(run.report, "held.append").kept == 40


def test_a_run_of_many_operations_stays_small():
    """Ten thousand moments become at most two thousand: the first, the last and the peak are among them, exactly."""
    gc.collect()
    x = torch.zeros(100)
    with tm.track_memory() as run:
        for at in range(5000):
            y = x + 1
            if at == 3210:
                large = torch.zeros(100_000)
                del large
    (timeline,) = run.report.timelines
    assert len(timeline.live) <= 2001
    assert max(timeline.live) - timeline.live[0] == 400 + 400_000
    assert timeline.live[-1] - timeline.live[0] == y.nbytes
    assert line_of(run.report, "y = x + 1").allocated == 5000 * 400
    timeline.check()


def test_a_failing_run_says_how_it_ended():
    """The exception goes on with the person's own frames; what was alive is told all the same."""
    with pytest.raises(RuntimeError, match="shape"), tm.track_memory() as run:
        torch.zeros(3).reshape(2, 2)
    assert (run.report.state, run.report.error[:12]) == ("failed", "RuntimeError")
    assert line_of(run.report, "torch.zeros(3)").allocated == 12


def test_a_run_is_followed_once():
    """A run that ended is not begun again."""
    run = tm.track_memory()
    with run:
        pass
    with pytest.raises(TraceError, match="track_memory"), run:
        pass
