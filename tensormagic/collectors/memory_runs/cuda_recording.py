"""Switches the CUDA allocator's own recording on for a run, and leaves it as it was.

Where the person records already, theirs is read and nothing is switched. CUDA is never started by looking.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import torch

from tensormagic.collectors.memory_runs.cuda_events import History, Seen, allocator_runs
from tensormagic.collectors.names.source import CellNumber
from tensormagic.reports.allocator_run import AllocatorRun

_is_recording: Callable[[], bool] = getattr(torch._C, "_cuda_isHistoryEnabled", bool)  # not there in old builds

LIMIT = 100_000  # events: some hundred bytes each, stacks shared


class CudaRecording:
    """One run's recording.

    Args:
        cuda: `torch.cuda`.
        enabled: Says whether somebody records already.
        clock: Seconds since 1970.

    Attributes:
        gap: Why nothing was recorded although there is CUDA memory; empty where it was.
    """

    def __init__(
        self,
        cuda: Any = torch.cuda,
        enabled: Callable[[], bool] = _is_recording,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._cuda, self._enabled, self._clock = cuda, enabled, clock
        self._history: History | None = None
        self._mine = False
        self.gap = ""

    def start(self) -> None:
        """Begin, where CUDA is in use. Never raises."""
        try:
            if not self._cuda.is_available() or not self._cuda.is_initialized():
                return
            self._mine = not self._enabled()
            if self._mine:
                self._cuda.memory._record_memory_history("all", context="alloc", stacks="python", max_entries=LIMIT)
            self._history = History(self._clock() * 1e6, LIMIT if self._mine else 0)
        except Exception as error:
            self.gap = f"the allocator's own events could not be recorded: {type(error).__name__}: {error}"

    def stop(
        self, seen: Callable[[], Mapping[int, Seen]], cell_number: CellNumber | None = None
    ) -> tuple[AllocatorRun, ...]:
        """End; returns what was recorded, nothing where nothing was. Never raises.

        Args:
            seen: Gives what the run itself knows, by the number of the device.
            cell_number: Gives the number of a cell.
        """
        if self._history is None:
            return ()
        try:
            snapshot = self._cuda.memory._snapshot()
            return allocator_runs(snapshot, seen(), self._history, cell_number=cell_number)
        except Exception as error:
            self.gap = f"the allocator's own events could not be read: {type(error).__name__}: {error}"
            return ()
        finally:
            self._history = None
            if self._mine:
                self._cuda.memory._record_memory_history(None)


__all__ = ["CudaRecording"]
