"""Shapes for SVG, each as short as it can be written, and pictures of pixels as PNG."""

from __future__ import annotations

import base64
import math
import re
import struct
import zlib
from collections.abc import Sequence
from itertools import accumulate, pairwise, zip_longest

from tensormagic.views import theme
from tensormagic.views.markup import attributes, escape

# SVG path data: lines through points, arrowheads, hatching. No ids and no references, so pictures can be repeated.

Point = tuple[float, float]

_CORNER = 6.0
_BELOW = 12.0  # pixels between pictures below one another


def number(value: float) -> str:
    """Return a coordinate with at most one decimal, none where it is whole, and no zero before it."""
    text = f"{value:.1f}".removesuffix(".0")
    return text.replace("0.", ".") if abs(value) < 1 else text


def point(x: float, y: float) -> str:
    """Return ``x,y`` as path data."""
    return f"{number(x)},{number(y)}"


def rect(x: float, y: float, width: float, height: float, *, title: str = "", **look: object) -> str:
    """Return a rectangle; ``title`` is its tooltip."""
    place = f'x="{number(x)}" y="{number(y)}" width="{number(width)}" height="{number(height)}"'
    shape = f"<rect {place}{attributes(**look)}"
    return f"{shape}><title>{escape(title)}</title></rect>" if title else f"{shape}/>"


def moved(x: float, y: float, *content: str) -> str:
    """Return a drawing whose origin lies at a point."""
    return f'<g transform="translate({point(x, y)})">{"".join(content)}</g>'


def document(content: str, width: float, height: float, look: str = "") -> str:
    """Return a drawing as a picture of its own; ``look`` are further attributes."""
    wide, high = number(width), number(height)
    size = f'width="{wide}" height="{high}" viewBox="0 0 {wide} {high}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}{look}>{content}</svg>'


def size_of(drawn: str) -> tuple[float, float]:
    """Return how wide and how high a picture of its own is."""
    wide, high = re.findall(r' (?:width|height)="([\d.]+)"', drawn)[:2]
    return float(wide), float(high)


def stacked(pictures: Sequence[str]) -> str:
    """Return pictures of their own below one another as one."""
    sizes = [size_of(picture) for picture in pictures]
    tops = [0.0, *accumulate(high + _BELOW for _, high in sizes)]
    placed = (picture.replace("<svg ", f'<svg y="{y:.0f}" ', 1) for picture, y in zip(pictures, tops, strict=False))
    return document("".join(placed), max(wide for wide, _ in sizes), round(tops[-1] - _BELOW), ' role="img"')


def within(drawn: str, width: float) -> tuple[str, float]:
    """Return a picture of its own as a part of another one, smaller where it is wider than that, and its height."""
    wide, high = size_of(drawn)
    scale = min(width / wide, 1.0)
    return f'<g transform="scale({number(scale)})">{drawn}</g>', high * scale


def polyline(points: Sequence[Point]) -> str:
    """Return a path of straight pieces through ``points``, which have at most one decimal: each from the one before."""
    steps = (_step(before, after) for before, after in pairwise(points))
    return f"M{point(*points[0])}l{' '.join(steps).replace(' -', '-').replace(',-', '-')}"


def eased(points: Sequence[Point]) -> list[Point]:
    """Return points without those so near to the line between their neighbours; of two in a row one stays."""
    kept = [points[0]]
    for before, here, after in zip(points, points[1:], points[2:], strict=False):
        across, down = after[0] - before[0], after[1] - before[1]
        away = abs(across * (here[1] - before[1]) - down * (here[0] - before[0])) / (math.hypot(across, down) or 1.0)
        if kept[-1] is not before or away > 0.4:
            kept.append(here)
    return [*kept, *points[1:][-1:]]


def line(points: Sequence[Point]) -> str:
    """Return a path through ``points``: level and upright pieces with round corners, slanting ones as soft curves."""
    at, parts = points[0], [f"M{point(*points[0])}"]
    for corner, following in zip_longest(points[1:], points[2:]):
        end, (across, down) = corner, (corner[0] - at[0], corner[1] - at[1])
        if across and down:
            middle = round(across / 2)
            parts.append(f"c{middle},0 {point(middle, down)} {point(across, down)}")
        elif following and ((not down and end[0] == following[0]) or (not across and end[1] == following[1])):
            before, after = _towards(end, at), _towards(end, following)
            parts.append(f"{_straight(at, before)}q{_step(before, end)} {_step(before, after)}")
            end = after
        else:
            parts.append(_straight(at, end))
        at = end
    return "".join(parts)


def _step(start: Point, end: Point) -> str:
    return point(end[0] - start[0], end[1] - start[1])


def _straight(start: Point, end: Point) -> str:
    return f"H{number(end[0])}" if start[1] == end[1] else f"V{number(end[1])}"


def _towards(corner: Point, other: Point) -> Point:
    """Return the point where rounding ``corner`` begins, on the way to ``other``."""
    length = math.dist(corner, other)  # level or upright
    share = min(_CORNER, length / 2) / length if length else 0.0
    return corner[0] + (other[0] - corner[0]) * share, corner[1] + (other[1] - corner[1]) * share


def arrowhead(tip: Point, length: float, half: float) -> str:
    """Return a triangle that points left, its tip at ``tip``."""
    return f"M{point(*tip)}l{number(length)}-{number(half)}v{number(2 * half)}z"


