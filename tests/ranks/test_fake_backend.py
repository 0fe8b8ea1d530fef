"""One rank of many, in this process alone: torch's fake backend has collectives that reach nobody."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import tensormagic as tm

dist = torch.distributed
pytestmark = pytest.mark.skipif(not dist.is_available(), reason="this torch has no processes to speak to")


@pytest.fixture
def world():
    """Begin a world of so many ranks; it ends with the test."""

    def begin(size, rank=0):
        dist.init_process_group("fake", rank=rank, world_size=size)

    yield begin
    dist.destroy_process_group()


def net():
    """Return a small model."""
    return nn.Sequential(nn.Linear(8, 16, bias=False), nn.ReLU(), nn.Linear(16, 16, bias=False))


def codes(model, optimizer, level="grad"):
    """Train for three steps; return the codes of what is found."""
    with tm.trace(level=level) as trace:
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.ones(4, 8)).pow(2).sum().backward()
            optimizer.step()
    return [finding.code for finding in trace.report.findings], trace.report


@pytest.mark.parametrize("level", ["grad", "ops"])
@pytest.mark.parametrize("early", [True, False])
def test_an_optimizer_made_before_sharding(world, early, level):
    """It steps what FSDP has replaced; made after it, nothing is found."""
    from torch.distributed.fsdp import fully_shard

    world(2)
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1) if early else None
    fully_shard(model)
    optimizer = optimizer or torch.optim.SGD(model.parameters(), 0.1)
    found, report = codes(model, optimizer, level)
    assert found == (["TM911"] if early else [])
    if early:
        assert "fully_shard() replaced them" in report.findings[0].message


def test_a_model_that_was_made_again_is_told_as_such(world):
    """Of several processes, but not sharded."""
    world(2)
    optimizer = torch.optim.SGD(net().parameters(), 0.1)
    assert codes(net(), optimizer)[0] == ["TM604"]


@pytest.mark.parametrize("left_out", [True, False])
def test_a_large_parameter_that_lies_whole(world, left_out):
    """Beside one that is cut; not where the plan has a place for each."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

    world(4)
    mesh = init_device_mesh("cpu", (4,), mesh_dim_names=("tp",))
    model = net()
    for layer, how in ((model[0], Shard(0)), (model[2], Replicate() if left_out else Shard(1))):
        layer.weight = nn.Parameter(distribute_tensor(layer.weight.detach(), mesh, [how]))
    with tm.trace() as trace:
        x = DTensor.from_local(torch.ones(4, 8), mesh, [Replicate()])
        model(x).sum().backward()
    assert [finding.code for finding in trace.report.findings] == (["TM912"] if left_out else [])
    if left_out:
        assert trace.report.findings[0].message == (
            "Each rank holds 1 of 2 DTensors whole, with 67 % of the elements: Sequential.2.weight is the largest."
        )
