"""Memory over a run: the bytes alive at each moment, the peak, what each line took, and what the allocator says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from tensormagic.errors import ReportFormatError
from tensormagic.reports.base import Gap, Location, Report
from tensormagic.reports.graph import Floats
from tensormagic.reports.memory import Category, DeviceMemory, FreeableMemory, LiveStorage, OutOfMemory
from tensormagic.reports.trace import Cell, State

__all__ = ["AllocatorLine", "AllocatorRun"]


# What an allocator itself recorded during a run: what it served beyond what operations returned, and where.
#
# Operations are seen from outside: what one of them asks for and gives back before it returns (the workspace of a
# convolution, say) only the allocator knows. Its events carry the sizes that were asked for; its counters count
# blocks, which it rounds up, to 512 bytes and more.


@dataclass(frozen=True, slots=True)
class AllocatorLine:
    """What the allocator served to one line of the user's."""

    location: Location | None  #: The line; None where no frame of the user's was on the stack.
    served: int  #: Bytes that were asked for, over the run.
    returned: int  #: Bytes of these that were storages which operations returned.
    calls: int  #: How often it asked.
    largest: int  #: The most it asked for at once.

    @property
    def workspace(self) -> int:
        """Bytes that were used inside of operations only."""
        return max(self.served - self.returned, 0)


@dataclass(frozen=True, slots=True)
class AllocatorRun:
    """The events of one device over a run."""

    device: str  #: As torch writes it.
    events: int  #: How many there were.
    #: The most bytes, as asked for, that were in use at once; None where the history does not go back to the beginning
    #: of the run.
    peak: int | None = None
    reserved: int | None = None  #: The most bytes that were reserved at once; None likewise.
    seen_peak: int = 0  #: The most bytes of storages that operations returned, at once: what the timeline shows.
    lines: tuple[AllocatorLine, ...] = ()  #: What it served, by line, the most first.
    #: Blocks in use at the end over which no tensor was found, by line: location, how many, bytes.
    unnamed: tuple[tuple[Location | None, int, int], ...] = ()
    complete: bool = True  #: Whether the history goes back to the beginning of the run.


# Memory over a run: the bytes alive at each moment, the peak and what was alive then, and what each line did.
#
# A moment is an operation that allocated or freed something. The timeline is thinned to a bounded number of moments
# (the peak, the first and the last always stay), so that a run of a million operations is as small as one of a
# thousand.

LeakForm = Literal["items", "sum", "joined", "carried"]


@dataclass(frozen=True, slots=True)
class Timeline:
    """The live bytes of one device over a run, stacked by category and by line.

    Each array has a value a moment; at each moment ``before`` and all of ``by_category`` add up to ``live``, and so do
    ``before`` and all of ``by_line``.
    """

    device: str  #: As torch writes it.
    seconds: Floats  #: Time since the run began.
    operation: tuple[int, ...]  #: Number of the operation, counted over the run.
    live: tuple[int, ...]  #: Bytes of the storages alive, those from before the run included.
    before: tuple[int, ...]  #: Bytes that were alive when the run began and are at each moment: a part of ``live``.
    #: ``(category, bytes)``: what was allocated in the run, by what it is for at the end of its life or of the run;
    #: ``before`` comes on top of these.
    by_category: tuple[tuple[Category, tuple[int, ...]], ...] = ()
    #: ``(index into MemoryRunReport.lines, or -1 for the rest, bytes)``: likewise, by the line that allocated it.
    by_line: tuple[tuple[int, tuple[int, ...]], ...] = ()
    peak: int = 0  #: Index of the moment at which the most was alive.
    samples: int = 0  #: How many moments the run had; of a long one not all are kept. 0 where nobody has counted.

    def check(self) -> None:
        """Raise ReportFormatError where the parts do not add up to what was alive."""
        for name, parts in (("categories", self.by_category), ("lines", self.by_line)):
            totals = [sum(values) for values in zip(self.before, *(values for _, values in parts), strict=True)]
            if totals != list(self.live):
                raise ReportFormatError(
                    f"a timeline of {self.device} does not add up: its {name} are not what is alive"
                )


@dataclass(frozen=True, slots=True)
class LineMemory:
    """What one line of the user's did to memory, over all its executions."""

    location: Location  #: The line.
    allocated: int = 0  #: Bytes that operations called from it allocated, in the backward of what it made included.
    backward: int = 0  #: The part of these that its backward allocated.
    freed: int = 0  #: Bytes that were freed while it ran, whoever allocated them.
    kept: int = 0  #: Bytes of what it allocated that is alive after the run.
    at_peak: int = 0  #: Bytes of what it allocated that were alive at the peak of the device that peaked highest.
    peak: int = 0  #: The most that was alive in all, on the device that it allocated on, after one of its allocations.
    largest: int = 0  #: Its largest single allocation.
    calls: int = 0  #: How many operations allocated something.
    executions: int = 0  #: How often the line was reached anew; 0 where that is not counted.
    op: str = ""  #: The operation that allocated the most of it: ``"aten.mm.default"``.


