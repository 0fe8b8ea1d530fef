"""Code whose random numbers come again in a second run, or that draws none (nearly TM701)."""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import tensormagic as tm
from tests.corpus.cases import healthy


@healthy(nearly="TM701")
def everything_seeded_first():
    torch.manual_seed(1234)
    with tm.trace() as trace:
        net = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5))
        for _ in range(3):
            net(torch.randn(4, 3)).mean().backward()
    return trace.report


@healthy(nearly="TM701")
def a_generator_of_one_s_own():
    torch.seed()
    generator = torch.Generator().manual_seed(7)
    net = nn.Linear(2, 1)
    loader = DataLoader(
        TensorDataset(torch.ones(8, 2)), batch_size=4, shuffle=True, generator=torch.Generator().manual_seed(1)
    )
    with tm.trace(namespace={"net": net}) as trace:
        for (x,) in loader:
            noise = torch.randn(4, 2, generator=generator)
            net(x + noise + torch.empty(2).uniform_(generator=generator)).mean().backward()
    return trace.report


@healthy(nearly="TM701")
def dropout_that_is_off():
    """Nothing is drawn in evaluation, nor with a share of 0; a loader without shuffling has no effect on results."""
    torch.seed()
    net = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5), nn.Dropout2d(0.0)).eval()
    loader = DataLoader(TensorDataset(torch.ones(8, 3)), batch_size=4)
    with tm.trace(namespace={"net": net}) as trace:
        for (x,) in loader:
            net(x).mean().backward()
    return trace.report
