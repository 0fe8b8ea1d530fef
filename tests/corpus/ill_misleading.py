"""Programs whose fault looks like another one: the remedy has to be the one that helps here."""

from __future__ import annotations

import contextlib

import torch
import torch.nn.functional as F
from torch import nn

import tensormagic as tm
from tests.corpus.cases import ill
from tests.corpus.data import batches


@ill("TM307", severity="warning", subject="w", line="w.grad.zero_()", related=("w = w - 0.1 * w.grad",),
     says=("Change the leaf in place", "`with torch.no_grad(): w -= 0.1 * w.grad`"))  # fmt: skip
def an_update_that_makes_a_new_tensor():
    """After the first update w is not a leaf any more, and its gradient is None."""
    w, x, y = torch.zeros(3, requires_grad=True), torch.randn(10, 3), torch.randn(10)
    with tm.trace(namespace={"w": w}) as trace:
        for _ in range(2):
            (x @ w - y).square().mean().backward()
            w = w - 0.1 * w.grad
            if w.grad is None:
                break
        with contextlib.suppress(AttributeError):
            w.grad.zero_()
    return trace.report


@ill("TM307", severity="warning", subject="w", line="w = w - 0.1 * w.grad", says=("Change the leaf in place",))
def an_update_that_fails_in_the_second_round():
    """The usual first loop: None cannot be multiplied."""
    w, x, y = torch.zeros(3, requires_grad=True), torch.randn(10, 3), torch.randn(10)
    with contextlib.suppress(TypeError), tm.trace(namespace={"w": w}) as trace:
        for _ in range(3):
            (x @ w - y).square().mean().backward()
            w = w - 0.1 * w.grad
            w.grad = None
    return trace.report


class Sampling(nn.Module):
    """Draws its code from a distribution, and decodes it."""

    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = nn.Linear(64, 4), nn.Linear(2, 64)

    def forward(self, x):
        mean, spread = self.encoder(x).chunk(2, 1)
        code = torch.distributions.Normal(mean, spread.exp()).sample()
        return self.decoder(code)


@ill("TM303", severity="warning", subject="net.encoder.weight", line=".sample()",
     says=("`.sample()` keeps what it computes from being recorded", "use `.rsample()`"))  # fmt: skip
def a_code_that_is_sampled_without_a_way_back():
    """Nobody wrote `no_grad`: torch draws under it."""
    net = Sampling()
    optimizer = torch.optim.Adam(net.parameters())
    with tm.trace(namespace={"net": net, "optimizer": optimizer}) as trace:
        for images, _ in batches(4):
            x = images.flatten(1)
            optimizer.zero_grad()
            F.mse_loss(net(x), x).backward()
            optimizer.step()
    return trace.report


class Acting(nn.Module):
    """A policy that hands out what it drew."""

    def __init__(self):
        super().__init__()
        self.mean = nn.Linear(8, 1)

    def forward(self, states):
        return torch.distributions.Normal(self.mean(states), 1.0).sample()


@ill("TM313", severity="note", subject="net.to_mean", line=".sample()",
     says=("No gradient reaches `net.to_mean` through this sample", "use `.rsample()`"))  # fmt: skip
def a_vae_that_learns_from_its_prior_alone():
    """The divergence trains the encoder, so nothing is without a gradient."""
    torch.manual_seed(0)
    net = nn.ModuleDict({"to_mean": nn.Linear(64, 4), "to_spread": nn.Linear(64, 4), "decode": nn.Linear(4, 64)})
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    with tm.trace(namespace={"net": net}) as trace:
        for images, _ in batches(3):
            x = images.flatten(1)
            mean, spread = net["to_mean"](x), net["to_spread"](x)
            code = torch.distributions.Normal(mean, spread.exp()).sample()
            prior = (mean.square() + spread.exp() - spread).mean()
            loss = F.mse_loss(net["decode"](code), x) + prior
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return trace.report


@ill("TM313", severity="note", subject="mean", line="code = torch.normal(mean=mean, std=spread.exp())",
     says=("No gradient reaches `mean` through this sample", "samples, draw with noise of its own"))  # fmt: skip
def a_vae_that_draws_with_torch_normal():
    """Its backward passes on zeros; the divergence trains the encoder, so that no gradient is zero as a whole."""
    torch.manual_seed(0)
    net = nn.ModuleDict({"to_mean": nn.Linear(64, 4), "to_spread": nn.Linear(64, 4), "decode": nn.Linear(4, 64)})
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    with tm.trace(namespace={"net": net}) as trace:
        for images, _ in batches(3):
            x = images.flatten(1)
            mean, spread = net["to_mean"](x), net["to_spread"](x)
            code = torch.normal(mean=mean, std=spread.exp())
            prior = (mean.square() + spread.exp() - spread).mean()
            loss = F.mse_loss(net["decode"](code), x) + prior
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return trace.report


