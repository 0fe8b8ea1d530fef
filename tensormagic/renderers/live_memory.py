"""The live side of ``%%gpumem``: the bytes alive as they come and go, over the panel as it is now.

The line of bytes moves up to thirty times a second, by a message of a few numbers. The panel below it is the same
markup as after the run, made anew every second or two, and less often where making it takes long; what the person has
opened in it stays open.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import cache
from typing import Any

from tensormagic.renderers.assets import module
from tensormagic.renderers.basics.plain_text import plain, plain_report
from tensormagic.renderers.basics.styling import whole
from tensormagic.renderers.live import Bundle, view_of, widget_class
from tensormagic.renderers.memory import memory_run_html, memory_run_text
from tensormagic.renderers.sampler import Sampler
from tensormagic.reports import MemoryFrame, MemoryRunReport

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
        self._first = report()
        self.widget = _widget_class()(_document=_document(self._first)) if widget is None else widget
        self._sent: MemoryFrame | None = None
        self._next_page, self._pictured = -math.inf, 0

    def bundle(self) -> Bundle:
        """Return the mimebundle to display before the run: the widget, and what stands in its place without one."""
        return {
            **view_of(self.widget),
            "text/html": memory_run_html.render(plain_report(self._first)),
            "text/plain": memory_run_text.render(plain_report(self._first)),
        }

    def look(self, *, final: bool) -> None:
        """Send the numbers where they changed, and the panel where it is time for one."""
        frame = self._frame()
        if self._sent is None or _moved(frame, self._sent):
            self._sent = frame
            self.widget.send({**asdict(frame), "seconds": round(frame.seconds, 4), "place": plain(frame.place)})
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

    def close(self) -> None:
        """Stop, and take the widget away: the final output stands in its place by then."""
        self.stop()
        self.guarded(self.widget.close)


def _moved(frame: MemoryFrame, before: MemoryFrame) -> bool:
    return (frame.operations, frame.live, frame.running) != (before.operations, before.live, before.running)


def _document(report: MemoryRunReport) -> dict[str, Any]:
    return {"html": memory_run_html.render(plain_report(report))}


@cache
def _widget_class() -> Any:
    return widget_class("MemoryWidget", module("memory", "live.js"), whole("memory_live.css"), "_document")
