"""Hooks that are there once, or several times for a reason: nearly TM319."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations, prune

import tensormagic as tm
from tests.corpus.cases import healthy
from tests.corpus.data import batches, mlp, train_classifier


@healthy(nearly="TM319")
def a_mask_of_its_own_for_each_hook():
    """One line, one weight, and two masks that are given to the function."""
    net = mlp(64, 16, 10)
    masks = [torch.rand(16, 64) > 0.1, torch.rand(16, 64) > 0.1]
    for mask in masks:
        net[0].weight.register_hook(lambda g, m=mask: g * m)
    with tm.trace(namespace={"net": net, "masks": masks}) as trace:
        train_classifier(net, flat=True)
    return trace.report


@healthy(nearly="TM319")
def a_hook_for_each_layer():
    """A factory makes them, each with the name of its layer; two things are kept of each."""
    net, kept = mlp(64, 16, 10), {}

    def keep(name, what):
        def hook(_module, _inputs, output):
            kept[name, what.__name__] = what(output)

        return hook

    for name, layer in net.named_children():
        for what in (torch.mean, torch.std):
            layer.register_forward_hook(keep(name, what))
    with tm.trace(namespace={"net": net}) as trace:
        train_classifier(net, flat=True)
    return trace.report


@healthy(nearly="TM319")
def hooks_that_are_removed_in_each_step():
    """Registered in the loop, and taken off by their handles."""
    net, norms = mlp(64, 16, 10), []
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with tm.trace(namespace={"net": net, "optimizer": optimizer}) as trace:
        for images, classes in batches(5):
            handles = [p.register_hook(lambda g: norms.append(g.norm())) for p in net.parameters()]
            handles += [net[0].register_forward_hook(lambda _m, _i, output: output.clamp(min=-5))]
            optimizer.zero_grad()
            F.cross_entropy(net(images.flatten(1)), classes).backward()
            optimizer.step()
            for handle in handles:
                handle.remove()
    return trace.report


@healthy(nearly="TM319")
def a_hook_on_what_each_step_makes():
    """The hidden layer is another tensor in each step, and the hook goes with it."""
    net = mlp(64, 16, 10)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with tm.trace(namespace={"net": net, "optimizer": optimizer}) as trace:
        for images, classes in batches(6):
            hidden = net[0](images.flatten(1))
            hidden.register_hook(lambda g: g.clamp(-1, 1))
            optimizer.zero_grad()
            F.cross_entropy(net[2](net[1](hidden)), classes).backward()
            optimizer.step()
    return trace.report


class Twice(nn.Module):
    """Calls one layer twice."""

    def __init__(self):
        super().__init__()
        self.first, self.shared, self.last = nn.Linear(64, 16), nn.Linear(16, 16), nn.Linear(16, 10)
        self.again = self.shared

    def forward(self, x):
        return self.last(self.again(self.shared(self.first(x)).relu()).relu())


@healthy(nearly="TM319")
def a_hook_on_a_layer_that_is_shared():
    """The layer has two names and is called twice; it has one hook, and its weight has one."""
    net, seen = Twice(), []
    for layer in net.modules():
        layer.register_forward_hook(lambda _m, _i, output: seen.append(output.shape))
    for parameter in net.parameters():
        parameter.register_hook(lambda g: g / 2)
    with tm.trace(namespace={"net": net}) as trace:
        train_classifier(net, flat=True)
    return trace.report


@healthy(nearly="TM319")
def hooks_of_libraries():
    """Weight normalisation, pruning and a parametrization put hooks of their own on one layer."""
    net = mlp(64, 16, 10)
    for name in ("weight", "bias"):
        prune.random_unstructured(net[0], name, amount=0.2)
    parametrizations.weight_norm(net[2])
    with tm.trace(namespace={"net": net}) as trace:
        train_classifier(net, flat=True)
    return trace.report


class Recorder:
    """Keeps what a layer makes."""

    def __init__(self, layer):
        self.outputs = []
        layer.register_forward_hook(self.keep)

    def keep(self, _module, _inputs, output):
        self.outputs.append(output.detach())


@healthy(nearly="TM319")
def two_recorders_of_one_layer():
    """Each has a list of its own."""
    net = mlp(64, 16, 10)
    recorders = [Recorder(net[0]), Recorder(net[0])]
    with tm.trace(namespace={"net": net, "recorders": recorders}) as trace:
        train_classifier(net, flat=True)
    return trace.report


@healthy(nearly="TM319")
def a_hook_for_each_of_several_losses():
    """Registered before the run, one for each of five tasks, by one line; the run has three steps."""
    net, weights = mlp(64, 16, 10), torch.rand(5)
    for weight in weights:
        net[0].weight.register_hook(lambda g, w=weight: g + w * 1e-4)
    with tm.trace(namespace={"net": net}) as trace:
        train_classifier(net, steps=3, flat=True)
    return trace.report
