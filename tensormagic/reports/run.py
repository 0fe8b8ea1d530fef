"""Several questions asked of one run: the reports that each would have had alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from tensormagic.reports.base import Report
from tensormagic.reports.finding import Gap
from tensormagic.reports.memory_run import MemoryRunReport
from tensormagic.reports.rng import RngRunReport
from tensormagic.reports.trace import Cell, State, TraceReport
from tensormagic.reports.writes import WritesReport


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport(Report):
    """A run of which several things were asked; its findings are those of all parts.

    Attributes:
        cell: The source that ran.
        title: A name for the run.
        state: How it ended, or that it is running.
        error: Type and message of what it raised.
        seconds: Wall time.
        trace: Graphs and gradients.
        memory: Bytes over time, and by line; None where that was not asked.
        writes: In-place writes; likewise.
        draws: Random numbers; likewise.
        gaps: What could not be shown while it ran; each part has its own besides.
    """

    kind_name: ClassVar[str] = "run"

    cell: Cell
    title: str = ""
    state: State = "running"
    error: str = ""
    seconds: float = 0.0
    trace: TraceReport
    memory: MemoryRunReport | None = None
    writes: WritesReport | None = None
    draws: RngRunReport | None = None
    gaps: tuple[Gap, ...] = ()

    @property
    def parts(self) -> Iterator[Report]:
        """The reports that it holds, in the order in which they are shown."""
        return (part for part in (self.trace, self.memory, self.writes, self.draws) if part is not None)

    def check(self) -> None:
        """Raise ReportFormatError where a part points at what is not there."""
        for part in self.parts:
            part.check()
