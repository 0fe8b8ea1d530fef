"""Gradients that a loss is made of and that keep no graph (TM317), custom backwards that do not fit (TM318).

And a constant that no derivative knows of (TM601).
"""

from __future__ import annotations

import contextlib

import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call, grad, vmap

import tensormagic as tm
from tests.corpus.cases import ill
from tests.corpus.data import mlp


@ill("TM317", severity="warning", line="gradients = torch.autograd.grad(", says=("create_graph=True",))
def a_wasserstein_critic_whose_penalty_is_a_number():
    """igul222/improved_wgan_training#18, ooples/AiDotNet#1844: the critic does not feel its penalty."""
    critic = mlp(2, 16, 1)
    optimizer = torch.optim.Adam(critic.parameters(), lr=1e-3)
    with tm.trace(namespace={"critic": critic, "optimizer": optimizer}) as trace:
        for _ in range(4):
            real, fake = torch.randn(16, 2) + 2, torch.randn(16, 2)
            mixed = (0.5 * real + 0.5 * fake).requires_grad_()
            scores = critic(mixed)
            gradients = torch.autograd.grad(scores, mixed, torch.ones_like(scores))[0]
            penalty = ((gradients.norm(2, dim=1) - 1) ** 2).mean()
            loss = critic(fake).mean() - critic(real).mean() + 10 * penalty
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return trace.report


@ill("TM317", severity="warning", line="slope = torch.autograd.grad(", says=("create_graph=True",))
def a_differential_equation_without_second_derivatives():
    """A network that is to solve u' = -u: only the condition at zero is learned."""
    net = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    with tm.trace(namespace={"net": net}) as trace:
        for _ in range(4):
            t = torch.rand(32, 1, requires_grad=True)
            u = net(t)
            slope = torch.autograd.grad(u.sum(), t, create_graph=False)[0]
            residual = F.mse_loss(slope, -u.detach())
            start = (net(torch.zeros(1, 1)) - 1).square().mean()
            optimizer.zero_grad()
            (start + residual).backward()
            optimizer.step()
    return trace.report


@ill("TM317", severity="warning", line="(pull,) = torch.autograd.grad(", says=("create_graph=True",))
def a_discriminator_with_a_penalty_for_each_sample():
    """An R1 penalty without its graph, added sample by sample before the mean."""
    discriminator = mlp(4, 16, 1)
    optimizer = torch.optim.Adam(discriminator.parameters(), lr=1e-3)
    with tm.trace(namespace={"discriminator": discriminator}) as trace:
        for _ in range(4):
            real = torch.randn(8, 4).requires_grad_()
            out = discriminator(real)
            (pull,) = torch.autograd.grad(outputs=out.sum(), inputs=real, retain_graph=True)
            each = F.softplus(-out).squeeze(1) + 5.0 * pull.square().sum(1)
            optimizer.zero_grad()
            each.mean().backward()
            optimizer.step()
    return trace.report


class ClampedExp(torch.autograd.Function):
    """Forgets the chain rule."""

    @staticmethod
    def forward(ctx, x):
        y = x.clamp(max=4).exp()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, grad_output):
        (y,) = ctx.saved_tensors
        return y


class Centre(torch.autograd.Function):
    """A loss that computes its own gradient, and returns it whatever it is weighted by."""

    @staticmethod
    def forward(ctx, x):
        ctx.pull = 2 * x / x.numel()
        return x.square().mean()

    @staticmethod
    def backward(ctx, *grads):
        return ctx.pull


@ill("TM318", severity="warning", line="return y", subject="ClampedExp", says=("grad_output",))
def an_activation_that_forgets_the_chain_rule():
    """pytorch/pytorch#21961 did so in its own code: what comes after it changes no gradient before it."""
    net = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    with tm.trace(namespace={"net": net}) as trace:
        for _ in range(3):
            optimizer.zero_grad()
            (ClampedExp.apply(net(torch.randn(8, 4))) - 2).square().mean().backward()
            optimizer.step()
    return trace.report


@ill("TM318", severity="warning", line="return ctx.pull", subject="Centre", says=("grads",))
def a_centre_loss_whose_weight_does_nothing():
    """chainer/chainer#1175 in torch: the weight in front of it changes the value that is printed alone."""
    net = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    with tm.trace(namespace={"net": net}) as trace:
        for _ in range(3):
            x = net(torch.randn(8, 4))
            optimizer.zero_grad()
            (F.cross_entropy(x, torch.arange(8) % 3) + 0.001 * Centre.apply(x)).backward()
            optimizer.step()
    return trace.report


@ill("TM318", severity="note", line="return ctx.pull", subject="Centre", says=("right only if that gradient is 1",))
def a_loss_of_its_own_that_is_right_by_chance():
    """The gradient that arrives is 1 here, and another as soon as a GradScaler or a weight comes in."""
    net = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    with tm.trace(namespace={"net": net}) as trace:
        for _ in range(3):
            optimizer.zero_grad()
            Centre.apply(net(torch.randn(8, 4))).backward()
            optimizer.step()
    return trace.report


