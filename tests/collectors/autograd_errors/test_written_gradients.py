"""Gradients that a custom backward writes into: whether others hold them, as the count of their holders says."""

from __future__ import annotations

import pytest
import torch

import tensormagic as tm


class Clip(torch.autograd.Function):
    """Clips the gradient that it is given."""

    @staticmethod
    def forward(ctx, x):
        return x.sign()

    @staticmethod
    def backward(ctx, g):
        g.clamp_(-0.5, 0.5)
        return g


def written(program):
    """Trace a backward; return what is told of gradients that were written into."""
    x = torch.ones(4, 4, requires_grad=True)
    with tm.trace(namespace={"x": x}) as trace:
        program(x)
    silent = trace.report.silent_errors
    return silent.overwritten if silent is not None else ()


def beside(h):
    """Return a sum, which hands one tensor to both terms."""
    return h + Clip.apply(h)


SHARED = {
    "a skip connection": lambda x: beside(x * 2).square().sum().backward(),
    "a leaf that waits for both": lambda x: beside(x).square().sum().backward(),
    "through views": lambda x: ((h := x * 2).view(-1) + Clip.apply(h).view(-1)).square().sum().backward(),
    "two of them": lambda x: (Clip.apply(x * 2) + Clip.apply(x * 3)).square().sum().backward(),
    "what `autograd.grad` returns": lambda x: torch.autograd.grad((h := Clip.apply(x * 2)).square().sum(), [h, x]),
}
ALONE = {
    "a chain": lambda x: Clip.apply(x * 2).square().sum().backward(),
    "a view": lambda x: Clip.apply(x * 2).t().flatten().square().sum().backward(),
    "two uses, added up": lambda x: ((h := Clip.apply(x * 2)).square() + h.sin()).sum().backward(),
    "a part of what is joined": lambda x: torch.cat([x.sin(), Clip.apply(x * 2)]).square().sum().backward(),
    "a leaf that has its copy": lambda x: (
        (torch.ones(4, 4, requires_grad=True) + Clip.apply(x)).square().sum().backward()
    ),
    "the start": lambda x: Clip.apply(x.sum()).backward(),
    "a start that was given": lambda x: Clip.apply(x * 2).view(-1).backward(torch.ones(16)),
    "a gradient that is kept": lambda x: ((h := Clip.apply(x * 2)).retain_grad(), h.square().sum().backward()),
    "one that was used before": lambda x: (
        (Clip.apply(h := x * 2).view(-1) + h.sin().view(-1)).square().sum().backward()
    ),
    "a graph of its own": lambda x: beside(x * 2).square().sum().backward(create_graph=True, inputs=[x]),
}


@pytest.mark.parametrize("program", SHARED.values(), ids=SHARED)
def test_a_write_into_what_others_hold_is_told(program):
    """With the line and the name."""
    (found,) = written(program)
    assert (found.function, found.argument, found.location.text) == ("Clip", "g", "g.clamp_(-0.5, 0.5)")
    assert found.passes == 1


@pytest.mark.parametrize("program", ALONE.values(), ids=ALONE)
@pytest.mark.filterwarnings("ignore:Using backward:UserWarning")
def test_a_write_that_nobody_else_can_see_is_none(program):
    """What the engine alone holds is free to be written to."""
    assert written(program) == ()


def test_passes_are_counted():
    """One Function, one line, three passes."""
    (found,) = written(lambda x: [SHARED["a skip connection"](x) for _ in range(3)])
    assert found.passes == 3
