"""Shows a report again and again while a cell runs, where the output may be replaced: in a notebook.

A thread asks for the newest report at its own pace: once a second, and less often where that takes long. It shares the
interpreter with the run, and takes at most one fiftieth of the time. It never raises into the run.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from tensormagic.background import Background
from tensormagic.reports import Gap

THREAD_NAME = "tensormagic-repainter"
INTERVAL = 1.0  # seconds between two pictures, at least
SHARE = 0.02  # of the time, at most, goes into making them
JOIN_SECONDS = 5.0


class Repainter:
    """Calls ``paint`` while it is entered.

    Args:
        paint: Shows what there is now.
        interval: Seconds between two calls, at least.
        clock: Processor seconds of the thread that asks.

    Attributes:
        gaps: What went wrong while showing.
    """

    def __init__(
        self,
        paint: Callable[[], None],
        *,
        interval: float | None = None,
        clock: Callable[[], float] = time.thread_time,
    ) -> None:
        self._paint, self._clock = paint, clock
        self._interval = INTERVAL if interval is None else interval
        self._thread = Background(self._run, THREAD_NAME)
        self.gaps: list[Gap] = []

    def __enter__(self) -> Repainter:
        """Begin."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End, and wait until what is being shown is shown."""
        self._thread.stop(JOIN_SECONDS)

    def retire(self) -> None:
        """Nothing to leave behind: what was painted last is what stays."""

    def _run(self, stopping: threading.Event) -> None:
        wait = self._interval
        while not stopping.wait(wait):
            began = self._clock()
            try:
                self._paint()
            except Exception as error:  # noqa: BLE001  (showing never raises into the run)
                self.gaps.append(Gap("live panel", f"{type(error).__name__}: {error}"))
                return
            wait = max(self._interval, (self._clock() - began) / SHARE)
