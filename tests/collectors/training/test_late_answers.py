"""Steps of an optimizer whose parameters lie on a device: what they are is told without waiting for a number."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest
import torch
from torch import nn

import tensormagic as tm
from tensormagic.collectors.devices import Accelerator, DeferredWork


def _trained(clear, *, steps=40, clip=False, passes=1, norm=False, before_step=lambda optimizer: None):
    layers = [nn.Linear(4, 4), nn.BatchNorm1d(4)] if norm else [nn.Linear(4, 4)]
    net = nn.Sequential(*layers, nn.Linear(4, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    x, y = torch.randn(8, 4), torch.randn(8, 1)
    with tm.trace(namespace={"net": net, "optimizer": optimizer}) as trace:
        for _ in range(steps):
            clear(optimizer)
            for _ in range(passes):
                (net(x) - y).square().mean().backward()
            if clip:
                nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            before_step(optimizer)
            optimizer.step()
    return trace.report


def _zero_through_data(optimizer):
    for parameter in optimizer.param_groups[0]["params"]:
        if parameter.grad is not None:
            parameter.grad.data.zero_()


PROGRAMS = {
    "cleared": {"clear": lambda optimizer: optimizer.zero_grad()},
    "filled with zeros": {"clear": lambda optimizer: optimizer.zero_grad(set_to_none=False)},
    "filled with zeros through .data": {"clear": _zero_through_data},
    "clipped": {"clear": lambda optimizer: optimizer.zero_grad(), "clip": True},
    "never cleared": {"clear": lambda optimizer: None},
    "several passes a step": {"clear": lambda optimizer: optimizer.zero_grad(), "passes": 3},
    "cleared before the step": {"clear": lambda _: None, "before_step": lambda optimizer: optimizer.zero_grad()},
    "emptied before the step": {
        "clear": lambda _: None, "before_step": lambda optimizer: optimizer.zero_grad(set_to_none=False),
    },
    "with a normalisation": {"clear": lambda optimizer: optimizer.zero_grad(), "norm": True},
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_steps_are_judged_as_on_a_cpu_and_nothing_waits(name, request):
    """The same kinds of steps, the same findings; a step that would need an answer at once is left unjudged."""
    now = _trained(**PROGRAMS[name])
    torch.manual_seed(0)
    simulated = request.getfixturevalue("simulated")
    later = _trained(**PROGRAMS[name])
    before_the_end = {reader for reader in simulated.counts.readers if not reader.startswith("simulated")}
    assert before_the_end == set()
    assert [finding.code for finding in later.findings] == [finding.code for finding in now.findings]
    kinds = [
        {pattern.kind: pattern.count for pattern in report.training.optimizers[0].patterns} for report in (now, later)
    ]
    unseen = kinds[1].pop("unseen", 0)
    assert unseen <= 3
    assert kinds[1].keys() <= kinds[0].keys()
    assert sum(kinds[1].values()) + unseen == sum(kinds[0].values())
    assert later.gaps == now.gaps == ()


def test_many_norms_of_a_device_are_read_in_one_go(monkeypatch):
    """Time grows with how many parameters there are, not with its square; what is on a CPU is read among them."""
    monkeypatch.setattr(Accelerator, "holds", lambda _, norm: norm.item() >= 0)
    norms, found = [torch.tensor(float(at or -1), dtype=torch.float64) for at in range(20_000)], []
    late = SimpleNamespace(sent=lambda together, put: put(together.tolist()), then=lambda _, keep: keep())
    began = time.perf_counter()
    DeferredWork.read(late, norms, found.extend)
    assert time.perf_counter() - began < 0.7
    assert found == [-1.0, *map(float, range(1, 20_000))]
