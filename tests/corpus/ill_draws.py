"""Code whose random numbers come from a generator that nobody seeded (TM701)."""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import tensormagic as tm
from tests.corpus.cases import ill


def as_in_a_fresh_process():
    """Seed the generator as torch does where nobody else does."""
    torch.seed()


@ill("TM701", severity="note", line="net(torch.ones(4, 3)).mean().backward()", subject="dropout",
     says=("dropout drew 5 times from a probably unseeded generator", "`torch.manual_seed(0)`"))  # fmt: skip
def dropout_without_a_seed():
    as_in_a_fresh_process()
    net = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.1))
    with tm.trace(namespace={"net": net}) as trace:
        for _ in range(5):
            net(torch.ones(4, 3)).mean().backward()
    return trace.report


@ill("TM701", severity="note", line="net = nn.Linear(2, 1)", related=("x = torch.randn(8, 2)",),
     says=("uniform_ and randn drew 4 times on 2 lines",))  # fmt: skip
def weights_and_data_without_a_seed():
    """The layer draws its weight and its bias."""
    as_in_a_fresh_process()
    with tm.trace() as trace:
        net = nn.Linear(2, 1)
        for _ in range(2):
            x = torch.randn(8, 2)
            net(x).pow(2).mean().backward()
    return trace.report


@ill("TM701", severity="note", line="for (x,) in loader:", says=("random_", "unseeded generator"))
def a_loader_that_shuffles_without_a_seed():
    as_in_a_fresh_process()
    loader = DataLoader(TensorDataset(torch.rand(8, 2)), batch_size=4, shuffle=True)
    net = nn.Linear(2, 1)
    with tm.trace(namespace={"net": net}) as trace:
        for (x,) in loader:
            net(x).mean().backward()
    return trace.report


@ill("TM701", severity="note", line="actions = torch.multinomial(policy(states).softmax(1), 1)",
     says=("multinomial drew 3 times",))  # fmt: skip
def actions_drawn_without_a_seed():
    as_in_a_fresh_process()
    policy, states = nn.Linear(4, 3), torch.ones(6, 4)
    with tm.trace(namespace={"policy": policy}) as trace:
        for _ in range(3):
            actions = torch.multinomial(policy(states).softmax(1), 1)
            (-policy(states).log_softmax(1).gather(1, actions).mean()).backward()
    return trace.report
