"""Switches the CUDA allocator's own recording on for a run, and leaves it as it was.

Where the person records already, theirs is read and nothing is switched; where they begin to in the run, theirs goes
on after it. CUDA is never started by looking.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import torch

from tensormagic.collectors.hooks.replacing import replace
from tensormagic.collectors.memory_runs.cuda_events import History, Seen, allocator_runs
from tensormagic.collectors.memory_runs.ledger import Ledger
from tensormagic.collectors.where.source import CellNumber
from tensormagic.reports import Gap, Location
from tensormagic.reports.allocator_run import AllocatorRun

_is_recording: Callable[[], bool] = getattr(torch._C, "_cuda_isHistoryEnabled", bool)  # not there in old builds

_BEGAN = "CUDA began in this run: the allocator's own events are read of later ones"
_SWITCHED = "the recording of the allocator's events was switched in this run: only those since then can be read"
LIMIT = 100_000  # events: some hundred bytes each, stacks shared


class CudaRecording:
    """One run's recording.

    Args:
        cuda: `torch.cuda`.
        enabled: Says whether somebody records already.
        clock: Seconds since 1970.

    Attributes:
        gaps: Why nothing was recorded although there is CUDA memory; empty where it was.
    """

    def __init__(
        self,
        cuda: Any = torch.cuda,
        enabled: Callable[[], bool] = _is_recording,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._cuda, self._enabled, self._clock = cuda, enabled, clock
        self._history: History | None = None
        self._snapshot: Mapping[str, Any] = {}
        self._switched = False  # by the person, in the run
        self.gaps: tuple[Gap, ...] = ()

    def start(self, stack: ExitStack) -> None:
        """Begin, where CUDA is in use; recording ends with the stack. Never raises."""
        try:
            if not self._cuda.is_initialized():
                return
            mine = not self._enabled()
            if mine:
                self._cuda.memory._record_memory_history("all", context="alloc", stacks="python", max_entries=LIMIT)
                stack.callback(self._end)
            stack.callback(replace(self._cuda.memory, "_record_memory_history", self._noting))
            self._history = History(self._clock() * 1e6, LIMIT if mine else 0)
        except Exception as error:
            self._missed("recorded", error)

    def _noting(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return torch's switch, which also notes that the person used it: what it is set to then is theirs."""

        @functools.wraps(original)
        def record(*args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            self._switched = True
            return result

        return record

    def _end(self) -> None:
        if self._switched:
            return
        try:
            self._cuda.memory._record_memory_history(None)
        except Exception as error:
            self._missed("ended", error)

    def take(self) -> None:
        """Take down what was recorded, while it still is. Never raises."""
        try:
            if self._history is not None:
                self._snapshot = self._cuda.memory._snapshot()
            elif not self.gaps and self._cuda.is_initialized():
                self.gaps = (Gap("allocator", _BEGAN),)
            if self._switched and self._history is not None:
                self._history, self.gaps = History(self._history.since), (Gap("allocator", _SWITCHED),)
        except Exception as error:
            self._missed("read", error)

    def runs(
        self, ledgers: Iterable[Ledger], locations: Sequence[Location], cell_number: CellNumber | None = None
    ) -> tuple[AllocatorRun, ...]:
        """Return what was recorded, joined to what the run itself knows; nothing where nothing was. Never raises.

        Args:
            ledgers: One a device.
            locations: The lines, by number.
            cell_number: Gives the number of a cell.
        """
        snapshot, self._snapshot = self._snapshot, {}
        if self._history is None or not snapshot:
            return ()
        try:
            return allocator_runs(snapshot, seen_by(ledgers, locations), self._history, cell_number=cell_number)
        except Exception as error:
            self._missed("joined", error)
            return ()

    def _missed(self, what: str, error: Exception) -> None:
        reason = f"the allocator's own events could not be {what}: {type(error).__name__}: {error}"
        self.gaps = (Gap("allocator", reason),)


def seen_by(ledgers: Iterable[Ledger], locations: Sequence[Location]) -> dict[int, Seen]:
    """Return what a run itself knows of each CUDA device, by its number."""
    found = {}
    for ledger in ledgers:
        kind, _, number = ledger.device.partition(":")
        if kind == "cuda":
            found[int(number or 0)] = Seen(_returned(ledger, locations), max(ledger.peak, 0), _addresses(ledger))
    return found


def _returned(ledger: Ledger, locations: Sequence[Location]) -> dict[tuple[str, int] | None, int]:
    lines = ((None if site is None else locations[site], nbytes) for site, nbytes in (ledger.served or {}).items())
    return {None if place is None else (place.filename, place.line): nbytes for place, nbytes in lines}


def _addresses(ledger: Ledger) -> frozenset[int]:
    storages = (block() for block in ledger.alive)
    return frozenset(storage.data_ptr() for storage in storages if storage is not None)


__all__ = ["CudaRecording", "seen_by"]
