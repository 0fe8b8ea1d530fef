"""Training code that masks a bad value after the fact, and gets its NaN back as a gradient (TM406)."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import nn

import tensormagic as tm
from tests.corpus.cases import healthy, ill


@ill("TM406", op="div", line="ratio = x / y", related=("torch.where(y == 0",), says=(
    "its divisor holds 2 zeros", "2 of the 4 elements it sends to x",
    "x / torch.where(y == 0, 1, y)`"))  # fmt: skip
def division_masked_after_the_fact():
    """torch.where picks the other branch: the branch not taken still gets 0, and 0 · ∞ is NaN."""
    x, y = torch.tensor([1.0, 2.0, 3.0, 4.0], requires_grad=True), torch.tensor([1.0, 0.0, 2.0, 0.0])
    with tm.trace(namespace={"x": x}) as trace:
        ratio = x / y
        torch.where(y == 0, torch.zeros_like(ratio), ratio).sum().backward()
    return trace.report


@ill("TM406", op="softmax", line="p = scores.softmax(-1)", related=("p.masked_fill(padding, 0)",), says=(
    "its result is not finite there", "at elements that masked_fill hides", "-1e9"))  # fmt: skip
def attention_over_rows_that_are_all_padding():
    """Rows masked with -inf from end to end: their NaN are overwritten with zeros, and come back."""
    query, key = nn.Linear(8, 8), nn.Linear(8, 8)
    with tm.trace(namespace={"query": query, "key": key}) as trace:
        x = torch.randn(2, 5, 8)
        lengths = torch.tensor([5, 3])
        padding = (torch.arange(5)[None] >= lengths[:, None]).unsqueeze(-1)
        scores = query(x) @ key(x).transpose(1, 2)
        scores = scores.masked_fill(padding | padding.transpose(1, 2), -math.inf)
        p = scores.softmax(-1)
        p = p.masked_fill(padding, 0)
        (p @ x).square().mean().backward()
    return trace.report


@ill("TM406", op="sqrt", line="distance = squared.sqrt()", related=("distance[~same].mean()",), says=(
    "at elements that index hides", "its input holds 6 zeros"))  # fmt: skip
def distances_without_the_diagonal():
    """All pairs but those of a point with itself: their distance is 0, and so is the gradient that comes back."""
    net = nn.Linear(3, 2)
    with tm.trace(namespace={"net": net}) as trace:
        z = net(torch.randn(6, 3))
        squared = (z[:, None] - z[None]).square().sum(-1)
        distance = squared.sqrt()
        same = torch.eye(6, dtype=torch.bool)
        loss = distance[~same].mean()
        loss.backward()
    return trace.report


@ill("TM406", op="exp", line="torch.where(x > 0, x, alpha * (torch.exp(x) - 1))", says=(
    "at elements that where hides", "alpha * (torch.exp(torch.where(x > 0, 0, x)) - 1)"))  # fmt: skip
def an_activation_by_hand():
    """ELU by hand: exp overflows on the side that is not taken."""
    alpha = 1.0
    x = torch.tensor([-1.0, 2.0, 120.0], requires_grad=True)
    with tm.trace(namespace={"x": x}) as trace:
        y = torch.where(x > 0, x, alpha * (torch.exp(x) - 1))
        y.mean().backward()
    return trace.report


@ill("TM406", op="log", line="log_rate = rate.log()", related=("torch.where(counts > 0, counts * log_rate, 0.0)",),
     says=("in backward pass 2 of 3", "its input holds"))  # fmt: skip
def a_likelihood_of_counts():
    """A ReLU makes rates of exactly zero, which the where leaves out; from the second batch on there are some."""
    net = nn.Linear(2, 1)
    with torch.no_grad():
        net.weight.copy_(torch.tensor([[1.0, 0.5]]))
        net.bias.fill_(1.0)
    with tm.trace(namespace={"net": net}) as trace:
        for step in range(3):
            x = torch.rand(8, 2)
            counts = torch.ones(8, 1)
            if step:
                x[:3] = -5.0
                counts[:3] = 0
            rate = F.relu(net(x))
            log_rate = rate.log()
            loss = (rate - torch.where(counts > 0, counts * log_rate, 0.0)).mean()
            loss.backward()
    return trace.report


@healthy(nearly="TM406")
def masked_before_and_after():
    """The double where: the op never sees the bad value."""
    x, y = torch.tensor([1.0, 2.0, 3.0, 4.0], requires_grad=True), torch.tensor([1.0, 0.0, 2.0, 0.0])
    with tm.trace(namespace={"x": x}) as trace:
        ratio = x / torch.where(y == 0, 1.0, y)
        torch.where(y == 0, torch.zeros_like(ratio), ratio).sum().backward()
    return trace.report


@healthy(nearly="TM406")
def distances_of_other_points_only():
    """The index comes first: what it leaves out never reaches the root."""
    net = nn.Linear(3, 2)
    with tm.trace(namespace={"net": net}) as trace:
        z = net(torch.randn(6, 3))
        squared = (z[:, None] - z[None]).square().sum(-1)
        squared[~torch.eye(6, dtype=torch.bool)].sqrt().mean().backward()
    return trace.report


@healthy(nearly="TM406")
def padding_filled_with_a_large_negative_number():
    """A row of padding is an even softmax, masked afterwards: finite all the way."""
    query, key = nn.Linear(8, 8), nn.Linear(8, 8)
    with tm.trace(namespace={"query": query, "key": key}) as trace:
        x = torch.randn(2, 5, 8)
        padding = (torch.arange(5)[None] >= torch.tensor([5, 3])[:, None]).unsqueeze(-1)
        scores = (query(x) @ key(x).transpose(1, 2)).masked_fill(padding | padding.transpose(1, 2), -1e9)
        (scores.softmax(-1).masked_fill(padding, 0) @ x).square().mean().backward()
    return trace.report


@ill("TM406", op="softmax", line="p = scores.softmax(-1)", related=("torch.nan_to_num(p)",), says=("nan_to_num",))
def rows_of_padding_repaired_afterwards_with_the_forward_measured():
    """One finding, though the forward's values tell of the same NaN."""
    x = torch.randn(4, 4, requires_grad=True)
    mask = torch.zeros(4, 4)
    mask[2] = -math.inf
    with tm.trace(namespace={"x": x}, forward=True) as trace:
        scores = x + mask
        p = scores.softmax(-1)
        torch.nan_to_num(p).square().sum().backward()
    return trace.report
