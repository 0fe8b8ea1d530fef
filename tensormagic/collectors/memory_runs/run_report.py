"""The report of a memory run, and what grew in it."""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from types import FrameType
from typing import Any

import torch

from tensormagic.collectors.geometry.parts import is_backed, parts
from tensormagic.collectors.memory.live_memory import failing_variables, live_storage
from tensormagic.collectors.memory.live_tensors import LiveTensors, running
from tensormagic.collectors.memory.snapshot import stacked
from tensormagic.collectors.memory_runs.allocation_log import (
    BEFORE,
    AllocationLog,
    Block,
    LineTotals,
    Moment,
    Totals,
    counted_as,
)
from tensormagic.collectors.memory_runs.leaks import (
    FEWEST,
    FEWEST_GRAPHS,
    MEANT,
    MOST_NODES,
    RunFacts,
    StorageOwner,
    SurvivingStorage,
    find_ended,
    find_holders,
    find_leaks,
)
from tensormagic.collectors.ops import Place
from tensormagic.collectors.quiet import number, quiet
from tensormagic.collectors.session.session_walk import THOROUGH, ObjectWalk
from tensormagic.collectors.where.source import CellNumber
from tensormagic.reports import Gap, Leak, Location
from tensormagic.reports.base import gc_paused
from tensormagic.reports.memory import CATEGORIES, Category, DeviceMemory, LiveStorage
from tensormagic.reports.memory_run import AllocatedBlock, LineMemory, Timeline
from tensormagic.words import error_text

# What is alive, by name and category, for the storages of a run: the same walk that ``%gpumem`` takes.

Described = dict[int, LiveStorage]  # by the storage's identity


def described(namespace: Mapping[str, Any], frame: FrameType | None) -> tuple[Described, tuple[Gap, ...]]:
    """Return what everything that is alive is called, and what it is for; and what was not looked at. Never raises.

    The variables of ``frame`` are names, too.
    """
    try:
        with quiet(), gc_paused():
            walk = ObjectWalk(THOROUGH).through(namespace, running(frame, set(namespace)))
            alive = LiveTensors(walk, everything=True)
            every = ((block, live_storage(block)) for block in alive.blocks)
            return {identity: one for block, one in every for identity in block.identities}, alive.gaps
    except Exception as error:  # an odd object that a name leads to: the run is the user's
        return {}, (Gap("names", f"live memory could not be named: {error_text(error)}"),)


def alive_now() -> Iterator[tuple[torch.UntypedStorage, torch.Tensor, bool]]:
    """Yield every storage that is alive, some of them more than once, with a tensor over it: what graphs keep, too.

    Last: whether its bytes count with another storage over the same memory: every ``torch.from_numpy(a)`` makes one.
    """
    with quiet(), gc_paused():
        for block in LiveTensors(ObjectWalk(THOROUGH), everything=True).blocks:
            first = block.part.untyped_storage()._cdata
            for tensor in block.tensors.values():
                for part in parts(tensor):
                    storage = part.untyped_storage()
                    if block.memory.address or is_backed(storage):  # not a fake tensor's, a wrapper's
                        yield storage, part, storage._cdata in block.identities - {first}


MOST_LINES = 400  # in a report
MOST_STACKED = 24  # of these, those that the timeline is stacked by
MOST_BLOCKS = 400  # that a report lists one by one

Blocks = Sequence[tuple[Block, int]]  # with the bytes to report
_NOWHERE = Location("", 0, "")
_NO_PLACE = Place(None, "", "other")


