"""A snapshot of CUDA's allocator: its memory over time, its segments, and what it refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from tensormagic import reports
from tensormagic.reports import Location, Segment, SnapshotBlock, SnapshotRange, SnapshotReport
from tensormagic.views import nodes
from tensormagic.views.markup import escape, tag
from tensormagic.views.nodes import Column, Node, Paragraph, Section, Words, table_of
from tensormagic.views.panels import memory
from tensormagic.views.pictures.timeline import OTHER_LINES, Layer, TimelinePicture, line_ranks
from tensormagic.views.pictures.treemap import Tile, TreemapPicture
from tensormagic.views.theme import BEFORE
from tensormagic.views.to_html import key
from tensormagic.words import DOT, count, number_of_bytes, percent, plural, seconds_text, shortened

# Segments of a CUDA allocator: what it has reserved, each as long as it is large, and the blocks in it.

RANGES = 48  # of a segment that is drawn
STATES: dict[reports.RangeState, str] = {
    "allocated": "in use",
    "awaiting free": "waiting for another stream",
    "mixed": "small blocks, in use and free",
    "free": "free",
}
_GROUNDS = {"awaiting free": "tm-sw", "mixed": "tm-sm", "free": "tm-sf"}
_GLYPHS = {"allocated": "\u2588", "awaiting free": "\u2592", "mixed": "\u2593", "free": "\u00b7"}


@dataclass(frozen=True, slots=True)
class SegmentsPicture(nodes.Picture):
    """Segments, the largest first (snapshots)."""

    segments: Sequence[Segment]  # What is drawn.
    ranks: dict[int, int]  # The lines that have a colour.
    line_words: Callable[[int], str]  # Names a line by its number.

    def html(self) -> str:
        """Return a bar a segment, below its words, and a legend."""
        drawn = map(self._segment, self.segments)
        keys = [tag("span", "in use: coloured by line, as above", class_="tm-key quiet")]
        keys += [key(_GROUNDS[state], escape(STATES[state])) for state in ("free", "awaiting free", "mixed")]
        return tag("ul", *drawn) + tag("div", " ".join(keys), class_="tm-keys")

    def _segment(self, segment: Segment) -> str:
        described, spans = segment_words(segment), []
        for one in drawn_ranges(segment):
            ground = _GROUNDS.get(one.state, f"tm-l{self.ranks.get(one.line, len(self.ranks))}")
            what = f"{number_of_bytes(one.nbytes)} {STATES[one.state]}"
            what += f", {plural(one.blocks, 'block')}" if one.blocks > 1 else ""
            what += f", {self.line_words(one.line)}" if one.line >= 0 else ""
            width = f"width:{100 * one.nbytes / (segment.nbytes or 1):.2f}%"
            spans.append(tag("span", class_=ground, style=width, title=what))
        style = f"width:{max(100 * segment.nbytes / (self.segments[0].nbytes or 1), 1):.1f}%"
        bar = tag("div", *spans, class_="tm-bar tm-segment", style=style, role="img", aria_label=described)
        return tag("li", tag("p", tag("b", escape(segment.device)), " ", escape(described), class_="quiet"), bar)

    def text(self, width: int) -> Iterator[str]:
        """Return a strip of characters a segment, below its words."""
        largest = self.segments[0].nbytes or 1
        yield "  \u2588 in use, \u2592 waiting, \u2593 small blocks, \u00b7 free"
        for segment in self.segments:
            yield f"  {segment.device}  {segment_words(segment)}"
            wide, strip, at = max(round((width - 4) * segment.nbytes / largest), 1), "", 0
            for one in drawn_ranges(segment, wide):
                at += one.nbytes
                end = round(wide * at / segment.nbytes) if segment.nbytes else 0
                strip += _GLYPHS[one.state] * (end - len(strip))
            yield f"  \u2502{strip.ljust(wide)}\u2502"


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


def drawn_ranges(segment: Segment, number: int = RANGES) -> list[SnapshotRange]:
    """Return the ranges of a segment that can be drawn: neighbours too narrow to be seen are one."""
    least = segment.nbytes / number
    groups: list[list[SnapshotRange]] = []
    for one in segment.ranges:
        if groups and one.nbytes < least and sum(each.nbytes for each in groups[-1]) < least:
            groups[-1].append(one)
        else:
            groups.append([one])
    joined = []
    for group in groups:
        largest = max(group, key=lambda one: one.nbytes)
        state: reports.RangeState = largest.state if len({one.state for one in group}) == 1 else "mixed"
        nbytes, used, blocks = (sum(getattr(one, name) for one in group) for name in ("nbytes", "used", "blocks"))
        joined.append(SnapshotRange(state=state, nbytes=nbytes, used=used, blocks=blocks, line=largest.line))
    return joined


# A memory snapshot (``%gpumem --snapshot FILE``): what ran out, the timeline, each line's part, segments, blocks.

UNIT = "event"
NO_LINE = "line unknown"
BEFORE_WORDS = "before the first event"
MOST_SEGMENTS, MOST_REFUSED, MOST_TIMELINES = 16, 5, 8
MAP_HEIGHT, MOST_CELLS = 220.0, 100


def view(report: SnapshotReport) -> nodes.Panel:
    """Return the panel."""
    ranked = sorted(report.timelines, key=lambda one: -max(one.live, default=0))
    body: list[Node] = []
    for refused in report.refused[-MOST_REFUSED:]:
        body += [Paragraph(refused_words(refused), "error"), f"`{stack_words(refused.stack)}`"]
    body.append(nodes.Findings(report.findings, report.gaps))
    note = "bytes asked for, by the line that allocated them"
    for at, timeline in enumerate(ranked[:MOST_TIMELINES]):
        drawn = TimelinePicture(timeline, partial(layer_words, report), UNIT, only_lines=True)
        peak = f"peak {number_of_bytes(max(timeline.live, default=0))}"
        body.append(Section(f"In use on `{timeline.device}`", [drawn], peak if at else note, folded=at > 0))
    lines = table_of(LINES, report.lines, most=(40, 14), left_out=report.lines_left_out,
                     nbytes=[one.allocated for one in report.lines])  # fmt: skip
    body += [*_peak(report), Section("Line by line", [lines], "bytes asked for", folded=True)]
    if report.segments:  # coloured by line as in the timeline that peaks highest
        ranks = line_ranks(ranked[0]) if ranked and ranked[0].live else {}
        segments = SegmentsPicture(report.segments[:MOST_SEGMENTS], ranks, partial(line_words, report))
        hidden = [one.nbytes for one in report.segments[MOST_SEGMENTS:]]
        number, nbytes = report.segments_left_out[0] + len(hidden), report.segments_left_out[1] + sum(hidden)
        more = Paragraph(f"and {count(number)} more, {number_of_bytes(nbytes)}" if number else "", "quiet")
        note = "what the allocator has reserved, and the blocks in it"
        body.append(Section("Segments", [segments, more], note, folded=True))
    body.append(_blocks("Blocks in use at the peak", report, report.peak_blocks, report.peak_left_out))
    body.append(_blocks("Blocks in use at the end", report, report.live, report.live_left_out))
    rows = []
    for one in report.devices:
        events = ", ".join(f"{count(number)} {name}" for name, number in sorted((one.actions or {}).items()))
        rows += [(f"events of {one.device}", events)] if events else []
    rows += [(name, shortened(value, 200)) for name, value in (report.settings or {}).items()]
    table = nodes.Table((Column(look="name"), Column(look="wide")), rows)
    body.append(Section("Events and settings of the allocator", [table], folded=True))
    facts = [Words(shortened(report.source, 100), "quiet"), Words(summary(report), "strong")]
    second = [f"{one.device}: {f' {DOT} '.join(device_notes(one))}" for one in report.devices]
    kind, name = "memory tm-snapshot", "memory snapshot"
    return nodes.Panel(kind, "memory", name, facts, body, name.capitalize(), second, sheets=("memory.css",))


def _peak(report: SnapshotReport) -> list[Section]:
    """Return what was in use at the peak as a treemap, by line."""
    tiles = []
    for block in report.peak_blocks:
        line = report.lines[block.line].location.label if 0 <= block.line < len(report.lines) else NO_LINE
        described = f"{line}\n{number_of_bytes(block.requested)}\n{stack_words(block.stack)}"
        tiles.append(Tile(line, block.label, "other", block.requested, described))
    tiles += [memory.left_out(*report.peak_left_out)] if report.peak_left_out[1] else []
    if not tiles:
        return []
    drawn = TreemapPicture(tiles, "what was in use at the peak, by line", MAP_HEIGHT, MOST_CELLS)
    total = number_of_bytes(sum(one.nbytes for one in tiles))
    return [Section("In use at the peak", [drawn], f"{total} by line", folded=True)]


def _size(name: str) -> Callable[[reports.LineMemory], str]:
    return lambda line: number_of_bytes(getattr(line, name)) if getattr(line, name) else ""


LINES = (
    Column("at the peak", _size("at_peak"), "number"),
    *(Column(name, _size(name), "number") for name in ("allocated", "kept", "largest")),
    Column("times", lambda line: count(line.calls), "number"),
    Column("line", lambda line: Words(place_words(line.location), "code"), "wide"),
)


def _blocks(name: str, report: SnapshotReport, blocks: Sequence[SnapshotBlock], left_out: tuple[int, int]) -> Section:
    """Return blocks, those that are described alike in one row, the largest first."""
    alike: dict[tuple[str, ...], list[SnapshotBlock]] = {}
    for block in blocks:
        where = stack_words(block.stack) if block.stack else line_words(report, block.line)
        label = f"{shortened(block.label, 40)}: " if block.label else ""
        size = number_of_bytes(block.nbytes) + (" (waiting)" if block.state == "awaiting free" else "")
        row = size, number_of_bytes(block.requested), block.device, label + where
        alike.setdefault(row, []).append(block)
    columns = [Column(title, look="number") for title in ("blocks", "bytes each", "asked for", "device")]
    columns.append(Column("allocated by", look="wide"))
    rows: list[tuple[nodes.Cell, ...]] = [
        (count(len(some)), *row[:-1], Words(row[-1], "code")) for row, some in alike.items()
    ]
    sizes = [sum(block.nbytes for block in some) for some in alike.values()]
    table = nodes.Table(columns, rows, most=(40, 10), left_out=left_out, nbytes=sizes, label=name)
    return Section(name, [table], f"{count(len(blocks) + left_out[0])}, the largest first", folded=True)


def summary(report: SnapshotReport) -> str:
    """Return what is in use and what was, of each device."""
    described = []
    for one in report.devices:
        used = f"{number_of_bytes(one.allocated)} in use of {number_of_bytes(one.reserved)} reserved"
        peak = f" {DOT} peak {number_of_bytes(one.peak)} asked for" if one.peak is not None else ""
        described.append(f"{one.device}: {used}{peak}")
    return "; ".join(described) or "it is empty"


def device_notes(device: reports.SnapshotDevice) -> Iterator[str]:
    """Yield what else is known of a device, a sentence each."""
    rounding = number_of_bytes(device.allocated - device.requested)
    blocks = f"{plural(device.blocks, 'block')} in {plural(device.segments, 'segment')}"
    yield f"{blocks}; {number_of_bytes(device.requested)} asked for, {rounding} more through rounding"
    if device.free > 0:
        largest, share = number_of_bytes(device.largest_free), percent(device.fragmentation)
        yield f"{number_of_bytes(device.free)} reserved and free, the largest piece {largest} (fragmentation {share})"
    if device.awaiting:
        yield f"{number_of_bytes(device.awaiting)} waiting for another stream"
    if device.actions:
        yield plural(device.events, "event")


def refused_words(refused: reports.RefusedAllocation) -> str:
    """Return an allocation that was refused, in a sentence."""
    when = f" after {seconds_text(refused.seconds)}" if refused.seconds is not None else ""
    live = f"; {number_of_bytes(refused.live)} were in use" if refused.live is not None else ""
    asked, free = number_of_bytes(refused.asked), number_of_bytes(refused.free)
    return f"{refused.device} ran out of memory{when}: {asked} asked for, {free} free on the device{live}."


def place_words(place: Location) -> str:
    """Return a line: where, in which function, and its source where that is known."""
    function = f" in {shortened(place.function, 40)}" if place.function else ""
    text = f": {shortened(place.text, 60)}" if place.text else ""
    return f"{shortened(place.label, 60)}{function}{text}"


def stack_words(stack: Sequence[Location]) -> str:
    """Return the lines that led somewhere, the innermost first."""
    return " \u2190 ".join(place_words(place) for place in reversed(stack)) or NO_LINE


def line_words(report: SnapshotReport, index: int) -> str:
    """Return a line of the report by its number."""
    return place_words(report.lines[index].location) if 0 <= index < len(report.lines) else NO_LINE


def layer_words(report: SnapshotReport, layer: Layer) -> str:
    """Return what a layer of the timeline stands for."""
    known = {OTHER_LINES: "other or unknown lines", BEFORE: BEFORE_WORDS}
    return known.get(layer.key) or line_words(report, int(layer.key))
