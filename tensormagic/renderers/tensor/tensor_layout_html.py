"""The layout picture as HTML: the index grid and the storage strip as coloured tables, and the formula between them.

Tables with inline colours and the numbers in their cells are what every host shows, sanitised ones too. One element
is worked through in the static page; the viewer, where scripts run, lets any other take its place.
"""

from __future__ import annotations

from tensormagic.renderers.alternatives.tensor_alternative import strip_alternative
from tensormagic.renderers.basics import svg_paths, theme
from tensormagic.renderers.basics.markup import corner, escape, tag
from tensormagic.renderers.basics.plain_text import text_width
from tensormagic.renderers.tensor.tensor_maps import PALETTE, legend_html, maps_html
from tensormagic.renderers.tensor.tensor_picture import (
    LEVELS,
    Picture,
    fraction,
    index_at,
    row_dims,
    share_read,
    unravel,
)
from tensormagic.renderers.tensor.tensor_words import (
    element,
    formula,
    formula_at,
    jumps,
    shown,
    strip_shown,
    worked_example,
)
from tensormagic.reports import Strip, StripCell, TensorReport
from tensormagic.words import TIMES, count, short_count, shortened

UNREAD = f"background:{theme.role('skip')};color:{theme.role('ink-2')}"
STRIP_TABLE_CELLS = 96  # beyond, the strip is a picture
STRIP_WIDTH = 560  # pixels that the strip's cells have at least, in a notebook 700 pixels wide
STRIP_CELL = 46  # pixels of a strip cell at most
LEAST_NUMBERED, LEAST_CELL = 20, 4  # and at least, with a number in it and without
STRIP_HEIGHT, LEAST_FILL = 22, 4  # pixels of a strip cell, and of the part of it that is read where that is little
MAP_ROWS = 8  # rows of pixels by which a pictured strip cell shows how much of it is read
MOST_ROW_LABELS = 16
TWO_LINES = 8  # rows of a grid up to which a cell holds its offset below its value


def layout_html(report: TensorReport, picture: Picture) -> str:
    """Return the grid, the formula, the legend and the strip."""
    title = tag("h3", "Layout")
    if not picture.drawable:
        empty = tag("p", "Nothing to draw: the tensor is empty. ", tag("code", escape(formula(picture.layout))))
        return tag("div", title, empty, class_="tm-layout")
    legend = legend_html(report, picture)
    if picture.as_table:
        top = tag("div", grid_html(report, picture), _reading(report, picture), legend, class_="tm-top")
    else:
        top = tag(
            "div",
            maps_html(report, picture),
            tag("div", legend, _reading(report, picture), class_="tm-side"),
            class_="tm-top",
        )
    return tag("div", title, tag("div", top, strip_html(report, picture), class_="tm-picture"), class_="tm-layout")


def _reading(report: TensorReport, picture: Picture) -> str:
    general = tag("p", tag("code", escape(formula(picture.layout))), class_="quiet tm-formula")
    lines = [
        general if picture.index else "",
        tag("p", tag("b", tag("code", escape(formula_at(picture.layout, picture.index)))), class_="tm-formula tm-now"),
    ]
    notes = "<br>".join(escape(note) for note in worked_example(report, picture))
    lines.append(tag("p", notes, class_="quiet tm-notes"))
    if part := shown(report):
        lines.append(tag("p", tag("b", "Showing "), escape(part), class_="tm-shown"))
    if steps := jumps(report):
        lines.append(tag("p", escape(steps), class_="quiet tm-jumps"))
    return tag("div", *lines, class_="tm-read")


def grid_html(report: TensorReport, picture: Picture) -> str:
    """Return the index grid as a table: each cell holds its value and, small, its offset, by which it is coloured."""
    grid, names = picture.grid, picture.layout.dim_names
    head = [
        _axis_label(names, grid.column_dim, at, on=picture.column == place) for place, at in enumerate(grid.columns)
    ]
    rows = [tag("tr", corner("index"), *head)] if grid.column_dim is not None else []
    for row, at in enumerate(grid.rows):
        label = (
            _axis_label(names, grid.row_dim, at, on=picture.row == row)
            if grid.row_dim is not None
            else corner("element")
        )
        cells = (_grid_cell(report, picture, row, column) for column in range(len(grid.columns)))
        rows.append(tag("tr", label, *cells))
    return tag("table", *rows, class_="tm-cells tm-grid")


