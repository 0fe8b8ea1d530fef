"""``%%aliases``: run a cell and say, line by line, whose elements its in-place writes change."""

from __future__ import annotations

import functools
import sys
from typing import Any

from IPython.core.error import UsageError

from tensormagic import api
from tensormagic.magics.arguments import Output, Parser, make_parser, output_of
from tensormagic.magics.cell import CellSource, cell_number
from tensormagic.magics.display import check, deliver
from tensormagic.magics.explaining import Explained
from tensormagic.reports import WritesReport

NAME = "%%aliases"


def parser() -> Parser:
    """Return the parser of ``%%aliases``; its help is the magic's help."""
    return make_parser(
        NAME,
        "Run the cell and show, at the line of every in-place write, which other names it changes, and whether it "
        "reads memory it is overwriting.",
        WritesReport,
    )


def run(shell: Any, line: str, cell: str) -> Any:
    """Watch the cell's writes, show the report, and return the value of the cell's last expression.

    Whatever the cell raises goes on, unchanged, after the report of what happened is shown.

    Raises:
        UsageError: for an unknown option, a figure, or a file that cannot be saved to; nothing has run then.
    """
    __tracebackhide__ = "__ipython_bottom__"
    options = parser().parse_line(line)
    if options.help:
        print(parser().format_help().rstrip())  # noqa: T201  (asked for)
        return None
    output = output_of(options)
    if output.figure is not None:
        raise UsageError(f"{NAME} has no figure; without --figure it shows the cell with all that its writes changed")
    check(output)
    source = CellSource(shell, cell, f"{NAME} {line}".rstrip())
    watch = api.WriteWatch(shell.user_ns, source.cell, cell_number=functools.partial(cell_number, shell))
    with Explained(shell):
        try:
            with watch:
                return source.run()
        finally:
            _deliver(shell, watch, output)


def _deliver(shell: Any, watch: api.WriteWatch, output: Output) -> None:
    """Send the report where it was asked for; what fails is a line, not an error: the cell's own outcome stands."""
    try:
        deliver(shell, watch.report, output)
    except UsageError as error:
        print(f"UsageError: {error}", file=sys.stderr)  # noqa: T201  (as IPython shows it)
