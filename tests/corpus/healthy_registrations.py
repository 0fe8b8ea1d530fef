"""Modules with plain attributes that are meant to be: what is registered elsewhere, frozen, remembered, optimized."""

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F
from torch import nn

import tensormagic as tm
from tests.corpus.cases import healthy
from tests.corpus.data import batches, train_classifier

# -- nearly TM603 --------------------------------------------------------------------------------------------------


class Remembering(nn.Module):
    """Keeps its last activation to be looked at, and the attention map without its graph."""

    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(64, 16), nn.Linear(16, 10)
        self.last, self.map = None, None

    def forward(self, x):
        self.last = self.body(x)
        self.map = self.last.detach().softmax(-1)
        return self.head(self.last.relu())


@healthy(nearly="TM603")
def activations_that_are_remembered():
    net = Remembering()
    with tm.trace(namespace={"net": net}) as trace:
        train_classifier(net, flat=True)
    return trace.report


class Recurrent(nn.Module):
    """Keeps both states of its LSTM, which forward assigns as a pair, and weights that a method makes for each call."""

    def __init__(self):
        super().__init__()
        self.rnn, self.head = nn.LSTM(8, 6, batch_first=True), nn.Linear(6, 10)
        self.hidden = None
        self.cell = None

    def init_outputs(self, size):
        self.weights = torch.zeros(size, 8, 1)

    def forward(self, x):
        self.init_outputs(len(x))
        out, (self.hidden, self.cell) = self.rnn(x.unflatten(1, (8, 8)))
        self.weights[:] = out.detach().mean(-1, keepdim=True).softmax(1)
        return self.head((out * self.weights).sum(1))


@healthy(nearly="TM603")
def states_that_forward_assigns_as_a_pair():
    net = Recurrent()
    with tm.trace(namespace={"net": net}) as trace:
        train_classifier(net, flat=True)
    return trace.report


class Registered(nn.Module):
    """Everything at its place."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(10))
        self.register_buffer("mean", torch.zeros(64))
        self.register_buffer("mask", torch.ones(64), persistent=False)
        self.body = nn.Linear(64, 10)

    def forward(self, x):
        return self.body((x - self.mean) * self.mask) * self.scale


@healthy(nearly="TM603")
def parameters_and_buffers_at_their_places():
    net = Registered()
    with tm.trace(namespace={"net": net}) as trace:
        train_classifier(net, flat=True)
    return trace.report


class Prompted(nn.Module):
    """A prompt in front of a frozen model, trained by an optimizer that is given it by hand."""

    def __init__(self):
        super().__init__()
        self.model = nn.Linear(64, 10)
        self.prompt = torch.zeros(64, requires_grad=True)

    def forward(self, x):
        return self.model(x + self.prompt)


@healthy(nearly="TM603")
def a_prompt_that_has_its_own_optimizer():
    net = Prompted()
    with tm.trace(namespace={"net": net}) as trace:
        optimizer = torch.optim.Adam([net.prompt, *net.model.parameters()], lr=0.01)
        for images, classes in batches(3):
            optimizer.zero_grad()
            F.cross_entropy(net(images.flatten(1)), classes).backward()
            optimizer.step()
    return trace.report


# -- nearly TM605 --------------------------------------------------------------------------------------------------


class Ordered(nn.Module):
    """A list in which the layers stand once more, to go through them in order; and a list of functions."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(64, 32), nn.Linear(32, 10)
        self.order = [self.first, self.second]
        self.activations = [nn.ReLU(), nn.Identity()]

    def forward(self, x):
        for layer, activation in zip(self.order, self.activations, strict=True):
            x = activation(layer(x))
        return x


@healthy(nearly="TM605")
def a_list_of_what_is_registered():
    net = Ordered()
    with tm.trace(namespace={"net": net}) as trace:
        train_classifier(net, flat=True)
    return trace.report


class Perceptual(nn.Module):
    """Frozen feature extractors, kept out of the state on purpose."""

    def __init__(self):
        super().__init__()
        self.net = nn.Linear(64, 64)
        self.features = [nn.Linear(64, 16).requires_grad_(False) for _ in range(2)]

    def forward(self, x):
        made = self.net(x)
        return sum(F.mse_loss(f(made), f(x)) for f in self.features)


@healthy(nearly="TM605")
def frozen_features_in_a_list():
    model = Perceptual()
    return tm.check({"model": model, "optimizer": torch.optim.Adam(model.parameters())})


class Averaged(nn.Module):
    """Carries an average of its weights, by name, as copies of the Parameters."""

    def __init__(self):
        super().__init__()
        self.net = nn.Linear(64, 10)
        self.shadow = {name: copy.deepcopy(parameter) for name, parameter in self.net.named_parameters()}

    def forward(self, x):
        return self.net(x)

    @torch.no_grad()
    def update(self):
        for name, parameter in self.net.named_parameters():
            self.shadow[name].lerp_(parameter, 0.1)


@healthy
def an_average_of_the_weights_in_a_dictionary():
    """A note at most: the copies ask for gradients, and never get one."""
    model = Averaged()
    with tm.trace(namespace={"model": model}) as trace:
        for _ in range(3):
            train_classifier(model, steps=1, flat=True)
            model.update()
    return trace.report


class Distilled(nn.Module):
    """Refers to models that have names of their own."""

    def __init__(self, teachers, student):
        super().__init__()
        self.teachers, self.student = teachers, student

    def forward(self, x):
        return F.mse_loss(self.student(x), sum(teacher(x) for teacher in self.teachers))


@healthy(nearly="TM605")
def models_that_have_names_of_their_own():
    large, larger, student = nn.Linear(4, 2), nn.Linear(4, 2), nn.Linear(4, 2)
    return tm.check({"large": large, "larger": larger, "loss": Distilled([large, larger], student)})


# -- nearly TM609 --------------------------------------------------------------------------------------------------


class Tied(nn.Module):
    """One table for reading and writing."""

    def __init__(self):
        super().__init__()
        self.emb, self.head = nn.Embedding(20, 8), nn.Linear(8, 20, bias=False)
        self.head.weight = self.emb.weight

    def forward(self, ids):
        return self.head(self.emb(ids))


@healthy(nearly="TM609")
def a_tie_that_holds():
    """Loading, copying as a whole and changing the precision keep it."""
    lm = Tied()
    with tm.trace(namespace={"lm": lm}) as trace:
        optimizer = torch.optim.SGD(lm.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            F.cross_entropy(lm(torch.arange(6)), torch.arange(6)).backward()
            optimizer.step()
        lm.load_state_dict(copy.deepcopy(lm).state_dict())
        lm.double()
    return trace.report


@healthy(nearly="TM609")
def layers_that_begin_as_copies():
    """nn.TransformerEncoder copies one layer: all begin with the same numbers, and are meant to part."""
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
    return tm.check({"encoder": encoder, "optimizer": torch.optim.Adam(encoder.parameters())})


@healthy(nearly="TM609")
def a_target_network_that_begins_as_a_copy():
    """Double Q-learning: the target is frozen, or follows by hand."""

    class Agent(nn.Module):
        def __init__(self):
            super().__init__()
            self.online = nn.Sequential(nn.Embedding(16, 8), nn.Linear(8, 4))
            self.target = copy.deepcopy(self.online)

    agent = Agent()
    return tm.check({"agent": agent, "optimizer": torch.optim.Adam(agent.online.parameters())})
