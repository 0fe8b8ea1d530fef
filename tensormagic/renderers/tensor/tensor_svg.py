"""The layout picture of a tensor as one standalone SVG file: grid, formula, wire, strip, on an opaque light card.

A picture that leaves the notebook cannot see its theme, so it brings its own paper. No script, no outside font, no
reference: it opens in a browser, an editor and a slide alike.
"""

from __future__ import annotations

import math
import textwrap
from itertools import groupby

from tensormagic.renderers.alternatives.tensor_alternative import offsets_alternative
from tensormagic.renderers.basics import theme
from tensormagic.renderers.basics.markup import escape, tag
from tensormagic.renderers.tensor.kind_svg import kinds_svg
from tensormagic.renderers.tensor.statistics_words import answer
from tensormagic.renderers.tensor.tensor_layout_html import TWO_LINES, base_rows, cell_title
from tensormagic.renderers.tensor.tensor_maps import cell_size
from tensormagic.renderers.tensor.tensor_picture import (
    Picture,
    fraction,
    index_at,
    picture_of,
    share_read,
)
from tensormagic.renderers.tensor.tensor_words import (
    badges,
    element,
    formula,
    formula_at,
    name,
    shape,
    shown,
    size_in_memory,
    strip_shown,
    worked_example,
)
from tensormagic.renderers.terminal.text_canvas import printable
from tensormagic.reports import Strip, StripCell, TensorReport
from tensormagic.words import count, shortened

WIDTH, MARGIN, LABELS = 860, 16, 78
ROW, TALL_ROW, STRIP_HEIGHT, TOP = 20, 28, 22, 64
MOST_LINES = 12  # of text beside a grid
CELL_WIDTH = 46.0  # pixels that a cell with a number is wide at most
CHARACTER = 6.7  # pixels a character of the 11 px code face is wide
INK, QUIET, LINE, FRAME, PAPER = map(theme.role, ("ink", "ink-2", "line-2", "line", "bg"))
STYLE = theme.inked(
    "text{font:11px ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;fill:$ink}"
    ".s{font-size:8.5px}.q{fill:$ink-2}.b{font-weight:600}.e{text-anchor:end}.c{text-anchor:middle}.f{font-size:13px}"
)
HATCH = theme.inked(
    '<defs><pattern id="unread" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    '<rect width="5" height="5" fill="$skip"/><path d="M0 0V5" stroke="$hatch" stroke-width="1.2"/></pattern></defs>'
)


def render(report: TensorReport) -> str:
    """Return the picture as a complete SVG document; for a tensor without a layout, its header and the reason."""
    picture = picture_of(report)
    if picture is None and any(kind.label for kind in report.kinds):
        body, bottom = kinds_svg(report, TOP)
        return _document(report, body, bottom)
    if picture is None or not picture.drawable:
        reason = "; ".join(f"{gap.section}: {gap.reason}" for gap in report.gaps) or "there are no elements to draw"
        return _document(report, _text(MARGIN, TOP, shortened(reason, 110), "q"), TOP + 20)
    height = _grid_top(picture) + _row_height(picture) * len(picture.grid.rows)
    height = max(height, TOP + 96) if picture.as_table else max(height, TOP + 17 * MOST_LINES)
    strip_top = height + 26
    body = _grid(report, picture) + _reading(report, picture) + _strip(report, picture, strip_top)
    bottom = strip_top + STRIP_HEIGHT + _below(report, picture)
    remarks = _text(MARGIN + LABELS, bottom - 12, _remarks(report, picture), "q") if _remarks(report, picture) else ""
    return _document(report, body + _wire(picture, strip_top) + remarks, bottom)


def _below(report: TensorReport, picture: Picture) -> float:
    rows = 18 if picture.strip is not None and base_rows(report, picture.strip) else 0
    return 28 + rows + (18 if _remarks(report, picture) else 0)


