"""Heatmaps of grids too large for a table: a PNG inside axes that are text, by storage offset and by value.

The pixels say where, the text around them says what of what; the viewer lays its ring over them.
"""

from __future__ import annotations

import math

from tensormagic.renderers.alternatives.tensor_alternative import offsets_alternative, values_alternative
from tensormagic.renderers.basics import svg_paths, theme
from tensormagic.renderers.basics.markup import escape, tag
from tensormagic.renderers.tensor.tensor_picture import LEVELS, Picture, fraction, share_read, value_range
from tensormagic.reports import Grid, StripCell, TensorReport
from tensormagic.words import MINUS, count, short_number

MAP_SIDE = 192  # pixels along the longer side of a map
LEAST_HEIGHT = 22  # pixels that a map of a single row is high
CELL_LIMITS = (3, 14)  # pixels along the side of a cell

SWATCHES = {"tm-skip": theme.role("skip"), "tm-other": theme.OTHER_SLICE}

PALETTE = tuple(theme.offset_colour(at / (LEVELS - 1)) for at in range(LEVELS))


def cell_size(grid: Grid) -> int:
    """Return the side of a map's cell in pixels."""
    smallest, largest = CELL_LIMITS
    return min(max(MAP_SIDE // max(len(grid.rows), len(grid.columns), 1), smallest), largest)


def maps_html(report: TensorReport, picture: Picture) -> str:
    """Return the maps of a large grid: by value where values could be read, and by storage offset."""
    drawn, scale = [], value_range(picture.grid, report.statistics)
    if scale is not None:
        sentence = values_alternative(report, picture, scale)
        drawn.append(_map(picture, value_cells(picture.grid, scale), "value", "value", sentence))
    sentence = offsets_alternative(report, picture)
    drawn.append(_map(picture, _offset_cells(picture), "offset", "storage offset", sentence))
    return tag("div", *drawn, class_="tm-maps")


def _map(picture: Picture, cells: list[list[int]], kind: str, caption: str, alternative: str) -> str:
    grid, size = picture.grid, cell_size(picture.grid)
    image = tag(
        "img",
        src=svg_paths.heatmap(cells, PALETTE, size=size),
        width=len(grid.columns) * size,
        height=max(len(grid.rows) * size, LEAST_HEIGHT),
        alt=alternative,
    )
    top = tag("td", _axis(grid.columns, _letter(picture, grid.column_dim)), class_="tm-across")
    rows = grid.rows if grid.row_dim is not None else ()
    left = tag("td", _axis(rows, _letter(picture, grid.row_dim)), class_="tm-down")
    body = tag("td", tag("div", image.removesuffix("</img>"), class_="tm-map", data_kind=kind))
    head = tag("caption", escape(caption))
    return tag("table", head, tag("tr", "<td></td>", top), tag("tr", left, body), class_="tm-axes")


def _letter(picture: Picture, dim: int | None) -> str:
    return "" if dim is None else picture.layout.dim_names[dim]


def _axis(at: tuple[int, ...], letter: str) -> str:
    ends = (str(at[0]) if at else "", letter, str(at[-1]) if len(at) > 1 else "")
    return tag("div", *(tag("span", escape(text)) + " " for text in ends))


def _offset_cells(picture: Picture) -> list[list[int]]:
    return [[_step(fraction(at, picture.low, picture.high)) for at in row] for row in picture.grid.offsets]


def value_cells(grid: Grid, scale: tuple[float, float]) -> list[list[int]]:
    """Return the place in the palette of each value shown, or its sign for what is no finite number."""
    return [[_value_cell(level, scale) for level in row] for row in grid.levels]


def _value_cell(level: float, scale: tuple[float, float]) -> int:
    if math.isnan(level):
        return svg_paths.NOT_A_NUMBER
    if math.isinf(level):
        return svg_paths.PLUS_INFINITY if level > 0 else svg_paths.MINUS_INFINITY
    return _step(fraction(level, *scale))


def _step(share: float) -> int:
    return round(share * (LEVELS - 1))


def legend_html(report: TensorReport, picture: Picture) -> str:
    """Return the colour scales, and what hatching and corner marks stand for."""
    rows = [_scale("offset", count(picture.low), count(picture.high))]
    if picture.strip is not None and any(_elsewhere(picture, cell) for cell in picture.strip.cells):
        rows.append(_swatch("tm-other", "", "read in another slice"))
    scale = None if picture.as_table else value_range(picture.grid, report.statistics)
    if scale is not None:
        rows.append(_value_scale(picture.grid, scale))
    rows += _marks(picture)
    return tag("div", *rows, class_="tm-legend")


def _elsewhere(picture: Picture, cell: StripCell) -> bool:
    return cell.distinct != 0 and picture.cell_colour(cell) is None


def _scale(title: str, low: str, high: str) -> str:
    bar = svg_paths.heatmap([list(range(LEVELS))], PALETTE, size=5)
    image = f'<img src="{bar}" width="{5 * LEVELS}" height="10" alt="dark to light">'
    return tag("p", escape(f"{title} {low} "), image, escape(f" {high}"))


def _value_scale(grid: Grid, scale: tuple[float, float]) -> str:
    finite = [level for row in grid.levels for level in row if math.isfinite(level)]
    low = ("\u2264 " if min(finite) < scale[0] else "") + short_number(scale[0])
    high = ("\u2265 " if max(finite) > scale[1] else "") + short_number(scale[1])
    return _scale("value", low, high)


def _marks(picture: Picture) -> list[str]:
    unread = picture.strip is not None and any(cell.distinct == 0 for cell in picture.strip.cells)
    partly = picture.strip is not None and any(share_read(cell) not in {None, 0, 1} for cell in picture.strip.cells)
    label = "not read; a bar's height is the share that is read" if partly else "not read"
    rows = [_swatch("tm-skip", "", label)] if unread or partly else []
    if picture.as_table:
        kinds = sorted(set(picture.bad_offsets().values()), reverse=True)
        return [*rows, _swatch("tm-corner", "!", " or ".join(kinds))] if kinds else rows
    found = {cell for row in value_cells(picture.grid, (0.0, 0.0)) for cell in row if cell < 0}
    names = {svg_paths.NOT_A_NUMBER: "NaN", svg_paths.PLUS_INFINITY: "+Inf", svg_paths.MINUS_INFINITY: MINUS + "Inf"}
    return rows + [_hatching(kind, label) for kind, label in names.items() if kind in found]


def _swatch(class_: str, text: str, label: str) -> str:
    colour = SWATCHES.get(class_)
    style = f"background-color:{colour}" if colour else None
    return tag("p", tag("span", text or "&nbsp;" * 3, class_=f"tm-swatch {class_}", style=style), " ", escape(label))


def _hatching(kind: int, label: str) -> str:
    source = svg_paths.heatmap([[kind]], PALETTE, size=15)
    image = f'<img class="tm-swatch" src="{source}" width="15" height="10" alt="hatched">'
    return tag("p", image, " ", escape(label))
