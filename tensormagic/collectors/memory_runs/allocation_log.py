"""What was allocated and freed in a run, block by block, folded into sums."""

from __future__ import annotations

import weakref
from array import array
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import itemgetter
from typing import Any, NamedTuple

import torch

from tensormagic.collectors.ops import Place
from tensormagic.reports.memory import Category

# The Python object of a storage lives as long as the storage itself, whoever holds that: tensors, views, autograd
# graphs or C++ alone. So a weak reference to it, with a callback, shows exactly when the memory is given back.


class Block(weakref.ref[torch.UntypedStorage]):
    """One storage, in a run: a weak reference to it, with what is known of it."""

    __slots__ = (
        "allocated_at", "before", "by_engine", "category", "device", "dtype", "freed_at", "key", "nbytes", "op",
        "pieces", "place", "seconds", "shape", "shared", "size", "start", "task",
    )  # fmt: skip

    key: int  # Address of the C++ storage: its identity while it lives.
    nbytes: int  # Its bytes, as far as they were added up.
    size: int  # Its bytes when last looked at.
    device: torch.device  # Its device.
    place: Place | None  # Where it was allocated; None where it was there before the run.
    # Whether the engine of autograd asked for it, with no line of the user's above: `place` is that of the call whose
    # backward it is.
    by_engine: bool
    op: str  # Name of the operation that allocated it.
    allocated_at: int  # Number of that operation.
    seconds: float  # When that was, by the clock of the run.
    task: int  # Number of the backward that allocated it; -1 where none did.
    dtype: torch.dtype | None  # Of the first tensor over it.
    shape: tuple[int, ...]  # Likewise.
    before: bool  # Whether it was there before the run.
    shared: bool  # Whether its bytes count with another storage, which lies over the same memory: a NumPy array's.
    start: int  # Index of the first moment of the timeline at which it counts with its present size.
    # Where it was grown or shrunk: first moment, last moment (not included), and bytes in between.
    pieces: list[tuple[int, int, int]] | None
    freed_at: int | None  # Number of the operation during or after which it was freed.
    category: Category | None  # What it was for, where that is known.

    __hash__ = object.__hash__  # by itself: the storage may be gone, and its address another's
    __eq__ = object.__eq__

    @property
    def site(self) -> int | None:
        """Number of the line that allocated it."""
        return None if self.place is None else self.place.site


def new_block(storage: torch.UntypedStorage, tensor: Any, on_freed: Callable[[Block], None]) -> Block:
    """Return what is known of a storage by itself; ``on_freed`` is called with the block when it is freed (0.9 µs)."""
    block = Block(storage, on_freed)
    block.key = storage._cdata
    block.nbytes = block.size = storage.nbytes()
    try:
        block.device, block.dtype, block.shape = tensor.device, tensor.dtype, tensor.shape
    except Exception:  # a lazy module's parameter has no shape yet, and a class of the user's may raise anything
        block.device, block.dtype, block.shape = storage.device, None, ()
    block.place, block.op, block.allocated_at, block.seconds, block.task = None, "", 0, 0.0, -1
    block.before = block.shared = block.by_engine = False
    block.start, block.pieces, block.freed_at, block.category = 0, None, None, None
    return block


MOST_JOINED = 4096  # tensors noted for one line, the latest
JOINING = frozenset({"aten.cat.default", "aten.constant_pad_nd.default", "aten.stack.default"})


class Iterations:
    """What shows the iterations of a run."""

    def __init__(self) -> None:
        self.backwards = array("q")  # numbers of the operations at which a backward was first seen to run
        self.joins: dict[int, list[tuple[int, int]]] = {}  # operation and bytes of what a line joined of others
        self.latest = -1  # number of the last backward that was seen; whoever sees one with a greater number says so

    def began(self, task: int, operation: int) -> None:
        """Note that a backward with this number, greater than the latest, was running."""
        self.latest = task
        self.backwards.append(operation)

    def joined(self, block: Block) -> None:
        """Note the allocation of what was joined from others."""
        if block.site is not None:
            every = self.joins.setdefault(block.site, [])
            every.append((block.allocated_at, block.nbytes))
            if len(every) > 2 * MOST_JOINED:
                del every[:MOST_JOINED]


# The bytes alive at a bounded number of moments, in all and by what they are for and which line allocated them. A
# storage adds its bytes at the moment where it begins and takes them away where it ends, so that moments can be left
# out without losing count. Of each few neighbours the lowest and highest stay; of too many, every other pair goes.

MOST = 2000
BEFORE = "before"
_level, _new_tuple = itemgetter(2), tuple.__new__  # of a moment; without the call in Python that a NamedTuple's makes
Counted = tuple[str, "int | str | None"]  # a category and a line; twice BEFORE for what was there before the run