class Account:
    """What a run did to memory, as plain data."""

    def __init__(
        self, logs: Sequence[AllocationLog], totals: Totals, locations: Sequence[Location], described: Described
    ) -> None:
        self._logs, self._locations, self._described = logs, locations, described
        self._every = [block for one in logs for block in one.alive]
        own = [block for block in self._every if not block.before]
        # What the run allocated and is alive, with its bytes.
        self.alive = [(block, block.nbytes) for block in own if block.nbytes or not block.shared]
        highest = max(logs, key=lambda log: log.peak, default=None)
        # What was alive at the peak of the device that peaked highest, with its bytes then.
        self.at_peak: Blocks = highest.peak_blocks if highest is not None else ()
        self.lines = self._lines(dict(totals))

    def _lines(self, totals: Mapping[int | None, LineTotals]) -> tuple[LineMemory, ...]:
        kept, peak = Counter[int | None](), Counter[int | None]()
        for block, nbytes in self.alive:
            kept[block.site] += nbytes
        for block, nbytes in self.at_peak:
            peak[block.site] += nbytes * (not block.before)
        sites = sorted(totals, key=lambda site: (-totals[site].allocated, -1 if site is None else site))
        every = [site for site in sites if site is not None or totals[site].allocated]
        self._numbers, self._lines_in_all = {site: at for at, site in enumerate(every[:MOST_LINES])}, len(every)
        return tuple(
            LineMemory(
                self._location(site) or _NOWHERE, allocated=total.allocated, backward=total.backward, freed=total.freed,
                kept=kept[site], at_peak=peak[site], largest=total.largest, calls=total.calls,
                peak=total.peak, op=max(total.ops, key=total.ops.__getitem__, default=""),
            )
            for site, total in ((site, totals[site]) for site in self._numbers)
        )  # fmt: skip

    def _location(self, site: int | None) -> Location | None:
        return None if site is None else self._locations[site]

    def gaps(self) -> tuple[Gap, ...]:
        """Return how many lines the report leaves out."""
        listed = f"lines that allocated or freed memory, the {MOST_LINES} with the most are listed"
        return (Gap("lines", f"of {self._lines_in_all} {listed}"),) if self._lines_in_all > MOST_LINES else ()

    # -- blocks -----------------------------------------------------------------------------------------------------

    def at_end(self) -> tuple[LiveStorage, ...]:
        """Return what is alive, the largest first."""
        order = sorted(self._every, key=lambda block: self._rank(block, block.nbytes))
        return tuple(self._storage(block, block.nbytes) for block in order[:MOST_BLOCKS])

    def largest(self, blocks: Blocks) -> tuple[tuple[AllocatedBlock, ...], tuple[int, int]]:
        """Return the largest of some blocks, and how many are left out and their bytes."""
        order = sorted(blocks, key=lambda pair: self._rank(*pair))
        listed = []
        for block, nbytes in order[:MOST_BLOCKS]:
            line, phase = self._numbers.get(block.site, -1), (block.place or _NO_PLACE).phase
            known = self._storage(block, nbytes)
            listed.append(AllocatedBlock(known, block.op, line, block.allocated_at, block.freed_at, phase))
        left = [nbytes for _, nbytes in order[MOST_BLOCKS:]]
        return tuple(listed), (len(left), sum(left))

    def _rank(self, block: Block, nbytes: int) -> tuple[int, int, str]:
        """Return the place among others: what was there before the run was met in no order, and goes by its name."""
        known = self._described.get(block.key) if block.before and block.freed_at is None else None
        return -nbytes, block.allocated_at, known.name if known is not None else ""

    def _storage(self, block: Block, nbytes: int) -> LiveStorage:
        """Return what is known of a storage, by name where it is alive and has one."""
        known = self._described.get(block.key) if block.freed_at is None else None
        place, where = block.place or _NO_PLACE, self._location(block.site)
        of_backward = place.phase == "backward"
        if known is not None:
            if where is None:
                where, of_backward = known.location, known.backward
            module = known.module or place.module
            return replace(known, nbytes=nbytes, module=module, location=where, backward=of_backward)
        return LiveStorage(
            name="", nbytes=nbytes, device=str(block.device), category=block.category or "other",
            dtype=str(block.dtype).removeprefix("torch.") if block.dtype is not None else "",
            shape=tuple(map(number, block.shape)), module=place.module, location=where, backward=of_backward,
            shared=block.shared,
        )  # fmt: skip

    # -- over time --------------------------------------------------------------------------------------------------

    def devices(self) -> tuple[DeviceMemory, ...]:
        """Return what is alive on each device."""
        return tuple(DeviceMemory(one.device, live=one.live, storages=len(one.alive)) for one in self._logs)

    def timelines(self, began: float, now: tuple[int, float]) -> tuple[Timeline, ...]:
        """Return what was alive on each device at each moment that was kept, and now."""
        found = []
        for log in self._logs:
            moments, by_category = [*log.moments.kept, Moment(*now, log.live)], self._levels(log, 0)
            by_line = self._levels(log, 1)
            by_line.pop(BEFORE, None)
            live = tuple(moment.live for moment in moments)
            timeline = Timeline(
                device=log.device, seconds=array("f", (moment.seconds - began for moment in moments)),
                operation=tuple(moment.operation for moment in moments), live=live,
                before=by_category.get(BEFORE, (0,) * len(moments)),
                by_category=tuple((each, by_category[each]) for each in CATEGORIES if any(by_category.get(each, ()))),
                by_line=stacked(by_line, self._numbers, MOST_STACKED), peak=live.index(max(live)),
                samples=log.moments.seen + 1,  # and now
            )  # fmt: skip
            found.append(timeline)
        return tuple(found)

    def category(self, block: Block) -> Category:
        """Return what a storage is for, as far as is known."""
        known = self._described.get(block.key)
        return known.category if known is not None else block.category or "other"

    def _levels(self, log: AllocationLog, part: int) -> dict[Any, tuple[int, ...]]:
        """Return the bytes at each moment, and now, by one part of what they count under: freed, or alive."""
        changes: dict[Any, list[int]] = defaultdict(lambda: [0] * (len(log.moments.kept) + 1))
        for key, steps in log.moments.steps.items():
            for at, nbytes in steps.items():
                changes[key[part]][at] += nbytes
        for block in log.alive:
            several = changes[counted_as(block, self.category(block))[part]]
            several[block.start] += block.nbytes
            for start, end, nbytes in block.pieces or ():
                several[start] += nbytes
                several[end] -= nbytes
        return {key: tuple(accumulate(each)) for key, each in changes.items()}


