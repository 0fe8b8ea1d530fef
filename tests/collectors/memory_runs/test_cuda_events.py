"""The CUDA allocator's events, joined to lines and names: hand-made, in the format that torch documents."""

from __future__ import annotations

import linecache
from collections import defaultdict
from contextlib import ExitStack
from types import SimpleNamespace

import pytest
import torch

import tensormagic as tm
from tensormagic.collectors.memory_runs.allocation_log import AllocationLog, Iterations, LineTotals
from tensormagic.collectors.memory_runs.cuda_events import LIMIT, CudaRecording, DeviceFacts, allocator_runs
from tensormagic.collectors.where.caller import own_frame
from tensormagic.reports import Location

TORCH = {"filename": "/usr/lib/python3/site-packages/torch/nn/modules/conv.py", "line": 460, "name": "_conv_forward"}
CONV = {"filename": "/home/me/train.py", "line": 7, "name": "step"}
LOSS = {"filename": "/home/me/train.py", "line": 9, "name": "<module>"}
WHOLE = {"since": 1000.0, "limit": 100}


def event(action: str, addr: int, size: int, *frames: dict, time_us: float = 2000.0) -> dict:
    """Return an event as torch hands it out."""
    return {
        "action": action, "addr": addr, "size": size, "stream": 0, "time_us": time_us, "frames": list(frames),
        "compile_context": "N/A", "user_metadata": "",
    }  # fmt: skip


def freed(addr: int, size: int) -> list[dict]:
    """Return the two events of a free."""
    return [event("free_requested", addr, size), event("free_completed", addr, size)]


