"""Bytes over time, stacked by category, and the colours of the categories."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tensormagic.reports import CATEGORIES, MemoryRunReport, Timeline
from tensormagic.views.theme import BEFORE_COLOUR, KIND_COLOURS, MIXED_COLOUR, OTHER_COLOUR, ink_on
from tensormagic.words import count

# What represents a category of memory: its colour, the letter of its style class, its words.
#
# The colours are Okabe and Ito's for the colour blind (see `basics.theme`), so that neighbours in a treemap or a
# stack stay apart for everybody; vermilion is left out, because it would read as an error. Greys stand for what is no
# tensor of a run: what was there before it, and small things put together.

BEFORE: Final = "before the run"
MIXED: Final = "of several kinds"

_SKY, _ORANGE, _GREEN, _PINK, _YELLOW, _BLUE, _VERMILION, _GREY = KIND_COLOURS

COLOURS: dict[str, str] = {
    "parameter": _BLUE, "gradient": _ORANGE, "optimizer state": _GREEN, "saved for backward": _SKY,
    "buffer": _YELLOW, "input": _PINK, "other": OTHER_COLOUR, BEFORE: BEFORE_COLOUR, MIXED: MIXED_COLOUR,
}  # fmt: skip
LETTERS: dict[str, str] = {
    "parameter": "p", "gradient": "g", "optimizer state": "o", "saved for backward": "s",
    "buffer": "b", "input": "i", "other": "x", BEFORE: "w", MIXED: "m",
}  # fmt: skip
PLURALS: dict[str, str] = {
    "parameter": "parameters", "gradient": "gradients", "optimizer state": "optimizer state",
    "saved for backward": "saved for backward", "buffer": "buffers", "input": "inputs", "other": "other",
    BEFORE: BEFORE, MIXED: MIXED,
}  # fmt: skip
# Lines of code have no colours of their own: the largest get these, in this order, all others the last.
LINE_COLOURS = (_BLUE, _ORANGE, _GREEN, _PINK, _SKY, _YELLOW)
OTHER = OTHER_COLOUR


def category_style() -> str:
    """Return the style rules of all categories and lines: ground and ink of each, as classes ``tm-cp``, ``tm-l0``."""
    named = [(f"tm-c{LETTERS[category]}", COLOURS[category]) for category in (*CATEGORIES, BEFORE, MIXED)]
    named += [(f"tm-l{at}", colour) for at, colour in enumerate((*LINE_COLOURS, OTHER))]
    return "".join(f".tm .{name}{{background:{colour};color:{ink_on(colour)}}}" for name, colour in named)


def line_colour(rank: int) -> str:
    """Return the colour of the line that has the ``rank``-th most bytes."""
    return LINE_COLOURS[rank] if rank < len(LINE_COLOURS) else OTHER


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


def by_category(timeline: Timeline) -> list[Layer]:
    """Return what was there before, and the categories that have anything, in the order in which they are stacked."""
    found = dict(timeline.by_category)
    known = [Layer(name, found[name]) for name in CATEGORIES if any(found.get(name, ()))]
    return [*_before(timeline), *known]


def by_line(timeline: Timeline) -> list[Layer]:
    """Return what was there before, the lines that had the most at the peak, and all other lines as one."""
    ranks = line_ranks(timeline)
    named = [Layer(str(line), values, ranks[line]) for line, values in timeline.by_line if line in ranks]
    rest = [values for line, values in timeline.by_line if line not in ranks]
    others = tuple(map(sum, zip(*rest, strict=True))) if rest else ()
    more = [Layer(OTHER_LINES, others, len(LINE_COLOURS))] if any(others) else []
    return [*_before(timeline), *sorted(named, key=lambda layer: layer.rank), *more]


def line_ranks(timeline: Timeline) -> dict[int, int]:
    """Return the lines that get a colour of their own: those with the most bytes at the peak, then at their own."""
    amounts = {line: (values[timeline.peak], max(values)) for line, values in timeline.by_line if line >= 0 and values}
    ranked = sorted(
        (line for line in amounts if amounts[line][1]), key=lambda line: (-amounts[line][0], -amounts[line][1], line)
    )
    return {line: rank for rank, line in enumerate(ranked[: len(LINE_COLOURS)])}


def _before(timeline: Timeline) -> list[Layer]:
    return [Layer(BEFORE, timeline.before)] if any(timeline.before) else []


def main_timeline(report: MemoryRunReport) -> Timeline | None:
    """Return the timeline of the device that had the most alive."""
    drawn = [timeline for timeline in report.timelines if timeline.live]
    return max(drawn, key=lambda timeline: max(timeline.live), default=None)


def columns(timeline: Timeline, number: int) -> list[int]:
    """Return for each of at most ``number`` columns the moment that stands for it: the one with the most alive."""
    first, last = timeline.operation[0], timeline.operation[-1]
    wide = last - first + 1
    number = min(number, wide)
    chosen: list[int] = []
    at = -1
    for column in range(number):
        end, inside = first + wide * (column + 1) / number, []
        while at + 1 < len(timeline.live) and timeline.operation[at + 1] < end:
            at += 1
            inside.append(at)
        chosen.append(max(inside, key=timeline.live.__getitem__, default=max(at, 0)))
    return chosen


def column_of(timeline: Timeline, moment: int, number: int) -> float:
    """Return where on the axis a moment lies, 0 to 1: the middle of its column."""
    first, last = timeline.operation[0], timeline.operation[-1]
    wide = last - first + 1
    number = min(number, wide)
    return (int((timeline.operation[moment] - first) * number / wide) + 0.5) / number


def tops(layers: Sequence[Layer], moments: Sequence[int]) -> list[list[int]]:
    """Return the upper edge of each layer at the moments, in bytes above nothing, the lowest layer first."""
    edges: list[list[int]] = []
    base = [0] * len(moments)
    for layer in layers:
        base = [below + layer.values[at] for below, at in zip(base, moments, strict=True)]
        edges.append(base)
    return edges


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
    kept = len(timeline.operation)
    if timeline.moments <= kept:
        return ""
    return f"{count(kept)} of {count(timeline.moments)} moments kept, the highest among them"
