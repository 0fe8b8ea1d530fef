"""What only a GPU can show: its counters, events and streams, compared with what torch counts itself."""

from __future__ import annotations

import gc
import pickle
import warnings
from collections.abc import Iterator

import pytest
import torch
from torch import nn

import tensormagic as tm
from tensormagic.collectors.memory.freed import free_session

DEVICE = "cuda:0"
MIB = 2**20

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device here"),
]


@pytest.fixture(autouse=True)
def _nothing_of_others() -> Iterator[None]:
    """Begin and end with an empty cache and no recording."""
    gc.collect()
    torch.cuda.init()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    yield
    torch.cuda.memory._record_memory_history(None)
    torch.cuda.set_sync_debug_mode("default")


def trained() -> dict[str, object]:
    """Return a model, its optimizer and a loss after a step, on the device."""
    net = nn.Sequential(nn.Linear(1024, 2048), nn.ReLU(), nn.Linear(2048, 512)).to(DEVICE)
    optimizer = torch.optim.Adam(net.parameters())
    x = torch.randn(256, 1024, device=DEVICE)
    net(x).square().mean().backward()
    optimizer.step()
    return {"net": net, "optimizer": optimizer, "x": x, "loss": net(x).square().mean()}


def test_the_counters_are_torchs_and_what_was_found_explains_them():
    """Allocated and reserved are the allocator's own; the storages found are that but for roundings and workspaces."""
    before = torch.cuda.memory_allocated()
    names = trained()
    report = tm.memory(names, devices="cuda")
    (device,) = report.devices
    assert (device.allocated, device.reserved) == (torch.cuda.memory_allocated(), torch.cuda.memory_reserved())
    assert device.peak == torch.cuda.max_memory_allocated() >= device.allocated
    workspaces = torch.cuda.memory_allocated() - before - device.live  # those of cuBLAS have no tensor
    assert 0 <= workspaces < 64 * MIB
    assert device.total > device.reserved >= device.allocated >= device.live > 0


def test_categories_are_what_the_model_takes():
    """Parameters and gradients by their own bytes, Adam's state twice that and its counters, a graph's results."""
    names = trained()
    weights = sum(each.nbytes for each in names["net"].parameters())
    found = dict(tm.memory(names, only=names).by(lambda one: one.category))
    assert found["parameter"] == found["gradient"] == weights
    assert 2 * weights <= found["optimizer state"] <= 2 * weights + 4096
    assert found["saved for backward"] >= 256 * 2048 * 4


def test_an_allocation_that_fails_is_told():
    """``torch.OutOfMemoryError`` of the device itself: what was asked for, what was there, and who holds what."""
    kept = torch.zeros(MIB, device=DEVICE)
    with pytest.raises(torch.OutOfMemoryError), tm.track_memory() as run:
        torch.empty(2**45, dtype=torch.uint8, device=DEVICE)
    told = run.report.out_of_memory
    assert (told.device, told.asked) == (DEVICE, 2**45)
    assert told.total == pytest.approx(torch.cuda.mem_get_info()[1], rel=0.01)
    assert any("kept" in one.name and one.nbytes == kept.nbytes for one in run.report.at_end)


def test_letting_go_of_outputs_gives_memory_back():
    """What ``--free --yes`` reports as gained is by how much the allocator's own counters fall."""
    output = torch.zeros(16 * MIB, device=DEVICE)
    names = {"__name__": "__main__", "_oh": {3: output}, "Out": {}, "_3": output, "_": output}
    names["Out"] = names["_oh"]
    del output
    allocated, reserved = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
    report = free_session(names, drop=True)
    (gain,) = (one for one in report.gains if one.device == DEVICE)
    assert report.freed == report.nbytes == 64 * MIB
    assert gain.allocated == allocated - torch.cuda.memory_allocated() == 64 * MIB
    assert gain.reserved == reserved - torch.cuda.memory_reserved() >= 64 * MIB


