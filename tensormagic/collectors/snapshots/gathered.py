"""A snapshot as it was read: its segments, and the history of each device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tensormagic.collectors.snapshots.frames import Stacks
from tensormagic.collectors.snapshots.history import History, history_of
from tensormagic.collectors.snapshots.reading import dictionaries, entries
from tensormagic.collectors.snapshots.segments import Area, Block, areas_of
from tensormagic.collectors.where.source import CellNumber
from tensormagic.errors import SnapshotError
from tensormagic.reports import Gap
from tensormagic.words import count, plural

MOST_EVENTS = 2_000_000  # of all devices together; of more, the last
MOST_DEVICES = 64


@dataclass(slots=True)
class Gathered:
    """What a snapshot holds, before it is summed up.

    Attributes:
        stacks: The lines that were met.
        areas: The segments with their blocks.
        histories: One a device that has events.
        gaps: What could not be read.
    """

    stacks: Stacks
    areas: list[Area] = field(default_factory=list)
    histories: list[History] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)

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
