"""What all magics do: read their line or print help, refuse what cannot work, run a cell, show the report."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from types import ModuleType
from typing import Any

from IPython.core.error import UsageError

from tensormagic.errors import TensorMagicError
from tensormagic.magics.arguments import Output, expressions
from tensormagic.magics.cell import CellSource
from tensormagic.magics.display import check, deliver, deliver_after_run

# What follows a cell, what shows that, and what explains an error that ends it.
Followed = tuple[Any, AbstractContextManager[Any], AbstractContextManager[Any]]


def run_line(shell: Any, line: str, magic: ModuleType) -> None:
    """Show the report that a line asks for, or the help.

    Args:
        shell: The shell.
        line: What stands behind the magic.
        magic: Has its ``parser``, and a function ``report`` that makes the report, of the shell, the options and the
            output; None where that has shown it itself.

    Raises:
        UsageError: for an unknown option, and for what the magic refuses.
    """
    __tracebackhide__ = True
    given = magic.parser().given(line)
    if given is None:
        return
    refused = ""
    try:
        report = magic.report(shell, *given)
    except TensorMagicError as error:
        refused = str(error)
    if refused:  # raised here, not above: the first error's frames would keep what they hold
        raise UsageError(refused)
    if report is not None:
        deliver(shell, report, given[1])


def one_expression(options: argparse.Namespace, refusal: str) -> str:
    """Return the one expression on a line.

    Raises:
        UsageError: where there are several: ``refusal``, with a place for their number, and which.
    """
    asked = expressions(options.expression)
    if len(asked) > 1:
        raise UsageError(f"{refusal.format(len(asked))}: {', '.join(asked)}")
    return asked[0]


def run_cell(shell: Any, line: str, cell: str, magic: ModuleType, *, live: str = "") -> Any:
    """Follow a cell while it runs, show the report, and return the value of the cell's last expression.

    Whatever the cell raises goes on, unchanged, after the report of what happened is shown.

    Args:
        shell: The shell.
        line: What stands behind the magic.
        cell: The cell below it.
        magic: Has its ``parser``, and a function ``follow`` that makes what follows the cell: of the shell, of how it
            is to be shown while it runs, of the options, the output and the cell.
        live: How a run is shown, where the options do not say.

    Raises:
        UsageError: for an unknown option, a figure, or a file that cannot be saved to; nothing has run then.
    """
    __tracebackhide__ = "__ipython_bottom__"
    given = magic.parser().given(line)
    if given is None:
        return None
    options, output = given
    check(output)
    source = CellSource(shell, cell, f"%%{magic.NAME.lstrip('%')} {line}".rstrip())
    followed, shown, explained = magic.follow(shell, live, options, output, source.cell)
    with explained, shown, followed:
        return source.run(passed=getattr(followed, "passed", None))


@contextmanager
def reported(shell: Any, followed: Any, output: Output) -> Iterator[None]:
    """Show the report when the cell has ended, however it ended."""
    __tracebackhide__ = "__ipython_bottom__"
    try:
        yield
    finally:
        deliver_after_run(shell, followed.report, output)
