"""The storage of a tensor as a strip: which elements are read, how often, and which are skipped."""

from __future__ import annotations

import math
from itertools import pairwise

from tensormagic.renderers.basics import svg_paths, theme
from tensormagic.renderers.basics.markup import escape, tag, text_width
from tensormagic.renderers.terminal.text_canvas import Canvas, box
from tensormagic.reports import Strip, StripCell, TensorReport
from tensormagic.views.panels.tensor_line import name
from tensormagic.views.pictures.tensor_cells import (
    CHARACTER,
    FRAME,
    HATCHED,
    PALETTE,
    Box,
    bracket,
    cell,
    corner,
    image,
    on_colour,
    rect,
    ring,
    text,
)
from tensormagic.views.pictures.tensor_elements import (
    LEVELS,
    DrawnLayout,
    fraction,
    row_dims,
    share_read,
    strip_shown,
    unravel,
)
from tensormagic.words import TIMES, count, plural, short_count, shortened

NOT_READ, FULL = "\u2591", "\u2588"
DENSITY = ("\u2592", "\u2593")  # under half read, half or more
GUTTER = 9  # columns of a terminal for the labels left of the strip
LABELS = 78.0  # pixels for them
CELL_WIDTH, HEIGHT = 46.0, 22.0  # pixels of a cell, at most that wide
_UNREAD = f"background:{theme.role('skip')};color:{theme.role('ink-2')}"
_TABLE_CELLS = 96  # beyond, the strip is a picture
_WIDTH = 560  # pixels that the cells have at least, in a notebook 700 pixels wide
_LEAST_NUMBERED, _LEAST_CELL = 20, 4  # pixels of a cell at least, with a number in it and without
_LEAST_FILL = 4  # pixels of the part of a cell that is read where that is little
_MAP_ROWS = 8  # rows of pixels by which a pictured cell shows how much of it is read
_MOST_ROW_LABELS = 16


# -- what is said of it ----------------------------------------------------------------------------------------------


def cell_title(each: StripCell) -> str:
    """Return which storage elements a cell stands for, and how many of them are read."""
    size = each.stop - each.start
    where = f"offset {count(each.start)}" if size == 1 else f"{count(each.start)} to {count(each.stop - 1)}"
    if each.distinct is None:
        return f"{where}: reads not counted"
    if each.distinct == 0:
        return f"{where}: not read"
    if size > 1:
        return f"{where}: {'all' if each.distinct == size else f'{count(each.distinct)} of {count(size)}'} read"
    return f"{where}: read" + (f" {count(each.reads)} times" if each.reads and each.reads > 1 else "")


def strip_sentence(report: TensorReport, strip: Strip) -> str:
    """Return which part of the storage is read, and from where to where."""
    read = [each for each in strip.cells if each.distinct != 0]
    whole = f"Storage elements {count(strip.start)} to {count(strip.stop - 1)}"
    if not read:
        return f"{whole}: none is read."
    described = f"{whole}, read by {name(report)} from {count(read[0].start)} to {count(read[-1].stop - 1)}"
    if any(each.distinct is None for each in strip.cells):
        return f"{described}."
    elements = sum(each.distinct or 0 for each in strip.cells)
    within = strip.cells[strip.cells.index(read[0]) : strip.cells.index(read[-1]) + 1]
    gaps = sum(this.distinct == 0 != before.distinct for before, this in pairwise(within))
    between = f", with {plural(gaps, 'gap')} between" if gaps else ""
    return f"{described}: {count(elements)} of {count(strip.stop - strip.start)} elements{between}."