def _document(report: TensorReport, body: str, height: float) -> str:
    picture = picture_of(report)
    described = f" {offsets_alternative(report, picture)}" if picture is not None and picture.drawable else ""
    title = f"Layout of {name(report)} {shape(report)}.{described}"
    card = f'<rect width="{WIDTH}" height="{height:g}" rx="4" fill="{PAPER}" stroke="{FRAME}"/>'
    parts = [f"<title>{_safe(title)}</title><style>{STYLE}</style>", HATCH, card, _heading(report), body]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" width="{WIDTH}" height="{height:g}" '
        f'role="img">{"".join(parts)}</svg>'
    )


def _heading(report: TensorReport) -> str:
    facts = [report.role, " ".join(size_in_memory(report)).strip(), *badges(report)]
    values = " ".join(f"{label} {number}" for label, number, _ in answer(report.statistics))
    first = f"{name(report)} {shape(report)} {report.dtype} {report.device}"
    second = " \u00b7 ".join(shortened(fact, 60) for fact in (values, *facts) if fact)
    return _text(MARGIN, 25, first, "b f") + _text(MARGIN, 43, shortened(second, 120), "q")


def _text(x: float, y: float, text: str, class_: str = "") -> str:
    return tag("text", _safe(text), x=f"{x:g}", y=f"{y:g}", class_=class_ or None)


def _safe(text: str) -> str:
    """Escape text for XML, which knows no escape for control characters: they are replaced."""
    return escape(printable(text))


def _rect(box: tuple[float, float, float, float], fill: str, *, title: str = "", stroke: str = PAPER) -> str:
    x, y, width, height = (f"{number:g}" for number in box)
    inner = tag("title", _safe(title)) if title else ""
    return tag("rect", inner, x=x, y=y, width=width, height=height, fill=fill, stroke=stroke)


def _grid_top(picture: Picture) -> float:
    return TOP if picture.grid.column_dim is None else TOP + 12


def _row_height(picture: Picture) -> float:
    if not picture.as_table:
        return cell_size(picture.grid)
    return TALL_ROW if picture.grid.values and len(picture.grid.rows) <= TWO_LINES else ROW


def _cell_width(picture: Picture) -> float:
    if not picture.as_table:
        return cell_size(picture.grid)
    widest = max(len(text) for row in range(len(picture.grid.rows)) for text in _texts(picture, row))
    return min(max(widest * CHARACTER + 12, 30), max(CELL_WIDTH, widest * CHARACTER + 6))


def _texts(picture: Picture, row: int) -> list[str]:
    """Return what stands large in the cells of a row: values, or offsets where values could not be read."""
    offsets = enumerate(picture.grid.offsets[row])
    return [picture.cell_value(row, column) or str(offset) for column, offset in offsets]


def _cell_box(picture: Picture, row: int, column: int) -> tuple[float, float, float, float]:
    width, height = _cell_width(picture), _row_height(picture)
    return MARGIN + LABELS + column * width, _grid_top(picture) + row * height, width, height


def _grid(report: TensorReport, picture: Picture) -> str:
    grid = picture.grid
    if not picture.as_table:
        return _map(picture) + _grid_labels(picture) + _ring(_chosen_box(picture))
    places = [(row, column) for row in range(len(grid.rows)) for column in range(len(grid.columns))]
    cells = [_grid_cell(report, picture, row, column) for row, column in places]
    return "".join(cells) + _grid_labels(picture) + _ring(_chosen_box(picture))


def _map(picture: Picture) -> str:
    """A large grid as one path a colour, neighbours in a row joined: a tenth of a rectangle a cell."""
    paths: dict[str, list[str]] = {}
    for row in range(len(picture.grid.rows)):
        fills = [_map_fill(picture, row, column) for column in range(len(picture.grid.columns))]
        for fill, run in groupby(range(len(fills)), key=fills.__getitem__):
            columns = list(run)
            x, y, width, height = _cell_box(picture, row, columns[0])
            across = f"{width * len(columns):.4g}"
            paths.setdefault(fill, []).append(f"M{x:.5g} {y:.5g}h{across}v{height:.4g}h-{across}z")
    shapes = (f'<path fill="{fill}" d="{"".join(runs)}"/>' for fill, runs in paths.items())
    return tag("g", *shapes, shape_rendering="crispEdges")


def _map_fill(picture: Picture, row: int, column: int) -> str:
    if picture.bad(row, column):
        return "url(#unread)"
    share = fraction(picture.grid.offsets[row][column], picture.low, picture.high)
    return theme.offset_colour(round(share * 31) / 31)


