"""Looks at a run while it goes on, at a pace that costs little, and where what was seen is sent."""

from __future__ import annotations

import math
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
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
# went between two looks is never sent: nothing queues.

FASTEST = 1 / 30  # seconds between two looks: more than 30 a second no eye can use
SLOWEST = 1 / 4
SHARE = 0.02  # of the time, at most, goes into looking; documents, which are larger, have a share of their own
HANDED_ON = 0.0002  # seconds of the kernel's own thread, which wakes up and sends what a look hands over: as measured
THREAD_SWITCH = 0.0001  # seconds that the run loses, too, each time another thread takes the interpreter: two a look
_NEW = 0.2  # weight of the newest look in the mean


@dataclass(slots=True)
class Pace:
    """Says how long to wait for the next look."""

    cost: float = 0.0  # Seconds of the processor that a look takes, a running mean.
    clock: Callable[[], float] = time.thread_time  # Seconds that this thread has spent on the processor.
    wall: Callable[[], float] = time.monotonic  # Seconds, monotonic.
    _due: float = 0.0
    _began: float = 0.0
    _apart: float = 0.0

    @property
    def interval(self) -> float:
        """Seconds from one look to the next."""
        whole = self.cost + HANDED_ON + 2 * THREAD_SWITCH
        return min(max(whole / SHARE, FASTEST), SLOWEST)

    def rest(self, interval: float) -> float:
        """Return the seconds to wait now, so that looks come so far apart; what was missed is not made up for.

        A look takes time, and begins late where the run holds the interpreter: that is taken off the wait, down to
        half of it.
        """
        now = self.wall()
        self._due = max(self._due + interval, now + interval / 2)
        return self._due - now

    def __enter__(self) -> None:
        """Begin a look."""
        self._began, self._apart = self.clock(), 0.0

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End it, also one that failed."""
        spent = max(self.clock() - self._began - self._apart, 0.0)
        self.cost = spent if not self.cost else (1 - _NEW) * self.cost + _NEW * spent

    def set_apart(self, seconds: float) -> None:
        """Leave seconds of the look that is under way out of its cost: they are bounded elsewhere."""
        self._apart += seconds


# A thread that looks at a run a few times a second, while the run goes on and after it once more.
#
# The notebook server drops everything, the user's own prints included, once a kernel sends too many messages. So
# hooks send nothing at all: a sampler takes the newest state at its own pace, and what came and went between two
# looks is never sent. It shares the interpreter with the run, so it keeps itself cheap, and it never raises into the
# run.

THREAD_NAME = "tensormagic-sampler"
JOIN_SECONDS = 5.0


class Sampler(ABC):
    """Looks at a run from its start to its stop.

    Args:
        interval: Seconds between two looks; by default what a look costs decides.

    Attributes:
        gaps: What went wrong while showing; shown in the final report, never raised.
        pace: How often it looks, and what a look costs.
    """

    def __init__(self, interval: float | None = None) -> None:
        self.gaps: list[Gap] = []
        self.pace = Pace()
        self._interval = interval
        self._thread: Background | None = None

    @abstractmethod
    def look(self, *, final: bool) -> None:
        """Send what is new; ``final`` after the run."""

    @property
    def shows_nothing(self) -> bool:
        """Whether there is nobody to look for."""
        return False

    def start(self) -> None:
        """Start sampling; once."""
        if self._thread is not None or self.shows_nothing:
            return
        self._thread = Background(self._run, THREAD_NAME)
        self._thread.start()

    def stop(self) -> None:
        """Stop sampling, and send what is left; calling it again does nothing."""
        thread, self._thread = self._thread, None
        if thread is None or thread.left_behind:
            return
        if not thread.stop(JOIN_SECONDS):
            self.gaps.append(Gap("live panel", f"the sampler did not stop within {JOIN_SECONDS:g} s"))
            return
        self.tick(final=True)

    def tick(self, *, final: bool = False) -> None:
        """Look once."""
        with self.pace:
            self.guarded(lambda: self.look(final=final))

    def guarded(self, action: Callable[[], None]) -> None:
        """Do something; what it raises becomes a gap."""
        try:
            action()
        except Exception as error:  # noqa: BLE001  (showing never raises into the run)
            self.note(error)

    def note(self, error: Exception) -> None:
        """Keep what went wrong, once."""
        gap = Gap("live panel", error_text(error))
        if gap not in self.gaps:
            self.gaps.append(gap)

    def _run(self, stopping: threading.Event) -> None:
        while not stopping.wait(self.pace.rest(self._interval or self.pace.interval)):
            self.tick()

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
    """Where the states go; as it is here, nowhere: nothing is shown while the cell runs."""

    refresh = math.inf  # Seconds after which a whole document is sent again where only numbers changed.

    def document(self, report: TraceReport) -> None:
        """Show a whole report."""

    def delta(self, frame: LiveFrame) -> None:
        """Show what changed since."""

    def close(self) -> None:
        """Nothing more will come."""
