"""The CUDA allocator's own recording of a run, switched on and off, and its events joined to lines and names."""

from __future__ import annotations

import functools
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import torch

from tensormagic.collectors.hooks.replacing import Replacement
from tensormagic.collectors.hooks.undo_stack import UndoStack
from tensormagic.collectors.memory.live_tensors import is_recording
from tensormagic.collectors.memory_runs.allocation_log import AllocationLog
from tensormagic.collectors.where.caller import own_frame
from tensormagic.collectors.where.source import CellNumber, location_of
from tensormagic.reports import Gap, Location
from tensormagic.reports.memory_run import AllocatorLine, AllocatorRun
from tensormagic.words import error_text

# The format is the one that `torch.cuda.memory._snapshot` documents: ``device_traces`` holds a list of events a
# device, ``segments`` what is reserved and which blocks of it are in use. An event has ``action``, ``addr``, ``size``
# (as asked for), ``stream``, ``time_us`` and ``frames``, the innermost first.

MOST_LINES = 200
_IN_USE = {"active_allocated", "active_pending_free", "active_awaiting_free"}  # the last is the documentation's word
_EFFECTS = {  # of an event's bytes on those in use, and on those reserved
    "alloc": (1, 0), "free_completed": (-1, 0), "segment_alloc": (0, 1), "segment_map": (0, 1),
    "segment_free": (0, -1), "segment_unmap": (0, -1),
}  # fmt: skip
_Line = tuple[str, int]


class DeviceFacts(NamedTuple):
    """What is known of a device from the run itself."""

    # Bytes of the storages that operations returned, by file and line; under None those that were allocated while no
    # line of the user's ran: by a backward, on the engine's own thread.
    returned: Mapping[_Line | None, int] = MappingProxyType({})
    peak: int = 0  # the most of them at once, those from before the run included
    addresses: Collection[int] = ()  # where the storages begin that are alive at the end


def _highest(events: Sequence[Mapping[str, Any]], in_use: int, reserved: int) -> tuple[int, int]:
    """Return the most that was in use and reserved, from the end backwards: only what it is there is known for sure."""
    peak, most_reserved = max(in_use, 0), max(reserved, 0)
    for event in reversed(events):
        size, (used, held) = int(event.get("size", 0)), _EFFECTS.get(event.get("action", ""), (0, 0))
        in_use, reserved = in_use - used * size, reserved - held * size
        peak, most_reserved = max(peak, in_use), max(most_reserved, reserved)
    return peak, most_reserved


def allocator_runs(
    snapshot: Mapping[str, Any], seen: Mapping[int, DeviceFacts], *, since: float, limit: int = 0,
    cell_number: CellNumber | None = None,
) -> tuple[AllocatorRun, ...]:  # fmt: skip
    """Return what the allocator recorded of a run, on each device that it recorded something of.

    ``snapshot`` is as `torch.cuda.memory._snapshot` returns it, ``seen`` by the number of the device. Events from
    before ``since``, in microseconds since 1970, are another run's; torch keeps ``limit`` events, beyond which it
    forgets the oldest: 0 where that is not known.
    """
    found, functions = [], dict[_Line | None, str]()
    for device, trace in enumerate(snapshot["device_traces"]):
        events = [event for event in trace if event.get("time_us", since) >= since]
        if events:
            segments = [segment for segment in snapshot["segments"] if segment.get("device", 0) == device]
            blocks = [block for one in segments for block in one["blocks"] if block["state"] in _IN_USE]
            in_use = sum(block["requested_size"] for block in blocks)
            peak, reserved = _highest(events, in_use, sum(one["total_size"] for one in segments))
            complete = len(events) < len(trace) or len(trace) < limit
            known = seen.get(device, DeviceFacts())
            served = ((event, event["size"]) for event in events if event["action"] == "alloc")
            # What is in use and no tensor was found over.
            unnamed = ((one, one["requested_size"]) for one in blocks if one["address"] not in known.addresses)
            lines = [
                AllocatorLine(where, sum(sizes), known.returned.get(line, 0), len(sizes), max(sizes))
                for line, where, sizes in _by_line(served, functions, cell_number)
            ]
            others = _by_line(unnamed, functions, cell_number)
            run = AllocatorRun(
                device=f"cuda:{device}", events=len(events), peak=peak if complete else None,
                reserved=reserved if complete else None, seen_peak=known.peak, complete=complete, lines=tuple(lines),
                unnamed=tuple((where, len(sizes), sum(sizes)) for _, where, sizes in others),
            )  # fmt: skip
            found.append(run)
    return tuple(found)


