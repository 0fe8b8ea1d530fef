"""Code in which a column meets a row of the same length, and a loss is made of the table (TM105)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

import tensormagic as tm
from tests.corpus.cases import ill


def line_data(count=32):
    """Return inputs (count, 1) and targets (count,) on a noisy line."""
    x = torch.linspace(-1, 1, count).unsqueeze(1)
    return x, 3 * x[:, 0] + 0.1 * torch.randn(count)


@ill("TM105", severity="warning", line="loss = criterion(net(x), y)", subject="net(x)", says=(
    "mse_loss(net(x), y) makes (32, 32) of (32, 1) and (32,)", "`net(x).squeeze(-1)`"))  # fmt: skip
def a_regression_with_a_row_of_targets():
    """The commonest of all: torch warns, once, of two sizes."""
    x, y = line_data()
    net, criterion = nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 1)), nn.MSELoss()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with tm.trace(namespace={"net": net}) as trace:
        for _ in range(4):
            optimizer.zero_grad()
            loss = criterion(net(x), y)
            loss.backward()
            optimizer.step()
    return trace.report


@ill("TM105", line="loss = ((prediction - y) ** 2).mean()", subject="prediction", says=(
    "prediction - y makes (32, 32) of (32, 1) and (32,)", "1024 values instead of 32",
     "`prediction.squeeze(-1)`"))  # fmt: skip
def a_mean_squared_error_by_hand():
    """Here nobody warns."""
    x, y = line_data()
    net = nn.Linear(1, 1)
    with tm.trace(namespace={"net": net}) as trace:
        for _ in range(4):
            prediction = net(x)
            loss = ((prediction - y) ** 2).mean()
            loss.backward()
            net.zero_grad()
    return trace.report


@ill("TM105", line="loss = -(dist.log_prob(actions) * returns).mean()", subject="returns", says=(
    "dist.log_prob(actions) * returns makes (16, 16)", "`returns.squeeze(-1)`"))  # fmt: skip
def policy_gradients_with_a_column_of_returns():
    policy, states = nn.Linear(4, 2), torch.randn(16, 4)
    returns = torch.randn(16, 1)
    with tm.trace(namespace={"policy": policy}) as trace:
        for _ in range(3):
            dist = torch.distributions.Categorical(logits=policy(states))
            actions = dist.sample()
            loss = -(dist.log_prob(actions) * returns).mean()
            loss.backward()
    return trace.report


@ill(
    "TM105", line="target = rewards + 0.99 * best", subject="0.99 * best", says=("makes (16, 16) of (16,) and (16, 1)",)
)
def a_q_learning_target_that_grew():
    """The target of every state is compared with the rewards of all: the loss is where it is reduced."""
    q, rewards = nn.Linear(4, 2), torch.randn(16)
    states, after, actions = torch.randn(16, 4), torch.randn(16, 4), torch.randint(0, 2, (16, 1))
    with tm.trace(namespace={"q": q}) as trace:
        for _ in range(3):
            with torch.no_grad():
                best = q(after).max(1, keepdim=True)[0]
                target = rewards + 0.99 * best
            loss = F.smooth_l1_loss(q(states).gather(1, actions), target)
            loss.backward()
    return trace.report


@ill("TM105", line="correct += (guesses == labels).sum().item()", subject="guesses", says=(
    "guesses == labels makes (50, 50) of (50, 1) and (50,)",))  # fmt: skip
def an_accuracy_above_one_hundred_percent():
    net, images, labels = nn.Linear(8, 1), torch.randn(50, 8), torch.randint(0, 2, (50,))
    with tm.trace(namespace={"net": net}) as trace:
        F.binary_cross_entropy_with_logits(net(images)[:, 0], labels.float()).backward()
        correct = 0
        with torch.no_grad():
            for _ in range(2):
                guesses = (net(images) > 0).long()
                correct += (guesses == labels).sum().item()
    return trace.report


@ill("TM105", severity="note", line="F.mse_loss(scores, labels).backward()", subject="labels", says=(
    "mse_loss compares scores of shape (32, 4) with labels of shape (32, 1)", "compared with 4 values",
    "`labels.expand_as(scores)`"))  # fmt: skip
def numbers_of_classes_as_targets_of_a_regression():
    """Every score is drawn to the number of the class."""
    net, x, labels = nn.Linear(8, 4), torch.randn(32, 8), torch.randint(0, 4, (32, 1)).float()
    with tm.trace(namespace={"net": net}) as trace:
        for _ in range(3):
            scores = net(x)
            F.mse_loss(scores, labels).backward()
    return trace.report