@dataclass(frozen=True, slots=True)
class AllocatedBlock:
    """A storage that the run allocated."""

    storage: LiveStorage  #: What it is: name, bytes, category, line.
    op: str  #: The operation that allocated it.
    line: int  #: Index into `MemoryRunReport.lines`; -1 where no line is known.
    allocated_at: int  #: Number of the operation that allocated it.
    freed_at: int | None = None  #: Number of the operation at which it was freed; None where it is alive after the run.
    phase: str = "other"  #: ``"forward"``, ``"backward"``, ``"optimizer"`` or ``"other"``.


@dataclass(frozen=True, slots=True)
class Leak:
    """Memory that stays, a like amount for each time that a line runs."""

    location: Location  #: The line that allocated what stays.
    device: str  #: Where.
    each: int  #: Bytes more after each iteration.
    iterations: int  #: How many iterations added that much.
    kept: int  #: Bytes in all.
    holder: str = ""  #: What keeps them: ``"losses"``, ``"the graph of total"``; empty where unknown.
    holder_location: Location | None = None  #: The line that stores them: ``losses.append(loss)``.
    graph: bool = False  #: Whether an autograd graph keeps them (TM503), not a container of tensors (TM504).
    #: How they are held: as ``"items"`` of something, by one tensor that was added up (``"sum"``), by one whose graph
    #: goes back over all iterations (``"carried"``), or as one tensor that is made anew each time, ``"joined"`` from
    #: itself and something more.
    form: LeakForm = "items"
    training: bool = False  #: Whether a backward ran between the iterations time after time: no collecting of data.
    scalars: bool = False  #: Whether what is stored are single numbers; for `graph` only.
    ended: bool = False  #: Whether it grew up to the peak only and was freed then, as what a function collects is.


@dataclass(frozen=True, slots=True)
class FunctionMemory:
    """A function that was gone through line by line (``--func``): there its lines count, whoever wrote it."""

    name: str  #: As it was asked for: ``"model.forward"``.
    filename: str  #: As Python names it.
    first: int  #: Number of the first line of ``source`` in that file.
    source: tuple[str, ...] = ()  #: Its lines as they are; empty where they cannot be read.
    lines: tuple[int, ...] = ()  #: Indices into `MemoryRunReport.lines`, in the order of the source.
    cell: int | None = None  #: The execution count of the cell it is in, or None.


@dataclass(frozen=True, slots=True)
class MemoryFrame:
    """Where a run stands that goes on: what a live panel shows many times a second."""

    seconds: float  #: Since it began.
    operations: int  #: That ran.
    live: int  #: Bytes alive, on all devices.
    peak: int  #: The most bytes alive at a moment so far, summed over devices, each at its own moment.
    line: int = 0  #: Line of the cell that allocated or freed last; 0 where it was no line of the cell.
    place: str = ""  #: Of the same, in words: ``cell 5, line 12``; empty where nothing was allocated yet.
    running: bool = True  #: Whether the run goes on.


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRunReport(Report):
    """What a cell did to memory."""

    kind_name: ClassVar[str] = "memory run"

    cell: Cell  #: The source that ran.
    state: State = "running"  #: How the run ended, or that it is running.
    error: str = ""  #: Type and message of what it raised.
    title: str = ""  #: A name for the run; empty where it has none.
    seconds: float = 0.0  #: Wall time.
    operations: int = 0  #: How many operations ran.
    before: tuple[DeviceMemory, ...] = ()  #: The devices as they were when the run began.
    after: tuple[DeviceMemory, ...] = ()  #: The devices as they are at its end.
    timelines: tuple[Timeline, ...] = ()  #: One a device.
    lines: tuple[LineMemory, ...] = ()  #: What each line did, the most allocated first.
    peak_blocks: tuple[AllocatedBlock, ...] = ()  #: What was alive at the highest peak of any device, largest first.
    peak_left_out: tuple[int, int] = (0, 0)  #: How many more storages there were, and their bytes.
    kept: tuple[AllocatedBlock, ...] = ()  #: Blocks that the run allocated and left alive, the largest first.
    kept_left_out: tuple[int, int] = (0, 0)  #: How many more there were, and their bytes.
    leaks: tuple[Leak, ...] = ()  #: Memory that grows with every iteration.
    out_of_memory: OutOfMemory | None = None  #: Where the run ran out of it.
    at_end: tuple[LiveStorage, ...] = ()  #: What was alive at the end (or at the error), by name and holder.
    freeable: tuple[FreeableMemory, ...] = ()  #: What letting go of each name would free, of a run out of memory.
    functions: tuple[FunctionMemory, ...] = ()  #: Functions that were gone through line by line (``--func``).
    allocator: tuple[AllocatorRun, ...] = ()  #: What the CUDA allocator itself recorded, by device; empty without one.
    gaps: tuple[Gap, ...] = ()  #: What could not be seen, and why.

    def check(self) -> None:
        """Raise ReportFormatError where a timeline does not add up."""
        for timeline in self.timelines:
            timeline.check()
