"""Bytes over time, stacked by category or by line, as a picture: in HTML, SVG and text."""

from __future__ import annotations

import zlib
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby, pairwise

from tensormagic.reports import CATEGORIES, MemoryRunReport, Timeline
from tensormagic.views import theme, to_text
from tensormagic.views.markup import attributes, escape, svg_image, tag
from tensormagic.views.nodes import Bar, Column, Picture, Table
from tensormagic.views.svg_paths import moved, number
from tensormagic.views.text_canvas import heights
from tensormagic.views.theme import BEFORE, CATEGORY_COLOURS, CATEGORY_LETTERS, STACK_COLOURS, role
from tensormagic.views.to_html import key
from tensormagic.views.to_svg import legend_svg, text_svg
from tensormagic.words import count, number_of_bytes, percent, seconds_text, shortened

# A timeline as stacked steps, simplified to the columns that are drawn: plain data, for pictures and for text.
#
# Memory changes at operations and stays as it is between them, so the axis counts operations. Where several moments
# fall into one column of the picture, the one with the most alive stands for all of them: no peak is ever lost.

OTHER_LINES = "other lines"


@dataclass(frozen=True, slots=True)
class Layer:
    """One of the stacked areas."""

    key: str  # The category; of a line, its index in the report as text; `BEFORE`, or `OTHER_LINES`.
    values: tuple[int, ...]  # Bytes at each moment.
    rank: int = 0  # Which colour of the lines it has; of a category 0.

    @property
    def colour(self) -> str:
        """Its colour."""
        return CATEGORY_COLOURS.get(self.key) or STACK_COLOURS[self.rank]


def by_category(timeline: Timeline) -> list[Layer]:
    """Return what was there before, and the categories that have anything, in the order in which they are stacked."""
    found = dict([(BEFORE, timeline.before), *timeline.by_category])
    return [Layer(name, found[name]) for name in (BEFORE, *CATEGORIES) if any(found.get(name, ()))]


def by_line(timeline: Timeline) -> list[Layer]:
    """Return what was there before, the lines that had the most at the peak, and all other lines as one."""
    ranks = line_ranks(timeline)
    named = [Layer(str(line), values, ranks[line]) for line, values in timeline.by_line if line in ranks]
    rest = [values for line, values in timeline.by_line if line not in ranks]
    others = Layer(OTHER_LINES, tuple(map(sum, zip(*rest, strict=True))), len(STACK_COLOURS) - 1)
    layers = [Layer(BEFORE, timeline.before), *sorted(named, key=lambda layer: layer.rank), others]
    return [layer for layer in layers if any(layer.values)]


def line_ranks(timeline: Timeline) -> dict[int, int]:
    """Return the lines that get a colour of their own: those with the most bytes at the peak, then at their own."""
    amounts = [
        (-values[timeline.peak], -max(values), line) for line, values in timeline.by_line if line >= 0 and values
    ]
    ranked = sorted(amount for amount in amounts if amount[1])[: len(STACK_COLOURS) - 1]
    return {line: rank for rank, (_, _, line) in enumerate(ranked)}


def main_timeline(report: MemoryRunReport) -> Timeline | None:
    """Return the timeline of the device that had the most alive."""
    drawn = [timeline for timeline in report.timelines if timeline.live]
    return max(drawn, key=lambda timeline: max(timeline.live), default=None)


def columns(timeline: Timeline, number: int) -> list[int]:
    """Return for each of at most ``number`` columns the moment that stands for it: the one with the most alive."""
    first = timeline.operation[0]
    wide = timeline.operation[-1] - first + 1
    number = min(number, wide)
    ends = [bisect_left(timeline.operation, first + wide * at / number) for at in range(number + 1)]
    return [max(range(start, end), key=timeline.live.__getitem__, default=max(start - 1, 0))
            for start, end in pairwise(ends)]  # fmt: skip


def column_of(timeline: Timeline, moment: int, number: int) -> float:
    """Return where on the axis a moment lies, 0 to 1: the middle of its column."""
    first = timeline.operation[0]
    wide = timeline.operation[-1] - first + 1
    number = min(number, wide)
    return (int((timeline.operation[moment] - first) * number / wide) + 0.5) / number


