"""Modules that do not know all of themselves: loose tensors (TM603), plain lists (TM605), broken ties (TM609)."""

from __future__ import annotations

import copy
import math
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import nn

import tensormagic as tm
from tests.corpus.cases import ill
from tests.corpus.data import train_classifier

# -- TM603 ---------------------------------------------------------------------------------------------------------


class Scaled(nn.Module):
    """A learnable temperature that is no Parameter."""

    def __init__(self):
        super().__init__()
        self.body = nn.Linear(64, 10)
        self.temperature = torch.ones(1, requires_grad=True)

    def forward(self, x):
        return self.body(x) / self.temperature


@ill("TM603", severity="warning", subject="net.temperature",
     line="self.temperature = torch.ones(1, requires_grad=True)",
     says=("the optimizer updates 2 parameters of net",
           "`self.temperature = nn.Parameter(torch.ones(1))`"))  # fmt: skip
def a_temperature_that_is_never_updated():
    net = Scaled()
    with tm.trace(namespace={"net": net}) as trace:
        train_classifier(net, flat=True)
    return trace.report


class Attention(nn.Module):
    """Its position bias is moved to the device first, which makes it no Parameter any more."""

    def __init__(self, device=torch.float64):
        super().__init__()
        self.project = nn.Linear(8, 8)
        self.bias = nn.Parameter(torch.zeros(5, 5)).to(device)

    def forward(self, x):
        scores = x @ self.project(x).transpose(1, 2) / math.sqrt(8) + self.bias
        return scores.softmax(-1).to(x.dtype) @ x


@ill("TM603", severity="warning", subject="model.bias", line="self.bias = nn.Parameter(torch.zeros(5, 5)).to(device)",
     says=("model.bias is not a Parameter: ToCopyBackward0 computed it from one", "`model.to(device)`"))  # fmt: skip
def a_parameter_lost_by_moving_it():
    """The forum's most asked one: ``nn.Parameter(…).to(device)`` is the result of an operation."""
    model = Attention()
    return tm.check({"model": model, "optimizer": torch.optim.Adam(model.parameters())})


class Embedder(nn.Module):
    """Scales its Parameter where it is made."""

    def __init__(self, words, size):
        super().__init__()
        self.table = nn.Parameter(torch.randn(words, size)) * 0.02
        self.head = nn.Linear(size, words)

    def forward(self, ids):
        return self.head(self.table[ids])


@ill("TM603", severity="warning", subject="lm.table", line="nn.Parameter(torch.randn(words, size)) * 0.02",
     says=("MulBackward0 computed it from one",))  # fmt: skip
def a_parameter_lost_by_scaling_it():
    return tm.check({"lm": Embedder(20, 4)})


@ill("TM603", severity="warning", subject="net.gate", says=("net.gate requires a gradient", "updates 4 parameters"))
def a_gate_added_from_outside():
    """Added to a finished model, after which the optimizer is made of its parameters."""

    class Gated(nn.Sequential):
        pass

    net = Gated(nn.Linear(4, 4), nn.Linear(4, 1))
    net.gate = torch.zeros(4, requires_grad=True)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    return tm.check({"net": net, "optimizer": optimizer})


# -- TM605 ---------------------------------------------------------------------------------------------------------


class Deep(nn.Module):
    """Hidden layers in a list."""

    def __init__(self, sizes):
        super().__init__()
        self.layers = [nn.Linear(a, b) for a, b in pairwise(sizes)]
        self.head = nn.Linear(sizes[-1], 10)

    def forward(self, x):
        for layer in self.layers:
            x = F.relu(layer(x))
        return self.head(x)


class Repeated(nn.Module):
    """The same layer three times, and in a plain list."""

    def __init__(self):
        super().__init__()
        self.layers = [nn.Linear(4, 4)] * 3
        self.head = nn.Linear(4, 2)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x).tanh()
        return self.head(x)


@ill("TM605", line="self.layers = [", says=("nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])",))
def a_list_of_one_layer_three_times():
    """What registers them makes each of them, or they would share their weights."""
    net = Repeated()
    return tm.check({"net": net, "optimizer": torch.optim.Adam(net.parameters())})


@ill("TM605", severity="warning", subject="net.layers", line="self.layers = [nn.Linear(a, b) for a, b in",
     says=("a plain list of 2 modules", "their 4 parameters (3136 elements)", "which has 2",
           "`self.layers = nn.ModuleList([nn.Linear(a, b) for"))  # fmt: skip
def hidden_layers_in_a_list():
    """The loss goes down, for the head learns."""
    net = Deep((64, 32, 32))
    with tm.trace(namespace={"net": net}) as trace:
        train_classifier(net, flat=True)
    return trace.report


class MultiTask(nn.Module):
    """A head for each task, by name."""

    def __init__(self, tasks):
        super().__init__()
        self.encoder = nn.Linear(64, 16)
        self.heads = {}
        for name, size in tasks.items():
            self.heads[name] = nn.Linear(16, size)

    def forward(self, x, task):
        return self.heads[task](self.encoder(x).relu())


@ill("TM605", severity="warning", subject="model.heads", line="self.heads = {}",
     says=("a plain dict of 2 modules", "`self.heads = nn.ModuleDict()`"))  # fmt: skip
