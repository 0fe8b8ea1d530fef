"""A memory snapshot as a panel: what ran out, the timeline by line, the peak as a treemap, segments with their blocks.

Markup and small pictures, as in the other panels of memory: no script, nothing from outside.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from tensormagic.renderers.alternatives.memory_alternative import treemap_alternative
from tensormagic.renderers.basics.finding_html import findings_html, gaps_html
from tensormagic.renderers.basics.markup import escape, tag
from tensormagic.renderers.basics.panel import fold, folds, header, section
from tensormagic.renderers.memory.memory_html import details_html, memory_panel
from tensormagic.renderers.memory.snapshot_words import (
    BLOCK_HEAD,
    LINE_HEAD,
    STATES,
    UNIT,
    block_rows,
    device_notes,
    drawn_stretches,
    events_words,
    layer_words,
    left_out_words,
    line_row,
    peak_tiles,
    refused_words,
    segment_words,
    stretch_words,
    summary,
    way_words,
)
from tensormagic.renderers.memory.timeline_html import layers_html
from tensormagic.renderers.memory.timeline_stack import by_line, line_ranks
from tensormagic.renderers.memory.treemap import treemap
from tensormagic.renderers.memory.treemap_html import WIDTH, treemap_html
from tensormagic.reports import RefusedAllocation, Segment, SnapshotBlock, SnapshotReport, SnapshotStretch, Timeline
from tensormagic.words import count, number_of_bytes, shortened

MOST_LINES, MOST_SEGMENTS, MOST_BLOCKS, MOST_REFUSED, MOST_TIMELINES = 40, 16, 40, 5, 8
MAP_HEIGHT, MOST_CELLS = 220.0, 100
_CLASSES = {"awaiting free": "tm-sw", "mixed": "tm-sm", "free": "tm-sf"}


def render(report: SnapshotReport) -> str:
    """Return the panel as an HTML fragment: a ``<section>`` that needs nothing from outside."""
    ranks = _ranks(report)
    ranked = sorted(report.timelines, key=lambda one: -max(one.live, default=0))
    parts = [
        _header(report),
        *map(_refused, report.refused[-MOST_REFUSED:]),
        findings_html(report.findings),
        gaps_html(report.gaps),
        *(_timeline(report, timeline) for timeline in ranked[:1]),
        folds(
            *(_further(report, timeline) for timeline in ranked[1:MOST_TIMELINES]),
            _peak(report),
            _lines(report),
            _segments(report, ranks),
            _blocks("Blocks in use at the peak", report, report.peak_blocks, report.peak_left_out),
            _blocks("Blocks in use at the end", report, report.live, report.live_left_out),
            _settings(report),
        ),
    ]
    return memory_panel("Memory snapshot", parts, "tm-memory tm-snapshot")


def _ranks(report: SnapshotReport) -> dict[int, int]:
    """Return the lines that have a colour: those of the timeline that peaks highest."""
    highest = max(report.timelines, key=lambda one: max(one.live, default=0), default=None)
    return line_ranks(highest) if highest is not None and highest.live else {}


def _header(report: SnapshotReport) -> str:
    notes = [escape(f"{one.device}: {' · '.join(device_notes(one))}") for one in report.devices]
    about = [tag("b", escape(summary(report)), class_="tm-peaked")]
    return header(_title(report), about, about="memory", second=notes)


def _title(report: SnapshotReport) -> str:
    return "memory snapshot" + (f" <i>{escape(shortened(report.source, 100))}</i>" if report.source else "")


def _refused(refused: RefusedAllocation) -> str:
    words = tag("p", tag("b", escape(refused_words(refused))))
    return tag("div", words, tag("p", tag("code", escape(way_words(refused.way)))), class_="tm-died")


def _timeline(report: SnapshotReport, timeline: Timeline) -> str:
    drawn = _drawn(report, timeline)
    about = "bytes asked for, by the line that allocated them"
    return section(f"In use on {timeline.device}", drawn, about=about, class_="tm-timeline")


def _further(report: SnapshotReport, timeline: Timeline) -> str:
    peak = number_of_bytes(max(timeline.live, default=0))
    drawn = tag("div", _drawn(report, timeline), class_="tm-timeline")
    return fold(escape(f"In use on {timeline.device}"), drawn, state=f"peak {peak}")


def _drawn(report: SnapshotReport, timeline: Timeline) -> str:
    return layers_html(timeline, by_line(timeline), partial(layer_words, report), unit=UNIT)


def _peak(report: SnapshotReport) -> str:
    tiles = peak_tiles(report)
    if not tiles:
        return ""
    total = sum(one.nbytes for one in tiles)
    drawn = treemap(tiles, WIDTH, MAP_HEIGHT, most=MOST_CELLS)
    picture = treemap_html(drawn, treemap_alternative(tiles, "what was in use at the peak, by line"))
    return fold("In use at the peak", picture, state=f"{number_of_bytes(total)} by line")


def _lines(report: SnapshotReport) -> str:
    if not report.lines:
        return ""
    rows = "".join(_row(line_row(line)) for line in report.lines[:MOST_LINES])
    rest = left_out_words(report.lines_left_out, [one.allocated for one in report.lines[MOST_LINES:]])
    return fold("Line by line", _table(LINE_HEAD, rows), _more(rest), state="bytes asked for")


def _row(cells: Sequence[str]) -> str:
    *numbers, words = cells
    filled = (tag("td", escape(number), class_="tm-num") for number in numbers)
    return tag("tr", *filled, tag("td", tag("code", escape(words)), class_="tm-wide"))


def _table(head: Sequence[str], rows: str) -> str:
    *numbers, last = head
    names = [tag("th", escape(text), scope="col", class_="tm-num") for text in numbers]
    top = tag("thead", tag("tr", *names, tag("th", escape(last), scope="col")))
    return tag("table", top, tag("tbody", rows), class_="tm-list tm-full")


def _segments(report: SnapshotReport, ranks: dict[int, int]) -> str:
    if not report.segments:
        return ""
    largest = report.segments[0].nbytes or 1
    drawn = (_segment(report, segment, ranks, largest) for segment in report.segments[:MOST_SEGMENTS])
    rest = left_out_words(report.segments_left_out, [one.nbytes for one in report.segments[MOST_SEGMENTS:]])
    said = [tag("span", tag("span", class_=f"tm-swatch {_CLASSES[key]}"), escape(STATES[key]), class_="tm-key")
            for key in ("free", "awaiting free", "mixed")]  # fmt: skip
    key = tag("span", "in use: coloured by line, as above", class_="tm-key quiet")
    about = "what the allocator has reserved, and the blocks in it"
    keys = tag("div", " ".join([key, *said]), class_="tm-keys")
    return fold("Segments", tag("ul", *drawn), keys, _more(rest), state=about)


def _segment(report: SnapshotReport, segment: Segment, ranks: dict[int, int], largest: int) -> str:
    words = tag("p", tag("b", escape(segment.device)), " ", escape(segment_words(segment)), class_="quiet")
    spans = "".join(_stretch(report, one, ranks, segment.nbytes) for one in drawn_stretches(segment))
    width = max(100 * segment.nbytes / largest, 1)
    bar = tag("div", spans, class_="tm-bar tm-segment", style=f"width:{width:.1f}%", role="img",
              aria_label=segment_words(segment))  # fmt: skip
    return tag("li", words, bar)


def _stretch(report: SnapshotReport, stretch: SnapshotStretch, ranks: dict[int, int], whole: int) -> str:
    ground = _CLASSES.get(stretch.state, f"tm-l{ranks.get(stretch.line, len(ranks))}")
    width = 100 * stretch.nbytes / whole if whole else 0
    return tag("span", class_=ground, style=f"width:{width:.2f}%", title=stretch_words(report, stretch))


def _blocks(name: str, report: SnapshotReport, blocks: Sequence[SnapshotBlock], left_out: tuple[int, int]) -> str:
    if not blocks:
        return ""
    rows, rest = block_rows(report, blocks, left_out, MOST_BLOCKS)
    words = f"{count(len(blocks) + left_out[0])}, the largest first"
    return details_html(name, _table(BLOCK_HEAD, "".join(map(_row, rows))) + _more(rest), state=words)


def _settings(report: SnapshotReport) -> str:
    events = ((f"events of {one.device}", events_words(one)) for one in report.devices)
    settings = "".join(map(_setting, [pair for pair in events if pair[1]] + [*(report.settings or {}).items()]))
    return details_html(
        "Events and settings of the allocator", tag("table", tag("tbody", settings)) if settings else ""
    )


def _setting(pair: tuple[str, str]) -> str:
    name, value = pair
    return tag("tr", tag("th", tag("code", escape(name)), scope="row"), tag("td", escape(shortened(value, 200))))


def _more(words: str) -> str:
    return tag("p", escape(words), class_="quiet") if words else ""
