"""Following the memory of a run: ``with tensormagic.track_memory() as run: …``, then ``run.report``."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any

from tensormagic.api.running import CellNumber, _Run
from tensormagic.collectors.requirements import require_torch
from tensormagic.collectors.where.source import cell_of
from tensormagic.reports import Cell
from tensormagic.reports.memory_run import MemoryFrame, MemoryRunReport


class MemoryRun(_Run[MemoryRunReport]):
    """A run whose memory is followed: ``with tensormagic.track_memory() as run: …``, then ``run.report``.

    While the block runs, one dispatch mode is on torch's stack.
    """

    def __init__(
        self,
        namespace: Mapping[str, Any],
        cell: Cell,
        *,
        cell_number: CellNumber | None = None,
        title: str = "",
        functions: Iterable[Any] = (),
    ) -> None:
        from tensormagic.collectors.memory_runs.recorder import MemoryRecorder

        self._follower = MemoryRecorder(namespace, cell, cell_number=cell_number, title=title, functions=functions)

    def frame(self) -> MemoryFrame:
        """Return where the run stands, for a live panel: bytes alive, peak, the line."""
        found: MemoryFrame = self._follower.frame()
        return found

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Stop; an exception goes on."""
        self._follower.stop(error, sys._getframe(1))  # noqa: SLF001  (the variables of the block's function)


def track_memory(
    *, title: str = "", namespace: Mapping[str, Any] | None = None, functions: Iterable[Any] = ()
) -> MemoryRun:
    """Return a context manager that follows the memory of what runs inside it: bytes alive, peak, bytes per line.

    Args:
        title: A name for the run.
        namespace: Where names of models and tensors are looked up; by default the caller's globals.
        functions: Functions to go through line by line, or their names: ``[train, "model.forward"]``. What happens
            inside of them counts at their own lines, a library's functions included.

    Raises:
        UnknownNameError: for what is no function that is written in Python.
        RequirementError: where torch is missing or too old.
    """
    require_torch()
    caller = sys._getframe(1)  # noqa: SLF001  (documented default)
    return MemoryRun(
        caller.f_globals if namespace is None else namespace, cell_of(caller), title=title, functions=functions
    )
