"""Code with float64 in it that was meant, or that promotes nothing (nearly TM805)."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

import tensormagic as tm
from tests.corpus.cases import healthy


@healthy(nearly="TM805")
def numerical_work_wholly_in_float64():
    net = nn.Linear(3, 1).double()
    x, y = torch.from_numpy(np.ones((8, 3))), torch.from_numpy(np.zeros((8, 1)))
    with tm.trace(namespace={"net": net}) as trace:
        for _ in range(3):
            ((net(x) - y) ** 2).mean().backward()
    return trace.report


@healthy(nearly="TM805")
def numbers_and_scalars_of_numpy():
    """A NumPy number and a 0-d tensor in float64 take nobody along."""
    net, x = nn.Linear(3, 1), torch.randn(8, 3)
    scale, shift = np.float64(0.5), torch.tensor(0.25, dtype=torch.float64)
    with tm.trace(namespace={"net": net}) as trace:
        for _ in range(3):
            (net(x) * scale + shift - torch.arange(8)[:, None]).pow(2).mean().backward()
    return trace.report


@healthy(nearly="TM805")
def a_statistic_kept_in_float64():
    """Sums of many losses are kept in float64 on purpose: nothing that is trained goes through it."""
    net, x = nn.Linear(3, 2), torch.randn(8, 3)
    sums = torch.zeros(2, dtype=torch.float64)
    with tm.trace(namespace={"net": net}) as trace:
        for _ in range(3):
            out = net(x).mean(0)
            out.pow(2).sum().backward()
            sums = sums + out.detach()
    return trace.report
