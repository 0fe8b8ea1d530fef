"""A running trace at the bottom of a terminal."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tensormagic.reports import LiveFrame, TraceReport

if TYPE_CHECKING:
    from tensormagic.renderers.live import LivePanel


def open_progress(frame: Callable[[], LiveFrame], report: Callable[[], TraceReport]) -> LivePanel | None:
    """Begin to show a running trace at the bottom of the terminal; None where there is no terminal.

    Args:
        frame: Returns what changes quickly.
        report: Returns a consistent snapshot of everything.
    """
    from tensormagic.renderers.terminal.terminal import INTERVAL, terminal_sender

    sender = terminal_sender()
    if sender is None:
        return None
    from tensormagic.renderers.live import LivePanel, Seams

    panel = LivePanel(frame, report, mode="terminal", seams=Seams(sender, INTERVAL))
    panel.start()
    return panel
