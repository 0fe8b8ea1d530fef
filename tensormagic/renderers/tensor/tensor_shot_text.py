"""The picture in a terminal: the first image in shades of characters, signals as bars."""

from __future__ import annotations

import math
import textwrap

from tensormagic.renderers.tensor.tensor_shot_words import heading, notes
from tensormagic.renderers.terminal.text_canvas import BLOCKS, NOT_FINITE
from tensormagic.reports import ImageFrame, SignalLine, TensorPicture, TensorReport
from tensormagic.words import shortened

SHADES = " \u2591\u2592\u2593\u2588"
MOST_COLUMNS, MOST_ROWS = 64, 28
_INDENT = " " * 10


def shot_text(report: TensorReport, width: int) -> list[str]:
    """Return the picture; nothing where none was asked for or could be made."""
    picture = report.picture
    if picture is None:
        return []
    columns = min(MOST_COLUMNS, width - 2 * len(_INDENT))
    drawn = _signals(picture, columns) if picture.lines else _shades(picture, picture.images[0], columns)
    words = "; ".join([heading(report, picture), *notes(picture), *_first_only(picture)])
    return [*textwrap.wrap(f" PICTURE  {words}", width, subsequent_indent=_INDENT), *drawn]


def _first_only(picture: TensorPicture) -> list[str]:
    found = ["below is the first"] if len(picture.images) > 1 else []
    found += ["in shades of its mean over the colours"] if picture.channels == 3 else []
    return found + ([f"{NOT_FINITE} stands for these"] if picture.bad else [])


def _shades(picture: TensorPicture, image: ImageFrame, columns: int) -> list[str]:
    """Return an image at one character by half as many rows: a character is twice as high as wide."""
    step = max(-(-image.width // columns), -(-image.height // (2 * MOST_ROWS)), 1)
    pixels = image.unpacked()
    bytes_each = picture.channels + 1
    lines = []
    for y in range(0, image.height, 2 * step):
        starts = ((y * image.width + x) * bytes_each for x in range(0, image.width, step))
        lines.append(_INDENT + "".join(_shade(pixels[at : at + bytes_each]) for at in starts).rstrip())
    return lines


def _shade(pixel: bytes) -> str:
    *levels, opacity = pixel
    return SHADES[round(sum(levels) / len(levels) / 255 * (len(SHADES) - 1))] if opacity else NOT_FINITE


def _signals(picture: TensorPicture, columns: int) -> list[str]:
    return [f"{shortened(line.label, 8):>9} {_bars(picture, line, columns)}" for line in picture.lines]


def _bars(picture: TensorPicture, line: SignalLine, columns: int) -> str:
    count = min(columns, len(line.high))
    cuts = [len(line.high) * at // count for at in range(count + 1)]
    return "".join(_bar(picture, line, cuts[at], cuts[at + 1]) for at in range(count))


def _bar(picture: TensorPicture, line: SignalLine, start: int, stop: int) -> str:
    values = [value for value in line.high[start:stop] if not math.isnan(value)]
    if any(line.bad[start:stop]) or not values:
        return NOT_FINITE
    share = (max(values) - picture.low) / ((picture.high - picture.low) or 1.0)
    return BLOCKS[round(share * (len(BLOCKS) - 1))]
