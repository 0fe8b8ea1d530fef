"""The timeline of each device, and the allocations that were refused in it."""

from __future__ import annotations

from array import array
from collections.abc import Iterator

from tensormagic.collectors.snapshots.fields import size, whole
from tensormagic.collectors.snapshots.gathered import Gathered
from tensormagic.collectors.snapshots.history import MOST_REFUSED, History
from tensormagic.collectors.snapshots.lines import Lines
from tensormagic.reports import CATEGORIES, RefusedAllocation, Timeline

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
            way = read.stacks.way(event.get("frames"))
            yield RefusedAllocation(history.device, size(event, "size"), size(event, "device_free"), live, seconds, way)
