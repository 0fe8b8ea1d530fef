"""The layout picture in characters: index grid, storage strip and the wire between them, or a sample of a large one."""

from __future__ import annotations

import textwrap
from dataclasses import replace

from tensormagic.renderers.tensor.tensor_layout_html import base_rows
from tensormagic.renderers.tensor.tensor_picture import Picture, share_read
from tensormagic.renderers.tensor.tensor_words import formula, formula_at, jumps, shown, strip_shown, worked_example
from tensormagic.renderers.terminal.text_canvas import Canvas, box
from tensormagic.reports import Grid, Strip, StripCell, TensorReport
from tensormagic.words import count, shortened

MOST_SHOWN = 8  # rows and columns of a large grid
VALUE_WIDTH = 10
GUTTER = 9  # columns for the labels left of the strip
NOT_READ = "\u2591"
DENSITY = ("\u2592", "\u2593")  # under half read, half or more
FULL = "\u2588"


def layout_lines(report: TensorReport, picture: Picture, width: int) -> list[str]:
    """Return the layout section."""
    if not picture.drawable:
        return [" LAYOUT  nothing to draw: the tensor is empty", f"         {formula(picture.layout)}"]
    canvas = Canvas()
    linked = picture.as_table and _grid_width(picture) <= width // 2
    if linked:
        _draw_grid(canvas, report, picture)
    else:
        _draw_sample(canvas, report, picture, width)
    notes = list(worked_example(report, picture))[1 if linked else 0 :]
    if picture.strip is not None:
        notes = _draw_strip(canvas, report, picture, width=width, linked=linked) + notes
    notes += [jumps(report)]
    notes += [f"Showing {shown(report)}"] if linked and shown(report) else []
    wrapped = [line for note in notes if note for line in textwrap.wrap(note, width - 2, subsequent_indent="  ")]
    return canvas.lines() + [f" {line}" for line in wrapped]


def _cells(picture: Picture) -> list[list[str]]:
    """Return what stands in the cells: values, or offsets where values could not be read."""
    places = (
        (row, column, at) for row, offsets in enumerate(picture.grid.offsets) for column, at in enumerate(offsets)
    )
    texts = [picture.cell_value(row, column) or str(at) for row, column, at in places]
    columns = len(picture.grid.columns)
    return [texts[at : at + columns] for at in range(0, len(texts), columns)]


def _cell_width(picture: Picture) -> int:
    return max(len(text) for row in _cells(picture) for text in row) + 2


def _head_widths(picture: Picture) -> list[int]:
    dim, names = picture.grid.column_dim, picture.layout.dim_names
    return [0, 0] if dim is None else [0, *(len(f"{names[dim]}={at}") + 1 for at in picture.grid.columns)]


def _label_width(picture: Picture) -> int:
    dim = picture.grid.row_dim
    return 1 if dim is None else max(len(f" {picture.layout.dim_names[dim]}={at} ") for at in picture.grid.rows)


def _grid_width(picture: Picture) -> int:
    return _label_width(picture) + (_cell_width(picture) + 1) * len(picture.grid.columns) + 1


def _draw_grid(canvas: Canvas, report: TensorReport, picture: Picture) -> None:
    """Draw grid and formula."""
    grid, names, left, width = picture.grid, picture.layout.dim_names, _label_width(picture), _cell_width(picture)
    texts = [
        [f"{text}{'!' if picture.bad(row, column) else ' '}" for column, text in enumerate(cells)]
        for row, cells in enumerate(_cells(picture))
    ]
    width = max(width, *_head_widths(picture))
    canvas.put(0, 1, "LAYOUT")
    for place, at in enumerate(grid.columns if grid.column_dim is not None else ()):
        canvas.put(1, left + 1 + place * (width + 1), f"{names[grid.column_dim or 0]}={at}".rjust(width - 1))
    for line, text in enumerate(box(texts, width)):
        canvas.put(2 + line, left, text)
    for row, at in enumerate(grid.rows if grid.row_dim is not None else ()):
        canvas.put(3 + row, 1, f"{names[grid.row_dim or 0]}={at}")
    right = left + (width + 1) * len(grid.columns) + 4
    example = worked_example(report, picture)[0]
    for line, text in enumerate((formula(picture.layout), formula_at(picture.layout, picture.index), example)):
        if line == 1 and not picture.index:
            continue
        canvas.put(line, max(right, GUTTER), text)


