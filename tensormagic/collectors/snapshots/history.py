"""From the events of one device to its timeline: the bytes in use at a bounded number of moments, and the peak.

The end of the history is known from the blocks, so the beginning follows: what is alive at the end, less what the
events allocated, plus what they freed. The way is gone twice: once for the height of every moment, which says which
moments are worth keeping, and once more to look at these.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from tensormagic.collectors.snapshots.fields import whole
from tensormagic.collectors.snapshots.frames import Stacks
from tensormagic.collectors.snapshots.segments import Block
from tensormagic.collectors.snapshots.walk import LineSums, Step, Walk, actions_in, line_sums, steps_of
from tensormagic.reports import Category

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
    """What the events of one device tell.

    Attributes:
        device: As torch writes it.
        actions: How many events of each kind.
        sums: What each line did, by its number.
        moments: Those that are kept.
        peak: Index of the highest of these; -1 where there is none.
        alive: What was alive at the peak and had been allocated in the history, by address.
        from_before: Blocks in use at the end, and all along.
        base: Bytes alive before the first event.
        reserved_base: Bytes reserved before the first event.
        unknown: How many more blocks there were at the peak, of which only the end is known, and their bytes.
        refused: ``(event, bytes alive)`` of the allocations that were refused.
        reserved_peak: The most that was reserved.
        misfit: Bytes by which events and blocks contradict each other.
        times: Whether events carry times.
    """

    device: str
    actions: Counter[str]
    sums: dict[int, LineSums] = field(default_factory=dict)
    moments: list[Moment] = field(default_factory=list)
    peak: int = -1
    alive: list[Step] = field(default_factory=list)
    from_before: list[Block] = field(default_factory=list)
    base: int = 0
    reserved_base: int = 0
    unknown: tuple[int, int] = (0, 0)
    refused: list[tuple[dict[Any, Any], int]] = field(default_factory=list)
    reserved_peak: int = 0
    misfit: int = 0
    times: bool = False


def history_of(
    device: str, events: list[dict[Any, Any]], blocks: list[Block], *, reserved: int, stacks: Stacks
) -> History:
    """Return the history of one device.

    Args:
        device: As torch writes it.
        events: Of this device, the oldest first; at least one.
        blocks: Those of it that are in use at the end.
        reserved: Bytes that are reserved at the end.
        stacks: Where lines get their numbers.
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
    last = _replay(found, Walk(frees), steps, levels)
    found.unknown = first.lost_blocks - last.lost_blocks, first.lost - last.lost
    return found


def _levels(walk: Walk, steps: list[Step]) -> tuple[list[int], list[int]]:
    """Return what is alive and what is reserved after each event, but for what was before the first."""
    levels: list[int] = []
    reserves: list[int] = []
    for step in steps:
        walk.take(step)
        levels.append(walk.known - walk.lost)
        reserves.append(walk.reserved)
    return levels, reserves


@dataclass(slots=True)
class _Lost:
    lost_blocks: int
    lost: int


def _replay(found: History, walk: Walk, steps: list[Step], levels: list[int]) -> _Lost:
    """Fill in the moments; return what had been freed by the peak of what was there before the history."""
    peak = levels.index(max(levels))
    keep = _worth_keeping(levels, peak)
    at_peak = _Lost(0, 0)
    for number, step in enumerate(steps):
        walk.take(step)
        refused = step.action == "oom"
        if refused:
            found.refused.append((step.event, found.base + walk.level))
        if number in keep or (refused and len(found.refused) <= MOST_REFUSED):
            found.moments.append(_moment(found, walk, step.event, number))
        if number == peak:
            found.peak, found.alive = len(found.moments) - 1, list(walk.alive.values())
            at_peak = _Lost(walk.lost_blocks, walk.lost)
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