def task_heads_in_a_dictionary():
    model = MultiTask({"digit": 10, "even": 2})
    return tm.check({"model": model, "optimizer": torch.optim.Adam(model.parameters())})


class Ensemble(nn.Module):
    """Keeps what it was given in a tuple."""

    def __init__(self, *members):
        super().__init__()
        self.members = members

    def forward(self, x):
        return torch.stack([member(x) for member in self.members]).mean(0)


@ill("TM605", severity="warning", subject="ensemble.members", line="self.members = members",
     says=("a plain tuple of 3 modules", "which has 0", "`self.members = nn.ModuleList(members)`"))  # fmt: skip
def an_ensemble_without_parameters():
    """``optimizer got an empty parameter list`` is what comes next."""
    return tm.check({"ensemble": Ensemble(nn.Linear(4, 1), nn.Linear(4, 1), nn.Linear(4, 1))})


class Mixture(nn.Module):
    """Weights as a list of Parameters, each with its bias."""

    def __init__(self, experts):
        super().__init__()
        self.gate = nn.Linear(4, experts)
        self.weights = [(nn.Parameter(torch.randn(4, 4)), nn.Parameter(torch.zeros(4))) for _ in range(experts)]

    def forward(self, x):
        outs = torch.stack([x @ weight + bias for weight, bias in self.weights], -1)
        return (outs * self.gate(x).softmax(-1).unsqueeze(1)).sum(-1)


@ill("TM605", severity="warning", subject="moe.weights", line="self.weights = [(nn.Parameter",
     says=("a plain list of 6 parameters", "nn.ParameterList("))  # fmt: skip
def parameters_in_a_list():
    moe = Mixture(3)
    optimizer = torch.optim.SGD(moe.parameters(), lr=0.1)
    with tm.trace(namespace={"moe": moe}) as trace:
        for _ in range(2):
            optimizer.zero_grad()
            moe(torch.ones(2, 4)).square().mean().backward()
            optimizer.step()
    return trace.report


# -- TM609 ---------------------------------------------------------------------------------------------------------


class TiedModel(nn.Module):
    """A language model that reads and writes with one table."""

    def __init__(self, words=20, size=8):
        super().__init__()
        self.emb = nn.Embedding(words, size)
        self.mix = nn.Linear(size, size)
        self.head = nn.Linear(size, words, bias=False)
        self.head.weight = self.emb.weight

    def forward(self, ids):
        return self.head(self.mix(self.emb(ids)))


@ill("TM609", severity="warning", line="self.head.weight = self.emb.weight", subject="lm.head.weight",
     says=("lm.emb.weight and lm.head.weight are two Parameters that share one memory",
           "`lm.head.weight = lm.emb.weight`"))  # fmt: skip
def a_checkpoint_that_is_assigned():
    """``load_state_dict(assign=True)`` gives each name a Parameter of its own (pytorch issue 188346)."""
    saved = TiedModel().state_dict()
    lm = TiedModel()
    lm.load_state_dict(saved, assign=True)
    return tm.check({"lm": lm})


@ill("TM609", severity="warning", subject="model.1.weight", says=("share one memory",))
def a_tie_made_through_data():
    """The memory is shared until the model is moved; gradients and optimizer states never are."""
    model = nn.Sequential(nn.Embedding(20, 8), nn.Linear(8, 20, bias=False))
    model[1].weight.data = model[0].weight.data
    return tm.check({"model": model})


@ill("TM609", severity="warning", subject="lm.head.weight", line="self.head.weight = self.emb.weight",
     says=("were one Parameter and are now two",))  # fmt: skip
def a_new_vocabulary_in_the_middle_of_a_run():
    """The table is made larger for new words; the output layer keeps the old one of equal shape."""
    lm = TiedModel()
    optimizer = torch.optim.SGD(lm.parameters(), lr=0.1)
    with tm.trace(namespace={"lm": lm}) as trace:
        for step in range(4):
            if step == 2:
                lm.emb.weight = nn.Parameter(lm.emb.weight.detach().clone())
            optimizer.zero_grad()
            F.cross_entropy(lm(torch.arange(6)), torch.arange(6)).backward()
            optimizer.step()
    return trace.report


@ill("TM609", severity="warning", subject="lm.head.weight", says=("were one Parameter and are now two",),
     also=("TM601",))  # fmt: skip
def a_head_that_was_copied_by_itself():
    """Deepcopy keeps ties inside what it copies, and breaks those that lead out of it."""
    lm = TiedModel()
    with tm.trace(namespace={"lm": lm}) as trace:
        F.cross_entropy(lm(torch.arange(6)), torch.arange(6)).backward()
        lm.head = copy.deepcopy(lm.head)
    return trace.report


@ill("TM609", severity="note", subject="lm.1.weight", says=("hold the same values, but are two Parameters",))
def a_tied_checkpoint_in_a_model_without_a_tie():
    """Every value is right on the first day."""
    weight = torch.randn(20, 8)
    lm = nn.Sequential(nn.Embedding(20, 8), nn.Linear(8, 20, bias=False))
    lm.load_state_dict({"0.weight": weight, "1.weight": weight})
    return tm.check({"lm": lm})
