"""Several questions to one run: each is followed as it is alone; they begin, end and fail together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter
from types import FrameType
from typing import TYPE_CHECKING, Any

from tensormagic.collectors.hooks.followed_run import FollowedRun
from tensormagic.collectors.hooks.undoing import Undoing
from tensormagic.reports import Cell, RunReport

if TYPE_CHECKING:
    from tensormagic.collectors.aliasing.writes import WriteWatcher
    from tensormagic.collectors.hooks.listening import ListeningRun
    from tensormagic.collectors.rng.draws import DrawWatcher
    from tensormagic.collectors.runs.trace import Tracer


class JointRun(FollowedRun):
    """Follows what runs between `start` and `stop` for a trace and those who ask besides.

    What listens to operations does so through one dispatch mode.

    Args:
        cell: The source that runs, for the report.
        tracer: The trace.
        memory: A `MemoryRecorder`; None where that was not asked.
        writes: Who watches in-place writes; likewise.
        draws: Who watches random numbers; likewise.
        clock: Seconds, monotonic.
    """

    used_before = "this trace was started before; make a new one with tensormagic.trace()"

    def __init__(  # noqa: PLR0913  (two parameters; the rest are options, by name)
        self,
        cell: Cell,
        tracer: Tracer,
        *,
        memory: Any = None,
        writes: WriteWatcher | None = None,
        draws: DrawWatcher | None = None,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        super().__init__(cell, clock)
        self.tracer, self.memory, self.writes, self.draws = tracer, memory, writes, draws
        listening: Sequence[ListeningRun] = [part for part in (writes, draws) if part is not None]
        host = memory or next(iter(listening), None)
        for part in listening:
            if part is not host:
                part.listen_beside(host)
        besides = sorted(listening, key=lambda part: part is not host)
        self._parts: list[FollowedRun] = [tracer, *([memory] if memory is not None else []), *besides]

    # -- life -----------------------------------------------------------------------------------------------------

    def _prepare_run(self) -> None:
        for part in self._parts:
            part.get_ready()

    def _enter_run(self, undoing: Undoing) -> None:
        for part in self._parts:
            undoing.callback(part.abandon)
            part.enter()

    def abandon(self) -> None:
        """End at once: in a process that was forked from this one, or where beginning or ending was interrupted."""
        super().abandon()
        for part in reversed(self._parts):
            part.abandon()

    def stop(self, error: BaseException | None = None, frame: FrameType | None = None) -> None:
        """End; stopping twice is the same as once.

        Args:
            error: The exception that ended the run, or None.
            frame: Of the function whose block this was: its variables are names, too.
        """
        if self._state == "running":
            for part in reversed(self._parts):
                part.leave()
            for part in self._parts:
                if part is not self.memory:
                    part.stop(error)
            if self.memory is not None:  # last: what the others still held is no memory of the run's
                self.memory.stop(error, frame)
        super().stop(error)

    # -- what is known so far -------------------------------------------------------------------------------------

    def report(self) -> RunReport:
        """Return everything known so far."""
        trace = self.tracer.report()
        return RunReport(
            cell=self._cell,
            title=trace.title,
            state=self._state,
            error=self._error,
            seconds=self.seconds,
            trace=trace,
            memory=self.memory.report() if self.memory is not None else None,
            writes=self.writes.report() if self.writes is not None else None,
            draws=self.draws.report() if self.draws is not None else None,
        )
