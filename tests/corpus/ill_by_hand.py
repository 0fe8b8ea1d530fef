"""Optimizers and updates that were written by hand, and closures: what they forget."""

from __future__ import annotations

import torch
import torch.nn.functional as F

import tensormagic as tm
from tests.corpus.cases import ill
from tests.corpus.data import batches, mlp


def _fit(optimizer_of, steps=5):
    net = mlp(64, 16, 10)
    optimizer = optimizer_of(net.parameters(), {"lr": 0.1})
    with tm.trace(namespace={"net": net, "optimizer": optimizer}) as trace:
        for images, classes in batches(steps, 16):
            optimizer.zero_grad()
            F.cross_entropy(net(images.flatten(1)), classes).backward()
            optimizer.step()
    return trace.report


class Rebinding(torch.optim.Optimizer):
    """Gives the name of each parameter to a new tensor."""

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                p = p - group["lr"] * p.grad  # noqa: PLW2901


class RebindingData(torch.optim.Optimizer):
    """The same, as it was written before there was ``no_grad``."""

    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                w, slope = p.data, p.grad.data
                w = w - group["lr"] * slope


@ill("TM617", severity="warning", line='p = p - group["lr"] * p.grad', says=("`p -= group['lr'] * p.grad`",))
def an_optimizer_of_the_user_s_that_makes_new_tensors():
    return _fit(Rebinding)


@ill("TM617", severity="warning", line='w = w - group["lr"] * slope', says=("`w -= group['lr'] * slope`",))
def an_optimizer_of_the_user_s_that_makes_new_data():
    return _fit(RebindingData)