def _axis_label(names: tuple[str, ...], dim: int | None, at: int, *, on: bool) -> str:
    letter = "" if dim is None else names[dim]
    return tag("th", escape(f"{letter}={at}"), class_="tm-on" if on else None)


def _grid_cell(report: TensorReport, picture: Picture, row: int, column: int) -> str:
    offset, value = picture.grid.offsets[row][column], picture.value(row, column)
    title = element(report, index_at(picture.grid, row, column)) + (f" = {value}" if value else "")
    on = (row, column) == (picture.row, picture.column)
    return _cell(
        picture.cell_value(row, column) or str(offset),
        picture.colour(offset),
        title=f"{title}, offset {offset}",
        on=on,
        bad=picture.bad(row, column),
        near=not on and offset == picture.offset,
        below=str(offset) if value and len(picture.grid.rows) <= TWO_LINES else "",
    )


def _cell(  # noqa: PLR0913  (all but text and colour is keyword-only)
    text: str, colour: str, *, title: str, on: bool, bad: str = "", near: bool = False, below: str = ""
) -> str:
    classes = " ".join(name for name, wanted in (("tm-on", on), ("tm-near", near), ("tm-bad", bad)) if wanted)
    content = (tag("b", escape(text)) if on else escape(text)) + ('<small class="tm-ex">!</small>' if bad else "")
    content += f" {tag('small', escape(below))}" if below else ""
    ink = f";color:{theme.ink_on(colour)}" if content else ""
    return tag("td", content, class_=classes or None, style=f"background:{colour}{ink}", title=title)


def strip_html(report: TensorReport, picture: Picture) -> str:
    """Return the storage strip: which elements are read, in which order, and which are skipped."""
    strip = picture.strip
    if strip is None or not strip.cells:
        return ""
    small = len(strip.cells) <= STRIP_TABLE_CELLS
    table = _strip_table(report, picture, strip) if small else _strip_map(report, picture, strip)
    note = strip_shown(report)
    return tag("div", table, tag("p", "Storage: ", escape(note), class_="quiet") if note else "", class_="tm-strip-box")


def _strip_table(report: TensorReport, picture: Picture, strip: Strip) -> str:
    values = picture.strip_values
    marks = picture.bad_offsets() if strip.cell_elements == 1 else {}
    chosen = None if picture.offset is None else picture.strip_cell(picture.offset)
    cells = [
        _strip_cell(picture, cell, values.get(cell.start, ""), on=at == chosen, bad=marks.get(cell.start, ""))
        for at, cell in enumerate(strip.cells)
    ]
    title = "value" if values else "storage"
    rows = [
        tag("tr", tag("th", title), *cells, class_="tm-strip"),
        _offset_row(strip, chosen),
        _base_row(report, strip),
    ]
    labels = max(78, round(text_width(_rows_title(report, strip), 12)) + 10)
    width = labels + STRIP_CELL * len(strip.cells)
    often = max(len(_often(cell)) for cell in strip.cells)
    wide = max(LEAST_NUMBERED, 8 + 7 * (max(map(len, values.values())) + often)) if values else LEAST_CELL
    least = labels + wide * len(strip.cells)  # narrower, it scrolls
    width = max(width, least)
    columns = tag("colgroup", f'<col style="width:{labels}px">', f'<col span="{len(strip.cells)}">')
    return tag(
        "table",
        columns,
        *rows,
        class_="tm-cells tm-storage",
        style=f"width:100%;min-width:{least}px;max-width:{width}px",
    )


def _strip_cell(picture: Picture, cell: StripCell, text: str, *, on: bool, bad: str) -> str:
    share, title = share_read(cell), cell_title(cell)
    if share == 0:
        return tag("td", class_="tm-skip", style=UNREAD, title=title)
    colour = picture.cell_colour(cell) or theme.OTHER_SLICE
    if share is None or share == 1:
        return _cell(text, colour, title=title, on=on, bad=bad, below=_often(cell))
    fill = f'<div style="height:{max(round(STRIP_HEIGHT * share), LEAST_FILL)}px;background:{colour}"></div>'
    return tag("td", fill, class_="tm-skip tm-part" + (" tm-on" if on else ""), title=title)


