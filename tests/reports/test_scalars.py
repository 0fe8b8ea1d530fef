"""`Trace.log_to`: what an experiment tracker is given, by the methods that the trackers have."""

from __future__ import annotations

import math

import pytest
import torch

import tensormagic as tm
from tensormagic.errors import SettingError


class SummaryWriter:
    """The method of TensorBoard's."""

    def __init__(self):
        self.seen = []

    def add_scalar(self, name, number, step):
        self.seen.append((step, name, number))


class Run:
    """The method of a run of Weights & Biases."""

    def __init__(self):
        self.seen = []

    def log(self, numbers, *, step):
        self.seen += [(step, name, number) for name, number in numbers.items()]


class MlflowLike(SummaryWriter):
    """The method of MLflow and of Lightning's loggers, which comes before any other."""

    def log_metrics(self, numbers, *, step):
        self.seen += [(step, name, number) for name, number in numbers.items()]


def train(steps, *, micro_batches=1, during=None):
    net = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with tm.trace(namespace={"net": net, "optimizer": optimizer}) as trace:
        for _ in range(steps):
            optimizer.zero_grad()
            for _ in range(micro_batches):
                (net(torch.ones(2, 3)) ** 2).mean().backward()
            optimizer.step()
            if during:
                during(trace)
    return trace


@pytest.mark.parametrize("kind", [SummaryWriter, Run, MlflowLike])
def test_every_tracker_gets_the_numbers_of_the_report(kind):
    """Loss, norms and updates, one a step, with the names of the report."""
    trace, writer = train(3), kind()
    trace.log_to(writer)
    report = trace.report
    losses = [(step, number) for step, name, number in writer.seen if name == "loss"]
    assert losses == [(each.step, each.value) for each in report.passes]
    for series in report.parameters:
        norms = [(step, number) for step, name, number in writer.seen if name == f"gradients/{series.name}"]
        assert norms == list(zip((1, 2, 3), series.norms, strict=True))
        moved = [number for _, name, number in writer.seen if name == f"updates/{series.name}"]
        assert moved == [share for share in series.updates if share >= 0]
    both = [number for step, name, number in writer.seen if name == "gradient_norm" and step == 1]
    assert both == [math.hypot(*(series.norms[0] for series in report.parameters))]


def test_a_function_and_a_prefix():
    """A function of numbers and step is a writer, too; the prefix stands before each name."""
    seen = []
    train(1).log_to(lambda numbers, step: seen.append((step, *numbers)), prefix="train/")
    ((step, *names),) = seen
    assert step == 1
    assert {"train/loss", "train/gradient_norm", "train/gradients/net.weight"} <= {*names}


def test_in_the_loop_each_pass_is_sent_once():
    """Called in every step, it sends what is new; a second writer gets all."""
    writer, late = SummaryWriter(), SummaryWriter()
    trace = train(4, during=lambda trace: trace.log_to(writer))
    trace.log_to(writer)
    trace.log_to(late)
    assert [step for step, name, _ in writer.seen if name == "loss"] == [1, 2, 3, 4]
    assert [step for step, name, _ in late.seen if name == "loss"] == [1, 2, 3, 4]


def test_gradient_accumulation_has_a_place_for_each_pass():
    """Two passes a step are two points, and none covers the other."""
    writer = SummaryWriter()
    train(2, micro_batches=2).log_to(writer)
    assert [step for step, name, _ in writer.seen if name == "loss"] == [1, 2, 3, 4]


def test_a_gradient_that_is_not_finite_is_sent_as_such():
    """NaN is what a tracker shows as NaN; a parameter without a gradient is left out."""
    writer = SummaryWriter()
    w, unused = torch.tensor([0.0, 1.0], requires_grad=True), torch.ones(2, requires_grad=True)
    with tm.trace(namespace={"w": w, "unused": unused}) as trace:
        torch.where(w > 0, w.sqrt(), 0.0 * w).sum().backward()
    trace.log_to(writer)
    norms = {name: number for _, name, number in writer.seen}
    assert math.isnan(norms["gradients/w"])
    assert "gradients/unused" not in norms


def test_what_is_no_writer_is_refused():
    """The message says what was given and what is expected."""
    with pytest.raises(SettingError, match=r"log_to was given 'int': expected .*SummaryWriter"):
        train(1).log_to(3)
