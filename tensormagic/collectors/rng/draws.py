"""Watches a run for draws of random numbers: which line and call, from which generator, how many values.

torch tags every operation that may draw; whether one did is seen from its generator's state before and after. NumPy
and Python announce nothing: their states are looked at before each such operation that stands on another line, and
after each statement of a cell, so that a draw of theirs is known to lie between two lines.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import cache
from time import perf_counter
from typing import Any

import torch

from tensormagic.collectors.hooks.capturing import Captures
from tensormagic.collectors.hooks.stepping import SteppingMode
from tensormagic.collectors.rng.draw_log import DrawLog
from tensormagic.collectors.where.caller import Callers
from tensormagic.collectors.where.source import CellNumber, Sites
from tensormagic.collectors.where.tracebacks import error_text, state_after, strip_own_frames
from tensormagic.errors import TraceError
from tensormagic.reports import Cell, Gap, State
from tensormagic.reports.rng import RngRunReport

_Overload = torch._ops.OpOverload


class DrawMode(SteppingMode):
    """Makes every op as its own line would, and tells the log of those that may draw.

    ``torch.compile`` stays on, and sees nothing of this mode.
    """

    def __init__(self, log: DrawLog) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._log = log
        self._callers = Callers()
        self.gap: Gap | None = None

    def __torch_dispatch__(
        self, func: Any, _types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Make the call, and note what it drew."""
        if type(func) is not _Overload:
            return func(*args, **(kwargs or {}))
        frame = sys._getframe(1)
        call = self._callers.standing_in_for(frame)
        if not may_draw(func):
            return call(func._op, args, kwargs or {})
        drawing = self.guarded(self._log.before, args, kwargs or {}, frame)
        result = call(func._op, args, kwargs or {})
        if drawing is not None:
            self.guarded(self._log.after, drawing, func, result)
        return result

    def guarded(self, look: Callable[..., Any], *given: Any) -> Any:
        """Look at generators; what goes wrong is a gap, and never an error of the run's."""
        try:
            return look(*given)
        except Exception as error:  # an odd generator must not stop the run
            self.gap = Gap("draws", f"{type(error).__name__}: {error}")
            return None


@cache
def may_draw(op: Any) -> bool:
    """Return whether torch says of an operation that it may draw random numbers."""
    return torch.Tag.nondeterministic_seeded in op.tags


class DrawWatcher:
    """Watches what runs between `start` and `stop`.

    Args:
        namespace: Where names are looked up; read, never written, and not copied.
        cell: The source that is watched, for the report.
        cell_number: Gives a cell's execution count from its file name.
        clock: Seconds, monotonic.
    """

    def __init__(
        self,
        namespace: Mapping[str, Any],
        cell: Cell,
        *,
        cell_number: CellNumber | None = None,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        self._cell, self._clock = cell, clock
        self._sites = Sites(cell_number) if cell_number is not None else Sites()
        self._log = DrawLog(namespace, self._sites)
        self._mode = DrawMode(self._log)
        self._captures = Captures(self._mode.leave_alone, leave_dispatch=self._mode.leave_alone)
        self._stack = ExitStack()
        self._state: State = "running"
        self._error = ""
        self._began = self._ended = 0.0

    def start(self) -> None:
        """Begin.

        Raises:
            TraceError: if it was started before.
        """
        if self._began:
            raise TraceError("these draws were watched before; make a new one with tensormagic.track_rng()")
        self._began = self._clock()
        self._mode.guarded(self._log.open)
        with ExitStack() as stack:
            stack.enter_context(self._mode)
            stack.enter_context(self._captures.left_alone())
            self._stack = stack.pop_all()

    def passed(self, filename: str, first: int, last: int) -> None:
        """Look at the generators after a statement of the cell has run, which stands on these lines."""
        self._mode.guarded(self._log.passed, filename, first, last)

    def stop(self, error: BaseException | None = None) -> None:
        """End, saying how: with the exception that ended the run, or None. Stopping twice is the same as once."""
        if self._state != "running":
            return
        self._stack.close()
        self._ended = self._clock()
        self._state = state_after(error)
        self._error = error_text(error) if error is not None else ""
        self._mode.guarded(self._log.close)
        if error is not None:
            strip_own_frames(error)

    def report(self) -> RngRunReport:
        """Return everything known so far."""
        began, gap, left = self._began, self._mode.gap, self._captures.gap
        return RngRunReport(
            state=self._state,
            error=self._error,
            cell=self._cell,
            seconds=(self._ended or self._clock()) - began if began else 0.0,
            before=self._log.starts,
            after=self._log.ends,
            sums=self._log.sums,
            draws=self._log.draws,
            count=self._log.count,
            gaps=(*self._log.gaps, *([gap] if gap is not None else []), *([Gap("draws", left)] if left else [])),
            locations=self._sites.locations,  # last: what was told before has its line, also while the run goes on
        )
