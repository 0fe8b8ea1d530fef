"""A thread that looks at a run a few times a second, while the run goes on and after it once more.

The notebook server drops everything, the person's own prints included, once a kernel sends too many messages. So
hooks send nothing at all: a sampler takes the newest state at its own pace, and what came and went between two looks is
never sent. It shares the interpreter with the run, so it keeps itself cheap, and it never raises into the run.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING

from tensormagic.background import Background
from tensormagic.renderers.live_pace import Pace
from tensormagic.reports import Gap

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

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
        gap = Gap("live panel", f"{type(error).__name__}: {error}")
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
