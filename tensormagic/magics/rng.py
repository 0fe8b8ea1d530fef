"""``%rng``: every random generator; ``%%rng``: run a cell and say which call on which line drew from which of them."""

from __future__ import annotations

import functools
from typing import Any

from IPython.core.error import UsageError

from tensormagic import api
from tensormagic.magics.arguments import Parser, make_parser, output_of
from tensormagic.magics.cell import CellSource, cell_number
from tensormagic.magics.display import check, deliver, deliver_after_run
from tensormagic.magics.explaining import Explained
from tensormagic.magics.names import own_namespace
from tensormagic.reports import RngReport

NAME = "%rng"


def parser() -> Parser:
    """Return the parser of ``%rng`` and ``%%rng``; its help is the magic's help."""
    return make_parser(
        NAME,
        "Show every random generator: its seed, and how many numbers it has drawn. %%rng at the top of a cell: which "
        "call on which line draws from which generator.",
        RngReport,
    )


def run(shell: Any, line: str, cell: str | None = None) -> Any:
    """Show the generators; with a cell, run it, show who drew, and return the value of its last expression.

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
        raise UsageError(f"{NAME} has no figure; without --figure it shows the generators as a table")
    check(output)
    if cell is None:
        deliver(shell, api.rng(own_namespace(shell)), output)
        return None
    source = CellSource(shell, cell, f"%{NAME} {line}".rstrip())
    watch = api.DrawWatch(shell.user_ns, source.cell, cell_number=functools.partial(cell_number, shell))
    with Explained(shell):
        try:
            with watch:
                return source.run(passed=watch.passed)
        finally:
            deliver_after_run(shell, watch.report, output)
