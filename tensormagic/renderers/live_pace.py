"""How often a run is looked at: as often as an eye can use, and as seldom as keeps the cost of looking small.

A look is taken by a thread that shares the interpreter with the run: what it costs, the run loses. So a look is timed
on the processor, and the next one waits until its share of the time is a small one. A state that came and went between
two looks is never sent: nothing queues.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType

FASTEST = 1 / 30  # seconds between two looks: more than 30 a second no eye can use
SLOWEST = 1 / 4
SHARE = 0.02  # of the time, at most, goes into looking; documents, which are larger, have a share of their own
HANDED_ON = 0.0002  # seconds of the kernel's own thread, which wakes up and sends what a look hands over: as measured
HANDOVER = 0.0001  # seconds that the run loses, besides, each time another thread takes the interpreter: two a look
_NEW = 0.2  # weight of the newest look in the mean


@dataclass(slots=True)
class Pace:
    """Says how long to wait for the next look.

    Attributes:
        cost: Seconds of the processor that a look takes, a running mean.
        clock: Seconds that this thread has spent on the processor.
        wall: Seconds, monotonic.
    """

    cost: float = 0.0
    clock: Callable[[], float] = time.thread_time
    wall: Callable[[], float] = time.monotonic
    _due: float = 0.0
    _began: float = 0.0
    _apart: float = 0.0

    @property
    def interval(self) -> float:
        """Seconds from one look to the next."""
        whole = self.cost + HANDED_ON + 2 * HANDOVER
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
