"""Errors explained where they happen: below the traceback in any cell, and beside it under the other magics.

IPython shows an exception's traceback and then says that the cell has run: that is when the explanation is added. It is
read from the exception alone, so a cell that raises nothing costs nothing.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import TracebackType
from typing import Any

from tensormagic import api
from tensormagic.magics.cell import cell_number
from tensormagic.magics.display import show

_EVENT = "post_run_cell"
_TOLD: set[int] = set()  # shells whose running cell's error was explained already


class Explained:
    """Explains the error that ends a ``with`` block; the error goes on unchanged.

    A class, not a generator: that would leave frames in the traceback.

    Args:
        shell: The IPython shell.
        source: The source of the expression that is evaluated, where Python cannot know it.
        memory: Whether memory that ran out is told here; False where the magic itself tells it.
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
