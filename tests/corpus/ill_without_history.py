"""Code that calls backward on something without a history (TM306), each made so by another line."""

from __future__ import annotations

from contextlib import contextmanager, suppress

import torch
import torch.nn.functional as F
from torch import nn

import tensormagic as tm
from tests.corpus.cases import ill
from tests.corpus.data import batches


@contextmanager
def refused(**namespace):
    """Trace a run that torch ends with an error."""
    with suppress(RuntimeError), tm.trace(namespace=namespace) as trace:
        yield trace


@ill("TM306", severity="error", subject="loss", line="with torch.no_grad():", related=("loss.backward()",),
     says=("loss has no graph for backward", "Move this out of the `torch.no_grad()` block"))  # fmt: skip
def a_training_step_inside_no_grad():
    net = nn.Linear(64, 10)
    with refused(net=net) as trace:
        for images, classes in batches(1):
            with torch.no_grad():
                loss = F.cross_entropy(net(images.flatten(1)), classes)
            loss.backward()
    return trace.report


@ill("TM306", severity="error", subject="loss", line="w = w - 0.1 * w.grad", related=("loss.backward()",),
     says=("an update made a new w, which requires no gradient", "stays one: `w -= 0.1 * w.grad`"))  # fmt: skip
def an_update_by_hand_under_no_grad_that_makes_a_new_leaf():
    w, x, y = torch.ones(3, requires_grad=True), torch.randn(8, 3), torch.randn(8)
    with refused() as trace:
        for _ in range(3):
            loss = (x @ w - y).square().mean()
            loss.backward()
            with torch.no_grad():
                w = w - 0.1 * w.grad
    return trace.report


@ill("TM306", severity="error", subject="loss", line="w = (w - 0.1 * w.grad).detach()", related=("loss.backward()",),
     says=("an update made a new w", "stays one: `with torch.no_grad(): w -= 0.1 * w.grad`"))  # fmt: skip
def an_update_by_hand_that_detaches_the_new_leaf():
    w = torch.ones(3, requires_grad=True)
    with refused() as trace:
        for _ in range(3):
            loss = w.square().sum()
            loss.backward()
            w = (w - 0.1 * w.grad).detach()
    return trace.report


@ill("TM306", severity="error", subject="loss", line="weights = [w - rate * w.grad for w in weights]",
     says=("an update made new tensors for weights", "`for w in weights: w -= rate * w.grad`"))  # fmt: skip
def a_list_of_weights_updated_by_hand():
    weights, rate = [torch.ones(3, requires_grad=True), torch.zeros(1, requires_grad=True)], 0.1
    with refused() as trace:
        for _ in range(3):
            loss = (torch.randn(8, 3) @ weights[0] + weights[1]).square().mean()
            loss.backward()
            with torch.no_grad():
                weights = [w - rate * w.grad for w in weights]
    return trace.report


@ill("TM306", severity="error", subject="loss", line="for w, g in zip(weights, slopes, strict=True)",
     says=("an update made new tensors for weights", "strict=True): w -= 0.1 * g`"))  # fmt: skip
def a_list_of_weights_updated_by_what_autograd_grad_returned():
    weights = [torch.ones(3, requires_grad=True), torch.zeros(1, requires_grad=True)]
    with refused() as trace:
        for _ in range(3):
            loss = (torch.randn(8, 3) @ weights[0] + weights[1]).square().mean()
            slopes = torch.autograd.grad(loss, weights)
            with torch.no_grad():
                weights = [w - 0.1 * g for w, g in zip(weights, slopes, strict=True)]
    return trace.report


@ill("TM306", severity="error", subject="loss", line="w, b = torch.sub(w, 0.1 * w.grad), b - 0.1 * b.grad",
     says=("an update made a new w", "`w -= 0.1 * w.grad; b -= 0.1 * b.grad`"))  # fmt: skip
def two_updates_by_hand_on_one_line():
    w, b = torch.ones(3, requires_grad=True), torch.zeros(1, requires_grad=True)
    with refused() as trace:
        for _ in range(3):
            loss = (torch.randn(8, 3) @ w + b).square().mean()
            loss.backward()
            with torch.no_grad():
                w, b = torch.sub(w, 0.1 * w.grad), b - 0.1 * b.grad
    return trace.report


@ill("TM306", severity="error", subject="loss", line="loss = (torch.tensor(w) * 3).sum()",
     says=("`torch.tensor(...)` cut it off", "`loss = (w * 3).sum()`"))  # fmt: skip
def a_weight_that_goes_through_torch_tensor():
    w = torch.ones(2, requires_grad=True)
    with refused(w=w) as trace:
        loss = (torch.tensor(w) * 3).sum()
        loss.backward()
    return trace.report


@ill("TM306", severity="error", subject="loss", line="argmax(1)", says=("`.argmax()` cut it off",),
     related=("loss.backward()",))  # fmt: skip
def the_accuracy_as_a_loss():
    net = nn.Linear(64, 10)
    with refused(net=net) as trace:
        for images, classes in batches(1):
            guessed = net(images.flatten(1)).argmax(1)
            loss = 1 - (guessed == classes).float().mean()
            loss.backward()
    return trace.report


