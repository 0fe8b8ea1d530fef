"""Sizes that are symbols stay symbols, and reports of such runs are plain data: fake tensors are no memory."""

from __future__ import annotations

from contextlib import nullcontext, suppress

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.nn import functional

import tensormagic as tm
from tests.collectors.hooks.test_capturing import FOLLOWERS

REPORTING = [name for name in FOLLOWERS if name != "explain"]


def save_everywhere(report, folder):
    """Draw and save a report in every form that each has."""
    for form in ("txt", "json", "html"):
        report.save(str(folder / f"report.{form}"))
    with suppress(tm.TensorMagicError):  # some have no picture
        report.save(str(folder / "report.svg"))


@pytest.mark.parametrize("follower", REPORTING)
def test_a_compiled_function_with_a_changing_batch(follower, tmp_path):
    """It is compiled as often as without us, and its report can be drawn; what the compiler pretends is no memory."""
    net = nn.Linear(16, 4)
    x = torch.randn(64, 16)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    compiled = []

    def backend(module, _inputs):
        compiled.append(module)
        return module.forward

    def train(forward):
        for rows in (32, 33, 34):
            forward(x[:rows]).backward()
            optimizer.step()
            optimizer.zero_grad()

    def compiling(context):
        torch._dynamo.reset()
        compiled.clear()
        forward = torch.compile(lambda x: net(x).square().mean(), backend=backend)
        train(forward)  # symbols from the second size on: they stand around while the run goes on
        with context as run:
            train(forward)
        return len(compiled), run

    alone, _ = compiling(nullcontext())
    followed, run = compiling(FOLLOWERS[follower]())
    assert followed == alone
    save_everywhere(run.report, tmp_path)
    torch._dynamo.reset()


def conditions(follower):
    """Return what a run on symbols made conditions of, and the run."""
    mode = FakeTensorMode(shape_env=ShapeEnv())
    with mode, follower as run:
        a, b, w = (mode.from_tensor(torch.ones(shape)) for shape in ((5, 7), (5, 1), (7, 3)))
        p = nn.Parameter(mode.from_tensor(torch.ones(5, 7)))
        optimizer = torch.optim.Adam([p], lr=0.1)
        for _ in range(2):
            loss = (
                functional.mse_loss(a * p, b.expand_as(a)) + (p @ w).relu().softmax(-1).sum() + torch.cat([a, p]).sum()
            )
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            a.add_(torch.rand_like(a))
            a[0].mul_(2)
    return {str(guard.expr) for guard in mode.shape_env.guards}, run


@pytest.mark.parametrize("follower", REPORTING)
def test_no_size_becomes_a_condition(follower, tmp_path):
    """Nothing that we read of a symbol narrows what the user may do with it later."""
    alone, _ = conditions(nullcontext())
    followed, run = conditions(FOLLOWERS[follower]())
    assert followed == alone
    save_everywhere(run.report, tmp_path)
    assert not [gap for gap in run.report.gaps if "Error" in gap.reason]


@pytest.mark.parametrize("look", [tm.tensors, tm.aliases, tm.memory, tm.check, tm.inspect])
def test_no_look_makes_a_size_a_condition(look):
    """Nor does one at what `torch.export` leaves: its example would be the only size that the program takes."""
    mode = FakeTensorMode(shape_env=ShapeEnv())
    fake = mode.from_tensor(torch.ones(5, 7))
    look(fake if look is tm.inspect else {"fake": fake, "row": fake[1:]}).to_dict()
    assert any(type(size) is torch.SymInt for size in fake.shape)
    assert not mode.shape_env.guards
    assert not mode.shape_env.replacements


@pytest.mark.usefixtures("no_garbage")
def test_fake_tensors_are_no_memory():
    """What they would take is counted nowhere: not before a run, not in it, not by operation."""
    mode = FakeTensorMode(shape_env=ShapeEnv())
    real = torch.ones(5, 7)
    before = mode.from_tensor(torch.ones(300, 700))
    with tm.track_memory(namespace={}) as memory:
        kept = before * 2
    (device,) = memory.report.timelines
    assert len(set(device.live)) == 1
    with tm.trace(namespace={}, level="ops") as trace:
        kept = kept * 2
        real = real * 2
    assert sorted(use.nbytes for use in trace.report.ops.uses) == [0, real.nbytes]