class Scaled(torch.autograd.Function):
    """Forgets that its second input learns as well."""

    @staticmethod
    def forward(ctx, x, scale):
        ctx.save_for_backward(x, scale)
        return x * scale

    @staticmethod
    def backward(ctx, grad_output):
        _, scale = ctx.saved_tensors
        return grad_output * scale, None


class Scale(nn.Module):
    """A factor for each feature."""

    def __init__(self, features):
        super().__init__()
        self.raw = nn.Parameter(torch.zeros(features))

    def forward(self, x):
        return Scaled.apply(x, self.raw.exp())


@ill("TM318", severity="warning", line="return Scaled.apply(x, self.raw.exp())", subject="net.1.raw",
     says=("net.1.raw gets no gradient in 4 backward passes", "Scaled.backward returns None for it"))  # fmt: skip
def a_backward_that_returns_none_for_a_weight():
    """What it returns None for is computed from the weight: nothing goes on from there either."""
    net = nn.Sequential(nn.Linear(4, 4), Scale(4), nn.Linear(4, 3))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    with tm.trace(namespace={"net": net}) as trace:
        for _ in range(4):
            optimizer.zero_grad()
            F.cross_entropy(net(torch.randn(8, 4)), torch.arange(8) % 3).backward()
            optimizer.step()
    return trace.report


def _solve(residual_of):
    """A network that is to fulfil an equation: ``residual_of(x, y, slope)``, and a condition at zero."""
    net = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    names = {"net": net, "optimizer": optimizer}
    with contextlib.suppress(RuntimeError), tm.trace(namespace=names) as trace:
        for _ in range(4):
            x = torch.rand(32, 1, requires_grad=True)
            y = net(x)
            slope = torch.autograd.grad(y.sum(), x, create_graph=True)[0]
            residual = residual_of(x, y, slope)
            optimizer.zero_grad()
            (residual + (net(torch.zeros(1, 1)) - 1).square().mean()).backward()
            optimizer.step()
    return trace.report


@ill("TM317", severity="warning", line="bend = torch.autograd.grad(", says=("retain_graph=True, create_graph=True",))
def an_equation_of_a_second_derivative_without_its_graph():
    """The first derivative has one, and is a part of the equation: the other part trains nothing."""

    def residual_of(x, y, slope):
        bend = torch.autograd.grad(slope.sum(), x, retain_graph=True)[0]
        return (bend + slope * y).square().mean()

    return _solve(residual_of)


@ill("TM317", severity="warning", line="bend = torch.autograd.grad(", says=("create_graph=True",))
def an_equation_whose_other_side_is_of_the_places():
    """The places ask for a gradient, so that the term has a graph; it leads to nothing that learns."""

    def residual_of(x, _y, slope):
        bend = torch.autograd.grad(slope.sum(), x)[0]
        return F.mse_loss(bend, -torch.sin(x))

    return _solve(residual_of)


@ill("TM304", severity="error", line=".backward()", related=("bend = ",), says=(
    "Where the loss is made of this gradient",
    "`bend = torch.autograd.grad(slope.sum(), x, create_graph=True)[0]`"))  # fmt: skip
def an_equation_whose_second_derivative_frees_the_graph():
    """The same, where nothing keeps the graph of what is used beside it."""

    def residual_of(x, y, slope):
        bend = torch.autograd.grad(slope.sum(), x)[0]
        return (bend + y).square().mean()

    return _solve(residual_of)


@ill("TM601", severity="note", line="loss.backward()", subject="lagrangian.2.bias",
     says=("in 6 backward passes: only derivatives of the output enter the loss, so it has no effect", "`bias=False`"),
)  # fmt: skip
def a_lagrangian_with_a_constant():
    """Equations of motion are made of its derivatives; another network is trained after it."""
    lagrangian = nn.Sequential(nn.Linear(2, 8), nn.Softplus(), nn.Linear(8, 1))
    held, other = dict(lagrangian.named_parameters()), nn.Linear(2, 1)
    optimizer, after = torch.optim.Adam(lagrangian.parameters()), torch.optim.Adam(other.parameters())

    def energy(at, speed):
        return functional_call(lagrangian, held, (torch.stack([at, speed]),)).squeeze() + 0.5 * speed**2

    def acceleration(at, speed):
        inertia = grad(grad(energy, 1), 1)(at, speed)
        return (grad(energy, 0)(at, speed) - grad(grad(energy, 1), 0)(at, speed) * speed) / (inertia + 1e-3)

    with tm.trace(namespace={"lagrangian": lagrangian, "other": other}) as trace:
        for _ in range(6):
            at, speed = torch.randn(16), torch.randn(16)
            loss = (vmap(acceleration)(at, speed) + at).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        for _ in range(4):
            after.zero_grad()
            other(torch.randn(16, 2)).square().mean().backward()
            after.step()
    return trace.report
