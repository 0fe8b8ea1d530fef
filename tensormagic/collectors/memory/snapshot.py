"""A snapshot of CUDA's memory as a report: segments, blocks and what was allocated where."""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import chain
from typing import Any, NamedTuple, TypeVar

from tensormagic.collectors.memory.snapshot_reading import dictionaries, entries, size, whole, word
from tensormagic.collectors.memory.snapshot_segments import (
    Area,
    Block,
    Stacks,
    areas_of,
    held,
    largest_free,
    segment_report,
)  # fmt: skip
from tensormagic.collectors.requirements import what
from tensormagic.collectors.where.source import CellNumber
from tensormagic.errors import SnapshotError
from tensormagic.reports import (
    Gap,
    LineMemory,
    RefusedAllocation,
    SnapshotDevice,
    SnapshotReport,
    Timeline,
)
from tensormagic.words import count, number_of_bytes, plural

# Events count what was asked for. A history may begin long after the program did: what is freed without having been
# allocated in it was there before; an address that is allocated twice was freed in between, unseen.

_Key = TypeVar("_Key")
_GROWS, _SHRINKS = {"segment_alloc", "segment_map"}, {"segment_free", "segment_unmap"}
_KNOWN = {"alloc", "free_requested", "free_completed", "oom", "snapshot", *_GROWS, *_SHRINKS}


class Step(NamedTuple):
    """An event as it was read: bytes asked for, the number of its line, and the event."""

    action: str
    address: int
    nbytes: int
    line: int
    event: dict[Any, Any]

    def block(self, device: str) -> Block:
        """Return what it allocated as a block."""
        label, stream = word(self.event, "user_metadata") or word(self.event, "category"), whole(self.event, "stream")
        frames = self.event.get("frames")
        return Block(device, self.nbytes, self.nbytes, "allocated", self.address, frames, stream, self.line, label)


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
        if (one := self.alive.pop(address, None)) is not None:
            self._count(one, -one.nbytes)
        else:
            self.level -= nbytes
            self.lost += nbytes
            self.lost_blocks += 1

    def _count(self, step: Step, nbytes: int) -> None:
        self.level += nbytes
        self.by_line[step.line] += nbytes


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


