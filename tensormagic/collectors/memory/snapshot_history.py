"""From the events of one device to its timeline, its peak, and the allocations that were refused."""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from tensormagic.collectors.memory.snapshot_reading import size, whole, word
from tensormagic.collectors.memory.snapshot_segments import Block, Stacks
from tensormagic.reports import CATEGORIES, Category, RefusedAllocation, Timeline

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


@dataclass(slots=True)
class LineSums:
    """What one line adds up to; see `LineMemory`."""

    allocated: int = 0
    freed: int = 0
    kept: int = 0
    at_peak: int = 0
    largest: int = 0
    calls: int = 0

    def allocate(self, nbytes: int) -> None:
        """Add an allocation."""
        self.allocated += nbytes
        self.largest = max(self.largest, nbytes)
        self.calls += 1


@dataclass(slots=True)
class Walk:
    """One way through the events."""

    frees: str  # the action that ends a block: ``"free_requested"``, or ``"free_completed"`` where there is no such
    alive: dict[int, Step] = field(default_factory=dict)  # what was allocated and not freed, by address
    level: int = 0  # bytes alive, but for those that were there before the first event
    lost: int = 0  # bytes that were freed without having been allocated in the history
    lost_blocks: int = 0  # how many those were
    reserved: int = 0  # bytes by which the reserved memory grew
    by_line: Counter[int] = field(default_factory=Counter)  # bytes alive, by number of the line
    by_category: Counter[Category] = field(default_factory=Counter)  # likewise

    def take(self, step: Step) -> None:
        """Go on by one event."""
        action = step.action
        if action == "alloc":
            if step.address in self.alive:
                self._free(step.address, 0)
            self.alive[step.address] = step
            self._count(step, step.nbytes)
        elif action == self.frees:
            self._free(step.address, step.nbytes)
        elif action in _GROWS:
            self.reserved += step.nbytes
        elif action in _SHRINKS:
            self.reserved -= step.nbytes

    def _free(self, address: int, nbytes: int) -> None:
        one = self.alive.pop(address, None)
        if one is not None:
            self._count(one, -one.nbytes)
        else:
            self.level -= nbytes
            self.lost += nbytes
            self.lost_blocks += 1

    def _count(self, step: Step, nbytes: int) -> None:
        self.level += nbytes
        self.by_line[step.line] += nbytes
        self.by_category[step.category] += nbytes


# From the events of one device to its timeline: the bytes in use at a bounded number of moments, and the peak.
#
# The end of the history is known from the blocks, so the beginning follows: what is alive at the end, less what the
# events allocated, plus what they freed. The way is gone twice: once for the height of every moment, which says which
# moments are worth keeping, and once more to look at these.

MOMENTS = 300  # the highest and the last of each of so many stretches of the history are kept
MOST_REFUSED = 20
STACKED_LINES = 8  # that a timeline tells apart


class Moment(NamedTuple):
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
    actions: Counter[str]  # How many events of each kind; those that no torch writes together as ``"unknown"``.
    from_before: list[Block]  # Blocks in use at the end, and all along.
    reserved_peak: int  # The most that was reserved.
    misfit: int  # Bytes by which events and blocks contradict each other.
    times: bool  # Whether events carry times.
    moments: list[Moment] = field(default_factory=list)  # Those that are kept.
    peak: int = -1  # Index of the highest of these.
    at_peak: list[Block] = field(default_factory=list)  # What was in use then, by what was asked for.
    unknown: tuple[int, int] = (0, 0)  # How many more blocks there were then, that only the end tells of; their bytes.
    refused: list[RefusedAllocation] = field(default_factory=list)  # The first few.

    @property
    def highest(self) -> int:
        """Bytes that were in use at the peak."""
        return self.moments[self.peak].live

    def timeline(self, index: Callable[[int], int]) -> Timeline:
        """Return the bytes asked for at each moment that was kept; ``index`` gives that of a line in the report."""
        moments = self.moments
        start = moments[0].time
        return Timeline(
            device=self.device,
            seconds=array("f", [max(moment.time - start, 0) / 1e6 for moment in moments]),
            operation=tuple(moment.number for moment in moments),
            live=tuple(moment.live for moment in moments),
            before=tuple(moment.before for moment in moments),
            by_category=tuple(
                (category, values)
                for category in CATEGORIES
                if any(values := tuple(moment.by_category[category] for moment in moments))
            ),
            by_line=tuple(self._by_line(index)),
            peak=self.peak,
        )

    def _by_line(self, index: Callable[[int], int]) -> Iterator[tuple[int, tuple[int, ...]]]:
        """Yield the lines that ever held the most, and what all others held together."""
        most = Counter[int]()
        for moment in self.moments:
            most |= moment.by_line
        listed = [number for number in most if index(number) >= 0]
        shown = sorted(listed, key=lambda number: -most[number])[:STACKED_LINES]
        for number in shown:
            yield index(number), tuple(moment.by_line[number] for moment in self.moments)
        rest = tuple(one.by_line.total() - sum(one.by_line[number] for number in shown) for one in self.moments)
        if any(rest):
            yield -1, rest


