"""Optimizers and updates that were written by hand, and closures: what they forget."""

from __future__ import annotations

import torch
import torch.nn.functional as F

import tensormagic as tm
from tests.corpus.cases import ill
from tests.corpus.data import batches, mlp


def _fit(optimizer_of, steps=5):
    net = mlp(64, 16, 10)
    optimizer = optimizer_of(net.parameters(), {"lr": 0.1})
    with tm.trace(namespace={"net": net, "optimizer": optimizer}) as trace:
        for images, classes in batches(steps, 16):
            optimizer.zero_grad()
            F.cross_entropy(net(images.flatten(1)), classes).backward()
            optimizer.step()
    return trace.report


class Rebinding(torch.optim.Optimizer):
    """Gives the name of each parameter to a new tensor."""

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                p = p - group["lr"] * p.grad  # noqa: PLW2901


class RebindingData(torch.optim.Optimizer):
    """The same, as it was written before there was ``no_grad``."""

    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                w, slope = p.data, p.grad.data
                w = w - group["lr"] * slope


@ill("TM617", severity="warning", line='p = p - group["lr"] * p.grad', says=("`p -= group['lr'] * p.grad`",))
def an_optimizer_of_the_user_s_that_makes_new_tensors():
    return _fit(Rebinding)


@ill("TM617", severity="warning", line='w = w - group["lr"] * slope', says=("`w -= group['lr'] * slope`",))
def an_optimizer_of_the_user_s_that_makes_new_data():
    return _fit(RebindingData)


def _close(closure_of, optimizer_of, steps=4):
    """Step with a closure: ``closure_of(net, optimizer, loss_of)``; ``loss_of(part)`` is that of a part of a batch."""
    net, (images, classes) = mlp(64, 16, 10), next(iter(batches(1, 60)))
    optimizer = optimizer_of(net.parameters())
    with tm.trace(namespace={"net": net, "optimizer": optimizer}) as trace:
        for _ in range(steps):
            closure = closure_of(net, optimizer, lambda at: F.cross_entropy(net(images[at].flatten(1)), classes[at]))
            optimizer.step(closure)
    return trace.report


def _uncleared(net, optimizer, loss_of):
    def closure():
        loss = loss_of(slice(None))
        loss.backward()
        return loss

    return closure


def _cleared_before(net, optimizer, loss_of):
    optimizer.zero_grad()
    return _uncleared(net, optimizer, loss_of)


@ill("TM309", severity="warning", line="optimizer.step(closure)", related=("loss.backward()",), says=(
    "what an earlier call of the closure had brought", "begin it with `optimizer.zero_grad()`"))  # fmt: skip
def a_closure_that_clears_nothing():
    return _close(_uncleared, lambda parameters: torch.optim.LBFGS(parameters, lr=0.3, max_iter=4))


@ill("TM309", severity="warning", line="optimizer.step(closure)", says=("in its one step",))
def a_line_search_in_one_step():
    return _close(_uncleared, lambda given: torch.optim.LBFGS(given, line_search_fn="strong_wolfe"), 1)


@ill("TM309", severity="warning", line="optimizer.step(closure)", says=("begin it with",))
def a_closure_that_is_cleared_for_its_first_call():
    return _close(_cleared_before, lambda parameters: torch.optim.LBFGS(parameters, lr=0.3, max_iter=4))


def _two_of_one_make(update):
    """An optimizer steps the first; the second is updated by hand, and its gradients are not cleared."""
    first, second = mlp(64, 16, 10), mlp(64, 16, 10)
    optimizer = torch.optim.SGD(first.parameters(), lr=0.05)
    with tm.trace(namespace={"first": first, "second": second, "optimizer": optimizer}) as trace:
        for images, classes in batches(6, 16):
            optimizer.zero_grad()
            F.cross_entropy(first(images.flatten(1)), classes).backward()
            optimizer.step()
            F.cross_entropy(second(images.flatten(1)), classes).backward()
            update(list(second.parameters()))
    return trace.report


