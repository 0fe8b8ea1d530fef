"""What a rank writes of what lies on a device: the same as of a CPU, and nothing is waited for until the end."""

from __future__ import annotations

import json

import pytest
import torch
from torch import nn

import tensormagic as tm
from tensormagic.collectors.training import parallel

dist = torch.distributed
pytestmark = pytest.mark.skipif(not dist.is_available(), reason="this torch has no processes to speak to")


@pytest.fixture
def world():
    """One rank of two, whose collectives reach nobody."""
    dist.init_process_group("fake", rank=0, world_size=2)
    yield
    dist.destroy_process_group()


def unreduced(_state, bucket):
    """Leave gradients as they are: there is nobody to add them to."""
    done = torch.futures.Future()
    done.set_result(bucket.buffer())
    return done


def written(folder, counted=lambda step: None):
    """Train ten steps with a learning rate that is a tensor; return what the rank wrote, without moments."""
    from torch.nn.parallel import DistributedDataParallel

    torch.manual_seed(0)
    net = DistributedDataParallel(nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8)), broadcast_buffers=False)
    net.register_comm_hook(None, unreduced)
    optimizer = torch.optim.SGD(net.parameters(), torch.tensor(0.125))
    with tm.trace(ranks=folder):
        for step in range(10):
            optimizer.zero_grad()
            net(torch.randn(6, 4)).square().mean().backward()
            optimizer.step()
            optimizer.param_groups[0]["lr"].mul_(0.5)
            counted(step)
    del net
    lines = [json.loads(line) for line in (folder / "rank00000.jsonl").read_text().splitlines()]
    for line in lines:
        for name in ("at", "norms", "used", "line", "peak", "moments"):
            line.pop(name, None)
    return lines


@pytest.mark.usefixtures("world")
@pytest.mark.filterwarnings("ignore:`broadcast_buffers`:FutureWarning")
def test_nothing_is_waited_for_and_the_same_is_written(request, tmp_path):
    """Hashes of parameters, buffers and inputs, generators and learning rates; the run's end reads what is left."""
    now = written(tmp_path / "now")
    simulated, waits = request.getfixturevalue("simulated"), []
    later = written(tmp_path / "later", lambda step: waits.append(simulated.counts.waits))
    assert waits == [0] * 10, simulated.counts.readers
    kinds = ("pass", "step", "hash", "buffers", "place", "names")
    for kind in kinds:
        assert [line for line in later if line["k"] == kind] == [line for line in now if line["k"] == kind]
    assert [len([line for line in now if line["k"] == kind]) for kind in kinds] == [10, 10, 6, 6, 1, 1]
    assert [line["lr"] for line in now if line["k"] == "step"] == [[0.125 / 2**step] for step in range(10)]
    assert len({line["forward"]["given"] for line in now if line["k"] == "pass"}) == 10


def hashes(*tensors):
    found = [-1] * len(tensors)
    parallel.hash_each(tensors, None, found.__setitem__)
    return found


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.int8])
def test_a_hash_does_not_depend_on_pieces_or_order(dtype, monkeypatch):
    """A large parameter is read in pieces; a layout is none of its values, but one value more makes another hash."""
    x = torch.randn(6, 4, 5, 3).mul(40).to(dtype)
    whole, _ = hashes(x, x)
    others = hashes(x.to(memory_format=torch.channels_last), x.mT, x.flip(0))
    assert others == [whole] * 3
    assert hashes(x[:, :, ::2].repeat_interleave(2, 2)) != [whole]
    changed = x.clone()
    changed[0, 0, 0, 0] += 1
    assert hashes(changed) != [whole]
    monkeypatch.setattr(parallel, "_PIECE", 7)
    assert hashes(x, x[:0]) == [whole, 0]
    assert hashes(x[0, 0, 0, 0]) != [whole]
    assert hashes(torch.zeros(3)) != [0], "it is read"


def test_parameters_that_are_gone_at_the_end_are_not_compared(tmp_path):
    """A function that owns its model returns on one rank, and fails on another, whose error holds the model still."""

    def train():
        net = nn.Linear(4, 2)
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        for _ in range(3):
            net(torch.randn(6, 4)).square().mean().backward()
            optimizer.step()

    with tm.trace(ranks=tmp_path):
        train()
    lines = [json.loads(line) for line in (tmp_path / "rank00000.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if line["k"] == "hash"] == [0, 1, 2]