def _by_line(
    some: Iterable[tuple[Mapping[str, Any], int]], functions: dict[_Line | None, str], cell_number: CellNumber | None
) -> list[tuple[_Line | None, Location | None, list[int]]]:
    """Return sizes by the user's innermost line on the stacks, the most bytes first; None where there is no such.

    A line is of the function that was met there first: ``functions``.
    """
    sizes: dict[_Line | None, list[int]] = defaultdict(list)
    for entry, nbytes in some:
        own = own_frame(entry.get("frames"))
        line = None if own is None else own[:2]
        functions.setdefault(line, "" if own is None else own[2])
        sizes[line].append(nbytes)
    order = sorted(sizes, key=lambda line: -sum(sizes[line]))[:MOST_LINES]
    return [
        (line, line and location_of(*line, functions[line], cell_number=cell_number), sizes[line]) for line in order
    ]


# Switches the CUDA allocator's own recording on for a run, and leaves it as it was. Where the user records already,
# theirs is read and nothing is switched; where they begin to in the run, theirs goes on. CUDA is never started.

_BEGAN = "CUDA was initialised in this run: only the allocator events of later runs can be read"
_SWITCHED = "recording of allocator events was switched on in this run: only later events can be read"
LIMIT = 100_000  # events: some hundred bytes each, stacks shared


class CudaRecording:
    """One run's recording."""

    def __init__(self, cuda: Any = torch.cuda, enabled: Any = is_recording, clock: Any = time.time) -> None:
        self._cuda, self._enabled, self._clock = cuda, enabled, clock
        self._since: float | None = None  # the moment, in microseconds since 1970
        self._limit = 0  # events that are kept, where that is known
        self._snapshot: Mapping[str, Any] = {}
        self._mine = False
        self._switched = False  # by the user, in the run
        self.gaps: tuple[Gap, ...] = ()  # why nothing was recorded although there is CUDA memory

    def start(self, stack: UndoStack) -> None:
        """Begin, where CUDA is in use; recording ends with the stack. Never raises."""
        try:
            if not self._cuda.is_initialized():
                return
            mine = self._mine = not self._enabled()
            if mine:
                stack.callback(self._end)
                self._cuda.memory._record_memory_history("all", context="alloc", stacks="python", max_entries=LIMIT)
            stack.enter_context(Replacement(self._cuda.memory, "_record_memory_history", self._noting))
            self._since, self._limit = self._clock() * 1e6, LIMIT if mine else 0
        except Exception as error:
            self._mine = False
            self._missed("recorded", error)

    def _noting(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return torch's switch, which also notes that the user used it: what it is set to then is theirs."""

        @functools.wraps(original)
        def record(*args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            self._switched = True
            return result

        return record

    def _end(self) -> None:
        mine, self._mine = self._mine, False
        if mine and not self._switched:
            try:
                self._cuda.memory._record_memory_history(None)
            except Exception as error:
                self._missed("ended", error)

    def take(self) -> None:
        """Take down what was recorded, while it still is. Never raises."""
        try:
            if self._since is not None:
                self._snapshot = self._cuda.memory._snapshot()
            elif not self.gaps and self._cuda.is_initialized():
                self.gaps = (Gap("allocator", _BEGAN),)
            if self._switched and self._since is not None:
                self._limit, self.gaps = 0, (Gap("allocator", _SWITCHED),)
        except Exception as error:
            self._missed("read", error)

    def runs(
        self,
        allocation_logs: Iterable[AllocationLog],
        locations: Sequence[Location],
        cell_number: CellNumber | None = None,
    ) -> tuple[AllocatorRun, ...]:
        """Return what was recorded, joined to what the run itself knows; nothing where nothing was. Never raises."""
        snapshot, self._snapshot = self._snapshot, {}
        try:
            if self._since is not None and snapshot:
                known = seen_by(allocation_logs, locations)
                return allocator_runs(snapshot, known, since=self._since, limit=self._limit, cell_number=cell_number)
        except Exception as error:
            self._missed("joined", error)
        return ()

    def _missed(self, what: str, error: Exception) -> None:
        self.gaps = (Gap("allocator", f"the allocator's own events could not be {what}: {error_text(error)}"),)


def seen_by(allocation_logs: Iterable[AllocationLog], locations: Sequence[Location]) -> dict[int, DeviceFacts]:
    """Return what a run itself knows of each CUDA device, by its number."""
    found = {}
    lines: dict[int | None, _Line | None] = {at: (one.filename, one.line) for at, one in enumerate(locations)}
    for log in (log for log in allocation_logs if log.device.startswith("cuda")):
        returned = {lines.get(site): nbytes for site, nbytes in (log.served or {}).items()}
        storages = (block() for block in log.alive)
        addresses = frozenset(storage.data_ptr() for storage in storages if storage is not None)
        found[int(log.device.partition(":")[2] or 0)] = DeviceFacts(returned, max(log.peak, 0), addresses)
    return found
