"""What is drawn of a layout: the indices of a tensor as a grid, and the storage that they lie in as a strip.

Each element is coloured by its storage offset, in the grid as in the strip; a large grid is a map, also by value.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

from tensormagic.reports import Grid, Strip, StripCell, TensorReport
from tensormagic.views import svg_paths, theme
from tensormagic.views.markup import escape, tag, text_width
from tensormagic.views.pictures import cells as drawing, tensor_elements as elements
from tensormagic.views.pictures.cells import CHARACTER, DENSITY, FULL, NOT_FINITE, NOT_READ, PALETTE, Cell, Cells, Row
from tensormagic.views.pictures.tensor_elements import DrawnLayout
from tensormagic.views.text_canvas import Canvas
from tensormagic.words import TIMES, count, plural, series, short_count, shortened

LABELS = 78.0  # pixels for what is at the left of cells
_CELL_WIDTH = 46.0  # pixels of a cell of the strip at most
_TWO_LINES = 8  # rows of a grid up to which a cell holds its offset below its value
_MAP_SIDE = 192  # pixels along the longer side of a map
_LEAST_HEIGHT = 22  # pixels that a map of a single row is high
_CELL_LIMITS = (3, 14)  # pixels along the side of a cell of a map
_MOST_SHOWN = 8  # rows and columns of a large grid in a terminal
_VALUE_WIDTH = 10
_TABLE_CELLS = 96  # beyond, the strip is a picture
_WIDTH = 560  # pixels that its cells have at least, in a notebook 700 pixels wide
_ROOM = 840  # pixels for cells and labels, in a notebook 900 pixels wide
_LEAST_NUMBERED, _LEAST_CELL = 20, 4  # pixels of a cell at least, with a number in it and without
_MAP_ROWS = 8  # rows of pixels by which a pictured cell shows how much of it is read
_MOST_ROW_LABELS = 16


def grid_cells(report: TensorReport, drawn: DrawnLayout) -> Cells:
    """Return a small grid: each cell holds its value and, small, its offset, by which it is coloured."""
    grid, rows, widest = drawn.grid, list[Row](), 0
    if grid.column_dim is not None:
        heads = [Cell(_label(drawn, grid.column_dim, at), on=drawn.column == place)
                 for place, at in enumerate(grid.columns)]  # fmt: skip
        rows.append(Row("", heads, "heads", title="index"))
    below = bool(grid.values) and len(grid.rows) <= _TWO_LINES
    for row, at in enumerate(grid.rows):
        cells = []
        for column, offset in enumerate(grid.offsets[row]):
            value, on = drawn.value(row, column), (row, column) == (drawn.row, drawn.column)
            index = elements.element(report, elements.index_at(grid, row, column))
            title = f"{index}{f' = {value}' if value else ''}, offset {offset}"
            words, under = elements.in_cell(value, len(grid.columns)) or str(offset), str(offset) if below else ""
            near, bad = not on and offset == drawn.offset, bool(drawn.bad(row, column))
            cells.append(Cell(words, drawn.colour(offset), title, on=on, near=near, bad=bad, below=under))
        widest = max(widest, *(len(each.text) for each in cells))
        label = _label(drawn, grid.row_dim, at)
        rows.append(Row(label, cells, on=drawn.row == row, title="" if label else "element"))
    least = widest * CHARACTER
    return Cells(rows, LABELS, min(max(least + 12, 30), max(_CELL_WIDTH, least + 6)))


def _label(drawn: DrawnLayout, dim: int | None, at: int) -> str:
    return "" if dim is None else f"{drawn.layout.dim_names[dim]}={at}"


def grid_svg(report: TensorReport, drawn: DrawnLayout, width: float) -> tuple[str, drawing.Box, tuple[float, float]]:
    """Return the grid, where the element lies that is worked through, and where the grid ends: within ``width``."""
    if drawn.as_table:
        cells = grid_cells(report, drawn)
        cells = replace(cells, unit=min(cells.unit, (width - cells.left) / cells.columns))
        return cells.svg(), cells.box(*(cells.chosen or (0, 0))), (cells.right, cells.height)
    grid, size, top = drawn.grid, float(_cell_size(drawn.grid)), 0 if drawn.grid.column_dim is None else 12
    levels = drawing.steps(grid.offsets, (drawn.low, drawn.high))
    levels = [[svg_paths.NOT_A_NUMBER if drawn.bad(r, c) else step for c, step in enumerate(row)]
              for r, row in enumerate(levels)]  # fmt: skip
    parts = [drawing.patches(levels, (LABELS, top, size, size))]
    for at in sorted({0, len(grid.columns) - 1}) if grid.column_dim is not None else ():
        words, look = _label(drawn, grid.column_dim, grid.columns[at]), "c b" if at == drawn.column else "c q"
        parts.append(drawing.text(LABELS + (at + 0.5) * size, top - 5, words, look))
    for at in sorted({0, len(grid.rows) - 1}) if grid.row_dim is not None else ():
        words, look = _label(drawn, grid.row_dim, grid.rows[at]), "e b" if at == drawn.row else "e q"
        parts.append(drawing.text(LABELS - 8, top + (at + 0.5) * size + 4, words, look))
    chosen = LABELS + drawn.column * size, top + drawn.row * size, size, size
    end = LABELS + len(grid.columns) * size, top + len(grid.rows) * size
    return "".join(parts) + drawing.ring(chosen), chosen, end


def maps_html(report: TensorReport, drawn: DrawnLayout) -> str:
    """Return a large grid as maps within axes of text: by value where values could be read, and by storage offset."""
    grid, size, scale = drawn.grid, _cell_size(drawn.grid), elements.value_range(drawn.grid, report.statistics)
    kinds = [("offset", drawing.steps(grid.offsets, (drawn.low, drawn.high)), offsets_sentence(report, drawn))]
    if scale is not None:
        kinds.insert(0, ("value", drawing.steps(grid.levels, scale), values_sentence(report, drawn, scale)))
    left = _axis(drawn, grid.row_dim, grid.rows) if grid.row_dim is not None else ""
    top, left = (
        tag("td", _axis(drawn, grid.column_dim, grid.columns), class_="tm-across"),
        tag("td", left, class_="tm-down"),
    )
    maps, high = [], len(grid.rows) * size
    for kind, cells, sentence in kinds:
        picture = drawing.image(cells, size, sentence)
        picture = picture.replace(f'height="{high}"', f'height="{max(high, _LEAST_HEIGHT)}"', 1)
        body = tag("td", tag("div", picture, class_="tm-map", data_kind=kind))  # the viewer lays its ring over it
        head = tag("caption", elements.ELEMENT_WORDS[f"{kind}_map"])
        maps.append(tag("table", head, tag("tr", "<td></td>", top), tag("tr", left, body), class_="tm-axes"))
    return tag("div", *maps, class_="tm-maps")


def _cell_size(grid: Grid) -> int:
    smallest, largest = _CELL_LIMITS
    return min(max(_MAP_SIDE // max(len(grid.rows), len(grid.columns), 1), smallest), largest)


def _axis(drawn: DrawnLayout, dim: int | None, at: tuple[int, ...]) -> str:
    letter = "" if dim is None else drawn.layout.dim_names[dim]
    marks = (str(at[0]) if at else "", letter, str(at[-1]) if len(at) > 1 else "")
    return tag("div", *(tag("span", escape(mark)) + " " for mark in marks))


def sample_lines(drawn: DrawnLayout, grid: Grid) -> Iterator[str]:
    """Yield the few rows and columns of a large grid, as values where there are any."""
    cells = grid.values or tuple(tuple(map(count, row)) for row in grid.offsets)
    room = max(_VALUE_WIDTH, elements.ROW_TEXT // max(len(grid.columns), 1))
    texts = [[elements.narrowed(words, room) for words in row] for row in cells]
    head = [_label(drawn, grid.column_dim, at) for at in grid.columns]
    labels = [f" {_label(drawn, grid.row_dim, at)}" if grid.row_dim is not None else "" for at in grid.rows]
    wide = max(len(words) for row in [head, *texts] for words in row) + 2
    left = max(map(len, labels)) + 1
    yield " " * left + "".join(words.rjust(wide) for words in head)
    for label, row in zip(labels, texts, strict=True):
        yield label.ljust(left) + "".join(words.rjust(wide) for words in row)


def thinned(grid: Grid) -> Grid:
    """Return a grid with at most eight rows and columns, evenly chosen; the first NaN is among them."""
    # Infinities are often meant: a mask.
    bad = ((row, column) for row, line in enumerate(grid.values) for column, words in enumerate(line) if "nan" in words)
    row, column = next(bad, (0, 0))
    rows, columns = _evenly(len(grid.rows), row), _evenly(len(grid.columns), column)
    offsets = tuple(tuple(grid.offsets[row][column] for column in columns) for row in rows)
    values = tuple(tuple(grid.values[row][column] for column in columns) for row in rows) if grid.values else ()
    chosen = tuple(grid.rows[row] for row in rows), tuple(grid.columns[column] for column in columns)
    return replace(grid, rows=chosen[0], columns=chosen[1], offsets=offsets, values=values, levels=())


def _evenly(length: int, wanted: int) -> list[int]:
    """Return a few places, evenly chosen, the nearest of them moved to the one that is wanted."""
    places = list(range(0, length, -(-length // _MOST_SHOWN)))
    places[min(range(len(places)), key=lambda at: abs(places[at] - wanted))] = wanted
    return places


def strip_cells(report: TensorReport, drawn: DrawnLayout, strip: Strip, width: float, *, words: bool = True) -> Cells:
    """Return the strip: what each cell holds, from which offset, and the rows of the base; ``words``: with values."""
    values = drawn.strip_values if words else {}
    marks = drawn.bad_offsets() if strip.cell_elements == 1 else {}
    cells = []
    for at, each in enumerate(strip.cells):
        share, times = elements.share_read(each), each.reads if each.stop == each.start + 1 else 0
        colour = "" if share == 0 else drawn.cell_colour(each) or theme.OTHER_SLICE
        cells.append(Cell(
            values.get(each.start, "") if share != 0 else "", colour, cell_title(each),
            share=1.0 if share is None else share, on=at == drawn.chosen and share != 0, bad=each.start in marks,
            below=f"{TIMES}{short_count(times)}" if times and times > 1 else "",
        ))  # fmt: skip
    spans = base_rows(report, strip)
    alone = len(spans) == 1 and spans[0][0] == strip.row_name  # it says so itself
    title = f"rows of {shortened(strip.row_name, 16)}" if spans and not alone else ""
    room = min(_WIDTH / len(cells), _CELL_WIDTH)  # in a notebook: as many offsets as fit stand below
    every = max(1, -(-(7 * len(count(strip.cells[-1].start)) + 4) // int(max(room, 1))))
    offsets = drawing.ruler("offset", [each.start for each in strip.cells], every, drawn.chosen)
    rows = [Row("value" if values else "storage", cells, look="tm-strip"), offsets]
    rows += [Row(title, [Cell(label, span=span) for label, span in spans], "brackets", "tm-rows")] if spans else []
    left = max(LABELS, text_width(title, 12) + 10)
    return Cells(rows, left, min((width - left) / len(cells), _CELL_WIDTH))


def strip_html(report: TensorReport, drawn: DrawnLayout) -> str:
    """Return the strip: a table where its cells are few, else a picture."""
    strip = drawn.strip
    if strip is None or not strip.cells:
        return ""
    if len(strip.cells) > _TABLE_CELLS:
        columns = []
        for each in strip.cells:
            share = elements.share_read(each)
            filled = _MAP_ROWS if share is None else round(share * _MAP_ROWS) or (1 if share else 0)
            place = drawing.fraction((each.start + each.stop - 1) // 2, drawn.low, drawn.high)
            colour = len(PALETTE) if drawn.cell_colour(each) is None else round(place * (len(PALETTE) - 1))
            columns.append([svg_paths.PLUS_INFINITY] * (_MAP_ROWS - filled) + [colour] * filled)
        lines = list(zip(*columns, strict=True))
        picture = drawing.image(lines, 3, strip_sentence(report, strip), palette=(*PALETTE, theme.OTHER_SLICE))
        picture = picture.replace(' alt="', ' style="width:100%;height:24px" alt="', 1)
        ends = tag("span", count(strip.start)) + " " + tag("span", count(strip.stop - 1))
        table = tag("div", tag("div", picture, class_="tm-map", data_kind="strip"), tag("div", ends, class_="tm-ends"))
    else:
        cells = strip_cells(report, drawn, strip, _WIDTH)
        inner = [each for each in cells.rows[0].cells if each.text]
        often = max(len(each.below) for each in cells.rows[0].cells)
        wide = max(_LEAST_NUMBERED, 4 + 7 * (max(len(each.text) for each in inner) + often)) if inner else _LEAST_CELL
        if cells.left + wide * len(strip.cells) > _ROOM:  # the brackets name the rows themselves
            rows = [replace(row, label="rows", title=row.label) if row.look == "tm-rows" else row for row in cells.rows]
            cells = replace(cells, rows=rows, left=LABELS)
        labels = round(cells.left)
        least = labels + wide * len(strip.cells)  # narrower, it scrolls
        style = f"width:100%;min-width:{least}px;max-width:{max(labels + int(_CELL_WIDTH) * len(strip.cells), least)}px"
        table = cells.html("tm-storage", style=style, labels=labels)
    note = elements.strip_shown(report)
    return tag("div", table, tag("p", "Storage: ", escape(note), class_="quiet") if note else "", class_="tm-strip-box")


def strip_text(report: TensorReport, drawn: DrawnLayout, width: int) -> tuple[Canvas, int, str]:
    """Return the strip in a terminal, where the end of the element lies that is worked through, and its legend.

    No wire can lead to a strip without frames: that end is 0.
    """
    strip = drawn.strip
    if strip is None or not strip.cells:
        return Canvas(), 0, ""
    cells, found = strip_cells(report, drawn, strip, _WIDTH), None
    if strip.cell_elements == 1:
        found = cells.framed(width) or strip_cells(report, drawn, strip, _WIDTH, words=False).framed(width)
    shares = {each.share for each in cells.rows[0].cells}
    bad = any(each.bad for each in cells.rows[0].cells)
    legend = [f"! {' or '.join(sorted(set(drawn.bad_offsets().values()), reverse=True))}"] if bad else []
    legend += [f"{FULL} read"] if found is None else []
    legend += [f"{''.join(DENSITY)} partly"] if shares - {0.0, 1.0} else []
    legend += [f"{NOT_READ} not read"] if 0.0 in shares else []
    legend += [f"offsets {count(strip.start)} to {count(strip.stop - 1)}"] if found is None else []
    words = "; ".join(filter(None, (", ".join(legend), elements.strip_shown(report))))
    if found is None:
        pointer = f"offset {count(drawn.offset)}" if drawn.chosen is not None else ""
        return cells.dense(width, pointer), 0, words
    canvas, left, wide = found
    return canvas, left + (drawn.chosen or 0) * (wide + 1) + wide if drawn.chosen is not None else 0, words


def cell_title(each: StripCell) -> str:
    """Return which storage elements a cell stands for, and how many of them are read."""
    size = each.stop - each.start
    where = f"offset {count(each.start)}" if size == 1 else f"{count(each.start)} to {count(each.stop - 1)}"
    if not each.distinct:
        return f"{where}: {'reads not counted' if each.distinct is None else 'not read'}"
    if size > 1:
        return f"{where}: {'all' if each.distinct == size else f'{count(each.distinct)} of {count(size)}'} read"
    return f"{where}: read" + (f" {count(each.reads)} times" if each.reads and each.reads > 1 else "")


def strip_sentence(report: TensorReport, strip: Strip) -> str:
    """Return which part of the storage is read, and from where to where."""
    read = [at for at, each in enumerate(strip.cells) if each.distinct != 0]
    whole = f"Storage elements {count(strip.start)} to {count(strip.stop - 1)}"
    if not read:
        return f"{whole}: none is read."
    first, last = strip.cells[read[0]].start, strip.cells[read[-1]].stop - 1
    described = f"{whole}, read by {elements.name(report)} from {count(first)} to {count(last)}"
    if any(each.distinct is None for each in strip.cells):
        return f"{described}."
    found = sum(each.distinct or 0 for each in strip.cells)
    gaps = sum(at != before + 1 for before, at in pairwise(read))
    between = f", with {plural(gaps, 'gap')} between" if gaps else ""
    return f"{described}: {count(found)} of {count(strip.stop - strip.start)} elements{between}."


def base_rows(report: TensorReport, strip: Strip) -> list[tuple[str, int]]:
    """Return label and width in cells of each row of the base tensor under the strip, where there are few enough."""
    length, called = strip.row_length, strip.row_name
    if not length or not called or strip.cell_elements > 1:
        return []
    rows = range(strip.start // length, -(-strip.stop // length))
    shape = next((alias.shape for alias in report.aliases if alias.name == called), None)
    found = []
    for row in rows if len(rows) <= _MOST_ROW_LABELS else ():
        index = (row,) if shape is None else elements.unravel(row * length, shape)[: elements.row_dims(shape, length)]
        label = f"{called}[{', '.join(map(str, index))}]" if index and (shape is None or len(shape) > 1) else called
        found.append((label, min((row + 1) * length, strip.stop) - max(row * length, strip.start)))
    return found


def offsets_sentence(report: TensorReport, drawn: DrawnLayout) -> str:
    """Return what is drawn of the storage offsets, their range, and how far each dimension steps."""
    layout, grid = drawn.layout, drawn.grid
    dims = [dim for dim in (grid.row_dim, grid.column_dim) if dim is not None]
    steps_by = ", ".join(f"{layout.stride[dim]} along {layout.dim_names[dim]}" for dim in dims)
    walk = f"; it steps by {steps_by}" if dims else ""
    every = [offset for row in grid.offsets for offset in row]
    if grid.complete and every == list(range(every[0], every[0] + len(every))):
        walk = "; it is contiguous, row by row"
    scale = f"from {count(drawn.low)} (darkest) to {count(drawn.high)} (lightest)"
    return f"Storage offset at each index: {_size(report, drawn)}, {scale}{walk}."


def _size(report: TensorReport, drawn: DrawnLayout) -> str:
    grid = drawn.grid
    shown = f"{len(grid.rows)} by {len(grid.columns)}"
    whole = f"{count(grid.row_count)} by {count(grid.column_count)}"
    part = "one slice of " if elements.is_slice(drawn.layout) else ""
    return f"{shown}{'' if shown == whole else f' of {whole}'} elements of {part}{elements.name(report)}"


def values_sentence(report: TensorReport, drawn: DrawnLayout, scale: tuple[float, float]) -> str:
    """Return the range of the values, where the smallest and the largest are, and where what is not a number begins.

    Rows that hold nothing but what is not a number are named.
    """
    grid = drawn.grid
    numbers = [(level, r, c) for r, row in enumerate(grid.levels) for c, level in enumerate(row)]
    finite = [one for one in numbers if math.isfinite(one[0])]

    def at(place: tuple[float, int, int]) -> str:
        return f"[{', '.join(map(str, elements.index_at(grid, place[1], place[2])))}]"

    described = f"Value at each index: {_size(report, drawn)}, {drawing.ends(scale)}"
    if finite:
        places = f"smallest at {at(min(finite))}, largest at {at(max(finite))}"
        described += f"; {places}" if min(finite)[0] < max(finite)[0] else "; all of them equal"
    for label, is_one, _ in NOT_FINITE:
        if found := [one for one in numbers if is_one(one[0])]:
            described += f"; hatched: {count(len(found))} {label}, the first at {at(found[0])}"
            held = Counter(row for _, row, _ in found)
            rows = [grid.rows[row] for row, number in held.items() if number == len(grid.columns)]
            if grid.row_dim is not None and rows and len(grid.columns) > 1:
                described += f", all along {drawn.layout.dim_names[grid.row_dim]} = {series(rows)}"
    return f"{described}."
