"""Runs that read from a device seldom, or from the CPU (nearly TM803); the first two reports are made by hand."""

from __future__ import annotations

import torch
from torch import nn

import tensormagic as tm
from tensormagic.api.diagnosing import diagnosed
from tests.corpus.cases import healthy
from tests.diagnoses.samples_calls import tensor, traced, waiting


@healthy(nearly="TM803")
def a_loss_read_every_hundred_steps():
    """As it is meant to be: twice in two hundred steps."""
    return diagnosed(traced(waiting("item", calls=2, operands=(tensor("loss", (), device="cuda:0"),)), steps=200))


@healthy(nearly="TM803")
def one_step_that_is_looked_at():
    """A single step is no loop."""
    return diagnosed(traced(waiting("item", calls=1, operands=(tensor("loss", (), device="cuda:0"),)), steps=1))


@healthy(nearly="TM803")
def a_loss_read_on_the_cpu():
    """There is nothing to wait for."""
    net, running = nn.Linear(3, 1), 0.0
    with tm.trace(namespace={"net": net}) as trace:
        for _ in range(5):
            loss = net(torch.ones(2, 3)).mean()
            loss.backward()
            running += loss.item() + float(loss.detach()) + loss.detach().cpu().tolist()
    return trace.report
