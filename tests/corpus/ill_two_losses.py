"""Losses with a term, a target or an advantage that is not what it seems, and random numbers that repeat.

TM313, TM314, TM703, TM704.
"""

from __future__ import annotations

import random

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset

import tensormagic as tm
from tests.corpus.cases import ill
from tests.corpus.data import batches, mlp

# TM313: a term without a gradient


@ill("TM313", severity="note", line="error = wrong.detach().abs().mean()", says=("A term of the loss",),
     related=("loss = F.cross_entropy(scores, classes) + 0.1 * error",))  # fmt: skip
def a_penalty_that_is_detached():
    net = mlp(64, 16, 10)
    with tm.trace(namespace={"net": net}) as trace:
        for images, classes in batches(3):
            scores = net(images.flatten(1))
            wrong = scores - 1
            error = wrong.detach().abs().mean()
            loss = F.cross_entropy(scores, classes) + 0.1 * error
            loss.backward()
    return trace.report


@ill("TM313", severity="note", line="weights = sum(", says=(
    "`.state_dict()` cuts it off from `net.0.weight`", "take the parameters themselves, from `named_parameters()`",
))  # fmt: skip
def a_penalty_on_a_state():
    """Weight decay by hand, over the tensors of ``state_dict()``."""
    net = mlp(64, 16, 10)
    with tm.trace(namespace={"net": net}) as trace:
        for images, classes in batches(3):
            weights = sum(value.square().sum() for value in net.state_dict().values())
            loss = F.cross_entropy(net(images.flatten(1)), classes) + 1e-3 * weights
            loss.backward()
    return trace.report


@ill("TM313", severity="note", line="mistakes = (scores.argmax(1) != classes).float().mean()", says=("argmax",))
def a_share_of_mistakes_in_the_loss():
    """A choice has no slope."""
    net = mlp(64, 16, 10)
    with tm.trace(namespace={"net": net}) as trace:
        for images, classes in batches(3):
            scores = net(images.flatten(1))
            mistakes = (scores.argmax(1) != classes).float().mean()
            (F.cross_entropy(scores, classes) + mistakes).backward()
    return trace.report


@ill(
    "TM313",
    severity="note",
    line="size = torch.tensor(net[0].weight.square().sum())",
    says=("add it after the backward",),
)
def a_decay_that_is_copied_into_a_new_tensor():
    net = mlp(64, 16, 10)
    with tm.trace(namespace={"net": net}) as trace:
        for images, classes in batches(3):
            size = torch.tensor(net[0].weight.square().sum())
            loss = F.cross_entropy(net(images.flatten(1)), classes) + 1e-3 * size
            loss.backward()
    return trace.report


# TM314: advantages and targets


def _episode(actor, critic, x):
    scores, value = actor(x), critic(x).squeeze(-1)
    return torch.distributions.Categorical(logits=scores), value


@ill("TM314", severity="note", line="policy = -(chosen.log_prob(action) * advantage).mean()", subject="advantage",
     related=("advantage = reward - value",))  # fmt: skip
def an_advantage_that_trains_the_critic():
    actor, critic = mlp(4, 8, 2), mlp(4, 8, 1)
    with tm.trace(namespace={"actor": actor, "critic": critic}) as trace:
        for _ in range(3):
            chosen, value = _episode(actor, critic, torch.randn(16, 4))
            action, reward = chosen.sample(), torch.randn(16)
            advantage = reward - value
            policy = -(chosen.log_prob(action) * advantage).mean()
            (policy + advantage.square().mean()).backward()
    return trace.report


@ill("TM314", severity="warning", line="loss = F.smooth_l1_loss(q, target)", subject="target", says=(".detach()",))
def a_q_target_with_a_gradient():
    net = mlp(4, 16, 2)
    with tm.trace(namespace={"net": net}) as trace:
        for _ in range(3):
            x, after, action, reward = (
                torch.randn(16, 4),
                torch.randn(16, 4),
                torch.randint(0, 2, (16, 1)),
                torch.randn(16),
            )
            q = net(x).gather(1, action).squeeze(1)
            target = reward + 0.99 * net(after).max(1).values
            loss = F.smooth_l1_loss(q, target)
            loss.backward()
    return trace.report


@ill(
    "TM314",
    severity="note",
    line="loss = F.mse_loss(value, target)",
    subject="target",
    says=("comes out of the network",),
)
def a_value_target_with_a_gradient():
    critic = mlp(4, 16, 1)
    with tm.trace(namespace={"critic": critic}) as trace:
        for _ in range(3):
            x, after, reward = torch.randn(16, 4), torch.randn(16, 4), torch.randn(16)
            value = critic(x).squeeze(1)
            target = reward + 0.9 * critic(after).squeeze(1)
            loss = F.mse_loss(value, target)
            loss.backward()
    return trace.report


# TM703: seeded again


class Noisy(nn.Module):
    """A classifier with dropout."""

    def __init__(self):
        super().__init__()
        self.body, self.drop, self.head = nn.Linear(64, 16), nn.Dropout(0.3), nn.Linear(16, 10)

    def forward(self, x):
        return self.head(self.drop(self.body(x).relu()))


@ill("TM703", severity="note", line="optimizer.step()", says=("From step 4 of optimizer on", "those from step 1 on"))
def a_seed_in_every_epoch():
    """huggingface/diffusers#175."""
    net = Noisy()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with tm.trace(namespace={"net": net}) as trace:
        for _ in range(3):
            torch.manual_seed(0)
            for images, classes in batches(3):
                optimizer.zero_grad()
                F.cross_entropy(net(images.flatten(1)), classes).backward()
                optimizer.step()
    return trace.report


