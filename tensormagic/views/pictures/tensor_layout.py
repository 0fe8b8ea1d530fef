"""The layout picture of a tensor: index grid, formula and storage strip, one element worked through; and its viewer.

Tables with inline colours and the numbers in their cells are what every host shows, sanitised ones too. One element
is worked through in the static page; the viewer, where scripts run, lets any other take its place.
"""

from __future__ import annotations

import json
import math
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from tensormagic.reports import TensorReport
from tensormagic.views import theme
from tensormagic.views.markup import escape, json_block, packed, tag
from tensormagic.views.nodes import Picture
from tensormagic.views.pictures import cells as drawing, tensor_elements as elements, tensor_grid
from tensormagic.views.pictures.cells import CHARACTER, INK, NOT_FINITE, PAPER, Box
from tensormagic.views.pictures.tensor_elements import ELEMENT_WORDS, DrawnLayout
from tensormagic.views.svg_paths import number
from tensormagic.views.text_canvas import Canvas
from tensormagic.views.theme import code_of, loader
from tensormagic.words import count, shortened

_GUTTER = 9  # columns of a terminal at the left of a formula
_MOST_LINES, _LINE = 12, 17.0  # of text beside the grid of the SVG; pixels that one is high
_LEAST_ROOM = 28  # characters beside the grid of the SVG; where there is less, the text stands below it
_MOST_CHARACTERS = 30_000  # of values of other slices; a panel stays under 100 KB
_MOST_PLAIN = 1000  # characters for the viewer that stand there as they are; more are packed
_STOPS = 10  # colours between which the viewer draws the scale
_MOST_SHOWN = 32  # rows and columns of a slice, evenly chosen where there are more
_VALUE_WIDTH = 24  # characters of a value in the viewer