class History:
    """What the events of one device show, of which there is at least one; the oldest is the first.

    Blocks and reserved bytes are those at the end. What each line did is added to ``sums``, by the line's number.
    """

    def __init__(  # noqa: PLR0913  (what the snapshot knows of a device)
        self,
        device: str,
        events: list[dict[Any, Any]],
        blocks: list[Block],
        *,
        reserved: int,
        stacks: Stacks,
        sums: defaultdict[int, LineSums],
    ) -> None:
        steps = [
            Step(
                word(event, "action"), whole(event, "addr"), size(event, "size"),
                stacks.line(event.get("frames")), event,
            )
            for event in events
        ]  # fmt: skip
        self.device = device
        self.actions = Counter(step.action for step in steps if step.action in _KNOWN)
        self.actions += Counter(unknown=len(steps) - self.actions.total())  # of kinds that no torch writes
        frees = "free_requested" if self.actions["free_requested"] else "free_completed"
        walk, levels, reserves = Walk(frees), [], []
        for step in steps:
            walk.take(step)
            levels.append(walk.level)
            reserves.append(walk.reserved)
        rest = sum(block.requested for block in blocks) - walk.level
        base, reserved_base = max(rest, walk.lost), reserved - walk.reserved
        self.misfit = base - rest if blocks else 0  # bytes by which events and blocks contradict each other
        self.reserved_peak = reserved_base + max(reserves)
        self.times = bool(whole(events[0], "time_us"))  # whether events have such
        self.from_before = [block for block in blocks if block.address not in walk.alive]  # in use all along
        self.refused: list[RefusedAllocation] = []  # the first few
        _add_lines(sums, steps, frees)
        at_peak = self._replay(Walk(frees, level=base, reserved=reserved_base), steps, levels, stacks)
        # How many more blocks there were at the peak, of which only the end tells, and their bytes.
        self.unknown = walk.lost_blocks - at_peak[0], walk.lost - at_peak[1]

    def _replay(self, walk: Walk, steps: list[Step], levels: list[int], stacks: Stacks) -> tuple[int, int]:
        """Fill in the moments; return what the peak had lost of what was there before: blocks and bytes."""
        peak, base = levels.index(max(levels)), walk.level
        keep = {0, peak, len(levels) - 1}  # besides, what is highest and last of each stretch
        stretch = -(-len(levels) // MOMENTS)
        for begin in range(0, len(levels), stretch):
            part = levels[begin : begin + stretch]
            keep |= {begin + part.index(max(part)), begin + len(part) - 1}
        self.moments: list[Moment] = []  # those that are kept
        lost = 0, 0
        for number, step in enumerate(steps):
            walk.take(step)
            live = walk.level
            is_shown = step.action == "oom" and len(self.refused) < MOST_REFUSED
            if number in keep or is_shown:
                time, before = whole(step.event, "time_us"), base - walk.lost
                self.moments.append(Moment(number, time, live, before, walk.reserved, +walk.by_line))
            if is_shown:  # its moment is the last that was kept
                seconds = (self.moments[-1].time - self.moments[0].time) / 1e6 if self.times else None
                free, stack = size(step.event, "device_free"), stacks.lines(step.event.get("frames"))
                self.refused.append(RefusedAllocation(self.device, step.nbytes, free, live, seconds, stack))
            if number == peak:
                self.peak, self.highest = len(self.moments) - 1, live  # index of that moment, and its bytes
                self.at_peak = [one.block(self.device) for one in walk.alive.values()]  # in use then, as asked for
                lost = walk.lost_blocks, walk.lost
        self.at_peak += [replace(block, nbytes=block.requested) for block in self.from_before]
        return lost

    def timeline(self, indices: Mapping[int, int]) -> Timeline:
        """Return the bytes asked for at each moment that was kept; ``indices`` are those of the lines in the report."""
        moments = self.moments
        lines = dict.fromkeys(chain.from_iterable(moment.by_line for moment in moments))
        by_line = {number: tuple(moment.by_line[number] for moment in moments) for number in lines}
        start = moments[0].time
        since = tuple(moment.live - moment.before for moment in moments)  # what was allocated in the history
        return Timeline(
            device=self.device, seconds=array("f", [max(moment.time - start, 0) / 1e6 for moment in moments]),
            operation=tuple(moment.number for moment in moments), live=tuple(moment.live for moment in moments),
            before=tuple(moment.before for moment in moments),
            by_category=(("other", since),) if any(since) else (), by_line=stacked(by_line, indices, STACKED_LINES),
            peak=self.peak,
        )  # fmt: skip


def stacked(
    series: Mapping[_Key, tuple[int, ...]], numbers: Mapping[_Key, int], most: int
) -> tuple[tuple[int, tuple[int, ...]], ...]:
    """Return by number the lines that ever held the most, as many as are to be told apart, and all others as -1."""
    known = [line for line in series if line in numbers]
    shown = sorted(known, key=lambda line: (-max(series[line]), numbers[line]))[:most]
    rest = [series[line] for line in series if line not in shown]
    total = tuple(sum(values) for values in zip(*rest, strict=True))
    found = [(numbers[line], series[line]) for line in shown if any(series[line])]
    return (*found, (-1, total)) if any(total) else tuple(found)


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


MOST_EVENTS = 2_000_000  # of all devices together; of more, the last
MOST_DEVICES = 64
MOST_LINES = 200
MOST_SEGMENTS = 60
MOST_LISTED = 100


def snapshot_report(data: Any, *, source: str = "", cell_number: CellNumber | None = None) -> SnapshotReport:
    """Return a snapshot, summed up.

    ``data`` is what ``torch.cuda.memory._snapshot()`` returned, or a file of it held.

    Raises:
        SnapshotError: where it is not a snapshot.
    """
    segments, traces = _parts(data)
    most = MOST_EVENTS // max(sum(bool(trace) for trace in traces), 1)
    stacks = Stacks(cell_number)
    areas = areas_of(segments, stacks)
    in_use = [block for area in areas for block in area.blocks if block.state == "allocated"]
    sums: defaultdict[int, LineSums] = defaultdict(LineSums)
    histories, gaps = list[History](), list[Gap]()
    for at, trace in enumerate(traces):
        device = f"cuda:{at}"
        if len(trace) > most:
            read = f"the history of {device} has {plural(len(trace), 'event')}; the last {count(most)} were read"
            gaps.append(Gap("history", read))
        if events := list(dictionaries(trace[-most:])):
            blocks = [block for block in in_use if block.device == device]
            reserved = sum(area.nbytes for area in areas if area.device == device)
            histories.append(History(device, events, blocks, reserved=reserved, stacks=stacks, sums=sums))
    highest = max(histories, key=lambda one: one.highest, default=None)
    peaking = [] if highest is None else sorted(highest.at_peak, key=lambda block: -block.nbytes)
    _add_blocks(sums, in_use, histories, peaking)
    order = sorted(sums.keys() - {-1}, key=lambda number: (-sums[number].allocated, number))
    indices = {number: index for index, number in enumerate(order[:MOST_LINES])}

    def index(number: int) -> int:
        """Return the index of a line in the report; -1 where it is not listed."""
        return indices.get(number, -1)

    areas.sort(key=lambda area: -area.nbytes)
    in_use.sort(key=lambda block: -block.nbytes)
    left_out, unknown = _rest(peaking[MOST_LISTED:]), (0, 0) if highest is None else highest.unknown
    return SnapshotReport(
        source=source,
        devices=tuple(_devices(areas, {history.device: history for history in histories})),
        segments=tuple(segment_report(area, index) for area in areas[:MOST_SEGMENTS]),
        segments_left_out=_rest(areas[MOST_SEGMENTS:]),
        live=tuple(block.report(stacks, index) for block in in_use[:MOST_LISTED]),
        live_left_out=_rest(in_use[MOST_LISTED:]),
        timelines=tuple(history.timeline(indices) for history in histories),
        reserved=tuple(tuple(moment.reserved for moment in history.moments) for history in histories),
        peak_blocks=tuple(block.report(stacks, index) for block in peaking[:MOST_LISTED]),
        peak_left_out=(left_out[0] + unknown[0], left_out[1] + unknown[1]),
        lines=tuple(LineMemory(stacks.locations[number], **asdict(sums[number])) for number in indices),
        lines_left_out=(len(order[MOST_LINES:]), sum(sums[number].allocated for number in order[MOST_LINES:])),
        refused=tuple(one for history in histories for one in history.refused),
        settings=_settings(data),
        gaps=(*gaps, *_gaps(data, histories, stacks, has_blocks=bool(in_use))),
    )


def _parts(data: Any) -> tuple[Any, list[list[Any]]]:
    if isinstance(data, list) and data and all(isinstance(one, dict) and "total_size" in one for one in data[:10]):
        return data, []  # torch before 2.0 gave the segments alone
    if not isinstance(data, Mapping) or not isinstance(data.get("segments"), list):
        writes = "`torch.cuda.memory._dump_snapshot(FILE)` writes one"
        raise SnapshotError(f"it is {what(data)} without 'segments', not a memory snapshot. {writes}")
    return data["segments"], [entries(one) for one in entries(data.get("device_traces"))[:MOST_DEVICES]]


def _add_blocks(
    sums: defaultdict[int, LineSums], in_use: list[Block], histories: list[History], peaking: list[Block]
) -> None:
    """Add to what each line did in the histories what it kept, what it held at the peak, and what no event shows."""
    with_events = {history.device for history in histories}
    unseen = [block for block in in_use if block.device not in with_events]
    for block in in_use:
        sums[block.line].kept += block.requested
    for block in (*unseen, *(block for history in histories for block in history.from_before)):
        sums[block.line].allocate(block.requested)
    for block in peaking:
        sums[block.line].at_peak += block.requested


def _rest(some: Sequence[Area | Block]) -> tuple[int, int]:
    return len(some), sum(one.nbytes for one in some)


def _devices(areas: list[Area], histories: dict[str, History]) -> Iterator[SnapshotDevice]:
    names = {area.device for area in areas} | histories.keys()
    for name in sorted(names, key=lambda name: int(name.rpartition(":")[2])):
        every = [area.blocks for area in areas if area.device == name]
        blocks = list(chain(*every))
        in_use = [block for block in blocks if block.state == "allocated"]
        device = SnapshotDevice(
            device=name, reserved=sum(block.nbytes for block in blocks), allocated=held(blocks, "allocated"),
            requested=sum(block.requested for block in in_use), awaiting=held(blocks, "awaiting free"),
            largest_free=largest_free(blocks), segments=len(every), blocks=len(in_use),
        )  # fmt: skip
        if (history := histories.get(name)) is not None:
            device = replace(
                device, events=history.actions.total(), actions=dict(history.actions), peak=history.highest,
                reserved_peak=history.reserved_peak,
            )  # fmt: skip
        yield device


def _settings(data: Any) -> dict[str, str] | None:
    given = data.get("allocator_settings") if isinstance(data, dict) else None
    plain = [pair for pair in given.items() if isinstance(pair[0], str)] if isinstance(given, dict) else []
    told = {key[:100]: str(value)[:500] for key, value in plain[:40] if isinstance(value, str | int | float)}
    return told if isinstance(given, dict) else None


def _gaps(data: Any, histories: list[History], stacks: Stacks, *, has_blocks: bool) -> Iterator[Gap]:
    if not histories:
        records = "`torch.cuda.memory._record_memory_history()` before the run records them"
        yield Gap("history", f"the snapshot has no events: {records}")
    if has_blocks and not stacks.locations:
        yield Gap("lines", "the snapshot has no stacks: memory history was off when its blocks were allocated")
    for history in histories:
        device, actions = history.device, history.actions
        if history.misfit:
            described = f"the events of {device} and its blocks differ by {number_of_bytes(history.misfit)}"
            yield Gap("history", f"{described}: the level before the first event is estimated")
        if not history.times:
            yield Gap("history", f"the events of {device} have no times")
        if actions["unknown"]:
            yield Gap("history", f"{plural(actions['unknown'], 'event')} of {device} of an unknown kind")
        if actions["oom"] > MOST_REFUSED:
            yield Gap("history", f"{actions['oom'] - MOST_REFUSED} more allocations were refused on {device}")
    if isinstance(data, dict) and data.get("external_annotations"):
        yield Gap("annotations", "the snapshot holds names of record_function; they are not used")