@ill(
    "TM309", line=".backward()", subject="second.0.weight", says=("in 4 of 5 updates", "`second[0].weight.grad = None`")
)
def the_second_of_two_networks_that_is_updated_by_hand():
    def update(parameters):
        with torch.no_grad():
            for p in parameters:
                p -= 0.05 * p.grad  # noqa: PLW2901

    return _two_of_one_make(update)


@ill("TM309", line=".backward()", subject="second.0.weight")
def the_second_of_two_networks_that_decays_by_hand():
    """Each parameter's own value goes into its update, and no other's."""

    def update(parameters):
        for p in parameters:
            p.data = p.data - 0.05 * (p.grad + 0.01 * p.data)

    return _two_of_one_make(update)


@ill("TM309", line=".backward()", subject="second.0.weight")
def the_second_of_two_networks_that_is_updated_as_a_list():
    def update(parameters):
        with torch.no_grad():
            torch._foreach_add_(parameters, [p.grad for p in parameters], alpha=-0.05)

    return _two_of_one_make(update)


def _critic(change):
    """WGAN: the critic's weights are to be clipped after each of its steps."""
    critic = mlp(2, 16, 1)
    optimizer = torch.optim.RMSprop(critic.parameters(), lr=5e-3)
    with tm.trace(namespace={"critic": critic, "optimizer": optimizer}) as trace:
        for _ in range(5):
            optimizer.zero_grad()
            (critic(torch.randn(32, 2)).mean() - critic(torch.randn(32, 2) + 3).mean()).backward()
            optimizer.step()
            change(critic)
    return trace.report


@ill("TM617", severity="warning", line="p = p.clamp(-0.01, 0.01)", subject="p", says=(
    "it gives the name p to a new tensor", "`with torch.no_grad(): p.clamp_(-0.01, 0.01)`"))  # fmt: skip
def weights_that_are_clipped_under_a_name():
    def change(critic):
        for p in critic.parameters():
            p = p.clamp(-0.01, 0.01)  # noqa: PLW2901

    return _critic(change)


@ill("TM617", severity="warning", line="p.data.clamp(-0.01, 0.01)", subject="p.data", says=(
    "clamp makes a new tensor, which nothing uses", "`with torch.no_grad(): p.clamp_(-0.01, 0.01)`"))  # fmt: skip
def weights_that_are_clipped_into_nothing():
    """The underscore is missing."""

    def change(critic):
        for p in critic.parameters():
            p.data.clamp(-0.01, 0.01)

    return _critic(change)


@ill("TM617", severity="warning", line="w = torch.mul(w, 0.9)", subject="w", says=("`with torch.no_grad(): w *= 0.9`",))
def weights_that_a_function_decays():
    def decay(w):
        w = torch.mul(w, 0.9)

    return _critic(lambda critic: [decay(p) for p in critic.parameters()])


@ill("TM617", severity="warning", line="t = 0.9 * t + 0.1 * s", subject="t", says=("`t.copy_(0.9 * t + 0.1 * s)`",))
def a_teacher_whose_average_goes_nowhere():
    teacher = mlp(2, 16, 1).requires_grad_(False)

    def change(critic):
        with torch.no_grad():
            for t, s in zip(teacher.parameters(), critic.parameters(), strict=True):
                t = 0.9 * t + 0.1 * s  # noqa: PLW2901

    return _critic(change)


@ill("TM617", severity="warning", line="p.grad.clamp(-1, 1)", subject="p.grad", says=("`p.grad.clamp_(-1, 1)`",))
def gradients_that_are_clipped_into_nothing():
    net = mlp(64, 16, 10)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with tm.trace(namespace={"net": net, "optimizer": optimizer}) as trace:
        for images, classes in batches(5, 16):
            optimizer.zero_grad()
            F.cross_entropy(net(images.flatten(1)), classes).backward()
            for p in net.parameters():
                p.grad.clamp(-1, 1)
            optimizer.step()
    return trace.report
