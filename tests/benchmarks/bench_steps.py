"""Whole steps of small loops, optimizer included, in steady state: what a person waits for in a tutorial's cell.

Run by ``make bench``. A mode that does nothing, called for each operation, is what memory and writes cannot be below.
"""

from __future__ import annotations

import contextlib
import statistics
import time

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import tensormagic as tm
from tests.benchmarks.overhead import NoOp

pytestmark = pytest.mark.benchmark

ROUNDS, WARM, STEPS = 7, 30, 80
FOLLOWERS = {
    "no-op dispatch mode": lambda _: NoOp(),
    "trace": lambda names: tm.trace(namespace=names),
    "memory": lambda names: tm.track_memory(namespace=names),
    "writes": lambda names: tm.watch_writes(namespace=names),
}


def digits():
    """Return a network of two layers on digits with AdamW, and its step."""
    net = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 10))
    optimizer, x, y = torch.optim.AdamW(net.parameters(), 1e-3), torch.randn(64, 64), torch.randint(0, 10, (64,))

    def step():
        optimizer.zero_grad()
        F.cross_entropy(net(x), y).backward()
        optimizer.step()

    return net, step


def sentences():
    """Return an LSTM over packed sentences with AdamW, and its step."""
    net = nn.ModuleDict(
        {"words": nn.Embedding(50, 16), "cell": nn.LSTM(16, 16, batch_first=True), "head": nn.Linear(16, 2)}
    )
    optimizer = torch.optim.AdamW(net.parameters(), 1e-3)
    tokens, lengths, y = torch.randint(0, 50, (8, 10)), torch.arange(10, 2, -1), torch.randint(0, 2, (8,))

    def step():
        optimizer.zero_grad()
        packed = nn.utils.rnn.pack_padded_sequence(net["words"](tokens), lengths, batch_first=True)
        _, (hidden, _) = net["cell"](packed)
        F.cross_entropy(net["head"](hidden[-1]), y).backward()
        optimizer.step()

    return net, step


def actor_critic():
    """Return a policy and a value over sixteen states with Adam, and its step on one episode."""
    net = nn.ModuleDict({"body": nn.Linear(4, 32), "actor": nn.Linear(32, 2), "critic": nn.Linear(32, 1)})
    optimizer, states = torch.optim.Adam(net.parameters(), 1e-3), torch.randn(16, 4)

    def step():
        features = F.relu(net["body"](states))
        policy, values = torch.distributions.Categorical(logits=net["actor"](features)), net["critic"](features)
        actions = policy.sample()
        advantages = (actions == 1).float() - values.squeeze(1)
        actor = -(policy.log_prob(actions) * advantages.detach()).mean() - 0.01 * policy.entropy().mean()
        optimizer.zero_grad()
        (actor + advantages.square().mean()).backward()
        optimizer.step()

    return net, step


# In a cell, above which no more of the stack is looked at: a test's own is much deeper than that of anybody's loop.
_CELL = compile(
    """
began = time.process_time()
for _ in range(count):
    step()
seconds = (time.process_time() - began) / count
""",
    "<ipython-input-1>",
    "exec",
)


def _timed(step, count):
    names = {"time": time, "step": step, "count": count}
    exec(_CELL, names)
    return names["seconds"]


# By program: the most that each may cost beyond the untraced loop.
@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize(
    ("make", "most"),
    [
        (digits, {"trace": 5.0, "memory": 5.2, "writes": 4.4}),
        (sentences, {"trace": 3.3, "memory": 7.0, "writes": 6.0}),
        (actor_critic, {"trace": 4.9}),
    ],
)
def test_whole_steps(make, most):
    """Each beside the untraced loop before and after it; the median of the rounds."""
    torch.manual_seed(0)
    net, step = make()
    _timed(step, WARM)
    ratios = {name: [] for name in FOLLOWERS}
    for _ in range(ROUNDS):
        for name, follower in FOLLOWERS.items():
            before = _timed(step, STEPS)
            with contextlib.ExitStack() as stack:
                stack.enter_context(follower({"net": net}))
                _timed(step, WARM)
                followed = _timed(step, STEPS)
            ratios[name].append(2 * followed / (before + _timed(step, STEPS)))
    found = {name: statistics.median(each) for name, each in ratios.items()}
    print(f"\n    {make.__name__}: " + ", ".join(f"{name} {ratio:.2f}" for name, ratio in found.items()))
    for name, bound in most.items():
        assert found[name] <= bound, name
