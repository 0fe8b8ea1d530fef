"""The indices of a tensor as a grid: each element coloured by its storage offset, a large one by its value too."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from tensormagic.renderers.basics.markup import corner as empty_corner
from tensormagic.renderers.basics.markup import escape, tag
from tensormagic.renderers.terminal.text_canvas import Canvas, box
from tensormagic.reports import Grid, TensorReport
from tensormagic.views.panels.tensor_line import name
from tensormagic.views.pictures.tensor_cells import (
    CHARACTER,
    HATCHED,
    NOT_FINITE,
    PALETTE,
    Box,
    cell,
    corner,
    ends,
    image,
    on_colour,
    patches,
    rect,
    ring,
    steps,
    text,
)
from tensormagic.views.pictures.tensor_elements import DrawnLayout, element, index_at, is_slice, value_range
from tensormagic.views.pictures.tensor_strip import CELL_WIDTH, LABELS
from tensormagic.words import count, series, shortened

_TWO_LINES = 8  # rows of a grid up to which a cell holds its offset below its value
_MAP_SIDE = 192  # pixels along the longer side of a map
_LEAST_HEIGHT = 22  # pixels that a map of a single row is high
_CELL_LIMITS = (3, 14)  # pixels along the side of a cell of a map
_ROW, _TALL_ROW = 20.0, 28.0  # pixels that a row of the SVG is high, its cells of one line or of two
_MOST_SHOWN = 8  # rows and columns of a large grid in a terminal
_VALUE_WIDTH = 10
Place = tuple[float, int, int]  # a number of the grid, its row, its column


def _label(drawn: DrawnLayout, dim: int | None, at: int) -> str:
    return "" if dim is None else f"{drawn.layout.dim_names[dim]}={at}"


def _texts(drawn: DrawnLayout) -> list[list[str]]:
    """Return what stands large in the cells: values, or offsets where values could not be read."""
    return [
        [drawn.cell_value(row, column) or str(offset) for column, offset in enumerate(offsets)]
        for row, offsets in enumerate(drawn.grid.offsets)
    ]


def _title(report: TensorReport, drawn: DrawnLayout, row: int, column: int) -> str:
    offset, value = drawn.grid.offsets[row][column], drawn.value(row, column)
    return f"{element(report, index_at(drawn.grid, row, column))}{f' = {value}' if value else ''}, offset {offset}"


def _two_lines(drawn: DrawnLayout) -> bool:
    return bool(drawn.grid.values) and len(drawn.grid.rows) <= _TWO_LINES


# -- what is to be seen in a map -------------------------------------------------------------------------------------


def offsets_sentence(report: TensorReport, drawn: DrawnLayout) -> str:
    """Return what is drawn of the storage offsets, their range, and how far each dimension steps."""
    layout, grid = drawn.layout, drawn.grid
    dims = [dim for dim in (grid.row_dim, grid.column_dim) if dim is not None]
    walk = (
        f"steps by {', '.join(f'{layout.stride[dim]} along {layout.dim_names[dim]}' for dim in dims)}" if dims else ""
    )
    every = [offset for row in grid.offsets for offset in row]
    if grid.complete and every == list(range(every[0], every[0] + len(every))):
        walk = "is contiguous, row by row"
    scale = f"from {count(drawn.low)} (darkest) to {count(drawn.high)} (lightest)"
    return f"Storage offset at each index: {_size(report, drawn)}, {scale}{f'; it {walk}' if walk else ''}."


def _size(report: TensorReport, drawn: DrawnLayout) -> str:
    grid = drawn.grid
    shown = f"{len(grid.rows)} by {len(grid.columns)}"
    whole = f"{count(grid.row_count)} by {count(grid.column_count)}"
    part = f"{shown} elements" if shown == whole else f"{shown} of {whole} elements"
    return f"{part} of one slice of {name(report)}" if is_slice(drawn.layout) else f"{part} of {name(report)}"


def values_sentence(report: TensorReport, drawn: DrawnLayout, scale: tuple[float, float]) -> str:
    """Return the range of the values, where the smallest and the largest are, and where what is no number begins."""
    numbers = [(level, r, c) for r, row in enumerate(drawn.grid.levels) for c, level in enumerate(row)]
    finite = [one for one in numbers if math.isfinite(one[0])]
    described = f"Value at each index: {_size(report, drawn)}, {ends(scale)}"
    if finite:
        places = f"smallest at {_at(drawn, min(finite))}, largest at {_at(drawn, max(finite))}"
        described += f"; {places}" if min(finite)[0] < max(finite)[0] else "; all of them equal"
    for label, is_one, _ in NOT_FINITE:
        if found := [one for one in numbers if is_one(one[0])]:
            described += f"; hatched: {count(len(found))} {label}, the first at {_at(drawn, found[0])}"
            described += _whole_rows(drawn, found)
    return f"{described}."


def _at(drawn: DrawnLayout, place: Place) -> str:
    return f"[{', '.join(map(str, index_at(drawn.grid, place[1], place[2])))}]"


def _whole_rows(drawn: DrawnLayout, found: Sequence[Place]) -> str:
    """Return the rows that hold nothing but what was found."""
    grid, held = drawn.grid, dict[int, int]()
    for _, row, _ in found:
        held[row] = held.get(row, 0) + 1
    rows = [grid.rows[row] for row, number in held.items() if number == len(grid.columns)]
    if grid.row_dim is None or not rows or len(grid.columns) < 2:
        return ""
    return f", all along {drawn.layout.dim_names[grid.row_dim]} = {series(rows)}"


# -- in a page -------------------------------------------------------------------------------------------------------


def grid_html(report: TensorReport, drawn: DrawnLayout) -> str:
    """Return the grid as a table: each cell holds its value and, small, its offset, by which it is coloured."""
    grid = drawn.grid
    rows = []
    if grid.column_dim is not None:
        heads = (_head(drawn, grid.column_dim, at, on=drawn.column == place) for place, at in enumerate(grid.columns))
        rows.append(tag("tr", empty_corner("index"), *heads))
    for row, at in enumerate(grid.rows):
        head = empty_corner("element") if grid.row_dim is None else _head(drawn, grid.row_dim, at, on=drawn.row == row)
        rows.append(tag("tr", head, *(_cell(report, drawn, row, column) for column in range(len(grid.columns)))))
    return tag("table", *rows, class_="tm-cells tm-grid")


def _head(drawn: DrawnLayout, dim: int, at: int, *, on: bool) -> str:
    return tag("th", escape(_label(drawn, dim, at)), class_="tm-on" if on else None)


def _cell(report: TensorReport, drawn: DrawnLayout, row: int, column: int) -> str:
    offset, on = drawn.grid.offsets[row][column], (row, column) == (drawn.row, drawn.column)
    return cell(
        drawn.cell_value(row, column) or str(offset),
        drawn.colour(offset),
        title=_title(report, drawn, row, column),
        on=on,
        bad=drawn.bad(row, column),
        near=not on and offset == drawn.offset,
        below=str(offset) if _two_lines(drawn) else "",
    )


def maps_html(report: TensorReport, drawn: DrawnLayout) -> str:
    """Return a large grid as maps: by value where values could be read, and by storage offset."""
    maps, scale = [], value_range(drawn.grid, report.statistics)
    if scale is not None:
        cells = steps(drawn.grid.levels, scale)
        maps.append(_map(drawn, cells, "value", "value", values_sentence(report, drawn, scale)))
    cells = steps(drawn.grid.offsets, (drawn.low, drawn.high))
    maps.append(_map(drawn, cells, "offset", "storage offset", offsets_sentence(report, drawn)))
    return tag("div", *maps, class_="tm-maps")


def _map(drawn: DrawnLayout, cells: list[list[int]], kind: str, caption: str, sentence: str) -> str:
    """Return a picture within axes of text; the viewer lays its ring over it."""
    grid, size = drawn.grid, _cell_size(drawn.grid)
    high = len(grid.rows) * size
    picture = image(cells, size, sentence).replace(f'height="{high}"', f'height="{max(high, _LEAST_HEIGHT)}"', 1)
    top = tag("td", _axis(drawn, grid.column_dim, grid.columns), class_="tm-across")
    left = tag("td", _axis(drawn, grid.row_dim, grid.rows if grid.row_dim is not None else ()), class_="tm-down")
    body = tag("td", tag("div", picture, class_="tm-map", data_kind=kind))
    head = tag("caption", escape(caption))
    return tag("table", head, tag("tr", "<td></td>", top), tag("tr", left, body), class_="tm-axes")


def _cell_size(grid: Grid) -> int:
    smallest, largest = _CELL_LIMITS
    return min(max(_MAP_SIDE // max(len(grid.rows), len(grid.columns), 1), smallest), largest)


def _axis(drawn: DrawnLayout, dim: int | None, at: tuple[int, ...]) -> str:
    letter = "" if dim is None else drawn.layout.dim_names[dim]
    marks = (str(at[0]) if at else "", letter, str(at[-1]) if len(at) > 1 else "")
    return tag("div", *(tag("span", escape(mark)) + " " for mark in marks))


# -- as SVG ----------------------------------------------------------------------------------------------------------


def grid_svg(report: TensorReport, drawn: DrawnLayout) -> str:
    """Return the grid, its labels, and the frame around the element that is worked through."""
    grid = drawn.grid
    if drawn.as_table:
        parts = [_cell_svg(report, drawn, r, c) for r in range(len(grid.rows)) for c in range(len(grid.columns))]
    else:
        colours = [*PALETTE, HATCHED]
        fills = [
            [colours[-1 if drawn.bad(r, c) else step] for c, step in enumerate(row)]
            for r, row in enumerate(steps(grid.offsets, (drawn.low, drawn.high)))
        ]
        parts = [patches(fills, _box(drawn, 0, 0))]
    for column in _labelled(len(grid.columns), every=drawn.as_table) if grid.column_dim is not None else ():
        x, y, width, _ = _box(drawn, 0, column)
        words = _label(drawn, grid.column_dim, grid.columns[column])
        parts.append(text(x + width / 2, y - 5, words, "c b" if column == drawn.column else "c q"))
    for row in _labelled(len(grid.rows), every=drawn.as_table) if grid.row_dim is not None else ():
        x, y, _, height = _box(drawn, row, 0)
        words = _label(drawn, grid.row_dim, grid.rows[row])
        parts.append(text(x - 8, y + height / 2 + 4, words, "e b" if row == drawn.row else "e q"))
    return "".join(parts) + ring(chosen_box(drawn))


def grid_size(drawn: DrawnLayout) -> tuple[float, float]:
    """Return where the grid ends in the SVG, at the right and below."""
    x, y, width, height = _box(drawn, len(drawn.grid.rows) - 1, len(drawn.grid.columns) - 1)
    return x + width, y + height


def chosen_box(drawn: DrawnLayout) -> Box:
    """Return where the element that is worked through lies in the SVG."""
    return _box(drawn, drawn.row or 0, drawn.column or 0)


def _box(drawn: DrawnLayout, row: int, column: int) -> Box:
    width = height = float(_cell_size(drawn.grid))
    if drawn.as_table:
        widest = max(len(words) for line in _texts(drawn) for words in line) * CHARACTER
        width = min(max(widest + 12, 30), max(CELL_WIDTH, widest + 6))
        height = _TALL_ROW if _two_lines(drawn) else _ROW
    top = 0 if drawn.grid.column_dim is None else 12
    return LABELS + column * width, top + row * height, width, height


def _cell_svg(report: TensorReport, drawn: DrawnLayout, row: int, column: int) -> str:
    offset, place = drawn.grid.offsets[row][column], _box(drawn, row, column)
    colour, words = drawn.colour(offset), drawn.cell_value(row, column) or str(offset)
    x, y, width, _ = place
    if _two_lines(drawn):
        inner = on_colour((x, y - 1, width, _ROW), words, colour)
        inner += on_colour((x, y + 14, width, 12), str(offset), colour, "c s")
    else:
        inner = on_colour(place, words, colour)
    mark = corner(place, colour) if drawn.bad(row, column) else ""
    return rect(place, colour, title=_title(report, drawn, row, column)) + inner + mark


def _labelled(length: int, *, every: bool) -> Sequence[int]:
    return range(length) if every else sorted({0, length - 1})


# -- in a terminal ---------------------------------------------------------------------------------------------------


def draw_grid(canvas: Canvas, drawn: DrawnLayout) -> None:
    """Draw a small grid, a box around each element, below a line for its title."""
    grid, left, wide = drawn.grid, _label_width(drawn), _width(drawn)
    texts = [
        [f"{words}{'!' if drawn.bad(row, column) else ' '}" for column, words in enumerate(cells)]
        for row, cells in enumerate(_texts(drawn))
    ]
    for place, at in enumerate(grid.columns if grid.column_dim is not None else ()):
        canvas.put(1, left + 1 + place * (wide + 1), _label(drawn, grid.column_dim, at).rjust(wide - 1))
    for line, words in enumerate(box(texts, wide)):
        canvas.put(2 + line, left, words)
    for row, at in enumerate(grid.rows if grid.row_dim is not None else ()):
        canvas.put(3 + row, 1, _label(drawn, grid.row_dim, at))


def grid_end(drawn: DrawnLayout) -> int:
    """Return the column of a terminal in which a small grid ends."""
    return _label_width(drawn) + (_width(drawn) + 1) * len(drawn.grid.columns) + 1


def _width(drawn: DrawnLayout) -> int:
    """Return how wide a cell is: as its widest text, or as the label above it."""
    heads = (len(_label(drawn, drawn.grid.column_dim, at)) + 1 for at in drawn.grid.columns)
    return max(2, *(len(words) + 2 for row in _texts(drawn) for words in row), *heads)


def _label_width(drawn: DrawnLayout) -> int:
    dim = drawn.grid.row_dim
    return 1 if dim is None else max(len(f" {_label(drawn, dim, at)} ") for at in drawn.grid.rows)


def sample_lines(drawn: DrawnLayout, grid: Grid) -> Iterator[str]:
    """Yield the few rows and columns of a large grid, as values where there are any."""
    cells = grid.values or tuple(tuple(map(count, row)) for row in grid.offsets)
    texts = [[shortened(words, _VALUE_WIDTH) for words in row] for row in cells]
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
    return replace(
        grid,
        rows=tuple(grid.rows[row] for row in rows),
        columns=tuple(grid.columns[column] for column in columns),
        offsets=tuple(tuple(grid.offsets[row][column] for column in columns) for row in rows),
        values=tuple(tuple(grid.values[row][column] for column in columns) for row in rows) if grid.values else (),
        levels=(),
    )


def _evenly(length: int, wanted: int) -> list[int]:
    """Return a few places, evenly chosen, the nearest of them moved to the one that is wanted."""
    places = list(range(0, length, -(-length // _MOST_SHOWN)))
    nearest = min(range(len(places)), key=lambda at: abs(places[at] - wanted))
    return [*places[:nearest], wanted, *places[nearest + 1 :]]
