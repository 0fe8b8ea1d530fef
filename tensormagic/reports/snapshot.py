"""What a CUDA memory snapshot holds: segments and blocks as they were left, and the allocator's events up to there.

A snapshot is the file that ``torch.cuda.memory._dump_snapshot`` writes. It knows stacks and addresses, and no names.
Two sizes are kept apart: what was *asked for* (the events count these) and the *block*, which the allocator rounds up
(``torch.cuda.memory_allocated`` counts these).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from tensormagic.errors import ReportFormatError
from tensormagic.reports.base import Gap, Location, Report
from tensormagic.reports.memory_run import LineMemory, Timeline

BlockState = Literal["allocated", "awaiting free", "free"]
StretchState = Literal["allocated", "awaiting free", "free", "mixed"]


@dataclass(frozen=True, slots=True)
class SnapshotStretch:
    """A stretch of a segment: one block, or neighbours that are too small to be distinguished.

    Attributes:
        state: In use by a tensor, waiting for another stream to let go of it, or free; ``"mixed"`` where joined blocks
            are in several states.
        nbytes: Its length.
        used: Bytes of it that are in use.
        blocks: How many blocks it is.
        line: Index into `SnapshotReport.lines` of the line that allocated the most of it; -1 where none is known.
    """

    state: StretchState
    nbytes: int
    used: int = 0
    blocks: int = 1
    line: int = -1


@dataclass(frozen=True, slots=True)
class Segment:
    """One piece of memory that the allocator took from the driver and cuts into blocks.

    Attributes:
        device: As torch writes it.
        address: Where it begins.
        nbytes: Its length.
        allocated: Bytes of its blocks that are in use.
        awaiting: Bytes of its blocks that wait for another stream.
        blocks: How many blocks it is cut into.
        stream: The stream that it belongs to; 0 is the default one.
        kind: ``"large"`` or ``"small"``, as torch sorts them; empty where the snapshot does not tell.
        pool: Id of the memory pool: ``(0, 0)`` is the common one, others belong to CUDA graphs and ``MemPool``.
        expandable: Whether it grows in place (``expandable_segments:True``).
        largest_free: Its largest block that is free.
        stretches: What lies in it, in order of address; together they are `nbytes`.
    """

    device: str
    address: int
    nbytes: int
    allocated: int = 0
    awaiting: int = 0
    blocks: int = 0
    stream: int = 0
    kind: str = ""
    pool: tuple[int, int] = (0, 0)
    expandable: bool = False
    largest_free: int = 0
    stretches: tuple[SnapshotStretch, ...] = ()

    @property
    def free(self) -> int:
        """Bytes of it that are in no use."""
        return self.nbytes - self.allocated - self.awaiting

    @property
    def fragmentation(self) -> float:
        """The share of its free memory that lies outside its largest free block: 0 is none, near 1 is bad."""
        return 1 - self.largest_free / self.free if self.free > 0 else 0.0


@dataclass(frozen=True, slots=True)
class SnapshotBlock:
    """A block in use, at the end or at the peak.

    Attributes:
        device: As torch writes it.
        nbytes: Of the block; what was asked for where only an event tells of it.
        requested: Bytes that were asked for.
        state: In use, or waiting for another stream.
        line: Index into `SnapshotReport.lines`; -1 where none is known.
        way: The lines of the user's that led there, the outermost first; the last is the one that allocated it.
        stream: The stream it was allocated for.
        label: What the program called it (``torch.cuda.memory._set_memory_metadata``), or a profiler's category.
    """

    device: str
    nbytes: int
    requested: int
    state: BlockState = "allocated"
    line: int = -1
    way: tuple[Location, ...] = ()
    stream: int = 0
    label: str = ""


@dataclass(frozen=True, slots=True)
class SnapshotDevice:
    """One device as the snapshot left it.

    Attributes:
        device: As torch writes it.
        reserved: Bytes of all its segments.
        allocated: Bytes of the blocks in use.
        requested: Bytes that were asked for in these.
        awaiting: Bytes of blocks that wait for another stream.
        largest_free: The largest block that is free.
        segments: How many segments there are.
        blocks: How many blocks are in use.
        events: How many events its history holds.
        actions: How many of each kind: ``{"alloc": 40, "free_requested": 12}``.
        peak: The most bytes that were asked for at any moment of the history; None where there is no history.
        reserved_peak: The most bytes that were reserved; None likewise.
    """

    device: str
    reserved: int = 0
    allocated: int = 0
    requested: int = 0
    awaiting: int = 0
    largest_free: int = 0
    segments: int = 0
    blocks: int = 0
    events: int = 0
    actions: dict[str, int] | None = None
    peak: int | None = None
    reserved_peak: int | None = None

    @property
    def free(self) -> int:
        """Bytes that are reserved and in no use."""
        return self.reserved - self.allocated - self.awaiting

    @property
    def fragmentation(self) -> float:
        """The share of the reserved but unused memory that lies outside its largest block: 0 is none, near 1 is bad."""
        return 1 - self.largest_free / self.free if self.free > 0 else 0.0


@dataclass(frozen=True, slots=True)
class RefusedAllocation:
    """An allocation that the device could not serve: an ``oom`` event.

    Attributes:
        device: As torch writes it.
        asked: Bytes asked for.
        free: Bytes that the driver counted as free.
        live: Bytes that were in use, as asked for; None where the history does not tell.
        seconds: When, from the first event on; None where events have no times.
        way: The lines of the user's that led there, the outermost first.
    """

    device: str
    asked: int
    free: int
    live: int | None = None
    seconds: float | None = None
    way: tuple[Location, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotReport(Report):
    """A CUDA memory snapshot, summed up.

    Attributes:
        source: Name of the file; empty where a dictionary was given.
        file_bytes: Its length.
        devices: Each device that has a segment or an event.
        segments: The largest first.
        segments_left_out: How many more there are, and their bytes.
        live: The blocks in use at the end, the largest first.
        live_left_out: How many more there are, and their bytes.
        timelines: The bytes asked for over the history, a device each; stacked by line.
        reserved: The bytes reserved at each moment of the timeline with the same index.
        peak_blocks: What was in use at the peak of the device that peaked highest, the largest first.
        peak_left_out: How many more there were, and their bytes.
        lines: What each line allocated, the most first.
        lines_left_out: How many more there were, and their bytes.
        refused: The allocations that ran out of memory, in order.
        settings: The allocator's settings, as the snapshot tells them.
        gaps: What the snapshot does not tell, or could not be used.
    """

    kind_name: ClassVar[str] = "memory snapshot"

    source: str = ""
    file_bytes: int = 0
    devices: tuple[SnapshotDevice, ...] = ()
    segments: tuple[Segment, ...] = ()
    segments_left_out: tuple[int, int] = (0, 0)
    live: tuple[SnapshotBlock, ...] = ()
    live_left_out: tuple[int, int] = (0, 0)
    timelines: tuple[Timeline, ...] = ()
    reserved: tuple[tuple[int, ...], ...] = ()
    peak_blocks: tuple[SnapshotBlock, ...] = ()
    peak_left_out: tuple[int, int] = (0, 0)
    lines: tuple[LineMemory, ...] = ()
    lines_left_out: tuple[int, int] = (0, 0)
    refused: tuple[RefusedAllocation, ...] = ()
    settings: dict[str, str] | None = None
    gaps: tuple[Gap, ...] = ()

    def check(self) -> None:
        """Raise ReportFormatError where a timeline, or the stretches of a segment, do not add up."""
        for timeline in self.timelines:
            timeline.check()
        for segment in self.segments:
            found = sum(one.nbytes for one in segment.stretches)
            if found != segment.nbytes:
                described = f"a segment of {segment.nbytes} bytes, but its blocks have {found}"
                raise ReportFormatError(f"a memory snapshot does not add up: {described}")
