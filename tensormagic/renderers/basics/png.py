"""A heatmap as a small PNG, written with the standard library alone.

Hosts that strip ``<svg>`` and ``<style>`` still show an ``<img>`` with a PNG in its address, and a page of 1024 cells
is a tenth of the size of the same cells as markup. One byte a pixel, with a palette; what is not a number is drawn as
transparent hatching, which reads on light and dark pages alike.
"""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Sequence

from tensormagic.renderers.basics import theme

CLEAR, LINE = 0, 1  # palette entries: nothing, and the hatch line
FIRST_COLOUR = 2
NOT_A_NUMBER, PLUS_INFINITY, MINUS_INFINITY = -1, -2, -3
EMPTY = -4  # a cell with nothing in it
_HATCH_LINE = bytes.fromhex(theme.MIXED_COLOUR[1:])


def heatmap(cells: Sequence[Sequence[int]], palette: Sequence[str], *, size: int) -> str:
    """Return an ``<img src>`` of cells drawn as squares of ``size`` pixels.

    Args:
        cells: For each cell the place of its colour in ``palette``, or one of the negative constants above.
        palette: Colours as ``#rrggbb``, at most 254.
        size: Pixels along the side of one cell.
    """
    lines = b"".join(b"\0" + line for at, row in enumerate(cells) for line in _pixel_lines(row, at * size, size))
    width, height = len(cells[0]) * size, len(cells) * size
    header = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    chunks = (
        _chunk(b"IHDR", header),
        _chunk(b"PLTE", bytes(_palette(palette))),
        _chunk(b"tRNS", b"\0"),
        _chunk(b"IDAT", zlib.compress(lines, 9)),
        _chunk(b"IEND", b""),
    )
    return _data_uri(*chunks)


def _palette(palette: Sequence[str]) -> list[int]:
    channels = [int(colour[at : at + 2], 16) for colour in palette for at in (1, 3, 5)]
    return [0, 0, 0, *_HATCH_LINE, *channels]


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def _pixel_lines(row: Sequence[int], top: int, size: int) -> list[bytes]:
    return [
        b"".join(_cell_line(cell, at * size, y, size) for at, cell in enumerate(row)) for y in range(top, top + size)
    ]


def _cell_line(cell: int, left: int, y: int, size: int) -> bytes:
    if cell >= 0:
        return bytes([FIRST_COLOUR + cell]) * size
    return bytes(LINE if _hatched(cell, x, y) else CLEAR for x in range(left, left + size))


def _hatched(cell: int, x: int, y: int) -> bool:
    rising, falling = (x + y) % 5 == 0, (x - y) % 5 == 0
    if cell == EMPTY:
        return False
    if cell == NOT_A_NUMBER:
        return rising or falling
    return rising if cell == PLUS_INFINITY else falling


def image(pixels: bytes, width: int, height: int) -> str:
    """Return an ``<img src>`` of 8-bit pixels: level and opacity, or red, green, blue and opacity, row by row."""
    stride = len(pixels) // height
    lines = b"".join(b"\0" + pixels[at : at + stride] for at in range(0, len(pixels), stride))
    grey_or_colour = 4 if stride == 2 * width else 6
    header = struct.pack(">IIBBBBB", width, height, 8, grey_or_colour, 0, 0, 0)
    return _data_uri(_chunk(b"IHDR", header), _chunk(b"IDAT", zlib.compress(lines, 9)), _chunk(b"IEND", b""))


def _data_uri(*chunks: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"".join(chunks)).decode("ascii")
