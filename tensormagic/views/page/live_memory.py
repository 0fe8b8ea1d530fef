"""The live side of ``%%gpumem``: the bytes alive as they come and go, over the panel as it is now.

The line of bytes moves up to thirty times a second, by a message of a few numbers. The panel below it is the same
markup as after the run, made anew every second or two, and less often where making it takes long; what the user has
opened in it stays open.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from functools import cache
from typing import Any

from tensormagic import views
from tensormagic.reports import MemoryFrame, MemoryRunReport
from tensormagic.views.markup import plain, plain_report
from tensormagic.views.page.live import Bundle, keep_retired, view_of, widget_class
from tensormagic.views.page.sampler import Sampler
from tensormagic.views.theme import module, static, tokens
from tensormagic.words import DOT, number_of_bytes, plural

PAGE_INTERVAL = 1.0  # seconds between two panels, at least
PAGE_SHARE = 0.02  # of the time, at most, goes into making them


class MemoryPanel(Sampler):
    """Shows a run whose memory is followed, from its start to its stop.

    Args:
        frame: Returns where the run stands; called up to 30 times a second, from the sampler's thread.
        report: Returns everything known so far.
        widget: What is sent to; by default a new widget.
        interval: Seconds between two looks; by default what a look costs decides.
        clock: Seconds, monotonic.

    Attributes:
        widget: What is sent to.
    """

    def __init__(
        self,
        frame: Callable[[], MemoryFrame],
        report: Callable[[], MemoryRunReport],
        *,
        widget: Any = None,
        interval: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(interval)
        self._frame, self._report, self._clock = frame, report, clock
        self.widget = _widget_class()(_document=_document(report())) if widget is None else widget
        self._sent: tuple[int, int, bool] | None = None
        self._next_page, self._pictured = -math.inf, 0

    def view(self) -> Bundle:
        """Return the part of a mimebundle that displays the widget."""
        return view_of(self.widget)

    def look(self, *, final: bool) -> None:
        """Send the numbers where they changed, and the panel where it is time for one."""
        frame = self._frame()
        if (stands := (frame.operations, frame.live, frame.running)) != self._sent:
            self._sent = stands
            where = f"line {frame.line}" if frame.line else plain(frame.place)
            rest = f"peak {number_of_bytes(frame.peak)}", plural(frame.operations, "operation"), where
            words = f"{number_of_bytes(frame.live)} alive", f" {DOT} ".join(filter(None, rest))
            moment = {"seconds": round(frame.seconds, 4), "live": frame.live, "peak": frame.peak}
            self.widget.send({**moment, "words": words})
        if frame.operations != self._pictured and (final or self._clock() >= self._next_page):
            self._send_page(frame.operations)

    def _send_page(self, operations: int) -> None:
        began = self.pace.clock()
        try:
            self.widget._document = _document(self._report())  # noqa: SLF001  (the trait of our own class)
            self._pictured = operations
        finally:
            spent = self.pace.clock() - began
            self.pace.set_apart(spent)
            self._next_page = self._clock() + max(PAGE_INTERVAL, spent / PAGE_SHARE)

    def retire(self) -> None:
        """Stop, and leave the widget as the run ended, until the next one retires: see `LivePanel.retire`."""
        self.stop()
        keep_retired(self.widget.close)


def _document(report: MemoryRunReport) -> dict[str, Any]:
    return {"html": views.draw(plain_report(report), "html")}


@cache
def _widget_class() -> Any:
    return widget_class("MemoryWidget", module("memory/live.js"), tokens() + static("memory_live.css"))