def base_rows(report: TensorReport, strip: Strip) -> list[tuple[str, int]]:
    """Return label and width in cells of each row of the base tensor under the strip, where there are few enough."""
    length = strip.row_length
    if not length or not strip.row_name or strip.cell_elements > 1:
        return []
    rows = range(strip.start // length, -(-strip.stop // length))
    if len(rows) > _MOST_ROW_LABELS:
        return []
    spans = [min((row + 1) * length, strip.stop) - max(row * length, strip.start) for row in rows]
    return [(_row_label(report, strip, row), span) for row, span in zip(rows, spans, strict=True)]


def _row_label(report: TensorReport, strip: Strip, row: int) -> str:
    shape = next((alias.shape for alias in report.aliases if alias.name == strip.row_name), None)
    if shape is None:
        return f"{strip.row_name}[{row}]"
    if len(shape) == 1:
        return strip.row_name
    index = unravel(row * strip.row_length, shape)[: row_dims(shape, strip.row_length)]
    return f"{strip.row_name}[{', '.join(map(str, index))}]" if index else strip.row_name


# -- in a page -------------------------------------------------------------------------------------------------------


def strip_html(report: TensorReport, drawn: DrawnLayout) -> str:
    """Return the strip: a table where its cells are few, else a picture."""
    strip = drawn.strip
    if strip is None or not strip.cells:
        return ""
    small = len(strip.cells) <= _TABLE_CELLS
    table = _table(report, drawn, strip) if small else _map(report, drawn, strip)
    note = strip_shown(report)
    return tag("div", table, tag("p", "Storage: ", escape(note), class_="quiet") if note else "", class_="tm-strip-box")


def _table(report: TensorReport, drawn: DrawnLayout, strip: Strip) -> str:
    values = drawn.strip_values
    marks = drawn.bad_offsets() if strip.cell_elements == 1 else {}
    cells = [
        _cell(drawn, each, values.get(each.start, ""), on=at == drawn.chosen, bad=marks.get(each.start, ""))
        for at, each in enumerate(strip.cells)
    ]
    spans = base_rows(report, strip)
    alone = len(spans) == 1 and spans[0][0] == strip.row_name  # it says so itself
    title = f"rows of {shortened(strip.row_name, 16)}" if spans and not alone else ""
    under = (tag("td", escape(label), colspan=span) for label, span in spans)
    rows = [
        tag("tr", tag("th", "value" if values else "storage"), *cells, class_="tm-strip"),
        _offset_row(strip, drawn.chosen),
        tag("tr", tag("th", escape(title)), *under, class_="tm-rows") if spans else "",
    ]
    labels = max(int(LABELS), round(text_width(title, 12)) + 10)
    often = max(len(_often(each)) for each in strip.cells)
    wide = max(_LEAST_NUMBERED, 8 + 7 * (max(map(len, values.values())) + often)) if values else _LEAST_CELL
    least = labels + wide * len(strip.cells)  # narrower, it scrolls
    most = max(labels + int(CELL_WIDTH) * len(strip.cells), least)
    columns = tag("colgroup", f'<col style="width:{labels}px">', f'<col span="{len(strip.cells)}">')
    style = f"width:100%;min-width:{least}px;max-width:{most}px"
    return tag("table", columns, *rows, class_="tm-cells tm-storage", style=style)


def _cell(drawn: DrawnLayout, each: StripCell, words: str, *, on: bool, bad: str) -> str:
    share, title = share_read(each), cell_title(each)
    if share == 0:
        return tag("td", class_="tm-skip", style=_UNREAD, title=title)
    colour = drawn.cell_colour(each) or theme.OTHER_SLICE
    if share is None or share == 1:
        return cell(words, colour, title=title, on=on, bad=bad, below=_often(each))
    fill = f'<div style="height:{max(round(HEIGHT * share), _LEAST_FILL)}px;background:{colour}"></div>'
    return tag("td", fill, class_="tm-skip tm-part" + (" tm-on" if on else ""), title=title)


def _often(each: StripCell) -> str:
    """Return how often an element is read that is read more than once."""
    several = each.reads is not None and each.reads > 1 and each.stop == each.start + 1
    return f"{TIMES}{short_count(each.reads or 0)}" if several else ""


def _offset_row(strip: Strip, chosen: int | None) -> str:
    room = min(_WIDTH / len(strip.cells), CELL_WIDTH)
    every = max(1, -(-(7 * len(count(strip.cells[-1].start)) + 4) // int(max(room, 1))))
    cells = []
    for at in range(0, len(strip.cells), every):
        span = min(every, len(strip.cells) - at)
        on = every == 1 and at == chosen
        words = count(strip.cells[at].start) if span == every or at == 0 else ""
        words = tag("b", words) if on else words
        cells.append(tag("td", words, colspan=span if span > 1 else None, class_="tm-on" if on else None))
    return tag("tr", tag("th", "offset"), *cells, class_="tm-offsets" + (" tm-sparse" if every > 1 else ""))


def _map(report: TensorReport, drawn: DrawnLayout, strip: Strip) -> str:
    columns = [_column(drawn, each) for each in strip.cells]
    rows = [list(row) for row in zip(*columns, strict=True)]
    picture = image(rows, 3, strip_sentence(report, strip), palette=(*PALETTE, theme.OTHER_SLICE))
    picture = picture.replace(' alt="', ' style="width:100%;height:24px" alt="', 1)
    ends = tag("span", count(strip.start)) + " " + tag("span", count(strip.stop - 1))
    return tag("div", tag("div", picture, class_="tm-map", data_kind="strip"), tag("div", ends, class_="tm-ends"))


def _column(drawn: DrawnLayout, each: StripCell) -> list[int]:
    share = share_read(each)
    filled = _MAP_ROWS if share is None else round(share * _MAP_ROWS) or (1 if share else 0)
    place = fraction((each.start + each.stop - 1) // 2, drawn.low, drawn.high)
    colour = LEVELS if drawn.cell_colour(each) is None else round(place * (LEVELS - 1))
    return [svg_paths.PLUS_INFINITY] * (_MAP_ROWS - filled) + [colour] * filled


# -- as SVG ----------------------------------------------------------------------------------------------------------


def strip_svg(report: TensorReport, drawn: DrawnLayout, top: float, width: float) -> tuple[str, float]:
    """Return the strip from a height on, and where it ends."""
    strip = drawn.strip
    if strip is None or not strip.cells:
        return "", top
    values = drawn.strip_values
    title = "value" if values else "storage"
    parts = [text(LABELS - 8, top + 15, title, "e q"), text(LABELS - 8, top + 37, "offset", "e q")]
    bad = drawn.bad_offsets() if strip.cell_elements == 1 else {}
    for at, each in enumerate(strip.cells):
        place, colour = strip_box(strip, at, top, width), drawn.cell_colour(each) or theme.OTHER_SLICE
        parts.append(_filled(each, place, colour))
        if each.distinct and values.get(each.start):
            parts.append(on_colour(place, values[each.start], colour))
        if each.start in bad:
            parts.append(corner(place, colour))
    parts.append(_offsets_svg(strip, top, width))
    at, wide, spans = 0, strip_box(strip, 0, top, width)[2], base_rows(report, strip)
    for label, span in spans:
        left, right = LABELS + at * wide, LABELS + (at + span) * wide
        parts.append(bracket(left, right, top + 42, shortened(label, max(int(span * wide / CHARACTER), 4))))
        at += span
    parts += [ring(strip_box(strip, drawn.chosen, top, width))] if drawn.chosen is not None else []
    return "".join(parts), top + HEIGHT + (38 if spans else 20)


def strip_box(strip: Strip, at: int, top: float, width: float) -> Box:
    """Return where a cell of the strip lies in the SVG."""
    wide = min((width - LABELS) / len(strip.cells), CELL_WIDTH)
    return LABELS + at * wide, top, wide, HEIGHT


def _filled(each: StripCell, place: Box, colour: str) -> str:
    share = share_read(each)
    share = 1.0 if share is None else share
    x, y, width, height = place
    ground = rect(place, HATCHED, title=cell_title(each), stroke=FRAME) if share < 1 else ""
    part = (x, y + height * (1 - share), width, height * share)
    return ground + (rect(part, colour, title=cell_title(each)) if share > 0 else "")


def _offsets_svg(strip: Strip, top: float, width: float) -> str:
    widest = len(count(strip.stop)) * CHARACTER + 8
    every = max(1, math.ceil(widest / strip_box(strip, 0, top, width)[2]))
    boxes = ((at, strip_box(strip, at, top, width)) for at in range(0, len(strip.cells), every))
    room = width + 8 - widest / 2
    return "".join(
        text(x + wide / 2, top + 37, count(strip.cells[at].start), "c q") for at, (x, _, wide, _) in boxes if x <= room
    )


# -- in a terminal ---------------------------------------------------------------------------------------------------


def draw_strip(canvas: Canvas, report: TensorReport, drawn: DrawnLayout, width: int) -> tuple[str, int]:
    """Draw the strip below what stands there; return what there is to say under it, and how wide its cells are.

    A strip that is drawn by how densely it is read has cells of width 0: no wire can lead to them.
    """
    strip, top = drawn.strip, canvas.height
    if strip is None:
        return "", 0
    values = drawn.strip_values
    least = max(len(str(strip.stop - 1)), 2)
    wide = max(least, *map(len, values.values())) if values else least
    if GUTTER + (wide + 1) * len(strip.cells) > width:
        wide, values = least, {}
    note = strip_shown(report)
    if strip.cell_elements > 1 or GUTTER + (wide + 1) * len(strip.cells) > width:
        _draw_density(canvas, drawn, strip)
        partly = f", {''.join(DENSITY)} partly" if any(share_read(one) not in {0, 1} for one in strip.cells) else ""
        return f"{FULL} read{partly}, {NOT_READ} not read" + (f"; {note}" if note else ""), 0
    marks = drawn.bad_offsets()
    canvas.put(top, 1, "offset")
    for at, one in enumerate(strip.cells):
        canvas.put(top, GUTTER + at * (wide + 1), str(one.start).rjust(wide))
    texts = [_cell_text(one, wide, values, marks.get(one.start, "")) for one in strip.cells]
    for line, words in enumerate(box([texts], wide)):
        canvas.put(top + 1 + line, GUTTER - 1, words)
    canvas.put(top + 2, 1, "value" if values else "read")
    kinds = sorted(set(marks.values()), reverse=True)
    legend = [f"! {' or '.join(kinds)}"] if kinds else []
    legend += [f"{NOT_READ * 2} not read"] if any(one.distinct == 0 for one in strip.cells) else []
    for line, words in enumerate(legend):
        canvas.put(top + 1 + line + (len(legend) == 1), GUTTER + len(strip.cells) * (wide + 1) + 2, words)
    _draw_rows(canvas, base_rows(report, strip), wide)
    return note, wide


def _draw_rows(canvas: Canvas, spans: list[tuple[str, int]], wide: int) -> None:
    if not spans or any(len(label) >= span * (wide + 1) for label, span in spans):
        return
    line, at = canvas.height, GUTTER
    canvas.put(line, 1, "rows")
    for label, span in spans:
        canvas.put(line, at, label)
        at += span * (wide + 1)


def _cell_text(each: StripCell, width: int, values: dict[int, str], bad: str) -> str:
    if each.distinct == 0:
        return NOT_READ * width
    words = values.get(each.start, "") if values else FULL * width
    return f"{words}!" if bad and len(words) < width else words


def _draw_density(canvas: Canvas, drawn: DrawnLayout, strip: Strip) -> None:
    top = canvas.height
    if drawn.chosen is not None:
        canvas.put(top, GUTTER + drawn.chosen, f"\u25bc offset {count(drawn.offset or 0)}")
    canvas.put(top + 1, 1, "storage \u2502" + "".join(map(_density, strip.cells)) + "\u2502")
    first, last = count(strip.start), count(strip.stop - 1)
    canvas.put(top + 2, GUTTER, first)
    canvas.put(top + 2, max(GUTTER + len(strip.cells) - len(last), GUTTER + len(first) + 2), last)


def _density(each: StripCell) -> str:
    share = share_read(each)
    if share is None or share == 1:
        return FULL
    return NOT_READ if share == 0 else DENSITY[share >= 0.5]
