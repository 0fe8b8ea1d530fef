"""Parameters that are frozen and stay, or that are meant to move; classes and indices that are all there."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

import tensormagic as tm
from tests.corpus.cases import healthy
from tests.corpus.data import mlp


@healthy(nearly="TM624")
def a_layer_that_is_frozen_between_two_steps():
    """`zero_grad` clears its gradient to None: no momentum and no decay moves it any more."""
    net = mlp(4, 8, 3)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, weight_decay=0.1)
    with tm.trace(namespace={"net": net, "optimizer": optimizer}) as trace:
        for step in range(8):
            if step == 4:
                net[0].requires_grad_(False)
            optimizer.zero_grad()
            F.cross_entropy(net(torch.randn(16, 4)), torch.arange(16) % 3).backward()
            optimizer.step()
    return trace.report


@healthy(nearly="TM624")
def a_discriminator_that_rests_while_the_other_trains():
    """Switched off for the generator's pass, and on again before its own; its optimizer clears to zeros."""
    make, judge = mlp(2, 8, 2), mlp(2, 8, 1)
    first = torch.optim.Adam(make.parameters(), lr=1e-3)
    second = torch.optim.Adam(judge.parameters(), lr=1e-3, weight_decay=0.01)
    with tm.trace(namespace={"make": make, "judge": judge}) as trace:
        for _ in range(6):
            judge.requires_grad_(True)
            second.zero_grad(set_to_none=False)
            (judge(make(torch.randn(8, 2)).detach()).mean() - judge(torch.randn(8, 2)).mean()).backward()
            judge.requires_grad_(False)
            second.step()
            first.zero_grad()
            (-judge(make(torch.randn(8, 2))).mean()).backward()
            first.step()
    return trace.report


@healthy(nearly="TM624")
def a_search_that_writes_its_own_gradients():
    """Evolution strategies: nothing asks for a gradient, and each step has an estimate of its own."""
    net = nn.Linear(4, 1)
    net.requires_grad_(False)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    x = torch.randn(32, 4)
    with tm.trace(namespace={"net": net, "optimizer": optimizer}) as trace:
        for _ in range(6):
            noise = torch.randn_like(net.weight)
            gain = F.mse_loss(F.linear(x, net.weight + 0.1 * noise), x.sum(1, keepdim=True))
            loss = F.mse_loss(F.linear(x, net.weight - 0.1 * noise), x.sum(1, keepdim=True))
            net.weight.grad = (gain - loss) / 0.2 * noise
            optimizer.step()
    return trace.report


@healthy(nearly="TM807")
def targets_of_which_some_are_ignored():
    """-100 marks what is no word, and the loss leaves it out."""
    net = nn.Linear(4, 5)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    targets = torch.arange(8) % 5
    targets[::3] = -100
    with tm.trace(namespace={"net": net}) as trace:
        for _ in range(3):
            optimizer.zero_grad()
            F.cross_entropy(net(torch.randn(8, 4)), targets).backward()
            optimizer.step()
    return trace.report


@healthy(nearly="TM807")
def soft_targets_and_a_padding_index():
    """Probabilities as targets are no classes, and the padding's row is the last of the table."""
    words, net = nn.Embedding(11, 4, padding_idx=10), nn.Linear(4, 3)
    optimizer = torch.optim.SGD([*words.parameters(), *net.parameters()], lr=0.1)
    with tm.trace(namespace={"words": words, "net": net}) as trace:
        for _ in range(3):
            ids = torch.randint(0, 11, (8, 5))
            ids[:, -1] = 10
            optimizer.zero_grad()
            F.cross_entropy(net(words(ids).mean(1)), torch.full((8, 3), 1 / 3)).backward()
            optimizer.step()
    return trace.report
