"""A snapshot of CUDA's memory as a report: segments, blocks and what was allocated where."""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tensormagic.collectors.memory.snapshot_history import MOST_REFUSED, History, LineSums, Step, history_of
from tensormagic.collectors.memory.snapshot_reading import dictionaries, entries, size, whole, word
from tensormagic.collectors.memory.snapshot_segments import Area, Block, Stacks, areas_of, segment_report
from tensormagic.collectors.where.source import CellNumber
from tensormagic.errors import SnapshotError
from tensormagic.reports import (
    CATEGORIES,
    Gap,
    LineMemory,
    RefusedAllocation,
    SnapshotBlock,
    SnapshotDevice,
    SnapshotReport,
    Timeline,
)
from tensormagic.words import count, number_of_bytes, plural

# A snapshot as it was read: its segments, and the history of each device.

MOST_EVENTS = 2_000_000  # of all devices together; of more, the last
MOST_DEVICES = 64


@dataclass(slots=True)
class Gathered:
    """What a snapshot holds, before it is summed up."""

    stacks: Stacks  # the lines that were met
    areas: list[Area] = field(default_factory=list)  # the segments with their blocks
    histories: list[History] = field(default_factory=list)  # one a device that has events
    gaps: list[Gap] = field(default_factory=list)  # what could not be read

    def in_use(self, device: str = "") -> list[Block]:
        """Return the blocks in use at the end, of one device or of all."""
        areas = (area for area in self.areas if not device or area.device == device)
        return [block for area in areas for block in area.blocks if block.state == "allocated"]

    @property
    def highest(self) -> History | None:
        """The history that peaked highest."""
        return max(self.histories, key=lambda one: one.moments[one.peak].live, default=None)