def _draw_sample(canvas: Canvas, report: TensorReport, picture: Picture, width: int) -> None:
    """Draw formula and a few rows and columns of a large grid, as values where there are any."""
    sample = thinned(picture.grid)
    assert report.layout is not None
    part = shown(replace(report, layout=replace(report.layout, grid=sample)))
    what = "values" if sample.values else "storage offsets"
    texts = [formula(picture.layout), formula_at(picture.layout, picture.index), f"{what} of {part}" if part else what]
    canvas.put(0, 1, "LAYOUT")
    lines = [line for text in texts for line in textwrap.wrap(text, width - 10, subsequent_indent="  ")]
    for at, line in enumerate(lines):
        canvas.put(at, 9, line)
    for line in _sample_table(picture, sample):
        canvas.put(canvas.height, 0, line)


def thinned(grid: Grid) -> Grid:
    """Return a grid with at most eight rows and columns, evenly chosen; the first NaN is among them."""
    bad = ((row, column) for row, line in enumerate(grid.values) for column, text in enumerate(line) if _is_bad(text))
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


def _is_bad(text: str) -> bool:
    return "nan" in text  # infinities are often meant: a mask


def _evenly(length: int, wanted: int) -> list[int]:
    """Return a few places, evenly chosen, the nearest of them moved to the one that is wanted."""
    places = list(range(0, length, -(-length // MOST_SHOWN)))
    nearest = min(range(len(places)), key=lambda at: abs(places[at] - wanted))
    return [*places[:nearest], wanted, *places[nearest + 1 :]]


def _sample_table(picture: Picture, grid: Grid) -> list[str]:
    names = picture.layout.dim_names
    cells = grid.values or tuple(tuple(map(count, row)) for row in grid.offsets)
    texts = [[shortened(text, VALUE_WIDTH) for text in row] for row in cells]
    column_dim, row_dim = grid.column_dim, grid.row_dim
    head = [f"{names[column_dim]}={at}" if column_dim is not None else "" for at in grid.columns]
    labels = [f" {names[row_dim]}={at}" if row_dim is not None else "" for at in grid.rows]
    width = max(len(text) for row in [head, *texts] for text in row) + 2
    left = max(map(len, labels)) + 1
    rows = zip(labels, texts, strict=True)
    first = " " * left + "".join(text.rjust(width) for text in head)
    return [first, *(label.ljust(left) + "".join(text.rjust(width) for text in row) for label, row in rows)]


def _draw_strip(canvas: Canvas, report: TensorReport, picture: Picture, *, width: int, linked: bool) -> list[str]:
    """Draw the strip below what stands there; return what there is to say under it."""
    strip, top = picture.strip, canvas.height
    assert strip is not None
    values = picture.strip_values
    least = max(len(str(strip.stop - 1)), 2)
    cell = max(least, *(len(text) for text in values.values())) if values else least
    if GUTTER + (cell + 1) * len(strip.cells) > width:
        cell, values = least, {}
    if strip.cell_elements > 1 or GUTTER + (cell + 1) * len(strip.cells) > width:
        _draw_density(canvas, picture, strip, top)
        partly = f", {DENSITY[0]}{DENSITY[1]} partly" if any(share_read(c) not in {0, 1} for c in strip.cells) else ""
        note = strip_shown(report)
        return [f"{FULL} read{partly}, {NOT_READ} not read" + (f"; {note}" if note else "")]
    _draw_cells(canvas, report, picture, top, (cell, values))
    if linked:
        _draw_wire(canvas, picture, top, cell=cell)
    return [strip_shown(report)]


def _draw_cells(
    canvas: Canvas, report: TensorReport, picture: Picture, top: int, texts_of: tuple[int, dict[int, str]]
) -> None:
    """Draw the strip, its offsets above it; ``texts_of`` says how wide its cells are, and the values in them."""
    strip, (cell, values) = picture.strip, texts_of
    assert strip is not None
    marks = picture.bad_offsets()
    canvas.put(top, 1, "offset")
    for at, one in enumerate(strip.cells):
        canvas.put(top, GUTTER + at * (cell + 1), str(one.start).rjust(cell))
    texts = [_cell_text(one, cell, values, marks.get(one.start, "")) for one in strip.cells]
    for line, text in enumerate(box([texts], cell)):
        canvas.put(top + 1 + line, GUTTER - 1, text)
    canvas.put(top + 2, 1, "value" if values else "read")
    kinds = sorted(set(marks.values()), reverse=True)
    legend = [f"! {' or '.join(kinds)}"] if kinds else []
    legend += [f"{NOT_READ * 2} not read"] if any(one.distinct == 0 for one in strip.cells) else []
    for line, text in enumerate(legend):
        canvas.put(top + 1 + line + (len(legend) == 1), GUTTER + len(strip.cells) * (cell + 1) + 2, text)
    _draw_rows(canvas, report, strip, top + 4, cell=cell)


def _draw_rows(canvas: Canvas, report: TensorReport, strip: Strip, line: int, *, cell: int) -> None:
    spans = base_rows(report, strip)
    if not spans or any(len(label) >= span * (cell + 1) for label, span in spans):
        return
    canvas.put(line, 1, "rows")
    at = GUTTER
    for label, span in spans:
        canvas.put(line, at, label)
        at += span * (cell + 1)


def _cell_text(cell: StripCell, width: int, values: dict[int, str], bad: str) -> str:
    if cell.distinct == 0:
        return NOT_READ * width
    text = values.get(cell.start, "") if values else FULL * width
    return f"{text}!" if bad and len(text) < width else text


def _draw_wire(canvas: Canvas, picture: Picture, top: int, *, cell: int) -> None:
    chosen = None if picture.offset is None else picture.strip_cell(picture.offset)
    if chosen is None or picture.row is None:
        return
    line, end = 3 + picture.row, GUTTER + chosen * (cell + 1) + cell - 1
    width = max(_cell_width(picture), *_head_widths(picture))
    start = _label_width(picture) + (width + 1) * len(picture.grid.columns) + 1
    if end <= start:
        canvas.put(line, start, f" \u25c4 offset {picture.offset}")
        return
    canvas.put(line, start, "\u2500" * (end - start) + "\u2510")
    for below in range(line + 1, top):
        canvas.put(below, end, "\u2502")
    canvas.put(top - 1, end, "\u25bc")


def _draw_density(canvas: Canvas, picture: Picture, strip: Strip, top: int) -> None:
    chosen = None if picture.offset is None else picture.strip_cell(picture.offset)
    if chosen is not None:
        canvas.put(top, GUTTER + chosen, f"\u25bc offset {count(picture.offset or 0)}")
    canvas.put(top + 1, 1, "storage \u2502" + "".join(map(_density, strip.cells)) + "\u2502")
    canvas.put(top + 2, GUTTER, count(strip.start))
    last = count(strip.stop - 1)
    canvas.put(top + 2, max(GUTTER + len(strip.cells) - len(last), GUTTER + len(count(strip.start)) + 2), last)


def _density(cell: StripCell) -> str:
    share = share_read(cell)
    if share is None or share == 1:
        return FULL
    return NOT_READ if share == 0 else DENSITY[share >= 0.5]
