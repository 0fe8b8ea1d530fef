"""``%%tracegrad``: a backward graph that lights up while the cell runs, and what went wrong."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from IPython.display import display

from tensormagic import api
from tensormagic.magics.arguments import Output, Parser, make_parser, output_of, pieces
from tensormagic.magics.cell import CellSource, cell_number
from tensormagic.magics.display import bundle, deliver, is_notebook
from tensormagic.renderers.live import LivePanel
from tensormagic.reports import TraceReport

NAME = "%%tracegrad"


def parser() -> Parser:
    """Return the parser of ``%%tracegrad``; its help is the magic's help."""
    made = make_parser(
        NAME,
        "Run the cell and show its backward graph while it runs: gradients, where they vanish, explode or turn NaN.",
    )
    made.add_argument("--title", default="", metavar="TEXT", help="a name for the run; by default the model's")
    made.add_argument("--live", choices=("widget", "html", "off"), help="how to show it while it runs")
    return made


def run(shell: Any, line: str, cell: str, *, live: str) -> Any:
    """Trace the cell, show the report, and return the value of the cell's last expression.

    Whatever the cell raises goes on, unchanged, after the report of what happened is shown.
    """
    __tracebackhide__ = "__ipython_bottom__"
    options = parser().parse_args(pieces(line))
    if options.help:
        print(parser().format_help().rstrip())  # noqa: T201  (asked for)
        return None
    output = output_of(options)
    source = CellSource(shell, cell)
    trace = api.Trace(
        shell.user_ns, source.cell, cell_number=functools.partial(cell_number, shell), title=_plain(options.title)
    )
    quiet = output.text or output.figure is not None or not is_notebook(shell)
    mode = "off" if quiet else options.live or live
    with _shown(shell, trace, output, mode), trace:
        return source.run()


@contextmanager
def _shown(shell: Any, trace: api.Trace, output: Output, mode: str) -> Iterator[None]:
    """Show the trace while it runs, and its report when it has ended, however it ended."""
    __tracebackhide__ = "__ipython_bottom__"
    if mode == "off":
        try:
            yield
        finally:
            deliver(shell, trace.report, output)
        return
    panel, handle = _open_panel(trace, mode)
    try:
        yield
    finally:
        panel.stop()
        report = _with_gaps(trace.report, panel)
        handle.update(bundle(report), raw=True)
        panel.close()
        deliver(shell, report, output, shown=True)


def _open_panel(trace: api.Trace, mode: str) -> tuple[LivePanel, Any]:
    handles: list[Any] = []

    def update(shown: dict[str, Any]) -> None:
        handles[0].update(shown, raw=True)

    panel = LivePanel(trace.frame, lambda: trace.report, mode=mode, update=update)  # type: ignore[arg-type]
    handles.append(display(panel.bundle(), raw=True, display_id=True))
    panel.start()
    return panel, handles[0]


def _with_gaps(report: TraceReport, panel: LivePanel) -> TraceReport:
    return dataclasses.replace(report, gaps=(*report.gaps, *panel.gaps)) if panel.gaps else report


def _plain(title: str) -> str:
    return title.strip("\"'")