def gather(data: Any, cell_number: CellNumber | None, *, most_events: int = MOST_EVENTS) -> Gathered:
    """Read a snapshot's plain data.

    Raises:
        SnapshotError: where it is no snapshot.
    """
    segments, traces = _parts(data)
    found = Gathered(Stacks(cell_number))
    found.areas = areas_of(segments, found.stacks)
    _read_histories(found, traces, most_events // max(sum(bool(trace) for trace in traces), 1))
    return found


def _parts(data: Any) -> tuple[Any, list[Any]]:
    """Return the segments, and the events by device."""
    if isinstance(data, list) and data and all(isinstance(one, dict) and "total_size" in one for one in data[:10]):
        return data, []  # torch before 2.0 gave the segments alone
    if not isinstance(data, Mapping) or not isinstance(data.get("segments"), list):
        raise SnapshotError(
            f"it is a {type(data).__name__} without 'segments', not a memory snapshot. "
            "`torch.cuda.memory._dump_snapshot(FILE)` writes one"
        )
    return data["segments"], [entries(one) for one in entries(data.get("device_traces"))[:MOST_DEVICES]]


def _read_histories(read: Gathered, traces: list[list[Any]], most: int) -> None:
    for index, trace in enumerate(traces):
        events, device = list(dictionaries(trace[-most:])), f"cuda:{index}"
        if len(trace) > most:
            described = f"the history of {device} has {plural(len(trace), 'event')}; the last {count(most)} were read"
            read.gaps.append(Gap("history", described))
        if events:
            reserved = sum(area.nbytes for area in read.areas if area.device == device)
            blocks = read.in_use(device)
            read.histories.append(history_of(device, events, blocks, reserved=reserved, stacks=read.stacks))


# What each of the user's lines allocated, by a snapshot's history and by the blocks that it left.

MOST_LINES = 200


@dataclass(slots=True)
class Lines:
    """The lines of the report."""

    described: tuple[LineMemory, ...]  # each line, the most allocated first
    numbers: dict[int, int]  # index of each by its number in the stacks
    left_out: tuple[int, int]  # how many more there are, and what they allocated

    def index(self, number: int) -> int:
        """Return the index of a line in the report; -1 where it is not listed."""
        return self.numbers.get(number, -1)


def lines_of(read: Gathered) -> Lines:
    """Return what each line allocated, freed and kept."""
    sums: dict[int, LineSums] = defaultdict(LineSums)
    kept, at_peak = Counter[int](), Counter[int]()
    for number, one in (pair for history in read.histories for pair in history.sums.items()):
        sums[number].include(one)
    for block in read.in_use():
        kept[block.line] += block.requested
        sums[block.line].include(LineSums(largest=block.requested))
    with_events = {history.device for history in read.histories}
    before = [block for history in read.histories for block in history.from_before]
    before += [block for block in read.in_use() if block.device not in with_events]
    for block in before:  # in use, and shown by no event
        sums[block.line].include(LineSums(block.requested, largest=block.requested, calls=1))
    highest = read.highest
    peaking: list[Step | Block] = [] if highest is None else [*highest.alive, *highest.from_before]
    for each in peaking:
        at_peak[each.line] += _asked(each)
    found = {
        number: LineMemory(
            read.stacks.locations[number], allocated=sums[number].allocated, freed=sums[number].freed,
            kept=kept[number], at_peak=at_peak[number], largest=sums[number].largest, calls=sums[number].calls,
        )
        for number in sorted({*sums, *at_peak} - {-1})
    }  # fmt: skip
    order = sorted(found, key=lambda number: (-found[number].allocated, number))
    rest = [found[number].allocated for number in order[MOST_LINES:]]
    numbers = {number: index for index, number in enumerate(order[:MOST_LINES])}
    return Lines(tuple(found[number] for number in numbers), numbers, (len(rest), sum(rest)))


# The timeline of each device, and the allocations that were refused in it.

STACKED_LINES = 8  # that a timeline tells apart


def timeline_of(history: History, lines: Lines) -> Timeline:
    """Return the bytes asked for at each moment that was kept, by line and by category."""
    moments = history.moments
    start = moments[0].time
    return Timeline(
        device=history.device,
        seconds=array("f", [max(moment.time - start, 0) / 1e6 for moment in moments]),
        operation=tuple(moment.number for moment in moments),
        live=tuple(moment.live for moment in moments),
        before=tuple(moment.before for moment in moments),
        by_category=tuple(
            (category, tuple(moment.by_category[category] for moment in moments))
            for category in CATEGORIES
            if any(moment.by_category[category] for moment in moments)
        ),
        by_line=tuple(_by_line(history, lines)),
        peak=history.peak,
    )


def _by_line(history: History, lines: Lines) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Yield the lines that ever held the most, and what all others held together."""
    moments = history.moments
    most: dict[int, int] = {}
    for moment in moments:
        for number, nbytes in moment.by_line.items():
            most[number] = max(most.get(number, 0), nbytes)
    order = sorted((number for number in most if lines.index(number) >= 0), key=lambda number: -most[number])
    shown = order[:STACKED_LINES]
    for number in shown:
        yield lines.index(number), tuple(moment.by_line[number] for moment in moments)
    rest = tuple(moment.by_line.total() - sum(moment.by_line[number] for number in shown) for moment in moments)
    if any(rest):
        yield -1, rest


def refused_in(read: Gathered) -> Iterator[RefusedAllocation]:
    """Yield the allocations that ran out of memory, at most a few a device."""
    for history in read.histories:
        start = history.moments[0].time
        for event, live in history.refused[:MOST_REFUSED]:
            seconds = (whole(event, "time_us") - start) / 1e6 if history.times else None
            stack = read.stacks.lines(event.get("frames"))
            yield RefusedAllocation(
                history.device, size(event, "size"), size(event, "device_free"), live, seconds, stack
            )


# From a snapshot's plain data to a `SnapshotReport`: devices, segments, blocks, the history, and each line's part.

MOST_SEGMENTS = 60
MOST_LISTED = 100


def snapshot_report(data: Any, *, source: str = "", cell_number: CellNumber | None = None) -> SnapshotReport:
    """Return a snapshot, summed up.

    ``data`` is what ``torch.cuda.memory._snapshot()`` returned, or a file of it held.

    Raises:
        SnapshotError: where it is no snapshot.
    """
    read = gather(data, cell_number)
    lines = lines_of(read)
    areas = sorted(read.areas, key=lambda area: -area.nbytes)
    live = sorted(read.in_use(), key=lambda block: -block.nbytes)
    return SnapshotReport(
        source=source,
        devices=tuple(_devices(read)),
        segments=tuple(segment_report(area, lines.index) for area in areas[:MOST_SEGMENTS]),
        segments_left_out=_rest([area.nbytes for area in areas[MOST_SEGMENTS:]]),
        live=tuple(_block(block, read, lines) for block in live[:MOST_LISTED]),
        live_left_out=_rest([block.nbytes for block in live[MOST_LISTED:]]),
        timelines=tuple(timeline_of(history, lines) for history in read.histories),
        reserved=tuple(tuple(moment.reserved for moment in history.moments) for history in read.histories),
        **_at_peak(read, lines),
        lines=lines.described,
        lines_left_out=lines.left_out,
        refused=tuple(refused_in(read)),
        settings=_settings(data),
        gaps=tuple(_gaps(read, data)),
    )


def _rest(sizes: list[int]) -> tuple[int, int]:
    return len(sizes), sum(sizes)


# -- devices -------------------------------------------------------------------------------------------------------


def _devices(read: Gathered) -> Iterator[SnapshotDevice]:
    histories = {history.device: history for history in read.histories}
    names = {area.device for area in read.areas} | histories.keys()
    for name in sorted(names, key=lambda name: int(name.rpartition(":")[2])):
        yield _device(name, [area for area in read.areas if area.device == name], histories.get(name))


def _device(name: str, areas: list[Area], history: History | None) -> SnapshotDevice:
    blocks = [block for area in areas for block in area.blocks]
    device = SnapshotDevice(
        device=name,
        reserved=sum(block.nbytes for block in blocks),
        allocated=sum(block.nbytes for block in blocks if block.state == "allocated"),
        requested=sum(block.requested for block in blocks if block.state == "allocated"),
        awaiting=sum(block.nbytes for block in blocks if block.state == "awaiting free"),
        largest_free=max((block.nbytes for block in blocks if block.state == "free"), default=0),
        segments=len(areas),
        blocks=sum(block.state == "allocated" for block in blocks),
    )
    if history is None:
        return device
    return replace(
        device,
        events=history.actions.total(),
        actions=dict(history.actions),
        peak=history.moments[history.peak].live,
        reserved_peak=history.reserved_peak,
    )


# -- blocks --------------------------------------------------------------------------------------------------------


def _block(block: Block, read: Gathered, lines: Lines) -> SnapshotBlock:
    stack = read.stacks.lines(block.frames)
    return SnapshotBlock(
        block.device, block.nbytes, block.requested, block.state, lines.index(block.line), stack, block.stream
    )


def _at_peak(read: Gathered, lines: Lines) -> dict[str, Any]:
    """Return what was in use when the device that peaked highest did, the largest first, and what is left out."""
    history = read.highest
    if history is None:
        return {}
    found: list[Step | Block] = sorted([*history.alive, *history.from_before], key=lambda one: -_asked(one))
    count, nbytes = _rest([_asked(one) for one in found[MOST_LISTED:]])
    described = tuple(_of_peak(one, history.device, read, lines) for one in found[:MOST_LISTED])
    return {"peak_blocks": described, "peak_left_out": (count + history.unknown[0], nbytes + history.unknown[1])}


def _asked(one: Step | Block) -> int:
    return one.nbytes if isinstance(one, Step) else one.requested


def _of_peak(one: Step | Block, device: str, read: Gathered, lines: Lines) -> SnapshotBlock:
    if isinstance(one, Block):
        return replace(_block(one, read, lines), nbytes=one.requested)
    event = one.event
    label = word(event, "user_metadata") or word(event, "category")
    stack, stream = read.stacks.lines(event.get("frames")), whole(event, "stream")
    return SnapshotBlock(device, one.nbytes, one.nbytes, "allocated", lines.index(one.line), stack, stream, label)


# -- what else there is --------------------------------------------------------------------------------------------


def _settings(data: Any) -> dict[str, str] | None:
    given = data.get("allocator_settings") if isinstance(data, dict) else None
    if not isinstance(given, dict):
        return None
    plain = {
        key: value for key, value in given.items() if isinstance(key, str) and isinstance(value, str | int | float)
    }
    return {key[:100]: str(value)[:500] for key, value in list(plain.items())[:40]}


def _gaps(read: Gathered, data: Any) -> Iterator[Gap]:
    yield from read.gaps
    if not read.histories:
        yield Gap(
            "history",
            "the snapshot has no events: `torch.cuda.memory._record_memory_history()` before the run records them",
        )
    if read.in_use() and not read.stacks.locations:
        yield Gap("lines", "the snapshot has no stacks: memory history was off when its blocks were allocated")
    for history in read.histories:
        yield from (Gap("history", reason) for reason in _gaps_of(history))
    if read.stacks.unread:
        most = count(len(read.stacks.locations))
        yield Gap("lines", f"{plural(read.stacks.unread, 'stack')} beyond the first {most} lines that were read")
    if isinstance(data, dict) and data.get("external_annotations"):
        yield Gap("annotations", "the snapshot holds names of record_function; they are not used")


def _gaps_of(history: History) -> Iterator[str]:
    if history.misfit:
        described = f"the events of {history.device} and its blocks differ by {number_of_bytes(history.misfit)}"
        yield f"{described}: the level before the first event is estimated"
    if not history.times:
        yield f"the events of {history.device} have no times"
    if history.actions["unknown"]:
        yield f"{plural(history.actions['unknown'], 'event')} of {history.device} of an unknown kind"
    if len(history.refused) > MOST_REFUSED:
        yield f"{len(history.refused) - MOST_REFUSED} more allocations were refused on {history.device}"
