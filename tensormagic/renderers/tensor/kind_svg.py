"""The kinds of a tensor as a picture: which cells are stored and how they lie in memory, for tensors without strides.

Drawn below the heading of `tensormagic.renderers.tensor.tensor_svg`, on the same card.
"""

from __future__ import annotations

import textwrap
from dataclasses import replace

from tensormagic.renderers.basics import theme
from tensormagic.renderers.basics.markup import escape, tag
from tensormagic.renderers.tensor.kind_words import (
    colour_of,
    component_facts,
    component_values,
    empty_groups,
    fact_line,
    list_caption,
    map_caption,
    most_in_a_cell,
)
from tensormagic.renderers.terminal.text_canvas import printable
from tensormagic.reports import OUTSIDE, KindReport, StoredList, StoredMap, TensorReport
from tensormagic.views.pictures.placement import PlacementGrid
from tensormagic.words import shortened

LEFT, RIGHT, LINE = 16, 844, 17
CELL, ROW = 34, 20  # pixels of a cell with a number
MAP_SIDE = 224  # pixels along a map whose cells are joined
CHARACTERS = 122  # of a line of text across the card
VOID = theme.role("skip")
MOST_COLUMNS = 12  # stored elements beside a map


def kinds_svg(report: TensorReport, top: float) -> tuple[str, float]:
    """Return the picture of a tensor's kinds from a height on, and where it ends."""
    parts, y = [], top
    for kind in report.kinds:
        if kind.label:
            drawn, y = _kind(kind, y)
            parts.append(drawn)
    return "".join(parts), y


def _kind(kind: KindReport, top: float) -> tuple[str, float]:
    text, y = _lines(textwrap.wrap(f"{kind.label}: {kind.summary}", CHARACTERS), top, "b")
    facts, y = _lines(textwrap.wrap("; ".join(map(fact_line, kind.facts)), CHARACTERS), y, "q")
    drawn, y = _stored(kind, y + 6) if kind.map or kind.stored else ("", y)
    if kind.placed is not None:
        grid, height = PlacementGrid(kind.placed).svg(RIGHT - LEFT)
        drawn, y = drawn + tag("g", grid, transform=f"translate({LEFT},{y:g})"), y + height + LINE
    reading, y = _lines([wrapped for step in kind.reading for wrapped in textwrap.wrap(step, CHARACTERS)], y, "")
    parts = [f"{one.name}  {component_facts(one)}  {component_values(one)}" for one in kind.components]
    components, y = _lines([shortened(part, CHARACTERS) for part in parts], y + 4, "q")
    return text + facts + drawn + reading + components, y + 10


def _lines(lines: list[str], top: float, style: str) -> tuple[str, float]:
    drawn = "".join(_text(LEFT, top + LINE * at, line, style) for at, line in enumerate(lines))
    return drawn, top + LINE * len(lines)


def _text(x: float, y: float, text: str, style: str) -> str:
    return tag("text", escape(printable(text)), x=f"{x:g}", y=f"{y:g}", class_=style or None)


def _stored(kind: KindReport, top: float) -> tuple[str, float]:
    of = kind.stored.count if kind.stored else 1
    picture, right, bottom = _map(kind.map, top, of) if kind.map else ("", LEFT, top)
    arrays, end = _list(kind.stored, right + 24, top) if kind.stored and kind.stored.shown else ("", top)
    return picture + arrays, max(bottom, end) + LINE


def _map(stored_map: StoredMap, top: float, of: int) -> tuple[str, float, float]:
    """Return a map, and where it ends on the right and below."""
    small = bool(stored_map.places)
    height, width = len(stored_map.counts), len(stored_map.counts[0])
    across, down = (CELL, ROW) if small else (max(MAP_SIDE // max(height, width), 3),) * 2
    most = most_in_a_cell(stored_map)
    cells = []
    for row in range(height):
        for column in range(width):
            box = (LEFT + column * across, top + row * down, across, down)
            cells.append(
                _cell(stored_map, (row, column), box, of)
                if small
                else _shade(stored_map.counts[row][column], most, box)
            )
    bottom = top + height * down
    caption, end = _lines(textwrap.wrap(map_caption(stored_map), 60), bottom + 14, "q")
    return "".join(cells) + caption, max(LEFT + width * across, LEFT + 200.0), end


Box = tuple[float, float, float, float]


def _cell(stored_map: StoredMap, at: tuple[int, int], box: Box, of: int) -> str:
    row, column = at
    place = stored_map.places[row][column]
    if place == OUTSIDE:
        return ""
    if place < 0:
        return _rect(box, VOID)
    text = stored_map.texts[row][column] if stored_map.texts else str(place)
    return _labelled(box, shortened(text, 5), colour_of(place, of))


def _shade(number: int, most: int, box: Box) -> str:
    return _rect(box, theme.offset_colour((number - 1) / (most - 1) if most > 1 else 0.0) if number else VOID)


def _rect(box: Box, fill: str) -> str:
    x, y, width, height = (f"{number:g}" for number in box)
    return tag("rect", x=x, y=y, width=width, height=height, fill=fill, stroke=theme.role("bg"))


def _labelled(box: Box, text: str, colour: str) -> str:
    x, y, width, height = box
    place = f'x="{x + width / 2:g}" y="{y + height / 2 + 4:g}" style="fill:{theme.ink_on(colour)}"'
    return _rect(box, colour) + f'<text class="c" {place}>{escape(printable(text))}</text>'


def _list(stored: StoredList, left: float, top: float) -> tuple[str, float]:
    names = [line.name for line in stored.lines]
    start = left + 7 * max(map(len, (*names, stored.group_name))) + 10
    fitting = max(min(stored.shown, int((RIGHT - start) // CELL), MOST_COLUMNS), 1)
    parts = []
    for at, line in enumerate(stored.lines):
        y, last = top + at * (ROW + 4), at == len(stored.lines) - 1
        parts.append(_text(start - 8, y + 14, line.name, "e q"))
        for place, text in enumerate(line.texts[:fitting]):
            box = (start + place * CELL, y, CELL, ROW)
            parts.append(_labelled(box, shortened(text, 5), colour_of(place, stored.count) if last else VOID))
    y = top + len(stored.lines) * (ROW + 4)
    parts += [_text(start - 8, y + 10, stored.group_name, "e q"), *_brackets(stored, fitting, start, y)]
    notes = "; ".join(note for note in (list_caption(replace(stored, shown=fitting)), empty_groups(stored)) if note)
    parts.append(_text(start, y + 28, shortened(notes, int((RIGHT - start) // 7)), "q"))
    return "".join(parts), y + 34


def _brackets(stored: StoredList, fitting: int, start: float, y: float) -> list[str]:
    parts = []
    for group in stored.groups:
        stop = min(group.stop, fitting)
        if stop > group.start:
            left, right = start + group.start * CELL + 2, start + stop * CELL - 2
            parts.append(f'<path d="M{left:g} {y:g}v4H{right:g}v-4" fill="none" stroke="{theme.role("line-2")}"/>')
            parts.append(
                _text((left + right) / 2, y + 14, shortened(group.label, max(int((right - left) // 7), 1)), "c q")
            )
    return parts
