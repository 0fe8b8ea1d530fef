"""Reports of memory snapshots: a training step that ran out of memory, nothing at all, everything at its longest."""

from __future__ import annotations

from dataclasses import replace

from tensormagic.collectors.memory.snapshot import snapshot_report
from tensormagic.reports import SnapshotReport
from tests.reports.samples_snapshot import snapshot_report as every_field
from tests.support.snapshot_writer import ToyAllocator, frame, stack

MIB = 2**20


def trained() -> dict:
    """Return the snapshot of a small transformer's training: four steps, then one with too large a batch."""
    allocator = ToyAllocator(segment=1024 * MIB)
    for layer in range(12):
        allocator.alloc(9 * MIB + 300 * layer, stack(14, 40))
    states = [allocator.alloc(12 * MIB, stack(61, 60)) for _ in range(12)]
    for step in range(4):
        saved = [allocator.alloc((6 + layer % 3) * MIB, stack(21 + layer % 4, 30, 62)) for layer in range(12)]
        loss = allocator.alloc(512, stack(63))
        for place in reversed(saved):
            grad = allocator.alloc(4 * MIB, stack(64))
            allocator.free(place, stack(64))
            allocator.free(grad, stack(64))
        if step % 2:
            allocator.free(loss)
    for place in states[::3]:
        allocator.free(place, completed=place != states[0])
    for layer in range(9):
        allocator.alloc((7 + layer) * MIB, stack(21 + layer % 4, 30, 66))
    allocator.refuse(2048 * MIB, 310 * MIB, stack(24, 30, 66))
    return allocator.snapshot(history=len(allocator.events) - 12)


def training() -> SnapshotReport:
    """That training."""
    return snapshot_report(trained(), source="memory.pickle")


def longest() -> SnapshotReport:
    """Hundreds of lines, thousands of blocks, two devices."""
    snapshots = [ToyAllocator(device, 2**28) for device in (0, 1)]
    for allocator in snapshots:
        for at in range(1500):
            where = [frame(at, f"function_{at}", f"/home/ada/{'deep/' * 30}module_{at}.py"), *stack(at % 300, 1, 2)]
            place = allocator.alloc(1000 + 91 * at, where)
            if at % 3:
                allocator.free(place, where)
    first, second = (allocator.snapshot() for allocator in snapshots)
    traces = [first["device_traces"][0], second["device_traces"][1]]
    segments = [first["segments"][0], *[second["segments"][0]] * 30]
    return snapshot_report({**first, "segments": segments, "device_traces": traces})


def no_history() -> SnapshotReport:
    """A snapshot of a process that recorded nothing."""
    allocator = ToyAllocator()
    allocator.alloc(5 * MIB, [])
    allocator.events.clear()
    return snapshot_report({**allocator.snapshot(), "device_traces": [[]]}, source="state.pickle")


HOSTILE, TRAINING = every_field(), training()
SAMPLES = {
    "training": TRAINING, "no_history": no_history(),
    # A GPU that was never used.
    "nothing": snapshot_report({"segments": [], "device_traces": [[]]}),
    "longest": longest(),
    # One with a finding of every kind.
    "found": replace(TRAINING, findings=HOSTILE.findings, gaps=HOSTILE.gaps),
    "hostile": HOSTILE,
}  # fmt: skip