@ill("TM303", severity="warning", subject="policy.mean.weight", line=".sample()", says=("`.rsample()`",))
def a_policy_that_is_cut_off_from_its_critic():
    """To step the critic's parameters instead, as if the optimizer were made of the wrong model, would do harm."""
    policy, critic = Acting(), nn.Linear(1, 1)
    optimizer = torch.optim.Adam(policy.parameters())
    with tm.trace(namespace={"policy": policy, "critic": critic, "optimizer": optimizer}) as trace:
        for _ in range(4):
            optimizer.zero_grad()
            critic(policy(torch.randn(16, 8))).mean().neg().backward()
            optimizer.step()
    return trace.report


@ill("TM306", severity="error", subject="loss", line="torch.set_grad_enabled(False)",
     says=("`torch.set_grad_enabled(False)` kept", "`torch.set_grad_enabled(True)`"))  # fmt: skip
def gradients_that_were_switched_off_by_a_call():
    net = nn.Linear(3, 1)
    trace = tm.trace(namespace={"net": net})
    try:
        with trace:
            torch.set_grad_enabled(False)
            loss = net(torch.randn(4, 3)).mean()
            loss.backward()
    except RuntimeError:
        return trace.report
    finally:
        torch.set_grad_enabled(True)
    raise AssertionError("the program was to raise")


@ill("TM301", severity="error", line="optimizer.step()", also=("TM312",),
     says=("Leave out `retain_graph=True`", "`hidden = hidden.detach()`"))  # fmt: skip
def a_hidden_state_whose_graph_is_kept():
    """`retain_graph=True` silences the one error, and brings the next."""
    cell, head, hidden = nn.RNNCell(3, 4), nn.Linear(4, 1), torch.zeros(2, 4)
    optimizer = torch.optim.SGD([*cell.parameters(), *head.parameters()], lr=0.1)
    trace = tm.trace(namespace={"cell": cell, "head": head, "optimizer": optimizer})
    try:
        with trace:
            for _ in range(3):
                hidden = cell(torch.randn(2, 3), hidden)
                loss = head(hidden).square().mean()
                optimizer.zero_grad()
                loss.backward(retain_graph=True)
                optimizer.step()
    except RuntimeError:
        return trace.report
    raise AssertionError("the program was to raise")


@ill("TM405", severity="warning", line="return F.relu(self.out(", subject="net.hidden.weight",
     says=("leave it out there", "`F.softplus`"))  # fmt: skip
def a_relu_after_the_last_layer():
    class Regression(nn.Module):
        """Its output cannot be negative, and stays where it is."""

        def __init__(self):
            super().__init__()
            self.hidden, self.out = nn.Linear(3, 8), nn.Linear(8, 1)
            nn.init.constant_(self.out.bias, -5.0)

        def forward(self, x):
            return F.relu(self.out(F.relu(self.hidden(x))))

    net = Regression()
    optimizer, x, y = torch.optim.SGD(net.parameters(), lr=0.01), torch.randn(20, 3), torch.rand(20, 1)
    with tm.trace(namespace={"net": net, "optimizer": optimizer}) as trace:
        for _ in range(4):
            optimizer.zero_grad()
            F.mse_loss(net(x), y).backward()
            optimizer.step()
    return trace.report


class Scaled(nn.Module):
    """Its weight is scaled, and no Parameter for that."""

    def __init__(self):
        super().__init__()
        self.table = torch.randn(3, 3, requires_grad=True) * 0.1
        self.out = nn.Linear(3, 1)

    def forward(self, x):
        return self.out(x @ self.table)


@ill("TM304", severity="error", line=".backward()", also=("TM603",),
     says=("`self.table = nn.Parameter(torch.randn(3, 3) * 0.1)`",))  # fmt: skip
def a_weight_that_is_scaled_once():
    """The error is about a graph; the cure is a Parameter."""
    net = Scaled()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    trace = tm.trace(namespace={"net": net, "optimizer": optimizer})
    try:
        with trace:
            for _ in range(2):
                optimizer.zero_grad()
                net(torch.randn(4, 3)).mean().backward()
                optimizer.step()
    except RuntimeError:
        return trace.report
    raise AssertionError("the program was to raise")
