"""Code that reads memory before anything was written to it (TM104)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

import tensormagic as tm
from tests.corpus.cases import ill

WHATEVER_LAY_THERE = ("TM401", "TM402", "TM403", "TM404", "TM405")  # it may be NaN, huge, or nothing at all


class Scaled(nn.Module):
    """Forgets to initialise its own parameter."""

    def __init__(self, features):
        super().__init__()
        self.linear = nn.Linear(features, features)
        self.scale = nn.Parameter(torch.empty(features))

    def forward(self, x):
        return self.linear(x) * self.scale


@ill("TM104", severity="error", line="return self.linear(x) * self.scale", subject="self.scale",
     related=("self.scale = nn.Parameter(torch.empty(features))",),
     says=("mul reads self.scale, of shape (4,), before anything was written to it",),
     also=WHATEVER_LAY_THERE)  # fmt: skip
def a_parameter_that_nobody_initialised():
    with tm.trace() as trace:
        net = Scaled(4)
        for _ in range(3):
            F.softplus(net(torch.ones(2, 4))).mean().backward()
    return trace.report


@ill("TM104", severity="error", line="total += x.sum(0)", subject="total", related=("total = torch.empty(5)",),
     says=("add_ reads total, of shape (5,)",))  # fmt: skip
def a_sum_that_begins_with_whatever_lay_there():
    data = torch.rand(12, 5)
    with tm.trace() as trace:
        total = torch.empty(5)
        for x in data.split(4):
            total += x.sum(0)
    return trace.report


@ill("TM104", severity="error", line="collected = torch.cat([collected, features.detach()])", subject="collected",
     related=("collected = torch.empty(1, 3)",), says=("cat reads collected,", "torch.zeros(1, 3)`"))  # fmt: skip
def a_collection_that_begins_with_a_row_of_nothing():
    net = nn.Linear(2, 3)
    with tm.trace(namespace={"net": net}) as trace:
        collected = torch.empty(1, 3)
        for _ in range(3):
            features = net(torch.rand(4, 2))
            features.mean().backward()
            collected = torch.cat([collected, features.detach()])
    return trace.report


class Recurrent(nn.Module):
    """Starts from a state that has no values."""

    def __init__(self):
        super().__init__()
        self.cell = nn.Linear(8, 4)

    def forward(self, sequence):
        state = sequence.new_empty(sequence.shape[0], 4)
        for x in sequence.unbind(1):
            state = torch.tanh(self.cell(torch.cat([x, state], dim=1)))
        return state


@ill("TM104", severity="error", line="state = torch.tanh(self.cell(torch.cat([x, state], dim=1)))",
     related=("state = sequence.new_empty(sequence.shape[0], 4)",), says=("cat reads state,", "new_zeros("),
     also=WHATEVER_LAY_THERE)  # fmt: skip
def a_state_that_begins_without_values():
    net = Recurrent()
    with tm.trace(namespace={"net": net}) as trace:
        for _ in range(2):
            torch.nan_to_num(net(torch.rand(2, 3, 4))).mean().backward()
            net.zero_grad()
    return trace.report


@ill("TM104", severity="error", line="torch.nan_to_num(net(torch.ones(2, 3))).mean().backward()", subject="net.weight",
     related=('net.to_empty(device="cpu")',), says=("linear reads net.weight, of shape (2, 3)",),
     also=WHATEVER_LAY_THERE)  # fmt: skip
def a_model_brought_from_meta_and_never_loaded():
    """Weights were to be loaded afterwards, and were not."""
    with torch.device("meta"):
        net = nn.Linear(3, 2, bias=False)
    with tm.trace(namespace={"net": net}) as trace:
        net.to_empty(device="cpu")
        torch.nan_to_num(net(torch.ones(2, 3))).mean().backward()
    return trace.report
