"""What it costs to leave ``%tensormagic watch on``, and what modules add to a traced run. Run by ``make bench``."""

from __future__ import annotations

import time

import pytest
import torch
from torch import nn

import tensormagic as tm
from tensormagic.collectors.objects.identity import ModuleNames
from tensormagic.collectors.session.session_walk import QUICK, THOROUGH
from tensormagic.collectors.session.unregistered import TiedWeights, modules_report
from tensormagic.collectors.session.watching import look

pytestmark = pytest.mark.benchmark


def fastest(action, times: int = 20) -> float:
    """Return the processor time of the shortest of some runs, in milliseconds."""
    found = []
    for _ in range(times):
        began = time.process_time()
        action()
        found.append(1000 * (time.process_time() - began))
    return min(found)


def notebook(layers: int = 4) -> dict:
    """Return the names of a middling notebook: a model in training, some batches, results in lists."""
    net = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), layers, enable_nested_tensor=False
    )
    optimizer = torch.optim.Adam(net.parameters())
    loss = net(torch.randn(2, 4, 16)).square().mean()
    loss.backward()
    optimizer.step()
    return {"net": net, "optimizer": optimizer, "loss": loss, "losses": [0.5] * 10_000, "x": torch.randn(2, 4, 16)}


def test_a_look_at_a_middling_notebook():
    """A model, its optimizer with state, and numbers: at most two and a half steps of that training."""
    space = notebook()
    took = fastest(lambda: look(space, budget=QUICK))

    def step():
        space["net"](space["x"]).square().mean().backward()
        space["optimizer"].step()

    report, trained = look(space, budget=QUICK), fastest(step)
    print(f"\n    {report.looked} objects: {took:.1f} ms, a step of the training {trained:.1f} ms")
    assert report.gaps == ()
    assert took < 2.5 * trained


def test_a_look_at_a_deep_model():
    """A hundred layers, their optimizer's state, and a long list of numbers: at most four steps of that training."""
    deep = nn.Sequential(*(nn.Linear(4, 4) for _ in range(100)))
    optimizer = torch.optim.Adam(deep.parameters(), foreach=False)

    def step():
        deep(torch.ones(1, 4)).sum().backward()
        optimizer.step()

    step()
    space = {"deep": deep, "optimizer": optimizer, "many": list(range(200_000))}
    took, trained = fastest(lambda: look(space, budget=THOROUGH)), fastest(step)
    print(f"\n    a look {took:.1f} ms, a step of the training {trained:.1f} ms")
    assert took < 4 * trained


def test_a_huge_notebook_stays_within_the_bound():
    """A hundred thousand lists: the look ends at its bound and says so."""
    space = {**notebook(), "many": [[[]] for _ in range(100_000)]}
    took = fastest(lambda: look(space, budget=QUICK), times=3)
    print(f"\n    given up after {took:.0f} ms")
    assert look(space, budget=QUICK).gaps
    assert took < 1000 * QUICK.seconds + 100


def test_what_modules_add_to_a_traced_run():
    """Once a module when it is met and once when the run ends: under 3 % of the trace of a single step."""
    space = notebook(layers=12)
    names = ModuleNames(space)
    names.add_root(space["net"])
    ties = TiedWeights()
    ties.remember(space["net"])

    def step():
        with tm.trace(namespace=space):
            space["net"](space["x"]).square().mean().backward()

    took, traced = fastest(lambda: modules_report(names.roots(), space, ties)), fastest(step)
    count = len(list(space["net"].modules()))
    print(f"\n    {count} modules: {took:.2f} ms of {traced:.0f} ms, {1000 * took / count:.1f} us a module")
    assert took < 0.03 * traced
