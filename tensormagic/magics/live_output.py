"""What stands below a traced cell: first a live panel, then, in its place, the report."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

from IPython.core.error import UsageError
from IPython.display import display

from tensormagic import api
from tensormagic.magics.arguments import Output
from tensormagic.magics.display import bundle, deliver
from tensormagic.magics.explaining import note_told

if TYPE_CHECKING:
    from tensormagic.renderers.live import LivePanel, Mode
    from tensormagic.reports import TraceReport

_LAST: dict[int, TraceReport] = {}  # a shell's last traced run; plain data, and one of it


def last_report(shell: Any) -> TraceReport | None:
    """Return the report of the last run that was traced in this shell."""
    return _LAST.get(id(shell))


def forget(shell: Any) -> None:
    """Let go of what is kept of a shell's last run."""
    _LAST.pop(id(shell), None)
    if live := sys.modules.get("tensormagic.renderers.live"):
        live.dismiss_retired()


@contextmanager
def shown(shell: Any, trace: api.Trace, output: Output, mode: str) -> Iterator[None]:
    """Show the trace while it runs, and its report when it has ended, however it ended."""
    __tracebackhide__ = "__ipython_bottom__"
    if mode in {"off", "terminal"}:
        if mode == "terminal":
            trace.with_progress()
        try:
            yield
        finally:
            _deliver(shell, trace.report, output)
        return
    panel, handle = _open_panel(trace, mode)
    try:
        yield
    finally:
        panel.stop()
        report = _with_gaps(trace.report, panel)
        handle.update(bundle(report, slide=output.slide), raw=True)
        panel.retire()
        _deliver(shell, report, output, shown=True)


def _deliver(shell: Any, report: TraceReport, output: Output, *, shown: bool = False) -> None:
    """Send the report where it was asked for; what fails is a line, not an error: the cell's own outcome stands."""
    _LAST[id(shell)] = report
    if report.failure is not None:
        note_told(shell)
    try:
        deliver(shell, report, output, shown=shown)
    except UsageError as error:
        print(f"UsageError: {error}", file=sys.stderr)  # noqa: T201  (as IPython shows it)


def _open_panel(trace: api.Trace, mode: str) -> tuple[LivePanel, Any]:
    from tensormagic.renderers.live import LivePanel  # with the widgets that it needs

    handles: list[Any] = []

    def update(shown: dict[str, Any]) -> None:
        handles[0].update(shown, raw=True)

    panel = LivePanel(trace.frame, lambda: trace.report, mode=cast("Mode", mode), update=update)
    handles.append(display(panel.bundle(), raw=True, display_id=True))
    panel.start()
    return panel, handles[0]


def _with_gaps(report: TraceReport, panel: LivePanel) -> TraceReport:
    return dataclasses.replace(report, gaps=(*report.gaps, *panel.gaps)) if panel.gaps else report
