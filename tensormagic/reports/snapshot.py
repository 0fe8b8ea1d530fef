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
RangeState = Literal["allocated", "awaiting free", "free", "mixed"]


@dataclass(frozen=True, slots=True)
class SnapshotRange:
    """A stretch of a segment: one block, or neighbours that are too small to be distinguished."""

    #: In use by a tensor, waiting for another stream to let go of it, or free; ``"mixed"`` where joined blocks are in
    #: several states.
    state: RangeState
    nbytes: int  #: Its length.
    used: int = 0  #: Bytes of it that are in use.
    blocks: int = 1  #: How many blocks it is.
    line: int = -1  #: Index into `SnapshotReport.lines` of the line that allocated the most of it; -1: none known.


@dataclass(frozen=True, slots=True)
class Segment:
    """One piece of memory that the allocator took from the driver and cuts into blocks."""

    device: str  #: As torch writes it.
    address: int  #: Where it begins.
    nbytes: int  #: Its length.
    allocated: int = 0  #: Bytes of its blocks that are in use.
    awaiting: int = 0  #: Bytes of its blocks that wait for another stream.
    blocks: int = 0  #: How many blocks it is cut into.
    stream: int = 0  #: The stream that it belongs to; 0 is the default one.
    kind: str = ""  #: ``"large"`` or ``"small"``, as torch sorts them; empty where the snapshot does not tell.
    #: Id of the memory pool: ``(0, 0)`` is the common one, others belong to CUDA graphs and ``MemPool``.
    pool: tuple[int, int] = (0, 0)
    expandable: bool = False  #: Whether it grows in place (``expandable_segments:True``).
    largest_free: int = 0  #: Its largest block that is free.
    ranges: tuple[SnapshotRange, ...] = ()  #: What lies in it, in order of address; together they are `nbytes`.

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
    """A block in use, at the end or at the peak."""

    device: str  #: As torch writes it.
    nbytes: int  #: Of the block; what was asked for where only an event tells of it.
    requested: int  #: Bytes that were asked for.
    state: BlockState = "allocated"  #: In use, or waiting for another stream.
    line: int = -1  #: Index into `SnapshotReport.lines`; -1 where none is known.
    stack: tuple[Location, ...] = ()  #: The user's lines that led there, outermost first; the last allocated it.
    stream: int = 0  #: The stream it was allocated for.
    label: str = ""  #: What the program (``torch.cuda.memory._set_memory_metadata``) or a profiler called it.


@dataclass(frozen=True, slots=True)
class SnapshotDevice:
    """One device as the snapshot left it."""

    device: str  #: As torch writes it.
    reserved: int = 0  #: Bytes of all its segments.
    allocated: int = 0  #: Bytes of the blocks in use.
    requested: int = 0  #: Bytes that were asked for in these.
    awaiting: int = 0  #: Bytes of blocks that wait for another stream.
    largest_free: int = 0  #: The largest block that is free.
    segments: int = 0  #: How many segments there are.
    blocks: int = 0  #: How many blocks are in use.
    events: int = 0  #: How many events its history holds.
    actions: dict[str, int] | None = None  #: How many of each kind: ``{"alloc": 40, "free_requested": 12}``.
    peak: int | None = None  #: The most bytes that were asked for at any moment of the history; None without one.
    reserved_peak: int | None = None  #: The most bytes that were reserved; None likewise.

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
    """An allocation that the device could not serve: an ``oom`` event."""

    device: str  #: As torch writes it.
    asked: int  #: Bytes asked for.
    free: int  #: Bytes that the driver counted as free.
    live: int | None = None  #: Bytes that were in use, as asked for; None where the history does not tell.
    seconds: float | None = None  #: When, from the first event on; None where events have no times.
    stack: tuple[Location, ...] = ()  #: The lines of the user's that led there, the outermost first.


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotReport(Report):
    """A CUDA memory snapshot, summed up."""

    kind_name: ClassVar[str] = "memory snapshot"

    source: str = ""  #: Name of the file; empty where a dictionary was given.
    devices: tuple[SnapshotDevice, ...] = ()  #: Each device that has a segment or an event.
    segments: tuple[Segment, ...] = ()  #: The largest first.
    segments_left_out: tuple[int, int] = (0, 0)  #: How many more there are, and their bytes.
    live: tuple[SnapshotBlock, ...] = ()  #: The blocks in use at the end, the largest first.
    live_left_out: tuple[int, int] = (0, 0)  #: How many more there are, and their bytes.
    timelines: tuple[Timeline, ...] = ()  #: The bytes asked for over the history, a device each; stacked by line.
    reserved: tuple[tuple[int, ...], ...] = ()  #: The bytes reserved at each moment, a row a timeline.
    peak_blocks: tuple[SnapshotBlock, ...] = ()  #: What was in use at the highest peak of any device, largest first.
    peak_left_out: tuple[int, int] = (0, 0)  #: How many more there were, and their bytes.
    lines: tuple[LineMemory, ...] = ()  #: What each line allocated, the most first.
    lines_left_out: tuple[int, int] = (0, 0)  #: How many more there were, and their bytes.
    refused: tuple[RefusedAllocation, ...] = ()  #: The allocations that ran out of memory, in order.
    settings: dict[str, str] | None = None  #: The allocator's settings, as the snapshot tells them.
    gaps: tuple[Gap, ...] = ()  #: What the snapshot does not tell, or could not be used.

    def check(self) -> None:
        """Raise ReportFormatError where a timeline, or the ranges of a segment, do not add up."""
        for timeline in self.timelines:
            timeline.check()
        for segment in self.segments:
            found = sum(one.nbytes for one in segment.ranges)
            if found != segment.nbytes:
                described = f"a segment of {segment.nbytes} bytes, but its blocks have {found}"
                raise ReportFormatError(f"a memory snapshot does not add up: {described}")