@dataclass(frozen=True, slots=True)
class LayoutPicture(Picture):
    """Where the elements of a tensor lie in its storage."""

    report: TensorReport
    drawn: DrawnLayout

    @property
    def sentence(self) -> str:
        """What is drawn of the storage offsets, and how they walk."""
        empty = "Nothing to draw: the tensor is empty."
        return tensor_grid.offsets_sentence(self.report, self.drawn) if self.drawn.drawable else empty

    def html(self) -> str:
        """Return the grid, the formula, the legend, the strip, and the viewer."""
        report, drawn, title = self.report, self.drawn, tag("h3", "Layout")
        layout, general = drawn.layout, tag("code", escape(elements.formula(drawn.layout)))
        if not drawn.drawable:
            return tag("div", title, tag("p", self.sentence, " ", general), class_="tm-layout")
        filled = tag("b", tag("code", escape(elements.formula(layout, drawn.index))))
        notes = "<br>".join(escape(note) for note in elements.worked_example(report, drawn))
        part, steps, legend = elements.shown(report), elements.jumps(report), _legend(report, drawn)
        lines = (
            (general if drawn.index else "", "quiet tm-formula"), (filled, "tm-formula tm-now"),
            (notes, "quiet tm-notes"),
            (tag("b", ELEMENT_WORDS["showing"]) + escape(part) if part else "", "tm-shown"),
            (escape(steps), "quiet tm-jumps"),
        )  # fmt: skip
        reading = tag("div", *(tag("p", line, class_=look) for line, look in lines if line), class_="tm-read")
        if drawn.as_table:
            top = tensor_grid.grid_cells(report, drawn).html("tm-grid") + reading + legend
        else:
            top = tensor_grid.maps_html(report, drawn) + tag("div", legend, reading, class_="tm-side")
        picture = tag(
            "div", tag("div", top, class_="tm-top"), tensor_grid.strip_html(report, drawn), class_="tm-picture"
        )
        return tag("div", title, picture, class_="tm-layout") + _viewer(report, drawn)

    def text(self, width: int) -> Iterator[str]:
        """Return grid, strip and the wire between them, or a sample of a large grid."""
        report, drawn = self.report, self.drawn
        if not drawn.drawable:
            yield from (" LAYOUT  nothing to draw: the tensor is empty", f"         {elements.formula(drawn.layout)}")
            return
        canvas, notes, general = Canvas(), elements.worked_example(report, drawn), elements.formula(drawn.layout)
        filled = elements.formula(drawn.layout, drawn.index)
        canvas.put(0, 1, "LAYOUT")
        cells = tensor_grid.grid_cells(report, drawn) if drawn.as_table else None
        grid = cells.framed(width // 2) if cells is not None else None
        end = 0
        if cells is not None and grid is not None:
            inner, left, wide = grid
            _put(canvas, 1 + (drawn.grid.column_dim is None), inner.lines())
            end = left + (wide + 1) * cells.columns + 1
            for at, words in enumerate((general, filled if drawn.index else "", notes[0])):
                canvas.put(at, max(end + 3, _GUTTER), words)
        else:  # the formula, and a few rows and columns of a large grid
            sample = tensor_grid.thinned(drawn.grid)
            part = elements.shown(replace(report, layout=replace(drawn.layout, grid=sample)))
            what = "values" if sample.values else "storage offsets"
            texts = (general, filled, f"{what} of {part}" if part else what)
            lines = (line for words in texts for line in textwrap.wrap(words, width - 10, subsequent_indent="  "))
            for at, line in enumerate(lines):
                canvas.put(at, _GUTTER, line)
            _put(canvas, canvas.height, tensor_grid.sample_lines(drawn, sample))
        top = canvas.height
        strip, target, note = tensor_grid.strip_text(report, drawn, width)
        _put(canvas, top, strip.lines())
        if end and target:  # the line from beside the element that is worked through to its place in the strip
            line_ = 3 + drawn.row
            down = target > end
            canvas.put(line_, end, "\u2500" * (target - end) + "\u2510" if down else f" \u25c4 offset {drawn.offset}")
            for below in range(line_ + 1, top) if down else ():
                canvas.put(below, target, "\u25bc" if below == top - 1 else "\u2502")
        yield from canvas.lines()
        showing = ELEMENT_WORDS["showing"] + elements.shown(report) if end and elements.shown(report) else ""
        for line in filter(None, (note, *notes[bool(end) :], elements.jumps(report), showing)):
            yield from textwrap.wrap(line, width - 1, initial_indent=" ", subsequent_indent="   ")

    def svg(self, width: float) -> tuple[str, float]:
        """Return grid, formula, wire and strip."""
        report, drawn, strip = self.report, self.drawn, self.drawn.strip
        if not drawn.drawable:
            return drawing.lettered(drawing.text(0, 12, f"{self.sentence} {elements.formula(drawn.layout)}", "q")), 20.0
        grid, chosen, (beside, below) = tensor_grid.grid_svg(report, drawn, width - 24)
        part = elements.shown(report)
        said = [(elements.formula(drawn.layout), "q"), (elements.formula(drawn.layout, drawn.index), "b")]
        said += [(note, "q") for note in elements.worked_example(report, drawn)]
        said += [(f"showing {piece}", "q") for piece in (part.split("; ") if part else ())]
        room, left, first = int((width - beside - 24) / CHARACTER), beside + 24, 12.0
        if room < _LEAST_ROOM:
            room, left, first = int(beside / CHARACTER), 0.0, below + 12 + _LINE
        pieces = [(piece, style) for words, style in (*said, (elements.jumps(report), "q"))
                  for piece in textwrap.wrap(words, room, subsequent_indent="  ")][:_MOST_LINES]  # fmt: skip
        parts = [grid, *(drawing.text(left, first + _LINE * at, *piece) for at, piece in enumerate(pieces))]
        top = max(below, first + _LINE * len(pieces)) + 26
        bottom, notes = top, [elements.strip_shown(report)]
        if strip is not None and strip.cells:
            cells = tensor_grid.strip_cells(report, drawn, strip, width)
            parts.append(cells.svg(top))
            bottom += cells.height
            if drawn.chosen is not None:
                parts.append(_wire(chosen, cells.box(0, drawn.chosen, top), beside + 10))
        if not drawn.as_table and drawn.bad_offsets():
            notes.append("hatched in the grid: NaN or Inf")
        if strip is not None and any(elements.share_read(each) == 0 for each in strip.cells):
            notes.append("hatched in the strip: not read")
        remarks = "; ".join(filter(None, notes))
        parts += [drawing.text(0, bottom + 14, remarks, "q")] if remarks else []
        return drawing.lettered("".join(parts)), bottom + (20 if remarks else 4)


def _put(canvas: Canvas, top: int, lines: Iterable[str]) -> None:
    for at, line in enumerate(lines):
        canvas.put(top + at, 0, line)


def _wire(chosen: Box, cell: Box, edge: float) -> str:
    """Return the line from the element that is worked through to its place in the strip of the SVG."""
    x, y, width, height = chosen
    end, top = cell[0] + cell[2] / 2, cell[1]
    path = f"M{number(x + width)} {number(y + height)}H{number(edge)}V{number(top - 16)}H{number(end)}"
    line = "".join(f'<path d="{path}V{number(top - 4)}" fill="none" stroke="{ink}" stroke-width="{thick}"/>'
                   for ink, thick in ((PAPER, "4"), (INK, "1.25")))  # fmt: skip
    return line + f'<path d="M{number(end - 4)} {number(top - 8)}h8l-4 7z" fill="{INK}"/>'


def _legend(report: TensorReport, drawn: DrawnLayout) -> str:
    """Return the colour scales, and what hatching and corner marks stand for."""
    cells = drawn.strip.cells if drawn.strip is not None else ()
    rows = [_scale(ELEMENT_WORDS["offset"], count(drawn.low), count(drawn.high))]
    if any(each.distinct != 0 and drawn.cell_colour(each) is None for each in cells):
        rows.append(tag("p", drawing.swatch(theme.OTHER_SLICE, "tm-other"), " read in another slice"))
    every = [level for row in drawn.grid.levels for level in row]
    scale = None if drawn.as_table else elements.value_range(drawn.grid, report.statistics)
    if scale is not None:
        finite = list(filter(math.isfinite, every))
        rows.append(_scale(ELEMENT_WORDS["value"], *elements.scale_words(min(finite), max(finite), scale)))
    partly = any(elements.share_read(each) not in {None, 0, 1} for each in cells)
    if partly or any(each.distinct == 0 for each in cells):
        words = "not read; a bar's height is the share that is read" if partly else "not read"
        rows.append(tag("p", drawing.swatch(theme.role("skip"), "tm-skip"), " ", escape(words)))
    if drawn.as_table:
        kinds = sorted(set(drawn.bad_offsets().values()), reverse=True)
        rows += [tag("p", drawing.swatch("", "tm-corner", "!"), " ", " or ".join(kinds))] if kinds else []
    else:
        found = [(label, drawing.image([[sign]], 15, "hatched").replace('height="15"', 'height="10"'))
                 for label, is_one, sign in NOT_FINITE if any(map(is_one, every))]  # fmt: skip
        rows += [tag("p", drawn_.replace("<img ", '<img class="tm-swatch" '), " ", label) for label, drawn_ in found]
    return tag("div", *rows, class_="tm-legend")


def _scale(title: str, low: str, high: str) -> str:
    return tag("p", escape(f"{title} {low} "), drawing.scale_html(), escape(f" {high}"))


def _viewer(report: TensorReport, drawn: DrawnLayout) -> str:
    """Return what lets any element be picked, and other slices be turned to: the data, and the code.

    The data are what the viewer needs to phrase any element as the static page phrases its one.
    """
    layout, grid, strip = drawn.layout, drawn.grid, drawn.strip
    if report.numel == 1 and (strip is None or len(strip.cells) <= 1):
        return ""
    values = [[shortened(words, _VALUE_WIDTH) for words in row] for row in grid.values]
    turning, base = _turning(report, drawn), None
    cells = chain(*(values if drawn.as_table else ()), turning.get("elements") or ())
    if strip is not None and elements.bases_index(report, strip.start):
        shape = next(alias.shape for alias in report.aliases if alias.name == strip.row_name)
        base = {"name": strip.row_name, "shape": shape}
    words = json_block({
        "name": elements.name(report), "shape": layout.shape, "stride": layout.stride, "offset": layout.storage_offset,
        "rows": grid.rows, "columns": grid.columns, "rowDim": grid.row_dim, "columnDim": grid.column_dim,
        "fixed": grid.fixed, "values": values,
        "narrow": {words: short for words in cells if (short := elements.in_cell(words, len(grid.columns))) != words},
        "at": [drawn.row, drawn.column], "base": base,
        "strip": None if strip is None else [strip.start, strip.stop, strip.cell_elements],
        "reads": [] if strip is None else [each.distinct for each in strip.cells],
        "letters": layout.dim_names, "still": elements.still_letters(layout), "readable": bool(grid.values), **turning,
    })  # fmt: skip
    kind, held = ("application/json", words) if len(words) <= _MOST_PLAIN else ("text/plain", packed(words))
    code = code_of("tensor", "tensor_slices.js", mount="mountTensors", words=json.dumps(ELEMENT_WORDS))
    return tag("script", held, type=kind, class_="tm-data") + code + loader()


def _turning(report: TensorReport, drawn: DrawnLayout) -> dict[str, Any]:
    """Return what it takes to turn to other slices: indices to show, colours, and every element of a small one.

    The offsets of other slices follow from the stride. The values of every slice are drawn on one scale, that of the
    whole tensor (outliers cut at 3 std), so that slices can be compared; the viewer says of all that is not carried
    that it is not there.
    """
    if drawn.grid.row_dim is None or drawn.grid.column_dim is None or not elements.is_slice(drawn.layout):
        return {}
    texts = [shortened(words, _VALUE_WIDTH) for words in drawn.layout.elements]
    sizes = [(size, min(size, _MOST_SHOWN)) for size in drawn.layout.shape]
    found, ends = report.statistics, None
    if found is not None and found.minimum is not None and found.maximum is not None:
        low, high = float(found.minimum), float(found.maximum)
        scale = elements.without_outliers(low, high, found)
        ends = (*scale, *elements.scale_words(low, high, scale))
    return {
        "shown": [[at * size // shown for at in range(shown)] for size, shown in sizes],
        "scale": [theme.offset_colour(at / (_STOPS - 1)) for at in range(_STOPS)],
        "black": theme.black_from(),
        "range": ends,
        "elements": texts if texts and sum(map(len, texts)) <= _MOST_CHARACTERS else None,
    }
