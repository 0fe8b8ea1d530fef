"""Memory over a run: the bytes alive at each moment, the peak, what each line took, and what the allocator says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from tensormagic.errors import ReportFormatError
from tensormagic.reports.base import Gap, Location, Report
from tensormagic.reports.graph import Floats
from tensormagic.reports.memory import Category, DeviceMemory, LiveStorage, OutOfMemory, Release
from tensormagic.reports.trace import Cell, State

__all__ = ["AllocatorLine", "AllocatorRun"]


# What an allocator itself recorded during a run: what it served beyond what operations returned, and where.
#
# Operations are seen from outside: what one of them asks for and gives back before it returns (the workspace of a
# convolution, say) only the allocator knows. Its events carry the sizes that were asked for; its counters count
# blocks, which it rounds up, to 512 bytes and more.


@dataclass(frozen=True, slots=True)
class AllocatorLine:
    """What the allocator served to one line of the user's.

    Attributes:
        location: The line; None where no frame of the user's was on the stack.
        served: Bytes that were asked for, over the run.
        returned: Bytes of these that were storages which operations returned.
        calls: How often it asked.
        largest: The most it asked for at once.
    """

    location: Location | None
    served: int
    returned: int
    calls: int
    largest: int

    @property
    def workspace(self) -> int:
        """Bytes that were used inside of operations only."""
        return max(self.served - self.returned, 0)


@dataclass(frozen=True, slots=True)
class AllocatorRun:
    """The events of one device over a run.

    Attributes:
        device: As torch writes it.
        events: How many there were.
        peak: The most bytes, as asked for, that were in use at once; None where the history does not go back to the
            beginning of the run.
        reserved: The most bytes that were reserved at once; None likewise.
        seen_peak: The most bytes of storages that operations returned, at once: what the timeline shows.
        lines: What it served, by line, the most first.
        unnamed: Blocks in use at the end over which no tensor was found, by line: location, how many, bytes.
        complete: Whether the history goes back to the beginning of the run.
    """

    device: str
    events: int
    peak: int | None = None
    reserved: int | None = None
    seen_peak: int = 0
    lines: tuple[AllocatorLine, ...] = ()
    unnamed: tuple[tuple[Location | None, int, int], ...] = ()
    complete: bool = True


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

    Attributes:
        device: As torch writes it.
        seconds: Time since the run began.
        operation: Number of the operation, counted over the run.
        live: Bytes of the storages alive, those from before the run included.
        before: Bytes that were alive when the run began and still are, at each moment: a part of ``live``.
        by_category: ``(category, bytes)``: what was allocated in the run, by what it is for at the end of its life or
            of the run; ``before`` comes on top of these.
        by_line: ``(index into MemoryRunReport.lines, or -1 for the rest, bytes)``: likewise, by the line that
            allocated it.
        peak: Index of the moment at which the most was alive.
        moments: How many there were in the run; of a long one not all are kept. 0 where nobody has counted.
    """

    device: str
    seconds: Floats
    operation: tuple[int, ...]
    live: tuple[int, ...]
    before: tuple[int, ...]
    by_category: tuple[tuple[Category, tuple[int, ...]], ...] = ()
    by_line: tuple[tuple[int, tuple[int, ...]], ...] = ()
    peak: int = 0
    moments: int = 0

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
    """What one line of the user's did to memory, over all its executions.

    Attributes:
        location: The line.
        allocated: Bytes that operations called from it allocated, in the backward of what it made included.
        backward: The part of these that its backward allocated.
        freed: Bytes that were freed while it ran, whoever allocated them.
        kept: Bytes of what it allocated that is alive after the run.
        at_peak: Bytes of what it allocated that was alive at the peak of the run (of the device that peaked highest).
        peak: The most that was alive in all, on the device that it allocated on, right after one of its allocations.
        largest: Its largest single allocation.
        calls: How many operations allocated something.
        executions: How often the line was reached anew; 0 where that is not counted.
        op: The operation that allocated the most of it: ``"aten.mm.default"``.
    """

    location: Location
    allocated: int = 0
    backward: int = 0
    freed: int = 0
    kept: int = 0
    at_peak: int = 0
    peak: int = 0
    largest: int = 0
    calls: int = 0
    executions: int = 0
    op: str = ""


@dataclass(frozen=True, slots=True)
class AllocatedBlock:
    """A storage that the run allocated.

    Attributes:
        storage: What it is: name, bytes, category, line.
        op: The operation that allocated it.
        line: Index into `MemoryRunReport.lines`; -1 where no line is known.
        born: Number of the operation that allocated it.
        died: Number of the operation during or after which it was freed; None where it is alive after the run.
        phase: ``"forward"``, ``"backward"``, ``"optimizer"`` or ``"other"``.
    """

    storage: LiveStorage
    op: str
    line: int
    born: int
    died: int | None = None
    phase: str = "other"


