"""From a snapshot's plain data to a `SnapshotReport`: devices, segments, blocks, the history, and each line's part."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from tensormagic.collectors.snapshots.fields import whole, word
from tensormagic.collectors.snapshots.gathered import Gathered, gather
from tensormagic.collectors.snapshots.history import MOST_REFUSED, History
from tensormagic.collectors.snapshots.lines import Lines, lines_of
from tensormagic.collectors.snapshots.segments import Area, Block, segment_report
from tensormagic.collectors.snapshots.timelines import refused_in, timeline_of
from tensormagic.collectors.snapshots.walk import Step
from tensormagic.collectors.where.source import CellNumber
from tensormagic.reports import Gap, Segment, SnapshotBlock, SnapshotDevice, SnapshotReport
from tensormagic.words import count, number_of_bytes, plural

MOST_SEGMENTS = 60
MOST_LISTED = 100


def snapshot_report(
    data: Any, *, source: str = "", file_bytes: int = 0, cell_number: CellNumber | None = None
) -> SnapshotReport:
    """Return a snapshot, summed up.

    Args:
        data: What ``torch.cuda.memory._snapshot()`` returned, or a file of it held.
        source: Name of the file.
        file_bytes: Its length.
        cell_number: Gives the execution count of a cell from its file name.

    Raises:
        SnapshotError: where it is no snapshot.
    """
    read = gather(data, cell_number)
    lines = lines_of(read)
    areas = sorted(read.areas, key=lambda area: -area.nbytes)
    live = sorted(read.in_use(), key=lambda block: -block.nbytes)
    return SnapshotReport(
        source=source,
        file_bytes=file_bytes,
        devices=tuple(_devices(read)),
        segments=tuple(_segment(area, lines) for area in areas[:MOST_SEGMENTS]),
        segments_left_out=_rest([area.nbytes for area in areas[MOST_SEGMENTS:]]),
        live=tuple(_block(block, read, lines) for block in live[:MOST_LISTED]),
        live_left_out=_rest([block.nbytes for block in live[MOST_LISTED:]]),
        timelines=tuple(timeline_of(history, lines) for history in read.histories),
        reserved=tuple(tuple(moment.reserved for moment in history.moments) for history in read.histories),
        **_at_peak(read, lines),
        lines=lines.told,
        lines_left_out=lines.left_out,
        refused=tuple(refused_in(read)),
        settings=_settings(data),
        gaps=tuple(_gaps(read, data)),
    )


def _rest(sizes: list[int]) -> tuple[int, int]:
    return len(sizes), sum(sizes)


def _segment(area: Area, lines: Lines) -> Segment:
    told = segment_report(area)
    return replace(told, stretches=tuple(replace(one, line=lines.index(one.line)) for one in told.stretches))


# -- devices -------------------------------------------------------------------------------------------------------


def _devices(read: Gathered) -> Iterator[SnapshotDevice]:
    names = sorted({area.device for area in read.areas} | {history.device for history in read.histories}, key=_number)
    histories = {history.device: history for history in read.histories}
    for name in names:
        yield _with_history(_device(name, [area for area in read.areas if area.device == name]), histories.get(name))


def _number(device: str) -> int:
    return int(device.rpartition(":")[2])


def _device(name: str, areas: list[Area]) -> SnapshotDevice:
    blocks = [block for area in areas for block in area.blocks]
    return SnapshotDevice(
        device=name,
        reserved=sum(block.nbytes for block in blocks),
        allocated=sum(block.nbytes for block in blocks if block.state == "allocated"),
        requested=sum(block.requested for block in blocks if block.state == "allocated"),
        awaiting=sum(block.nbytes for block in blocks if block.state == "awaiting free"),
        largest_free=max((block.nbytes for block in blocks if block.state == "free"), default=0),
        segments=len(areas),
        blocks=sum(block.state == "allocated" for block in blocks),
    )


def _with_history(device: SnapshotDevice, history: History | None) -> SnapshotDevice:
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
    way = read.stacks.way(block.frames)
    return SnapshotBlock(
        block.device, block.nbytes, block.requested, block.state, lines.index(block.line), way, block.stream
    )


def _at_peak(read: Gathered, lines: Lines) -> dict[str, Any]:
    """Return what was in use when the device that peaked highest did, the largest first, and what is left out."""
    history = read.highest
    if history is None:
        return {}
    found: list[Step | Block] = sorted([*history.alive, *history.from_before], key=lambda one: -_asked(one))
    count, nbytes = _rest([_asked(one) for one in found[MOST_LISTED:]])
    told = tuple(_of_peak(one, history.device, read, lines) for one in found[:MOST_LISTED])
    return {"peak_blocks": told, "peak_left_out": (count + history.unknown[0], nbytes + history.unknown[1])}


def _asked(one: Step | Block) -> int:
    return one.nbytes if isinstance(one, Step) else one.requested


def _of_peak(one: Step | Block, device: str, read: Gathered, lines: Lines) -> SnapshotBlock:
    if isinstance(one, Block):
        return replace(_block(one, read, lines), nbytes=one.requested)
    event = one.event
    label = word(event, "user_metadata") or word(event, "category")
    way, stream = read.stacks.way(event.get("frames")), whole(event, "stream")
    return SnapshotBlock(device, one.nbytes, one.nbytes, "allocated", lines.index(one.line), way, stream, label)


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
        yield from _gaps_of(history)
    if read.stacks.unread:
        most = count(len(read.stacks.locations))
        yield Gap(
            "lines", f"{plural(read.stacks.unread, 'stack')} beyond the first {most} lines, which alone were read"
        )
    if isinstance(data, dict) and data.get("external_annotations"):
        yield Gap("annotations", "the snapshot holds names of record_function; they are not used")


def _gaps_of(history: History) -> Iterator[Gap]:
    if history.misfit:
        told = f"the events of {history.device} and its blocks differ by {number_of_bytes(history.misfit)}"
        yield Gap("history", f"{told}: the level before the first event is a guess")
    if not history.times:
        yield Gap("history", f"the events of {history.device} carry no times")
    if history.actions["unknown"]:
        yield Gap("history", f"{plural(history.actions['unknown'], 'event')} of {history.device} of an unknown kind")
    if len(history.refused) > MOST_REFUSED:
        yield Gap("history", f"{len(history.refused) - MOST_REFUSED} more allocations were refused on {history.device}")
