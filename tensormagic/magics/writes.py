"""``%%aliases``: run a cell and say, line by line, whose elements its in-place writes change."""

from __future__ import annotations

import functools
from typing import Any

from IPython.core.error import UsageError

from tensormagic import api
from tensormagic.magics.arguments import Parser, make_parser, output_of
from tensormagic.magics.cell import CellSource, cell_number
from tensormagic.magics.display import check, deliver_after_run
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
            deliver_after_run(shell, watch.report, output)
