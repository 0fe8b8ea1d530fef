"""Training code whose gradients vanish (TM403) or explode (TM404)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

import tensormagic as tm
from tests.corpus.cases import ill


def stack(count, activation, width=32):
    """Return ``count`` linear layers, each with its activation, and a last one."""
    layers = [layer for _ in range(count) for layer in (nn.Linear(width, width), activation())]
    return nn.Sequential(*layers, nn.Linear(width, 1))


def regress(net, x, y, *, steps, lr):
    """Train with plain gradient descent on the mean squared error."""
    optimizer = torch.optim.SGD(net.parameters(), lr=lr)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = F.mse_loss(net(x), y)
        loss.backward()
        optimizer.step()


@ill("TM403", line="loss = F.mse_loss(net(x), y)", subject="net.0.weight", says=(
    "on its way to net.0.weight", "at net.60.weight", "other weights as well"))  # fmt: skip
def thirty_sigmoid_layers():
    net = stack(30, nn.Sigmoid)
    with tm.trace(namespace={"net": net}) as trace:
        regress(net, torch.randn(64, 32), torch.randn(64, 1), steps=4, lr=0.01)
    return trace.report


@ill("TM403", subject="net.0.weight", says=("at net.30.weight",))
def fifteen_sigmoid_layers_in_one_pass():
    net = stack(15, nn.Sigmoid)
    with tm.trace(namespace={"net": net}) as trace:
        net(torch.randn(64, 32)).square().mean().backward()
    return trace.report


@ill("TM403", says=("weights get exactly zero",))
def so_many_sigmoid_layers_that_float32_ends():
    """Norms below 1e-45 are zero: those weights are counted, the last one above zero is named."""
    net = stack(80, nn.Sigmoid)
    with tm.trace(namespace={"net": net}) as trace:
        regress(net, torch.randn(64, 32), torch.randn(64, 1), steps=2, lr=0.01)
    return trace.report


@ill("TM403", says=("as well",))
def torch_s_default_initialisation_without_normalisation():
    """ReLU alone does not help: nn.Linear's default shrinks the signal in every layer."""
    net = stack(40, nn.ReLU)
    with tm.trace(namespace={"net": net}) as trace:
        regress(net, torch.randn(64, 32), torch.randn(64, 1), steps=4, lr=0.01)
    return trace.report


class Reader(nn.Module):
    """A recurrent network over 60 steps, with its recurrent weights scaled."""

    def __init__(self, scale, nonlinearity="tanh"):
        super().__init__()
        self.cell = nn.RNN(8, 16, batch_first=True, nonlinearity=nonlinearity)
        self.head = nn.Linear(16, 1)
        with torch.no_grad():
            self.cell.weight_hh_l0.mul_(scale)

    def forward(self, x):
        hidden, _ = self.cell(x)
        return self.head(hidden[:, -1])


@ill("TM404", line="hidden, _ = self.cell(x)", says=("on its way to net.cell.weight_", "at the last layer"))
def recurrent_weights_too_large():
    """The forward is bounded by tanh, the gradient is multiplied at every step back."""
    net = Reader(10.0)
    with tm.trace(namespace={"net": net}) as trace:
        regress(net, 0.1 * torch.randn(16, 60, 8), torch.randn(16, 1), steps=2, lr=1e-6)
    return trace.report


@ill("TM404", says=("grew from", "over the steps"))
def learning_rate_too_high():
    net = nn.Linear(16, 1)
    x = torch.randn(64, 16)
    with tm.trace(namespace={"net": net}) as trace:
        regress(net, x, x.sum(1, keepdim=True), steps=12, lr=1.5)
    return trace.report


@ill("TM404", says=("grew from", "over the steps", "Leave out the minus before mse_loss", "the loss went from"))
def a_loss_with_the_wrong_sign():
    """It is made larger, without bound."""
    net, x = nn.Linear(4, 1), torch.randn(64, 4)
    optimizer, y = torch.optim.SGD(net.parameters(), lr=0.5), x.sum(1, keepdim=True)
    with tm.trace(namespace={"net": net}) as trace:
        for _ in range(40):
            optimizer.zero_grad()
            loss = -F.mse_loss(net(x), y)
            loss.backward()
            optimizer.step()
    return trace.report


@ill("TM401", severity="warning", line="loss = F.mse_loss(net(x), y)", also=("TM402", "TM404"), says=(
    "The loss is infinite", "before that, it had reached", "lower the learning rate"))  # fmt: skip
def a_learning_rate_at_which_the_loss_overflows():
    """The loss is a square: it overflows a step before the gradients do."""
    torch.manual_seed(0)
    net = nn.Linear(16, 1)
    x = torch.randn(64, 16)
    with tm.trace(namespace={"net": net}) as trace:
        regress(net, 100 * x, x.sum(1, keepdim=True), steps=6, lr=1.0)
    return trace.report


@ill("TM404", says=("on its way to net.0.weight",))
def twenty_layers_initialised_too_large():
    """Every layer doubles what comes back; small inputs keep the forward small."""
    net = nn.Sequential(*(nn.Linear(32, 32, bias=False) for _ in range(20)), nn.Linear(32, 1, bias=False))
    for layer in net[:-1]:
        nn.init.orthogonal_(layer.weight, gain=2.0)
    with tm.trace(namespace={"net": net}) as trace:
        net(1e-3 * torch.randn(8, 32)).mean().backward()
    return trace.report


@ill("TM403", severity="warning", line="softmax(dim=1)", says=("out.weight", "check its dimension"))
def attention_over_its_queries_that_is_averaged():
    """Summed over the queries, the weights of a key are 1: what the scores are makes no difference."""
    q, k, v, out = (nn.Linear(8, 8) for _ in range(4))
    optimizer = torch.optim.Adam([p for part in (q, k, v, out) for p in part.parameters()])
    with tm.trace(namespace={"q": q, "k": k, "v": v, "out": out}) as trace:
        for _ in range(4):
            x = torch.randn(4, 5, 8)
            attention = (q(x) @ k(x).transpose(1, 2) / 8**0.5).softmax(dim=1)
            loss = F.cross_entropy(out((attention @ v(x)).mean(1)), torch.randint(0, 8, (4,)))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return trace.report
