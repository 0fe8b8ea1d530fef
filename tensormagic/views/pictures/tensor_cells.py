"""Cells coloured by offset or by value, of which the pictures of a tensor are made: as markup and as SVG."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import groupby

from tensormagic.renderers.basics import svg_paths, theme
from tensormagic.renderers.basics.markup import escape, tag
from tensormagic.renderers.basics.svg_paths import number
from tensormagic.renderers.terminal.text_canvas import printable
from tensormagic.reports import Grid
from tensormagic.views.pictures.tensor_elements import LEVELS, fraction
from tensormagic.words import MINUS, count, listed, short_number

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


def steps(levels: Sequence[Sequence[float]], scale: tuple[float, float]) -> list[list[int]]:
    """Return the place in the palette of each value, or its sign for what is no finite number."""
    return [[_step(level, scale) for level in row] for row in levels]


def _step(level: float, scale: tuple[float, float]) -> int:
    bad = next((sign for _, is_one, sign in NOT_FINITE if is_one(level)), None)
    return round(fraction(level, *scale) * (LEVELS - 1)) if bad is None else bad


def ends(scale: tuple[float, float]) -> str:
    """Return which values are darkest and lightest."""
    return f"from {short_number(scale[0])} (darkest) to {short_number(scale[1])} (lightest)"


def broken(grid: Grid) -> str:
    """Return how many values of each kind are no finite number: ``3 NaN and 1 +Inf``."""
    every = [level for row in grid.levels for level in row]
    kinds = ((label, sum(map(is_one, every))) for label, is_one, _ in NOT_FINITE)
    return listed(f"{count(found)} {label}" for label, found in kinds if found)


# -- in a page -------------------------------------------------------------------------------------------------------


def cell(  # noqa: PLR0913  (all but text and colour is keyword-only)
    text: str, colour: str, *, title: str, on: bool, bad: str = "", near: bool = False, below: str = ""
) -> str:
    """Return a cell of a table, its text in an ink that can be read on its colour."""
    classes = " ".join(name for name, wanted in (("tm-on", on), ("tm-near", near), ("tm-bad", bad)) if wanted)
    content = (tag("b", escape(text)) if on else escape(text)) + ('<small class="tm-ex">!</small>' if bad else "")
    content += f" {tag('small', escape(below))}" if below else ""
    ink = f";color:{theme.ink_on(colour)}" if content else ""
    return tag("td", content, class_=classes or None, style=f"background:{colour}{ink}", title=title)


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


# -- as SVG ----------------------------------------------------------------------------------------------------------


def lettered(content: str) -> str:
    """Return a drawing whose texts are set as code, and that may hatch."""
    return tag("g", f"<style>{_STYLE}</style>{_HATCH}", content, class_="cells")


def text(x: float, y: float, words: str, class_: str = "") -> str:
    """Return a text of `lettered`: q(uiet), b(old), s(mall), aligned to its e(nd) or c(entre)."""
    return tag("text", escape(printable(words)), x=number(x), y=number(y), class_=class_ or None)


def rect(box: Box, fill: str, *, title: str = "", stroke: str = PAPER) -> str:
    """Return a filled box."""
    x, y, width, height = map(number, box)
    inner = tag("title", escape(printable(title))) if title else ""
    return tag("rect", inner, x=x, y=y, width=width, height=height, fill=fill, stroke=stroke)


def on_colour(box: Box, words: str, colour: str, class_: str = "c") -> str:
    """Return a text in the middle of a box of that colour."""
    x, y, width, height = box
    place = f'x="{number(x + width / 2)}" y="{number(y + height / 2 + 4)}"'
    return f'<text class="{class_}" {place} style="fill:{theme.ink_on(colour)}">{escape(printable(words))}</text>'


def corner(box: Box, colour: str) -> str:
    """Return the corner that marks a value that is not finite."""
    x, y, width, _ = box
    return f'<path d="M{number(x + width - 9)} {number(y + 1)}h8v8z" fill="{theme.ink_on(colour)}"/>'


def ring(box: Box) -> str:
    """Return the frame around what is worked through."""
    x, y, width, height = map(number, box)
    place = f'x="{x}" y="{y}" width="{width}" height="{height}" fill="none"'
    return f'<rect {place} stroke="{PAPER}" stroke-width="4.5"/><rect {place} stroke="{INK}" stroke-width="2"/>'


def bracket(left: float, right: float, y: float, label: str) -> str:
    """Return a bracket under some cells, with its label."""
    line = f'<path d="M{number(left + 2)} {number(y)}v4H{number(right - 2)}v-4" fill="none" stroke="{LINE}"/>'
    return line + text((left + right) / 2, y + 15, label, "c q")


def patches(fills: Sequence[Sequence[str]], box: Box) -> str:
    """Return joined cells, the first of them in ``box``: a path a colour, neighbours in a row joined."""
    left, top, width, height = box
    paths: dict[str, list[str]] = {}
    for row, line in enumerate(fills):
        for fill, run in groupby(range(len(line)), key=line.__getitem__):
            columns = list(run)
            across = number(width * len(columns))
            start = f"M{number(left + columns[0] * width)} {number(top + row * height)}"
            paths.setdefault(fill, []).append(f"{start}h{across}v{number(height)}h-{across}z")
    shapes = (f'<path fill="{fill}" d="{"".join(runs)}"/>' for fill, runs in paths.items())
    return tag("g", *shapes, shape_rendering="crispEdges")
