"""Training from cell to cell in which something stands still, as it should: nothing for the watch to tell."""

from __future__ import annotations

import copy

import torch
from torch import nn
from torch.nn import functional as F

import tensormagic as tm
from tests.corpus.cases import healthy
from tests.corpus.ill_standing import CLASSES, X, fit
from tests.corpus.notebooks import Notebook


def classifier() -> nn.Sequential:
    """Return two layers."""
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))


@healthy(nearly="TM601")
def a_backbone_is_unfrozen_after_the_head_was_trained():
    """The optimizer holds all from the beginning; the backbone has no state yet when it is looked at."""
    notebook = Notebook()
    net = classifier()
    net[0].requires_grad_(False)
    opt = torch.optim.Adam(net.parameters(), lr=1e-2)
    notebook.cell(net=net, opt=opt)
    fit(net, opt, steps=30)
    notebook.cell()
    fit(net, opt, steps=30)
    net[0].requires_grad_(True)
    notebook.cell()
    fit(net, opt, steps=3)
    return notebook.cell()


@healthy(nearly="TM601")
def a_group_joins_a_running_optimizer():
    notebook = Notebook()
    net = classifier()
    opt = torch.optim.SGD(net[2].parameters(), lr=0.1, momentum=0.9)
    notebook.cell(net=net, opt=opt)
    fit(net, opt, steps=30)
    opt.add_param_group({"params": net[0].parameters(), "lr": 0.01})
    notebook.cell()
    fit(net, opt, steps=3)
    return notebook.cell()


class Experts(nn.Module):
    """Sends each batch to one of its experts."""

    def __init__(self):
        super().__init__()
        self.experts = nn.ModuleList(nn.Linear(8, 3) for _ in range(4))
        self.shared = nn.Linear(8, 8)

    def forward(self, x, chosen=0):
        return self.experts[chosen](self.shared(x))


@healthy
def experts_that_were_not_chosen_yet():
    """Two of four in thirty steps: a note."""
    notebook = Notebook()
    net = Experts()
    opt = torch.optim.Adam(net.parameters())
    notebook.cell(net=net, opt=opt)
    for step in range(30):
        opt.zero_grad()
        F.cross_entropy(net(X, chosen=step % 2), CLASSES).backward()
        opt.step()
    return notebook.cell()


@healthy(nearly="TM601")
def a_few_steps_only():
    """A layer that is dropped at random may have missed all of them."""
    notebook = Notebook()
    net = Experts()
    opt = torch.optim.Adam([*net.shared.parameters(), *net.experts[0].parameters(), *net.experts[1].parameters()])
    notebook.cell(net=net, opt=opt)
    fit(net, opt, steps=6)
    return notebook.cell()


@healthy(nearly="TM601")
def gradients_that_are_set_to_none_after_every_step():
    """No parameter has a gradient when the cell ends; all of them were trained."""
    notebook = Notebook()
    net = classifier()
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    notebook.cell(net=net, opt=opt)
    fit(net, opt, steps=20)
    net.zero_grad()
    return notebook.cell()


@healthy(nearly="TM601")
def a_generator_and_its_critic_in_turns():
    """Each has its own optimizer, and a cell of its own; the other one stands still."""
    notebook = Notebook()
    generator, critic = nn.Linear(8, 8), nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))
    opt_g, opt_c = torch.optim.Adam(generator.parameters()), torch.optim.Adam(critic.parameters())
    notebook.cell(generator=generator, critic=critic, opt_g=opt_g, opt_c=opt_c)
    for _ in range(20):
        opt_c.zero_grad()
        (critic(generator(X).detach()).mean() - critic(X).mean()).backward()
        opt_c.step()
    notebook.cell()
    for _ in range(20):
        opt_g.zero_grad()
        (-critic(generator(X)).mean()).backward()
        opt_g.step()
    return notebook.cell()


@healthy(nearly="TM601")
def weights_are_loaded_in_the_midst():
    """Going back to the best weights changes all of them in place, by no step."""
    notebook = Notebook()
    net = classifier()
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    best = copy.deepcopy(net.state_dict())
    notebook.cell(net=net, opt=opt, best=best)
    fit(net, opt, steps=15)
    for _ in range(12):
        net.load_state_dict(best)
    return notebook.cell()


@healthy(nearly="TM602")
def an_average_of_the_weights_beside_the_model():
    """A copy that needs gradients like its model, and gets none."""
    notebook = Notebook()
    net = classifier()
    average = copy.deepcopy(net)
    opt = torch.optim.Adam(net.parameters(), lr=1e-2)
    notebook.cell(net=net, average=average, opt=opt)
    for _ in range(15):
        fit(net, opt, steps=1)
        with torch.no_grad():
            for mean, now in zip(average.parameters(), net.parameters(), strict=True):
                mean.lerp_(now, 0.1)
    return notebook.cell()


@healthy
def only_the_head_is_in_the_optimizer():
    """Linear probing without freezing: costs time, and is a note."""
    notebook = Notebook()
    net = classifier()
    opt = torch.optim.Adam(net[2].parameters(), lr=1e-2)
    notebook.cell(net=net, opt=opt)
    fit(net, opt, steps=15)
    return notebook.cell()


@healthy(nearly="TM602")
def the_first_layers_are_updated_by_hand():
    """In no optimizer, and trained all the same."""
    notebook = Notebook()
    net = classifier()
    opt = torch.optim.SGD(net[2].parameters(), lr=0.1)
    notebook.cell(net=net, opt=opt)
    for _ in range(15):
        fit(net, opt, steps=1)
        with torch.no_grad():
            for parameter in net[0].parameters():
                parameter.sub_(parameter.grad, alpha=0.01)
                parameter.grad = None
    return notebook.cell()


@healthy(nearly="TM602")
def the_second_optimizer_lives_in_a_function():
    """No name leads there, but what it holds moves."""
    notebook = Notebook()
    net = classifier()
    opt = torch.optim.Adam(net[0].parameters(), lr=1e-2)
    notebook.cell(net=net, opt=opt)

    def train() -> None:
        second = torch.optim.Adam(net[2].parameters(), lr=1e-3)
        for _ in range(15):
            fit(net, opt, steps=1)
            second.step()

    train()
    return notebook.cell()


@healthy(nearly="TM602")
def gradients_from_an_earlier_phase_are_left_standing():
    """The second phase trains the first layer alone, with the other frozen; its last gradient is still there."""
    notebook = Notebook()
    net = classifier()
    opt = torch.optim.Adam(net.parameters(), lr=1e-2)
    notebook.cell(net=net, opt=opt)
    fit(net, opt, steps=12)
    notebook.cell()
    net[2].requires_grad_(False)
    opt = torch.optim.Adam(net[0].parameters(), lr=1e-2)
    fit(net, opt, steps=12)
    return notebook.cell(opt=opt)


@healthy(nearly="TM601")
def a_single_check_of_a_model_that_learns():
    net = classifier()
    opt = torch.optim.Adam(net.parameters(), lr=1e-2)
    fit(net, opt, steps=20)
    return tm.check({"net": net, "opt": opt})
