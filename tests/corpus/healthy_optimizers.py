"""Training in which parameters get gradients that their optimizer does not use just now, on purpose."""

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F
from torch import nn

import tensormagic as tm
from tests.corpus.cases import healthy
from tests.corpus.data import batches, mlp


class ActorCritic(nn.Module):
    """One module, two networks."""

    def __init__(self):
        super().__init__()
        self.actor, self.critic = mlp(4, 16, 2), mlp(6, 16, 1)


@healthy(nearly="TM602")
def one_half_of_an_actor_critic_step():
    """The actor's loss goes through the critic, whose own optimizer stands by."""
    agent = ActorCritic()
    actor_optimizer = torch.optim.Adam(agent.actor.parameters(), 1e-3)
    critic_optimizer = torch.optim.Adam(agent.critic.parameters(), 1e-3)
    with tm.trace(namespace={"agent": agent}) as trace:
        for _ in range(3):
            state = torch.randn(8, 4)
            actor_optimizer.zero_grad()
            (-agent.critic(torch.cat([state, agent.actor(state)], 1))).mean().backward()
            actor_optimizer.step()
    assert critic_optimizer.state == {}
    return trace.report


@healthy(nearly="TM602")
def two_optimizers_share_a_model():
    """Weights with Adam, biases with SGD, in parameter groups of their own."""
    net = mlp(64, 16, 10)
    adam = torch.optim.Adam([{"params": [p for p in net.parameters() if p.ndim > 1], "lr": 1e-3}])
    sgd = torch.optim.SGD([p for p in net.parameters() if p.ndim == 1], lr=1e-2)
    with tm.trace(namespace={"net": net}) as trace:
        for images, classes in batches(3, 16):
            net.zero_grad()
            F.cross_entropy(net(images.flatten(1)), classes).backward()
            adam.step()
            sgd.step()
    return trace.report


@healthy(nearly="TM602")
def one_parameter_is_updated_by_hand():
    """A temperature outside the optimizer, trained all the same."""
    net = nn.Linear(64, 10)
    net.temperature = nn.Parameter(torch.ones(()))
    optimizer = torch.optim.SGD([net.weight, net.bias], lr=0.1)
    with tm.trace(namespace={"net": net}) as trace:
        for images, classes in batches(4, 16):
            net.zero_grad()
            F.cross_entropy(net(images.flatten(1)) / net.temperature, classes).backward()
            optimizer.step()
            with torch.no_grad():
                net.temperature -= 0.01 * net.temperature.grad
    return trace.report


@healthy(family="feature extraction without freezing")
def only_the_head_is_given_to_the_optimizer():
    """The backbone needs gradients that nobody uses: a note says so."""
    net = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    optimizer = torch.optim.SGD(net[2].parameters(), lr=0.1)
    with tm.trace(namespace={"net": net}) as trace:
        for images, classes in batches(3, 16):
            net.zero_grad()
            F.cross_entropy(net(images.flatten(1)), classes).backward()
            optimizer.step()
    assert [(found.code, found.severity) for found in trace.report.findings] == [("TM602", "note")]
    return trace.report