def _evaluate(net):
    torch.manual_seed(42)
    return net(torch.randn(2, 64))


@ill("TM703", severity="note", line="optimizer.step()", says=("dropout, noise and shuffling repeat",), also=("TM606",))
def an_evaluation_that_seeds():
    """The function that evaluates seeds for its own sake, and the training goes on from there."""
    net = Noisy()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with tm.trace(namespace={"net": net}) as trace:
        for _ in range(4):
            for images, classes in batches(2):
                optimizer.zero_grad()
                F.cross_entropy(net(images.flatten(1)), classes).backward()
                optimizer.step()
            _evaluate(net)
    return trace.report


@ill("TM703", severity="note", line="torch.manual_seed(3)", says=("4 times by this line",), also=("TM701",))
def noise_that_is_the_same_in_every_step():
    with tm.track_rng() as run:
        for _ in range(4):
            torch.manual_seed(3)
            torch.randn(8)
    return run.report


@ill("TM703", severity="note", line="torch.randn(8)", says=("4 times before this line",), also=("TM701",))
def noise_of_a_state_that_is_put_back_in_every_step():
    state = torch.Generator().manual_seed(3).get_state()
    with tm.track_rng() as run:
        for _ in range(4):
            torch.set_rng_state(state)
            torch.randn(8)
    return run.report


# TM704: workers


class Augmented(Dataset):
    """Draws from a generator of its own."""

    def __init__(self, generator):
        self.generator = generator

    def __len__(self):
        return 8

    def __getitem__(self, at):
        return torch.full((4,), float(at)) + float(self.generator.random())


class Stream(IterableDataset):
    """The whole of it, in each worker."""

    def __iter__(self):
        return iter([torch.full((4,), float(at)) for at in range(8)])


def _train(dataset):
    net = nn.Linear(4, 1)
    with tm.trace(namespace={"net": net}) as trace:
        loader = DataLoader(dataset, 4, num_workers=2)
        for x in loader:
            net(x).square().mean().backward()
    return trace.report


@ill(
    "TM704", severity="warning", line="for x in loader:", subject="Augmented", says=("Augmented.generator", "2 workers")
)
def workers_with_one_generator_of_numpy_s():
    return _train(Augmented(np.random.default_rng(0)))


@ill("TM704", severity="warning", line="for x in loader:", subject="Augmented", says=("in every epoch",))
def workers_with_one_generator_of_python_s():
    return _train(Augmented(random.Random(0)))


@ill("TM704", severity="note", line="for x in loader:", subject="Stream", says=("every sample comes 2 times",))
def a_stream_that_every_worker_reads():
    return _train(Stream())


def _act(advantage_of, *, ratio=False):
    """A Gaussian policy and a critic in one loss; ``advantage_of(value, returns)``."""
    actor, critic = mlp(4, 16, 2), mlp(4, 16, 1)
    optimizer = torch.optim.Adam([*actor.parameters(), *critic.parameters()], lr=1e-3)
    with tm.trace(namespace={"actor": actor, "critic": critic, "optimizer": optimizer}) as trace:
        for _ in range(4):
            states, returns = torch.randn(32, 4), torch.randn(32)
            policy, value = torch.distributions.Normal(actor(states), 0.5), critic(states).squeeze(-1)
            chosen = policy.sample()
            score, advantage = policy.log_prob(chosen).sum(-1), advantage_of(value, returns)
            score = (score - score.detach()).exp() if ratio else score
            loss = -(score * advantage).mean() + F.mse_loss(value, returns)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return trace.report


@ill("TM314", severity="note", line="loss = -(score * advantage)", subject="advantage", says=("`advantage.detach()`",))
def an_actor_of_continuous_choices_that_trains_its_critic():
    return _act(lambda value, returns: returns - value)


@ill("TM314", severity="note", line="loss = -(score * advantage)", subject="advantage", says=("of its own",))
def a_ratio_of_continuous_choices_that_trains_its_critic():
    """Proximal policy optimization; the advantages are standardised."""
    return _act(lambda value, returns: (returns - value - (returns - value).mean()) / value.std(), ratio=True)


def _penalised(loss_of):
    """A classifier whose loss is ``loss_of(net, scores, classes)``."""
    net = mlp(64, 16, 10)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    with tm.trace(namespace={"net": net, "optimizer": optimizer}) as trace:
        for images, classes in batches(4, 16):
            optimizer.zero_grad()
            loss_of(net, net(images.flatten(1)), classes).backward()
            optimizer.step()
    return trace.report


@ill("TM313", severity="note", line="10 * penalty.item()", subject="penalty", says=(
    "cuts it off from `penalty`", "`loss = F.cross_entropy(scores, classes) + 10 * penalty`"))  # fmt: skip
def a_penalty_that_is_a_number_with_a_factor():
    def loss_of(net, scores, classes):
        penalty = sum(p.square().sum() for p in net.parameters())
        loss = F.cross_entropy(scores, classes) + 10 * penalty.item()
        return loss  # noqa: RET504  (the line is what the finding is about)

    return _penalised(loss_of)


@ill("TM313", severity="note", line="penalty += ", related=("lam * penalty",), says=("`penalty += p.abs().sum()`",))
def a_penalty_that_adds_up_numbers():
    """Python calculates with them; the name is what is known."""

    def loss_of(net, scores, classes):
        lam, penalty = 1e-3, 0.0
        for p in net.parameters():
            penalty += p.abs().sum().item()
        return F.cross_entropy(scores, classes) + lam * penalty

    return _penalised(loss_of)
