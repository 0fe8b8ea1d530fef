"""Hooks that are registered again and again, by each step or by a cell that was run again (TM319)."""

from __future__ import annotations

import functools

import torch
import torch.nn.functional as F
from torch import nn

import tensormagic as tm
from tests.corpus.cases import ill
from tests.corpus.data import batches, mlp, train_classifier


@ill("TM319", severity="warning", line="p.register_hook(lambda g: g * 0.5)", subject="net.0.weight", says=(
    "each have the tensor hook `lambda` 5 times", "each step registers it again", "handle.remove()",
))  # fmt: skip
def gradients_that_shrink_from_step_to_step():
    """The hook stands in the loop: in the fifth step it halves five times."""
    net = mlp(64, 16, 10)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with tm.trace(namespace={"net": net, "optimizer": optimizer}) as trace:
        for images, classes in batches(5):
            for p in net.parameters():
                p.register_hook(lambda g: g * 0.5)
            optimizer.zero_grad()
            F.cross_entropy(net(images.flatten(1)), classes).backward()
            optimizer.step()
    return trace.report


ACTIVATIONS = {}


def keep(name):
    """Return a hook that keeps what the layer of a name makes."""

    def hook(_module, _inputs, output):
        ACTIVATIONS[name] = output.detach()

    return hook


@ill("TM319", severity="note", line="def hook(_module, _inputs, output):", subject="net.0", says=(
    "the forward hook `hook` 3 times", "is called 3 times in each call", "Made anew, the module has none",
))  # fmt: skip
def a_cell_with_hooks_that_was_run_three_times():
    """Each run of the cell makes the functions anew; the model has those of all runs."""
    net = mlp(64, 16, 10)
    for _ in range(3):
        for name, layer in net.named_children():
            layer.register_forward_hook(keep(name))
    with tm.trace(namespace={"net": net}) as trace:
        train_classifier(net, flat=True)
    return trace.report


@ill("TM319", severity="warning", line="def clip(limit, grad):", subject="net.0.weight", says=("clip", "twice"))
def a_model_that_is_set_up_twice():
    """The function that puts hooks on the model is called by the notebook, and by the training function as well."""
    net = mlp(64, 16, 10)

    def clip(limit, grad):
        return grad.clamp(-limit, limit)

    def set_up():
        for parameter in net.parameters():
            parameter.register_hook(functools.partial(clip, 0.01))

    set_up()
    with tm.trace(namespace={"net": net}) as trace:
        set_up()
        train_classifier(net, flat=True)
    return trace.report


class Recorded(nn.Module):
    """Puts its hook on its weight in each forward."""

    def __init__(self):
        super().__init__()
        self.fc, self.norms = nn.Linear(64, 10), []

    def record(self, grad):
        self.norms.append(grad.norm().item())

    def forward(self, x):
        self.fc.weight.register_hook(self.record)
        return self.fc(x)


@ill("TM319", severity="note", line="self.fc.weight.register_hook(self.record)", subject="net.fc.weight", says=(
    "the tensor hook `record` 6 times", "for each gradient",
))  # fmt: skip
def a_hook_on_a_weight_in_every_forward():
    """Of each gradient six norms are in the list, at the end."""
    net = Recorded()
    with tm.trace(namespace={"net": net}) as trace:
        train_classifier(net, flat=True)
    return trace.report


@ill("TM319", severity="warning", line="weight.register_hook(lambda g, f=factor: g * f)", subject="net.0.weight", says=(
    "6 tensor hooks `lambda`", "each step registers one more",
))  # fmt: skip
def a_factor_for_every_step():
    """Each step has a factor of its own, and those of all steps before it."""
    net = mlp(64, 10)
    optimizer, weight = torch.optim.SGD(net.parameters(), lr=0.1), net[0].weight
    with tm.trace(namespace={"net": net, "optimizer": optimizer}) as trace:
        for step, (images, classes) in enumerate(batches(6)):
            factor = 1 / (1 + step)
            weight.register_hook(lambda g, f=factor: g * f)
            optimizer.zero_grad()
            F.cross_entropy(net(images.flatten(1)), classes).backward()
            optimizer.step()
    return trace.report