def tops(layers: Sequence[Layer], moments: Sequence[int]) -> list[list[int]]:
    """Return the upper edge of each layer at the moments, in bytes above nothing, the lowest layer first."""
    columns = [list(accumulate(layer.values[at] for layer in layers)) for at in moments]
    return [[column[at] for column in columns] for at in range(len(layers))]


_UNIT, _STEPS = 1024, (1, 2, 5, 10, 20, 50, 100, 200, 500)


def ticks(top: int, most: int = 5) -> list[int]:
    """Return round numbers of bytes from nothing up to ``top``: at most ``most`` besides nothing."""
    unit = 1
    while top >= unit * _UNIT:
        unit *= _UNIT
    steps = [size * unit for size in _STEPS] + [_UNIT * unit]
    step = next((size for size in steps if top / size <= most), max(top, 1))
    return list(range(0, top + 1, step))


def thinned_words(timeline: Timeline) -> str:
    """Return how many moments of a long run are kept; nothing where all are."""
    kept, of = len(timeline.operation), timeline.samples
    return f"{count(kept)} of {count(of)} moments kept, the highest among them" if of > kept else ""


# The stacked areas of a timeline as a small picture without letters: what they mean stands beside it as text.
#
# It is an image, so that hosts without scripts show it too; an image cannot see the theme of its page, so its colours
# read on white and on near-black. It is stretched to the width of the panel.

COLUMNS, ROWS = 460, 400  # units of the picture: some two pixels across, half a pixel down
PLAIN = 150  # pixels that it is high where there is no style sheet, and COLUMNS wide
HEADROOM = 1.12
EDGE = 4  # units that the line along the top of an area is high: one and a half pixels in a panel


def scale_top(timeline: Timeline) -> int:
    """Return how many bytes the height of the picture is: the peak, and some air above it."""
    return max(int(timeline.live[timeline.peak] * HEADROOM), 1)


def areas(timeline: Timeline, layers: Sequence[Layer]) -> tuple[int, str]:
    """Return how many units wide the areas are, and the areas, `ROWS` units high, the highest first.

    Each goes from the bottom up to its edge, a step a column; equal neighbours are one step.
    """
    moments = columns(timeline, COLUMNS)
    top, drawn = scale_top(timeline), []
    for layer, edge in zip(layers, tops(layers, moments), strict=True):
        parts, at = [f"M0,{ROWS}"], 0
        for height, same in groupby(round(nbytes / top * ROWS) for nbytes in edge):
            number = len(list(same))
            parts.append(f"v{at - height}h{number}" if height != at else f"h{number}")
            at = height
        steps = "".join([*parts, f"V{ROWS}z"])
        # A line that is seen on either side is its top: the area, dark, and again, a little lower.
        colour, key = layer.colour, f"a{zlib.crc32(steps.encode()):x}"  # one name is one shape, wherever it is
        dark = f'<g fill="{theme.edge_of(colour)}"><path id="{key}" d="{steps}"/></g>'
        drawn.append(f'{dark}<use xlink:href="#{key}" y="{EDGE}" fill="{colour}"/>')
    each_over_the_next = "".join(reversed(drawn))  # each lies on what is above it, down to the bottom
    return len(moments), f'<g xmlns:xlink="http://www.w3.org/1999/xlink">{each_over_the_next}</g>'


# A timeline of what was alive: stacked areas with their axes, the peak, and a legend; in a terminal a chart.
#
# As HTML, areas by category and by line stand in one form; two radio buttons and a style rule choose between them, no
# script. The picture has no letters: what it means stands around it as text.

CHART_HEIGHT, LEFT = 260.0, 76.0  # of a file of its own: pixels of the chart, and of the words at its left
TEXT_ROWS, MOST_LAYERS, _NAMED = 7, 12, 36  # in a terminal; characters of a name there
NAME, MOST = 60, 4  # characters of a name, items that are named in words
_RIGHT_HALF = 0.6