def _chosen_box(picture: Picture) -> tuple[float, float, float, float]:
    return _cell_box(picture, picture.row or 0, picture.column or 0)


def _grid_cell(report: TensorReport, picture: Picture, row: int, column: int) -> str:
    offset, box = picture.grid.offsets[row][column], _cell_box(picture, row, column)
    colour, bad = picture.colour(offset), picture.bad(row, column)
    value = picture.value(row, column)
    title = element(report, index_at(picture.grid, row, column)) + (f" = {value}" if value else "")
    text = _on_colour(box, picture.cell_value(row, column) or str(offset), colour)
    if _row_height(picture) == TALL_ROW:
        x, y, width, _ = box
        text = _on_colour((x, y - 1, width, ROW), picture.cell_value(row, column), colour)
        text += _on_colour((x, y + 14, width, 12), str(offset), colour, "c s")
    return _rect(box, colour, title=f"{title}, offset {offset}") + text + (_corner(box, colour) if bad else "")


def _on_colour(box: tuple[float, float, float, float], text: str, colour: str, class_: str = "c") -> str:
    x, y, width, height = box
    middle, base = f"{x + width / 2:g}", f"{y + height / 2 + 4:g}"
    return f'<text class="{class_}" x="{middle}" y="{base}" style="fill:{theme.ink_on(colour)}">{_safe(text)}</text>'


def _corner(box: tuple[float, float, float, float], colour: str) -> str:
    x, y, width, _ = box
    return f'<path d="M{x + width - 9:g} {y + 1:g}h8v8z" fill="{theme.ink_on(colour)}"/>'


def _ring(box: tuple[float, float, float, float]) -> str:
    x, y, width, height = box
    place = f'x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" fill="none"'
    return f'<rect {place} stroke="{PAPER}" stroke-width="4.5"/><rect {place} stroke="{INK}" stroke-width="2"/>'


def _grid_labels(picture: Picture) -> str:
    grid, names, labels = picture.grid, picture.layout.dim_names, []
    for column in _labelled(len(grid.columns), every=picture.as_table) if grid.column_dim is not None else ():
        x, y, width, _ = _cell_box(picture, 0, column)
        text = f"{names[grid.column_dim or 0]}={grid.columns[column]}"
        labels.append(_text(x + width / 2, y - 5, text, "c b" if column == picture.column else "c q"))
    for row in _labelled(len(grid.rows), every=picture.as_table) if grid.row_dim is not None else ():
        x, y, _, height = _cell_box(picture, row, 0)
        text = f"{names[grid.row_dim or 0]}={grid.rows[row]}"
        labels.append(_text(x - 8, y + height / 2 + 4, text, "e b" if row == picture.row else "e q"))
    return "".join(labels)


def _labelled(length: int, *, every: bool) -> tuple[int, ...]:
    return tuple(range(length)) if every else tuple(sorted({0, length - 1}))


def _reading(report: TensorReport, picture: Picture) -> str:
    left = MARGIN + LABELS + _cell_width(picture) * len(picture.grid.columns) + 24
    room = int((WIDTH - MARGIN - left) / CHARACTER)
    lines = [(formula(picture.layout), "q"), (formula_at(picture.layout, picture.index), "b")]
    lines += [(note, "q") for note in worked_example(report, picture)]
    part = shown(report)
    lines += [(f"showing {piece}", "q") for piece in (part.split("; ") if part else ())]
    wrapped = [(piece, style) for text, style in lines for piece in textwrap.wrap(text, room, subsequent_indent="  ")]
    return "".join(
        _text(left, TOP + 12 + 17 * at, text, style) for at, (text, style) in enumerate(wrapped[:MOST_LINES])
    )


