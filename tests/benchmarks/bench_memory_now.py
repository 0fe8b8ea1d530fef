"""What ``%gpumem`` takes over ten thousand live tensors, graph included. Run by ``make bench``."""

from __future__ import annotations

import gc
import time

import pytest
import torch
from torch import nn

import tensormagic as tm

pytestmark = pytest.mark.benchmark

TENSORS = 10_000
SECONDS = 1.0


def session() -> dict:
    """Return names that lead to ten thousand tensors: models, their gradients and Adam's state, losses with graphs."""
    net = nn.Sequential(*(nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4)) for _ in range(200)))
    optimizer = torch.optim.Adam(net.parameters())
    net(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    losses = [net(torch.ones(2, 4)).sum() for _ in range(4)]
    rest = {f"batch_{at}": [torch.zeros(4) for _ in range(100)] for at in range(30)}
    return {"net": net, "optimizer": optimizer, "losses": losses, **rest}


def fastest(action, times: int = 5) -> float:
    """Return the processor time of the shortest of some runs, in seconds."""
    found = []
    for _ in range(times):
        began = time.process_time()
        action()
        found.append(time.process_time() - began)
    return min(found)


def test_ten_thousand_tensors():
    """The report, with what letting go would free, and its text together: under a second."""
    space = session()
    gc.collect()
    report = tm.memory(space)
    tensors = sum(device.tensors for device in report.devices)
    took, told = fastest(lambda: tm.memory(space)), fastest(lambda: str(report), times=2)
    once = fastest(gc.get_objects)
    print(
        f"\n    {tensors} tensors in {sum(one.storages for one in report.devices)} storages, {report.looked} objects: "
        f"{took:.2f} s, its text {told:.2f} s; asking Python for its objects {once:.3f} s"
    )
    assert tensors >= TENSORS
    assert report.gaps == ()
    assert took + told < SECONDS
