"""Code that needs memory without values and fills it before it reads (nearly TM104)."""

from __future__ import annotations

import ctypes
import math

import numpy as np
import torch
from torch import nn

import tensormagic as tm
from tests.corpus.cases import healthy


class Initialised(nn.Module):
    """Initialises its parameters as torch's own layers do: after they are made."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outputs, inputs))
        self.gain = nn.Parameter(torch.Tensor(outputs))
        self.bias = nn.Parameter(torch.empty(outputs))
        self.shift = nn.Parameter(torch.empty(outputs))
        self.reset_parameters()

    def reset_parameters(self):
        nn.init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        nn.init.ones_(self.gain)
        self.bias.data.zero_()
        with torch.no_grad():
            self.shift.copy_(torch.zeros(self.shift.shape))

    def forward(self, x):
        return (x @ self.weight.t()) * self.gain + self.bias + self.shift


@healthy(nearly="TM104")
def layers_that_initialise_what_they_ask_for():
    with tm.trace() as trace:
        net = nn.Sequential(Initialised(3, 4), nn.LSTM(4, 4, batch_first=True))
        for _ in range(2):
            net(torch.rand(2, 5, 3))[0].mean().backward()
    return trace.report


@healthy(nearly="TM104")
def buffers_filled_piece_by_piece():
    """A replay buffer, a result that is filled by rows, by out=, and by NumPy."""
    net = nn.Linear(3, 3)
    with tm.trace(namespace={"net": net}) as trace:
        replay, rows, product, shared = torch.empty(10, 3), torch.empty(4, 3), torch.empty(4, 4), torch.empty(6)
        for at in range(4):
            replay[at] = torch.rand(3)
            rows[at].copy_(net(torch.ones(3)).detach())
        torch.mm(rows, rows.t(), out=product)
        np.copyto(shared.numpy(), 1.0)
        (net(replay[:4]).mean() + product.sum() + shared.sum()).backward()
    return trace.report


@healthy(nearly="TM104")
def attention_that_ignores_its_first_operand():
    """With beta=0, ``baddbmm`` takes nothing of it but its shape: written so in well-known libraries."""
    query = torch.rand(2, 3, 4, requires_grad=True)
    with tm.trace() as trace:
        scores = torch.baddbmm(torch.empty(2, 3, 3), query, query.transpose(1, 2), beta=0, alpha=0.5)
        scores.softmax(-1).pow(2).mean().backward()
    return trace.report


@healthy(nearly="TM104")
def a_result_that_a_compiled_extension_fills():
    """Nothing that torch knows of is called: the bytes themselves tell."""
    weight = torch.ones(8, requires_grad=True)
    with tm.trace() as trace:
        out = torch.empty(8)
        address = out.untyped_storage().data_ptr() if torch.is_tensor(out) else 0
        ctypes.memmove(address, (ctypes.c_float * 8)(*range(8)), 32)
        (weight * out).sum().backward()
    return trace.report


@healthy(nearly="TM104")
def a_first_look_at_empty():
    """As the first tutorial of all shows it: printed, and not computed with."""
    with tm.trace() as trace:
        x = torch.empty(2, 3)
        _ = f"{x} {x.shape} {x.dtype}"
        y = torch.zeros_like(x).requires_grad_()
        (y + torch.empty(2, 3).fill_(1.0)).sum().backward()
    return trace.report
