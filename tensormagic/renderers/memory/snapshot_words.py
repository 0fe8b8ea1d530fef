"""What the panel and the text of a memory snapshot say: one wording for both."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tensormagic.renderers.memory.categories import BEFORE
from tensormagic.renderers.memory.timeline_stack import OTHER_LINES, Layer
from tensormagic.renderers.memory.treemap import LEFT_OUT, Tile
from tensormagic.reports import (
    LineMemory,
    Location,
    RefusedAllocation,
    Segment,
    SnapshotBlock,
    SnapshotDevice,
    SnapshotReport,
    SnapshotStretch,
    StretchState,
)
from tensormagic.words import DOT, count, number_of_bytes, percent, plural, seconds_text, shortened

UNIT = "event"
NO_LINE = "no line known"
BEFORE_WORDS = "before the first event"
LINE_HEAD = ("at the peak", "allocated", "kept", "largest", "times", "line")
BLOCK_HEAD = ("blocks", "bytes each", "asked for", "device", "allocated by")
STRETCHES = 48  # of a segment that is drawn
STATES: dict[StretchState, str] = {
    "allocated": "in use",
    "awaiting free": "waiting for another stream",
    "mixed": "small blocks, in use and free",
    "free": "free",
}


def title(report: SnapshotReport) -> str:
    """Return what the panel is called."""
    return f"memory snapshot {report.source}".rstrip()


def summary(report: SnapshotReport) -> str:
    """Return what is in use and what was, of each device."""
    return "; ".join(map(device_summary, report.devices)) or "it is empty"


def device_summary(device: SnapshotDevice) -> str:
    """Return one device in a line."""
    parts = [
        f"{device.device}: {number_of_bytes(device.allocated)} in use of {number_of_bytes(device.reserved)} reserved"
    ]
    if device.peak is not None:
        parts.append(f"peak {number_of_bytes(device.peak)} asked for")
    return f" {DOT} ".join(parts)


def device_notes(device: SnapshotDevice) -> Iterator[str]:
    """Yield what else is known of a device, a sentence each."""
    rounding = number_of_bytes(device.allocated - device.requested)
    blocks = f"{plural(device.blocks, 'block')} in {plural(device.segments, 'segment')}"
    yield f"{blocks}; {number_of_bytes(device.requested)} asked for, {rounding} more by rounding"
    if device.free > 0:
        largest, share = number_of_bytes(device.largest_free), percent(device.fragmentation)
        yield f"{number_of_bytes(device.free)} reserved and free, the largest piece {largest} (fragmentation {share})"
    if device.awaiting:
        yield f"{number_of_bytes(device.awaiting)} wait for another stream"
    if device.actions:
        yield plural(device.events, "event")


def events_words(device: SnapshotDevice) -> str:
    """Return how many events of each kind there were; empty where none was recorded."""
    return ", ".join(f"{count(number)} {name}" for name, number in sorted((device.actions or {}).items()))


def refused_words(refused: RefusedAllocation) -> str:
    """Return an allocation that was refused, in a sentence."""
    when = f" after {seconds_text(refused.seconds)}" if refused.seconds is not None else ""
    live = f"; {number_of_bytes(refused.live)} were in use" if refused.live is not None else ""
    asked, free = number_of_bytes(refused.asked), number_of_bytes(refused.free)
    return f"{refused.device} ran out of memory{when}: {asked} asked for, {free} free on the device{live}."


def place_words(place: Location, *, width: int = 60) -> str:
    """Return a line: where, in which function, and its source where that is known."""
    function = f" in {shortened(place.function, 40)}" if place.function else ""
    text = f": {shortened(place.text, width)}" if place.text else ""
    return f"{shortened(place.label, 60)}{function}{text}"


def way_words(way: Sequence[Location]) -> str:
    """Return the lines that led somewhere, the innermost first."""
    return " \u2190 ".join(place_words(place) for place in reversed(way)) or NO_LINE


def line_words(report: SnapshotReport, index: int) -> str:
    """Return a line of the report by its number."""
    return place_words(report.lines[index].location) if 0 <= index < len(report.lines) else NO_LINE


def layer_words(report: SnapshotReport, layer: Layer) -> str:
    """Return what a layer of the timeline stands for."""
    known = {OTHER_LINES: "other lines, or none known", BEFORE: BEFORE_WORDS}
    return known.get(layer.key) or line_words(report, int(layer.key))


def line_row(line: LineMemory) -> tuple[str, ...]:
    """Return a line's numbers and the line, as `LINE_HEAD` calls them."""
    numbers = (line.at_peak, line.allocated, line.kept, line.largest)
    sizes = (number_of_bytes(nbytes) if nbytes else "" for nbytes in numbers)
    return (*sizes, count(line.calls), place_words(line.location))