def history_of(  # noqa: PLR0913  (what the snapshot knows of a device)
    device: str,
    events: list[dict[Any, Any]],
    blocks: list[Block],
    *,
    reserved: int,
    stacks: Stacks,
    sums: defaultdict[int, LineSums],
) -> History:
    """Return the history of one device, and add to ``sums`` what each line did in it, by number of the line.

    There is at least one event, the oldest is the first; blocks and reserved bytes are those at the end.
    """
    steps = [
        Step(
            word(event, "action"), whole(event, "addr"), size(event, "size"), stacks.line(event.get("frames")),
            _CATEGORIES.get(word(event, "category"), "other"), event,
        )
        for event in events
    ]  # fmt: skip
    actions = Counter(step.action for step in steps if step.action in _KNOWN)
    actions += Counter(unknown=len(steps) - actions.total())
    frees = "free_requested" if actions["free_requested"] else "free_completed"
    walk, levels, reserves = Walk(frees), [], []
    for step in steps:
        walk.take(step)
        levels.append(walk.level)
        reserves.append(walk.reserved)
    rest = sum(block.requested for block in blocks) - walk.level
    base, reserved_base = max(rest, walk.lost), reserved - walk.reserved
    from_before = [block for block in blocks if block.address not in walk.alive]
    found = History(
        device, actions, from_before, reserved_peak=reserved_base + max(reserves),
        misfit=base - rest if blocks else 0, times=bool(whole(events[0], "time_us")),
    )  # fmt: skip
    _add_lines(sums, steps, frees)
    lost_blocks, lost = walk.lost_blocks, walk.lost
    walk = Walk(frees, level=base, reserved=reserved_base)
    _replay(found, walk, steps, levels, stacks)
    found.unknown = lost_blocks - found.unknown[0], lost - found.unknown[1]
    return found


def _add_lines(sums: defaultdict[int, LineSums], steps: list[Step], frees: str) -> None:
    """Add what each line allocated, and freed where frees have stacks of their own.

    With ``context="alloc"`` torch lends them the allocation's: the very same list, then
    (``c10/cuda/CUDACachingAllocator.cpp``: ``context ? context : block->context_when_allocated``), which a pickle
    keeps. The first free whose allocation is there decides.
    """
    stacks: dict[int, Any] = {}
    own = True
    for action, address, *_, event in steps:
        if action == "alloc":
            stacks[address] = event.get("frames")
        elif action == frees and stacks.get(address):
            own = event.get("frames") is not stacks[address]
            break
    for action, _, nbytes, number, *_ in steps:
        if action == "alloc":
            sums[number].allocate(nbytes)
        elif action == frees:
            sums[number].freed += nbytes * own


def _replay(found: History, walk: Walk, steps: list[Step], levels: list[int], stacks: Stacks) -> None:
    """Fill in the moments; of the blocks of before the history, note how many the peak had lost, and their bytes."""
    peak, base = levels.index(max(levels)), walk.level
    keep = {0, peak, len(levels) - 1}  # besides, what is highest and last of each stretch
    stretch = -(-len(levels) // MOMENTS)
    for begin in range(0, len(levels), stretch):
        part = levels[begin : begin + stretch]
        keep |= {begin + part.index(max(part)), begin + len(part) - 1}
    for number, step in enumerate(steps):
        walk.take(step)
        event, time = step.event, whole(step.event, "time_us")
        is_shown = step.action == "oom" and len(found.refused) < MOST_REFUSED
        if number in keep or is_shown:
            moment = Moment(number, time, walk.level, base - walk.lost, walk.reserved, +walk.by_line, +walk.by_category)
            found.moments.append(moment)
        if is_shown:
            seconds = (time - found.moments[0].time) / 1e6 if found.times else None
            stack = stacks.lines(event.get("frames"))
            found.refused.append(
                RefusedAllocation(found.device, step.nbytes, size(event, "device_free"), walk.level, seconds, stack)
            )
        if number == peak:
            found.peak, found.unknown = len(found.moments) - 1, (walk.lost_blocks, walk.lost)
            found.at_peak = [_as_block(one, found.device) for one in walk.alive.values()]
    found.at_peak += [replace(block, nbytes=block.requested) for block in found.from_before]


def _as_block(step: Step, device: str) -> Block:
    event = step.event
    label = word(event, "user_metadata") or word(event, "category")
    stream = whole(event, "stream")
    frames = event.get("frames")
    return Block(device, step.nbytes, step.nbytes, "allocated", step.address, frames, stream, step.line, label)
