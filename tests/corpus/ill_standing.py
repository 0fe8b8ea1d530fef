"""Parameters that stand still while their model is trained, seen from cell to cell: TM601 and TM602 of the watch."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

import tensormagic as tm
from tests.corpus.cases import ill
from tests.corpus.notebooks import Notebook

X, CLASSES = torch.linspace(-1, 1, 48).reshape(6, 8), torch.tensor([0, 1, 2, 0, 1, 2])


def fit(net, optimizer, steps: int = 12) -> None:
    """Train a classifier."""
    for _ in range(steps):
        optimizer.zero_grad()
        F.cross_entropy(net(X), CLASSES).backward()
        optimizer.step()


class Skips(nn.Module):
    """Written for a skip connection that forward forgets."""

    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(8, 16)
        self.skip = nn.Linear(8, 16)
        self.fc2 = nn.Linear(16, 3)

    def forward(self, x):
        return self.fc2(self.fc1(x).relu())


@ill("TM601", severity="warning", subject="net.skip.weight", line="self.skip = nn.Linear(8, 16)",
     says=("opt holds net.skip and had no gradient for it in 12 steps", "2 of the 6 parameters of net",
           "`net.skip.requires_grad_(False)`"))  # fmt: skip
def a_layer_that_forward_forgets():
    """The model in one cell, the optimizer in the next, the training in the third."""
    notebook = Notebook()
    net = Skips()
    notebook.cell(net=net)
    opt = torch.optim.Adam(net.parameters(), lr=1e-2)
    notebook.cell(opt=opt)
    fit(net, opt)
    return notebook.cell()


class Detached(nn.Module):
    """The encoder's output is detached, as it once was for a plot."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(8, 16), nn.ReLU())
        self.head = nn.Linear(16, 3)

    def forward(self, x):
        return self.head(self.encoder(x).detach())


@ill("TM601", severity="warning", subject="model.encoder.0.weight", line="self.encoder = nn.Sequential(",
     says=("optimizer holds model.encoder and", "`model.encoder.requires_grad_(False)`"))  # fmt: skip
def an_encoder_that_is_detached():
    """All in one cell, with plain SGD, which keeps no state: the version counters tell."""
    notebook = Notebook()
    model = Detached()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    fit(model, optimizer)
    return notebook.cell(model=model, optimizer=optimizer)


class Unlooped(nn.Module):
    """A loop that leaves out the last block, which is unlike the others."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 4)])
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        for block in self.blocks[:-1]:
            x = block(x).tanh()
        return self.head(x)


@ill("TM601", severity="note", subject="net.blocks.2.weight", says=("had no gradient for it in 10 steps",))
def a_loop_over_too_few_blocks():
    """A block in a list: which of them are used may be for the data to choose, so that it is only noted."""
    notebook = Notebook()
    net = Unlooped()
    opt = torch.optim.AdamW(net.parameters())
    notebook.cell(net=net, opt=opt)
    for _ in range(5):  # a step or two a cell
        fit(net, opt, steps=2)
        found = notebook.cell()
    return found


@ill("TM601", severity="note", subject="net.skip.weight", says=("had no gradient for it in 25 steps",))
def a_single_check_after_the_training():
    """Nobody watched: it might have been unfrozen a moment ago."""
    net = Skips()
    opt = torch.optim.RMSprop(net.parameters(), lr=1e-3)
    fit(net, opt, steps=25)
    return tm.check({"net": net, "opt": opt})


@ill("TM602", severity="warning", subject="net.2.weight", says=("net.2 gets gradients but is in no optimizer",
     "opt steps 2 of the 4 parameters of net", 'add_param_group({"params": net[2].parameters()})'))  # fmt: skip
def a_new_head_for_an_old_optimizer():
    """The head is replaced for another data set, the optimizer is not made anew."""
    notebook = Notebook()
    net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 10))
    opt = torch.optim.Adam(net.parameters(), lr=1e-2)
    notebook.cell(net=net, opt=opt)
    net[2] = nn.Linear(16, 3)
    fit(net, opt)
    return notebook.cell()


class Growing(nn.Module):
    """Its second layer is made when its first input is seen."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.third = nn.Linear(8, 16), None, nn.Linear(16, 3)

    def forward(self, x):
        hidden = self.first(x).relu()
        if self.second is None:
            self.second = nn.Linear(hidden.shape[1], 16)
        return self.third(self.second(hidden).relu())


@ill("TM602", severity="warning", subject="net.second.weight", line="sgd = torch.optim.SGD(", says=("net.second",))
def a_layer_that_is_made_in_forward():
    """Plain SGD, and the gradients of what it does not hold are never cleared."""
    notebook = Notebook()
    net = Growing()
    sgd = torch.optim.SGD(net.parameters(), lr=0.05)
    notebook.cell(net=net, sgd=sgd, __file__=__file__)
    fit(net, sgd)
    return notebook.cell()


class Scaled(nn.Module):
    """With a temperature of its own."""

    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(8, 8), nn.Linear(8, 3)
        self.temperature = nn.Parameter(torch.ones(1))

    def forward(self, x):
        return self.head(self.body(x).relu()) / self.temperature


@ill("TM602", severity="warning", subject="net.temperature",
     says=("net.temperature gets gradients", 'add_param_group({"params": [net.temperature]})'))  # fmt: skip
def two_parts_are_named_and_the_third_forgotten():
    """Groups with learning rates of their own, written by hand."""
    notebook = Notebook()
    net = Scaled()
    adamw = torch.optim.AdamW([{"params": net.body.parameters(), "lr": 1e-3}, {"params": net.head.parameters()}])
    notebook.cell(net=net, adamw=adamw)
    fit(net, adamw, steps=15)
    return notebook.cell()
