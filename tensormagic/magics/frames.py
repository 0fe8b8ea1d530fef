"""The frame of every magic: parse, run, deliver, and explain what goes wrong."""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import TracebackType
from typing import Any

from IPython.core.error import UsageError

from tensormagic import api
from tensormagic.errors import TensorMagicError
from tensormagic.magics.arguments import Magic, Output, expressions
from tensormagic.magics.cell import CellSource, cell_number
from tensormagic.magics.display import check, deliver, deliver_after_run, show

# What all magics do: read their line or print help, refuse what cannot work, run a cell, show the report.

# What follows a cell, what shows that, and what explains an error that ends it.
Followed = tuple[Any, AbstractContextManager[Any], AbstractContextManager[Any]]


def run_line(shell: Any, line: str, magic: Magic) -> None:
    """Show the report that a line asks for, or the help.

    Args:
        shell: The shell.
        line: The rest of the magic's line.
        magic: What makes the report.

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


def run_cell(shell: Any, line: str, cell: str, magic: Magic, *, live: str = "") -> Any:
    """Follow a cell while it runs, show the report, and return the value of the cell's last expression.

    Whatever the cell raises goes on, unchanged, after the report of what happened is shown.

    Args:
        shell: The shell.
        line: The rest of the magic's line.
        cell: The cell below it.
        magic: What follows the cell.
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
    source = CellSource(shell, cell, f"%%{magic.name.lstrip('%')} {line}".rstrip())
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


# Errors explained where they happen: below the traceback in any cell, and beside it under the other magics.
#
# IPython shows an exception's traceback and then says that the cell has run: that is when the explanation is added.
# It is read from the exception alone, so a cell that raises nothing costs nothing.

_EVENT = "post_run_cell"
_TOLD: set[int] = set()  # shells whose running cell's error was explained already


class Explained:
    """Explains the error that ends a ``with`` block; the error goes on unchanged.

    A class, not a generator: that would leave frames in the traceback.

    Args:
        shell: The IPython shell.
        source: The source of the expression that is evaluated, where Python cannot know it.
        memory: Whether memory that ran out is explained here; False where the magic itself explains it.
    """

    def __init__(self, shell: Any, source: str = "", *, memory: bool = True) -> None:
        self._shell, self._source, self._memory = shell, source, memory

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Show the explanation, where torch refused a call."""
        if error is None:
            return
        elsewhere = not self._memory and api.is_out_of_memory(error)
        if elsewhere or explain(self._shell, error, source=self._source):
            note_told(self._shell)


def note_told(shell: Any) -> None:
    """Say that the error which is about to end the running cell was explained already."""
    _TOLD.add(id(shell))


def explain(shell: Any, error: BaseException, *, source: str = "") -> bool:
    """Show what is known of the call that torch refused; returns whether there was one."""
    number = functools.partial(cell_number, shell)
    report = api.explain_error(error, namespace=shell.user_ns, cell_number=number, source=source)
    if report is not None:
        show(report)
    return report is not None


def install(shell: Any, is_on: Callable[[], bool]) -> Callable[[], None]:
    """Explain errors below the cells that raise them, while ``is_on`` says so; returns what undoes it."""

    def ended(result: Any) -> None:
        described = id(shell) in _TOLD
        _TOLD.discard(id(shell))
        if is_on() and not described and result.error_in_exec is not None:
            explain(shell, result.error_in_exec)

    shell.events.register(_EVENT, ended)
    return functools.partial(_uninstall, shell, ended)


def _uninstall(shell: Any, ended: Callable[[Any], None]) -> None:
    shell.events.unregister(_EVENT, ended)
    _TOLD.discard(id(shell))