def _strip(report: TensorReport, picture: Picture, top: float) -> str:
    strip = picture.strip
    if strip is None or not strip.cells:
        return ""
    values = picture.strip_values
    title = "value" if values else "storage"
    parts = [_text(MARGIN + LABELS - 8, top + 15, title, "e q"), _text(MARGIN + LABELS - 8, top + 37, "offset", "e q")]
    bad = picture.bad_offsets() if strip.cell_elements == 1 else {}
    for at, cell in enumerate(strip.cells):
        box = _strip_box(strip, at, top)
        parts.append(_strip_cell(picture, cell, box))
        if cell.distinct and values.get(cell.start):
            parts.append(_on_colour(box, values[cell.start], picture.cell_colour(cell) or theme.OTHER_SLICE))
        if cell.start in bad:
            parts.append(_corner(box, picture.cell_colour(cell) or theme.OTHER_SLICE))
    chosen = None if picture.offset is None else picture.strip_cell(picture.offset)
    parts += [_strip_labels(strip, top), _base_rows(report, strip, top)]
    return "".join(parts) + ("" if chosen is None else _ring(_strip_box(strip, chosen, top)))


def _strip_box(strip: Strip, at: int, top: float) -> tuple[float, float, float, float]:
    width = min((WIDTH - 2 * MARGIN - LABELS) / len(strip.cells), CELL_WIDTH)
    return MARGIN + LABELS + at * width, top, width, STRIP_HEIGHT


def _strip_cell(picture: Picture, cell: StripCell, box: tuple[float, float, float, float]) -> str:
    share, colour = share_read(cell), picture.cell_colour(cell) or theme.OTHER_SLICE
    share = 1.0 if share is None else share
    x, y, width, height = box
    ground = _rect(box, "url(#unread)", title=cell_title(cell), stroke=FRAME) if share < 1 else ""
    filled = height * share
    front = _rect((x, y + height - filled, width, filled), colour, title=cell_title(cell)) if share > 0 else ""
    return ground + front


def _strip_labels(strip: Strip, top: float) -> str:
    widest = len(count(strip.stop)) * CHARACTER + 8
    every = max(1, math.ceil(widest / _strip_box(strip, 0, top)[2]))
    boxes = ((at, _strip_box(strip, at, top)) for at in range(0, len(strip.cells), every))
    room = WIDTH - MARGIN + 8 - widest / 2
    return "".join(
        _text(x + w / 2, top + 37, count(strip.cells[at].start), "c q") for at, (x, _, w, _) in boxes if x <= room
    )


def _base_rows(report: TensorReport, strip: Strip, top: float) -> str:
    parts, at, width = [], 0, _strip_box(strip, 0, top)[2]
    for label, span in base_rows(report, strip):
        left, right = (MARGIN + LABELS + edge * width for edge in (at, at + span))
        parts.append(f'<path d="M{left + 2:g} {top + 42:g}v4H{right - 2:g}v-4" fill="none" stroke="{LINE}"/>')
        room = max(int(span * width / CHARACTER), 4)
        parts.append(_text((left + right) / 2, top + 58, shortened(label, room), "c q"))
        at += span
    return "".join(parts)


def _remarks(report: TensorReport, picture: Picture) -> str:
    notes = [strip_shown(report)]
    if not picture.as_table and picture.bad_offsets():
        notes.append("hatched in the grid: NaN or Inf")
    if picture.strip is not None and any(share_read(cell) == 0 for cell in picture.strip.cells):
        notes.append("hatched in the strip: not read")
    return "; ".join(note for note in notes if note)


def _wire(picture: Picture, top: float) -> str:
    chosen = None if picture.offset is None else picture.strip_cell(picture.offset)
    if chosen is None or picture.strip is None:
        return ""
    x, y, cell_width, cell_height = _chosen_box(picture)
    edge = MARGIN + LABELS + _cell_width(picture) * len(picture.grid.columns) + 10
    left, _, cell, _ = _strip_box(picture.strip, chosen, top)
    end = left + cell / 2
    path = f"M{x + cell_width:g} {y + cell_height:g}H{edge:g}V{top - 16:g}H{end:g}V{top - 4:g}"
    strokes = ((PAPER, "4"), (INK, "1.25"))
    line = "".join(f'<path d="{path}" fill="none" stroke="{ink}" stroke-width="{width}"/>' for ink, width in strokes)
    return line + f'<path d="M{end - 4:g} {top - 8:g}h8l-4 7z" fill="{INK}"/>'