def test_a_real_snapshot_adds_up(tmp_path):
    """Read from a file with two streams and a block that waits: the sums are the allocator's own counters."""
    torch.cuda.memory._record_memory_history(max_entries=10_000)
    side = torch.cuda.Stream()
    kept = [torch.zeros(MIB, device=DEVICE), torch.zeros(3, device=DEVICE)]
    with torch.cuda.stream(side):
        kept.append(torch.zeros(2 * MIB, device=DEVICE))
        kept[-1].mul_(2)
    lent = torch.zeros(4 * MIB, device=DEVICE)
    torch.cuda._sleep(200_000_000)
    lent.record_stream(side)
    with torch.cuda.stream(side):
        torch.cuda._sleep(200_000_000)
    del lent
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(pickle.dumps(torch.cuda.memory._snapshot()))
    allocated, reserved = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
    report = tm.read_snapshot(path)
    report.check()
    (device,) = report.devices
    assert (device.allocated, device.reserved) == (allocated, reserved)
    assert len({segment.stream for segment in report.segments}) == 2
    assert "unknown" not in device.actions
    assert device.peak >= device.requested
    (line,) = (one for one in report.lines if one.location.text.startswith("kept.append"))
    assert line.kept == 8 * MIB
    assert len(kept) == 3


def test_what_a_backward_takes_has_no_line_of_the_allocators_and_is_no_workspace():
    """The engine's thread runs no Python: served there is what its operations returned, and cuBLAS's own."""
    names = trained()
    names["loss"].backward()  # libraries have taken what they keep
    names["net"].zero_grad()
    loss = names["net"](names["x"]).square().mean()
    with tm.track_memory(namespace=names) as run:
        loss.backward()
    (found,) = run.report.allocator
    (nowhere,) = (line for line in found.lines if line.location is None)
    assert nowhere.returned >= sum(each.nbytes for each in names["net"].parameters())
    assert nowhere.served == pytest.approx(nowhere.returned, rel=0.02)


def test_a_recording_that_begins_in_the_run_goes_on_after_it():
    """It is the user's: neither ended nor emptied."""
    x = torch.zeros(9, device=DEVICE)
    with tm.track_memory():
        torch.cuda.memory._record_memory_history(max_entries=500)
        x = x + 1
    assert torch._C._cuda_isHistoryEnabled()
    with tm.track_memory():
        x = x + 1
    assert torch._C._cuda_isHistoryEnabled()


def test_a_cuda_tensor_is_told_whole():
    """Its numbers, where they lie, and that the host's memory beside it is pinned or not."""
    x = torch.arange(1000.0, device=DEVICE)
    report = tm.inspect(x, name="x")
    assert (report.device, report.storage.device, report.nbytes) == (DEVICE, DEVICE, 4000)
    assert (report.statistics.minimum, report.statistics.maximum, report.statistics.mean) == (0.0, 999.0, 499.5)
    assert report.storage.address == x.data_ptr()
    assert tm.inspect(x.cpu().pin_memory(), name="y").storage.pinned
    assert not tm.inspect(x.cpu(), name="y").storage.pinned


def test_a_trace_waits_for_the_device_at_no_node():
    """Numbers are reckoned on the device, and come when they come: torch warns of whatever waits for it."""
    names = trained()
    deep = nn.Sequential(*[nn.Linear(1024, 1024).to(DEVICE) for _ in range(20)])
    with warnings.catch_warnings(record=True) as waits, tm.trace(namespace=names) as trace:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        names["net"](deep(names["x"])).square().mean().backward()
        torch.cuda.set_sync_debug_mode("default")
    assert sum("synchronizing CUDA operation" in str(each.message) for each in waits) == 0
    names["net"].zero_grad()
    with tm.trace(namespace=names) as trace:
        names["net"](names["x"]).square().mean().backward()
    nodes = [node for node in trace.report.nodes if node.statistics is not None]
    assert {node.device for node in nodes} == {DEVICE}
    gradient = next(node for node in nodes if node.variable.endswith("2.weight"))
    expected = torch.autograd.grad(names["loss"], names["net"][2].weight)[0].norm()
    assert gradient.statistics.norm == pytest.approx(float(expected), rel=1e-3)


def test_copies_that_do_not_wait_are_followed():
    """From pinned memory to the device and back, on a stream of their own: both ends count, each on its device."""
    given = torch.ones(MIB).pin_memory()
    side = torch.cuda.Stream()
    with tm.track_memory() as run, torch.cuda.stream(side):
        there = given.to(DEVICE, non_blocking=True)
        back = torch.empty_like(given, pin_memory=True).copy_(there, non_blocking=True)
    side.synchronize()
    assert bool((back == given).all())
    ends = {each.device: each.live[-1] - each.live[0] for each in run.report.timelines}
    assert ends == {"cpu": 4 * MIB, DEVICE: 4 * MIB}
