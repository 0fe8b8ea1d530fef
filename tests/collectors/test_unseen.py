"""What the tracer does with torch is not seen by the user's own modes, whichever way round they are entered."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import tensormagic as tm


class Calls(TorchFunctionMode):
    """Notes every call."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.seen.append(func.__name__)
        return func(*args, **(kwargs or {}))


class Operations(TorchDispatchMode):
    """Notes every operation."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


def train():
    """Three steps of a net whose nodes save tensors, one of which may be singular."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 3), nn.LayerNorm(3))
    optimizer = torch.optim.Adam(net.parameters(), lr=0.1)
    for _ in range(3):
        out = net(torch.randn(3, 4))
        loss = (out.relu() + out.exp().sqrt()).sum() + out.detach().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def seen_by(kind, options=None, *, outside=False):
    """Return what a mode sees of the training, traced where there are options."""
    mode = kind()
    contexts = [mode] if options is None else [tm.trace(namespace={}, **options), mode]
    with ExitStack() as stack:
        for context in reversed(contexts) if outside else contexts:
            stack.enter_context(context)
        train()
    return mode.seen


OPTIONS = [{}, {"level": "ops"}, {"forward": True}, {"every": 2}, {"budget": 0.05}]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("outside", [False, True], ids=["within the trace", "around the trace"])
@pytest.mark.parametrize("kind", [Calls, Operations])
def test_a_mode_sees_what_it_would_see_untraced(kind, outside, options):
    """The same calls and the same operations, in the same order."""
    assert seen_by(kind, options, outside=outside) == seen_by(kind)