@dataclass(frozen=True, slots=True)
class Leak:
    """Memory that stays, a like amount for each time that a line runs.

    Attributes:
        location: The line that allocated what stays.
        device: Where.
        each: Bytes more after each iteration.
        iterations: How many iterations added that much.
        kept: Bytes in all.
        holder: What keeps them: ``"losses"``, ``"the graph of total"``; empty where unknown.
        holder_location: The line that stores them: ``losses.append(loss)``.
        graph: Whether it is an autograd graph that keeps them (TM503), rather than a container of tensors (TM504).
        form: How they are held: as ``"items"`` of something, by one tensor that was added up (``"sum"``), by one whose
            graph goes back over all iterations (``"carried"``), or as one tensor that is made anew each time,
            ``"joined"`` from itself and something more.
        training: Whether a backward ran between the iterations, time after time: rather than data being collected.
        scalars: Whether what is stored are single numbers; for `graph` only.
        ended: Whether it grew up to the peak only and was freed then, as what a function collects is when it returns.
    """

    location: Location
    device: str
    each: int
    iterations: int
    kept: int
    holder: str = ""
    holder_location: Location | None = None
    graph: bool = False
    form: LeakForm = "items"
    training: bool = False
    scalars: bool = False
    ended: bool = False


@dataclass(frozen=True, slots=True)
class FunctionMemory:
    """A function that was gone through line by line (``--func``): there its lines count, whoever wrote it.

    Attributes:
        name: As it was asked for: ``"model.forward"``.
        filename: As Python names it.
        first: Number of the first line of ``source`` in that file.
        source: Its lines as they are; empty where they cannot be read.
        lines: Indices into `MemoryRunReport.lines`, in the order of the source.
        cell: The execution count of the cell it is in, or None.
    """

    name: str
    filename: str
    first: int
    source: tuple[str, ...] = ()
    lines: tuple[int, ...] = ()
    cell: int | None = None


@dataclass(frozen=True, slots=True)
class MemoryFrame:
    """Where a run stands that goes on: what a live panel shows many times a second.

    Attributes:
        seconds: Since it began.
        operations: That ran.
        live: Bytes alive, on all devices.
        peak: The most bytes alive at a moment so far, summed over devices, each at its own moment.
        line: Line of the cell that allocated or freed last; 0 where it was no line of the cell.
        place: Of the same, in words: ``cell 5, line 12``; empty where nothing was allocated yet.
        running: Whether the run goes on.
    """

    seconds: float
    operations: int
    live: int
    peak: int
    line: int = 0
    place: str = ""
    running: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRunReport(Report):
    """What a cell did to memory.

    Attributes:
        cell: The source that ran.
        state: How the run ended, or that it is running.
        error: Type and message of what it raised.
        title: A name for the run; empty where it has none.
        seconds: Wall time.
        operations: How many operations ran.
        before: The devices as they were when the run began.
        after: The devices as they are at its end.
        timelines: One a device.
        lines: What each line did, the most allocated first.
        peak_blocks: What was alive at the peak of the device that peaked highest, the largest first.
        peak_left_out: How many more storages there were, and their bytes.
        kept: Blocks that the run allocated and left alive, the largest first.
        kept_left_out: How many more there were, and their bytes.
        leaks: Memory that grows with every iteration.
        out_of_memory: Where the run died of it.
        at_end: What was alive at the end (or at the moment of the error), by name and holder.
        releases: What letting go of each name would free, where the run died of memory.
        functions: Functions that were gone through line by line (``--func``).
        allocator: What the CUDA allocator itself recorded, a device each; empty where there is none.
        gaps: What could not be seen, and why.
    """

    kind_name: ClassVar[str] = "memory run"

    cell: Cell
    state: State = "running"
    error: str = ""
    title: str = ""
    seconds: float = 0.0
    operations: int = 0
    before: tuple[DeviceMemory, ...] = ()
    after: tuple[DeviceMemory, ...] = ()
    timelines: tuple[Timeline, ...] = ()
    lines: tuple[LineMemory, ...] = ()
    peak_blocks: tuple[AllocatedBlock, ...] = ()
    peak_left_out: tuple[int, int] = (0, 0)
    kept: tuple[AllocatedBlock, ...] = ()
    kept_left_out: tuple[int, int] = (0, 0)
    leaks: tuple[Leak, ...] = ()
    out_of_memory: OutOfMemory | None = None
    at_end: tuple[LiveStorage, ...] = ()
    releases: tuple[Release, ...] = ()
    functions: tuple[FunctionMemory, ...] = ()
    allocator: tuple[AllocatorRun, ...] = ()
    gaps: tuple[Gap, ...] = ()

    def check(self) -> None:
        """Raise ReportFormatError where a timeline does not add up."""
        for timeline in self.timelines:
            timeline.check()