def counted_as(block: Block, category: Category) -> Counted:
    """Return under what a storage counts that is of a category."""
    return (BEFORE, BEFORE) if block.before else (category, block.site)


class Moment(NamedTuple):
    """The state after an operation, or after what was freed behind it."""

    operation: int  # its number
    seconds: float  # when, by the clock of the run
    live: int  # bytes alive


class Moments:
    """The moments of one device."""

    def __init__(self) -> None:
        self.kept: list[Moment] = []  # those that were kept, in order
        self.seen = 0  # how many there were
        self._stride = 2
        # By what a storage was for and its line, which bytes came or went at which of the kept ones.
        self.steps: defaultdict[Counted, defaultdict[int, int]] = defaultdict(partial(defaultdict, int))

    def add(self, moments: Sequence[tuple[int, float, int]], levels: list[int]) -> list[int]:
        """Keep some of the moments that came next, of which ``levels`` are the bytes alive.

        For each of them, return the index of the first kept one at or after it; their number, where that is to come.
        """
        chosen, after = _chosen(levels, self._stride), list[int]()
        for at in chosen:
            after += [len(self.kept)] * (at + 1 - len(after))
            self.kept.append(_new_tuple(Moment, moments[at]))
        self.seen += len(moments)
        return after + [len(self.kept)] * (len(moments) - len(after))

    def thin(self) -> list[int] | None:
        """Leave every other pair out, until there are few enough.

        Return what each index became, the number of moments included; None where nothing changed.
        """
        moved: list[int] | None = None
        while len(self.kept) > MOST:
            self._stride *= 2
            chosen = _chosen([moment.live for moment in self.kept], 4)
            step = [bisect_left(chosen, at) for at in range(len(self.kept) + 1)]
            self.kept = [self.kept[at] for at in chosen]
            for key, steps in self.steps.items():
                made = self.steps[key] = defaultdict(int)
                for at, nbytes in steps.items():
                    made[step[at]] += nbytes
            moved = step if moved is None else [step[at] for at in moved]
        return moved


def _chosen(levels: list[int], stride: int) -> list[int]:
    """Return the places of the first lowest and the first highest of each ``stride`` neighbours."""
    if stride <= 2:
        return list(range(len(levels)))
    chosen = {0} if levels else set[int]()
    for start in range(0, len(levels), stride):
        few = levels[start : start + stride]
        chosen |= {start + few.index(min(few)), start + few.index(max(few))}
    return sorted(chosen)


# What happened to the memory of one device is folded into sums a few thousand events at a time. What is alive at the
# highest moment is put together from the events up to it, whenever a batch goes beyond what was the highest.


class Freed(NamedTuple):
    """A storage was freed."""

    block: Block
    operation: int  # number of the last one then
    seconds: float
    site: int | None  # the line that was running
    task: int  # number of the backward that was running; -1 where none was
    nbytes: int  # its bytes then


class Resized(NamedTuple):
    """A storage was grown or shrunk."""

    block: Block
    operation: int  # number of the operation
    seconds: float
    site: int | None  # the line that was running
    change: int  # bytes more; less than 0 where it shrank
    op: str  # name of the operation; empty where none did it


Event = Block | Freed | Resized  # a block is the event of its allocation


@dataclass(slots=True)
class LineTotals:
    """What one line did to the memory of all devices; see `LineMemory`."""

    allocated: int = 0
    backward: int = 0
    freed: int = 0
    largest: int = 0
    calls: int = 0
    peak: int = 0
    first: int = 0
    last: int = -1
    ops: dict[str, int] = field(default_factory=dict)

    def add(self, nbytes: int, op: str, operation: int, live: int) -> None:
        """Count what an operation allocated, after which ``live`` bytes were alive."""
        if not self.first:
            self.first = operation
        self.allocated += nbytes
        self.largest = max(self.largest, nbytes)
        self.peak = max(self.peak, live)
        if operation != self.last:
            self.calls += nbytes > 0
            self.last = operation
        self.ops[op] = self.ops.get(op, 0) + nbytes


Totals = defaultdict["int | None", LineTotals]