@dataclass(frozen=True, slots=True)
class TimelinePicture(Picture):
    """What was alive on a device, moment by moment (a run's memory, snapshots)."""

    timeline: Timeline  # What is drawn.
    words: Callable[[Layer], str]  # What a layer stands for.
    unit: str = "operation"  # What the axis counts.
    only_lines: bool = False  # Whether layers are lines of code, and there are none by category.

    def layers(self) -> list[Layer]:
        """Return what is stacked first, the lowest first."""
        return list(by_line(self.timeline) if self.only_lines else by_category(self.timeline))

    def html(self) -> str:
        """Return it by category, and one click away by line."""
        first = self._areas(self.layers())
        lines = by_line(self.timeline)
        if self.only_lines or not any(layer.rank or layer.key.isdigit() for layer in lines):
            return tag("div", first, class_="tm-timeline")
        views = tag("div", first, class_="tm-by-category"), tag("div", self._areas(lines), class_="tm-by-line")
        choices = (("by category", "tm-pick-category", ""), ("by line", "tm-pick-line", None))
        switch = (
            tag("label", f"<input{attributes(type='radio', name='by', class_=class_, checked=checked)}>", " ", words)
            for words, class_, checked in choices
        )
        # A form keeps its buttons apart from those of the same panel elsewhere on the page; "dialog": it never leaves.
        return tag("form", tag("div", *switch, class_="tm-switch"), *views, class_="tm-timeline", method="dialog")

    def _areas(self, layers: Sequence[Layer]) -> str:
        """Return stacked areas, the lowest first, with their axes and their legend."""
        timeline, keys = self.timeline, []
        for layer in reversed(layers):
            ground = f"tm-c{CATEGORY_LETTERS[layer.key]}" if layer.key in CATEGORY_LETTERS else f"tm-l{layer.rank}"
            words = escape(self.words(layer))
            described = tag("code", words) if layer.key.isdigit() else words
            keys.append(key(ground, described, number_of_bytes(layer.values[timeline.peak])))
        legend = tag("span", "at the peak", class_="tm-key quiet") if keys else ""
        legend = tag("div", legend, " ", " ".join(keys), class_="tm-keys")
        return tag("div", tag("div", self._chart(layers), class_="tm-drawn"), " ", legend, class_="tm-beside-keys")

    def _chart(self, layers: Sequence[Layer]) -> str:
        """Return the areas, from nothing at the bottom to `scale_top` at the top, and their axes."""
        timeline, top = self.timeline, scale_top(self.timeline)
        marks = " ".join(  # spaces are for who reads it without styles
            tag("span", tag("i", _tick(nbytes)), class_="tm-tick", style=f"bottom:{100 * nbytes / top:.2f}%")
            for nbytes in ticks(top)
        )
        wide, inner = areas(timeline, layers)
        size = f'viewBox="0 0 {wide} {ROWS}" width="{COLUMNS}" height="{PLAIN}" preserveAspectRatio="none"'
        image = svg_image(f'<svg xmlns="http://www.w3.org/2000/svg" {size}>{inner}</svg>', self.alternative(layers))
        across, nbytes = column_of(timeline, timeline.peak, COLUMNS), timeline.live[timeline.peak]
        side = f"right:{100 * (1 - across):.2f}%" if across > _RIGHT_HALF else f"left:{100 * across:.2f}%"
        label = tag("span", f"peak {number_of_bytes(nbytes)}", class_="tm-peak-label", style=side)
        peak = tag("span", class_="tm-peak", style=f"left:{100 * across:.2f}%;height:{100 * nbytes / top:.2f}%") + label
        below = [f"{self.unit} {count(timeline.operation[0])}", thinned_words(timeline),
                 f"{count(timeline.operation[-1])}, after {seconds_text(timeline.seconds[-1])}"]  # fmt: skip
        axis = tag("div", " ".join(tag("span", text) for text in below if text), class_="tm-axis")
        return tag("div", marks, " ", tag("div", image, peak, class_="tm-plot"), class_="tm-chart") + axis

    def alternative(self, layers: Sequence[Layer]) -> str:
        """Return how the live bytes went: from, to a peak where, what it is made of and by which line, what stayed."""
        timeline, unit, at = self.timeline, self.unit, self.timeline.peak
        first, last, top = timeline.operation[0], timeline.operation[-1], timeline.live[at]
        span = f"{unit} {count(first)} to {count(last)}" if last > first else f"{unit} {count(first)}"
        peak = f"the peak of {number_of_bytes(top)} at {unit} {count(timeline.operation[at])}"
        ends = (
            f"{number_of_bytes(timeline.live[0])} at the start, {peak}, {number_of_bytes(timeline.live[-1])} at the end"
        )

        def parts(of: Sequence[Layer]) -> list[str]:  # those that have anything at the peak, the largest first
            ranked = sorted((layer for layer in of if layer.values[at]), key=lambda layer: -layer.values[at])
            amounts = ((self.words(layer), layer.values[at]) for layer in ranked)
            return [f"{words} {number_of_bytes(nbytes)} ({percent(nbytes, top)})" for words, nbytes in amounts]

        described, of_peak = f"Live memory on {shortened(timeline.device, NAME)}, {span}: {ends}.", parts(layers)
        described += f" Of the peak: {', '.join(of_peak[:MOST])}." if of_peak else ""
        lines = parts([layer for layer in by_line(timeline) if layer.key.isdigit()])
        if lines and not any(layer.key.isdigit() for layer in layers):
            described += f" The line with the most of it: {lines[0]}."
        return described

    def text(self, width: int) -> Iterator[str]:
        """Return it as a chart of characters, and what it is made of at the peak."""
        drawn, top = self.timeline, self.timeline.live[self.timeline.peak]
        marks = ticks(top, most=3)
        label = max(len(number_of_bytes(nbytes)) for nbytes in (*marks, top)) + 1
        moments = columns(drawn, max(min(width - label - 3, 100), 8))
        for at, row in enumerate(heights([drawn.live[at] for at in moments], top, TEXT_ROWS)):
            low, high = top * (TEXT_ROWS - at - 1) / TEXT_ROWS, top * (TEXT_ROWS - at) / TEXT_ROWS
            within = (number_of_bytes(nbytes) for nbytes in marks if nbytes and low < nbytes <= high)
            yield f"{number_of_bytes(top) if not at else next(within, ''):>{label}} │{row}"
        yield f"{'0':>{label}} └{'─' * len(moments)}"
        first, last = f"{self.unit} {count(drawn.operation[0])}", count(drawn.operation[-1])
        yield " " * (label + 2) + first + last.rjust(max(len(moments) - len(first), len(last) + 1))
        yield from [f"{' ' * (label + 2)}{words}"] if (words := thinned_words(drawn)) else []
        amounts = [(self.words(layer), layer.values[drawn.peak]) for layer in reversed(self.layers())]
        largest = max((nbytes for _, nbytes in amounts), default=0) or 1
        rows = [(shortened(words, _NAMED), Bar(nbytes / largest), number_of_bytes(nbytes), "at the peak")
                for words, nbytes in amounts[:MOST_LAYERS]]  # fmt: skip
        yield from to_text.text(Table((Column(), Column(), Column(look="number"), Column()), rows), width)

    def svg(self, width: float) -> tuple[str, float]:
        """Return it as areas with axes, and a legend below them."""
        drawn, layers, peak = self.timeline, self.layers(), self.timeline.peak
        top, inner, below = scale_top(drawn), width - LEFT, CHART_HEIGHT + 10
        wide, paths = areas(drawn, layers)
        place = f'x="{LEFT:.0f}" width="{number(inner)}" height="{CHART_HEIGHT:.0f}" viewBox="0 0 {wide} {ROWS}"'
        scaled = f'<svg {place} preserveAspectRatio="none">{paths}</svg>'
        marks = "".join(
            f'<path d="M{LEFT:.0f},{number(y)}H{width:.0f}" stroke="{role("line")}"/>'
            + text_svg(LEFT - 8, y + 4, _tick(nbytes), anchor="end", quiet=True)
            for nbytes in ticks(top)
            for y in [CHART_HEIGHT * (1 - nbytes / top)]
        )
        nbytes, across = drawn.live[peak], LEFT + inner * column_of(drawn, peak, COLUMNS)
        down = f"M{number(across)},{number(CHART_HEIGHT * (1 - nbytes / top))}V{CHART_HEIGHT:.0f}"
        line = f'<path d="{down}" stroke="{role("ink")}" stroke-dasharray="2 3"/>'
        side, end = (-6, "end") if across > width * _RIGHT_HALF else (6, "start")
        label = text_svg(across + side, 13, f"peak {number_of_bytes(nbytes)}", bold=True, anchor=end)
        entries = [(layer.colour, f"{self.words(layer)} {number_of_bytes(layer.values[peak])}")
                   for layer in reversed(layers)]  # fmt: skip
        legend, high = legend_svg(entries, width)
        return f"{marks}{scaled}{line}{label}{moved(0, below, legend)}", below + high


def _tick(nbytes: int) -> str:
    return number_of_bytes(nbytes) if nbytes else "0"