# What of a run's memory grew with its iterations. Who holds what is asked once, and only where as many storages stayed
# from one line as it takes to tell a leak.

SMALLEST = 2**20  # bytes; what collects less than that is no news, unless it is graphs


def grown_in(  # noqa: PLR0913  (what a run knows at its end)
    account: Account,
    facts: RunFacts,
    namespace: Mapping[str, Any],
    frame: FrameType | None,
    *,
    cell_number: CellNumber,
    error: BaseException | None,
) -> tuple[tuple[Leak, ...], tuple[Gap, ...]]:
    """Return what grew with every iteration, the largest first, then what was freed later; and what was not looked at.

    The variables of ``frame`` and its callers are names, too, and those of the functions that failed with ``error``.
    """
    gaps: tuple[Gap, ...] = ()
    leaks: tuple[Leak, ...] = ()
    try:
        every = ((block, account.category(block)) for block, _ in account.alive)
        stayed = {block: kind for block, kind in every if block.site is not None and kind not in MEANT}
        sites = Counter(block.site for block in stayed if block.site is not None)
        joins = facts.joins or {}
        # Enough stayed from one line, or one tensor was joined often enough.
        if any(count >= FEWEST_GRAPHS or len(joins.get(site, ())) > FEWEST for site, count in sites.items()):
            files = [facts.lines[site].filename for site, _ in sites.most_common()]
            failed = () if error is None else failing_variables(error, cell_number)
            variables = [(replace(place, kind="name"), value) for place, value in failed]
            variables = [*running(frame, set(namespace)), *variables]
            keys = {block.key for block in stayed}
            holders = find_holders(keys, namespace, files, variables, cell_number=cell_number)
            if holders.cut:
                gaps = (Gap("names", f"the search for what grows covered only some of the names: {holders.cut}"),)
            elif not holders.complete:
                gaps = (Gap("graphs", f"the search for what grows covered the first {MOST_NODES} stored nodes"),)
            stays = [_stay(block, category, holders.holds, block.nbytes) for block, category in stayed.items()]
            found = find_leaks(stays, replace(facts, complete=holders.complete))
            leaks = tuple(leak for leak in found if leak.graph or leak.kept >= SMALLEST)
    except Exception as problem:  # an odd object that a name leads to: the run is the user's
        gaps = (Gap("leaks", f"the search for what grows failed: {error_text(problem)}"),)
    gone = [(block, nbytes) for block, nbytes in account.at_peak if block.freed_at is not None and not block.before]
    peak = max((block.allocated_at for block, _ in account.at_peak), default=0)
    ended = find_ended([_stay(block, block.category or "other", {}, nbytes) for block, nbytes in gone], facts, peak)
    return (*leaks, *(leak for leak in ended if leak.kept >= SMALLEST)), gaps


def _stay(block: Block, category: Category, holds: Mapping[int, StorageOwner], nbytes: int) -> SurvivingStorage:
    site, hold = -1 if block.site is None else block.site, holds.get(block.key)
    return SurvivingStorage(site, nbytes, block.allocated_at, str(block.device), category, hold, block.freed_at)