class AllocationLog:
    """The memory of one device over a run."""

    def __init__(self, device: str, totals: Totals, iterations: Iterations) -> None:
        self.device, self._totals, self._iterations = device, totals, iterations
        self.alive: dict[Block, None] = {}  # the storages that are alive, in the order of their allocations
        self.live = 0  # their bytes
        self.peak = -1  # the most bytes that were alive at a moment
        self.peak_blocks: list[tuple[Block, int]] = []  # the storages that were, with their bytes then
        self.moments = Moments()  # the timeline
        # Bytes that were allocated while each line ran, of a device whose allocator shows what it served besides. The
        # engine of autograd has threads of its own, in which no line runs.
        self.served: dict[int | None, int] | None = {} if device.startswith("cuda") else None

    def fold(self, events: Sequence[Event]) -> None:
        """Count what happened next."""
        moments, of_event = self._levels(events)
        levels = list(map(_level, moments))
        kept = self.moments.add(moments, levels)
        highest, split = max(levels), 0
        if highest > self.peak:
            self.peak = highest
            split = bisect_right(of_event, levels.index(highest))
            self._settle(events[:split], of_event, kept, levels)
            self.peak_blocks = [(block, block.nbytes) for block in self.alive]
        self._settle(events[split:], of_event[split:], kept, levels)
        if (moved := self.moments.thin()) is not None:
            for block in self.alive:
                block.start = moved[block.start]
                if block.pieces:
                    pieces = [(moved[start], moved[end], nbytes) for start, end, nbytes in block.pieces]
                    block.pieces = [piece for piece in pieces if piece[0] < piece[1]]

    def _levels(self, events: Sequence[Event]) -> tuple[list[tuple[int, float, int]], list[int]]:
        """Return the moments: what is allocated by one operation is one, what is freed behind it another."""
        moments: list[tuple[int, float, int]] = []
        of_event: list[int] = []
        last, at, live = None, -1, self.live
        for event in events:
            if isinstance(event, Block):
                change, operation, seconds = event.nbytes, event.allocated_at, event.seconds
            else:
                operation, seconds = event.operation, event.seconds
                change = -event.nbytes if isinstance(event, Freed) else event.change
            live += change
            this = operation if change >= 0 else ~operation
            if this == last:
                moments[at] = operation, seconds, live
            else:
                last = this
                at += 1
                moments.append((operation, seconds, live))
            of_event.append(at)
        self.live = live
        return moments, of_event

    def _settle(self, events: Sequence[Event], of_event: list[int], kept: list[int], levels: list[int]) -> None:
        """Count events one by one; most blocks live and die within one batch, and between two kept moments."""
        alive, totals, iterations = self.alive, self._totals, self._iterations
        for event, moment in zip(events, of_event, strict=False):
            at = kept[moment]
            if isinstance(event, Block):
                event.start = at
                alive[event] = None
                if not event.before:
                    self._allocated(event, levels[moment])
            elif isinstance(event, Freed):
                block, operation, _, site, task, nbytes = event
                alive.pop(block, None)
                block.freed_at = operation
                totals[site].freed += nbytes
                if task > iterations.latest:
                    iterations.began(task, operation)
                if block.category is None:
                    block.category = _ended(block, task, site)
                pieces = block.pieces or []
                if at != block.start or pieces:
                    steps = self.moments.steps[counted_as(block, block.category)]
                    for start, end, lived in (*pieces, (block.start, at, block.nbytes)):
                        steps[start] += lived
                        steps[end] -= lived
            else:
                self._resized(event, at, levels[moment])

    def _allocated(self, block: Block, live: int) -> None:
        place, nbytes = block.place, block.nbytes
        site = None if place is None else place.site
        if block.task > self._iterations.latest:
            self._iterations.began(block.task, block.allocated_at)
        if block.op in JOINING:
            self._iterations.joined(block)
        if self.served is not None:
            asking = None if block.by_engine else site  # as the allocator sees it
            self.served[asking] = self.served.get(asking, 0) + nbytes
        total = self._totals[site]
        total.add(nbytes, block.op, block.allocated_at, live)
        if place is not None and place.phase == "backward":
            total.backward += nbytes

    def _resized(self, event: Resized, at: int, live: int) -> None:
        block, change = event.block, event.change
        if at > block.start:
            block.pieces = [*(block.pieces or ()), (block.start, at, block.nbytes)]
        block.start = at
        block.nbytes += change
        total = self._totals[event.site]
        if change > 0:
            total.add(change, event.op, event.operation, live)
        else:
            total.freed -= change


def _ended(block: Block, task: int, site: int | None) -> Category:
    """Return what a storage was for, by when it was freed.

    What was allocated outside of a backward and is freed by one was kept for that backward. What a backward allocated
    and did not free is a gradient. What an optimizer allocated in one of its steps and keeps beyond it is its state.
    """
    if task != block.task:
        return "saved for backward" if task >= 0 else "gradient"
    place = block.place
    kept = place is not None and place.phase == "optimizer" and site != block.site
    return "optimizer state" if kept else "other"
