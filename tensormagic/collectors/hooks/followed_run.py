"""How everything that follows a run begins and ends: once, whatever comes, and saying how.

What follows runs says only what is its own: what it needs before (`_prepare_run`, `_begin_run`), what it puts into
torch (`_enter_run`), and what it still has to ask when the run has ended (`_finish_run`).
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import ClassVar

from tensormagic.collectors.hooks.modes import aside, calls_aside
from tensormagic.collectors.hooks.undoing import Undoing, abandon_in_children
from tensormagic.collectors.where.caller import error_text, state_after, strip_own_frames
from tensormagic.errors import TraceError
from tensormagic.reports import Cell, State


class FollowedRun:
    """Follows what runs between `start` and `stop`.

    Args:
        cell: The source that runs, for the report.
        clock: Seconds, monotonic.
    """

    used_before: ClassVar[str]  # what is said to somebody who starts it twice

    def __init__(self, cell: Cell, clock: Callable[[], float] = perf_counter) -> None:
        self._cell, self._clock = cell, clock
        self._undoing = Undoing()
        self._state: State = "running"
        self._error = ""
        self._began = self._ended = 0.0

    @property
    def seconds(self) -> float:
        """Wall time so far, or in all."""
        return (self._ended or self._clock()) - self._began if self._began else 0.0

    def start(self) -> None:
        """Begin.

        Raises:
            TraceError: if it was started before, or where it may not be followed.
        """
        self.get_ready()
        self.enter()

    def get_ready(self) -> None:
        """Look at what is there, before anything is put into torch; raises as `start` does."""
        if self._began:
            raise TraceError(self.used_before)
        try:
            with aside(), calls_aside(0):
                self._prepare_run()
        except TraceError as error:  # it never ran, and what is shown of it must not say that it runs
            self._state, self._error = "failed", error_text(error)
            raise
        self._began = self._clock()
        with aside(), calls_aside(0):
            self._begin_run()

    def enter(self) -> None:
        """Put into torch what follows the run."""
        abandon_in_children(self)
        with self._undoing as undoing:
            self._enter_run(undoing)

    def abandon(self) -> None:
        """End at once: in a process that was forked from this one, or where beginning or ending was interrupted."""
        self._undoing.close()
        if self._state == "running":
            self._state, self._ended = "interrupted", self._clock()

    def leave(self) -> None:
        """Take all out of torch again; the run is then to be stopped."""
        if self._state == "running" and not self._ended:
            self._last_look()
            self._undoing.close()
            self._ended = self._clock()

    def stop(self, error: BaseException | None = None) -> None:
        """End, saying how: with the exception that ended the run, or None. Stopping twice is the same as once."""
        if self._state != "running":
            return
        self.leave()
        with aside(), calls_aside(0):
            self._finish_run(error)
        self._state = state_after(error)
        self._error = error_text(error) if error is not None else ""
        if error is not None:
            with aside(), calls_aside(0):
                self._explain_error(error)
            strip_own_frames(error)

    # -- what is each one's own -------------------------------------------------------------------------------------

    def _prepare_run(self) -> None:
        """Do what must come before the run begins; raise TraceError where it may not be followed."""

    def _begin_run(self) -> None:
        """Look at what is there as the run begins."""

    def _enter_run(self, undoing: Undoing) -> None:
        """Put into torch what follows the run."""
        raise NotImplementedError

    def _last_look(self) -> None:
        """Ask what can only be asked while torch is still followed."""

    def _finish_run(self, error: BaseException | None) -> None:
        """Ask what can only be asked now, after torch is as it was."""

    def _explain_error(self, error: BaseException) -> None:
        """Look into the exception that ended the run, while it has its traceback."""
