"""A snapshot of CUDA's memory as a report: segments, blocks and what was allocated where."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import chain
from typing import Any

from tensormagic.collectors.memory.snapshot_history import MOST_REFUSED, History, LineSums, history_of
from tensormagic.collectors.memory.snapshot_reading import dictionaries, entries
from tensormagic.collectors.memory.snapshot_segments import (
    Area,
    Block,
    Stacks,
    areas_of,
    held,
    largest_free,
    segment_report,
)  # fmt: skip
from tensormagic.collectors.where.source import CellNumber
from tensormagic.errors import SnapshotError
from tensormagic.reports import Gap, LineMemory, SnapshotDevice, SnapshotReport
from tensormagic.words import count, number_of_bytes, plural

MOST_EVENTS = 2_000_000  # of all devices together; of more, the last
MOST_DEVICES = 64
MOST_LINES = 200
MOST_SEGMENTS = 60
MOST_LISTED = 100


def snapshot_report(data: Any, *, source: str = "", cell_number: CellNumber | None = None) -> SnapshotReport:
    """Return a snapshot, summed up.

    ``data`` is what ``torch.cuda.memory._snapshot()`` returned, or a file of it held.

    Raises:
        SnapshotError: where it is no snapshot.
    """
    segments, traces = _parts(data)
    most = MOST_EVENTS // max(sum(bool(trace) for trace in traces), 1)
    stacks = Stacks(cell_number)
    areas = areas_of(segments, stacks)
    in_use = [block for area in areas for block in area.blocks if block.state == "allocated"]
    sums: defaultdict[int, LineSums] = defaultdict(LineSums)
    histories: list[History] = []
    for at, trace in enumerate(traces):
        device = f"cuda:{at}"
        if events := list(dictionaries(trace[-most:])):
            blocks = [block for block in in_use if block.device == device]
            reserved = sum(area.nbytes for area in areas if area.device == device)
            histories.append(history_of(device, events, blocks, reserved=reserved, stacks=stacks, sums=sums))
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
        timelines=tuple(history.timeline(index) for history in histories),
        reserved=tuple(tuple(moment.reserved for moment in history.moments) for history in histories),
        peak_blocks=tuple(block.report(stacks, index) for block in peaking[:MOST_LISTED]),
        peak_left_out=(left_out[0] + unknown[0], left_out[1] + unknown[1]),
        lines=tuple(LineMemory(stacks.locations[number], **asdict(sums[number])) for number in indices),
        lines_left_out=(len(order[MOST_LINES:]), sum(sums[number].allocated for number in order[MOST_LINES:])),
        refused=tuple(one for history in histories for one in history.refused),
        settings=_settings(data),
        gaps=(
            *(
                Gap(
                    "history",
                    f"the history of cuda:{at} has {plural(len(trace), 'event')}; the last {count(most)} were read",
                )
                for at, trace in enumerate(traces)
                if len(trace) > most
            ),
            *_gaps(data, histories, stacks, has_blocks=bool(in_use)),
        ),
    )


def _parts(data: Any) -> tuple[Any, list[list[Any]]]:
    """Return the segments, and the events by device."""
    if isinstance(data, list) and data and all(isinstance(one, dict) and "total_size" in one for one in data[:10]):
        return data, []  # torch before 2.0 gave the segments alone
    if not isinstance(data, Mapping) or not isinstance(data.get("segments"), list):
        raise SnapshotError(
            f"it is a {type(data).__name__} without 'segments', not a memory snapshot. "
            "`torch.cuda.memory._dump_snapshot(FILE)` writes one"
        )
    return data["segments"], [entries(one) for one in entries(data.get("device_traces"))[:MOST_DEVICES]]


def _add_blocks(
    sums: defaultdict[int, LineSums], in_use: list[Block], histories: list[History], peaking: list[Block]
) -> None:
    """Add to what each line did in the histories what it kept, what it held at the peak, and what no event shows."""
    with_events = {history.device for history in histories}
    for block in in_use:
        line = sums[block.line]
        line.kept += block.requested
        line.largest = max(line.largest, block.requested)
        if block.device not in with_events:
            line.allocate(block.requested)
    for block in (block for history in histories for block in history.from_before):
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
            device=name,
            reserved=sum(block.nbytes for block in blocks),
            allocated=sum(block.nbytes for block in in_use),
            requested=sum(block.requested for block in in_use),
            awaiting=held(blocks, "awaiting free"),
            largest_free=largest_free(blocks),
            segments=len(every),
            blocks=len(in_use),
        )
        if (history := histories.get(name)) is not None:
            device = replace(
                device, events=history.actions.total(), actions=dict(history.actions), peak=history.highest,
                reserved_peak=history.reserved_peak,
            )  # fmt: skip
        yield device


def _settings(data: Any) -> dict[str, str] | None:
    given = data.get("allocator_settings") if isinstance(data, dict) else None
    if not isinstance(given, dict):
        return None
    plain = [pair for pair in given.items() if isinstance(pair[0], str) and isinstance(pair[1], str | int | float)]
    return {key[:100]: str(value)[:500] for key, value in plain[:40]}


def _gaps(data: Any, histories: list[History], stacks: Stacks, *, has_blocks: bool) -> Iterator[Gap]:
    if not histories:
        yield Gap(
            "history",
            "the snapshot has no events: `torch.cuda.memory._record_memory_history()` before the run records them",
        )
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
    if stacks.unread:
        most = count(len(stacks.locations))
        yield Gap("lines", f"{plural(stacks.unread, 'stack')} beyond the first {most} lines that were read")
    if isinstance(data, dict) and data.get("external_annotations"):
        yield Gap("annotations", "the snapshot holds names of record_function; they are not used")
