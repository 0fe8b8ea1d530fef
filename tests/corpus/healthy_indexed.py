"""Writes to indexed places where no addition is lost, or one of several is what is meant."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

import tensormagic as tm
from tests.corpus.cases import healthy
from tests.corpus.data import batches, mlp
from tests.corpus.ill_indexed import RECEIVERS, SENDERS


@healthy(nearly="TM107")
def messages_that_are_added_up():
    """As it should be, three ways."""
    linear = nn.Linear(5, 4)
    with tm.trace(namespace={"linear": linear}) as trace:
        for _ in range(3):
            msg = linear(torch.randn(6, 5))[SENDERS]
            added = torch.zeros(6, 4).index_add_(0, RECEIVERS, msg)
            put = torch.zeros(6, 4).index_put_((RECEIVERS,), msg, accumulate=True)
            spread = torch.zeros(6, 4).scatter_add_(0, RECEIVERS[:, None].expand(-1, 4), msg)
            (added + put.relu() + spread.square()).sum().backward()
            linear.zero_grad()
    return trace.report


@healthy(nearly="TM107")
def places_that_are_named_once():
    """An order of all, some without repetition, a mask, slices, and a pair that repeats in each part alone."""
    net = mlp(64, 16, 10)
    with tm.trace(namespace={"net": net}) as trace:
        for images, classes in batches(3, 12):
            x = images.flatten(1).clone()
            x[torch.randperm(12)] += 0.1 * torch.arange(12.0)[:, None]
            x[torch.randperm(12)[:5], 3] -= torch.arange(5.0)
            x[x > 0.5] += torch.arange(float((x > 0.5).sum()))
            x[:, ::2] += torch.arange(32.0)
            x[torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1, 0, 1])] += torch.arange(4.0)
            F.cross_entropy(net(x), classes).backward()
            net.zero_grad()
    return trace.report


@healthy(nearly="TM107")
def a_replay_memory_with_priorities():
    """Samples are drawn with replacement, and what a place had before counts no more."""
    net, memory, priorities = nn.Linear(4, 1), torch.randn(20, 4), torch.ones(20)
    with tm.trace(namespace={"net": net}) as trace:
        for _ in range(4):
            drawn = torch.multinomial(priorities, 16, replacement=True)
            errors = net(memory[drawn]).squeeze(1) - memory[drawn].sum(1)
            errors.square().mean().backward()
            priorities[drawn] = errors.detach().abs() + 0.01
            net.zero_grad()
    return trace.report


@healthy(nearly="TM107")
def a_penalty_for_words_that_were_said():
    """However often: each of them loses the same, once."""
    net, said = nn.Linear(4, 9), torch.tensor([2, 5, 2, 2, 7])
    with tm.trace(namespace={"net": net}) as trace:
        for _ in range(3):
            scores = net(torch.randn(4)) * 1.0
            scores[said] -= 1.5
            F.cross_entropy(scores[None], torch.tensor([3])).backward()
            net.zero_grad()
    return trace.report


@healthy(nearly="TM107")
def a_decay_of_the_rows_that_were_used():
    """What is added belongs to the row: however often a word comes, its row decays once."""
    table, words = nn.Embedding(9, 4), torch.arange(30) ** 2 % 9
    optimizer = torch.optim.SGD(table.parameters(), lr=0.1)
    with tm.trace(namespace={"table": table, "optimizer": optimizer}) as trace:
        for _ in range(4):
            optimizer.zero_grad()
            table(words).square().mean().backward()
            with torch.no_grad():
                table.weight.grad[words] += 0.01 * table.weight[words]
            optimizer.step()
    return trace.report


@healthy
def centres_that_follow_one_sample_of_a_batch():
    """A step towards the last sample of each class is a step as well: no more than a note."""
    net, centres = mlp(64, 16, 8), torch.zeros(10, 8)
    with tm.trace(namespace={"net": net}) as trace:
        for images, classes in batches(4, 40):
            features = net(images.flatten(1))
            F.mse_loss(features, centres[classes]).backward()
            step = features.detach() - centres[classes]
            centres[classes] += 0.1 * step
            net.zero_grad()
    return trace.report


@healthy
def noise_at_places_that_are_drawn():
    """Where two of it fall on one place, one stays: nobody counts them."""
    net = mlp(64, 16, 10)
    with tm.trace(namespace={"net": net}) as trace:
        for images, classes in batches(4, 12):
            x = images.flatten(1).clone()
            x[:, torch.arange(40) ** 2 % 64] += 0.1 * torch.randn(12, 40)
            F.cross_entropy(net(x), classes).backward()
            net.zero_grad()
    return trace.report