@healthy(nearly="TM604")
def a_moving_average_of_the_weights():
    """A deep copy that no optimizer holds, and that gets no gradients."""
    net = mlp(64, 16, 10)
    average = copy.deepcopy(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with tm.trace(namespace={"net": net, "average": average}) as trace:
        for images, classes in batches(4, 16):
            optimizer.zero_grad()
            F.cross_entropy(net(images.flatten(1)), classes).backward()
            optimizer.step()
            with torch.no_grad():
                torch._foreach_lerp_(list(average.parameters()), list(net.parameters()), 0.1)
                average(images.flatten(1))
    return trace.report


@healthy(nearly="TM604")
def the_model_changes_its_dtype_after_the_optimizer_was_made():
    """``.double()`` changes the parameters in place: they are the same objects."""
    net = mlp(3, 8, 1)
    optimizer = torch.optim.Adam(net.parameters())
    net.double()
    with tm.trace(namespace={"net": net}) as trace:
        for _ in range(3):
            optimizer.zero_grad()
            net(torch.randn(8, 3, dtype=torch.float64)).pow(2).mean().backward()
            optimizer.step()
    return trace.report


@healthy(nearly="TM604")
def the_optimizer_of_a_network_that_rests():
    """Its step does nothing as long as its network is not asked; the other has an optimizer of its own."""
    one, two = mlp(3, 8, 1), mlp(3, 8, 1)
    first, second = torch.optim.SGD(one.parameters(), lr=0.1), torch.optim.SGD(two.parameters(), lr=0.1)
    with tm.trace(namespace={"one": one, "two": two}) as trace:
        for _ in range(3):
            first.zero_grad()
            second.zero_grad()
            one(torch.randn(8, 3)).pow(2).mean().backward()
            first.step()
            second.step()
    return trace.report


@healthy(nearly="TM602")
def a_critic_that_only_hands_the_gradient_on():
    """It has its own optimizer and its own steps; the actor's pass through it."""
    actor, critic = nn.Linear(4, 2), nn.Linear(2, 1)
    a_optimizer, c_optimizer = torch.optim.Adam(actor.parameters()), torch.optim.Adam(critic.parameters())
    with tm.trace(namespace={**locals()}) as trace:
        for _ in range(4):
            states = torch.randn(8, 4)
            c_optimizer.zero_grad()
            critic(actor(states).detach()).square().mean().backward()
            c_optimizer.step()
            a_optimizer.zero_grad()
            critic(actor(states)).mean().neg().backward()
            a_optimizer.step()
    return trace.report


@healthy(nearly="TM622")
def an_optimizer_that_only_clears():
    """The update is made by hand, in a function: its optimizer never steps, and nothing was forgotten."""

    def train():
        net = mlp(64, 16, 10)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        for images, classes in batches(5):
            opt.zero_grad()
            F.cross_entropy(net(images.flatten(1)), classes).backward()
            with torch.no_grad():
                for p in net.parameters():
                    p.sub_(0.1 * p.grad)

    with tm.trace(namespace={}) as trace:
        train()
    return trace.report


@healthy(nearly="TM601")
def a_head_that_is_trained_in_the_second_phase():
    """One optimizer for all: the autoencoder is trained first, then a classifier of its codes."""
    encoder, decoder, head = mlp(64, 16), mlp(16, 64), nn.Linear(16, 10)
    opt = torch.optim.Adam([*encoder.parameters(), *decoder.parameters(), *head.parameters()])
    names = {"encoder": encoder, "decoder": decoder, "head": head, "opt": opt}
    with tm.trace(namespace=names) as trace:
        for number, (images, classes) in enumerate(batches(8)):
            code = encoder(images.flatten(1))
            first = number < 4
            loss = F.mse_loss(decoder(code), images.flatten(1)) if first else F.cross_entropy(head(code), classes)
            opt.zero_grad()
            loss.backward()
            opt.step()
    return trace.report


@healthy(nearly="TM602")
def weights_that_are_replaced_by_hand():
    """The first layer gets a new Parameter in each step, made of the one before; the second has an optimizer."""
    body, head = nn.Linear(64, 16), nn.Linear(16, 10)
    opt = torch.optim.SGD(head.parameters(), lr=0.1)
    with tm.trace(namespace={"body": body, "head": head, "opt": opt}) as trace:
        for images, classes in batches(5):
            opt.zero_grad()
            F.cross_entropy(head(body(images.flatten(1))), classes).backward()
            opt.step()
            body.weight = nn.Parameter(body.weight.detach() - 0.1 * body.weight.grad)
            body.bias = nn.Parameter(body.bias.detach() - 0.1 * body.bias.grad)
    return trace.report


@healthy(nearly="TM602")
def a_second_network_that_is_updated_by_hand():
    """As often as the first one is stepped, later and by `autograd.grad`, which leaves nothing in `.grad`."""
    first, second = mlp(64, 16, 10), mlp(64, 16, 10)
    optimizer = torch.optim.Adam(first.parameters())
    with tm.trace(namespace={"first": first, "second": second, "optimizer": optimizer}) as trace:
        for images, classes in batches(8):
            optimizer.zero_grad()
            F.cross_entropy(first(images.flatten(1)), classes).backward()
            optimizer.step()
        for images, classes in batches(8):
            loss = F.cross_entropy(second(images.flatten(1)), classes)
            grads = torch.autograd.grad(loss, list(second.parameters()))
            with torch.no_grad():
                for p, grad in zip(second.parameters(), grads, strict=True):
                    p.sub_(grad, alpha=0.05)
    return trace.report
