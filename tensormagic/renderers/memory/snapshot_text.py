"""A memory snapshot as plain text: what ran out, the timeline, each line's part, segments, the largest blocks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from tensormagic.renderers.memory.memory_run_text import chart_text
from tensormagic.renderers.memory.memory_text import page
from tensormagic.renderers.memory.snapshot_words import (
    BLOCK_HEAD,
    LINE_HEAD,
    UNIT,
    block_rows,
    device_notes,
    drawn_stretches,
    events_words,
    layer_words,
    left_out_words,
    line_row,
    refused_words,
    segment_words,
    summary,
    title,
    way_words,
)
from tensormagic.renderers.memory.text_bars import barred
from tensormagic.renderers.memory.timeline_stack import by_line
from tensormagic.renderers.tensor.tensor_text import finding_lines
from tensormagic.renderers.terminal.text_canvas import table
from tensormagic.renderers.trace.trace_text_lines import filled
from tensormagic.reports import Segment, SnapshotBlock, SnapshotReport, Timeline
from tensormagic.words import number_of_bytes

NARROWEST = 40
MOST_LINES, MOST_SEGMENTS, MOST_BLOCKS, MOST_REFUSED = 14, 12, 10, 4
_GLYPHS = {"allocated": "\u2588", "awaiting free": "\u2592", "mixed": "\u2593", "free": "\u00b7"}


def render(report: SnapshotReport, *, width: int = 100) -> str:
    """Return the report as text, no line wider than ``width`` (at least 40) columns."""
    width = max(width, NARROWEST)
    sections = [
        _head(report, width),
        *(_timeline(report, timeline, width) for timeline in report.timelines),
        _lines(report, width),
        _segments(report, width),
        _blocks("IN USE AT THE PEAK", report, report.peak_blocks, report.peak_left_out, width),
        _blocks("IN USE AT THE END", report, report.live, report.live_left_out, width),
    ]
    return page(sections, width)


def _head(report: SnapshotReport, width: int) -> Iterator[str]:
    yield from filled("", f"{title(report)}  {summary(report)}", width)
    yield "\u2500" * width
    for refused in report.refused[-MOST_REFUSED:]:
        yield from filled(" \u2716 ", refused_words(refused), width)
        yield from filled("   ", way_words(refused.way), width)
    for finding in report.findings:
        yield from finding_lines(finding, width)
    for gap in report.gaps:
        yield from filled("not shown: ", f"{gap.section}: {gap.reason}".replace("`", ""), width)
    for device in report.devices:
        kinds = events_words(device)
        for note in (*device_notes(device), *([f"events: {kinds}"] if kinds else [])):
            yield from filled(f"{device.device}  ", note, width)


def _timeline(report: SnapshotReport, timeline: Timeline, width: int) -> Iterator[str]:
    yield from chart_text(timeline, width, unit=UNIT)
    layers = reversed(by_line(timeline))
    rows = [(layer_words(report, one), one.values[timeline.peak]) for one in layers]
    yield from barred([(words, nbytes, (number_of_bytes(nbytes), "at the peak")) for words, nbytes in rows], width)


def _lines(report: SnapshotReport, width: int) -> Iterator[str]:
    if not report.lines:
        return
    yield "LINE BY LINE (bytes asked for)"
    yield from table([LINE_HEAD, *map(line_row, report.lines[:MOST_LINES])], indent=2, gap=2, width=width)
    yield from _more(left_out_words(report.lines_left_out, [one.allocated for one in report.lines[MOST_LINES:]]))


def _segments(report: SnapshotReport, width: int) -> Iterator[str]:
    if not report.segments:
        return
    yield "SEGMENTS (\u2588 in use, \u2592 waiting, \u2593 small blocks, \u00b7 free)"
    largest = report.segments[0].nbytes or 1
    for segment in report.segments[:MOST_SEGMENTS]:
        yield f"  {segment.device}  {segment_words(segment)}"
        yield f"  \u2502{_drawn(segment, max(round((width - 4) * segment.nbytes / largest), 1))}\u2502"
    rest = [segment.nbytes for segment in report.segments[MOST_SEGMENTS:]]
    yield from _more(left_out_words(report.segments_left_out, rest))


def _drawn(segment: Segment, width: int) -> str:
    """Return a segment as a strip of characters, as long as it is large."""
    strip, at = "", 0
    for one in drawn_stretches(segment, width):
        at += one.nbytes
        end = round(width * at / segment.nbytes) if segment.nbytes else 0
        strip += _GLYPHS[one.state] * (end - len(strip))
    return strip.ljust(width)


def _blocks(
    name: str, report: SnapshotReport, blocks: Sequence[SnapshotBlock], left_out: tuple[int, int], width: int
) -> Iterator[str]:
    if not blocks:
        return
    yield name
    rows, rest = block_rows(report, blocks, left_out, MOST_BLOCKS)
    yield from table([BLOCK_HEAD, *rows], indent=2, gap=2, width=width)
    yield from _more(rest)


def _more(words: str) -> Iterable[str]:
    return (f"  {words}",) if words else ()
