"""Watches a run for in-place writes: which line, which op, to what, and whose elements that changed besides.

A dispatch mode sees every op, the ones inside torch's own functions included; nearly all of them write to nothing, and
are passed on as if their own line had called them. What a write needs more is looked at in steps, each only where the
one before gave reason to: does anything else use the storage, does anybody have a name for it, do the bytes meet.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from time import perf_counter
from types import FrameType
from typing import Any

import torch

from tensormagic.collectors.aliasing.write_log import WriteLog
from tensormagic.collectors.geometry.versions import prepare_counters
from tensormagic.collectors.geometry.written import does_write, written_by
from tensormagic.collectors.hooks.capturing import Captures
from tensormagic.collectors.hooks.stepping import SteppingMode
from tensormagic.collectors.where.caller import Callers
from tensormagic.collectors.where.source import CellNumber, Sites
from tensormagic.collectors.where.tracebacks import error_text, state_after, strip_own_frames
from tensormagic.errors import TraceError
from tensormagic.reports import Cell, Gap, State, WritesReport

_ENGINE = torch.autograd.graph._engine_run_backward.__code__
_graph_task: Callable[[], int] = torch._C._current_graph_task_id
_Overload = torch._ops.OpOverload


class WriteMode(SteppingMode):
    """Makes every op as its own line would, and tells the log of those that write.

    ``torch.compile`` stays on, and sees nothing of this mode.
    """

    def __init__(self, log: WriteLog) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._log = log
        self._callers = Callers()
        self.engine_writes = 0

    def __torch_dispatch__(
        self, func: Any, _types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Make the call, and note what it writes to."""
        if type(func) is not _Overload:
            return func(*args, **(kwargs or {}))
        frame = sys._getframe(1)
        call = self._callers.standing_in_for(frame)
        written = written_by(func)
        if not written.slots or not does_write(written, func, args, kwargs or {}):
            return call(func._op, args, kwargs or {})
        if frame.f_code is _ENGINE and _graph_task() != -1:
            self.engine_writes += 1
            return call(func._op, args, kwargs or {})
        return self._write(call, func, args, kwargs or {}, frame)

    def _write(self, call: Any, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], frame: FrameType) -> Any:
        log, written = self._log, written_by(func)
        tally = log.begin(written, (func, args, kwargs), frame)
        try:
            result = call(func._op, args, kwargs)
        except BaseException as error:
            log.refused(tally, (func, args, kwargs), error, frame)
            raise
        log.done(tally, (func, args, kwargs), frame)
        return result


class WriteWatcher:
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
        self._cell = cell
        self._clock = clock
        sites = Sites(cell_number) if cell_number is not None else Sites()
        self._log = WriteLog(namespace, sites)
        self._mode = WriteMode(self._log)
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
            raise TraceError("these writes were watched before; make a new one with tensormagic.watch_writes()")
        prepare_counters()  # under the mode autograd is out of reach: it could not be found any more
        self._began = self._clock()
        with ExitStack() as stack:
            stack.enter_context(self._mode)
            stack.enter_context(self._captures.left_alone())
            self._stack = stack.pop_all()

    def stop(self, error: BaseException | None = None) -> None:
        """End, saying how: with the exception that ended the run, or None. Stopping twice is the same as once."""
        if self._state != "running":
            return
        self._stack.close()
        self._ended = self._clock()
        self._state = state_after(error)
        self._error = error_text(error) if error is not None else ""
        self._log.forget()
        if error is not None:
            strip_own_frames(error)

    def report(self) -> WritesReport:
        """Return everything known so far."""
        began = self._began
        return WritesReport(
            state=self._state,
            error=self._error,
            cell=self._cell,
            seconds=(self._ended or self._clock()) - began if began else 0.0,
            writes=self._log.writes(),
            writes_seen=self._log.seen,
            engine_writes=self._mode.engine_writes,
            names_searched=self._log.names_searched,
            gaps=(*self._log.gaps, *(Gap("writes", reason) for reason in (self._captures.gap,) if reason)),
        )
