"""Gradients in losses that are as they should be, and custom Functions of every honest kind."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import tensormagic as tm
from tests.corpus.cases import healthy
from tests.corpus.data import mlp


@healthy(nearly="TM317")
def a_critic_whose_penalty_has_a_graph():
    """WGAN-GP as it is written in the paper."""
    critic = mlp(2, 16, 1)
    optimizer = torch.optim.Adam(critic.parameters(), lr=1e-3)
    with tm.trace(namespace={"critic": critic}) as trace:
        for _ in range(4):
            real, fake = torch.randn(16, 2) + 2, torch.randn(16, 2)
            mixed = (0.5 * real + 0.5 * fake).requires_grad_()
            (pull,) = torch.autograd.grad(critic(mixed).sum(), mixed, create_graph=True)
            penalty = (pull.norm(dim=1) - 1).square().mean()
            optimizer.zero_grad()
            (critic(fake).mean() - critic(real).mean() + 10 * penalty).backward()
            optimizer.step()
    return trace.report


@healthy(nearly="TM317")
def two_losses_weighed_by_their_gradients():
    """VQGAN's adaptive weight is a factor, and is meant to be a number."""
    net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 4))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    with tm.trace(namespace={"net": net}) as trace:
        for _ in range(4):
            x = torch.randn(16, 4)
            out, last = net(x), net[2].weight
            near, smooth = F.mse_loss(out, x), out.diff(dim=1).square().mean()
            (one,) = torch.autograd.grad(near, last, retain_graph=True)
            (other,) = torch.autograd.grad(smooth, last, retain_graph=True)
            weight = (one.norm() / (other.norm() + 1e-4)).clamp(0, 100)
            optimizer.zero_grad()
            (near + 0.1 * weight * smooth).backward()
            optimizer.step()
    return trace.report


@healthy(nearly="TM317")
def a_first_order_inner_step():
    """First-order MAML of one number: the inner step's gradient is a constant on purpose."""
    w = nn.Parameter(torch.tensor(0.5))
    optimizer = torch.optim.SGD([w], lr=0.01)
    with tm.trace(namespace={"w": w}) as trace:
        for _ in range(4):
            x = torch.randn(8)
            (inner,) = torch.autograd.grad(F.mse_loss(w * x, 2 * x), w)
            moved = w - 0.1 * inner
            optimizer.zero_grad()
            F.mse_loss(moved * x, 2 * x).backward()
            optimizer.step()
    return trace.report


@healthy(nearly="TM317")
def adversarial_examples_from_their_gradient():
    """A step against the sign of the gradient is data for the next forward."""
    net = mlp(4, 16, 3)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    with tm.trace(namespace={"net": net}) as trace:
        for _ in range(4):
            x, y = torch.randn(16, 4).requires_grad_(), torch.arange(16) % 3
            (pull,) = torch.autograd.grad(F.cross_entropy(net(x), y), x)
            worse = x.detach() + 0.1 * pull.sign()
            optimizer.zero_grad()
            (F.cross_entropy(net(x.detach()), y) + F.cross_entropy(net(worse), y)).backward()
            optimizer.step()
    return trace.report


class Half(torch.autograd.Function):
    """Keeps the chain rule."""

    @staticmethod
    def forward(ctx, x):
        return x / 2

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output / 2


class Barrier(torch.autograd.Function):
    """Lets nothing through, and says so."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad_output):
        return None


class Passed(torch.autograd.Function):
    """Hands what arrives to another function."""

    @staticmethod
    def forward(ctx, x):
        return x * 3

    @staticmethod
    def backward(ctx, *grads):
        return tuple(3 * each for each in grads)


@healthy(nearly="TM318")
def a_barrier_that_returns_none():
    """Its backward ignores what arrives, and passes nothing on."""
    net, head = nn.Linear(4, 4), nn.Linear(4, 3)
    optimizer = torch.optim.SGD([*net.parameters(), *head.parameters()], lr=0.1)
    with tm.trace(namespace={"net": net, "head": head}) as trace:
        for _ in range(3):
            hidden = Half.apply(net(torch.randn(8, 4)))
            optimizer.zero_grad()
            (F.cross_entropy(head(Barrier.apply(hidden)), torch.arange(8) % 3) + hidden.square().mean()).backward()
            optimizer.step()
    return trace.report


@healthy(nearly="TM318")
def a_backward_that_takes_all_it_is_given():
    """What arrives has one name for all of it."""
    net = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    with tm.trace(namespace={"net": net}) as trace:
        for _ in range(3):
            optimizer.zero_grad()
            Passed.apply(net(torch.randn(8, 4))).square().mean().backward()
            optimizer.step()
    return trace.report


class Masked(torch.autograd.Function):
    """A product with a mask, which learns nothing."""

    @staticmethod
    def forward(ctx, x, mask):
        ctx.save_for_backward(mask)
        return x * mask

    @staticmethod
    def backward(ctx, grad_output):
        (mask,) = ctx.saved_tensors
        return grad_output * mask, None


@healthy(nearly="TM318")
def a_backward_that_returns_none_for_what_does_not_learn():
    net = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    with tm.trace(namespace={"net": net}) as trace:
        for _ in range(4):
            optimizer.zero_grad()
            Masked.apply(net(torch.randn(8, 4)), torch.tensor([1.0, 1.0, 0.0])).square().mean().backward()
            optimizer.step()
    return trace.report


@healthy(nearly="TM318")
def a_checkpoint_that_is_given_more_than_it_uses():
    """What the function inside does not use gets no gradient there, and its own elsewhere."""
    net, x = nn.Linear(4, 3), torch.randn(8, 4, requires_grad=True)
    optimizer = torch.optim.SGD([*net.parameters(), x], lr=0.01)
    with tm.trace(namespace={"net": net, "x": x}) as trace:
        for _ in range(4):
            optimizer.zero_grad()
            made = checkpoint(lambda used, _: net(used).square(), torch.randn(8, 4, requires_grad=True), x,
                              use_reentrant=True)  # fmt: skip
            (made.mean() + x.square().mean()).backward()
            optimizer.step()
    return trace.report
