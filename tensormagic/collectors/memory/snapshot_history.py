"""From the events of one device to its timeline, its peak, and the allocations that were refused."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tensormagic.collectors.memory.snapshot_reading import size, whole, word
from tensormagic.collectors.memory.snapshot_segments import Block, Stacks
from tensormagic.reports import Category

# Goes through the allocator's events of one device and knows, after each, what is alive and what is reserved.
#
# Events count what was asked for. A history may begin long after the program did: what is freed without having been
# allocated in it was there before; an address that is allocated twice was freed in between, unseen.

# What torch's profiler calls things (torch.cuda._memory_viz.profile_plot), in the words of these reports.
_CATEGORIES: dict[str, Category] = {
    "parameter": "parameter",
    "gradient": "gradient",
    "optimizer_state": "optimizer state",
    "activation": "saved for backward",
    "input": "input",
}
_GROWS, _SHRINKS = {"segment_alloc", "segment_map"}, {"segment_free", "segment_unmap"}
_KNOWN = {"alloc", "free_requested", "free_completed", "oom", "snapshot", *_GROWS, *_SHRINKS}


class Step(NamedTuple):
    """An event as it was read: bytes asked for, the number of its line, what its memory is for, and the event."""

    action: str
    address: int
    nbytes: int
    line: int
    category: Category
    event: dict[Any, Any]


def steps_of(events: list[dict[Any, Any]], stacks: Stacks) -> list[Step]:
    """Read events, each once."""
    return [
        Step(
            word(event, "action"), whole(event, "addr"), size(event, "size"), stacks.line(event.get("frames")),
            _CATEGORIES.get(word(event, "category"), "other") if "category" in event else "other", event,
        )
        for event in events
    ]  # fmt: skip


@dataclass(slots=True)
class LineSums:
    """What the events of one line add up to."""

    allocated: int = 0
    freed: int = 0
    largest: int = 0
    calls: int = 0

    def include(self, other: LineSums) -> None:
        """Add what others add up to."""
        self.allocated, self.freed = self.allocated + other.allocated, self.freed + other.freed
        self.largest, self.calls = max(self.largest, other.largest), self.calls + other.calls


@dataclass(slots=True)
class Walk:
    """One way through the events."""

    frees: str  # the action that ends a block: ``"free_requested"``, or ``"free_completed"`` where there is no such
    alive: dict[int, Step] = field(default_factory=dict)  # what was allocated and not freed, by address
    known: int = 0  # bytes of these
    lost: int = 0  # bytes that were freed without having been allocated in the history
    lost_blocks: int = 0  # how many those were
    reserved: int = 0  # bytes by which the reserved memory grew
    by_line: Counter[int] = field(default_factory=Counter)  # bytes alive, by number of the line
    by_category: Counter[Category] = field(default_factory=Counter)  # likewise

    @property
    def level(self) -> int:
        """Bytes alive, but for those that were there before the first event."""
        return self.known - self.lost

    def take(self, step: Step) -> None:
        """Go on by one event."""
        action = step.action
        if action == "alloc":
            self._allocate(step)
        elif action == self.frees:
            self._free(step.address, step.nbytes)
        elif action in _GROWS:
            self.reserved += step.nbytes
        elif action in _SHRINKS:
            self.reserved -= step.nbytes

    def _allocate(self, step: Step) -> None:
        if step.address in self.alive:
            self._free(step.address, 0)
        self.alive[step.address] = step
        self.known += step.nbytes
        self.by_line[step.line] += step.nbytes
        self.by_category[step.category] += step.nbytes

    def _free(self, address: int, nbytes: int) -> None:
        one = self.alive.pop(address, None)
        if one is None:
            self.lost += nbytes
            self.lost_blocks += 1
            return
        self.known -= one.nbytes
        self.by_line[one.line] -= one.nbytes
        self.by_category[one.category] -= one.nbytes


def actions_in(steps: list[Step]) -> Counter[str]:
    """Return how many events there are of each kind; those that no torch writes together as ``"unknown"``."""
    found = Counter(step.action for step in steps)
    unknown = sum(found.pop(action) for action in [*found] if action not in _KNOWN)
    return found + Counter(unknown=unknown)


def line_sums(steps: list[Step], frees: str) -> dict[int, LineSums]:
    """Return what each line allocated, and freed where frees have stacks, by number of the line."""
    sums: dict[int, LineSums] = {}
    described = _frees_have_stacks(steps, frees)
    for action, _, nbytes, number, *_ in steps:
        if action not in {"alloc", frees}:
            continue
        line = sums.get(number) or sums.setdefault(number, LineSums())
        if action == frees:
            line.freed += nbytes * described
            continue
        line.allocated, line.calls = line.allocated + nbytes, line.calls + 1
        line.largest = max(line.largest, nbytes)
    return sums


def _frees_have_stacks(steps: list[Step], frees: str) -> bool:
    """Return whether frees have stacks of their own: with ``context="alloc"`` torch lends them the allocation's.

    The very same list, then (``c10/cuda/CUDACachingAllocator.cpp``: ``context ? context :
    block->context_when_allocated``), which a pickle keeps. The first free whose allocation is there decides.
    """
    stacks: dict[int, Any] = {}
    for action, address, *_, event in steps:
        if action == "alloc":
            stacks[address] = event.get("frames")
        elif action == frees and stacks.get(address):
            return event.get("frames") is not stacks[address]
    return True


# From the events of one device to its timeline: the bytes in use at a bounded number of moments, and the peak.
#
# The end of the history is known from the blocks, so the beginning follows: what is alive at the end, less what the
# events allocated, plus what they freed. The way is gone twice: once for the height of every moment, which says which
# moments are worth keeping, and once more to look at these.

MOMENTS = 300  # the highest and the last of each of so many stretches of the history are kept
MOST_REFUSED = 20


@dataclass(slots=True)
class Moment:
    """The state after one event: its number, time in microseconds, bytes alive, from before, and reserved."""

    number: int
    time: int
    live: int
    before: int
    reserved: int
    by_line: Counter[int]
    by_category: Counter[Category]


@dataclass(slots=True)
class History:
    """What the events of one device show."""

    device: str  # As torch writes it.
    actions: Counter[str]  # How many events of each kind.
    sums: dict[int, LineSums] = field(default_factory=dict)  # What each line did, by its number.
    moments: list[Moment] = field(default_factory=list)  # Those that are kept.
    peak: int = -1  # Index of the highest of these; -1 where there is none.
    # What was alive at the peak and had been allocated in the history, by address.
    alive: list[Step] = field(default_factory=list)
    from_before: list[Block] = field(default_factory=list)  # Blocks in use at the end, and all along.
    base: int = 0  # Bytes alive before the first event.
    reserved_base: int = 0  # Bytes reserved before the first event.
    # How many more blocks there were at the peak, of which only the end is known, and their bytes.
    unknown: tuple[int, int] = (0, 0)
    # ``(event, bytes alive)`` of the allocations that were refused.
    refused: list[tuple[dict[Any, Any], int]] = field(default_factory=list)
    reserved_peak: int = 0  # The most that was reserved.
    misfit: int = 0  # Bytes by which events and blocks contradict each other.
    times: bool = False  # Whether events carry times.


def history_of(
    device: str, events: list[dict[Any, Any]], blocks: list[Block], *, reserved: int, stacks: Stacks
) -> History:
    """Return the history of one device.

    There is at least one event, the oldest is the first; blocks and reserved bytes are those at the end.
    """
    steps = steps_of(events, stacks)
    found = History(device, actions_in(steps))
    frees = "free_requested" if found.actions["free_requested"] else "free_completed"
    first = Walk(frees)
    levels, reserves = _levels(first, steps)
    rest = sum(block.requested for block in blocks) - first.level
    found.base, found.reserved_base = max(rest, first.lost), reserved - first.reserved
    found.misfit = found.base - rest if blocks else 0
    found.from_before = [block for block in blocks if block.address not in first.alive]
    found.sums = line_sums(steps, frees)
    found.times = bool(whole(events[0], "time_us"))
    found.reserved_peak = found.reserved_base + max(reserves)
    lost_blocks, lost = _replay(found, Walk(frees), steps, levels)
    found.unknown = first.lost_blocks - lost_blocks, first.lost - lost
    return found


def _levels(walk: Walk, steps: list[Step]) -> tuple[list[int], list[int]]:
    """Return what is alive and what is reserved after each event, but for what was before the first."""
    levels: list[int] = []
    reserves: list[int] = []
    for step in steps:
        walk.take(step)
        levels.append(walk.level)
        reserves.append(walk.reserved)
    return levels, reserves


def _replay(found: History, walk: Walk, steps: list[Step], levels: list[int]) -> tuple[int, int]:
    """Fill in the moments; return what the peak had lost of what was there before the history: blocks and bytes."""
    peak = levels.index(max(levels))
    keep = _worth_keeping(levels, peak)
    at_peak = 0, 0
    for number, step in enumerate(steps):
        walk.take(step)
        refused = step.action == "oom"
        if refused:
            found.refused.append((step.event, found.base + walk.level))
        if number in keep or (refused and len(found.refused) <= MOST_REFUSED):
            found.moments.append(_moment(found, walk, step.event, number))
        if number == peak:
            found.peak, found.alive = len(found.moments) - 1, list(walk.alive.values())
            at_peak = walk.lost_blocks, walk.lost
    return at_peak


def _worth_keeping(levels: list[int], peak: int) -> set[int]:
    """Return the numbers of the moments that the timeline keeps: the first, the last, the peak, and highs between."""
    stretch = -(-len(levels) // MOMENTS)
    keep = {0, peak, len(levels) - 1}
    for begin in range(0, len(levels), stretch):
        part = levels[begin : begin + stretch]
        keep |= {begin + part.index(max(part)), begin + len(part) - 1}
    return keep


def _moment(found: History, walk: Walk, event: dict[Any, Any], number: int) -> Moment:
    return Moment(
        number=number,
        time=whole(event, "time_us"),
        live=found.base + walk.level,
        before=found.base - walk.lost,
        reserved=found.reserved_base + walk.reserved,
        by_line=+walk.by_line,
        by_category=+walk.by_category,
    )
