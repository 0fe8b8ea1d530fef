"""Follows the memory of a run: what each operation allocates, sums in between, and a report at any moment."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from threading import RLock
from types import FrameType
from typing import Any

import torch
from torch import nn

from tensormagic.collectors.failures.failures import Surroundings, failure_of, out_of_memory_of
from tensormagic.collectors.geometry.parts import storages
from tensormagic.collectors.hooks.mode_suspension import Listener
from tensormagic.collectors.hooks.undo_stack import UndoStack
from tensormagic.collectors.memory.live_tensors import Origin, note_lines
from tensormagic.collectors.memory_runs.allocation_log import (
    AllocationLog,
    Block,
    Event,
    Iterations,
    LineTotals,
    Totals,
    new_block,
)
from tensormagic.collectors.memory_runs.allocations import FEWEST_EVENTS, Allocations
from tensormagic.collectors.memory_runs.cuda_events import CudaRecording
from tensormagic.collectors.memory_runs.functions import Functions
from tensormagic.collectors.memory_runs.leaks import RunFacts
from tensormagic.collectors.memory_runs.run_report import Account, Described, alive_now, described, grown_in
from tensormagic.collectors.objects.identity import ModuleNames, RunningModules
from tensormagic.collectors.quiet import quiet
from tensormagic.reports import AllocatorRun, Cell, FailureReport, Gap, Leak
from tensormagic.reports.memory import Category, DeviceMemory
from tensormagic.reports.memory_run import MemoryFrame, MemoryRunReport
from tensormagic.words import error_text

_INSIDE = "memory that these allocate and free internally is not seen: {}"
_WHOLE = (
    "torch uses another code path while operations are traced, so only the results of these were measured, not what "
    "they allocate internally: {}"
)
_COMPILED = (
    "{} calls went into functions compiled by torch.compile: of their kernels' memory, only what surrounding "
    "operations use was seen"
)
NUMBER = 16  # bytes of a Python number that autograd has saved: a tensor without a name, made by no operation
_UNMET = (
    "{} bytes are alive at the end that no operation on this thread allocated{}: allocations of other threads, "
    "compiled kernels and libraries are not traced"
)


class MemoryRecorder(Listener):
    """Follows the memory of a run.

    Names are looked up in ``namespace``: read, never written, and not copied. ``functions`` are gone through line by
    line: themselves, or what a user writes for them; what is none written in Python is an UnknownNameError.
    """

    used_before = "this object was used before; make a new one with tensormagic.track_memory()"

    def __init__(
        self, namespace: Mapping[str, Any], cell: Cell, *, functions: Iterable[Any] = (), **options: Any
    ) -> None:
        super().__init__(namespace, cell, **options)
        names = ModuleNames(namespace)
        names.on_root = self._note_module
        modules = RunningModules(names)
        self._functions = Functions(functions, namespace, cell)
        places = self._functions.places(self._sites, modules.path_in)
        self.operations = self._seen = Allocations(places, self._fold, self.run.clock)
        self._totals: Totals = defaultdict(LineTotals)
        self._iterations = Iterations()
        self._allocation_logs: dict[torch.device, AllocationLog] = {}
        self._lock = RLock()  # a live panel asks from another thread
        self._failed: FailureReport | None = None
        self._before: tuple[DeviceMemory, ...] = ()
        self._described: Described = {}
        self._leaks: tuple[Leak, ...] = ()
        self._cuda = CudaRecording()
        self._allocator: tuple[AllocatorRun, ...] = ()
        self._unseen: tuple[Gap, ...] = ()
        self._newest: int | None = None  # the line of what happened last

    # -- life -----------------------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Note what is alive before the run, each at once: it may die while the next are looked for. Never raises."""
        seen = self._seen
        try:
            for storage, tensor, is_twin in alive_now():
                if storage._cdata not in seen.known:
                    block = new_block(storage, tensor, seen.note_death)
                    if is_twin or not storage.resizable():
                        seen.count_once(storage, block)
                    if is_twin and not block.shared:  # among too many to look for the other one
                        block.nbytes, block.size, block.shared = 0, 0, True
                    block.before, seen.known[block.key] = True, block
                    seen.events.append(block)
        except Exception as error:  # an odd tensor: the run is the user's
            seen.gap = f"before the run: {error_text(error)}"

    def begin(self) -> None:
        """Begin the sums."""
        self._seen.begin()
        for block in self._seen.events:
            if isinstance(block, Block):
                block.seconds = self.run.began
        self._fold()
        self._before = self._account().devices()

    def enter(self, undoing: UndoStack) -> None:
        """Put into torch what is asked of functions and of devices."""
        undoing.enter_context(self._functions.executions)
        self._cuda.start(undoing)

    def last_look(self) -> None:
        """Take what the allocators of devices have recorded."""
        self._cuda.take()

    def finish(self, error: BaseException | None, frame: FrameType | None) -> None:
        """Ask what is alive at the end, by its names, and what grew."""
        self._measure_again()
        with self._lock:
            self._fold()
            lines, cells = self._sites.locations, self._sites.cell_number
            self._allocator = self._cuda.runs(self._allocation_logs.values(), lines, cells)
            self._described, gaps = described(self._namespace, frame)
            self._unseen = (*gaps, *self._unmet())
            # While everything still has its name: what grew with every iteration.
            first = {site: total.first for site, total in self._totals.items() if site is not None}
            facts = RunFacts(lines, self._iterations.backwards, self._iterations.joins, first)
            self._leaks, gaps = grown_in(self._account(), facts, self._namespace, frame, cell_number=cells, error=error)
            self._unseen += gaps
            self._note_lines()

    def _note_lines(self) -> None:
        """Let later looks show which lines allocated what is left. Never raises."""
        lines = self._sites.locations
        found = ((storage, place, place.site) for storage, place in self._seen.allocated())
        try:
            note_lines(
                (one, Origin(lines[at], place.phase == "backward")) for one, place, at in found if at is not None
            )
        except Exception as error:  # a storage of an odd kind
            self._seen.gap = f"after the run: {error_text(error)}"

    def _unmet(self) -> Iterator[Gap]:
        met = {id(one) for key, one in self._described.items() if key in self._seen.known}
        unmet = {id(one): one for one in self._described.values() if id(one) not in met and one.nbytes}
        found = [one for one in unmet.values() if one.name or one.shape or one.nbytes > NUMBER]
        if found:
            largest = max(found, key=lambda one: one.nbytes)
            named = f", the largest of them {largest.name}" if largest.name else ""
            yield Gap("operations", _UNMET.format(sum(one.nbytes for one in found), named))

    def _note_module(self, _name: str, module: nn.Module) -> None:
        """Note what the parameters and buffers of a model are that runs: they may die before the run ends."""
        held: list[tuple[Category, torch.Tensor]] = [("parameter", one) for one in module.parameters()]
        held += [("buffer", one) for one in module.buffers()]
        for category, storage in ((category, storage) for category, one in held for storage in storages(one)):
            if (block := self._seen.known.get(storage._cdata)) is not None:
                block.category = category

    def explain(self, error: BaseException) -> None:
        """Look at where the memory is while the functions that failed still have it, where it ran out."""
        if out_of_memory_of(error) is not None:
            self._failed = failure_of(error, Surroundings(self._namespace, self._sites.cell_number))

    def _measure_again(self) -> None:
        with quiet():
            for block in list(self._seen.known.values()):
                storage = None if block.shared else block()
                if storage is not None and (size := storage.nbytes()) != block.size:
                    self._seen.note_size(block, size, None, "")

    def _fold(self) -> None:
        """Add up what happened since the last time. Never raises: it is called in the midst of the run."""
        with self._lock:
            events = self._seen.events[:]
            del self._seen.events[: len(events)]
            try:
                self._add_up(events)
            except Exception as error:
                self._seen.gap = error_text(error)
            self._seen.patience = max(FEWEST_EVENTS, len(self._seen.known))

    def _add_up(self, events: list[Event]) -> None:
        by_device: defaultdict[torch.device, list[Event]] = defaultdict(list)
        if events and (site := events[-1].site) is not None:
            self._newest = site
        for event in events:
            by_device[event.device if isinstance(event, Block) else event.block.device].append(event)
        for device, some in by_device.items():
            if device.type != "meta":
                if device not in self._allocation_logs:
                    self._allocation_logs[device] = AllocationLog(str(device), self._totals, self._iterations)
                self._allocation_logs[device].fold(some)

    # -- what is known so far -------------------------------------------------------------------------------------

    def alive(self) -> list[Block]:
        """Return the storages that are alive, those from before the run included."""
        with self._lock:
            self._fold()
            return [block for one in self._allocation_logs.values() for block in one.alive]

    def frame(self) -> MemoryFrame:
        """Return where the run stands: little enough to be asked for many times a second."""
        with self._lock:
            if self.run.state == "running":
                self._fold()
            logs, place = list(self._allocation_logs.values()), self._sites.location(self._newest)
            return MemoryFrame(
                seconds=self.run.seconds, operations=self._seen.operations, live=sum(log.live for log in logs),
                peak=sum(max(log.peak, 0) for log in logs),
                line=place.line if place is not None and place.filename == self.run.cell.filename else 0,
                place=place.label if place is not None else "", running=self.run.state == "running",
            )  # fmt: skip

    def _account(self) -> Account:
        return Account(list(self._allocation_logs.values()), self._totals, self._sites.locations, self._described)

    def report(self) -> MemoryRunReport:
        """Return everything known so far; consistent also while the run goes on."""
        with self._lock:
            if self.run.state == "running":
                self._fold()
            account = self._account()
            now = self._seen.operations, self.run.clock() if self.run.state == "running" else self.run.ended
            peak, peak_left_out = account.largest(account.at_peak)
            kept, kept_left_out = account.largest(account.alive)
            lines = self._functions.lines(account.lines, self._sites)
            failed = self._failed
            memory = failed.memory if failed is not None else None
            return MemoryRunReport(
                **self.run.fields(), title=self._title, operations=self._seen.operations, before=self._before,
                after=account.devices(), timelines=account.timelines(self.run.began, now), lines=lines,
                peak_blocks=peak, peak_left_out=peak_left_out, kept=kept, kept_left_out=kept_left_out,
                leaks=self._leaks, functions=self._functions.described(lines), allocator=self._allocator,
                out_of_memory=failed.out_of_memory if failed is not None else None,
                at_end=memory.storages if memory is not None else account.at_end(),
                freeable=memory.freeable if memory is not None else (),
                gaps=(*self._gaps(), *account.gaps()),
            )  # fmt: skip

    def _gaps(self) -> tuple[Gap, ...]:
        seen, stepping = self._seen, self.run.stepping
        compiled, captured = (stepping.captures.calls, stepping.captures.gap) if stepping is not None else (0, "")
        reasons = (
            (seen.gap, f"the memory of an operation could not be measured: {seen.gap}"),
            (seen.whole, _WHOLE.format(", ".join(sorted(seen.whole)))),
            (compiled, _COMPILED.format(compiled)),
            (captured, captured),
            (seen.inside, _INSIDE.format(", ".join(sorted(seen.inside)))),
        )
        wording = (Gap("operations", reason) for found, reason in reasons if found)
        return tuple(
            dict.fromkeys((*wording, *self._sites.gaps(), *self._unseen, *self._functions.gaps(), *self._cuda.gaps))
        )