def block_rows(
    report: SnapshotReport, blocks: Sequence[SnapshotBlock], left_out: tuple[int, int], most: int
) -> tuple[list[tuple[str, ...]], str]:
    """Return blocks, as `BLOCK_HEAD` calls their parts, those that are told alike in one row; and how many more."""
    alike: dict[tuple[str, ...], list[SnapshotBlock]] = {}
    for block in blocks:
        alike.setdefault(_block_row(report, block), []).append(block)
    rows = [(count(len(some)), *row) for row, some in alike.items()]
    rest = [block.nbytes for some in list(alike.values())[most:] for block in some]
    return rows[:most], left_out_words(left_out, rest)


def _block_row(report: SnapshotReport, block: SnapshotBlock) -> tuple[str, ...]:
    where = way_words(block.way) if block.way else line_words(report, block.line)
    label = f"{shortened(block.label, 40)}: " if block.label else ""
    state = " (waiting)" if block.state == "awaiting free" else ""
    return number_of_bytes(block.nbytes) + state, number_of_bytes(block.requested), block.device, label + where


def peak_tiles(report: SnapshotReport) -> list[Tile]:
    """Return what was in use at the peak as what a treemap draws, by line."""
    tiles = []
    for block in report.peak_blocks:
        line = report.lines[block.line].location.label if 0 <= block.line < len(report.lines) else NO_LINE
        told = f"{line}\n{number_of_bytes(block.requested)}\n{way_words(block.way)}"
        tiles.append(Tile(line, block.label, "other", block.requested, told))
    number, nbytes = report.peak_left_out
    if nbytes:
        tiles.append(Tile(LEFT_OUT, f"{count(number)} more", "other", nbytes, f"{count(number)} more", number))
    return tiles


def segment_words(segment: Segment) -> str:
    """Return what is special about a segment."""
    parts = [
        number_of_bytes(segment.nbytes),
        f"{number_of_bytes(segment.allocated)} in use",
        plural(segment.blocks, "block"),
        segment.kind,
        f"stream {segment.stream}" if segment.stream else "",
        f"pool {segment.pool}" if any(segment.pool) else "",
        "expandable" if segment.expandable else "",
        f"fragmentation {percent(segment.fragmentation)}" if segment.fragmentation else "",
    ]
    return f" {DOT} ".join(filter(None, parts))


def drawn_stretches(segment: Segment, number: int = STRETCHES) -> list[SnapshotStretch]:
    """Return the stretches of a segment that can be drawn: neighbours too narrow to be seen are one."""
    least = segment.nbytes / number
    found: list[list[SnapshotStretch]] = []
    open_ = 0.0
    for one in segment.stretches:
        if found and one.nbytes < least and open_ < least:
            found[-1].append(one)
        else:
            found.append([one])
            open_ = 0.0
        open_ += one.nbytes
    return [_joined(group) for group in found]


def _joined(group: list[SnapshotStretch]) -> SnapshotStretch:
    states = {one.state for one in group}
    largest = max(group, key=lambda one: one.nbytes)
    return SnapshotStretch(
        state=largest.state if len(states) == 1 else "mixed",
        nbytes=sum(one.nbytes for one in group),
        used=sum(one.used for one in group),
        blocks=sum(one.blocks for one in group),
        line=largest.line,
    )


def stretch_words(report: SnapshotReport, stretch: SnapshotStretch) -> str:
    """Return what lies in a stretch."""
    what = f"{number_of_bytes(stretch.nbytes)} {STATES[stretch.state]}"
    blocks = f", {plural(stretch.blocks, 'block')}" if stretch.blocks > 1 else ""
    return what + blocks + (f", {line_words(report, stretch.line)}" if stretch.line >= 0 else "")


def left_out_words(left_out: tuple[int, int], more: Sequence[int] = ()) -> str:
    """Return how much is not listed; empty where all is."""
    number, nbytes = left_out[0] + len(more), left_out[1] + sum(more)
    return f"and {count(number)} more, {number_of_bytes(nbytes)}" if number else ""
