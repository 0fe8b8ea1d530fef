"""Rows of coloured cells, of which the pictures of a tensor and of its memory are made: as a table, as SVG, as text.

A picture says once, as `Cells`, which rows there are, what is in each cell and how far it is filled; the three
forms are drawn from that. A map whose cells are too many for words is an image, of the same colours.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby

from tensormagic.reports import Grid
from tensormagic.views import svg_paths, theme
from tensormagic.views.markup import corner, escape, tag
from tensormagic.views.svg_paths import number
from tensormagic.views.text_canvas import Canvas, printable
from tensormagic.words import MINUS, count, listed, short_number, shortened

LEVELS = 24  # colours in a legend and in a map
PALETTE = tuple(theme.offset_colour(at / (LEVELS - 1)) for at in range(LEVELS))
NOT_FINITE: tuple[tuple[str, Callable[[float], bool], int], ...] = (
    ("NaN", math.isnan, svg_paths.NOT_A_NUMBER),
    ("+Inf", lambda level: level == math.inf, svg_paths.PLUS_INFINITY),
    (f"{MINUS}Inf", lambda level: level == -math.inf, svg_paths.MINUS_INFINITY),
)
CHARACTER = 6.7  # pixels that a character of the SVG's code face is wide
INK, LINE, FRAME, PAPER, SKIP = map(theme.role, ("ink", "line-2", "line", "bg", "skip"))
HATCHED = "url(#unread)"
_STYLE = theme.inked(
    ".cells text{font:11px ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;fill:$ink}"
    ".cells .s{font-size:8.5px}.cells .q{fill:$ink-2}.cells .b{font-weight:600}"
    ".cells .e{text-anchor:end}.cells .c{text-anchor:middle}"
)
_HATCH = theme.inked(
    '<defs><pattern id="unread" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    '<rect width="5" height="5" fill="$skip"/><path d="M0 0V5" stroke="$hatch" stroke-width="1.2"/></pattern></defs>'
)
Box = tuple[float, float, float, float]  # left, top, width, height
NOT_READ, FULL = "\u2591", "\u2588"
DENSITY = ("\u2592", "\u2593")  # under half read, half or more
_UNREAD = f"background:{SKIP};color:{theme.role('ink-2')}"
_HEIGHT, _TALL, _HEAD, _BRACKET = 22.0, 28.0, 17.0, 24.0  # pixels of a row
_LEAST_FILL = 4  # pixels of the part of a cell that is read where that is little
_MOST_ROOM = 6  # characters of a cell without a frame


@dataclass(frozen=True, slots=True)
class Cell:
    """A coloured field."""

    text: str = ""  # What is in it.
    colour: str = ""  # Of its ground; without one it is bare.
    title: str = ""  # What pointing at it shows.
    span: int = 1  # How many columns wide it is.
    share: float = 1.0  # How high it is filled, of 1; 0: it is not read, and hatched.
    on: bool = False  # Whether it is the element that is worked through.
    near: bool = False  # Whether it is that element, at another index.
    bad: bool = False  # Whether it holds NaN or infinity.
    below: str = ""  # A small text below.
    look: str = ""  # Style class of a page.


@dataclass(frozen=True, slots=True)
class Row:
    """A row of cells, or of words above or below one: ``"heads"``, or ``"brackets"`` around several columns."""

    label: str  # What is at its left.
    cells: Sequence[Cell]  # In order.
    kind: str = ""  # Empty for cells.
    look: str = ""  # Style class of a page.
    on: bool = False  # Whether the element that is worked through is in it.
    colour: str = ""  # Of the field before its label.
    title: str = ""  # What pointing at its label shows; what is read out of a row without a label.


@dataclass(frozen=True, slots=True)
class Cells:
    """Rows over the same columns."""

    rows: Sequence[Row]  # From top to bottom.
    left: float = 0.0  # Pixels for the labels, of the SVG.
    unit: float = 46.0  # Pixels of a column, of the SVG.

    @property
    def columns(self) -> int:
        """How many columns there are."""
        return max(sum(each.span for each in row.cells) for row in self.rows)

    # -- as a table

    def html(self, class_: str, *, style: str = "", labels: int = 0) -> str:
        """Return a table; ``labels`` are the pixels of its first column where its columns are equally wide."""
        columns = tag("colgroup", f'<col style="width:{labels}px">', f'<col span="{self.columns}">') if labels else ""
        rows = []
        for row in self.rows:
            words = escape(row.label)
            head = (swatch(row.colour) + " " + tag("code", words)) if row.colour else words
            marked = {"class_": "tm-on" if row.on else None, "title": row.title or None}
            first = tag("th", head, **marked) if row.label else corner(row.title)
            rows.append(tag("tr", first, *(_td(each, row) for each in row.cells), class_=row.look or None))
        return tag("table", columns, *rows, class_=f"tm-cells {class_}", style=style or None)

    # -- as SVG

    @property
    def height(self) -> float:
        """How high the SVG is."""
        return sum(map(_height, self.rows))

    @property
    def right(self) -> float:
        """Where the SVG ends."""
        return self.left + self.unit * self.columns

    def box(self, row: int, at: int, top: float = 0.0) -> Box:
        """Return where a cell lies in the SVG."""
        line = self.rows[row]
        before, above = sum(each.span for each in line.cells[:at]), sum(map(_height, self.rows[:row]))
        return self.left + before * self.unit, top + above, line.cells[at].span * self.unit, _height(line)

    @property
    def chosen(self) -> tuple[int, int] | None:
        """Row and place of the element that is worked through."""
        every = ((r, at) for r, row in enumerate(self.rows) for at, each in enumerate(row.cells) if each.on)
        return next(((r, at) for r, at in every if not self.rows[r].kind), None)

    def svg(self, top: float = 0.0) -> str:
        """Return rows, their labels, and the frame around the element that is worked through."""
        parts = []
        for at, row in enumerate(self.rows):
            y, high = self.box(at, 0, top)[1], _height(row)
            label = shortened(row.label, max(int(self.left / CHARACTER), 4))
            parts.append(text(self.left - 8, y + high / 2 + 4, label, "e b" if row.on else "e q") if label else "")
            for place, each in enumerate(row.cells):
                if not row.kind or each.text:
                    box = self.box(at, place, top)
                    parts.append(_beside(each, box, row.kind) if row.kind else _filled(each, box))
        return "".join(parts) + (ring(self.box(*self.chosen, top)) if self.chosen else "")

    # -- in a terminal

    def framed(self, width: int) -> tuple[Canvas, int, int] | None:
        """Return the rows with a frame around each cell; where it begins, and how wide a column is.

        None where that needs more than ``width`` columns.
        """
        mark = any(each.bad for row in self.rows for each in row.cells)  # then there is room for its sign behind each
        rows = [
            [each.text + ("!" if each.bad else " ") if mark and each.text and not row.kind else each.text
             for each in row.cells] for row in self.rows
        ]  # fmt: skip
        wide = max(-(-(len(words) + 1) // each.span) - 1 for row, line in zip(rows, self.rows, strict=True)
                   if line.kind != "brackets" for words, each in zip(row, line.cells, strict=True))  # fmt: skip
        wide, left = max(wide, 2), self.text_left
        if left + (wide + 1) * self.columns + 1 > width:
            return None
        canvas = Canvas()
        for at, row in enumerate(self.rows):
            widths = [each.span * (wide + 1) - 1 for each in row.cells]
            level = ["\u2500" * each for each in widths]
            if not row.kind and (not at or self.rows[at - 1].kind):
                canvas.put(canvas.height, left, f"\u250c{chr(0x252C).join(level)}\u2510")
            line = canvas.height
            canvas.put(line, 1, row.label)
            pieces = [_piece(row.kind, *one) for one in zip(row.cells, rows[at], widths, strict=True)]
            canvas.put(line, left, ("".join(pieces) + ("" if row.kind else "\u2502")).rstrip())
            if not row.kind and (at + 1 == len(self.rows) or self.rows[at + 1].kind):
                canvas.put(canvas.height, left, f"\u2514{chr(0x2534).join(level)}\u2518")
        return canvas, left, wide

    @property
    def text_left(self) -> int:
        """At which column of a terminal the cells begin."""
        return max(len(row.label) for row in self.rows) + 3

    def dense(self, width: int, pointer: str = "", *, apart: bool = False) -> Canvas:
        """Return the rows as shades, without frames; ``pointer`` stands above the element that is worked through."""
        canvas, left, columns = Canvas(), self.text_left, self.columns
        room = max(min((width - left - 1) // columns, _MOST_ROOM), 1)
        if pointer and self.chosen:
            row = self.rows[self.chosen[0]]
            canvas.put(0, left + room * sum(each.span for each in row.cells[: self.chosen[1]]), f"\u25bc {pointer}")
        for row in self.rows:
            line, at, free = canvas.height, left, 0
            canvas.put(line, 1, row.label)
            for place, each in enumerate(row.cells):
                wide = each.span * room
                if not row.kind:
                    shade = _shaded(each, wide)
                    shade = f" {shade[1:]}" if apart and room > 1 else shade
                    odd = apart and room == 1 and place % 2
                    canvas.put(line, at, shade.replace(FULL, DENSITY[1]) if odd else shade)
                elif each.text and at >= free and at + len(each.text) <= max(width, left + wide):
                    canvas.put(line, at, each.text)
                    free = at + len(each.text) + 1
                at += wide
        return canvas


def ruler(label: str, starts: Sequence[int], every: int, chosen: int | None = None) -> Row:
    """Return the offsets at which cells begin, one for ``every`` so many of them."""
    cells = []
    for at in range(0, len(starts), every):
        span = min(every, len(starts) - at)
        words = count(starts[at]) if span == every or at == 0 else ""
        cells.append(Cell(words, span=span, on=every == 1 and at == chosen))
    return Row(label, cells, "heads", "tm-offsets" + (" tm-sparse" if every > 1 else ""))


def _td(each: Cell, row: Row) -> str:
    """Return a cell of a table, its text in an ink that can be read on its colour."""
    span = each.span if each.span > 1 else None
    if row.kind:
        words = tag("b", escape(each.text)) if each.on and row.look else escape(each.text)
        classes = " ".join(filter(None, (each.look, "tm-on" if each.on else ""))) or None
        name = "td" if row.look else "th"
        return tag(name, words, colspan=span, class_=classes, title=each.title or None)
    partly = 0 < each.share < 1
    named = {"tm-skip": each.share < 1, "tm-part": partly, "tm-on": each.on, "tm-near": each.near, "tm-bad": each.bad}
    styled = " ".join(filter(None, [each.look, *(name for name, wanted in named.items() if wanted)]))
    content = (tag("b", escape(each.text)) if each.on else escape(each.text)) if each.text else ""
    content += '<small class="tm-ex">!</small>' if each.bad else ""
    content += f" {tag('small', escape(each.below))}" if each.below else ""
    style = f"background:{each.colour}" if each.colour else ""
    style += f";color:{theme.ink_on(each.colour)}" if content and each.colour else ""
    if partly:
        high = max(round(_HEIGHT * each.share), _LEAST_FILL)
        content, style = f'<div style="height:{high}px;background:{each.colour}"></div>', ""
    style = _UNREAD if not each.share else style
    return tag("td", content, colspan=span, class_=styled or None, style=style or None, title=each.title or None)


def _height(row: Row) -> float:
    if row.kind:
        return _HEAD if row.kind == "heads" else _BRACKET
    return _TALL if any(each.below for each in row.cells) else _HEIGHT


def _filled(each: Cell, box: Box) -> str:
    x, y, width, height = box
    drawn, title = "", printable(each.title)
    if each.share < 1:
        drawn = svg_paths.rect(*box, title="" if each.share else title, fill=HATCHED, stroke=FRAME)
    if each.colour and each.share:
        high = max(height * each.share, _LEAST_FILL)
        drawn += svg_paths.rect(x, y + height - high, width, high, title=title, fill=each.colour, stroke=PAPER)
    ink = f' style="fill:{theme.ink_on(each.colour)}"' if each.colour else ""
    words = shortened(each.text, max(int((width + 2) / CHARACTER), 1)) if width >= CHARACTER else ""
    lines = [(words, 12.0, "c"), (each.below, 24.0, "c s")] if each.below else []
    for line, below, class_ in lines or ([(words, height / 2 + 4, "c")] if words and each.share == 1 else []):
        place = f'x="{number(x + width / 2)}" y="{number(y + below)}"'
        drawn += f'<text class="{class_}" {place}{ink}>{escape(printable(line))}</text>'
    return drawn + (f'<path d="M{number(x + width - 9)} {number(y + 1)}h8v8z"{ink}/>' if each.bad else "")


def _beside(each: Cell, box: Box, kind: str) -> str:
    """Return a head over its column, at the left of several; or a bracket under some cells, with its label."""
    left, y, width, _ = box
    if kind == "heads":
        alone = each.span == 1
        x = left + (width / 2 if alone else 0)
        return text(x, y + 12, each.text, ("c " if alone else "") + ("b" if each.on else "q"))
    way = f"M{number(left + 2)} {number(y + 3)}v4H{number(left + width - 2)}v-4"
    label = shortened(each.text, max(int(width / CHARACTER), 4))
    return f'<path d="{way}" fill="none" stroke="{LINE}"/>' + text(left + width / 2, y + 18, label, "c q")


def _piece(kind: str, each: Cell, words: str, wide: int) -> str:
    """Return a cell after a bar, or words over or under it, in so many columns of a terminal and one before them."""
    if not kind:
        shade = _shaded(each, wide) if each.colour or not each.share else " " * wide
        return f"\u2502{words.rjust(wide) if words and each.share else shade}"
    if kind == "heads":
        return " " + words.rjust(wide)[:wide]
    label = words if len(words) <= wide - 1 else words.rsplit(" ", 1)[-1]
    label = label if len(label) <= wide - 1 else ""
    return f"\u2514{label.center(wide - 1, chr(0x2500))}\u2518" if words and wide > 1 else " " * (wide + 1)


def _shaded(each: Cell, wide: int) -> str:
    """Return a cell without a frame: its text where that has room, else a shade."""
    if not each.share:
        return NOT_READ * wide
    if each.share < 1:
        return DENSITY[each.share >= 0.5] * wide
    return f" {each.text}".ljust(wide) if each.text and len(each.text) < wide else FULL * wide


def fraction(value: float, low: float, high: float) -> float:
    """Return where ``value`` lies between ``low`` (0) and ``high`` (1); 0 where both are the same."""
    return min(max((value - low) / (high - low), 0.0), 1.0) if high > low else 0.0


def steps(levels: Sequence[Sequence[float]], scale: tuple[float, float]) -> list[list[int]]:
    """Return the place in the palette of each value, or its sign for what is no finite number."""

    def step(level: float) -> int:
        bad = next((sign for _, is_one, sign in NOT_FINITE if is_one(level)), None)
        return round(fraction(level, *scale) * (LEVELS - 1)) if bad is None else bad

    return [list(map(step, row)) for row in levels]


def ends(scale: tuple[float, float]) -> str:
    """Return which values are darkest and lightest."""
    return f"from {short_number(scale[0])} (darkest) to {short_number(scale[1])} (lightest)"


def broken(grid: Grid) -> str:
    """Return how many values of each kind are no finite number: ``3 NaN and 1 +Inf``."""
    every = [level for row in grid.levels for level in row]
    kinds = ((label, sum(map(is_one, every))) for label, is_one, _ in NOT_FINITE)
    return listed(f"{count(found)} {label}" for label, found in kinds if found)


def image(cells: Sequence[Sequence[int]], size: int, sentence: str, *, palette: Sequence[str] = PALETTE) -> str:
    """Return joined cells as a picture of ``size`` pixels a cell; ``sentence`` says what is to be seen."""
    place = f'width="{len(cells[0]) * size}" height="{len(cells) * size}"'
    source = svg_paths.heatmap([list(row) for row in cells], tuple(palette), size=size)
    return f'<img src="{source}" {place} alt="{escape(sentence)}">'


def scale_html() -> str:
    """Return the colours, from dark to light."""
    return image([list(range(LEVELS))], 5, "dark to light").replace('height="5"', 'height="10"')


def swatch(colour: str, class_: str = "", text: str = "") -> str:
    """Return a small field of a colour, for a legend."""
    style = f"background-color:{colour}" if colour else None
    return tag("span", text or "&nbsp;" * 3, class_=f"tm-swatch {class_}".strip(), style=style)


def lettered(content: str) -> str:
    """Return a drawing whose texts are set as code, and that may hatch."""
    return tag("g", f"<style>{_STYLE}</style>", _HATCH if HATCHED in content else "", content, class_="cells")


def text(x: float, y: float, words: str, class_: str = "", *, title: str = "") -> str:
    """Return a text of `lettered`: q(uiet), b(old), s(mall), aligned to its e(nd) or c(entre); with a tooltip."""
    tip = tag("title", escape(title)) if title else ""
    return tag("text", tip, escape(printable(words)), x=number(x), y=number(y), class_=class_ or None)


def ring(box: Box) -> str:
    """Return the frame around what is worked through."""
    return "".join(svg_paths.rect(*box, fill="none", stroke=ink, stroke_width=wide)
                   for ink, wide in ((PAPER, 4.5), (INK, 2)))  # fmt: skip


def patches(cells: Sequence[Sequence[int]], box: Box, *, palette: Sequence[str] = PALETTE) -> str:
    """Return what `image` draws, as SVG, the first cell in ``box``: a path a colour, neighbours in a row joined."""
    left, top, width, height = box
    paths: dict[str, list[str]] = {}
    for row, places in enumerate(cells):
        at = 0
        fills = (palette[place] if place >= 0 else SKIP if place == svg_paths.EMPTY else HATCHED for place in places)
        for fill, run in groupby(fills):
            across = number(width * (wide := len(list(run))))
            start = f"M{number(left + at * width)} {number(top + row * height)}"
            paths.setdefault(fill, []).append(f"{start}h{across}v{number(height)}h-{across}z")
            at += wide
    shapes = (f'<path fill="{fill}" d="{"".join(runs)}"/>' for fill, runs in paths.items())
    return tag("g", *shapes, shape_rendering="crispEdges")