def block(address: int, requested: int, *frames: dict, state: str = "active_allocated") -> dict:
    """Return a block of a segment."""
    size = -(-requested // 512) * 512
    return {
        "address": address, "size": size, "requested_size": requested, "state": state, "frames": list(frames)
    }  # fmt: skip


def snapshot(events: list[dict], *blocks: dict, total: int = 2 << 20) -> dict:
    """Return a snapshot of one device with one segment."""
    segment = {"device": 0, "address": 0x1000, "total_size": total, "stream": 0, "segment_type": "small"}
    return {"segments": [{**segment, "blocks": list(blocks)}], "device_traces": [events]}


def convolution() -> dict:
    """Return a convolution whose workspace is gone again, and a loss; another storage was there before."""
    return snapshot(
        [
            event("alloc", 9, 77, CONV, time_us=500.0),
            event("segment_alloc", 0x1000, 2 << 20),
            event("alloc", 0x2000, 4000, TORCH, CONV),
            event("alloc", 0x4000, 100_000, TORCH, CONV),
            *freed(0x4000, 100_000),
            event("alloc", 0x3000, 4, LOSS),
        ],
        block(0x1000, 1000),
        block(0x2000, 4000, TORCH, CONV),
        block(0x3000, 4, LOSS),
        block(0x4000, 512, state="inactive"),
    )


def test_a_workspace_that_no_operation_returned():
    """What the allocator served to a line, less the storages that operations returned there."""
    seen = DeviceFacts({("/home/me/train.py", 7): 4000, ("/home/me/train.py", 9): 4}, 5004, {0x1000, 0x2000})
    (run,) = allocator_runs(convolution(), {0: seen}, **WHOLE)
    assert (run.device, run.events, run.complete) == ("cuda:0", 6, True)
    conv, loss = run.lines
    assert (conv.location.line, conv.location.function) == (7, "step")
    assert (conv.served, conv.returned, conv.workspace, conv.calls, conv.largest) == (
        104_000,
        4000,
        100_000,
        2,
        100_000,
    )
    assert (loss.location.line, loss.location.function, loss.workspace) == (9, "", 0)


def test_what_a_backward_takes_is_no_workspace():
    """On the engine's thread no line runs: what its operations returned there is taken off what was served there."""
    told = snapshot([event("alloc", 1, 4000), event("alloc", 2, 900), *freed(2, 900)], block(1, 4000))
    (run,) = allocator_runs(told, {0: DeviceFacts({None: 4000})}, **WHOLE)
    (line,) = run.lines
    assert (line.location, line.served, line.returned, line.workspace) == (None, 4900, 4000, 900)


class Twice(torch.autograd.Function):
    """A node of the user's own: its backward runs lines of theirs, on the engine's thread, too."""

    @staticmethod
    def forward(_ctx, x):
        """Return twice ``x``."""
        return x * 2

    @staticmethod
    def backward(_ctx, gradient):
        """Return twice the gradient."""
        return gradient * 2


def test_the_engines_own_allocations_belong_to_no_line_of_the_allocators():
    """What a backward's own operations return is asked for by no line, whatever line its forward stands on."""
    x = torch.ones(100, requires_grad=True)
    with tm.track_memory() as run:
        ledger = run._listener._allocation_logs[torch.device("cpu")]
        ledger.served = {}
        y = x.exp()
        loss = Twice.apply(y).sum()
        loss.backward()
    lines = run._listener._sites.locations
    served = {None if site is None else lines[site].text: nbytes for site, nbytes in ledger.served.items()}
    assert served == {"y = x.exp()": 400, "return x * 2": 400, "loss = Twice.apply(y).sum()": 4,
                      "loss.backward()": 4, "return gradient * 2": 400, None: 400}  # fmt: skip
    told = {line.location.text: line.allocated for line in run.report.lines}
    assert told["y = x.exp()"] == 800  # in the table of lines its backward counts there


def test_the_peak_is_that_of_the_events():
    """Exact, as asked for: what was there before, the result and the workspace; beside it what operations returned."""
    (run,) = allocator_runs(convolution(), {0: DeviceFacts({}, 5004)}, **WHOLE)
    assert (run.peak, run.seen_peak, run.reserved) == (1000 + 4000 + 100_000, 5004, 2 << 20)


def test_a_peak_in_what_was_reserved_in_between():
    """A segment that was given back before the end."""
    events = [event("segment_alloc", 1, 8 << 20), event("segment_free", 1, 8 << 20)]
    (run,) = allocator_runs(snapshot(events), {}, **WHOLE)
    assert (run.reserved, run.peak) == (10 << 20, 0)


def test_blocks_over_which_no_tensor_was_found():
    """By the line of the frames that they were allocated from; None where nobody recorded then."""
    (run,) = allocator_runs(convolution(), {0: DeviceFacts(addresses={0x2000})}, **WHOLE)
    assert [(place and place.line, count, nbytes) for place, count, nbytes in run.unnamed] == [
        (None, 1, 1000),
        (9, 1, 4),
    ]


@pytest.mark.parametrize(
    ("since", "limit", "complete"),
    [(1000.0, 3, False), (1000.0, 4, True), (1000.0, 0, False), (2500.0, 0, True)],
)
def test_a_history_that_was_overwritten_has_no_peak(since, limit, complete):
    """As many events as torch keeps, and none from before the run; of another's history nothing is known."""
    events = [event("alloc", at, 10, CONV, time_us=2000.0 + 500 * at) for at in range(3)]
    (run,) = allocator_runs(snapshot(events), {}, since=since, limit=limit)
    assert (run.complete, run.peak is not None, run.reserved is not None) == (complete, complete, complete)


def test_stacks_gathered_while_a_run_is_followed_tell_the_persons_line_and_function():
    """As torch itself gathers them, in the midst of an operation: our stand-in for the caller is no function of theirs.

    It is what the CUDA allocator does with every allocation, and works without a GPU.
    """
    stacks = []

    @torch.library.custom_op("tensormagic_test::gather", mutates_args=())
    def gather(x: torch.Tensor) -> torch.Tensor:
        stacks.append(torch._C._profiler.gather_traceback(True, False, False))
        return x.clone()

    def forward(x):
        return gather(x)

    with tm.track_memory():
        forward(torch.ones(3))
    (frames,) = torch._C._profiler.symbolize_tracebacks(stacks)
    outside = [frame for frame in frames if frame["name"] != "gather"]
    assert "tensormagic_call" in {frame["name"] for frame in outside}
    filename, line, function = own_frame(outside)
    assert (filename, linecache.getline(filename, line).strip(), function) == (__file__, "return gather(x)", "forward")


def test_devices_without_events_are_left_out():
    """The second of two."""
    found = allocator_runs({"segments": [], "device_traces": [[], [event("alloc", 1, 5)]]}, {}, **WHOLE)
    assert [run.device for run in found] == ["cuda:1"]


class Cuda:
    """What is asked of torch.cuda, and what it was told."""

    def __init__(self, *, initialized: bool = True) -> None:
        self.described: list[object] = []
        self.memory = SimpleNamespace(_record_memory_history=self.record, _snapshot=convolution)
        self.is_initialized = lambda: initialized

    def record(self, enabled: str | None, **options: object) -> None:
        self.described.append((enabled, options))


def recorded(cuda: Cuda, *, enabled: bool = False):
    """Record what a fake device did; returns what is said of it, and the recording."""
    recording = CudaRecording(cuda, lambda: enabled, lambda: 0.001)
    with ExitStack() as stack:
        recording.start(stack)
        recording.take()
    return recording.runs([device()], (Location("/home/me/train.py", 7),)), recording


def device() -> AllocationLog:
    """Return what a run knows of the device: 4000 bytes from its one line."""
    ledger = AllocationLog("cuda:0", defaultdict(LineTotals), Iterations())
    ledger.peak, ledger.served = 5004, {0: 4000, None: 8}
    return ledger


def test_recording_is_switched_on_and_off():
    """Python frames only, of allocations only, bounded."""
    cuda = Cuda()
    (run,), recording = recorded(cuda)
    assert cuda.described == [("all", {"context": "alloc", "stacks": "python", "max_entries": LIMIT}), (None, {})]
    assert (run.events, run.seen_peak, recording.gaps) == (6, 5004, ())
    assert (run.lines[0].returned, run.lines[0].workspace) == (4000, 100_000)


def test_what_the_person_records_is_read_and_left_on():
    """Nothing is switched."""
    cuda = Cuda()
    (run,), _ = recorded(cuda, enabled=True)
    assert cuda.described == []
    assert run.complete


def test_cuda_is_not_started_by_looking():
    """Nothing is called where nobody uses it."""
    cuda = Cuda(initialized=False)
    runs, recording = recorded(cuda)
    assert (runs, cuda.described, recording.gaps) == ((), [], ())


def test_cuda_that_begins_in_the_run_is_a_gap():
    """It cannot be recorded from the beginning."""
    cuda = Cuda(initialized=False)
    recording = CudaRecording(cuda, lambda: False)
    recording.start(ExitStack())
    cuda.is_initialized = lambda: True
    recording.take()
    assert [gap.reason for gap in recording.gaps] == [
        "CUDA was initialised in this run: only the allocator events of later runs can be read"
    ]


@pytest.mark.parametrize("enabled", ["all", None])
def test_what_the_person_switches_in_the_run_stays_as_they_set_it(enabled):
    """Theirs is neither ended nor begun anew; of the events before it nothing is said, and torch's function is back."""
    cuda = Cuda()
    switch = cuda.memory._record_memory_history
    recording = CudaRecording(cuda, lambda: False, lambda: 0.001)
    with ExitStack() as stack:
        recording.start(stack)
        assert cuda.memory._record_memory_history.__name__ == switch.__name__
        cuda.memory._record_memory_history(enabled, max_entries=7)
        recording.take()
    assert cuda.described[1:] == [(enabled, {"max_entries": 7})]
    assert cuda.memory._record_memory_history == switch
    assert [gap.reason for gap in recording.gaps] == [
        "recording of allocator events was switched on in this run: only later events can be read"
    ]


def test_events_after_a_switch_are_not_the_whole_run():
    """What was forgotten when the user switched cannot be in a peak."""
    cuda = Cuda()
    cuda.memory._snapshot = lambda: snapshot([event("alloc", 1, 5)], block(1, 5))
    recording = CudaRecording(cuda, lambda: False, lambda: 0.001)
    with ExitStack() as stack:
        recording.start(stack)
        cuda.memory._record_memory_history("all")
        recording.take()
    (run,) = recording.runs([device()], (Location("/home/me/train.py", 7),))
    assert (run.complete, run.peak) == (False, None)


def test_what_goes_wrong_is_a_gap_and_recording_ends_all_the_same():
    """A snapshot that cannot be taken."""
    cuda = Cuda()
    cuda.memory._snapshot = lambda: 1 // 0
    runs, recording = recorded(cuda)
    assert runs == ()
    (gap,) = recording.gaps
    assert gap.reason.startswith("the allocator's own events could not be read: ZeroDivisionError")
    assert cuda.described[-1] == (None, {})


def test_what_cannot_be_switched_on_is_a_gap():
    """An older torch, say."""
    cuda = Cuda()
    cuda.memory._record_memory_history = lambda *_, **__: 1 // 0
    runs, recording = recorded(cuda)
    assert runs == ()
    (gap,) = recording.gaps
    assert gap.reason.startswith("the allocator's own events could not be recorded: ZeroDivisionError")


def test_a_run_without_cuda_has_no_allocators_events():
    """On the CPU nothing of it is asked."""
    with tm.track_memory() as run:
        torch.ones(3)
    assert run.report.allocator == ()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device here")
def test_a_real_convolution_on_a_gpu():
    """The allocator serves at least what the result takes, and its peak is at least that of the storages."""
    x, weight = torch.zeros(8, 3, 64, 64, device="cuda"), torch.zeros(16, 3, 3, 3, device="cuda")
    was = torch._C._cuda_isHistoryEnabled()
    with tm.track_memory() as run:
        y = torch.nn.functional.conv2d(x, weight)
    (found,) = run.report.allocator
    assert found.complete
    assert found.peak >= found.seen_peak >= x.nbytes + weight.nbytes + y.nbytes
    (line,) = (line for line in found.lines if "conv2d" in (line.location.text if line.location else ""))
    assert line.served >= line.returned == y.nbytes
    assert torch._C._cuda_isHistoryEnabled() == was


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device here")
def test_a_training_step_agrees_with_torchs_counters():
    """The peak, and what each line was served, are within 2 % of what torch's allocator has counted itself."""
    net = torch.nn.Sequential(torch.nn.Linear(2048, 4096), torch.nn.ReLU(), torch.nn.Linear(4096, 1024)).cuda()
    optimizer, x = torch.optim.Adam(net.parameters()), torch.randn(512, 2048, device="cuda")

    def step():
        optimizer.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        optimizer.step()

    step()  # libraries take their workspaces, Adam its state
    optimizer.zero_grad()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before, asked = torch.cuda.memory_allocated(), torch.cuda.memory_stats()["requested_bytes.all.allocated"]
    with tm.track_memory() as run:
        step()
    torch.cuda.synchronize()
    (timeline,) = (each for each in run.report.timelines if each.device == "cuda:0")
    (found,) = run.report.allocator
    served = torch.cuda.memory_stats()["requested_bytes.all.allocated"] - asked
    assert max(timeline.live) - timeline.live[0] == pytest.approx(torch.cuda.max_memory_allocated() - before, rel=0.02)
    assert found.peak == pytest.approx(torch.cuda.memory_stats()["requested_bytes.all.peak"], rel=0.02)
    assert sum(line.served for line in found.lines) == pytest.approx(served, rel=0.02)
    (stepped,) = (line for line in run.report.lines if line.location.text == "optimizer.step()")
    (told,) = (line for line in found.lines if line.location is not None and line.location.text == "optimizer.step()")
    assert told.served == pytest.approx(stepped.allocated, rel=0.02)
    assert told.returned == stepped.allocated


def test_blocks_that_wait_for_another_stream_are_in_use():
    """By the name that torch gives them in a snapshot, and by that of its documentation."""
    for state in ("active_pending_free", "active_awaiting_free", "active_allocated"):
        told = snapshot([event("alloc", 0x1000, 1000)], block(0x1000, 1000, state=state))
        (run,) = allocator_runs(told, {}, **WHOLE)
        assert run.peak == 1000