@ill("TM306", severity="error", line="loss.item()", related=("mean().backward()",), says=("`.item()` cut it off",))
def losses_averaged_as_numbers():
    net = nn.Linear(64, 10)
    with refused(net=net) as trace:
        losses = []
        for images, classes in batches(3):
            loss = F.cross_entropy(net(images.flatten(1)), classes)
            losses.append(loss.item())
        torch.tensor(losses).mean().backward()
    return trace.report


@ill("TM306", severity="error", line="loss.backward()",
     says=("all 2 parameters of backbone are frozen", "`backbone.requires_grad_(True)`"))  # fmt: skip
def everything_frozen_the_new_head_as_well():
    """Transfer learning with the two lines in the wrong order: the new head is frozen with the rest."""
    backbone = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    backbone[1] = nn.Linear(64, 3)
    for parameter in backbone.parameters():
        parameter.requires_grad = False
    with refused(backbone=backbone) as trace:
        for images, classes in batches(1):
            loss = F.cross_entropy(backbone(images), classes % 3)
            loss.backward()
    return trace.report


@ill(
    "TM306", severity="error", subject="y", line="y.backward()", says=("requires_grad=True", "nothing it was made from")
)
def the_first_example_without_requires_grad():
    with refused() as trace:
        x = torch.tensor([2.0, 3.0])
        y = (x**2).sum()
        y.backward()
    return trace.report


@ill("TM306", severity="error", line="loss.backward()", says=("gradients are switched off", "set_grad_enabled(True)"))
def gradients_switched_off_by_an_earlier_evaluation():
    net = nn.Linear(64, 10)
    before = torch.is_grad_enabled()
    torch.set_grad_enabled(False)
    try:
        with refused(net=net) as trace:
            for images, classes in batches(1):
                loss = F.cross_entropy(net(images.flatten(1)), classes)
                loss.backward()
    finally:
        torch.set_grad_enabled(before)
    return trace.report


@ill(
    "TM306",
    severity="error",
    line="output.detach()",
    says=("Leave out `.detach()`", "F.cross_entropy(output, classes)"),
)
def a_criterion_given_a_detached_output():
    net = nn.Linear(64, 10)
    with refused(net=net) as trace:
        for images, classes in batches(1):
            output = net(images.flatten(1))
            loss = F.cross_entropy(output.detach(), classes)
            loss.backward()
    return trace.report


@ill("TM306", severity="error", line="set_grad_enabled", related=("loss.backward()",),
     says=('Move this out of the `torch.set_grad_enabled(phase == "train")` block',))  # fmt: skip
def a_phase_that_is_misspelt():
    """The torchvision tutorial's switch, with another name for the phase."""
    net, phase = nn.Linear(64, 10), "training"
    with refused(net=net) as trace:
        for images, classes in batches(1):
            with torch.set_grad_enabled(phase == "train"):
                loss = F.cross_entropy(net(images.flatten(1)), classes)
            loss.backward()
    return trace.report


@ill("TM306", severity="error", line="scores = net(", says=("`torch.inference_mode()` kept",))
def a_prediction_made_in_inference_mode():
    net = nn.Linear(64, 10)
    with refused(net=net) as trace:
        for images, classes in batches(1):
            with torch.inference_mode():
                scores = net(images.flatten(1))
                loss = F.cross_entropy(scores, classes)
            loss.backward()
    return trace.report


@ill("TM306", severity="error", subject="loss", line="log_prob(action).item()", related=("loss.backward()",),
     says=("`.item()` cut it off", "`chances[at] = spread.log_prob(action)`"))  # fmt: skip
def log_probabilities_written_into_a_buffer_as_numbers():
    """REINFORCE with a preallocated tensor, filled number by number."""
    policy, rewards = nn.Linear(4, 2), torch.ones(5)
    with refused(policy=policy) as trace:
        chances = torch.zeros(5)
        for at, state in enumerate(torch.randn(5, 4)):
            spread = torch.distributions.Categorical(logits=policy(state))
            action = spread.sample()
            chances[at] = spread.log_prob(action).item()
        loss = -(chances * rewards).sum()
        loss.backward()
    return trace.report


@ill(
    "TM306",
    severity="error",
    line="torch.autograd.grad(",
    says=("energy has no graph for backward", "`positions.requires_grad_()`"),
)
def forces_of_positions_that_ask_for_nothing():
    """Physics: the derivative of an energy, whose positions were never told to require grad."""
    with refused() as trace:
        positions = torch.rand(5, 3)
        energy = torch.cdist(positions, positions).sum()
        torch.autograd.grad(energy, positions)
    return trace.report


@ill("TM306", severity="warning", line="F.mse_loss(output.detach(), targets)", says=("`.detach()` cut it off",))
def a_loop_that_skips_every_batch():
    """Whatever fails is skipped, and all of it does."""
    net = nn.Linear(3, 1)
    skipped = 0
    with tm.trace(namespace={"net": net}) as trace:
        for _ in range(3):
            output, targets = net(torch.randn(4, 3)), torch.zeros(4, 1)
            loss = F.mse_loss(output.detach(), targets)
            try:
                loss.backward()
            except RuntimeError:
                skipped += 1
    assert skipped == 3
    return trace.report
