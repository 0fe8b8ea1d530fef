"""``%%tracegrad``: a backward graph that lights up while the cell runs, and what went wrong."""

from __future__ import annotations

import dataclasses
import functools
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from IPython.core.error import UsageError
from IPython.display import display

from tensormagic import api
from tensormagic.magics.arguments import Output, Parser, make_parser, output_of
from tensormagic.magics.cell import CellSource, cell_number
from tensormagic.magics.display import bundle, check, deliver, is_notebook
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
    made.add_argument(
        "--level", choices=("grad", "ops"), default="grad",
        help="ops: also every operation, forward and backward, with its time, memory and writes",
    )  # fmt: skip
    made.add_argument("--live", choices=("widget", "html", "off"), help="how to show it while it runs")
    return made


def run(shell: Any, line: str, cell: str | None, *, live: str) -> Any:
    """Trace the cell, show the report, and return the value of the cell's last expression.

    Whatever the cell raises goes on, unchanged, after the report of what happened is shown.

    Raises:
        UsageError: for an unknown option, a file that cannot be saved to, or no cell; nothing has run then.
    """
    __tracebackhide__ = "__ipython_bottom__"
    options = parser().parse_line(line)
    if options.help:
        print(parser().format_help().rstrip())  # noqa: T201  (asked for)
        return None
    if cell is None:
        raise UsageError(f"{NAME} runs a cell: write it, with two percent signs, in the cell's first line")
    output = output_of(options)
    check(output)
    source = CellSource(shell, cell, f"{NAME} {line}".rstrip())
    trace = api.Trace(
        shell.user_ns, source.cell, cell_number=functools.partial(cell_number, shell), title=_plain(options.title),
        level=options.level,
    )  # fmt: skip
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
            _deliver(shell, trace.report, output)
        return
    panel, handle = _open_panel(trace, mode)
    try:
        yield
    finally:
        panel.stop()
        report = _with_gaps(trace.report, panel)
        handle.update(bundle(report), raw=True)
        panel.close()
        _deliver(shell, report, output, shown=True)


def _deliver(shell: Any, report: TraceReport, output: Output, *, shown: bool = False) -> None:
    """Send the report where it was asked for; what fails is a line, not an error: the cell's own outcome stands."""
    try:
        deliver(shell, report, output, shown=shown)
    except UsageError as error:
        print(f"UsageError: {error}", file=sys.stderr)  # noqa: T201  (as IPython shows it)


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
