"""Optimizers and updates that were written by hand, and closures, as they should be."""

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F

import tensormagic as tm
from tests.corpus.cases import healthy
from tests.corpus.data import batches, mlp
from tests.corpus.ill_by_hand import _close, _critic, _fit
from tests.corpus.ill_two_models import _adapt


class Assigning(torch.optim.Optimizer):
    """Makes new tensors, and puts them in the place of the old ones."""

    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                slope = p.grad.data
                slope = slope + 0.01 * p.data
                p.data = p.data - group["lr"] * slope


class Waiting(torch.optim.Optimizer):
    """Adds up what eight backward passes bring."""

    def __init__(self, parameters, defaults):
        super().__init__(parameters, defaults)
        self.calls = 0

    def zero_grad(self, set_to_none=True):
        if self.calls % 8 == 0:
            super().zero_grad(set_to_none)

    @torch.no_grad()
    def step(self, closure=None):
        self.calls += 1
        for group in self.param_groups if self.calls % 8 == 0 else ():
            for p in group["params"]:
                kept = self.state[p].get("kept", 0)
                kept = kept + p.grad
                self.state[p]["kept"] = kept
                p.sub_(group["lr"] * kept)


@healthy(nearly="TM617")
def an_optimizer_of_the_user_s_that_assigns_data():
    return _fit(Assigning)


@healthy(nearly="TM617")
def an_optimizer_of_the_user_s_that_waits():
    """In a run that is shorter than it waits."""
    return _fit(Waiting, 5)


@healthy(nearly="TM617")
def an_optimizer_of_the_user_s_that_steps_after_eight_passes():
    return _fit(Waiting, 17)


def _clearing(set_to_none, parts=1):
    def closure_of(net, optimizer, loss_of):
        def closure():
            optimizer.zero_grad(set_to_none)
            losses = [loss_of(slice(at, None, parts)) / parts for at in range(parts)]
            for loss in losses:
                loss.backward()
            return sum(loss.detach() for loss in losses)

        return closure

    return closure_of


@healthy(nearly="TM309")
def a_closure_that_clears():
    return _close(_clearing(set_to_none=True), torch.optim.LBFGS)


@healthy(nearly="TM309")
def a_closure_that_writes_zeros():
    return _close(_clearing(set_to_none=False), lambda given: torch.optim.LBFGS(given, line_search_fn="strong_wolfe"))


@healthy(nearly="TM309")
def a_closure_of_several_small_batches():
    return _close(_clearing(set_to_none=True, parts=3), lambda given: torch.optim.LBFGS(given, lr=0.3))


class Sharpness(torch.optim.Optimizer):
    """SAM: the gradient is that of weights a little way up the hill; then another optimizer steps."""

    def __init__(self, parameters):
        super().__init__(parameters, {})
        self.base = torch.optim.SGD(self.param_groups, lr=0.1)

    @torch.no_grad()
    def step(self, closure):
        closure = torch.enable_grad()(closure)
        closure()
        moved = [(p, 0.05 * p.grad / p.grad.norm()) for group in self.param_groups for p in group["params"]]
        for p, up in moved:
            p.add_(up)
        closure()
        for p, up in moved:
            p.sub_(up)
        self.base.step()


@healthy(nearly="TM309")
def a_closure_that_is_called_at_two_places():
    return _close(_clearing(set_to_none=True), Sharpness)


def _averaged(update):
    """A teacher is an average of its student, and gets gradients that nobody uses or clears."""
    net = mlp(64, 16, 10)
    teacher, optimizer = copy.deepcopy(net), torch.optim.SGD(net.parameters(), lr=0.1)
    with tm.trace(namespace={"net": net, "teacher": teacher, "optimizer": optimizer}) as trace:
        for images, classes in batches(6, 16):
            soft, scores = teacher(images.flatten(1)).softmax(1), net(images.flatten(1))
            optimizer.zero_grad()
            (F.cross_entropy(scores, classes) + F.mse_loss(scores.softmax(1), soft)).backward()
            optimizer.step()
            update(list(zip(teacher.parameters(), net.parameters(), strict=True)))
    return trace.report


@healthy(nearly="TM309")
def an_average_that_is_copied_into_its_place():
    def update(pairs):
        with torch.no_grad():
            for mean, p in pairs:
                mean.copy_(0.9 * mean + 0.1 * p)

    return _averaged(update)


@healthy(nearly="TM309")
def an_average_that_goes_by_the_difference():
    def update(pairs):
        with torch.no_grad():
            for mean, p in pairs:
                mean -= 0.1 * (mean - p)  # noqa: PLW2901

    return _averaged(update)


@healthy(nearly="TM309")
def an_average_of_data_and_lists():
    def update(pairs):
        means = [mean.data for mean, _ in pairs]
        torch._foreach_mul_(means, 0.9)
        torch._foreach_add_(means, [p.data for _, p in pairs], alpha=0.1)

    return _averaged(update)


@healthy(nearly="TM303")
def gradients_of_adapted_weights_that_are_handed_over():
    """First-order meta-learning: the gradients at the adapted leaves are those that the optimizer uses."""

    def step(parameters, gradients):
        pairs = zip(parameters.items(), gradients, strict=True)
        return {name: (p.data - 0.1 * g.detach()).requires_grad_() for (name, p), g in pairs}

    def outer(loss, net, fast):
        given = torch.autograd.grad(loss, list(fast.values()))
        for p, g in zip(net.parameters(), given, strict=True):
            p.grad = g

    return _adapt(step, outer)


@healthy(nearly="TM303")
def an_inner_step_with_a_graph():
    def step(parameters, gradients):
        pairs = zip(parameters.items(), gradients, strict=True)
        return {name: p - 0.1 * g for (name, p), g in pairs}

    return _adapt(step, lambda loss, _net, _fast: loss.backward())


@healthy(nearly="TM617")
def weights_that_are_clipped_in_place():
    """As it should be, four ways, the last of which gives the name to what was changed in place."""

    def change(critic):
        for p in critic.parameters():
            p.data.clamp_(-1, 1)
            p.data = p.data.clamp(-0.9, 0.9)
            with torch.no_grad():
                torch.clamp(p, -0.8, 0.8, out=p)
                p = p.clamp_(-0.7, 0.7)  # noqa: PLW2901

    return _critic(change)


@healthy(nearly="TM617")
def names_that_are_bound_again_and_read():
    """What a loop gives a name to is read, kept, or made further in the next round."""
    sizes, kept, late = [], {}, []

    def change(critic):
        scaled = critic[0].weight
        for name, p in critic.named_parameters():
            scaled = scaled * 0.9
            p = p.detach() if name == "" else p * 0.5  # noqa: PLW2901
            sizes.append(p.norm().detach())
        sizes.append(scaled.norm().detach())
        for name, p in critic.named_parameters():
            kept[name] = p = p.data * 0.5  # noqa: PLW2901
        for p in critic.parameters():
            late.append(lambda: p.norm() * 2)  # noqa: B023
            p = p.data * 0.5  # noqa: PLW2901

    return _critic(change)


@healthy(nearly="TM617")
def copies_that_are_handed_on():
    """Methods that are called as torch's are, and keep what they are given; changes whose result is read at once."""

    class Average:
        def __init__(self):
            self.sum = 0.0

        def add(self, x):
            self.sum = self.sum + float(x.sum())

    average = Average()

    def change(critic):
        for p in critic.parameters():
            average.add(p + 1)
            average.add(p.data.clamp(-1, 1))
            p.data.clamp(-1, 1).norm()

    return _critic(change)
