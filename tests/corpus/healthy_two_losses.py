"""Code that is near to TM313, TM314, TM703 and TM704, and is right."""

from __future__ import annotations

import random

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

import tensormagic as tm
from tests.corpus.cases import healthy
from tests.corpus.data import batches, mlp
from tests.corpus.ill_two_losses import Noisy, _act, _penalised


@healthy(nearly="TM313")
def terms_that_are_all_learned_from():
    net = mlp(64, 16, 10)
    with tm.trace(namespace={"net": net}) as trace:
        seen = 0.0
        for images, classes in batches(3):
            scores = net(images.flatten(1))
            loss = F.cross_entropy(scores, classes) + 1e-3 * net[0].weight.square().sum() + 0.5
            loss.backward()
            seen += loss.item() + scores.detach().abs().mean()
    return trace.report


@healthy(nearly="TM313")
def a_loss_that_is_scaled_by_itself():
    """A weight of a term, taken as a number; and a straight-through estimate of a scale."""
    net, scale = mlp(64, 16, 10), nn.Parameter(torch.tensor(1.3))
    with tm.trace(namespace={"net": net, "scale": scale}) as trace:
        for images, classes in batches(3):
            step = scale + (scale.round() - scale).detach()
            scores = net(images.flatten(1)) * step
            first, second = F.cross_entropy(scores, classes), scores.square().mean()
            (first + second * (first / second).detach()).backward()
    return trace.report


@healthy(nearly="TM313")
def actions_whose_probability_is_in_the_loss():
    """A policy gradient: none is to go through the draws; once by `log_prob`, once with the density written out."""
    policy = mlp(8, 16, 2)
    optimizer = torch.optim.Adam(policy.parameters())
    with tm.trace(namespace={"policy": policy, "optimizer": optimizer}) as trace:
        for step in range(6):
            x = torch.randn(32, 8)
            mean = policy(x)
            dist = torch.distributions.Normal(mean, 0.5)
            action = dist.sample() if step % 3 else torch.normal(mean if step else policy(x), 0.5)
            reward = -action.square().sum(1)
            log_prob = dist.log_prob(action) if step % 2 else -((action - mean) ** 2) / 0.5
            loss = -(log_prob.sum(1) * (reward - reward.mean())).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return trace.report


@healthy(nearly="TM314")
def an_advantage_that_is_a_number():
    actor, critic = mlp(4, 8, 2), mlp(4, 8, 1)
    with tm.trace(namespace={"actor": actor, "critic": critic}) as trace:
        for _ in range(3):
            x, reward = torch.randn(16, 4), torch.randn(16)
            chosen, value = torch.distributions.Categorical(logits=actor(x)), critic(x).squeeze(-1)
            action = chosen.sample()
            advantage = (reward - value).detach()
            old = chosen.log_prob(action).detach()
            ratio = (chosen.log_prob(action) - old).exp()
            policy = -torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
            (policy + F.mse_loss(value, reward) - 0.01 * chosen.entropy().mean()).backward()
    return trace.report


@healthy(nearly="TM314")
def targets_of_other_networks():
    """A frozen target network, a consistency of two views, and an autoencoder's own input."""
    net, target = mlp(4, 16, 2), mlp(4, 16, 2)
    with tm.trace(namespace={"net": net, "target": target}) as trace:
        for _ in range(3):
            x, after, reward = torch.randn(16, 4), torch.randn(16, 4), torch.randn(16)
            with torch.no_grad():
                wanted = reward + 0.99 * target(after).max(1).values
            both = F.mse_loss(net(x), net(x + 0.1))
            (F.mse_loss(net(x)[:, 0], wanted) + both).backward()
    return trace.report


@healthy(nearly="TM703")
def models_that_are_compared_with_one_seed():
    with tm.trace() as trace:
        for _ in range(3):
            torch.manual_seed(0)
            net = Noisy()
            optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
            for images, classes in batches(3):
                optimizer.zero_grad()
                F.cross_entropy(net(images.flatten(1)), classes).backward()
                optimizer.step()
    return trace.report


@healthy(nearly="TM703")
def an_evaluation_in_a_fork_of_the_generator():
    net = Noisy()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with tm.trace(namespace={"net": net}) as trace:
        for _ in range(3):
            for images, classes in batches(2):
                optimizer.zero_grad()
                F.cross_entropy(net(images.flatten(1)), classes).backward()
                optimizer.step()
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(42)
                torch.randn(8)
    return trace.report


class Drawing(Dataset):
    """Draws from torch's own generator, which each worker has its own seed for."""

    def __init__(self):
        self.order = random.Random(0).sample(range(8), 8)

    def __len__(self):
        return 8

    def __getitem__(self, at):
        return torch.full((4,), float(self.order[at])) + torch.rand(4)


class Sharded(IterableDataset):
    """Gives each worker its share."""

    def __iter__(self):
        worker = get_worker_info()
        first, step = (worker.id, worker.num_workers) if worker is not None else (0, 1)
        return iter([torch.full((4,), float(at)) for at in range(first, 8, step)])


def _train(loader):
    net = nn.Linear(4, 1)
    with tm.trace(namespace={"net": net}) as trace:
        for x in loader:
            net(x).square().mean().backward()
    return trace.report


@healthy(nearly="TM704")
def workers_that_draw_from_torch():
    return _train(DataLoader(Drawing(), 4, num_workers=2))


@healthy(nearly="TM704")
def a_stream_in_shares():
    return _train(DataLoader(Sharded(), 4, num_workers=2))


@healthy(nearly="TM314")
def an_actor_of_continuous_choices_and_its_critic():
    return _act(lambda value, returns: (returns - value).detach())


@healthy(nearly="TM314")
def a_ratio_of_continuous_choices_and_its_critic():
    return _act(lambda value, returns: returns - value.detach(), ratio=True)


@healthy(nearly="TM314")
def a_square_that_weighs_a_difference():
    """A polynomial of what a network makes: nothing was chosen."""
    net = mlp(8, 16, 2)
    with tm.trace(namespace={"net": net}) as trace:
        for _ in range(3):
            y = net(torch.randn(8, 8))
            (-((y - 1) ** 2) * (y - 3)).mean().backward()
            net.zero_grad()
    return trace.report


@healthy(nearly="TM313")
def losses_that_are_divided_by_their_numbers():
    def loss_of(net, scores, classes):
        near, small = F.cross_entropy(scores, classes), net[0].weight.abs().sum()
        return near / near.item() + small / small.item()

    return _penalised(loss_of)


@healthy(nearly="TM313")
def a_factor_that_is_a_quotient_of_numbers():
    def loss_of(net, scores, classes):
        near, small = F.cross_entropy(scores, classes), net[0].weight.abs().sum()
        weight = near.item() / small.item()
        return near + weight * small

    return _penalised(loss_of)


@healthy(nearly="TM313")
def a_penalty_whose_number_is_shown():
    shown = []

    def loss_of(net, scores, classes):
        penalty = net[0].weight.abs().sum()
        number = 10 * penalty.item()
        shown.append(number + 1)
        return F.cross_entropy(scores, classes) + 10 * penalty

    return _penalised(loss_of)


@healthy(nearly="TM313")
def scores_that_are_scaled_by_a_number():
    def loss_of(net, scores, classes):
        largest = net[0].weight.abs().max().item()
        return F.cross_entropy(scores / (largest + 1e-6), classes) + 0.0

    return _penalised(loss_of)
