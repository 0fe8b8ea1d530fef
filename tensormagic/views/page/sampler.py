"""Looks at a run while it goes on, at a pace that costs little, and where what was seen is sent."""

from __future__ import annotations

import math
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING

from tensormagic.background import Background
from tensormagic.reports import Gap
from tensormagic.words import error_text

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

    from tensormagic.reports import LiveFrame, TraceReport


# How often a run is looked at: as often as an eye can use, and as seldom as keeps the cost of looking small.
#
# A look is taken by a thread that shares the interpreter with the run: what it costs, the run loses. So a look is
# timed on the processor, and the next one waits until its share of the time is a small one. A state that came and
# went between two looks is never sent: nothing queues. (The notebook server drops everything, the user's own prints
# included, once a kernel sends too many messages: hooks send nothing at all.)

FASTEST = 1 / 30  # seconds between two looks: more than 30 a second no eye can use
SLOWEST = 1 / 4
SHARE = 0.02  # of the time, at most, goes into looking; and as much into whole documents, which are larger
# Seconds that a look takes elsewhere, as measured: in the kernel's own thread, which sends what it hands over, and
# where the interpreter goes to another thread and back.
AROUND = 0.0004
THREAD_NAME = "tensormagic-sampler"
JOIN_SECONDS = 5.0
_NEW = 0.2  # weight of the newest look in the mean


class Sampler(ABC):
    """Looks at a run from its start to its stop.

    Args:
        interval: Seconds between two looks; by default what a look costs decides.
        clock: Seconds, monotonic.
        processor: Seconds that this thread has spent on the processor.

    Attributes:
        gaps: What went wrong while showing; shown in the final report, never raised.
        cost: Seconds of the processor that a look takes, whole documents left out; a running mean.
    """

    def __init__(
        self,
        interval: float | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        processor: Callable[[], float] = time.thread_time,
    ) -> None:
        self.gaps: list[Gap] = []
        self.cost = 0.0
        self.clock, self.processor = clock, processor
        self._interval = interval
        self._thread: Background | None = None
        self._due, self._apart = 0.0, 0.0
        self._documented, self._rest = -math.inf, 0.0

    @abstractmethod
    def look(self, *, final: bool) -> None:
        """Send what is new; ``final`` after the run."""

    def due(self, wait: float) -> bool:
        """Return whether the last whole document is so many seconds ago, and more where making it takes long."""
        return self.clock() >= self._documented + max(wait, self._rest)

    def document(self, send: Callable[[], None]) -> None:
        """Send a whole document; what it costs counts for the next one (see `due`), not for the pace of looks."""
        began = self.processor()
        try:
            send()
        finally:
            spent = self.processor() - began
            self._apart += spent
            self._documented, self._rest = self.clock(), spent / SHARE

    @property
    def interval(self) -> float:
        """Seconds from one look to the next."""
        return self._interval or min(max((self.cost + AROUND) / SHARE, FASTEST), SLOWEST)

    def wait(self) -> float:
        """Return the seconds to wait now, so that looks come `interval` apart; what was missed is not made up for.

        A look takes time, and begins late where the run holds the interpreter: that is taken off the wait, down to
        half of it.
        """
        now = self.clock()
        self._due = max(self._due + self.interval, now + self.interval / 2)
        return self._due - now

    def start(self) -> None:
        """Start sampling; once."""
        if self._thread is None:
            self._thread = Background(self._run, THREAD_NAME)
            self._thread.start()

    def _run(self, stopping: threading.Event) -> None:
        while not stopping.wait(self.wait()):
            self.tick()

    def stop(self) -> None:
        """Stop sampling, and send what is left; calling it again does nothing."""
        thread, self._thread = self._thread, None
        if thread is None or thread.left_behind:
            return
        if thread.stop(JOIN_SECONDS):
            self.tick(final=True)
        else:
            self.gaps.append(Gap("live panel", f"the sampler did not stop within {JOIN_SECONDS:g} s"))

    def tick(self, *, final: bool = False) -> None:
        """Look once; what that raises becomes a gap, once, and never reaches the run."""
        began, self._apart = self.processor(), 0.0
        try:
            self.look(final=final)
        except Exception as error:  # noqa: BLE001  (as said)
            self.note(error)
        spent = max(self.processor() - began - self._apart, 0.0)
        self.cost = (1 - _NEW) * self.cost + _NEW * spent if self.cost else spent

    def note(self, error: Exception) -> None:
        """Keep what went wrong, once."""
        gap = Gap("live panel", error_text(error))
        if gap not in self.gaps:
            self.gaps.append(gap)

    def __enter__(self) -> Self:
        """Start."""
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop; an exception goes on."""
        self.stop()


class Sender:
    """Where the states go; as it is here, nowhere."""

    refresh = math.inf  # Seconds after which a whole document is sent again where only numbers changed.

    def document(self, report: TraceReport) -> None:
        """Show a whole report."""

    def delta(self, frame: LiveFrame) -> None:
        """Show what changed since."""

    def close(self) -> None:
        """Nothing more will come."""
