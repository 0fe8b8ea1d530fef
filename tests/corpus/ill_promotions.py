"""Code in which float32 meets float64 from NumPy, and becomes float64 (TM805)."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

import tensormagic as tm
from tests.corpus.cases import ill


@ill("TM805", severity="warning", line="loss = ((net(x).squeeze(1) - y) ** 2).mean()", subject="y", says=(
    "net(x).squeeze(1) - y computes in float64 in each of its 4 calls", "y, from NumPy, of shape (16,)",
    "`y = y.float()`"))  # fmt: skip
def targets_as_numpy_made_them():
    net, x = nn.Linear(3, 1), torch.randn(16, 3)
    y = torch.from_numpy(np.linspace(0, 1, 16))
    with tm.trace(namespace={"net": net}) as trace:
        for _ in range(4):
            loss = ((net(x).squeeze(1) - y) ** 2).mean()
            loss.backward()
    return trace.report


@ill("TM805", severity="warning", line='per_class = F.cross_entropy(net(x), y, reduction="none") * weights[y]',
     says=("… * weights[y] computes in float64",), subject="weights[y]")  # fmt: skip
def class_weights_from_counts():
    """One over the counts, by NumPy, is float64; indexing keeps that."""
    net, x, y = nn.Linear(4, 3), torch.randn(12, 4), torch.randint(0, 3, (12,))
    counts = np.array([4, 3, 5])
    with tm.trace(namespace={"net": net}) as trace:
        weights = torch.tensor(1.0 / counts)
        for _ in range(3):
            per_class = F.cross_entropy(net(x), y, reduction="none") * weights[y]
            per_class.mean().backward()
    return trace.report


class Positional(nn.Module):
    """Adds positions that NumPy computed."""

    def __init__(self, length, dim):
        super().__init__()
        self.embed = nn.Embedding(10, dim)
        table = np.sin(np.arange(length)[:, None] / 10 ** np.arange(dim))
        self.register_buffer("positions", torch.tensor(table))

    def forward(self, words):
        return self.embed(words) + self.positions


@ill("TM805", severity="warning", line="return self.embed(words) + self.positions", subject="self.positions",
     says=("self.positions of shape (6, 4) is float64",))  # fmt: skip
def positions_computed_by_numpy():
    net, words = Positional(6, 4), torch.randint(0, 10, (2, 6))
    with tm.trace(namespace={"net": net}) as trace:
        for _ in range(3):
            net(words).pow(2).mean().backward()
    return trace.report


@ill("TM805", severity="warning", line="loss = criterion(net(x), y)", subject="y",
     says=("mse_loss(net(x), y) computes in float64",))  # fmt: skip
def a_loss_with_float64_targets():
    net, criterion, x = nn.Linear(3, 1), nn.MSELoss(), torch.randn(16, 3)
    y = torch.from_numpy(np.random.default_rng(0).normal(size=(16, 1)))
    with tm.trace(namespace={"net": net}) as trace:
        for _ in range(3):
            loss = criterion(net(x), y)
            loss.backward()
    return trace.report
