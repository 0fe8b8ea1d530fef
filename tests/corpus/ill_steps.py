"""Loops that step at the wrong moment: on gradients never cleared, cleared too early, used twice, or not called."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

import tensormagic as tm
from tests.corpus.cases import ill
from tests.corpus.data import batches, mlp

# -- TM309: gradients accumulate ------------------------------------------------------------------------------------


@ill("TM309", severity="warning", line="optimizer.step()", related=("loss.backward()",), subject="optimizer",
     says=("in 5 of its 6 steps", "`optimizer.zero_grad()`", "net.0.weight.grad"))  # fmt: skip
def zero_grad_left_out():
    """The most asked question of all: the loss falls at first, and then runs away."""
    net = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    with tm.trace(namespace={"net": net, "optimizer": optimizer}) as trace:
        for images, classes in batches(6):
            loss = F.cross_entropy(net(images.flatten(1)), classes)
            loss.backward()
            optimizer.step()
    return trace.report


@ill("TM309", severity="warning", line="optimizer.step()", says=("in 3 of its 4 steps",))
def a_search_over_rates_that_never_clears():
    """One line, and an optimizer in each round: it is told once."""

    def train(rate):
        net = nn.Linear(64, 10)
        optimizer = torch.optim.SGD(net.parameters(), lr=rate)
        for images, classes in batches(4):
            F.cross_entropy(net(images.flatten(1)), classes).backward()
            optimizer.step()

    with tm.trace() as trace:
        for rate in (0.01, 0.1, 1.0):
            train(rate)
    return trace.report


@ill("TM309", line="loss.backward()", subject="w", says=("w.grad is not zeroed between updates", "`w.grad = None`"))
def linear_regression_by_hand_without_clearing():
    """The update is written out, and the line that sets the gradient back is not."""
    x = torch.linspace(-1, 1, 50)
    y = 3 * x + 0.5
    w = torch.zeros(1, requires_grad=True)
    with tm.trace(namespace={"w": w}) as trace:
        for _ in range(8):
            loss = ((w * x - y) ** 2).mean()
            loss.backward()
            with torch.no_grad():
                w -= 0.1 * w.grad
    return trace.report


@ill("TM309", line="optimizer.step()", related=("F.mse_loss(net(x), y).backward()",), says=("9 of its 12 steps",))
def zero_grad_once_an_epoch():
    """It stands in the outer loop, where it was moved to make things faster."""
    net = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    data = [(torch.randn(8, 3), torch.randn(8, 1)) for _ in range(4)]
    with tm.trace(namespace={"net": net, "optimizer": optimizer}) as trace:
        for _ in range(3):
            optimizer.zero_grad()
            for x, y in data:
                F.mse_loss(net(x), y).backward()
                optimizer.step()
    return trace.report


def _changed(change):
    """Train a network that is never cleared; ``change`` alters its gradients before each step."""
    net = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    with tm.trace(namespace={"net": net, "optimizer": optimizer}) as trace:
        for images, classes in batches(6):
            F.cross_entropy(net(images.flatten(1)), classes).backward()
            change(net)
            optimizer.step()
    return trace.report


@ill("TM309", severity="warning", line="optimizer.step()", says=("in 5 of its 6 steps",))
def clipped_and_never_cleared():
    return _changed(lambda net: nn.utils.clip_grad_norm_(net.parameters(), 0.5))


@ill("TM309", severity="warning", line="optimizer.step()", says=("in 5 of its 6 steps",))
def values_clipped_and_never_cleared():
    return _changed(lambda net: nn.utils.clip_grad_value_(net.parameters(), 0.01))


@ill("TM309", severity="warning", line="optimizer.step()", says=("in 5 of its 6 steps",))
def averaged_and_never_cleared():
    """Another tensor takes the place of the gradient, and is the same but for a factor."""

    def halve(net):
        for p in net.parameters():
            p.grad = p.grad / 2

    return _changed(halve)


@ill("TM309", severity="warning", line="optimizer.step()", says=("in 5 of its 6 steps",))
def decayed_by_hand_and_never_cleared():
    def decay(net):
        for p in net.parameters():
            p.grad.add_(p.detach(), alpha=1e-3)

    return _changed(decay)


@ill("TM309", line="head_optimizer.step()", subject="head_optimizer", says=("`head_optimizer.zero_grad()`",))
def the_second_optimizer_is_never_cleared():
    """Two optimizers, one zero_grad: the body's gradients are cleared, the head's are not."""
    body, head = nn.Linear(64, 16), nn.Linear(16, 10)
    body_optimizer = torch.optim.Adam(body.parameters(), 1e-3)
    head_optimizer = torch.optim.SGD(head.parameters(), 1e-2)
    with tm.trace(namespace={**locals()}) as trace:
        for images, classes in batches(5):
            body_optimizer.zero_grad()
            F.cross_entropy(head(body(images.flatten(1)).relu()), classes).backward()
            body_optimizer.step()
            head_optimizer.step()
    return trace.report


# -- TM310: cleared before the step -----------------------------------------------------------------------------------


@ill("TM310", severity="warning", line=".backward()", related=("optimizer.step()",),
     says=("used 3 of 9 backward passes", "clear them after the step"))  # fmt: skip
def gradients_of_micro_batches_that_are_cleared():
    """Accumulation over four batches, and a zero_grad for each: three in four are thrown away."""
    net = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    with tm.trace(namespace={"net": net, "optimizer": optimizer}) as trace:
        for number in range(12):
            optimizer.zero_grad()
            (F.mse_loss(net(torch.randn(8, 3)), torch.randn(8, 1)) / 4).backward()
            if number % 4 == 3:
                optimizer.step()
    return trace.report


@ill("TM310", severity="warning", line=".backward()", related=("opt.step()",), says=("used 2 of 6 backward passes",))
def a_step_that_fell_out_of_the_inner_loop():
    """One update an epoch, from its last batch."""
    net = nn.Linear(3, 1)
    opt = torch.optim.Adam(net.parameters())
    with tm.trace(namespace={"net": net, "opt": opt}) as trace:
        for _ in range(2):
            for _ in range(5):
                opt.zero_grad()
                F.mse_loss(net(torch.randn(8, 3)), torch.randn(8, 1)).backward()
            opt.step()
    return trace.report


@ill("TM310", severity="error", line="optimizer.zero_grad()", related=("loss.backward()", "optimizer.step()"),
     says=("in all of its 4 steps", "nothing is learned"))  # fmt: skip
def zero_grad_between_backward_and_step():
    net = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    optimizer = torch.optim.Adam(net.parameters())
    with tm.trace(namespace={"net": net, "optimizer": optimizer}) as trace:
        for images, classes in batches(4):
            loss = F.cross_entropy(net(images.flatten(1)), classes)
            loss.backward()
            optimizer.zero_grad()
            optimizer.step()
    return trace.report


@ill("TM310", severity="warning", line="optimizer.zero_grad()", related=("loss.backward()", "optimizer.step()"),
     says=("in 4 of its 5 steps",))  # fmt: skip
def the_step_before_the_backward():
    """zero_grad, step, backward: each step finds what zero_grad has left of the backward before."""
    net = nn.Linear(5, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with tm.trace(namespace={"net": net, "optimizer": optimizer}) as trace:
        for _ in range(5):
            loss = (net(torch.randn(12, 5)) - 1).pow(2).mean()
            optimizer.zero_grad()
            optimizer.step()
            loss.backward()
    return trace.report


def train_epoch(model, data, optimizer):
    """One epoch, as a function; the model is cleared where the loss is logged."""
    for x, y in data:
        loss = F.mse_loss(model(x), y)
        loss.backward()
        model.zero_grad(set_to_none=False)
        optimizer.step()


@ill("TM310", severity="error", line="optimizer.step()", related=("loss.backward()",), subject="optimizer")
def the_model_is_cleared_to_zeros():
    """The gradients are there, and zero; the optimizer has no name but inside the function."""
    model = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))
    data = [(torch.randn(8, 3), torch.randn(8, 1)) for _ in range(3)]
    with tm.trace(namespace={"model": model}) as trace:
        train_epoch(model, data, torch.optim.SGD(model.parameters(), lr=0.1))
    return trace.report


# -- TM607: a step without a backward ---------------------------------------------------------------------------------


@ill("TM607", severity="warning", line="optimizer.step()  # and again", related=("optimizer.step()",),
     says=("5 times in 10 steps",))  # fmt: skip
def a_step_too_many():
    """The step stands where the batch ends, and once more where the code was pasted."""
    net = nn.Sequential(nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    with tm.trace(namespace={"net": net, "optimizer": optimizer}) as trace:
        for images, classes in batches(5):
            optimizer.zero_grad()
            F.cross_entropy(net(images.flatten(1)), classes).backward()
            optimizer.step()
            optimizer.step()  # and again
    return trace.report


@ill("TM607", severity="error", line="optimizer.step()", says=("no backward has run", "`loss.backward()"))
def backward_left_out():
    """The loss is made and printed; nobody needs its gradient."""
    net = nn.Linear(64, 10)
    optimizer = torch.optim.Adam(net.parameters())
    losses = []
    with tm.trace(namespace={"net": net, "optimizer": optimizer}) as trace:
        for images, classes in batches(4):
            optimizer.zero_grad()
            loss = F.cross_entropy(net(images.flatten(1)), classes)
            optimizer.step()
            losses.append(loss.item())
    return trace.report


@ill("TM607", severity="warning", line="opt.step()", subject="opt", says=("6 times in 9 steps",))
def the_backward_fell_out_of_the_loop():
    """A wrong indentation: one backward, and several steps on its gradients."""
    net = nn.Linear(4, 1)
    opt = torch.optim.SGD(net.parameters(), lr=0.01)
    with tm.trace(namespace={"net": net, "opt": opt}) as trace:
        for _ in range(3):
            opt.zero_grad()
            net(torch.randn(10, 4)).pow(2).mean().backward()
            for _ in range(3):
                opt.step()
    return trace.report


# -- TM627: a method that is named, and not called ------------------------------------------------------------------


def _looped(loop, count=4):
    """Trace a loop over batches of a model with a dropout: ``loop(net, optimizer, loss)`` in each turn."""
    net = nn.Sequential(nn.Linear(64, 16), nn.Dropout(0.2), nn.ReLU(), nn.Linear(16, 10))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with tm.trace(namespace={"net": net, "optimizer": optimizer}) as trace:
        for images, classes in batches(count):
            loop(net, optimizer, lambda: F.cross_entropy(net(images.flatten(1)), classes))  # noqa: B023
    return trace.report


@ill("TM627", severity="warning", line="optimizer.step", subject="optimizer.step",
     says=("names the method without calling it, so nothing is updated", "`optimizer.step()`"))  # fmt: skip
def a_step_without_parentheses():
    """Python names a method that is not called, and says nothing."""

    def loop(_, optimizer, loss):
        optimizer.zero_grad()
        loss().backward()
        optimizer.step  # noqa: B018  (no call)

    return _looped(loop)


@ill("TM627", severity="warning", line="optimizer.zero_grad", says=("so no gradient is zeroed",))
def a_zero_grad_without_parentheses():
    def loop(_, optimizer, loss):
        optimizer.zero_grad  # noqa: B018  (no call)
        loss().backward()
        optimizer.step()

    return _looped(loop)


@ill("TM627", severity="warning", line="value.backward", says=("so no gradient is computed",))
def a_backward_without_parentheses():
    def loop(_, optimizer, loss):
        optimizer.zero_grad()
        value = loss()
        value.backward  # noqa: B018  (no call)
        optimizer.step()

    return _looped(loop)


@ill("TM627", severity="warning", line="net.train", says=("so the mode does not change",))
def a_train_without_parentheses_after_an_evaluation():
    def loop(net, optimizer, loss):
        net.eval()
        with torch.no_grad():
            loss()
        net.train  # noqa: B018  (no call)
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()

    return _looped(loop)


@ill("TM627", severity="warning", line="scheduler.step", says=("so nothing is updated",))
def a_scheduler_whose_step_is_not_called():
    net = mlp(64, 16, 10)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    with tm.trace(namespace={"net": net, "optimizer": optimizer}) as trace:
        for images, classes in batches(4):
            optimizer.zero_grad()
            F.cross_entropy(net(images.flatten(1)), classes).backward()
            optimizer.step()
            scheduler.step  # noqa: B018  (no call)
    return trace.report