def hatching(x: float, y: float, width: float, height: float, step: float = 6.0) -> str:
    """Return slanting lines across a rectangle, each from edge to edge."""
    parts = []
    for at in range(1, int((width + height) // step) + 1):
        start, end = max(at * step - height, 0.0), min(at * step, width)
        parts.append(f"M{point(x + start, y + at * step - start)}l{point(end - start, start - end)}")
    return "".join(parts)


# Collects shapes and texts by their style, so that a picture of hundreds of boxes stays a small file.
#
# Shapes of one style become one path, texts of one style one group. Within a canvas nothing may lie on anything of
# another style that is not its own ground; what must lie above goes onto a canvas of its own.


class Canvas:
    """Paths and texts, each by style: a class of the picture's style sheet."""

    def __init__(self) -> None:
        """Start empty."""
        self._paths: dict[str, list[str]] = {}
        self._texts: dict[str, list[str]] = {}

    def path(self, style: str, data: str) -> None:
        """Add path data to the path of that style."""
        self._paths.setdefault(style, []).append(data)

    def text(self, style: str, x: float, y: float, words: str, *, title: str = "") -> None:
        """Add a text; ``title`` is its tooltip."""
        tip = f"<title>{escape(title)}</title>" if title else ""
        place = f'x="{round(x)}" y="{number(y)}"'
        self._texts.setdefault(style, []).append(f"<text {place}>{tip}{escape(words)}</text>")

    def svg(self) -> str:
        """Return everything: the paths in the order their styles first came, then the texts."""
        paths = (f'<path class="{style}" d="{"".join(data)}"/>' for style, data in self._paths.items())
        texts = (f'<g class="{style}">{"".join(items)}</g>' for style, items in self._texts.items())
        return "".join([*paths, *texts])


# A heatmap as a small PNG, written with the standard library alone.
#
# Hosts that strip ``<svg>`` and ``<style>`` still show an ``<img>`` with a PNG in its address, and a page of 1024
# cells is a tenth of the size of the same cells as markup. One byte a pixel, with a palette; what is not a number is
# drawn as transparent hatching, which reads on light and dark pages alike.

CLEAR, LINE = 0, 1  # palette entries: nothing, and the hatch line
FIRST_COLOUR = 2
NOT_A_NUMBER, PLUS_INFINITY, MINUS_INFINITY = -1, -2, -3
EMPTY = -4  # a cell with nothing in it


def heatmap(cells: Sequence[Sequence[int]], palette: Sequence[str], *, size: int) -> str:
    """Return an ``<img src>`` of cells drawn as squares of ``size`` pixels.

    Args:
        cells: For each cell the place of its colour in ``palette``, or one of the negative constants above.
        palette: Colours as ``#rrggbb``, at most 254.
        size: Pixels along the side of one cell.
    """

    def pixel(cell: int, x: int, y: int) -> int:
        if cell >= 0 or cell == EMPTY:
            return FIRST_COLOUR + cell if cell >= 0 else CLEAR
        rising, falling = cell != MINUS_INFINITY, cell != PLUS_INFINITY
        return LINE if (rising and (x + y) % 5 == 0) or (falling and (x - y) % 5 == 0) else CLEAR

    lines = [
        bytes(pixel(cell, at * size + x, y0 * size + y) for at, cell in enumerate(row) for x in range(size))
        for y0, row in enumerate(cells) for y in range(size)
    ]  # fmt: skip
    return indexed(lines, ["", theme.MIXED_COLOUR, *palette])


def indexed(lines: Sequence[bytes], palette: Sequence[str]) -> str:
    """Return an ``<img src>`` of rows of one byte a pixel.

    A pixel is the place of its colour in ``palette``: ``#rrggbb``, ``#rrggbbaa``, ``rgba(r,g,b,a)``; clear where empty.
    """
    colours = []
    for colour in palette:
        if colour.startswith("rgba("):
            *channels, alpha = colour[5:-1].split(",")
            colours.append(bytes([*map(int, channels), round(255 * float(alpha))]))
        else:
            colours.append(bytes.fromhex(f"{colour[1:]}ff"[:8]) if colour else bytes(4))
    opacities = bytes(colour[3] for colour in colours).rstrip(b"\xff")
    palette_bytes = b"".join(colour[:3] for colour in colours)
    return _png(len(lines[0]), 3, lines, (b"PLTE", palette_bytes), (b"tRNS", opacities))


def image(pixels: bytes, width: int, height: int) -> str:
    """Return an ``<img src>`` of 8-bit pixels: level and opacity, or red, green, blue and opacity, row by row."""
    stride = len(pixels) // height
    lines = [pixels[at : at + stride] for at in range(0, len(pixels), stride)]
    return _png(width, 4 if stride == 2 * width else 6, lines)


def _png(width: int, kind_of_pixel: int, lines: Sequence[bytes], *colours: tuple[bytes, bytes]) -> str:
    header = struct.pack(">IIBBBBB", width, len(lines), 8, kind_of_pixel, 0, 0, 0)
    packed = zlib.compress(b"".join(b"\0" + line for line in lines), 9)
    png = b"\x89PNG\r\n\x1a\n"
    for kind, data in ((b"IHDR", header), *colours, (b"IDAT", packed), (b"IEND", b"")):
        png += struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    return "data:image/png;base64," + base64.b64encode(png).decode("ascii")
