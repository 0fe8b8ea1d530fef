"""What is shown below a traced cell: first a live panel, then, in its place, the report."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any

from IPython.display import display

from tensormagic import api
from tensormagic.magics.frames import bundle, deliver_after_run, note_explained, reported

if TYPE_CHECKING:
    from tensormagic.reports import RunReport, TraceReport
    from tensormagic.views.page.live import LivePanel, Mode

_LAST: dict[int, TraceReport] = {}  # a shell's last traced run; plain data, and one of it


def last_report(shell: Any) -> TraceReport | None:
    """Return the report of the last run that was traced in this shell."""
    return _LAST.get(id(shell))


def forget(shell: Any) -> None:
    """Let go of what is kept of a shell's last run."""
    _LAST.pop(id(shell), None)
    if live := sys.modules.get("tensormagic.views.page.live"):
        live.dismiss_retired()


def shown(shell: Any, trace: api.Trace, options: Namespace, mode: Any) -> AbstractContextManager[None]:
    """Show the trace while it runs, and its report when it has ended, however it ended."""
    opened = None if mode == "off" else partial(_open_panel, trace, options, mode)
    return reported(shell, trace, options, opened, _deliver)


def _deliver(shell: Any, report: TraceReport | RunReport, options: Namespace, *, shown: bool = False) -> None:
    """Send the report where it was asked for; what fails is a line, not an error: the cell's own outcome counts."""
    from tensormagic.reports import RunReport

    _LAST[id(shell)] = trace = report.trace if isinstance(report, RunReport) else report
    if trace.failure is not None:
        note_explained(shell)
    deliver_after_run(shell, report, options, shown=shown or _is_idle(report))


def _is_idle(report: TraceReport | RunReport) -> bool:
    """Return whether a run failed by an error that is not torch's before there was anything to show beside it."""
    from tensormagic.reports import RunReport

    if isinstance(report, RunReport):
        return False
    seen = report.failure or report.findings or report.passes_seen or report.cuts or report.ops or report.graphs
    return report.state == "failed" and not seen


def _open_panel(trace: api.Trace, options: Namespace, mode: Mode) -> tuple[LivePanel, Callable[[Any], None]]:
    """Show the trace while it runs; returns the panel, and what shows a report in its place."""
    from tensormagic.views.page.live import LivePanel  # with the widgets that it needs

    handles: list[Any] = []
    kept: list[Any] = []  # the display of its last picture, once there is one

    def update(shown: dict[str, Any]) -> None:
        handles[0].update(shown, raw=True)

    def keep(shown: dict[str, Any]) -> None:
        if kept:
            kept[0].update(shown, raw=True)
        else:
            kept.append(display(shown, raw=True, display_id=True))

    def show_instead(report: TraceReport | RunReport) -> None:
        update({"text/plain": ""} if _is_idle(report) else bundle(report, slide=options.slide))
        for one in kept:
            one.update({"text/plain": ""}, raw=True)

    panel = LivePanel(trace.frame, lambda: trace.live, mode=mode, update=update, keep=keep, wall=options.slide)
    handles.append(display(panel.bundle(), raw=True, display_id=True))
    panel.start()
    return panel, show_instead