def _often(cell: StripCell) -> str:
    """Return how often an element is read that is read more than once."""
    several = cell.reads is not None and cell.reads > 1 and cell.stop == cell.start + 1
    return f"{TIMES}{short_count(cell.reads or 0)}" if several else ""


def cell_title(cell: StripCell) -> str:
    """Return which storage elements a strip cell stands for, and how many of them are read."""
    size = cell.stop - cell.start
    where = f"offset {count(cell.start)}" if size == 1 else f"{count(cell.start)} to {count(cell.stop - 1)}"
    if cell.distinct is None:
        return f"{where}: reads not counted"
    if cell.distinct == 0:
        return f"{where}: not read"
    if size > 1:
        return f"{where}: {'all' if cell.distinct == size else f'{count(cell.distinct)} of {count(size)}'} read"
    return f"{where}: read" + (f" {count(cell.reads)} times" if cell.reads and cell.reads > 1 else "")


def _offset_row(strip: Strip, chosen: int | None) -> str:
    every = _label_step(strip)
    cells = []
    for at in range(0, len(strip.cells), every):
        span = min(every, len(strip.cells) - at)
        on = chosen is not None and every == 1 and at == chosen
        text = count(strip.cells[at].start) if span == every or at == 0 else ""
        text = tag("b", text) if on else text
        cells.append(tag("td", text, colspan=span if span > 1 else None, class_="tm-on" if on else None))
    return tag("tr", tag("th", "offset"), *cells, class_="tm-offsets" + (" tm-sparse" if every > 1 else ""))


def _label_step(strip: Strip) -> int:
    widest = 7 * len(count(strip.cells[-1].start)) + 4
    room = min(STRIP_WIDTH / len(strip.cells), STRIP_CELL)
    return max(1, -(-widest // int(max(room, 1))))


def _base_row(report: TensorReport, strip: Strip) -> str:
    spans = base_rows(report, strip)
    if not spans:
        return ""
    cells = [tag("td", escape(label), colspan=span) for label, span in spans]
    return tag("tr", tag("th", escape(_rows_title(report, strip))), *cells, class_="tm-rows")


def _rows_title(report: TensorReport, strip: Strip) -> str:
    """Return what the brackets under the strip are; nothing where there are none, or one that says so itself."""
    spans = base_rows(report, strip)
    if not spans or (len(spans) == 1 and spans[0][0] == strip.row_name):
        return ""
    return f"rows of {shortened(strip.row_name, 16)}"


def base_rows(report: TensorReport, strip: Strip) -> list[tuple[str, int]]:
    """Return label and width in cells of each row of the base tensor under the strip, where there are few enough."""
    length = strip.row_length
    if not length or not strip.row_name or strip.cell_elements > 1:
        return []
    rows = range(strip.start // length, -(-strip.stop // length))
    if len(rows) > MOST_ROW_LABELS:
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


def _strip_map(report: TensorReport, picture: Picture, strip: Strip) -> str:
    columns = [_column(picture, cell) for cell in strip.cells]
    source = svg_paths.heatmap([list(row) for row in zip(*columns, strict=True)], (*PALETTE, theme.OTHER_SLICE), size=3)
    size = f'width="{3 * len(columns)}" height="24" style="width:100%;height:24px"'
    sentence = escape(strip_alternative(report, strip))
    image = f'<img src="{source}" {size} alt="{sentence}">'
    ends = tag("span", count(strip.start)) + " " + tag("span", count(strip.stop - 1))
    return tag("div", tag("div", image, class_="tm-map", data_kind="strip"), tag("div", ends, class_="tm-ends"))


def _column(picture: Picture, cell: StripCell) -> list[int]:
    share = share_read(cell)
    filled = MAP_ROWS if share is None else round(share * MAP_ROWS) or (1 if share else 0)
    inside = picture.cell_colour(cell) is not None
    middle = (cell.start + cell.stop - 1) // 2
    colour = round(fraction(middle, picture.low, picture.high) * (LEVELS - 1)) if inside else LEVELS
    return [svg_paths.PLUS_INFINITY] * (MAP_ROWS - filled) + [colour] * filled
