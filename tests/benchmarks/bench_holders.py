"""What it costs to find who keeps a tensor alive, and to watch an expression. Run by ``make bench``."""

from __future__ import annotations

import time

import pytest
import torch
from torch import nn

from tensormagic.collectors.aliasing.aliases import BUDGET, holders
from tensormagic.collectors.aliasing.expression import evaluate

pytestmark = pytest.mark.benchmark


def fastest(action, times: int = 5) -> float:
    """Return the processor time of the shortest of some runs, in milliseconds."""
    found = []
    for _ in range(times):
        began = time.process_time()
        action()
        found.append(1000 * (time.process_time() - began))
    return min(found)


def notebook() -> dict:
    """Return the names of a middling notebook: a model in training, some batches, results in lists."""
    net = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), 4, enable_nested_tensor=False)
    optimizer = torch.optim.Adam(net.parameters())
    loss = net(torch.randn(2, 4, 16)).square().mean()
    loss.backward(retain_graph=True)
    optimizer.step()
    return {"net": net, "optimizer": optimizer, "loss": loss, "losses": [loss.detach() for _ in range(200)]}


def test_a_middling_notebook():
    """A model, its optimizer with state, a graph and two hundred results: a few milliseconds."""
    space = notebook()
    weight = next(space["net"].parameters())
    took = fastest(lambda: holders(weight, space))
    found = holders(weight, space)
    print(f"\n    {found.looked} objects: {took:.1f} ms, {found.found} holders")
    assert not found.cut
    assert took < 25


def test_a_huge_namespace_stays_within_the_budget():
    """A hundred thousand lists: the search ends at its bound and says so."""
    x = torch.zeros(3)
    space = {"x": x, "many": [[[]] for _ in range(100_000)]}
    took = fastest(lambda: holders(x, space), times=3)
    print(f"\n    given up after {took:.0f} ms")
    assert holders(x, space).cut
    assert took < 1000 * BUDGET.seconds + 100


def test_watching_an_expression():
    """A chain of four calls: under two milliseconds more than ``eval``."""
    space = {"x": torch.arange(12.0).reshape(3, 4)}
    chain = "x.t().contiguous().view(-1)[2:]"
    plain, watched = fastest(lambda: eval(chain, space), 20), fastest(lambda: evaluate(chain, space), 20)
    print(f"\n    eval {plain:.3f} ms, watched {watched:.3f} ms")
    assert watched - plain < 2
