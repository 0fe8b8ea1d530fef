"""Bytes over time as a picture: in HTML, SVG and text."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from tensormagic.reports import Timeline
from tensormagic.views import theme
from tensormagic.views.markup import attributes, escape, svg_image, tag
from tensormagic.views.nodes import Picture
from tensormagic.views.pictures.timeline_stack import (
    COLOURS,
    LETTERS,
    Layer,
    by_category,
    by_line,
    column_of,
    columns,
    line_colour,
    thinned_words,
    ticks,
    tops,
)
from tensormagic.views.svg_paths import number
from tensormagic.views.text_canvas import bar_rows, heights
from tensormagic.views.theme import role
from tensormagic.views.to_svg import legend_svg, text_svg
from tensormagic.words import count, number_of_bytes, percent, seconds_text, shortened

# The stacked areas of a timeline as a small picture without letters: what they mean stands beside it as text.
#
# It is an image, so that hosts without scripts show it too; an image cannot see the theme of its page, so its colours
# read on white and on near-black. It is stretched to the width of the panel.

COLUMNS, ROWS = 460, 400  # units of the picture: some two pixels across, half a pixel down
PLAIN = 150  # pixels that it is high where there is no style sheet, and COLUMNS wide
HEADROOM = 1.12
EDGE = 4  # units that the line along the top of an area is high: one and a half pixels in a panel


def layer_colour(layer: Layer) -> str:
    """Return the colour of a layer."""
    return COLOURS[layer.key] if layer.key in COLOURS else line_colour(layer.rank)


def scale_top(timeline: Timeline) -> int:
    """Return how many bytes the height of the picture is: the peak, and some air above it."""
    return max(int(timeline.live[timeline.peak] * HEADROOM), 1)


def areas(timeline: Timeline, layers: Sequence[Layer]) -> tuple[int, str]:
    """Return how many units wide the areas are, and the areas, `ROWS` units high, the highest first."""
    moments = columns(timeline, COLUMNS)
    top, drawn = scale_top(timeline), []
    for layer, edge in zip(layers, tops(layers, moments), strict=True):
        # A line that is seen on either side is its top: the area, dark, and again, a little lower.
        colour, steps = layer_colour(layer), _steps(edge, top)
        key = f"a{zlib.crc32(steps.encode()):x}"  # the same name is the same shape, wherever the picture is put
        dark = f'<g fill="{theme.edge_of(colour)}"><path id="{key}" d="{steps}"/></g>'
        drawn.append(f'{dark}<use xlink:href="#{key}" y="{EDGE}" fill="{colour}"/>')
    each_over_the_next = "".join(reversed(drawn))  # each lies on what is above it, down to the bottom
    return len(moments), f'<g xmlns:xlink="http://www.w3.org/1999/xlink">{each_over_the_next}</g>'


def _steps(edge: Sequence[int], top: int) -> str:
    """Return an area from the bottom up to ``edge``, a step a column; equal neighbours are one step."""
    heights = [round(nbytes / top * ROWS) for nbytes in edge]
    parts, at = [f"M0,{ROWS}"], 0
    for height, same in groupby(heights):
        number = len(list(same))
        parts.append(f"v{at - height}h{number}" if height != at else f"h{number}")
        at = height
    return "".join([*parts, f"V{ROWS}z"])


# A timeline of what was alive: stacked areas with their axes, the peak, and a legend; in a terminal a chart.
#
# As HTML, areas by category and by line stand in one form; two radio buttons and a style rule choose between them, no
# script. The picture has no letters: what it means stands around it as text.

CHART_HEIGHT, LEFT = 260.0, 76.0  # of a file of its own: pixels of the chart, and of the words at its left
TEXT_ROWS, MOST_LAYERS = 7, 12  # in a terminal
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
        first = self._layers_html(self.layers())
        lines = by_line(self.timeline)
        if self.only_lines or not any(layer.rank or layer.key.isdigit() for layer in lines):
            return tag("div", first, class_="tm-timeline")
        second = self._layers_html(lines)
        views = tag("div", first, class_="tm-by-category"), tag("div", second, class_="tm-by-line")
        choices = (("by category", "tm-pick-category", ""), ("by line", "tm-pick-line", None))
        switch = (
            tag("label", f"<input{attributes(type='radio', name='by', class_=class_, checked=checked)}>", " ", words)
            for words, class_, checked in choices
        )
        # A form keeps its buttons apart from those of the same panel elsewhere on the page; "dialog": it never leaves.
        return tag("form", tag("div", *switch, class_="tm-switch"), *views, class_="tm-timeline", method="dialog")

    def _layers_html(self, layers: Sequence[Layer]) -> str:
        """Return stacked areas, the lowest first, with their axes and their legend."""
        keys = " ".join(_key(self.timeline, layer, self.words(layer)) for layer in reversed(layers))
        sentence = tag("span", "at the peak", class_="tm-key quiet") if keys else ""
        alternative = timeline_alternative(self.timeline, layers, self.words, unit=self.unit)
        drawn = tag("div", _chart(self.timeline, layers, self.unit, alternative), class_="tm-drawn")
        return tag("div", drawn, " ", tag("div", sentence, " ", keys, class_="tm-keys"), class_="tm-beside-keys")

    def text(self, width: int) -> Iterator[str]:
        """Return it as a chart of characters, and what it is made of at the peak."""
        yield from chart_text(self.timeline, width, self.unit)
        amounts = [(self.words(layer), layer.values[self.timeline.peak]) for layer in reversed(self.layers())]
        rows = [(words, nbytes, (number_of_bytes(nbytes), "at the peak")) for words, nbytes in amounts]
        yield from bar_rows(rows[:MOST_LAYERS], width)

    def svg(self, width: float) -> tuple[str, float]:
        """Return it as areas with axes, and a legend below them."""
        layers, peak = self.layers(), self.timeline.peak
        entries = [(layer_colour(layer), f"{self.words(layer)} {number_of_bytes(layer.values[peak])}")
                   for layer in reversed(layers)]  # fmt: skip
        legend, high = legend_svg(entries, width)
        below = f'<g transform="translate(0,{number(CHART_HEIGHT + 10)})">{legend}</g>'
        return _chart_svg(self.timeline, layers, width) + below, CHART_HEIGHT + 10 + high


# -- words -----------------------------------------------------------------------------------------------------------


def timeline_alternative(
    timeline: Timeline, layers: Sequence[Layer], words: Callable[[Layer], str], *, unit: str = "operation"
) -> str:
    """Return how the live bytes went: from, to a peak where, what it is made of and by which line, and what stayed."""
    at, (first, *_), last = timeline.peak, timeline.operation, timeline.operation[-1]
    span = f"{unit} {count(first)} to {count(last)}" if last > first else f"{unit} {count(first)}"
    peak = f"the peak of {number_of_bytes(timeline.live[at])} at {unit} {count(timeline.operation[at])}"
    ends = f"{number_of_bytes(timeline.live[0])} at the start, {peak}, {number_of_bytes(timeline.live[-1])} at the end"
    described = [f"Live memory on {shortened(timeline.device, NAME)}, {span}: {ends}."]
    of_peak = [part for layer in _at_peak(timeline, layers)[:MOST] if (part := _part(timeline, layer, words))]
    described += [f"Of the peak: {', '.join(of_peak)}."] if of_peak else []
    lines = [layer for layer in _at_peak(timeline, by_line(timeline)) if layer.key.isdigit()]
    if lines and not any(layer.key.isdigit() for layer in layers) and (line := _part(timeline, lines[0], words)):
        described.append(f"The line with the most of it: {line}.")
    return " ".join(described)


def _at_peak(timeline: Timeline, layers: Sequence[Layer]) -> list[Layer]:
    return sorted(layers, key=lambda layer: -layer.values[timeline.peak])


def _part(timeline: Timeline, layer: Layer, words: Callable[[Layer], str]) -> str:
    """Return a layer with what it has at the peak; nothing where it has nothing then."""
    nbytes = layer.values[timeline.peak]
    share = percent(nbytes, timeline.live[timeline.peak])
    return f"{words(layer)} {number_of_bytes(nbytes)} ({share})" if nbytes else ""


# -- HTML ------------------------------------------------------------------------------------------------------------


def _key(timeline: Timeline, layer: Layer, words: str) -> str:
    ground = f"tm-c{LETTERS[layer.key]}" if layer.key in LETTERS else f"tm-l{layer.rank}"
    swatch = tag("span", class_=f"tm-swatch {ground}")
    described = tag("code", escape(words)) if layer.key.isdigit() else escape(words)
    nbytes = tag("b", number_of_bytes(layer.values[timeline.peak]))
    return tag("span", swatch, described, " ", nbytes, class_="tm-key")


def _chart(timeline: Timeline, layers: Sequence[Layer], unit: str, alternative: str) -> str:
    top = scale_top(timeline)
    marks = " ".join(  # spaces are for who reads it without styles
        tag("span", tag("i", words), class_="tm-tick", style=f"bottom:{100 * nbytes / top:.2f}%")
        for nbytes, words in _ticks(top)
    )
    wide, inner = areas(timeline, layers)  # from nothing at the bottom to `scale_top` at the top
    size = f'viewBox="0 0 {wide} {ROWS}" width="{COLUMNS}" height="{PLAIN}" preserveAspectRatio="none"'
    image = svg_image(f'<svg xmlns="http://www.w3.org/2000/svg" {size}>{inner}</svg>', alternative)
    plot = tag("div", image, _peak(timeline, top), class_="tm-plot")
    return tag("div", marks, " ", plot, class_="tm-chart") + _axis(timeline, unit)


def _ticks(top: int) -> list[tuple[int, str]]:
    """Return the round numbers of the axis, and how they are written."""
    return [(nbytes, number_of_bytes(nbytes) if nbytes else "0") for nbytes in ticks(top)]


def _peak(timeline: Timeline, top: int) -> str:
    across = column_of(timeline, timeline.peak, COLUMNS)
    nbytes = timeline.live[timeline.peak]
    side = f"right:{100 * (1 - across):.2f}%" if across > _RIGHT_HALF else f"left:{100 * across:.2f}%"
    label = tag("span", f"peak {number_of_bytes(nbytes)}", class_="tm-peak-label", style=side)
    return tag("span", class_="tm-peak", style=f"left:{100 * across:.2f}%;height:{100 * nbytes / top:.2f}%") + label


def _axis(timeline: Timeline, unit: str) -> str:
    last = count(timeline.operation[-1])
    ends = [f"{unit} {count(timeline.operation[0])}", f"{last}, after {seconds_text(timeline.seconds[-1])}"]
    ends[1:1] = [words] if (words := thinned_words(timeline)) else []
    return tag("div", " ".join(tag("span", text) for text in ends), class_="tm-axis")


# -- text ------------------------------------------------------------------------------------------------------------


def chart_text(drawn: Timeline, width: int, unit: str) -> Iterator[str]:
    """Return what was alive over a run, in characters; ``unit`` is what the axis counts."""
    top = drawn.live[drawn.peak]
    marks = ticks(top, most=3)
    label = max(len(number_of_bytes(nbytes)) for nbytes in (*marks, top)) + 1
    moments = columns(drawn, max(min(width - label - 3, 100), 8))
    rows = heights([drawn.live[at] for at in moments], top, TEXT_ROWS)
    for at, row in enumerate(rows):
        yield f"{_tick_text(at, marks, top):>{label}} │{row}"
    yield f"{'0':>{label}} └{'─' * len(moments)}"
    ends = f"{unit} {count(drawn.operation[0])}", count(drawn.operation[-1])
    yield " " * (label + 2) + ends[0] + ends[1].rjust(max(len(moments) - len(ends[0]), len(ends[1]) + 1))
    if words := thinned_words(drawn):
        yield f"{' ' * (label + 2)}{words}"


def _tick_text(row: int, marks: Sequence[int], top: int) -> str:
    """Return what is beside a row of the chart: the peak at the first, round numbers where they fall."""
    if row == 0:
        return number_of_bytes(top)
    low, high = top * (TEXT_ROWS - row - 1) / TEXT_ROWS, top * (TEXT_ROWS - row) / TEXT_ROWS
    return next((number_of_bytes(nbytes) for nbytes in marks if nbytes and low < nbytes <= high), "")


# -- SVG -------------------------------------------------------------------------------------------------------------


def _chart_svg(drawn: Timeline, layers: Sequence[Layer], width: float) -> str:
    top, inner = scale_top(drawn), width - LEFT
    wide, paths = areas(drawn, layers)
    place = f'x="{LEFT:.0f}" width="{number(inner)}" height="{CHART_HEIGHT:.0f}" viewBox="0 0 {wide} {ROWS}"'
    scaled = f'<svg {place} preserveAspectRatio="none">{paths}</svg>'
    levels = ((CHART_HEIGHT * (1 - nbytes / top), words) for nbytes, words in _ticks(top))
    marks = "".join(
        f'<path d="M{LEFT:.0f},{number(y)}H{width:.0f}" stroke="{role("line")}"/>'
        + text_svg(LEFT - 8, y + 4, words, anchor="end", quiet=True)
        for y, words in levels
    )
    nbytes, across = drawn.live[drawn.peak], LEFT + inner * column_of(drawn, drawn.peak, COLUMNS)
    high = CHART_HEIGHT * (1 - nbytes / top)
    down = f"M{number(across)},{number(high)}V{CHART_HEIGHT:.0f}"
    line = f'<path d="{down}" stroke="{role("ink")}" stroke-dasharray="2 3"/>'
    end = "end" if across > width * 0.6 else "start"
    label = text_svg(across + (-6 if end == "end" else 6), 13, f"peak {number_of_bytes(nbytes)}", bold=True, anchor=end)
    return f"{marks}{scaled}{line}{label}"
